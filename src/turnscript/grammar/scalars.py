"""Owns texts and numbers of which a schema demands something: lengths, patterns, well-known formats, and ranges.

A text is a rule of its own that `Rules` knows for one, because formats that write no quotes cannot take it over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.grammar.nodes import Node, Repeat, Token, chars, choice, sequence
from turnscript.grammar.patterns import pattern_node, size_of
from turnscript.grammar.ranges import integers, numbers, range_of
from turnscript.grammar.rules import INTEGER, NUMBER, PLAIN_CHAR, STRING, Rules

OF_TEXTS = ("pattern", "format", "minLength", "maxLength")
OF_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "format")
_LONGEST = 1_000
"""How far characters are counted."""
_NOT_TOLD = "a grammar does not tell it"
_HEX = chars("09", "af", "AF")
_CODE = choice(
    sequence(chars("09", "ac", "AC", "ef", "EF"), Repeat(_HEX, 3, 3)),
    sequence(chars("d", "D"), chars("07"), Repeat(_HEX, 2, 2)),
)
_CHAR = choice(PLAIN_CHAR, sequence("\\", choice(chars(*'"\\/bfnrt'), sequence("u", _CODE))))
"""One character, which no half of one is: two of these are counted as one."""
_DATE = r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])"
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)"
_BYTE = r"(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_FORMATS: Mapping[str, tuple[str, bool]] = {
    "date": (_DATE, False),  # of any month there may be a 31st
    "time": (_TIME, True),
    "date-time": (f"{_DATE}T{_TIME}", False),
    "uuid": (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", True),
    "ipv4": (rf"({_BYTE}\.){{3}}{_BYTE}", True),
}
"""Formats as patterns, and whether a pattern tells all of it."""


def text_node(schema: dict[str, Any], rules: Rules, name: str, path: str) -> Node:
    """A string as a schema demands it. `name`: what its rule is called after."""
    said = [word for word in OF_TEXTS if schema.get(word) is not None]
    if not said:
        return rules.shared(STRING)
    inside, told = _text(schema, rules)
    lost = [f"{path}.{word}" for word in said if word not in told]
    for one in lost:
        rules.lose(one, _NOT_TOLD)
    if inside is None:
        return rules.shared(STRING)
    node = Token(sequence('"', inside, '"'))
    return rules.add_text(rules.named(name, "text"), node, [f"{path}.{word}" for word in said if word in told])


def _text(schema: dict[str, Any], rules: Rules) -> tuple[Node | None, set[str]]:
    """The inside of a string, and of which words it tells all."""
    pattern, format_ = schema.get("pattern"), schema.get("format")
    if isinstance(pattern, str):
        node = pattern_node(pattern)
        if node is not None and rules.count(size_of(node)):
            return node, {"pattern"}
    if isinstance(format_, str) and format_ in _FORMATS:
        expression, whole = _FORMATS[format_]
        return pattern_node(f"^{expression}$"), {"format"} if whole else set()
    least, most = length(schema.get("minLength")), length(schema.get("maxLength"))
    told = {"minLength"} if least is not None else set()
    if most is not None and most >= (least or 0):
        told.add("maxLength")
    if (least or 0) > _LONGEST or not rules.count(least or 0):
        least, told = None, told - {"minLength"}
    if "maxLength" in told and ((most or 0) > _LONGEST or not rules.count((most or 0) - (least or 0))):
        told.remove("maxLength")
    most = most if "maxLength" in told else None
    return Repeat(_CHAR, least or 0, most) if told else None, told


def length(value: Any) -> int | None:
    """A number of characters, items or members that a schema says; None for what is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def number_node(schema: dict[str, Any], rules: Rules, path: str, whole: bool) -> Node:
    """A number as a schema demands it. `whole`: an integer."""
    said = [word for word in OF_NUMBERS if word in schema and schema[word] is not None and schema[word] is not False]
    wanted = range_of(schema) if said else None
    found = None if wanted is None else integers(wanted) if whole else numbers(wanted)
    if found is not None and not rules.count(size_of(found)):
        found = None
    if found is not None:
        said = [word for word in said if word in ("multipleOf", "format")]
    for word in said:
        rules.lose(f"{path}.{word}", _NOT_TOLD)
    return rules.shared(INTEGER if whole else NUMBER) if found is None else found
