"""Owns the choice of the table that reads what a chat template writes: it is tried on probes, and not guessed.

Each probe is written by the template, and the answer in it goes through the reader of a table. The table whose reader
gives exactly what went in is the one. Where none does, `learned_table` makes one from the differences between probes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.registry import formats, get_format, model_formats, openings
from turnscript.core.conversation import Assistant, Item, Thinking, ToolCall, text_content
from turnscript.core.errors import InvalidInput
from turnscript.core.events import fold
from turnscript.detection.edges import pieces
from turnscript.detection.learned_table import PLACEHOLDERS, Learned, learn
from turnscript.detection.probes import TEXT, TEXT_CALL, TEXT_ONLY, THOUGHT, THOUGHT_CALL, TOOLS, Probe
from turnscript.detection.trials import Render, Trial, Trials
from turnscript.engine.jsoncalls import JsonCall
from turnscript.engine.states import behind_opening, no_thought
from turnscript.engine.table import Document
from turnscript.formats.format import Format

_HARMLESS = frozenset({"odd_call", "missing_close", "missing_open", "after_end", "foreign_turn"})
"""Issues with which an answer is read whole: a server stops where a turn ends, and shows nothing of what follows."""
_OPEN_TAG = re.compile(r"<([^<>/\s|]+)>\s*$|\[([^\[\]/\s]+)\]\s*$")
_CLOSE_TAG = re.compile(r"(?:</[^<>\s|]+>|\[/[^\[\]\s]+\]|<\|(?:END|end)_[^<>\s|]+\|>)\s*$")
OPENED = "a thought that the prompt opens"
TAKEN_OUT = "a thought that the template takes out of contents"
PASSED = "an answer behind a thought that the prompt closes"

Outline = tuple[str, ...]
"""An item as it is compared: its kind, and what it says."""


class Verdict(Struct, frozen=True):
    """What became of one probe: `exact`, `differs` or `refused`, and in one sentence what differed.

    `spaced`: but for white space around a thought, by which one of several tables is chosen that read all.
    """

    probe: str
    result: str
    sentence: str = ""
    spaced: bool = False


class Reading(Struct, frozen=True):
    """The table that reads what a template writes, and how well.

    `format` is a format with a name, or a learned one, whose TOML text is `learned`. `exact`: all that the template
    writes is read as it went in. `stops`: what ends an answer. `takes`: what the template has a place for. `thoughts`:
    the key of a message under which it takes them. `text_arguments`: it takes arguments as JSON text, and no objects.
    `unlearned`: what could not be learned, a sentence each. `sentence` tells people all of it in one.
    """

    format: Format
    exact: bool
    verdicts: tuple[Verdict, ...]
    stops: tuple[str, ...]
    takes: dict[str, bool]
    learned: str = ""
    unlearned: tuple[str, ...] = ()
    thoughts: str = ""
    text_arguments: bool = False
    sentence: str = ""

    @property
    def right(self) -> int:
        """Return how many probes are read exactly."""
        return _count(self.verdicts, "exact")

    @property
    def asked(self) -> int:
        """Return how many probes the template wrote."""
        return len(self.verdicts) - _count(self.verdicts, "refused")

    @property
    def thinks(self) -> bool:
        """Return whether answers have thoughts: the template shows them, opens one in a prompt, or takes them out."""
        return self.takes["thoughts"] or any(one.probe in (OPENED, TAKEN_OUT, PASSED) for one in self.verdicts)

    @property
    def calls(self) -> bool:
        """Return whether each tool call that the template writes is read."""
        wrong = [one for one in self.verdicts if one.result == "differs" and "call" in one.probe]
        return self.takes["calls"] and not wrong


def choose(
    render: Render,
    source: str = "",
    *,
    eos: str = "",
    own: Sequence[Format] = (),
    wishes: Sequence[Mapping[str, Any]] = (),
) -> Reading:
    """Return the table that reads what a template writes.

    `render` is the template as a function of messages, tools and `add_generation_prompt`; it raises a TurnscriptError
    for what the template refuses. `source` is its text, if that is known. `eos`: the text of the token that ends
    every answer, at which a server stops. `own`: formats to try before all others, also those for which other
    signs speak. `wishes`: variables by which the template is told whether to think.
    Raises InvalidInput for a template that does not write the text of a plain conversation.
    """
    trials = Trials(render, source, eos=eos, wishes=wishes)
    check_trials(trials)
    best: tuple[int, Format, tuple[Verdict, ...]] | None = None
    nearly: Reading | None = None
    for format_ in candidates(trials, own):
        verdicts = judge(format_.document, trials, give_up=best[0] if best else None)
        right = _count(verdicts, "exact")
        if not _count(verdicts, "differs"):
            if not any(one.spaced for one in verdicts):
                return _reading(format_, verdicts, trials, None)
            nearly = nearly or _reading(format_, verdicts, trials, None)
        if best is None or right > best[0]:
            best = (right, format_, verdicts)
    if nearly is not None:
        return nearly
    learned = learn(trials, lambda document: _counts(judge(document, trials)))
    verdicts = judge(learned.format.document, trials)
    if best is not None and best[0] >= _count(verdicts, "exact"):  # a table of a format knows more than probes show
        return _reading(best[1], best[2], trials, None)
    return _reading(learned.format, verdicts, trials, learned)


def check_trials(trials: Trials) -> None:
    """Raise InvalidInput where a template does not even write a question and its answer."""
    trial = trials.of(TEXT_ONLY)
    if trial is None:
        reason = trials.refused.get(TEXT_ONLY.shows, "")
        message = f"this template refuses a question and its answer: {reason}"
        raise InvalidInput(message, expected="a template that writes a conversation of user and assistant")
    if TEXT not in trial.whole:
        message = "this template writes nothing of an answer's text"
        raise InvalidInput(message, expected="a template that writes the content of each message")


def candidates(trials: Trials, own: Iterable[Format] = ()) -> Iterator[Format]:
    """Give the formats that may read what a template writes, those with the fewest literals foreign to it first.

    Of equals, the one comes first of which the template has most, in its answers and around them,
    then formats of models, because a template is a model's.
    """
    shown = "".join(one.whole for _, one in trials.all if one is not None)
    written = shown + trials.source
    yield from own
    found: list[tuple[int, int, int, int, int, Format]] = []
    for order, name in enumerate([*model_formats(), *formats()]):
        opens = openings(name) or _inner_openings(name)
        if any(one in shown for one in opens):
            format_ = get_format(name)
            document = format_.document
            strange, known = foreign(document, written)
            unlike = 0 if trials.takes["calls"] else _unlike_in_calls(document, written, strange)
            around = foreign_around(document, written)
            found.append((unlike, strange, -known, around, order, format_))
    for *_, format_ in sorted(found, key=lambda one: one[:5]):
        yield format_


def _unlike_in_calls(document: Document, written: str, strange: int) -> int:
    """Rank a table for a template that writes no calls: its marks of calls stand in the template, or it writes JSON.

    One without calls comes first too, if the template has every literal of it.
    """
    call = next((one for one in document.model_turn.segments if one.kind == ToolCall.kind), None)
    if call is None:
        return 2 if strange else 0
    opened = (call.open, call.group.open if call.group else "")
    marks = [one.strip() for one in opened if any(map(str.isalpha, one))]  # a bare bracket may stand anywhere
    if marks and all(one in written for one in marks):
        return 0
    return 1 if marks and type(call.body) is JsonCall else 2


def _inner_openings(name: str) -> list[str]:
    """Return what opens the model's blocks in a format whose turns have no opening of their own."""
    blocks = get_format(name).document.model_turn.segments
    return [one.open.strip() for one in blocks if one.open.strip()]


