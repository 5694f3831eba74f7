"""Rendering chats as ChatML: turnscript against chat templates (transformers, minijinja, Jinja2) and joins by hand.

Whole prompts of 4, 40 and 400 messages with eight tools, and sessions of up to 200 turns where every turn needs the
prompt again. Prints tables and asserts no timing. Exits 1 if a peer cannot run or writes another text than the join.
README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from typing import Any

from benchmarks import bodies, chatml, chats, report
from benchmarks.harness import Peer, PeerFailed, Seat, Worker, duration, exponent, faster, table, take_turns
from benchmarks.report import Report, Target, figure
from benchmarks.tools import JsonObject

MODULE = "benchmarks.render"
FORMAT = "batuta-chatml"
PACKAGES = ("turnscript", "transformers", "minijinja", "jinja2", "msgspec")
MESSAGES = (4, 40, 400)
TURNS = (50, 100, 200)
Case = dict[str, int]
"""`messages` for a whole prompt of so many, or `turns` for a session."""
Render = Callable[[list[JsonObject], list[JsonObject]], str]

OURS, HF, MINIJINJA = "turnscript", "transformers", "minijinja"
CACHED = "hand join, tools cached"
NEW_PART, EACH_TEXT, HAND_NEW_PART = "turnscript, new part", "turnscript, whole text", "hand, new part"
COLUMNS = ("x transformers", "x minijinja", "of hand")


# What each peer does. A group is loaded only in its own process.


def turnscript(case: Case) -> dict[str, Peer]:
    ts: Any = import_module("turnscript")
    written = ts.get_format(FORMAT)
    if "turns" in case:
        return _extending(ts, written, chats.session(case["turns"]))
    body = bodies.encode(chats.body(case["messages"]))
    request = ts.parse(body, "openai-chat")
    return {
        OURS: Peer(lambda _: written.prompt(request).text, str.encode),
        "turnscript, new request": Peer(
            lambda fresh: written.prompt(fresh).text, str.encode, lambda: ts.parse(body, "openai-chat")
        ),
        "turnscript, from the body": Peer(lambda _: written.prompt(ts.parse(body, "openai-chat")).text, str.encode),
    }


def _extending(ts: Any, written: Any, turns: list[chats.Turn]) -> dict[str, Peer]:
    """Responses and new items are made here, by the way the timed runs go: prompt, answer, longer prompt."""
    first = ts.parse(bodies.encode(_request(turns[0])), "openai-chat")
    steps: list[tuple[Any, list[Any]]] = []
    prompt = written.prompt(first)
    for turn, following in pairwise(turns):
        parser = prompt.parser()
        events = parser.feed(turn.generated)
        events += parser.close()
        response = ts.fold(events)
        steps.append((response, [_item(ts, following.incoming, response)]))
        prompt = prompt.extend(*steps[-1])
        if prompt is None:
            raise PeerFailed(f"extend gave no prompt after {turn.generated[:60]!r}")

    def new_parts(_: bytes) -> list[str]:
        prompt = written.prompt(first)
        parts = [prompt.text]
        for response, items in steps:
            prompt = prompt.extend(response, items)
            parts.append(prompt.suffix)
        return parts

    def whole_texts(_: bytes) -> str:
        prompt = written.prompt(first)
        text: str = prompt.text
        for response, items in steps:
            prompt = prompt.extend(response, items)
            text = prompt.text
        return text

    def joined(parts: list[str]) -> bytes:
        answers = [response.raw for response, _ in steps]
        return (parts[0] + "".join([answer + part for answer, part in zip(answers, parts[1:], strict=True)])).encode()

    return {NEW_PART: Peer(new_parts, joined), EACH_TEXT: Peer(whole_texts, str.encode)}


def _request(turn: chats.Turn) -> JsonObject:
    system = {"role": "system", "content": chats.SYSTEM}
    return {"model": "local", "messages": [system, turn.incoming], "tools": chats.tools()}


def _item(ts: Any, message: JsonObject, response: Any) -> Any:
    content = [ts.Text(text=message["content"])]
    if message["role"] == "user":
        return ts.User(content=content)
    call = next((item for item in response.items if isinstance(item, ts.ToolCall)), None)
    if call is None:
        raise PeerFailed(f"no call was read from {response.raw!r}")
    return ts.ToolResult(content=content, id=call.id, name=call.name)


def transformers(case: Case) -> dict[str, Peer]:
    library: Any = import_module("transformers")
    tokenizers: Any = import_module("tokenizers")
    vocabulary = tokenizers.models.WordLevel({"a": 0}, unk_token="a")
    tokenizer = library.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(vocabulary))
    tokenizer.chat_template = chatml.TEMPLATE

    def render(messages: list[JsonObject], tools: list[JsonObject]) -> str:
        text: str = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
        return text

    return {HF: again(render, case)}


def templates(case: Case) -> dict[str, Peer]:
    environment: Any = import_module("minijinja").Environment()
    environment.add_template("chatml", chatml.TEMPLATE)

    def rust(messages: list[JsonObject], tools: list[JsonObject]) -> str:
        text: str = environment.render_template("chatml", messages=messages, tools=tools, add_generation_prompt=True)
        return text

    sandbox: Any = import_module("jinja2.sandbox").ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = sandbox.from_string(chatml.TEMPLATE)

    def python(messages: list[JsonObject], tools: list[JsonObject]) -> str:
        text: str = template.render(messages=messages, tools=tools, add_generation_prompt=True)
        return text

    peers = {MINIJINJA: again(rust, case)}
    if "messages" in case:
        peers["jinja2 sandbox"] = again(python, case)
    return peers


def floors(case: Case) -> dict[str, Peer]:
    described = chatml.tool_text(chats.tools())
    peers = {CACHED: again(lambda messages, _: chatml.join(messages, described), case)}
    if "messages" in case:
        peers["hand join, escaping"] = again(_join_escaping(described), case)
        peers["hand join"] = again(lambda messages, tools: chatml.join(messages, chatml.tool_text(tools)), case)
        return peers
    turns = chats.session(case["turns"])
    opening = [{"role": "system", "content": chats.SYSTEM}, turns[0].incoming]

    def new_parts(_: bytes) -> list[str]:
        parts = [chatml.join(opening, described)]
        for turn in turns[1:]:
            parts.append(f"<|im_end|>\n{chatml.message_text(turn.incoming)}{chatml.OPENING}")  # noqa: PERF401
        return parts

    def joined(parts: list[str]) -> bytes:
        answers = [turn.generated for turn in turns]
        return (parts[0] + "".join([answer + part for answer, part in zip(answers, parts[1:], strict=False)])).encode()

    return {HAND_NEW_PART: Peer(new_parts, joined), **peers}


def _join_escaping(described: str) -> Render:
    return lambda messages, _: chatml.join(messages, described, chatml.safe_message_text)


def again(render: Render, case: Case) -> Peer:
    """A peer that renders all messages: once, or in a session again at every turn."""
    tools = chats.tools()
    if "messages" in case:
        messages = chats.body(case["messages"])["messages"]
        return Peer(lambda _: render(messages, tools), str.encode)
    history = _history(case["turns"])

    def every_turn(_: bytes) -> str:
        text = ""
        for length in range(2, len(history) + 1, 2):
            text = render(history[:length], tools)
        return text

    return Peer(every_turn, str.encode)


def _history(turns: int) -> list[JsonObject]:
    """All messages of a session up to the last one that the model is to answer."""
    history: list[JsonObject] = [{"role": "system", "content": chats.SYSTEM}]
    for turn in chats.session(turns):
        history += [turn.incoming, turn.answer]
    return history[:-1]


GROUPS: dict[str, Callable[[Case], dict[str, Peer]]] = {
    "turnscript": turnscript,
    "transformers": transformers,
    "templates": templates,
    "floors": floors,
}


def load(group: str, case: Case) -> dict[str, Peer]:
    return GROUPS[group](case)


# What is made of their times.


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    session_rounds: int
    turn_ns: int


def expected(case: Case) -> bytes:
    messages = chats.body(case["messages"])["messages"] if "messages" in case else _history(case["turns"])
    return chatml.join(messages, chatml.tool_text(chats.tools())).encode()


def compared(case: Case) -> Callable[[str, bytes], str]:
    wanted = expected(case)

    def check(_: str, written: bytes) -> str:
        if written == wanted:
            return "same bytes"
        same = next((at for at, (a, b) in enumerate(zip(written, wanted, strict=False)) if a != b), None)
        at = min(len(written), len(wanted)) if same is None else same
        raise PeerFailed(
            f"wrong output at byte {at}: {written[at - 20 : at + 30]!r} and not {wanted[at - 20 : at + 30]!r}"
        )

    return check


def measure(case: Case, workers: Mapping[str, Worker], plan: Plan, found: Report) -> dict[str, dict[str, Any]]:
    """Time every peer on one case, print its table, and give the figures by peer."""
    able, verdicts = report.checked(report.seats(workers, case, found), case, compared(case), found)
    take_turns(able, plan.rounds if "messages" in case else plan.session_rounds, plan.turn_ns)
    by_name = {seat.name: seat for seat in able}
    results = {seat.name: _figures(seat, by_name, verdicts[seat.name]) for seat in able}
    found.record["cases"].append({**case, "bytes": len(expected(case)), "peers": results})
    rows = [
        [name, duration(row["ns"]), duration(row["median_ns"])]
        + [figure(row[column]) for column in COLUMNS]
        + [row["check"]]
        for name, row in results.items()
    ]
    size = f"{len(expected(case)) / 1000:.0f} KB"
    title = f"{case['messages']} messages, 8 tools" if "messages" in case else f"session of {case['turns']} turns"
    print(f"\n## {title} ({size} at the end)\n" if "turns" in case else f"\n## {title} ({size})\n")
    print(table(["peer", "CPU, best", "median", *COLUMNS, "check"], rows), flush=True)
    return results


def _figures(seat: Seat, by_name: Mapping[str, Seat], verdict: str) -> dict[str, Any]:
    rivals = {"x transformers": by_name.get(HF), "x minijinja": by_name.get(MINIJINJA)}
    floor = by_name.get(HAND_NEW_PART, by_name.get(CACHED))
    return {
        "ns": seat.best,
        "median_ns": seat.usual,
        **{column: faster(seat, rival) if rival else None for column, rival in rivals.items()},
        "of hand": 1 / faster(seat, floor) if floor else None,
        "check": verdict,
    }


def print_growth(sessions: Mapping[int, dict[str, dict[str, Any]]], found: Report) -> dict[str, float]:
    """The sessions side by side, and how the time of each peer grows with the number of turns."""
    slopes: dict[str, float] = {}
    rows = []
    for name in dict.fromkeys(name for results in sessions.values() for name in results):
        costs = [results[name]["ns"] for results in sessions.values() if name in results]
        if len(costs) == len(sessions):
            slopes[name] = exponent(list(sessions), costs)
            rows.append([name, *(duration(cost) for cost in costs), f"{slopes[name]:.2f}"])
    found.record["growth"] = slopes
    print("\n## Sessions: CPU of all turns\n")
    print(table(["peer", *(f"{turns} turns" for turns in sessions), "exponent"], rows), flush=True)
    return slopes


def print_summary(whole: Mapping[int, Any], sessions: Mapping[int, Any]) -> None:
    """One line per case, for the README."""
    cases = [(f"{count} messages", OURS, CACHED, results) for count, results in whole.items()]
    cases += [(f"{count} turns, new part", NEW_PART, HAND_NEW_PART, results) for count, results in sessions.items()]
    cases += [(f"{count} turns, whole text", EACH_TEXT, HAND_NEW_PART, results) for count, results in sessions.items()]
    rows = []
    for title, ours, floor, results in cases:
        times = [duration(results[name]["ns"]) if name in results else "-" for name in (ours, HF, MINIJINJA, floor)]
        row = results.get(ours, {})
        rows.append([title, *times, *(figure(row.get(column)) for column in COLUMNS)])
    print("\n## Summary (CPU, best round)\n")
    print(table(["prompt", OURS, HF, MINIJINJA, "hand", *COLUMNS], rows), flush=True)


def aims(whole: Mapping[int, Any], sessions: Mapping[int, Any], slopes: Mapping[str, float]) -> list[Target]:
    def of(results: Any, name: str, column: str) -> float | None:
        value: float | None = results.get(name, {}).get(column)
        return value

    longest = sessions[TURNS[-1]]
    return [
        Target("400 messages, x transformers", 15, of(whole[400], OURS, "x transformers")),
        Target("400 messages, x minijinja", 2.5, of(whole[400], OURS, "x minijinja")),
        Target("400 messages, of the hand join with cached tools", 1.6, of(whole[400], OURS, "of hand"), at_most=True),
        Target("40 messages, x transformers", 20, of(whole[40], OURS, "x transformers")),
        Target("200 turns with extend, x transformers", 500, of(longest, NEW_PART, "x transformers")),
        Target("session with extend, exponent", 1.1, slopes.get(NEW_PART), at_most=True),
    ]


def run(options: argparse.Namespace) -> Report:
    rounds = options.rounds or (5 if options.quick else 15)
    plan = Plan(rounds, max(2, rounds // 3), 8_000_000 if options.quick else 40_000_000)
    found = report.begin(PACKAGES, rounds=rounds, cases=[])
    with report.workers(GROUPS, MODULE) as workers:
        whole = {count: measure({"messages": count}, workers, plan, found) for count in MESSAGES}
        sessions = {count: measure({"turns": count}, workers, plan, found) for count in TURNS}
    slopes = print_growth(sessions, found)
    print_summary(whole, sessions)
    found.targets = aims(whole, sessions, slopes)
    found.print_targets()
    return found


if __name__ == "__main__":
    sys.exit(report.main(report.parser(MODULE, __doc__, GROUPS).parse_args(), load, run))
