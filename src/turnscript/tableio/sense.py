"""Owns the checks that a whole format makes sense, each with the key where it does not and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from turnscript.core.conversation import System, Thinking, ToolCall, ToolResult, User
from turnscript.engine.layout import layout_of
from turnscript.engine.system import ALONE, BEFORE, BEHIND
from turnscript.engine.table import Document, Generation, Segment, ToolsPlace, Turn
from turnscript.engine.toollists import JsonTools
from turnscript.formats.format import Format
from turnscript.tableio.beginnings import check_beginnings
from turnscript.tableio.literals import check_literals
from turnscript.tableio.segments import check_turn, segments_of, turns_of
from turnscript.tableio.tables import Table, not_among, unfit

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_EFFORTS = ("low", "medium", "high")
_CORRELATIONS = {
    "hidden": "neither shows an id; results answer in order",
    "named": "results show names",
    "on_results": "a result shows the id of its call, and the call may, too",
}
_SHOWN = {"named": "name", "on_results": "id"}
_WIDEST = 32  # a reader looks over no more white space than this
_BLOCKS = "with `anchored = true` each item is a block by itself"


def check(format_: Format, table: Table) -> None:
    """Raise InvalidFormat for the first thing that cannot be. `table`: what the format was read from."""
    document = format_.document
    if not _NAME.fullmatch(format_.name):
        message = f"the name {format_.name!r} must be lower-case letters, digits, '.', '_' and '-'"
        raise unfit(table.at("name"), message, "a name such as my-format", format_.name)
    if document.separator.strip():
        message = "what stands between turns is white space; a mark belongs to the turn before or behind"
        raise unfit(table.at("separator"), message, "line breaks or spaces", repr(document.separator))
    if "blank" in table and not document.flattened:
        message = "`blank` says which lines are taken out of contents; only a format with `flattened = true` takes any"
        raise unfit(table.at("blank"), message, "flattened = true", document.blank)
    _check_kinds(document, table)
    for turn, place in turns_of(document, table):
        check_turn(turn, place, document)
    _check_joints(document, table)
    _check_generation(document, table)
    if document.anchored:
        _check_blocks(document, table)
    else:
        _check_turns(document, table)
        _check_system(document, table)
    _check_tools(document, table)
    check_literals(document, table)


def _places(document: Document, table: Table) -> Iterator[tuple[Turn, Segment, Table]]:
    """Every segment that is written, with its turn and its place."""
    for turn, place in turns_of(document, table):
        for segment, inner in segments_of(turn, place):
            yield turn, segment, inner


def _check_kinds(document: Document, table: Table) -> None:
    """Each kind of item has one place; of thoughts, each kind of thought."""
    seen: dict[tuple[str, str], Table] = {}
    for _, segment, place in _places(document, table):
        if segment.of and segment.kind != Thinking.kind:
            raise unfit(place.at("of"), "only thoughts are of several kinds", got=segment.kind)
        known = seen.get((segment.kind, segment.of)) or seen.get((segment.kind, ""))
        if known is None and not segment.of:
            known = next((one for (kind, _), one in seen.items() if kind == segment.kind), None)
        if known is not None:
            remedy = "; several kinds of thought need an `of` each" if segment.kind == Thinking.kind else ""
            message = f"the kind {segment.kind!r} has a place already, at {known.path}{remedy}"
            raise unfit(place.at("kind"), message, "each kind once", segment.kind)
        seen[segment.kind, segment.of] = place


def _check_joints(document: Document, table: Table) -> None:
    turns = {segment.kind: index for index, turn in enumerate(document.turns) for segment in turn.segments}
    for key, pairs in (("joints", document.joints), ("also_joined", document.also_joined)):
        for before, after in pairs:
            path = table[key].at(f"{before} {after}")
            for kind in (before, after):
                if kind not in turns:
                    raise not_among(path, "no segment is of the kind", kind, turns)
            joint = pairs[before, after]
            if (joint.strip() and document.segment(after).bare) or len(joint) > _WIDEST:
                message = "what leads to the plain text of a turn is white space, and no joint is long"
                raise unfit(path, message, "line breaks or spaces", repr(joint))
            if turns[before] != turns[after]:
                message = f"{before!r} and {after!r} stand in different turns, so nothing joins them"
                raise unfit(path, message, "two kinds of one turn")
            if key == "also_joined" and before == after and document.segment(before).bare:
                message = f"{before!r} is the plain text of its turn, and two texts joined would read as one"
                raise unfit(path, message, "a segment with an `open`")
    if not document.anchored:
        _check_goes_on(document, table)


def _check_goes_on(document: Document, table: Table) -> None:
    """Check that a turn of the model in which results stand can go on behind them with all that a model writes."""
    for turn in document.turns:
        kinds = [segment.kind for segment in turn.segments]
        for kind in [segment.kind for segment in turn.segments if segment.model]:
            if ToolResult.kind in kinds and (ToolResult.kind, kind) not in document.joints:
                message = (
                    f"results stand in the turn of the model, which goes on with its {kind!r}; nothing joins the two"
                )
                pair = f"{ToolResult.kind} {kind}"
                raise unfit(table["joints"].at(pair), message, f'what stands between, as "{pair}" = "\n"')


# What the model writes.


def _check_generation(document: Document, table: Table) -> None:
    generation, place = document.generation, table["generation"]
    kinds = [segment.kind for _, segment, _ in _places(document, table)]
    if generation.kind not in kinds:
        raise not_among(place.at("kind"), "no segment is of the kind that a prompt opens:", generation.kind, kinds)
    if generation.thinking_kind not in kinds and "thinking_kind" in place:
        raise not_among(place.at("thinking_kind"), "no segment is of the kind", generation.thinking_kind, kinds)
    for key in ("stops", "stops_with_tools"):
        stops: tuple[str, ...] = getattr(generation, key)
        if not stops:
            raise unfit(place.at(key), "at least one string must end what the model writes", 'such as ["</turn>"]')
        if "" in stops:
            path = f"{place.at(key)}[{stops.index('')}]"
            raise unfit(path, "the empty string would end every answer at once", "some text", "nothing")
    _check_hints(generation, place)
    for _, segment, inner in _places(document, table):
        if segment.kind in (generation.kind, generation.thinking_kind) and not segment.model:
            message = f"a prompt opens the {segment.kind!r} for the model to write, so this needs `model = true`"
            raise unfit(inner.at("model"), message, "true", "false")
        for key, kind in (("thinking_prefill", generation.thinking_kind), ("answer_prefill", generation.kind)):
            if segment.kind == kind:
                _check_prefill(key, getattr(generation, key), segment, place, inner)


def _check_hints(generation: Generation, place: Table) -> None:
    for effort in generation.hints:
        if effort not in _EFFORTS:
            raise not_among(f"{place.at('hints')}.{effort}", "no such effort", effort, _EFFORTS)
    for effort in _EFFORTS:
        if generation.hints and effort not in generation.hints:
            message = f"the effort {effort!r} is missing; each of low, medium and high needs its words"
            raise unfit(place.at("hints"), message, f"the key {effort}")


def _check_prefill(key: str, prefill: str | None, segment: Segment, place: Table, inner: Table) -> None:
    opening = f"{segment.open}{segment.head_end}"
    if prefill is not None and not opening.startswith(prefill):
        what = "a thought" if segment.kind == Thinking.kind else "an answer"
        message = f"{prefill!r} is no beginning of {opening!r}, which opens {what} at {inner.path}"
        raise unfit(place.at(key), message, f"a beginning of {opening!r}", prefill)


# The two sorts of formats.


def _check_turns(document: Document, table: Table) -> None:
    """Speakers' turns: each has an opening and an end, and what the model writes stands in one of them."""
    kind = document.generation.kind
    speaking = next(turn for turn, segment, _ in _places(document, table) if segment.kind == kind)
    check_beginnings(document, table)
    for turn, segment, inner in _places(document, table):
        if segment.model and turn is not speaking:
            message = f"the model writes the turn of {kind!r}, and this is another; drop `model`, or move the segment"
            raise unfit(inner.at("model"), message, "false", "true")
        if segment.kind in (ToolCall.kind, ToolResult.kind):
            _check_correlation(document.results, segment, table, inner)
    for key in ("metadata", "tools_section"):
        if key in table:
            raise unfit(table.at(key), "only a format whose items are blocks (`anchored = true`) has such a section")