def foreign(document: Document, written: str) -> tuple[int, int]:
    """Count the literals of the model's turn: those that a template has nowhere and does not write, and the others."""
    turn = document.model_turn
    literals = [turn.open, turn.close, turn.no_thought]
    for segment in turn.segments:
        literals += [segment.open, segment.close, *segment.body.literals]
        literals += [segment.group.open, segment.group.close] if segment.group else []
    found = pieces(literals)
    strange = sum(piece not in written for piece in found)
    return strange, len(found) - strange


def foreign_around(document: Document, written: str) -> int:
    """Count the literals around the other turns, and around what they say, that stand nowhere in a template."""
    model = document.model_turn
    literals: list[str] = []
    for turn in document.turns:
        if turn is not model:
            literals += [turn.open, turn.close]
            literals += [literal for segment in turn.segments for literal in (segment.open, segment.close)]
    return sum(piece not in written for piece in pieces(literals))


def judge(document: Document, trials: Trials, give_up: int | None = None) -> tuple[Verdict, ...]:
    """Return what becomes of each probe. `give_up`: stop where no more than so many can be read exactly."""
    found: list[Verdict] = []
    for index, (probe, trial) in enumerate(trials.all):
        found.append(_verdict(document, probe, trial, trials))
        rest = len(trials.all) - index - 1
        if give_up is not None and _count(found, "exact") + rest + 2 + len(trials.aheads) <= give_up:
            return tuple(found)
    found += _prefilled(document, trials)
    return tuple(found)


