"""Owns what people read on stderr and in tables: errors in one shape, losses in short, lists of names.

Nothing that comes from an input can move the cursor or colour the screen: control characters are written as escapes.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

import click
from msgspec import Struct

from turnscript.cli.failures import BAD_INPUT, LOSSY, USAGE, Failed
from turnscript.convert.registry import apis, is_format
from turnscript.core.errors import InvalidInput, LossyConversion, TurnscriptError, UnknownName
from turnscript.core.losses import Loss
from turnscript.engine.template.program import InvalidTemplate
from turnscript.gateway.kinds import COMMAND_LINE, InvalidConfig

SHOWN = 20
"""So many losses are listed; a file can have them all."""

REMEMBERED = 5_000
"""So many different losses of rows are told apart."""

_WIDEST = 400
_END = 120
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_INDEX = re.compile(r"\[\d+\]")
_KIND_COLOURS = {"dropped": "red", "invented": "red", "approximated": "yellow", "moved": "cyan", "renamed": "cyan"}


class Fault(Struct):
    """An error taken apart for people and for programs: `place` is FILE:LINE:COL as far as known."""

    place: str
    path: str
    message: str
    remedy: str
    code: str
    exit_code: int
    column: int = 0

    def __str__(self) -> str:
        return ": ".join(part for part in (self.place, self.path, self.message) if part)


def fault(error: TurnscriptError | Failed, name: str = "", line: int = 0) -> Fault:
    """What went wrong in the input called `name`; `line` is that of the row, if it was one."""
    place = f"{name}:{line}" if line else name
    if isinstance(error, Failed):
        return Fault(error.place or place, "", error.message, error.remedy, "failed", error.code)
    if isinstance(error, InvalidTemplate):  # its line is one of the template, whatever else was read
        return Fault(error.where, "", error.message, "", error.code, BAD_INPUT)
    if isinstance(error, InvalidInput):
        path = error.path
        if error.line and name:
            place = f"{name}:{line or error.line}:{error.column}"
        elif error.line:  # of a file that the message names
            path = error.where
        remedy = f"expected {error.expected}" if error.expected and error.expected not in error.message else ""
        typed = isinstance(error, InvalidConfig) and error.source == COMMAND_LINE
        return Fault(place, path, error.message, remedy, error.code, USAGE if typed else BAD_INPUT, error.column)
    if isinstance(error, LossyConversion):
        return _strict_fault(error, place, of_row=line > 0)
    if isinstance(error, UnknownName):
        return Fault("", "", str(error), _lists(error), error.code, USAGE)
    return Fault(place, "", str(error), "", error.code, BAD_INPUT)


def _lists(error: UnknownName) -> str:
    """Where the names are. One of an API where a format is wanted, or the other way round, is taken for what it is."""
    if error.kind == "format" and error.name in apis():
        return "this is an API; `turnscript formats` lists the formats"
    if error.kind == "API" and is_format(error.name):
        return "this is a prompt format; `turnscript apis` lists the APIs"
    if error.kind.startswith("variant of ") and error.kind.removeprefix("variant of ") in apis():
        return "variants are of prompt formats, and neither what is read nor what is written is in one; leave it out"
    if error.kind.startswith("variant of "):
        return "`turnscript formats` lists the variants of each format"
    if error.kind == "fill order":
        return "`turnscript show FORMAT` lists the orders of a format"
    if error.kind == "tool":
        return "name one of the tools of the file"
    if error.kind.startswith("format in "):
        return "give a name that the file declares, as in FILE#NAME"
    return "`turnscript apis` and `turnscript formats` list the names"


def faults(error: TurnscriptError | Failed) -> list[Fault]:
    """The same of an error and of those that were found together with it, as in a configuration."""
    others = error.others if isinstance(error, InvalidConfig) else ()
    return [fault(one) for one in (error, *others)]


def _strict_fault(error: LossyConversion, place: str, *, of_row: bool) -> Fault:
    """The losses of a document are listed below its error; a row must do with the first one."""
    remedy = "leave out --strict to convert anyway; --losses FILE keeps the list"
    if not of_row:
        message = f"{error.target} cannot carry everything, and --strict was asked for"
        return Fault(place, "", message, remedy, error.code, LOSSY)
    first, more = error.losses[0], len(error.losses) - 1
    others = f" (and {plural(more, 'loss', 'losses')} more)" if more else ""
    return Fault(place, first.path, f"{first.kind} under --strict: {first.detail}{others}", remedy, error.code, LOSSY)


def usage(error: click.UsageError) -> Fault:
    """A wrong command line in the same shape."""
    message = error.format_message().strip().removesuffix(".")
    path = error.ctx.command_path if error.ctx else "turnscript"
    return Fault("", "", f"{message[:1].lower()}{message[1:]}", f"see `{path} --help`", "usage", USAGE)


class Losses:
    """The losses of one document, or of many rows in bounded memory.

    Rows are told apart by line; losses that differ only in the row and in list indices are one line of the report.
    """

    def __init__(self, losses: Iterable[Loss] = ()) -> None:
        self.total = 0
        self._kinds: Counter[str] = Counter()
        self._single: list[Loss] = []
        self._grouped: dict[tuple[str, str, str], list[int]] = {}
        self._further = 0
        self.add(losses)

    def add(self, losses: Iterable[Loss], line: int = 0) -> None:
        """Count losses; with `line`, those of a row."""
        for loss in losses:
            self.total += 1
            self._kinds[loss.kind] += 1
            if not line:
                self._single.append(loss)
                continue
            path = _INDEX.sub("[*]", loss.path) if "[" in loss.path else loss.path
            key = (path, loss.kind, loss.detail)
            if key in self._grouped:
                self._grouped[key][0] += 1
            elif len(self._grouped) < REMEMBERED:
                self._grouped[key] = [1, line]
            else:
                self._further += 1

    @property
    def summary(self) -> str:
        """`3 losses: 2 dropped, 1 moved`."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in self._kinds.most_common())
        return f"{plural(self.total, 'loss', 'losses')}: {kinds}" if self.total else "no losses"

    def list_on(self, screen: Screen, file: str | None) -> None:
        """At most twenty lines; `file` is where all of them were written, if they were."""
        lines: list[tuple[str, str, str, str]] = [(loss.path, loss.kind, loss.detail, "") for loss in self._single]
        ranked = sorted(self._grouped.items(), key=lambda entry: -entry[1][0])
        lines += [(*key, f" ({_times(count, first)})") for key, (count, first) in ranked]
        for path, kind, detail, times in lines[:SHOWN]:
            screen.loss(path, kind, detail, times)
        more = len(lines) - SHOWN + self._further
        if more > 0:
            screen.line(f"  and {more} more; " + (f"all are in {shown(file)}" if file else "--losses FILE writes all"))


