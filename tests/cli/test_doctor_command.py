"""`turnscript doctor` on the command line: what is shown, when, and what it ends with."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import CODE, live, process, run
from tests.gateway import tinygguf
from tests.gateway.scripted import HANG, STREAM, Asked, Script, Scripted, chunk, event, said
from tests.gateway.stage import Threaded, answer
from turnscript.gateway.embedded import Embedded

FORMAT = "rwkv-universal"
NAMES = ["reachable", "about", "words", "streams", "stop strings", "special tokens", "tokenizer", "UTF-8"]
NAMES += ["limits", "prefix reuse", "cancel", "parallel", "tool calls"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real server."""
    path = tinygguf.write_rwkv7(tmp_path_factory.mktemp("models") / "rwkv7.gguf")
    with Embedded(path, context=2048, parallel=2, threads=1) as engine:
        yield engine.url


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    return tmp_path


def doctor(*arguments: str) -> subprocess.CompletedProcess[bytes]:
    return process("doctor", *arguments)


class Faulty(Threaded):
    """A server that answers in a fixed way, and what it was asked."""

    def __init__(self, completion: Script, model: str = "model") -> None:
        super().__init__()
        self._completion = completion
        self._model = model

    def __enter__(self) -> Any:
        super().__enter__()
        self._context = self.server(self._script)
        self.scripted: Scripted = self._context.__enter__()
        self.url = f"{self.scripted.url}/v1"
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)
        super().__exit__(*error)

    def _script(self, asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": [{"id": self._model, "max_model_len": 500}]})
        return self._completion


BROKEN = said({"error": {"message": "out of order"}}, status=500)


def test_a_healthy_server_ends_with_zero_and_a_line_for_each_check(model: str, folder: Path) -> None:
    done = doctor("--backend", model, "--format", FORMAT)
    assert (0, b"") == (done.returncode, done.stderr)
    lines = done.stdout.decode().splitlines()
    assert f"default: {model}" == lines[0]
    shown = [line for line in lines if re.match(r"  (ok|warning|fault) ", line)]
    assert NAMES == [line[11:25].strip() for line in shown]
    assert re.fullmatch(r"0 faults, \d warnings?", lines[-1])
    assert b"\x1b" not in done.stdout
    assert [] == list(folder.iterdir())


def test_programs_get_one_object(model: str) -> None:
    done = doctor("--backend", model, "--format", FORMAT, "--json", "--quick")
    assert (0, b"") == (done.returncode, done.stderr)
    told = json.loads(done.stdout)
    assert told["ok"] is True
    (server,) = told["servers"]
    assert ("default", model) == (server["model"], server["url"])
    assert NAMES[:-1] == [check["name"] for check in server["checks"]]
    for check in server["checks"]:
        assert {"name", "state", "detail", "remedy", "figures"} == set(check)
        assert bool(check["remedy"]) == (check["state"] != "ok")


def test_a_fault_ends_with_one_and_says_what_to_do() -> None:
    with Faulty(BROKEN) as server:
        lines = doctor("--backend", server.url, "--format", FORMAT).stdout.decode().splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("  fault"))
        assert "out of order" in lines[at]
        assert lines[at + 1].strip().startswith("-> look into the log")
        assert "1 fault, 0 warnings" == lines[-1]
        done = doctor("--backend", server.url, "--format", FORMAT, "--json")
        assert (1, False) == (done.returncode, json.loads(done.stdout)["ok"])


def test_the_name_of_the_server_s_model_and_its_kind_are_passed_on() -> None:
    with Faulty(answer("one", "two", finish="length")) as server:
        done = doctor("--backend", server.url, "--format", FORMAT, "--model", "m7", "--kind", "completions", "--quick")
        asks = [asked.json for asked in server.scripted.asked if asked.body]
    assert "as configured" in done.stdout.decode()
    assert asks
    assert {"m7"} == {ask["model"] for ask in asks if "prompt" in ask}


def test_what_a_server_says_cannot_move_the_cursor() -> None:
    with Faulty(BROKEN, model="a\x1b[2Jb\nc") as server:
        done = doctor("--backend", server.url, "--format", FORMAT)
    assert b"\x1b" not in done.stdout
    assert rb"model a\x1b[2Jb\nc" in done.stdout