def _verdict(document: Document, probe: Probe, trial: Trial | None, trials: Trials) -> Verdict:
    if trial is None:
        reason = trials.refused.get(probe.shows, "")
        return Verdict(probe.shows, "refused", f"the template refuses this: {reason}")
    turn = document.model_turn
    inside = trial.opened(turn.open) if turn.open else None
    if inside is None and turn.open and not turn.behind and len(probe.before) == 1:
        return Verdict(probe.shows, "differs", f"no turn begins with {turn.open.strip()!r}")
    if inside is None:
        inside = max(trial.start, trial.after + _behind(document, trial.written))
    inside += no_thought(turn, trial.whole[inside:])
    calls = trial.shown(inside)[2]
    if probe.calls and calls < len(probe.calls):
        return Verdict(probe.shows, "refused", f"the template shows {calls} of {len(probe.calls)} calls")
    expected, note = _expected(document, probe, trial, trials, inside)
    if not expected:
        return Verdict(probe.shows, "refused", "the template shows nothing of this answer")
    seed, text = trial.cut(inside)
    if not trials.ended.strip():  # white space behind a turn leads to the next one, and no model writes it
        text = text.removesuffix(trials.ended)
    if trials.eos and not _knows(document, trials.eos):
        text = text.rstrip().removesuffix(trials.eos)
    verdict = _compared(probe.shows, expected, document, seed, text)
    return replace(verdict, sentence=verdict.sentence or note)


def _expected(document: Document, probe: Probe, trial: Trial, trials: Trials, inside: int) -> tuple[list[Outline], str]:
    """Return what must be read of an answer, in the order in which it is written, and what a template did to it.

    What a template puts into a turn of its own, behind the end of the first, no reader of that can find.
    """
    region = trial.whole[inside:]
    thinks, speaks, _ = trial.shown(inside)
    placed: list[tuple[int, Outline]] = []
    if probe.thought and thinks:
        placed.append((region.find(THOUGHT), ("thought", probe.thought)))
    if speaks:
        as_thought = probe is TEXT_CALL and not trial.differs_from(trials.of(THOUGHT_CALL), TEXT, THOUGHT)
        kind = "thought" if as_thought else "text"  # some templates make no difference
        placed.append((region.find(TEXT), (kind, probe.text)))
    placed += [(region.find(call.name), _call_outline(call.name, call.arguments)) for call in probe.calls]
    ordered = sorted(placed, key=lambda one: one[0])
    here = [one for one in ordered if not _is_apart(document, region, ordered[0][0], one[0])]
    if len(here) < len(ordered):
        return [one for _, one in here], f"the template writes the {ordered[-1][1][0]} in a turn of its own"
    note = f"the template writes the {ordered[-1][1][0]} last" if ordered != placed else ""
    return [one for _, one in ordered], note


def _knows(document: Document, end: str) -> bool:
    """Return whether a string that ends answers is one of the table's."""
    ends = (document.model_turn.close, document.end, *document.generation.stops)
    return any(end in one for one in ends)


def _is_apart(document: Document, region: str, first: int, at: int) -> bool:
    """Return whether a place stands behind the end of the turn and the opening of the next one."""
    opening = document.model_turn.open.strip()
    ends = [region.find(stop.strip(), first, at) for stop in document.generation.stops if stop.strip()]
    end = min((one for one in ends if one >= 0), default=-1)
    return bool(opening) and end >= 0 and region.find(opening, end, at) >= 0


def _compared(
    shows: str, expected: list[Outline], document: Document, seed: str, text: str, *, loose: bool = False
) -> Verdict:
    """Read an answer and compare. `loose`: white space at the ends of texts does not count, because nobody wrote it."""
    parser = Format("", "", document).parser(TOOLS, prefill=seed or None)
    response = fold([*parser.feed(text), *parser.close()])
    found = [outline for item in response.items if (outline := _outline(item)) is not None]
    spaced = found[:1] != expected[:1]  # what joins a thought and a text is told by other probes
    if loose:
        found = [(kind, *(text.strip() for text in said)) for kind, *said in found]
    if found == expected:
        bad = [issue for issue in response.issues if issue.kind not in _HARMLESS]
        if not bad:
            return Verdict(shows, "exact", spaced=spaced)
        return Verdict(shows, "differs", f"it is read with the issue {bad[0].kind}")
    return Verdict(shows, "differs", _difference(expected, found))


def _prefilled(document: Document, trials: Trials) -> Iterator[Verdict]:
    """Judge answers with thoughts that no history shows: that a prompt opens or closes, or contents may hold."""
    trial = trials.of(TEXT_ONLY)
    if trial is None:
        return
    seed = seed_of(document, trial.ahead)
    for ahead in trials.aheads:
        yield from _behind_seed(document, seed_of(document, ahead))
    if not seed and trials.taken_out:
        text = f"<{trials.taken_out}>\n{THOUGHT}\n</{trials.taken_out}>\n\n{TEXT}"
        yield _compared(TAKEN_OUT, [("thought", THOUGHT), ("text", TEXT)], document, "", text, loose=True)
    if not trial.continues:
        yield from _behind_seed(document, seed)


