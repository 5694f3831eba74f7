"""Owns reading what stands inside a turn, whole or in pieces: a model's answer as events, or a turn of a transcript.

Theory of operation. The parser is in one state at a time; a state (`states`) is a set of literals that mean something
there. A step looks for the first of them, passes on the text before it, and does what it says; the end of a piece that
may yet become a literal waits for the next piece. Most pieces of a stream need no step: one question tells how much of
one is content (`_look_ahead`). Payloads of calls are read by machines (`machine`), which know JSON or parameters and
not tags, so a closing tag inside a JSON string is text.

Nothing that a model writes raises: what is no call after all is put back as text, and an `Issue` says so. Every
character is in the `raw` of exactly one event. Strictly, for transcripts, the same steps are taken, and what would be
an issue is an error.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping, Sequence

from turnscript.core.conversation import Assistant, Dropped, Issue, Item, Thinking, Tool
from turnscript.core.errors import type_of
from turnscript.core.events import Event, MessageEnd, OneStream, PartDelta
from turnscript.core.finish_reasons import is_cut, meaning
from turnscript.core.losses import Loss
from turnscript.engine.callsteps import (
    SPACE,
    begin,
    begin_run,
    begin_run_in_text,
    begins_loose,
    by_parts,
    end_call,
    end_quoted,
    end_run,
    is_fresh,
    is_quoted,
    is_spared,
    may_be_quoted,
    read_payload,
    read_quoted,
    read_run,
)
from turnscript.engine.cursor import Begun, Cursor, Ending, Malformed, Telling, TextSteps
from turnscript.engine.layout import Place
from turnscript.engine.names import name_of_line
from turnscript.engine.scanner import WIDEST, Scanner
from turnscript.engine.states import Action, Do, States

_LEAST_OF_TAG = 2  # how much of a tag is hardly anything else


def read_gap(at: Cursor, text: str, position: int) -> int:
    """Read what stands between segments: an opening, an end, or text."""
    state, length = at.state, len(text)
    scanner = state.plain if at.told.uncounted or at.seeding or is_spared(at, position) else state.scanner
    space = SPACE.match(text, position, position + WIDEST).end()  # type: ignore[union-attr]
    if space == length and not at.closing and space - position < WIDEST:
        return position
    found = scanner.near(text, position, space, at.closing)
    if found is not None:
        action = scanner.actions[found[0]]
        if action.do is Do.LOOSE:
            begin_run(at)
            return position
        if at.strict:
            _between(at, text[position : found.end() - action.core], action)
        before = at.told.read(text[position : found.start()])
        if at.group_raw:
            at.group_raw.append(before)
        elif action.place is not None and action.place.segment.tentative:
            at.group_raw = [before[_dropped(at, before) :]]  # of the text, if it is one
        end = found.end() - action.ahead
        act(at, action, text[found.start() : end], found.start())
        return end
    if not at.closing and scanner.hold(text, position) <= space:
        return position
    if space == length:
        if at.strict:
            _between(at, text[position:], None)
        at.told.read(text[position:])
        return length
    return _begin_text(at, text, position, space)


def _begin_text(at: Cursor, text: str, position: int, space: int) -> int:
    bare = at.states.bare
    if bare is None or at.group is not None:
        if at.strict:
            openings = dict.fromkeys(map(str.strip, at.state.scanner.actions))
            at.told.fail(f"text where {' or '.join(openings) or 'none'} is expected", space)
        if bare is None and at.group is None and at.state.kind in ("", Thinking.kind):
            return _begin_unopened(at, text, position, space)
        if bare is None:
            at.told.issue("text_outside", "text behind the last block ends the answer", position)
            _finish_turn(at)
            return position
        at.told.issue("text_in_group", "text between calls", position)
        at.group = None
    start = position + _dropped(at, text[position:space])
    at.told.read(text[position:start])
    at.enter_text(bare)
    if at.strict:
        at.start(bare)
    return start


def _begin_unopened(at: Cursor, text: str, position: int, space: int) -> int:
    """Begin an answer without an opening, with which a model begins or goes on behind a thought."""
    place = at.states.layout.places[Assistant.kind]
    at.told.issue("missing_open", f"a text without {place.open}{place.head_end}", space)
    at.told.read(text[position:space])
    at.enter_text(place)
    return space


def _dropped(at: Cursor, space: str) -> int:
    """Return how much of the white space before a text is not of the text."""
    if at.flattened and (at.state.kind or at.strict):
        return len(space)
    kind, bare = at.state.kind, at.states.bare
    joint = at.states.joint(kind, bare.kind) if kind and bare is not None else at.lead
    if space.startswith(joint):
        return len(joint)
    return len(space) if joint.startswith(space) else 0


def read_text(at: Cursor, text: str, position: int) -> int:
    """Read on inside a text: up to the next literal that means something, or what may become one."""
    if not is_spared(at, position) and is_fresh(at) and (begun := begins_loose(at, text, position)) is not None:
        return begun
    scanner, found, held = _next_literal(at, text, position)
    if found is not None:
        action, start = scanner.actions[found[0]], found.start()
        if action.do is Do.LOOSE:
            return begin_run_in_text(at, text, position, found)
        if action.do in (Do.OPEN, Do.GROUP) and is_quoted(at, start):  # in what the prompt has written, too
            at.content(text[position : start + 1])
            return start + 1
        at.content(text[position:start])
        if action.do in (Do.OPEN, Do.GROUP) and may_be_quoted(at, start):
            at.step = read_quoted
            return start
        end = found.end() - action.ahead
        act(at, action, text[start:end], start)
        return end
    if at.closing:
        return _last_text(at, text, position)
    if held > position:
        at.content(text[position:held])
    return held


def _next_literal(at: Cursor, text: str, position: int) -> tuple[Scanner[Action], re.Match[str] | None, int]:
    """Return the first literal in a text that is certain, by its scanner, and from where on the text waits."""
    told, state = at.told, at.state
    if told.uncounted or at.seeding:
        behind = len(text) if at.seeding else position + told.uncounted
        scanner, found, held = by_parts(at, text, position, state.own, behind)
        if is_fresh(at) and not at.closing and held >= behind and (found is None or found.start() >= behind):
            return scanner, None, behind  # what the model writes begins there, and may be a call
        return scanner, found, held
    if is_quoted(at, position):
        return by_parts(at, text, position, at.states.without_calls(at.place), at.quoted - told.offset)
    if is_spared(at, position):
        return by_parts(at, text, position, state.plain, at.spared - told.offset)
    found = state.scanner.find(text, position, at.closing)
    return state.scanner, found, len(text) if found or at.closing else state.scanner.hold(text, position)


def _last_text(at: Cursor, text: str, position: int) -> int:
    """Read the end of all inside a text: white space may be of a closing, and the line of a next text is whole."""
    end, line = len(text), at.place.body.next_text
    if line in at.state.scanner.actions and text.endswith(line[:-1], position):
        at.content(text[position : end - len(line) + 1])
        at.told.read(line[:-1])
        at.told.next_text()
        return end
    if is_cut(at.finish):
        end = _before_cut(at, text, position)
    elif not at.strict:
        end -= len(_stripped(at, text[position:]))
    at.content(text[position:end])
    at.told.read(text[end:])
    return len(text)


def _stripped(at: Cursor, text: str) -> str:
    """Return the text without white space at the end that belongs to a closing which the backend has taken away."""
    for space in at.state.end_spaces:
        if text.endswith(space):
            return space
    return ""


def _before_cut(at: Cursor, text: str, position: int) -> int:
    """Return where a text ends that the limit has cut: before the beginning of a tag, which is no content."""
    held = at.state.plain.hold(text, position)
    begun = text[held:].strip()
    if len(begun) < _LEAST_OF_TAG or begun[0].isalnum():
        return len(text)
    at.told.issue("cut_tag", f"the limit has cut a tag: {begun}", held, len(text))
    return held


def read_behind(at: Cursor, text: str, position: int) -> int:
    """Keep what stands behind the end of the turn."""
    if not at.tail:
        at.tail_at = max(0, at.told.offset + position)
    at.tail.append(at.told.read(text[position:]))
    return len(text)


def judge_tail(at: Cursor) -> None:
    """Judge the text behind the end: it is an issue, unless it is only the mark of the end of all."""
    if not at.tail:
        return
    tail = "".join(at.tail)
    if tail.strip() and tail.strip() != at.states.layout.document.end:
        begins = at.tail_at + len(tail) - len(tail.lstrip())
        # What is behind the client's own stop string is not wanted, so nothing is lost.
        issue = Issue if at.stop is not None else Dropped
        detail, opening = "text behind the end of the turn", at.states.turn.open.strip()
        if opening and at.told.index < 0 and "".join(at.told.pending).lstrip().startswith(opening):
            detail = f"{opening} is of the prompt, which opens the turn; an answer begins behind it"
        at.told.issues.append(issue(at.end_kind, detail, begins, at.tail_at + len(tail)))


def act(at: Cursor, action: Action, literal: str, start: int) -> None:
    """Do what a literal says that begins at a place in what is being read."""
    do, place = action.do, action.place
    if do in (Do.OPEN, Do.GROUP) and place is not None:
        at.told.opened = max(0, at.told.offset + start)  # the prompt may have written the white space before
        _open(at, do, place, literal, start)
        return
    if do is Do.AGAIN and place is not None:
        _open_again(at, place, literal)
        return
    at.told.read(literal)
    if do is Do.CLOSE and place is not None:
        _note_unseen(at, place, start + len(literal))
        at.told.end()
        at.enter_gap(place.kind, at.group)
    elif do is Do.NEXT:
        at.told.next_text()
    elif do is Do.NONE:
        at.enter_gap("")
    elif do is Do.ON:
        _go_on(at, start)
    elif do is Do.LEAVE:
        _leave_group(at, literal, start + len(literal))
    else:
        if do is Do.STOP:
            at.stop = literal
        elif do is Do.FOREIGN and not (at.step is read_gap and at.state.kind):
            at.end_kind = "foreign_turn"
        _finish_turn(at)


def _note_empty(at: Cursor, end: int) -> None:
    """Report marks around calls without a call, which no item has."""
    if at.group_raw and at.group is not None:
        at.told.issue_since_opening("empty_calls", "marks of calls, and no call in them", end, dropped=True)
    at.group_raw = []


def _note_unseen(at: Cursor, place: Place, end: int) -> None:
    """Report, strictly, an empty thought that no item has. At the start of a turn it says that there is none."""
    if not at.strict or at.told.part is not None or not place.unseen_if_empty:
        return
    if at.told.index >= 0 or "".join(at.told.pending).strip() != place.turn.no_thought.strip():
        at.told.issue_since_opening("empty_thinking", "an empty thought, which no item has", end, dropped=True)


def _leave_group(at: Cursor, literal: str, end: int) -> None:
    """End a group of calls, which may have none."""
    _note_empty(at, end)
    at.group = None
    at.note_closing(literal)
    at.enter_gap(at.state.kind)


def _go_on(at: Cursor, start: int) -> None:
    """Go on in another turn that the model opens; what is open ends there."""
    place = at.state.place if at.step is read_text else None
    if place is not None and place.close:
        kind = "unclosed_thinking" if place.kind == "thinking" else "missing_close"
        at.told.issue(kind, f"the next turn begins without {place.close.strip()}", start)
    at.told.end()
    at.enter_gap("")


def _open_again(at: Cursor, place: Place, literal: str) -> None:
    """Read an opening once more that the prompt has written already; later on, it is text."""
    if at.told.texts:
        at.content(literal)
        return
    at.told.read(literal)
    at.told.skip = (place.head_end or place.open).endswith("\n")


def _finish_turn(at: Cursor) -> None:
    at.told.end()
    at.step = read_behind


def _open(at: Cursor, do: Do, place: Place, literal: str, start: int) -> None:
    """Begin a segment or a group. A text goes on until it is certain that this is one."""
    told, generated = at.told, at.told.read(literal)
    within = at.state if at.step is read_text else None
    text = None if within is None else within.place
    if text is not None and text.kind == Assistant.kind and text.close and at.states.bare is None:
        told.issue_since_opening("missing_close", "a call inside an answer")
    if place.segment.lists_names:
        at.group = place.segment.group
    elif do is Do.GROUP:
        if text is not None and text.kind == Thinking.kind:
            told.issue_since_opening("unclosed_thinking", "calls inside a thought")
        at.group, at.group_raw = place.segment.group, [generated]
        told.end()
        at.enter_gap(place.kind if at.state.kind == place.kind else "", at.group)
        return
    if place.segment.group is not None and place.open and at.group is None and not at.strict:
        told.issue_since_opening("mended_call", f"a call without {place.group_open.strip()} before it", start)
    begun = Begun(place, [*at.group_raw, generated], within)
    if place.segment.named:
        begun.head = {"name": name_of_line(literal.strip().split("\n")[0])}
    at.group_raw = []
    begin(at, begun)


def finish(at: Cursor) -> None:
    """Finish whatever goes on when the text is over. What is `again` afterwards is to be read once more."""
    step = at.step
    if step is read_text:  # as most end
        _unclosed_text(at)
    elif step is read_run:
        end_run(at)
    elif step is read_quoted:
        end_quoted(at, 0, quoted=False)
    elif at.begun is not None:
        end_call(at)
    elif step is read_gap:
        at.ending.between = at.group is None
        at.ending.missing = "" if at.group is None else at.group.close.strip()
        _note_empty(at, len(at.held))
        if at.strict and not at.held and not at.told.offset:
            _between(at, "", None)


def _unclosed_text(at: Cursor) -> None:
    place = at.place
    if place.segment.bare:
        return
    if at.strict and at.told.part is None:
        at.start(place)  # it has no text, but it is open, so it is not what stands for none
    at.ending.stays_open, at.ending.missing = bool(place.close), place.close.strip()
    if place.kind == Thinking.kind and not at.may_stay_open:
        if at.strict:
            at.told.fail(f"{place.close.strip()} is missing", len(at.held))
        at.told.issue("unclosed_thinking", "the text ends inside a thought", len(at.held))


def _between(at: Cursor, space: str, action: Action | None) -> None:
    """Read white space between two segments: strictly, it may be a text that is empty, or of white space."""
    bare, kind = at.states.bare, at.state.kind
    if bare is None or at.group is not None or (action and action.do is Do.LEAVE):
        return
    if action and action.place:  # the opening's own
        space = space.removesuffix(action.place.indent)
    before = at.states.known_joint(kind, bare.kind) if kind else ""
    after = at.states.known_joint(bare.kind, action.place.kind) if action and action.place else ""
    if at.flattened:
        before, after = "", None if kind or action else ""
    if before is None or after is None or (kind and kind == bare.kind):
        return
    text = "" if at.flattened else space[len(before) : len(space) - len(after)]
    whole = at.flattened or (len(space) >= len(before) + len(after) and space == before + text + after)
    # What joins the two without a text between them is no text, and at the ends of a turn that is nothing.
    direct = at.states.known_joint(kind, action.place.kind) if kind and action and action.place else ""
    if whole and (not (kind or action) or not space == direct == f"{before}{after}"):
        at.start(bare)
        at.told.texts.append(text)
        at.told.end()


TEXT_STEPS = TextSteps(read_gap, read_text, act)


class TurnParser(OneStream):
    """Reads the inside of one turn, whole or in pieces.

    `stops`: what a backend may have taken away at the end. `lead`: white space that the model writes first, if not
    that of its turn. In a transcript, `may_stay_open` says whether a thought may have no end, and `faults` takes what
    would be raised.
    """

    __slots__ = ("_at", "_decoder", "_passes", "_sunk", "_sunk_from", "_told")

    def __init__(
        self,
        states: States,
        tools: Mapping[str, Tool] | None,
        *,
        stops: Sequence[str] = (),
        lead: str | None = None,
        may_stay_open: bool = False,
        faults: list[Malformed] | None = None,
    ) -> None:
        self._told = Telling(faults)
        self._at = Cursor(states, self._told, tools, TEXT_STEPS)
        self._at.stops, self._at.may_stay_open = stops, may_stay_open
        if lead is not None:
            self._at.lead = lead
        self._decoder: codecs.IncrementalDecoder | None = None
        # How much of a piece is content, with what is held; -1: a step must be taken.
        self._passes: Callable[[str], int] | None = None
        self._sunk: list[str] = []  # where such pieces go, and from where on they are not counted yet
        self._sunk_from = 0

    def feed(self, text: str | bytes) -> list[Event]:
        """Take more text; returns what is certain now. Bytes are UTF-8 and may be cut anywhere.

        Raises ValueError once the parser is closed.
        """
        if type(text) is not str:
            text = self._decoded(text)
        at, passes = self._at, self._passes
        held = at.held
        if held:
            text = held + text
        if passes is not None and text and (end := passes(text)) >= 0:
            if held or end != len(text):
                at.held, text = text[end:], text[:end]
                if not end:
                    return []
            self._sunk.append(text)
            return [PartDelta(self._told.index, text, text)]
        if at.closing:
            raise ValueError("this parser is closed; a prompt gives a new one for each answer")
        self._run(text)
        return self._told.taken()

    def _decoded(self, text: str | bytes) -> str:
        if isinstance(text, str):
            return text
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            return self._decoder.decode(text)
        except TypeError:
            raise TypeError(f"a parser is fed str or UTF-8 bytes, got {type_of(text)}") from None

    def close(self, finish_reason: str | None = None) -> list[Event]:
        """The text is over. `finish_reason`: why, if the backend said so; one that is cut leaves a call text."""
        at, told = self._at, self._told
        if at.closing:
            return []
        rest = at.held if self._decoder is None else at.held + self._decoder.decode(b"", True)
        at.closing, at.finish = True, finish_reason
        half = at.states.half_closing(rest, at.group) if rest and not at.strict else ""
        self._run(rest.removesuffix(half))
        finish(at)
        while at.again:
            again, at.again = at.again, ""
            told.offset -= len(again)
            self._run(again)
            finish(at)
        told.end()
        told.read(half)
        judge_tail(at)
        reason = "stop" if finish_reason is None or at.stop is not None else meaning(finish_reason)
        if told.calls and reason == "stop" and at.stop is None:
            reason = "tool_calls"
        return [*told.taken(), MessageEnd(reason, at.stop, None, told.issues, told.raw())]

    def seed(self, text: str) -> None:
        """Read what the prompt has written of the turn already. That makes no events."""
        if not text:
            return
        at, told = self._at, self._told
        at.seeding = True
        self._run(text)
        at.seeding = False
        events = [event for event in told.taken() if isinstance(event, PartDelta) and event.index == told.index]
        told.pending, told.issues = [], []
        at.group_raw = [""] * len(at.group_raw)  # it was opened, and not by the model
        told.texts.clear()
        told.breaks.clear()
        at.tail.clear()
        told.index, told.offset = -1, -len(at.held)
        told.uncounted, told.accounted = len(at.held), 0
        told.opened = 0  # where what is open may have begun earlier
        if told.part is not None:
            told.announce(told.part)
        elif at.begun is not None:
            at.begun.seeded(told, "".join([event.text for event in events]))
        self._passes = None  # the start of what goes on is told first

    def _run(self, text: str) -> None:
        """Take steps as far as they go; the rest is held."""
        at, told = self._at, self._told
        if len(self._sunk) != self._sunk_from:
            self._count_sunk()
        self._passes = None
        if not text:  # there is no step to take, and nothing more to look ahead to
            return
        position, length = 0, len(text)
        while position < length:
            step = at.step
            after = step(at, text, position)
            if at.again:
                text, after = self._back(text, after)
                length = len(text)
            elif after == position and at.step is step:
                break
            position = after
        at.held = text[position:]
        told.offset += position
        self._look_ahead()

    def _back(self, text: str, after: int) -> tuple[str, int]:
        """Go back to what is to be read again: in the text, or before it, where earlier pieces had a part of it."""
        again, self._at.again = self._at.again, ""
        if len(again) <= after:
            return text, after - len(again)
        self._told.offset += after - len(again)
        return again + text[after:], 0

    def _look_ahead(self) -> None:
        """Choose what tells how much of the next pieces is content: of a text, or of a call that was announced."""
        at, told = self._at, self._told
        self._sunk_from = len(self._sunk)
        if at.closing or told.uncounted or told.accounted or told.pending:
            return
        if at.step is TEXT_STEPS.text and told.part is not None and not told.skip:
            self._passes, self._sunk = at.state.scanner.certain, told.texts
        elif at.step is read_payload and at.call.call is not None and at.call.machine is not None:
            self._passes, self._sunk = at.call.machine.passes, at.call.machine.said
        self._sunk_from = len(self._sunk)

    def _count_sunk(self) -> None:
        """Take note of the pieces that took no step."""
        text = "".join(self._sunk[self._sunk_from :])
        self._sunk_from = len(self._sunk)
        self._told.offset += len(text)
        if self._at.begun is not None:
            self._at.begun.raw.append(text)

    @property
    def issues(self) -> Sequence[Issue]:
        """Return what was not as it should be so far."""
        return self._told.issues

    @property
    def lead(self) -> str:
        """Return the white space that the model writes first, and that is not of its text."""
        return self._at.lead

    @property
    def unread(self) -> list[tuple[Item, Loss]]:
        """Return what of the calls of a transcript is not kept as it stands."""
        return self._told.unread

    @property
    def ending(self) -> Ending:
        """Return how the text has ended, once it has."""
        return self._at.ending

    @property
    def ended(self) -> bool:
        """Return whether the turn is over, or a stop string was met: a backend may stop, all else is behind the end."""
        return self._at.met_stop or self._at.step is read_behind

    @property
    def client_stop(self) -> str | None:
        """Return the stop string of the client that has ended the turn."""
        return self._at.stop


__all__ = ["TurnParser"]
