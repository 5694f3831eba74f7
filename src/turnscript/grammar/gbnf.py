r"""Owns GBNF, the notation of llama.cpp: `root ::= "a" [b-z]{0,20} rule?`.

Spec: grammars/README.md of the llama.cpp project. Quirks: names have dashes and no underscores, and the first rule is
called `root`. There are no texts without a string, so rules spell out the automaton that reads those. A text may end
wherever `root` can, with the model's own token for that. xgrammar, in vLLM and SGLang, reads the same.
"""

from __future__ import annotations

from turnscript.grammar.automaton import letters_of, moves, states_of
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
    chars,
    children,
)

_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_IN_CLASS = _ESCAPES | {'"': '"', "]": "\\]", "[": "\\["}
_FEW, _DEEPEST = 8, 32


def write(grammar: Grammar) -> str:
    """The grammar in this notation."""
    return _Writer(grammar).text()


class _Writer:
    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self._raw: dict[tuple[str, ...], str] = {}
        for node in (grammar.start, *grammar.rules.values()):
            self._find_raw(node)

    def text(self) -> str:
        rules = {name: f"{_name(name)} ::= {self._options(node)}" for name, node in self._grammar.rules.items()}
        shared = [rules.pop(name) for name in list(rules) if not name[-1].isdigit() and name != "call"]
        raw = [line for stops, name in self._raw.items() for line in _states(stops, name)]
        return "\n".join([f"root ::= {self._options(self._grammar.start)}", *shared, *raw, *rules.values(), ""])

    def _find_raw(self, node: Node) -> None:
        if isinstance(node, Without) and node.stops not in self._raw:
            self._raw[node.stops] = f"raw{len(self._raw) + 1}" if self._raw else "raw"
        for child in children(node):
            self._find_raw(child)

    def _options(self, node: Node) -> str:
        """A node where nothing stands beside it."""
        if isinstance(node, Token):
            return self._options(node.node)
        if isinstance(node, Choice):
            words = [option.text for option in node.options if isinstance(option, Literal)]
            if len(words) == len(node.options) > _FEW:
                return _branches(words, 0)
            return " | ".join([self._row(option) for option in node.options])
        return self._row(node)

    def _row(self, node: Node) -> str:
        """A node that is one of several, or stands alone."""
        if isinstance(node, Token):
            node = node.node
        if isinstance(node, Sequence):
            return " ".join([self._one(part) for part in node.parts]) or '""'
        return self._one(node)

    def _one(self, node: Node) -> str:
        """A node beside others."""
        if isinstance(node, Literal):
            return _quoted(node.text)
        if isinstance(node, Reference):
            return _name(node.name)
        if isinstance(node, Chars):
            return _class(node)
        if isinstance(node, Without):
            return f"{self._raw[node.stops]}-{states_of(node.stops)[node.begun]}"
        if isinstance(node, Token) and not isinstance(node.node, Choice | Sequence):
            return self._one(node.node)
        if isinstance(node, Ending):
            return f"{_quoted(node.text)}?"
        if isinstance(node, Repeat):
            return f"{self._single(node.node)}{_times(node)}"
        return f"({self._options(node)})"

    def _single(self, node: Node) -> str:
        """A node that something behind it is said of."""
        return f"({self._one(node)})" if isinstance(node, Repeat | Ending) else self._one(node)


def _branches(words: list[str], depth: int) -> str:
    """Words as a tree of what they begin with. A server keeps a stack for each that may go on, and tries all tokens on
    each of them."""
    if depth == _DEEPEST:
        return " | ".join(map(_quoted, words))
    begun: dict[str, list[str]] = {}
    for word in words:
        begun.setdefault(word[:1], []).append(word)
    options = []
    for same in begun.values():
        common = _common(min(same), max(same))
        rest = _branches([word[len(common) :] for word in same], depth + 1) if len(same) > 1 else ""
        options.append(f"{_quoted(common)} ({rest})" if rest else _quoted(common))
    return " | ".join(options)


def _common(one: str, other: str) -> str:
    """What two texts begin with."""
    size = next((at for at, (mine, its) in enumerate(zip(one, other, strict=False)) if mine != its), len(one))
    return one[:size]


def _states(stops: tuple[str, ...], name: str) -> list[str]:
    """A rule for each state. Letters stand alone where there is one string, and together where there are several."""
    states, letters = states_of(stops), letters_of(stops)
    lines = []
    for state, number in states.items():
        led = list(moves(stops, state))
        if len(stops) == 1:
            groups = [("", letters), *((states[to], [letter]) for letter, to in led)]
        else:
            known = {letter for letter, to in led if not to}
            groups = [("", [one for one in letters if one not in known])]
            ends = dict.fromkeys(to for _, to in led if to)
            groups += [(states[end], [letter for letter, to in led if to == end]) for end in ends]
        (_, outside), *inside = groups
        steps = [f"{_class(chars(*outside, negated=True))} {name}-0"] if outside else [f"[^\\x00] {name}-0"]
        steps += [f"{_class(chars(*group))} {name}-{number_}" for number_, group in inside]
        lines.append(f'{name}-{number} ::= "" | {" | ".join(steps)}')
    return lines


def _name(name: str) -> str:
    return name.replace("_", "-")


def _times(node: Repeat) -> str:
    least, most = node.least, node.most
    if (least, most) in _SHORT:
        return _SHORT[least, most]
    return f"{{{least}}}" if least == most else f"{{{least},{'' if most is None else most}}}"


_SHORT = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _quoted(text: str) -> str:
    return '"' + "".join([_ESCAPES.get(char) or (f"\\u{ord(char):04X}" if char < " " else char) for char in text]) + '"'


def _class(node: Chars) -> str:
    """A class. What means something in classes stands where it does not."""
    ranges = sorted(node.ranges, key=_rank)
    shown = [_in_class(low) if low == high else f"{_in_class(low)}-{_in_class(high)}" for low, high in ranges]
    if shown == ["^"] and not node.negated:
        shown = ["\\x5E"]
    return f"[{'^' if node.negated else ''}{''.join(shown)}]"


def _rank(pair: tuple[str, str]) -> int:
    """Where a member of a class stands: a caret not first, a dash last, and no letter behind what is written in digits,
    because xgrammar takes all that follow for more of them."""
    if pair == ("-", "-"):
        return 3
    return 2 if _in_class(pair[1]).startswith("\\x") else 1 if pair[0] == "^" else 0


def _in_class(char: str) -> str:
    return _IN_CLASS.get(char) or (f"\\x{ord(char):02X}" if char < " " else char)
