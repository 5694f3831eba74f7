"""Owns reading back: what a template writes for an assistant's turn is read as if a model had generated it.

A turn's own text is what the template appends to the prompt of the conversation before it, up to the first stop string.
The template is asked with the wish about thinking that fits the turn (a thought: on; none: off), then with the others.
Where its prompt opens a thought that its history leaves out, a short one is thought and closed first. Where the history
does not begin with a prompt for another reason, nothing can be said of that turn: it is counted as *unshown*, as are a
turn that the template refuses, one whose calls it does not write, one behind another answer for which its prompt opens
no turn, and calls where no tool is offered. A message that is written as several turns is read turn by turn. Behind all
that a turn says, white space is the template's, which leads to the next one. A turn is read *exactly* when

- the thought is what went in, or nothing where the template leaves the thought out;
- the text is what went in. White space at the ends of text and thought counts unless the template took it away;
- the calls are the same, in the same order, by name and by the JSON values of their arguments. Ids are not compared:
  most forms have no place for them;
- the reader has no complaint about it.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import turnscript as ts
from tools.parity import writer
from tools.parity.conversations import Conversation, Message
from tools.parity.oracle import Oracle, Refused

_ASIDE = "Hm."
# How a prompt ends that opens a thought, or that holds one which is closed and empty.
_OPENING = re.compile(r"(?:<\|START_\w+\|>|[<\[]\w+[>\]])\n?\Z")
_THOUGHT = re.compile(rf"<(\w+)>\s*</\1>\s*\Z|{_OPENING.pattern}")
_CLOSED = re.compile(r"(?:<\|END_\w+\|>|[<\[]/\w+[>\]])\s*\Z")


@dataclass
class Turns:
    """How the turns of one template were read. `cases`: one turn to try each cause with."""

    exact: int = 0
    other: int = 0
    unshown: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    cases: dict[str, str] = field(default_factory=dict)

    @property
    def shown(self) -> int:
        """Count the turns that were read."""
        return self.exact + self.other


@dataclass(frozen=True)
class _Said:
    """A turn: its thought, its text, and its calls as name and arguments."""

    thought: str
    text: str
    calls: list[tuple[str, str]]


@dataclass(frozen=True)
class _Written:
    """What a model writes, after a prompt with which wish; `thought`: what it thinks that the message does not have.

    `opening`: what the prompt opens its turn with. `space`: white space that the template writes behind all turns.
    """

    answer: str
    mode: str
    thought: str | None = None
    opening: str = ""
    space: str = ""


class _Unshown(Exception):
    """The template does not show what a model writes there; the text says why."""


def read_back(turns: Turns, oracle: Oracle, fmt: ts.Format, conversation: Conversation) -> None:
    """Read every assistant's turn of a conversation."""
    for at, message in enumerate(conversation.messages):
        if at and message["role"] == "assistant":
            why = _judged(turns, oracle, fmt, conversation, at)
            if why is None:
                turns.exact += 1
            elif why:
                turns.other += 1
                turns.causes[why] += 1
                turns.cases.setdefault(why, f"{conversation.name!r}, message {at}")


def _judged(turns: Turns, oracle: Oracle, fmt: ts.Format, conversation: Conversation, at: int) -> str | None:
    """Return None for a turn that is read exactly, what is wrong with it, or nothing for one that cannot be judged."""
    message = conversation.messages[at]
    try:
        written = _written(oracle, conversation, at, fmt)
        written = replace(written, space=_space_behind(oracle, conversation, at, written.mode))
        behind = writer.prompt(fmt, conversation.until(at), written.mode)
        (answer, stop), *others = _turns(written, behind.stops)
        kept = _as_kept(oracle, conversation, at, written.mode)
        expected = _expected(_told_alike(oracle, conversation, at, written.mode, kept), written.answer)
        if written.thought is not None:
            expected = replace(expected, thought=written.thought)
        if message.get("tool_calls") and not conversation.tools:
            raise _Unshown("no tool is offered")
        responses = [writer.read(behind.parser(), answer)]
        responses += [writer.read(fmt.parser(behind.request.conversation.tools), more) for more, _ in others]
        items = [item for response in responses for item in response.items]
        answer = "".join([answer, *(more for more, _ in others)])
    except _Unshown as error:
        turns.unshown[f"{error}"] += 1
        return ""
    except writer.Failed as error:
        return f"fails: {error}"
    wrong = _wrong(expected, _found(items), answer)
    said = (expected.text, expected.thought, *(name for name, _ in expected.calls))
    if wrong is not None and any(one not in answer for one in said):
        return f"{wrong}, cut too early at {stop!r}"
    return wrong or next(filter(None, map(_complaint, responses)), None)


