"""Owns the contract of a form: the shape in which a dataset keeps its conversations.

A form says how surely a record is one of its own (`score`), and reads a record as examples (`read`). Detection asks all
forms about the first records of a file; a record that is read later and is of another shape is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from turnscript.conversation import Request

EACH, WHOLE, TRANSCRIPT = "each record", "the whole file", "transcripts"
"""What one row of a form is: a record of a file; all the records of a file, as in a session that an agent logged; or a
text that is no JSON."""


class Example(Struct):
    """What one sample is made of: a conversation, or a `text` without one.

    `weights`: how much the row says that an item counts in the loss, by its position, from 0 to 1; items that are not
    there count as the plan says. `mask`: pieces of a plain text, each with whether it is trained; empty: all of it is.
    `label` tells apart the examples of one row (`choice 2`, `path 3`). `context`: positions of items that are never
    trained, whatever the row and the plan say, because of what the form is: a prompt, or what another example trains.
    `said`: each item says one text and nothing beside it. So it is in most rows, and those are written a shorter way.
    """

    request: Request
    weights: dict[int, float] = {}
    text: str | None = None
    mask: list[tuple[str, bool]] = []
    label: str = ""
    context: frozenset[int] = frozenset()
    said: bool = False


class Form(ABC):
    """A shape of datasets. Subclasses set the class attributes and write `score` and `read`.

    `fields`: for people, what its records look like, in one line.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    fields: ClassVar[str]
    row: ClassVar[str] = EACH

    @abstractmethod
    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """How surely a record is of this form, from 0 (it is not) to 1, and why, in a few words.

        For a form whose row is the whole file, a record is one of its lines. Scores are compared: 1 for members that
        no other form has, 0.5 for a shape that others could have too. Never raises.
        """

    @abstractmethod
    def read(self, data: bytes) -> list[Example]:
        """A row as examples, in the row's order; never none.

        `data` is the JSON of a record; for a form whose row is the whole file, all of the file's lines; for
        transcripts the text. Raises BadRow with the code and the JSON path, or another InvalidInput. What it does not
        understand it refuses: nothing that belongs to the conversation is left out.
        """
