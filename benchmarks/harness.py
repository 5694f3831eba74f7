"""Fair turns: workers in processes of their own, timed by CPU, taking turns in every round; and the tables.

Theory of operation. Each group of peers runs in one worker process, so no peer pays for another's heap. The parent
sends one JSON line ("run this peer N times") and the worker answers with the CPU nanoseconds it took. In every round
each peer gets one turn, in an order that rotates; a ratio is taken between turns of the same round, and the figure
is the median over rounds. All workers share one core, where one at a time is busy. So a busy machine slows both
sides of a ratio alike.
"""

from __future__ import annotations

import gc
import json
import math
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FRESH_BATCH = 50
"""How many inputs are held at a time where each run needs one of its own."""
FRESH_RUNS = 4 * FRESH_BATCH
"""Most such runs in one turn: making the inputs takes longer than the runs."""


def _as_it_is(written: Any) -> Any:
    return written


@dataclass(frozen=True, slots=True)
class Peer:
    """What is timed, and what is done around it off the clock.

    `fresh` makes the input of one run; without it every run gets the body that the parent opened. `show` makes bytes
    of what a run gave, for the check.
    """

    run: Callable[[Any], Any]
    show: Callable[[Any], Any] = _as_it_is
    fresh: Callable[[], Any] | None = None


Load = Callable[[str, Any], Mapping[str, Peer]]
"""Group and case to peers by name."""


_ENVIRONMENT = {"PYTHONHASHSEED": "0", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
"""The same hashes in every run, and no peer that looks for models or remarks that it has none."""


class PeerFailed(Exception):
    """A peer could not be loaded or run; the text is its own error."""


class Worker:
    """One process that holds the peers of one group and runs one command at a time."""

    def __init__(self, group: str, module: str) -> None:
        self.group = group
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, "--worker", group],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **_ENVIRONMENT},
        )

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": operation, **fields}) + "\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed(f"the worker for {self.group} ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PeerFailed(answer["failed"])
        return answer

    def close(self) -> None:
        with suppress(BrokenPipeError):
            self._process.communicate()


class _Station:
    """The worker's side: peers loaded on request, one body at hand."""

    def __init__(self, group: str, load: Load) -> None:
        self.group = group
        self.load = load
        self.peers: Mapping[str, Peer] = {}
        self.body = b""

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        operation = question["do"]
        if operation == "load":
            self.peers = {}  # the old inputs go before the new ones come
            self.peers = self.load(self.group, question["case"])
            gc.collect()
            gc.freeze()
            return {"peers": list(self.peers)}
        if operation == "open":
            self.body = Path(question["path"]).read_bytes()
            return {}
        peer = self.peers[question["peer"]]
        if operation == "write":
            written = peer.show(peer.run(peer.fresh() if peer.fresh else self.body))
            if not isinstance(written, bytes):
                raise TypeError(f"{question['peer']} returned {type(written).__name__}, not bytes")
            Path(question["path"]).write_bytes(written)
            return {}
        if operation == "run":
            return _cpu(peer, self.body, question["times"])
        assert operation == "peak", operation
        return _peak(peer.run, self.body)


def serve(group: str, load: Load) -> None:
    """Answer questions from stdin until it closes. What peers print goes to stderr."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    station = _Station(group, load)
    for line in sys.stdin:
        try:
            answer = station.answer(json.loads(line))
        except Exception as error:  # a peer may raise anything; the parent reports it
            answer = {"failed": "".join(traceback.format_exception_only(error)).strip()}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _cpu(peer: Peer, body: bytes, times: int) -> dict[str, Any]:
    """Run a peer up to `times` times; the answer says how often it did."""
    run, fresh = peer.run, peer.fresh
    if fresh is None:
        start = time.process_time_ns()
        for value in repeat(body, times):
            run(value)
        return {"ns": time.process_time_ns() - start, "times": times}
    times = min(times, FRESH_RUNS)
    spent = 0
    for first in range(0, times, FRESH_BATCH):
        values = [fresh() for _ in range(min(FRESH_BATCH, times - first))]
        start = time.process_time_ns()
        for value in values:
            run(value)
        spent += time.process_time_ns() - start
    return {"ns": spent, "times": times}


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise PeerFailed(f"no {field} in /proc/self/status")


def _peak(convert: Callable[[bytes], bytes], body: bytes) -> dict[str, Any]:
    """Growth of the resident set over one first run, its result included.

    VmHWM belongs to this process alone; ru_maxrss would start at the parent's. Writing 5 resets it to now.
    """
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")
    before = _memory("VmRSS")
    written = convert(body)
    return {"bytes": _memory("VmHWM") - before, "written": len(written)}


@dataclass(slots=True)
class Seat:
    """A peer in a worker, and the nanoseconds per run of each of its turns."""

    name: str
    worker: Worker
    times: int = 1
    turns: list[float] | None = None

    @property
    def best(self) -> float:
        return min(self.turns or [math.nan])

    @property
    def usual(self) -> float:
        return median(self.turns or [math.nan])

    def calibrate(self, turn_ns: int) -> None:
        """Choose how many runs fill one turn; the runs here warm the peer up."""
        self.worker.ask("run", peer=self.name, times=1)
        single = max(1, self.worker.ask("run", peer=self.name, times=1)["ns"])
        probe = max(1, min(200, turn_ns // 4 // single))
        spent = single if probe == 1 else max(1, self.worker.ask("run", peer=self.name, times=probe)["ns"])
        self.times = max(1, min(2_000_000, int(turn_ns * probe / spent)))
        self.turns = []

    def take_turn(self) -> None:
        assert self.turns is not None
        answer = self.worker.ask("run", peer=self.name, times=self.times)
        self.turns.append(answer["ns"] / answer["times"])


def take_turns(seats: Sequence[Seat], rounds: int, turn_ns: int) -> None:
    for seat in seats:
        seat.calibrate(turn_ns)
    for number in range(rounds):
        first = number % len(seats)
        for seat in (*seats[first:], *seats[:first]):
            seat.take_turn()


def faster(seat: Seat, than: Seat) -> float:
    """How many times less CPU `seat` needs: the median over rounds of the ratio inside a round."""
    assert seat.turns
    assert than.turns
    return median(other / own for own, other in zip(seat.turns, than.turns, strict=True))


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Least-squares slope on log-log axes: 1 is linear, 2 is quadratic."""
    xs = [math.log(size) for size in sizes]
    ys = [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    along = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return along / sum((x - mean_x) ** 2 for x in xs)


def duration(nanoseconds: float) -> str:
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= scale:
            return f"{nanoseconds / scale:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned Markdown table, so that stdout can be pasted into the README; the first column is text."""
    widths = [max(len(row[index]) for row in (headings, *rows)) for index in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        padded = [cells[0].ljust(widths[0])]
        padded += [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(headings), line(rule), *(line(row) for row in rows)])
