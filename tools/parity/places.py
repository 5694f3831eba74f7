"""Owns where templates come from: a folder that is named, or a source distribution that pip fetches once."""

import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Their project is MIT. The templates are the models' own: they are compared with, and stay out of the repository.
PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
_INSIDE = "/vendor/llama.cpp/models/templates/"

# What a tokenizer would say where a template asks for it, by how the file's name begins; the first that fits.
_TOKENS = Path(__file__).with_name("tokens.json")


@dataclass(frozen=True)
class Place:
    """A template: its name, its text, and the tokens that open and close a document, as its tokenizer has them."""

    name: str
    source: str
    tokens: dict[str, str]

    def folder(self, root: Path) -> Path:
        """Write it as a model's folder has it, and return that folder."""
        folder = root / self.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "chat_template.jinja").write_text(self.source, encoding="utf-8", newline="")
        (folder / "tokenizer_config.json").write_text(json.dumps(self.tokens, ensure_ascii=False), encoding="utf-8")
        return folder


def places(folder: Path) -> list[Place]:
    """Read every template of a folder, in the order of their names."""
    tokens = json.loads(_TOKENS.read_text(encoding="utf-8"))
    paths = sorted(folder.glob("*.jinja"), key=lambda path: path.name.lower())
    found = [_place(path, tokens) for path in paths]
    if not found:
        raise FileNotFoundError(f"{folder} holds no *.jinja: name a folder of chat templates")
    return found


def fetched() -> Path:
    """Return the folder of the default templates; fetch them first if this environment has none yet."""
    folder = Path(sys.prefix) / "templates" / f"{PACKAGE}-{VERSION}"
    if folder.is_dir():
        return folder
    archive = next(_archives(), None)
    if archive is None:
        print(f"fetching the source distribution of {PACKAGE} {VERSION} (77 MB, once) with pip", flush=True)
        wish = ["--quiet", "--no-deps", "--no-binary", PACKAGE, "--dest", sys.prefix, f"{PACKAGE}=={VERSION}"]
        subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *wish], check=True)
        archive = next(_archives())
    _unpack(archive, folder)
    print(f"the templates are in {folder}", flush=True)
    return folder


def _place(path: Path, tokens: dict[str, dict[str, str]]) -> Place:
    # As it stands: a template's last line break is trimmed by who renders it.
    with path.open(encoding="utf-8", newline="") as file:
        return Place(path.stem, file.read(), next(two for start, two in tokens.items() if path.name.startswith(start)))


def _archives() -> Iterator[Path]:
    yield from Path(sys.prefix).glob(f"{PACKAGE.replace('-', '?')}-{VERSION}.tar.gz")


def _unpack(archive: Path, folder: Path) -> None:
    """Take the templates out of the archive, and nothing else; the folder stands only when all of them do."""
    begun = folder.with_suffix(".begun")
    begun.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if _INSIDE in member.name and member.name.endswith(".jinja") else None
            if file is not None:
                (begun / Path(member.name).name).write_bytes(file.read())
    begun.rename(folder)
