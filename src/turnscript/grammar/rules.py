"""Owns rules while they are made: their names, the ones that all grammars share, and how many there may be."""

from __future__ import annotations

import re

from msgspec import Struct

from turnscript.core.losses import Loss
from turnscript.grammar.nodes import (
    EMPTY,
    Choice,
    Grammar,
    Literal,
    Node,
    Reference,
    Repeat,
    Sequence,
    Token,
    chars,
    choice,
    leading_back,
    optional,
    references,
    sequence,
)

MOST_NODES = 20_000
"""How much of schemas is told in one grammar. What is beyond is any JSON, and a loss: clients choose the schemas."""
_MOST_LOSSES = 100
_MOST_COUNTED = 8_000
_LONGEST_NAME = 40

_DIGIT = chars("09")
_HEX = chars("09", "af", "AF")
_INTEGER = sequence(optional(Literal("-")), choice(Literal("0"), sequence(chars("19"), Repeat(_DIGIT, 0, 15))))
_NUMBER = sequence(
    _INTEGER,
    optional(sequence(".", Repeat(_DIGIT, 1, 16))),
    optional(sequence(chars("e", "E"), optional(chars("+", "-")), Repeat(_DIGIT, 1, 2))),
)
_ESCAPED = choice(chars(*'"\\/bfnrt'), sequence("u", Repeat(_HEX, 4, 4)))
PLAIN_CHAR = chars('"', "\\", "\x00\x1f", negated=True)
"""A character that stands for itself in a string of JSON."""
_STRING = sequence('"', Repeat(choice(PLAIN_CHAR, sequence("\\", _ESCAPED))), '"')

WS, STRING, INTEGER, NUMBER = Reference("ws"), Reference("string"), Reference("integer"), Reference("number")
BOOLEAN, NULL, VALUE = Reference("boolean"), Reference("null"), Reference("value")
OBJECT, ARRAY = Reference("object"), Reference("array")
COMMA = sequence(WS, ",", WS)
_MEMBER = sequence(STRING, WS, ":", WS, VALUE)

_SHARED: dict[str, Node] = {
    "ws": Token(Repeat(chars(" ", "\t", "\n"), 0, 20)),
    "string": Token(_STRING),
    "integer": Token(_INTEGER),
    "number": Token(_NUMBER),
    "boolean": choice(Literal("true"), Literal("false")),
    "null": Literal("null"),
    "value": choice(STRING, NUMBER, BOOLEAN, NULL, OBJECT, ARRAY),
    "object": sequence("{", WS, optional(sequence(_MEMBER, Repeat(sequence(COMMA, _MEMBER)), WS)), "}"),
    "array": sequence("[", WS, optional(sequence(VALUE, Repeat(sequence(COMMA, VALUE)), WS)), "]"),
}
"""JSON, in the order in which it is written."""
MOST_OTHERS = 32
"""How many members that no schema names an object has at most in a grammar that ends. A small model writes the same few
again and again, and no grammar knows which ones were there."""
_TIGHT: dict[str, Node] = _SHARED | {
    "ws": Token(Repeat(chars(" ", "\n"), 0, 1)),
    "object": sequence(
        "{", WS, optional(sequence(_MEMBER, Repeat(sequence(COMMA, _MEMBER), 0, MOST_OTHERS - 1), WS)), "}"
    ),
}
"""JSON whose tokens have at most one blank or newline between them: a small model that may write more goes on with it
until the limit."""


