"""Owns looking at files before anything is made of them: form, fields, roles, lengths, all told from the first rows."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from turnscript.datasets.files import compression_of, container_of, sample
from turnscript.datasets.form import Example
from turnscript.datasets.opened import AUTO, RowReader
from turnscript.datasets.problems import Problem, kind_of
from turnscript.datasets.rows import RawRow
from turnscript.engine.files import Fill

ROWS = 200
"""So many rows of a file are looked at."""
MOST_KINDS = 20
"""So many problems with different messages are kept."""


class Other(Struct, frozen=True):
    """A form that rows could have too, and how many of them it fits."""

    form: str
    share: float


class Found(Struct):
    """What a file is. `form` is empty where none fits, or two do; `refusal` says so, and what to do.

    `share`: of the `told` rows that the form was told from, those that it fits. `evidence`: why. `fields`: the members
    of records, with how many rows have them. `items`: the kinds of items of conversations, with how many there are.
    `bytes`: the shortest row, the middle one, the longest. `problems`: of rows that cannot be read, by code;
    `first_problems`: the first of each different message.
    """

    file: str
    container: str
    compression: str
    size: int
    form: str = ""
    title: str = ""
    share: float = 0.0
    told: int = 0
    evidence: list[str] = []
    runners_up: list[Other] = []
    refusal: str = ""
    rows: int = 0
    whole: bool = False
    fields: dict[str, int] = field(default_factory=dict)
    items: dict[str, int] = field(default_factory=dict)
    tools: int = 0
    bytes: tuple[int, int, int] = (0, 0, 0)
    problems: dict[str, int] = field(default_factory=dict)
    first_problems: list[tuple[int, Problem]] = []


def look(path: str, form: str = AUTO, map: str = "") -> Found:  # noqa: A002
    """Return what a file is. Raises InvalidInput for one that cannot be read at all."""
    rows = sample(path, ROWS)
    found = Found(path, container_of(path), compression_of(path), os.path.getsize(path), rows=len(rows))
    sizes = sorted([len(row.data) for row in rows]) or [0]
    found.bytes = (sizes[0], sizes[len(sizes) // 2], sizes[-1])
    found.fields = _fields(rows)
    if form == AUTO and not map:
        from turnscript.datasets.form_detection import detect_form  # noqa: PLC0415  (asks every form there is)

        verdict = detect_form(rows, path)
        found.share, found.evidence, found.refusal = verdict.share, list(verdict.reasons), verdict.refusal
        found.form, found.told = verdict.form, verdict.rows
        found.runners_up = [Other(name, share) for name, share in verdict.runners_up]
        if not verdict.form:
            return found
        form = verdict.form
    reader = RowReader(path, form, map)
    found.form, found.title, found.whole = reader.form, reader.title, reader.whole
    _count(found, reader, rows)
    return found


def _count(found: Found, reader: RowReader, rows: Sequence[RawRow]) -> None:
    """Count what the conversations hold. A file that is one row is read again: the sample is its records."""
    items: Counter[str] = Counter()
    problems: Counter[str] = Counter()
    kinds: set[tuple[str, str, str]] = set()
    for raw in reader.raw_rows() if reader.whole else rows:
        row = reader.read(raw)
        if row.problem is not None:
            problems[row.problem.code] += 1
            kind = kind_of(row.problem.code, row.problem.message, row.problem.pointer)
            if kind not in kinds and len(kinds) < MOST_KINDS:
                kinds.add(kind)
                found.first_problems.append((row.line, row.problem))
        for example in row.examples:
            conversation = example.request.conversation
            items.update([item.kind for item in conversation.items] or _documents(example))
            found.tools += bool(conversation.tools)
    found.items = dict(items.most_common())
    found.problems = dict(problems.most_common())


def _documents(example: Example) -> list[str]:
    if example.files is None:
        return ["text"] if example.text is not None else []
    return ["text with a hole" if isinstance(file, Fill) else "file" for file in example.files.files]


def _fields(rows: Iterable[RawRow]) -> dict[str, int]:
    """Return the members of records, most frequent first."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(_members(row.data))
    return dict(counts.most_common())


def _members(data: bytes) -> list[str]:
    try:
        record: Any = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []
    return list(record) if isinstance(record, dict) else []
