"""Owns phrases: a line of text that stands for many, and drawing one of them.

    [can|could] you [please |]tell me the [time|hour] in {city}?

Brackets hold alternatives, which may hold brackets; braces hold a slot. A line with a dozen brackets is thousands of
sentences, so a model has to learn what they have in common.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

_FOLDER = Path(__file__).parent
_SLOT = re.compile(r"\{(\w+)\}")

Node = str | tuple[tuple["Node", ...], ...]
"""Text, or alternatives, each a sequence of nodes."""


def say(line: str, slots: Mapping[str, str], random: Random) -> str:
    """One of the texts that a line stands for, its slots filled."""
    return filled(drawn(line, random), slots)


def drawn(line: str, random: Random) -> str:
    """One of the texts that a line stands for, with its slots."""
    return _drawn(parsed(line), random)


def filled(text: str, slots: Mapping[str, str]) -> str:
    """A text without brackets, its slots filled."""
    return _SLOT.sub(lambda found: slots[found[1]], text)


@cache
def lines_of(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of `NAME.txt`: English ones, an empty line, and Chinese ones, if there are any."""
    english, _, chinese = (_FOLDER / f"{name}.txt").read_text(encoding="utf-8").partition("\n\n")
    return tuple(english.splitlines()), tuple(chinese.splitlines())


def slots_of(line: str) -> set[str]:
    """The names of the slots of a line."""
    return set(_SLOT.findall(line))


@cache
def parsed(line: str) -> tuple[Node, ...]:
    """A line as nodes. Raises ValueError for brackets that do not match."""
    nodes, rest = _sequence(line, 0)
    if rest != len(line):
        raise ValueError(f"a bracket too many in {line!r}")
    return nodes


def _sequence(line: str, at: int) -> tuple[tuple[Node, ...], int]:
    found: list[Node] = []
    start = at
    while at < len(line) and line[at] not in "|]":
        if line[at] != "[":
            at += 1
            continue
        if at > start:
            found.append(line[start:at])
        node, at = _alternatives(line, at + 1)
        found.append(node)
        start = at
    if at > start:
        found.append(line[start:at])
    return tuple(found), at


def _alternatives(line: str, at: int) -> tuple[Node, int]:
    choices = []
    while True:
        nodes, at = _sequence(line, at)
        choices.append(nodes)
        if at >= len(line):
            raise ValueError(f"a bracket is missing in {line!r}")
        at += 1
        if line[at - 1] == "]":
            return tuple(choices), at


def _drawn(nodes: Sequence[Node], random: Random) -> str:
    return "".join([node if isinstance(node, str) else _drawn(random.choice(node), random) for node in nodes])
