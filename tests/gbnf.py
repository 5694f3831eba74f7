"""Owns reading GBNF as llama.cpp does, as rules again: so that what is written can be judged by what it says."""

from __future__ import annotations

import re

from turnscript.grammar.nodes import Chars, Grammar, Literal, Node, Reference, Repeat, choice, sequence

_NAME = re.compile(r"[A-Za-z0-9-]+")
_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}
_SIGNS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read_gbnf(text: str) -> Grammar:
    """The rules of a text, `root` as the start."""
    rules = {}
    for line in text.splitlines():
        name, _, said = line.partition(" ::= ")
        assert _NAME.fullmatch(name), line
        assert name not in rules, line
        reader = _Reader(said)
        rules[name] = reader.options()
        assert reader.at == len(said), (line, reader.at)
    return Grammar(Reference("root"), rules)


class _Reader:
    """Reads the right side of one rule."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def options(self) -> Node:
        """Rows with bars between them."""
        found = [self._row()]
        while self._next() == "|":
            self.at += 1
            found.append(self._row())
        return choice(*found)

    def _next(self) -> str:
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1
        return self.text[self.at : self.at + 1]

    def _row(self) -> Node:
        parts: list[Node | str] = []
        while (sign := self._next()) and sign not in "|)":
            parts.append(self._repeated(self._one(sign)))
        return sequence(*parts)

    def _one(self, sign: str) -> Node:
        if sign == "(":
            self.at += 1
            node = self.options()
            assert self._next() == ")"
            self.at += 1
            return node
        if sign == '"':
            return self._quoted()
        if sign == "[":
            return self._class()
        name = _NAME.match(self.text, self.at)
        assert name is not None, self.text[self.at :]
        self.at = name.end()
        return Reference(name[0])

    def _repeated(self, node: Node) -> Node:
        sign = self.text[self.at : self.at + 1]
        if sign in _SIGNS and sign:
            self.at += 1
            return Repeat(node, *_SIGNS[sign])
        counted = _COUNT.match(self.text, self.at)
        if counted is None:
            return node
        self.at = counted.end()
        least = int(counted[1])
        return Repeat(node, least, int(counted[3]) if counted[3] else None if counted[2] else least)

    def _quoted(self) -> Node:
        self.at += 1
        said = ""
        while self.text[self.at] != '"':
            said += self._char()
        self.at += 1
        return Literal(said)

    def _class(self) -> Node:
        self.at += 1
        negated = self.text[self.at] == "^"
        self.at += negated
        ranges = []
        while self.text[self.at] != "]":
            low = high = self._char()
            if self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                high = self._char()
            ranges.append((low, high))
        self.at += 1
        return Chars(tuple(ranges), negated)

    def _char(self) -> str:
        char = self.text[self.at]
        self.at += 1
        if char != "\\":
            return char
        sign = self.text[self.at]
        size = {"x": 2, "u": 4, "U": 8}.get(sign, 0)
        self.at += 1 + size
        return chr(int(self.text[self.at - size : self.at], 16)) if size else _ESCAPES.get(sign, sign)
