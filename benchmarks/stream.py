"""Parsing what a model writes: turnscript against transformers' response parser and parsers written by hand.

Streams in pieces of four characters, of seven shapes and three sizes each, and complete texts fed once. Prints tables
and asserts no timing. Exits 1 if a peer cannot run, or if turnscript (or the hand-written floor) reads something else
than what the text says. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from benchmarks import bodies, hand_parse, outputs, report
from benchmarks.harness import Peer, PeerFailed, Seat, Worker, duration, exponent, faster, table, take_turns
from benchmarks.outputs import CHATML, MIXED, SHAPES, Output, Said, Shape
from benchmarks.report import Report, Target, figure

MODULE = "benchmarks.stream"
PACKAGES = ("turnscript", "transformers", "regex", "msgspec")
OURS, HF, HAND = "turnscript", "transformers", "hand"
COLUMNS = ("x transformers", "of hand")
FLOORS = (MIXED.name, "XML parameters")
"""Shapes that are also timed with what is no parser: a search in every piece, and joining the pieces."""
Case = dict[str, Any]
"""`way` (`stream` or `whole`), `shape` by name, and `size`."""


def _shape(case: Case) -> Shape:
    return next(shape for shape in SHAPES if shape.name == case["shape"])


# What each peer does. A group is loaded only in its own process.


def turnscript(case: Case) -> dict[str, Peer]:
    ts: Any = import_module("turnscript")
    shape = _shape(case)
    output = shape.build(case["size"])
    asked = ts.parse(bodies.encode(outputs.request(shape, case["size"])), "openai-chat")
    prompt = ts.get_format(shape.format).prompt(asked)
    pieces = output.pieces if case["way"] == "stream" else [output.text]

    def parse(_: bytes) -> Any:
        parser = prompt.parser()
        events: list[Any] = []
        for piece in pieces:
            events += parser.feed(piece)
        events += parser.close()
        return ts.fold(events)

    def show(response: Any) -> bytes:
        if response.raw != output.text:
            raise PeerFailed("the raw text of all events is not the text that was fed")
        return _shown([_said(ts, item) for item in response.items])

    return {OURS: Peer(parse, show)}


def _said(ts: Any, item: Any) -> list[Any]:
    if isinstance(item, ts.ToolCall):
        return ["call", item.name, json.loads(item.arguments)]
    kind = "thinking" if isinstance(item, ts.Thinking) else "text"
    return [kind, "".join([part.text for part in item.content])]


def _shown(said: Said) -> bytes:
    return json.dumps(said).encode()


TEMPLATE = {
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "thinking": {"open": "<think>", "close": "</think>"},
        "content": {"repeats": True, "join": ""},
        "tool_calls": {
            "open": "<tool_call>",
            "close": "</tool_call>",
            "content": "json",
            "repeats": True,
            "transform": {"type": "function", "function": {"name": "{content.name}", "arguments": "{content.input}"}},
        },
    },
}
"""transformers' declaration of the same output. The line ends between calls are texts of their own, hence `join`."""


def transformers(case: Case) -> dict[str, Peer]:
    if _shape(case).format != CHATML:
        return {}
    parsing: Any = import_module("transformers.utils.chat_parsing")
    loading: Any = import_module("transformers.utils.chat_parsing.response_templates")
    template = loading.load_response_template(TEMPLATE)
    output = _shape(case).build(case["size"])
    pieces = output.pieces

    def stream(_: bytes) -> Any:
        parser = parsing.ResponseParser(template, prefix="")
        events: list[Any] = []
        for piece in pieces:
            events += parser.feed(piece)
        message, final = parser.finalize()
        events += final
        return message

    def whole(_: bytes) -> Any:
        return parsing.parse_response(output.text, template, prefix="")

    def show(message: Any) -> bytes:
        said: Said = [["thinking", message["thinking"]]] if "thinking" in message else []
        said.append(["text", message.get("content", "")])
        functions = [call["function"] for call in message.get("tool_calls", ())]
        return _shown(said + [["call", function["name"], function["arguments"]] for function in functions])

    return {HF: Peer(stream if case["way"] == "stream" else whole, show)}


