"""Owns the contract of an output: samples in their final order, written as files that a trainer reads.

Samples come in batches, flat: all ids behind one another, and how long each sample is. A writer keeps no more than a
batch in memory, and its bytes do not depend on how the samples were batched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray


class OutputFacts(Struct, frozen=True):
    """What holds for all samples.

    `size`: how many ids there are. `end`: the id behind each document, if there is one; it is among the ids of a sample
    already. `scale`: the weight byte that stands for 1. `window`: how many tokens every sample has, 0 if they differ.
    """

    size: int
    end: int | None
    scale: int = 1
    window: int = 0


class Batch(NamedTuple):
    """Samples in order. `ids` and `weights` are those of all of them, `lengths` the tokens of each.

    `starts`: of every document, where it begins in its sample, flat; `documents`: how many each sample has. `sources`:
    of every document, the row it came from, as `file:number`, and `file:number#2` for the second example of a row.

    A sample without packing has one document, at 0. A window that begins in the middle of a document has the rest of
    it as its first one, at 0 and from the same row.

    `chats`, if an output holds conversations: of every document, what reads its own from where it is kept, as JSON
    (`chat_writing`); None for one that is no whole conversation. It is called when it is needed, because a conversation
    may be much longer than its tokens.
    """

    ids: NDArray[np.uint32]
    weights: NDArray[np.uint8]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    documents: NDArray[np.int64]
    sources: Sequence[str]
    chats: Sequence[Callable[[], bytes] | None] = ()


class OutputWriter(ABC):
    """Writes samples. Files appear under their final names only when `close` is called; `discard` removes them."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write some more samples. Raises InvalidInput for an id that the output cannot hold."""

    @abstractmethod
    def close(self) -> list[str]:
        """Finish the files once everything was written. Returns their names in the folder."""

    @abstractmethod
    def discard(self) -> None:
        """Leave nothing behind, because the job failed."""


class Output(ABC):
    """A kind of files. Modules of `turnscript.datasets.outputs` end in `OUTPUTS = (...)`.

    `chats`: whether it holds conversations beside their tokens. `labelled`: how a trainer that takes its samples names
    the mask, as Python that adds it to a `row`; empty where no trainer expects one there.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    chats: ClassVar[bool] = False
    labelled: ClassVar[str] = ""

    @abstractmethod
    def open(self, folder: Path, stem: str, facts: OutputFacts) -> OutputWriter:
        """Return a writer of files `<stem>...` in the folder. Raises Unsupported where it cannot hold the ids."""

    @abstractmethod
    def read(self, folder: Path, stem: str) -> Iterator[Batch]:
        """Give what was written, in order, a bounded number of samples at a time; they share no memory with the files.

        Raises InvalidInput with the file where one is not as it was written.
        """

    def notes(self, facts: OutputFacts) -> list[str]:
        """Return what people should know of the files, a sentence each."""
        return []
