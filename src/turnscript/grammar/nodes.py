"""Owns what grammars are made of, in whichever notation they are written later: the nodes, and putting them together.

A rule never begins with itself, however deep one looks: what reads a grammar from the left ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct


class Literal(Struct, frozen=True):
    """A text as it stands."""

    text: str


class Chars(Struct, frozen=True):
    """One character of a class: of `ranges`, the ends of each included, or of none of them where it is `negated`."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False

    def holds(self, char: str) -> bool:
        """Whether a character is of the class."""
        return any(low <= char <= high for low, high in self.ranges) != self.negated


class Reference(Struct, frozen=True):
    """Another rule, by its name."""

    name: str


class Without(Struct, frozen=True):
    """Any text that holds none of `stops`, the empty one too. `begun`: the beginning of one that stands before it."""

    stops: tuple[str, ...]
    begun: str = ""


class Ending(Struct, frozen=True):
    """What a model may write at the end of all, where it does not simply end.

    Notations that are over as soon as they can be need it written, or a list would end with its first member.
    """

    text: str


class Sequence(Struct, frozen=True):
    """One behind the other."""

    parts: tuple[Node, ...]


class Choice(Struct, frozen=True):
    """One of several."""

    options: tuple[Node, ...]


class Repeat(Struct, frozen=True):
    """The same several times; `most` None: without an end."""

    node: Node
    least: int = 0
    most: int | None = None


class Token(Struct, frozen=True):
    """What is regular, and written as a regular expression where a notation has them. It holds no reference."""

    node: Node


Node = Literal | Chars | Reference | Without | Ending | Sequence | Choice | Repeat | Token

EMPTY = Sequence(())


class Grammar(Struct, frozen=True):
    """Where a text starts, and the rules by their names, in the order in which they are written."""

    start: Node
    rules: Mapping[str, Node] = {}


def chars(*members: str, negated: bool = False) -> Chars:
    """A class of characters, each alone or as the two ends of a range: `chars("_", "az", "09")`."""
    return Chars(tuple((one[0], one[-1]) for one in members), negated)


def sequence(*parts: Node | str) -> Node:
    """One behind the other, neighbouring texts as one."""
    flat: list[Node] = []
    for part in _flattened(parts):
        last = flat[-1] if flat else None
        if isinstance(part, Literal) and isinstance(last, Literal):
            flat[-1] = Literal(last.text + part.text)
        elif not (isinstance(part, Literal) and not part.text):
            flat.append(part)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def _flattened(parts: Iterable[Node | str]) -> Iterable[Node]:
    for part in parts:
        if isinstance(part, str):
            yield Literal(part)
        elif isinstance(part, Sequence):
            yield from part.parts
        else:
            yield part


def choice(*options: Node) -> Node:
    """One of several, each once."""
    flat = [one for option in options for one in (option.options if isinstance(option, Choice) else (option,))]
    single = tuple(dict.fromkeys(flat))
    return single[0] if len(single) == 1 else Choice(single)


def optional(node: Node) -> Node:
    """It, or nothing."""
    return node if node == EMPTY or (isinstance(node, Repeat) and not node.least) else Repeat(node, 0, 1)


def references(node: Node) -> Iterable[str]:
    """The names of the rules that a node refers to, as often as it does."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Reference):
            yield one.name
        else:
            waiting += children(one)


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is made of."""
    if isinstance(node, Sequence):
        return node.parts
    if isinstance(node, Choice):
        return node.options
    return (node.node,) if isinstance(node, Repeat | Token) else ()


def pruned(grammar: Grammar) -> Grammar:
    """The same grammar without rules that nothing leads to."""
    found: set[str] = set()
    waiting = list(references(grammar.start))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += references(grammar.rules[name])
    return Grammar(grammar.start, {name: node for name, node in grammar.rules.items() if name in found})


def leading_back(follows: Mapping[str, list[str]]) -> set[str]:
    """Return the names to which others lead back, so that no circle is without one of them.

    `follows`: the names that each name leads to, all of which are in it.
    """
    found, done = set[str](), set[str]()
    for root in follows:
        path: dict[str, list[str]] = {}
        waiting = [root]
        while waiting:
            name = waiting[-1]
            if name not in path and name not in done:
                path[name] = list(follows[name])
            left = path.get(name)
            if not left:
                waiting.pop()
                path.pop(name, None)
                done.add(name)
            elif (follower := left.pop()) in path:
                found.add(follower)
            elif follower not in done:
                waiting.append(follower)
    return found
