"""Owns the `[prompts]` section of ai00's configuration: the names, prefixes and stops that it sets, as a format.

    [prompts]
    role_assistant = "bot"
    assistant_prefix = "<ai00:bot>\\n"
    default_stop_sequences = ["</ai00:bot>"]

It configures a format of ai00: the one whose turns have tags, or the one with labels if the prefix is a label such as
`Assistant:`. A role's name changes what opens and closes its turns, for writing and reading; where a prefix or a stop
repeats the default spelling of those, it follows (requirements R-A-19, R-G-23, D-A-19).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from turnscript.engine.spans import flatten
from turnscript.engine.table import Document, Generation, Segment, ToolsPlace, Turn
from turnscript.formats.format import Format
from turnscript.tableio.probe import check_reading
from turnscript.tableio.sense import check
from turnscript.tableio.structs import data_of
from turnscript.tableio.tables import InvalidFormat, Table, not_among, text_at, texts_at

SECTION = "prompts"
# The formats of the program whose section this is: its name begins theirs.
_FAMILY = "ai00-"
ROLES = {"role_system": "system", "role_user": "user", "role_assistant": "assistant"}
PREFIX, THINKING_PREFIX, STOPS = "assistant_prefix", "assistant_prefix_thinking", "default_stop_sequences"
SUFFIXES = {"thinking_suffix_short": "low", "thinking_suffix_standard": "medium", "thinking_suffix_extended": "high"}
HEADER, FOOTER = "tool_header", "tool_footer"
KEYS = (*ROLES, PREFIX, THINKING_PREFIX, STOPS, *SUFFIXES, HEADER, FOOTER)
"""Every key of the section."""
_TAGS = re.compile(r"[^\s<>/\"=]+"), "the name of a tag, without `<`, `>`, `/` and spaces"
_LABELS = re.compile(r"[^\s:<>](?:[^\n:<>]*[^\s:<>])?"), "a label without `:`, tags and line breaks"
_OPENS_A_TAG = "<"


def read_prompts(table: Table, known: Mapping[str, Format]) -> Format:
    """The format that the section configures. Raises InvalidFormat with the key."""
    for key in table:
        if key not in KEYS:
            raise not_among(table.at(key), "unknown key", key, KEYS)
    base = base_of(table, known)
    document = base.document
    names = _names(table, document)
    follow = _follower(document, names)
    turns = tuple(_renamed(turn, names.get(turn.role, "")) for turn in document.turns)
    document = replace(document, turns=turns)
    document = _with_prefix(table, document, follow)
    document = replace(document, generation=_generation(table, document, follow))
    document = _with_tools(table, document)
    format_ = replace(base, title=f"{base.title}, as [{SECTION}] sets it", document=document, clues=())
    declared = Table(data_of(format_), SECTION)
    try:
        check(format_, declared)
        check_reading(format_, declared)
    except InvalidFormat as error:
        raise InvalidFormat(error.message, path=SECTION, expected=error.expected, got=error.got) from None
    return format_


def configured(table: Table, known: Mapping[str, Format]) -> tuple[str, tuple[str, ...]]:
    """Return the name of the format that the section configures, and the keys of other formats that it has besides.

    ai00 has one section for all: the texts around a list of tools say nothing where the list stands in tags. Raises
    InvalidFormat with the key.
    """
    base = base_of(table, known)
    return base.name, () if has_texts(base.document) else tuple(key for key in (HEADER, FOOTER) if key in table)


def base_of(table: Table, known: Mapping[str, Format]) -> Format:
    """The format of ai00 that is meant: with labels if a prefix is one, else with tags."""
    prefix = next((text_at(table[key], table.at(key)) for key in (PREFIX, THINKING_PREFIX) if key in table), "")
    labelled = bool(prefix.strip()) and not prefix.lstrip().startswith(_OPENS_A_TAG)
    for name, format_ in known.items():
        if name.startswith(_FAMILY) and labelled != bool(format_.document.model_turn.close):
            return format_
    raise InvalidFormat(f"no format is called {_FAMILY}...: there is nothing to configure", path=SECTION)


# Names of roles.


def _names(table: Table, document: Document) -> dict[str, str]:
    """What roles are called, by role, where the section says."""
    pattern, expected = _LABELS if not document.model_turn.close else _TAGS
    given = {role: key for key, role in ROLES.items() if key in table}
    taken = {_name_in(turn): turn.role for turn in document.turns if turn.role not in given}
    found: dict[str, str] = {}
    for role, key in given.items():
        name = text_at(table[key], table.at(key))
        if not pattern.fullmatch(name):
            raise InvalidFormat(f"expected {expected}", path=table.at(key), expected=expected, got=name)
        if name in taken:
            message = (
                f"the name {name!r} is that of the role {taken[name]!r} too; a reader could not tell the two apart"
            )
            raise InvalidFormat(message, path=table.at(key), expected="a name of its own", got=name)
        taken[name] = role
        found[role] = name
    return found


def _name_in(turn: Turn) -> str:
    """What a turn calls its role, as it is spelled there."""
    named = re.search(re.escape(turn.role), turn.open, re.IGNORECASE)
    return named[0] if named else turn.role


def _renamed(turn: Turn, name: str) -> Turn:
    if not name:
        return turn
    return replace(turn, open=_with_name(turn.open, turn.role, name), close=_with_name(turn.close, turn.role, name))


def _with_name(literal: str, role: str, name: str) -> str:
    return re.sub(re.escape(role), lambda _: name, literal, count=1, flags=re.IGNORECASE)


def _follower(document: Document, names: Mapping[str, str]) -> Callable[[str], str]:
    """Writes a text anew with the openings and closings of renamed roles."""
    changed: dict[str, str] = {}
    for turn in document.turns:
        after = _renamed(turn, names.get(turn.role, ""))
        changed |= {turn.open.strip(): after.open.strip(), turn.close.strip(): after.close.strip()}
    old = sorted((literal for literal in changed if literal), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, old)))
    return lambda text: pattern.sub(lambda found: changed[found[0]], text)


# Prefixes and stops.


def _with_prefix(table: Table, document: Document, follow: Callable[[str], str]) -> Document:
    """What opens the model's turn. White space that the prefix leaves out is the model's to write."""
    turn = document.model_turn
    if PREFIX not in table:
        return document
    prefix = follow(text_at(table[PREFIX], table.at(PREFIX)))
    missing = turn.open.removeprefix(prefix) if turn.open.startswith(prefix) else ""
    if not prefix.strip() or missing.strip():
        message = f"this must open the model's turn, as {turn.open!r} does"
        raise InvalidFormat(message, path=table.at(PREFIX), expected=f"such as {turn.open!r}", got=repr(prefix))
    more = prefix.removeprefix(turn.open) if prefix.startswith(turn.open) else ""
    opened = replace(turn, open=prefix, lead=missing + turn.lead.removeprefix(more))
    return replace(document, turns=tuple(opened if one is turn else one for one in document.turns))


def _generation(table: Table, document: Document, follow: Callable[[str], str]) -> Generation:
    generation = document.generation
    stops = tuple(map(follow, generation.stops))
    more = tuple(follow(stop) for stop in generation.stops_with_tools if stop not in generation.stops)
    if STOPS in table:
        stops = tuple(map(follow, texts_at(table[STOPS], table.at(STOPS))))
        if not stops or "" in stops:
            message = "at least one string must end what the model writes, and none may be empty"
            raise InvalidFormat(message, path=table.at(STOPS), expected="strings", got=repr(list(stops)))
    hints = dict(generation.hints)
    for key, effort in SUFFIXES.items():
        if key in table:
            hints = {one: hints.get(one, "") for one in SUFFIXES.values()}
            hints[effort] = text_at(table[key], table.at(key))
    prefix = text_at(table[PREFIX], table.at(PREFIX)) if PREFIX in table else ""
    return replace(
        generation,
        stripped=generation.stripped and prefix == prefix.rstrip(),
        stops=stops,
        stops_with_tools=(*stops, *more),
        thinking_prefill=_thinking_prefill(table, document, follow),
        hints=hints,
    )


def _thinking_prefill(table: Table, document: Document, follow: Callable[[str], str]) -> str | None:
    """How much of a thought's opening the prompt writes; None if it is all of it."""
    if THINKING_PREFIX not in table:
        return document.generation.thinking_prefill
    path = table.at(THINKING_PREFIX)
    prefix = follow(text_at(table[THINKING_PREFIX], path))
    turn = document.model_turn
    thought = document.segment(document.generation.thinking_kind)
    opened, opening = f"{turn.open}{turn.lead}", f"{thought.open}{thought.head_end}"
    prefill = prefix.removeprefix(opened)
    if not (prefix.startswith(opened) and opening.startswith(prefill)) and prefix != turn.open:
        message = f"this must be {opened!r}, which opens the model's turn, and then {opening!r} or its beginning"
        raise InvalidFormat(message, path=path, expected=repr(opened + opening), got=repr(prefix))
    if prefix == turn.open:
        return ""
    return None if prefill == opening else prefill


