"""Owns what an SDK must tell of an answer, worked out from the answer itself and the tables, not from what was written.

The words for endings are those of the table of endings (spec apis A8.2), the counts those of the table of usage (A8.3).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.answers.answer import MODEL, Answer
from tests.answers.verdict import as_javascript
from turnscript.core.conversation import Assistant, Item, Refusal, Text, Thinking, ToolCall, Usage, text_content
from turnscript.core.json_text import Beginning, closed, is_object

Part = tuple[Any, ...]
NO_ID = "made up"
"""Stands for an id that the answer has not."""


class View(NamedTuple):
    """What can be told of an answer over one API. Its parts are in order, in the words of that API."""

    id: str
    model: str
    parts: list[Part]
    finish: Any
    usage: tuple[int, ...] | None


class Ending(NamedTuple):
    """One row: `finish_reason`; status and reason; `stop_reason` and stop string; `finish_reason` of completions.

    None: there is no end, but an error.
    """

    chat: str | None
    responses: tuple[str, str | None] | None
    messages: tuple[str | None, str | None] | None
    completions: str | None


STOPPED = "stop_sequence"
_DONE = ("completed", None)
_CUT = ("incomplete", "max_output_tokens")
ENDINGS = {
    "natural end": Ending("stop", _DONE, ("end_turn", None), "stop"),
    "client stop string": Ending("stop", _DONE, (STOPPED, None), "stop"),  # and which one
    "gateway's own role-marker stop": Ending("stop", _DONE, ("end_turn", None), "stop"),
    "max tokens": Ending("length", _CUT, ("max_tokens", None), "length"),
    "context full": Ending("length", _CUT, ("model_context_window_exceeded", None), "length"),
    "tool calls (complete)": Ending("tool_calls", _DONE, ("tool_use", None), "stop"),
    "tool call cut by length": Ending("length", _CUT, ("max_tokens", None), "length"),
    "refusal in words": Ending("stop", _DONE, ("refusal", None), "stop"),
    "filter": Ending("content_filter", ("incomplete", "content_filter"), ("refusal", None), "content_filter"),
    "server tool pause": Ending("stop", ("incomplete", "pause_turn"), ("pause_turn", None), "stop"),
    "compaction": Ending("stop", ("incomplete", "compaction"), ("compaction", None), "stop"),
    "steered": Ending("stop", ("incomplete", "steered"), ("max_tokens", None), "stop"),
    "nobody said": Ending("stop", _DONE, (None, None), "stop"),
    "cancelled": Ending(None, ("cancelled", None), None, None),
    "backend failure after first byte": Ending(None, None, None, None),
}


def ending(wire: str, answer: Answer, *, streamed: bool = True) -> Any:
    """Why the answer ended, in the words of the API; None where there is an error instead. A stream cannot take back a
    call that turned out to be none, or that is no object where it must be one: it ends as at a limit."""
    if streamed and any(_is_unfinished(wire, item) for item in answer.begun()) and answer.error() is None:
        return getattr(ENDINGS["max tokens"], wire)
    if wire == "chat" and _is_legacy(answer) and answer.ending.startswith("tool calls"):
        return "function_call"
    words = getattr(ENDINGS[answer.ending], wire)
    if words is not None and words[0] == STOPPED:
        return STOPPED, answer.response().stop_sequence
    return words


def wanted(wire: str, answer: Answer, *, streamed: bool) -> View:
    """What an SDK must tell of the answer."""
    response = answer.response()
    items = [*response.items, *([] if response.cut is None else [response.cut])]
    if streamed and (wire != "messages" or any(_is_unfinished(wire, item) for item in answer.begun())):
        items = answer.begun()
    parts = list(_PARTS[wire](items, answer, streamed))
    finish = ending(wire, answer, streamed=streamed)
    return View(response.id or NO_ID, MODEL, parts, finish, _usage(wire, answer, streamed))


def _is_unfinished(wire: str, item: Item) -> bool:
    """Whether an item is a call that is not whole, and that a stream tells."""
    if not isinstance(item, ToolCall) or wire == "completions":
        return False
    begins = item.arguments.lstrip(" \t\r\n").startswith("{")
    if wire == "messages" and not item.custom and begins and not is_object(item.arguments):
        return True
    return item.open and (wire == "responses" or not item.custom) and (wire != "messages" or begins)


def _usage(wire: str, answer: Answer, streamed: bool) -> tuple[int, ...] | None:
    usage = answer.response().usage
    if wire == "messages":
        one = usage or Usage()
        fresh = one.input - one.cached - one.cache_written
        return fresh, one.cached, one.cache_written, one.output, one.reasoning
    asked = answer.asked.usage or not streamed or wire == "responses"
    if usage is None or not asked:
        return None
    return usage.input, usage.cached, usage.cache_written, usage.output, usage.reasoning


# Parts.


def _chat(items: list[Item], answer: Answer, streamed: bool) -> Iterator[Part]:
    """One message: its thinking, its text, its refusal, its calls."""
    said = {"thinking": "", "text": "", "refusal": ""}
    for item in items:
        if isinstance(item, Thinking):
            said["thinking"] += text_content(item.content) or _summary(item)
        elif isinstance(item, Assistant):
            for part in item.content:
                said["refusal" if isinstance(part, Refusal) else "text"] += _text(part)
    yield from ((kind, text) for kind, text in said.items() if text)
    for item in _calls(items):
        name = _long_name(item)
        if item.open and item.custom:
            continue
        if _is_legacy(answer):
            yield "function_call", name, item.arguments
        elif not streamed and (native := _native(item, answer))[0] == "custom_tool_call":
            yield "custom", item.id or NO_ID, name, native[-1]
        else:
            yield "function", item.id or NO_ID, name, _wrapped(item) if item.custom else item.arguments


def _responses(items: list[Item], answer: Answer, streamed: bool) -> Iterator[Part]:
    """One item after the other."""
    for item in items:
        if isinstance(item, Thinking):
            summary = tuple(_text(part) for part in item.summary)
            if answer.asked.summary is not None and not summary:
                summary = (text_content(item.content),)
            yield "reasoning", tuple(_text(part) for part in item.content), summary, item.encrypted
        elif isinstance(item, Assistant):
            kinds = [("refusal" if isinstance(part, Refusal) else "output_text", _text(part)) for part in item.content]
            yield "message", kinds
        elif isinstance(item, ToolCall):
            yield _native(item, answer)


def _native(item: ToolCall, answer: Answer) -> Part:
    """A call as the client declared its tool: in its namespace, and of free text if it is."""
    space, name, custom, arguments = item.namespace, item.name, item.custom, item.arguments
    for tool in answer.asked.tools:
        if tool.type == "namespace" and name.startswith(f"{tool.name}__"):
            space, name = tool.name, name.removeprefix(f"{tool.name}__")
        if tool.type == "custom" and tool.name == name and not custom:
            custom, arguments = True, json.loads(arguments)["input"]
    return ("custom_tool_call" if custom else "function_call", item.id or NO_ID, space, name, arguments)


def _messages(items: list[Item], answer: Answer, streamed: bool) -> Iterator[Part]:
    """One block after the other; no empty text, but for an answer that is nothing else."""
    some = False
    for item in items:
        if isinstance(item, Thinking) and item.redacted is not None:
            yield "redacted_thinking", item.redacted
        elif isinstance(item, Thinking):
            hidden = answer.asked.display == "omitted"
            yield "thinking", "" if hidden else text_content(item.content) or _summary(item), item.signature or ""
        elif isinstance(item, ToolCall):
            spelled = _input(item, streamed)
            if not spelled:
                continue
            found = spelled if streamed else as_javascript(json.loads(spelled))
            yield "tool_use", item.id or NO_ID, _long_name(item), found
        elif isinstance(item, Assistant):
            for part in item.content:
                if _text(part):
                    yield "text", _text(part)
                    some = True
        some = some or not isinstance(item, Assistant)
    if not some:
        yield "text", ""


def _input(call: ToolCall, streamed: bool) -> str:
    """The input of a call as text; empty for a call that is not told."""
    if _is_unfinished("messages", call) and (streamed or call.open):
        beginning = Beginning().take(call.arguments)
        return beginning if streamed else closed(beginning)
    if call.open:
        return ""
    if call.custom or not is_object(call.arguments):
        return _wrapped(call) if call.custom or call.arguments else "{}"
    return call.arguments


def _completions(items: list[Item], answer: Answer, streamed: bool) -> Iterator[Part]:
    """One text."""
    yield "text", "".join(_text(part) for item in items if isinstance(item, Assistant) for part in item.content)


_PARTS: dict[str, Callable[[list[Item], Answer, bool], Iterator[Part]]] = {
    "chat": _chat,
    "responses": _responses,
    "messages": _messages,
    "completions": _completions,
}


def _text(part: object) -> str:
    assert isinstance(part, Text | Refusal)
    return part.text


def _summary(item: Thinking) -> str:
    return "\n\n".join([_text(part) for part in item.summary])


def _calls(items: list[Item]) -> list[ToolCall]:
    return [item for item in items if isinstance(item, ToolCall)]


def _long_name(item: ToolCall) -> str:
    return f"{item.namespace}__{item.name}" if item.namespace else item.name


def _wrapped(item: ToolCall) -> str:
    return json.dumps({"input": item.arguments}, ensure_ascii=False, separators=(",", ":"))


def _is_legacy(answer: Answer) -> bool:
    return any(tool.slot == "functions" for tool in answer.asked.tools)
