"""Owns the third thing that the playground shows: a model's text piece by piece, its events, and the answers told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.format_reference import has_thoughts
from turnscript.convert.prompting import Written, written
from turnscript.convert.recognition import AUTO
from turnscript.convert.records import event_record, response_record
from turnscript.convert.registry import apis, get_api
from turnscript.convert.verbs import parse
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    Text,
    Thinking,
    Tool,
    ToolCall,
)
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import Event, fold
from turnscript.core.json_text import Json, json_of, members_in, plain
from turnscript.formats.format import Format
from turnscript.playground.offered import format_named
from turnscript.playground.telling import (
    Fault,
    Losses,
    Recognised,
    check_name,
    fault_of,
    losses_of,
    pretty,
    recognise,
)

MOST_PIECES = 2_000
"""A text is cut into so many at most: whatever size was asked for, a piece is as large as that takes."""
_THOUGHT, _SAID = "A tool can tell me that.", "Let me look."
_VALUES = {"string": "Paris", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}


class Play(Struct, forbid_unknown_fields=True):
    """What is asked: what a model wrote (None: an example that fits), in which format, the request that it answers
    (empty: none), in pieces of `size` characters, and why its server says that it ended."""

    format: str
    source: str = ""
    from_: str = AUTO
    thinking: bool | None = None
    text: str | None = None
    size: int = 8
    finish_reason: str | None = None


class Step(Struct):
    """A piece of the text, and what the parser said to it; the last step is the end of the text."""

    text: str
    events: list[dict[str, Any]]


class Told(Struct):
    """The answer as a client of an API gets it: whole, and as a stream."""

    api: str
    body: str = ""
    stream: str = ""
    losses: Losses | None = None
    fault: Fault | None = None


class Played(Struct):
    """What came of it. `text`: what was read; `size`: that of its pieces; `response`: the answer as `read` tells it;
    `thinks`: whether a model can think in this format."""

    recognised: Recognised | None = None
    text: str = ""
    size: int = 0
    prefill: str = ""
    thinks: bool = True
    steps: list[Step] = []
    response: dict[str, Any] = {}
    answers: list[Told] = []
    fault: Fault | None = None


def played(asked: Play) -> Played:
    """What a parser makes of a text."""
    request = None
    has_request = bool(asked.source.strip())
    try:
        check_name(asked.from_)
        check_name(asked.format, formats_only=True)
        format_ = format_named(asked.format)
        request = parse(asked.source, asked.from_) if has_request else Request()
        made = written(request, format_, asked.thinking)
        parser = made.parser() if has_request else format_.parser(None, prefill=made.prefill)
        text = _example(request, format_, made) if asked.text is None else asked.text
        size = max(1, asked.size, -(-len(text) // MOST_PIECES))
        pieces = [text[start : start + size] for start in range(0, len(text), size)]
        told = [parser.feed(piece) for piece in pieces]
        told.append(parser.close(asked.finish_reason or None))
    except TurnscriptError as error:
        return Played(recognise(asked.source, asked.from_, request), fault=fault_of(error, asked.source))
    response = fold(chain.from_iterable(told))
    return Played(
        recognise(asked.source, asked.from_, request) if has_request else None,
        text=text,
        size=size,
        prefill=made.prefill,
        thinks=has_thoughts(format_),
        steps=[Step(*step) for step in zip([*pieces, ""], _records(told), strict=True)],
        response=response_record(response),
        answers=[_told(name, request, response, told) for name in apis()],
    )


def _records(told: Sequence[list[Event]]) -> Iterator[list[dict[str, Any]]]:
    for events in told:
        yield [event_record(event) for event in events]


def _told(name: str, request: Request, response: Response, told: Sequence[list[Event]]) -> Told:
    api = get_api(name)
    try:
        body = api.render_response(response, request)
        renderer = api.stream_renderer(request)
        stream = [renderer.start(), *[renderer.send(events) for events in told if events], renderer.close()]
    except TurnscriptError as error:
        return Told(name, fault=fault_of(error))
    return Told(name, pretty(body.data), b"".join(stream).decode(), losses_of(body.losses, ""))


# What a model might have written.


def _example(request: Request, format_: Format, made: Written) -> str:
    """A text and a call of the first tool, as the format has a model write them behind the prompt; behind a thought
    where that opens one. Where a turn cannot hold all of it, less."""
    thought, said = Thinking(content=[Text(text=_THOUGHT)]), Assistant(content=[Text(text=_SAID)])
    named = [(tool.name, tool) for tool in request.tools if tool.name]
    calls = [ToolCall(name=name, arguments=_arguments(tool), id="call_1") for name, tool in named[:1]]
    whole: list[Item] = [thought, said, *calls]
    first = [whole, whole[1:]] if made.prefill else [whole[1:], whole]
    least: list[Item] = [said]
    told = [(_behind(request, format_, items, made), items) for items in [*first, whole[2:], whole[:2], least]]
    return next((text for text, items in told if _is_read(text, made, items)), told[0][0])


def _behind(request: Request, format_: Format, items: Sequence[Item], made: Written) -> str:
    """What the model has written of a conversation that goes on with these items."""
    whole = replace(request, conversation=Conversation([*request.items, *items], request.tools))
    spans = format_.remembering().spans(whole)
    text = "".join([span.text for span in spans])
    if text.startswith(made.text):
        return text[len(made.text) :]
    own = "".join([span.text for span in spans if span.trainable and span.item >= len(request.items)])
    return own.removeprefix(made.prefill)


def _is_read(text: str, made: Written, items: Sequence[Item]) -> bool:
    parser = made.parser()
    response = fold([*parser.feed(text), *parser.close()])
    return not response.issues and [item.kind for item in response.items] == [item.kind for item in items]


def _arguments(tool: Tool) -> str:
    """Arguments that a schema may take: its required properties, each with a value of its type."""
    schema = members_in(tool.parameters)
    properties = members_in(schema.get("properties"))
    values = {name: _value(members_in(properties[name])) for name in _words(schema, "required") if name in properties}
    return bytes(json_of(values)).decode()


def _words(schema: dict[str, Json], key: str) -> list[str]:
    """The texts in a list of a schema."""
    value = plain(schema[key]) if key in schema else []
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _value(schema: dict[str, Json]) -> Any:
    kind = str(plain(schema["type"])) if "type" in schema else ""
    return next(iter(_words(schema, "enum")), _VALUES.get(kind, _VALUES["string"]))