def _check_correlation(style: str, segment: Segment, table: Table, place: Table) -> None:
    """How a result finds its call is said, and the result shows what that takes."""
    if style not in _CORRELATIONS:
        styles = "; ".join(f"{word!r}: {meaning}" for word, meaning in _CORRELATIONS.items())
        message = f"with calls or results, `results` must say how a result finds its call ({styles})"
        raise unfit(table.at("results"), message, f"one of: {', '.join(_CORRELATIONS)}", style)
    needed = _SHOWN.get(style, "")
    shown = [*segment.body.carries, *(one.path for one in segment.attributes_shown)]
    if segment.kind == ToolResult.kind and needed and needed not in shown:
        message = f"with results = {style!r} a result shows its {needed}, and this segment has no place for it"
        shows = f'attributes = [{{ key = "{needed}", path = "{needed}", prompt = true }}]'
        raise unfit(place.at("attributes"), message, f"{shows} in the `segment` of the kind {segment.kind!r}")


def _check_system(document: Document, table: Table) -> None:
    """The system turn holds nothing but its text, and is there if something is written in it."""
    found = [(turn, segment, inner) for turn, segment, inner in _places(document, table) if segment.kind == System.kind]
    for key in ("tools", "flags", "always_system"):
        if not found and table.get(key):
            message = f"{key!r} is written in the system turn, and no segment is of the kind 'system'"
            raise unfit(table.at(key), message, 'a segment with kind = "system"')
    for turn, segment, inner in found:
        if len(turn.segments) > 1 and turn.segments[0].kind == User.kind and segment.bare:
            _check_lodged(document, table, inner)
        elif len(turn.segments) > 1 or not segment.bare:
            message = (
                "the system text is the plain text of a turn of its own: no `open`, and no other segment there; "
                "or it stands in the user's turn, behind the segment of the kind 'user'"
            )
            raise unfit(inner.path, message, "one segment without `open`")


