"""Owns the states of a parser: for every place in a turn, which literals mean something there, and what.

All of it is derived from a format's table. White space that a table puts before a literal is optional when reading, so
each literal is looked for with all of it, with less, and without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from msgspec.structs import replace

from turnscript.engine.escape import Escape
from turnscript.engine.layout import Layout, Place, layout_of
from turnscript.engine.loose import FENCE, OPENINGS
from turnscript.engine.recent import KB, MB, recent
from turnscript.engine.scanner import Scanner
from turnscript.engine.table import Document, Group, Segment, Turn


class Do(Enum):
    """What a literal means."""

    OPEN = "a segment begins"
    GROUP = "a group of segments begins"
    NEXT = "a text of the segment ends, and its next one begins"
    CLOSE = "the segment ends"
    LEAVE = "the group ends"
    END = "the turn ends"
    FOREIGN = "somebody else's turn begins"
    ON = "the model goes on in another turn of its own"
    STOP = "the client's own stop string"
    AGAIN = "the opening of the segment once more"
    NONE = "there is no thought"
    LOOSE = "calls may begin that stand in no tag of the format"


Calls = Literal["none", "tagged", "any"]
"""Which calls are looked for: none, as where no tools are offered; those in tags of the format; or any others, too."""


class Action(NamedTuple):
    """A literal's meaning. `core`: its length without white space before it. `place`: of the segment that begins.

    `ahead`: how much of its end is only looked at, because it belongs to what follows.
    """

    do: Do
    core: int
    place: Place | None = None
    ahead: int = 0


class Tags(NamedTuple):
    """What the payload of a segment ends at.

    `ends`: what ends the turn even inside it, because no content there holds it. `closes`: what closes it, and `space`
    the white space that belongs before that; `opening` opens another one.
    """

    ends: tuple[str, ...]
    closes: tuple[str, ...]
    space: str
    opening: str


class State:
    """A place in a turn: what is looked for there. `kind` is the kind of the segment that ended last, or goes on.

    `own`: the scanner for what the prompt has written already, where the client's stop strings mean nothing. `plain`:
    the one for what is known to hold no calls but in the format's own tags; `loose`: what such calls begin with.
    """

    __slots__ = ("end_spaces", "escape", "kind", "own", "place", "plain", "scanner")

    def __init__(
        self,
        literals: dict[str, Action],
        kind: str,
        escape: Escape,
        place: Place | None = None,
        own: Scanner[Action] | None = None,
        loose: dict[str, Action] = {},  # noqa: B006
    ) -> None:
        within, runs = (escape if place is not None else None), _runs(literals)
        self.plain: Scanner[Action] = Scanner(literals, within, runs)
        self.scanner = Scanner({**loose, **literals}, within, runs) if loose else self.plain
        self.own = own if own is not None else self.plain
        self.kind = kind
        self.escape = escape
        self.place = place
        ends = [literal for literal, action in literals.items() if action.do in (Do.CLOSE, Do.END)]
        spaces = {literal[: len(literal) - literals[literal].core] for literal in ends}
        self.end_spaces = sorted((space for space in spaces if space), key=len, reverse=True)


def _runs(literals: Mapping[str, Action]) -> frozenset[str]:
    """Return the openings that a text right before them can make longer, such as `>>>` behind `>`."""
    opens = {one: action.place.overlaps for one, action in literals.items() if action.do is Do.OPEN and action.place}
    return frozenset(one for one, sign in opens.items() if sign.strip() and one.endswith(2 * sign))


class States:
    """All states of one turn. `strict`: of a whole transcript; otherwise of what a model writes."""

    def __init__(
        self,
        layout: Layout,
        turn: Turn,
        strict: bool,
        stops: tuple[str, ...] = (),
        calls: Calls = "tagged",
        names: tuple[str, ...] = (),
    ) -> None:
        self.loose = calls == "any" and not strict and any(one.kind == "tool_call" for one in turn.segments)
        self.layout, self.turn, self.strict = layout, turn, strict
        known = turn.segments if strict else (*turn.segments, *turn.also_read)
        segments = [segment for segment in known if calls != "none" or segment.kind != "tool_call"]
        if calls == "any" and not strict:
            segments += [_without_opening(one) for one in segments if _begins_by_itself(one)]
        self.places = [layout.place_of(turn, segment) for segment in segments]
        self._stops, self._calls, self._names = stops, calls != "none", names
        self._joints = {**layout.document.also_joined, **layout.document.joints}
        self.bare = next((place for place in self.places if place.segment.bare), None)
        self._gaps: dict[tuple[str, int], State] = {}
        self._texts: dict[Place, State] = {}
        self._closings: dict[Place, State] = {}
        self._tags: dict[Place, Tags] = {}
        self._quoting: dict[Place, Scanner[Action] | None] = {}
        self._uncalled: dict[Place, Scanner[Action]] = {}

    @property
    def stoppable(self) -> bool:
        """Whether the client has stop strings of its own."""
        return any(self._stops)

    def gap(self, kind: str, group: Group | None = None) -> State:
        """Return the state between two segments, after one of `kind`; inside a group if there is one."""
        key = (kind, id(group))
        state = self._gaps.get(key)
        if state is None:
            literals = dict(self._in_group(group) if group else self._openings(kind, spaced=False))
            sign = "" if kind or group or self.strict else self.turn.no_thought.strip()
            if sign and not any(sign.startswith(one) for one in literals):
                literals[sign] = Action(Do.NONE, len(sign))
            loose = self._loose_literals(("",)) if group is None and self.bare is not None else {}
            state = self._gaps[key] = State(literals | self._ends(), kind, self.layout.escape, loose=loose)
        return state

    def text(self, place: Place) -> State:
        """Return the state inside the text of a segment."""
        state = self._texts.get(place)
        if state is None:
            literals, own = self._text_literals(place, self._client()), None
            if self._stops:
                own = Scanner(self._text_literals(place, {}), place.escape)
            loose = self._loose_literals(_LINES) if place.kind == "assistant" else {}
            state = self._texts[place] = State(literals, place.kind, place.escape, place, own, loose)
        return state

    def _loose_literals(self, before: tuple[str, ...]) -> dict[str, Action]:
        """Return how calls may begin that stand in no tag of the format. All of it is read again by what reads them."""
        if not self.loose:
            return {}
        own = self._call_openings
        literals = [
            f"{space}{one}"
            for one in OPENINGS
            if not any(one.startswith(core) for core in own)
            # The format's own opening is the longer one, but not where blank lines before it are this one's.
            for space in (before[:1] if any(core.startswith(one) for core in own) else before)
        ]
        # And the format's own that are bare, on any line: behind a text they count as such calls do.
        literals += self.bare_openings
        return {literal: Action(Do.LOOSE, len(literal), None, len(literal)) for literal in literals}

    @cached_property
    def _call_openings(self) -> list[str]:
        """Return what calls begin with in the format's own tags."""
        calls = [place for place in self.places if place.kind == "tool_call" and not place.segment.lists_names]
        own = [place.group_open.strip() or place.open.strip() for place in calls]
        return [core for core in own if core]

    @cached_property
    def bare_openings(self) -> tuple[str, ...]:
        """Return how the format's own calls begin of which nothing but JSON tells that they are some."""
        return tuple(core for place in self.places if _is_bare(place) for core, _ in self._cores(place))

    @cached_property
    def fenced(self) -> bool:
        """Return whether the format's own calls stand in fences, so that any other fence is somebody's text."""
        return any(core.startswith(FENCE) for core in self._call_openings)

    @cached_property
    def loose_start(self) -> Scanner[Action]:
        """Return what such calls begin with where a text begins."""
        return Scanner(self._loose_literals(("",)))

    def quoting(self, thought: Place) -> Scanner[Action] | None:
        """Return what is looked for behind a call that begins inside a thought: what closes that, or ends it otherwise.

        None where the closing of a thought is that of other segments, too, so that it tells nothing.
        """
        if thought not in self._quoting:
            self._quoting[thought] = self._closing_of(thought)
        return self._quoting[thought]

    def _closing_of(self, thought: Place) -> Scanner[Action] | None:
        core, again = thought.close.strip(), f"{thought.open}{thought.head_end}".strip()
        others = [self.turn.close, *(one.close for one in self.places), *(group.close for group in self._groups())]
        if self.strict or not core or [one.strip() for one in others].count(core) > 1:
            return None
        opens = {again: Action(Do.AGAIN, len(again), thought)} if again else {}
        return Scanner(opens | self._ends() | self._client() | self._closes(thought), thought.escape)

    def without_calls(self, place: Place) -> Scanner[Action]:
        """Return what is looked for in a text of which it is known that calls in it are quoted."""
        scanner = self._uncalled.get(place)
        if scanner is None:
            kept = {
                literal: action
                for literal, action in self._text_literals(place, self._client()).items()
                if action.do not in (Do.OPEN, Do.GROUP)
            }
            scanner = self._uncalled[place] = Scanner(kept, place.escape)
        return scanner

    def rest(self, place: Place) -> State:
        """Return the state inside a text that goes on to the end of the turn, whatever stands in it."""
        own = Scanner(self._ends(), place.escape) if self._stops else None
        return State(self._ends() | self._client(), place.kind, place.escape, place, own)

    def closing(self, place: Place) -> State:
        """Return the state behind the payload of a call, or in a wrong one: its closing, and all that ends a turn."""
        state = self._closings.get(place)
        if state is None:
            literals = self._ends() | self._closes(place)
            state = self._closings[place] = State(literals, place.kind, place.escape)
        return state

    def tags(self, place: Place) -> Tags:
        """Return what a payload ends at."""
        tags = self._tags.get(place)
        if tags is None:
            ends, core = dict.fromkeys(literal.strip() for literal in self._ends()), place.close.strip()
            tags = self._tags[place] = Tags(
                tuple(literal for literal in ends if place.escape.holds(literal)),
                (core, *place.segment.also_closed_by) if core else (),
                place.close[: place.close.find(core)],
                place.open.strip(),
            )
        return tags

    def joint(self, before: str, after: str) -> str:
        """Return what a table puts between two kinds; empty if nothing."""
        return self._joints.get((before, after), "")

    def known_joint(self, before: str, after: str) -> str | None:
        """Return what a table puts between two kinds; None where they are not joined."""
        return self._joints.get((before, after))

    @cached_property
    def strangers(self) -> list[str]:
        """Return what ends the model's turn and is not its own: openings of others, and the end of all."""
        end = self.layout.document.end.strip()
        ends = self._ends().items()
        return [literal for literal, action in ends if action.do is Do.FOREIGN or literal.strip() == end]

    def _text_literals(self, place: Place, client: dict[str, Action]) -> dict[str, Action]:
        if self.strict:
            return self._closes(place) or dict(self._openings(place.kind, spaced=True))
        if place.segment.bare:
            return dict(self._openings(place.kind, spaced=True)) | self._ends() | client
        again = {place.open.strip(): Action(Do.AGAIN, len(place.open.strip()), place)} if place.plain_head else {}
        if not place.plain_head:
            opening = f"{place.open}{place.head_end}".strip()
            again = {opening: Action(Do.AGAIN, len(opening), place)}
        line = place.body.next_text
        # Where a stop string of the client's is inside the line, the answer is over before the line is whole.
        stopped = any(stop in line for stop in self._client())
        texts = {line: Action(Do.NEXT, len(line.strip()), place, 1)} if line and not stopped else {}
        return again | self._ends() | texts | client | dict(self._implied(place)) | self._closes(place)

    def _openings(self, kind: str, *, spaced: bool) -> Iterator[tuple[str, Action]]:
        """Give the openings that may follow a kind; at the start of a turn, all."""
        for place in self.places:
            joint = self._joints.get((kind, place.kind), "" if self.bare is None else None) if kind else ""
            if joint is None and self.loose and place.open.strip() and not place.segment.tentative:
                joint = ""  # a template joins no text and call; a model may
            if joint is None or place.segment.bare or not (self.strict or place.model):
                continue
            if kind == "assistant" and self.loose and _is_bare(place):
                continue  # behind a text, such a call counts if nothing follows, as calls do that are in no tag
            # A name must fill its line: with less white space before it, it would be the end of another word.
            spaces: Iterable[str] = [joint] if place.segment.named else _tails(joint + place.indent)
            if self.loose and joint.startswith("\n") and not place.segment.named:
                spaces = [*spaces, " "]  # a blank in the place of the line
            for core, action in self._cores(place):
                for space in spaces if spaced else ("",):
                    yield space + core, action
                for before in () if spaced else _behind_mark(joint + place.indent):
                    yield before + core, action._replace(core=len(before) + action.core)

    def _implied(self, place: Place) -> Iterator[tuple[str, Action]]:
        """Give openings of calls inside a text that has not been closed."""
        before = ("\n",) if self.layout.document.anchored else ("\n", "")
        for other in self.places:
            # What may be text is looked for where the text has no closing, so that something else must end it.
            tentative = (other.segment.tentative and bool(place.close)) or other.segment.bare
            if other.model and other.kind not in (place.kind, *_TEXTS) and not tentative:
                for core, action in self._cores(other):
                    for space in ("\n",) if other.segment.named else before:
                        yield space + core, action

    def _cores(self, place: Place) -> Iterator[tuple[str, Action]]:
        """Give the literals that open a segment: one, one for each name before it, or its own first words."""
        group = place.segment.group
        if not place.open and (group is None or (place.segment.tentative and place.body.begins)):
            array = group.open.strip() if group else ""
            for literal in (place.body.begins,) if self.strict else place.body.openings or (place.body.begins,):
                for before in (f"{array}{space}" for space in _IN_ARRAY) if array else ("",):
                    yield before + literal, Action(Do.OPEN, len(before + literal), place, len(literal))
            return
        if place.segment.lists_names:
            for name in self._names:
                literal = f"{place.group_open.strip()}{name}("
                yield literal, Action(Do.GROUP, len(literal), place, len(name) + 1)
            return
        core, action = _opening(place, self.strict)
        if not place.segment.named:
            yield core, action
            if (
                group is not None and core[:-1].rstrip() and core[-1] in "[{" and not self.strict
            ):  # a blank between marks
                other = core[:-1].rstrip() + ("[" if core[-2] == " " else " [")
                yield other, action._replace(core=len(other))
            bare = place.open.strip()
            if group is not None and self.loose and bare and bare[0] != "{":  # no opening of a group; not any object
                yield bare, Action(Do.OPEN, len(bare), place)
        for name in self._names if place.segment.named else ():
            literal = f"{name}\n{core}"
            yield literal, action._replace(core=len(literal))

    def half_closing(self, rest: str, group: Group | None) -> str:
        """Return the end of a text that is the first half of a closing, where the other is what stopped the backend."""
        closing, generation = self.turn.close if group is None else group.close, self.layout.document.generation
        for stop in (*generation.stops, *generation.stops_with_tools):
            at = max(closing.find(stop), 0) if stop else 0
            for half in (closing[:at], closing[:at].strip()):
                if half.strip() and rest.endswith(half):
                    return half
        return ""

    def _in_group(self, group: Group) -> Iterator[tuple[str, Action]]:
        core = group.close.strip()
        yield core, Action(Do.LEAVE, len(core))
        for place in self.places:
            if place.segment.group is group:
                begins, ahead = ((place.open.strip(),), 0) if place.open else (_first_characters(place), 1)
                space = place.open[: len(place.open) - len(place.open.lstrip())]
                for before in ("", *_behind_mark(self.joint(place.kind, place.kind) + space)):
                    for core in begins:
                        yield before + core, Action(Do.OPEN, len(before + core), place, ahead)

    def _closes(self, place: Place) -> dict[str, Action]:
        found: dict[str, Action] = {}
        if place.close:
            space = place.close[: len(place.close) - len(place.close.lstrip())]
            others = place.segment.also_closed_by
            if not self.strict:  # what stops the model ends its turn
                others = tuple(one for one in others if one not in self.layout.document.generation.stops)
            for literal in (place.close.strip(), *others):
                for before in _tails(space):
                    found[before + literal] = Action(Do.CLOSE, len(literal), place)
        return found

    def _ends(self) -> dict[str, Action]:
        """Return what ends the model's turn; nothing in a transcript, whose turns are cut out already."""
        if self.strict:
            return {}
        document, found = self.layout.document, {}
        anchored = "\n" if document.anchored else ""
        for literal in self._foreign():
            found[anchored + literal] = Action(Do.FOREIGN, len(literal.lstrip()))
        if self.turn.several:
            own = self.turn.open.strip()
            found[own] = Action(Do.ON, len(own))
        closings = {segment.close.strip() for segment in self.turn.segments}
        generation = document.generation
        stops = (*generation.stops, *generation.stops_with_tools) if self._calls else generation.stops
        literals = [*stops, self.turn.close, document.end]
        foreign = tuple(literal.strip() for literal in self._foreign())
        for literal in literals:
            core = literal.strip()
            if not core or core in closings or any(group.close.strip() == core for group in self._groups()):
                continue
            do = Do.FOREIGN if core.startswith(foreign) else Do.END
            if literal.startswith("\n\n"):
                found[literal] = Action(do, len(core))
                continue
            space = literal[: len(literal) - len(literal.lstrip())]
            for before in _tails(space):
                found[before + core] = Action(do, len(core))
        return found

    def _foreign(self) -> Iterator[str]:
        document = self.layout.document
        for turn in document.turns:
            # Where a closing ends the model's turn, words that its texts may hold begin no other.
            if turn.open and not (self.turn.close and not self.layout.escape.holds(turn.open.strip())):
                ends_others = not turn.close and bool(document.separator)
                yield document.separator + turn.open.rstrip() if ends_others else turn.open.rstrip()
            if turn is not self.turn and turn.speaks:
                continue
            for segment in turn.segments:
                if segment.open and not segment.model:
                    yield (segment.group.open if segment.group else segment.open).strip()

    def _groups(self) -> Iterator[Group]:
        return (place.segment.group for place in self.places if place.segment.group is not None)

    def _client(self) -> dict[str, Action]:
        return {stop: Action(Do.STOP, len(stop)) for stop in self._stops if stop}


