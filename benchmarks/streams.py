"""Streams to be written and read: what is told, as events of turnscript and as the bytes that its writers make of them.

A stream has so many deltas of four characters, in one part or in three. `parts` says what it tells; `said` finds the
same in the payloads of any of the four APIs, whoever wrote or decoded them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from random import Random
from typing import Any

from benchmarks.outputs import PIECE, written
from benchmarks.session import CODE, lines, prose

CHAT, RESPONSES, MESSAGES, COMPLETIONS = "openai-chat", "openai-responses", "anthropic-messages", "openai-completions"
TEXT, THINKING, ARGUMENTS, MIXED = SHAPES = ("text", "thinking", "arguments", "mixed")
TOLD: dict[str, tuple[str, ...]] = {CHAT: SHAPES, RESPONSES: SHAPES, MESSAGES: SHAPES, COMPLETIONS: (TEXT,)}
"""What each API can tell: completions are texts."""
Said = list[list[str]]
"""In order: the kind of a part and its text, or its arguments as JSON text."""


@cache
def parts(shape: str, deltas: int) -> tuple[tuple[str, str], ...]:
    """The parts of a stream, each as its kind and its text. `mixed` is thought, text and a call, a half of it."""
    if shape == MIXED:
        quarter = deltas // 4
        return tuple(
            (kind, _text(kind, quarter * (2 if kind == ARGUMENTS else 1))) for kind in (THINKING, TEXT, ARGUMENTS)
        )
    return ((shape, _text(shape, deltas)),)


def _text(kind: str, deltas: int) -> str:
    size = deltas * PIECE
    if kind != ARGUMENTS:
        return written(prose(Random(2), size, "\n\n" if kind == TEXT else " "), size)
    arguments = {"path": "/workspace/a.py", "content": lines(Random(4), CODE, size, "\n")}
    text = json.dumps(arguments, ensure_ascii=False)
    end = '."}'
    text = text[: size - len(end)].rstrip("\\")
    return text + end.rjust(size - len(text), ".")


def pieces(text: str) -> list[str]:
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


# With turnscript, in a process that may load it.


def events(shape: str, deltas: int) -> list[Any]:
    """What a model says, as turnscript's events."""
    ts: Any = import_module("turnscript")
    told: Any = import_module("turnscript.core.events")
    found: list[Any] = []
    for index, (kind, text) in enumerate(parts(shape, deltas)):
        if kind == ARGUMENTS:
            whole = ts.ToolCall(name="write_file", arguments=text, id="call_1")
            start = ts.ToolCall(name="write_file", arguments="", id="call_1")
        else:
            item = ts.Thinking if kind == THINKING else ts.Assistant
            start, whole = item(), item(content=[ts.Text(text=text)])
        found.append(told.PartStart(index, start))
        found += [told.PartDelta(index, piece) for piece in pieces(text)]
        found.append(told.PartEnd(index, whole))
    called = parts(shape, deltas)[-1][0] == ARGUMENTS
    return [*found, told.MessageEnd("tool_calls" if called else "stop", usage=ts.Usage(1000, deltas))]


def renderer(api: str) -> Callable[[], Any]:
    """Makes writers of streams that answer one request."""
    ts: Any = import_module("turnscript")
    asked = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Go on.")])]))
    asked.settings.model, asked.settings.stream = "the-model", True
    known = ts.get_api(api)
    return lambda: known.stream_renderer(asked)


@cache
def stream(api: str, shape: str, deltas: int) -> bytes:
    """The bytes that turnscript writes."""
    writer = renderer(api)()
    written: bytes = writer.send(events(shape, deltas)) + writer.close()
    return written


# Bytes and payloads.


def frames(data: bytes) -> list[bytes]:
    """A stream, one event each."""
    return [piece + b"\n\n" for piece in data.split(b"\n\n") if piece]


def behind_the_deltas(found: list[bytes]) -> int:
    """How many of the events of a stream there are up to its last delta."""
    return max(number for number, event in enumerate(found, 1) if said([json.loads(body) for body in bodies(event)]))


