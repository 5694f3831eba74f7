"""Owns the steps that read a call: opening, payload, closing; and what to do with a text that is none after all.

Calls in no tag of their format are held until it is certain that they are some, or text. They count only if nothing but
white space and further calls follows them up to the end of the turn: what an answer goes on behind is an example, and
stays text. So nothing of them is told before that, and what is text after all is read once more as text, without
looking for such calls in it again: each character is read twice at most.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from sys import maxsize
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Issue, Thinking, Tool, ToolCall
from turnscript.core.errors import InvalidTranscript
from turnscript.core.events import Event, PartDelta, PartEnd, PartStart
from turnscript.core.finish_reasons import is_cut
from turnscript.core.json_text import is_object
from turnscript.engine.attributes import read_attributes, scan_attributes
from turnscript.engine.layout import Place
from turnscript.engine.loose import LooseCall, LooseRun, calls_of
from turnscript.engine.machine import Machine, Reading
from turnscript.engine.scanner import WIDEST, Scanner
from turnscript.engine.states import Action, Do, States
from turnscript.engine.telling import Step, Teller

SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_HEAD = 8192
_DECODER = json.JSONDecoder(parse_int=str)  # it only finds what is broken
_BLANKS = " \t\r\n"
_LEAST_OF_TAG = 2  # how much of a tag is hardly anything else


class CallSteps(Teller):
    """Reads calls. A text before one goes on until it is certain that this is a call."""

    __slots__ = ()

    def _header(self, text: str, position: int) -> int:
        """Read the attributes of an opening, up to its end on the same line."""
        place = self._the_place()
        core = place.head_end.strip()
        end = self._the_head_end().find(text, position)
        if end < 0 or (end == len(text) and end - position > _LONGEST_HEAD):
            self._reject("malformed_head", f"{place.open.strip()} without {core}", position)
            return position
        if end == len(text):
            return position
        closed = not self._strict and text.endswith("/", position, end)  # `<invoke name="now"/>` has no arguments
        try:
            found = scan_attributes(text, position, end - closed, 1, 1)
            form = found.pop("format", None) if place.body.formats else None
            fields, hints = read_attributes(found, place.own_attributes, 1)
        except InvalidTranscript as error:
            self._reject("malformed_head", str(error.message), position)
            return position
        if place.segment.required and place.segment.required not in fields:
            self._reject("invalid_call", f"{place.open.strip()} without {place.segment.required}", position)
            return position
        self._head = fields | ({"hints": hints} if hints else {})
        self._call_raw.append(self._read(text[position : end + len(core)]))
        self._begin_payload(place, place.body.attributes_read(form))
        if closed and self._machine is not None:
            self._machine.done = True
            self._finish_call(end + len(core))
        return end + len(core)

    def _call(self, text: str, position: int) -> int:
        """Read the payload of a call, as far as it goes."""
        machine, place = self._machine, self._place
        assert machine is not None
        assert place is not None
        after = machine.feed(text, position)
        self._call_raw.append(self._read(text[position:after]))
        if not self._said and machine.name is not None:
            if place.segment.tentative and not self._is_certain(machine.name):
                self._reject("", "", after)
                return after
            if machine.streams or machine.done:
                self._say_call()
        if self._said and machine.deltas:
            self._events.append(PartDelta(self._index, machine.taken(), self._raw()))
        if machine.left:
            self._go_back(machine)
        elif machine.failed:
            if not any(self._call_raw):  # its first character is text, or it would be looked at again for ever
                self._call_raw.append(self._read(text[after : after + 1]))
                after += 1
            self._take_back()
            self._reject("invalid_call", "the call is not as the format writes one", after)
        elif machine.done:
            if place.close:
                self._step = self._after_call
            else:
                self._finish_call(after)
        return after

    def _go_back(self, machine: Machine) -> None:
        """What a machine has read of what is behind its payload is read again."""
        left, machine.left = machine.left, ""
        raw = "".join(self._call_raw[self._payload_at :])
        self._call_raw[self._payload_at :] = [raw.removesuffix(left)]
        self._again = left
        self._accounted += len(left)

    def _mend_end(self) -> bool:
        """End a call whose closings are missing where the text is over. What the limit has cut is none."""
        machine, held = self._machine, self._held
        if machine is None or self._strict or is_cut(self._finish):
            return False
        # A stop string of the client's may have cut it, and been taken away.
        if not machine.end(held, self._finish == "stop" and not self._states.stoppable):
            return False
        self._call_raw.append(self._read(held))
        self._held = ""
        self._offset += len(held)
        if machine.left:
            self._go_back(machine)
            self._read_again()
        else:
            self._finish_call(0)
        return True

    def _read_again(self) -> None:
        """Read what is to be read again, where the text is over."""
        again, self._again = self._again, ""
        self._offset -= len(again)
        self._events = self._run(again)
        self._finish_step()

    @abstractmethod
    def _run(self, text: str) -> list[Event]:
        """Read a text as far as it goes."""

    @abstractmethod
    def _finish_step(self) -> None:
        """End whatever goes on when the text is over."""

    def _after_call(self, text: str, position: int) -> int:
        """Read what stands behind a payload: its closing, or anything else, and then the closing is missing."""
        place, length = self._the_place(), len(text)
        scanner = self._states.closing(place).scanner
        space = SPACE.match(text, position, position + WIDEST).end()  # type: ignore[union-attr]
        if space == length and not self._closing and space - position < WIDEST:
            return position
        found = scanner.near(text, position, space, self._closing)
        if found is not None and scanner.actions[found[0]].do is Do.CLOSE:
            self._call_raw.append(self._read(text[position : found.end()]))
            self._note_closing(place.close)
            self._finish_call(found.end())
            return found.end()
        if found is None and not self._closing and scanner.hold(text, position) <= space:
            return position
        if space == length or (self._closing and is_cut(self._finish) and scanner.hold(text, position) <= space):
            return self._end_without_close(text, position)
        self._miss_close(position, text=found is None)
        return position

    def _end_without_close(self, text: str, position: int) -> int:
        self._miss_close(position, ended=True)
        self._read(text[position:])
        return len(text)

    def _miss_close(self, position: int, ended: bool = False, text: bool = False) -> None:
        """Report a call without its closing; it is no fault where that is a stop, which a backend takes away.

        `text`: there is some where the closing must stand.
        """
        place = self._the_place()
        if self._strict:
            self._fail(f"{place.close.strip()} is missing", position)
        if not (ended and place.close in self.stops):
            close = place.close.strip()
            detail = f"text behind a call, where {close} must stand" if text else f"a call without {close}"
            self._call_issue("missing_close", detail, position)
        self._finish_call(position)

    def _broken(self, text: str, position: int) -> int:
        """Read the rest of what is no call: up to its closing, or whatever ends the turn."""
        scanner = self._states.closing(self._the_place()).scanner
        found = scanner.find(text, position, self._closing)
        if found is not None:
            action = scanner.actions[found[0]]
            self._call_raw.append(self._read(text[position : found.start()]))
            closing = self._read(found[0]) if action.do is Do.CLOSE else ""
            if not self._mends():
                self._call_raw.append(closing)
                self._put_back()
            if action.do is not Do.CLOSE:
                self._act(action, found[0], found.start())
            return found.end()
        end = len(text) if self._closing else scanner.hold(text, position)
        self._call_raw.append(self._read(text[position:end]))
        return end

    def _before_cut(self, text: str, position: int) -> int:
        """Return where a text ends that the limit has cut: before the beginning of a tag, which is no content."""
        held = self._state.plain.hold(text, position)
        begun = text[held:].strip()
        if len(begun) < _LEAST_OF_TAG or begun[0].isalnum():
            return len(text)
        self._issue("cut_tag", f"the limit has cut a tag: {begun}", held, len(text))
        return held

    def _end_cut_call(self, broken: bool) -> None:
        if self._strict:
            self._fail("a call is not complete", self._broken_at(len(self._held)))
        if not broken:
            if self._said:
                self._events.append(PartEnd(self._index, None, self._raw()))
            # If the limit has cut it, only the raw answer has the beginning.
            dropped = is_cut(self._finish) and (self._said or not self._the_place().segment.tentative)
            self._call_issue("unclosed_call", "the text ends inside a call", len(self._held), dropped)
            if dropped:
                return
        if not (broken and self._mends()):
            self._put_back()

    def _begin_payload(self, place: Place, read: dict[str, Any]) -> None:
        read = read if self._strict else {}  # a model is to write JSON, whatever its tag says
        lead = place.head_end[len(place.head_end.rstrip()) :] if self._strict else None
        tags = self._states.tags(place)
        ends = tags.ends
        within = self._within.place if self._within is not None and not self._strict else None
        if within is not None and within.kind == "thinking":
            ends = (*ends, within.close.strip())  # a thought may speak of a call, and its end is in none
        reading = Reading(
            place.escape,
            {**self._head, **read},
            self._tools or {},
            ends,
            tags.closes,
            tags.space,
            tags.opening,
            lead,
            place.segment.tentative,
        )
        machine = place.body.machine(reading)
        if machine is None:
            self._end_part()
            self._enter_text(place)
            self._skip = (place.head_end or place.open).endswith("\n")
            if not place.unseen_if_empty if self._strict else place.kind != Assistant.kind:
                self._start(place)
            return
        if read.get("custom"):
            self._head["custom"] = True
        self._machine, self._said = machine, False
        self._payload_at = len(self._call_raw)
        self._step = self._call

    def _say_call(self) -> None:
        """Tell that the call is one: its start, and the arguments so far."""
        machine = self._the_machine()
        self._end_text_before()
        if self._the_place().segment.group is not None:  # whose opening may be no more than that of an array
            self._group = self._the_place().segment.group
        call = ToolCall(**{**self._head, "name": machine.name or "", "arguments": ""})
        if machine.id is not None:
            call.id = machine.id
        self._said, self._call_part = True, call
        self._announce_call()

    def _end_text_before(self) -> None:
        """The part in which a call began is over, because it is one."""
        if self._part is None:
            return
        within, pending = self._within, self._pending
        self._pending = []
        if within is not None and within.kind == "thinking":
            self._issues.append(Issue("unclosed_thinking", "a call inside a thought", self._opened, self._opened))
        self._end_part()
        self._pending = pending

    def _announce_call(self) -> None:
        self._index += 1
        self._part = None
        self._events.append(PartStart(self._index, self._call_part, self._raw()))

    def _finish_call(self, position: int) -> None:
        machine, place = self._the_machine(), self._the_place()
        fields = machine.fields()
        if self._strict and machine.is_json and not is_object(self._payload_of(place)):
            fields = None  # what a model writes is understood as far as it goes
        if fields is None or (place.segment.tentative and not self._is_certain(str(machine.name))):
            self._step = self._call
            self._reject("invalid_call", "the call's JSON is broken, or has no name", position, complete=True)
            return
        if not self._said:
            self._say_call()
        if machine.deltas:
            self._events.append(PartDelta(self._index, machine.taken(), self._raw()))
        call = ToolCall(**(self._head | fields))
        if self._strict:
            self.unread += [(call, loss) for loss in machine.unread]
        else:
            if place.segment.tentative and place.close and not place.open:
                self._call_issue("mended_call", "a call without its opening", position)
            for kind, detail in machine.issues:
                self._call_issue(kind, detail, position)
            for detail in machine.dropped:
                self._call_issue("odd_call", detail, position, dropped=True)
            if self._tools and call.name not in self._tools:
                self._call_issue("unknown_tool", f"no tool is called {call.name!r}", position)
        self._events.append(PartEnd(self._index, call, self._raw()))
        self._calls += 1
        self._said = False
        self._machine, self._part, self._call_raw, self._head = None, None, [], {}
        self._enter_gap(place.kind, self._group)

    def _payload_of(self, place: Place) -> str:
        """Return the payload of a call, as JSON may hold it. Its closing has been read."""
        payload = "".join(self._call_raw[self._payload_at :]).rstrip()
        return place.escape.remove(payload.removesuffix(place.close.strip()))

    def _reject(self, kind: str, detail: str, position: int, complete: bool = False) -> None:
        """Keep the text of what began as a call and is none."""
        tentative = self._the_place().segment.tentative
        if self._strict and not tentative:
            self._fail(detail, self._broken_at(position) if complete else position)
        if kind and not tentative:
            self._call_issue(kind, detail, position)
        if self._said or self._machine is None:
            self._payload_at = maxsize  # nothing that was told, or has no payload, can be mended
        if self._said:
            self._events.append(PartEnd(self._index, None, self._raw()))
            self._said = False
        in_thought = self._within is not None and self._within.kind == "thinking"
        if complete or tentative or in_thought:
            self._put_back(goes_on=not complete)
        else:
            self._machine = None
            self._step = self._broken

    def _broken_at(self, end: int) -> int:
        """Return where the JSON of a call is broken, which has been read up to `end`; where it begins, if that is no
        JSON, or is escaped."""
        raw = "".join(self._call_raw)
        if "{" in raw and self._the_place().escape.remove(raw) == raw:
            try:
                _DECODER.raw_decode(raw, raw.index("{"))
            except json.JSONDecodeError as error:
                return end - len(raw) + error.pos
            except RecursionError:
                pass
        return self._opened - self._offset

    @abstractmethod
    def _mends(self) -> bool:
        """Tell the calls that a broken one says in another notation, and return whether it does."""

    def _take_back(self) -> None:
        """Read again what no call has at its end: it may end the turn, such as a label on its own line.

        Strings are not, because a tag inside a string is text.
        """
        if self._strict:
            return
        raw = "".join(self._call_raw[self._payload_at :])
        line = raw.rfind("\n")
        end = len(raw) if line < 0 or '"' in raw[line:] else line
        core = raw[:end].rstrip(_BLANKS)
        self._call_raw[self._payload_at :] = [core]
        self._again = raw[len(core) :]
        self._accounted = len(self._again)

    def _put_back(self, goes_on: bool = False) -> None:
        """Make the text of what is no call text of the part in which it began, or of a new one.

        `goes_on`: it is the beginning of a text, whose rest is to be read.
        """
        place = self._place
        raw, self._call_raw, self._machine, self._head = "".join(self._call_raw), [], None, {}
        if place is not None and place.segment.lists_names:
            self._group = None  # what is no call is in no list of them
        state = self._within or (self._states.text(self._states.bare) if self._states.bare else None)
        if state is None:  # text has a block of its own in this format
            state = self._states.text(self._states.layout.places[Assistant.kind])
        self._state, self._place = state, state.place
        if raw or self._part is not None:  # else all of it was the prompt's
            if self._part is None and state.place is not None:
                self._start_without_raw(state.place)
            text = state.escape.remove(raw)
            if self._skip:
                self._skip, text = False, text.removeprefix("\n")
            self._texts.append(text)
            self._events.append(PartDelta(self._index, text, self._raw_before_again()))
        if goes_on and self._states.bare is None and self._within is None:
            self._issues.append(Issue("missing_open", "a text that begins like a call", self._opened, self._opened))
            self._step = self._text
        elif self._states.layout.document.gives_up and state.place is not None and not self._strict:
            self._state, self._step = self._states.rest(state.place), self._text
        elif self._states.bare is None and self._within is None:
            self._end_part()
            self._enter_gap(Assistant.kind)
        elif self._group is not None and place is not None:
            self._end_part()
            self._enter_gap(place.kind, self._group)
        else:
            self._step = self._text

    def _raw_before_again(self) -> str:
        """Return what no event has taken yet, without what is read again: that is of the event which it will make."""
        raw = self._raw()
        kept = min(len(raw), len(self._again))
        self._accounted -= kept
        return raw[: len(raw) - kept]

    def _start_without_raw(self, place: Place) -> None:
        pending, self._pending = self._pending, []
        self._start(place)
        self._pending = pending

    def _is_certain(self, name: str) -> bool:
        """Return whether what may be text is a call of an offered tool. In a transcript, its opening told already."""
        return self._strict or (self._tools is not None and name in self._tools)


_WIDEST_ESCAPE = 600
_ENDS = (Do.END, Do.FOREIGN, Do.STOP, Do.ON, Do.CLOSE, Do.OPEN, Do.GROUP)


class LooseSteps(CallSteps):
    """Reads calls that stand in no tag of the format."""

    __slots__ = ("_back_to", "_held_run", "_quoted", "_run_raw", "_spared", "_unquoted")

    def __init__(
        self, states: States, tools: Mapping[str, Tool] | None, strict: bool = False, may_stay_open: bool = False
    ) -> None:
        super().__init__(states, tools, strict, may_stay_open)
        self._held_run: LooseRun | None = None
        self._run_raw: list[str] = []
        self._back_to: Step = self._gap  # the step that reads it, if it is text
        self._quoted = self._unquoted = -maxsize  # up to where calls inside a thought are its text, or count
        self._spared = -maxsize  # up to where, in all that was given, no such calls are looked for

    def _begin_run(self, *, strays: bool = True) -> None:
        self._back_to = self._step
        self._held_run, self._run_raw = LooseRun(self._tools or {}, strays=strays), []
        self._step = self._loose

    def _begin_run_in_text(self, text: str, position: int, found: re.Match[str]) -> int:
        start, end = found.span()
        if self._state.scanner.before_escape(text, max(position, start - _WIDEST_ESCAPE), start) != start:
            self._spared = self._offset + end
            return self._text(text, position)
        self._content(text[position:start])
        self._begin_run(strays=not self._states.fenced)
        return start

    def _by_parts(
        self, text: str, position: int, own: Scanner[Action], behind: int
    ) -> tuple[Scanner[Action], re.Match[str] | None, int]:
        """Return the first certain literal, and what waits if there is none: up to `behind`, fewer literals count.

        What the prompt has written of a text has no stops of the client's, and what is known to be text no loose calls.
        """
        every, behind = self._state.scanner, min(behind, len(text))
        held = min(own.hold(text, position), every.hold(text, behind))
        scanner, found = own, own.near(text, position, behind - 1, self._closing)
        if found is None:  # what begins behind is found by the other, too
            scanner, found = every, every.find(text, behind, self._closing)
        if found is None or not (self._closing or found.start() < held):
            return own, None, held
        return scanner, found, held

    def _is_spared(self, position: int) -> bool:
        """Return whether what stands here is known to be text."""
        return self._offset + position < self._spared

    def _loose(self, text: str, position: int) -> int:
        """Return what may be calls, as far as it goes."""
        run = self._the_run()
        after = run.feed(text, position, self._closing and not self._is_cut)
        self._run_raw.append(text[position:after])
        if run.failed:
            self._refuse_run(after)
        elif run.over:
            self._judge_run(text, after)
        return after

    def _judge_run(self, text: str, position: int) -> None:
        """Judge a run by what follows: what ends the turn, or a call in the format's tags; else it is all text."""
        scanner = self._state.plain
        found = scanner.near(text, position, position, self._closing)
        if found is not None and scanner.actions[found[0]].do in _ENDS:
            self._tell_run(position)
            return
        if found is None and not self._closing and scanner.hold(text, position) == position:
            return  # it may yet become one
        self._refuse_run(position)

    def _refuse_run(self, position: int) -> None:
        run = self._the_run()
        if run.unknown:
            self._issue("unknown_tool", f"no tool is called {run.unknown!r}, so its call is text", position)
        self._again, self._run_raw = "".join(self._run_raw), []
        lines = len(self._again) - len(self._again.rstrip("\r\n")) if self._again.strip() else 0
        taken = len(self._again) - lines or 1  # a run may begin behind the lines, but never where one was refused
        self._spared = self._offset + position - len(self._again) + taken
        self._held_run, self._step = None, self._back_to

    def _tell_run(self, position: int) -> None:
        """Tell the calls of a run that is one."""
        run, raw = self._the_run(), "".join(self._run_raw)
        self._held_run, self._run_raw = None, []
        if self._back_to == self._text:
            self._end_part()
        begin = self._offset + position - len(raw)
        start = 0
        for found in run.found:
            self._read(raw[start : found.end])
            start = found.end
            for call in found.calls:
                self._tell(call)
            detail = "a call that is not in the tags of its format"
            self._issues.append(Issue("mended_call", detail, max(0, begin), max(0, begin + found.end)))
        self._read(raw[start:])
        self._place = None
        self._enter_gap(ToolCall.kind)

    def _tell(self, said: LooseCall) -> None:
        self._index += 1
        call = ToolCall(name=said.name, arguments="")
        if said.id is not None:
            call.id = said.id
        self._events.append(PartStart(self._index, call, self._raw()))
        arguments = self._states.layout.escape.remove(said.arguments)
        self._events.append(PartDelta(self._index, arguments, ""))
        whole = ToolCall(name=said.name, arguments=arguments)
        if said.id is not None:
            whole.id = said.id
        self._events.append(PartEnd(self._index, whole, ""))
        self._calls += 1

    def _mends(self) -> bool:
        place, tools = self._the_place(), self._tools or {}
        calls = calls_of("".join(self._call_raw[self._payload_at :]).strip()) or []
        if not calls or any(call.name not in tools for call in calls):
            return False
        self._end_text_before()
        rejected = self._issues.pop()
        detail = "a call in the tags of its format, and in another notation"
        self._issues.append(replace(rejected, kind="mended_call", detail=detail))
        for call in calls:
            self._tell(call)
        self._call_raw, self._head = [], {}
        self._enter_gap(place.kind, self._group)
        return True

    # Calls inside a thought: if its closing follows, they are quoted there.

    def _may_be_quoted(self, position: int) -> bool:
        """Return whether a call that begins there is inside a thought, which may have its closing behind it."""
        if self._state.kind != Thinking.kind or self._seeding or self._offset + position < self._unquoted:
            return False
        return self._states.quoting(self._the_place()) is not None

    def _is_quoted(self, position: int) -> bool:
        """Return whether calls that stand there are known to be quoted."""
        return self._offset + position < self._quoted

    def _quote(self, text: str, position: int) -> int:
        """Look for what closes the thought in which a call begins. Nothing is told before that."""
        scanner = self._states.quoting(self._the_place())
        assert scanner is not None
        found = scanner.find(text, position, self._closing)
        if found is not None:
            end = found.start()
        else:
            end = len(text) if self._closing else scanner.hold(text, position)
        self._run_raw.append(text[position:end])
        if found is not None:
            self._end_quote(end, quoted=scanner.actions[found[0]].do is Do.CLOSE)
        return end

    def _end_quote(self, position: int, *, quoted: bool) -> None:
        """Read again what was held: as the thought's text, or as calls that end it."""
        self._again, self._run_raw = "".join(self._run_raw), []
        if quoted and self._again:
            self._quoted = self._offset + position
        else:
            self._unquoted = self._offset + position + 1  # what ends the thought may begin as the call does
        self._step = self._text

    def _end_run(self) -> None:
        """End a run inside which the text is over: its calls are told, or read as text."""
        run = self._the_run()
        if self._held:
            self._offset += run.feed(self._held, 0, not self._is_cut)
            self._run_raw.append(self._held)
            self._held = ""
        if run.ends(self._is_cut):
            behind = run.found[-1].end - sum(map(len, self._run_raw))
            self._tell_run(0)
            if run.unfinished:
                self._issue("unclosed_call", "the text ends inside a call", behind, 0)
            return
        self._refuse_run(0)
        self._read_again()

    @property
    def _is_cut(self) -> bool:
        """Whether the limit of tokens has ended the text."""
        return is_cut(self._finish)

    def _the_run(self) -> LooseRun:
        assert self._held_run is not None
        return self._held_run

    def _is_fresh(self) -> bool:
        """Return whether a text has been opened, by the prompt or by the model, and says nothing yet."""
        place = self._place
        return (
            not self._texts
            and self._states.loose
            and not self._seeding
            and place is not None
            and place.kind == Assistant.kind
        )

    def _begins_loose(self, text: str, position: int) -> int | None:
        """Begin a run where a text begins like one. None: it does not; the same place and step: that is not certain."""
        scanner, length = self._states.loose_start, len(text)
        space = SPACE.match(text, position, position + WIDEST).end()  # type: ignore[union-attr]
        if space == length and not self._closing and space - position < WIDEST:
            return position
        found = scanner.near(text, position, space, self._closing)
        if found is not None and found.start() == space and self._uncounted <= space - position:
            counted = position + self._uncounted
            self._content(text[position:counted])
            self._begin_run()
            return counted
        return position if not self._closing and scanner.hold(text, position) <= space < length else None


__all__ = ["LooseSteps"]
