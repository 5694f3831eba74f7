"""Owns the layout: a table made ready for work, each kind of item with the literals around it and what they protect.

Here are also the marks of a format, which tell its transcripts from others; what prompts no longer show, at once or as
soon as somebody has spoken; and whose name stands in the opening of a turn.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import pairwise, product, zip_longest
from operator import attrgetter
from typing import Any

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolsChange,
)
from turnscript.core.json_spelling import COMPACT, SPACED, Spelling
from turnscript.core.losses import Loss, UnnamedLoss
from turnscript.core.source_paths import message_path
from turnscript.engine.attributes import SPOKEN
from turnscript.engine.escape import AUTO, POLICIES, Escape, rules_of, tags_in
from turnscript.engine.spans import TRAINABLE, Glue, Literal, Writer
from turnscript.engine.table import START, Document, Segment, Turn

_BARE = frozenset({"system", "user", "assistant", "thinking", "tools_change"})
"""Kinds of items that ordinarily have nothing to say in the attributes of an opening."""
_NEVER_LOST = frozenset({"content", "as_object", "at", "open", "raw", "turn", "slot", "added", "removed", "seal"})
_AROUND, _NO_PLACE = frozenset({"envelope", "attributes"}), "this format has no place for it"


class Glues(dict["Place", Glue]):
    """The literals before an item that says one text, by its place. Made when they are first asked for."""

    def __init__(self, make: Callable[[Place], Glue]) -> None:
        self._make = make

    def __missing__(self, place: Place) -> Glue:
        glue = self[place] = self._make(place)
        return glue


class Place:
    """Where a kind of item stands: its turn, its segment, the escape of its text, and the literals around both.

    `behind_text` and `behind`: what stands between an item here and the next, with and without this one's closing.
    """

    __slots__ = (
        "_nothing",
        "_unshown",
        "begin",
        "begins_plainly",
        "behind",
        "behind_text",
        "body",
        "close",
        "closing",
        "end",
        "ending",
        "ends_late",
        "escape",
        "group_open",
        "head_end",
        "indent",
        "kind",
        "lead",
        "lead_of_tags",
        "may_stay_open",
        "model",
        "only_text",
        "open",
        "overlaps",
        "own_attributes",
        "plain_head",
        "protect",
        "said",
        "segment",
        "speaks",
        "turn",
        "turn_attributes",
        "turn_head_end",
        "unclosed",
        "unseen_if_empty",
        "unshown_fields",
    )
    behind_text: Glues
    behind: Glues

    def __init__(self, turn: Turn, segment: Segment, escape: Escape, stops: tuple[str, ...]) -> None:
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
        self.lead = turn.lead if group is None else ""  # the opening of a group has what stands before it
        unthinking = "" if segment.kind == Thinking.kind else turn.no_thought
        self.begin = turn.open if turn.attributes else f"{turn.open}{turn.head_end}{unthinking}"
        # Whether an empty one of it is what stands where there is none.
        empty = f"{segment.open}{segment.head_end}{segment.close}".strip()
        self.unseen_if_empty = (
            segment.kind == Thinking.kind and not segment.attributes and empty == turn.no_thought.strip()
        )
        self.group_open = group.open if group else ""
        opening = self.group_open or self.open
        # The sign by which a text before it makes the opening longer: a reader takes the end of the run (`>>>`).
        self.overlaps = self.open[:1] if len(self.open) > 1 == len(set(self.open)) else ""
        self.indent = opening[: len(opening) - len(opening.lstrip())]
        self.turn_attributes = turn.attributes
        self.turn_head_end = turn.head_end if turn.attributes else ""
        self.end = f"{group.close if group else ''}{turn.close}"
        self.closing = turn.close.strip()
        # Whether the model's turn does not end with the segment's closing, but with what stands behind it.
        self.ends_late = segment.model and not any(stop in f"{self.close}{self.end}" for stop in stops)
        # Whether nothing of its own ends the turn, so that what stands between turns does.
        closing = turn.close if turn.speaks else f"{segment.close}{turn.close}"
        self.unclosed = self.ends_late if segment.model else not closing.strip()
        mark = self.end.rstrip()
        # What is behind the mark no model writes, because it has ended; it leads to the next turn.
        ending: list[Literal] = [(mark, segment.model, True), (self.end[len(mark) :], False, self.unclosed)]
        self.ending = [literal for literal in ending if literal[0]]
        self.speaks = turn.speaks
        self.may_stay_open = not turn.speaks or segment.kind not in ("tool_call", "tool_result")
        # Whether the opening of its turn is the same for every item that says one text.
        self.begins_plainly = not turn.attributes and not segment.named and not turn.behind
        self.said = TRAINABLE if segment.model else 0
        self.protect = escape.apply
        # What a text must hold to need protection: how the one lead begins, anything, or what no text can hold.
        self.lead_of_tags = escape.leads[0][:1] if len(escape.leads) == 1 else "" if escape.leads else "\udfff"
        reads_content = self.body.plain and "content" in segment.item.__struct_fields__
        silent = _silent(segment, turn, () if reads_content else segment.body.carries)
        # The text of an item that says one and nothing else; None for all others.
        self.only_text = _only_text(silent) if reads_content else self.body.only_text(silent)
        self._unshown, self.unshown_fields = _getter(segment, turn)
        self._nothing = tuple(_NOTHING.get(field) for field in self.unshown_fields)

    def says_more(self, item: Item) -> bool:
        """Return whether an item has a field that is not shown here: one look at all of them, taken for every item."""
        return bool(self._unshown(item) != self._nothing)

    def is_ended(self, text: str) -> bool:
        """Return whether the closing of the turn stands at the end of what a model wrote."""
        return bool(self.closing) and text.rstrip().endswith(self.closing)


class Layout:
    """A document's places by kind, its joints with the group literals that go with them, and its escapes."""

    def __init__(self, document: Document, policy: str) -> None:
        self.document = document
        self._kind = POLICIES[policy]
        declared = document.escape.rules if document.escape is not None else rules_of(_global_literals(document))
        self.escape = self._kind(*declared)
        self.files = document.files.within(self.escape, document.end) if document.files else None
        # Where there are tools, a closing may be followed by a call: then only these end a turn.
        self._stops = tuple(stop.strip() for stop in document.generation.stops_with_tools if stop.strip())
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
            if place.body.plain
            and place.segment.prompt
            and not (place.segment.until or place.segment.of)
            and place.kind != ToolsChange.kind
            and self.stands_behind_all(place.turn)
        }
        # The same but for results: those that have no name of their own show that of their call.
        self.nameless = {item: place for item, place in self.plain.items() if place.kind != ToolResult.kind}
        self._joints = {pair: self._joint(pair, text) for pair, text in document.joints.items()}
        self.joints = {pair: "".join(parts) for pair, parts in self._joints.items()}
        self.passing = frozenset(place.segment.until for place in self.places.values() if place.segment.until)
        # Whether an empty answer beside something else leaves no trace.
        self.hides_empty = document.flattened or self._hides_between()
        texts = (kind for kind, after in self.joints if kind == after and self.places[kind].segment.bare)
        self.merged = frozenset(texts)
        system = self.places.get(System.kind)
        self.lodges = system is not None and len(system.turn.segments) > 1 and bool(system.turn.open)
        # Before an item where no turn is open: in place of a separator, or behind one that stands there already.
        self.first_glues = tuple([Glues(partial(self.first_glue, separated=done)) for done in (False, True)])

    def glue(self, before: Place, place: Place, closing: bool = False) -> Glue:
        """Return what stands between two items that say one text each. `closing`: the first one's own closing, too."""
        head = f"{place.open}{place.head_end}"
        close = [(before.close, before.model, True)] if closing else []
        if (before.kind, place.kind) in self.joints:
            return Glue([*close, *self.joint(before, place), (head, place.model, False)])
        begin, head = place.begin if place.turn.is_marked(before.turn) else "", f"{place.lead}{head}"
        stop = self.stop_in(begin or head) if before.ends_late else 0
        own = before.model and self.goes_on(before.turn, place)
        return Glue(
            [
                *close,
                *before.ending,
                self.separator(before, place),
                (begin[:stop], True, True),
                (begin[stop:], own, False),
                (place.turn_head_end, False, False),
                (place.group_open, place.model, False),
                ("" if begin else head[:stop], True, True),
                (head if begin else head[stop:], place.model and (before.model or self.opens(place)), False),
            ]
        )

    def first_glue(self, place: Place, separated: bool) -> Glue:
        """Return what stands before an item of one text that opens the first turn, or one behind something else."""
        head = f"{place.lead}{place.open}{place.head_end}"
        return Glue(
            [
                ("" if separated else self.document.separator, False, False),
                (place.begin, False, False),
                (place.group_open, place.model, False),
                (head, place.model and self.opens(place), False),
            ]
        )

    def goes_on(self, before: Turn | None, place: Place) -> bool:
        """Return whether a model whose turn has ended opens the next one by itself."""
        return place.turn.several and before is place.turn

    def stands_behind_all(self, turn: Turn) -> bool:
        """Return whether a turn can begin wherever another one ends, and at the start of the document."""
        roles = [one.role for one in self.document.turns]
        return bool(turn.open or not turn.behind) or {START, *roles} <= {*turn.behind}

    def leaves_no_trace(self, before: str, after: str) -> bool:
        """Return whether an empty answer between two kinds of segments, or at an end of its turn, cannot be seen."""
        said, joints = Assistant.kind, self.document.joints
        place = self.places[said]
        if place.open.strip() or place.close.strip():
            return False
        around = f"{joints.get((before, said), '')}{joints.get((said, after), '')}"
        if before and after:
            return around == joints.get((before, after))
        # Before what opens a turn stands its `lead`, and a reader does without.
        return not around or (bool(after) and around == self.places[said].turn.lead)

    def _hides_between(self) -> bool:
        first = [before for before, after in self.joints if after == Assistant.kind]
        then = [after for before, after in self.joints if before == Assistant.kind]
        pairs = [pair for pair in product(["", *first], ["", *then]) if any(pair)]
        return any(self.leaves_no_trace(*pair) for pair in pairs)

    def stop_in(self, opening: str) -> int:
        """Return how much of the opening of somebody else's turn the model must write so that its own ends there."""
        return max((len(stop) for stop in self._stops if opening.startswith(stop)), default=0)

    def joint(self, before: Place, place: Place) -> list[Literal]:
        """Return what joins an item to the one before. What closes a group still is of that one."""
        close, text, open_ = self._joints[before.kind, place.kind]
        return [(close, before.model, True), (text, before.model and place.model, False), (open_, place.model, False)]

    def separator(self, before: Place | None, place: Place | None) -> Literal:
        """Return what stands between two turns. It ends the one before, and is of its last item, if that has no closing
        of its own. Else it leads to the next item, and so it does where the model comes to its next segment by itself.

        `before`: where the last item stands, if its turn is without a closing. `place`: where the next item stands.
        """
        if before is None or not before.unclosed:
            return self.document.separator, False, False
        goes_on = before.model and place is not None and place.model and not place.speaks
        return self.document.separator, before.model, not goes_on

    def opens(self, place: Place) -> bool:
        """Return whether the model writes the opening of a first segment: no prompt begins with it."""
        generation = self.document.generation
        begun = place.turn.several or (place.open and not generation.prefill)
        written = place.kind == generation.kind and begun and generation.answer_prefill is None
        return (place.speaks and not written) or place.kind not in (generation.kind, generation.thinking_kind)

    def place_for(self, item: Item) -> Place | None:
        """Return where an item stands; None if the format has no place for it."""
        if self.thoughts and isinstance(item, Thinking):
            return self.thoughts.get(item.of)
        return self.places.get(item.kind)

    @property
    def spelling(self) -> Spelling:
        """Return how JSON is spelled where the format writes it: as in its calls."""
        place = self.places.get(ToolCall.kind)
        return COMPACT if place is not None and place.body.compact else SPACED

    def place_named(self, kind: str, of: str) -> Place | None:
        """Return where items of a kind stand, or those of a kind of thought where the format tells thoughts apart."""
        return self.thoughts.get(of) if self.thoughts and kind == Thinking.kind else self.places.get(kind)

    def place_of(self, turn: Turn, segment: Segment) -> Place:
        """Return the place of a segment in a turn, the same one every time."""
        key = (id(turn), id(segment))
        if key not in self._made:
            local = [literal for one in turn.segments if one.local for literal in one.literals]
            own = self.escape.plus(*rules_of(local)) if local else self.escape
            if segment.protects:
                own = own.plus(*segment.protects)
            if segment.escape is not None:
                own = self._kind(*segment.escape.rules, *rules_of((self.document.start, self.document.end)))
            place = self._made[key] = Place(turn, segment, own, self._stops)
            place.behind_text = Glues(partial(self.glue, place, closing=True))
            place.behind = Glues(partial(self.glue, place))
        return self._made[key]

    def _joint(self, pair: tuple[str, str], text: str) -> tuple[str, str, str]:
        """Return what closes a group, what joins the two, what opens a group."""
        before, after = (self.places[kind].segment.group for kind in pair)
        if before is after:
            return "", text, ""
        return before.close if before else "", text, after.open if after else ""


