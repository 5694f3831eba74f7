"""Owns the assistant's turn on its way out: thinking, text and calls, in this order, in one message.

The order between them cannot be said here, nor where one thought or text ends and the next begins: that is reported.
In the seed profile each call is a message of its own, as the Universal document has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from turnscript.apis.api import Body
from turnscript.apis.openai_chat.content import ASSISTANT_PARTS, collapsed, written_parts
from turnscript.apis.openai_chat.objects import CONTENT_ABSENT, INDEXED, NO_ARGUMENTS, NOTHING
from turnscript.apis.openai_chat.target import Target
from turnscript.apis.openai_chat.thoughts import entry, is_within
from turnscript.core.conversation import Assistant, Audio, Item, Opaque, Part, Refusal, Text, Thinking, ToolCall
from turnscript.core.json_text import json_string
from turnscript.core.message_groups import shape_of
from turnscript.core.validation import text_only


def write_assistant(target: Target, members: Sequence[Item]) -> list[Body]:
    """The messages of one turn: one, but none if nothing of it has a form here, and several in the seed profile."""
    within = target.exact and any(map(is_within, members))
    thoughts, spoken, calls = _ordered(target, members)
    message: Body = {"role": "assistant"}
    if thoughts:
        _think(target, message, thoughts)
    if within:
        _speak_thinking(target, message, [item for item in members if type(item) is Assistant or is_within(item)])
    elif spoken:
        _speak(target, message, spoken)
    elif not (target.exact and CONTENT_ABSENT in shape_of(members[0]).split()):
        message["content"] = None
    if target.open_calls:
        target.calls |= target.open_calls
        target.open_calls = {}
    if target.seed and calls:
        separate = _seed_calls(target, calls)
        return [message, *separate] if spoken or thoughts else separate
    called = bool(calls) and _call(target, message, calls)
    # A thought that is only a proof, or a block that only its own API knows, leaves nothing to send.
    return [message] if called or spoken or target.exact or len(message) > 2 else []


def _ordered(target: Target, members: Sequence[Item]) -> tuple[list[Thinking], list[Assistant], list[Item]]:
    """The members by kind; what has to move in front of another is reported, and what is joined with its like."""
    thoughts: list[Thinking] = []
    spoken: list[Assistant] = []
    calls: list[Item] = []
    parted = False  # whether a thought stands in the content between two texts
    for item in members:
        if target.exact and is_within(item):
            if calls:
                target.rendering.lose(item.at, "moved", "one message holds its text before its calls")
            parted = True
        elif type(item) is Assistant:
            if calls:
                target.rendering.lose(item.at, "moved", "one message holds its text before its calls")
            elif spoken and not parted:
                target.rendering.lose(item.at, "approximated", "joined with the text before it in one message")
            spoken.append(item)
            parted = False
        elif type(item) is Thinking:
            if calls or spoken:
                target.rendering.lose(item.at, "moved", "one message holds its thinking before all else")
            elif thoughts:
                target.rendering.lose(item.at, "approximated", "joined with the thinking before it in one message")
            thoughts.append(item)
        else:
            calls.append(item)
    return thoughts, spoken, calls


# Thinking.


def _think(target: Target, message: Body, thoughts: Sequence[Thinking]) -> None:
    texts: list[str] = []
    for item in thoughts:
        if not target.exact:
            _lose_proofs(target, item)
        text = _thought(target, item)
        if text is None:
            target.rendering.lose(item.at, "dropped", "thinking without a text has no form here")
        else:
            texts.append(text)
        if item.extra or item.hints is not None:
            target.put_rest(message, item)
    if texts:
        slot = target.slot(thoughts[0]) or target.reasoning
        for field in slot.split("+"):  # of `BOTH`, each
            message[field] = texts[0] if len(texts) == 1 else "\n\n".join(texts)


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
        target.lose(item, "summary", "the thinking itself is sent")
    elif item.summary:
        target.rendering.lose(f"{item.at}.summary", "approximated", "sent as the thinking itself")
    elif len(texts) > 1:
        target.rendering.lose(f"{item.at}.content", "approximated", "several texts are joined by blank lines")
    return "\n\n".join(texts) if texts else None


def _lose_proofs(target: Target, item: Thinking) -> None:
    """Only the API that made a proof can read it, so it is never sent to another."""
    proof = "only the API that made it can read it"
    if item.signature is not None:
        target.lose(item, "signature", proof)
    if item.redacted is not None:
        target.lose(item, "data", proof)
    if item.encrypted is not None:
        target.lose(item, "encrypted_content", proof)
    if item.id is not None:
        target.lose(item, "id", "thinking has no id here")
    if item.of != "reason":
        target.lose(item, "kind", f"thinking has no kinds here, such as {item.of!r}")


# Text.


def _speak(target: Target, message: Body, spoken: Sequence[Assistant]) -> None:
    first = spoken[0]
    if len(spoken) == 1:
        parts, members = _members(target, first)
        if parts or not members or shape_of(first):
            target.put_content(message, first, parts, ASSISTANT_PARTS)
        else:
            message["content"] = None
        message.update(members)
    else:
        allowed = None if target.exact else ASSISTANT_PARTS
        written = [
            part for item in spoken for part in written_parts(target.rendering, item, enumerate(item.content), allowed)
        ]
        message["content"] = collapsed(written, target.rendering, first, first.content)
    _say_beside(target, message, spoken)


def _speak_thinking(target: Target, message: Body, said: Sequence[Item]) -> None:
    """A content with thoughts in it, as it came."""
    written: list[Any] = []
    spoken: list[Assistant] = []
    for item in said:
        if isinstance(item, Assistant):
            parts, members = _members(target, item)
            written += written_parts(target.rendering, item, enumerate(parts), None)
            message.update(members)
            spoken.append(item)
        elif isinstance(item, Thinking):
            written.append(entry(target.rendering, item))
            target.put_envelope(message, item)
    message["content"] = written
    _say_beside(target, message, spoken)


def _say_beside(target: Target, message: Body, spoken: Sequence[Assistant]) -> None:
    """What texts say beside their content."""
    for item in spoken:
        if item.name is not None and message.setdefault("name", item.name) != item.name:
            target.lose(item, "name", "one message has one name")
        if item.id is not None:
            target.lose(item, "id", "a message here has no id")
        if item.phase is not None:
            target.lose(item, "phase", "a message here has no phase")
        if item.extra or item.open or item.hints is not None:
            target.put_rest(message, item)


def _members(target: Target, item: Assistant) -> tuple[list[Part], Body]:
    """The parts of the content, and the members beside it that say the other parts."""
    content = item.content
    if len(content) == 1 and type(content[0]) is Text:
        return content, {}
    members: Body = {}
    parts = list(content)
    last = parts[-1] if parts else None
    if isinstance(last, Refusal) and target.slot(item) == "refusal":
        members["refusal"] = last.text
        parts.pop()
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
            if item.hints is None:
                entries.append(_entry(target, item))
                continue
            if target.slot(item).startswith("function_call"):
                message["function_call"] = _legacy_call(target, item)
            else:
                entries.append(_entry(target, item))
                if target.exact and INDEXED in item.hints.shape.split():
                    entries[-1]["index"] = len(entries) - 1
            target.put_envelope(message, item)
        else:
            assert isinstance(item, Opaque)
            _put_opaque(target, message, item, entries)
    if entries:
        message["tool_calls"] = entries
    return bool(entries) or "function_call" in message


def _put_opaque(target: Target, message: Body, item: Opaque, entries: list[Any]) -> None:
    if target.exact:
        entries.append(item.value)
    else:
        target.rendering.lose(item.at, "dropped", f"{item.type}: only the API it came from knows what it is")
    target.put_envelope(message, item)


def _entry(target: Target, item: ToolCall) -> Body:
    kind, argument = ("custom", "input") if item.custom else ("function", "arguments")
    entry: Body = {}
    if item.id is not None or target.slot(item) != "tool_calls":
        entry["id"] = target.open_call(item)
    entry["type"] = kind
    plain = item.namespace is None and item.item_id is None
    entry[kind] = {"name": item.name if plain else _name(target, item), argument: text_only(item.arguments)}
    if item.hints is not None and item.hints.shape:
        _unsay(target, item, entry[kind])
    if item.extra:
        target.rendering.put_extra(entry, item.extra, item.at)
    return entry


def _unsay(target: Target, item: ToolCall, inner: Body) -> None:
    """Write arguments that are none as they came."""
    found = [NO_ARGUMENTS[word] for word in shape_of(item).split() if word in NO_ARGUMENTS]
    if found and target.exact and item.arguments == NOTHING and not item.custom:
        inner["arguments"] = found[0]
        if found[0] is UNSET:
            del inner["arguments"]


def _name(target: Target, item: ToolCall) -> str:
    if item.item_id is not None:
        target.lose(item, "id", "a call has one id here, that of its result")
    if item.namespace is None:
        return item.name
    target.rendering.lose(f"{item.at}.namespace", "renamed", "tools have no namespaces here: it begins the name")
    return f"{item.namespace}__{item.name}"


def _legacy_call(target: Target, item: ToolCall) -> Body:
    call: Body = {"name": _name(target, item), "arguments": text_only(item.arguments)}
    _unsay(target, item, call)
    if item.id is not None or target.slot(item) != "function_call":
        call["id"] = target.open_call(item)
    if item.extra:
        target.rendering.put_extra(call, item.extra, item.at)
    return call


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
