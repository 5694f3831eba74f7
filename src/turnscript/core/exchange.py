"""Owns exchanges: an answer and the request that it answers, and both as the one conversation that an archive holds.

The items of the answer follow those of the request. What else it says stands in the metadata, as `response`:

    {"id": "msg_1", "model": "m", "finish_reason": "stop", "usage": {"input": 9, "output": 3}, "created": 1}

Members with a name in `Response` have that name, whatever their API calls them. All others stand there as they came,
those that are called like one of the former under `x`. `items` says how many of the items are the answer's, where that
are not those that the model wrote last; `continues`, that the answer goes on with the last text of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Issue,
    Item,
    Opaque,
    Request,
    Response,
    Thinking,
    ToolCall,
    Usage,
)
from turnscript.core.errors import InvalidRequest, InvalidTranscript, half_a_pair
from turnscript.core.json_text import Json, members, read_object
from turnscript.core.logprobs import TokenLogprob

RESPONSE = "response"
"""The member of the metadata that tells of an answer."""

_MODEL = (Assistant, Thinking, ToolCall, Opaque)
_USER = "user"


class Exchange(Struct):
    """A request and its answer. `others`: further answers to it, where an API gives several at once.

    An answer alone is one to an empty request of its API.
    """

    request: Request
    response: Response
    others: list[Response] = []

    @property
    def is_alone(self) -> bool:
        """Whether nothing is known of the request but its API."""
        return self.request == Request(origin=self.request.origin)


def alone(response: Response) -> Exchange:
    """An answer to a request that nobody knows."""
    return Exchange(Request(origin=response.origin), response)


# Writing.


def archived(exchange: Exchange) -> Request:
    """The whole as an archive keeps it: a conversation with what tells of the answer. `others` have no place in it.

    Raises InvalidConversation for what no archive can hold.
    """
    request, response = exchange.request, exchange.response
    asked = list(request.items)
    continues = bool(asked) and asked[-1].open
    if continues:
        asked[-1] = replace(asked[-1], open=False)
    items = [*asked, *response.items]
    told = {
        "id": response.id,
        "model": response.model,
        "finish_reason": response.finish_reason,
        "stop_sequence": response.stop_sequence,
        "usage": _usage(response.usage),
        "items": None if _last_said(items) == len(response.items) else len(response.items),
        "continues": continues or None,
        "issues": [_issue(issue) for issue in response.issues] or None,
        "logprobs": msgspec.to_builtins(response.logprobs, str_keys=True) or None,
        "raw": response.raw,
        "cut": None if response.cut is None else {key: getattr(response.cut, key) for key in _Cut.__struct_fields__},
    }
    fields: dict[str, object] = {key: value for key, value in told.items() if value is not None}
    if response.origin != request.origin:
        fields["origin"] = response.origin
    fields |= {key: value for key, value in response.extra.items() if key not in NAMED}
    hidden = {key: value for key, value in response.extra.items() if key in NAMED}
    try:
        if hidden:
            fields["x"] = Json(members(hidden).encode())
        said = Json(members(fields).encode())
    except UnicodeEncodeError as error:
        raise half_a_pair(error, "a text of the answer", f"$.{RESPONSE}") from None
    conversation = Conversation(items, request.tools)
    return replace(request, conversation=conversation, archived=request.archived | {RESPONSE: said})


def _usage(usage: Usage | None) -> dict[str, int] | None:
    """The counts; of the details those that are not 0."""
    if usage is None:
        return None
    counts: dict[str, int] = msgspec.to_builtins(usage)
    return {name: count for name, count in counts.items() if count or name in ("input", "output")}


def _issue(issue: Issue) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(issue)
    return {name: value for name, value in fields.items() if value != 0}


# Reading.


class _Counts(Usage, forbid_unknown_fields=True):
    pass


class _Cut(Struct):
    name: str
    arguments: str
    id: str | None = None
    namespace: str | None = None
    custom: bool = False


class _Told(Struct):
    id: str | None = None
    model: str | None = None
    finish_reason: str | None = None
    stop_sequence: str | None = None
    usage: _Counts | None = None
    items: int | None = None
    continues: bool = False
    issues: list[Issue] = []
    logprobs: dict[int, list[TokenLogprob]] = {}
    raw: str | None = None
    cut: _Cut | None = None
    origin: str | UnsetType | None = UNSET


NAMED = frozenset({*_Told.__struct_fields__, "x"})


def exchange_of(request: Request) -> Exchange:
    """The exchange that an archive holds, which was read as one conversation. Raises InvalidTranscript."""
    rest = dict(request.archived)
    said = rest.pop(RESPONSE, None)
    if said is None:
        remedy = "what a model wrote is read by `turnscript read`"
        raise _malformed(f"the transcript holds no answer: its metadata has no 'response'; {remedy}")
    try:
        fields = read_object(said)
        hidden = read_object(fields.pop("x", Json(b"{}")))
        known = {key: value for key, value in fields.items() if key in NAMED}
        told = msgspec.json.decode(msgspec.json.encode(known), type=_Told)
    except (msgspec.ValidationError, InvalidRequest) as error:
        raise _malformed(f"what the metadata says of the answer is malformed: {error}") from None
    items = request.items
    count = _last_said(items) if told.items is None else told.items
    if not 0 <= count <= len(items):
        raise _malformed(f"the answer cannot have {count} of the {len(items)} items of the transcript")
    asked, answer = items[: len(items) - count], items[len(items) - count :]
    if told.continues and asked:
        asked[-1] = replace(asked[-1], open=True)
    response = Response(
        items=answer,
        finish_reason=told.finish_reason,
        stop_sequence=told.stop_sequence,
        usage=Usage(**msgspec.structs.asdict(told.usage)) if told.usage is not None else None,
        id=told.id,
        model=told.model,
        issues=told.issues,
        raw=told.raw,
        extra={key: value for key, value in fields.items() if key not in NAMED} | hidden,
        origin=request.origin if told.origin is UNSET else told.origin,
        logprobs=told.logprobs,
        cut=None if told.cut is None else ToolCall(**msgspec.structs.asdict(told.cut), open=True),
    )
    return Exchange(replace(request, conversation=Conversation(asked, request.tools), archived=rest), response)


def _malformed(message: str) -> InvalidTranscript:
    return InvalidTranscript(message, line=1, column=1, expected="metadata with a 'response'")


def _last_said(items: Sequence[Item]) -> int:
    """How many items at the end are what the model said."""
    count = 0
    for item in reversed(items):
        if not isinstance(item, _MODEL) or (isinstance(item, Opaque) and item.role == _USER):
            break
        count += 1
    return count