def floors(case: Case) -> dict[str, Peer]:
    shape = _shape(case)
    output = shape.build(case["size"])
    pieces = output.pieces
    if case["way"] == "whole":
        return {HAND: Peer(lambda _: hand_parse.whole(output.text), _shown)}

    def machine(_: bytes) -> list[hand_parse.Event]:
        parser = hand_parse.Machine()
        events: list[hand_parse.Event] = []
        for piece in pieces:
            events += parser.feed(piece)
        events += parser.close()
        return events

    def find(_: bytes) -> int:
        found = 0
        for piece in pieces:
            if piece.find("<") >= 0:
                found += 1
        return found

    def join(_: bytes) -> str:
        taken: list[str] = []
        for piece in pieces:
            taken.append(piece)  # noqa: PERF402
        return "".join(taken)

    peers = {HAND: Peer(machine, lambda events: _shown(hand_parse.said(events)))} if shape.format == CHATML else {}
    if shape.name in FLOORS:
        peers |= {"str.find": Peer(find, lambda _: b"null"), "append, join": Peer(join, lambda _: b"null")}
    return peers


GROUPS: dict[str, Callable[[Case], dict[str, Peer]]] = {
    "turnscript": turnscript,
    "transformers": transformers,
    "floors": floors,
}


def load(group: str, case: Case) -> dict[str, Peer]:
    return GROUPS[group](case)


# What is made of their times.


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    turn_ns: int


def compared(output: Output) -> Callable[[str, bytes], str]:
    wanted = _bare(output.said)

    def check(name: str, written: bytes) -> str:
        said = json.loads(written)
        if said is None:
            return "no parser"
        difference = _difference(wanted, _bare(said))
        if difference and name != HF:
            raise PeerFailed(f"wrong output: {difference}")
        return difference or "all equal"

    return check


def _bare(said: Said) -> Said:
    """Without the blanks between parts: whose they are is a matter of taste."""
    stripped = [[kind, rest[0].strip()] if kind != "call" else [kind, *rest] for kind, *rest in said]
    return [part for part in stripped if part[1]]


def _difference(wanted: Said, said: Said) -> str | None:
    for number, (mine, theirs) in enumerate(zip(wanted, said, strict=False)):
        if mine != theirs:
            return f"part {number}: {str(mine)[:60]} became {str(theirs)[:60]}"
    return None if len(wanted) == len(said) else f"{len(wanted)} parts became {len(said)}"


def measure(way: str, shape: Shape, workers: Mapping[str, Worker], plan: Plan, found: Report) -> dict[str, Any]:
    """Time every peer on all sizes of one shape, print the table, and give the figures by peer."""
    results: dict[str, dict[str, Any]] = {}
    lengths: list[int] = []
    for size in shape.sizes:
        case = {"way": way, "shape": shape.name, "size": size}
        output = shape.build(size)
        lengths.append(len(output.text))
        able, verdicts = report.checked(report.seats(workers, case, found), case, compared(output), found)
        take_turns(able, plan.rounds, plan.turn_ns)
        by_name = {seat.name: seat for seat in able}
        for seat in able:
            point = {"size": size, "ns": seat.best, "median_ns": seat.usual, **_ratios(seat, by_name)}
            row = results.setdefault(seat.name, {"points": [], "check": []})
            row["points"].append({**point, "pieces": len(output.pieces) if way == "stream" else 1})
            row["check"].append(verdicts[seat.name])
    for row in results.values():
        row["exponent"] = _growth(row["points"], dict(zip(shape.sizes, lengths, strict=True)))
    found.record["cases"].append({"way": way, "shape": shape.name, "characters": lengths, "peers": results})
    print_shape(way, shape, results)
    return results


def _ratios(seat: Seat, by_name: Mapping[str, Seat]) -> dict[str, float | None]:
    rival, floor = by_name.get(HF), by_name.get(HAND)
    return {
        "x transformers": faster(seat, rival) if rival else None,
        "of hand": 1 / faster(seat, floor) if floor else None,
    }


