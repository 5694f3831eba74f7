"""Owns tables that are learned: built as data from the differences between probes, read as TOML, and tried.

Several tables are made, from the most that was seen down to a text and its end. The one that reads most probes is used,
so `turnscript learn` prints exactly what reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.registry import named_formats
from turnscript.core.errors import InvalidInput
from turnscript.detection.differences import Calls, Frame, Thoughts, Unlearned, calls_of, frame_of, thoughts_of
from turnscript.detection.trials import Trials
from turnscript.engine.table import Document
from turnscript.formats.format import Format
from turnscript.tableio import InvalidFormat, read_formats
from turnscript.tableio.writing import write_toml

NAME = "learned"
_FAR, _END, _NEVER = "<|never-written|>", "<|no-end-seen|>", "<|no-turn-seen|>"
"""Stand where a table needs a literal and the template has none."""
Data = dict[str, Any]


class Learned(Struct, frozen=True):
    """A learned table: the format, its TOML text, and what could not be learned, a sentence each."""

    format: Format
    text: str
    unlearned: tuple[str, ...]


def learn(trials: Trials, judged: Callable[[Document], tuple[int, int]]) -> Learned:
    """Return the learned table that reads most. `judged` counts how many probes a table reads, and how many not.

    Where not even the turns of a plain conversation can be told apart, an answer is text up to what ends it.
    """
    frame, unlearned = frame_of(trials), list[str]()
    try:
        thoughts = thoughts_of(trials, frame)
    except Unlearned as reason:
        thoughts = reason.known or Thoughts()
        unlearned.append(f"thoughts were not learned: {reason}")
    if thoughts.text_close and not thoughts.several:
        frame = replace(frame, close=frame.close.removeprefix(thoughts.text_close))
    calls: Calls | None = None
    try:
        calls = calls_of(trials, frame, thoughts)
    except Unlearned as reason:
        unlearned.append(f"tool calls were not learned: {reason}")
    try:
        format_, text, refused = _best(_tables(frame, thoughts, calls), judged)
    except InvalidInput as error:
        unlearned.append(f"{error.message}; an answer is read as text")
        thoughts, calls = Thoughts(), None
        format_, text, refused = _best(_plain_tables(frame), judged)
    for what, kind, seen in (("tool calls", "tool_call", calls), ("thoughts", "thinking", thoughts.open)):
        if seen and not _has(format_, kind):
            unlearned.append(f"{what} were not learned: no reader can be made of what was seen: {refused}")
    return Learned(format_, text, tuple(unlearned))


def _best(tables: Iterator[Data], judged: Callable[[Document], tuple[int, int]]) -> tuple[Format, str, str]:
    """Return the table that reads most, as a format and as text, and why the first that is none is refused."""
    best: tuple[int, Format, str] | None = None
    refused = ""
    for data in tables:
        try:
            text, format_ = _made(data)
        except InvalidFormat as error:
            refused = refused or str(error)
            continue
        count, wrong = judged(format_.document)
        if best is None or count > best[0]:
            best = (count, format_, text)
        if not wrong:
            break
    if best is None:
        raise InvalidInput(f"nothing in this template tells the turns of a conversation apart: {refused}")
    return best[1], best[2], refused


def _made(data: Data) -> tuple[str, Format]:
    """Return a table as text and as a format. Literals that are no tags are protected one by one."""
    text = write_toml({"format": [data]})
    try:
        return text, read_formats(text, named_formats())[0]
    except InvalidFormat:
        escape = _escape(data)
        if not escape:
            raise
        text = write_toml({"format": [data | {"escape": escape}]})
        return text, read_formats(text, named_formats())[0]


def _escape(data: Data) -> list[Data]:
    """Return rules that protect each literal of a table. One that ends as it begins is protected before its end.

    Otherwise a content that ends with the beginning of `||/||` would end it too early with what stands behind it.
    """
    rules: dict[str, list[str]] = {}
    for literal in _literals(data):
        core = literal.strip()
        border = next((size for size in range(len(core) - 1, 0, -1) if core[:size] == core[-size:]), 0)
        rest = core[1 : len(core) - border] or core[1:]
        if rest and rest not in rules.setdefault(core[0], []):
            rules[core[0]].append(rest)
    return [{"lead": lead, "rest": rests} for lead, rests in rules.items() if rests]


def _literals(data: Data) -> Iterator[str]:
    """Give what a reader looks for: all that opens and closes something."""
    for key, value in data.items():
        if isinstance(value, str) and key in ("open", "close", "no_thought"):
            yield value
        elif key in ("turn", "segment"):
            for inner in value:
                yield from _literals(inner)
        elif key == "group":
            yield from _literals(value)


def _has(format_: Format, kind: str) -> bool:
    return any(segment.kind == kind for turn in format_.document.turns for segment in turn.segments)


def _tables(frame: Frame, thoughts: Thoughts, calls: Calls | None) -> Iterator[Data]:
    """Give tables, the one that says most first."""
    without = replace(thoughts, open="", close="")
    for with_calls in (calls, None) if calls else (None,):
        for with_thoughts in (thoughts, without) if thoughts.open else (thoughts,):
            for turns in _frames(frame):
                yield _table(turns, with_thoughts, with_calls)
    for turns in _frames(frame):
        yield _table(turns, Thoughts(), None)
    yield _table(_last_resort(frame), Thoughts(), None)


def _plain_tables(frame: Frame) -> Iterator[Data]:
    """Give tables for which an answer is all that comes, up to what ends it; the last one knows no end but a token."""
    ends = tuple(end for end in (frame.close.strip(), *frame.ends) if end)
    for known in (ends, ends[:1]) if ends else ():
        yield _table(Frame(_FAR, _NEVER, "", _END, known), Thoughts(), None)
    yield _table(Frame(_FAR, _NEVER, "", _END), Thoughts(), None)


def _last_resort(frame: Frame) -> Frame:
    """Return a frame in which an answer is whatever stands behind a question, up to the end."""
    ends = (end for end in (frame.close.strip(), *frame.ends) if end)
    return Frame(_FAR, f"{frame.user_close}{frame.open}".strip() or _NEVER, "", _END, tuple(ends))


def _frames(frame: Frame) -> Iterator[Frame]:
    """Give the frame as it was seen, then with what a reader needs to tell turns apart."""
    if frame.open.strip():
        yield frame
        return
    yield frame
    if frame.user_close.strip():
        yield Frame(frame.user_open, "", frame.user_close.lstrip(), frame.close, frame.ends)


def _table(frame: Frame, thoughts: Thoughts, calls: Calls | None) -> Data:
    """Return the data of one table."""
    ends = [end for end in (frame.close.strip(), *frame.ends, *(calls.ends if calls else ())) if end not in ("", _END)]
    if not frame.close.strip() and frame.user_open.strip():
        ends.append(frame.user_open.strip())
    segments, joints = _segments(thoughts, calls)
    question: Data = {"role": "user", "open": frame.user_open if frame.user_open.strip() else _FAR}
    if frame.user_close.strip():
        question["close"] = frame.user_close
    question["segment"] = [{"kind": "user", "body": "text"}]
    data: Data = {"name": NAME, "title": "Learned from a chat template", "separator": ""}
    if calls is not None:
        data["results"] = "hidden"
    generation: Data = {"stops": list(dict.fromkeys(ends)) or [_END]}
    if thoughts.open:
        generation["thinking_prefill"] = ""
    if thoughts.text_open:
        generation["answer_prefill"] = ""
    answer = _answer(frame, thoughts) | {"segment": segments}
    return data | {"turn": [question, answer], "joints": joints, "generation": generation}


def _answer(frame: Frame, thoughts: Thoughts) -> Data:
    """Return the model's turn without its segments."""
    answer: Data = {"role": "assistant"}
    if frame.open.strip():
        answer["open"] = frame.open
    else:
        answer["behind"] = ["start", "user", "assistant"]
    if thoughts.several:
        return answer | {"several": True}
    if frame.close.strip():
        answer["close"] = frame.close
    if thoughts.none and "open" in answer:
        core = frame.open.rstrip()
        answer |= {"open": core, "no_thought": f"{frame.open[len(core) :]}{thoughts.none}"}
    if thoughts.lead:
        answer["lead"] = thoughts.lead
    return answer