class Screen:
    """Standard error, as people see it. Colours only on a terminal, and not if NO_COLOR is set."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.is_terminal = self._stream is not None and self._stream.isatty()
        self._coloured = self.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def fault(self, fault: Fault) -> None:
        """An error and its remedy."""
        self.line(f"turnscript: {self._paint('error', 'red')}: {shown(str(fault))}")
        if fault.remedy:
            self.line(f"  {shown(fault.remedy)}")

    def note(self, text: str) -> None:
        """A line that is not an error."""
        self.line(f"turnscript: {shown(text)}")

    def loss(self, path: str, kind: str, detail: str, times: str) -> None:
        """One loss."""
        self.line(f"  {shown(path)}: {self._paint(kind, _KIND_COLOURS.get(kind, 'red'))}: {shown(detail)}{times}")

    def line(self, text: str) -> None:
        """A line that is clean already."""
        if self._stream is not None:
            self._stream.write(f"{text}\n")
            self._stream.flush()

    def _paint(self, text: str, colour: str) -> str:
        return click.style(text, fg=colour, bold=True) if self._coloured else text


def shown(text: str) -> str:
    """Foreign text made safe for one line of a terminal, and not endless. Its end stays: there it says what to do."""
    if len(text) > _WIDEST:
        text = f"{text[: _WIDEST - _END]}... ({len(text) - _WIDEST} more characters) ...{text[-_END:]}"
    return in_line(text)


def in_line(text: str) -> str:
    """Foreign text, whole, safe for one line of a terminal."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def plural(count: int, one: str, many: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{count} {one if count == 1 else many}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns that line up, two blanks between them."""
    grid = [tuple(heads), *map(tuple, rows)]
    widths = [max(len(row[column]) for row in grid) for column in range(len(heads))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in grid)
    return "\n".join(lines)


def _times(count: int, first: int) -> str:
    return f"line {first}" if count == 1 else f"{count} times, first in line {first}"
