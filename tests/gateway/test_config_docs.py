"""docs/configuration.md is true: its tables are the settings, and what it shows is run."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from turnscript.gateway.config import Config, Model, fields_of, needs_restart, shown_value, values_of
from turnscript.gateway.configfile import load
from turnscript.gateway.kinds import InvalidConfig

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "configuration.md"
EXAMPLE = ROOT / "examples" / "turnscript.toml"
_BLOCK = re.compile(r"^```(\w*)( wrong)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| `([a-z_.]+)` \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#]+)\)")
_TOKEN = re.compile(r"tsk-[a-z2-7]{12}-[A-Za-z0-9_-]{43}")
_ID = re.compile(r"(?<= )[a-z2-7]{12}(?= )")
_DAY = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
STATE = "/state/turnscript/"


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def blocks(language: str, wrong: str = "") -> list[str]:
    return [code for name, mark, code in _BLOCK.findall(page()) if (name, mark) == (language, wrong)]


def documented() -> dict[str, tuple[str, str, bool]]:
    """The rows of the tables: what each setting takes, its default, and whether it needs a restart."""
    found: dict[str, tuple[str, str, bool]] = {}
    for section in page().split("\n### `[")[1:]:
        name, _, text = section.partition("]`")
        rows = [(f"{name}.{key}", (takes, default, what.endswith("(restart)"))) for key, takes, default, what in
                _ROW.findall(text)]  # fmt: skip
        assert len(rows) == len(dict(rows))
        found |= dict(rows)
    return found


def real() -> dict[str, tuple[str, str, bool]]:
    """The same of the settings themselves."""
    config = load(None, {"XDG_STATE_HOME": "/state"})
    found = {}
    for name in fields_of(Config):
        table = getattr(config, name)
        for key, kind, value in values_of(table):
            shown = shown_value(kind, value).replace(STATE, "STATE/")
            found[f"{name}.{key}"] = (kind.words, shown, needs_restart(type(table), key))
    for key, kind, value in values_of(Model(backend=())):
        shown = "needed" if key == "backend" else shown_value(kind, value)
        found[f"models.NAME.{key}"] = (kind.words, shown, False)
    return found


def test_the_tables_are_the_settings() -> None:
    assert real() == documented()


def test_every_setting_is_read_by_something() -> None:
    """One that nothing looks at would be taken, described, and have no effect."""
    source = "".join([path.read_text(encoding="utf-8") for path in (ROOT / "src" / "turnscript").rglob("*.py")])
    names = {key.rpartition(".")[2] for key in real()}
    assert set() == {name for name in names if not re.search(rf"""\.{name}\b|["']{name}["']""", source)}


def test_every_setting_is_said_to_do_something() -> None:
    rows = _ROW.findall(page())
    assert len(real()) == len(rows)
    assert [] == [key for key, _, _, what in rows if len(what) < 9]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, with the command on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def read(folder: Path, text: str) -> Config:
    path = folder / "turnscript.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return load(path, {"UPSTREAM_KEY": "x", "PROXY_KEY": "x", "PROXY_LOGIN": "Basic x"})


@pytest.mark.parametrize("text", blocks("toml"))
def test_what_the_page_shows_is_a_configuration(folder: Path, text: str) -> None:
    found = read(folder, text)
    assert found.models
    assert all(model.takes for model in found.models)
    assert () == found.notes


def test_names_mean_the_models_that_the_page_says(folder: Path) -> None:
    found = read(folder, blocks("toml")[1])
    assert "large" == found.model_for("claude-opus-4-5").name
    assert "small" == found.model_for("claude-haiku-4-5").name


def test_the_variables_on_the_page_are_the_same_as_the_file_beside_them(folder: Path) -> None:
    (shell,) = blocks("sh")
    env = dict(line.split("=", 1) for line in shlex.split(shell))
    after = page().split(shell)[1]
    text = next(code for name, _, code in _BLOCK.findall(after.removeprefix("```")) if name == "toml")
    from_file = load(_written(folder, text), {})
    from_env = load(None, env)
    assert 6 == len(env)
    assert _values(from_file) == _values(from_env)


def _written(folder: Path, text: str) -> Path:
    path = folder / "turnscript.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _values(config: Config) -> dict[str, str]:
    return {setting.path: setting.value for setting in config.describe()}


def test_errors_are_as_the_page_shows_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(folder, blocks("toml", " wrong")[0])
    with pytest.raises(InvalidConfig) as caught:
        load("turnscript.toml", {})
    assert blocks("text") == ["".join(f"{error}\n" for error in (caught.value, *caught.value.others))]


@pytest.mark.deep
def test_the_command_prints_what_the_page_shows(folder: Path) -> None:
    (console,) = blocks("console")
    played = ""
    for command in re.findall(r"^\$ (.+)$", console, re.MULTILINE):
        done = subprocess.run(
            ["/bin/sh", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False
        )
        played += f"$ {command}\n{done.stdout.decode()}"
    played = _TOKEN.sub(f"tsk-{'X' * 12}-{'X' * 43}", played)
    assert console == _DAY.sub("2000-01-01T00:00:00Z", _ID.sub("X" * 12, played))


def test_every_block_is_checked() -> None:
    kinds = {f"{name}{mark}" for name, mark, _ in _BLOCK.findall(page())}
    assert {"toml", "toml wrong", "sh", "text", "console"} == kinds


def test_links_lead_somewhere() -> None:
    links = _LINK.findall(page())
    assert links
    assert [] == [link for link in links if not (PAGE.parent / link).exists()]


def test_the_presets_are_those_that_there_are() -> None:
    from turnscript.core.presets import presets  # noqa: PLC0415

    (sentence,) = re.findall(r"^The presets are (.+)\.$", page(), re.MULTILINE)
    assert presets() == re.findall(r"`(\S+)`", sentence)


def test_the_example_is_a_configuration_with_its_comments_too(folder: Path) -> None:
    found = load(EXAMPLE, {})
    assert ["rwkv", "chatml"] == [model.name for model in found.models]
    assert all(model.takes for model in found.models)
    assert ["rwkv", "chatml", "rwkv"] == [found.model_for(name).name for name in ("claude-x", "gpt-5", "other")]
    assert () == found.notes
    shutil.copy(EXAMPLE, "turnscript.toml")
    text = re.sub(r"^# (?=[a-z_]+ = )", "", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    with_more = read(folder, text)
    assert folder / "keys.jsonl" == with_more.server.keys
    assert with_more.models[1].key
    assert with_more.models[1].sends
