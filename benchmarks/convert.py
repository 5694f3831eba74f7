"""Request-body conversion, bytes to bytes: turnscript against LiteLLM, json and the floors.

Prints tables and asserts no timing. Exits 1 if a peer cannot run, or if an output of turnscript says something else
than the session that went in. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import bodies, machine, outline, peers
from benchmarks.harness import PeerFailed, Seat, Worker, duration, exponent, faster, serve, table, take_turns
from benchmarks.session import Session

MODULE = "benchmarks.convert"
SIZES = (10_000, 100_000, 1_000_000)
SCALING = (1_000_000, 5_000_000, 20_000_000, 50_000_000)
SCALING_WAY = peers.WAYS[0]
SCALING_PEERS = ("turnscript", "litellm", "json round trip", "hand, orjson dicts")
EXACT = ("turnscript", "hand, orjson dicts")
"""Peers whose outline must equal the session's."""
TARGETS = {"x litellm": ">= 4, aim 10", "x json": ">= 1", "exponent": "1 (linear)", "peak": "<= 6.0x"}


@dataclass(slots=True)
class Report:
    """What the run found: the figures for `--json`, and the failures that make the exit status 1."""

    record: dict[str, Any] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def fail(self, text: str) -> None:
        if text not in self.failures:
            self.failures.append(text)
            print(f"\ncannot run: {text}", flush=True)


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


def seats_for(way: peers.Way, workers: dict[str, Worker], report: Report) -> list[Seat]:
    seats: list[Seat] = []
    for group, worker in workers.items():
        try:
            seats += [Seat(name, worker) for name in worker.ask("load", case=way)["peers"]]
        except PeerFailed as error:
            report.fail(f"{group}: {error}")
    return seats


def compare(way: peers.Way, size: int, seats: list[Seat], plan: Plan, report: Report) -> None:
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
                report.fail(f"{seat.name}, {way[0]} to {way[1]}, {amount(size)}: {error}")
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
    report.record["conversion"].append({"from": way[0], "to": way[1], "bytes": size, "peers": results})
    print_comparison(way, size, results)


def ratio(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def print_comparison(way: peers.Way, size: int, results: dict[str, dict[str, Any]]) -> None:
    rows = [
        [
            name,
            duration(row["ns"]),
            duration(row["median_ns"]),
            ratio(row["x litellm"]),
            ratio(row["x json"]),
            row["check"],
        ]
        for name, row in results.items()
    ]
    if "turnscript" not in results:
        rows.insert(0, ["turnscript", "missing", "-", "-", "-", "could not run, see above"])
    rows.append(["target for turnscript", "", "", TARGETS["x litellm"], TARGETS["x json"], ""])
    print(f"\n## {way[0]} to {way[1]}, {amount(size)}\n")
    print(table(["peer", "CPU, best", "median", "x litellm", "x json", "check"], rows), flush=True)


def print_summary(report: Report) -> None:
    """One line per body, for the README."""
    columns = ("litellm", "json round trip", "orjson round trip", "hand, orjson dicts")
    rows: list[list[str]] = []
    for case in report.record["conversion"]:
        measured = case["peers"]
        ours = measured.get("turnscript", {})
        times = [duration(measured[name]["ns"]) if name in measured else "-" for name in ("turnscript", *columns)]
        ratios = [ratio(ours.get("x litellm")), ratio(ours.get("x json"))]
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


def scale(workers: dict[str, Worker], plan: Plan, report: Report) -> None:
    """Time and memory as the body grows."""
    costs: dict[str, dict[int, Cost]] = {}
    seats = [seat for seat in seats_for(SCALING_WAY, workers, report) if seat.name in SCALING_PEERS]
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
                    report.fail(f"{seat.name}, {amount(size)}: {error}")
            for _ in range(max(plan.scaling_rounds, 20_000_000 // size)):
                for seat in able:
                    seat.take_turn()
            for seat in able:
                try:
                    cost = Cost(seat.best, measure_peak(seat, small, large))
                    costs.setdefault(seat.name, {})[size] = cost
                except PeerFailed as error:
                    report.fail(f"memory of {seat.name}, {amount(size)}: {error}")
    print_scaling(costs, plan, report)


def print_scaling(costs: dict[str, dict[int, Cost]], plan: Plan, report: Report) -> None:
    rows: list[list[str]] = []
    for name in SCALING_PEERS:
        points = costs.get(name, {})
        slope = exponent(list(points), [cost.ns for cost in points.values()]) if len(points) > 1 else None
        report.record["scaling"][name] = {
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


def run(plan: Plan) -> Report:
    versions = machine.versions("turnscript", "litellm", "orjson", "msgspec")
    report = Report(
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine.describe(),
            "versions": versions,
            "targets": TARGETS,
            "rounds": plan.rounds,
            "conversion": [],
            "scaling": {},
        }
    )
    print(f"{report.record['date']}, {report.record['machine']}")
    print(", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)
    with ExitStack() as stack:
        workers = {group: Worker(group, MODULE) for group in peers.GROUPS}
        for worker in workers.values():
            stack.callback(worker.close)
        for way in plan.ways:
            seats = seats_for(way, workers, report)
            for size in SIZES:
                compare(way, size, seats, plan, report)
        if plan.scaling:
            scale(workers, plan, report)
    print_summary(report)
    report.record["failures"] = report.failures
    return report


def load(group: str, case: list[str]) -> dict[str, peers.Peer]:
    return peers.GROUPS[group]((case[0], case[1]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, short turns, scaling to 5 MB only")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds of turns (default 15, quick 5)")
    parser.add_argument("--from", dest="source", choices=[source for source, _ in peers.WAYS], help="only this source")
    parser.add_argument("--no-scaling", action="store_true", help="leave out the large bodies")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to this file")
    parser.add_argument("--worker", choices=list(peers.GROUPS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.worker:
        with suppress(KeyboardInterrupt):
            serve(options.worker, load)
        return 0
    large = SCALING[:2] if options.quick else SCALING
    plan = Plan(
        ways=tuple(way for way in peers.WAYS if options.source in {None, way[0]}),
        rounds=options.rounds or (5 if options.quick else 15),
        turn_ns=8_000_000 if options.quick else 40_000_000,
        scaling=() if options.no_scaling else large,
        scaling_rounds=3,
    )
    report = run(plan)
    if options.json:
        options.json.write_text(json.dumps(report.record, indent=1) + "\n")
    for text in report.failures:
        print(f"failed: {text}", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
