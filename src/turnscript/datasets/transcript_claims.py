"""Owns asking all formats that have names whether a text is a transcript of theirs, those of well-known models too.

A table is built only where one of its openings stands in the text: most texts have none, and all tables take a second.
"""

from __future__ import annotations

import re
from functools import cache

from turnscript.convert.recognition import most_marked
from turnscript.convert.registry import formats, get_format, model_formats, openings
from turnscript.datasets.form import TRANSCRIPT
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.labelled_texts import style_of


def claimants(text: str) -> list[str]:
    """Return the forms that could read a text because it begins as transcripts of their formats do."""
    possible = (
        [name for name in model_formats() if _openings(name).search(text)] if _all_openings().search(text) else []
    )
    known = {name: get_format(name) for name in [*formats(), *possible]}
    claimed = [name for name, format_ in known.items() if format_.claims(text) or format_.files_mark(text)]
    return [name for name in claimed if get_form(name).row == TRANSCRIPT]  # `hermes` is a form of rows


def chat_in(text: str) -> str:
    """Return what a text seems to be other than plain text, and what to say then; empty if it seems to be nothing."""
    style = style_of(text)
    forms = claimants(text)
    names = [*(most_marked(forms, text) or forms), *([style.name] if style is not None else [])]
    if not names:
        return ""
    named = f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]
    return f"it looks like a transcript; say so (--from {named}), or that it is plain text"


@cache
def _openings(name: str) -> re.Pattern[str]:
    return _any_of(openings(name))


@cache
def _all_openings() -> re.Pattern[str]:
    return _any_of({opening for name in model_formats() for opening in openings(name)})


def _any_of(literals: set[str] | frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, sorted(literals))))


__all__ = ["chat_in", "claimants"]