@lru_cache(maxsize=64)
def layout_of(document: Document, policy: str = AUTO) -> Layout:
    """Return the layout of a document under a policy for tags in texts, made once."""
    return Layout(document, policy)


def special_tokens(document: Document) -> list[str]:
    """Return the tags of a document, in its order: a tokenizer may have a token for each (requirements D-U-19).

    A tag whose attributes change from item to item is there by its beginning. Labels and explanations are no tags.
    """
    found = [*_ends_of_a_model(document.start), *_ends_of_a_model(document.end)]
    for turn in document.turns:
        found += (tag for literal in (f"{turn.open}{turn.head_end}", turn.no_thought) for tag in tags_in(literal))
        found += (tag for segment in turn.segments for literal in _written_tags(segment) for tag in tags_in(literal))
        found += tags_in(turn.close)
    for section in (document.metadata, document.tools):
        found += [f"{section.open}{document.tag_end}", section.close] if section else []
    if document.tools_place:
        place = document.tools_place
        found += [tag for tag in tags_in(place.open) if place.apart or place.open.rstrip().endswith(tag)]
        found += [tag for literal in place.body.literals for tag in tags_in(literal)]
        found += [tag for tag in tags_in(place.close) if place.apart or place.close.lstrip().startswith(tag)]
    found += document.flags.tags.values() if document.flags else ()
    found += (tag for literal in (document.files.literals if document.files else ()) for tag in tags_in(literal))
    return list(dict.fromkeys(tag for tag in found if tag))


