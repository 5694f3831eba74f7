"""Owns what the values of Arrow columns become in JSON.

    string, integer, float, bool, list   the same; integers of any size are exact
    decimal                              a number with all its digits
    timestamp, date, time, duration      ISO 8601; a timestamp with a zone in UTC
    binary                               a string where it is UTF-8, else {"base64": "..."}, which nobody takes for text
    map                                  an object
    arrow.json                           the JSON that it holds; a string column with JSON in it stays a string
    NaN, infinity, bytes that are no UTF-8 in a string column: a problem of the row, if its form reads the column

Nulls. A struct has all its members in every row: what was absent in the record that it was made from is null. So a null
member of a struct (and of the row itself) is left out: `"name": null` in each message means that there was no name. The
same holds in JSON Schemas of tools, where members are null only by this.
In the arguments of a call it cannot be told whether a null was written by the model or added by Arrow. To keep it
teaches a model arguments that belong to other tools; to drop it changes what it wrote. Neither is done: such a row has
a problem. Arguments in a string, or in a map, are not touched by this, nor are nulls in lists and maps, which Arrow
never adds.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from turnscript.datasets.problems import Code, Problem

_types = pa.types
_ARGUMENTS = frozenset({"arguments", "args", "kwargs", "tool_input", "action_input"})
_MAYBE_ARGUMENTS = frozenset({"input", "parameters"})
_SCHEMA = frozenset({"type", "properties"})
_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


class Unsayable:
    """A value that JSON does not have: why, what to show for it to people, and one like it that JSON has."""

    __slots__ = ("like", "problem", "shown")

    def __init__(self, code: Code, message: str, place: str, shown: object, like: object = None) -> None:
        self.problem = Problem(code, message, place)
        self.shown = shown
        self.like = shown if like is None else like


def rows_of(batch: pa.RecordBatch) -> list[Any]:
    """Return the rows of a batch as objects that a JSON encoder takes."""
    return _values(batch.to_struct_array(), "$", False)


def _values(array: Any, place: str, written: bool) -> list[Any]:
    """Return the values of a column. `written`: a model wrote them, as the arguments of a call."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        values = _values(array.storage, place, written)
        return _json(values) if kind.extension_name == "arrow.json" else values
    if _types.is_dictionary(kind):
        return _shared(array, place, written)
    if _types.is_struct(kind):
        return _structs(array, place, written)
    if _types.is_map(kind):
        return _maps(array, place, written)
    if _types.is_fixed_size_list(kind):
        array = array.cast(pa.list_(kind.value_field))
        kind = array.type
    plain = next((plain for is_view, plain in _VIEWS if is_view(kind)), None)
    if plain is not None:
        array = array.cast(plain(kind))
        kind = array.type
    if _types.is_list(kind) or _types.is_large_list(kind):
        return _lists(array, place, written)
    for belongs, convert in _LEAVES:
        if belongs(kind):
            return convert(array, place)
    return array.to_pylist()  # type: ignore[no-any-return]


def _shared(array: Any, place: str, written: bool) -> list[Any]:
    """Return values that stand in the column once and are pointed at: each is made once, however many rows have it."""
    pointers = array.indices.to_pylist()
    used = list(dict.fromkeys(pointer for pointer in pointers if pointer is not None))
    values = _values(array.dictionary.take(pa.array(used, pa.int64())), place, written)
    by_pointer = dict(zip(used, values, strict=True))
    return [by_pointer.get(pointer) for pointer in pointers]


def _structs(array: Any, place: str, written: bool) -> list[Any]:
    names = [field.name for field in array.type]
    columns = []
    for field, column in zip(array.type, array.flatten(), strict=True):
        inner = f"{place}.{field.name}"
        values = _values(column, inner, written or _is_written(field, names))
        if written and column.null_count:
            values = [_absent_or_null(inner) if value is None else value for value in values]
        columns.append(values)
    if not columns:
        rows: list[Any] = [{} for _ in range(len(array))]
    else:
        rows = [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*columns, strict=True)
        ]
    return _with_nulls(array, rows)


def _is_written(field: pa.Field, siblings: list[str]) -> bool:
    """Return whether a member is the arguments of a call, by its name and by what stands beside and in it."""
    if field.name in _ARGUMENTS:
        return True
    if field.name not in _MAYBE_ARGUMENTS or "name" not in siblings or not _types.is_struct(field.type):
        return False
    return _SCHEMA.isdisjoint(member.name for member in field.type)


