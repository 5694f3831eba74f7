"""Owns rules of JSON in another spelling: copies of rules in which words, strings and keys are written otherwise."""

from __future__ import annotations

from collections.abc import Callable

from turnscript.grammar.nodes import Choice, Literal, Node, Reference, Repeat, Sequence, choice, sequence
from turnscript.grammar.rules import STRING, WS, Rules


class Respelled:
    """Copies rules of JSON into a spelling. `name`: what the copies are called after.

    `words`: how a piece of JSON is written; `string`: what stands for any string; `key`: how a key is written, given
    what it is in JSON.
    """

    def __init__(
        self,
        rules: Rules,
        name: str,
        words: Callable[[str], Node],
        string: Node = STRING,
        key: Callable[[Node], Node] | None = None,
    ) -> None:
        self._rules, self._name, self._words, self._string, self._key = rules, name, words, string, key
        self._made: dict[str, Reference] = {}

    def node(self, node: Node) -> Node:
        """A node in the spelling, with all that it refers to."""
        if isinstance(node, Literal):
            return self._words(node.text)
        if isinstance(node, Reference):
            return self._reference(node)
        if isinstance(node, Choice):
            return choice(*map(self.node, node.options))
        if isinstance(node, Repeat):
            return Repeat(self.node(node.node), node.least, node.most)
        if isinstance(node, Sequence):
            return sequence(*(self._part(node.parts, at) for at in range(len(node.parts))))
        return node

    def _part(self, parts: tuple[Node, ...], at: int) -> Node:
        """A part of a sequence. What white space and a colon follow is a key."""
        rest = parts[at + 1 : at + 3]
        is_key = len(rest) > 1 and rest[0] == WS and isinstance(rest[1], Literal) and rest[1].text.startswith(":")
        return self._key(parts[at]) if self._key is not None and is_key else self.node(parts[at])

    def _reference(self, reference: Reference) -> Node:
        if reference == STRING:
            return self._string
        if self._rules.is_text(reference):
            if self._string == STRING:
                return reference
            self._rules.lose_text(reference)
            return self._string
        inner = self._rules.rule(reference.name)
        if reference == WS or inner is None:
            return reference
        if reference.name not in self._made:
            made = self._made[reference.name] = Reference(self._rules.named(self._name, reference.name))
            self._rules.add(made.name, self.node(inner))
        return self._made[reference.name]
