"""Owns what differs between two texts at the first place where they part, told so that like causes have one name."""

import re
from collections.abc import Collection

_SAME = 12  # so many characters alike are a place where two texts are together again
_FAR = 1500
_SHOWN = 48


def cause(expected: str, actual: str, names: Collection[str] = ()) -> str:
    """Return what is missing, and what is written instead. Numbers, marks, and `names` of tools are told alike."""
    start = next((n for n, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b), None)
    if start is None:
        start = min(len(expected), len(actual))
    missing, instead = _until_together(expected[start:], actual[start:])
    plain = _plain(missing, names), _plain(instead, names)
    if plain[0] == plain[1]:
        plain = missing, instead
    return f"{_short(plain[0])} is written as {_short(plain[1])}"


def before(expected: str, actual: str) -> str:
    """Return what stands before the place where they part."""
    start = next((n for n, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b), len(expected))
    return repr(expected[max(0, start - 24) : start])


def _until_together(expected: str, actual: str) -> tuple[str, str]:
    """Return how each goes on before they are alike again; all of both where they never are."""
    best: tuple[int, int] | None = None
    for n in range(min(len(actual), _FAR)):
        piece = actual[n : n + _SAME]
        limit = _FAR if best is None else sum(best) - n + len(piece) - 1
        found = expected.find(piece, 0, limit) if len(piece) == _SAME or n == 0 else -1
        if found >= 0 and (best is None or found + n < sum(best)):
            best = found, n
        if best is not None and n >= sum(best):
            break
    if best is None:
        return expected, actual
    return expected[: best[0]], actual[: best[1]]


def _short(text: str) -> str:
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."


def _plain(text: str, names: Collection[str]) -> str:
    """Tell numbers and characters of private use by one character each, and names by a word."""
    for name in names:
        text = text.replace(name, "<name>")
    return re.sub(r"\d+", "0", re.sub("[\ue000-\uf8ff\U000f0000-\U0010fffd]+", "\ue000", text))
