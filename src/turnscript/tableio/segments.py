"""Owns the checks of turns, segments and attributes: that each can be written and read by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from msgspec import Struct

from turnscript.core.conversation import Extra, System, Thinking, ToolCall, User
from turnscript.engine.attributes import AROUND, SPOKEN
from turnscript.engine.layout import layout_of
from turnscript.engine.namedcalls import BLANKS, NamedCall
from turnscript.engine.table import Attribute, Document, Segment, Turn
from turnscript.tableio.bodies import BODIES, TELLING, name_of
from turnscript.tableio.tables import Table, not_among, unfit

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_END_BY_THEMSELVES = frozenset({"json-call", "named-call", "json-result", "function-call"})  # as their brackets tell
# What no attribute holds: the parser's own notes, and attributes that no table names.
_NEVER = frozenset({"as_object", "open", "at", "attributes", "seal"})
_TYPES: Mapping[Any, str] = {str: "text", bool: "flag", int: "number", Extra: "object", list[str]: "names"}
_NEEDS_CLOSE = frozenset({"xml-parameters", "tag-call", "addressed-call", "element-call"})
_MARKED = frozenset({"named-call", "labelled"})


def turns_of(document: Document, table: Table) -> Iterator[tuple[Turn, Table]]:
    """Every turn and the table that declares it."""
    yield from zip(document.turns, table["turn"], strict=True)


def segments_of(turn: Turn, place: Table, read_only: bool = False) -> Iterator[tuple[Segment, Table]]:
    """Every segment of a turn and the table that declares it. `read_only`: also those that are never written."""
    segments, tables = turn.segments, place["segment"]
    if read_only:
        segments, tables = (*segments, *turn.also_read), [*tables, *place.get("also_read", ())]
    yield from zip(segments, tables, strict=True)


def check_turn(turn: Turn, place: Table, document: Document) -> None:
    """Raise InvalidFormat for what cannot be in a turn."""
    if not turn.segments:
        raise unfit(place.at("segment"), "a turn needs at least one segment", "[[format.turn.segment]]")
    if (turn.attributes or turn.head_end) and not turn.head_end.startswith("\n"):
        message = "the opening of a turn with a `head_end` fills a line, and `head_end` begins with its line break"
        raise unfit(place.at("head_end"), message, 'such as "\\n"', repr(turn.head_end))
    _check_marks(turn, place)
    if turn.lead.strip():
        message = "`lead` is white space that the model writes itself; other text belongs to `open`"
        raise unfit(place.at("lead"), message, "white space", repr(turn.lead))
    if turn.open[:1].isspace():
        message = "white space before a turn is no mark of it; put it into the `separator`"
        raise unfit(place.at("open"), message, "some text", repr(turn.open))
    bare = [inner for segment, inner in segments_of(turn, place, read_only=True) if segment.bare]
    lodged = [segment.kind for segment in turn.segments if segment.bare] == [User.kind, System.kind]
    if len(bare) > 1 and not lodged:
        message = f"one segment of a turn can be its plain text, and {bare[0].path} is that; give this one an `open`"
        raise unfit(bare[1].path, message, "an `open`")
    _check_attributes(turn.attributes, place, _turn_fields(turn))
    for segment, inner in segments_of(turn, place, read_only=True):
        _check_opening(segment, inner)
        _check_body(segment, inner)
        _check_end(segment, turn, document, inner)
        _check_name(segment, inner)
        _check_unopened(segment, inner)
        _check_passing(segment, document, inner)


def _turn_fields(turn: Turn) -> Mapping[str, str]:
    """What the opening of a turn can say: texts of the item that speaks."""
    items = [segment.item for segment in turn.segments if segment.kind in SPOKEN] or [turn.segments[0].item]
    first, *others = (attribute_fields(item) for item in items)
    return {
        field: type_
        for field, type_ in first.items()
        if type_ == "text" and field not in AROUND and all(field in other for other in others)
    }


def _check_marks(part: Turn | Segment, place: Table) -> None:
    for key in ("open", "close"):
        literal: str = getattr(part, key)
        if literal and not literal.strip():
            raise unfit(place.at(key), "white space alone marks nothing", "some text", repr(literal))


def _check_attributes(attributes: tuple[Attribute, ...], place: Table, fields: Mapping[str, str]) -> None:
    """Each attribute holds one of the fields, as what that is, and no key comes twice. `fields`: the type of each."""
    keys: set[str] = set()
    for index, attribute in enumerate(attributes):
        path = f"{place.at('attributes')}[{index}]"
        if not _KEY.fullmatch(attribute.key):
            raise unfit(f"{path}.key", f"{attribute.key!r} cannot be the key of an attribute", "a word", attribute.key)
        if attribute.key in keys:
            raise unfit(f"{path}.key", f"the attribute {attribute.key!r} is declared twice", got=attribute.key)
        keys.add(attribute.key)
        if not attribute.path and not attribute.written:
            continue  # a word of before, which is looked over
        for key, field in (("path", attribute.path), ("fallback", attribute.fallback or attribute.path)):
            if field not in fields:
                raise not_among(f"{path}.{key}", "no such field of the item", field, sorted(fields))
        if attribute.type != fields[attribute.path]:
            message = f"{attribute.path!r} is written as the type {fields[attribute.path]!r}"
            raise unfit(f"{path}.type", message, repr(fields[attribute.path]), attribute.type)


@cache
def attribute_fields(item: type[Struct]) -> Mapping[str, str]:
    """The fields of an item that an attribute can hold, and the type of each as an attribute."""
    types = get_type_hints(item)
    found = {field: _attribute_type(types[field]) for field in item.__struct_fields__ if field not in _NEVER}
    return {field: type_ for field, type_ in found.items() if type_}


def _attribute_type(hint: Any) -> str:
    """What an attribute for a field of this type is; empty if it cannot be one."""
    if get_origin(hint) is Literal:
        return "text"
    if NoneType in get_args(hint):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    return _TYPES.get(hint, "")


def _check_opening(segment: Segment, place: Table) -> None:
    for key in ("close", "head_end", "attributes", "group", "also_closed_by"):
        if segment.bare and getattr(segment, key):
            message = f"a segment with a {key!r} needs an `open`; without one it is the plain text of its turn"
            raise unfit(place.at(key), message, "an `open`")
    _check_marks(segment, place)
    if (segment.attributes or segment.head_end) and not segment.head_end.strip():
        raise unfit(place.at("head_end"), "an opening that takes attributes needs a `head_end`", 'such as ">\\n"')
    if re.search(r"\n|.<", segment.head_end.rstrip()):
        message = "attributes end at the next `<` or line break, so `head_end` may begin with a `<` and holds no other"
        raise unfit(place.at("head_end"), message, 'such as ">\\n"', repr(segment.head_end))
    if segment.head_end and "\n" in segment.open:
        message = "between `open` and `head_end` stand attributes, on one line; move the line break into `head_end`"
        raise unfit(place.at("open"), message, "no line break", repr(segment.open))
    _check_attributes(segment.attributes, place, attribute_fields(segment.item))
    shown = sorted(one.path for one in segment.attributes if one.prompt and one.written and one.default is None)
    if segment.required and segment.required not in shown:
        raise not_among(place.at("required"), "no attribute that is always written holds", segment.required, shown)
    if segment.group is not None and not (segment.group.open.strip() and segment.group.close.strip()):
        raise unfit(place.at("group"), "a group needs an `open` and a `close`", "some text")


def _check_body(segment: Segment, place: Table) -> None:
    """A payload's shape must fit the kind of item, and what its opening can say."""
    shape = name_of(segment.body, BODIES)
    if segment.kind not in BODIES[shape][1]:
        fitting = ", ".join(name for name, (_, kinds) in BODIES.items() if segment.kind in kinds)
        message = f"{shape!r} cannot hold an item of the kind {segment.kind!r}; it takes one of: {fitting}"
        raise unfit(place.at("body"), message, f"one of: {fitting}", shape)
    if shape in TELLING and not segment.head_end.strip():
        message = f"{shape!r} says in the opening tag how it is written; the tag needs a `head_end`"
        raise unfit(place.at("head_end"), message, 'such as ">\\n"')
    if shape in _MARKED:
        _check_own_marks(segment, place)
    for literal in segment.body.literals if shape in _NEEDS_CLOSE - {"element-call"} else ():
        if not re.match(r"<.", literal):  # the reader of such a payload looks for `<`
            message = "the tags of a payload begin with `<`"
            raise unfit(place.at("body"), message, 'such as open = "<name" and close = "</name>"', repr(literal))
    if segment.tentative and segment.kind != ToolCall.kind:
        raise unfit(place.at("tentative"), "only a tool call counts only if it is one", "false", "true")
    if segment.named and segment.kind != ToolCall.kind:
        raise unfit(place.at("named"), "only a tool call has a tool's name on the line before it", "false", "true")


