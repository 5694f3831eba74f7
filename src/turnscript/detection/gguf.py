"""Owns the header of GGUF: chosen values read from that of a model file, and one written; never weights.

    "GGUF" | version u32 | number of tensors u64 | number of pairs u64 | pairs | ...
    pair   = key string | type u32 | value
    string = length u64 | UTF-8
    array  = element type u32 | number of elements u64 | elements

The pairs come one after the other without an index, so each value that nobody asked for is stepped over: numbers and
their arrays in one step, strings one by one. Every length is checked against the size of the file before it is used,
and what is kept in memory against what model files have.
Spec: docs/gguf.md of the ggml project, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Container, Mapping, Sequence
from typing import BinaryIO, NoReturn, TypeAlias

from turnscript.core.errors import InvalidInput

_MAGIC = b"GGUF"
_SWAPPED_MAGIC = b"FUGG"
_VERSIONS = (2, 3)

_LAYOUTS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""The types that are a number or a boolean, as `struct` calls them."""
_NUMBERS = {kind: struct.calcsize(f"<{layout}") for kind, layout in _LAYOUTS.items()}
_UNSIGNED, _SIGNED, _BOOLEAN = 4, 5, 7
_STRING = 8
_ARRAY = 9

# Far above what real files have, low enough that a file made to hurt costs seconds at most.
MAX_PAIRS = 65_536
MAX_KEY = 65_535
MAX_TEXT = 4 * 1024 * 1024
MAX_STEPS = 4_000_000
MAX_DEPTH = 8
MAX_KEPT = 1_048_576
"""Elements of an array that is kept. The largest vocabularies have a quarter of that."""
MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Of all values that are kept, their lengths included."""
_BLOCK = 32 * 1024

Value: TypeAlias = str | int | float | Sequence[bytes] | Sequence[int | float]
"""A text, a number or boolean, an array of texts in UTF-8 (few of a vocabulary's are looked at), or one of numbers."""


def is_gguf(start: bytes) -> bool:
    """Whether a file that starts so is GGUF, of either byte order."""
    return start[:4] in (_MAGIC, _SWAPPED_MAGIC)


def header_bytes(values: Mapping[str, str | bool | int | Sequence[str] | Sequence[int]]) -> bytes:
    """Return a file that is a header alone: texts, booleans, numbers of 32 bits, and arrays of texts and of numbers."""
    pairs = [_string(key) + _typed(value) for key, value in values.items()]
    return _MAGIC + struct.pack("<IQQ", _VERSIONS[-1], 0, len(pairs)) + b"".join(pairs)


def _typed(value: str | bool | int | Sequence[str] | Sequence[int]) -> bytes:
    """A value behind its type."""
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOLEAN, value)
    if isinstance(value, int):
        return struct.pack("<II", _UNSIGNED, value)
    texts = [one for one in value if isinstance(one, str)]
    numbers = [one for one in value if isinstance(one, int)]
    data = b"".join(map(_string, texts)) if texts else struct.pack(f"<{len(numbers)}i", *numbers)
    return struct.pack("<IIQ", _ARRAY, _STRING if texts else _SIGNED, len(value)) + data


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def read_texts(file: BinaryIO, wanted: Container[str]) -> dict[str, str]:
    """Return the wanted keys that are there and hold text. `file` can seek; it is read from its start.

    Raises InvalidInput for what is not GGUF, is cut off, or has lengths that no model file has.
    """
    values = _read(file, lambda key, kind: kind == _STRING and key in wanted)
    return {key: value for key, value in values.items() if isinstance(value, str)}


def read_values(file: BinaryIO, wanted: Callable[[str], bool]) -> dict[str, Value]:
    """Return the values of the wanted keys, whatever they hold, but for arrays of arrays. Raises as `read_texts`."""
    return _read(file, lambda key, kind: wanted(key))


def _read(file: BinaryIO, wanted: Callable[[str, int], bool]) -> dict[str, Value]:
    header = _Header(file)
    values: dict[str, Value] = {}
    for number in range(1, header.pairs + 1):
        key = header.text(f"the key of pair {number}", MAX_KEY)
        what = f"the value of {key!r}"
        kind = header.number(4, what)
        if key in values or not wanted(key, kind):
            header.skip(kind, what)
        elif (value := header.value(kind, what)) is not None:
            values[key] = value
    return values


