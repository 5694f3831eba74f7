"""The README is true, and docs/python.md: what they show is run. Every page's links lead somewhere.

`pytest tests/docs --update-golden` renews what commands print.
"""

import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import turnscript as ts

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PAGES = sorted(
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "tiny/*.md", "benchmarks/*.md")
    for page in ROOT.glob(pattern)
)
DOCUMENTS = [page for page in PAGES if page.startswith("docs/formats/")]
"""A page for each of the documents that formats were made from."""


def blocks(language: str, page: Path = README) -> list[str]:
    return [code for name, code in _BLOCK.findall(page.read_text(encoding="utf-8")) if name == language]


def prose(page: Path) -> str:
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def anchors(page: Path) -> set[str]:
    """The names that headings have in links."""
    return {re.sub(r"[^\w -]", "", one).strip().lower().replace(" ", "-") for one in _HEADING.findall(prose(page))}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder as a reader has it, with the command on the path."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def played(block: str) -> str:
    """A console block with what its commands print now."""
    return _COMMAND.sub(lambda found: f"$ {found[1]}\n{_output(found[1])}", block)


def _output(command: str) -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
    )
    return done.stdout.decode()


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        *(
            pytest.param(page, marks=pytest.mark.deep)
            for page in ("docs/grammars.md", "docs/chat-templates.md", "docs/models.md", *DOCUMENTS)
        ),
    ],
)
def test_commands_print_what_the_page_shows(name: str, folder: Path, request: pytest.FixtureRequest) -> None:
    page = ROOT / name
    actual = _BLOCK.sub(lambda found: _played_block(found[1], found[2]), page.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        page.write_text(actual, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == actual


def _played_block(language: str, code: str) -> str:
    return f"```{language}\n{played(code) if language == 'console' else code}```"


@pytest.mark.parametrize(
    "page", ["README.md", "docs/python.md", "docs/grammars.md", "docs/chat-templates.md", "docs/models.md"]
)
def test_python_does_what_the_page_shows(page: str, folder: Path) -> None:
    """A block with prompts is a session, one without is a program; what one block names, those below it know."""
    names: dict[str, object] = {}
    for code in blocks("python", ROOT / page):
        if ">>> " not in code:
            exec(compile(code, page, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(code, names, page, page, 0)
        said: list[str] = []
        assert test.examples
        assert 0 == doctest.DocTestRunner().run(test, out=said.append, clear_globs=False).failed, "".join(said)
        names.update(test.globs)


def test_every_block_is_of_a_kind_that_is_checked() -> None:
    kinds = {name for name, _ in _BLOCK.findall(README.read_text(encoding="utf-8"))}
    assert {"console", "python", "sh", "text"} == kinds


def test_the_make_targets_that_the_readme_names_exist() -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {word for code in blocks("sh") for word in re.findall(r"^make (\w+)", code, re.MULTILINE)}
    assert {"demo", "check"} == named
    assert all(re.search(rf"^{name}:", rules, re.MULTILINE) for name in named)


def test_the_tables_list_every_api_and_format() -> None:
    listed = re.findall(
        r"^\| `([a-z0-9-]+)` \|(?: `(\S+)` \|)? (.+) \|$", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    apis = [(api.name, api.endpoint, api.title) for api in map(ts.get_api, ts.apis())]
    formats = [(one.name, "", one.title) for one in map(ts.get_format, ts.formats())]
    assert sorted(apis + formats) == sorted(listed)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for file, anchor in _LINK.findall(prose(path)):
        target = path.parent / file if file else path
        assert target.exists(), f"{page} links to {file}"
        assert not anchor or anchor in anchors(target), f"{page} links to {file}#{anchor}"


def test_every_example_has_a_line_and_every_line_an_example() -> None:
    listed = re.findall(r"^- `(\S+)`: ", (ROOT / "examples/README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(path.name for path in (ROOT / "examples").iterdir() if path.name != "README.md") == sorted(listed)
