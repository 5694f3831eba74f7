"""Owns conformance vectors: what a format makes of requests, and what answers in it mean, for tests in any language.

A case is a request and the answer that a model gives. A format has a vector for each case that it can carry: its prompt
shows what the request says, and what the model writes for the answer is read back as that answer. So what a format can
do says which vectors there are; nothing here is written for one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.records import response_record
from turnscript.convert.verbs import parse
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Part,
    Request,
    Response,
    Text,
    Thinking,
    ToolCall,
    text_content,
)
from turnscript.core.errors import Unsupported
from turnscript.core.events import fold
from turnscript.core.json_text import Json, is_json, same
from turnscript.engine.prompt import Prompt
from turnscript.engine.template.program import InvalidTemplate, TemplateRefused
from turnscript.formats.format import Format


class Vector(Struct, frozen=True):
    """One vector. `request` is a body of Chat Completions, `prompt` what a model is given for it, and `stops` what ends
    its answer. `text`: what it writes, up to its stop. `finish_reason`: why it ended, as its server says. `answer`:
    what the text means, as `turnscript read --json` writes it, but for issues: only what is cut off has some."""

    case: str
    format: str
    request: dict[str, Any]
    prompt: str
    stops: list[str]
    text: str
    finish_reason: str
    answer: dict[str, Any]


class Vectors(Struct, frozen=True):
    """The vectors of a format, and the names of the cases that it cannot carry."""

    found: list[Vector]
    missing: list[str]


class Case(Struct, frozen=True):
    """A request, and the items that answer it. `shown`: what the prompt must show of it. `cut`: how many of the last
    characters the token limit takes from the answer."""

    name: str
    request: dict[str, Any]
    answer: list[Item]
    shown: tuple[str, ...] = ()
    cut: int = 0


def vectors(format_: Format) -> Vectors:
    """Return the vectors of a format."""
    found: list[Vector] = []
    missing: list[str] = []
    for case in cases(format_):
        try:
            vector = _vector(format_, case)
        except (TemplateRefused, InvalidTemplate, Unsupported):
            vector = None
        if vector is None:
            missing.append(case.name)
        else:
            found.append(vector)
    return Vectors(found, missing)


def _vector(format_: Format, case: Case) -> Vector | None:
    """Return the vector of a case, None where the format cannot carry it."""
    # Through text, as whoever reads the vector has it.
    request = parse(json.dumps(case.request))
    prompt = format_.prompt(request)
    if not all(said in prompt.text for said in case.shown):
        return None
    for answer in (case.answer, [_thought(), *case.answer]):  # some models always think first
        expected = _meaning(answer, case.cut)
        for written in _written(format_, request, prompt, answer):
            ended = "length" if case.cut else "stop"
            text = written[: written.find(expected[-1][2]) + len(expected[-1][2])] if case.cut else written
            parser = prompt.parser()
            response = fold([*parser.feed(text), *parser.close(ended)])
            if (case.cut or not response.issues) and _same(expected, _meaning(response.items)):
                return Vector(
                    case=case.name,
                    format=format_.name,
                    request=case.request,
                    prompt=prompt.text,
                    stops=prompt.stops,
                    text=text,
                    finish_reason=ended,
                    answer=_record(response),
                )
    return None


def _record(response: Response) -> dict[str, Any]:
    record = response_record(response)
    return {key: value for key, value in record.items() if key in ("items", "finish_reason")}


# What a model writes.


def _written(format_: Format, request: Request, prompt: Prompt, answer: Sequence[Item]) -> Iterator[str]:
    """Give what a model may write behind a prompt for an answer, up to its stop; the likeliest first.

    It is what stands in the whole conversation behind what the prompt has opened. Some prompts open a text that a call
    does not go into; a model closes it then, empty.
    """
    whole = format_.remembering()
    before = whole.write(request).text.removesuffix(format_.document.end)
    for items in (answer, [Assistant(content=_text("")), *answer]):
        text = whole.write(_with(request, items)).text
        if text.startswith(prompt.text):
            yield _stopped(text[len(prompt.text) :], prompt.stops)
        # A wish to think, or not to, may stand in the prompt alone, so that the two part before the turn is opened.
        turn = format_.document.model_turn
        shared = next((at for at, (one, other) in enumerate(zip(before, text, strict=False)) if one != other), None)
        tail = text[min(len(before), len(text)) if shared is None else shared :]
        for opened in filter(None, (prompt.opened, f"{turn.open}{turn.head_end}")):
            _, found, rest = tail.partition(opened)
            if found:
                yield _stopped(rest, prompt.stops)
        yield _stopped(tail, prompt.stops)


def _stopped(text: str, stops: Iterable[str]) -> str:
    """Return what a server gives of a text: nothing from its first stop on."""
    return text[: min([at for stop in stops if (at := text.find(stop)) >= 0], default=len(text))]


def _with(request: Request, items: Iterable[Item]) -> Request:
    return replace(request, conversation=Conversation(items=[*request.items, *items], tools=request.tools))


# What it means.


def _meaning(items: Iterable[Item], cut: int = 0) -> list[tuple[str, str, str]]:
    """Return what items say: the kind, the name of a tool, the text or the arguments."""
    said = [
        (item.kind, item.name, item.arguments)
        if isinstance(item, ToolCall)
        else (item.kind, "", text_content(getattr(item, "content", ())))
        for item in items
    ]
    return [*said[:-1], (*said[-1][:2], said[-1][2][:-cut])] if cut else said


def _same(expected: Sequence[tuple[str, str, str]], found: Sequence[tuple[str, str, str]]) -> bool:
    """Return whether items say the same. Of arguments their values count."""
    return len(expected) == len(found) and all(map(_alike, expected, found))


def _alike(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    if one[0] == ToolCall.kind and is_json(one[2]) and is_json(other[2]):
        return one[:2] == other[:2] and same(Json(one[2].encode()), Json(other[2].encode()))
    return one == other


# The cases.

_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_ROOM = {
    "type": "object",
    "properties": {
        "hotel": {"type": "string"},
        "nights": {"type": "integer"},
        "price": {"type": "number"},
        "breakfast": {"type": "boolean"},
        "guests": {"type": "array", "items": {"type": "string"}},
        "address": {"type": "object", "properties": {"street": {"type": "string"}}},
    },
    "required": ["hotel"],
}


def _tool(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


_TOOLS = [_tool("get_weather", "The weather in a city, now.", _CITY), _tool("book_room", "Book a room.", _ROOM)]
_QUESTION = "What is the weather in Tokyo?"
_LOOK, _THOUGHT, _SUNNY = "Let me look.", "I need to look that up.", "It is sunny in Tokyo."
_MODEL = {"model": "model"}
_THINK = {"reasoning_effort": "medium"}
_UNICODE = "Zoë: 東京は晴れ、22 °C — “très bien” 👍🏽, नमस्ते"
_LINES = "First:\n\n  1. wait\n\t2. go\n\nThat is all."
_PREFIX = "call_"


def cases(format_: Format) -> Iterator[Case]:
    """Give the cases that are tried on a format: each kind of thing that a conversation may have."""
    for case in (*_texts(format_), *_calls(), *_results()):
        yield replace(case, request=_MODEL | case.request)


def _texts(format_: Format) -> Iterator[Case]:
    plain, answer = {"messages": [_user(_QUESTION)]}, _said("I do not know.")
    yield Case("text", plain, answer, (_QUESTION,))
    told = {"messages": [{"role": "system", "content": "Be brief."}, _user(_QUESTION)]}
    yield Case("instructions", told, answer, ("Be brief.", _QUESTION))
    turns = {"messages": [_user("Hi"), _assistant("Hello."), _user(_QUESTION)]}
    yield Case("several turns", turns, answer, ("Hello.", _QUESTION))
    yield Case("unicode", {"messages": [_user(_UNICODE)]}, _said(_UNICODE), (_UNICODE,))
    yield Case("line breaks", {"messages": [_user(_LINES)]}, _said(_LINES), (_LINES,))
    tags = f"It writes {' and '.join(format_.special_tokens[:4] or [stop.strip() for stop in format_.stops])} here."
    yield Case("tags in texts", {"messages": [_user(tags)]}, _said(tags))
    yield Case("cut off", plain, _said(_LOOK), (_QUESTION,), cut=3)
    yield Case("thought", plain | _THINK, [_thought(), *answer], (_QUESTION,))
    yield Case("thought that is cut off", plain | _THINK, [_thought()], (_QUESTION,), cut=3)


def _calls() -> Iterator[Case]:
    offered = {"messages": [_user(_QUESTION)], "tools": _TOOLS}
    tokyo, shown = _call({"city": "Tokyo"}), ("get_weather", _QUESTION)
    yield Case("text beside tools", offered, _said("I do not know."), shown)
    yield Case("call", offered, [tokyo], shown)
    yield Case("text and call", offered, [*_said(_LOOK), tokyo], shown)
    yield Case("several calls", offered, [tokyo, _call({"city": "Oslo"})], shown)
    yield Case("thought and call", offered | _THINK, [_thought(), tokyo], shown)
    yield Case("thought, text and call", offered | _THINK, [_thought(), *_said(_LOOK), tokyo], shown)
    yield Case("call that is demanded", offered | {"tool_choice": "required"}, [tokyo], shown)
    yield Case("unicode in arguments", offered, [_call({"city": _UNICODE})], shown)
    yield Case("line breaks in arguments", offered, [_call({"city": _LINES})], shown)
    room: dict[str, Any] = {"hotel": "Ritz", "nights": 2, "price": 99.5, "breakfast": True, "guests": ["Ada", "Zoë"]}
    room["address"] = {"street": 'Rue "A" 5'}
    yield Case("arguments of all types", offered, [_call(room, "book_room")], shown)


def _results() -> Iterator[Case]:
    first, second = _chat_call(1, "Tokyo"), _chat_call(2, "Oslo")
    one = [_user(_QUESTION), _assistant(None, [first]), _result(1, "sunny, 22 degrees")]
    shown = (_QUESTION, "Tokyo", "sunny, 22 degrees")
    yield Case("result", {"messages": one, "tools": _TOOLS}, _said(_SUNNY), shown)
    two = [_user(_QUESTION), _assistant(None, [first, second]), one[2], _result(2, "rain, 8 degrees")]
    both = (*shown, "Oslo", "rain, 8 degrees")
    yield Case("several results", {"messages": two, "tools": _TOOLS}, _said(_SUNNY), both)
    texts = [_user(_QUESTION), _assistant(_LOOK, [first]), one[2]]
    again = {"messages": texts, "tools": _TOOLS}
    yield Case("call behind a result", again, [_call({"city": "Oslo"})], (_LOOK, "sunny, 22 degrees"))


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str | None, calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})


def _chat_call(number: int, city: str) -> dict[str, Any]:
    function = {"name": "get_weather", "arguments": json.dumps({"city": city})}
    return {"id": f"{_PREFIX}{number}", "type": "function", "function": function}


def _result(number: int, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"{_PREFIX}{number}", "content": text}


def _text(text: str) -> list[Part]:
    return [Text(text=text)]


def _said(text: str) -> list[Item]:
    return [Assistant(content=_text(text))]


def _thought() -> Item:
    return Thinking(content=_text(_THOUGHT))


def _call(arguments: dict[str, Any], name: str = "get_weather") -> Item:
    return ToolCall(name=name, arguments=json.dumps(arguments, ensure_ascii=False))