class Rules:
    """The rules of one grammar. `losses`: what of the schemas is not in it. `bounded`: white space between tokens of
    JSON does not go on, and neither do members that no schema names: `most_others`.
    """

    def __init__(self, bounded: bool = False) -> None:
        self.losses: list[Loss] = []
        self._json = _TIGHT if bounded else _SHARED
        self.most_others = MOST_OTHERS if bounded else None
        self.spent = 0
        self._rules: dict[str, Node] = {}
        self._shared: set[str] = {"ws"}
        self._texts: dict[str, list[str]] = {}
        self._counted = 0
        self._named = 0

    def named(self, *words: str) -> str:
        """A name of its own for a rule: letters, digits and underscores, a letter first."""
        self._named += 1
        said = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(word[:_LONGEST_NAME] for word in words))
        return f"{said if said[:1].isalpha() else f'r{said}'}_{self._named}"

    def add(self, name: str, node: Node) -> Reference:
        """A rule of this name."""
        self._rules[name] = node
        return Reference(name)

    def add_text(self, name: str, node: Node, held: list[str]) -> Reference:
        """A rule of strings that holds demands of a schema, which stand at these paths."""
        self._texts[name] = held
        return self.add(name, node)

    def is_text(self, reference: Reference) -> bool:
        """Return whether a rule is one of strings that holds demands."""
        return reference.name in self._texts

    def lose_text(self, node: Node) -> None:
        """Return what a rule of strings holds is lost, because the format has them in another spelling."""
        seen: set[str] = set()
        while isinstance(node, Reference) and node.name not in seen:
            seen.add(node.name)
            for path in self._texts.get(node.name, ()):
                self.lose(path, "a grammar tells it of strings in quotes alone")
            node = self._rules.get(node.name, EMPTY)

    def own(self) -> dict[str, Node]:
        """The rules by their names, without those of JSON."""
        return dict(self._rules)

    def rule(self, name: str) -> Node | None:
        """The rule of a name, also of JSON's own; None where there is none yet."""
        return self._rules.get(name, self._json.get(name))

    def shared(self, reference: Reference) -> Reference:
        """A rule of JSON, with all that it needs."""
        if reference.name not in self._shared:
            self._shared.add(reference.name)
            for name in references(_SHARED[reference.name]):
                self.shared(Reference(name))
        return reference

    def spend(self, count: int = 1) -> bool:
        """Whether there is room for so many more nodes."""
        self.spent += count
        return self.spent <= MOST_NODES

    def count(self, count: int) -> bool:
        """Return whether there is room to count so many more characters: servers write all of them out."""
        fits = self._counted + count <= _MOST_COUNTED
        self._counted += count if fits else 0
        return fits

    def lose(self, path: str, detail: str) -> None:
        """Something of a schema is not in the grammar. Far down a list of them, nobody reads on."""
        loss = Loss(path, "approximated", detail)
        if len(self.losses) < _MOST_LOSSES and loss not in self.losses:
            self.losses.append(loss)

    def grammar(self, start: Node) -> Grammar:
        """The grammar."""
        shared = {name: node for name, node in self._json.items() if name in self._shared}
        return Grammar(start, {**shared, **self._rules})

    def settle(self) -> None:
        """Replace rules of which no text ever comes to its end, such as an object that must hold itself."""
        ended = set(_SHARED)
        waiting = list(self._rules.items())
        for _ in range(_MOST_ROUNDS):
            left = []
            for name, node in waiting:
                if _ends(node, ended):
                    ended.add(name)
                else:
                    left.append((name, node))
            if not left or len(left) == len(waiting):
                waiting = left
                break
            waiting = left
        for name in [*(name for name, _ in waiting), *sorted(self._circular())]:
            self._rules[name] = self.shared(VALUE)
            self.lose("$", f"a schema that leads back to itself before anything is said; any value is taken ({name})")

    def _circular(self) -> set[str]:
        """Return the rules that begin with themselves, which no reader from the left can follow."""
        rules = self._rules
        return leading_back({name: [one for one in _beginnings(node) if one in rules] for name, node in rules.items()})


_MOST_ROUNDS = 64


def _beginnings(node: Node) -> list[str]:
    """The rules that a node may begin with."""
    if isinstance(node, Reference):
        return [node.name]
    if isinstance(node, Choice):
        return [name for option in node.options for name in _beginnings(option)]
    if isinstance(node, Repeat):
        return _beginnings(node.node)
    found: list[str] = []
    for part in node.parts if isinstance(node, Sequence) else ():
        found += _beginnings(part)
        if not (part == WS or (isinstance(part, Repeat) and not part.least)):
            break
    return found


def _ends(node: Node, ended: set[str]) -> bool:
    """Whether a text of a node can come to its end, if those of the rules `ended` can."""
    if isinstance(node, Reference):
        return node.name in ended
    if isinstance(node, Sequence):
        return all(_ends(part, ended) for part in node.parts)
    if isinstance(node, Choice):
        return any(_ends(option, ended) for option in node.options)
    return True if not isinstance(node, Repeat) or not node.least else _ends(node.node, ended)


class Others(Struct, frozen=True):
    """Members that no schema names: at least `least` and at most `most` of them, without an end where that is None."""

    node: Node
    least: int = 0
    most: int | None = None

    def row(self, comma: Node) -> Node:
        """Return them alone, one at least."""
        again = Repeat(sequence(comma, self.node), max(self.least - 1, 0), None if self.most is None else self.most - 1)
        return self.node if again.most == 0 else sequence(self.node, again)

    def behind(self, comma: Node) -> Node:
        """Return them behind others."""
        return Repeat(sequence(comma, self.node), self.least, self.most)


def separated(
    rules: Rules, members: list[tuple[Node, bool]], comma: Node, name: str, others: Others | None = None
) -> Node:
    """Members in their order with a comma between them, the required ones always, and `others` behind them.

    Where nothing is required, a row may begin at any of them: there is a rule for each, which goes on at the next.
    """
    first = next((at for at, (_, required) in enumerate(members) if required), None)
    if first is not None:
        parts = [optional(sequence(member, comma)) for member, _ in members[:first]]
        parts.append(members[first][0])
        for member, required in members[first + 1 :]:
            parts.append(sequence(comma, member) if required else optional(sequence(comma, member)))
        return sequence(*parts, others.behind(comma) if others is not None else EMPTY)
    row = others.row(comma) if others is not None else EMPTY
    for member, _ in reversed(members):
        if row != EMPTY and not isinstance(row, Reference):
            row = rules.add(rules.named(name, "row"), row)
        row = member if row == EMPTY else choice(sequence(member, optional(sequence(comma, row))), row)
    return row if others is not None and others.least and not members else optional(row)