_LINES = ("\n", "\n\n")  # before calls that stand on a line of their own
_TEXTS = ("thinking", "assistant")
_IN_ARRAY = ("", " ", "\n", "\n ", "\n  ", "\n    ")  # as JSON is laid out


def _begins_by_itself(segment: Segment) -> bool:
    """Return whether a call is known without its opening, by a tag that its payload begins with."""
    return segment.kind == "tool_call" and bool(
        segment.group is None and segment.open and segment.body.begins.startswith(("<", "[")) and segment.body.says_name
    )


@lru_cache(maxsize=64)
def _without_opening(segment: Segment) -> Segment:
    """Return a segment as it is where nothing opens it, the same one every time."""
    return replace(segment, open="", tentative=True)


def _opening(place: Place, strict: bool) -> tuple[str, Action]:
    """Return the literal that opens a segment. Strictly, what may be text is a call only if it goes on like one."""
    group = place.segment.group
    if group is not None:
        core = group.open.strip()
        return core, Action(Do.GROUP, len(core), place)
    if strict and place.segment.tentative:
        core = f"{place.open}{place.body.begins}".lstrip()
        return core, Action(Do.OPEN, len(core), place, len(core) - len(place.open.strip()))
    core = place.open.strip()
    return core, Action(Do.OPEN, len(core), place)


