"""Request-body conversion, bytes to bytes: turnscript against LiteLLM, json and the floors.

Prints tables and asserts no timing. Exits 1 if a peer cannot run, or if an output of turnscript says something else
than the session that went in. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import bodies, outline, peers, report
from benchmarks.harness import Peer, PeerFailed, Seat, Worker, duration, exponent, faster, table, take_turns
from benchmarks.report import Report, figure
from benchmarks.session import Session

MODULE = "benchmarks.convert"
PACKAGES = ("turnscript", "litellm", "orjson", "msgspec")
SIZES = (10_000, 100_000, 1_000_000)
SCALING = (1_000_000, 5_000_000, 20_000_000, 50_000_000)
SCALING_WAY = peers.WAYS[0]
SCALING_PEERS = ("turnscript", "litellm", "json round trip", "hand, orjson dicts")
EXACT = ("turnscript", "hand, orjson dicts")
"""Peers whose outline must equal the session's."""
TARGETS = {"x litellm": ">= 4, aim 10", "x json": ">= 1", "exponent": "1 (linear)", "peak": "<= 6.0x"}


@dataclass(frozen=True, slots=True)
class Plan:
    ways: tuple[peers.Way, ...]
    rounds: int
    turn_ns: int
    scaling: tuple[int, ...]
    scaling_rounds: int


@dataclass(frozen=True, slots=True)
class Cost:
    """What one peer takes for one large body."""

    ns: float
    peak: int


def amount(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1000} KB"


def check(seat: Seat, way: peers.Way, conversation: Session, body: bytes, folder: Path) -> str:
    """Run the peer once and say what it did with the body."""
    path = folder / "written.json"
    seat.worker.ask("write", peer=seat.name, path=str(path))
    written = path.read_bytes()
    if seat.name not in peers.CONVERTING:
        return "same value" if json.loads(written) == json.loads(body) else "another value"
    said = outline.of_body(way[1], json.loads(written))
    wanted = outline.of_session(conversation)
    difference = wanted.difference(said)
    if difference and seat.name in EXACT:
        raise PeerFailed(f"wrong output: {difference}")
    thinking = f"thinking {len(said.thinking)} of {len(wanted.thinking)}"
    return f"{said.messages} messages, {thinking}, {difference or 'all equal'}"


def compare(way: peers.Way, size: int, seats: list[Seat], plan: Plan, found: Report) -> None:
    """One table: every peer on one body."""
    conversation = bodies.fitted(way[0], size)
    body = bodies.encode(bodies.SHAPES[way[0]](conversation))
    able: list[Seat] = []
    checks: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "body.json"
        path.write_bytes(body)
        for seat in seats:
            try:
                seat.worker.ask("open", path=str(path))
                checks[seat.name] = check(seat, way, conversation, body, folder)
                able.append(seat)
            except PeerFailed as error:
                found.fail(seat.name, f"{way[0]} to {way[1]}, {amount(size)}", error)
    take_turns(able, plan.rounds, plan.turn_ns)
    by_name = {seat.name: seat for seat in able}
    rivals = {"x litellm": by_name.get("litellm"), "x json": by_name.get("json round trip")}
    results: dict[str, dict[str, Any]] = {
        seat.name: {
            "ns": seat.best,
            "median_ns": seat.usual,
            **{column: faster(seat, rival) if rival else None for column, rival in rivals.items()},
            "check": checks[seat.name],
        }
        for seat in able
    }
    found.record["conversion"].append({"from": way[0], "to": way[1], "bytes": size, "peers": results})
    print_comparison(way, size, results)


def print_comparison(way: peers.Way, size: int, results: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            name,
            duration(row["ns"]),
            duration(row["median_ns"]),
            figure(row["x litellm"]),
            figure(row["x json"]),
            row["check"],
        ]
        for name, row in results.items()
    ]
    if "turnscript" not in results:
        rows.insert(0, ["turnscript", "missing", "-", "-", "-", "could not run, see above"])
    rows.append(["target for turnscript", "", "", TARGETS["x litellm"], TARGETS["x json"], ""])
    print(f"\n## {way[0]} to {way[1]}, {amount(size)}\n")
    print(table(["peer", "CPU, best", "median", "x litellm", "x json", "check"], rows), flush=True)


def print_summary(found: Report) -> None:
    """One line per body, for the README."""
    columns = ("litellm", "json round trip", "orjson round trip", "hand, orjson dicts")
    rows: list[list[str]] = []
    for case in found.record["conversion"]:
        measured = case["peers"]
        ours = measured.get("turnscript", {})
        times = [duration(measured[name]["ns"]) if name in measured else "-" for name in ("turnscript", *columns)]
        ratios = [figure(ours.get("x litellm")), figure(ours.get("x json"))]
        rows.append([f"{case['from']} to {case['to']}, {amount(case['bytes'])}", *times, *ratios])
    print("\n## Summary (CPU, best round; x = turnscript is that many times faster, median of rounds)\n")
    print(table(["body", "turnscript", *columns, "x litellm", "x json"], rows), flush=True)


