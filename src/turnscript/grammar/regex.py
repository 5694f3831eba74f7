"""Owns regular expressions for what is regular in a grammar, as engines of Rust's family read them."""

from __future__ import annotations

from turnscript.grammar.nodes import Chars, Choice, Literal, Node, Repeat, Sequence, Token

_SPECIAL = frozenset(r"\.+*?()|[]{}^$#&~")
_IN_CLASS = frozenset("\\]^[&~")


def regex(node: Node) -> str:
    """A node without references as a regular expression."""
    if isinstance(node, Choice):
        return "|".join([_row(option) for option in node.options])
    return _row(node)


def escaped(text: str) -> str:
    """A text that stands for itself."""
    return "".join([f"\\{char}" if char in _SPECIAL else _plain(char) for char in text])


def _row(node: Node) -> str:
    if isinstance(node, Sequence):
        return "".join([_one(part) for part in node.parts])
    return _one(node)


def _one(node: Node) -> str:
    if isinstance(node, Literal):
        return escaped(node.text)
    if isinstance(node, Chars):
        return _class(node)
    if isinstance(node, Token):
        return _one(node.node)
    if isinstance(node, Repeat):
        inner = _one(node.node)
        alone = isinstance(node.node, Chars) or (isinstance(node.node, Literal) and len(node.node.text) == 1)
        return f"{inner if alone or inner.startswith('(') else f'({inner})'}{_times(node)}"
    if isinstance(node, Choice | Sequence):
        return f"({regex(node)})"
    raise TypeError(f"{type(node).__name__} is no part of what is regular")


def _times(node: Repeat) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((node.least, node.most))
    if short is not None:
        return short
    same = node.least == node.most
    return f"{{{node.least}}}" if same else f"{{{node.least},{'' if node.most is None else node.most}}}"


def _class(node: Chars) -> str:
    shown = [_member(low) if low == high else f"{_member(low)}-{_member(high)}" for low, high in node.ranges]
    if shown and shown[-1] == "\\-":
        shown[-1] = "-"  # the last one is no range
    return f"[{'^' if node.negated else ''}{''.join(shown)}]"


def _member(char: str) -> str:
    return f"\\{char}" if char in _IN_CLASS or char == "-" else _plain(char)


def _plain(char: str) -> str:
    return f"\\x{ord(char):02x}" if char < " " and char not in "\n\t" else char
