"""Owns the progress bar: rows, speed, rejects and the time left, for jobs that people wait for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

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

    def tick(self, rows: int, rejects: int, read: int) -> None:
        """So many rows and bytes are done."""
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _INTERVAL
            self._draw(now - self._began, rows, rejects, read)

    def _draw(self, seconds: float, rows: int, rejects: int, read: int) -> None:
        if self._progress is None:
            self._progress = _bar(timed=self._size is not None)
            self._task = self._progress.add_task("", total=self._size, counts="", left="")
            self._progress.start()
        text = f"{rows} rows  {rows / seconds:.0f} rows/s  {read / seconds / 1e6:.1f} MB/s  {rejects} rejected"
        left = f"{_clock(seconds * (self._size - read) / read)} left" if self._size and read else ""
        assert self._task is not None
        self._progress.update(self._task, completed=read, counts=text, left=left, refresh=True)


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
