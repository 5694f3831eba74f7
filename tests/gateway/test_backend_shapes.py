"""Owns the wires of model servers behind the gateway: the same dialogue over each of them, with the quirks it has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.gateway.dialogue import DIALOGUES, STREAM, WHOLE, Dialogue, Way
from tests.gateway.running import Running
from tests.gateway.scripted import CLOSE, RESET, Asked, Script, said
from tests.gateway.speaker import Speaker, Talk, call, speaking, text, thought
from tests.gateway.stage import NO_TLS, WEATHER, Threaded
from tests.gateway.wires import WIRES
from turnscript.gateway.config import Config
from turnscript.gateway.replay import record

EACH = pytest.mark.parametrize("api", DIALOGUES)
BOTH = pytest.mark.parametrize("way", [WHOLE, STREAM], ids=str)
FORMATS = ["rwkv-goose-hermes", "rwkv-universal", "batuta-chatml"]
ECHOES = {name for name, wire in WIRES.items() if wire.echoes}


@pytest.fixture(scope="module", params=WIRES)
def talk(request: pytest.FixtureRequest) -> Iterator[Talk]:
    format_ = FORMATS[list(WIRES).index(request.param) % len(FORMATS)]
    with speaking(Speaker(ts.get_format(format_), [WEATHER], WIRES[request.param])) as made:
        yield made


def lead(talk: Talk, api: str, way: Way, **more: Any) -> Dialogue:
    talk.speaker.clear()
    return DIALOGUES[api](talk.url, way, [WEATHER], **more)


def left(talk: Talk) -> str:
    """What this server does with stop strings."""
    return "echo" if talk.speaker.wire.echoes else "cut"


@EACH
@BOTH
def test_a_tool_loop_runs_over_every_wire(talk: Talk, api: str, way: Way) -> None:
    dialogue = lead(talk, api, way)
    talk.speaker.say(call("get_weather", city="Rome"), stop=left(talk))
    talk.speaker.say(text("It rains in Rome."), stop=left(talk))
    dialogue.user("Weather?")
    answer = dialogue.ask()
    assert [{"city": "Rome"}] == [one.arguments for one in answer.calls]
    dialogue.results({one.id: "rain" for one in answer.calls})
    answer = dialogue.ask()
    assert ("It rains in Rome.", []) == (answer.text.strip(), answer.calls)
    first, second = talk.speaker.said
    kept = first.written if left(talk) == "cut" else first.written[: first.written.rindex("\n") + 1].rstrip()
    assert second.prompt.startswith(first.prompt + kept.rstrip())
    assert first.asked.json[talk.speaker.wire.limit_name] >= 1
    assert first.asked.json["stop"]


@EACH
def test_a_long_answer_is_not_cut_by_a_servers_own_default(talk: Talk, api: str) -> None:
    long = "And so on and on.\nA new line. " * 20
    dialogue = lead(talk, api, STREAM)
    talk.speaker.say(text(long.strip()))
    dialogue.user("Tell me")
    assert long.strip() == dialogue.ask().text.strip()


@EACH
def test_the_limit_of_every_wire_is_told(talk: Talk, api: str) -> None:
    limit = {"openai-chat": "max_tokens", "openai-responses": "max_output_tokens"}.get(api, "max_tokens")
    reasons = {"openai-chat": "length", "openai-responses": "max_output_tokens"}
    dialogue = lead(talk, api, WHOLE, **{limit: 4})
    talk.speaker.say(text("One two three four five six"))
    dialogue.user("Count")
    answer = dialogue.ask()
    assert reasons.get(api, "max_tokens") == answer.reason
    assert "One two three four five six".startswith(answer.text.strip())


def test_a_stop_string_of_the_client_is_named_over_every_wire(talk: Talk) -> None:
    dialogue = lead(talk, "anthropic-messages", WHOLE, stop_sequences=["END"])
    talk.speaker.say(text("One two END three"), stop=left(talk))
    dialogue.user("Count")
    answer = dialogue.ask()
    assert ("One two", "stop_sequence", "END") == (answer.text.strip(), answer.reason, answer.whole.stop_sequence)


def test_a_text_without_stop_strings_is_completed_over_every_wire(talk: Talk) -> None:
    talk.speaker.clear()
    talk.speaker.say(text("upon a time."))
    asked = {"model": "default", "prompt": "Once", "max_tokens": 400}
    answer = httpx2.post(f"{talk.url}/v1/completions", json=asked, verify=NO_TLS)
    assert 200 == answer.status_code, answer.text
    assert "upon a time." in answer.json()["choices"][0]["text"]


def test_usage_is_told_whether_or_not_the_server_counts(talk: Talk) -> None:
    dialogue = lead(talk, "openai-chat", WHOLE)
    talk.speaker.say(text("One two three four five six"))
    dialogue.user("Count " * 50)
    usage = dialogue.ask().whole.usage
    assert usage.prompt_tokens > 20
    assert 3 <= usage.completion_tokens <= 30


def test_sampling_that_a_server_does_not_know_is_not_sent(talk: Talk) -> None:
    dialogue = lead(talk, "anthropic-messages", WHOLE, extra_body={"temperature": 0.5, "top_k": 7})
    talk.speaker.say(text("Fine."))
    dialogue.user("Hello")
    dialogue.ask()
    sent = talk.speaker.said[0].asked.json
    assert ("top_k" in sent or "top_k" in sent.get("sampler", {})) == (talk.speaker.wire.kind != "completions")


# Which kind a server is.


@pytest.mark.parametrize("name", ["llamacpp", "completions", "vllm"])
def test_the_kind_of_a_server_is_told_by_asking_it(name: str) -> None:
    speaker = Speaker(ts.get_format("rwkv-universal"), [], WIRES[name])
    with speaking(speaker, kind="auto") as talk:
        speaker.say(text("Fine."))
        dialogue = DIALOGUES["openai-chat"](talk.url, WHOLE)
        dialogue.user("Hello")
        assert "Fine." == dialogue.ask().text
        members = talk.gateway.service.models()[0].pool.members
        assert [WIRES[name].kind] == [member.upstream.backend.name for member in members]
        shown = httpx2.get(f"{talk.url}/v1/models", verify=NO_TLS).json()["data"][0]
        assert {"llamacpp": 8192, "vllm": 32768}.get(name) == shown.get("context_window", shown.get("max_input_tokens"))


@pytest.mark.parametrize("kind", ["ai00", "llamacpp", "completions"])
def test_the_path_of_an_address_tells_the_kind(kind: str) -> None:
    wire = next(wire for wire in WIRES.values() if wire.kind == kind)
    speaker = Speaker(ts.get_format("rwkv-universal"), [], wire)
    with speaking(speaker, kind="auto") as talk:
        speaker.say(text("Fine."))
        dialogue = DIALOGUES["openai-chat"](talk.url, WHOLE)
        dialogue.user("Hello")
        assert "Fine." == dialogue.ask().text
        assert kind == talk.gateway.service.models()[0].pool.members[0].upstream.backend.name


# Several servers.


@pytest.mark.parametrize("dead", ["closed", "reset", "broken"])
def test_one_dead_server_of_two_is_not_noticed(dead: str) -> None:
    speaker = Speaker(ts.get_format("rwkv-universal"), [WEATHER])
    deaths: dict[str, Script] = {"closed": [CLOSE], "reset": [RESET], "broken": said({"error": "down"}, status=503)}

    def dying(asked: Asked) -> Script:
        return deaths[dead]

    with Threaded() as thread, thread.server(dying) as bad, thread.server(speaker) as good:
        config = two(f"{bad.url}/v1", f"{good.url}/v1")
        with Running(config) as gateway:
            for number in range(4):
                speaker.say(text(f"Number {number}."))
                dialogue = DIALOGUES["anthropic-messages"](gateway.url, (WHOLE, STREAM)[number % 2])
                dialogue.user(f"Another conversation: {number}")
                assert f"Number {number}." == dialogue.ask().text
    assert 4 == len(speaker.said)


def test_a_conversation_stays_with_its_server() -> None:
    speakers = [Speaker(ts.get_format("rwkv-universal")) for _ in range(2)]
    for speaker in speakers:
        speaker.answering = lambda prompt: [text("Fine.")]
    with Threaded() as thread, thread.server(speakers[0]) as first, thread.server(speakers[1]) as second:
        lead_four_dialogues(two(f"{first.url}/v1", f"{second.url}/v1"))
    for number in range(4):
        counts = [sum(f"Conversation {number}, turn 0" in one.prompt for one in speaker.said) for speaker in speakers]
        assert [0, 3] == sorted(counts)
    assert [6, 6] == [len(speaker.said) for speaker in speakers]


def lead_four_dialogues(config: Config) -> None:
    """Four conversations side by side, three turns each."""
    with Running(config) as gateway:
        dialogues = [DIALOGUES["openai-chat"](gateway.url, WHOLE) for _ in range(4)]
        for turn in range(3):
            for number, dialogue in enumerate(dialogues):
                dialogue.user(f"Conversation {number}, turn {turn}")
                dialogue.ask()


def test_without_any_server_the_gateway_says_so() -> None:
    config = two("http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1/")
    with Running(config) as gateway:
        told = httpx2.post(
            f"{gateway.url}/v1/chat/completions",
            json={"model": "m", "messages": [{"role": "user", "content": "Hello"}]},
            verify=NO_TLS,
        )
        assert told.status_code in (502, 503)
        assert "127.0.0.1:9" in told.json()["error"]["message"]
        health = httpx2.get(f"{gateway.url}/health", verify=NO_TLS).json()
        assert "ok" == health["status"]


def two(first: str, second: str) -> Config:
    """A configuration with one model on two servers."""
    base = Config.for_backend(first, "rwkv-universal", kind="completions")
    more = Config.for_backend(second, "rwkv-universal", kind="completions").models[0].backend
    return replace(base, models=(replace(base.models[0], backend=(*base.models[0].backend, *more)),))


# What was recorded.


def test_a_recorded_dialogue_is_played_without_its_server(tmp_path: Path) -> None:
    def led(url: str) -> list[str]:
        dialogue = DIALOGUES["anthropic-messages"](url, STREAM, [WEATHER])
        dialogue.user("Weather?")
        first = dialogue.ask()
        dialogue.results({one.id: "rain" for one in first.calls})
        return [first.calls[0].arguments["city"], dialogue.ask().text]

    # A format without ids: those of calls are other ones each time, and a recording is found by its prompt.
    speaker = Speaker(ts.get_format("rwkv-goose-hermes"), [WEATHER])
    speaker.say(thought("Hm."), call("get_weather", city="Rome"))
    with speaking(speaker, thinking="on") as talk:
        record(talk.gateway.service.models()[0].pool.members[0].upstream, tmp_path / "kept")
        speaker.say(thought("So."), text("It rains."))
        assert ["Rome", "It rains."] == led(talk.url)
    config = Config.for_backend(f"replay:{tmp_path / 'kept'}", "rwkv-goose-hermes", kind="completions", thinking="on")
    with Running(config) as gateway:
        assert ["Rome", "It rains."] == led(gateway.url)
