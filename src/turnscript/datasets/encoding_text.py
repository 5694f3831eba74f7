"""Owns the mode `text`: a whole text as a server would tokenize it, and the mask put over its tokens by byte offsets.

A token counts if it begins in a trained stretch. So one that straddles the end of a stretch is trained, and one that
straddles its beginning is not. All rows of a batch lie behind one another, and no loop goes over tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from turnscript.datasets.drafts import Draft
from turnscript.datasets.problems import BadRow, Problem, problem_of
from turnscript.datasets.tokenizer import Ends, Ids, Tokenizer


class Flat(NamedTuple):
    """The tokens of several rows behind one another. `offsets`: where each row begins, and behind the last one.

    `straddling`: of each row, how many tokens lie across a border of what is trained.
    """

    ids: Ids
    weights: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    straddling: Sequence[int]


def encode_texts(drafts: Sequence[Draft], tokenizer: Tokenizer, end: int | None) -> tuple[Flat, dict[int, Problem]]:
    """Return drafts as tokens, with the problems of those without a mask, by position; they have a row, too."""
    ids, counts = array("I"), []
    ended = end is not None
    for row in _encoded(drafts, tokenizer):
        ids.fromlist(row)
        if end is not None:
            ids.append(end)
        counts.append(len(row) + ended)
    flat = np.frombuffer(ids, np.uint32)
    offsets = np.zeros(len(drafts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    # The end of a document is given one byte, so that it lies in no other token's place.
    lengths = np.array([draft.size + ended for draft in drafts], np.int64)
    rows = _Rows(drafts, offsets, lengths)
    starts, problems = _starts(rows, flat, tokenizer, ended)
    weights, straddling = _project(rows, starts, ended)
    return Flat(flat, weights, offsets, straddling), problems


def _encoded(drafts: Sequence[Draft], tokenizer: Tokenizer) -> Iterator[list[int]]:
    """Give the ids of each draft; of what a model writes behind a prompt by themselves, as it will write them."""
    alone = tokenizer.lengths is not None and not tokenizer.spaced
    places = [draft.apart if alone else 0 for draft in drafts]
    if not any(places):
        yield from tokenizer.each([draft.text for draft in drafts])
        return
    halves = [(draft.text[:place], draft.text[place:]) for draft, place in zip(drafts, places, strict=True)]
    found = tokenizer.each([half for both in halves for half in both])
    for begun in found:
        yield begun + next(found)


class _Rows(NamedTuple):
    """Rows, where the ids of each begin, and how many bytes it has."""

    drafts: Sequence[Draft]
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]


def _starts(rows: _Rows, flat: Ids, tokenizer: Tokenizer, ended: bool) -> tuple[Ends, dict[int, Problem]]:
    """Return where each token begins, in bytes of all rows, and where the last one ends.

    Where the ids do not tell, each row is asked for by itself. A row without a mask is given a byte for each token.
    """
    table, offsets, lengths = tokenizer.lengths, rows.offsets, rows.lengths
    if table is not None:
        known = table.take(flat)
        if ended:
            known[offsets[1:] - 1] = 1
        starts = _running(known)
        if np.array_equal(np.diff(starts[offsets]), lengths):
            return starts, {}
    sizes, problems = np.ones(len(flat), np.int64), {}
    for at, draft in enumerate(rows.drafts):
        try:
            ends = tokenizer.ends(draft.text, flat[offsets[at] : offsets[at + 1] - ended].tolist())
        except BadRow as error:
            problems[at] = problem_of(error)
            lengths[at] = offsets[at + 1] - offsets[at]
            continue
        sizes[offsets[at] : offsets[at] + len(ends)] = np.diff(ends, prepend=0)
    return _running(sizes), problems


def _running(sizes: NDArray[Any]) -> Ends:
    """Return the sums before each value, and of all."""
    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    return found


def _project(rows: _Rows, starts: Ends, ended: bool) -> tuple[NDArray[np.uint8], list[int]]:
    """Return the weight of each token, and how many of each row straddle."""
    drafts, offsets, lengths = rows.drafts, rows.offsets, rows.lengths
    bounds, values, counts = array("q"), bytearray(), []
    for draft in drafts:
        bounds.fromlist(draft.starts)
        values += bytes(draft.kept)
        if ended:
            bounds.append(draft.size)
            values.append(draft.end)
        counts.append(len(draft.starts) + ended)
    of_bound = np.repeat(np.arange(len(drafts)), counts)
    places = np.frombuffer(bounds, np.int64) + (np.cumsum(lengths) - lengths)[of_bound]
    first = np.searchsorted(starts[:-1], places, "left")
    first = np.clip(first, offsets[of_bound], offsets[of_bound + 1])
    across = (first > offsets[of_bound]) & (starts[first] > places)
    straddlers, at = np.unique(first[across], return_index=True)
    straddling: list[int] = [0] * len(drafts)
    if len(straddlers):
        straddling = np.bincount(of_bound[across][at], minlength=len(drafts)).tolist()
    total = np.append(first[1:], len(starts) - 1) - first
    return np.repeat(np.frombuffer(values, np.uint8), total), straddling
