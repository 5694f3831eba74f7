"""Owns the law that calls are read in linear time, in each of the ways in which any format with a name has them.

Formats that write calls in the same way with other words are one way. So are those that a reader only understands: they
are written by a table that has them in place of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.convert.registry import named_formats
from turnscript.core.json_text import json_of

SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}}
TOOL = ts.Tool(name="write", parameters=json_of(SCHEMA))
LINE = 'A line with <b>tags</b>, [brackets], {braces}, "quotes", a \\ and a \'.\n'
"""What an argument is made of: the signs by which tags, strings and structures of any notation begin and end."""


def writers(format_: ts.Format) -> Iterator[tuple[Any, ts.Format]]:
    """Each kind of call that a reader of a format understands, with a format that writes such calls."""
    document = format_.document
    joints = {**document.joints, **document.also_joined}
    for at, turn in enumerate(document.turns):
        for call in (one for one in (*turn.segments, *turn.also_read) if one.kind == "tool_call"):
            turns = list(document.turns)
            turns[at] = with_call(turn, call)
            yield call, replace(format_, document=replace(document, turns=tuple(turns), joints=joints))


def with_call(turn: Any, call: Any) -> Any:
    """A turn whose calls are of that kind."""
    others = [one for one in turn.segments if one.kind != "tool_call"]
    return replace(turn, segments=(*others, call))


def way(call: Any) -> tuple[object, ...]:
    """What calls have in common that differ in words alone."""
    group = call.group and (bool(call.group.open), bool(call.group.close))
    return (*options(call.body), bool(call.open), bool(call.head_end), bool(call.close), group, call.tentative)


def options(body: Any) -> tuple[object, ...]:
    """The kind of a payload, and which of its options are taken."""
    return type(body), *(bool(value) for _, value in sorted(vars(body).items()))


def ways() -> dict[str, tuple[ts.Format, ts.Format]]:
    """For each way the first format that reads it, and one that writes it, by the name and where it stands there."""
    found: dict[tuple[object, ...], tuple[str, ts.Format, ts.Format]] = {}
    for name, format_ in named_formats().items():
        for number, (call, writer) in enumerate(writers(format_)):
            title = f"{name}-{number}" if number else name
            found.setdefault(way(call), (title, format_, writer))
    return {title: (reader, writer) for title, reader, writer in found.values()}


WAYS = ways()


def written(writer: ts.Format, arguments: list[str]) -> str:
    """What a model writes that makes these calls."""
    calls = [ts.ToolCall(name="write", arguments=one, id=f"call{at:05}") for at, one in enumerate(arguments)]
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")]), *calls]
    request = ts.Request(conversation=ts.Conversation(items=items, tools=[TOOL]))
    return "".join(span.text for span in writer.spans(request) if span.trainable)


def read(reader: ts.Format, pieces: list[str]) -> ts.Response:
    """What a parser makes of an answer in pieces."""
    parser = reader.parser([TOOL], prefill=None)
    return ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())


def called(response: ts.Response) -> list[str]:
    """The arguments of all calls."""
    return [item.arguments for item in response.items if isinstance(item, ts.ToolCall)]


def assert_read_in_linear_time(
    name: str, arguments: Callable[[int], list[str]], sizes: tuple[int, int], piece: int
) -> list[str]:
    """Fail unless the time to read these calls grows as they do. Return what the larger ones were read as."""
    reader, writer = WAYS[name]
    found: dict[int, ts.Response] = {}

    def reading(size: int) -> Callable[[], object]:
        answer = written(writer, arguments(size))
        pieces = [answer[at : at + piece] for at in range(0, len(answer), piece)] if piece else [answer]

        def run() -> None:
            found[size] = read(reader, pieces)

        return run

    small, large = sizes
    assert_grows_below(2.5 * large / small, reading, small, large)
    return called(found[large])


@pytest.mark.deep
@pytest.mark.parametrize("piece", [0, 64], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", WAYS)
def test_a_long_argument_is_read_in_linear_time(name: str, piece: int) -> None:
    """8 times as much, up to a quarter of a megabyte."""

    def arguments(length: int) -> list[str]:
        return [json.dumps({"text": LINE * (length // len(LINE))})]

    [expected] = arguments(262_144)
    [found] = assert_read_in_linear_time(name, arguments, (32_768, 262_144), piece)
    assert json.loads(expected) == json.loads(found)


@pytest.mark.deep
@pytest.mark.parametrize("piece", [0, 64], ids=["whole", "pieces"])
@pytest.mark.parametrize("name", WAYS)
def test_many_calls_are_read_in_linear_time(name: str, piece: int) -> None:
    """5 times as many. Where a turn has one call, the others are behind its end."""
    found = assert_read_in_linear_time(name, lambda count: ['{"text": "a"}'] * count, (400, 2_000), piece)
    assert len(found) in (1, 2_000)
