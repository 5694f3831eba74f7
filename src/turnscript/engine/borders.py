"""Owns where the turns and the tool list of a transcript begin and end, as patterns that its format makes."""

from __future__ import annotations

import re
from functools import lru_cache

from turnscript.engine.layout import layout_of
from turnscript.engine.table import Document, ToolsPlace


@lru_cache(maxsize=64)
def tag_line_end(document: Document) -> re.Pattern[str] | None:
    """Return the end of a tag's line, where the first line may end in a content. None where it never does."""
    turns = document.known_turns
    if document.flattened or all(f"{turn.open}{turn.head_end}".endswith("\n") for turn in turns):
        return None
    openings = [turn.open for turn in turns] + [one.open for turn in turns for one in turn.segments]
    bare = {role for turn in turns for role in turn.behind}  # behind which a content may begin at once
    tags = [turn.close for turn in turns if turn.close and turn.role not in bare]
    tags += [one for one in openings if one.endswith("\n")]
    if document.tools_place is not None:
        escape = layout_of(document).escape
        tags += [line for line in document.tools_place.open.split("\n")[:-1] if escape.holds(line)]
    patterns = [re.escape(tag.strip()) for tag in tags]
    labelled = [turn for turn in turns if any("\n" in segment.body.literals for segment in turn.segments)]
    patterns += [rf"{re.escape(f'{turn.open}{turn.head_end}')}[^\r\n]*" for turn in labelled]  # the label's own line
    return re.compile(rf"(?:{'|'.join(patterns) or '(?!)'})[ \t]*\r?\n")


@lru_cache(maxsize=64)
def turn_openings(document: Document, protected: bool = False) -> re.Pattern[str]:
    """Return what opens a turn, or a tool list that stands in none. `protected`: only what no content holds."""
    literals = [turn.open.rstrip() for turn in document.known_turns if turn.open]
    if document.tools_place is not None and document.tools_place.apart:
        literals.append(document.tools_place.open.strip())
    if protected:
        literals = list(filter(layout_of(document).escape.holds, literals))
    return re.compile("|".join(map(re.escape, sorted(literals, key=len, reverse=True))) or r"(?!)")


@lru_cache(maxsize=64)
def turn_labels(document: Document) -> re.Pattern[str]:
    """Return where a turn without a closing ends: a separator with a label behind it."""
    labels = "|".join(re.escape(turn.open.rstrip()) for turn in document.known_turns if turn.open)
    return re.compile(rf"{re.escape(document.separator)}(?={labels})")


@lru_cache(maxsize=64)
def tool_list_opening(place: ToolsPlace, flattened: bool) -> re.Pattern[str]:
    """Return the opening of a tool list, with its joint where a text stands before it."""
    before = rf"(?:\A|{_loose(place.joint, flattened)})" if place.joint else ""
    ahead = r"(?=[\[{])" if place.continued else ""
    return re.compile(f"{before}{_loose(place.open, flattened)}{ahead}")


@lru_cache(maxsize=64)
def tool_list_closings(place: ToolsPlace, flattened: bool) -> list[re.Pattern[str]]:
    """Return the closing of a tool list, whole; without its footer; and with other texts behind it."""
    close = place.close.strip()
    core = close.removesuffix(place.footer.strip()).strip()
    behind = "|".join(_loose(text, flattened) for text in place.also_behind)
    others = [rf"{_loose(core, flattened)}\s*(?:{behind})"] if behind else []
    return [re.compile(one) for one in (*others, _loose(close, flattened), _loose(core, flattened)) if one]


def _loose(literal: str, flattened: bool) -> str:
    """Return a pattern for a literal. Where blank lines mean nothing, others may have written some."""
    escaped = re.escape(literal)
    return escaped.replace("\\\n", "\n+") if flattened else escaped