def test_lines_appear_while_it_runs_and_an_interrupt_leaves_nothing_running() -> None:
    piece = chunk(event({"choices": [{"text": "one"}]}))
    with Faulty([STREAM, piece, HANG]) as server:
        with live("doctor", "--backend", server.url, "--format", FORMAT) as running:
            begun = [running.stdout.readline() for _ in range(3)]
            running.until(lambda: any(asked.body for asked in server.scripted.asked))
            (number,) = [number for number, asked in enumerate(server.scripted.asked) if asked.body]
            assert server.scripted.asked[number].gone is None
            running.process.send_signal(signal.SIGINT)
            assert 130 == running.wait()
            said_last = running.stderr.read()
        server.run(server.scripted.until_gone(number))
    assert b"reachable" in begun[1]
    assert b"about" in begun[2]
    assert b"turnscript: interrupted; nothing is left running on the server\n" == said_last


def on_terminal(*arguments: str, **variables: str) -> str:
    """What a person sees."""
    main, other = pty.openpty()
    env = os.environ | {"TERM": "xterm", "NO_COLOR": ""} | variables
    with subprocess.Popen([sys.executable, "-c", CODE, "doctor", *arguments], stdout=other, env=env) as running:
        os.close(other)
        found = b""
        while True:
            try:
                data = os.read(main, 65536)
            except OSError:  # Linux says so that nobody writes there any more
                break
            found += data
            if not data:
                break
        running.wait(timeout=30)
    os.close(main)
    return found.decode()


@pytest.mark.deep
def test_colours_are_for_terminals_and_those_who_want_them() -> None:
    with Faulty(BROKEN) as server:
        arguments = ["--backend", server.url, "--format", FORMAT]
        coloured = on_terminal(*arguments)
        assert "\x1b[31m\x1b[1mfault" in coloured
        assert "\x1b[32m\x1b[1mok" in coloured
        assert "...      streams\r\x1b[K" in coloured
        assert coloured.startswith(f"  ...      asking default what it is\r\x1b[Kdefault: {server.url}")
        plain = on_terminal(*arguments, NO_COLOR="1")
        assert "[31m" not in plain
        assert "fault" in plain
        assert "\x1b" not in on_terminal(*arguments, TERM="dumb")
        assert "\x1b" not in on_terminal(*arguments, "--json")


def configured(folder: Path, *urls: str, more: str = "") -> None:
    tables = [f'[models.m{number}]\nbackend = "{url}"\nformat = "{FORMAT}"\n' for number, url in enumerate(urls)]
    (folder / "turnscript.toml").write_text(more + "\n".join(tables), encoding="utf-8")


def test_a_configuration_names_the_models(folder: Path) -> None:
    with Faulty(BROKEN) as first, Faulty(BROKEN) as second:
        configured(folder, first.url, second.url)
        looked_at = [f"m0: {first.url}", f"m1: {second.url}"]

        def heads(*arguments: str) -> list[str]:
            return [line for line in run("doctor", *arguments).stdout.splitlines() if line[0] == "m"]

        assert looked_at == heads()
        assert looked_at == heads("--config", "turnscript.toml")
        assert looked_at[1:] == heads("--model", "m1")
        configured(folder, first.url, second.url, more='[server]\ndefault_model = "m1"\n')
        assert looked_at[1:] == heads()


def test_a_wrong_command_line_is_told_before_anything_is_asked(folder: Path) -> None:
    nothing = run("doctor")
    assert (2, "") == (nothing.exit_code, nothing.stdout)
    assert "--backend URL" in nothing.stderr
    configured(folder, "http://127.0.0.1:1")
    unknown = run("doctor", "--model", "m7")
    assert (2, "") == (unknown.exit_code, unknown.stdout)
    assert "there are: m0" in unknown.stderr
    assert 2 == run("doctor", "--backend", "ftp://x").exit_code
    assert 2 == run("doctor", "--backend", "embedded:none.gguf").exit_code


def test_a_library_that_is_missing_is_named() -> None:
    code = f"import sys; sys.modules['jsonschema_rs'] = None\n{CODE}"
    done = process("doctor", "--backend", "http://127.0.0.1:1", code=code)
    assert 2 == done.returncode
    assert b"the doctor needs jsonschema_rs" in done.stderr
    assert b"pip install 'turnscript[serve]'" in done.stderr


@pytest.mark.deep
def test_the_examples_in_the_help_are_true(model: str, folder: Path) -> None:
    text = run("doctor", "--help").output
    found = re.search(r"  Examples:\n((?:    .+\n?)+)", text)
    assert found
    lines = [line.strip() for line in found[1].splitlines()]
    assert 3 == len(lines)
    configured(folder, model)
    for line in lines:
        name, command, *arguments = shlex.split(re.sub(r"http://\S+", model, line))
        assert ("turnscript", "doctor") == (name, command)
        done = run(command, *arguments)
        assert 0 == done.exit_code, done.output