def _growth(points: list[dict[str, Any]], lengths: Mapping[int, int]) -> float | None:
    """Between the two larger sizes: at the small one, what is done once for each text would hide the growth."""
    larger = [point for point in points if point["size"] in list(lengths)[1:]]
    if len(larger) < 2:
        return None
    return exponent([lengths[point["size"]] for point in larger], [point["ns"] for point in larger])


def _middle(shape: Shape, row: Mapping[str, Any]) -> dict[str, Any]:
    return next((point for point in row["points"] if point["size"] == shape.sizes[1]), {})


def print_shape(way: str, shape: Shape, results: Mapping[str, Any]) -> None:
    rows = []
    for name, row in results.items():
        by_size = {point["size"]: duration(point["ns"] / point["pieces"]) for point in row["points"]}
        middle = _middle(shape, row)
        verdict = next((verdict for verdict in row["check"] if verdict != "all equal"), "all equal")
        rows.append(
            [
                name,
                *(by_size.get(size, "missing") for size in shape.sizes),
                *(figure(value) for value in (row["exponent"], *(middle.get(column) for column in COLUMNS))),
                verdict,
            ]
        )
    title = f"{shape.name}, streamed: CPU of a piece" if way == "stream" else f"{shape.name}, fed once: CPU of the text"
    headings = ["peer", *(f"{size:,} {shape.unit}" for size in shape.sizes)]
    print(f"\n## {title}\n")
    print(table([*headings, "exponent", *COLUMNS, "check"], rows), flush=True)


def print_summary(streamed: Mapping[str, Any], whole: Mapping[str, Any]) -> None:
    """One line per shape at its middle size, for the README."""
    cases = [(shape, shape.name, streamed[shape.name]) for shape in SHAPES]
    cases.append((MIXED, f"{MIXED.name}, fed once", whole))
    rows = []
    for shape, title, results in cases:
        middles = {name: _middle(shape, results[name]) for name in (OURS, HF, HAND) if name in results}
        times = [
            duration(middles[name]["ns"] / middles[name]["pieces"]) if middles.get(name) else "-"
            for name in (OURS, HF, HAND)
        ]
        ratios = [figure(middles.get(OURS, {}).get(column)) for column in COLUMNS]
        slopes = [figure(results[name]["exponent"]) if name in results else "-" for name in (OURS, HF)]
        rows.append([f"{title}, {shape.sizes[1]:,} {shape.unit}", *times, *ratios, *slopes])
    print("\n## Summary (CPU of a piece, or of the text that is fed once; best round)\n")
    headings = ["text", OURS, HF, HAND, *COLUMNS, "exponent", f"exponent of {HF}"]
    print(table(headings, rows), flush=True)


def aims(streamed: Mapping[str, Any], whole: Mapping[str, Any]) -> list[Target]:
    def ours(results: Mapping[str, Any], column: str) -> float | None:
        value: float | None = _middle(MIXED, results[OURS]).get(column) if OURS in results else None
        return value

    slopes = {name: results[OURS]["exponent"] if OURS in results else None for name, results in streamed.items()}
    return [
        *(Target(f"{name}, streamed, exponent", 1.05, slope, at_most=True) for name, slope in slopes.items()),
        Target(
            "8k tokens streamed, of the hand-written machine", 2, ours(streamed[MIXED.name], "of hand"), at_most=True
        ),
        Target("8k tokens fed once, of str.find + json.loads", 1.5, ours(whole, "of hand"), at_most=True),
    ]


def run(options: argparse.Namespace) -> Report:
    rounds = options.rounds or (5 if options.quick else 15)
    plan = Plan(rounds, 8_000_000 if options.quick else 40_000_000)
    found = report.begin(PACKAGES, rounds=rounds, cases=[])
    with report.workers(GROUPS, MODULE) as workers:
        streamed = {shape.name: measure("stream", shape, workers, plan, found) for shape in SHAPES}
        whole = measure("whole", MIXED, workers, plan, found)
    print_summary(streamed, whole)
    found.targets = aims(streamed, whole)
    found.print_targets()
    return found


if __name__ == "__main__":
    sys.exit(report.main(report.parser(MODULE, __doc__, GROUPS).parse_args(), load, run))
