"""Owns the checks of `turnscript playground`: where it listens, what it says, how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.request

import pytest

from tests.cli.running import live, process, run
from turnscript.playground.server import HOST


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_the_page_is_and_ends_well(number: signal.Signals) -> None:
    with live("playground", "--port", "0", "--no-open") as running:
        line = running.stderr.readline().decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        assert "Ctrl-C" in line
        with urllib.request.urlopen(found[0], timeout=20) as answer:
            assert b"turnscript" in answer.read()
        running.process.send_signal(number)
        assert 0 == running.wait()
        assert b"" == running.stderr.read()
        assert b"" == running.stdout.read()


def test_a_port_that_is_taken_is_an_error_with_a_remedy() -> None:
    with socket.create_server((HOST, 0)) as taken:
        result = run("playground", "--no-open", "--port", str(taken.getsockname()[1]))
    assert 1 == result.exit_code
    assert re.search(r"cannot listen on 127\.0\.0\.1:\d+: address already in use\n  .*--port", result.stderr)


def test_what_is_missing_is_named() -> None:
    code = "import sys; sys.modules['starlette'] = None; from turnscript.cli.main import main; main()"
    done = process("playground", "--no-open", "--port", "0", code=code)
    assert 2 == done.returncode
    assert b"pip install 'turnscript[serve]'" in done.stderr


def test_the_browser_is_opened_where_that_is_wanted(tmp_path: object) -> None:
    code = "import webbrowser; webbrowser.open = lambda url: print('opened', url, flush=True); "
    code += "from turnscript.cli.main import main; main()"
    with live("playground", "--port", "0", "--open", code=code) as running:
        assert b"opened http://127.0.0.1:" in running.stdout.readline()
        running.process.send_signal(signal.SIGINT)
        assert 0 == running.wait()


@pytest.mark.deep
def test_a_chat_template_is_offered_by_the_name_of_its_model() -> None:
    with live("playground", "--port", "0", "--no-open", "--template", "examples/chat_template.jinja") as running:
        found = re.search(r"http://127\.0\.0\.1:\d+", running.stderr.readline().decode())
        assert found
        with urllib.request.urlopen(f"{found[0]}/api/names", timeout=20) as answer:
            name = json.load(answer)["formats"][0]["name"]
        asked = {"source": '{"messages": [{"role": "user", "content": "Hi"}]}', "format": name}
        headers = {"content-type": "application/json"}
        question = urllib.request.Request(f"{found[0]}/api/prompt", json.dumps(asked).encode(), headers)
        with urllib.request.urlopen(question, timeout=20) as answer:
            pieces = json.load(answer)["pieces"]
        assert "<|im_start|>user\n" in "".join(piece["text"] for piece in pieces)
        running.process.send_signal(signal.SIGTERM)
        assert 0 == running.wait()


def test_a_place_without_a_template_is_an_error() -> None:
    result = run("playground", "--no-open", "--port", "0", "--template", "examples/chats.jsonl")
    assert result.exit_code != 0
    assert "examples/chats.jsonl" in result.stderr
