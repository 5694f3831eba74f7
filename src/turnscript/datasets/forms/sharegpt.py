"""Turns with `from` and `value`: ShareGPT, and what grew out of it.

    {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}], "system": "", "tools": ""}

Spec: https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html for `function_call`,
`observation` and `tools`; https://docs.nvidia.com/nemo-framework for `mask` and `type`.

Quirks: `function_call` is a turn of its own, one call or an array of them, maybe behind a thought in `<think>`, as a
text of the model may be. `system` beside the turns is the first turn, unless it repeats that. NeMo's rows
name in `mask` the side that is not trained; its labels of attributes are refused, because they are part of what its
models read. Calls as tagged text are refused: another form reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.core.conversation import Assistant, System, User
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, utf8
from turnscript.core.losses import Indexed
from turnscript.datasets.chat_rows import read_tools
from turnscript.datasets.clean_rows import may_hold_tags
from turnscript.datasets.form import Example, Form, Spoken
from turnscript.datasets.members import (
    CONVERSATIONAL,
    TEMPLATE,
    WANTED,
    Members,
    absent,
    check_unread,
    check_wanted,
    embedded,
    first_byte,
    is_null,
    json_in,
    list_of,
    object_of,
    record,
    required_text,
    text,
    text_member,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tagged_calls import may_be_tagged, refuse_tagged
from turnscript.datasets.tagged_thoughts import OPENING, may_think, split_thought
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import KNOWN_MARKS, take_weight, take_weight_of_row

_LISTS = ("conversations", "conversation")
_READS = (*_LISTS, "system", "tools")
_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
    "bard": "assistant",
    "bing": "assistant",
    "model": "assistant",
    "system": "system",
    "function_call": "call",
    "observation": "result",
    "tool": "result",
    "function_response": "result",
}
_SPEAKERS: dict[str, type[System | User | Assistant]] = {"system": System, "user": User, "assistant": Assistant}
_SAID = {word: _SPEAKERS[kind] for word, kind in _ROLES.items() if kind in _SPEAKERS}
"""The items of turns that say a text."""
_PLACES = {key: Indexed(f"$.{key}") for key in _LISTS}


class _Said(Struct, forbid_unknown_fields=True, gc=False):
    """A turn that says a text and nothing beside it."""

    who: str = msgspec.field(name="from")
    value: str = msgspec.field()


_MORE = CONVERSATIONAL | KNOWN_MARKS | WANTED | {TEMPLATE}
_SaidRow: Any = msgspec.defstruct(
    "_SaidRow", [(key, list[_Said] | None if key in _LISTS else None, None) for key in sorted(_MORE)], gc=False
)
"""A row of such turns and of notes: all that could say more is null."""
_decode_said = msgspec.json.Decoder(list[_Said]).decode
_decode_row = msgspec.json.Decoder(_SaidRow).decode


class ShareGpt(Form):
    """Rows of turns with `from` and `value`."""

    name = "sharegpt"
    members = frozenset(_LISTS)
    title = "ShareGPT: turns with from and value, LLaMA-Factory's calls included"
    fields = "conversations: [{from: human | gpt | system | function_call | observation, value}], system, tools"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for turns with `from` and `value`, of roles that are known."""
        score, why = score_turns(record, _ROLES)
        if score and (extra := unread(record, _READS)):
            return 0.2, f"{why}, but also {extra[0]}"
        return (0.3, why) if score and "mask" in record and "type" in record else (score, why)

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        spoken = _spoken_in(data)
        if spoken is not None:
            return [Example(None, spoken=spoken)]
        members = record(data)
        check_unread(members, (_list_in(members), "system", "tools"), self.name)
        check_wanted(members)
        turns = Turns()
        add_system(turns, members)
        if may_think(data) or not _add_said(turns, members):
            for at, turn in turns_of(members):
                check_unread(turn, (), self.name, at)
                first = len(turns.items)
                add_turn(turns, turn, at)
                turns.weigh(first, take_weight(turn, at))
        if may_be_tagged(data):
            refuse_tagged(turns.items)
        return [turns.example(read_tools(members.get("tools")), weight=take_weight_of_row(members))]


class Nemo(Form):
    """Rows of turns whose sides have names of their own, one of which is not trained."""

    name = "nemo-chat"
    members = frozenset({"mask"})
    title = "NeMo's chats: turns with from and value, the side that is not trained in mask"
    fields = "system, mask, type, conversations: [{from: User | Assistant, value, label}]"

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for the members `mask` and `type`."""
        if not (isinstance(record.get("mask"), str) and isinstance(record.get("type"), str | None)):
            return 0, ""
        score, _ = score_turns(record, _NEMO_ROLES)
        extra = unread(record, _READS)
        return (0.95, "turns with from and value, and mask") if score >= 0.5 and not extra else (0, "")

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation."""
        members = record(data)
        check_unread(members, ("conversations", "system"), self.name)
        masked = required_text(members, "mask")
        turns = Turns()
        add_system(turns, members)
        for at, turn in turns_of(members):
            if not is_null(turn.get("label")):
                message = "labels of attributes are part of what such a model reads; turnscript does not write them"
                raise BadRow(Code.SHAPE, message, path=f"{at}.label")
            check_unread(turn, (), self.name, at)
            role, value = required_text(turn, "from", at), required_text(turn, "value", at)
            first = len(turns.items)
            _say(turns, _role(_NEMO_ROLES, role, at), value, at)
            turns.weigh(first, 0.0 if role == masked else None)
        if masked.lower() not in _NEMO_ROLES:
            raise BadRow(Code.ROLE, f"{masked!r} is no side of the conversation", path="$.mask")
        return [turns.example()]


