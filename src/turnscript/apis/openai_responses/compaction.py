"""Owns compaction: the wish for a summary instead of an answer, the item that holds it, and the body of its endpoint.

A client ends its input with a `compaction_trigger`, or sends it to a path of its own; either way it gets a `compaction`
item, whose `encrypted_content` it sends back in the place of all that was said (spec apis A1, clients 4). For one that
goes on by `previous_response_id` the server puts it there.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnscript.apis.openai_responses.listed import whole, with_id
from turnscript.apis.serving import Compacting
from turnscript.core.conversation import Item, Opaque, Request, System, Thinking, ToolsChange
from turnscript.core.json_text import json_of, plain, read_list, read_object

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
