"""Owns what is left of a grammar behind the beginning of a text: what a model may write where a prompt wrote that.

The beginning is read as a machine with stacks reads it: each stack is a row of nodes that must follow, and where a node
leaves a choice there is a stack for each. So the same stacks tell whether a whole text is one of a grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from turnscript.grammar.automaton import after
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
    pruned,
    sequence,
)

Stack = tuple[Node, ...]


def behind(grammar: Grammar, text: str) -> Grammar | None:
    """The grammar of what follows `text`; None where no text of the grammar begins so."""
    if not text:
        return grammar
    stacks = list(stacks_behind(grammar, text))
    if not stacks:
        return None
    return pruned(Grammar(choice(*(sequence(*stack) for stack in stacks)), grammar.rules))


def matches(grammar: Grammar, text: str) -> bool:
    """Whether a text is one of the grammar."""
    return any(_may_end(grammar, stack) for stack in stacks_behind(grammar, text))


def stacks_behind(grammar: Grammar, text: str) -> Iterator[Stack]:
    """What may follow the beginning of a text, one stack for each way to read it."""
    seen: set[tuple[int, Stack]] = set()
    waiting: list[tuple[int, Stack]] = [(0, (grammar.start,))]
    while waiting:
        state = waiting.pop()
        if state in seen:
            continue
        seen.add(state)
        at, stack = state
        if at == len(text):
            yield stack
        elif stack:
            waiting += _steps(grammar, text, at, stack)


def _steps(grammar: Grammar, text: str, at: int, stack: Stack) -> Iterator[tuple[int, Stack]]:
    """What the first node of a stack makes of the text at a place, which is not its end."""
    node, rest = stack[0], stack[1:]
    if isinstance(node, Literal):
        size = min(len(node.text), len(text) - at)
        if text.startswith(node.text[:size], at):
            left: Stack = (Literal(node.text[size:]),) if size < len(node.text) else ()
            yield at + size, (*left, *rest)
    elif isinstance(node, Chars):
        if node.holds(text[at]):
            yield at + 1, rest
    elif isinstance(node, Without):
        yield from _free(node, text, at, rest)
    elif (end := _end_of_run(node, rest, text, at)) > at:
        yield end, stack
    else:
        for opened in _opened(grammar, node):
            yield at, (*opened, *rest)


def _free(node: Without, text: str, at: int, rest: Stack) -> Iterator[tuple[int, Stack]]:
    """The same for a text without certain strings. What closes it mostly begins with one of them: then all is taken at
    once up to where one can stand, and not character by character."""
    closing = rest[0] if rest else None
    begins = closing.text if isinstance(closing, Literal) else ""
    if node.begun or not begins.startswith(node.stops):
        yield at, rest
        begun = after(node.stops, node.begun, text[at])
        if begun is not None:
            yield at + 1, (Without(node.stops, begun), *rest)
        return
    longest = max(map(len, node.stops))
    ends = [where + len(stop) for stop in node.stops if (where := text.find(stop, at)) >= 0]
    end = min(ends, default=len(text) + 1)
    if not ends:
        tails = (text[start:] for start in range(max(at, len(text) - longest + 1), len(text)))
        begun = next((tail for tail in tails if any(stop.startswith(tail) for stop in node.stops)), "")
        yield len(text), (Without(node.stops, begun), *rest)
    first = end - longest if ends else len(text) - len(begins) + 1
    for start in range(max(at, first), min(end, len(text))):
        if begins.startswith(text[start : start + len(begins)]):
            yield start, rest


def _end_of_run(node: Node, rest: Stack, text: str, at: int) -> int:
    """How far a text is characters of a repeated class, where they can be nothing else: neither what else is repeated
    there nor what closes it begins with one. A string of JSON is taken up to its next escape so, or to its end."""
    closing = rest[0] if rest else None
    if not isinstance(node, Repeat) or node.least or node.most is not None or closing is None:
        return at
    options = node.node.options if isinstance(node.node, Choice) else (node.node,)
    chars = next((option for option in options if isinstance(option, Chars)), None)
    if chars is None:
        return at
    others = (closing, *(option for option in options if option is not chars))
    if not all(first and not chars.holds(first) for first in map(_first, others)):
        return at
    found = _row(chars).match(text, at)
    return at if found is None else found.end()


def _first(node: Node) -> str:
    """The character that a node begins with; nothing where that is not plain."""
    if isinstance(node, Sequence):
        return _first(node.parts[0]) if node.parts else ""
    return node.text[:1] if isinstance(node, Literal) else ""


@lru_cache(maxsize=256)
def _row(chars: Chars) -> re.Pattern[str]:
    """Characters of a class, as many as there are."""
    ranges = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in chars.ranges)
    return re.compile(f"[{'^' * chars.negated}{ranges}]*" if ranges else "(?s:.)*" if chars.negated else "")


def _opened(grammar: Grammar, node: Node) -> Iterator[Stack]:
    """The rows of nodes that a node stands for."""
    if isinstance(node, Sequence):
        yield node.parts
    elif isinstance(node, Choice):
        yield from ((option,) for option in node.options)
    elif isinstance(node, Reference):
        yield (grammar.rules[node.name],)
    elif isinstance(node, Token):
        yield (node.node,)
    elif isinstance(node, Ending):
        yield ()
        yield (Literal(node.text),)
    elif isinstance(node, Repeat):
        if not node.least:
            yield ()
        if node.most != 0:
            most = None if node.most is None else node.most - 1
            more = Repeat(node.node, max(node.least - 1, 0), most)
            yield (node.node,) if most == 0 else (node.node, more)


def _may_end(grammar: Grammar, stack: Stack) -> bool:
    """Whether all that is left may be empty."""
    seen: set[Stack] = set()
    waiting = [stack]
    while waiting:
        one = waiting.pop()
        if not one:
            return True
        if one in seen:
            continue
        seen.add(one)
        node, rest = one[0], one[1:]
        if isinstance(node, Without):
            waiting.append(rest)
        elif not isinstance(node, Chars | Literal) or node == Literal(""):
            waiting += ((*opened, *rest) for opened in ([()] if node == Literal("") else _opened(grammar, node)))
    return False
