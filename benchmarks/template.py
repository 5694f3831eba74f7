"""Prompts that a model's own chat template writes: turnscript against apply_chat_template of transformers.

Whole prompts of 4, 40 and 400 messages with eight tools, by templates of the tests, and sessions of up to 200 turns
where every turn needs the prompt again. Prints tables and asserts no timing. Exits 1 if a peer cannot run or if the two
write another text. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from itertools import count
from typing import Any

from benchmarks import bodies, chats, report
from benchmarks.harness import ROOT, Peer, PeerFailed, Worker, duration, exponent, faster, table, take_turns
from benchmarks.report import Report, Target, figure
from benchmarks.tools import JsonObject

MODULE = "benchmarks.template"
PACKAGES = ("turnscript", "transformers", "jinja2", "msgspec")
SAMPLES = ROOT / "tests" / "chat_templates" / "samples"
TEMPLATES = ("marked_turns", "dropped_thoughts", "python_calls")
MESSAGES = (4, 40, 400)
TURNS = (50, 100, 200)
Case = dict[str, Any]
"""`template`, and `messages` for a whole prompt of so many, or `turns` for a session."""
HF, KNOWN, NEW, EXTENDED = "transformers", "turnscript, known shape", "turnscript, new shape", "turnscript, extend"


# What goes in.


def row(messages: int, number: int, shape: int) -> JsonObject:
    """A request body: the texts differ by `number`, and what a template sees between them by `shape`."""
    body = chats.body(messages)
    for message in body["messages"]:
        message["content"] = f"{message['content']} ({number})"
    calls = [call for message in body["messages"] for call in message.get("tool_calls", ())]
    for call in calls:
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps({**arguments, "line": shape}, ensure_ascii=False)
    return body


def conversation(turns: int) -> list[JsonObject]:
    """All messages of a session up to the last one that the model is to answer: questions and answers in words."""
    messages: list[JsonObject] = [{"role": "system", "content": chats.SYSTEM}]
    for number in range(turns):
        said = chats.body(4)["messages"][1]["content"]
        messages.append({"role": "user", "content": f"{said} ({number})"})
        messages.append(
            {"role": "assistant", "content": f"Number {number} is what the reader does with an empty list."}
        )
    return messages[:-1]


def as_objects(messages: list[JsonObject]) -> list[JsonObject]:
    """Give calls their arguments as objects, which is how templates want them."""
    for message in messages:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return messages


# What each peer does. A group is loaded only in its own process.


def transformers(case: Case) -> dict[str, Peer]:
    library: Any = import_module("transformers")
    tokenizers: Any = import_module("tokenizers")
    vocabulary = tokenizers.models.WordLevel({"a": 0}, unk_token="a")
    tokenizer = library.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(vocabulary))
    tokenizer.chat_template = (SAMPLES / f"{case['template']}.jinja").read_text()
    tools = chats.tools()

    def render(messages: list[JsonObject]) -> str:
        text: str = tokenizer.apply_chat_template(messages, tools=tools, tokenize=False, add_generation_prompt=True)
        return text

    if "messages" in case:
        messages = as_objects(row(case["messages"], 0, 0)["messages"])
        return {HF: Peer(lambda _: render(messages), str.encode)}
    history = conversation(case["turns"])

    def every_turn(_: bytes) -> str:
        text = ""
        for length in range(2, len(history) + 1, 2):
            text = render(history[:length])
        return text

    return {HF: Peer(every_turn, str.encode)}


def turnscript(case: Case) -> dict[str, Peer]:
    ts: Any = import_module("turnscript")
    written = ts.get_format(str(SAMPLES / f"{case['template']}.jinja"))
    if "turns" in case:
        return {EXTENDED: _extending(ts, written, conversation(case["turns"]))}

    def rows(new: bool) -> Callable[[], Any]:
        numbers = count()

        def fresh() -> Any:
            number = next(numbers)
            return ts.parse(bodies.encode(row(case["messages"], number, number if new else 0)), "openai-chat")

        return fresh

    return {
        name: Peer(lambda request: written.prompt(request).text, str.encode, rows(name == NEW)) for name in (KNOWN, NEW)
    }


def _extending(ts: Any, written: Any, history: list[JsonObject]) -> Peer:
    """Responses and new items are made here, by the way the timed run goes: prompt, answer, longer prompt."""
    first = ts.parse(bodies.encode({"model": "local", "messages": history[:2], "tools": chats.tools()}), "openai-chat")
    prompt = written.prompt(first)
    steps: list[tuple[Any, list[Any]]] = []
    for answer, question in zip(history[2::2], history[3::2], strict=True):
        parser = prompt.parser()
        events = parser.feed(answer["content"])
        events += parser.close()
        steps.append((ts.fold(events), [ts.User(content=[ts.Text(text=question["content"])])]))
        prompt = prompt.extend(*steps[-1])
        if prompt is None:
            raise PeerFailed(f"extend gave no prompt after {answer['content']!r}")

    def new_parts(_: bytes) -> list[str]:
        prompt = written.prompt(first)
        parts = [prompt.text]
        for response, items in steps:
            prompt = prompt.extend(response, items)
            parts += [response.raw, prompt.suffix]
        return parts

    return Peer(new_parts, lambda parts: "".join(parts).encode())


GROUPS: dict[str, Callable[[Case], dict[str, Peer]]] = {"transformers": transformers, "turnscript": turnscript}


def load(group: str, case: Case) -> dict[str, Peer]:
    return GROUPS[group](case)


# What is made of their times.


def compared() -> Callable[[str, bytes], str]:
    """A check against what the first peer wrote, which is transformers."""
    wanted: list[bytes] = []

    def check(name: str, text: bytes) -> str:
        if name == HF:
            wanted.append(text)
        if not wanted:
            raise PeerFailed("there is no text of transformers to compare with")
        if text == wanted[0]:
            return "same bytes"
        pairs = enumerate(zip(text, wanted[0], strict=False))
        at = next((at for at, (a, b) in pairs if a != b), min(len(text), len(wanted[0])))
        raise PeerFailed(f"wrong at byte {at}: {text[at - 20 : at + 30]!r} and not {wanted[0][at - 20 : at + 30]!r}")

    return check


def measure(case: Case, workers: Mapping[str, Worker], rounds: int, turn_ns: int, found: Report) -> dict[str, float]:
    """Time every peer on one case and give the nanoseconds, and the factors over transformers by `x` and the name."""
    able, _ = report.checked(report.seats(workers, case, found), case, compared(), found)
    take_turns(able, rounds, turn_ns)
    results = {seat.name: seat.best for seat in able}
    rival = next((seat for seat in able if seat.name == HF), None)
    if rival is not None:
        results |= {f"x {seat.name}": faster(seat, rival) for seat in able if seat is not rival}
    found.record["cases"].append({**case, "ns": results})
    return results


def print_whole(template: str, whole: Mapping[int, Mapping[str, float]]) -> None:
    names = (HF, KNOWN, NEW)
    rows = [
        [f"{template}, {messages} messages", *(duration(results[name]) if name in results else "-" for name in names)]
        + [figure(results.get(f"x {name}")) for name in names[1:]]
        for messages, results in whole.items()
    ]
    print(table(["prompt", *names, "x known", "x new"], rows) if rows else "", flush=True)


def print_sessions(template: str, sessions: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    slopes: dict[str, float] = {}
    rows = []
    for name in (EXTENDED, HF):
        costs = [results[name] for results in sessions.values() if name in results]
        if len(costs) == len(sessions):
            slopes[name] = exponent(list(sessions), costs)
            rows.append([f"{template}, {name}", *map(duration, costs), f"{slopes[name]:.2f}"])
    print(table(["session", *(f"{turns} turns" for turns in sessions), "exponent"], rows), flush=True)
    return slopes


def run(options: argparse.Namespace) -> Report:
    rounds = options.rounds or (5 if options.quick else 15)
    turn_ns = 8_000_000 if options.quick else 40_000_000
    found = report.begin(PACKAGES, rounds=rounds, cases=[])
    with report.workers(GROUPS, MODULE) as workers:
        for template in TEMPLATES:
            print(f"\n## {template}\n")
            whole = {
                n: measure({"template": template, "messages": n}, workers, rounds, turn_ns, found) for n in MESSAGES
            }
            print_whole(template, whole)
            print()
            turns = {
                n: measure({"template": template, "turns": n}, workers, max(2, rounds // 3), turn_ns, found)
                for n in TURNS
            }
            slopes = print_sessions(template, turns)
            found.targets += [
                Target(f"{template}, {n} messages, x {kind}", 2, results.get(f"x {kind}"))
                for n, results in whole.items()
                for kind in (KNOWN, NEW)
            ]
            found.targets += [
                Target(f"{template}, 200 turns, x transformers", 20, turns[TURNS[-1]].get(f"x {EXTENDED}")),
                Target(f"{template}, session, exponent", 1.1, slopes.get(EXTENDED), at_most=True),
            ]
    found.print_targets()
    return found


if __name__ == "__main__":
    sys.exit(report.main(report.parser(MODULE, __doc__, GROUPS).parse_args(), load, run))