def _written(oracle: Oracle, conversation: Conversation, at: int, fmt: ts.Format) -> _Written:
    """Return what a model writes for the message, as far as the template shows it. Raises _Unshown."""
    thinks = bool(conversation.messages[at].get("reasoning_content"))
    modes = ("on", "default", "off") if thinks else ("off", "default", "on")
    told = [(mode, *both) for mode in modes if (both := _both(oracle, conversation, at, mode)) is not None]
    for mode, before, prompt, history in told:
        if history.startswith(prompt):
            opened = prompt[before:]
            if not opened and conversation.messages[at - 1]["role"] == "assistant":
                raise _Unshown("no turn is opened behind another answer")
            return replace(_closed(opened, history[len(prompt) :], mode, fmt), opening=opened)
    for mode, before, prompt, history in told:
        start = _parting(prompt, history)
        opened, rest = prompt[start:], history[start:]
        # Otherwise it is what stands in front of the turn that is written in another way.
        if start >= before and (_OPENING.search(opened) or _CLOSED.search(opened) or _thought_of(fmt, opened)):
            return replace(_closed(opened, rest, mode, fmt), opening=prompt[before:start])
    raise _Unshown("no prompt is the beginning of the history" if told else "the template refuses it")


def _closed(opened: str, rest: str, mode: str, fmt: ts.Format) -> _Written:
    """Return what follows the opening, with a short thought in front where that opens one and nothing closes it."""
    opening = _OPENING.search(opened)
    closing = _thought_of(fmt, opened) if opening is None else _closing(opening[0])
    if closing and closing.strip() not in rest:
        return _Written(f"{_ASIDE}{closing}{rest}", mode, _ASIDE)
    return _Written(rest, mode)


def _both(oracle: Oracle, conversation: Conversation, at: int, mode: str) -> tuple[int, str, str] | None:
    """Return the prompt before a message, how much of it is no opening, and the history with the message."""
    earlier = conversation.until(at)
    try:
        prompt, history = oracle.text(earlier, mode, True), oracle.text(conversation.until(at + 1), mode, False)
        return len(oracle.text(earlier, mode, False)), prompt, history
    except Refused:
        return None


def _parting(prompt: str, history: str) -> int:
    """Return where the two part, in front of the tag that differs."""
    start = next((n for n, (a, b) in enumerate(zip(prompt, history, strict=False)) if a != b), len(prompt))
    tag = max(prompt.rfind("<", 0, start), prompt.rfind("[", 0, start))
    return tag if tag >= 0 and not re.search("[]>]", prompt[tag:start]) else start


def _closing(opening: str) -> str:
    """Return what closes a thought that a prompt opens, with the line breaks that most models write there."""
    tag = opening.strip()
    closing = tag.replace("START", "END") if "START" in tag else f"{tag[0]}/{tag[1:]}"
    return f"\n{closing}\n\n" if opening.endswith("\n") else closing


def _thought_of(fmt: ts.Format, opened: str) -> str:
    """Return what closes a thought that a prompt opens in words, as the table that reads has it; else nothing."""
    for segment in (one for turn in fmt.document.turns for one in turn.segments):
        if segment.kind == "thinking" and segment.open.strip() and opened.endswith(segment.open):
            return f"{segment.close}{fmt.document.joints.get(('thinking', 'assistant'), '')}"
    return ""


def _space_behind(oracle: Oracle, conversation: Conversation, at: int, mode: str) -> str:
    """Return what the template writes behind a text, if that is white space alone."""
    message = {"role": "assistant", "content": "Zq"}
    other = replace(conversation, messages=[*conversation.messages[:at], message])
    try:
        behind = oracle.text(other, mode, False).rpartition("Zq")[2]
    except Refused:
        return ""
    return behind if behind.isspace() else ""


def _turns(written: _Written, stops: Sequence[str]) -> list[tuple[str, str]]:
    """Return the turns that a message is written as: the text of each before its stop string, and that string."""
    answer, stop = _until_stop(written.answer, stops)
    if not stop:
        return [(answer.removesuffix(written.space), stop)]
    rest = written.answer[len(answer) + len(stop) :]
    opening = _THOUGHT.sub("", written.opening).strip()
    if not opening or not rest.lstrip().startswith(opening):
        return [(answer, stop)]
    more = replace(written, answer=rest.lstrip().removeprefix(opening).lstrip())
    return [(answer, stop), *_turns(more, stops)]


