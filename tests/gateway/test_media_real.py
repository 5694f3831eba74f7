"""Owns pictures and sounds before the real llama.cpp: its model takes them in their order, and knows them again.

Its weights are random, so nothing can be asked about them. What it counts, keeps and writes tells of them.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.gateway import tinygguf
from tests.gateway.dialogue import DIALOGUES, STREAM, WHOLE, Dialogue, Way
from tests.gateway.forced import forced, tokens
from tests.gateway.running import Running
from tests.gateway.sighted import CONTEXT, PLAYED, SHOWN, picture, sighted, sound
from tests.gateway.speaker import call, text
from tests.gateway.stage import CHATS, NO_TLS, WEATHER, Told, is_refused, named
from turnscript.apis.api import Api
from turnscript.backends.backend import Completion
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.conversation import Audio, Image, Item, Part, Request, Text, ToolCall, ToolResult, User
from turnscript.core.errors import ContextOverflow, InvalidRequest
from turnscript.gateway.config import Config
from turnscript.gateway.headers import COUNTED, REPORT
from turnscript.gateway.upstream import Upstream

FORMAT = "batuta-chatml"
EACH = pytest.mark.parametrize("api", DIALOGUES)
BOTH = pytest.mark.parametrize("way", [WHOLE, STREAM], ids=str)
ALL = pytest.mark.parametrize("api", CHATS, ids=named)
STREAMS = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
RED, GREEN, BLUE = picture(255, 0, 0), picture(0, 255, 0), picture(0, 0, 255)
WEBP = "UklGRiQAAABXRUJQVlA4IBgAAAAwAQCdASoBAAEAAwA0JaQAA3AA/vuUAAA="
LINE = 1
"""The token between two parts of a content."""


def parts(*told: str) -> list[Part]:
    """A content: words, and pictures in base64."""
    pictures = (RED, GREEN, BLUE, WEBP)
    return [Image(data=one, media_type="image/png") if one in pictures else Text(text=one) for one in told]


def said(api: Api, *items: Item, stream: bool = False) -> Any:
    """A request of an API."""
    request = Request()
    request.conversation.items += items
    request.settings.model, request.settings.max_tokens, request.settings.stream = "m", 8, stream
    value: Any = api.render_request(request).value
    return value | {"stream_options": {"include_usage": True}} if stream and "messages" in value else value


def show(dialogue: Dialogue, api: str, *items: Item) -> None:
    """These were said and shown."""
    value = said(ts.get_api(api), *items)
    dialogue.history += value["input"] if "input" in value else value["messages"]


def left_out(url: str, headers: Any) -> int:
    """Of how many pictures the report of an answer says that they were left out."""
    found = httpx2.get(url + headers[REPORT], verify=NO_TLS, timeout=20).json()["losses"]
    return sum("the prompt says that an image was left out" in loss["detail"] for loss in found)


def post(url: str, api: Api, *items: Item, stream: bool = False, headers: dict[str, str] | None = None) -> Told:
    """A request as bytes, and what its client is told."""
    body = msgspec.json.encode(said(api, *items, stream=stream))
    reply = httpx2.post(url + api.endpoint, content=body, headers=headers, verify=NO_TLS, timeout=20)
    return Told(api, reply.status_code, dict(reply.headers), reply.content)


@EACH
@BOTH
def test_the_model_reads_each_picture_in_its_place(seeing: str, api: str, way: Way) -> None:
    """It counts them, and knows of a prompt what stands before the first one that is another."""
    contents = [[], [RED, BLUE], [RED, BLUE], [RED, GREEN], [GREEN, RED]]
    counts = []
    with forced(seeing, LlamaCpp(), FORMAT) as (url, backend):
        for pictures in contents:
            dialogue = DIALOGUES[api](url, way)
            show(dialogue, api, User(content=parts(f"Look, {api} {way}.")), text("Yes?"))
            show(dialogue, api, User(content=parts("Now.", *pictures, "What is it?")))
            backend.say(text("A colour."))
            told = dialogue.ask()
            assert "A colour." == told.text
            counts.append(tokens(told.whole))
    plain = counts[0][0]
    assert [plain + len(one) * (SHOWN + LINE) for one in contents] == [whole for whole, _ in counts]
    _, _, again, second, first = [cached for _, cached in counts]
    assert counts[2][0] - 1 == again > second == first + SHOWN + LINE


@EACH
@BOTH
def test_a_conversation_with_a_picture_is_read_once(seeing: str, api: str, way: Way) -> None:
    with forced(seeing, LlamaCpp(), FORMAT) as (url, backend):
        dialogue = DIALOGUES[api](url, way, [WEATHER])
        show(dialogue, api, User(content=parts(f"Where is it as sunny as here, {api} {way}?", RED)))
        before = 0
        for words in ("In Rome.", "In Oslo.", "In Bern."):
            backend.say(call("get_weather", city=words))
            [called] = dialogue.ask().calls
            dialogue.results({called.id: "sunny"})
            backend.say(text(words))
            whole, cached = tokens(dialogue.ask().whole)
            assert max(0, before - 8) <= cached < whole
            before = whole
            show(dialogue, api, User(content=parts("And where else?", GREEN)))
        assert all(backend.grew())


@ALL
@STREAMS
def test_a_tool_may_answer_with_a_picture(seeing: str, api: Api, stream: bool) -> None:
    """In Chat Completions it follows in a user's message, as a tool's has no place for it."""
    counts = []
    with Running(Config.for_backend(seeing, FORMAT)) as gateway:
        for told in (["Done"], ["Done", RED]):
            answer = ToolResult(id="c1", content=parts(*told))
            asked = User(content=parts("Look")), ToolCall(id="c1", name="look", arguments="{}"), answer
            reply = post(gateway.url, api, *asked, stream=stream)
            assert 200 == reply.status
            assert 0 == left_out(gateway.url, reply.headers)
            assert reply.usage is not None
            counts.append(reply.usage.input)
    assert SHOWN < counts[1] - counts[0] < 2 * SHOWN


def test_what_the_model_writes_comes_of_the_pictures_and_their_order(seeing: str) -> None:
    async def likely(*pictures: str) -> list[float]:
        media = {f"({place})": data for place, data in enumerate(pictures)}
        sampling = {"temperature": 0, "logprobs": True, "ignore_eos": True}
        ask = Completion(prompt=f"See {' '.join(media)}:", media=media, max_tokens=8, sampling=sampling)
        async with Upstream(seeing, LlamaCpp()) as upstream:
            await upstream.facts()
            async with upstream.open(ask) as answer:
                pieces = [piece async for some in answer for piece in some]
        return [token.logprob for piece in pieces for token in piece.logprobs or ()]

    once, again, other, turned = [
        asyncio.run(likely(*one)) for one in ((RED, BLUE), (RED, BLUE), (RED, GREEN), (BLUE, RED))
    ]
    assert once == pytest.approx(again, abs=1e-4)
    assert all(once != pytest.approx(different, abs=1e-2) for different in (other, turned))


@ALL
@STREAMS
@pytest.mark.parametrize("begins", [60.0, 0.0], ids=["late", "at-once"])
def test_a_picture_that_is_none_is_refused_in_words(
    seeing: str, api: Api, stream: bool, begins: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its status, or in the stream where that has begun: it does soon, whatever its server has said by then."""
    monkeypatch.setattr("turnscript.gateway.answers.SOON", begins)
    with Running(Config.for_backend(seeing, FORMAT)) as gateway:
        broken = User(content=[Text(text="Look"), Image(data="Zmlyc3Q=", media_type="image/png")])
        told = post(gateway.url, api, broken, stream=stream)
        if stream and not begins:
            assert 200 == told.status
        else:
            is_refused(told, InvalidRequest("?"))
        assert "Failed to load image" in str(told.error)
        assert 200 == post(gateway.url, api, User(content=parts("Look", RED)), stream=stream).status