def measure_peak(seat: Seat, small: Path, large: Path) -> int:
    """Peak memory of one conversion in a fresh process, after a small one that loads what is loaded once."""
    worker = Worker(seat.worker.group, MODULE)
    try:
        worker.ask("load", case=SCALING_WAY)
        worker.ask("open", path=str(small))
        worker.ask("run", peer=seat.name, times=1)
        worker.ask("open", path=str(large))
        peak: int = worker.ask("peak", peer=seat.name)["bytes"]
        return peak
    finally:
        worker.close()


def scale(workers: dict[str, Worker], plan: Plan, found: Report) -> None:
    """Time and memory as the body grows."""
    costs: dict[str, dict[int, Cost]] = {}
    seats = [seat for seat in report.seats(workers, SCALING_WAY, found) if seat.name in SCALING_PEERS]
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name, "small.json"), Path(name, "large.json")
        small.write_bytes(bodies.body(SCALING_WAY[0], SIZES[0]))
        for size in plan.scaling:
            large.write_bytes(bodies.body(SCALING_WAY[0], size))
            able = list(seats)
            for seat in seats:
                try:
                    seat.worker.ask("open", path=str(large))
                    seat.worker.ask("run", peer=seat.name, times=1)
                    seat.times, seat.turns = 1, []
                except PeerFailed as error:
                    able.remove(seat)
                    found.fail(seat.name, amount(size), error)
            for _ in range(max(plan.scaling_rounds, 20_000_000 // size)):
                for seat in able:
                    seat.take_turn()
            for seat in able:
                try:
                    cost = Cost(seat.best, measure_peak(seat, small, large))
                    costs.setdefault(seat.name, {})[size] = cost
                except PeerFailed as error:
                    found.fail(seat.name, f"memory, {amount(size)}", error)
    print_scaling(costs, plan, found)


def print_scaling(costs: dict[str, dict[int, Cost]], plan: Plan, found: Report) -> None:
    rows: list[list[str]] = []
    for name in SCALING_PEERS:
        points = costs.get(name, {})
        slope = exponent(list(points), [cost.ns for cost in points.values()]) if len(points) > 1 else None
        found.record["scaling"][name] = {
            "exponent": slope,
            "points": [{"bytes": size, "ns": cost.ns, "peak": cost.peak} for size, cost in points.items()],
        }
        cells = [
            f"{duration(points[size].ns / size * 1e6)}, {points[size].peak / size:.1f}x"
            if size in points
            else "missing"
            for size in plan.scaling
        ]
        rows.append([name, *cells, "-" if slope is None else f"{slope:.2f}"])
    rows.append(["target for turnscript", *(TARGETS["peak"] for _ in plan.scaling), TARGETS["exponent"]])
    print(f"\n## Scaling, {SCALING_WAY[0]} to {SCALING_WAY[1]}: CPU per MB, peak memory as a multiple of the body\n")
    print(table(["peer", *(amount(size) for size in plan.scaling), "exponent"], rows), flush=True)


def run(options: argparse.Namespace) -> Report:
    large = SCALING[:2] if options.quick else SCALING
    plan = Plan(
        ways=tuple(way for way in peers.WAYS if options.source in {None, way[0]}),
        rounds=options.rounds or (5 if options.quick else 15),
        turn_ns=8_000_000 if options.quick else 40_000_000,
        scaling=() if options.no_scaling else large,
        scaling_rounds=3,
    )
    found = report.begin(PACKAGES, targets=TARGETS, rounds=plan.rounds, conversion=[], scaling={})
    with report.workers(peers.GROUPS, MODULE) as workers:
        for way in plan.ways:
            seats = report.seats(workers, way, found)
            for size in SIZES:
                compare(way, size, seats, plan, found)
        if plan.scaling:
            scale(workers, plan, found)
    print_summary(found)
    return found


def load(group: str, case: list[str]) -> dict[str, Peer]:
    return {name: Peer(run) for name, run in peers.GROUPS[group]((case[0], case[1])).items()}


def arguments() -> argparse.Namespace:
    parser = report.parser(MODULE, __doc__, peers.GROUPS)
    parser.add_argument("--from", dest="source", choices=[source for source, _ in peers.WAYS], help="only this source")
    parser.add_argument("--no-scaling", action="store_true", help="leave out the large bodies")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(report.main(arguments(), load, run))
