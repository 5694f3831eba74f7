"""Streams of the four APIs, written and read: turnscript against one JSON encoding, or decoding, of each payload.

Events of a model become server-sent events, told one by one and eight at a time; and such a stream is read again, one
event and 4 KB at a time. Beside that, in the same run, msgspec encodes exactly the payloads that turnscript wrote, and
json.loads and the official SDKs read them. Prints tables and asserts no timing. Exits 1 if a peer cannot run, or if a
stream says something else than what was told. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks import report, streams
from benchmarks.harness import Peer, PeerFailed, Seat, Worker, duration, exponent, faster, table, take_turns
from benchmarks.report import Report, Target, figure
from benchmarks.streams import SHAPES, TOLD

MODULE = "benchmarks.sse"
PACKAGES = ("turnscript", "msgspec", "openai", "anthropic")
ONE, EIGHT, FLOOR, STRUCTS = "one by one", "eight at a time", "msgspec, dicts", "msgspec, structs"
SINGLY, BLOCKS, LOADS, DECODE, SDK = "one event a feed", "4 KB a feed", "json.loads", "msgspec.json.decode", "SDK"
OURS = "turnscript"
COLLECTED, ENDED = "collected deltas", "turnscript, to the end"
BLOCK = 4096
WRITTEN = 1000
READ = (1000, 8000, 64_000)
SDK_SIZE = 1000
"""The SDKs take a tenth of a millisecond for a delta: larger streams would tell nothing more."""
WRITERS = (ONE, EIGHT, FLOOR, STRUCTS)
Case = dict[str, Any]
"""`way` (`write`, `read` or `memory`), `api`, `shape` by name, and `size` in deltas."""


# What each peer does. A group is loaded only in its own process.


def turnscript(case: Case) -> dict[str, Peer]:
    if case["way"] == "write":
        return _writers(case)
    ts: Any = import_module("turnscript")
    stream = streams.stream(case["api"], case["shape"], case["size"])
    events = streams.frames(stream)
    api = ts.get_api(case["api"])

    def reader(pieces: list[bytes]) -> Peer:
        def read(_: bytes) -> list[Any]:
            parser = api.stream_parser()
            told: list[Any] = []
            for piece in pieces:
                told += parser.feed(piece)
            told += parser.close()
            return told

        return Peer(read, lambda told: _shown(streams.told_by(ts.fold(told).items)))

    if case["way"] == "memory":
        deltas = events[: streams.behind_the_deltas(events)]
        return {
            OURS: Peer(lambda _: _peak(lambda: _read_through(api.stream_parser(), deltas))),
            ENDED: Peer(lambda _: _peak(lambda: _read_through(api.stream_parser(), events))),
        }
    blocks = [stream[start : start + BLOCK] for start in range(0, len(stream), BLOCK)]
    return {SINGLY: reader(events), BLOCKS: reader(blocks)}


def _writers(case: Case) -> dict[str, Peer]:
    told = streams.events(case["shape"], case["size"])
    renderer = streams.renderer(case["api"])

    def writer(batches: list[list[Any]]) -> Peer:
        def write(_: bytes) -> list[bytes]:
            stream = renderer()
            send = stream.send
            written = [send(batch) for batch in batches]
            written.append(stream.close())
            return written

        return Peer(write, b"".join)

    by_eight = [told[start : start + 8] for start in range(0, len(told), 8)]
    return {ONE: writer([[event] for event in told]), EIGHT: writer(by_eight)}


def _read_through(parser: Any, pieces: list[bytes]) -> None:
    """Read a stream and keep none of its events."""
    for piece in pieces:
        parser.feed(piece)


def _peak(run: Callable[[], object]) -> bytes:
    """The most memory that was allocated at any time of a run, beyond what was there before."""
    tracemalloc.start()
    run()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return str(most).encode()


def floors(case: Case) -> dict[str, Peer]:
    msgspec: Any = import_module("msgspec")
    if case["way"] == "memory":
        pieces = [
            piece.encode() for _, text in streams.parts(case["shape"], case["size"]) for piece in streams.pieces(text)
        ]
        return {COLLECTED: Peer(lambda _: _peak(lambda: [piece.decode() for piece in pieces]))}
    bodies = streams.bodies(streams.stream(case["api"], case["shape"], case["size"]))
    payloads = [json.loads(body) for body in bodies]
    structs = [streams.as_struct(msgspec, payload) for payload in payloads]
    encode, loads, decode = msgspec.json.encode, json.loads, msgspec.json.decode
    if case["way"] == "write":
        return {
            FLOOR: Peer(lambda _: [encode(payload) for payload in payloads], streams.framed),
            STRUCTS: Peer(lambda _: [encode(payload) for payload in structs], streams.framed),
        }
    return {
        LOADS: Peer(lambda _: [loads(body) for body in bodies], _said_by),
        DECODE: Peer(lambda _: [decode(body) for body in bodies], _said_by),
    }


def _said_by(payloads: list[Any]) -> bytes:
    return _shown(streams.said(payloads))


def sdks(case: Case) -> dict[str, Peer]:
    if case["way"] != "read" or case["size"] > SDK_SIZE:
        return {}
    read = streams.sdk(case["api"], streams.stream(case["api"], case["shape"], case["size"]))
    return {SDK: Peer(lambda _: read(), lambda told: _said_by([one.model_dump() for one in told]))}


def _shown(said: streams.Said) -> bytes:
    return json.dumps(said).encode()


GROUPS: dict[str, Callable[[Case], dict[str, Peer]]] = {"turnscript": turnscript, "floors": floors, "sdks": sdks}


def load(group: str, case: Case) -> dict[str, Peer]:
    return GROUPS[group](case)


# What is made of their times.


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    turn_ns: int


def compared(case: Case) -> Callable[[str, bytes], str]:
    wanted = [list(part) for part in streams.parts(case["shape"], case["size"])]

    def check(name: str, written: bytes) -> str:
        if case["way"] == "write":
            said = streams.said([json.loads(body) for body in streams.bodies(written)])
        else:
            said = json.loads(written)
        if said != wanted:
            raise PeerFailed(f"wrong output: {str(said)[:200]}")
        return "all equal"

    return check


def _timed(case: Case, workers: Mapping[str, Worker], plan: Plan, found: Report) -> dict[str, Seat]:
    """Every peer of a case, after its turns."""
    able, _ = report.checked(report.seats(workers, case, found), case, compared(case), found)
    take_turns(able, plan.rounds, plan.turn_ns)
    return {seat.name: seat for seat in able}


def _of(seats: Mapping[str, Seat], name: str, floor: str) -> float | None:
    """How many times the CPU of the floor a peer took."""
    return 1 / faster(seats[name], seats[floor]) if name in seats and floor in seats else None


def _recorded(case: Case, seats: Mapping[str, Seat], **more: Any) -> dict[str, Any]:
    peers = {name: {"ns": seat.best, "median_ns": seat.usual} for name, seat in seats.items()}
    return {**case, "peers": peers, **more}


def written(workers: Mapping[str, Worker], plan: Plan, found: Report) -> list[Target]:
    """Time the writing of every shape by every API, print the table, and give the targets."""
    rows, targets = [], []
    for api, shapes in TOLD.items():
        for shape in shapes:
            case = {"way": "write", "api": api, "shape": shape, "size": WRITTEN}
            seats = _timed(case, workers, plan, found)
            payloads = len(streams.bodies(streams.stream(api, shape, WRITTEN)))
            ratios = {name: _of(seats, name, FLOOR) for name in (ONE, EIGHT)}
            found.record["cases"].append(_recorded(case, seats, payloads=payloads, of_msgspec=ratios))
            times = [duration(seats[name].best) if name in seats else "-" for name in WRITERS]
            cells = [figure(ratio) for ratio in ratios.values()]
            rows.append([f"{api}, {shape}", f"{payloads:,}", *times, *cells])
            targets += [
                Target(f"{api}, {shape}, {name}, of msgspec", 2, ratio, at_most=True) for name, ratio in ratios.items()
            ]
    print(f"\n## Written: CPU of a stream of {WRITTEN:,} deltas of four characters (best round)\n")
    headings = ["stream", "payloads", *WRITERS, *(f"{name}, of msgspec" for name in (ONE, EIGHT))]
    print(table(headings, rows), flush=True)
    return targets


def read(workers: Mapping[str, Worker], plan: Plan, found: Report) -> list[Target]:
    """Time the reading of every shape in every size, print the table, and give the targets."""
    rows, targets = [], []
    for api, shapes in TOLD.items():
        for shape in shapes:
            case = {"way": "read", "api": api, "shape": shape}
            by_size = {size: _timed({**case, "size": size}, workers, plan, found) for size in READ}
            for size, seats in by_size.items():
                found.record["cases"].append(_recorded({**case, "size": size}, seats))
            first, last = by_size[READ[0]], by_size[READ[-1]]
            slope = None
            if all(SINGLY in seats for seats in by_size.values()):
                slope = exponent(READ[1:], [by_size[size][SINGLY].best for size in READ[1:]])
            cells = [_each(first, SINGLY, READ[0]), _each(last, SINGLY, READ[-1]), _each(last, BLOCKS, READ[-1])]
            cells += [_each(first, name, READ[0]) for name in (LOADS, DECODE, SDK)]
            ratios = [_of(first, SINGLY, LOADS), _of(first, BLOCKS, LOADS), _of(first, SDK, SINGLY)]
            rows.append([f"{api}, {shape}", *cells, figure(slope), *(figure(ratio) for ratio in ratios)])
            targets.append(Target(f"{api}, {shape}, read, exponent", 1.05, slope, at_most=True))
    print("\n## Read: CPU of a delta (best round)\n")
    sizes = [f"{SINGLY}, {READ[0]:,}", f"{SINGLY}, {READ[-1]:,}", f"{BLOCKS}, {READ[-1]:,}"]
    ratio_headings = [f"{SINGLY}, of json.loads", f"{BLOCKS}, of json.loads", "x SDK"]
    print(table(["stream", *sizes, LOADS, DECODE, SDK, "exponent", *ratio_headings], rows), flush=True)
    return targets


def _each(seats: Mapping[str, Seat], name: str, deltas: int) -> str:
    return duration(seats[name].best / deltas) if name in seats else "-"


def memory(workers: Mapping[str, Worker], found: Report) -> list[Target]:
    """Measure what the reading of a text holds in every size, print the table, and give the targets."""
    rows, targets = [], []
    for api in TOLD:
        beyond: list[float] = []
        cells: list[str] = []
        for size in READ:
            peaks: dict[str, int] = {}
            case = {"way": "memory", "api": api, "shape": SHAPES[0], "size": size}
            seats = report.seats({name: workers[name] for name in ("turnscript", "floors")}, case, found)

            def take(name: str, written: bytes, peaks: dict[str, int] = peaks) -> str:
                peaks[name] = int(written)
                return "measured"

            for _ in range(2):  # the first run allocates what stays
                report.checked(seats, case, take, found)
            found.record["cases"].append({**case, "peaks": peaks})
            ours, deltas = peaks.get(OURS, 0), peaks.get(COLLECTED, 0)
            beyond.append((ours - deltas) / 1024)
            cells.append(f"{ours / 1024:,.0f} - {deltas / 1024:,.0f} = {beyond[-1]:,.0f} KB")
            ended = f"{peaks.get(ENDED, 0) / 1024:,.0f} KB"
        rows.append([f"{api}, {SHAPES[0]}", *cells, ended])
        growth = (beyond[-1] - beyond[0]) / (READ[-1] - READ[0]) * 1024
        targets.append(Target(f"{api}, bytes held of a delta, beyond its text", 2, growth, at_most=True))
    print("\n## Read: memory at most allocated by the last delta, less that of all deltas in a list\n")
    print(table(["stream", *(f"{size:,} deltas" for size in READ), f"{READ[-1]:,}, to the end"], rows), flush=True)
    return targets


def run(options: argparse.Namespace) -> Report:
    rounds = options.rounds or (5 if options.quick else 15)
    plan = Plan(rounds, 8_000_000 if options.quick else 40_000_000)
    found = report.begin(PACKAGES, rounds=rounds, cases=[])
    with report.workers(GROUPS, MODULE) as workers:
        targets = written(workers, plan, found)
        targets += read(workers, plan, found)
        targets += memory(workers, found)
    found.targets = targets
    found.print_targets()
    return found


if __name__ == "__main__":
    sys.exit(report.main(report.parser(MODULE, __doc__, GROUPS).parse_args(), load, run))
