"""The lists of names, and the help: its examples are true."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import EXAMPLES, process, run, typed

COMMANDS = [[], ["convert"], ["prompt"], ["read"], ["show"], ["detect"], ["learn"], ["apis"], ["formats"]]
COMMANDS += [["export"], ["export", "grammar"], ["export", "jinja"], ["export", "response-template"]]
COMMANDS += [["export", "vectors"], ["export", "ai00-config"]]


def examples() -> list[str]:
    """Every command line under `Examples:` in the help of every command."""
    found = []
    for command in COMMANDS:
        text = run(*command, "--help").output
        section = re.search(r"  Examples?:\n((?:    .+\n)+)", text)
        assert section, f"{command} has no examples"
        found += [line.strip() for line in section[1].splitlines()]
    return found


@pytest.mark.parametrize("line", examples())
def test_an_example_in_the_help_is_true(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLES / "claude_code_request.json", tmp_path / "request.json")
    shutil.copy(EXAMPLES / "chat_response.json", tmp_path / "response.json")
    shutil.copy(EXAMPLES / "messages_stream.sse", tmp_path / "recorded.sse")
    (tmp_path / "schema.json").write_text('{"type": "object", "properties": {"a": {"type": "integer"}}}')
    (tmp_path / "chats.jsonl").write_bytes((EXAMPLES / "chats.jsonl").read_bytes().split(b"\n")[0] + b"\n")
    shutil.copy(EXAMPLES / "chat_template.jinja", tmp_path / "chat_template.jinja")
    (tmp_path / "files.json").write_text('{"files": ["one", {"prefix": "two ", "suffix": ""}]}')
    (tmp_path / "file.txt").write_text("<|fim_prefix|>two <|fim_middle|><|fim_suffix|>")
    monkeypatch.chdir(tmp_path)
    code, stdout, stderr = typed(line)
    assert 0 == code, stderr
    output = re.search(r"--(?:output|losses) (\S+)", line)
    assert stdout or (output and (tmp_path / output[1]).exists())


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_there_by_its_short_name_too(command: list[str]) -> None:
    assert run(*command, "-h").output == run(*command, "--help").output
    assert 0 == run(*command, "-h").exit_code


def test_the_options_of_convert_stand_in_groups() -> None:
    text = run("convert", "--help").output
    headings = re.findall(r"^(\S[^:\n]+):$", text, re.MULTILINE)
    assert ["Names", "What is written", "Files", "How it looks", "Other"] == headings


def test_the_version_is_that_of_the_package() -> None:
    assert f"turnscript {ts.__version__}\n" == run("--version").output


@pytest.mark.parametrize("name", [*ts.apis(), *ts.formats()])
def test_every_name_is_in_its_table(name: str) -> None:
    table = run("apis" if name in ts.apis() else "formats").output
    (line,) = [line for line in table.splitlines() if line.startswith(f"{name} ")]
    title = ts.get_api(name).title if name in ts.apis() else ts.get_format(name).title
    assert title in line


def test_the_table_of_apis_shows_their_profiles_and_flags() -> None:
    table = run("apis").output
    for name in ts.apis():
        api = ts.get_api(name)
        assert all(f"--set {flag}={'|'.join(values)}" in table for flag, values in api.flags.items())


def test_programs_read_the_lists_as_json() -> None:
    apis = json.loads(run("apis", "--json").output)
    assert ts.apis() == [api["name"] for api in apis]
    assert [list(ts.get_api(name).profiles) for name in ts.apis()] == [api["profiles"] for api in apis]
    assert {"name", "title", "endpoint", "profiles", "flags"} == set(apis[0])
    formats = json.loads(run("formats", "--json").output)
    assert [*ts.formats(), *ts.model_formats()] == [one["name"] for one in formats]


def test_a_shell_can_complete_names() -> None:
    variables = {
        "_TURNSCRIPT_COMPLETE": "bash_complete",
        "COMP_WORDS": "turnscript convert --to open",
        "COMP_CWORD": "3",
    }
    done = process(env=os.environ | variables)
    expected = [name for name in [*ts.apis(), *ts.formats()] if name.startswith("open")]
    assert [f"plain,{name}" for name in expected] == done.stdout.decode().split()


def test_the_bar_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, turnscript.cli.commands; print([name for name in sys.modules if name.startswith('rich')])"
    assert b"[]\n" == process(code=code).stdout
