"""Owns what a server of this API does beside answering: counts, models, and answers that are kept and gone on from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw as RawJson
from msgspec.structs import replace

from turnscript.apis.openai_responses.client_calls import settle_client_items
from turnscript.apis.openai_responses.client_tools import as_function
from turnscript.apis.openai_responses.compaction import COMPACTING, UPDATE
from turnscript.apis.openai_responses.declared import name_joined
from turnscript.apis.openai_responses.diagnostics import DIAGNOSING
from turnscript.apis.openai_responses.errors import failure_of, flat_error
from turnscript.apis.openai_responses.listed import whole, with_id
from turnscript.apis.openai_responses.reading import read_items
from turnscript.apis.openai_responses.slots import CLIENT_OUTPUTS, INSTRUCTIONS, INSTRUCTIONS_LIST
from turnscript.apis.serving import EffortChange, Serving, Stored, unasked
from turnscript.apis.shared.model_lists import model_body, model_list
from turnscript.core.conversation import Item, Opaque, Request, Thinking
from turnscript.core.errors import InvalidRequest, TurnscriptError
from turnscript.core.json_text import NULL, Json, plain, read_list, read_object
from turnscript.core.message_groups import slot_of
from turnscript.core.sse import frame
from turnscript.core.wire import mismatch

REFERENCE = "item_reference"
SEALS = "reasoning.encrypted_content"

_encode = msgspec.json.Encoder(decimal_format="number").encode


def _count(tokens: int) -> bytes:
    return _encode({"object": "response.input_tokens", "input_tokens": tokens})


# What a request asks of the store.


def _asks(request: Request) -> bool:
    return request.settings.store is not False


def _detached(request: Request) -> bool:
    said = request.extra.get("background")
    value = None if said is None or said == NULL else plain(said)
    if said is not None and value is not None and not isinstance(value, bool):
        raise mismatch(said, "$.background", "true or false")
    return value is True


def _previous(request: Request) -> str | None:
    value = request.extra.get("previous_response_id")
    if value is None or bytes(value) == b"null":
        return None
    previous = plain(value)
    if not isinstance(previous, str):
        raise mismatch(value, "$.previous_response_id", "a string or null")
    return previous


def _references(request: Request) -> dict[int, str]:
    items = request.items
    kinds = set(map(type, items))
    if Opaque not in kinds and Thinking not in kinds:
        return {}
    named: dict[int, str] = {}
    for at, item in enumerate(items):
        if isinstance(item, Opaque) and item.type == REFERENCE:
            named[at] = _id_of(item)
        elif isinstance(item, Thinking) and item.id and not (item.content or item.encrypted):
            named[at] = item.id
    return named


def _id_of(reference: Opaque) -> str:
    value = read_object(reference.value).get("id")
    id_ = plain(value) if value is not None else None
    if not isinstance(id_, str):
        raise InvalidRequest("a reference names an item", path=f"{reference.at}.id", expected="the id of an item")
    return id_


def _refusal(request: Request) -> InvalidRequest | None:
    """Members that stand for something this server does not keep. Ignored, the model would answer without it."""
    for key, what in (("conversation", "conversations are not kept"), ("prompt", "prompt templates are not kept")):
        value = request.extra.get(key)
        if value is not None and bytes(value) != b"null":
            message = f"{what} here; send the items themselves, or previous_response_id"
            return InvalidRequest(message, path=f"$.{key}", expected="no such member")
    return None


def _unasked(request: Request) -> InvalidRequest | None:
    """Neither input nor instructions, and no answer to go on from."""
    return unasked("$.input", "item") if not request.items and _previous(request) is None else None


def _seals(request: Request) -> bool:
    said = request.extra.get("include")
    include = None if said is None else plain(said)
    return isinstance(include, list) and SEALS in include


# Items as they are kept.


def _inputs(body: bytes, response_id: str, named: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    value = read_object(body).get("input")
    if value is None or bytes(value) == b"null":
        return []
    if bytes(value)[:1] == b'"':
        text = {"type": "input_text", "text": value}
        items: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": [text]}]
    else:
        items = [whole(_meant(read_object(item), named)) for item in read_list(value)]
    own = response_id.partition("_")[2] or response_id
    return [_named(with_id(item, f"{own}_{index}")) for index, item in enumerate(items)]


def _named(item: dict[str, Any]) -> tuple[str, bytes]:
    id_ = item["id"]
    return (id_ if isinstance(id_, str) else str(plain(id_))), _encode(item)


def _meant(item: dict[str, Json], named: Mapping[str, bytes]) -> dict[str, Json]:
    """The item itself, where there is only its id, or of a thought its id and summary. Kept as an id, it would be lost
    with the one answer that has it."""
    kind = plain(item["type"]) if "type" in item else None
    if kind == "reasoning":
        if any(item.get(member, NULL) not in (NULL, b"[]", b'""') for member in ("content", "encrypted_content")):
            return item
    elif kind != REFERENCE and (kind is not None or "role" in item):
        return item
    found = named.get(str(plain(item["id"]))) if "id" in item else None
    return item if found is None else read_object(found)


def _outputs(body: bytes) -> list[tuple[str, bytes]]:
    value = read_object(body).get("output")
    items = read_list(value) if value is not None else []
    return [(str(plain(read_object(item)["id"])), bytes(item)) for item in items]


def _join(request: Request, items: Sequence[bytes]) -> None:
    before = read_items([RawJson(item) for item in items], "$.previous_response_id")
    name_joined(request, before)
    answered = any(slot_of(item) in CLIENT_OUTPUTS for item in request.items)
    slots = (INSTRUCTIONS, INSTRUCTIONS_LIST)
    start = next((index for index, item in enumerate(request.items) if slot_of(item) not in slots), len(request.items))
    request.items[start:start] = before
    if answered:
        settle_client_items(request.items)


def _resolve(request: Request, index: int, item: bytes) -> None:
    at = request.items[index].at
    found = read_items([RawJson(item)], at.rpartition("[")[0] or at)
    name_joined(request, found)
    request.items[index : index + 1] = found


def _page(items: Sequence[bytes], more: bool) -> bytes:
    ids = [plain(read_object(item)["id"]) for item in (*items[:1], *items[-1:])]
    page: dict[str, Any] = {"object": "list", "data": [RawJson(item) for item in items], "has_more": more}
    page |= {"first_id": ids[0] if ids else None, "last_id": ids[-1] if ids else None}
    return _encode(page)


def _deleted(id_: str) -> bytes:
    return _encode({"id": id_, "object": "response", "deleted": True})


def _failed(body: bytes, error: TurnscriptError) -> bytes:
    return _encode(read_object(body) | {"status": "failed", "error": failure_of(error)})


def _left(error: TurnscriptError, number: int) -> bytes:
    """Not `response.failed`: the response has not failed."""
    return frame(_encode({"type": "error", "sequence_number": number, **flat_error(error)}), "error")


def _with_status(body: bytes, status: str) -> bytes:
    return _encode(read_object(body) | {"status": RawJson(_encode(status))})


def _effort(item: Item) -> EffortChange | None:
    """What an update of the configuration says of it."""
    if not isinstance(item, Opaque) or item.type != UPDATE:
        return None
    members = read_object(item.value)
    reasoning = members.pop("reasoning", None)
    value = plain(reasoning) if reasoning is not None else None
    said = value if isinstance(value, dict) else {}
    effort = said.get("effort")
    if not isinstance(effort, str):
        return None
    more = len(said) > 1 or not members.keys() <= {"type", "id"}
    return EffortChange(effort, replace(item, value=Json(_encode(members))) if more else None)


SERVING = Serving(
    models=model_list,
    model=model_body,
    id_prefix="resp_",
    count_path="/v1/responses/input_tokens",
    count=_count,
    stored=Stored(
        asks=_asks,
        detached=_detached,
        previous=_previous,
        references=_references,
        inputs=_inputs,
        outputs=_outputs,
        join=_join,
        resolve=_resolve,
        page=_page,
        deleted=_deleted,
        failed=_failed,
        left=_left,
        with_status=_with_status,
    ),
    compacting=COMPACTING,
    refusal=_refusal,
    unasked=_unasked,
    effort=_effort,
    as_function=as_function,
    seals=_seals,
    diagnosing=DIAGNOSING,
)