def _ends_of_a_model(literal: str) -> list[str]:
    """Return what a base model has around a document: one token, or several if it is a row of tags: `[gMASK]<sop>`.
    What holds words, too, says something, and only its tags are tokens."""
    tags = tags_in(literal)
    words = literal.split()
    return tags if "".join(tags) == "".join(words) or (tags and len(words) > 1) else [literal.strip()]


def _written_tags(segment: Segment) -> Iterator[str]:
    """Give what is written around a segment and inside its payload."""
    whole = segment.kind in _BARE and not segment.required
    yield segment.group.open if segment.group else ""
    yield f"{segment.open}{segment.head_end}" if whole or not segment.attributes else segment.open
    yield from segment.body.literals
    yield segment.close
    yield segment.group.close if segment.group else ""


def _global_literals(document: Document) -> Iterator[str]:
    local = {literal for turn in document.turns for one in turn.segments if one.local for literal in one.literals}
    if document.tools_place:
        local |= set(document.tools_place.body.literals)
    shared = {one.group for turn in document.turns for one in turn.segments if one.group}
    groups = {literal for group in shared for literal in (group.open, group.close)}
    yield from (literal for literal in document.literals if literal not in local or literal in groups)
    generation = document.generation
    for literal in (*generation.stops, *generation.stops_with_tools, *generation.stops_of_call):
        yield from tags_in(literal)  # what only stops a model is a tag, too, and so is what is read and never written
    for turn in document.turns:
        yield from (tag for segment in turn.also_read for tag in tags_in(segment.open))


