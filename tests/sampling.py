"""Owns writing texts by a grammar at random, as a model under it would, and in which there is nothing else to go by."""

from __future__ import annotations

import random
from collections.abc import Mapping

from turnscript.grammar.automaton import after
from turnscript.grammar.nodes import (
    Chars,
    Choice,
    Ending,
    Grammar,
    Literal,
    Node,
    Reference,
    Repeat,
    Sequence,
    Token,
    Without,
)

ALPHABET = "abcxyzABZ 019.,:;'\"\\/<>|[](){}`#$&*+-=_?!\n\t\r\x7f\u00e9\u5b57\U0001f44d\u2028"
"""What texts are made of where any character may stand: letters of the tags of formats, JSON's own, other planes."""
_DEEP = 40
_ENDLESS = 1 << 20


class Writer:
    """Writes texts of one grammar. `never`: what none of its free texts holds, as where a server stops at that.

    `ended`: whether what may stand at the end of all does; None: now and then.
    """

    def __init__(self, grammar: Grammar, seed: int, never: tuple[str, ...] = (), *, ended: bool | None = None) -> None:
        self._rules, self._start = grammar.rules, grammar.start
        self._draw = random.Random(seed)
        self._never = never
        self._ended = ended
        self._sizes = sizes_of(grammar.rules)
        self._deep = 0

    def text(self) -> str:
        """A text."""
        return self._write(self._start)

    def _write(self, node: Node) -> str:
        self._deep += 1
        try:
            return self._written(node)
        finally:
            self._deep -= 1

    def _written(self, node: Node) -> str:
        if isinstance(node, Literal):
            return node.text
        if isinstance(node, Ending):
            ended = self._draw.random() < 0.5 if self._ended is None else self._ended
            return node.text if ended else ""
        if isinstance(node, Chars):
            return self._char(node)
        if isinstance(node, Reference):
            return self._write(self._rules[node.name])
        if isinstance(node, Token):
            return self._write(node.node)
        if isinstance(node, Sequence):
            return "".join([self._write(part) for part in node.parts])
        if isinstance(node, Without):
            return self._free(node)
        if isinstance(node, Choice):
            options = list(node.options)
            if self._deep > _DEEP:
                options = [min(options, key=lambda one: size_of(one, self._sizes))]
            return self._write(self._draw.choice(options))
        return "".join([self._write(node.node) for _ in range(self._times(node))])

    def _times(self, node: Repeat) -> int:
        most = node.least + 3 if node.most is None else min(node.most, node.least + 3)
        return node.least if self._deep > _DEEP else self._draw.randint(node.least, most)

    def _char(self, node: Chars) -> str:
        if node.negated:
            return self._draw.choice([char for char in ALPHABET if node.holds(char)])
        low, high = self._draw.choice(node.ranges)
        if (low, high) == ("0", "9"):
            high = "7"  # no first half of a pair of surrogates
        if (low, high) in (("a", "f"), ("A", "F")):
            return self._draw.choice("ab")
        return chr(self._draw.randint(ord(low), ord(high)))

    def _free(self, node: Without) -> str:
        begun, said = node.begun, ""
        pieces = [*ALPHABET, *(stop[:-1] for stop in node.stops)]
        for _ in range(self._draw.randint(0, 8)):
            for char in self._draw.choice(pieces):
                state = after(node.stops, begun, char)
                if state is None or any(one in said + char for one in self._never):
                    break
                begun, said = state, said + char
        return said


def sizes_of(rules: Mapping[str, Node]) -> dict[str, int]:
    """How many steps the shortest text of each rule takes."""
    sizes = dict.fromkeys(rules, _ENDLESS)
    while True:
        found = {name: size_of(node, sizes) for name, node in rules.items()}
        if found == sizes:
            return sizes
        sizes = found


def size_of(node: Node, sizes: Mapping[str, int]) -> int:
    """How many steps the shortest text of a node takes."""
    if isinstance(node, Reference):
        return min(sizes[node.name] + 1, _ENDLESS)
    if isinstance(node, Sequence):
        return min(sum(size_of(part, sizes) for part in node.parts), _ENDLESS)
    if isinstance(node, Choice):
        return min(size_of(option, sizes) for option in node.options)
    if isinstance(node, Repeat):
        return min(node.least * size_of(node.node, sizes), _ENDLESS)
    return size_of(node.node, sizes) if isinstance(node, Token) else 1
