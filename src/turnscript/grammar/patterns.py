"""Owns simple regular expressions as rules of JSON's strings: anchored ones of characters, classes, groups and counts.

What is told is never wider than the expression: characters that JSON writes with a backslash are left out of classes
that hold others, too. An expression that looks around, refers back, or could be read in very many ways is not told.
"""

from __future__ import annotations

from turnscript.grammar.nodes import EMPTY, Chars, Choice, Literal, Node, Repeat, Sequence, children, choice, sequence
from turnscript.grammar.rules import PLAIN_CHAR

_LONGEST, _DEEPEST = 1_000, 12
_MOST = 1_000
"""To how many characters the counts of an expression add up at most."""
_MOST_AMONG_OTHERS = 256
"""The same where a long count stands beside another one: a server keeps each way to share a text among them."""
_LONG_COUNT = 16
_DIGITS = (("0", "9"),)
_WORD = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
_NAMED = {"d": _DIGITS, "w": _WORD, "s": ((" ", " "),)}
_SPACES = ((" ", " "), ("\xa0", "\xa0"), ("\u1680", "\u1680"), ("\u2000", "\u200a"), ("\u2028", "\u2029"))
_MORE_SPACES = (("\u202f", "\u202f"), ("\u205f", "\u205f"), ("\u3000", "\u3000"), ("\ufeff", "\ufeff"))
_NEGATED = {"D": _DIGITS, "W": _WORD, "S": (*_SPACES, *_MORE_SPACES)}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f", "\b": "\\b"}
_LINE_ENDS = (("\u2028", "\u2029"),)
_SIGNS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

Ranges = tuple[tuple[str, str], ...]


def pattern_node(pattern: str) -> Node | None:
    """The inside of a JSON string that an expression matches as a whole; None where it is not so simple."""
    if not pattern.startswith("^") or not pattern.endswith("$") or len(pattern) > _LONGEST:
        return None
    reader = _Reader(pattern[1:-1])
    try:
        node = reader.alternatives(0)
    except (_NotSimple, IndexError, ValueError):
        return None
    if reader.at != len(reader.text) or reader.split_outside or size_of(node) > _MOST:
        return None
    long = _long_counts(node)
    return None if long > 1 and size_of(node) > _MOST_AMONG_OTHERS else node


class _NotSimple(Exception):
    """An expression is not one of those that are told."""