def _check_passing(segment: Segment, document: Document, place: Table) -> None:
    """What prompts forget they forget when a kind follows that is there."""
    if not segment.until:
        return
    kinds = {one.kind for turn in document.turns for one in turn.segments}
    if segment.until not in kinds:
        raise not_among(place.at("until"), "no segment is of the kind", segment.until, kinds)
    if not document.grows:
        message = "prompts that forget do not grow; say in `grows` why, for who keeps prompts between turns"
        raise unfit(place.at("until"), message, "`grows` of the format")


def _check_unopened(segment: Segment, place: Table) -> None:
    """A call without an opening is known by its own first words, which outside of a group may be a text's too."""
    if segment.open or segment.kind != ToolCall.kind:
        return
    if not segment.body.openings:
        message = f"{name_of(segment.body, BODIES)!r} has no first words that a reader could know; give it an `open`"
        raise unfit(place.at("open"), message, 'some text, or body = "json-call"')
    if not segment.tentative and segment.group is None:
        message = "a call without an `open` begins as a JSON text does, so it counts only if it is one"
        raise unfit(place.at("tentative"), message, "true", "false")
    for key in ("close", "head_end", "attributes", "also_closed_by", "named"):
        if getattr(segment, key):
            raise unfit(place.at(key), f"a call with a {key!r} needs an `open`", "an `open`")


