"""Owns telling what holds the rows of a file, lines or an array, say, by its name and its first bytes."""

from __future__ import annotations

import re
from enum import StrEnum

from turnscript.datasets.files import listing
from turnscript.datasets.files.arrays import FRONT, front_size
from turnscript.datasets.files.rowbytes import LIMIT
from turnscript.datasets.files.scanning import SPACE, Value
from turnscript.datasets.files.streams import BOM, Broken, Compression, blocks, compression_of
from turnscript.datasets.files.troubles import unusable


class Container(StrEnum):
    """What holds the rows of a file."""

    LINES = "lines"
    """JSON Lines: a row a line."""
    ARRAY = "array"
    """One JSON array: a row an element."""
    MEMBER = "member"
    """One JSON object with an array as a member, `data` say, beside plain values: a row an element."""
    OBJECT = "object"
    """One JSON value, which is the one row."""
    PARQUET = "parquet"
    """A Parquet table."""
    TEXT = "text"
    """A transcript, which is the one row."""


_FOREIGN_SUFFIXES = {
    ".csv": "this is a CSV table",
    ".tsv": "this is a table of tab-separated values",
    ".arrow": "this is an Arrow file",
    ".feather": "this is an Arrow file",
    ".xlsx": "this is a spreadsheet",
}
_AS_ROWS = "write it as JSON Lines or Parquet first"
_UNPACK = "unpack it first, and name the files in it"
_FOREIGN = (
    (b"version https://git-lfs.github.com/spec/", "this only points to a file in Git LFS", "get that: git lfs pull"),
    (b"PK\x03\x04", "this is a ZIP archive", _UNPACK),
    (b"7z\xbc\xaf\x27\x1c", "this is a 7z archive", _UNPACK),
    (b"\x04\x22\x4d\x18", "this is compressed with LZ4", "decompress it first: lz4 -d FILE"),
    (b"ARROW1", "this is an Arrow file", _AS_ROWS),
    (b"ORC", "this is an ORC table", _AS_ROWS),
    (b"SQLite format 3\x00", "this is an SQLite database", _AS_ROWS),
)
_TAR = b"ustar"
_PARQUET = b"PAR1"
_WIDE = (
    (re.compile(rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff"), "UTF-32"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "UTF-16"),
    (re.compile(rb"[{\[]\x00\x00\x00"), "UTF-32LE"),
    (re.compile(rb"\x00\x00\x00[{\[]"), "UTF-32BE"),
    (re.compile(rb"[{\[]\x00"), "UTF-16LE"),
    (re.compile(rb"\x00[{\[]"), "UTF-16BE"),
)
"""The mark of an encoding of two or four bytes, or the first character of JSON in it. Without a mark, `iconv` must be
told the order of the bytes."""
_MEMBER = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"[ \t]*+:')
"""How an object that is printed over several lines goes on."""


def container_of(path: str) -> Container:
    """Return what holds the rows of a file. Raises InvalidInput for files that hold no rows which can be read here."""
    compression = compression_of(path)
    suffix = listing.suffixes(path)[0]
    head = _head(path, compression, FRONT)
    _refuse_foreign(path, suffix, head)
    if head.startswith(_PARQUET):
        if compression is not Compression.NONE:
            raise unusable(path, "this is a compressed Parquet file, which nobody can read in parts", "decompress it")
        return Container.PARQUET
    if suffix in listing.PARQUET:
        raise unusable(path, "the name says Parquet, but the bytes do not begin like it", "fetch or make it again")
    if suffix in listing.LINES:
        return _of_lines(head)
    first = head.lstrip()[:1]
    if suffix in listing.TEXT or (suffix != ".json" and first not in {b"{", b"["} and first):
        return Container.LINES if _are_objects(head) else Container.TEXT
    return _of_json(_with_first_line(path, compression, head))


def _head(path: str, compression: Compression, size: int) -> bytes:
    """Return at least so many of the first bytes, if there are so many that can be read, without a mark in front."""
    parts: list[bytes] = []
    length = 0
    try:
        for block in blocks(path, compression):
            parts.append(block)
            length += len(block)
            if length >= size + len(BOM):
                break
    except Broken:
        pass  # whoever reads the rows tells it, with what could be read
    return b"".join(parts).removeprefix(BOM)


def _with_first_line(path: str, compression: Compression, head: bytes) -> bytes:
    """Return the head, enlarged until it holds the first line and more, or as much as a row may have."""
    size = len(head)
    while FRONT <= size < LIMIT and b"\n" not in head.lstrip()[:-FRONT]:
        head = _head(path, compression, 2 * size)
        if len(head) <= size:
            break
        size = len(head)
    return head


def _refuse_foreign(path: str, suffix: str, head: bytes) -> None:
    for magic, what, remedy in _FOREIGN:
        if head.startswith(magic):
            raise unusable(path, what, remedy)
    if head[257:262] == _TAR:
        raise unusable(path, "this is a tar archive", _UNPACK)
    encoding = next((name for pattern, name in _WIDE if pattern.match(head)), "")
    if encoding:
        raise unusable(path, f"this is {encoding}", f"convert it: iconv -f {encoding} -t UTF-8 FILE")
    if suffix in _FOREIGN_SUFFIXES:
        raise unusable(path, _FOREIGN_SUFFIXES[suffix], _AS_ROWS)


def _of_lines(head: bytes) -> Container:
    """Return what a file is whose name says JSON Lines. Only what is printed over several lines is something else."""
    lines = _lines(head, 2)
    if lines[:1] == [b"["] and lines[1:2] != [b"["]:
        return Container.ARRAY
    if lines[:1] == [b"{"] and lines[1:2] and _MEMBER.match(lines[1]):
        return Container.MEMBER if front_size(head) >= 0 else Container.OBJECT
    return Container.LINES


def _of_json(head: bytes) -> Container:
    """Return what a file of JSON is: lines if a second one follows a whole value, as many name JSON Lines `.json`."""
    lines = _lines(head, 2)
    if not lines:
        return Container.LINES
    if len(lines) == 2 and (_is_whole(lines[0]) or _both_begin_objects(*lines)):
        return Container.LINES
    if lines[0].startswith(b"["):
        return Container.ARRAY
    return Container.MEMBER if front_size(head) >= 0 else Container.OBJECT


def _lines(head: bytes, count: int) -> list[bytes]:
    """Return the first lines that are not blank, without the space around them; the last may be cut off."""
    found: list[bytes] = []
    position = 0
    while len(found) < count:
        position = SPACE.match(head, position).end()  # type: ignore[union-attr]
        if position == len(head):
            break
        end = head.find(b"\n", position)
        end = len(head) if end < 0 else end
        found.append(head[position:end].rstrip(b" \t\r"))
        position = end
    return found


def _is_whole(line: bytes) -> bool:
    """Return whether a line is exactly one JSON object or array, as far as one sees without parsing it."""
    value = Value()
    return line[:1] in {b"{", b"["} and value.feed(line, 0) == len(line) and value.done


def _both_begin_objects(first: bytes, second: bytes) -> bool:
    """Return whether two lines each begin an object, the first of them spoiled: it does not end as one that goes on."""
    return first.startswith(b"{") and second.startswith(b"{") and first[-1:] not in {b":", b",", b"[", b"{"}


def _are_objects(head: bytes) -> bool:
    """Return whether a text is JSON Lines in truth: its first two lines are whole objects."""
    lines = _lines(head, 2)
    return len(lines) == 2 and all(line.startswith(b"{") for line in lines) and _is_whole(lines[0])
