"""Owns keys that a schema does not name: strings of JSON that are none of those which it does."""

from __future__ import annotations

from turnscript.grammar.nodes import Chars, Choice, Literal, Node, Repeat, Token, sequence
from turnscript.grammar.rules import PLAIN_CHAR

_REST = sequence(Repeat(PLAIN_CHAR), '"')
_MOST_LETTERS, _LONGEST = 2_000, 100

_END = ""

Tree = dict[str, "Tree"]


def other_keys(known: list[str]) -> Node | None:
    """A string without escapes that is none of the known keys; None where there are too many of them to tell."""
    if sum(map(len, known)) > _MOST_LETTERS or max(map(len, known), default=0) > _LONGEST:
        return None
    tree: Tree = {}
    for key in filter(_is_plain, known):  # others have an escape
        branch = tree
        for letter in key:
            branch = branch.setdefault(letter, {})
        branch[_END] = {}
    return Token(sequence('"', _outside(tree)))


def _outside(tree: Tree) -> Node:
    """What goes on from a place in the tree to the end of a string that is none in it."""
    letters = [letter for letter in tree if letter != _END]
    options: list[Node] = [sequence(Literal(letter), _outside(tree[letter])) for letter in letters]
    ranges = tuple((letter, letter) for letter in letters)
    options.append(sequence(Chars((*PLAIN_CHAR.ranges, *ranges), negated=True), _REST))
    if _END not in tree:
        options.append(Literal('"'))
    return Choice(
        tuple(options)
    )  # each begins with a letter of its own: to look for equal ones is to look at all below


def _is_plain(key: str) -> bool:
    return all(map(PLAIN_CHAR.holds, key))
