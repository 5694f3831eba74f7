"""Owns the layout: a table made ready for work, each kind of item with the literals around it and what they protect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from operator import attrgetter
from typing import Any

from turnscript.conversation import Item, System, Thinking, ToolsChange
from turnscript.engine.escape import Escape, rules_of
from turnscript.engine.spans import TRAINABLE, Glue, Writer
from turnscript.engine.table import Document, Segment, Turn

_NEVER_LOST = frozenset({"content", "at", "open", "raw", "hints", "added", "removed"})


class Place:
    """Where a kind of item stands: its turn, its segment, the escape of its text, and the literals around both."""

    def __init__(self, turn: Turn, segment: Segment, escape: Escape) -> None:
        group = segment.group
        self.kind = segment.kind
        self.turn = turn
        self.segment = segment
        self.body = segment.body
        self.escape = escape
        self.model = segment.model
        self.own_attributes = segment.attributes
        self.open = segment.open
        self.head_end = segment.head_end if segment.attributes or segment.head_end else ""
        self.close = segment.close
        self.plain_head = not segment.attributes and not segment.head_end
        self.lead = turn.lead
        self.begin = turn.open if turn.attributes else f"{turn.open}{turn.head_end}"
        self.group_open = group.open if group else ""
        self.turn_attributes = turn.attributes
        self.turn_head_end = turn.head_end if turn.attributes else ""
        self.end = f"{group.close if group else ''}{turn.close}"
        self.speaks = bool(turn.open)
        self.may_stay_open = not turn.open or segment.kind not in ("tool_call", "tool_result")
        self.glues: dict[Place, Glue] = {}
        self.said = TRAINABLE if segment.model else 0
        self.protect = escape.apply
        self.only_text = self.body.only_text(*_everything_else(segment, turn))
        self._unshown, self.unshown_fields = _getter(segment, turn)
        self._nothing = tuple(_NOTHING.get(field) for field in self.unshown_fields)

    def says_more(self, item: Item) -> bool:
        """Whether an item has a field that is not shown here: one look at all of them, taken for every item."""
        return bool(self._unshown(item) != self._nothing)


class Layout:
    """A document's places by kind, its joints with the group literals that go with them, and its escapes."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.escape = document.escape or Escape(*rules_of(_global_literals(document)))
        self.places: dict[str, Place] = {}
        self.thoughts: dict[str, Place] = {}
        self._made: dict[tuple[int, int], Place] = {}
        for turn in document.turns:
            for segment in turn.segments:
                place = self.place_of(turn, segment)
                if segment.of:
                    self.thoughts[segment.of] = place
                self.places[segment.kind] = place
        self.plain = {
            place.segment.item: place
            for place in self.places.values()
            if place.body.plain and place.segment.prompt and not place.segment.of and place.kind != ToolsChange.kind
        }
        self.joints: Mapping[tuple[str, str], str] = {
            pair: self._joint(pair, text) for pair, text in document.joints.items()
        }

    def glue(self, before: Place, place: Place) -> Glue:
        """What stands between two items that say one text each."""
        joint = self.joints.get((before.kind, place.kind))
        head = f"{place.open}{place.head_end}"
        if joint is not None:
            return Glue([(joint, before.model and place.model, False), (head, place.model, False)])
        return Glue(
            [
                (before.end, before.model, True),
                (self.document.separator, False, False),
                (f"{place.begin}{place.turn_head_end}", False, False),
                (place.group_open, place.model, False),
                (f"{place.lead}{head}", place.model and (before.model or place.speaks), False),
            ]
        )

    def place_for(self, item: Item) -> Place | None:
        """Where an item stands; None if the format has no place for it."""
        if self.thoughts and isinstance(item, Thinking):
            return self.thoughts.get(item.of)
        return self.places.get(item.kind)

    def place_of(self, turn: Turn, segment: Segment) -> Place:
        """The place of a segment in a turn, the same one every time."""
        key = (id(turn), id(segment))
        if key not in self._made:
            local = [literal for one in turn.segments if one.local for literal in segment_literals(one)]
            own = Escape(*self.escape.rules, *rules_of(local)) if local else self.escape
            if segment.protects:
                own = Escape(*own.rules, *segment.protects)
            self._made[key] = Place(turn, segment, segment.escape or own)
        return self._made[key]

    def _joint(self, pair: tuple[str, str], text: str) -> str:
        before, after = (self.places[kind].segment.group for kind in pair)
        if before is after:
            return text
        return f"{before.close if before else ''}{text}{after.open if after else ''}"