def _check_own_marks(segment: Segment, place: Table) -> None:
    """What stands between the parts of a payload is no white space, and none of it is the beginning of another."""
    body, marks = segment.body, segment.body.literals
    if isinstance(body, NamedCall):
        _check_number(body, place)
    # No label holds a line break, and no name does: that would be a loss.
    if not all(mark.strip() or (mark == "\n" and mark == getattr(body, "mark", "")) for mark in marks):
        raise unfit(place.at("body"), "white space alone marks nothing", "a mark such as [ARGS]", repr(marks[-1]))
    if len(marks) > 1 and (marks[0].startswith(marks[1]) or marks[1].startswith(marks[0])):
        message = f"{marks[0]!r} and {marks[1]!r} could be confused; one begins with the other"
        raise unfit(place.at("body"), message, "two marks", marks[0])


def _check_number(body: NamedCall, place: Table) -> None:
    """A number at the end of an id is found there again."""
    if body.number_mark and body.id_mark:
        message = "with a `number_mark` the name and the number are the id, so none stands behind an `id_mark`"
        raise unfit(place.at("body"), message, "one of both", body.id_mark)
    if re.search(r"[0-9\s]", body.number_mark):
        message = "a number begins behind `number_mark`, so that holds no digit and no white space"
        raise unfit(place.at("body"), message, 'such as ":"', repr(body.number_mark))
    if body.prefix.strip(BLANKS) != body.prefix:
        message = "white space around a call says nothing, so `prefix` has none at its ends"
        raise unfit(place.at("body"), message, 'such as "functions."', repr(body.prefix))


def _check_name(segment: Segment, place: Table) -> None:
    """A call must say which tool it is of."""
    if segment.kind != ToolCall.kind or segment.body.says_name or segment.named or segment.required == "name":
        return
    shape = name_of(segment.body, BODIES)
    message = f"{shape!r} holds the arguments alone, so an attribute must say which tool is called, and be required"
    expected = 'required = "name" and the attribute { key = "name", path = "name", prompt = true }'
    raise unfit(place.at("required"), f"{message}: {expected}", expected, segment.required)


def _check_end(segment: Segment, turn: Turn, document: Document, place: Table) -> None:
    """A text without a closing ends with its turn, so nothing may follow it there."""
    shape = name_of(segment.body, BODIES)
    last, key = (segment.group.close, "group") if segment.group else (segment.close, "close")
    if last[-1:].isspace() and segment.model:
        message = "white space behind a closing belongs to what follows; put it into the joints"
        raise unfit(place.at(key), message, repr(last.rstrip()), repr(last))
    if segment.bare or segment.close.strip() or shape in _END_BY_THEMSELVES:
        return
    if document.anchored or shape in _NEEDS_CLOSE:
        raise unfit(place.at("close"), "this segment needs a `close`", "a `close`")
    own = {one.kind for one in turn.segments}
    followers = [after for before, after in document.joints if before == segment.kind and after in own]
    escape = layout_of(document).place_of(turn, segment).escape
    openings = [one.open.strip() for one in turn.segments if one.kind in followers]
    if followers and not all(one and escape.holds(one) for one in openings):
        message = f"this segment needs a `close`, because {followers[0]!r} may follow it in the same turn"
        raise unfit(place.at("close"), message, "a `close`")
    if segment.kind == Thinking.kind:
        raise unfit(place.at("close"), "a thought needs a `close`", "a `close`")
