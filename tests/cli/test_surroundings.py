"""What is around a command is not as usual: its folder is gone, its user has no home, a variable was empty."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import turnscript
from tests.cli.running import CODE, EXAMPLES, as_nobody, convert, process, run

SOURCE = str(Path(turnscript.__file__).parents[1])
HOMELESS = """
import os, pwd
def none(user): raise KeyError(user)
pwd.getpwuid = none
os.environ.pop("HOME", None); os.environ.pop("XDG_STATE_HOME", None)
"""
ROWS = EXAMPLES / "training_rows.jsonl"
TO = ("--to", "rwkv-goose", "--tokenizer", "bytes")


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", str(EXAMPLES / "chat_request.json"), "--to", "openai-responses"],
        ["data", "build", str(ROWS), *TO, "--out", "run"],
        ["serve", "--check"],
    ],
    ids=lambda words: words[0],
)
def test_a_folder_that_is_gone_is_told(arguments: list[str], tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    enter = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})\n"
    variables = os.environ | {"PYTHONPATH": SOURCE}
    # -P: an installed program does not have this folder on its path. With it, Python 3.13.0 fails by itself.
    command = [sys.executable, "-P", "-c", enter + CODE, *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, timeout=60, check=False)
    said = "turnscript: error: the folder that this was called in is not there any more\n  cd to one that is there\n"
    assert (1, b"", said) == (done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize("command", [("serve", "--check"), ("keys", "list")], ids=lambda words: words[0])
def test_a_folder_that_may_not_be_entered_is_told(
    command: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `sudo -u`, which stays in the folder of whoever called it."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    run(*command)  # what it needs is loaded: another user may not read that here
    monkeypatch.chdir(closed)
    closed.chmod(0)
    with as_nobody():
        result = run(*command)
    closed.chmod(0o700)
    said = "turnscript: error: this user may not enter the folder that this was called in\n  cd to another one\n"
    assert (1, "", said) == (result.exit_code, result.stdout, result.stderr)


def test_each_setting_is_one_line_whatever_its_folder_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "a\nb\x1b[2J"
    folder.mkdir()
    file = folder / "turnscript.toml"
    file.write_text('[models.m]\nbackend = "http://127.0.0.1:1"\nformat = "rwkv-goose"\n', encoding="utf-8")
    result = run("serve", "--check", "--config", file)
    assert 0 == result.exit_code, result.stderr
    [line] = [one for one in result.stdout.splitlines() if one.startswith("models.m.backend")]
    assert line.endswith("a\\nb\\x1b[2J/turnscript.toml")


def test_a_client_without_files_needs_no_home() -> None:
    done = process("launch", "--url", "http://127.0.0.1:1", "--print", "claude", code=HOMELESS + CODE)
    assert (0, True) == (done.returncode, b"ANTHROPIC_BASE_URL" in done.stdout)


def test_a_client_with_files_says_that_there_is_no_home() -> None:
    done = process("launch", "--url", "http://127.0.0.1:1", "--print", "pi", code=HOMELESS + CODE)
    told = done.stderr.decode()
    assert 1 == done.returncode
    assert "turnscript: error: this user has no home folder for the settings of clients\n  set XDG_STATE_HOME" in told
    assert "Traceback" not in told


def test_an_output_without_a_name_is_no_standard_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a script's variable is empty."""
    monkeypatch.chdir(tmp_path)
    for lines in ("--lines", "--no-lines"):
        result = convert("--to", "openai-responses", lines, "--output", "", stdin='{"messages": []}')
        assert (1, "") == (result.exit_code, result.stdout)
        assert "cannot write this: it is not the name of a file" in result.stderr
    result = run("data", "preview", ROWS, *TO, "--html", "")
    assert (1, "") == (result.exit_code, result.stdout)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_rows_that_can_be_read_only_once_are_not_previewed(name: str) -> None:
    done = process("data", "preview", name, *TO, input=ROWS.read_bytes())
    assert 1 == done.returncode
    assert "inputs are read more than once and in pieces; write it to a file first" in done.stderr.decode()
