r"""Owns KBNF, the notation of ai00_server: `start ::= 'a' #'[b-z]{0,20}' rule?;`.

Spec: the kbnf crate, version 0.4 and 0.5. Quirks: a text is over as soon as `start` is complete, so a list needs an
end that is written. `#ex'X'` is any text without X but not the empty one. Repetitions of rules have no counts. `|`
binds looser than what stands in a row.
"""

from __future__ import annotations

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
from turnscript.grammar.regex import escaped, regex

_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\x00": "\\0"}
_COUNTLESS = ((0, None, "*"), (1, None, "+"), (0, 1, "?"))


def write(grammar: Grammar) -> str:
    """The grammar in this notation."""
    rules = [f"{name} ::= {_options(node)};" for name, node in grammar.rules.items()]
    return "\n".join([f"start ::= {_options(grammar.start)};", *rules, ""])


def _options(node: Node) -> str:
    """A node where nothing stands beside it."""
    if isinstance(node, Choice):
        return " | ".join([_row(option) for option in node.options])
    return _row(node)


def _row(node: Node) -> str:
    if isinstance(node, Sequence):
        return " ".join([_one(part) for part in node.parts]) or "''"
    return _one(node)


def _one(node: Node) -> str:
    """A node beside others."""
    if isinstance(node, Literal | Ending):
        return _quoted(node.text)
    if isinstance(node, Reference):
        return node.name
    if isinstance(node, Chars):
        return f"#{_quoted(regex(node))}"
    if isinstance(node, Token):
        return f"#{_quoted(regex(node.node))}"
    if isinstance(node, Without):
        return f"(#ex{_quoted('|'.join(map(escaped, node.stops)))})?"
    if isinstance(node, Repeat):
        return _repeated(node)
    return f"({_options(node)})"


def _repeated(node: Repeat) -> str:
    """Repetitions, which are written out where they are counted, each inside the one before: there is one way to read
    them."""
    if isinstance(node.node, Chars):
        return f"#{_quoted(regex(node))}"
    inner = _one(node.node)
    inner = f"({inner})" if isinstance(node.node, Repeat | Token | Literal | Without) else inner
    for least, most, sign in _COUNTLESS:
        if (node.least, node.most) == (least, most):
            return f"{inner}{sign}"
    always = [inner] * node.least
    if node.most is None:
        return " ".join([*always, f"{inner}*"])
    maybe = ""
    for _ in range(node.most - node.least):
        maybe = f"({inner} {maybe})?" if maybe else f"{inner}?"
    return " ".join([*always, *([maybe] if maybe else [])])


def _quoted(text: str) -> str:
    return "'" + "".join([_ESCAPES.get(char, char) for char in text]) + "'"
