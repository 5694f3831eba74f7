"""Owns the way from items to messages.

A message that came from this API and is unchanged goes back as it came. All others are arranged as the API wants it:
the tool messages stand right behind the assistant's message with their calls, and what they cannot hold follows them in
a user message.

The assistant's turn is one message: thinking, text and calls, in this order. What order was between them cannot be said
here, nor where one thought or text ends and the next begins: that is reported.
In the seed profile each call is a message of its own, as the Universal document has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from turnscript.apis.api import SEED, Body, Rendering
from turnscript.apis.openai_chat.content import (
    ASSISTANT_PARTS,
    BREAKPOINT,
    SYSTEM_PARTS,
    TOOL_PARTS,
    USER_PARTS,
    collapsed,
    contents,
    written_parts,
)
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    System,
    Text,
    Thinking,
    ThinkingMode,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    single_text,
)
from turnscript.core.json_text import json_string
from turnscript.core.message_groups import group
from turnscript.core.source_paths import Unplaced, part_path
from turnscript.core.validation import text_only

_PROOF = "only the API that made it can read it"
_ALONE = {"id": "a message here has no id"}
UNPLACED = Unplaced(
    {
        System: _ALONE,
        User: _ALONE,
        Assistant: {**_ALONE, "phase": "a message here has no phase"},
        Thinking: {
            "signature": _PROOF,
            "redacted": _PROOF,
            "encrypted": _PROOF,
            "id": "thinking has no id here",
            "of": "thinking has no kinds here, such as {!r}",
        },
        ToolCall: {
            "item_id": "a call has one id here, that of its result",
            "namespace": ("renamed", "tools have no namespaces here: it begins the name"),
        },
        ToolResult: {
            "status": "a tool message does not say whether the tool failed",
            "item_id": "a tool message has one id here, that of its call",
            "namespace": "tools have no namespaces here",
        },
        Document: {"context": "a file has no context"},
        ThinkingMode: {"display": "how thinking is shown cannot be said here"},
    },
    answers={Assistant: {"name": "the message of an answer has no name here"}},
)


class Target:
    """One request on its way to messages.

    `own`: it came from this API, so that what has no name in the model means something here. `changes` are the changes
    of tools met on the way, which `write_tools` takes up. `open_calls` are the calls in the assistant's last message,
    by id; `calls` are those before.
    """

    __slots__ = ("_answered", "calls", "changes", "open_calls", "own", "reasoning", "rendering", "seed")

    def __init__(self, rendering: Rendering, origin: str) -> None:
        self.rendering = rendering
        self.own = rendering.request.origin == origin
        self.seed = rendering.profile == SEED
        self.reasoning = rendering.flags["reasoning"]
        self.changes: list[ToolsChange] = []
        self.calls: dict[str, ToolCall] = {}
        self.open_calls: dict[str, ToolCall] = {}
        self._answered: set[str] | None = None

    def is_answered(self, call: ToolCall) -> bool:
        """Whether a result in this request answers the call."""
        if self._answered is None:
            results = [item for item in self.rendering.request.items if type(item) is ToolResult]
            self._answered = set(map(self.rendering.call_id, results))
        return self.rendering.call_id(call) in self._answered

    def open_call(self, item: ToolCall) -> str:
        """The id of a call that is being written, for the results that answer it."""
        found = self.rendering.told_id(item)
        self.open_calls[found] = item
        return found

    def put_content(
        self, message: Body, item: System | User | Assistant | ToolResult, parts: list[Part], allowed: frozenset[type]
    ) -> None:
        """Write the parts: one plain text as a string, all else as a list."""
        if len(parts) == 1:
            part = parts[0]
            if type(part) is Text and (not part.extra or (self.rendering.foreign and BREAKPOINT not in part.extra)):
                if part.extra:
                    self.rendering.put_extra({}, part.extra, part_path(item, 0))
                message["content"] = part.text
                return
        message["content"] = contents(self.rendering, item, parts, allowed)

    def put_rest(self, message: Body, item: Item) -> None:
        """Write the unnamed members of the item and of the message around it; report that an answer is not finished."""
        if item.extra:
            self.rendering.put_extra(message, item.extra, item.at)
        self.put_envelope(message, item)
        if item.open and isinstance(item, Assistant):
            self.rendering.lose(item.at, "approximated", "a text to be continued is written as a finished message")

    def put_envelope(self, message: Body, item: Item) -> None:
        """Write the unnamed members of the message around the item, which stand one level above it."""
        self.rendering.put_envelope(message, item, named=isinstance(item, Thinking | ToolCall))


def write_assistant(target: Target, members: Sequence[Item]) -> list[Body]:
    """The messages of one turn: one, but none if nothing of it has a form here, and several in the seed profile."""
    thoughts, spoken, calls = _ordered(target, members)
    message: Body = {"role": "assistant"}
    if thoughts:
        _think(target, message, thoughts)
    if spoken:
        _speak(target, message, spoken)
    else:
        message["content"] = None
    if target.open_calls:
        target.calls |= target.open_calls
        target.open_calls = {}
    if target.seed and calls:
        separate = _seed_calls(target, calls)
        return [message, *separate] if spoken or thoughts else separate
    called = bool(calls) and _call(target, message, calls)
    # A thought that is only a proof, or a block that only its own API knows, leaves nothing to send.
    return [message] if called or spoken or len(message) > 2 else []


class Order:
    """Reports what one message cannot say of the order of its parts."""

    __slots__ = ("_before", "_rendering")

    def __init__(self, rendering: Rendering) -> None:
        self._rendering = rendering
        self._before: set[str] = set()

    def note(self, kind: str, at: str) -> None:
        """One more part: `thinking`, `text`, `refusal` or `call`."""
        before = self._before
        if kind == "thinking" and before - {"thinking"}:
            self._rendering.lose(at, "moved", "one message holds its thinking before all else")
        elif kind in ("text", "refusal") and "call" in before:
            self._rendering.lose(at, "moved", "one message holds its text before its calls")
        elif kind in before and kind != "call":
            self._rendering.lose(at, "approximated", f"joined with the {kind} before it in one message")
        elif kind == "text" and "refusal" in before:
            self._rendering.lose(at, "moved", "one message holds its text before its refusal")
        before.add(kind)

    def part(self) -> None:
        """A thought in the content, which parts the text before it from the one behind."""
        self._before.discard("text")


_KINDS = {Assistant: "text", Thinking: "thinking"}


def _ordered(target: Target, members: Sequence[Item]) -> tuple[list[Thinking], list[Assistant], list[Item]]:
    """The members by kind; what has to move in front of another is reported, and what is joined with its like."""
    if len(members) > 1:
        order = Order(target.rendering)
        for item in members:
            order.note(_KINDS.get(type(item), "call"), item.at)
    return (
        [item for item in members if type(item) is Thinking],
        [item for item in members if type(item) is Assistant],
        [item for item in members if type(item) not in _KINDS],
    )


# Thinking.


def _think(target: Target, message: Body, thoughts: Sequence[Thinking]) -> None:
    texts: list[str] = []
    for item in thoughts:
        target.rendering.lose_unplaced(item)
        text = _thought(target, item)
        if text is None:
            target.rendering.lose(item.at, "dropped", "thinking without a text has no form here")
        else:
            texts.append(text)
        if item.extra or item.envelope:
            target.put_rest(message, item)
    if texts:
        message[target.reasoning] = texts[0] if len(texts) == 1 else "\n\n".join(texts)


def _thought(target: Target, item: Thinking) -> str | None:
    """The thinking as one text; a summary stands in for a text that is not there."""
    content = item.content
    if len(content) == 1 and type(content[0]) is Text and not item.summary and not content[0].extra:
        return content[0].text
    parts = content or item.summary
    texts: list[str] = []
    for index, part in enumerate(parts):
        path = f"{item.at}.{'content' if content else 'summary'}[{index}]"
        target.rendering.put_extra({}, part.extra, path)
        if type(part) is Text:
            texts.append(part.text)
        else:
            target.rendering.lose(path, "dropped", "thinking here is text")
    if item.summary and content:
        target.rendering.lose_member(item, "summary", "dropped", "the thinking itself is sent")
    elif item.summary:
        target.rendering.lose_member(item, "summary", "approximated", "sent as the thinking itself")
    elif len(texts) > 1:
        target.rendering.lose(f"{item.at}.content", "approximated", "several texts are joined by blank lines")
    return "\n\n".join(texts) if texts else None


# Text.


def _speak(target: Target, message: Body, spoken: Sequence[Assistant]) -> None:
    first = spoken[0]
    if len(spoken) == 1:
        parts, members = _members(target, first)
        if parts or not members:
            target.put_content(message, first, parts, ASSISTANT_PARTS)
        else:
            message["content"] = None
        message.update(members)
    else:
        written = [
            part
            for item in spoken
            for part in written_parts(target.rendering, item, enumerate(item.content), ASSISTANT_PARTS)
        ]
        message["content"] = collapsed(written, target.rendering, first, first.content)
    _say_beside(target, message, spoken)


def _say_beside(target: Target, message: Body, spoken: Sequence[Assistant]) -> None:
    """What texts say beside their content."""
    for item in spoken:
        if item.name is not None and message.setdefault("name", item.name) != item.name:
            target.rendering.lose_member(item, "name", "dropped", "one message has one name")
        target.rendering.lose_unplaced(item)
        if item.extra or item.open or item.envelope:
            target.put_rest(message, item)


def _members(target: Target, item: Assistant) -> tuple[list[Part], Body]:
    """The parts of the content, and the members beside it that say the other parts."""
    content = item.content
    if len(content) == 1 and type(content[0]) is Text:
        return content, {}
    members: Body = {}
    parts = list(content)
    sounds = [part for part in parts if type(part) is Audio and part.id is not None]
    if sounds:
        audio: Body = {"id": sounds[0].id}
        target.rendering.put_extra(audio, sounds[0].extra, f"{item.at}.audio")
        members["audio"] = audio
        parts = [part for part in parts if part is not sounds[0]]
    return parts, members


# Calls.


def _call(target: Target, message: Body, calls: Sequence[Item]) -> bool:
    """Write the calls; whether there are any."""
    entries: list[Any] = []
    for item in calls:
        if type(item) is ToolCall:
            entries.append(_entry(target, item))
            target.put_envelope(message, item)
        else:
            assert isinstance(item, Opaque)
            _put_opaque(target, message, item, entries)
    if entries:
        message["tool_calls"] = entries
    return bool(entries)


def _put_opaque(target: Target, message: Body, item: Opaque, entries: list[Any]) -> None:
    if target.own:
        entries.append(item.value)
    else:
        target.rendering.lose(item.at, "dropped", f"{item.type}: only the API it came from knows what it is")
    target.put_envelope(message, item)


def _entry(target: Target, item: ToolCall) -> Body:
    kind, argument = ("custom", "input") if item.custom else ("function", "arguments")
    entry: Body = {"id": target.open_call(item), "type": kind}
    plain = item.namespace is None and item.item_id is None
    entry[kind] = {"name": item.name if plain else _name(target, item), argument: text_only(item.arguments)}
    if item.extra:
        target.rendering.put_extra(entry, item.extra, item.at)
    return entry


def _name(target: Target, item: ToolCall) -> str:
    target.rendering.lose_unplaced(item)
    return item.full_name


def _seed_calls(target: Target, calls: Sequence[Item]) -> list[Body]:
    """Each call as a message of its own (requirements R-U-20)."""
    messages: list[Body] = []
    for item in calls:
        message: Body = {"role": "assistant", "content": None}
        if type(item) is ToolCall:
            call: Body = {
                "name": _name(target, item),
                "arguments": text_only(item.arguments),
                "id": target.open_call(item),
            }
            if item.custom:
                target.rendering.lose(item.at, "approximated", "free text is sent as the argument `input`")
                call["arguments"] = f'{{"input": {json_string(item.arguments)}}}'
            target.rendering.put_extra(call, item.extra, item.at)
            message["function_call"] = call
            target.put_envelope(message, item)
            messages.append(message)
        else:
            target.rendering.lose(item.at, "dropped", "the seed profile has function calls only")
    return messages


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
    for value, items in target.rendering.slices.runs(target.rendering.request.items):
        if value is None:
            _write_run(target, items, run, messages)
        else:
            run.flush(messages)
            messages.append(value)
            target.calls |= target.open_calls
            target.open_calls = {item.id: item for item in items if type(item) is ToolCall and item.id is not None}
    run.flush(messages)
    return messages


def _write_run(target: Target, items: Sequence[Item], run: _Run, messages: list[Any]) -> None:
    """Write items that are arranged anew. What is to stand behind them all stays in `run`."""
    turn: list[Item] = []  # items of the assistant's, one after the other
    for item in items:
        write = _WRITERS.get(type(item))
        if write is None or (type(item) is Opaque and item.role == "assistant"):
            if type(item) is ToolsChange:
                target.changes.append(item)
                continue
            if not turn:
                run.flush(messages)
            turn.append(item)
        elif type(item) is Opaque and not (target.own or item.role):
            _write_opaque(target, item, run)  # it is left out, and what stood around it is one turn
        else:
            if turn:
                _flush_turn(target, turn, messages)
                turn = []
            write(target, item, run)
    if turn:
        _flush_turn(target, turn, messages)


def _flush_turn(target: Target, turn: list[Item], messages: list[Any]) -> None:
    groups = group(turn) if len(turn) > 1 else [turn]
    if len(groups) > 1 and not target.seed:
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
        target.rendering.lose_member(item, "role", "renamed", f"{item.role!r} is no role here: written as system")
    target.put_content(message, item, item.content, SYSTEM_PARTS)
    _finish(target, message, item, run)


def _write_user(target: Target, item: User, run: _Run) -> None:
    message: Body = {"role": "user"}
    target.put_content(message, item, item.content, USER_PARTS)
    _finish(target, message, item, run)


def _finish(target: Target, message: Body, item: System | User, run: _Run) -> None:
    if item.name is not None:
        message["name"] = item.name
    target.rendering.lose_unplaced(item)
    if item.extra or item.open or item.envelope:
        target.put_rest(message, item)
    run.others.append(message)
    run.before.append(item)


def _write_opaque(target: Target, item: Opaque, run: _Run) -> None:
    if target.own:
        run.others.append(item.value)
    else:
        target.rendering.lose(item.at, "dropped", f"{item.type}: only the API it came from knows what it is")
        target.put_envelope({}, item)


# Tool results.


def _write_result(target: Target, item: ToolResult, run: _Run) -> None:
    message, lifted = _tool_message(target, item)
    if target.seed and "tool_call_id" in message:
        message["tool_call_id"] = message.pop("tool_call_id")  # the order of the Universal document
    if item.extra or item.open or item.envelope:
        target.put_rest(message, item)
    if message.get("tool_call_id") in target.open_calls:
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


def _tool_message(target: Target, item: ToolResult) -> tuple[Body, list[Any]]:
    """The message of a result from elsewhere, and the parts that only a user message can hold."""
    message: Body = {"role": "tool"}
    if target.seed and item.name is not None:
        message["name"] = item.name
    call_id = target.rendering.call_id(item)
    call = target.open_calls.get(call_id) or target.calls.get(call_id)
    if call is None and item.id is None and item.name is not None and not target.seed:
        message = {"role": "function", "name": item.name}  # says whose it is, which is all that is known
    else:
        message["tool_call_id"] = target.rendering.told_id(item)
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
    target.rendering.lose_unplaced(item)
    known = item.name if target.seed or (item.id is None and call is None) else call.name if call is not None else None
    if call is not None and call.namespace is not None and item.name is not None:
        target.rendering.lose_member(item, "name", "renamed", "it takes the name of its call")
    elif item.name not in (None, known):
        target.rendering.lose_member(
            item, "name", "dropped", "a tool message has no name here, and no call before it gives it one"
        )
    if target.rendering.foreign and item.custom != (call is not None and call.custom):
        detail = "whether it answers a call of free text is taken from the call"
        target.rendering.lose(item.at, "approximated", detail)


_WRITERS: dict[type, Callable[[Target, Any, _Run], None]] = {
    System: _write_system,
    User: _write_user,
    ToolResult: _write_result,
    Opaque: _write_opaque,
}
