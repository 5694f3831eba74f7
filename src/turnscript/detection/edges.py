"""Owns the edges of texts: their common beginning and end, with no tag cut in two."""

from __future__ import annotations

from collections.abc import Sequence

_BRACKETS = (("<", ">"), ("[", "]"))


def beginning(one: str, other: str) -> str:
    """Return the common beginning of two texts, whatever it cuts."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return one[:index]
    return one if len(one) <= len(other) else other


def head(*texts: str) -> str:
    """Return the common beginning of texts without half a tag at its end."""
    shared = texts[0]
    for text in texts[1:]:
        shared = beginning(shared, text)
    for opens, closes in _BRACKETS:
        at = shared.rfind(opens)
        if at > shared.rfind(closes) and any(_goes_on(text, at + 1, len(shared), opens, closes) for text in texts):
            shared = shared[:at]
    return shared


def _goes_on(text: str, inside: int, end: int, opens: str, closes: str) -> bool:
    """Return whether a tag that is open at `end` is closed behind it, on the same line and before another begins."""
    closed, opened = text.find(closes, end), text.find(opens, end)
    return closed >= 0 and not 0 <= opened < closed and "\n" not in text[inside:closed]


def tail(one: str, other: str) -> str:
    """Return the common end of two texts without half a tag at its beginning."""
    shared = beginning(one[::-1], other[::-1])[::-1]
    for opens, closes in _BRACKETS:
        at = shared.find(closes)
        before = [text[: len(text) - len(shared)] for text in (one, other)]
        halved = any(text.rfind(opens) > text.rfind(closes) for text in before)
        if halved and at >= 0 and opens not in shared[:at]:
            shared = shared[at + 1 :]
    return shared


def space_before(text: str) -> str:
    """Return the white space at the beginning of a text."""
    return text[: len(text) - len(text.lstrip())]


def pieces(literals: Sequence[str]) -> list[str]:
    """Return what literals consist of between white space, each once."""
    return list(dict.fromkeys(piece for literal in literals for piece in literal.split()))
