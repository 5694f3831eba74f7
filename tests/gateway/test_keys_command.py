"""`turnscript keys` on the command line."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli.running import process, run
from turnscript.gateway.keys import Keys


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TURNSCRIPT_SERVER_KEYS", raising=False)
    return tmp_path


def keys(*arguments: str) -> Result:
    return run("keys", *arguments)


def added(*arguments: str) -> str:
    """The key that a command printed."""
    result = keys("add", *arguments)
    assert 0 == result.exit_code, result.stderr
    assert re.fullmatch(r"tsk-[a-z2-7]{12}-[A-Za-z0-9_-]{43}\n", result.stdout)
    assert result.stdout.strip() not in result.stderr
    return result.stdout.strip()


def test_a_key_is_printed_once_and_gets_in() -> None:
    token = added("laptop", "--file", "k")
    assert Keys(Path("k")).check(token, None)
    for arguments in (["list", "--file", "k"], ["list", "--file", "k", "--json"], ["remove", "laptop", "--file", "k"]):
        assert token.split("-", 2)[2] not in keys(*arguments).output
    assert not Keys(Path("k")).check(token, None)


def test_a_key_that_nobody_could_read_is_not_kept() -> None:
    with open("/dev/full", "wb") as full:
        done = process("keys", "add", "laptop", "--file", "k", stdout=full)
    assert (1, b"tsk-" in done.stderr) == (done.returncode, False)
    assert added("laptop", "--file", "k")


def test_the_list_shows_what_is_a_keys_own() -> None:
    added("plain", "--file", "k")
    added("own", "--file", "k", "--limit", "running=2", "--limit", "wait=5 s", "--policy", "losses=error")
    rows = keys("list", "--file", "k").stdout.splitlines()
    assert ["NAME", "ID", "CREATED", "LIMITS", "POLICY"] == rows[0].split()
    assert re.fullmatch(r"plain +\S{12}  \S{20}  - +-", rows[1])
    assert re.fullmatch(r"own +\S{12}  \S{20}  running=2, wait=5 s  losses=error", rows[2])
    records = json.loads(keys("list", "--file", "k", "--json").stdout)
    assert [{}, {"running": 2, "wait": 5.0}] == [record["limits"] for record in records]


def test_the_file_is_found_by_the_configuration(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "etc").mkdir()
    (folder / "etc" / "server.toml").write_text('[server]\nkeys = "k1"\nport = "wrong"\n', encoding="utf-8")
    added("a", "--config", "etc/server.toml")
    (folder / "turnscript.toml").write_text('[server]\nkeys = "k2"\n', encoding="utf-8")
    added("b")
    monkeypatch.setenv("TURNSCRIPT_SERVER_KEYS", "k3")
    added("c")
    added("d", "--file", "k4")
    found = [folder / "etc" / "k1", folder / "k2", folder / "k3", folder / "k4"]
    assert [1, 1, 1, 1] == [len(Keys(path)) for path in found]


@pytest.mark.parametrize("command", ["add", "list", "remove"])
def test_the_help_has_examples_that_are_true(command: str) -> None:
    if command != "add":
        added("laptop", "--file", "keys.jsonl")
    lines = re.findall(rf"^    turnscript (keys {command} .+)$", keys(command, "--help").stdout, re.MULTILINE)
    assert lines
    for line in lines:
        assert 0 == run(*shlex.split(line)).exit_code


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["list"], 2, "which file of keys? there is no turnscript.toml here"),
        (["add", "x", "--config", "none.toml"], 1, "cannot read the configuration"),
        (["add", "x", "--config", "empty.toml"], 2, "empty.toml does not set server.keys"),
        (["list", "--file", "none"], 1, "none: there is no such file\n  check the path; `turnscript keys add NAME"),
        (["list", "--file", "no/k"], 1, "no/k: there is no such file"),
        (["list", "--file", "k/k"], 1, "k/k: there is no such file"),
        (
            ["remove", "there", "--file", "none"],
            1,
            "none: there is no such file\n  check the path; `turnscript keys add",
        ),
        (["remove", "there", "--file", "no/k"], 1, "no/k: there is no such file"),
        (["remove", "there", "--file", "void"], 1, "void: there is no key in this file\n  `turnscript keys add NAME"),
        (["add", "x", "--file", "none/k"], 1, "make the folder first"),
        (["add", "x", "--file", "k", "--limit", "running"], 2, "--limit running: write it as SETTING=VALUE"),
        (["add", "x", "--file", "k", "--limit", "runningg=1"], 2, "did you mean 'running'"),
        (["add", "x", "--file", "k", "--limit", "running=x"], 2, "--limit running=x: expected an integer"),
        (["add", "x", "--file", "k", "--policy", "losses=warn"], 2, '--policy losses=warn: expected "ignore"'),
        (["add", "there", "--file", "k"], 1, "there is a key called 'there' already"),
        (["add", " ", "--file", "k"], 1, "a key needs a name"),
        (["remove", "theree", "--file", "k"], 1, "did you mean 'there'"),
        (["list", "--file", "bad"], 1, "bad:1: this is not a line of a file of keys"),
        (["ad"], 2, "no such command 'ad'"),
    ],
)
def test_what_goes_wrong_is_told(folder: Path, arguments: list[str], code: int, words: str) -> None:
    added("there", "--file", "k")
    (folder / "bad").write_text("x\n", encoding="utf-8")
    (folder / "empty.toml").write_text("", encoding="utf-8")
    (folder / "void").touch()
    result = keys(*arguments)
    assert (code, "") == (result.exit_code, result.stdout), result.stderr
    assert words in result.stderr
    assert "standard input" not in result.stderr
    assert result.stderr.startswith("turnscript: error: ")


def test_names_cannot_move_the_cursor(folder: Path) -> None:
    added("e\u0301\u202ex", "--file", "k")
    assert "\u202e" not in keys("list", "--file", "k").output


def test_an_empty_file_is_a_list_of_none(folder: Path) -> None:
    (folder / "k").touch()
    result = keys("list", "--file", "k")
    assert ("", "turnscript: 0 keys in k\n") == (result.stdout, result.stderr)
    assert [] == json.loads(keys("list", "--file", "k", "--json").stdout)


def test_it_works_as_a_process_and_under_any_umask(folder: Path) -> None:
    done = process("keys", "add", "one", "--file", "k", cwd=folder, umask=0)
    assert 0 == done.returncode, done.stderr
    assert 0o600 == (folder / "k").stat().st_mode & 0o777


@pytest.mark.deep
def test_the_examples_in_the_help_are_true(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    section = keys("--help").output.split("Examples:\n")[1]
    lines = [line.strip() for line in section.splitlines()]
    assert 4 == len(lines)
    for line in lines:
        done = subprocess.run(["/bin/sh", "-c", line], cwd=folder, capture_output=True, timeout=60, check=False)
        assert 0 == done.returncode, done.stderr
    assert 1 == len(Keys(folder / "keys.jsonl"))
