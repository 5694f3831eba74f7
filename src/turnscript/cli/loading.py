"""Owns Ctrl-C while the command line is being loaded: it ends in one word, as it does later, without a traceback.

All of the package is loaded before its entry point can say anything, so the package itself loads this module first.
What this module imports is there already, or small: Ctrl-C meanwhile is a traceback.
Where it is a library of somebody else's program, nothing is done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from types import FrameType

INTERRUPTED = 130
NOTE = "turnscript: interrupted\n"
_COMMAND = "turnscript"


def is_command(argv: Sequence[str], original: Sequence[str]) -> bool:
    """Whether a process was started as the command line. `original`: with the interpreter and its options.

    A process that such a one has started to help it has the same `argv`, and not the same original.
    """
    first = argv[0] if argv else ""
    if first == "-m":
        return any(pair == ("-m", _COMMAND) for pair in pairwise(original))
    return os.path.basename(first) == _COMMAND and first in original


def loaded() -> None:
    """The entry point has begun: Ctrl-C is an exception again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(_number: int, _frame: FrameType | None) -> None:
    sys.stderr.write(NOTE)
    raise SystemExit(INTERRUPTED)


if is_command(sys.argv, sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)
