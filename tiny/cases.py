"""Owns the cases that the model is judged with: what it is shown, and what it has to write.

A case is one step of the assistant with everything before it as it should be. No request of a case is in training; for
generated ones that is checked against every training row, and those in `free.jsonl` were written by hand beforehand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import turnscript
from tiny.dialogs.conversations import NO_TOOL, Dialog, conversation
from tiny.dialogs.declared import JsonObject
from tiny.dialogs.tools import FAILED, ask, invented, offer
from tiny.dialogs.topics import TOPICS, UNSEEN, Topic
from tiny.recipe import COUNT, SEED
from tiny.rows import conversations
from turnscript import Request

FREE = Path(__file__).with_name("free.jsonl")
FAMILIAR = ("Please don't let me forget to feed the fish at 18:30", "Check the weather in Phoenix")
"""Hand-written requests that turned out to be worded as a training line may be. They are counted apart."""

HELD_COUNTS = {
    "one call": 80,
    "several calls of one tool": 35,
    "calls of two tools": 35,
    "answer from results": 70,
    "answer from an error": 25,
    "no tool for it": 30,
    "talk": 25,
}
UNSEEN_COUNTS = {"call of a new tool": 40, "call of an invented tool": 40, "answer from results": 20}
_NOT_WORDS = re.compile(r"[\W_]+")


@dataclass(frozen=True)
class Case:
    """One step. `calls`: names and arguments that it must write; without any, it must write `answer`."""

    suite: str
    kind: str
    row: JsonObject
    calls: tuple[tuple[str, Any], ...] = ()
    answer: str = ""
    thinks: bool = False

    @property
    def request(self) -> Request:
        """What the model is asked, as the product reads it."""
        return turnscript.parse({"model": "tiny", **self.row}, "openai-chat")

    @property
    def text(self) -> str:
        """What the user said last."""
        said: str = [message for message in self.row["messages"] if message["role"] == "user"][-1]["content"]
        return said

    @property
    def chinese(self) -> bool:
        """Whether the user writes Chinese."""
        return bool(re.search(r"[\u4e00-\u9fff]", self.text))


def normal(text: str) -> str:
    """A text without case, spaces and punctuation: what makes two requests the same."""
    return _NOT_WORDS.sub("", text.casefold())


def seen(count: int = COUNT, seed: str = SEED) -> set[str]:
    """All that users say in the training rows."""
    every = (message for row in conversations(count, seed) for message in row["messages"])
    return {normal(message["content"]) for message in every if message["role"] == "user"}


def held(known: set[str]) -> list[Case]:
    """Generated as the training rows are, with values that are in none of them."""
    rows = (conversation(Random(f"held:{number}"), held=True) for number in range(100_000))
    return _chosen("held", HELD_COUNTS, (case for row in rows for case in steps("held", row)), known)


def unseen(known: set[str]) -> list[Case]:
    """Tools that training does not have, alone or among others, asked for with values that it does not have."""
    cases = (case for number in range(100_000) for case in _new_tool(Random(f"unseen:{number}")))
    return _chosen("unseen", UNSEEN_COUNTS, cases, known)


def free() -> list[Case]:
    """Requests as people write them. Each tool has the first of its names."""
    topics = {topic.name: topic for topic in TOPICS}
    cases = []
    for line in FREE.read_text(encoding="utf-8").splitlines():
        told = json.loads(line)
        row: JsonObject = {"messages": [{"role": "user", "content": told["user"]}]}
        if told["tools"]:
            row["tools"] = [plain(topics[name]) for name in told["tools"]]
        calls = tuple((call["name"], call["arguments"]) for call in told.get("calls", ()))
        kind = "one call" if calls else "no tool for it" if told["answer"] in NO_TOOL else "talk"
        kind = "worded as in training" if told["user"] in FAMILIAR else "several calls" if calls[1:] else kind
        cases.append(Case("free", kind, row, calls, told.get("answer", "")))
    kinds = ("one call", "several calls", "no tool for it", "talk", "worded as in training")
    return sorted(cases, key=lambda case: kinds.index(case.kind))


def plain(topic: Topic) -> JsonObject:
    """A topic's tool with the first of all names."""
    properties = {one.names[0]: {"type": one.type, "description": one.about} for one in topic.parameters}
    required = [one.names[0] for one in topic.parameters if not one.optional]
    schema = {"type": "object", "properties": properties, "required": required}
    return {
        "type": "function",
        "function": {"name": topic.names[0], "description": topic.about[0], "parameters": schema},
    }


def steps(suite: str, row: JsonObject) -> Iterator[Case]:
    """Each step of the assistant in a row."""
    messages = row["messages"]
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            functions = [call["function"] for call in message.get("tool_calls", ())]
            calls = tuple((one["name"], json.loads(one["arguments"])) for one in functions)
            kind = _kind(message, messages[place - 1], [name for name, _ in calls])
            before = {**row, "messages": messages[:place]}
            answer = "" if calls else message["content"]
            yield Case(suite, kind, before, calls, answer, "reasoning_content" in message)


def _kind(message: JsonObject, last: JsonObject, called: list[str]) -> str:
    if called:
        return (
            ("calls of two tools" if len(set(called)) > 1 else "several calls of one tool")
            if called[1:]
            else "one call"
        )
    if last["role"] == "tool":
        return "answer from an error" if any(text in message["content"] for text in FAILED) else "answer from results"
    return "no tool for it" if message["content"] in NO_TOOL else "talk"


def _new_tool(random: Random) -> Iterator[Case]:
    made = random.random() < 0.5
    topic = invented(random, held=True) if made else random.choice(UNSEEN)
    dialog = Dialog(random, held=True, zh=False)
    tool = offer(topic, random, strange=0)
    dialog.tools = [tool, *(offer(other, random) for other in random.sample(TOPICS, random.choice((0, 1, 2, 3))))]
    random.shuffle(dialog.tools)
    dialog.system()
    text, calls = ask(tool, random, zh=False, held=True, several=False)
    dialog.user(text, calls)
    dialog.call(calls)
    for case in steps("unseen", dialog.row()):
        kind = f"call of {'an invented' if made else 'a new'} tool" if case.calls else "answer from results"
        yield Case(case.suite, kind, case.row, case.calls, case.answer, case.thinks)


def _chosen(suite: str, counts: dict[str, int], cases: Iterator[Case], known: set[str]) -> list[Case]:
    """So many of each kind, none whose request is known or was chosen before, or whose calls their tools forbid."""
    left, kinds = dict(counts), list(counts)
    found: list[Case] = []
    asked: set[tuple[str, str]] = set()
    for case in cases:
        place = case.kind, normal(case.text)
        if not all(_listed(case, *call) for call in case.calls):
            continue
        if left.get(case.kind, 0) and place[1] not in known and place not in asked:
            asked.add(place)
            left[case.kind] -= 1
            found.append(case)
        if not any(left.values()):
            return sorted(found, key=lambda case: kinds.index(case.kind))
    raise ValueError(f"{suite}: too few requests are new, still to find: {left}")


def _listed(case: Case, name: str, arguments: JsonObject) -> bool:
    """Whether each argument is one that the schema lists, where it lists some: a Chinese word for `on` is not."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in case.row["tools"]}
    return all(value in schemas[name][member].get("enum", [value]) for member, value in arguments.items())


def every(known: set[str]) -> list[Case]:
    """All suites, clear of what is known: the requests that are `seen` in training."""
    return [*held(known), *unseen(known), *free()]
