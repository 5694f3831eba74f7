"""The gateway: turnscript against LiteLLM's proxy and against the least that a gateway of the same stack can do.

Prints tables and asserts no timing. Exits 1 if turnscript or the floor cannot run, or if an answer is not the one that
the model's server gave. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import gateway_peers, report
from benchmarks.gateway_bodies import PATHS, second_turns, small
from benchmarks.gateway_peers import Clients, Process
from benchmarks.gateway_upstream import PACE, WORDS
from benchmarks.harness import PeerFailed, duration, table
from benchmarks.report import Report, Target, figure

MODULE = "benchmarks.gateway"
PACKAGES = ("turnscript", "aiohttp", "uvicorn", "uvloop", "orjson", "msgspec")
OURS, FLOOR, LITELLM = "turnscript", "floor", "litellm"
TOKENS = 400
"""Chunks of a stream that comes at once."""
KEPT = "responses, kept"
"""Answers that can be asked for again by their id. Only turnscript keeps them, so it is measured alone."""
STREAMS = 40
HELD = 200
MB = 1e6


@dataclass(frozen=True, slots=True)
class Plan:
    """How often everything is done; `slow` counts requests to a peer that takes milliseconds for each."""

    rounds: int
    requests: int
    slow: int
    bursts: int
    paced: int
    sessions: int


FULL = Plan(rounds=9, requests=600, slow=60, bursts=20, paced=100, sessions=60)
QUICK = Plan(rounds=3, requests=200, slow=30, bursts=8, paced=40, sessions=20)


@dataclass(slots=True)
class Figures:
    """What one peer did in one case, a value for each round."""

    cpu: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)

    @property
    def best(self) -> float:
        return min(self.cpu, default=math.nan)


Measured = dict[str, Figures]
Case = Callable[["Bench", str, str], tuple[float, dict[str, Any]]]


class Bench:
    """All peers, taking turns."""

    def __init__(
        self, peers: dict[str, Process], clients: Clients, upstream: int, plan: Plan, found: Report, folder: Path
    ) -> None:
        self.peers = peers
        self.clients = clients
        self.upstream = upstream
        self.plan = plan
        self.found = found
        self.folder = folder

    def load(
        self, peer: str, api: str, body: str, count: int, connections: int = 1, *, stamps: bool = False
    ) -> tuple[float, dict[str, Any]]:
        """CPU of each request, and what the clients saw."""
        process = self.peers[peer]
        before = process.cpu
        seen = self.clients.ask(
            "load",
            port=process.port,
            path=path_of(api),
            body=body,
            count=count,
            connections=connections,
            stamps=stamps,
        )
        return (process.cpu - before) / seen["times"], seen

    def straight(self, **load: Any) -> dict[str, Any]:
        """The same without a gateway."""
        body = json.dumps(
            {"model": load.pop("model"), "prompt": "User: hi", "max_tokens": WORDS, **load.pop("more", {})}
        )
        return self.clients.ask(load.pop("do", "load"), port=self.upstream, path="/v1/completions", body=body, **load)

    def rounds(self, title: str, api: str, case: Case, count: int | None = None) -> Measured:
        """A case, with every peer in every round."""
        able = [name for name in self.peers if self._can(name, title, api, case)]
        measured: Measured = {name: Figures() for name in able}
        for number in range(count or self.plan.rounds):
            first = number % len(able) if able else 0
            for name in (*able[first:], *able[:first]):
                cpu, seen = case(self, name, api)
                measured[name].cpu.append(cpu)
                measured[name].p50.append(seen["p50"])
                measured[name].p99.append(seen["p99"])
        return measured

    def _can(self, name: str, title: str, api: str, case: Case) -> bool:
        """Whether a peer can do this at all: the floor speaks chat alone. Warms it up."""
        if (name == FLOOR and api != "chat") or (name != OURS and api == KEPT):
            return False
        try:
            case(self, name, api)
        except PeerFailed as error:
            if name != LITELLM:
                self.found.fail(name, title, error)
            else:
                print(f"\nnot measured: {name}, {title}: {str(error)[:200]}", flush=True)
            return False
        return True


def path_of(api: str) -> str:
    return PATHS[api.partition(",")[0]]


# The cases.


def whole(bench: Bench, peer: str, api: str) -> tuple[float, dict[str, Any]]:
    """Whole answers, one request after the other."""
    count = bench.plan.slow if peer == LITELLM else bench.plan.requests
    return bench.load(peer, api, small(api, "quick", WORDS), count)


def many(bench: Bench, peer: str, api: str) -> tuple[float, dict[str, Any]]:
    """Whole answers on 16 connections, of a model that takes 25 to 75 ms, which are not counted."""
    count = 4 * bench.plan.slow if peer == LITELLM else bench.plan.requests
    return bench.load(peer, api, small(api, "slow", WORDS), count, 16, stamps=True)


def burst(bench: Bench, peer: str, api: str) -> tuple[float, dict[str, Any]]:
    """Streams whose chunks come all at once; CPU of a chunk, with what the request costs in it."""
    count = 2 if peer == LITELLM else bench.plan.bursts
    cpu, seen = bench.load(peer, api, small(api, "quick", TOKENS, stream=True), count)
    return cpu / TOKENS, seen


def paced(bench: Bench, peer: str, api: str) -> tuple[float, dict[str, Any]]:
    """40 streams of 40 chunks a second; how late each chunk is."""
    process, body = bench.peers[peer], small(api, "paced", bench.plan.paced, stream=True)
    before = process.cpu
    seen = bench.clients.ask("paced", port=process.port, path=PATHS[api], body=body, streams=STREAMS)
    return (process.cpu - before) / (STREAMS * bench.plan.paced), seen


# Checks.


def check(bench: Bench) -> None:
    """Every peer says what the model says, whole and streamed."""
    for name in list(bench.peers):
        for api in PATHS:
            if name == FLOOR and api != "chat":
                continue
            for stream in (False, True):
                _check(bench, name, api, stream=stream)


def _check(bench: Bench, name: str, api: str, *, stream: bool) -> None:
    case = f"{api}, {'streamed' if stream else 'whole'}"
    body = small(api, "quick", WORDS, stream=stream)
    try:
        said = bench.clients.ask("sample", port=bench.peers[name].port, path=PATHS[api], body=body)["body"]
        words = said.count("word")
        if words % WORDS or not words:
            raise PeerFailed(f"{words} words came of {WORDS}: {said[:300]}")
    except PeerFailed as error:
        if name == LITELLM:
            print(f"\n{name}: {case}: {str(error)[:200]}", flush=True)
        else:
            bench.found.fail(name, case, error)


# Tables.


def show(bench: Bench, title: str, unit: str, measured: Measured, straight: dict[str, Any] | None = None) -> None:
    """One table; `straight` is what the same takes without a gateway, None where waiting is not of interest."""
    rival, floor = measured.get(LITELLM), measured.get(FLOOR)
    rows = []
    for name, seen in measured.items():
        row = [name, duration(seen.best), duration(median(seen.cpu)), f"{1e9 / seen.best:,.0f}"]
        row += [ratio(rival, seen), ratio(seen, floor)]
        if straight is not None:
            row += [duration(max(0.0, late)) for late in added(seen, straight)]
        rows.append(row)
    headings = ["peer", f"CPU per {unit}, best", "median", f"{unit}s per core-second", "x litellm", "of floor"]
    headings += ["added p50", "added p99"] if straight is not None else []
    print(f"\n## {title}\n")
    print(table(headings, rows), flush=True)
    bench.found.record.setdefault("cases", []).append(
        {
            "title": title,
            "unit": unit,
            "straight": straight,
            "peers": {name: {"cpu": seen.cpu, "p50": seen.p50, "p99": seen.p99} for name, seen in measured.items()},
        }
    )


def in_rounds(one: Figures | None, other: Figures | None) -> float | None:
    """How many times what the other takes, the median over rounds."""
    if one is None or other is None or not one.cpu or not other.cpu:
        return None
    return median(mine / theirs for mine, theirs in zip(one.cpu, other.cpu, strict=True))


def ratio(one: Figures | None, other: Figures | None) -> str:
    return figure(in_rounds(one, other))


def added(seen: Figures, straight: dict[str, Any]) -> tuple[float, float]:
    """What a gateway adds to the wait of half of the clients, and of all but a hundredth."""
    return median(seen.p50) - straight["p50"], median(seen.p99) - straight["p99"]


def fixed(bench: Bench) -> None:
    """What turnscript takes for bodies of several sizes, and for the second turn of a coding agent."""
    if OURS not in bench.peers:
        return
    rows, process = [], bench.peers[OURS]
    for api, path in PATHS.items():
        firsts, seconds = second_turns(api, bench.plan.sessions, bench.plan.rounds)
        spent: dict[str, list[float]] = {"first": [], "second": []}
        for first, second in zip(firsts, seconds, strict=True):
            for which, lines in (("first", first), ("second", second)):
                file = bench.folder / "bodies.jsonl"
                file.write_bytes(b"\n".join(lines))
                before = process.cpu
                bench.clients.ask("load", port=process.port, path=path, count=0, connections=1, bodies=str(file))
                spent[which].append((process.cpu - before) / len(lines))
        size = len(seconds[0][0])
        rows.append([api, f"{size / 1000:.0f} KB", *(duration(min(values)) for values in spent.values())])
        bench.found.record.setdefault("agent", []).append({"api": api, "bytes": size, **spent})
    print("\n## A coding agent's requests, 12 tools: CPU of turnscript\n")
    print(table(["API", "body", "first turn", "second turn"], rows), flush=True)


def memory(bench: Bench, idle: dict[str, int]) -> dict[str, int]:
    """What the processes hold at rest, after work, and with 200 open streams more. Gives the growth."""
    rows, grown = [], {}
    for name, process in bench.peers.items():
        after = process.memory
        try:
            body = small("chat", "open", 1000, stream=True)
            bench.clients.ask("hold", port=process.port, path=PATHS["chat"], body=body, streams=HELD)
            grown[name] = process.memory - after
            held = f"{grown[name] / MB:+.0f} MB"
        except PeerFailed as error:
            held = str(error)[:80]
        bench.clients.ask("release")
        cells = [f"{idle[name] / MB:.0f} MB", f"{after / MB:.0f} MB", held]
        rows.append([name, f"{process.start:.1f} s", *cells])
        bench.found.record.setdefault("memory", {})[name] = {
            "start": process.start,
            "idle": idle[name],
            "after": after,
            "streams": grown.get(name),
        }
    print(f"\n## Memory\n\n{table(['peer', 'start', 'idle', 'after the work', f'{HELD} streams'], rows)}", flush=True)
    return grown


# The run.


def measure(bench: Bench) -> Iterator[Target]:
    """Everything; gives the targets."""
    idle = {name: process.memory for name, process in bench.peers.items()}
    check(bench)
    alone = [bench.straight(model="quick", count=bench.plan.requests, connections=1) for _ in range(3)]
    for api in (*PATHS, KEPT):
        found = bench.rounds(f"whole answers, {api}", api, whole)
        show(bench, f"Whole answers, {api}, 1 connection", "request", found, _middle(alone))
        if api in PATHS:
            yield from _targets(f"requests, {api}", found)
    straight = [bench.straight(model="slow", count=bench.plan.requests, connections=16, stamps=True) for _ in range(3)]
    for api in PATHS:
        found = bench.rounds(f"16 connections, {api}", api, many, max(3, bench.plan.rounds // 3))
        show(
            bench,
            f"Whole answers, {api}, 16 connections, a model that takes 50 ms",
            "request",
            found,
            _middle(straight),
        )
        late = added(found[OURS], _middle(straight)) if OURS in found else (None, None)
        for which, wanted, value in (("p50", 1.0, late[0]), ("p99", 10.0, late[1])):
            yield Target(f"added {which}, ms, {api}", wanted, None if value is None else value / 1e6, at_most=True)
    for api in PATHS:
        found = bench.rounds(f"streams at once, {api}", api, burst)
        show(bench, f"Streams of {TOKENS} chunks at once, {api}", "chunk", found)
        yield from _targets(f"chunks, {api}", found)
    straight = [
        bench.straight(
            do="paced", model="paced", streams=STREAMS, more={"stream": True, "max_tokens": bench.plan.paced}
        )
    ]
    for api in PATHS:
        found = bench.rounds(f"paced streams, {api}", api, paced, max(2, bench.plan.rounds // 3))
        title = f"{STREAMS} streams of {1 / PACE:.0f} chunks a second, {api}; how late a chunk is"
        show(bench, title, "chunk", found, straight[0])
    fixed(bench)
    grown = memory(bench, idle)
    ours = grown.get(OURS)
    yield Target("idle memory, MB", 90, idle[OURS] / MB if OURS in idle else None, at_most=True)
    yield Target(f"{HELD} open streams, MB", 60, None if ours is None else ours / MB, at_most=True)


def _middle(seen: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {key: median(one[key] for one in seen) for key in ("p50", "p99")}


def _targets(what: str, found: Measured) -> Iterator[Target]:
    ours = found.get(OURS)
    yield Target(f"x litellm, {what}", 20, in_rounds(found.get(LITELLM), ours))
    if FLOOR in found:
        yield Target(f"of floor, {what}", 3, in_rounds(ours, found.get(FLOOR)), at_most=True)


def run(options: argparse.Namespace) -> Report:
    plan = QUICK if options.quick else FULL
    if options.rounds:
        plan = Plan(options.rounds, *(getattr(plan, name) for name in plan.__slots__[1:]))
    found = report.begin(PACKAGES, rounds=plan.rounds)
    names = [name for name in gateway_peers.STARTERS if name not in options.without]
    with TemporaryDirectory() as folder, gateway_peers.started(names) as (peers, clients, upstream):
        able: dict[str, Process] = {}
        for name, peer in peers.items():
            if isinstance(peer, PeerFailed):
                found.fail(name, "start", peer)
            else:
                able[name] = peer
        found.targets += measure(Bench(able, clients, upstream, plan, found, Path(folder)))
    found.print_targets()
    return found


def arguments() -> argparse.Namespace:
    parser = report.parser(MODULE, __doc__, ())
    parser.add_argument(
        "--without", action="append", default=[], choices=list(gateway_peers.STARTERS), help="leave one out"
    )
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    sys.exit(run(given).finish(given.json))