def _is_bare(place: Place) -> bool:
    """Return whether nothing but its JSON tells a call from a text."""
    return place.segment.tentative and place.segment.group is None and f"{place.open}{place.body.begins}"[:1] == "{"


def _first_characters(place: Place) -> tuple[str, ...]:
    """Return what a payload that nothing opens may begin with."""
    openings = (place.body.begins,) if place.body.begins else place.body.openings
    return tuple(dict.fromkeys(one[:1] for one in openings))


def _behind_mark(joint: str) -> Iterable[str]:
    """Give the mark of a joint, with the white space that may follow it; nothing where it has none."""
    mark = joint.strip()
    spaces = dict.fromkeys((*_IN_ARRAY, joint[len(joint.rstrip()) :]))
    return [f"{mark}{space}" for space in spaces] if mark else []


def _tails(space: str) -> Iterable[str]:
    """Give white space before a literal: all of it, and less and less."""
    return [space[start:] for start in range(len(space) + 1)]


@recent(64 * MB, weight=80, entry=256 * KB)
def states_of(
    document: Document,
    turn: Turn,
    strict: bool,
    stops: tuple[str, ...] = (),
    calls: Calls = "tagged",
    names: tuple[str, ...] = (),
) -> States:
    """Return the states of a turn, made once and kept for a while.

    `names`: the lines with names that may stand before a call, where a format has those.
    """
    return States(layout_of(document), turn, strict, stops, calls, names)


def named_call(turn: Turn) -> Segment | None:
    """Return the segment of calls with a name before their opening; None where there is none."""
    return next((segment for segment in turn.segments if segment.named), None)


def looks_for_names(turn: Turn) -> bool:
    """Tell whether the names of offered tools are looked for in what a model writes of a turn."""
    return any(segment.named or segment.lists_names for segment in (*turn.segments, *turn.also_read))


def behind_opening(turn: Turn, ahead: str) -> str | None:
    """Return what the end of a prompt holds of a turn, behind its opening; None where it does not open it."""
    core = turn.open.rstrip()
    at = ahead.rfind(core) if core else -1
    return ahead[at + len(core) :].removeprefix(turn.open[len(core) :]) if at >= 0 else None


def no_thought(turn: Turn, written: str) -> int:
    """Return how much of what is written of a turn stands in place of a thought, which no model writes."""
    mark = turn.no_thought.strip()
    start = len(written) - len(written.lstrip())
    return start + len(mark) if mark and written.startswith(mark, start) else 0


__all__ = [
    "Action",
    "Do",
    "Segment",
    "State",
    "States",
    "behind_opening",
    "looks_for_names",
    "named_call",
    "no_thought",
    "states_of",
]
