"""Owns the entry point of the command line: it needs the extra `cli`, and says so in one line where that is missing."""

from __future__ import annotations

import signal
import sys
from importlib.util import find_spec
from types import FrameType
from typing import NoReturn

from turnscript.cli import loading

_NEEDS = ("click", "rich")
_USAGE = 2


def main() -> NoReturn:
    """Run the command line and exit."""
    try:
        loading.loaded()
        _require_extra()
        _leave_on_signals()
        from turnscript.cli.commands import group  # noqa: PLC0415  (not before we know that click is there)

        group.main(prog_name="turnscript")
    except KeyboardInterrupt:  # while the commands are loaded; later they say it themselves
        sys.stderr.write(loading.NOTE)
        sys.exit(loading.INTERRUPTED)
    sys.exit()


def _require_extra() -> None:
    missing = [name for name in _NEEDS if find_spec(name) is None]
    if missing:
        sys.stderr.write(
            f"turnscript: error: the command line needs {' and '.join(missing)}: pip install 'turnscript[cli]'\n"
        )
        sys.exit(_USAGE)


def _leave_on_signals() -> None:
    """Let a polite kill unwind the stack, so that unfinished files are removed. An ignored signal stays ignored."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _leave)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)
