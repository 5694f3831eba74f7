"""Owns what an answer may cover, and how its steps show that they do: rows of the table of events, and other traits."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence

from tests.answers.answer import Answer, Gone, Idle, Step
from turnscript.core.conversation import Assistant, Item, Refusal, Thinking, ToolCall, Usage
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import is_object

Test = Callable[[Answer], bool]
FAILURES = frozenset({"error", "failed", "abort", "cancelled"})


def parts(answer: Answer) -> list[Item]:
    """What it says, in order."""
    return answer.response().items


def kinds(answer: Answer) -> list[str]:
    """Its parts in a word each."""
    return [item.kind for item in parts(answer)]


def all_of(kind: type[Item], events: Sequence[Step], *, custom: bool = False) -> set[int]:
    """The numbers of the parts of a kind that began."""
    started = [step for step in events if isinstance(step, PartStart) and isinstance(step.part, kind)]
    return {one.index for one in started if not isinstance(one.part, ToolCall) or one.part.custom is custom}


def began(kind: type[Item], *, custom: bool = False) -> Test:
    return lambda answer: bool(all_of(kind, answer.steps(), custom=custom))


def went_on(kind: type[Item], *, custom: bool = False) -> Test:
    def test(answer: Answer) -> bool:
        numbers = all_of(kind, answer.steps(), custom=custom)
        return any(isinstance(step, PartDelta) and step.index in numbers for step in answer.steps())

    return test


def ended(kind: type[Item], *, custom: bool = False) -> Test:
    def test(answer: Answer) -> bool:
        numbers = all_of(kind, answer.steps(), custom=custom)
        ends = [step for step in answer.steps() if isinstance(step, PartEnd) and step.index in numbers]
        return any(end.part is not None for end in ends)

    return test


def every(*tests: Test) -> Test:
    return lambda answer: all(test(answer) for test in tests)


def has(kind: type[Step]) -> Test:
    return lambda answer: any(isinstance(step, kind) for step in answer.steps())


def end_of(answer: Answer) -> MessageEnd | None:
    """How it ends, if it does."""
    last = answer.steps()[-1]
    return last if isinstance(last, MessageEnd) and last.finish_reason not in FAILURES else None


def usage_of(answer: Answer) -> Usage:
    end = end_of(answer)
    return (end.usage if end is not None else None) or Usage()


ROWS: dict[str, Test] = {
    "start": has(PartStart),
    "idle": has(Idle),
    "think.open": began(Thinking),
    "think.delta": went_on(Thinking),
    "think.close": ended(Thinking),
    "text.open/delta/close": every(began(Assistant), went_on(Assistant), ended(Assistant)),
    "call.open": began(ToolCall),
    "call.delta": went_on(ToolCall),
    "call.close": ended(ToolCall),
    "free.open/delta/close": every(
        began(ToolCall, custom=True), went_on(ToolCall, custom=True), ended(ToolCall, custom=True)
    ),
    "finish": lambda answer: end_of(answer) is not None,
    "usage": lambda answer: usage_of(answer) != Usage(),
    "end": lambda answer: end_of(answer) is not None,
    "error": lambda answer: answer.error() is not None or answer.response().finish_reason in FAILURES,
}
"""The rows of the table of events (spec apis A8.8)."""


# Traits.


def deltas(answer: Answer) -> list[PartDelta]:
    return [step for step in answer.steps() if isinstance(step, PartDelta)]


def singles(answer: Answer) -> list[str]:
    """The characters, of an answer that comes in single ones."""
    texts = [delta.text for delta in deltas(answer)]
    return texts if all(len(text) == 1 for text in texts) else []


def overlaps(events: Sequence[Event]) -> bool:
    """Whether a part begins while another goes on."""
    going: set[int] = set()
    for event in events:
        if isinstance(event, PartStart):
            if going:
                return True
            going.add(event.index)
        elif isinstance(event, PartEnd):
            going.discard(event.index)
    return False


def member(name: str) -> Test:
    """A part, or its call, has that member."""
    return lambda answer: any(getattr(item, name, None) for item in parts(answer))


def calls(answer: Answer) -> list[ToolCall]:
    return [item for item in parts(answer) if isinstance(item, ToolCall)]


def cut(answer: Answer) -> bool:
    ends = [step for step in answer.steps() if isinstance(step, PartEnd)]
    return ends[-1].part is None and answer.response().finish_reason == "length"


def came_to_nothing(answer: Answer) -> bool:
    ends = [step for step in answer.steps() if isinstance(step, PartEnd)]
    return any(end.part is None for end in ends) and answer.response().finish_reason == "stop"


TRAITS: dict[str, Test] = {
    "signature": member("signature"),
    "encrypted": member("encrypted"),
    "omitted": lambda answer: answer.asked.display == "omitted" and "thinking" in kinds(answer),
    "redacted": member("redacted"),
    "summary": lambda answer: member("summary")(answer) or answer.asked.summary is not None,
    "thinking only": lambda answer: kinds(answer)[:1] == ["thinking"] and not answer_text(answer) and not calls(answer),
    "thinking between": lambda answer: "thinking" in kinds(answer)[1:],
    "empty reply": lambda answer: not parts(answer) or not (answer_text(answer) or deltas(answer)),
    "refusal": lambda answer: any(
        isinstance(part, Refusal) for item in parts(answer) for part in getattr(item, "content", ())
    ),
    "1,000 deltas": lambda answer: len(deltas(answer)) >= 1000,
    "parallel": lambda answer: len(calls(answer)) > 1,
    "no ids": lambda answer: all(call.id is None for call in calls(answer)) and bool(calls(answer)),
    "mixed": lambda answer: not overlaps(answer.events()) and len(calls(answer)) > 1,
    "at once": lambda answer: overlaps(answer.events()),
    "text-call-text": lambda answer: kinds(answer) == ["assistant", "tool_call", "assistant"],
    "odd JSON": lambda answer: any(" : " in call.arguments and is_object(call.arguments) for call in calls(answer)),
    "broken arguments": lambda answer: any(not is_object(call.arguments) for call in calls(answer)),
    "came to nothing": came_to_nothing,
    "cut call": cut,
    "free text as JSON": lambda answer: (
        any(tool.type == "custom" for tool in answer.asked.tools) and not any(call.custom for call in calls(answer))
    ),
    "namespace": lambda answer: any(tool.type == "namespace" for tool in answer.asked.tools),
    "deprecated function": lambda answer: any(tool.slot for tool in answer.asked.tools),
    "emoji": lambda answer: "\u200d" in singles(answer),
    "combining": lambda answer: any(unicodedata.combining(one) for one in singles(answer)),
    "astral": lambda answer: any(one > "\uffff" for one in singles(answer)),
    "ends of lines": lambda answer: len(answer_text(answer).splitlines()) > 3,
    "control": lambda answer: any(unicodedata.category(one) == "Cc" for one in singles(answer)),
    "cached and reasoning": lambda answer: bool(usage_of(answer).cached and usage_of(answer).reasoning),
    "no usage": lambda answer: (end := end_of(answer)) is not None and end.usage is None,
    "usage not asked for": lambda answer: not answer.asked.usage and usage_of(answer) != Usage(),
    "id": lambda answer: answer.response().id is not None,
    "overflow": lambda answer: "maximum context length" in getattr(answer.error(), "body", ""),
    "gone": has(Gone),
    "fails in a call": lambda answer: answer.error() is not None and open_call(answer),
}
"""What else an answer may be."""


def answer_text(answer: Answer) -> str:
    """The text that it says."""
    numbers = all_of(Assistant, answer.steps())
    return "".join([delta.text for delta in deltas(answer) if delta.index in numbers])


def open_call(answer: Answer) -> bool:
    """Whether a call has begun and is not over."""
    ended_ = {step.index for step in answer.steps() if isinstance(step, PartEnd)}
    return bool(all_of(ToolCall, answer.steps()) - ended_)
