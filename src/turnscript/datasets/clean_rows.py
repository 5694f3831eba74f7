"""Owns telling whether messages can go to the API's reader as they are: nothing to put right, and nothing unnamed.

One strict decoding in C tells it, and it costs a tenth of the reading. What is not clean is read with more care, so a
member that is missing here costs time and nothing else. Messages that say one text each, and nothing beside it, are
what most rows have: they become items right here, the same as the API's reader makes of them. Whether such a text may
hold tags is asked of the text, where a bracket is a bracket, and not of the bytes, where it may be an escape.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from turnscript.core.conversation import Assistant, System, User
from turnscript.core.losses import Indexed
from turnscript.datasets.form import Spoken


class _Strict(Struct, forbid_unknown_fields=True, gc=False):
    pass


class _Text(_Strict):
    type: Literal["text"]
    text: str


class _Function(_Strict):
    name: str
    arguments: str


class _Call(_Strict):
    function: _Function
    type: Literal["function"]
    id: str = ""


class _Input(_Strict, tag_field="role"):
    content: str | list[_Text]
    name: str = ""


class _System(_Input, tag="system"):
    pass


class _Developer(_Input, tag="developer"):
    pass


class _User(_Input, tag="user"):
    pass


class _Assistant(_Strict, tag_field="role", tag="assistant"):
    content: str | list[_Text] | None = None
    tool_calls: list[_Call] = []
    reasoning_content: str = ""
    name: str = ""


class _Tool(_Strict, tag_field="role", tag="tool"):
    content: str | list[_Text]
    tool_call_id: str = ""
    name: str = ""


class _Row(_Strict):
    messages: list[_System | _Developer | _User | _Assistant | _Tool]
    tools: list[Raw] = []


class _Said(_Strict, tag_field="role"):
    content: str


class _SystemSaid(_Said, tag="system"):
    pass


class _UserSaid(_Said, tag="user"):
    pass


class _AssistantSaid(_Said, tag="assistant"):
    pass


class _SaidRow(_Strict):
    messages: list[_SystemSaid | _UserSaid | _AssistantSaid]


_ITEMS: dict[type[_Said], type[System | User | Assistant]] = {
    _SystemSaid: System,
    _UserSaid: User,
    _AssistantSaid: Assistant,
}
_PLACES = Indexed("$.messages")
_THOUGHT, _CALL = "think>", "<tool"
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decode = msgspec.json.Decoder(_Row).decode
_decode_said = msgspec.json.Decoder(_SaidRow).decode


def is_clean(data: bytes) -> bool:
    """Return whether a row is nothing but messages and tools, as the API has them."""
    try:
        _decode(data)
    except _ERRORS:
        return False
    return True


def read_said(data: bytes) -> Spoken | None:
    """Return a row in which every message says one text and there is nothing else, and somebody says something.

    None for all other rows.
    """
    try:
        messages = _decode_said(data).messages
    except _ERRORS:
        return None
    texts = [message.content for message in messages]
    if not any(texts):
        return None
    return Spoken(tuple([_ITEMS[type(message)] for message in messages]), texts, _PLACES)


def may_hold_tags(texts: Sequence[str]) -> bool:
    """Return whether a thought, a call or tools may stand in these texts in tags. Most have no bracket."""
    bracketed = [text for text in texts if "<" in text]
    return bool(bracketed) and any(_THOUGHT in text or _CALL in text for text in bracketed)
