"""Owns JSON Lines: a pass over rows that converts each, keeps what is good and sets the rest aside with the reason.

Memory holds one row at a time, and of losses and rejects only what the report shows.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable
from itertools import zip_longest

import msgspec
from msgspec.structs import replace

from turnscript.cli.advice import row_advice
from turnscript.cli.conversion import Conversion
from turnscript.cli.failures import BAD_INPUT, LOSSY, OK
from turnscript.cli.output import STREAM, Files, Sink
from turnscript.cli.progress import Meter
from turnscript.cli.report import Fault, Losses, Screen, fault, plural
from turnscript.cli.source import Row, Source
from turnscript.core.errors import LossyConversion, TurnscriptError
from turnscript.core.losses import Loss

SUFFIX = ".rejects.jsonl"
SHOWN = 5
"""So many rejects are shown on the screen; the file has them all."""

_encode = msgspec.json.Encoder().encode


class Rejects:
    """The rows that could not be converted. Their file is made with the first one, or at once if it was asked for."""

    def __init__(self, files: Files, path: str, *, asked_for: bool) -> None:
        self.count = 0
        self.lossy = 0
        self.path = path
        self.asked_for = asked_for
        self._faults: list[Fault] = []
        self._files = files
        self._sink: Sink | None = files.open(path) if asked_for else None

    @property
    def are_shown(self) -> bool:
        """Whether the next one will be seen on the screen."""
        return len(self._faults) < SHOWN

    def add(self, row: Row, found: Fault, file: str, *, lossy: bool) -> None:
        self.count += 1
        self.lossy += lossy
        if self.are_shown:
            self._faults.append(found)
        if self._sink is None:
            self._sink = self._files.open(self.path)
        self._sink.write(_reject_line(row, found, file))

    def show(self, screen: Screen) -> None:
        """The first few. A remedy that several share is said once, after the last of them."""
        for found, following in zip_longest(self._faults, self._faults[1:]):
            shared = following is not None and following.remedy == found.remedy
            screen.fault(replace(found, remedy="") if shared else found)
        if self.count > len(self._faults):
            screen.line(f"  and {self.count - len(self._faults)} more")


def default_rejects(output: str | None) -> str:
    """Where rejected rows go if nobody says: beside the output."""
    return f"{output}{SUFFIX}" if output else f"turnscript{SUFFIX}"


def convert_rows(
    conversion: Conversion, source: Source, out: Sink, losses_out: Sink | None, rejects: Rejects, screen: Screen
) -> tuple[int, Losses]:
    """Convert every row. Gives the number of rows converted, and the losses."""
    converted, losses = 0, Losses()
    # A bar on the screen would run into rows that go to the same one.
    with Meter(source.size, enabled=screen.is_terminal and not out.is_terminal) as meter:
        for row in source.rows():
            try:
                data, lost = conversion.row(row.data)
            except TurnscriptError as error:
                lost = error.losses if isinstance(error, LossyConversion) else []
                found = fault(error, source.name, row.line)
                if rejects.are_shown:
                    found.remedy = row_advice(error, row.data) or found.remedy
                rejects.add(row, found, source.name, lossy=isinstance(error, LossyConversion))
            else:
                out.write(data + b"\n")
                converted += 1
            if lost:
                losses.add(lost, row.line)
                write_losses(losses_out, lost, row.line)
            if source.is_live:
                out.flush()
            meter.tick(converted + rejects.count, rejects.count, row.byte + len(row.data))
    return converted, losses


def conclude(
    converted: int, losses: Losses, rejects: Rejects, screen: Screen, *, quiet: bool, losses_file: str | None
) -> int:
    """Say what happened to the rows; gives the exit code."""
    rejects.show(screen)
    if not quiet:
        screen.note(f"{plural(converted, 'row', 'rows')} converted, {rejects.count} rejected, {losses.summary}")
        if losses_file != STREAM:
            losses.list_on(screen, losses_file)
    if rejects.count:
        screen.note(f"the rejected rows are in {rejects.path}")
    elif not quiet and not rejects.asked_for and os.path.exists(rejects.path):
        screen.note(f"{rejects.path} is of an earlier run")
    if rejects.count > rejects.lossy:
        return BAD_INPUT
    return LOSSY if rejects.lossy else OK


def write_losses(out: Sink | None, losses: Iterable[Loss], line: int = 0) -> None:
    """Losses as JSON Lines, each with the line of its row if it had one."""
    if out is None:
        return
    start = b'{"row":%d,' % line if line else b"{"
    out.write(b"".join([start + _encode(loss)[1:] + b"\n" for loss in losses]))


def _reject_line(row: Row, found: Fault, file: str) -> bytes:
    """A rejected row with its place and its reason, its own bytes unchanged."""
    record = {
        "file": os.fsencode(file).decode("utf-8", "replace"),
        "line": row.line,
        "byte": row.byte,
        "code": found.code,
        "path": found.path,
        "reason": found.message if not found.column else f"{found.message} (column {found.column})",
    }
    try:
        record["row"] = row.data.decode()
    except UnicodeDecodeError:
        record["row"] = row.data.decode("utf-8", "replace")
        record["row_base64"] = base64.b64encode(row.data).decode()
    return _encode(record) + b"\n"
