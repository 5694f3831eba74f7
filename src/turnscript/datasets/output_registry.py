"""Owns the list of outputs: every module of their package, then installed entry points `turnscript.outputs`."""

from __future__ import annotations

import importlib
from functools import cache

from turnscript.convert.registry import declared
from turnscript.core.errors import UnknownName
from turnscript.datasets.output import Output


def outputs() -> list[str]:
    """Return the names of all outputs."""
    return list(_outputs())


def get_output(name: str) -> Output:
    """Return the output of that name. Raises UnknownName."""
    known = _outputs()
    if name not in known:
        raise UnknownName("output", name, known)
    return known[name]


@cache
def _outputs() -> dict[str, Output]:
    package = importlib.import_module("turnscript.datasets.outputs")
    return {output.name: output for output in declared(package, "OUTPUTS")}
