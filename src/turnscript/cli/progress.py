"""Owns the progress bar: rows, speed, rejects and the time left, for jobs that people wait for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

DELAY = 0.7
"""A job that is done sooner (in seconds) shows nothing."""

_INTERVAL = 0.2


class Meter:
    """Shows how far a pass over rows has come. Call `tick` after each row; it draws now and then, on stderr."""

    def __init__(self, size: int | None, *, enabled: bool) -> None:
        self._size = size
        self._began = time.monotonic()
        self._due = self._began + DELAY if enabled else float("inf")
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Meter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def tick(self, rows: int, rejects: int, read: int, before: tuple[int, int] = (0, 0)) -> None:
        """So many rows and bytes are done. `before`: of these, how many were done when it began."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _INTERVAL
            self._draw(Pace(now - self._began, rows, read, *before), rejects)

    def _draw(self, pace: Pace, rejects: int) -> None:
        if self._progress is None:
            self._progress = _bar(timed=self._size is not None)
            self._task = self._progress.add_task("", total=self._size, counts="", left="")
            self._progress.start()
        text = f"{pace.rows} rows  {pace}  {rejects} rejected"
        assert self._task is not None
        self._progress.update(
            self._task, completed=pace.read, counts=text, left=pace.left(self._size or 0), refresh=True
        )


class Pace(NamedTuple):
    """How fast a pass goes: what is done, and how much of it was done before the seconds began."""

    seconds: float
    rows: int
    read: int
    old_rows: int = 0
    old_read: int = 0

    def __str__(self) -> str:
        rows, read = self.rows - self.old_rows, self.read - self.old_read
        return f"{rows / self.seconds:.0f} rows/s  {read / self.seconds / 1e6:.1f} MB/s"

    def left(self, size: int) -> str:
        """How long the rest of so many bytes will take; empty if nobody can say."""
        read = self.read - self.old_read
        return f"{_clock(self.seconds * (size - self.read) / read)} left" if size and read > 0 else ""


def _bar(*, timed: bool) -> Progress:
    from rich.console import Console  # noqa: PLC0415  (slow to import, and most commands need none of it)
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    counts = TextColumn("{task.fields[counts]}", markup=False)
    columns = [BarColumn(bar_width=24), counts, TextColumn("{task.fields[left]}", markup=False)] if timed else [counts]
    return Progress(*columns, console=Console(stderr=True), transient=True, auto_refresh=False)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