def _until_stop(written: str, stops: Sequence[str]) -> tuple[str, str]:
    """Return the text before the first stop string, and that string."""
    ends = [(end, stop) for stop in stops if stop and (end := written.find(stop)) >= 0]
    return (written[: min(ends)[0]], min(ends)[1]) if ends else (written, "")


def _as_kept(oracle: Oracle, conversation: Conversation, at: int, mode: str) -> Message:
    """Return the message without the white space that makes no difference to the template: it takes that away."""
    message = conversation.messages[at]
    try:
        history = oracle.text(conversation.until(at + 1), mode, False)
        for name in ("content", "reasoning_content"):
            text = message.get(name) or ""
            for shorter in (
                text.strip(),
                text.lstrip(),
                text.rstrip(),
                text.strip("\n"),
                text.lstrip("\n"),
                text.rstrip("\n"),
            ):
                other = replace(conversation, messages=[*conversation.messages[:at], message | {name: shorter}])
                if shorter != text and history == oracle.text(other, mode, False):
                    message = message | {name: shorter}
                    break
    except Refused:
        pass
    return message


def _told_alike(oracle: Oracle, conversation: Conversation, at: int, mode: str, message: Message) -> Message:
    """Return the message with its text as its thought, where the template writes both alike beside a call."""
    text = message.get("content") or ""
    if not text or message.get("reasoning_content") or not message.get("tool_calls"):
        return message
    thinks = message | {"content": "", "reasoning_content": text, "thinking": text}
    other = replace(conversation, messages=[*conversation.messages[:at], thinks])
    try:
        same = oracle.text(other, mode, False) == oracle.text(conversation.until(at + 1), mode, False)
    except Refused:
        return message
    return thinks if same else message


def _expected(message: Message, answer: str) -> _Said:
    """Return what the turn is, but for what the template does not write of it."""
    calls = [
        (call["function"]["name"], _spelled(call["function"]["arguments"])) for call in message.get("tool_calls", [])
    ]
    names = Counter(name for name, _ in calls)
    if any(answer.count(name) < count for name, count in names.items()):
        raise _Unshown("the template does not write its calls")
    content = message.get("content") or ""
    if content not in answer:
        raise _Unshown("the template does not write its text")
    thought = message.get("reasoning_content") or ""
    return _Said(thought if thought in answer else "", content, calls)


def _found(items: Sequence[ts.Item]) -> _Said:
    thoughts = [_plain(item.content) for item in items if isinstance(item, ts.Thinking)]
    texts = [_plain(item.content) for item in items if isinstance(item, ts.Assistant)]
    calls = [(item.name, _respelled(item.arguments)) for item in items if isinstance(item, ts.ToolCall)]
    return _Said("".join(thoughts), "".join(texts), calls)


def _wrong(expected: _Said, found: _Said, answer: str) -> str | None:
    if expected.calls != found.calls:
        if len(expected.calls) != len(found.calls):
            return f"{_many(expected.calls)} read as {_many(found.calls)}: {_shape(answer, expected)}"
        if [name for name, _ in expected.calls] != [name for name, _ in found.calls]:
            return f"names of calls: {[name for name, _ in found.calls]}"
        wrong = next(one for one in zip(expected.calls, found.calls, strict=True) if one[0] != one[1])
        return f"arguments {wrong[0][1][:60]} read as {wrong[1][1][:60]}"
    for what, wanted, got in (("thought", expected.thought, found.thought), ("text", expected.text, found.text)):
        if wanted != got:
            ends = wanted.strip() == got.strip()
            kind = (
                f"white space at the ends of the {what}" if ends else f"the {what}" if got else f"the {what} is missing"
            )
            return f"{kind}: {_shape(answer, expected)} gives {_shape(got, expected)}"
    return None


def _shape(answer: str, said: _Said) -> str:
    """Return a turn with what was said told by its kind, so that turns of one form are one cause."""
    for what, text in (("thought", said.thought.strip()), ("text", said.text.strip())):
        answer = answer.replace(text, f"<{what}>") if text else answer
    for name, arguments in said.calls:
        answer = answer.replace(name, "<name>").replace(arguments, "<arguments>")
    return repr(answer if len(answer) <= 80 else answer[:80] + "...")


def _complaint(response: ts.Response) -> str | None:
    return f"complains: {', '.join(issue.kind for issue in response.issues)}" if response.issues else None


def _plain(parts: Sequence[ts.Part]) -> str:
    return "".join(part.text for part in parts if isinstance(part, ts.Text))


def _many(calls: Sequence[object]) -> str:
    return f"{len(calls)} call{'' if len(calls) == 1 else 's'}"


def _spelled(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _respelled(text: str) -> str:
    try:
        return _spelled(json.loads(text))
    except ValueError:
        return text
