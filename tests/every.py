"""Owns tests that hold a law on many things at once: pytest takes as long to start a test as most laws take."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def every(parameter: str, values: Iterable[object], named: Callable[[Any], object] = str) -> Callable[[Test], Test]:
    """Make one test of a law that takes a `parameter`: it holds for all values. What breaks it says for which one.

    `named`: what to call a value there.
    """
    known = list(values)

    def one_test(law: Test) -> Test:
        @wraps(law)
        def test(**given: Any) -> None:
            for value in known:
                try:
                    law(**{parameter: value}, **given)
                except BaseException as error:
                    error.add_note(f"{parameter}: {named(value)}")
                    raise

        signature = inspect.signature(law)
        wanted = [one for one in signature.parameters.values() if one.name != parameter]
        test.__signature__ = signature.replace(parameters=wanted)  # type: ignore[attr-defined]  # where fixtures are found
        return test

    return one_test
