"""Owns the bounds of a chat template: steps, characters and seconds, and how large a value is before it is made.

A template is a stranger's program. What grows by more than its operands is looked at before it runs (a width, a count,
a product); all else is looked at where it gets a name, because only what has a name can be doubled again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sized
from datetime import datetime
from time import perf_counter
from typing import Any

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """How much one rendering may do.

    `steps`: of all loops and calls together. `characters`: of the prompt, and of any value; all values together may
    have `TOGETHER` times as many. `seconds`: by the clock.
    """

    steps: int = 1_000_000
    characters: int = 8_000_000
    seconds: float = 2.0


TOGETHER = 8
NODE = 8
"""Characters that a member of a list or a dictionary counts as."""
BITS = 65_536
"""Of a whole number."""
_SHORT = 8
"""Loops over fewer members are counted at once."""


class Stop(Exception):
    """A bound was reached. It says which, for the error that the program raises."""


class Meter:
    """What one rendering has left. It is started anew for each."""

    __slots__ = ("characters", "deadline", "limits", "made", "now", "steps", "weights")

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.characters = limits.characters
        self.start(None)

    def start(self, now: datetime | None) -> None:
        """Begin a rendering. `now` is the time that the template is told; the clock's if None."""
        self.now = now
        self.steps = self.limits.steps
        self.made = self.limits.characters * TOGETHER
        self.deadline = perf_counter() + self.limits.seconds
        # What is weighed is held here, so that its identity stays its own.
        self.weights: dict[int, tuple[object, int]] = {}

    def forget(self) -> None:
        """End a rendering: hold nothing of it."""
        self.weights = {}

    def tick(self, steps: int = 1) -> None:
        """Count steps and look at the clock."""
        self.steps -= steps
        if self.steps < 0:
            raise Stop(f"it took more than {self.limits.steps} steps of loops and calls")
        if perf_counter() > self.deadline:
            raise Stop(f"it took more than {self.limits.seconds:g} seconds")

    def allow(self, length: int) -> None:
        """Refuse a value of more characters than one may have, before it is made."""
        if length > self.characters:
            raise Stop(f"it made a value of more than {self.characters} characters")

    def grow(self, length: int) -> None:
        """Count the characters of a value that was made."""
        if length > self.characters:
            raise Stop(f"it made a value of more than {self.characters} characters")
        self.made -= length
        if self.made < 0:
            raise Stop(f"it made values of more than {self.limits.characters * TOGETHER} characters together")

    def weigh(self, value: Any) -> Any:
        """Count a value that gets a name, with all that is in it, and return it."""
        kind = type(value)
        if kind is str:
            self.grow(len(value))
        elif isinstance(value, (list, tuple, dict, set, str, bytes)):
            self.tick(0)
            self.allow(self.weight(value))
            self.grow(2 * len(value))
        elif kind is int and value.bit_length() > BITS:
            raise Stop(f"it made a number of more than {BITS} bits")
        return value

    def weight(self, value: Any) -> int:
        """Return the characters of a value and of all that is in it, as often as it is in it."""
        if isinstance(value, (str, bytes)):
            return NODE + len(value)
        if not isinstance(value, (list, tuple, dict, set)):
            return NODE
        known = self.weights.get(id(value))
        if known is not None:
            return known[1]
        self.allow(NODE * len(value))
        weight = NODE
        if isinstance(value, dict):
            for key in value:
                weight += NODE + len(key) if type(key) is str else self.weight(key)
            members: Any = value.values()
        else:
            members = value
        for member in members:
            weight += NODE + len(member) if type(member) is str else self.weight(member)
        self.weights[id(value)] = (value, weight)
        return weight

    def counted(self, value: Any) -> Any:
        """Return what a loop runs over, counted: at once if it is short, else while it runs."""
        kind = type(value)
        if kind is list or kind is dict or kind is tuple or kind is str:
            length = len(value)
            if length <= _SHORT:
                self.tick(length)
                return value
        elif not hasattr(kind, "__iter__"):
            return value  # the loop itself says what is wrong with it
        return self.steadily(iter(value))

    def steadily(self, values: Iterator[Any]) -> Iterator[Any]:
        """Yield values, each a step."""
        for value in values:
            self.steps -= 1
            if self.steps < 0 or perf_counter() > self.deadline:
                self.tick(0)
            yield value

    def result(self, value: Any) -> Any:
        """Count what a function returned, and let no stream of values run uncounted."""
        kind = type(value)
        if kind is bool or value is None or kind is dict:
            return value
        if isinstance(value, (str, list, tuple, bytes)):
            self.grow(len(value))
        elif kind is int:
            if value.bit_length() > BITS:
                raise Stop(f"it made a number of more than {BITS} bits")
        elif isinstance(value, Iterator):
            return self.steadily(value)
        return value


def number(value: object) -> int:
    """Return the size of a number that says a width or a count, 0 for what is none."""
    return abs(value) if isinstance(value, int) else 0


def length(value: object) -> int:
    """Return the number of members or characters, 1 for what has none."""
    return len(value) if isinstance(value, Sized) else 1


def power(meter: Meter, base: Any, exponent: Any) -> None:
    """Refuse a power with too many digits."""
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1 and base.bit_length() * exponent > BITS:
        raise Stop(f"it made a number of more than {BITS} bits")


