"""Owns the gateway before the real llama.cpp: its own wire and the common one, slots and caches as it tells them.

Grammars make models of random weights write what a model of the format would, through the real sampler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.gateway import tinygguf
from tests.gateway.dialogue import DIALOGUES, STREAM, WHOLE, Dialogue, Way
from tests.gateway.forced import Forced, forced, tokens
from tests.gateway.running import Running
from tests.gateway.speaker import call, odd, text, thought
from tests.gateway.stage import NO_TLS, WEATHER
from turnscript.backends.completions import Completions
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.conversation import Item
from turnscript.gateway.config import Config
from turnscript.gateway.embedded import Embedded

EACH = pytest.mark.parametrize("api", DIALOGUES)
BOTH = pytest.mark.parametrize("way", [WHOLE, STREAM], ids=str)


def turns_of(
    dialogue: Dialogue, backend: Forced, name: str, thinking: Sequence[Item] = ()
) -> Iterator[tuple[int, int]]:
    """A dialogue with a call, told turn by turn by its tokens."""
    backend.say(*thinking, call("get_weather", city="Tokyo"), change=odd)
    dialogue.user(f"This is {name}, and I would like to know how the weather is in Tokyo today, if you please.")
    said = dialogue.ask()
    assert [{"city": "Tokyo"}] == [one.arguments for one in said.calls]
    yield tokens(said.whole)
    dialogue.results({one.id: '{"sky": "clear"}' for one in said.calls})
    for words in ("It is clear.", "You are welcome.", "Bye."):
        backend.say(*thinking, text(words))
        said = dialogue.ask()
        assert words == said.text.strip()
        yield tokens(said.whole)
        dialogue.user("Thank you very much.")


def grows(backend: Forced) -> bool:
    """Whether each prompt begins with the one before and with what was generated for that."""
    return len(backend.asked) > 3 and all(backend.grew())


@EACH
@BOTH
@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
def test_a_recurrent_model_reads_nothing_twice(rwkv: str, api: str, way: Way, thinking: bool) -> None:
    """What the server itself counts as cached is all but the last tokens of what was said before."""
    more = {"thinking": "on"} if thinking else {}
    with forced(rwkv, LlamaCpp(), **more) as (url, backend):
        dialogue = DIALOGUES[api](url, way, [WEATHER])
        before = 0
        thoughts = [thought(f"Hm, {api} {way}.")] if thinking else []
        for turn, (whole, cached) in enumerate(turns_of(dialogue, backend, f"{api} {way} {thinking}", thoughts)):
            if turn:
                assert before - 8 <= cached < whole, turn
            before = whole
    assert grows(backend)


@EACH
@BOTH
def test_a_session_of_many_calls_is_read_once(rwkv: str, api: str, way: Way) -> None:
    """Calls one behind another and side by side, each as the model spelled it and no program would."""
    rounds = [["Tokyo"], ["Rome", "Oslo"], ["Tokyo", "Tokyo"], ["Bern"]]
    with forced(rwkv, LlamaCpp()) as (url, backend):
        dialogue = DIALOGUES[api](url, way, [WEATHER])
        dialogue.user(f"Compare the weather of some cities for me, {api} {way}.")
        before = 0
        for cities in rounds:
            backend.say(*[call("get_weather", city=city) for city in cities], change=odd)
            said = dialogue.ask()
            assert cities == [one.arguments["city"] for one in said.calls]
            dialogue.results({one.id: f'{{"sky": "clear in {one.arguments["city"]}"}}' for one in said.calls})
            whole, cached = tokens(said.whole)
            assert max(0, before - 8) <= cached < whole
            before = whole
        backend.say(text("It is clear everywhere."))
        assert "It is clear everywhere." == dialogue.ask().text.strip()
    assert grows(backend)


def test_two_conversations_side_by_side_keep_their_slots(rwkv: str) -> None:
    with forced(rwkv, LlamaCpp()) as (url, backend):
        dialogues = [DIALOGUES[api](url, WHOLE, [WEATHER]) for api in ("openai-chat", "anthropic-messages")]
        both = [turns_of(dialogue, backend, f"side {at}") for at, dialogue in enumerate(dialogues)]
        before = [0, 0]
        for turn, pair in enumerate(zip(*both, strict=True)):
            for number, (whole, cached) in enumerate(pair):
                assert turn == 0 or cached >= before[number] - 8
                before[number] = whole
    slots = [ask.slot for ask in backend.asked]
    assert [slots[0], slots[1]] * 4 == slots
    assert {0, 1} == set(slots)


@EACH
def test_the_common_wire_of_the_same_server_works_too(rwkv: str, api: str) -> None:
    with forced(f"{rwkv}/v1", Completions()) as (url, backend):
        dialogue = DIALOGUES[api](url, STREAM, [WEATHER])
        counts = list(turns_of(dialogue, backend, f"common {api}"))
    assert [1, 1, 1] == [int(after[1] >= before[0] - 8) for before, after in pairwise(counts)]
    assert grows(backend)


@EACH
@pytest.mark.parametrize("format_name", ["batuta-chatml"])
def test_control_tokens_of_a_transformer_end_its_turns(llamacpp: str, api: str, format_name: str) -> None:
    with forced(llamacpp, LlamaCpp(), format_name) as (url, backend):
        dialogue = DIALOGUES[api](url, WHOLE, [WEATHER])
        counts = list(turns_of(dialogue, backend, f"control {api}"))
    assert [True] * 3 == [before[0] - 8 <= after[1] < after[0] for before, after in pairwise(counts)]
    assert grows(backend)


def test_a_stop_string_of_the_client_is_named_by_the_server(rwkv: str) -> None:
    with forced(rwkv, LlamaCpp()) as (url, backend):
        dialogue = DIALOGUES["anthropic-messages"](url, STREAM, stop_sequences=["END"])
        backend.say(text("One two END three"))
        dialogue.user("Count")
        said = dialogue.ask()
    assert ("One two", "stop_sequence", "END") == (said.text.strip(), said.reason, said.whole.stop_sequence)
    assert "END" in backend.asked[0].stops


@EACH
def test_a_stop_string_of_the_client_ends_neither_a_call_nor_a_tag(rwkv: str, api: str) -> None:
    """The server would look for it in all that the model writes, and this format's tags end in `_END>>`."""
    stop = {"stop_sequences" if api == "anthropic-messages" else "stop": ["END"]}
    with forced(rwkv, LlamaCpp(), "rwkv-universal", thinking="on") as (url, backend):
        plain = DIALOGUES[api](url, WHOLE, extra_body=stop)
        backend.say(thought("Hm."), text("One two END three"))
        plain.user("Count")
        said = plain.ask()
        assert ("Hm.", "One two") == (said.thoughts.strip(), said.text.strip())
        dialogue = DIALOGUES[api](url, WHOLE, [WEATHER], extra_body=stop)
        backend.say(thought("Hm."), call("get_weather", city="LAND'S END"))
        dialogue.user("Where the land ends")
        assert [{"city": "LAND'S END"}] == [one.arguments for one in dialogue.ask().calls]


