"""Owns reading GGUF: chosen text values from the header of a model file, never its vocabulary or its weights.

    "GGUF" | version u32 | number of tensors u64 | number of pairs u64 | pairs | ...
    pair   = key string | type u32 | value
    string = length u64 | UTF-8
    array  = element type u32 | number of elements u64 | elements

The pairs come one after the other without an index, so each value that nobody asked for is stepped over: numbers and
their arrays in one step, strings one by one. Every length is checked against the size of the file before it is used.
Spec: docs/gguf.md of the ggml project, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import os
from collections.abc import Container
from typing import BinaryIO, NoReturn

from turnscript.errors import InvalidInput

_MAGIC = b"GGUF"
_SWAPPED_MAGIC = b"FUGG"
_VERSIONS = (2, 3)

_NUMBERS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""The sizes in bytes of the types that are a number or a boolean."""
_STRING = 8
_ARRAY = 9

# Far above what real files have, low enough that a file made to hurt costs seconds at most.
MAX_PAIRS = 65_536
MAX_KEY = 65_535
MAX_TEXT = 4 * 1024 * 1024
MAX_STEPS = 4_000_000
MAX_DEPTH = 8


def is_gguf(start: bytes) -> bool:
    """Whether a file that starts so is GGUF, of either byte order."""
    return start[:4] in (_MAGIC, _SWAPPED_MAGIC)


def read_texts(file: BinaryIO, wanted: Container[str]) -> dict[str, str]:
    """The wanted keys that are there and hold text. `file` can seek; it is read from its start.

    Raises InvalidInput for what is not GGUF, is cut off, or has lengths that no model file has.
    """
    header = _Header(file)
    texts: dict[str, str] = {}
    for number in range(1, header.pairs + 1):
        key = header.text(f"the key of pair {number}", MAX_KEY)
        what = f"the value of {key!r}"
        kind = header.number(4, what)
        if kind == _STRING and key in wanted:
            texts.setdefault(key, header.text(what, MAX_TEXT))
        else:
            header.skip(kind, what)
    return texts


class _Header:
    """A place in the header, and how much of the file is left after it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        self._place = file.seek(0)
        self._steps = 0
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

    def skip(self, kind: int, what: str, depth: int = 0) -> None:
        """Step over a value of that type."""
        if kind in _NUMBERS:
            self._jump(_NUMBERS[kind], what)
        elif kind == _STRING:
            self._jump(self.number(8, what), what)
        elif kind == _ARRAY:
            self._skip_array(what, depth + 1)
        else:
            self._unknown(what, kind)

    def _skip_array(self, what: str, depth: int) -> None:
        kind, count = self.number(4, what), self.number(8, what)
        if depth > MAX_DEPTH:
            self._absurd(what, depth, "levels", MAX_DEPTH)
        if kind in _NUMBERS:
            self._jump(count * _NUMBERS[kind], what)
            return
        if kind not in (_STRING, _ARRAY):
            self._unknown(what, kind)
        self._steps += count
        if count * 8 > self._size - self._place:  # each element has a length, if nothing more
            self._cut_off(what)
        if self._steps > MAX_STEPS:
            self._absurd(what, self._steps, "elements", MAX_STEPS)
        if kind == _STRING:
            self._skip_strings(count, what)
            return
        for _ in range(count):
            self.skip(kind, what, depth)

    def _skip_strings(self, count: int, what: str) -> None:
        """The same as `count` times `skip`, several times as fast: a vocabulary has 65,000 strings and more."""
        read, seek, length_of = self._file.read, self._file.seek, int.from_bytes
        place, size = self._place, self._size
        for _ in range(count):
            place += 8 + length_of(read(8), "little")
            if place > size:
                self._cut_off(what)
            seek(place)
        self._place = place

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