@lru_cache(maxsize=64)
def layout_of(document: Document) -> Layout:
    """The layout of a document, made once."""
    return Layout(document)


def segment_literals(segment: Segment) -> Iterator[str]:
    """Every literal of a segment."""
    yield segment.open
    yield segment.close
    yield from segment.also_closed_by
    yield from segment.body.literals
    if segment.group:
        yield segment.group.open
        yield segment.group.close


def document_literals(document: Document) -> Iterator[str]:
    """Every control literal of a document, white space around it included."""
    yield document.start
    yield document.end
    for turn in document.turns:
        yield turn.open
        yield turn.close
        for segment in turn.segments:
            yield from segment_literals(segment)
    for section in (document.metadata, document.tools):
        if section:
            yield from (section.open, section.close, *section.also_closed_by)
    if document.tools_place:
        yield from (document.tools_place.open, document.tools_place.close, *document.tools_place.body.literals)
    if document.flags:
        yield from document.flags.tags.values()


def _global_literals(document: Document) -> Iterator[str]:
    local = {
        literal for turn in document.turns for one in turn.segments if one.local for literal in segment_literals(one)
    }
    if document.tools_place:
        local |= set(document.tools_place.body.literals)
    shared = {one.group for turn in document.turns for one in turn.segments if one.group}
    groups = {literal for group in shared for literal in (group.open, group.close)}
    yield from (literal for literal in document_literals(document) if literal not in local or literal in groups)


def _everything_else(segment: Segment, turn: Turn) -> tuple[Callable[[Any], Any], Any]:
    """All that an item may say beside a text, and what it gives if it says nothing."""
    shown = {"content", "at", "open", "hints", *segment.body.carries}
    fields = [field for field in segment.item.__struct_fields__ if field not in shown]
    if turn.open:
        fields = [field for field in fields if field != "raw"]
        if segment.kind in ("tool_result", "tool_call"):
            fields = [field for field in fields if field not in ("id", "name")]
    return attrgetter(*fields), tuple(_NOTHING.get(field) for field in fields)


def _getter(segment: Segment, turn: Turn) -> tuple[Callable[[Any], Any], tuple[str, ...]]:
    """What a text of this segment does not show: one look at all such fields, because it is taken for every item."""
    if segment.kind in ("tool_call", "tool_result") and turn.open:
        hidden: set[str] = {"id", "name"}  # which of them are found again, `correlate` knows
    else:
        hidden = set()
    if segment.of:
        hidden.add("of")
    shown = (
        hidden | {attribute.path for attribute in (*segment.attributes, *turn.attributes)} | set(segment.body.carries)
    )
    fields = tuple(field for field in segment.item.__struct_fields__ if field not in shown and field not in _NEVER_LOST)
    if not fields:
        return lambda item: (), fields
    one = fields[0]
    return (attrgetter(*fields) if len(fields) > 1 else lambda item: (getattr(item, one),)), fields


def report_unshown(place: Place, item: Item, out: Writer) -> None:
    """Losses for the fields of an item that its segment has no room for."""
    for field in place.unshown_fields:
        value = getattr(item, field)
        if value is None or value is False or value == _DEFAULTS.get(field) or value in ({}, []):
            continue
        if field == "extra":
            for key in value:
                out.lose(f".{key}", "dropped", "this format has no place for members without a name")
        else:
            out.lose(f".{field}", "dropped", "this format does not show it")
    if item.hints is not None and not out.archive and place.speaks:
        for key in (*item.hints.envelope, *item.hints.attributes):
            out.lose(f".{key}", "dropped", "this format has no place for members without a name")


_DEFAULTS: dict[str, Any] = {"role": System().role, "of": Thinking().of}
_NOTHING: dict[str, Any] = _DEFAULTS | {"extra": {}, "summary": [], "custom": False}
