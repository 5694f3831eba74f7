r"""Owns binidx: the memory-mapped token files that RWKV-LM and Megatron-LM train on, with a loss mask beside them.

    train.bin            the ids of all samples behind one another, little endian, two bytes each
    train.idx            where each sample begins
    train.mask.bin       the weight of each id, one byte
    train.mask.idx       as train.idx, for one byte an id
    train.sources.jsonl  the row that each sample came from

The index: `MMIDIDX\0\0`, the version 1 (u64), the code of the type (u8), the number n of samples (u64) and n + 1
(u64); then n sizes in tokens (i32), n offsets in bytes (i64), and the numbers 0 to n (i64). All are little endian. The
mask has the same layout, so whatever reads the ids at some place reads their weights at the same place. Its type is
unsigned bytes (code 1).

The ids are unsigned shorts (code 8) while the tokenizer has no more than 65,536. Some writers go over to four bytes at
65,500 already, which is twice the disk for the RWKV vocabulary. Readers take the type from the index, so there is no
need to. A larger tokenizer gets signed integers (code 4).

A line of the sources is the JSON of a string, or `[0,"a.jsonl:1",812,"a.jsonl:9"]` where a sample has several
documents: where each begins, and its row.
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.datasets.output import Batch, Output, OutputFacts, OutputWriter
from turnscript.datasets.outputs._samples import NARROW, READ, check_ids
from turnscript.datasets.shardfiles import Unfinished, sync_folder

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
MASK = ".mask"
SOURCES = ".sources.jsonl"
_HEADER = struct.Struct("<QBQQ")
_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 4: np.dtype("<i4"), 8: np.dtype("<u2")}
_MASK_CODE, _WIDE_CODE, _NARROW_CODE = 1, 4, 8
_LONGEST = (1 << 31) - 1
_BLOCK = 1 << 16


class BinIdx(Output):
    """`<stem>.bin` and `<stem>.idx`, and the same of the mask."""

    name = "binidx"
    title = "binidx: .bin and .idx as RWKV-LM and Megatron-LM read them, and the loss mask in the same layout"

    def open(self, folder: Path, stem: str, facts: OutputFacts) -> OutputWriter:
        if facts.size > _LONGEST + 1:
            message = f"binidx holds ids up to {_LONGEST}, and the tokenizer has {facts.size} of them"
            raise Unsupported("so many ids", self.name, message)
        return _Writer(folder, stem, facts)

    def read(self, folder: Path, stem: str) -> Iterator[Batch]:
        ids, weights = Reader(folder / stem), Reader(folder / f"{stem}{MASK}")
        if weights.code != _MASK_CODE or ids.count != weights.count:
            raise _broken(f"{stem}{MASK}.idx", f"it is no mask of {stem}.idx")
        with (
            _opened(ids.bin) as ids_file,
            _opened(weights.bin) as weights_file,
            _opened(folder / f"{stem}{SOURCES}") as lines,
        ):
            for sizes, other in zip(ids.sizes(), weights.sizes(), strict=True):
                if not np.array_equal(sizes, other):
                    raise _broken(f"{stem}{MASK}.idx", f"its sizes are not those of {stem}.idx")
                for some in _in_blocks(sizes):
                    tokens = int(some.sum())
                    starts, documents, sources = _sources(lines, len(some))
                    yield Batch(
                        ids.values(ids_file, tokens).astype(np.uint32),
                        weights.values(weights_file, tokens),
                        some.astype(np.int64),
                        starts,
                        documents,
                        sources,
                    )
            if lines.read(1):
                raise _broken(lines.name, "it has more lines than there are samples")

    def notes(self, facts: OutputFacts) -> list[str]:
        if facts.size <= NARROW:
            return []
        return [f"the tokenizer has {facts.size} ids, more than {NARROW}: each takes four bytes (type code 4), not two"]


class _Writer(OutputWriter):
    def __init__(self, folder: Path, stem: str, facts: OutputFacts) -> None:
        self._folder = folder
        self._facts = facts
        self._code = _NARROW_CODE if facts.size <= NARROW else _WIDE_CODE
        self._names = [f"{stem}{suffix}" for suffix in (".bin", ".idx", f"{MASK}.bin", f"{MASK}.idx", SOURCES)]
        self._files: list[Unfinished] = []
        try:
            for name in self._names:
                self._files.append(Unfinished(folder / name))
            # The index begins with how many samples there are, so their sizes wait on the disk, not in memory.
            self._sizes: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (closed by close or discard)
        except OSError:
            for file in self._files:
                file.discard()
            raise
        self._count = 0

    def write(self, batch: Batch) -> None:
        check_ids(batch, self._facts)
        if len(batch.lengths) and int(batch.lengths.max()) > _LONGEST:
            message = f"a sample of {int(batch.lengths.max())} tokens is longer than {_LONGEST}; cut long rows"
            raise InvalidInput(message, expected=f"at most {_LONGEST} tokens")
        ids, _, weights, _, sources = self._files
        ids.write(batch.ids.astype(_TYPES[self._code]).tobytes())
        weights.write(batch.weights.tobytes())
        sources.write(_source_lines(batch))
        self._sizes.write(batch.lengths.astype("<i4").tobytes())
        self._count += len(batch.lengths)

    def close(self) -> list[str]:
        self._write_index(self._files[1], self._code)
        self._write_index(self._files[3], _MASK_CODE)
        self._sizes.close()
        for file in self._files:
            file.publish()
        sync_folder(self._folder)
        return list(self._names)

    def discard(self) -> None:
        self._sizes.close()
        for file in self._files:
            file.discard()

    def _write_index(self, file: Unfinished, code: int) -> None:
        file.write(MAGIC + _HEADER.pack(VERSION, code, self._count, self._count + 1))
        for block in self._blocks():
            file.write(block.tobytes())
        offset = 0
        for block in self._blocks():
            ends = np.cumsum(block, dtype=np.int64) * _TYPES[code].itemsize + offset
            file.write(np.concatenate([[offset], ends[:-1]]).astype("<i8").tobytes())
            offset = int(ends[-1])
        for first in range(0, self._count + 1, _BLOCK):
            file.write(np.arange(first, min(first + _BLOCK, self._count + 1), dtype="<i8").tobytes())

    def _blocks(self) -> Iterator[NDArray[np.int32]]:
        self._sizes.seek(0)
        while block := self._sizes.read(4 * _BLOCK):
            yield np.frombuffer(block, dtype="<i4")


class Reader:
    """The files of one stem, read a block at a time. Raises InvalidInput where they are not as they should be."""

    def __init__(self, stem: Path) -> None:
        self.bin = stem.with_name(f"{stem.name}.bin")
        self.idx = stem.with_name(f"{stem.name}.idx")
        with _opened(self.idx) as file:
            head = file.read(len(MAGIC) + _HEADER.size)
        if len(head) < len(MAGIC) + _HEADER.size or not head.startswith(MAGIC):
            raise _broken(self.idx.name, "it does not begin as an index does")
        version, self.code, self.count, borders = _HEADER.unpack(head[len(MAGIC) :])
        if version != VERSION or self.code not in _TYPES or borders != self.count + 1:
            raise _broken(self.idx.name, "its header is none that turnscript writes")
        expected = len(head) + 4 * self.count + 8 * self.count + 8 * borders
        if self.idx.stat().st_size != expected:
            raise _broken(self.idx.name, f"it should have {expected} bytes for {self.count} samples")
        self._type = _TYPES[self.code]

    def sizes(self) -> Iterator[NDArray[np.int32]]:
        """Give the sizes of the samples, some at a time. Checks the offsets and borders on the way."""
        begin = len(MAGIC) + _HEADER.size
        offset = 0
        with _opened(self.idx) as file:
            for first in range(0, self.count, _BLOCK):
                count = min(_BLOCK, self.count - first)
                sizes = _numbers(file, begin + 4 * first, count, "<i4")
                offsets = _numbers(file, begin + 4 * self.count + 8 * first, count, "<i8")
                borders = _numbers(file, begin + 12 * self.count + 8 * first, count + 1, "<i8")
                ends = np.cumsum(sizes, dtype=np.int64) * self._type.itemsize + offset
                starts = np.concatenate([[offset], ends[:-1]])
                if (sizes < 0).any() or not np.array_equal(offsets, starts):
                    raise _broken(self.idx.name, f"the offsets from sample {first} on do not fit the sizes")
                if not np.array_equal(borders, np.arange(first, first + count + 1)):
                    raise _broken(self.idx.name, f"the borders from sample {first} on do not count the samples")
                offset = int(ends[-1])
                yield sizes
        if self.bin.stat().st_size != offset:
            raise _broken(self.bin.name, f"it should have {offset} bytes")

    def values(self, file: IO[bytes], count: int) -> NDArray[Any]:
        """Return the next numbers of the opened `bin`."""
        found: NDArray[Any] = np.fromfile(file, dtype=self._type, count=count)
        if len(found) < count:
            raise _broken(self.bin.name, "it ends too early")
        return found


def _source_lines(batch: Batch) -> bytes:
    lines: list[object] = []
    document = 0
    starts = batch.starts.tolist()
    for count in batch.documents.tolist():
        last = document + count
        if count == 1 and not starts[document]:
            lines.append(batch.sources[document])
        else:
            pairs = zip(starts[document:last], batch.sources[document:last], strict=True)
            lines.append([one for pair in pairs for one in pair])
        document = last
    return _encode_lines(lines)


_encode_lines = msgspec.json.Encoder().encode_lines


def _sources(lines: IO[bytes], count: int) -> tuple[NDArray[np.int64], NDArray[np.int64], list[str]]:
    """Return the starts, the numbers of documents and the sources of the next samples."""
    starts: list[int] = []
    documents: list[int] = []
    sources: list[str] = []
    for _ in range(count):
        line = lines.readline()
        try:
            found = _decode_sources(line)
            if isinstance(found, str):
                starts.append(0)
                sources.append(found)
                documents.append(1)
                continue
            pairs = list(found)
            starts += msgspec.convert(pairs[::2], list[_Start])
            sources += msgspec.convert(pairs[1::2], list[str])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _broken(lines.name, f"{line[:40]!r} is no line of sources: {error}") from None
        documents.append(len(pairs) // 2)
    if len(starts) != len(sources):
        raise _broken(lines.name, "a document has no source")
    return np.array(starts, dtype=np.int64), np.array(documents, dtype=np.int64), sources


_Start = Annotated[int, msgspec.Meta(ge=0, le=_LONGEST)]
_decode_sources = msgspec.json.Decoder(str | list[int | str]).decode


def _in_blocks(sizes: NDArray[np.int32]) -> Iterator[NDArray[np.int32]]:
    """Give sizes by about READ tokens."""
    totals = np.cumsum(sizes, dtype=np.int64)
    first, done = 0, 0
    while first < len(sizes):
        last = max(int(np.searchsorted(totals, done + READ, side="right")), first + 1)
        yield sizes[first:last]
        first, done = last, int(totals[last - 1])


def _numbers(file: IO[bytes], at: int, count: int, kind: str) -> NDArray[Any]:
    file.seek(at)
    return np.frombuffer(file.read(count * np.dtype(kind).itemsize), dtype=kind)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise _broken(path.name, str(error.strerror)) from None


def _broken(name: str, why: str) -> InvalidInput:
    name = Path(name).name
    return InvalidInput(f"{name} cannot be read: {why}; build the files again", expected="as it was written")


OUTPUTS = (BinIdx(),)
