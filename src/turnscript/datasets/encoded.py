"""Owns encoding a conversation that is in memory, as a build would encode its row: for who trains without files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from turnscript.core.conversation import Request
from turnscript.core.errors import InvalidInput
from turnscript.core.losses import Loss
from turnscript.datasets.encoding import Encoder
from turnscript.datasets.explaining import Token
from turnscript.datasets.form import Example
from turnscript.datasets.outputs._samples import NARROW
from turnscript.datasets.plan import NONE, Plan, digest_of
from turnscript.datasets.preparation import encoder_of
from turnscript.datasets.problems import BadRow, Code, Problem
from turnscript.datasets.row_checks import check_items
from turnscript.datasets.rowsamples import RowSamples

_SUFFIX = "suffix"
"""The member of a bare prompt with what stands behind its answer."""


class Stretch(NamedTuple):
    """Neighbouring tokens of one item and weight, from `start` up to `end`.

    `item`: its position, -1 for what belongs to none. `kind`: that of the item, `end` for the token behind the
    document. `control`: they are literals of the format.
    """

    start: int
    end: int
    item: int
    kind: str
    control: bool
    weight: int


class Encoded(NamedTuple):
    """A conversation as tokens, as an output holds them, with what of it the format could not say."""

    ids: NDArray[np.uint16] | NDArray[np.uint32]
    weights: NDArray[np.uint8]
    losses: Sequence[Loss]
    spans: Sequence[Stretch]


def encode(plan: Plan, request: Request, weights: Mapping[int, float] | None = None) -> Encoded:
    """Return what `Plan.encode` gives."""
    if plan.expand != NONE:
        message = "a conversation becomes several samples by this plan; ask for all of them with `encode_all`"
        raise InvalidInput(message, path="$.expand", expected=NONE, got=plan.expand)
    return encode_all(plan, request, weights)[0]


def encode_all(plan: Plan, request: Request, weights: Mapping[int, float] | None = None) -> list[Encoded]:
    """Return what `Plan.encode_all` gives."""
    encoder = _encoder(digest_of(plan.row_facts()), msgspec.json.encode(plan))
    if bytes(request.extra.get(_SUFFIX, b"null")) not in (b"null", b'""'):
        raise BadRow(
            Code.FORM, "a sample has no place for what stands behind a hole; leave it out", path=f"$.{_SUFFIX}"
        )
    check_items(request.items)
    parts = RowSamples(encoder, plan).parts(Example(request, weights=dict(weights or {})))
    return [_encoded(encoder, plan.limit, part) for part in parts]


def _encoded(encoder: Encoder, limit: int | None, example: Example) -> Encoded:
    (found,) = encoder.encode([example])
    if isinstance(found, Problem):
        raise BadRow(found.code, found.message, path=found.pointer)
    if limit is not None and len(found.ids) > limit:
        raise BadRow(Code.TOO_LONG, f"it has {len(found.ids)} tokens, and a sample may have {limit}")
    ids = found.ids.astype(np.uint16) if encoder.tokenizer.size <= NARROW else found.ids
    return Encoded(ids, found.weights, found.losses, list(_stretches(encoder.explain(example))))


def _stretches(tokens: Sequence[Token]) -> Iterator[Stretch]:
    at = 0
    for key, group in itertools.groupby(tokens, lambda token: (token.item, token.kind, token.control, token.weight)):
        start, at = at, at + sum(1 for _ in group)
        yield Stretch(start, at, *key)


@lru_cache(maxsize=4)
def _encoder(_key: str, plan: bytes) -> Encoder:
    """Return the encoder of a plan. Making one takes longer than many conversations do."""
    return encoder_of(msgspec.json.decode(plan, type=Plan))
