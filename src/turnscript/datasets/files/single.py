"""Owns files that are one row: a single JSON value, a transcript, or whatever is to be read as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from turnscript.datasets.files.arrays import ONE_A_LINE
from turnscript.datasets.files.rowbytes import HEAD, Gathered, Rows, head, too_large, truncated
from turnscript.datasets.files.scanning import SPACE, Value
from turnscript.datasets.files.streams import BOM, Broken, Compression, blocks
from turnscript.datasets.problems import Code, Problem
from turnscript.datasets.rows import RawRow


def read_whole(file: str, compression: Compression, limit: int, *, text: bool, counter: Rows) -> Iterator[RawRow]:
    """Give all of a file as one row, but for a mark in front; none if it is blank. `text`: it must be UTF-8."""
    row = Gathered(limit + len(BOM))
    problem = None
    try:
        for block in blocks(file, compression, counter=counter):
            row.add(block)
            if row.over:
                break
    except Broken as error:
        problem = truncated(str(error))
    content = row.bytes()
    start = len(BOM) if content.startswith(BOM) else 0
    content = content[start:]
    if row.over or len(content) > limit:
        content, problem = head(content, limit), problem or too_large(limit, whole=True)
    elif problem is None and text:
        problem = _not_utf8(content)
    if problem is not None or content.strip():
        counter.numbers = 1
        yield RawRow(file, 1, start, content, problem)


def read_value(file: str, compression: Compression, limit: int, *, counter: Rows) -> Iterator[RawRow]:
    """Give the one JSON value of a file. If there are more, or it has no end, that is one row with a problem."""
    for row in read_whole(file, compression, limit, text=False, counter=counter):
        if row.problem:
            yield row
        elif problem := _not_one(row.data):
            data = row.data if problem.code is Code.TRUNCATED else row.data[:HEAD]
            yield replace(row, data=data, problem=problem)
        else:
            data = row.data.lstrip(b" \t\r\n")
            byte = row.byte + len(row.data) - len(data)
            yield replace(row, byte=byte, data=data.rstrip(b" \t\r\n"))


def _not_one(content: bytes) -> Problem | None:
    """Return what keeps it from being exactly one value. Whether that value is right, its parser finds out."""
    value = Value()
    start = SPACE.match(content).end()  # type: ignore[union-attr]
    end = value.feed(content, start)
    if not value.close():
        return truncated("the file ends in the middle of this")
    rest = content[end:].lstrip(b" \t\r\n")
    if not rest:
        return None
    if content[start] in b"{[" and rest[0] in b"{[":
        return Problem(Code.JSON, f"the file has several JSON values, one behind another; {ONE_A_LINE}")
    place = len(content) - len(rest)
    return Problem(Code.JSON, f"this is not one JSON value: there is more from byte {place} on; mend the file")


def _not_utf8(content: bytes) -> Problem | None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        found = f"byte {error.start} of the text is no UTF-8 ({error.reason})"
        return Problem(Code.UTF8, f"{found}; convert it: iconv -f ENCODING -t UTF-8 FILE")
    return None
