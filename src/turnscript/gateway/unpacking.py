"""Owns how much the seals of a request hold: a short one may unpack to a thousand times as much, and come often."""

from __future__ import annotations

from collections.abc import Iterator

from turnscript.apis.serving import Compacting
from turnscript.core.conversation import Opaque, Request, Thinking
from turnscript.core.sealed_thoughts import proofs
from turnscript.core.signatures import unpacked_size


def may_hold(request: Request) -> bool:
    """Whether a request has anything that may have a seal, which most have not."""
    kinds = set(map(type, request.conversation.items))
    return Thinking in kinds or Opaque in kinds


def held(request: Request, compacting: Compacting | None, most: int) -> int:
    """How many bytes the seals of a request unpack to, on thoughts and summaries. Of more than `most`, as many as it
    takes to know that."""
    size = 0
    for seal in _seals(request, compacting):
        size += unpacked_size(seal, most - size)
        if size > most:
            break
    return size


def _seals(request: Request, compacting: Compacting | None) -> Iterator[str]:
    yield from proofs(request.items)
    if compacting is not None:
        yield from (proof for item in request.items if (proof := compacting.proof(item)))