def _silent(segment: Segment, turn: Turn, carried: Iterable[str]) -> Callable[[Any], bool]:
    """Return whether an item says nothing beside a text, and is complete. `carried`: what the text is made of.

    Prompts do not show the shape of a content, nor where it stood, unless the table has an attribute for that.
    """
    hidden = {"content", "as_object", "at", "seal", *carried}
    hidden |= {"slot"} - {one.path for one in (*segment.attributes, *turn.attributes)}
    if turn.speaks:
        hidden.add("raw")
        if segment.kind in ("tool_result", "tool_call"):
            told = {field for one in segment.attributes for field in (one.path, one.fallback) if one.written}
            hidden |= {"id", "name"} - told
    fields = [field for field in segment.item.__struct_fields__ if field not in hidden]
    said, nothing = attrgetter(*fields), tuple([_NOTHING.get(field) for field in fields])
    return lambda item: bool(said(item) == nothing)


def _only_text(silent: Callable[[Any], bool]) -> Callable[[Any, Writer], str | None]:
    """Return what gives the text of an item that says one and nothing else."""

    def only_text(item: Any, out: Writer) -> str | None:
        content = item.content
        if len(content) == 1 and type(part := content[0]) is Text and not part.extra and silent(item):
            return part.text
        return None

    return only_text