def _segments(thoughts: Thoughts, calls: Calls | None) -> tuple[list[Data], dict[str, str]]:
    """Return the segments of the model's turn, and what joins them."""
    segments: list[Data] = []
    joints: dict[str, str] = {}
    if thoughts.open and thoughts.open != thoughts.text_open:
        thought = {"kind": "thinking", "body": "text", "open": thoughts.open, "close": thoughts.close, "model": True}
        segments.append(thought)
        joints["thinking assistant"] = thoughts.joint
    text: Data = {"kind": "assistant", "body": "text", "model": True}
    if thoughts.text_open:
        text["open"] = thoughts.text_open
        if thoughts.text_close:
            text["close"] = thoughts.text_close
    segments.append(text)
    if calls is not None and not calls.open.strip() and calls.group is None:
        text["protects"] = [{"lead": "{", "rest": [_first_key(calls.body)]}]
    if calls is not None:
        segments.append(_call(calls))
        if thoughts.open:
            joints["thinking tool_call"] = thoughts.joint
        joints["tool_call tool_call"] = calls.joint
        if "open" not in text or "close" in text:  # else a call stands in a turn of its own
            joints["assistant tool_call"] = calls.text_joint
    return segments, {} if thoughts.several else joints


def _first_key(body: Data) -> str:
    """Return the key that a call begins with which nothing opens: a text that begins so would be one."""
    argued = body.get("arguments_first")
    key = body.get("arguments", "arguments") if argued else body.get("name_key", "name")
    return f'"{key}":{" " if body.get("spaced") else ""}'


def _call(calls: Calls) -> Data:
    call: Data = {"kind": "tool_call", "body": calls.body}
    if calls.open.strip():
        call["open"] = calls.open
        if calls.close.strip():
            call["close"] = calls.close
    elif calls.group is None:
        call["tentative"] = True
    if calls.group is not None:
        call["group"] = {"open": calls.group[0], "close": calls.group[1]}
    return call | {"model": True}


PLACEHOLDERS = frozenset({_FAR, _END, _NEVER})
"""Literals of learned tables that no template writes."""

__all__ = ["NAME", "PLACEHOLDERS", "Learned", "learn"]
