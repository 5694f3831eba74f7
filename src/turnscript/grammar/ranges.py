"""Owns numbers between two ends: the digits of integers exactly, and of decimals without exponents.

What is told is never wider than the ends. Integers have up to 16 digits, and so do whole parts and fractions.
"""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

from msgspec import Struct

from turnscript.grammar.nodes import EMPTY, Literal, Node, Repeat, Token, chars, choice, optional, sequence

_DIGITS = 16
_FURTHEST = 10**_DIGITS
_DIGIT = chars("09")
_SOME = Repeat(_DIGIT, 1, _DIGITS)
_REST = Repeat(_DIGIT, 0, _DIGITS - 1)
_FRACTION = optional(sequence(".", _SOME))
_EXPONENT = optional(sequence(chars("e", "E"), optional(chars("+", "-")), Repeat(_DIGIT, 1, 2)))


class Range(Struct, frozen=True):
    """What lies between two ends, None where there is no end. `above`, `below`: the end itself is outside."""

    low: Decimal | None = None
    high: Decimal | None = None
    above: bool = False
    below: bool = False

    def mirrored(self) -> Range:
        """The range of the negatives of its numbers."""
        low, high = self.low, self.high
        return Range(None if high is None else -high, None if low is None else -low, self.below, self.above)

    def at_least(self, low: int) -> Range:
        """The part of it that is no smaller than `low`."""
        return self if self.low is not None and self.low >= low else Range(Decimal(low), self.high, False, self.below)


def range_of(schema: dict[str, Any]) -> Range | None:
    """The range that a schema demands; None where it says nothing of one, or nothing that can be told."""
    low, above = _end(schema, "minimum", "exclusiveMinimum", 1)
    high, below = _end(schema, "maximum", "exclusiveMaximum", -1)
    if low is None and high is None:
        return None
    low = None if low is not None and low <= -_FURTHEST else low  # no number that is told is so far away
    high = None if high is not None and high >= _FURTHEST else high
    if any(end is not None and (abs(end) >= _FURTHEST or _places(end) > _DIGITS) for end in (low, high)):
        return None
    return Range(low, high, above, below)


def _end(schema: dict[str, Any], word: str, exclusive: str, sign: int) -> tuple[Decimal | None, bool]:
    """The nearer one of two ends, and whether it is outside."""
    inside, outside = _decimal(schema.get(word)), _decimal(schema.get(exclusive))
    if outside is not None and (inside is None or (outside - inside) * sign >= 0):
        return outside, True
    return inside, inside is not None and schema.get(exclusive) is True


def _decimal(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int):
        return Decimal(max(-_FURTHEST, min(_FURTHEST, value)))
    return Decimal(repr(value)) if math.isfinite(value) else None


def _places(end: Decimal) -> int:
    exponent = end.as_tuple().exponent
    return -exponent if isinstance(exponent, int) else _DIGITS + 1


def integers(wanted: Range) -> Node | None:
    """The integers of a range; None where there are none."""
    low = None if wanted.low is None else math.floor(wanted.low) + 1 if wanted.above else math.ceil(wanted.low)
    high = None if wanted.high is None else math.ceil(wanted.high) - 1 if wanted.below else math.floor(wanted.high)
    options: list[Node] = []
    if low is None or low < 0:
        least = 1 if high is None or high >= 0 else -high
        if low is None or -low >= least:
            options += [sequence("-", one) for one in _counts(least, None if low is None else -low)]
    if high is None or high >= 0:
        least = 0 if low is None or low < 0 else low
        if high is None or high >= least:
            options += _counts(least, high)
    return Token(choice(*options)) if options else None


def _counts(low: int, high: int | None) -> list[Node]:
    """Integers that are not negative, for each number of digits."""
    least = str(low)
    most = "9" * _DIGITS if high is None else str(high)
    if len(least) == len(most):
        return [_between(least, most)]
    found = [_between(least, "9" * len(least))]
    if len(most) - len(least) > 1:
        found.append(sequence(chars("19"), Repeat(_DIGIT, len(least), len(most) - 2)))
    return [*found, _between("1" + "0" * (len(most) - 1), most)]