def test_tokens_are_counted_by_the_server(rwkv: str) -> None:
    with forced(rwkv, LlamaCpp()) as (url, backend):
        ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello " * 30}]}
        told = httpx2.post(f"{url}/v1/messages/count_tokens", json=ask, verify=NO_TLS)
        assert "exact" == told.headers["x-turnscript-token-count"]
        backend.say(text("Hi."))
        answer = httpx2.post(f"{url}/v1/messages", json=ask, verify=NO_TLS).json()["usage"]
        whole = answer["input_tokens"] + answer["cache_read_input_tokens"]
        assert abs(told.json()["input_tokens"] - whole) <= 1


FIRST = "<|begin_of_text|>"


@pytest.mark.parametrize("adds", [True, False], ids=["the server adds it", "it does not"])
@pytest.mark.parametrize("said", [None, FIRST, ""], ids=["not said", "said", "said to be none"])
def test_a_first_token_that_the_server_adds_is_not_in_the_prompt_too(
    tmp_path: Path, adds: bool, said: str | None
) -> None:
    ask: Any = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]}
    path = tinygguf.write_llama(tmp_path / "llama.gguf", add_bos=adds)
    with Embedded(path, context=1024, parallel=1, threads=1) as model:
        config = Config.for_backend(model.url, "batuta-llama3", first_token=said)
        with Running(config) as gateway:
            used = httpx2.post(f"{gateway.url}/v1/chat/completions", json=ask, verify=NO_TLS).json()["usage"]
            counted = httpx2.post(f"{gateway.url}/v1/messages/count_tokens", json=ask, verify=NO_TLS).json()
            format_ = gateway.service.models()[0].format
    expected = FIRST if said == FIRST or (said is None and not adds) else ""
    assert expected == format_.document.start
    bare = ts.get_format("batuta-llama3").with_ends("").prompt(ts.parse(ask, "openai-chat")).text
    read = len(bare) - bare.count("he") + adds + (expected == FIRST)  # each letter is a token, and so is "he"
    assert [read, read] == [used["prompt_tokens"], counted["input_tokens"]]


def test_a_model_file_is_served_as_it_is(tmp_path: Path) -> None:
    path = tinygguf.write_rwkv7(tmp_path / "rwkv7-g1-test.gguf")
    config = Config.for_backend(f"embedded:{path}", "rwkv-goose")
    config = replace(config, models=(replace(config.models[0], context=512, max_tokens=5),))
    with Running(config) as gateway:
        dialogue = DIALOGUES["openai-chat"](gateway.url, STREAM)
        dialogue.user("Hello")
        with pytest.raises(openai.LengthFinishReasonError) as cut:
            dialogue.ask()
        assert cut.value.completion.usage is not None
        assert 5 == cut.value.completion.usage.completion_tokens
        served = gateway.service.models()[0]
        assert ("llamacpp", 512) == (served.pool.members[0].upstream.backend.name, served.context)


def test_the_texts_of_a_session_go_on_in_its_slot(rwkv: str) -> None:
    """A bare text does not tell which one it goes on from, but a session that is named does."""
    cached: dict[str, list[int]] = {"one": [], "two": []}
    with Running(Config.for_backend(rwkv, "rwkv-goose", kind="llamacpp")) as gateway:
        for name in ("one", "two", "two", "one", "one", "two"):
            prompt = f"The story of {name}. " * 20 + "And then. " * len(cached[name])
            told = httpx2.post(
                f"{gateway.url}/v1/completions",
                json={"model": "m", "prompt": prompt, "max_tokens": 1},
                headers={"x-session-id": name},
                verify=NO_TLS,
            )
            cached[name].append(told.json()["usage"]["prompt_tokens_details"]["cached_tokens"])
    assert all(0 == first and 300 < second < third for first, second, third in cached.values()), cached
