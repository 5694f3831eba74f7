"""Messages whose content is a list of typed values: what version 1 of LLaMA-Factory makes of every data set.

    {"messages": [{"role": "user", "content": [{"type": "text", "value": "Hi"}], "loss_weight": 0.0}], "tools": "[]"}

Spec: https://github.com/hiyouga/LLaMA-Factory, `src/llamafactory/v1`.

Quirks: the types are `text`, `reasoning`, `tool_call` (an object, or a string of JSON) and `tool_result`; media are
refused. Texts of one message that follow each other are one text. Each call and each stretch of text is an item. Of a
preference pair (`chosen_messages`, `rejected_messages`) the chosen conversation is read, by its own weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.datasets.chat_rows import read_tools
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    absent,
    check_unread,
    check_wanted,
    embedded,
    list_of,
    object_of,
    record,
    required_text,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight, take_weight_of_row

_READS = ("messages", "tools")
_PAIR = ("chosen_messages", "rejected_messages")
"""In the place of `messages`: two conversations, of which the first is the better."""
_ROLES = ("system", "user", "assistant", "tool")
_TYPES = frozenset({"text", "reasoning", "tool_call", "tool_result"})


class LlamaFactory(Form):
    """Rows of messages with typed values."""

    name = "llama-factory"
    members = frozenset({"messages", *_PAIR})
    title = "LLaMA-Factory version 1: messages whose contents are lists of typed values"
    fields = "messages: [{role, content: [{type: text | reasoning | tool_call, value}], loss_weight}], tools"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for contents of objects with `type` and `value`."""
        pair = all(isinstance(record.get(key), list) for key in _PAIR)
        messages = record.get(_PAIR[0] if pair else "messages")
        if not isinstance(messages, list) or not messages or unread(record, (*_READS[pair:], *_PAIR)):
            return 0, ""
        parts = [part for one in messages if isinstance(one, dict) for part in _list(one.get("content"))]
        if len(parts) < len(messages) or not all(isinstance(part, dict) and "value" in part for part in parts):
            return 0, ""
        return 1, "messages with contents of type and value"

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        members = record(data)
        pair = not members.keys().isdisjoint(_PAIR)
        check_unread(members, (*_READS[pair:], *_PAIR), self.name)
        check_wanted(members)
        for name in _PAIR if pair else _READS[:1]:
            if name not in members:
                raise absent(f"$.{name}", "an array of messages")
        key = _PAIR[0] if pair else "messages"
        turns = Turns()
        for index, entry in enumerate(list_of(members[key], f"$.{key}")):
            at = f"$.{key}[{index}]"
            message = object_of(entry, at)
            check_unread(message, (), self.name, at)
            first = len(turns.items)
            _add(turns, message, at)
            turns.weigh(first, take_weight(message, at))
        return [turns.example(read_tools(members.get("tools")), weight=take_weight_of_row(members))]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _add(turns: Turns, message: Members, at: str) -> None:
    role = required_text(message, "role", at)
    if role not in _ROLES:
        raise BadRow(Code.ROLE, f"the role {role!r} is not one of {', '.join(_ROLES)}", path=f"{at}.role")
    if "content" not in message:
        raise absent(f"{at}.content", "an array of typed values")
    said = ""
    for index, entry in enumerate(list_of(message["content"], f"{at}.content")):
        where = f"{at}.content[{index}]"
        part = object_of(entry, where)
        kind = required_text(part, "type", where)
        if kind not in _TYPES:
            raise BadRow(Code.SHAPE, f"a value of the type {kind!r} is not known here", path=f"{where}.type")
        if kind in ("text", "tool_result"):
            said += required_text(part, "value", where)
            continue
        said = _flush(turns, role, said, at)
        _add_own(turns, role, kind, part, where)
    _flush(turns, role, said, at)


def _add_own(turns: Turns, role: str, kind: str, part: Members, at: str) -> None:
    """Add a thought or a call, which only the model has."""
    if role != "assistant":
        raise BadRow(Code.SHAPE, f"a message of {role!r} cannot hold a {kind}", path=f"{at}.type")
    if kind == "reasoning":
        turns.thinking(required_text(part, "value", at), at)
    elif "value" in part:
        turns.calls(embedded(part["value"], f"{at}.value"), f"{at}.value")
    else:
        raise absent(f"{at}.value", "a call")


def _flush(turns: Turns, role: str, said: str, at: str) -> str:
    """Write the text so far as an item; gives the text that is left, which is none."""
    if said:
        write = {"system": turns.system, "user": turns.user, "assistant": turns.assistant, "tool": turns.result}[role]
        write(said, at)
    return ""


FORMS = (LlamaFactory(),)
