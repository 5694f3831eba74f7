"""Owns the tasks of `make real`: reading them from JSON, checking them, and writing their steps as a conversation.

A task has a kind, the names of the tools that it offers, and steps. A step may begin with what a user says (`say`).
Then comes what the model is to do: `calls`, or a `text` with a word of each of some groups; or what it is taken to have
done (`given`), which is not asked. `results` are what the calls give, in the order of `calls` or `given`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, Struct

import turnscript as ts
from tools.real.verdicts import Call, check

FILE = Path(__file__).with_name("tasks.json")
KINDS = ("single", "several", "none", "multi-turn")


class Tool(Struct, frozen=True, forbid_unknown_fields=True):
    """What a tool is offered with."""

    description: str
    parameters: dict[str, Any]


class Step(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer of a model, with what comes before and after it."""

    say: str | None = None
    calls: list[Call] = []
    text: list[list[str]] | None = None
    given: list[Call] = []
    results: list[Any] = []

    @property
    def is_asked(self) -> bool:
        """Tell whether the model answers it itself."""
        return not self.given


class Task(Struct, frozen=True, forbid_unknown_fields=True):
    """A task. `id` is its name in tables and options."""

    id: str
    kind: str
    tools: list[str]
    steps: list[Step]

    @property
    def can_be_required(self) -> bool:
        """Tell whether a call is among what it asks for, so that one may be demanded."""
        return any(step.calls for step in self.steps)


class Tasks(Struct, frozen=True, forbid_unknown_fields=True):
    """All tasks, and the tools by name."""

    tools: dict[str, Tool]
    tasks: list[Task]

    def offered(self, task: Task) -> list[ts.Tool]:
        """Return the tools of a task as a request has them."""
        return [
            ts.Tool(
                name=name,
                description=self.tools[name].description,
                parameters=Raw(json.dumps(self.tools[name].parameters, ensure_ascii=False).encode()),
            )
            for name in task.tools
        ]


def read_tasks(path: Path = FILE) -> Tasks:
    """Read tasks. Raises ValueError, which names the task, for those that nobody could solve."""
    found = msgspec.json.decode(path.read_bytes(), type=Tasks)
    ids = [task.id for task in found.tasks]
    for task in found.tasks:
        if wrong := _wrong(task, found.tools) or ("there are two of it" if ids.count(task.id) > 1 else ""):
            raise ValueError(f"{path}: task {task.id!r}: {wrong}")
    return found


def chosen(tasks: Sequence[Task], ids: Sequence[str] = (), limit: int | None = None) -> list[Task]:
    """Return those tasks whose id or kind is named, at most so many, of each kind about as many as of the others.

    They come in turns of one task of each kind, so that a run that is broken off has seen all kinds.
    """
    of_kind = [[task for task in tasks if task.kind == kind] for kind in KINDS]
    mixed = [task for turn in zip_longest(*of_kind) for task in turn if task is not None]
    named = [task for task in mixed if not ids or task.id in ids or task.kind in ids]
    return named[:limit]


def told(step: Step) -> list[ts.Item]:
    """Return what the user says in a step, if anything."""
    return [ts.User([ts.Text(step.say)])] if step.say is not None else []


def done(step: Step, ids: str) -> list[ts.Item]:
    """Return the calls of a step that is not asked, with their results. `ids`: what their ids begin with."""
    made = [
        ts.ToolCall(name=call.name, arguments=json.dumps(call.arguments, ensure_ascii=False), id=f"{ids}{number}")
        for number, call in enumerate(step.given)
    ]
    return [*made, *results(step, made, range(len(made)))]


def results(step: Step, made: Sequence[ts.ToolCall], order: Sequence[int]) -> list[ts.Item]:
    """Return what the calls of an answer give. `order`: which call of the step each of them is."""
    if not step.results:
        return []
    texts = [json.dumps(step.results[place], ensure_ascii=False) for place in order]
    return [ts.ToolResult([ts.Text(text)], id=call.id, name=call.name) for call, text in zip(made, texts, strict=True)]


def _wrong(task: Task, tools: dict[str, Tool]) -> str:
    """Return what is wrong with a task, empty if nothing is."""
    if task.kind not in KINDS:
        return f"no kind {task.kind!r}, there are {', '.join(KINDS)}"
    if unknown := [name for name in task.tools if name not in tools]:
        return f"there is no tool {unknown[0]!r}"
    for number, step in enumerate(task.steps):
        if [bool(step.calls), step.text is not None, bool(step.given)].count(True) != 1:
            return "each step has one of calls, text and given"
        last = number == len(task.steps) - 1
        if (step.given or (step.calls and not last)) and len(step.results) != len(step.given or step.calls):
            return "each call needs a result"
        for call in (*step.calls, *step.given):
            if call.name not in task.tools:
                return f"the tool {call.name!r} is not offered"
            known = tools[call.name].parameters["properties"]
            if strange := [name for name in call.arguments if name not in known]:
                return f"{call.name} has no argument {strange[0]!r}"
        for checker in (checker for call in step.calls for checker in call.arguments.values()):
            check(checker)
    return ""
