"""Owns the steps that read calls in no tag of their format: held until it is certain that they are some, or text.

They count only if nothing but white space and further calls follows them up to the end of the turn: what an answer goes
on behind is an example, and stays text. So nothing of them is told before that, and what is text after all is read once
more as text, without looking for such calls in it again: each character is read twice at most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import maxsize

from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Issue, Thinking, Tool, ToolCall
from turnscript.core.events import PartDelta, PartEnd, PartStart
from turnscript.core.finish_reasons import is_cut
from turnscript.engine.callsteps import SPACE, CallSteps
from turnscript.engine.loose import LooseCall, LooseRun, calls_of
from turnscript.engine.scanner import WIDEST, Scanner
from turnscript.engine.states import Action, Do, States
from turnscript.engine.telling import Step

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
