"""Owns the list of forms: every module of their package, then installed entry points.

A module dropped into `turnscript/datasets/forms/` is registered: it ends in `FORMS = (...)`. Third parties use the
entry point group `turnscript.forms`, each entry naming such a tuple. Transcripts in the format of a well-known model
are a form under its name, unless another has it; they are in no list.
"""

from __future__ import annotations

from functools import cache

from turnscript.convert.registry import declared, get_format, model_formats
from turnscript.core.errors import UnknownName
from turnscript.datasets import forms as _PACKAGE  # noqa: N812  (`forms` is the public function below)
from turnscript.datasets.form import Form


def forms() -> list[str]:
    """Return the names of all forms."""
    return list(_forms())


def get_form(name: str) -> Form:
    """Return the form of that name. Raises UnknownName with the nearest ones."""
    known = _forms()
    if name in known:
        return known[name]
    if name in model_formats():
        return _transcripts(name)
    raise UnknownName("form", name, [*known, *model_formats()])


@cache
def _transcripts(name: str) -> Form:
    from turnscript.datasets.forms.transcripts import Transcript  # noqa: PLC0415  (few plans have one)

    return Transcript(get_format(name))


@cache
def _forms() -> dict[str, Form]:
    return {form.name: form for form in declared(_PACKAGE, "FORMS")}