def _getter(segment: Segment, turn: Turn) -> tuple[Callable[[Any], Any], tuple[str, ...]]:
    """Return what a text of this segment does not show: one look at all such fields, taken for every item."""
    called = segment.kind in ("tool_call", "tool_result") and turn.speaks
    hidden: set[str] = {"id", "name"} if called else set()  # which of them are found again, `correlate` knows
    if segment.of:
        hidden.add("of")
    shown = hidden.union((one.path for one in (*segment.attributes, *turn.attributes)), segment.body.carries)
    shown |= set() if turn.speaks else {"envelope", "attributes"}  # what of them a tag does not show, it tells itself
    fields = tuple(field for field in segment.item.__struct_fields__ if field not in shown and field not in _NEVER_LOST)
    if len(fields) > 1:
        return attrgetter(*fields), fields
    return lambda item: tuple([getattr(item, one) for one in fields]), fields


def report_unshown(place: Place, item: Item, out: Writer, told: Container[str] = ()) -> None:
    """Book the losses for the fields of an item that its segment has no room for. `told`: what its turn's opening says
    of the message around it."""
    for field in place.unshown_fields:
        value = getattr(item, field)
        if value is None or value is False or value == _DEFAULTS.get(field) or value in ({}, []):
            continue
        if field in _AROUND and out.archive:
            continue
        if field == "extra":
            out.lose_unnamed("", value, "this format has no place for members without a name")
        elif field == "envelope":
            at = message_path(out.place)
            out.losses += [UnnamedLoss(f"{at}.{key}", "dropped", _NO_PLACE) for key in value if key not in told]
        elif field == "attributes":
            out.losses += [Loss(f"{out.place}.{key}", "dropped", _NO_PLACE) for key in value]
        else:
            out.lose(".kind" if field == "of" else f".{field}", "dropped", "this format does not show it")


def report_shared(layout: Layout, items: Sequence[Item], out: Writer) -> None:
    """Book the losses for texts that are read as one with another."""
    if layout.merged:
        _report_merged(layout, items, out)
    if layout.lodges:
        _report_lodged(layout, items, out)


def _report_merged(layout: Layout, items: Sequence[Item], out: Writer) -> None:
    """Book the losses for two texts of one speaker that are written as one."""
    for index, (before, item) in enumerate(pairwise(items), 1):
        if before.kind == item.kind and item.kind in layout.merged:
            detail = "it goes on in the turn before and is read as one with it"
            out.losses.append(Loss(item.at or f"items[{index}]", "moved", detail))


def _report_lodged(layout: Layout, items: Sequence[Item], out: Writer) -> None:
    """Book the losses for instructions that stand in a turn of the user's, and for texts that they stand before."""
    shown = [(index, item) for index, item in enumerate(items) if layout.place_for(item) is not None]
    for (index, item), (after, following) in zip_longest(shown, shown[1:], fillvalue=(0, None)):
        if item is None or item.kind != System.kind:
            continue
        path = item.at or f"items[{index}]"
        if following is None or (item.kind, following.kind) not in layout.joints:
            out.losses.append(Loss(path, "approximated", "they stand in a turn of the user's and are read as that"))
            continue
        out.losses.append(Loss(path, "moved", "it stands in the user's turn and is read as one with what follows"))
        where = following.at or f"items[{after}]"
        out.losses.append(Loss(where, "approximated", "the instructions before it are read as a part of it"))


_DEFAULTS: dict[str, Any] = {"role": System().role, "of": Thinking().of}
_NOTHING: dict[str, Any] = {
    **_DEFAULTS,
    **dict.fromkeys(("turn", "slot"), ""),
    "extra": {},
    "summary": [],
    "custom": False,
    "open": False,
}