def bodies(data: bytes) -> list[bytes]:
    """The payloads of a stream, as JSON."""
    found = [line[6:] for line in data.split(b"\n") if line.startswith(b"data: ")]
    return [body for body in found if body != b"[DONE]"]


def framed(encoded: Iterable[bytes]) -> bytes:
    """Payloads as a stream, for the check."""
    return b"".join([b"data: %b\n\n" % body for body in encoded])


def said(payloads: Iterable[Any]) -> Said:
    """What payloads tell: the deltas, joined while their kind is the same."""
    found: Said = []
    for payload in payloads:
        for kind, text in _deltas(payload):
            if text and found and found[-1][0] == kind:
                found[-1][1] += text
            elif text:
                found.append([kind, text])
    return found


_EVENTS = {
    "response.output_text.delta": TEXT,
    "response.reasoning_text.delta": THINKING,
    "response.function_call_arguments.delta": ARGUMENTS,
}
_MEMBERS = {"text": TEXT, "thinking": THINKING, "partial_json": ARGUMENTS}


def _deltas(payload: Any) -> list[tuple[str, str]]:
    if payload.get("type") in _EVENTS:
        return [(_EVENTS[payload["type"]], payload["delta"])]
    if payload.get("type") == "content_block_delta":
        delta = payload["delta"]
        return [(kind, delta[member]) for member, kind in _MEMBERS.items() if member in delta]
    found = []
    for choice in payload.get("choices") or ():
        delta = choice.get("delta") or {}
        found += [(THINKING, delta.get("reasoning_content") or ""), (TEXT, delta.get("content") or "")]
        found.append((TEXT, choice.get("text") or ""))
        found += [(ARGUMENTS, call["function"]["arguments"]) for call in delta.get("tool_calls") or ()]
    return found


def told_by(items: Iterable[Any]) -> Said:
    """What the items of a response tell."""
    kinds = {"Thinking": THINKING, "Assistant": TEXT, "ToolCall": ARGUMENTS}
    return [
        [kinds[type(item).__name__], item.arguments if hasattr(item, "arguments") else item.content[0].text]
        for item in items
    ]


# The other peers.


def as_struct(msgspec: Any, value: Any) -> Any:
    """A payload as structs with the same members, objects inside it too."""
    if isinstance(value, list):
        return [as_struct(msgspec, one) for one in value]
    if not isinstance(value, dict):
        return value
    return _struct(msgspec, tuple(value))(*(as_struct(msgspec, one) for one in value.values()))


@cache
def _struct(msgspec: Any, names: tuple[str, ...]) -> Any:
    fields = [(f"m{index}", Any) for index in range(len(names))]
    return msgspec.defstruct("Payload", fields, rename=dict(zip((name for name, _ in fields), names, strict=True)))


def sdk(api: str, data: bytes) -> Callable[[], list[Any]]:
    """Reads a stream with the official SDK, whose server is a function in this process."""
    known: Any = import_module("anthropic" if api == MESSAGES else "openai")
    own = known.DefaultHttpxClient
    http = import_module(own.__mro__[1].__module__)  # httpx, or in newer releases httpx2
    headers = {"content-type": "text/event-stream"}
    transport = http.MockTransport(lambda _: http.Response(200, headers=headers, content=data))
    make = known.Anthropic if api == MESSAGES else known.OpenAI
    client = make(api_key="none", base_url="http://localhost/v1", http_client=own(transport=transport))
    messages = [{"role": "user", "content": "Go on."}]
    ways: dict[str, Callable[[], Any]] = {
        CHAT: lambda: client.chat.completions.create(model="m", messages=messages, stream=True),
        RESPONSES: lambda: client.responses.create(model="m", input="Go on.", stream=True),
        MESSAGES: lambda: client.messages.create(model="m", messages=messages, max_tokens=9, stream=True),
        COMPLETIONS: lambda: client.completions.create(model="m", prompt="Go on.", stream=True),
    }
    return lambda: list(ways[api]())
