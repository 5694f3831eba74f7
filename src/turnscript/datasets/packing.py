"""Owns packing: how documents become samples of one length, the window that a trainer reads.

    none        every document is a sample of its own
    bfd:4096    whole documents side by side, best fit first, in windows of 4,096 tokens; the rest is padding
    stream:4096 documents one behind another, cut every 4,096 tokens: windows cross the borders of documents

Documents come in their final order, and which window a document gets depends on nothing else. Best fit looks at 10,000
documents at a time, so that memory is bounded; that costs 0.05 % of room against looking at all of them. A document
that is cut is no whole conversation any more, so neither piece has one.

Free room is kept as one large integer whose bit `s` says that some window has `s` tokens left. The tightest window that
a document fits is then the lowest bit from its length on: a shift and an `and`, whatever the number of windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from turnscript.core.errors import InvalidInput
from turnscript.datasets.output import Batch, OutputFacts
from turnscript.datasets.packingnames import NONE, STREAM, Packing

Chat = Callable[[], bytes] | None
SEARCHED = 10_000
"""How many documents best fit looks at together."""
_SEARCHED_TOKENS = 1 << 24
_EMITTED = 1 << 22
_WIDTH = 4


def pack(batches: Iterable[Batch], packing: Packing, facts: OutputFacts) -> Iterator[Batch]:
    """Give the samples of documents. Each sample that comes in is one; `facts` tells the token of the padding.

    Raises InvalidInput for a document that is longer than a window where documents stay whole.
    """
    if packing.kind == NONE:
        return iter(batches)
    padding = facts.end if facts.end is not None else 0
    if packing.kind == STREAM:
        return _stream(batches, packing.window, padding)
    return _best_fit(batches, packing.window, padding)


def best_fit(lengths: Sequence[int], window: int) -> list[list[int]]:
    """Return positions of documents by window: the longest first, each where the least room is left.

    In a window, and among windows by their first one, documents keep their order.

    >>> best_fit([3, 6, 5, 2, 4], 10)
    [[0, 2, 3], [1, 4]]
    """
    windows: list[list[int]] = []
    room: list[list[int]] = [[] for _ in range(window + 1)]  # by tokens left, the windows that have them
    free = 0
    order = np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable")
    for position in order.tolist():
        length = lengths[position]
        fitting = free >> length
        if fitting:
            left = length + (fitting & -fitting).bit_length() - 1
            same = room[left]
            chosen = same.pop()
            if not same:
                free ^= 1 << left
            windows[chosen].append(position)
        else:
            left, chosen = window, len(windows)
            windows.append([position])
        left -= length
        if left:
            room[left].append(chosen)
            free |= 1 << left
    for members in windows:
        members.sort()
    windows.sort()
    return windows


class _Whole:
    """Documents that wait for a window, each as views of its bytes: joining these is faster than copying arrays."""

    def __init__(self) -> None:
        self.ids: list[memoryview] = []
        self.weights: list[memoryview] = []
        self.lengths: list[int] = []
        self.sources: list[str] = []
        self.chats: list[Chat] = []

    def add(self, batch: Batch, first: int, last: int, at: int) -> int:
        """Take documents `first` to before `last` of a batch, whose ids begin at `at`. Gives where they end."""
        ids, weights = batch.ids.data.cast("B"), batch.weights.data
        lengths = batch.lengths[first:last].tolist()
        for length in lengths:
            end = at + length
            self.ids.append(ids[at * _WIDTH : end * _WIDTH])
            self.weights.append(weights[at:end])
            at = end
        self.lengths += lengths
        self.sources += batch.sources[first:last]
        self.chats += batch.chats[first:last]
        return at


def _best_fit(batches: Iterable[Batch], window: int, padding: int) -> Iterator[Batch]:
    blank = np.full(window, padding, dtype=np.uint32).tobytes(), bytes(window)
    for waiting in _searched(batches, window):
        windows = best_fit(waiting.lengths, window)
        # As many windows at once as keep the copy small beside what waits.
        step = max(_EMITTED // window, 1)
        for first in range(0, len(windows), step):
            yield _filled(windows[first : first + step], waiting, blank)


def _searched(batches: Iterable[Batch], window: int) -> Iterator[_Whole]:
    """Give documents in groups of SEARCHED, or fewer if they are long."""
    waiting, tokens = _Whole(), 0
    for batch in batches:
        _refuse_long(batch, window)
        totals = np.cumsum(batch.lengths)
        first, at = 0, 0
        while first < len(batch.lengths):
            # The group ends with the document that makes it large enough, wherever batches begin.
            last = first + SEARCHED - len(waiting.lengths)
            enough = int(np.searchsorted(totals, at + _SEARCHED_TOKENS - tokens)) + 1
            last = min(last, enough, len(batch.lengths))
            end = waiting.add(batch, first, last, at)
            tokens += end - at
            first, at = last, end
            if len(waiting.lengths) == SEARCHED or tokens >= _SEARCHED_TOKENS:
                yield waiting
                waiting, tokens = _Whole(), 0
    if waiting.lengths:
        yield waiting


def _refuse_long(batch: Batch, window: int) -> None:
    if len(batch.lengths) and int(batch.lengths.max()) > window:
        place = int(np.argmax(batch.lengths > window))
        length, source = int(batch.lengths[place]), batch.sources[place]
        message = f"{source} has {length} tokens, more than a window of {window}; refuse or split long rows before"
        raise InvalidInput(message, expected=f"at most {window} tokens", got=f"{length} tokens")


def _filled(windows: list[list[int]], waiting: _Whole, blank: tuple[bytes, bytes]) -> Batch:
    """Return windows of documents; `blank` is one of padding alone, its ids and its weights."""
    ids: list[memoryview | bytes] = []
    weights: list[memoryview | bytes] = []
    starts: list[int] = []
    sources: list[str] = []
    chats: list[Chat] = []
    size = len(blank[1])
    for members in windows:
        at = 0
        for position in members:
            ids.append(waiting.ids[position])
            weights.append(waiting.weights[position])
            starts.append(at)
            sources.append(waiting.sources[position])
            if waiting.chats:
                chats.append(waiting.chats[position])
            at += waiting.lengths[position]
        if at < size:
            ids.append(blank[0][at * _WIDTH :])
            weights.append(blank[1][at:])
    return Batch(
        np.frombuffer(b"".join(ids), dtype=np.uint32),
        np.frombuffer(b"".join(weights), dtype=np.uint8),
        np.full(len(windows), size, dtype=np.int64),
        np.array(starts, dtype=np.int64),
        np.fromiter(map(len, windows), dtype=np.int64, count=len(windows)),
        sources,
        chats,
    )


class _Flat:
    """Documents that wait to be cut."""

    def __init__(self) -> None:
        self.ids: list[NDArray[np.uint32]] = []
        self.weights: list[NDArray[np.uint8]] = []
        self.lengths: list[int] = []
        self.sources: list[str] = []
        self.chats: list[Chat] = []

    def add(self, batch: Batch) -> None:
        """Take all documents of a batch."""
        self.ids.append(batch.ids)
        self.weights.append(batch.weights)
        self.lengths += batch.lengths.tolist()
        self.sources += batch.sources
        self.chats += batch.chats


def _joined(waiting: _Flat) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    return np.concatenate(waiting.ids), np.concatenate(waiting.weights)


def _stream(batches: Iterable[Batch], window: int, padding: int) -> Iterator[Batch]:
    """Give documents one behind another; what fills no window waits for more."""
    waiting, tokens = _Flat(), 0
    for batch in batches:
        waiting.add(batch)
        tokens += len(batch.ids)
        if tokens >= max(window, _EMITTED):
            whole = tokens - tokens % window
            yield _cut(waiting, whole, window)
            waiting = _rest(waiting, whole)
            tokens -= whole
    if not tokens:
        return
    whole = tokens - tokens % window
    if whole:
        yield _cut(waiting, whole, window)
        waiting = _rest(waiting, whole)
    if tokens > whole:
        yield _padded(waiting, window, padding)


def _cut(waiting: _Flat, whole: int, window: int) -> Batch:
    """Return the first `whole` tokens as windows. A piece begins where a document or a window does."""
    ids, weights = _joined(waiting)
    begins = np.cumsum(waiting.lengths) - waiting.lengths
    edges = np.arange(0, whole, window, dtype=np.int64)
    pieces = np.union1d(begins[begins < whole], edges)
    of = np.searchsorted(begins, pieces, side="right") - 1
    documents = np.bincount(pieces // window, minlength=len(edges)).astype(np.int64)
    sources = [waiting.sources[document] for document in of.tolist()]
    chats: list[Chat] = []
    if waiting.chats:
        ends = begins + waiting.lengths
        uncut = (np.bincount(of, minlength=len(ends)) == 1) & (ends <= whole)
        chats = [waiting.chats[document] if uncut[document] else None for document in of.tolist()]
    lengths = np.full(len(edges), window, dtype=np.int64)
    return Batch(ids[:whole], weights[:whole], lengths, pieces % window, documents, sources, chats)


def _rest(waiting: _Flat, whole: int) -> _Flat:
    """Return what comes behind the first `whole` tokens; the first of it may be the end of a document."""
    ids, weights = _joined(waiting)
    ends = np.cumsum(waiting.lengths)
    first = int(np.searchsorted(ends, whole, side="right"))
    rest = _Flat()
    rest.ids, rest.weights = [ids[whole:].copy()], [weights[whole:].copy()]
    rest.sources = waiting.sources[first:]
    rest.lengths = waiting.lengths[first:]
    rest.chats = waiting.chats[first:]
    if rest.lengths:
        left = int(ends[first]) - whole
        if rest.chats and left < rest.lengths[0]:
            rest.chats[0] = None
        rest.lengths[0] = left
    return rest


def _padded(waiting: _Flat, window: int, padding: int) -> Batch:
    ids, weights = _joined(waiting)
    missing = window - len(ids)
    ids = np.concatenate([ids, np.full(missing, padding, dtype=np.uint32)])
    weights = np.concatenate([weights, np.zeros(missing, dtype=np.uint8)])
    sizes = np.array(waiting.lengths, dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    documents = np.array([len(starts)], dtype=np.int64)
    return Batch(ids, weights, np.array([window], dtype=np.int64), starts, documents, waiting.sources, waiting.chats)
