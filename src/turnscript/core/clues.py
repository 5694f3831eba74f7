"""Owns clues: what a format says about the models that take it, as data, so that detection knows no format by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, get_args

from msgspec import Struct

from turnscript.core.errors import InvalidInput

Evidence = Literal["template", "name", "stem", "architecture"]
EVIDENCE: tuple[Evidence, ...] = get_args(Evidence)
"""What can be known about a model, the most telling first."""

DEFAULT = "default"


class Clue(Struct, frozen=True, kw_only=True):
    """A sign that a model takes the format that declares it.

        Clue(evidence="name", pattern="qwen|qwq", family="Qwen", reason="Qwen models take ChatML")

    All patterns are regular expressions, searched anywhere in a text. Names and architectures are searched in lower
    case, templates as they are.
    """

    evidence: Evidence
    """Where to look: the chat template; the names of the model, without the suffix of a weights file; the base name of
    the path without its last extension, whatever that is; what the weights call their architecture."""
    pattern: str
    """What must be there. The reason quotes its last group that matched, or all of it if it has no groups."""
    reason: str
    """Why this tells the format; follows on `its name has 'qwen': `, or stands alone if nothing was matched."""
    also: tuple[str, ...] = ()
    """What else must be there."""
    unless: str = ""
    """What must not be there."""
    named: str = ""
    """What one of the names must have too: for a template that models of several formats have, as bare ChatML."""
    order: int = 100
    """Of the clues that fit on the same evidence, the lowest decides; at a tie, the format that comes first by name."""
    rule: str = DEFAULT
    """The set of clues that this one belongs to. A rule that copies another program keeps its own."""
    family: str = ""
    """What models with this sign are called."""
    thinks: str = ""
    """A model with this in the same text can think."""
    thinks_from: str = ""
    """Models dated from this day on (yyyymmdd) can think, older ones cannot; the date stands in the name."""
    guess: bool = False
    """Models with this sign take several formats, of which this is the likeliest: what it tells is called a guess."""
    older: str = ""
    """The variant of the format that those older models take, if not the format itself."""

    def __post_init__(self) -> None:
        for pattern in (self.pattern, self.unless, self.named, self.thinks, *self.also):
            try:
                re.compile(pattern)
            except (re.error, OverflowError, RecursionError) as error:
                message = f"the pattern {pattern!r} of a clue is no regular expression: {error}"
                raise InvalidInput(message, expected="a regular expression") from None

    def mark(self, text: str, names: Iterable[str] = ()) -> str | None:
        """What in the text is the sign, None if it is not there. `names`: those of the model."""
        found = re.search(self.pattern, text)
        if not found or (self.unless and re.search(self.unless, text)):
            return None
        if not all(re.search(pattern, text) for pattern in self.also):
            return None
        if self.named and not any(re.search(self.named, name) for name in names):
            return None
        return str(found[found.lastindex or 0])
