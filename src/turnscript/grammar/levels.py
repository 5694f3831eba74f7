"""Owns an end for rules that lead back to themselves: a copy of them for each level, and none behind the last one.

A small model that has begun a list in a list goes on so until its limit of tokens, and nothing that it wrote is JSON.
"""

from __future__ import annotations

from collections.abc import Mapping

from turnscript.grammar.nodes import (
    EMPTY,
    Choice,
    Node,
    Reference,
    Repeat,
    Sequence,
    children,
    choice,
    leading_back,
    references,
    sequence,
)
from turnscript.grammar.rules import Rules

MOST_LEVELS = 12
"""How deep values of a schema may be in others of the same one, as one of its rules counts them."""
_MOST_NODES = 5_000
"""How much the copies of one grammar may be; what would be more stays without an end."""
_MOST_RETURNS = 32


def end_levels(rules: Rules) -> None:
    """Replace rules that lead back to themselves by copies that lead on to the next level."""
    own = rules.own()
    follows = {name: [one for one in references(node) if one in own] for name, node in own.items()}
    returns = leading_back(follows)
    if not returns or len(returns) > _MOST_RETURNS:
        return
    leading: dict[str, list[str]] = {name: [] for name in own}
    for name, others in follows.items():
        for other in others:
            leading[other].append(name)
    circle = {name for back in returns for name in _reached(follows, back) & _reached(leading, back)}
    if sum(_size(own[name]) for name in circle) * MOST_LEVELS <= _MOST_NODES:
        _Copies(rules, own, circle, returns).make()


def _reached(follows: Mapping[str, list[str]], start: str) -> set[str]:
    found, waiting = {start}, [start]
    while waiting:
        new = [one for one in follows[waiting.pop()] if one not in found]
        found.update(new)
        waiting += new
    return found


def _size(node: Node) -> int:
    size, waiting = 0, [node]
    while waiting:
        size += 1
        waiting += children(waiting.pop())
    return size


class _Copies:
    """Copies of the rules of a circle, made from the last level up. The first level keeps the names."""

    def __init__(self, rules: Rules, own: Mapping[str, Node], circle: set[str], returns: set[str]) -> None:
        self._rules, self._own, self._circle, self._returns = rules, own, circle, returns
        self._below: dict[str, Reference | None] = dict.fromkeys(circle)
        self._here: dict[str, Reference | None] = {}

    def make(self) -> None:
        """Put the copies among the rules."""
        for level in range(MOST_LEVELS):
            self._here = {}
            first = level == MOST_LEVELS - 1
            for name in sorted(self._circle):
                self._copied(name, first)
            self._below = self._here

    def _copied(self, name: str, first: bool) -> Reference | None:
        """A rule on this level; None where no text of it ends."""
        if name not in self._here:
            node = self._node(self._own[name], first)
            label = name if first else self._rules.named(name)
            self._here[name] = None if node is None else self._rules.add(label, node)
        return self._here[name]

    def _node(self, node: Node, first: bool) -> Node | None:
        if isinstance(node, Reference):
            if node.name not in self._circle:
                return node
            return self._below[node.name] if node.name in self._returns else self._copied(node.name, first)
        if isinstance(node, Sequence):
            parts = [self._node(part, first) for part in node.parts]
            whole = [part for part in parts if part is not None]
            return sequence(*whole) if len(whole) == len(parts) else None
        if isinstance(node, Choice):
            options = [made for option in node.options if (made := self._node(option, first)) is not None]
            return choice(*options) if options else None
        if isinstance(node, Repeat):
            inner = self._node(node.node, first)
            return Repeat(inner, node.least, node.most) if inner is not None else None if node.least else EMPTY
        return node
