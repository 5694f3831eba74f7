"""Owns the way from items to messages.

A request of this API is written back as it came. Any other is arranged as the API wants it: the tool messages stand
right behind the assistant's message with their calls, and what they cannot hold follows them in a user message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from turnscript.apis.api import Body
from turnscript.apis.openai_chat.assistant import write_assistant
from turnscript.apis.openai_chat.content import (
    SYSTEM_PARTS,
    TOOL_PARTS,
    USER_PARTS,
    collapsed,
    written_parts,
)
from turnscript.apis.openai_chat.target import Target
from turnscript.core.conversation import (
    Audio,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    System,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.core.message_groups import group
from turnscript.core.readable_text import single_text
from turnscript.core.source_paths import part_path

_LIFTED = (Image, Audio, Document)
"""What a tool message cannot hold and a user message can."""


class _Run:
    """The messages between two of the assistant's: tool messages that answer the one before, then what they could not
    hold, then all others."""

    __slots__ = ("answers", "before", "lifted", "others")

    def __init__(self) -> None:
        self.answers: list[Body] = []
        self.lifted: list[Any] = []
        self.others: list[Any] = []
        self.before: list[Item] = []  # items of `others` that no answer has overtaken yet

    def flush(self, messages: list[Any]) -> None:
        """Append what has gathered, in order, and begin again."""
        if self.answers:
            messages += self.answers
            self.answers = []
        if self.lifted:
            messages.append({"role": "user", "content": self.lifted})
            self.lifted = []
        if self.others:
            messages += self.others
            self.others = []
            self.before = []


def write_messages(target: Target) -> list[Any]:
    """All messages of the request, in order."""
    messages: list[Any] = []
    run = _Run()
    turn: list[Item] = []  # items of the assistant's, one after the other
    for item in target.rendering.request.items:
        write = _WRITERS.get(type(item))
        if write is None or (type(item) is Opaque and item.role == "assistant"):
            if type(item) is ToolsChange:
                target.changes.append(item)
                continue
            if not turn:
                run.flush(messages)
            turn.append(item)
        elif type(item) is Opaque and not (target.exact or item.role):
            _write_opaque(target, item, run)  # it is left out, and what stood around it is one turn
        else:
            if turn:
                _flush_turn(target, turn, messages)
                turn = []
            write(target, item, run)
    if turn:
        _flush_turn(target, turn, messages)
    run.flush(messages)
    return messages


def _flush_turn(target: Target, turn: list[Item], messages: list[Any]) -> None:
    groups = group(turn) if len(turn) > 1 else [turn]
    if len(groups) > 1 and not target.exact and not target.seed:
        groups = _answerable(target, groups)
    for members in groups:
        messages += write_assistant(target, members)


def _answerable(target: Target, groups: list[list[Item]]) -> list[list[Item]]:
    """The messages of one turn, none of them between calls and their results: those come behind the turn.

    Where one would be, it is part of the message with the calls. Servers refuse it anywhere else.
    """
    joined: list[list[Item]] = []
    waiting = False  # whether the last message has calls that are answered behind the turn
    for members in groups:
        if not waiting:
            joined.append([])
        elif type(members[0]) is ToolCall:
            detail = "one message with the calls before it, because the results of both come behind it"
            target.rendering.lose(members[0].at, "approximated", detail)
        joined[-1] += members
        waiting = waiting or any(type(item) is ToolCall and target.is_answered(item) for item in members)
    return joined


def _write_system(target: Target, item: System, run: _Run) -> None:
    message: Body = {"role": "developer" if item.role == "developer" else "system"}
    if item.role != message["role"]:
        target.rendering.lose(f"{item.at}.role", "renamed", f"{item.role!r} is no role here: written as system")
    target.put_content(message, item, item.content, SYSTEM_PARTS)
    _finish(target, message, item, run)


def _write_user(target: Target, item: User, run: _Run) -> None:
    message: Body = {"role": "user"}
    target.put_content(message, item, item.content, USER_PARTS)
    _finish(target, message, item, run)


def _finish(target: Target, message: Body, item: System | User, run: _Run) -> None:
    if item.name is not None:
        message["name"] = item.name
    if item.id is not None:
        target.lose(item, "id", "a message here has no id")
    if item.extra or item.open or item.hints is not None:
        target.put_rest(message, item)
    run.others.append(message)
    run.before.append(item)


def _write_opaque(target: Target, item: Opaque, run: _Run) -> None:
    if target.exact:
        run.others.append(item.value)
    else:
        target.rendering.lose(item.at, "dropped", f"{item.type}: only the API it came from knows what it is")
        target.put_envelope({}, item)


# Tool results.


def _write_result(target: Target, item: ToolResult, run: _Run) -> None:
    if target.exact:
        message = _exact_message(target, item)
        lifted: list[Any] = []
    else:
        message, lifted = _tool_message(target, item)
    if target.seed and "tool_call_id" in message:
        message["tool_call_id"] = message.pop("tool_call_id")  # the order of the Universal document
    if item.extra or item.open or item.hints is not None:
        target.put_rest(message, item)
    if not target.exact and message.get("tool_call_id") in target.open_calls:
        for overtaken in run.before:
            target.rendering.lose(overtaken.at, "moved", "tool messages come right after the call that they answer")
        run.before.clear()
        run.answers.append(message)
        run.lifted += lifted
    else:
        run.others.append(message)
        run.before.append(item)
        if lifted:
            run.others.append({"role": "user", "content": lifted})


def _exact_message(target: Target, item: ToolResult) -> Body:
    """The message of a result that came from this API: as it was, or as the seed profile has it."""
    slot = target.slot(item)
    message: Body = {"role": "function" if slot == "function" else "tool"}
    if item.name is not None and (slot == "function" or target.seed):
        message["name"] = item.name
    if slot not in ("function", "tool"):
        message["tool_call_id"] = target.call_id(item)
    target.put_content(message, item, item.content, TOOL_PARTS)
    return message


def _tool_message(target: Target, item: ToolResult) -> tuple[Body, list[Any]]:
    """The message of a result from elsewhere, and the parts that only a user message can hold."""
    message: Body = {"role": "tool"}
    if target.seed and item.name is not None:
        message["name"] = item.name
    call_id = item.id if item.id is not None else target.made_id(item)
    call = target.open_calls.get(call_id) or target.calls.get(call_id)
    if call is None and item.id is None and item.name is not None and not target.seed:
        message = {"role": "function", "name": item.name}  # says whose it is, which is all that is known
    else:
        message["tool_call_id"] = target.call_id(item)
    if call is None or item.name != call.name or not _is_bare(item, call):
        _lose_unsaid(target, item, call)
    text = single_text(item.content)
    if text is None:
        message["content"], lifted = _answer(target, item)
        if message["role"] == "function" and isinstance(message["content"], list):
            target.rendering.lose(f"{item.at}.content", "approximated", "a function message holds one text")
            message["content"] = "\n\n".join([part["text"] for part in message["content"]])
        return message, lifted
    message["content"] = text
    return message, []


def _is_bare(item: ToolResult, call: ToolCall) -> bool:
    """Whether a result says nothing but its content, which is what a tool message can say."""
    if item.status is not None or item.item_id is not None or item.namespace is not None:
        return False
    return call.namespace is None and not call.custom and not item.custom


def _answer(target: Target, item: ToolResult) -> tuple[Any, list[Any]]:
    """What the tool message holds, and the parts that only a user message can."""
    texts: list[tuple[int, Part]] = []
    lifted: list[tuple[int, Part]] = []
    for index, part in enumerate(item.content):
        plain = type(part) is Document and part.text is not None
        (lifted if isinstance(part, _LIFTED) and not plain else texts).append((index, part))
    content = written_parts(target.rendering, item, texts, TOOL_PARTS)
    moved: list[Any] = []
    for index, part in lifted:
        written = written_parts(target.rendering, item, [(index, part)], USER_PARTS)
        if written:
            detail = "a tool message holds text only: it follows in a user message"
            target.rendering.lose(part_path(item, index), "moved", detail)
            moved += written
    return collapsed(content, target.rendering, item, item.content), moved


def _lose_unsaid(target: Target, item: ToolResult, call: ToolCall | None) -> None:
    """Report what a tool message does not say. `call` is the one that it answers."""
    if item.status is not None:
        detail = "a tool message does not say whether the tool failed"
        target.rendering.lose_member(item.at, "tool_result.status", "dropped", detail)
    if item.item_id is not None:
        target.lose(item, "id", "a tool message has one id here, that of its call")
    if item.namespace is not None:
        target.lose(item, "namespace", "tools have no namespaces here")
    known = item.name if target.seed or (item.id is None and call is None) else call.name if call is not None else None
    if call is not None and call.namespace is not None and item.name is not None:
        target.rendering.lose(f"{item.at}.name", "renamed", "it takes the name of its call")
    elif item.name not in (None, known):
        target.lose(item, "name", "a tool message has no name here, and no call before it gives it one")
    if target.rendering.foreign and item.custom != (call is not None and call.custom):
        detail = "whether it answers a call of free text is taken from the call"
        target.rendering.lose(item.at, "approximated", detail)


_WRITERS: dict[type, Callable[[Target, Any, _Run], None]] = {
    System: _write_system,
    User: _write_user,
    ToolResult: _write_result,
    Opaque: _write_opaque,
}
