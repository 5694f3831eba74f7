"""Owns Parquet files: their row groups, and their rows as JSON.

Memory holds a batch of rows, and of the file what the library reads for it. What a value becomes: see `columns`. This
module and that one need pyarrow, so only `parquet` imports them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from turnscript.core.errors import InvalidInput
from turnscript.datasets.files.columns import Unsayable, rows_of
from turnscript.datasets.files.rowbytes import Gathered, Rows, head, too_large, truncated
from turnscript.datasets.files.troubles import reading, unusable
from turnscript.datasets.problems import Problem
from turnscript.datasets.rows import RawRow, Readings

_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 1000
_PROBED = 16
_MARK = "no JSON"
"""What stands in an object for a value that JSON does not have."""


def group_sizes(path: str) -> list[int]:
    """Return the bytes of each row group, as they are before compression."""
    with _open(path) as table:
        return [table.metadata.row_group(number).total_byte_size for number in range(table.num_row_groups)]


def read_table(path: str, start: int, end: int, limit: int, counter: Rows) -> Iterator[RawRow]:
    """Give the rows of some row groups. A group that breaks gives one row with a problem for all that is lost of it."""
    with _open(path) as table:
        end = table.num_row_groups if end < 0 else end
        first = 0
        for group in range(start, end):
            yield from _group(table, path, group, first, limit, counter)
            first += table.metadata.row_group(group).num_rows
    counter.numbers = first


def read_table_whole(path: str, limit: int, counter: Rows) -> Iterator[RawRow]:
    """Give all rows of a table as one, each on a line of its own."""
    lines = Gathered(limit)
    problem = None
    for row in read_table(path, 0, -1, limit, counter):
        lines.add(b"\n" + row.data if lines.size else row.data)
        problem = problem or row.problem
        if lines.over:
            problem = too_large(limit, whole=True)
            break
    counter.numbers = min(lines.size, 1)
    if lines.size or problem:
        content = lines.bytes()
        yield RawRow(path, 1, -1, head(content, limit) if lines.over else content, problem)


def _open(path: str) -> Any:
    """Return the file, opened; its schema is one that JSON can say."""
    with reading(path):
        open(path, "rb").close()
        try:
            table = pq.ParquetFile(path, page_checksum_verification=True)
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:  # UTF-8: the names of columns
            if isinstance(error, OSError) and error.errno is not None:
                raise  # this is the disk, and not what is on it
            what = f"this is no whole Parquet file ({_first_line(error)})"
            raise unusable(path, what, "fetch or make it again") from error
    try:
        _refuse_doubles(path, table.schema_arrow)
    except InvalidInput:
        table.close()
        raise
    return table


def _refuse_doubles(path: str, fields: Any, place: str = "") -> None:
    """Refuse two members of the same name, which would become one."""
    seen: set[str] = set()
    for field in fields:
        name = f"{place}{field.name}"
        if field.name in seen:
            raise unusable(path, f"there are two columns {name!r}", "rename one of them")
        seen.add(field.name)
        kind = field.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            kind, name = kind.value_type, f"{name}[]"
        if pa.types.is_struct(kind):
            _refuse_doubles(path, kind, f"{name}.")


def _group(table: Any, path: str, group: int, first: int, limit: int, counter: Rows) -> Iterator[RawRow]:
    """Give the rows of a row group, the first of them numbered one more than `first`."""
    before = counter.taken
    facts = table.metadata.row_group(group)
    size = max(1, facts.total_byte_size // max(1, facts.num_rows), _size_in_memory(table, group))
    count = min(_BATCH_ROWS, max(1, _BATCH_BYTES // size))
    batches = table.iter_batches(batch_size=count, row_groups=[group], use_threads=False)
    number = first
    while True:
        try:
            rows = [rows_of(batch) for batch in islice(batches, 1)]
        except (pa.ArrowException, OSError) as error:
            lost = facts.num_rows - (number - first)
            reason = f"row group {group} cannot be read ({_first_line(error)}), {lost} rows of it are lost"
            yield RawRow(path, number + 1, -1, b"", truncated(reason))
            return
        if not rows:
            return
        counter.taken = before + facts.total_byte_size * (number - first + len(rows[0])) // facts.num_rows
        for row in rows[0]:
            number += 1
            yield _row(path, number, row, limit)


def _size_in_memory(table: Any, group: int) -> int:
    """Return the bytes of one of the first rows of a group as they are in memory.

    In the file a value that many rows have stands once: a row of a few bytes there can be of megabytes here.
    """
    if table.metadata.row_group(group).num_rows <= _PROBED:
        return 0
    try:
        batch = next(table.iter_batches(batch_size=_PROBED, row_groups=[group], use_threads=False))
    except (StopIteration, pa.ArrowException, OSError):
        return 0  # whoever reads the rows tells it
    columns = [column for column in batch.columns if not pa.types.is_dictionary(column.type)]  # these stay shared
    return int(sum(column.nbytes for column in columns) // max(1, batch.num_rows))


def _row(path: str, number: int, row: object, limit: int) -> RawRow:
    problem = readings = None
    try:
        content = _encode(row)
    except _Refused as refused:
        problem = refused.problem
        content = _encode_all(row)
        readings = Readings([_encode_marked(row), _encode_alike(row)], _encode(_without(row)))
    if len(content) > limit:
        content, problem, readings = head(content, limit), too_large(limit), None
    return RawRow(path, number, -1, content, problem, readings)


def _without(value: object) -> object:
    """Return a value without the members that cannot be told; in a list, they are null."""
    if isinstance(value, dict):
        return {key: _without(member) for key, member in value.items() if not isinstance(member, Unsayable)}
    if isinstance(value, list):
        return [None if isinstance(member, Unsayable) else _without(member) for member in value]
    return value


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


class _Refused(Exception):
    """A value in a row has no JSON."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _refuse(value: Unsayable) -> object:
    raise _Refused(value.problem)


def _shown(value: Unsayable) -> object:
    return value.shown


def _marked(value: Unsayable) -> object:
    return {_MARK: value.shown}


_encode = msgspec.json.Encoder(enc_hook=_refuse, decimal_format="number").encode


def _alike(value: Unsayable) -> object:
    return value.like


_encode_alike = msgspec.json.Encoder(enc_hook=_alike, decimal_format="number").encode
_encode_marked = msgspec.json.Encoder(enc_hook=_marked, decimal_format="number").encode
_encode_all = msgspec.json.Encoder(enc_hook=_shown, decimal_format="number").encode
