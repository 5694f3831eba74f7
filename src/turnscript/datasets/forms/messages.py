"""Messages with roles: what OpenAI's fine-tuning reads, and most data sets on the Hugging Face hub are.

    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}], "tools": [...]}

Spec: https://platform.openai.com/docs/guides/supervised-fine-tuning, https://huggingface.co/docs/trl/dataset_formats.

Quirks: the dialects that `chat_rows` lists are understood. A row may be the array of its messages alone. `system`
beside the messages is the first message, unless it repeats that. `prompt` is understood where it repeats the first
user's text, as in UltraChat. Members that are settings of a request, such as `model` or `temperature`, say nothing
about the conversation and are not read. Calls as tagged text are refused: another form reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Item, System, Text, text_content
from turnscript.datasets.chat_rows import Chat, read_clean, read_messages, same_text, score_messages
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    absent,
    check_unread,
    check_wanted,
    embedded,
    first_byte,
    is_null,
    json_in,
    record,
    spelled,
    text_member,
    unread,
    whole,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tagged_calls import may_be_tagged, refuse_tagged
from turnscript.datasets.weights import over_turns, take_weight_of_row

_BESIDE = ("functions", "system", "prompt")
_BARE = re.compile(rb"\s*\[\s*\{")
_READS = ("messages", "tools", *_BESIDE)


class Messages(Form):
    """Rows of messages."""

    name = "messages"
    members = frozenset({"messages", "role"})
    title = "Messages with roles, as OpenAI's fine-tuning and the Hugging Face hub have them"
    fields = "messages: [{role, content, tool_calls, tool_call_id, name, reasoning_content, weight}], tools, system"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for messages with `role` and `content`."""
        messages = record.get("messages")
        if isinstance(messages, str):
            return (0.6, "messages as a string of JSON") if messages.lstrip()[:1] == "[" else (0, "")
        if "messages" not in record and isinstance(record.get("role"), str) and "content" in record:
            return 0.1, "one message, and a row is a conversation: all of them in a list of `messages`"
        if not isinstance(messages, list) or not messages:
            return 0, ""
        if extra := unread(record, _READS):
            return 0.2, f"messages, but also {extra[0]}"
        return score_messages(messages)

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        clean = read_clean(data)
        example = self._read(data) if clean is None else clean.example
        if may_be_tagged(data) if clean is None else clean.tagged:
            refuse_tagged(example.request.conversation.items)
        return [example]

    def _read(self, data: bytes) -> Example:
        if _BARE.match(data):
            chat = read_messages(json_in(whole(data).decode(), "$"), at="$")
            return Example(chat.request, weights=chat.weights)
        members = record(data)
        check_unread(members, _READS, self.name)
        check_wanted(members)
        if "messages" not in members:
            raise absent("$.messages", "an array of messages")
        tools, weight = members.get("tools"), take_weight_of_row(members)
        if members.keys().isdisjoint(_BESIDE):
            body = {"messages": members["messages"]}
            if tools is not None and not is_null(tools):
                body["tools"] = embedded(tools, "$.tools")
            clean = read_clean(bytes(spelled(body)))
            if clean is not None:
                request = clean.example.request
                return Example(request, weights=over_turns({}, request.items, weight))
        chat = read_messages(members["messages"], tools, members.get("functions"))
        _check_prompt(members, chat.request.conversation.items)
        example = _with_system(chat, text_member(members, "system"))
        example.weights = over_turns(example.weights, example.request.items, weight)
        return example


def _check_prompt(members: Members, items: list[Item]) -> None:
    prompt = members.get("prompt")
    if prompt is None or bytes(prompt) in (b"null", b'""'):
        return
    if first_byte(prompt) != b'"' or not same_text(prompt, items, "$.prompt"):
        message = "stands beside messages, and is not what the first user says; a map file can say what it is"
        raise BadRow(Code.FORM, message, path="$.prompt")


def _with_system(chat: Chat, said: str | None) -> Example:
    items, weights = chat.request.conversation.items, chat.weights
    if not said:
        return Example(chat.request, weights=weights)
    first = items[0]
    if isinstance(first, System):
        if text_content(first.content) != said:
            message = "the messages begin with another system text than this one"
            raise BadRow(Code.SHAPE, message, path="$.system")
        return Example(chat.request, weights=weights)
    items.insert(0, System(content=[Text(text=said)], at="$.system"))
    return Example(chat.request, weights={index + 1: weight for index, weight in weights.items()})


FORMS = (Messages(),)
