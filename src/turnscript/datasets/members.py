"""Owns reading the members of a record: each as the type that a form needs it to be, or a BadRow with its JSON path.

Values stay JSON text until somebody needs them, so arguments and schemas arrive byte by byte as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from turnscript.core.errors import InvalidRequest
from turnscript.core.json_spelling import in_one_spelling
from turnscript.core.json_text import UTF_8, Json, excerpt, read_list, read_object, text_of, type_name, utf8
from turnscript.datasets.problems import BadRow, Code

Members = dict[str, Json]

_decode_text = msgspec.json.Decoder(str).decode

CONVERSATIONAL = frozenset(
    {"messages", "conversations", "conversation", "dialog", "dialogue", "turns", "chat", "history", "transcript"}
    | {"system", "system_prompt", "instruction", "instructions", "input", "output", "prompt", "completion", "response"}
    | {
        "suffix",
        "query",
        "question",
        "answer",
        "context",
        "chosen",
        "rejected",
        "tools",
        "functions",
        "text",
        "segments",
    }
    | {"choices", "options", "passage", "documents", "image", "images", "audio", "audios", "video", "videos"}
    | {"reasoning", "reasoning_content", "thinking", "thought", "rationale", "chain_of_thought", "cot"}
    | {"tool_calls", "function_call", "function_calls", "tool_plan", "request", "trajectory", "traj", "utterances"}
    | {"system_message", "available_tools", "tool_definitions", "article", "reflection", "corrected"}
    | {"preferred_output", "non_preferred_output", "chosen_messages"}
    | {"rejected_messages", "rejected_response"}
)
"""Names of members that hold a piece of the conversation in some form. Beside what a form reads, one of them means that
the record is of another form, or would lose something. All other members are taken for notes about the record."""

WANTED = frozenset({"label", "kto_tag"})
"""Names of members that say whether the answer of a record is a good one."""
_NOTHING = (b"null", b'""', b"[]", b"{}")
TEMPLATE = "chat_template_kwargs"
_SWITCHES = frozenset({"enable_thinking", "thinking", "reasoning_effort", "thinking_budget"})
"""What rows tell a chat template that is no part of the conversation. Texts and lists under other names are one."""


def record(data: bytes) -> Members:
    """Return the members of a row. Raises BadRow for what is not UTF-8 or not a JSON object."""
    try:
        return read_object(utf8(data))
    except InvalidRequest as error:
        raise _broken(error) from None


def whole(data: bytes) -> bytes:
    """Return a row as bytes that are UTF-8, without a byte order mark."""
    try:
        return utf8(data)
    except InvalidRequest as error:
        raise _broken(error) from None


def _broken(error: InvalidRequest) -> BadRow:
    code = Code.UTF8 if error.expected in (UTF_8, "a whole character") else Code.JSON
    return BadRow(code, error.message, path=error.path, line=error.line, column=error.column)


def wrong(value: Json, at: str, expected: str, code: Code = Code.SHAPE) -> BadRow:
    """Return the error for a value of the wrong kind."""
    return BadRow(code, f"expected {expected}, got {type_name(value)} ({excerpt(value)})", path=at)


def absent(at: str, expected: str) -> BadRow:
    """Return the error for a member that is not there; `at` names it."""
    return BadRow(Code.SHAPE, f"required, but missing; expected {expected}", path=at)


def is_null(value: Json | None) -> bool:
    """Return whether a member says nothing: it is not there, or null."""
    return value is None or bytes(value) == b"null"


def first_byte(value: Json) -> bytes:
    """Return the first byte of a value, which tells its type."""
    return bytes(memoryview(value)[:1])


def text(value: Json, at: str) -> str:
    """Return a string."""
    if first_byte(value) != b'"':
        raise wrong(value, at, "a string")
    try:
        return _decode_text(value)
    except msgspec.DecodeError:
        message = "the string holds an escape of half a surrogate pair, which no UTF-8 text can hold"
        raise BadRow(Code.UTF8, message, path=at) from None


def text_member(members: Members, key: str, at: str = "$") -> str | None:
    """Return a member that is a string, None where it says nothing."""
    value = members.get(key)
    return None if value is None or is_null(value) else text(value, f"{at}.{key}")


def required_text(members: Members, key: str, at: str = "$") -> str:
    """Return a member that must be a string."""
    if key not in members:
        raise absent(f"{at}.{key}", "a string")
    return text(members[key], f"{at}.{key}")


def object_of(value: Json, at: str) -> Members:
    """Return the members of an object."""
    if first_byte(value) != b"{":
        raise wrong(value, at, "an object")
    try:
        return read_object(value)
    except InvalidRequest as error:
        raise BadRow(Code.JSON, error.message, path=at) from None


def list_of(value: Json, at: str) -> list[Json]:
    """Return the elements of an array."""
    if first_byte(value) != b"[":
        raise wrong(value, at, "an array")
    try:
        return read_list(value)
    except InvalidRequest as error:
        raise BadRow(Code.JSON, error.message, path=at) from None


def embedded(value: Json, at: str) -> Json:
    """Return the JSON of a value that may be a string of JSON. Null for a string without anything."""
    if first_byte(value) != b'"':
        return value
    inside = text(value, at).strip()
    return json_in(inside, at) if inside else Json(b"null")


def json_in(inside: str, at: str) -> Json:
    """Return a text that must be JSON."""
    data = inside.encode()
    try:
        read_list(b"[" + data + b"]")  # checks the syntax; a second value in it would be a second element
        return Json(msgspec.json.decode(data, type=Json))
    except (InvalidRequest, msgspec.DecodeError, RecursionError):
        raise BadRow(Code.JSON, f"the text here is not JSON: {_excerpt(inside)}", path=at) from None


def _excerpt(inside: str) -> str:
    return repr(inside if len(inside) <= 60 else f"{inside[:57]}...")


def arguments_of(value: Json | str) -> str:
    """An object of arguments as the text of a call, in one spelling, whatever white space and escapes the row has.

    Numbers, the order of keys and keys that come twice stay. A text of arguments is what a model wrote, and is not for
    this.
    """
    return in_one_spelling(value if isinstance(value, str) else text_of(value))


def quoted(inside: str) -> Json:
    """Return a text as a JSON string."""
    return Json(msgspec.json.encode(inside))


def spelled(members: Mapping[str, Json]) -> Json:
    """Return members as one object again."""
    return Json(msgspec.json.encode(members))


def check_unread(members: Members, reads: Iterable[str], form: str, at: str = "$") -> None:
    """Refuse a record, or a turn at `at`, that has more of a conversation than the form reads."""
    for key in sorted((members.keys() & CONVERSATIONAL).difference(reads)):
        if bytes(members[key]).strip() not in _NOTHING:
            raise _not_read(form, f"{at}.{key}")
    if TEMPLATE in members:
        _check_template(embedded(members[TEMPLATE], f"{at}.{TEMPLATE}"), form, f"{at}.{TEMPLATE}")


def _check_template(value: Json, form: str, at: str) -> None:
    """Refuse tools and instructions that a row gives to its chat template, such as the `xml_tools` of SmolTalk 2."""
    told = object_of(value, at) if first_byte(value) == b"{" else {}
    for key in sorted(told.keys() - _SWITCHES):
        if first_byte(told[key]) in (b'"', b"[", b"{") and bytes(told[key]).strip() not in _NOTHING:
            raise _not_read(form, f"{at}.{key}")


def check_decoded(record: Mapping[str, Any], reads: Iterable[str], form: str, at: str) -> None:
    """Check so a record that is decoded."""
    for key in unread(record, reads)[:1]:
        raise _not_read(form, f"{at}.{key}")


def _not_read(form: str, at: str) -> BadRow:
    remedy = "use a map file that says what it is, or name another form"
    return BadRow(Code.FORM, f"the form {form} does not read this member; {remedy}", path=at)


def check_wanted(members: Members) -> None:
    """Refuse a record that says that its answer is a bad one: TRL's `label`, LLaMA-Factory's `kto_tag`."""
    for key in sorted(WANTED & members.keys()):
        said = bytes(members[key]).strip().lower()
        if said[:1].isdigit() or said[:1] == b"-":
            raise wrong(members[key], f"$.{key}", "true or false, whether this answer is wanted")
        if said in (b"false", b'"false"'):
            message = "the row says that this answer is not wanted, so it is not trained; leave such rows out"
            raise BadRow(Code.UNWANTED, message, path=f"$.{key}")


def unread(record: Mapping[str, Any], reads: Iterable[str]) -> list[str]:
    """Return the members of a decoded record that would be refused by `check_unread`."""
    names = sorted((record.keys() & CONVERSATIONAL).difference(reads))
    return [name for name in names if record[name] not in (None, "", [], {})]
