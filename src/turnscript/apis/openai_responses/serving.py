"""Owns what a server of this API does beside answering: counts, models, and answers that are kept and gone on from.

Compaction is the wish for a summary instead of an answer. A client ends its input with a `compaction_trigger`, or sends
it to a path of its own; either way it gets a `compaction` item, whose `encrypted_content` it sends back in the place of
all that was said (spec apis A1, clients 4). For one that goes on by `previous_response_id` the server puts it there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw as RawJson
from msgspec.structs import replace

from turnscript.apis.openai_responses.client_tools import (
    CLIENT_OUTPUTS,
    as_function,
    settle_client_items,
)
from turnscript.apis.openai_responses.outcome import failure_of, flat_error
from turnscript.apis.openai_responses.reading import read_items
from turnscript.apis.openai_responses.tools import name_joined
from turnscript.apis.serving import CacheVerdict, Compacting, Diagnosing, EffortChange, Serving, Stored, unasked
from turnscript.apis.shared.model_lists import model_body, model_list
from turnscript.core.conversation import Item, Opaque, Request, System, Thinking, ToolsChange
from turnscript.core.errors import InvalidRequest, TurnscriptError
from turnscript.core.json_text import NULL, Json, json_of, plain, read_list, read_object
from turnscript.core.sse import frame
from turnscript.core.wire import mismatch

_EARLIER = "comparison_response_id"
_REASONS = {
    "model": "model_changed",
    "tools": "tools_changed",
    "instructions": "input_changed",  # there is no word of their own
    "input": "input_changed",
    "effort": "reasoning_effort_changed",
    "format": "text_format_changed",
    "verbosity": "verbosity_changed",
    "compacted": "context_compacted",
}


def _earlier(request: Request) -> str | None:
    said = request.settings.prompt_cache_options
    options = None if said is None else plain(said)
    earlier = options.get(_EARLIER) if isinstance(options, dict) else None
    return earlier if isinstance(earlier, str) else None


def _told(verdict: CacheVerdict) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "unavailable"}
    if verdict.cause == "":
        told = {"type": "cache_hit"}
    elif verdict.cause == "unknown":
        told = {"type": "comparison_response_not_found"}
    elif verdict.cause in _REASONS:
        told = {"type": "cache_miss", "reason": _REASONS[verdict.cause], "cache_missed_tokens": verdict.affected}
        told["comparison_reusable_tokens"] = verdict.reusable
    return {"prompt_cache_diagnostics": told}


DIAGNOSING = Diagnosing(wished=lambda request: _earlier(request) is not None, earlier=_earlier, told=_told)


def whole(item: dict[str, Json]) -> dict[str, Any]:
    """An item as lists of items show it: a message says its type, and its content is a list."""
    if "type" in item and plain(item["type"]) is not None and plain(item["type"]) != "message":
        return dict(item)
    if "role" not in item:
        return dict(item)
    whole: dict[str, Any] = {"type": "message"} | {key: value for key, value in item.items() if key != "type"}
    content = item.get("content")
    if content is not None and bytes(content)[:1] == b'"':
        kind = "output_text" if plain(item["role"]) == "assistant" else "input_text"
        part: dict[str, Any] = {"type": kind, "text": content}
        whole["content"] = [part | {"annotations": []} if kind == "output_text" else part]
    return whole


_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
}


def with_id(item: dict[str, Any], name: str) -> dict[str, Any]:
    """An item with an id, made of its kind and `name` where it has none, and with a status where its kind has one."""
    id_ = item.get("id")
    if id_ is not None and bytes(id_) != b"null":
        return item
    kind = item.get("type", "message")
    kind = plain(kind) if isinstance(kind, RawJson) else kind
    made = {"id": f"{_PREFIXES.get(str(kind), 'item')}_{name}"}
    status = {"status": "completed"} if kind in _PREFIXES and "status" not in item else {}
    return made | status | {key: value for key, value in item.items() if key != "id"}


TRIGGER, COMPACTION, UPDATE = "compaction_trigger", "compaction", "configuration_update"
_KEPT = ("id", "created_at", "usage")


def _wished(request: Request) -> bool:
    items = request.items
    return bool(items) and _is(items[-1], TRIGGER)


def _is(item: Item, type_: str) -> bool:
    return isinstance(item, Opaque) and item.type == type_


def _wish(request: Request) -> None:
    if not _wished(request):
        request.items.append(Opaque(type=TRIGGER, value=json_of({"type": TRIGGER})))
    request.settings.store = request.settings.stream = False
    request.extra = {key: value for key, value in request.extra.items() if key != "background"}


def _stays(items: Sequence[Item], index: int) -> list[int] | None:
    wish = index - 1
    while wish >= 0 and isinstance(items[wish], Thinking):
        wish -= 1
    if wish < 0 or not _is(items[wish], TRIGGER):
        return None
    before = enumerate(items[:wish])
    return [at for at, item in before if isinstance(item, System | ToolsChange) or _is(item, UPDATE)]


def _proof(item: Item) -> str | None:
    if not isinstance(item, Opaque) or item.type != COMPACTION:
        return None
    value = read_object(item.value).get("encrypted_content")
    proof = plain(value) if value is not None else None
    return proof if isinstance(proof, str) else None


def _item(name: str, seal: str) -> Item:
    value = {"id": f"cmp_{name}", "type": COMPACTION, "encrypted_content": seal}
    return Opaque(type=COMPACTION, value=json_of(value))


def _body(response: bytes) -> bytes:
    members = read_object(response)
    name = str(plain(members["id"])).partition("_")[2]
    items = [whole(read_object(item)) for item in read_list(members["output"])]
    told = {"output": [with_id(item, f"{name}_{index}") for index, item in enumerate(items)]}
    return msgspec.json.encode({"object": "response.compaction", **{key: members[key] for key in _KEPT}, **told})


COMPACTING = Compacting(
    path="/v1/responses/compact", body=_body, wished=_wished, wish=_wish, proof=_proof, stays=_stays, item=_item
)


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
    answered = any(item.slot in CLIENT_OUTPUTS for item in request.items)
    said = (index for index, item in enumerate(request.items) if not item.at.startswith("$.instructions"))
    start = next(said, len(request.items))
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
    needs=("model",),
)
