"""`make demo` shows what the README says it shows, fails when a call does, and the README's own call works."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.scripted import Asked, Script, said
from tests.gateway.stage import NO_TLS, Threaded
from tools import demo
from tools.demo import Server

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TEXT = re.compile(r"^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CURL = re.compile(r"^```sh\n(curl .*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def played() -> subprocess.CompletedProcess[str]:
    """The demonstration as CI runs it: without a terminal, so it ends."""
    return subprocess.run(
        [sys.executable, "-m", "tools.demo", "--port", "0"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.deep
def test_every_call_succeeds_and_the_readme_shows_what_is_printed(played: subprocess.CompletedProcess[str]) -> None:
    assert (0, "") == (played.returncode, played.stderr), played.stdout
    (shown,) = _TEXT.findall(README)
    assert steady(shown) == steady(played.stdout.partition("Ask it yourself:")[0].strip() + "\n")
    assert "All 6 calls went well." in played.stdout


def steady(text: str) -> str:
    """A text without what is different each time, and without the model's own words."""
    text = re.sub(r"(127\.0\.0\.1:)\d+", r"\1PORT", text)
    text = re.sub(r"after [\d.]+ s", "after SECONDS", text)
    return re.sub(r"(?m)^( {20,}).*?(\d+).*$", r"\1\2", text)


def test_each_printed_command_calls_the_tool(played: subprocess.CompletedProcess[str], tiny: Server) -> None:
    commands = re.findall(r"^  (curl .+)$", played.stdout, re.MULTILINE)
    assert 3 == len(commands)
    for command in commands:
        assert '"name":"get_weather"' in json.dumps(asked(command, tiny), separators=(",", ":"))


def test_the_command_of_the_readme_calls_the_tool(tiny: Server) -> None:
    (command,) = _CURL.findall(README)
    (call,) = asked(command, tiny)["choices"][0]["message"]["tool_calls"]
    assert ("get_weather", {"city": "Paris"}) == (call["function"]["name"], json.loads(call["function"]["arguments"]))


def asked(command: str, server: Server) -> Any:
    """What the server answers to a command that calls curl."""
    words = shlex.split(command)
    url = next(word for word in words if word.startswith("http://127.0.0.1:"))
    body = words[words.index("-d") + 1]
    answer = httpx2.post(re.sub(r"^http://[^/]+", server.url, url), content=body, verify=NO_TLS, timeout=60)
    assert 200 == answer.status_code, answer.text
    return answer.json()


def nothing(asked: Asked) -> Script:
    """A server whose answers call nothing, in no API's shape."""
    return said(
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "No."}, "finish_reason": "stop"}]}
    )


class Elsewhere:
    """What `demo.show` needs of a server."""

    seconds = 0.0

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.fixture
def useless() -> Iterator[Any]:
    """A server that no call succeeds with."""
    with Threaded() as thread, thread.server(nothing) as server:
        yield Elsewhere(server.url)


def test_a_call_that_fails_is_shown_and_counted(useless: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert 6 == demo.show(useless)
    shown = capsys.readouterr().out
    assert 6 == shown.count("FAILED: ")
    assert "6 of 6 calls failed." in shown


@pytest.mark.deep
def test_a_server_that_does_not_start_is_an_error_that_says_why(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tiny: Server
) -> None:
    monkeypatch.setattr(sys, "argv", ["demo", "--port", tiny.url.rpartition(":")[2]])
    assert 1 == demo.main()
    assert "cannot listen on" in capsys.readouterr().err
