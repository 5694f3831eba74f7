"""Owns what the tests of outputs and packing share: documents made up by Hypothesis, as batches of any size."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from turnscript.datasets.output import Batch, OutputFacts
from turnscript.datasets.output_registry import get_output

FACTS = OutputFacts(65536, 0)


class Document(NamedTuple):
    """One document: ids with their weights, the row it is from, and its conversation, if it has one."""

    ids: list[int]
    weights: list[int]
    source: str
    chat: bytes = b""


CHATS = [b"", b'{"messages":[{"role":"user","content":"\\u00e9"}],"tools":null}', b'{"messages":[{}],"tools":"[1]"}']
"""None, one whose text is spelled in an unusual way, and one with tools."""


def documents(size: int = 65536, longest: int = 12) -> st.SearchStrategy[list[Document]]:
    """Documents with ids below `size`, each ended by 0."""
    pair = st.tuples(st.integers(0, size - 1), st.integers(0, 255))
    pairs = st.lists(st.tuples(st.lists(pair, max_size=longest - 1), st.sampled_from(CHATS)), max_size=30)
    return pairs.map(
        lambda found: [
            Document([one for one, _ in some] + [0], [weight for _, weight in some] + [0], f"a é.jsonl:{at}", chat)
            for at, (some, chat) in enumerate(found, 1)
        ]
    )


def batch(found: Sequence[Document]) -> Batch:
    """Documents as samples of their own."""
    return Batch(
        np.array([one for document in found for one in document.ids], dtype=np.uint32),
        np.array([one for document in found for one in document.weights], dtype=np.uint8),
        np.array([len(document.ids) for document in found], dtype=np.int64),
        np.zeros(len(found), dtype=np.int64),
        np.ones(len(found), dtype=np.int64),
        [document.source for document in found],
        [partial(bytes, document.chat) if document.chat else None for document in found],
    )


def batches(found: Sequence[Document], size: int) -> Iterator[Batch]:
    """The same, so many at a time."""
    for first in range(0, len(found), size):
        yield batch(found[first : first + size])


def made(count: int, seed: int = 0, mean: float = 5.4) -> list[Document]:
    """Many documents with lengths as conversations have them: half below 220 tokens, some of thousands."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(mean, 1.2, count).astype(int), 2, 4096)
    return [
        Document(
            rng.integers(1, 65536, length).tolist(), rng.integers(0, 2, length).tolist(), f"a.jsonl:{at}", CHATS[at % 3]
        )
        for at, length in enumerate(lengths.tolist(), 1)
    ]


class Sample(NamedTuple):
    """One sample as it is in a file."""

    ids: list[int]
    weights: list[int]
    starts: list[int]
    sources: list[str]
    chats: list[bytes]


def samples(found: Iterator[Batch], *, chats: bool = False) -> list[Sample]:
    """The samples of batches, with their conversations if these are asked for."""
    result: list[Sample] = []
    for one in found:
        at = document = 0
        for length, count in zip(one.lengths.tolist(), one.documents.tolist(), strict=True):
            tokens, own = slice(at, at + length), slice(document, document + count)
            result.append(
                Sample(
                    one.ids[tokens].tolist(),
                    one.weights[tokens].tolist(),
                    one.starts[own].tolist(),
                    list(one.sources[own]),
                    [chat() if chat is not None else b"" for chat in one.chats[own]] if chats else [],
                )
            )
            at, document = at + length, document + count
        assert (len(one.ids), len(one.weights)) == (at, at)
        assert (len(one.starts), len(one.sources)) == (document, document)
    return result


def write(
    name: str, folder: Path, found: Iterator[Batch], facts: OutputFacts = FACTS, stem: str = "train"
) -> list[str]:
    """Files of an output."""
    writer = get_output(name).open(folder, stem, facts)
    for one in found:
        writer.write(one)
    return writer.close()


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
