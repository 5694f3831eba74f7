"""Owns the list of formats and APIs: every module in `formats/` and `apis/`, then installed entry points.

A file dropped into either package is registered: it ends in `FORMATS = (...)` or `APIS = (...)`. Third parties use the
entry point groups `turnscript.formats` and `turnscript.apis`, each entry naming such a tuple.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from types import ModuleType
from typing import Any

from turnscript.api import Api
from turnscript.errors import UnknownName
from turnscript.format import Format

# By name: the package's public functions `formats` and `apis` hide the subpackages of the same names.
_FORMATS = importlib.import_module("turnscript.formats")
_APIS = importlib.import_module("turnscript.apis")


def formats() -> list[str]:
    """The names of all prompt formats."""
    return list(_formats())


def apis() -> list[str]:
    """The names of all chat APIs."""
    return list(_apis())


def get_format(name: str) -> Format:
    """The format of that name. Raises UnknownName with the nearest ones."""
    known = _formats()
    if name not in known:
        raise UnknownName("format", name, known)
    return known[name]


def get_api(name: str) -> Api:
    """The API of that name, or of that `origin` label in an archived transcript. Raises UnknownName."""
    known = _apis()
    if name in known:
        return known[name]
    for api in known.values():
        if api.origin == name:
            return api
    raise UnknownName("API", name, known)


@cache
def _formats() -> dict[str, Format]:
    return {format_.name: format_ for format_ in _declared(_FORMATS, "FORMATS")}


@cache
def _apis() -> dict[str, Api]:
    return {api.name: api for api in _declared(_APIS, "APIS")}


def _declared(package: ModuleType, attribute: str) -> Iterator[Any]:
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        if not module.name.startswith("_"):
            yield from getattr(importlib.import_module(f"{package.__name__}.{module.name}"), attribute)
    for entry in entry_points(group=package.__name__):
        yield from entry.load()
