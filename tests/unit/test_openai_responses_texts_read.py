"""Owns messages of several texts in Responses streams: each is told as one, however little a server says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.responses import API, answer, of_payloads, payloads, stream
from tests.strategies.events import texts_told
from turnscript.core.conversation import Assistant, Item, Refusal, Response, Text, Thinking
from turnscript.core.events import Event, fold

TEXTS = ["One.", "", "Two."]
MESSAGE = Assistant(content=[Text(text=text) for text in TEXTS])
GOOD = payloads(stream(answer(MESSAGE)))
DONE = ("_text.done", "part.done")


def read(data: bytes) -> list[Event]:
    parser = API.stream_parser()
    return [*parser.feed(data), *parser.close()]


def whole(data: bytes) -> Response:
    return fold(read(data))


def texts_of(item: Item) -> list[str]:
    return [part.text for part in getattr(item, "content", ()) if isinstance(part, Text)]


def changed(change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> bytes:
    """The good stream with each event changed, or left out where `change` gives None."""
    copies = [change(json.loads(json.dumps(body))) for body in GOOD]
    return of_payloads(*[body for body in copies if body is not None])


def without(*endings: str) -> bytes:
    return changed(lambda body: None if body["type"].endswith(endings) else body)


def broken_off(data: bytes) -> list[str]:
    """The texts that are kept of a stream that ends nowhere."""
    parser = API.stream_parser()
    response = fold([*parser.feed(data), *parser.salvage()])
    return [text for item in response.items for text in texts_of(item)]


@pytest.mark.parametrize(
    "data",
    [
        of_payloads(*GOOD),
        without(*DONE),
        without(".delta"),
        without("part.added", ".delta", *DONE),
        without("item.added", "part.added", ".delta", "item.done", *DONE),
    ],
    ids=["all", "no ends", "no deltas", "items alone", "the last event alone"],
)
def test_each_text_is_told_as_one(data: bytes) -> None:
    events = read(data)
    assert TEXTS == texts_told(events)
    assert [TEXTS] == [texts_of(item) for item in fold(events).items]


@pytest.mark.parametrize("more", [None, "0", -1, 0.0, True, [], 10**30])
def test_a_place_that_is_none_tells_nothing(more: object) -> None:
    """What the item says is kept, and the pieces are one text."""
    bare = changed(lambda body: body | {"content_index": more} if body["type"].endswith((".delta", "added")) else body)
    events = read(bare)
    assert "One.Two." == "".join(texts_told(events))
    assert ([TEXTS], []) == ([texts_of(item) for item in fold(events).items], fold(events).issues)


def test_a_delta_may_tell_by_itself_that_it_is_of_another_text() -> None:
    events = read(without("part.added", *DONE))
    assert ["One.", "Two."] == texts_told(events)
    assert [TEXTS] == [texts_of(item) for item in fold(events).items]


def test_an_item_that_was_never_done_has_the_texts_that_were_told() -> None:
    [item] = whole(without("item.done", "response.completed") + of_payloads(GOOD[-1] | {"response": {}})).items
    assert TEXTS == texts_of(item)


@pytest.mark.parametrize("count", range(len(GOOD)))
def test_a_stream_that_broke_off_keeps_each_text_by_itself(count: int) -> None:
    *first, last = broken_off(of_payloads(*GOOD[:count])) or [""]
    assert TEXTS[: len(first)] == first
    assert TEXTS[len(first)].startswith(last)


def test_a_refusal_behind_a_text_is_one() -> None:
    place = {"output_index": 0, "item_id": "m"}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "in_progress", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": message},
        {"type": "response.output_text.delta", "content_index": 0, "delta": "Well.", **place},
        {"type": "response.refusal.delta", "content_index": 1, "delta": "No.", **place},
        {"type": "response.completed", "response": {"status": "completed"}},
    ]
    data = of_payloads(*events)
    assert ["Well.", "No."] == texts_told(read(data))
    assert [Text(text="Well."), Refusal(text="No.")] == whole(data).items[0].content  # type: ignore[attr-defined]


def test_the_texts_of_a_thought_are_its_pieces() -> None:
    thought = Thinking(content=[Text(text="Hm."), Text(text="So.")])
    events = read(stream(answer(thought)))
    assert ["Hm.So."] == texts_told(events)
    assert thought.content == fold(events).items[0].content  # type: ignore[attr-defined]


def test_pieces_of_another_text_than_the_item_has_are_an_issue() -> None:
    data = changed(lambda body: body | {"delta": "Else."} if body["type"].endswith(".delta") else body)
    response = whole(data)
    assert ["changed_item"] == [issue.kind for issue in response.issues]
    assert [TEXTS] == [texts_of(item) for item in response.items]