def _absent_or_null(place: str) -> Unsayable:
    message = (
        "a null in the arguments of a call: in this table it cannot be told from an argument that was not there; "
        "store the arguments as a JSON string, or use the JSON that the table was made from"
    )
    return Unsayable(Code.SHAPE, message, place, None)


def _lists(array: Any, place: str, written: bool) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first = offsets[0]
    inner = _values(array.values.slice(first, offsets[-1] - first), f"{place}[]", written)
    rows = [inner[start - first : end - first] for start, end in pairwise(offsets)]
    return _with_nulls(array, rows)


def _maps(array: Any, place: str, written: bool) -> list[Any]:
    offsets = array.offsets.to_pylist()
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys = _values(array.keys.slice(first, count), f"{place}.*", written)
    values = _values(array.items.slice(first, count), f"{place}.*", written)
    rows: list[Any] = []
    for start, end in pairwise(offsets):
        own = keys[start - first : end - first]
        row = dict(zip(map(str, own), values[start - first : end - first], strict=True))
        if len(row) == len(own) and all(isinstance(key, str | int) for key in own):
            rows.append(row)
        else:
            rows.append(Unsayable(Code.SHAPE, "a map whose keys are no names, or occur twice", place, None))
    return _with_nulls(array, rows)


def _with_nulls(array: Any, rows: list[Any]) -> list[Any]:
    if not array.null_count:
        return rows
    return [row if valid else None for row, valid in zip(rows, array.is_valid().to_pylist(), strict=True)]


def _json(values: list[Any]) -> list[Any]:
    return [msgspec.Raw(value.encode()) if isinstance(value, str) else value for value in values]


def _strings(array: Any, place: str) -> list[Any]:
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        large = _types.is_large_string(array.type)
        return [_text(value, place) for value in array.cast(pa.large_binary() if large else pa.binary()).to_pylist()]


def _text(value: bytes | None, place: str) -> Any:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError as error:
        found = f"byte {error.start} of this string is no UTF-8 ({error.reason}); make the table again"
        return Unsayable(Code.UTF8, found, place, value.decode("utf-8", "replace") if value else "")


def _binary(array: Any, place: str) -> list[Any]:
    return [None if value is None else _bytes(value) for value in array.to_pylist()]


def _bytes(value: bytes) -> Any:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _floats(array: Any, place: str) -> list[Any]:
    values: list[Any] = array.to_pylist()
    for index, value in enumerate(values):
        if value is not None and value - value != 0:  # NaN or infinite
            message = f"{value} is no number that JSON has; leave the value out"
            values[index] = Unsayable(Code.SHAPE, message, place, str(value), 0.5)
    return values


def _timestamps(array: Any, place: str) -> list[Any]:
    if array.type.tz is not None:
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))  # the same instant on machines without zones
    return [value and value.replace(" ", "T") for value in array.cast(pa.string()).to_pylist()]


def _times(array: Any, place: str) -> list[Any]:
    return array.cast(pa.string()).to_pylist()  # type: ignore[no-any-return]


def _durations(array: Any, place: str) -> list[Any]:
    digits = _DIGITS[array.type.unit]
    counts = array.cast(pa.int64()).to_pylist()
    return [None if count is None else f"PT{Decimal(count).scaleb(-digits):f}S" for count in counts]


_VIEWS: tuple[tuple[Callable[[Any], bool], Callable[[Any], Any]], ...] = (
    (_types.is_string_view, lambda kind: pa.large_string()),
    (_types.is_binary_view, lambda kind: pa.large_binary()),
    (_types.is_list_view, lambda kind: pa.list_(kind.value_field)),
    (_types.is_large_list_view, lambda kind: pa.large_list(kind.value_field)),
)
"""Types that hold their values in another way, and the ordinary type of each."""
_LEAVES: tuple[tuple[Callable[[Any], bool], Callable[[Any, str], list[Any]]], ...] = (
    (_types.is_string, _strings),
    (_types.is_large_string, _strings),
    (_types.is_floating, _floats),
    (_types.is_binary, _binary),
    (_types.is_large_binary, _binary),
    (_types.is_fixed_size_binary, _binary),
    (_types.is_timestamp, _timestamps),
    (_types.is_date, _times),
    (_types.is_time, _times),
    (_types.is_duration, _durations),
)