class _Reader:
    """Reads an expression. `split_outside`: it has alternatives that its anchors do not hold together."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.split_outside = False

    def alternatives(self, depth: int) -> Node:
        """Rows with bars between them, up to the end or a closing parenthesis."""
        if depth > _DEEPEST:
            raise _NotSimple
        found = [self._row(depth)]
        while self._next() == "|":
            self.split_outside = self.split_outside or not depth
            self.at += 1
            found.append(self._row(depth))
        return choice(*found)

    def _next(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        char = self.text[self.at]
        self.at += 1
        return char

    def _row(self, depth: int) -> Node:
        parts: list[Node] = []
        while self._next() not in ("", "|", ")"):
            parts.append(self._counted(self._atom(depth)))
        return sequence(*parts)

    def _atom(self, depth: int) -> Node:
        char = self._take()
        if char == "(":
            return self._group(depth)
        if char == "[":
            return self._class()
        if char == ".":
            return _outside(_LINE_ENDS)
        if char == "\\":
            sign = self._take()
            if sign in _NEGATED:
                return _outside(_NEGATED[sign])
            return _inside(_NAMED[sign]) if sign in _NAMED else _one(self._escaped(sign))
        if char in "^$*+?{}]":
            raise _NotSimple
        return _one(char)

    def _group(self, depth: int) -> Node:
        if self._next() == "?":
            if self.text[self.at : self.at + 2] != "?:":
                raise _NotSimple
            self.at += 2
        node = self.alternatives(depth + 1)
        if self._take() != ")":
            raise _NotSimple
        return node

    def _escaped(self, sign: str) -> str:
        """The character that stands for itself behind a backslash, or is named there."""
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign in "xu":
            size = 2 if sign == "x" else 4
            code = self.text[self.at : self.at + size]
            self.at += size
            if len(code) < size or not code.isalnum() or 0xD800 <= int(code, 16) < 0xE000:
                raise _NotSimple
            return chr(int(code, 16))
        if sign.isalnum():
            raise _NotSimple
        return sign

    def _class(self) -> Node:
        negated = self._next() == "^"
        self.at += negated
        ranges: list[tuple[str, str]] = []
        while self._next() != "]":
            char = self._take()
            if char == "\\":
                sign = self._take()
                if sign in _NAMED:
                    if negated and sign == "s":
                        ranges += _MORE_SPACES
                        ranges += _SPACES
                    ranges += _NAMED[sign]
                    continue
                char = self._escaped(sign)
            if self._next() == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                last = self._take()
                last = self._escaped(self._take()) if last == "\\" else last
                if last < char or last == "[":
                    raise _NotSimple
                ranges.append((char, last))
            else:
                ranges.append((char, char))
        self.at += 1
        if not ranges:
            raise _NotSimple
        return _outside(tuple(ranges)) if negated else _inside(tuple(ranges))

    def _counted(self, node: Node) -> Node:
        least, most = self._times()
        if (least, most) == (1, 1):
            return node
        if self._next() == "?":  # the same texts, found in another order
            self.at += 1
        if self._next() in ("*", "+", "{") and self._next():
            raise _NotSimple
        if most is None and _may_be_empty(node):
            raise _NotSimple
        return EMPTY if most == 0 else Repeat(node, least, most)

    def _times(self) -> tuple[int, int | None]:
        sign = self._next()
        if sign in _SIGNS:
            self.at += 1
            return _SIGNS[sign]
        if sign != "{":
            return 1, 1
        end = self.text.index("}", self.at)
        least, comma, most = self.text[self.at + 1 : end].partition(",")
        self.at = end + 1
        counts = [one for one in (least, most) if one]
        if not all(one.isascii() and one.isdecimal() and len(one) < _LONG_COUNT for one in counts) or not least:
            raise _NotSimple
        found = int(least), int(most) if most else None if comma else int(least)
        if found[1] is not None and found[1] < found[0]:
            raise _NotSimple
        return found


def _one(char: str) -> Node:
    """One character as JSON writes it."""
    if char < " " or char == "\x7f" or char in _ESCAPED:
        if char not in _ESCAPED:
            raise _NotSimple
        return Literal(_ESCAPED[char])
    return Literal(char)


def _outside(ranges: Ranges) -> Node:
    """A character that is of none of the ranges."""
    return Chars((*PLAIN_CHAR.ranges, *(pair for pair in ranges if not _is_left_out(pair))), negated=True)


def _is_left_out(pair: tuple[str, str]) -> bool:
    """Return whether no character of a range stands for itself in a string of JSON."""
    return pair[1] < " " or (pair[0] == pair[1] and not PLAIN_CHAR.holds(pair[0]))


def _inside(ranges: Ranges) -> Node:
    """A character of the ranges, without those that JSON writes otherwise; or these, where there are no others."""
    plain: list[tuple[str, str]] = []
    for pair in ranges:
        plain += _plain(pair)
    if plain:
        return Chars(tuple(dict.fromkeys(plain)))
    written = [_one(low) for low, high in ranges if low == high and low in _ESCAPED]
    if not written:
        raise _NotSimple
    return choice(*written)


def _plain(pair: tuple[str, str]) -> list[tuple[str, str]]:
    """A range without controls, quotation marks and backslashes."""
    low, high = max(pair[0], " "), pair[1]
    found = []
    for without in ('"', "\\"):
        if low <= without <= high:
            if low < without:
                found.append((low, chr(ord(without) - 1)))
            low = chr(ord(without) + 1)
    return [*found, (low, high)] if low <= high else found


def size_of(node: Node) -> int:
    """Return how many characters an expression has where all that is counted is written out."""
    if isinstance(node, Repeat):
        return size_of(node.node) * max(node.most or 1, node.least, 1)
    return 1 + sum(map(size_of, children(node)))


def _long_counts(node: Node) -> int:
    """Return how many parts may be repeated very differently often."""
    mine = isinstance(node, Repeat) and node.most is not None and node.most - node.least > _LONG_COUNT
    return mine + sum(map(_long_counts, children(node)))


def _may_be_empty(node: Node) -> bool:
    if isinstance(node, Repeat):
        return not node.least or _may_be_empty(node.node)
    if isinstance(node, Choice):
        return any(map(_may_be_empty, node.options))
    return all(map(_may_be_empty, node.parts)) if isinstance(node, Sequence) else node == Literal("")