class Past:
    """Knows for each kind that makes others past (`Segment.until`) where the last item of that kind stands."""

    __slots__ = ("_last",)

    def __init__(self, kinds: Iterable[str]) -> None:
        self._last = dict.fromkeys(kinds, -1)

    @classmethod
    def of(cls, layout: Layout) -> Past:
        """Return what is past in a document: the same for all prompts of a format by which nothing ever is."""
        return cls(layout.passing) if layout.passing else _NONE_PAST

    def note(self, items: Sequence[Item], start: int) -> None:
        """Look for those kinds among items that are about to be written, the first of them at position `start`."""
        for kind in self._last:
            places = range(len(items) - 1, -1, -1)
            self._last[kind] = next((start + at for at in places if items[at].kind == kind), self._last[kind])

    def hides(self, place: Place, index: int) -> bool:
        """Return whether a prompt leaves out what stands at a place, if its position is `index`."""
        segment = place.segment
        return not segment.prompt or (bool(segment.until) and index < self._last[segment.until])


_NONE_PAST = Past(())


@lru_cache(maxsize=64)
def marks_of(document: Document) -> frozenset[str]:
    """Return what only this format and those like it have. What is ordinary text elsewhere counts with what follows."""
    segments = [one for turn in document.known_turns for one in turn.segments]
    ordinary = {literal for one in segments if one.tentative for literal in (one.open, one.close)}
    found = {literal.strip() for literal in document.literals if literal not in ordinary}
    found |= {f"{one.open}{one.body.begins}".strip() for one in segments if one.tentative}
    found |= {turn.open.strip() for turn in document.known_turns}
    for close in {turn.close.strip() for turn in document.known_turns}:  # what stands before one may end a text
        found = {mark if mark == close else mark.removesuffix(close) for mark in found}
    return frozenset(mark for mark in found if any(map(str.isalpha, mark)))


def marks_in(document: Document, text: str) -> frozenset[str]:
    """Return the marks of a format that stand in a text, a line of their own where they are one. A line before every
    closing of a turn is one, too."""
    found = {mark for mark in marks_of(document) if mark in text}
    lines = {one.strip() for one in document.literals if one.endswith("\n")}
    lines -= {one.strip() for one in document.literals if not one.endswith("\n")}
    found -= {mark for mark in found & lines if not re.search(rf"{re.escape(mark)}[ \t]*(?:\r?\n|\Z)", text)}
    for close in {turn.close.rstrip() for turn in document.turns}:
        core = close.lstrip()
        if core != close and text.count(close) == text.count(core) > 0:
            found.add(close)
    return frozenset(found)


def marks_around(document: Document, text: str, marks: frozenset[str], said: Conversation) -> frozenset[str]:
    """Return those marks of a text that stand in it, escaped or not, more often than in what is said with it."""
    escape = layout_of(document).escape
    contents = list(_contents(said))
    spelled = {mark: {mark, escape.apply(mark)} for mark in marks}
    return frozenset(
        mark for mark in marks if sum(map(text.count, spelled[mark])) > sum(one.count(mark) for one in contents)
    )


def _contents(said: Conversation) -> Iterator[str]:
    """Give all texts of a conversation, and the arguments of its calls."""
    for item in said.items:
        if isinstance(item, ToolCall):
            yield item.arguments
        yield from (part.text for part in getattr(item, "content", ()) if isinstance(part, Text))
    yield from (tool.description or "" for tool in said.tools)


def speaker_at(layout: Layout, items: Sequence[Item], first: int, out: Writer) -> int:
    """Return where the item stands that says who speaks in the turn that opens at `first`: its text; -1 without one."""
    before = items[first]
    for at in range(first, len(items)):
        item = items[at]
        apart = (before.kind, item.kind) not in layout.joints or item.turn == "new"
        if at > first and apart:
            return -1
        if item.kind in SPOKEN and _says(layout, item, out):
            return at
        before = item
    return -1


def _says(layout: Layout, item: Item, out: Writer) -> bool:
    """Return whether an item will be written."""
    content = getattr(item, "content", ())
    if not content or any(type(part) is Text for part in content):
        return True
    place = layout.place_for(item)
    return place is not None and place.body.shows(item, Writer(out.escape, out.archive))