def _behind_seed(document: Document, seed: str | None) -> Iterator[Verdict]:
    """Judge an answer behind what a prompt has written of the model's turn: the beginning of a thought, or all of one.

    Nothing is judged where it has written neither.
    """
    if not seed:
        return
    opens = _OPEN_TAG.search(seed)
    if opens is None:
        if _CLOSE_TAG.search(seed):
            yield _compared(PASSED, [("text", TEXT)], document, seed, TEXT, loose=True)
        return
    space = "\n" if seed.endswith("\n") else ""
    close = f"</{opens[1]}>" if opens[1] else f"[/{opens[2]}]"
    text = f"{THOUGHT}{space}{close}{space * 2}{TEXT}"
    verdict = _compared(OPENED, [("thought", THOUGHT), ("text", TEXT)], document, seed, text, loose=True)
    yield verdict


def seed_of(document: Document, ahead: str) -> str | None:
    """Return what a prompt has written of the model's turn; None for nothing, or where the turn is not opened.

    `ahead`: the end of a prompt, from the last content on. Its parser is `Format.parser(tools, prefill=seed)`.
    """
    turn = document.model_turn
    seed = behind_opening(turn, ahead)
    if seed is None:
        end = _behind(document, ahead)
        seed = ahead[end:] if end else ""
    seed = seed[no_thought(turn, seed) :]
    return seed if seed.strip() else None


def _behind(document: Document, ahead: str) -> int:
    """Return how far what closes the turn before reaches, where an answer has no opening."""
    turn = document.model_turn
    closes = [one.close.strip() for one in document.turns if one.role in turn.behind and one.close.strip()]
    return max((ahead.rfind(close) + len(close) for close in closes if close in ahead), default=0)


def _outline(item: Item) -> Outline | None:
    if isinstance(item, ToolCall):
        return _call_outline(item.name, json.loads(item.arguments))
    if isinstance(item, Thinking | Assistant):
        text = text_content(item.content)
        return ("thought" if isinstance(item, Thinking) else "text", text) if text.strip() else None
    return (item.kind, "")


def _call_outline(name: str, arguments: Any) -> Outline:
    return "call", name, json.dumps(arguments, ensure_ascii=False, sort_keys=True)


def _difference(expected: list[Outline], found: list[Outline]) -> str:
    wanted, kinds = ([one[0] for one in row] for row in (expected, found))
    if wanted != kinds:
        return f"it is read as {' and '.join(kinds) or 'nothing'}, and not as {' and '.join(wanted)}"
    said, read = next((one, other) for one, other in zip(expected, found, strict=True) if one != other)
    return f"the {said[0]} is read as {_short(read[1:])}, and not as {_short(said[1:])}"


def _short(said: Sequence[str]) -> str:
    text = " ".join(said)
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _count(verdicts: Iterable[Verdict], result: str) -> int:
    return sum(one.result == result for one in verdicts)


def _counts(verdicts: Iterable[Verdict]) -> tuple[int, int]:
    told = list(verdicts)
    return _count(told, "exact"), _count(told, "differs")


def _reading(format_: Format, verdicts: tuple[Verdict, ...], trials: Trials, learned: Learned | None) -> Reading:
    exact = not _count(verdicts, "differs")
    generation = format_.document.generation
    stops = dict.fromkeys([*generation.stops, *generation.stops_with_tools])
    reading = Reading(
        format=format_,
        exact=exact,
        verdicts=verdicts,
        stops=tuple(stop for stop in stops if stop not in PLACEHOLDERS),
        takes=trials.takes,
        learned=learned.text if learned else "",
        unlearned=learned.unlearned if learned else (),
        thoughts=trials.manner.thoughts,
        text_arguments=trials.manner.text_arguments,
    )
    what = "a table that was learned from it" if learned else f"the table {format_.name!r}"
    told = f"what this template writes is read by {what}: {reading.right} of {reading.asked} probes exactly"
    if not reading.takes["calls"]:
        told += "; it writes no tool calls"
    told += "".join(f"; {one}" for one in reading.unlearned if reading.takes["calls"] or "call" not in one)
    wrong = [one for one in verdicts if one.result == "differs"]
    if wrong:
        told += f"; {wrong[0].probe}: {wrong[0].sentence}"
    return replace(reading, sentence=told)


__all__ = ["Reading", "Verdict", "candidates", "choose", "judge", "seed_of"]