@ALL
def test_a_picture_that_llama_cpp_cannot_read_is_told_as_left_out(seeing: str, api: Api) -> None:
    """It would refuse each later turn of the conversation, too."""
    with Running(Config.for_backend(seeing, FORMAT)) as gateway:
        told = post(gateway.url, api, User(content=parts("Look", WEBP, RED)))
        assert 200 == told.status
        assert 1 == left_out(gateway.url, told.headers)


@ALL
def test_a_model_without_a_projector_is_told_that_a_picture_was_left_out(seeing: str, llamacpp: str, api: Api) -> None:
    for url, lost in ((seeing, 0), (llamacpp, 2)):
        with Running(Config.for_backend(url, FORMAT)) as gateway:
            told = post(gateway.url, api, User(content=parts("Look", RED, "and", BLUE)))
            assert 200 == told.status
            assert lost == left_out(gateway.url, told.headers)


def test_a_model_that_hears_gets_sounds_and_no_pictures(tmp_path: Path) -> None:
    api = ts.get_api("openai-chat")
    high, low = (Audio(data=sound(length), format="wav") for length in (20, 200))
    counts = []
    with sighted(tmp_path, tinygguf.write_ear) as url, Running(Config.for_backend(url, FORMAT)) as gateway:
        for shown, lost in (([], 0), ([high], 0), ([high, low], 0), (parts(RED), 1)):
            for stream in (True, False):
                told = post(gateway.url, api, User(content=[Text(text="Listen."), *shown]), stream=stream)
                assert (200, lost) == (told.status, left_out(gateway.url, told.headers))
                assert told.usage is not None
                counts.append(told.usage.input)
    assert [PLAYED + LINE] * 2 + [2 * (PLAYED + LINE)] * 2 == [count - counts[0] for count in counts[2:6]]


