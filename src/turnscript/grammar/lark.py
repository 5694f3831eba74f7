r"""Owns Lark's notation as llguidance reads it, for vLLM and SGLang: `start: "a" RULE`, and `RULE: /[b-z]{0,20}/`.

Spec: docs/syntax.md of the llguidance project. Quirks: names of rules are small, those of regular ones large. Its lexer
takes as much as it can and never goes back, so nothing may match the empty text, and a text without a string is one
with that string behind it. Of two literals that begin alike, one could be taken for the other: what stands before a
rule is a part of the rule's own first literals. What ends a text is the server's own token.
"""

from __future__ import annotations

import json

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
    choice,
    sequence,
)
from turnscript.grammar.regex import escaped, regex


def write(grammar: Grammar) -> str:
    """The grammar in this notation."""
    return _Writer(grammar).text()


class _Writer:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._made: dict[str, str] = {}
        self._behind: dict[tuple[str, str], str] = {}
        self._more: dict[str, str] = {}
        self._names = {name: name.lower() for name in grammar.rules}

    def text(self) -> str:
        rules = [f"{self._names[name]}: {self._options(node)}" for name, node in self._grammar.rules.items()]
        start = f"start: {self._options(self._grammar.start)}"
        rules += [f"{name}: {options}" for name, options in self._more.items()]
        return "\n".join([start, *rules, *(f"{name}: {said}" for said, name in self._made.items()), ""])

    def _options(self, node: Node) -> str:
        if isinstance(node, Choice):
            return " | ".join([self._row(option) for option in node.options])
        return self._row(node)

    def _row(self, node: Node) -> str:
        if not isinstance(node, Sequence):
            return self._one(node)
        parts = list(node.parts)
        shown = []
        while parts:
            part = parts.pop(0)
            after = parts[0] if parts else None
            if isinstance(part, Without) and isinstance(after, Literal):
                shown.append(self._token(_until(part, after.text)))
                del parts[0]
            elif isinstance(part, Literal) and isinstance(after, Reference) and self._leads(after):
                shown.append(self._led(part.text, after.name))
                del parts[0]
            else:
                shown.append(self._one(part))
        return " ".join(one for one in shown if one) or '""'

    def _leads(self, node: Node) -> bool:
        """Whether all texts of a node begin with a literal, so that another one before it can be part of that."""
        if isinstance(node, Reference):
            return self._leads(self._grammar.rules[node.name])
        if isinstance(node, Choice):
            return all(self._leads(option) for option in node.options)
        return isinstance(node, Literal) or (isinstance(node, Sequence) and isinstance(node.parts[0], Literal))

    def _led(self, text: str, name: str) -> str:
        """The name of a rule with a text before it, as part of its own first literals."""
        made = self._behind.get((text, name))
        if made is None:
            made = self._behind[text, name] = f"{self._names[name]}_behind{len(self._behind) + 1}"
            self._more[made] = self._options(self._with(text, self._grammar.rules[name]))
        return made

    def _with(self, text: str, node: Node) -> Node:
        if isinstance(node, Reference):
            return self._with(text, self._grammar.rules[node.name])
        if isinstance(node, Choice):
            return choice(*(self._with(text, option) for option in node.options))
        return sequence(text, node)

    def _one(self, node: Node) -> str:
        """A node beside others."""
        if isinstance(node, Literal):
            return json.dumps(node.text, ensure_ascii=False)
        if isinstance(node, Reference):
            return self._names[node.name]
        if isinstance(node, Ending):
            return ""
        if isinstance(node, Chars | Token):
            return self._regular(node)
        if isinstance(node, Without):
            return f"{self._token(_outside(node))}?"
        if isinstance(node, Repeat):
            return self._repeated(node)
        return f"({self._options(node)})"

    def _regular(self, node: Chars | Token | Repeat) -> str:
        """A regular expression, which is never met where nothing stands."""
        inner = node.node if isinstance(node, Token) else node
        if isinstance(inner, Repeat) and not inner.least:
            some = Repeat(inner.node, 1, inner.most)
            return f"{self._token(_slashed(regex(some)))}?"
        return self._token(_slashed(regex(inner)))

    def _repeated(self, node: Repeat) -> str:
        if isinstance(node.node, Chars):
            return self._regular(node)
        inner = self._one(node.node)
        inner = f"({inner})" if isinstance(node.node, Repeat | Token | Without) else inner
        signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
        sign = signs.get((node.least, node.most))
        return inner + (sign if sign is not None else f"{{{node.least},{'' if node.most is None else node.most}}}")

    def _token(self, said: str) -> str:
        """The name of a regular rule, the same one for the same words."""
        return self._made.setdefault(said, f"T{len(self._made) + 1}")


def _until(node: Without, close: str) -> str:
    """A text without the strings, and what closes it."""
    end, stops = escaped(close), "|".join(map(escaped, node.stops))
    return f"{_slashed(f'(?s:.*){end}')} & ~{_slashed(f'(?s:.*)({stops})(?s:.*){end}')}"


def _outside(node: Without) -> str:
    stops = "|".join(map(escaped, node.stops))
    return f"/(?s:.+)/ & ~{_slashed(f'(?s:.*)({stops})(?s:.*)')}"


def _slashed(expression: str) -> str:
    """A regular expression between slashes, on one line."""
    for char, said in (("/", "\\/"), ("\n", "\\n"), ("\t", "\\t")):
        expression = expression.replace(char, said)
    return f"/{expression}/"