def _check_lodged(document: Document, table: Table, place: Table) -> None:
    """Instructions in the user's turn: they lead to the user's text, and nothing else is written with them."""
    if (System.kind, User.kind) not in document.joints:
        message = "instructions in the user's turn stand before the user's text; say what joins the two"
        raise unfit(place.path, message, f'"{System.kind} {User.kind}" in `joints`')
    for key in ("tools", "flags", "always_system"):
        apart = key == "tools" and document.tools_place is not None and document.tools_place.apart
        if table.get(key) and not apart:
            message = f"{key!r} is read in a system turn, and here the instructions stand in the user's"
            raise unfit(table.at(key), message, "a turn of their own for instructions")


def _check_blocks(document: Document, table: Table) -> None:
    """Items that are blocks by themselves: no turns, and every block opens and closes on lines of its own."""
    for key in ("joints", "also_joined", "tools", "flags"):
        if table.get(key):
            raise unfit(table.at(key), f"{_BLOCKS}; nothing joins two, or stands in one with it")
    if len(document.turns) > 1:
        raise unfit(table["turn"][1].path, f"{_BLOCKS}; declare all of them in one turn", "one [[format.turn]]")
    turn, place = document.turns[0], table["turn"][0]
    for key in ("open", "close", "lead", "head_end", "behind", "no_thought", "several"):
        if getattr(turn, key):
            raise unfit(place.at(key), f"{_BLOCKS}; turns have no literals", "nothing", getattr(turn, key))
    for segment, inner in segments_of(turn, place):
        _check_block(segment, f"{document.tag_end}\n", inner)


