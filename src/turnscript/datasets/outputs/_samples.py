"""Owns what writers and readers of samples share: ids checked against their type, batches cut and put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from turnscript.core.errors import InvalidInput
from turnscript.datasets.output import Batch, OutputFacts

Sample = tuple[list[int], list[int], list[int], list[str]]
"""Ids, weights, starts and sources."""
READ = 1 << 20
"""About how many tokens are read at once."""
LABELLED = 'row["labels"] = [id if weight else -100 for id, weight in zip(row["input_ids"], row["loss_weight"])]'
"""Trainers that are made with `transformers` know a mask as labels, of which those that are -100 are not learned."""
NARROW = 1 << 16
"""How many ids two bytes can tell apart."""


def check_ids(batch: Batch, facts: OutputFacts) -> None:
    """Raise InvalidInput if an id is not one of the tokenizer's, naming the row."""
    if not len(batch.ids) or int(batch.ids.max()) < facts.size:
        return
    place = int(np.argmax(batch.ids >= facts.size))
    document = int(np.searchsorted(document_starts(batch), place, side="right")) - 1
    message = (
        f"{batch.sources[document]}: the token id {int(batch.ids[place])} is not below {facts.size}, the size that the "
        "tokenizer gave; use the tokenizer of the model, or one that says its true size"
    )
    raise InvalidInput(message, expected=f"ids below {facts.size}", got=str(int(batch.ids[place])))


def document_starts(batch: Batch) -> NDArray[np.int64]:
    """Return where each document begins in the batch's ids."""
    begins = np.cumsum(batch.lengths) - batch.lengths
    starts: NDArray[np.int64] = batch.starts + np.repeat(begins, batch.documents)
    return starts


def each(batch: Batch) -> Iterator[tuple[list[int], list[int], list[int], Sequence[str]]]:
    """Give every sample as ids, weights, starts and sources. Converting all at once is faster than one by one."""
    ids, weights, starts = batch.ids.tolist(), batch.weights.tolist(), batch.starts.tolist()
    at = document = 0
    for length, count in zip(batch.lengths.tolist(), batch.documents.tolist(), strict=True):
        end, last = at + length, document + count
        yield ids[at:end], weights[at:end], starts[document:last], batch.sources[document:last]
        at, document = end, last


def batch_of(rows: Sequence[Sample]) -> Batch:
    """Return the batch of such samples."""
    return Batch(
        np.array([one for row in rows for one in row[0]], dtype=np.uint32),
        np.array([one for row in rows for one in row[1]], dtype=np.uint8),
        np.array([len(row[0]) for row in rows], dtype=np.int64),
        np.array([one for row in rows for one in row[2]], dtype=np.int64),
        np.array([len(row[2]) for row in rows], dtype=np.int64),
        [one for row in rows for one in row[3]],
    )
