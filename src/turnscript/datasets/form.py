"""Owns the contract of a form: the shape in which a dataset keeps its conversations.

A form says how surely a record is one of its own (`score`), and reads a record as examples (`read`). Detection asks all
forms about the first records of a file; a record that is read later and is of another shape is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import Assistant, Conversation, Item, Request, System, Text, User
from turnscript.engine.files import FileSequence

EACH, WHOLE, TRANSCRIPT = "each record", "the whole file", "transcripts"
"""What one row of a form is: a record of a file; all the records of a file, as in a session that an agent logged; or a
text that is no JSON."""


class Spoken(Struct, gc=False):
    """A conversation in which each item says one text and nothing beside it: the kinds of the items, and their texts.

    `places`: where each of them stands, by position. `origin` and `words` are those of the request. Most rows are such,
    and what a sample needs of them is here: items take as long to make and to forget as the row takes to be read.
    """

    kinds: tuple[type[System | User | Assistant], ...]
    texts: Sequence[str]
    places: Mapping[int, str] | Sequence[str]
    origin: str | None = None
    words: Mapping[str, str] = {}

    def items(self) -> list[Item]:
        """Return what is said as items."""
        said = enumerate(zip(self.kinds, self.texts, strict=True))
        return [kind(content=[Text(text=text)], at=self.places[at]) for at, (kind, text) in said]

    def request(self) -> Request:
        """Return what is said as the request that it is read from."""
        return Request(conversation=Conversation(items=self.items()), origin=self.origin, words=self.words)


class Example(Struct):
    """What one sample is made of: a conversation, or a `text` or `files` without one.

    `weights`: how much the row says that an item counts in the loss, by its position, from 0 to 1; items that are not
    there count as the plan says. `mask`: pieces of a plain text, each with whether it is trained; empty: all of it is.
    `files`: what it is instead: files, the last of them maybe with a hole.
    `label` tells apart the examples of one row (`choice 2`, `path 3`). `context`: positions of items that are never
    trained, whatever the row and the plan say, because of what the form is: a prompt, or what another example trains.
    `spoken`: the texts of a conversation in which each item says one and nothing beside it, where nobody made items of
    them yet.
    """

    given: Request | None
    weights: dict[int, float] = {}
    text: str | None = None
    mask: list[tuple[str, bool]] = []
    label: str = ""
    context: frozenset[int] = frozenset()
    files: FileSequence | None = None
    spoken: Spoken | None = None

    @property
    def is_document(self) -> bool:
        """Return whether it is a text or files, and no conversation."""
        return self.text is not None or bool(self.mask) or self.files is not None

    @property
    def request(self) -> Request:
        """Return the conversation. Of what is `spoken` it is made when it is first asked for."""
        if self.given is None:
            assert self.spoken is not None, "an example has a conversation"
            self.given = self.spoken.request()
        return self.given

    def but(self, request: Request, **changes: Any) -> Example:
        """Return an example like this of another conversation, and with other changes."""
        return replace(self, given=request, spoken=None, **changes)


class Form(ABC):
    """A shape of datasets. Subclasses set the class attributes and write `score` and `read`.

    `fields`: for people, what its records look like, in one line. `plain`: its rows are texts and no conversations,
    and are trained as they stand. `covers`: other forms whose rows it reads too, each as the one that fits it.
    `members`: a record without any of them is none of this form, and its score is 0; empty: only `score` can tell.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    fields: ClassVar[str]
    row: ClassVar[str] = EACH
    plain: ClassVar[bool] = False
    covers: ClassVar[frozenset[str]] = frozenset()
    members: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Return how surely a record is of this form, from 0 (it is not) to 1, and why, in a few words.

        For a form whose row is the whole file, a record is one of its lines. Scores are compared: 1 for members that
        no other form has, 0.5 for a shape that others could have too. Never raises.
        """

    @abstractmethod
    def read(self, data: bytes) -> list[Example]:
        """Return the examples of a row, in its order; never none.

        `data` is the JSON of a record; for a form whose row is the whole file, all of the file's lines; for
        transcripts the text. Raises BadRow with the code and the JSON path, or another InvalidInput. What it does not
        understand it refuses: nothing that belongs to the conversation is left out.
        """
