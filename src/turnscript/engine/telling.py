"""Owns what a parser tells: parts as events, every character on one of them, issues, and where it is in its turn."""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from msgspec.structs import replace

from turnscript.core.conversation import Dropped, Issue, Item, Part, Text, Tool, ToolCall
from turnscript.core.events import Event, NextText, OneStream, PartDelta, PartEnd, PartStart
from turnscript.core.losses import Loss
from turnscript.engine.layout import Place
from turnscript.engine.machine import Machine
from turnscript.engine.scanner import HeadEnd, Look
from turnscript.engine.states import Action, State, States
from turnscript.engine.table import Group

Step = Callable[[str, int], int]
"""Takes text and where to go on; returns how far it was read. The same place and no other step: it waits for more."""


class Malformed(Exception):
    """Strictly: what stands `at` an offset is not as the format says."""

    def __init__(self, detail: str, at: int) -> None:
        super().__init__(detail)
        self.detail, self.at = detail, at


class Teller(OneStream, ABC):
    """The state of a parser. Text that was read waits in `_pending` until an event takes it as its `raw`."""

    # Python keeps thirty attributes at hand, and finds more of them in a dictionary. Every piece asks for several.
    __slots__ = (
        "_accounted",
        "_again",
        "_breaks",
        "_call_part",
        "_call_raw",
        "_calls",
        "_certain",
        "_closing",
        "_decoder",
        "_end_kind",
        "_events",
        "_finish",
        "_flattened",
        "_group",
        "_group_raw",
        "_head",
        "_head_end",
        "_held",
        "_index",
        "_issues",
        "_machine",
        "_may_stay_open",
        "_met_stop",
        "_offset",
        "_opened",
        "_part",
        "_payload_at",
        "_pending",
        "_place",
        "_quick",
        "_said",
        "_seeding",
        "_sink",
        "_skip",
        "_state",
        "_states",
        "_step",
        "_stop",
        "_strict",
        "_sunk",
        "_sunk_from",
        "_tail",
        "_tail_at",
        "_texts",
        "_tools",
        "_uncounted",
        "_waits",
        "_within",
        "ends_between",
        "faults",
        "lead",
        "missing",
        "stays_open",
        "stops",
        "unread",
    )

    def __init__(
        self, states: States, tools: Mapping[str, Tool] | None, strict: bool = False, may_stay_open: bool = False
    ) -> None:
        self.stays_open = False  # whether the text ended inside a thought
        self.ends_between = False  # whether it ended behind what is closed
        self.missing = ""  # the closing of what is not closed at the end
        self.stops: Sequence[str] = ()  # what a backend may have taken away at the end
        self.lead = states.turn.lead  # white space that the model writes first, and that is not of its text
        self.unread: list[tuple[Item, Loss]] = []  # strictly: what of a call is not kept as it stands
        self.faults: list[Malformed] | None = None  # strictly, where all are asked for: those so far
        self._may_stay_open = may_stay_open
        self._states = states
        self._tools = tools
        self._strict = strict
        self._flattened = states.layout.document.flattened
        self._events: list[Event] = []
        self._issues: list[Issue] = []
        self._pending: list[str] = []  # read, and on no event yet
        self._held = ""
        self._offset = 0  # of what is held in all that was given
        self._seeding = False  # whether what is read is the prompt's
        self._uncounted = 0  # how much of what is held was given by the prompt
        self._again = ""  # what was read of a call and is to be read once more, because it is none
        self._accounted = 0  # how much of what is read now has been read before
        self._decoder: codecs.IncrementalDecoder | None = None
        self._closing = False
        self._finish: str | None = None
        self._stop: str | None = None
        self._met_stop = False  # one of `stops` that closes calls, so that it ends no turn by itself
        self._index = -1
        self._part: Item | None = None  # the part that is going on
        self._texts: list[str] = []  # its content
        self._breaks: list[int] = []  # where in that its next texts begin, if it has several
        self._place: Place | None = None  # of the segment that is going on
        self._skip = False  # one newline belongs to the opening
        self._machine: Machine | None = None
        self._head: dict[str, Any] = {}
        self._head_end: HeadEnd | None = None  # of an opening that is not whole yet
        self._opened = 0  # where the call began
        self._call_part: Item = _NO_CALL
        self._said = False  # whether the call has its start event
        self._call_raw: list[str] = []
        self._payload_at = 0  # how many pieces of that are its opening
        self._within: State | None = None  # the text in which a call began
        self._group: Group | None = None
        self._group_raw: list[str] = []  # from the group's opening to its first call
        self._calls = 0
        self._tail: list[str] = []  # behind the end of the turn
        self._tail_at = 0
        self._end_kind = "after_end"
        self._state: State = states.gap("")
        self._step: Callable[[str, int], int] = self._gap
        self._quick: Look | None = None  # tells which pieces are text and nothing more
        # With what is held: whether all of a piece waits on, and how much of it is text; -1: more than that.
        self._waits: Callable[[str], object] | None = None
        self._certain: Callable[[str], int] | None = None
        self._sunk = self._texts  # where such pieces go, and from where on they are not counted yet
        self._sunk_from = 0
        self._sink: Callable[[str], None] = self._texts.append

    # What the steps share.

    @abstractmethod
    def _gap(self, text: str, position: int) -> int:
        """Read what stands between segments."""

    @abstractmethod
    def _text(self, text: str, position: int) -> int:
        """Read on inside a text."""

    @abstractmethod
    def _act(self, action: Action, literal: str, start: int) -> None:
        """Do what a literal says."""

    def _note_closing(self, literal: str) -> None:
        """Note the closing of calls: where a stop is in it, or all of it, the model should not go on."""
        if not self._met_stop:
            self._met_stop = any(core in literal for core in map(str.strip, self.stops) if core)

    def _take_events(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def _read(self, text: str) -> str:
        """Count what was read; returns what of it was generated."""
        if self._uncounted:
            cut = min(self._uncounted, len(text))
            self._uncounted -= cut
            text = text[cut:]
        new = text
        if self._accounted:
            new = text[self._accounted :]
            self._accounted -= len(text) - len(new)
        if new:
            self._pending.append(new)
        return text

    def _raw(self) -> str:
        raw = "".join(self._pending)
        self._pending = []
        return raw

    def _enter_gap(self, kind: str, group: Group | None = None) -> None:
        self._state = self._states.gap(kind, group)
        self._step = self._gap

    def _enter_text(self, place: Place) -> None:
        self._place = place
        self._state = self._states.text(place)
        self._step = self._text

    def _start(self, place: Place) -> None:
        """Begin a text or thought."""
        self._end_part()
        head, self._head = self._head, {}
        self._texts.clear()
        if place.segment.of:
            head["of"] = place.segment.of
        self._announce(place.segment.item(**head))

    def _announce(self, part: Item) -> None:
        self._index += 1
        self._part = part
        self._events.append(PartStart(self._index, replace(part), self._raw()))

    def _content(self, raw: str) -> None:
        if not raw:
            return
        # What the prompt has written is not of the answer.
        start = min(self._uncounted, len(raw)) if self._uncounted else 0
        if self._skip:
            self._skip = False
            start = max(start, int(raw.startswith("\n")))
        text = self._state.escape.remove(raw, start)
        if self._part is None and self._place is not None and text:
            self._start(self._place)
        self._read(raw)
        if text:
            self._texts.append(text)
            self._events.append(PartDelta(self._index, text, self._raw()))

    def _next_text(self) -> None:
        """Take the line between two texts, or before the first one. Its newline belongs to what follows."""
        self._skip = True
        if self._part is not None:
            self._breaks.append(len(self._texts))
            self._events.append(NextText(self._index, "", self._raw()))

    def _contents(self) -> list[Part]:
        """Return the texts of the part that goes on."""
        if not self._breaks:
            return [Text(text="".join(self._texts))]
        breaks, self._breaks = self._breaks, []
        cuts = pairwise([0, *breaks, len(self._texts)])
        return [Text(text="".join(self._texts[start:end])) for start, end in cuts]

    def _end_part(self) -> None:
        """End the part that goes on, if any. A text that only white space made begin is none."""
        part = self._part
        if part is None:
            return
        self._part, self._skip = None, False
        part.content = self._contents()  # type: ignore[attr-defined]
        self._events.append(PartEnd(self._index, part, self._raw()))

    def _the_machine(self) -> Machine:
        assert self._machine is not None
        return self._machine

    def _the_place(self) -> Place:
        assert self._place is not None
        return self._place

    def _the_head_end(self) -> HeadEnd:
        assert self._head_end is not None
        return self._head_end

    def _issue(self, kind: str, detail: str, at: int, end: int | None = None) -> None:
        """Something that is not as it should be, in what is being read. `end`: no item has what stands up to there."""
        place = max(0, self._offset + at)  # the prompt may have written its beginning
        dropped = end is not None and Dropped(kind, detail, place, max(0, self._offset + end))
        self._issues.append(dropped or Issue(kind, detail, place, place))

    def _call_issue(self, kind: str, detail: str, end: int, dropped: bool = False) -> None:
        """The same of a call, from its opening on. `dropped`: no item has some of that, or all."""
        issue = Dropped if dropped else Issue
        self._issues.append(issue(kind, detail, self._opened, max(self._opened, self._offset + end)))

    def _fail(self, detail: str, position: int) -> None:
        """Raise what a strict reader refuses, or keep it: then reading goes on as in what a model writes."""
        fault = Malformed(detail, self._offset + position)
        if self.faults is None:
            raise fault
        self.faults.append(fault)


_NO_CALL = ToolCall(name="")
