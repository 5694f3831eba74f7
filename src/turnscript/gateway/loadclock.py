"""Owns the line on a terminal that tells how far the loading of a model is. It is a process of its own.

llama.cpp keeps all of Python from running while it loads, so nothing in its process could draw. What it has loaded is
told by the memory of that process, where the system shows it. The line goes when standard input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO

_INTERVAL = 0.5
_CLEAR = "\r\x1b[K"


def draw(name: str, total: int, loaded: Callable[[], int | None], end: threading.Thread, out: TextIO) -> None:
    """Draw until a thread ends: so many bytes of `total` are loaded, after so many seconds."""
    began, before = time.monotonic(), loaded()
    while end.is_alive():
        now, seconds = loaded(), time.monotonic() - began
        done = ""
        if now is not None and before is not None:
            done = f"{min(max(now - before, 0), total) / 1e9:.1f} of {total / 1e9:.1f} GB, "
        out.write(f"{_CLEAR}loading {name}: {done}{seconds:.0f} s")
        out.flush()
        end.join(_INTERVAL)
    out.write(_CLEAR)
    out.flush()


def memory_of(process: int) -> int | None:
    """Return how many bytes of memory a process has, where /proc tells."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def main() -> None:
    """Draw for the process that started this one. Arguments: its id, the total in bytes, the name of the model."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that loads; then standard input ends
    process, total, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    end = threading.Thread(target=sys.stdin.buffer.read, daemon=True)
    end.start()
    draw(name, total, lambda: memory_of(process), end, sys.stderr)


if __name__ == "__main__":
    main()
