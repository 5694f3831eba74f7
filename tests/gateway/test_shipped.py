"""Owns `turnscript serve` without a word about a model: the tiny one that comes with it, and never by mistake."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

import turnscript
from tests.cli.running import run
from tests.clocks import run_time
from tests.gateway.stage import NO_TLS
from tools.demo import Server
from turnscript.gateway import embedded, shipped
from turnscript.gateway.configfile import Reloader, load

LARGEST = 4_000_000
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture(scope="module")
def tiny() -> Iterator[Server]:
    """The server as a process."""
    with Server(0) as server:
        yield server


def ask(url: str, messages: list[Any]) -> tuple[Any, int, int]:
    """The message that answers, how many characters of the prompt were said before, and how many tokens were kept."""
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}]
    body = {"model": "m", "messages": messages, "tools": tools}
    told = httpx2.post(f"{url}/v1/chat/completions", json=body, verify=NO_TLS, timeout=60)
    assert 200 == told.status_code, told.text
    answer = told.json()
    cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return answer["choices"][0]["message"], int(told.headers["x-turnscript-prefix"].split("/")[0]), cached


def test_the_model_is_small_and_says_of_itself_how_it_is_served() -> None:
    assert shipped.FILE.stat().st_size <= LARGEST
    (model,) = load(None, {}, shipped=shipped.settings()).models
    assert shipped.is_shipped(model)
    assert ("tiny", {"temperature": 0.0}) == (model.name, model.sampling_values)
    assert model.takes is not None
    assert "set" == model.why


def test_the_file_alone_says_which_format_it_wants() -> None:
    assert "rwkv-universal" == turnscript.detect(shipped.FILE).format


def test_the_banner_says_that_it_is_for_demonstrations_and_how_to_serve_a_real_one(tiny: Server) -> None:
    shown = "".join(tiny.lines)
    assert "tiny demonstration model" in shown
    assert "--backend http://" in shown
    assert "--format" in shown
    assert f"OPENAI_BASE_URL={tiny.url}/v1" in shown


def test_a_response_says_with_what_the_model_and_its_server_sample(tiny: Server) -> None:
    told = httpx2.post(f"{tiny.url}/v1/responses", json={"input": "Hello"}, verify=NO_TLS, timeout=60).json()
    assert (0.0, 0.95) == (told["temperature"], told["top_p"])  # of its settings, and as llama.cpp does by itself


def test_conversations_that_take_turns_each_keep_their_state(tiny: Server) -> None:
    talks: list[list[Any]] = [
        [{"role": "user", "content": f"What is the weather in {city}?"}] for city in ("Oslo", "Lima", "Cairo")
    ]
    for talk in talks:
        talk.append(ask(tiny.url, talk)[0])
    for turn in range(2):
        for number, talk in enumerate(talks):
            for call in talk[-1].get("tool_calls", []):
                result = f'{{"temperature": {20 + number}, "condition": "sunny"}}'
                talk.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            if turn:
                talk.append({"role": "user", "content": "Thank you!"})
            message, reused, cached = ask(tiny.url, talk)
            assert reused > 300
            assert cached > 40
            if not turn:
                assert str(20 + number) in message["content"]
            talk.append(message)


def test_the_first_conversation_has_a_place_at_once() -> None:
    """Until the first check of health nobody had asked for the places, so its state was lost now and then."""
    for _ in range(4):
        with Server(0) as server:
            talk: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
            talk.append(ask(server.url, talk)[0])
            (call,) = talk[-1]["tool_calls"]
            talk.append({"role": "tool", "tool_call_id": call["id"], "content": '{"temperature": 20}'})
            assert ask(server.url, talk)[2] > 40


@pytest.mark.deep
def test_it_stops_at_once_when_it_is_told_to() -> None:
    with Server(0) as server:
        ask(server.url, [{"role": "user", "content": "Hello!"}])
        began = run_time()
        server.process.send_signal(signal.SIGTERM)
        assert 0 == server.process.wait(20)
        assert run_time() - began < 5
        assert [] == [line for line in server.lines if "error" in line.lower() or "Traceback" in line]


def test_a_configuration_without_models_has_this_one(tmp_path: Path) -> None:
    file = tmp_path / "turnscript.toml"
    file.write_text("[limits]\nrunning = 3\n", encoding="utf-8")
    shown = run("serve", "--config", file, "--check").stdout
    assert "models.tiny.backend" in shown
    assert "turnscript itself" in shown
    assert "limits.running" in shown


def test_a_model_that_is_configured_is_the_only_one(tmp_path: Path) -> None:
    file = tmp_path / "turnscript.toml"
    file.write_text('[models.mine]\nbackend = "http://127.0.0.1:9"\n', encoding="utf-8")
    for arguments in (["--config", file], ["--backend", "http://127.0.0.1:9"]):
        shown = run("serve", *arguments, "--check")
        assert 0 == shown.exit_code
        assert "tiny" not in shown.stdout


def test_models_that_leave_the_configuration_are_not_replaced_by_it(tmp_path: Path) -> None:
    file = tmp_path / "turnscript.toml"
    file.write_text('[models.mine]\nbackend = "http://127.0.0.1:9"\n', encoding="utf-8")
    reloader = Reloader(file, {})
    file.write_text("[server]\nport = 8400\n", encoding="utf-8")
    assert () == reloader.reload().models


@pytest.mark.deep
def test_without_the_library_a_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embedded, "_MODULE", "no_such_library")
    told = run("serve")
    assert 2 == told.exit_code
    assert "pip install 'turnscript[serve,embedded]'" in told.stderr
    assert "--backend" in told.stderr
    assert "Traceback" not in told.stderr
