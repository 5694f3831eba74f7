"""Owns the checks of literals: no two are confused where a reader looks for both, and content cannot hold one."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from turnscript.core.conversation import System, ToolCall
from turnscript.engine.correlate import names_taken
from turnscript.engine.escape import Escape
from turnscript.engine.layout import layout_of
from turnscript.engine.machine import Reading
from turnscript.engine.table import Document, Group, Segment, Turn
from turnscript.tableio.segments import segments_of, turns_of
from turnscript.tableio.tables import InvalidFormat, Table, unfit


class _Literal(NamedTuple):
    """What a reader looks for, where it is declared, and whether attributes may follow it.

    `apart`: tells whether nothing that may follow it begins with a text, so that a longer literal is no other's
    beginning.
    """

    text: str
    path: str
    attributed: bool = False
    apart: Callable[[str], bool] | None = None


def check_literals(document: Document, table: Table) -> None:
    """Raise InvalidFormat for literals that cannot be told apart, from each other or from content."""
    openings = [
        _Literal(
            f"{turn.open}{'' if turn.attributes else turn.head_end}".strip(),
            place.at("open"),
            bool(turn.attributes),
            partial(_is_apart, document, turn),
        )
        for turn, place in turns_of(document, table)
        if turn.open
    ]
    if document.tools_place and document.tools_place.apart:
        openings.append(_Literal(document.tools_place.open.strip(), table["tools"].at("open")))
    looked_for = _Literals(openings)
    for turn, place in turns_of(document, table):
        ends = [_Literal(turn.close.strip(), place.at("close"))] if turn.close else []
        # What is only read may begin with the turn's closing: a model's text is looked at for the longer one.
        also = {one.open.strip() for one in turn.also_read if turn.close and one.open.startswith(turn.close.strip())}
        opened = _openings(turn, place, document.tag_end if document.anchored else "")
        taken = names_taken(document)
        apart: dict[str, Callable[[str], bool]] = {
            one.open.strip(): partial(_is_taken, taken) for one in turn.segments if one.kind == ToolCall.kind and taken
        }
        # What counts only if it is a call gives way to what is longer, which is looked for first.
        apart |= {one.open.strip(): bool for one in turn.also_read if one.tentative}
        opened = (one._replace(apart=apart.get(one.text)) for one in opened if one.text not in also)
        _Literals([*ends, *opened], looked_for)
        until = _Literals(ends, looked_for)
        for segment, inner in segments_of(turn, place):
            closings = [_Literal(segment.close.strip(), inner.at("close"))] if segment.close else []
            closings += [_Literal(segment.group.close.strip(), inner.at("group"))] if segment.group else []
            for closing in closings if not document.anchored else ():
                until.check(closing)
    _check_stops(document, table)
    _check_protected(document, table)


def _openings(turn: Turn, place: Table, tag_end: str) -> Iterator[_Literal]:
    """What opens the segments of a turn. Those of a group open with the group."""
    groups: set[Group] = set()
    for segment, inner in segments_of(turn, place, read_only=True):
        if segment.group is not None:
            if segment.group not in groups:
                yield _Literal(segment.group.open.strip(), inner.at("group"))
            groups.add(segment.group)
        elif segment.open:
            head_end = "" if segment.attributes else segment.head_end or tag_end
            yield _Literal(f"{segment.open}{head_end}".strip(), inner.at("open"), bool(segment.attributes))


class _Literals:
    """Literals that a reader looks for at once, these and those of `before`: no two may be confused.

    In order of their texts, so that what begins like another is found without a look at all: a format may have
    hundreds of turns, and each is looked for in each.
    """

    def __init__(self, literals: Iterable[_Literal], before: _Literals | None = None) -> None:
        self._before = before
        self._sorted: list[str] = []
        self._by_text: dict[str, _Literal] = {}
        self._lengths: set[int] = set()
        for literal in literals:
            self.check(literal)
            insort(self._sorted, literal.text)
            self._by_text[literal.text] = literal
            self._lengths.add(len(literal.text))

    def check(self, literal: _Literal) -> None:
        """Raise InvalidFormat if a reader could take this one for another, or another for this."""
        if self._before is not None:
            self._before.check(literal)
        if literal.text in self._by_text:
            known = self._by_text[literal.text]
            message = f"{literal.text!r} stands at {known.path} too; a reader could not tell the two apart"
            raise unfit(literal.path, message, "another literal", literal.text)
        for short, long in (*self._shorter(literal), *self._longer(literal)):
            if _begins(short, long) and not (short.apart and short.apart(long.text[len(short.text) :])):
                message = f"{short.text!r} ({short.path}) is the beginning of {long.text!r} ({long.path})"
                raise unfit(literal.path, f"{message}; a reader could confuse them", "another literal", literal.text)

    def _shorter(self, literal: _Literal) -> Iterator[tuple[_Literal, _Literal]]:
        for length in self._lengths:
            known = self._by_text.get(literal.text[:length]) if length < len(literal.text) else None
            if known is not None:
                yield known, literal

    def _longer(self, literal: _Literal) -> Iterator[tuple[_Literal, _Literal]]:
        for at in range(bisect_left(self._sorted, literal.text), len(self._sorted)):
            if not self._sorted[at].startswith(literal.text):
                return
            yield literal, self._by_text[self._sorted[at]]


def _is_taken(names: frozenset[str], rest: str) -> bool:
    """Return whether the rest of a longer opening begins with a name that no call can say."""
    return any(rest.startswith(name) for name in names)


def _is_apart(document: Document, turn: Turn, rest: str) -> bool:
    """Whether nothing behind the opening of a turn begins with `rest`: no content holds that, and no segment opens so.

    Then a turn whose opening is longer by that is another. A reader takes the longest opening.
    """
    layout = layout_of(document)
    openings = [(one.group or one).open.strip() for one in turn.segments if not one.bare]
    meets = any(one.startswith(rest) or rest.startswith(one) for one in openings)
    held = all(layout.place_of(turn, one).escape.holds(rest) for one in turn.segments if one.bare)
    return not meets and held and not turn.attributes and not turn.lead and not turn.no_thought


def _begins(short: _Literal, long: _Literal) -> bool:
    """Whether the one may be taken for the beginning of the other. Behind a name with attributes comes white space."""
    if not long.text.startswith(short.text):
        return False
    return not short.attributed or long.text[len(short.text)].isspace()


def _check_stops(document: Document, table: Table) -> None:
    """No stop may cut off what the model has to write to open a segment."""
    for key in ("stops", "stops_with_tools"):
        for index, stop in enumerate(getattr(document.generation, key)):
            for turn, place in turns_of(document, table):
                for segment, inner in segments_of(turn, place, read_only=True):
                    if segment.model and stop in f"{segment.open}{segment.head_end}":
                        path = f"{table['generation'].at(key)}[{index}]" if key in table["generation"] else table.path
                        message = f"{stop!r} would stop the model where it opens the segment at {inner.path}"
                        raise unfit(path, message, "what ends a turn", stop)


def _check_protected(document: Document, table: Table) -> None:
    """No content can hold what ends it: in a text, the escape breaks every literal that means something there."""
    layout = layout_of(document)
    for turn, place in turns_of(document, table):
        for segment, inner in segments_of(turn, place):
            if segment.body.machine(Reading(layout.escape)) is not None:
                continue  # its reader knows where it ends
            escape = layout.place_of(turn, segment).escape
            path = inner.at("escape") if segment.escape is not None else inner.path
            for literal in _ends_of(document, turn, segment):
                if literal and not escape.holds(literal):
                    raise _unprotected(literal, path, segment.escape is not None)
            _check_halves(document, turn, segment, escape, path)
            for literal, path in _marks_of(document, table) if segment.kind == System.kind else ():
                if not escape.holds(literal):
                    raise _unprotected(literal.strip().split("\n", 1)[0], path, segment.escape is not None)


def _check_halves(document: Document, turn: Turn, segment: Segment, escape: Escape, path: str) -> None:
    """No content ends with the beginning of a literal that the closing behind it would make whole, as `[e~` before
    `[e~[` does: it would be found there, and the closing would not."""
    closing = segment.close.strip() or turn.close.strip()
    for literal in (document.start.strip(), *_ends_of(document, turn, segment)) if not document.flattened else ():
        for size in range(1, len(literal)):
            half = literal[:size]
            if closing.startswith(literal[size:]) and escape.apply(half) == half:
                message = f"a content that ends with {half!r} and {closing!r} behind it hold {literal!r} too early"
                remedy = (
                    f'add the rule {{ lead = "{half[0]}", rest = ["{half[1:]}"] }}' if half[1:] else "choose another"
                )
                raise unfit(path, f"{message}; {remedy}", "literals of which none begins as another ends", literal)


def _ends_of(document: Document, turn: Turn, segment: Segment) -> Iterator[str]:
    """The literals that end a text: its own closing and its turn's, and what opens others in a turn of plain text or
    in a document of blocks.

    What a turn also reads is looked for in a model's answer alone, and not in what is written.
    """
    yield segment.close.strip()
    if not document.flattened:
        yield turn.close.strip()
        if turn.behind or not turn.close:  # an opening decides whether this turn begins, or goes on
            yield from (other.open.strip() for other in document.turns)
            yield turn.no_thought
            yield document.tools_place.open.strip() if document.tools_place and document.tools_place.apart else ""
    for other in turn.segments:
        if (segment.bare or document.anchored) and not other.bare and not other.tentative:
            yield (other.group or other).open.lstrip()
        if segment.bare and not other.open and other.tentative and (other.group is None or other.body.begins):
            yield f"{other.group.open.strip() if other.group else ''}{other.body.begins}"
    for section in (document.metadata, document.tools) if document.anchored else ():
        if section is not None:
            yield section.open


def _marks_of(document: Document, table: Table) -> Iterator[tuple[str, str]]:
    """What a reader looks for in a system text beside its end, and where that is declared."""
    place = document.tools_place
    if place is not None:
        yield f"{place.open}{'{' if place.continued else ''}", table["tools"].at("open")
    for kind, tag in document.flags.tags.items() if document.flags else ():
        yield tag, table["flags"]["tags"].at(kind)


def _unprotected(literal: str, path: str, explicit: bool) -> InvalidFormat:
    rule = f'{{ lead = "{literal[:1]}", rest = ["{literal[1:]}"] }}'
    message = f"nothing keeps a content from holding {literal!r}"
    if not literal[1:]:
        remedy = "choose a longer literal"
    elif explicit:
        remedy = f"add the rule {rule}"
    else:
        remedy = f"write it as a tag such as <name>, or declare for the format what is broken: escape = [{rule}]"
    return unfit(path, f"{message}; {remedy}", "a tag, or a rule in `escape`", literal)
