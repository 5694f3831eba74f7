"""Owns what the forms of traces share: members with their JSON path, conversations read by the API they are of, calls.

A trace keeps its messages as some API has them, in a wrapper of its own. So a form cuts the wrapper off, gives the API
a body, and then puts the places of the trace in the stead of the body's: `relocate`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from turnscript.apis.api import Api
from turnscript.convert.registry import apis, get_api
from turnscript.core.call_pairing import call_ids
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Opaque,
    Request,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.core.json_text import (
    Json,
    is_object,
    json_of,
    plain,
    read_list,
    read_object,
    syntax_error,
    type_name,
    utf8,
)
from turnscript.datasets.problems import BadRow, Code

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
"""Where the APIs are served whose messages traces are made of."""

Place = Callable[[str], str]
"""A path in a body that was made here, as the place in the row."""

_INDEX = re.compile(r"\$\.(?:messages|input)\[(\d+)\]")


# Values and members.


def checked(data: bytes) -> bytes:
    """Return a row without a byte order mark. Raises BadRow if it is not UTF-8."""
    try:
        return utf8(data)
    except InvalidInput as error:
        raise BadRow(Code.UTF8, error.message, line=error.line, column=error.column) from None


def members_of(value: bytes | Json, at: str = "$") -> dict[str, Json]:
    """Return the members of an object, each as text. `at`: its place."""
    if bytes(memoryview(value)[:64]).lstrip()[:1] not in (b"{", b""):
        raise mismatch(at, "an object", value)
    try:
        return read_object(value)
    except InvalidInput as error:
        raise _not_json(error, at) from None


def elements_of(value: bytes | Json, at: str) -> list[Json]:
    """Return the elements of an array, each as text."""
    if bytes(memoryview(value)[:64]).lstrip()[:1] != b"[":
        raise mismatch(at, "an array", value)
    try:
        return read_list(value)
    except InvalidInput as error:
        raise _not_json(error, at) from None


def value_of(value: bytes | Json, at: str = "$") -> Any:
    """Return a whole value as Python data."""
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _not_json(syntax_error(bytes(value), error), at) from None


def member(members: Mapping[str, Json], name: str, at: str) -> Json:
    """Return a member that must be there."""
    if name not in members:
        raise BadRow(Code.SHAPE, "required, but missing", path=f"{at}.{name}")
    return members[name]


def text_of_member(members: Mapping[str, Json], name: str, at: str) -> str:
    """Return a member that must be a string."""
    return text_at(value_of(member(members, name, at), f"{at}.{name}"), f"{at}.{name}")


def has(members: Mapping[str, Json], name: str) -> bool:
    """Return whether a member is there and says something: null and an empty array say nothing."""
    return name in members and b"".join(bytes(memoryview(members[name])[:16]).split()) not in (b"null", b"[]")


def text_at(value: object, at: str) -> str:
    """Return a value that must be a string."""
    if not isinstance(value, str):
        raise mismatch(at, "a string", value)
    return value


def list_at(value: object, at: str) -> list[Any]:
    """Return a value that must be an array."""
    if not isinstance(value, list):
        raise mismatch(at, "an array", value)
    return value


def object_at(value: object, at: str) -> dict[str, Any]:
    """Return a value that must be an object."""
    if not isinstance(value, dict):
        raise mismatch(at, "an object", value)
    return value


def mismatch(at: str, expected: str, got: object) -> BadRow:
    """Return the error for a value of the wrong type."""
    value = got if isinstance(got, Json) else Json(got) if isinstance(got, bytes) else json_of(got)
    return BadRow(Code.SHAPE, f"expected {expected}, got {type_name(value)}", path=at)


def _not_json(error: InvalidInput, at: str) -> BadRow:
    """Return the error of a value. Half of a surrogate pair is no fault of the JSON: no UTF-8 can hold it."""
    code = Code.UTF8 if "surrogate" in error.message else Code.JSON
    if at == "$" and error.line:
        return BadRow(code, error.message, line=error.line, column=error.column)
    return BadRow(code, error.message, path=at)


# Conversations.


@cache
def api_at(endpoint: str) -> Api:
    """Return the API that is served there."""
    known = {api.endpoint: api for api in map(get_api, apis())}
    if endpoint not in known:
        raise UnknownName("endpoint of an API", endpoint, known)
    return known[endpoint]


def request_of(endpoint: str, members: Mapping[str, bytes], place: Place) -> Request:
    """Return a body as a request, read by the API of that endpoint. Paths are still those of the body."""
    body = b",".join([b'"%s":%s' % (name.encode(), value) for name, value in members.items()])
    try:
        return api_at(endpoint).parse_request(b"{%s}" % body)
    except InvalidInput as error:
        if error.path:
            raise BadRow(Code.SHAPE, error.message, path=place(error.path)) from None
        raise BadRow(_not_json(error, "").reason, error.message, path="$") from None


def request_of_items(items: list[Item]) -> Request:
    """Return items that a form made itself, as a request."""
    return Request(conversation=Conversation(items=items))


def message_index(at: str) -> int:
    """Return which message of a body a path is in; -1 if it is in none."""
    found = _INDEX.match(at)
    return int(found[1]) if found else -1


def relocate(request: Request, place: Place) -> None:
    """Give all items their places in the row."""
    for item in request.items:
        item.at = place(item.at)


def under(name: str) -> Place:
    """Return the place of a path in `$.messages`, where the row has the same list under another name."""
    return lambda at: at.replace("$.messages", f"$.{name}", 1)


def of_list(places: Sequence[str], otherwise: str = "$") -> Place:
    """Return the place of a path whose message is the one at `places[index]` in the row."""

    def place(at: str) -> str:
        found = _INDEX.match(at)
        return places[int(found[1])] + at[found.end() :] if found else otherwise

    return place


def check(items: Sequence[Item], empty: str = "$") -> None:
    """Raise BadRow for a conversation that cannot be used: `empty` is the place where there should be one.

    Somebody says something, every message has a role that is known, every call a name and an object of arguments, every
    result a call that waits for it. An id may come again when its call was answered: some servers count calls in each
    turn. Blocks and items of kinds without a name here are kept: whether they can be said is for the format to decide.
    """
    ids = call_ids(items)
    waiting: set[str] = set()
    says = False
    for index, item in enumerate(items):
        if type(item) is ToolCall:
            _check_call(item, ids[index] in waiting)
            waiting.add(ids[index])
            says = True
        elif type(item) is ToolResult:
            if ids[index] not in waiting:
                raise BadRow(Code.CALL, "a result of no call that waits for one", path=item.at)
            waiting.discard(ids[index])
        elif type(item) is Opaque:
            _check_role(item)
        elif isinstance(item, User | Assistant | System | Thinking):
            says = says or any(type(part) is not Text or part.text for part in item.content)
            if not item.content and type(item) is not Thinking:
                raise BadRow(Code.SHAPE, "the message has no content", path=f"{item.at}.content")
    if not says:
        raise BadRow(Code.EMPTY, "nobody says anything" if items else "there is no message", path=empty)


def _check_call(call: ToolCall, waiting: bool) -> None:
    if not call.name.strip():
        raise BadRow(Code.CALL, "a call without a name", path=call.at)
    if waiting:
        raise BadRow(Code.CALL, f"two calls with the id {call.id!r}, and the first has no result yet", path=call.at)
    if not call.arguments.strip() and not call.custom:
        call.arguments = "{}"
    if not call.custom and not is_object(call.arguments):
        raise BadRow(Code.ARGS, "the arguments of a call are no JSON object", path=call.at)


def _check_role(item: Opaque) -> None:
    """Refuse a message of an unknown role. A block has one, and an item of another kind needs none."""
    if not item.role and "role" in members_of(item.value, item.at):
        raise BadRow(Code.ROLE, "a message with a role that is not known", path=f"{item.at}.role")


WRITTEN = (Assistant, Thinking, ToolCall)
"""The items that a model writes."""


def untrained(items: Sequence[Item], wanted: Callable[[int], bool]) -> frozenset[int]:
    """Return the positions of what the model wrote in the messages of which `wanted` is false. Before `relocate`.

    And for thoughts of which only a proof is there: to learn them would be to learn to think nothing.
    """
    return frozenset(
        index
        for index, item in enumerate(items)
        if isinstance(item, WRITTEN) and (_is_hidden(item) or not wanted(message_index(item.at)))
    )


def _is_hidden(item: Item) -> bool:
    if not isinstance(item, Thinking):
        return False
    return not any(type(part) is not Text or part.text for part in (*item.content, *item.summary))


def tools_member(members: Mapping[str, Json], name: str) -> dict[str, bytes]:
    """Return tools of a row for a body: an array, or a string that holds one. Their text stays as it is."""
    if not has(members, name):
        return {}
    value = members[name]
    if bytes(memoryview(value)[:1]) == b'"':
        text = plain(value)
        elements_of(text.encode("utf-8", "surrogatepass"), f"$.{name}")
        return {name: text.encode("utf-8", "surrogatepass")}
    elements_of(value, f"$.{name}")
    return {name: bytes(value)}
