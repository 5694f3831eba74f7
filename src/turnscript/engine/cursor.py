"""Owns where a parser stands in its turn: in which state, what has begun there, and what it has told so far.

Steps move it: those of texts (`parse`) and those of calls (`callsteps`). Each is a function of the cursor, a text and
where to go on in it, and returns how far it has read. The same place and no other step: it waits for more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from sys import maxsize
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import Dropped, Issue, Item, Part, Text, Tool, ToolCall
from turnscript.core.events import Event, NextText, PartDelta, PartEnd, PartStart
from turnscript.core.losses import Loss
from turnscript.engine.layout import Place
from turnscript.engine.loose import LooseRun
from turnscript.engine.machine import Machine
from turnscript.engine.scanner import HeadEnd
from turnscript.engine.states import Action, State, States
from turnscript.engine.table import Group


class Malformed(Exception):
    """Strictly: what stands `at` an offset is not as the format says."""

    def __init__(self, detail: str, at: int) -> None:
        super().__init__(detail)
        self.detail, self.at = detail, at


class Telling:
    """The events that nobody has taken yet, and the part that goes on. Text that was read waits in `pending` until an
    event takes it as its `raw`.

    `offset`: where in all that was given stands what is read now. `uncounted`: how much of that the prompt has written;
    `accounted`: how much was read before. `opened`: where the last opening stands. `texts`: the content of the part,
    and `breaks` where in that its next texts begin, if it has several. `skip`: one newline belongs to its opening.
    `unread`: strictly, what of a call is not kept as it stands; `faults`: all that is wrong, if it is asked for.
    """

    __slots__ = (
        "accounted",
        "breaks",
        "calls",
        "events",
        "faults",
        "index",
        "issues",
        "offset",
        "opened",
        "part",
        "pending",
        "skip",
        "texts",
        "uncounted",
        "unread",
    )

    def __init__(self, faults: list[Malformed] | None = None) -> None:
        self.events: list[Event] = []
        self.issues: list[Issue] = []
        self.unread: list[tuple[Item, Loss]] = []
        self.faults = faults
        self.index = -1
        self.calls = 0
        self.part: Item | None = None
        self.texts: list[str] = []
        self.breaks: list[int] = []
        self.skip = False
        self.pending: list[str] = []
        self.offset = self.opened = 0
        self.uncounted = self.accounted = 0

    def taken(self) -> list[Event]:
        """Return the events since the last time."""
        events, self.events = self.events, []
        return events

    def read(self, text: str) -> str:
        """Count what was read; returns what of it was generated."""
        if self.uncounted:
            cut = min(self.uncounted, len(text))
            self.uncounted -= cut
            text = text[cut:]
        new = text
        if self.accounted:
            new = text[self.accounted :]
            self.accounted -= len(text) - len(new)
        if new:
            self.pending.append(new)
        return text

    def raw(self) -> str:
        """Return what was read and is on no event yet."""
        raw = "".join(self.pending)
        self.pending = []
        return raw

    # Texts and thoughts.

    def start(self, part: Item, *, raw: bool = True) -> None:
        """Begin a text or thought. `raw`: what was read before is of its start."""
        self.end()
        self.texts.clear()
        self.announce(part, raw=raw)

    def announce(self, part: Item, *, raw: bool = True) -> None:
        """Say that a part goes on from here."""
        self.index += 1
        self.part = part
        self.events.append(PartStart(self.index, replace(part), self.raw() if raw else ""))

    def say(self, text: str, raw: str | None = None) -> None:
        """Tell more of the text or thought."""
        self.texts.append(text)
        self.delta(text, raw)

    def next_text(self) -> None:
        """Take the line between two texts, or before the first one. Its newline belongs to what follows."""
        self.skip = True
        if self.part is not None:
            self.breaks.append(len(self.texts))
            self.events.append(NextText(self.index, "", self.raw()))

    def end(self, *, raw: bool = True) -> None:
        """End the text or thought that goes on, if any. `raw`: what was read before is of its end."""
        part = self.part
        if part is None:
            return
        self.part, self.skip = None, False
        part.content = self._contents()  # type: ignore[attr-defined]
        self.events.append(PartEnd(self.index, part, self.raw() if raw else ""))

    def _contents(self) -> list[Part]:
        if not self.breaks:
            return [Text(text="".join(self.texts))]
        breaks, self.breaks = self.breaks, []
        cuts = pairwise([0, *breaks, len(self.texts)])
        return [Text(text="".join(self.texts[start:end])) for start, end in cuts]

    # Calls.

    def begin_call(self, call: ToolCall) -> None:
        """Say that a call goes on from here."""
        self.index += 1
        self.part = None
        self.events.append(PartStart(self.index, call, self.raw()))

    def delta(self, text: str, raw: str | None = None) -> None:
        """Tell more of the part that goes on. `raw`: where that is not all that was read."""
        self.events.append(PartDelta(self.index, text, self.raw() if raw is None else raw))

    def end_call(self, call: ToolCall | None) -> None:
        """End the call that goes on; None where it turned out to be none."""
        self.part = None
        self.calls += call is not None
        self.events.append(PartEnd(self.index, call, self.raw()))

    # What is not as it should be.

    def issue(self, kind: str, detail: str, at: int, end: int | None = None) -> None:
        """Report something in what is being read, at a place in it. `end`: no item has what stands up to there."""
        place = max(0, self.offset + at)  # the prompt may have written its beginning
        dropped = end is not None and Dropped(kind, detail, place, max(0, self.offset + end))
        self.issues.append(dropped or Issue(kind, detail, place, place))

    def issue_since_opening(self, kind: str, detail: str, end: int | None = None, *, dropped: bool = False) -> None:
        """Report something of what stands from the last opening on. `dropped`: no item has some of that, or all."""
        issue = Dropped if dropped else Issue
        behind = self.opened if end is None else max(self.opened, self.offset + end)
        self.issues.append(issue(kind, detail, self.opened, behind))

    def fail(self, detail: str, at: int) -> None:
        """Raise what a strict reader refuses, or keep it: then reading goes on as in what a model writes."""
        fault = Malformed(detail, self.offset + at)
        if self.faults is None:
            raise fault
        self.faults.append(fault)


Step = Callable[["Cursor", str, int], int]


class TextSteps(NamedTuple):
    """The steps that read texts and what stands between segments, for those that come back to them. `act`: do what a
    literal says that stands at a place."""

    gap: Step
    text: Step
    act: Callable[[Cursor, Action, str, int], None]


class Begun:
    """Holds what an opening has begun: mostly a call, which may turn out to be none.

    `raw`: what was read of it, its opening and that of its group included, and `payload` how many pieces of that are
    its opening; more than there are where nothing of it can be mended. `head`: the fields that its opening says, and
    `head_end` finds where that ends. `within`: the text in which it has begun. `call`: as it was announced, if it was.
    """

    __slots__ = ("call", "head", "head_end", "machine", "payload", "place", "raw", "within")

    def __init__(self, place: Place, raw: list[str], within: State | None) -> None:
        self.place, self.raw, self.within = place, raw, within
        self.payload = 0
        self.head: dict[str, Any] = {}
        self.head_end: HeadEnd | None = None
        self.machine: Machine | None = None
        self.call: ToolCall | None = None

    @property
    def in_thought(self) -> bool:
        """Return whether a thought went on where it began."""
        return self.within is not None and self.within.kind == "thinking"

    def seeded(self, told: Telling, arguments: str) -> None:
        """Begin anew behind what the prompt has written. Arguments that it has begun are the call's, too."""
        self.raw, self.payload = [], 0
        if self.call is not None and self.machine is not None:
            told.begin_call(self.call)
            if arguments := arguments + self.machine.taken():
                told.delta(arguments, "")
        elif self.machine is not None:
            self.machine.deltas.clear()