def _check_block(segment: Segment, head_end: str, place: Table) -> None:
    if segment.bare:
        raise unfit(place.at("open"), f"{_BLOCKS}; it needs an `open`", "some text")
    if segment.head_end != head_end:
        message = f"{_BLOCKS}; every opening ends in `tag_end` and a newline: {head_end!r}"
        raise unfit(place.at("head_end"), message, repr(head_end), repr(segment.head_end))
    if not segment.close.startswith("\n"):
        message = f"{_BLOCKS}; a closing fills a line, so it begins with a newline"
        raise unfit(place.at("close"), message, repr(f"\n{segment.close}"), repr(segment.close))


# Tools.


def _check_tools(document: Document, table: Table) -> None:
    place = document.tools_place
    if place is None:
        return
    inner = table["tools"]
    if not place.open.strip():
        raise unfit(inner.at("open"), "a reader finds the tool list by its `open`", "some text")
    for key in () if place.apart else ("open", "close", "joint", "continued"):
        for turn in document.turns:
            end = turn.close.strip() or f"{document.separator}{turn.open.strip()}"
            if end and end in getattr(place, key):
                message = f"this holds {end!r}, which ends a turn, and the tool list stands inside of one"
                raise unfit(inner.at(key), message, f"a text without {end!r}")
    if not place.close.strip().endswith(place.footer.strip()):
        message = "`footer` must be the end of `close`: the part that a reader can do without"
        raise unfit(inner.at("footer"), message, "the end of `close`", place.footer)
    _check_order(document, place, table, inner)
    if place.continued and place.close:
        message = "text can follow the tools only where their end shows without a `close`"
        raise unfit(inner.at("continued"), message, "no `close`")


def _check_order(document: Document, place: ToolsPlace, table: Table, inner: Table) -> None:
    """A list before the text, or in a turn of its own, is found there again."""
    if place.order == BEHIND:
        return
    if place.apart:
        _check_apart(document, place, inner)
    for key in ("flags", "always_system") if place.order == ALONE else ():
        if table.get(key):
            message = f"a turn that holds the tools alone has no text; drop {key!r}"
            raise unfit(inner.at("order"), message, repr(BEHIND), place.order)
    if place.continued:
        message = f"`continued` leads to a text behind the list, and with order = {place.order!r} there is none"
        raise unfit(inner.at("continued"), message, "no `continued`")
    if place.order == BEFORE and not isinstance(place.body, JsonTools):
        raise unfit(inner.at("body"), "a list before the text ends where its JSON does", 'body = "json"')
    if place.order == BEFORE and place.body.between.strip():  # type: ignore[attr-defined]  # which tools of JSON have
        message = "before the text, white space alone may stand between two tools: other signs may be the text's"
        raise unfit(inner.at("body"), message, "a `between` of white space")


def _check_apart(document: Document, place: ToolsPlace, inner: Table) -> None:
    """A list that stands in no turn ends with its `close`, and nothing but instructions stands before it."""
    if not place.close.strip():
        raise unfit(inner.at("close"), "a list of tools that stands in no turn needs a `close`", "a `close`")
    for key in ("joint", "continued", "footer", "also_behind"):
        if getattr(place, key):
            message = f'with `order = "{place.order}"` the list stands in no turn: no text is before or behind it'
            raise unfit(inner.at(key), message, f"no {key!r}")
    if not layout_of(document).escape.holds(place.close.strip()):
        message = f"nothing keeps a tool's description from holding {place.close.strip()!r}, where the list ends"
        raise unfit(inner.at("close"), message, "a tag such as </tools>, or a rule in `escape`")
    if document.flattened or document.flags or document.always_system:
        message = f'with `order = "{place.order}"` a format has neither `flattened`, nor `flags`, nor `always_system`'
        raise unfit(inner.at("order"), message, repr(BEHIND), place.order)
