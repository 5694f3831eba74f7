"""Owns Parquet: a sample a row, in columns that dataset libraries read without a schema.

    input_ids    list<uint16>, or list<uint32> where the tokenizer has more than 65,536 ids
    loss_weight  list<uint8>, as long as `input_ids`, 0 where nothing is learned
    doc_starts   list<int32>, where each document of the sample begins
    source       list<string>, the row that each document came from

The key `turnscript` of the file's metadata holds what is true of all samples, as JSON: the size and the end token of
the tokenizer, the weight that stands for 1, and the length of the windows.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.datasets.output import Batch, Output, OutputFacts, OutputWriter
from turnscript.datasets.outputs._samples import LABELLED, NARROW, check_ids
from turnscript.datasets.shardfiles import Unfinished, sync_folder

# A row group ends with the sample that makes it this large, so its bytes do not depend on how samples arrive.
GROUP_ROWS = 8192
GROUP_TOKENS = 1 << 22
_COLUMNS = ("input_ids", "loss_weight", "doc_starts", "source")
_WIDEST = 1 << 32


class Parquet(Output):
    """`<stem>.parquet`."""

    name = "parquet"
    title = "Parquet: input_ids, loss_weight, doc_starts and source"
    labelled = LABELLED

    def open(self, folder: Path, stem: str, facts: OutputFacts) -> OutputWriter:
        if facts.size > _WIDEST:
            message = f"Parquet files hold ids below {_WIDEST}, and the tokenizer has {facts.size}"
            raise Unsupported("so many ids", "Parquet", message)
        return _Writer(folder / f"{stem}.parquet", facts)

    def read(self, folder: Path, stem: str) -> Iterator[Batch]:
        pyarrow = _pyarrow()
        path = folder / f"{stem}.parquet"
        try:
            with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
                if tuple(file.schema_arrow.names) != _COLUMNS:
                    raise _broken(path, f"its columns are {', '.join(file.schema_arrow.names)}")
                if not all(pyarrow.types.is_list(kind) for kind in file.schema_arrow.types):
                    raise _broken(path, "its columns are not lists")
                for group in range(file.num_row_groups):
                    yield _batch(file.read_row_group(group).combine_chunks(), path)
        except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
            raise _broken(path, str(error)) from None


class _Writer(OutputWriter):
    def __init__(self, path: Path, facts: OutputFacts) -> None:
        self._arrow = _pyarrow()
        self._path = path
        self._facts = facts
        self._waiting: list[Batch] = []
        self._rows = self._tokens = 0
        arrow = self._arrow
        ids = arrow.uint16() if facts.size <= NARROW else arrow.uint32()
        kinds = (ids, arrow.uint8(), arrow.int32(), arrow.string())
        about = {"turnscript": msgspec.json.encode(facts)}
        self._schema = arrow.schema([(name, arrow.list_(kind)) for name, kind in zip(_COLUMNS, kinds, strict=True)])
        self._schema = self._schema.with_metadata(about)
        self._ids = np.dtype(np.uint16 if facts.size <= NARROW else np.uint32)
        self._file = Unfinished(path)
        # Dictionaries would hide from zstd what repeats: 1.4 bytes a token with them, 1.1 without.
        self._writer = arrow.parquet.ParquetWriter(
            _Sink(self._file),
            self._schema,
            compression="zstd",
            compression_level=3,
            use_dictionary=False,
            write_page_checksum=True,
        )

    def write(self, batch: Batch) -> None:
        check_ids(batch, self._facts)
        totals = np.cumsum(batch.lengths)
        first, at = 0, 0
        while first < len(batch.lengths):
            enough = int(np.searchsorted(totals, at + GROUP_TOKENS - self._tokens)) + 1
            last = min(first + GROUP_ROWS - self._rows, enough, len(batch.lengths))
            end = int(totals[last - 1])
            self._waiting.append(_part(batch, slice(first, last), slice(at, end)))
            self._rows += last - first
            self._tokens += end - at
            first, at = last, end
            if self._rows == GROUP_ROWS or self._tokens >= GROUP_TOKENS:
                self._flush()

    def close(self) -> list[str]:
        if self._rows:
            self._flush()
        self._writer.close()
        self._file.publish()
        sync_folder(self._path.parent)
        return [self._path.name]

    def discard(self) -> None:
        # Its end goes into the unfinished file, which is removed.
        if self._writer.is_open:
            self._writer.close()
        self._file.discard()

    def _flush(self) -> None:
        waiting, self._waiting, self._rows, self._tokens = self._waiting, [], 0, 0
        arrow = self._arrow
        lengths, documents = (np.concatenate([getattr(one, name) for one in waiting]) for name in _COUNTS)
        ids, weights, starts = (np.concatenate([getattr(one, name) for one in waiting]) for name in _VALUES)
        sources = arrow.array([source for one in waiting for source in one.sources], arrow.string())
        tokens, places = _offsets(lengths), _offsets(documents)
        columns = [
            arrow.ListArray.from_arrays(tokens, ids.astype(self._ids)),
            arrow.ListArray.from_arrays(tokens, weights),
            arrow.ListArray.from_arrays(places, starts.astype(np.int32)),
            arrow.ListArray.from_arrays(places, sources),
        ]
        table = arrow.Table.from_arrays(columns, schema=self._schema)
        self._writer.write_table(table, row_group_size=len(lengths))


_COUNTS = ("lengths", "documents")
_VALUES = ("ids", "weights", "starts")


class _Sink:
    """The file as pyarrow wants one."""

    def __init__(self, file: Unfinished) -> None:
        self._file = file
        self.closed = False

    def write(self, piece: bytes) -> int:
        self._file.write(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def _part(batch: Batch, samples: slice, tokens: slice) -> Batch:
    first = int(batch.documents[: samples.start].sum())
    places = slice(first, first + int(batch.documents[samples].sum()))
    return Batch(
        batch.ids[tokens],
        batch.weights[tokens],
        batch.lengths[samples],
        batch.starts[places],
        batch.documents[samples],
        batch.sources[places],
    )


def _offsets(counts: Any) -> Any:
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _batch(table: Any, path: Path) -> Batch:
    ids, weights, starts, sources = (table.column(name) for name in _COLUMNS)
    lengths, documents = _counts(ids), _counts(starts)
    if (_counts(weights) != lengths).any() or (_counts(sources) != documents).any():
        raise _broken(path, "its columns are not as long as each other")
    return Batch(
        _flat(ids).astype(np.uint32),
        _flat(weights).astype(np.uint8),
        lengths,
        _flat(starts).astype(np.int64),
        documents,
        [source for chunk in sources.chunks for source in chunk.flatten().to_pylist()],
    )


def _counts(column: Any) -> Any:
    return np.concatenate([np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks] or [[]]).astype(np.int64)


def _flat(column: Any) -> Any:
    return np.concatenate([chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks] or [[]])


def _broken(path: Path, why: str) -> InvalidInput:
    return InvalidInput(f"{path.name} cannot be read: {why}; build the files again", expected="as it was written")


def _pyarrow() -> Any:
    """Return pyarrow, imported when first used: it takes a third of a second, and is an extra."""
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ImportError:
        message = "Parquet files need pyarrow, which is not installed: pip install 'turnscript[parquet]'"
        raise Unsupported("Parquet files", "this installation", message) from None


OUTPUTS = (Parquet(),)
