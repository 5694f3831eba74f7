"""Owns the list of notations in which grammars are written, by the names that people and backends use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from turnscript.core.errors import UnknownName
from turnscript.grammar import gbnf, kbnf, lark
from turnscript.grammar.nodes import Grammar

NOTATIONS: Mapping[str, Callable[[Grammar], str]] = {"gbnf": gbnf.write, "kbnf": kbnf.write, "lark": lark.write}


def writer_of(notation: str) -> Callable[[Grammar], str]:
    """What writes a grammar in a notation. Raises UnknownName."""
    if notation not in NOTATIONS:
        raise UnknownName("notation of grammars", notation, NOTATIONS)
    return NOTATIONS[notation]