def test_a_list_of_models_says_whether_one_sees(seeing: str, llamacpp: str) -> None:
    for url, sees in ((seeing, True), (llamacpp, False)):
        with Running(Config.for_backend(url, FORMAT)) as gateway:
            headers = {"anthropic-version": "2023-06-01"}
            told = httpx2.get(f"{gateway.url}/v1/models/default", headers=headers, verify=NO_TLS, timeout=20).json()
            assert {"supported": sees} == told["capabilities"]["image_input"]


def test_pictures_that_do_not_fit_are_too_much_of_a_prompt(seeing: str) -> None:
    """Nobody can count them before the server does."""
    with Running(Config.for_backend(seeing, FORMAT)) as gateway:
        for api in CHATS:
            told = post(gateway.url, api, User(content=parts("Look" * 190, *[RED, BLUE] * 18)))
            is_refused(told, ContextOverflow(CONTEXT + 1, CONTEXT))
            assert f"{CONTEXT}" in str(told.error)


def test_a_count_with_a_picture_is_no_exact_one_and_spoils_no_estimate(seeing: str) -> None:
    api = ts.get_api("anthropic-messages")
    with Running(Config.for_backend(seeing, FORMAT)) as gateway:
        [served] = gateway.service.models()
        estimate = served.estimate("x" * 1000)
        for content, how in ((parts("Look " * 60), "exact"), (parts("Look " * 60, RED), "estimated")):
            body = said(api, User(content=content))
            reply = httpx2.post(f"{gateway.url}/v1/messages/count_tokens", json=body, verify=NO_TLS, timeout=20)
            assert how == reply.headers[COUNTED]
        assert 200 == post(gateway.url, api, User(content=parts("Look " * 60, RED))).status
        assert estimate == served.estimate("x" * 1000)
        assert 200 == post(gateway.url, api, User(content=parts("Look " * 60))).status
        assert estimate < served.estimate("x" * 1000)


def test_each_server_of_a_model_gets_the_mark_that_it_wants(seeing: str, tmp_path: Path) -> None:
    """llama.cpp makes one up each time that it starts."""
    api = ts.get_api("openai-chat")
    with sighted(tmp_path) as other:
        one, two = (Config.for_backend(url, FORMAT).models[0] for url in (seeing, other))
        config = Config.for_backend(seeing, FORMAT)
        config = replace(config, models=(replace(one, backend=(*one.backend, *two.backend)),))
        with Running(config) as gateway:
            for name in ("Ann", "Bob", "Cid", "Dan"):
                headers = {"x-session-id": name}
                told = post(gateway.url, api, User(content=parts(f"I am {name}", RED)), headers=headers)
                assert 200 == told.status, told.body
            [served] = gateway.service.models()
            assert [True, True] == [bool(member.used) for member in served.pool.members]
            assert 2 == len({member.upstream.known.marker for member in served.pool.members})


def test_a_text_that_looks_like_a_mark_stands_for_no_picture(seeing: str) -> None:
    async def marker() -> str:
        async with Upstream(seeing, LlamaCpp()) as upstream:
            return (await upstream.facts()).marker

    mark = asyncio.run(marker())
    assert "<__media__>" != mark
    with Running(Config.for_backend(seeing, FORMAT)) as gateway:
        for content in (parts(mark, RED, mark), parts(f"{mark}{mark}")):
            for api in CHATS:
                assert 200 == post(gateway.url, api, User(content=content)).status