def product(meter: Meter, left: Any, right: Any) -> None:
    """Refuse a number with too many digits, and a text or list that is repeated too often."""
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > BITS:
            raise Stop(f"it made a number of more than {BITS} bits")
        return
    many, times = (right, left) if isinstance(left, int) else (left, right)
    if isinstance(times, int) and isinstance(many, (str, bytes, list, tuple)):
        meter.allow(meter.weight(many) * max(times, 0) if not isinstance(many, (str, bytes)) else len(many) * times)


def remainder(meter: Meter, left: Any, right: Any) -> None:
    """Refuse widths in a text that is filled in, and the division of numbers with too many digits."""
    if isinstance(left, (str, bytes)):
        printf(meter, left, right if isinstance(right, (tuple, dict)) else (right,))
    else:
        _digits(left, right)


def quotient(meter: Meter, left: Any, right: Any) -> None:
    """Refuse the division of numbers with too many digits."""
    _digits(left, right)


def _digits(*numbers: Any) -> None:
    if any(isinstance(one, int) and one.bit_length() > BITS for one in numbers):
        raise Stop(f"it made a number of more than {BITS} bits")


WIDEST = 10_000
"""What a text may be padded to by a pattern."""


def printf(meter: Meter, pattern: str | bytes, values: Any) -> None:
    """Refuse a pattern of `%` that pads or repeats too much."""
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    if widest(text) > WIDEST or ("*" in text and any(number(one) > WIDEST for one in values)):
        raise Stop(f"it pads a text to more than {WIDEST} characters")
    weight = meter.weight(values if isinstance(values, dict) else tuple(values))
    meter.allow(len(text) + (text.count("%") if isinstance(values, dict) else 1) * weight)


def widest(text: str) -> int:
    """Return the largest number that is written in a pattern; one of many digits counts as far too large."""
    most, start = 0, -1
    for place, character in enumerate(text + "."):
        if character.isdecimal():
            start = place if start < 0 else start
        elif start >= 0:
            most = max(most, int(text[start:place]) if place - start < 7 else WIDEST + 1)
            start = -1
    return most


def _padded(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    for one in args[:1]:
        meter.allow(number(one))


def _tabs(meter: Meter, value: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> None:
    width = number(args[0] if args else names.get("tabsize", 8))
    meter.allow(len(value) + width * value.count("\t" if isinstance(value, str) else b"\t"))


def _replaced(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    if len(args) >= 2 and isinstance(value, (str, bytes)):
        replaced(meter, value, args[0], args[1])


def replaced(meter: Meter, value: Any, old: Any, new: Any) -> None:
    """Refuse a replacement that makes a text too long."""
    if length(new) > length(old) and isinstance(old, type(value)):
        most = len(value) // max(len(old), 1) + 1
        if len(value) + most * length(new) > meter.characters:
            meter.allow(len(value) + value.count(old) * length(new))


def _joined(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    for members in args[:1]:
        if isinstance(members, (list, tuple, dict, set)):
            meter.allow(sum(map(length, members)) + len(value) * len(members))
        elif len(value) > 1:
            raise Stop("it joins values that are not in a list")


def _translated(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    for table in args[:1]:
        if isinstance(table, dict):
            meter.allow(len(value) * max(map(length, table.values()), default=1))


def _coded(meter: Meter, value: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> None:
    """Refuse a long text for a codec that may take the square of its length."""
    name = str(args[0] if args else names.get("encoding", "utf-8")).lower().replace("_", "-")
    if name not in ("utf-8", "utf8", "ascii", "latin-1", "utf-16", "utf-32") and len(value) > WIDEST:
        raise Stop(f"it turns more than {WIDEST} characters into {name[:40]}")


def _backwards(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    """Refuse a search from the end that may take long: the product of both lengths."""
    for one in args[:1]:
        if isinstance(one, (str, bytes)) and len(one) * len(value) > 25 * meter.characters:
            raise Stop("it searches a long text for another one from the end")


def _bytes(meter: Meter, value: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> None:
    meter.allow(number(args[0] if args else names.get("length", 1)))


def _number(meter: Meter, value: Any, args: tuple[Any, ...], names: Mapping[str, Any]) -> None:
    if length(args[0] if args else names.get("bytes", b"")) > BITS // 8:
        raise Stop(f"it made a number of more than {BITS} bits")


def _filled(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    if args:
        meter.allow(length(args[0]) * sum(map(meter.weight, args[1:])))


def _tags(meter: Meter, value: Any, args: tuple[Any, ...], _names: Mapping[str, Any]) -> None:
    slow(value)


SLOW = 50_000


def slow(value: object) -> None:
    """Refuse a long text where the work grows faster than it."""
    if length(value) > SLOW:
        raise Stop(f"it gives a text of more than {SLOW} characters to a filter that is slow for long ones")


Check = Callable[[Meter, Any, tuple[Any, ...], Mapping[str, Any]], None]
METHODS: dict[str, Check] = {
    "center": _padded,
    "ljust": _padded,
    "rjust": _padded,
    "zfill": _padded,
    "expandtabs": _tabs,
    "replace": _replaced,
    "join": _joined,
    "translate": _translated,
    "encode": _coded,
    "decode": _coded,
    "rfind": _backwards,
    "rindex": _backwards,
    "rsplit": _backwards,
    "rpartition": _backwards,
    "to_bytes": _bytes,
    "from_bytes": _number,
    "fromkeys": _filled,
    "striptags": _tags,
}