class Ending(Struct):
    """Says how a text has ended. `stays_open`: inside a text or thought; `between`: behind what is closed; `missing`:
    the closing of what is not."""

    stays_open: bool = False
    between: bool = False
    missing: str = ""


class Cursor:
    """Says where a parser stands.

    `lead`: white space that the model writes first, and that is not of its text. `stops`: what a backend may have taken
    away at the end. `held`: what waits for more. `again`: what was read and is to be read once more, because it is no
    call. `head`: fields of the text that begins. `group_raw`: from a group's opening to its first call.
    `begun`: what has an opening and is not told to its end. `run`, `run_raw`: what may be calls in no tag, and
    `back_to` reads it if it is text. Up to `spared`, in all that was given, no such calls are looked for; up to
    `quoted`, calls inside a thought are its text, and up to `unquoted` they count.
    """

    __slots__ = (
        "again",
        "back_to",
        "begun",
        "closing",
        "end_kind",
        "ending",
        "finish",
        "flattened",
        "group",
        "group_raw",
        "head",
        "held",
        "lead",
        "may_stay_open",
        "met_stop",
        "quoted",
        "run",
        "run_raw",
        "seeding",
        "spared",
        "state",
        "states",
        "step",
        "steps",
        "stop",
        "stops",
        "strict",
        "tail",
        "tail_at",
        "told",
        "tools",
        "unquoted",
    )

    def __init__(self, states: States, told: Telling, tools: Mapping[str, Tool] | None, steps: TextSteps) -> None:
        self.states, self.told, self.tools, self.steps = states, told, tools, steps
        self.strict = states.strict
        self.flattened = states.layout.document.flattened
        self.may_stay_open = False  # strictly: whether a thought may have no end
        self.lead = states.turn.lead
        self.stops: Sequence[str] = ()
        self.held = self.again = ""
        self.seeding = False  # whether what is read is the prompt's
        self.closing = False  # whether nothing follows
        self.finish: str | None = None  # why, if the backend said so
        self.stop: str | None = None  # the client's stop string that has ended the turn
        self.met_stop = False  # one of `stops` that closes calls, so that it ends no turn by itself
        self.ending = Ending()
        self.tail: list[str] = []  # what stands behind the end of the turn, where that begins, and the issue of it
        self.tail_at = 0
        self.end_kind = "after_end"
        self.state: State = states.gap("")
        self.step: Step = steps.gap
        self.head: dict[str, Any] = {}
        self.group: Group | None = None
        self.group_raw: list[str] = []
        self.begun: Begun | None = None
        self.run: LooseRun | None = None
        self.run_raw: list[str] = []
        self.back_to: Step = steps.gap
        self.spared = self.quoted = self.unquoted = -maxsize

    @property
    def call(self) -> Begun:
        """Return the call that is open. Its steps are taken only where one is."""
        assert self.begun is not None
        return self.begun

    @property
    def place(self) -> Place:
        """Return the segment whose text goes on. Steps of texts are taken only where one does."""
        assert self.state.place is not None
        return self.state.place

    def enter_gap(self, kind: str, group: Group | None = None) -> None:
        """Go on between segments, behind one of a kind."""
        self.state, self.step = self.states.gap(kind, group), self.steps.gap

    def enter_text(self, place: Place) -> None:
        """Go on in the text of a segment."""
        self.state, self.step = self.states.text(place), self.steps.text

    def start(self, place: Place, *, raw: bool = True) -> None:
        """Begin the text or thought of a segment."""
        head, self.head = self.head, {}
        if place.segment.of:
            head["of"] = place.segment.of
        self.told.start(place.segment.item(**head), raw=raw)

    def content(self, raw: str) -> None:
        """Read more of a text, whose part begins with the first of it that is content."""
        if not raw:
            return
        told = self.told
        # What the prompt has written is not of the answer.
        start = min(told.uncounted, len(raw)) if told.uncounted else 0
        if told.skip:
            told.skip = False
            start = max(start, int(raw.startswith("\n")))
        text = self.state.escape.remove(raw, start)
        if text and told.part is None and self.state.place is not None:
            self.start(self.state.place)
        told.read(raw)
        if text:
            told.say(text)

    def note_closing(self, literal: str) -> None:
        """Note the closing of calls: where a stop is in it, or all of it, the model should not go on."""
        if not self.met_stop:
            self.met_stop = any(core in literal for core in map(str.strip, self.stops) if core)


__all__ = ["Begun", "Cursor", "Ending", "Malformed", "Step", "Telling", "TextSteps"]
