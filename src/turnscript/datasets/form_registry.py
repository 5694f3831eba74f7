"""Owns the list of forms: every module of their package, then installed entry points.

A module dropped into `turnscript/datasets/forms/` is registered: it ends in `FORMS = (...)`. Third parties use the
entry point group `turnscript.forms`, each entry naming such a tuple.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from functools import cache
from typing import cast

from turnscript.datasets import forms as _PACKAGE  # noqa: N812  (`forms` is the public function below)
from turnscript.datasets.form import Form
from turnscript.errors import UnknownName
from turnscript.registry import installed

_GROUP = "turnscript.forms"


def forms() -> list[str]:
    """The names of all forms."""
    return list(_forms())


def get_form(name: str) -> Form:
    """The form of that name. Raises UnknownName with the nearest ones."""
    known = _forms()
    if name in known:
        return known[name]
    raise UnknownName("form", name, known)


@cache
def _forms() -> dict[str, Form]:
    return {form.name: form for form in _declared()}


def _declared() -> Iterator[Form]:
    for module in sorted(pkgutil.iter_modules(_PACKAGE.__path__), key=lambda found: found.name):
        if not module.name.startswith("_"):
            found = importlib.import_module(f"{_PACKAGE.__name__}.{module.name}")
            yield from cast("tuple[Form, ...]", found.FORMS)
    for entry in installed(_GROUP):
        yield from entry.load()
