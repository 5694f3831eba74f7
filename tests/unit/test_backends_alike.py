"""Owns reading streams whose events differ in their text alone: they say the same as when each one is decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnscript.backends.backend import Backend, Completion, Piece
from turnscript.convert import registry
from turnscript.core.errors import UpstreamError

ASK = Completion(prompt="Hi", max_tokens=5)
COMPLETIONS, LLAMA, AI00 = (registry.get_backend(name) for name in ("completions", "llamacpp", "ai00"))
EACH = pytest.mark.parametrize("backend", [COMPLETIONS, LLAMA, AI00], ids=["completions", "llamacpp", "ai00"])

TEXTS = st.text(st.sampled_from('aé👍"\\ \n\t\x7f\ufffd\u2028,:{}'), max_size=3)


def chunk(text: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": text, "finish_reason": finish}], **more}


def stream(*events: Any, spaced: bool = True, ascii_: bool = False) -> bytes:
    """Events as one server writes them; a text stands as it is."""
    separators = None if spaced else (",", ":")
    said = [
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=ascii_, separators=separators) for one in events
    ]
    return "".join(f"data: {one}\n\n" for one in said).encode()


def one_by_one(backend: Backend, data: bytes) -> list[Piece]:
    """What the pieces are where each event has a reader that has seen none before it: nothing can be taken for it."""
    found: list[Piece] = []
    for event in data.split(b"\n\n")[:-1]:
        found += backend.reader(ASK).feed(event + b"\n\n")
    return found


def texts(pieces: list[Piece]) -> list[str]:
    return [piece.text for piece in pieces]


@given(st.lists(TEXTS, max_size=8), st.booleans(), st.booleans(), st.lists(st.integers(1, 200), max_size=6))
def test_texts_are_those_of_the_events(said: list[str], spaced: bool, ascii_: bool, cuts: list[int]) -> None:
    data = stream(*map(chunk, said), chunk("", "stop"), "[DONE]", spaced=spaced, ascii_=ascii_)
    reader = COMPLETIONS.reader(ASK)
    found: list[Piece] = []
    for size in cuts:
        found += reader.feed(data[:size])
        data = data[size:]
    found += reader.feed(data) + reader.close()
    assert "".join(said) == "".join(texts(found))
    assert ["stop"] == [piece.finish for piece in found if piece.finish]


STRANGE = [
    chunk("a", model="text"),
    {**chunk("a"), "text": "b"},
    chunk("a", x={"text": "b"}),
    chunk("a", choices=[{"index": 0, "delta": {"content": "a"}, "x": {"text": "a"}}]),
    chunk("a", choices=[{"index": 1, "text": "a"}]),
    chunk("a", choices=[{"index": 0, "text": "a"}, {"index": 1, "text": "b"}]),
    chunk("a", choices=[{"text": "a", "index": 0}]),
    chunk("a", usage={"prompt_tokens": 3, "completion_tokens": 1}),
    chunk("a", "length"),
    chunk(None),
    chunk(""),
    chunk("a", id="cmpl-2"),
    '{"choices":[{"\\u0074ext":"a","text2":{"text":"a"}}]}',
    '{"choices":[{"text":"a","text":"b"}]}',
    '{"choices":[{"index":0,"text" : "a"}]}',
    '{"choices":[{"delta":{"content":"a"},"x":{"text":"a"}}]}',
    '{"choices":[{"delta":{"content":"text"}}]}',
]


@given(st.lists(st.one_of(TEXTS.map(chunk), st.sampled_from(STRANGE)), max_size=8))
def test_whatever_else_the_events_say_each_is_read_as_it_is_alone(events: list[Any]) -> None:
    data = stream(*events, ascii_=True, spaced=False)
    alone = one_by_one(COMPLETIONS, data)
    together = COMPLETIONS.reader(ASK).feed(data)
    if b"\xef\xbf\xbd" not in data and rb"\ufffd" not in data:  # half a character waits for what follows
        assert alone == together
    reader = COMPLETIONS.reader(ASK)
    each = [piece for event in data.split(b"\n\n")[:-1] for piece in reader.feed(event + b"\n\n")]
    assert together == each


@EACH
def test_events_with_one_text_that_is_no_json_are_refused(backend: Backend) -> None:
    good = b'{"content":"a","choices":[{"index":0,"text":"a","delta":{"content":"a"}}]}'
    if backend is COMPLETIONS:
        good = b'{"choices":[{"index":0,"text":"a"}]}'
    for bad in (b"\x01", b"\t", b"\xff", b'"', b"\\", b"\xed\xa0\x80"):
        reader = backend.reader(ASK)
        event = b"data: " + good + b"\n\n"
        assert ["a", "a"] == texts(reader.feed(event * 2))
        with pytest.raises(UpstreamError):
            reader.feed(event.replace(b'"a"', b'"%b"' % bad))


def test_a_character_in_two_events_is_none() -> None:
    event = b'data: {"choices":[{"index":0,"text":"%b"}]}\n\n'
    reader = COMPLETIONS.reader(ASK)
    with pytest.raises(UpstreamError):
        [reader.feed(event % b"a" + event % b"\xc3" + event % b"\xa9"), reader.feed(event % b"a")]


def test_nothing_is_told_behind_the_end() -> None:
    reader = COMPLETIONS.reader(ASK)
    data = stream(chunk("a"), chunk("b", "stop"), "[DONE]")
    assert ["a", "b"] == texts(reader.feed(data))
    assert [] == reader.feed(stream(chunk("c"), chunk("d")))
