"""Owns a round of `make real`: each task asked of each system in each mode, step by step, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

import turnscript as ts
from tools.real.systems import Answer
from tools.real.tasks import Step, Task, Tasks, done, results, told
from tools.real.verdicts import Made, Verdict, judge_calls, judge_text

MODES = ("auto", "required")
SEED = 7


class Asked(Protocol):
    """What can be asked."""

    def ask(self, system: str, request: ts.Request) -> Answer:
        """Send a request and read the answer."""


class Turn(Struct, frozen=True):
    """An answer with its verdict. `step` counts from 1; `choice` is the tool choice that it was asked with."""

    step: int
    choice: str
    right: bool
    why: str
    seconds: float
    finish: str | None
    calls: list[Made]
    text: str
    prompt: str
    raw: str


class Outcome(Struct, frozen=True):
    """A task in one mode through one system. It is right if all steps are; after one that is wrong none is asked."""

    task: str
    kind: str
    system: str
    mode: str
    right: bool
    seconds: float
    cut: int
    turns: list[Turn]


class Round(Struct, frozen=True):
    """What to ask, of which systems, in which modes, with at most how many tokens an answer."""

    tasks: Tasks
    chosen: Sequence[Task]
    systems: Sequence[str]
    modes: Sequence[str]
    max_tokens: int

    def jobs(self) -> list[tuple[Task, str, str]]:
        """Return task, system and mode of all that is to be asked.

        Modes come last, because they change no prompt: the second one finds it in the engine's memory.
        """
        return [
            (task, system, mode)
            for task in self.chosen
            for system in self.systems
            for mode in self.modes
            if mode == "auto" or task.can_be_required
        ]

    def run(self, asked: Asked, tell: Callable[[int, str], None]) -> Iterator[Outcome]:
        """Ask it all. `tell` is told how many are done and which one is next."""
        for number, (task, system, mode) in enumerate(self.jobs()):
            tell(number, f"{task.id}, {system}, {mode}")
            turns = list(self._turns(asked, task, system, mode))
            yield Outcome(
                task=task.id,
                kind=task.kind,
                system=system,
                mode=mode,
                right=all(turn.right for turn in turns),
                seconds=sum(turn.seconds for turn in turns),
                cut=sum(turn.finish == "length" for turn in turns),
                turns=turns,
            )

    def _turns(self, asked: Asked, task: Task, system: str, mode: str) -> Iterator[Turn]:
        items: list[ts.Item] = []
        for number, step in enumerate(task.steps, 1):
            items += told(step)
            if not step.is_asked:
                items += done(step, f"call_{number}_")
                continue
            choice = mode if step.calls else "auto"  # where text is right, a call is not demanded
            settings = ts.Settings(
                model="default",
                max_tokens=self.max_tokens,
                temperature=0,
                seed=SEED,
                tool_choice=ts.ToolChoice(choice),
            )
            conversation = ts.Conversation(list(items), self.tasks.offered(task))
            answer = asked.ask(system, ts.Request(conversation=conversation, settings=settings))
            verdict = judged(step, task, answer)
            yield _turn(number, choice, answer, verdict)
            if not verdict.right or answer.response is None:
                return
            made = [item for item in answer.response.items if isinstance(item, ts.ToolCall)]
            items += [*answer.response.items, *results(step, made, verdict.order)]


def judged(step: Step, task: Task, answer: Answer) -> Verdict:
    """Judge the answer to a step."""
    if answer.response is None:
        return Verdict(f"no answer: {answer.error}")
    if step.calls:
        return judge_calls(step.calls, calls_of(answer.response))
    return judge_text(step.text or [], calls_of(answer.response), text_of(answer.response), task.tools)


def calls_of(response: ts.Response) -> list[Made]:
    """Return the calls of an answer."""
    return [Made(item.name, item.arguments) for item in response.items if isinstance(item, ts.ToolCall)]


def text_of(response: ts.Response) -> str:
    """Return the text of an answer without its thoughts."""
    said = [part for item in response.items if isinstance(item, ts.Assistant) for part in item.content]
    return "".join(part.text for part in said if isinstance(part, ts.Text))


def _turn(step: int, choice: str, answer: Answer, verdict: Verdict) -> Turn:
    response = answer.response
    return Turn(
        step=step,
        choice=choice,
        right=verdict.right,
        why=verdict.why,
        seconds=round(answer.seconds, 2),
        finish=response.finish_reason if response is not None else None,
        calls=calls_of(response) if response is not None else [],
        text=text_of(response) if response is not None else "",
        prompt=answer.prompt,
        raw=answer.raw,
    )