class _Header:
    """A place in the header, and how much of the file is left after it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self._place = file.seek(0)
        self._steps = 0
        self._kept = 0
        self._check_version()
        self.number(8, "the number of tensors")
        self.pairs = self.number(8, "the number of pairs")
        if self.pairs > MAX_PAIRS:
            self._absurd("the header", self.pairs, "pairs", MAX_PAIRS)

    def _check_version(self) -> None:
        magic = self._file.read(4)
        self._place += 4
        if not is_gguf(magic):
            message = f"not a GGUF file: {f'it begins with {magic!r}' if magic else 'it is empty'}"
            if magic == b"vers":
                message = "not a GGUF file but a Git LFS pointer to one; `git lfs pull` gets the file itself"
            raise InvalidInput(message, expected="a file that begins with GGUF", got=repr(magic))
        version = self.number(4, "the version")
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if magic == _SWAPPED_MAGIC or swapped in (1, *_VERSIONS):
            message = "a big-endian GGUF file; only little-endian ones are read, convert it first"
            raise InvalidInput(message, expected="a little-endian GGUF file", got="big-endian")
        if version not in _VERSIONS:
            message = f"GGUF version {version} is not read, only {' and '.join(map(str, _VERSIONS))}; convert it first"
            raise InvalidInput(message, expected="GGUF version 2 or 3", got=f"version {version}")

    def number(self, size: int, what: str) -> int:
        """An unsigned number."""
        return int.from_bytes(self._take(size, what), "little")

    def text(self, what: str, limit: int) -> str:
        """A string of at most `limit` bytes."""
        length = self.number(8, what)
        if length > limit:
            self._absurd(what, length, "bytes", limit)
        return self._take(length, what).decode("utf-8", "replace")

    def value(self, kind: int, what: str) -> Value | None:
        """Return a value of that type, or None for an array of arrays, which is stepped over."""
        if kind == _STRING:
            text = self.text(what, MAX_TEXT)
            self._keep(len(text), what)
            return text
        if kind in _NUMBERS:
            return self._numbers(kind, 1, what)[0]
        if kind != _ARRAY:
            self._unknown(what, kind)
        kind, count = self.number(4, what), self.number(8, what)
        if kind in _NUMBERS:
            self._check_kept(count, what)
            return self._numbers(kind, count, what)
        if kind == _STRING:
            kept: list[bytes] = []
            self._check_strings(count, what)
            self._check_kept(count, what)
            self._strings(count, what, kept)
            return kept
        self._skip_elements(kind, count, what, 1)
        return None

    def _numbers(self, kind: int, count: int, what: str) -> tuple[int | float, ...]:
        size = count * _NUMBERS[kind]
        if size > self._size - self._place:  # before so much memory is asked for
            self._cut_off(what)
        self._keep(size, what)
        return struct.unpack(f"<{count}{_LAYOUTS[kind]}", self._take(size, what))

    def _check_kept(self, count: int, what: str) -> None:
        if count > MAX_KEPT:
            self._absurd(what, count, "elements", MAX_KEPT)

    def _keep(self, size: int, what: str) -> None:
        self._kept += size
        if self._kept > MAX_KEPT_BYTES:
            self._absurd(f"what is read up to {what}", self._kept, "bytes", MAX_KEPT_BYTES)

    def skip(self, kind: int, what: str, depth: int = 0) -> None:
        """Step over a value of that type."""
        if kind in _NUMBERS:
            self._jump(_NUMBERS[kind], what)
        elif kind == _STRING:
            self._jump(self.number(8, what), what)
        elif kind == _ARRAY:
            self._skip_elements(self.number(4, what), self.number(8, what), what, depth + 1)
        else:
            self._unknown(what, kind)

    def _skip_elements(self, kind: int, count: int, what: str, depth: int) -> None:
        """Step over the elements of an array."""
        if depth > MAX_DEPTH:
            self._absurd(what, depth, "levels", MAX_DEPTH)
        if kind in _NUMBERS:
            self._jump(count * _NUMBERS[kind], what)
            return
        if kind not in (_STRING, _ARRAY):
            self._unknown(what, kind)
        self._check_strings(count, what)
        if kind == _STRING:
            self._strings(count, what, None)
            return
        for _ in range(count):
            self.skip(kind, what, depth)

    def _check_strings(self, count: int, what: str) -> None:
        self._steps += count
        if count * 8 > self._size - self._place:  # each element has a length, if nothing more
            self._cut_off(what)
        if self._steps > MAX_STEPS:
            self._absurd(what, self._steps, "elements", MAX_STEPS)

    def _strings(self, count: int, what: str, kept: list[bytes] | None) -> None:
        """Step over so many strings, or keep them, block by block: a vocabulary has 65,000 and more."""
        length_at = struct.Struct("<Q").unpack_from
        base, block, at = self._place, b"", 0  # `block` stands at `base` in the file, and `at` in the block
        for _ in range(count):
            if at + 8 > len(block):
                base, at = base + at, 0
                block = self._block(base, 8, what)
            end = at + 8 + length_at(block, at)[0]
            if base + end > self._size:
                self._cut_off(what)
            if kept is not None:
                self._keep(end - at, what)
                if end > len(block):
                    base, at, end = base + at, 0, end - at
                    block = self._block(base, end, what)
                kept.append(block[at + 8 : end])
            at = end
        self._place = self._file.seek(base + at)

    def _block(self, place: int, least: int, what: str) -> bytes:
        """Read on from a place in the file, `least` bytes or more."""
        self._file.seek(place)
        block = self._file.read(max(least, _BLOCK))
        if len(block) < least:
            self._cut_off(what)
        return block

    def _take(self, size: int, what: str) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            self._cut_off(what)
        self._place += size
        return data

    def _jump(self, size: int, what: str) -> None:
        if size > self._size - self._place:
            self._cut_off(what)
        self._place = self._file.seek(self._place + size)

    def _cut_off(self, what: str) -> NoReturn:
        message = f"the file ends after {self._size} bytes, inside {what}; it is cut off or damaged, get it again"
        raise InvalidInput(message, expected="a whole GGUF header", got=f"{self._size} bytes")

    def _unknown(self, what: str, kind: int) -> NoReturn:
        message = f"{what} has the unknown type {kind} (before byte {self._place}); the file is damaged"
        raise InvalidInput(message, expected="a type from 0 to 12", got=str(kind))

    def _absurd(self, what: str, count: int, unit: str, limit: int) -> NoReturn:
        message = f"{what} has {count} {unit}, and no model file has more than {limit}; the file is damaged"
        raise InvalidInput(message, expected=f"at most {limit} {unit}", got=str(count))
