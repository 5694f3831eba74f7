"""Owns the unit tests of messages that are partly a text and partly a refusal, while they are told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import turnscript as ts
from tests.responses import parsed, payloads, stream, without_made_up
from turnscript.convert.records import event_record
from turnscript.core.conversation import Assistant, Refusal, Request, Text
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, fold

WHOLE = {
    "a refusal behind a text": Assistant(content=[Text(text="Well. "), Refusal(text="No.")]),
    "a text behind a refusal": Assistant(content=[Refusal(text="No."), Text(text="But this.")]),
    "a refusal between texts": Assistant(content=[Text(text="a"), Refusal(text="b"), Text(text="c"), Text(text="d")]),
}
EACH = pytest.mark.parametrize("whole", WHOLE.values(), ids=list(WHOLE))


def told(whole: Assistant) -> list[Event]:
    """The events of an answer, a character at a time."""
    first, *others = whole.content
    events: list[Event] = [PartStart(0, Assistant(content=[Refusal(text="")] if isinstance(first, Refusal) else []))]
    for part in (first, *others):
        assert isinstance(part, Text | Refusal)
        if part is not first:
            events.append(NextText(0, "", refuses=isinstance(part, Refusal)))
        events += [PartDelta(0, character) for character in part.text]
    return [*events, PartEnd(0, whole), MessageEnd("stop")]


def said(data: bytes) -> list[tuple[str, int, str]]:
    """Of each delta what it is of, of which content part, and its text; neighbours joined."""
    found: list[tuple[str, int, str]] = []
    for body in payloads(data):
        kind = body["type"].removeprefix("response.")
        if kind in ("output_text.delta", "refusal.delta"):
            of = (kind.partition(".")[0], body["content_index"])
            before = found.pop() if found and found[-1][:2] == of else (*of, "")
            found.append((*of, before[2] + body["delta"]))
    return found


def expected(whole: Assistant) -> list[tuple[str, int, str]]:
    return [
        ("refusal" if isinstance(part, Refusal) else "output_text", at, part.text)
        for at, part in enumerate(whole.content)
        if isinstance(part, Text | Refusal)
    ]


@EACH
def test_each_part_is_told_as_what_it_is(whole: Assistant) -> None:
    data = stream(told(whole))
    assert expected(whole) == said(data)
    done = [body for body in payloads(data) if body["type"] in ("response.refusal.done", "response.output_text.done")]
    texts = [(body["content_index"], body.get("text", body.get("refusal"))) for body in done]
    assert [(at, text) for _, at, text in expected(whole)] == texts
    [item] = payloads(data)[-1]["response"]["output"]
    assert [kind for kind, _, _ in expected(whole)] == [part["type"] for part in item["content"]]


@EACH
def test_what_is_read_of_it_tells_it_in_the_same_way_again(whole: Assistant) -> None:
    data = stream(told(whole))
    events = parsed(data)
    assert expected(whole) == said(stream(events))
    assert [whole] == without_made_up(fold(events).items, [whole])
    records = [event_record(event) for event in events]
    turns = [record.get("refuses", False) for record in records if record["type"] == "next_text"]
    assert [isinstance(part, Refusal) for part in whole.content[1:]] == turns


@EACH
def test_a_server_that_tells_no_deltas_is_understood_too(whole: Assistant) -> None:
    bare = [event for event in told(whole) if not isinstance(event, PartDelta)]
    assert expected(whole) == said(stream(parsed(stream(bare))))


@EACH
def test_chunks_have_a_member_for_each(whole: Assistant) -> None:
    writer = ts.get_api("openai-chat").stream_renderer(Request())
    data = writer.send(told(whole)) + writer.close()
    lines = [line.removeprefix(b"data: ") for line in data.split(b"\n\n") if line.startswith(b"data: {")]
    found: dict[str, str] = {}
    for line in lines:
        chunk: Any = msgspec.json.decode(line)
        for choice in chunk["choices"]:
            for name in ("content", "refusal"):
                found[name] = found.get(name, "") + (choice["delta"].get(name) or "")
    for name, kind in (("content", Text), ("refusal", Refusal)):
        assert "".join([part.text for part in whole.content if isinstance(part, kind)]) == found[name]
    assert [] == [loss for loss in writer.losses if "too late" in loss.detail]