_NEMO_ROLES = {"user": "user", "assistant": "assistant", "system": "system"}


def score_turns(record: Mapping[str, Any], roles: Mapping[str, str]) -> tuple[float, str]:
    """Return how much a decoded record looks like turns with `from` and `value`."""
    found = next((record[key] for key in _LISTS if isinstance(record.get(key), list)), None)
    if not found or not all(isinstance(one, dict) and "from" in one and "value" in one for one in found):
        return 0, ""
    strange = [one["from"] for one in found if str(one["from"]).lower() not in roles]
    if strange:
        return 0.3, f"turns with from and value, but from {strange[0]!r}"
    return 0.95, "turns with from and value"


def turns_of(members: Members) -> list[tuple[str, Members]]:
    """Return the turns, each with its place."""
    key = _list_in(members)
    if key not in members:
        raise absent(f"$.{key}", "an array of turns")
    entries = list_of(embedded(members[key], f"$.{key}"), f"$.{key}")
    return [(f"$.{key}[{index}]", object_of(entry, f"$.{key}[{index}]")) for index, entry in enumerate(entries)]


def _spoken_in(data: bytes) -> Spoken | None:
    """Return what is said in a row in which each turn says a plain text, beside notes at most.

    Most rows are such. All others, and what is wrong with one, are left to the careful way.
    """
    try:
        row = _decode_row(utf8(data))
    except (msgspec.DecodeError, InvalidRequest, RecursionError):
        return None
    if row.conversations is not None and row.conversation is not None:
        return None
    turns = row.conversations or row.conversation or ()
    spoken = _spoken(turns, _LISTS[0] if row.conversations else _LISTS[1])
    if spoken is None or not any(spoken.texts) or may_hold_tags(spoken.texts):
        return None
    return spoken


def _add_said(turns: Turns, members: Members) -> bool:
    """Add the turns at once if each says a text and nothing beside it. All others are read with care."""
    key = _list_in(members)
    try:
        spoken = _spoken(_decode_said(members.get(key, b"")), key)
    except msgspec.DecodeError:
        return False
    if spoken is not None:
        turns.items += spoken.items()
    return spoken is not None


def _spoken(said: Sequence[_Said], key: str) -> Spoken | None:
    """Return what the turns of the member `key` say; None if one of them says more than a text."""
    try:
        kinds = tuple([_SAID[turn.who] for turn in said])
    except KeyError:
        return None
    return Spoken(kinds, [turn.value for turn in said], _PLACES[key])


def _list_in(members: Members) -> str:
    """Return the name of the member with the turns."""
    first, other = _LISTS
    return other if is_null(members.get(first)) and not is_null(members.get(other)) else first


def add_system(turns: Turns, members: Members) -> None:
    """Add the `system` beside the turns, unless they begin with the same."""
    said = text_member(members, "system")
    if not said:
        return
    for at, turn in turns_of(members)[:1]:
        if text_member(turn, "from", at) == "system":
            if text_member(turn, "value", at) == said:
                return
            raise BadRow(Code.SHAPE, "the turns begin with another system text than this one", path="$.system")
    turns.system(said, "$.system")


def add_turn(turns: Turns, turn: Members, at: str) -> None:
    """Add one turn."""
    kind = _role(_ROLES, required_text(turn, "from", at), at)
    value = turn.get("value")
    if kind == "call" and value is not None:
        _add_calls(turns, value, f"{at}.value")
        return
    _say(turns, kind, required_text(turn, "value", at), at, text_member(turn, "name", at))


def _add_calls(turns: Turns, value: Json, at: str) -> None:
    """Add a turn of calls, maybe behind the thought that led to them."""
    if first_byte(value) == b'"' and (said := text(value, at).lstrip()).startswith(OPENING):
        thought, said = split_thought(said, at)
        turns.thinking(thought or "", at)
        value = json_in(said.strip(), at)
    turns.calls(embedded(value, at), at)


def _role(roles: Mapping[str, str], role: str, at: str) -> str:
    kind = roles.get(role.lower())
    if kind is None:
        known = ", ".join(roles)
        message = f"the role {role!r} is not known here (known: {known}); a map file can say what it is"
        raise BadRow(Code.ROLE, message, path=f"{at}.from")
    return kind


def _say(turns: Turns, kind: str, value: str, at: str, name: str | None = None) -> None:
    if kind == "system":
        turns.system(value, at)
    elif kind == "user":
        turns.user(value, at)
    elif kind == "assistant":
        turns.assistant(value, at)
    else:
        turns.result(value, at, name)


FORMS = (ShareGpt(), Nemo())