# Tools.


def _with_tools(table: Table, document: Document) -> Document:
    """The texts around the tool list. Where blank lines end turns, these have none either."""
    place = document.tools_place
    given = {key: text_at(table[key], table.at(key)) for key in (HEADER, FOOTER) if key in table}
    if not given:
        return document
    if place is None or not has_texts(document):
        key = next(iter(given))
        message = f'the tool list of this format has no such text; with {PREFIX} = "Assistant:" it has'
        raise InvalidFormat(message, path=table.at(key), expected=f"no {key}")
    for key, text in given.items():
        if not text.strip():
            raise InvalidFormat("a reader finds the tool list by this text", path=table.at(key), expected="some text")
    if HEADER in given:
        opening = f"{flatten(given[HEADER])}\n"
        if opening != place.open:
            place = replace(place, open=opening)
            document = _protecting(document, place)
    if FOOTER in given:
        place = replace(place, close=f"\n{flatten(given[FOOTER])}", footer="")
    return replace(document, tools_place=place)


def has_texts(document: Document) -> bool:
    """Return whether texts stand around the list of tools that the section can change."""
    return document.tools_place is not None and document.flattened


def _protecting(document: Document, place: ToolsPlace) -> Document:
    """The first line of the tool list is broken where it stands in a system text, beside all that is broken there."""
    line = place.open.split("\n", 1)[0]
    rule = line[:1], (f"{line[1:]}\n",)

    def protected(segment: Segment) -> Segment:
        return replace(segment, protects=(rule,)) if segment.kind == "system" else segment

    turns = tuple(replace(turn, segments=tuple(map(protected, turn.segments))) for turn in document.turns)
    return replace(document, turns=turns)
