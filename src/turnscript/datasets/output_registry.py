"""Owns the list of outputs: every module of their package, then installed entry points `turnscript.outputs`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from turnscript.datasets.output import Output
from turnscript.errors import UnknownName
from turnscript.registry import installed

_PACKAGE = "turnscript.datasets.outputs"
_GROUP = "turnscript.outputs"


def outputs() -> list[str]:
    """The names of all outputs."""
    return list(_outputs())


def get_output(name: str) -> Output:
    """The output of that name. Raises UnknownName."""
    known = _outputs()
    if name not in known:
        raise UnknownName("output", name, known)
    return known[name]


@cache
def _outputs() -> dict[str, Output]:
    found: list[Output] = []
    package = importlib.import_module(_PACKAGE)
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda one: one.name):
        if not module.name.startswith("_"):
            found += importlib.import_module(f"{_PACKAGE}.{module.name}").OUTPUTS
    for entry in installed(_GROUP):
        found += entry.load()
    return {output.name: output for output in found}
