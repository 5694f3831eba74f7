"""Owns keeping what was made of texts lately, in a number of bytes: a number of texts would be no bound at all."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

KB, MB = 1024, 1024 * 1024
_ENTRY = 300
"""Bytes of an entry beside its texts."""
_SHARE = 4
"""What takes more than this part of all that is kept is not: it would push out everything else."""


def recent(held: int, weight: int = 2, entry: int = _ENTRY) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Keep what a function makes of its arguments, what was made last, in about `held` bytes.

    What is used again and again is made again now and then: to note every use would cost more than that. The arguments
    are positional: texts, tuples of such, and things that live anyway. `weight`: how many times the bytes of the
    arguments they take together with what is made of them. `entry`: bytes of what is made without any text.
    """

    def decorate(make: Callable[P, R]) -> Callable[P, R]:
        known: OrderedDict[tuple[object, ...], tuple[R, int]] = OrderedDict()
        used = 0

        @wraps(make)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal used
            found = known.get(args)
            if found is not None:
                return found[0]
            made = make(*args, **kwargs)
            size = weight * _size(args) + entry
            if size <= held // _SHARE and args not in known:
                known[args] = made, size
                used += size
                while used > held and known:
                    gone = known.popitem(last=False)[1][1]
                    used -= gone  # by itself: between two steps like this one another thread may come, not within
            return made

        return call

    return decorate


def _size(value: object) -> int:
    if isinstance(value, str | bytes):
        return sys.getsizeof(value)
    return sum(map(_size, value)) if isinstance(value, tuple) else 0