def _between(low: str, high: str) -> Node:
    """Rows of digits, as many as both ends have, from one to the other."""
    if not low:
        return EMPTY
    if low[0] == high[0]:
        return sequence(low[0], _between(low[1:], high[1:]))
    first, last = int(low[0]), int(high[0])
    options: list[Node] = []
    if low[1:].strip("0"):
        options.append(sequence(low[0], _between(low[1:], "9" * len(low[1:]))))
        first += 1
    ended: list[Node] = []
    if high[1:].strip("9"):
        ended.append(sequence(high[0], _between("0" * len(high[1:]), high[1:])))
        last -= 1
    if first <= last:
        digit = chars(f"{first}{last}") if first < last else Literal(str(first))
        size = len(low) - 1
        options.append(sequence(digit, *([Repeat(_DIGIT, size, size)] if size > 1 else [_DIGIT] * size)))
    return choice(*options, *ended)


def numbers(wanted: Range) -> Node | None:
    """The decimals of a range; None where there are none. Only those without a sign may have an exponent."""
    if wanted == Range(Decimal(0)):
        return Token(sequence(choice(*_counts(0, None)), _FRACTION, _EXPONENT))
    options: list[Node] = []
    if wanted.low is None or wanted.low < 0:
        options += [sequence("-", one) for one in _magnitudes(wanted.mirrored().at_least(0))]
    if wanted.high is None or wanted.high >= 0:
        options += _magnitudes(wanted.at_least(0))
    return Token(choice(*options)) if options else None


def _magnitudes(wanted: Range) -> list[Node]:
    """Decimals that are not negative."""
    low, lower = _split(wanted.low or Decimal(0))
    if wanted.high is None:
        above = _counts(low + 1, None) if low + 1 < _FURTHEST else []
        return [*_from(low, lower, None, wanted), *(sequence(one, _FRACTION) for one in above)]
    high, upper = _split(wanted.high)
    if low > high:
        return []
    if low == high:
        return _from(low, lower, upper, wanted)
    middle = _counts(low + 1, high - 1) if high - low > 1 else []
    return [
        *_from(low, lower, None, wanted),
        *(sequence(one, _FRACTION) for one in middle),
        *_from(high, None, upper, wanted),
    ]


def _split(end: Decimal) -> tuple[int, str]:
    """A decimal as its whole part and the digits of its fraction."""
    whole, _, fraction = f"{end:f}".partition(".")
    return int(whole), fraction.rstrip("0")


def _from(said: int, lower: str | None, upper: str | None, wanted: Range, point: str = ".") -> list[Node]:
    """Return a whole part with the fractions between two, None where there is no end; or a digit with what follows."""
    more = _fractions(lower, upper, wanted)
    behind = [sequence(point, choice(*more))] if more else []
    if _may_end(lower, upper, wanted):
        return [sequence(str(said), *map(optional, behind))]
    return [sequence(str(said), one) for one in behind]


def _may_end(lower: str | None, upper: str | None, wanted: Range) -> bool:
    """Return whether nothing but zeros may follow where so much of the ends is left."""
    above = lower is None or (not lower and not wanted.above)
    return above and (upper is None or bool(upper) or not wanted.below)


def _fractions(lower: str | None, upper: str | None, wanted: Range) -> list[Node]:
    """Digits behind which so much of the ends is left: those that lie between these."""
    if lower == "" and not wanted.above:
        lower = None
    if lower is None and upper is None:
        return [_SOME]
    if upper == "":  # only zeros are left, and of a lower end there can be no more
        return [Repeat(Literal("0"), 1, _DIGITS)] if _may_end(lower, upper, wanted) else []
    if lower == "" and upper is None:
        return [sequence(Repeat(Literal("0"), 0, _DIGITS - 1), chars("19"), _REST)]
    low = None if lower is None else int(lower[:1] or "0")
    high = None if upper is None else int(upper[0])
    first, last = 0 if low is None else low + 1, 9 if high is None else high - 1
    found: list[Node] = []
    if first <= last:
        found.append(sequence(chars(f"{first}{last}"), _REST))
    if low is not None and low == high:
        return [*found, *_digit(low, (lower or "")[1:], (upper or "")[1:], wanted)]
    if low is not None and (high is None or low < high):
        found += _digit(low, (lower or "")[1:], None, wanted)
    if high is not None and (low is None or low < high):
        found += _digit(high, None, (upper or "")[1:], wanted)
    return found


def _digit(digit: int, lower: str | None, upper: str | None, wanted: Range) -> list[Node]:
    """A digit of an end, and what may follow it."""
    return _from(digit, lower, upper, wanted, point="")
