"""Owns which prompt format a model takes: the one that its settings name or make, else the one that its names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.registry import get_format, named_formats
from turnscript.core.errors import InvalidInput
from turnscript.detection import Detected, day_of, detect, detect_told
from turnscript.formats.format import Format
from turnscript.tableio.prompts import SECTION, read_prompts
from turnscript.tableio.tables import Table

NONE: Mapping[str, Format] = {}
DETECTED = "detected: "
"""How the reason begins where a sign told the format, and nobody said it."""


class Found(Struct, frozen=True):
    """A format, if there is one, and how it was found."""

    format: Format | None
    why: str
    guessed: bool = False
    """Whether names alone tell it: a chat template would be a surer sign."""
    guess: bool = False
    """Whether these names say too little, so that it is called a guess."""
    older: str = ""
    """What people are told of a model that is too old for all that its format has."""
    undated: Format | None = None
    """The format without regard to the age of its model, where that was looked at."""

    @property
    def settled(self) -> bool:
        """Return whether the settings say it."""
        return self.format is not None and not self.why.startswith(DETECTED)

    def dated(self, names: Iterable[str]) -> Found:
        """Return it with the variant that models as old as the day in their names take (requirements R-G-8, D-G-6)."""
        aged = _aged(self.format, day_of(names)) if self.format is not None else None
        format_, older = aged or (self.format, "")
        return replace(self, format=format_, older=older, undated=self.format)

    def finished(self, variant: str | None, first_token: str | None) -> Found:
        """With a variant of the format, and another token before each document. Raises UnknownName."""
        if self.format is None:
            return self
        format_ = self.format if variant is None else self.format.variant(variant)
        if first_token is not None and format_.template is None:
            format_ = format_.begun_with(first_token)
        return replace(self, format=format_)


def check_fill_order(format_: Format | None, order: str | None) -> None:
    """Raise UnknownName, Unsupported or InvalidInput for an order in which prompts of the format cannot have a hole."""
    if order is None or format_ is None:  # which a server may tell yet
        return
    files = format_.document.files
    if files is None:
        raise InvalidInput(f"the format {format_.name!r} has no words for a hole in a text; leave `fill_order` out")
    files.prompt_order(order)


def named(name: str, own: Mapping[str, Format] = NONE) -> Found:
    """The format of that name; `own` go before others of the same name. Raises UnknownName and InvalidInput."""
    return Found(own.get(name) or get_format(name), "set")


def detected(names: Iterable[str], own: Mapping[str, Format] = NONE) -> Found:
    """The format that the first telling name stands for; a name may be a model's file or folder. `own` have a say.

    Raises InvalidInput for a file that is none of a model, OSError for one that cannot be read.
    """
    why = "no name tells it"
    for name in filter(None, names):
        told = detect(name, own=own.values())
        if told.format is not None:
            return _found(told, own)
        why = told.reason
    return Found(None, why)


def told(names: Iterable[str], template: str, own: Mapping[str, Format] = NONE) -> Found:
    """The format that a server's names for its model, and the chat template that it shows, stand for."""
    return _found(detect_told(names, template, own=own.values()), own)


def _found(told: Detected, own: Mapping[str, Format]) -> Found:
    if told.format is None:
        return Found(None, told.reason)
    format_, older = own.get(told.format) or get_format(told.format), ""
    if told.variant in format_.variants:
        aged = _aged(format_, told.date)
        format_ = format_.variant(str(told.variant))
        older = aged[1] if aged is not None and aged[0] == format_ else ""
    guessed = told.evidence != "template" or told.exact is False
    return Found(format_, f"{DETECTED}{told.reason}", guessed, told.guess, older)


def _aged(format_: Format, day: str | None) -> tuple[Format, str] | None:
    """Return the variant of a format that models of that day take, and why; None where it is the format itself."""
    for clue in format_.clues:
        if day is not None and day < clue.thinks_from and clue.older in format_.variants:
            why = f"its name says {day}, and models from before {clue.thinks_from} were not trained to think when asked"
            return format_.variant(clue.older), f"{why} (variant {clue.older})"
    return None


def prompted(prompts: Mapping[str, Any], path: str = SECTION) -> Found:
    """The format that a table of ai00's `[prompts]` makes. Raises InvalidFormat with the key below `path`."""
    return Found(read_prompts(Table(prompts, path), named_formats()), f"[{path}]")
