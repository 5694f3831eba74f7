"""Owns the vocabulary of a format's table: what a format declares so that the engine can write and read it.

Every format has the same two levels. A document is turns joined by a separator; a turn is an opening with attributes, a
payload, and a closing. What differs between formats is data, and the data is here. A payload's shape is a `Body`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from msgspec import Struct

from turnscript.conversation import Item
from turnscript.engine.escape import Escape
from turnscript.engine.spans import Writer
from turnscript.jsontext import Json

AttributeType = Literal["text", "flag", "number", "json", "object", "names"]


class Attribute(Struct, frozen=True):
    """One `key="value"` of an opening tag and the field that it holds.

    `path` is a field of the item, or `hints.` and a field of its hints. `prompt`: also written for a model to see;
    the others appear in an archive only. `default`: the value that is not written.
    """

    key: str
    path: str
    type: AttributeType = "text"
    prompt: bool = False
    default: str | None = None


class Payload(Struct):
    """What stood between an opening and its closing, to be read by a body: raw text, attributes, and the place.

    `text` is still escaped. `line` is the line number of the payload's first line.
    """

    text: str
    attributes: dict[str, Json]
    line: int
    escape: Escape


class Body(Protocol):
    """A payload shape: writes an item's payload, and reads it back into the item's fields."""

    def attributes(self, item: Any, archive: bool) -> Mapping[str, str]:
        """Attributes of the opening tag that tell how the payload is written, as JSON text."""
        ...

    def write(self, item: Any, out: Writer) -> None:
        """Write the payload."""
        ...

    def read(self, payload: Payload) -> dict[str, Any]:
        """The item's fields. Takes the attributes that it understands out of `payload.attributes`."""
        ...


class Turn(Struct, frozen=True):
    """How one kind of item is written: `open` without its tag end, attributes, payload, `close`.

    `item` is the class that a reader makes. `required`: an attribute that must be there.
    `model`: the model writes such turns itself. `prompt`: a prompt shows them.
    `also_closed_by`: other spellings of the closing that a reader accepts.
    """

    kind: str
    item: type[Item]
    open: str
    close: str
    body: Body
    attributes: tuple[Attribute, ...] = ()
    also_closed_by: tuple[str, ...] = ()
    required: str = ""
    model: bool = False
    prompt: bool = True


class Generation(Struct, frozen=True):
    """How a prompt ends so that the model goes on: the kind of turn that is opened, and the strings that end it."""

    kind: str
    thinking_kind: str
    stops: tuple[str, ...]
    stops_with_tools: tuple[str, ...]


class Section(Struct, frozen=True):
    """A block of a document that is no item: request metadata, or the list of tools."""

    open: str
    close: str
    also_closed_by: tuple[str, ...] = ()


class Document(Struct, frozen=True):
    """A whole format: its turns by kind, its sections, what stands between them, and how content is escaped.

    `tag_end` closes an opening tag. Metadata comes first, the tool list after the leading system turns.
    """

    turns: tuple[Turn, ...]
    metadata: Section
    tools: Section
    escape: Escape
    generation: Generation
    tag_end: str = ">>"
    separator: str = "\n\n"

    def turn(self, kind: str) -> Turn:
        """The turn of a kind of item."""
        return next(turn for turn in self.turns if turn.kind == kind)
