"""Owns reading what stands inside a turn, whole or in pieces: a model's answer as events, or a turn of a transcript.

Theory of operation. The parser is in one state at a time; a state (`states`) is a set of literals that mean something
there. A step looks for the first of them, passes on the text before it, and does what it says; the end of a piece that
may yet become a literal waits for the next piece. Most pieces of a stream need no step: a look tells that all of one is
content, or goes on waiting (`_look_ahead`). Payloads of calls are read by machines (`machine`), which know JSON
or parameters and not tags, so a closing tag inside a JSON string is text.

Nothing that a model writes raises: what is no call after all is put back as text, and an `Issue` says so. Every
character is in the `raw` of exactly one event. Strictly, for transcripts, the same steps are taken, and what would be
an issue is an error.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from turnscript.core.conversation import Assistant, Dropped, Issue, Thinking
from turnscript.core.errors import type_of
from turnscript.core.events import Event, MessageEnd, PartDelta
from turnscript.core.finish_reasons import is_cut, meaning
from turnscript.engine.callsteps import SPACE, LooseSteps
from turnscript.engine.layout import Place
from turnscript.engine.names import name_of_line
from turnscript.engine.scanner import WIDEST, HeadEnd
from turnscript.engine.states import Action, Do
from turnscript.engine.telling import Malformed


class TurnParser(LooseSteps):
    """Reads the inside of one turn, whole or in pieces."""

    __slots__ = ()

    def feed(self, text: str | bytes) -> list[Event]:
        """Take more text; returns what is certain now. Bytes are UTF-8 and may be cut anywhere.

        Raises ValueError once the parser is closed.
        """
        if type(text) is not str:
            text = self._decoded(text)
        held, passes = self._held, self._passes
        if held:
            text = held + text
        if passes is not None and text and (end := passes(text)) >= 0:
            if held or end != len(text):
                self._held, text = text[end:], text[:end]
                if not end:
                    return []
            self._sunk.append(text)
            return [PartDelta(self._index, text, text)]
        if self._closing:
            raise ValueError("this parser is closed; a prompt gives a new one for each answer")
        return self._run(text)

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
        if self._closing:
            return []
        rest = self._held if self._decoder is None else self._held + self._decoder.decode(b"", True)
        self._closing, self._finish = True, finish_reason
        half = self._states.half_closing(rest, self._group) if rest and not self._strict else ""
        rest = rest.removesuffix(half)
        events = self._run(rest) if rest else self._stand()
        self._finish_step()
        self._end_part()
        self._read(half)
        self._judge_tail()
        reason = "stop" if finish_reason is None or self._stop is not None else meaning(finish_reason)
        if self._calls and reason == "stop" and self._stop is None:
            reason = "tool_calls"
        raw = "".join(self._pending)
        self._pending = []
        self._met_stop = self.ended
        self._step = self._back_to = _no_step  # a step of its own holds it: it would stay until garbage is collected
        end = MessageEnd(reason, self._stop, None, self._issues, raw)
        return [*events, *self._take_events(), end]

    def seed(self, text: str) -> None:
        """Read what the prompt has written of the turn already. That makes no events."""
        if not text:
            return
        self._seeding = True
        told = self._run(text)
        self._seeding = False
        begun = "".join(event.text for event in told if isinstance(event, PartDelta) and event.index == self._index)
        self._pending, self._issues, self._call_raw, self._payload_at = [], [], [], 0
        self._group_raw = [""] * len(self._group_raw)  # it was opened, and not by the model
        self._texts.clear()
        self._breaks.clear()
        self._tail.clear()
        self._index, self._offset = -1, -len(self._held)
        self._uncounted, self._accounted = len(self._held), 0
        self._opened = 0  # where what is open may have begun earlier
        if self._part is not None:
            self._announce(self._part)
        elif self._said:
            self._announce_call()
            if begun := begun + self._the_machine().taken():  # arguments that the prompt has begun are the call's, too
                self._events.append(PartDelta(self._index, begun, ""))
        elif self._machine is not None:
            self._machine.deltas.clear()
        self._passes = None  # the start of what goes on is told first

    def _run(self, text: str) -> list[Event]:
        if len(self._sunk) != self._sunk_from:
            self._count_quick()
        position, length = 0, len(text)
        while position < length:
            step = self._step
            after = step(text, position)
            if self._again:
                text, after = self._back(text, after)
                length = len(text)
            elif after == position and self._step == step:
                break
            position = after
        self._held = text[position:]
        self._offset += position
        self._look_ahead()
        return self._take_events()

    def _stand(self) -> list[Event]:
        """Return what is left where no text is: there is no step to take, and nothing more to look ahead to."""
        if len(self._sunk) != self._sunk_from:
            self._count_quick()
        self._passes = None
        return self._take_events()

    def _back(self, text: str, after: int) -> tuple[str, int]:
        """Go back to what is to be read again: in the text, or before it, where earlier pieces had a part of it."""
        again, self._again = self._again, ""
        if len(again) <= after:
            return text, after - len(again)
        self._offset += after - len(again)
        return again + text[after:], 0

    def _look_ahead(self) -> None:
        """Choose what tells of the next pieces that they are content, of a text or of a call that is told."""
        self._passes, self._sunk_from = None, len(self._sunk)
        step = self._step
        if self._closing or self._uncounted or self._accounted or self._pending:
            return
        if step == self._text and self._part is not None and not self._skip:
            self._passes, self._sunk = self._state.scanner.certain, self._texts
        elif step == self._call and self._said:
            machine = self._the_machine()
            self._passes, self._sunk = machine.passes, machine.said
        self._sunk_from = len(self._sunk)

    def _count_quick(self) -> None:
        """Take note of the pieces that took no step."""
        text = "".join(self._sunk[self._sunk_from :])
        self._sunk_from = len(self._sunk)
        self._offset += len(text)
        if self._machine is not None:
            self._call_raw.append(text)

    def _gap(self, text: str, position: int) -> int:
        """Read what stands between segments: an opening, an end, or text."""
        state, length = self._state, len(text)
        scanner = state.plain if self._uncounted or self._seeding or self._is_spared(position) else state.scanner
        space = SPACE.match(text, position, position + WIDEST).end()  # type: ignore[union-attr]
        if space == length and not self._closing and space - position < WIDEST:
            return position
        found = scanner.near(text, position, space, self._closing)
        if found is not None:
            action = scanner.actions[found[0]]
            if action.do is Do.LOOSE:
                self._begin_run()
                return position
            if self._strict:
                self._between(text[position : found.end() - action.core], action)
            before = self._read(text[position : found.start()])
            if self._group_raw:
                self._group_raw.append(before)
            elif action.place is not None and action.place.segment.tentative:
                self._group_raw = [before[self._dropped(before) :]]  # of the text, if it is one
            end = found.end() - action.ahead
            self._act(action, text[found.start() : end], found.start())
            return end
        if not self._closing and scanner.hold(text, position) <= space:
            return position
        if space == length:
            if self._strict:
                self._between(text[position:], None)
            self._read(text[position:])
            return length
        return self._begin_text(text, position, space)

    def _begin_text(self, text: str, position: int, space: int) -> int:
        bare = self._states.bare
        if bare is None or self._group is not None:
            if self._strict:
                openings = dict.fromkeys(map(str.strip, self._state.scanner.actions))
                self._fail(f"text where {' or '.join(openings) or 'none'} is expected", space)
            if bare is None and self._group is None and self._state.kind in ("", Thinking.kind):
                return self._begin_unopened(text, position, space)
            if bare is None:
                self._issue("text_outside", "text behind the last block ends the answer", position)
                self._finish_turn()
                return position
            self._issue("text_in_group", "text between calls", position)
            self._group = None
        dropped = self._dropped(text[position:space])
        self._read(text[position : position + dropped])
        self._enter_text(bare)
        if self._strict:
            self._start(bare)
        return position + dropped

    def _begin_unopened(self, text: str, position: int, space: int) -> int:
        """Begin an answer without an opening, with which a model begins or goes on behind a thought."""
        place = self._states.layout.places[Assistant.kind]
        self._issue("missing_open", f"a text without {place.open}{place.head_end}", space)
        self._read(text[position:space])
        self._enter_text(place)
        return space

    def _dropped(self, space: str) -> int:
        """Return how much of the white space before a text is not of the text."""
        if self._flattened and (self._state.kind or self._strict):
            return len(space)
        kind, bare = self._state.kind, self._states.bare
        joint = self._states.joint(kind, bare.kind) if kind and bare is not None else self.lead
        if space.startswith(joint):
            return len(joint)
        return len(space) if joint.startswith(space) else 0

    def _text(self, text: str, position: int) -> int:
        """Read on inside a text: up to the next literal that means something, or what may become one."""
        scanner, spared = self._state.scanner, self._is_spared(position)
        if not spared and self._is_fresh() and (begun := self._begins_loose(text, position)) is not None:
            return begun
        if self._uncounted or self._seeding:
            behind = len(text) if self._seeding else position + self._uncounted
            scanner, found, held = self._by_parts(text, position, self._state.own, behind)
        elif self._is_quoted(position):
            quoted = self._states.without_calls(self._the_place())
            scanner, found, held = self._by_parts(text, position, quoted, self._quoted - self._offset)
        elif spared:
            scanner, found, held = self._by_parts(text, position, self._state.plain, self._spared - self._offset)
        else:
            found, held = scanner.find(text, position, self._closing), -1
        if found is not None:
            action = scanner.actions[found[0]]
            if action.do is Do.LOOSE:
                return self._begin_run_in_text(text, position, found)
            if action.do in (Do.OPEN, Do.GROUP) and self._may_be_quoted(found.start()):
                self._content(text[position : found.start()])
                self._step = self._quote
                return found.start()
            end = found.end() - action.ahead
            self._content(text[position : found.start()])
            self._act(action, text[found.start() : end], found.start())
            return end
        if self._closing:
            return self._last_text(text, position)
        end = scanner.hold(text, position) if held < 0 else held
        if end > position:
            self._content(text[position:end])
        return end

    def _last_text(self, text: str, position: int) -> int:
        """Read the end of all inside a text: white space may be of a closing, and the line of a next text is whole."""
        end, line = len(text), self._the_place().body.next_text
        if line in self._state.scanner.actions and text.endswith(line[:-1], position):
            self._content(text[position : end - len(line) + 1])
            self._read(line[:-1])
            self._next_text()
            return end
        if is_cut(self._finish):
            end = self._before_cut(text, position)
        elif not self._strict:
            end -= len(self._stripped(text[position:]))
        self._content(text[position:end])
        self._read(text[end:])
        return len(text)

    def _stripped(self, text: str) -> str:
        """Return the text without white space at the end that belongs to a closing which the backend has taken away."""
        for space in self._state.end_spaces:
            if text.endswith(space):
                return space
        return ""

    @property
    def issues(self) -> Sequence[Issue]:
        """Return what was not as it should be so far."""
        return self._issues

    @property
    def ended(self) -> bool:
        """Return whether the turn is over, or a stop string was met: a backend may stop, all else is behind the end."""
        return self._met_stop or self._step == self._over

    @property
    def client_stop(self) -> str | None:
        """Return the stop string of the client that has ended the turn."""
        return self._stop

    def _over(self, text: str, position: int) -> int:
        """Keep what stands behind the end of the turn."""
        if not self._tail:
            self._tail_at = max(0, self._offset + position)
        self._tail.append(self._read(text[position:]))
        return len(text)

    def _judge_tail(self) -> None:
        """Judge the text behind the end: it is an issue, unless it is only the mark of the end of all."""
        if not self._tail:
            return
        tail = "".join(self._tail)
        if tail.strip() and tail.strip() != self._states.layout.document.end:
            at = self._tail_at + len(tail) - len(tail.lstrip())
            # What is behind the client's own stop string is not wanted, so nothing is lost.
            issue = Issue if self._stop is not None else Dropped
            detail, opening = "text behind the end of the turn", self._states.turn.open.strip()
            if opening and self._index < 0 and "".join(self._pending).lstrip().startswith(opening):
                detail = f"{opening} is of the prompt, which opens the turn; an answer begins behind it"
            self._issues.append(issue(self._end_kind, detail, at, self._tail_at + len(tail)))

    def _act(self, action: Action, literal: str, start: int) -> None:
        do, place = action.do, action.place
        if do in (Do.OPEN, Do.GROUP) and place is not None:
            self._opened = max(0, self._offset + start)  # the prompt may have written the white space before
            self._open(do, place, literal, start)
            return
        if do is Do.AGAIN and place is not None:
            self._open_again(place, literal)
            return
        self._read(literal)
        if do is Do.CLOSE and place is not None:
            self._note_unseen(place, start + len(literal))
            self._end_part()
            self._enter_gap(place.kind, self._group)
        elif do is Do.NEXT:
            self._next_text()
        elif do is Do.NONE:
            self._enter_gap("")
        elif do is Do.ON:
            self._go_on(start)
        elif do is Do.LEAVE:
            self._leave_group(literal, start + len(literal))
        else:
            if do is Do.STOP:
                self._stop = literal
            elif do is Do.FOREIGN and not (self._step == self._gap and self._state.kind):
                self._end_kind = "foreign_turn"
            self._finish_turn()

    def _note_empty(self, end: int) -> None:
        """Report marks around calls without a call, which no item has."""
        if self._group_raw and self._group is not None:
            self._call_issue("empty_calls", "marks of calls, and no call in them", end, dropped=True)
        self._group_raw = []

    def _note_unseen(self, place: Place, end: int) -> None:
        """Report, strictly, an empty thought that no item has. At the start of a turn it says that there is none."""
        if not self._strict or self._part is not None or not place.unseen_if_empty:
            return
        if self._index >= 0 or "".join(self._pending).strip() != place.turn.no_thought.strip():
            self._call_issue("empty_thinking", "an empty thought, which no item has", end, dropped=True)

    def _leave_group(self, literal: str, end: int) -> None:
        """End a group of calls, which may have none."""
        self._note_empty(end)
        self._group = None
        self._note_closing(literal)
        self._enter_gap(self._state.kind)

    def _go_on(self, start: int) -> None:
        """Go on in another turn that the model opens; what is open ends there."""
        if self._step == self._text and self._place is not None and self._place.close:
            kind = "unclosed_thinking" if self._place.kind == "thinking" else "missing_close"
            self._issue(kind, f"the next turn begins without {self._place.close.strip()}", start)
        self._end_part()
        self._enter_gap("")

    def _open_again(self, place: Place, literal: str) -> None:
        """Read an opening once more that the prompt has written already; later on, it is text."""
        if self._texts:
            self._content(literal)
            return
        self._read(literal)
        self._skip = (place.head_end or place.open).endswith("\n")

    def _finish_turn(self) -> None:
        self._end_part()
        self._step = self._over

    def _open(self, do: Do, place: Place, literal: str, start: int) -> None:
        """Begin a segment or a group. A text goes on until it is certain that this is one."""
        generated = self._read(literal)
        self._within = self._state if self._step == self._text else None
        text = None if self._within is None else self._within.place
        if text is not None and text.kind == Assistant.kind and text.close and self._states.bare is None:
            self._issues.append(Issue("missing_close", "a call inside an answer", self._opened, self._opened))
        if place.segment.lists_names:
            self._group = place.segment.group
        elif do is Do.GROUP:
            if self._within is not None and self._within.kind == "thinking":
                self._issues.append(Issue("unclosed_thinking", "calls inside a thought", self._opened, self._opened))
            self._group, self._group_raw = place.segment.group, [generated]
            self._end_part()
            self._enter_gap(place.kind if self._state.kind == place.kind else "", self._group)
            return
        if place.segment.group is not None and place.open and self._group is None and not self._strict:
            self._call_issue("mended_call", f"a call without {place.group_open.strip()} before it", start)
        self._place = place
        self._call_raw, self._group_raw = [*self._group_raw, generated], []
        self._head = {"name": name_of_line(literal.strip().split("\n")[0])} if place.segment.named else {}
        if place.own_attributes or place.head_end:
            self._head_end = HeadEnd(place.head_end.strip())
            self._step = self._header
        else:
            self._begin_payload(place, {})

    def _finish_step(self) -> None:
        """Finish whatever goes on when the text is over."""
        step = self._step
        if step == self._text:  # as most end
            self._unclosed_text()
        elif self._held_run is not None:
            self._end_run()
        elif step == self._quote:
            self._end_quote(0, quoted=False)
            self._read_again()
        elif step == self._call and self._mend_end():
            pass
        elif step in (self._call, self._header, self._broken):
            if self._held:
                self._call_raw.append(self._read(self._held))
            self._end_cut_call(step == self._broken)
        elif step == self._after_call:
            self._miss_close(0, ended=True)
        elif step == self._gap:
            self.ends_between = self._group is None
            self.missing = "" if self._group is None else self._group.close.strip()
            self._note_empty(len(self._held))
            if self._strict and not self._held and not self._offset:
                self._between("", None)

    def _unclosed_text(self) -> None:
        place = self._place
        if place is None or place.segment.bare:
            return
        if self._strict and self._part is None:
            self._start(place)  # it has no text, but it is open, so it is not what stands for none
        self.stays_open, self.missing = bool(place.close), place.close.strip()
        if place.kind == "thinking" and not self._may_stay_open:
            if self._strict:
                self._fail(f"{place.close.strip()} is missing", len(self._held))
            self._issue("unclosed_thinking", "the text ends inside a thought", len(self._held))

    def _between(self, space: str, action: Action | None) -> None:
        """Read white space between two segments: strictly, it may be a text that is empty, or of white space."""
        bare, kind = self._states.bare, self._state.kind
        if bare is None or self._group is not None or (action and action.do is Do.LEAVE):
            return
        if action and action.place:  # the opening's own
            space = space.removesuffix(action.place.indent)
        before = self._states.known_joint(kind, bare.kind) if kind else ""
        after = self._states.known_joint(bare.kind, action.place.kind) if action and action.place else ""
        if self._flattened:
            before, after = "", None if kind or action else ""
        if before is None or after is None or (kind and kind == bare.kind):
            return
        text = "" if self._flattened else space[len(before) : len(space) - len(after)]
        whole = self._flattened or (len(space) >= len(before) + len(after) and space == before + text + after)
        # What joins the two without a text between them is no text, and at the ends of a turn that is nothing.
        direct = self._states.known_joint(kind, action.place.kind) if kind and action and action.place else ""
        if whole and (not (kind or action) or not space == direct == f"{before}{after}"):
            self._place = bare
            self._start(bare)
            self._texts.append(text)
            self._end_part()


def _no_step(text: str, position: int) -> int:
    """Read nothing behind the end of all."""
    return position


__all__ = ["Malformed", "TurnParser"]
