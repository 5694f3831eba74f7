"""Owns reading a file of rows without a plan: each row as its examples, or the reason why it cannot be used.

for row in open_rows("chats.jsonl"):
    if row.problem is not None:
        print(row.source, row.line, row.problem.code, row.problem.message)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from turnscript.core.errors import InvalidInput
from turnscript.datasets.files import cut, read, sample
from turnscript.datasets.form import WHOLE, Example, Form
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import Problem
from turnscript.datasets.readings import examples_of
from turnscript.datasets.rows import RawRow

if TYPE_CHECKING:
    from turnscript.datasets.form_detection import Verdict

AUTO = "auto"
"""The name that asks to detect the form."""

_PIECE = 1 << 62


class Row(NamedTuple):
    """A row of `source`. `line` counts from 1: the line of JSON Lines, else the place in the file. `byte` is its first
    byte, -1 where there is none. It has examples, at least one, or a problem.
    """

    source: str
    line: int
    byte: int
    examples: list[Example]
    problem: Problem | None = None


class RowReader:
    """The rows of one file. `form` is the name of its form, `verdict` how that was found, None if it was given.

    Raises InvalidInput for a file that cannot be read, or whose form cannot be told; UnknownName for an unknown form.
    """

    def __init__(self, path: str, form: str = AUTO, map: str = "") -> None:  # noqa: A002
        self.path = path
        self.verdict: Verdict | None = None
        self._form = self._chosen(form, map)
        self.form = self._form.name
        self.title = self._form.title
        self.whole = self._form.row == WHOLE

    def _chosen(self, form: str, map_file: str) -> Form:
        if map_file:
            from turnscript.datasets.mapping import read_map  # noqa: PLC0415  (few runs have one)

            return read_map(map_file)
        if form != AUTO:
            return get_form(form)
        from turnscript.datasets.form_detection import detect_form  # noqa: PLC0415  (asks every form there is)

        self.verdict = detect_form(sample(self.path), self.path)
        if not self.verdict.form:
            raise InvalidInput(self.verdict.refusal)
        return get_form(self.verdict.form)

    def rows(self) -> Iterator[Row]:
        """Give each row, in order. Never raises for what a row holds."""
        for raw in self.raw_rows():
            yield self.read(raw)

    def raw_rows(self) -> Iterator[RawRow]:
        """Give each row as it stands in the file."""
        for piece in cut(self.path, whole=self.whole, target=_PIECE):
            yield from read(piece)

    def read(self, raw: RawRow) -> Row:
        """Return a row's examples, or its problem."""
        found = examples_of(self._form, raw)
        examples, problem = ([], found) if isinstance(found, Problem) else (found, None)
        return Row(raw.file, raw.number, raw.byte, examples, problem)


def open_rows(path: str, form: str = AUTO) -> Iterator[Row]:
    """Give the rows of a file, one after the other, in bounded memory. What is wrong with a row is in the row.

    Raises at once: InvalidInput for a file that cannot be read, or whose form cannot be told; UnknownName for an
    unknown form.
    """
    return RowReader(path, form).rows()
