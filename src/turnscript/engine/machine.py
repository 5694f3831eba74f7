"""Owns the contract of payload machines: small readers that a parser feeds with a payload as it comes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import Tool
from turnscript.core.errors import InvalidTranscript
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.engine.callrules import CallRules
from turnscript.engine.escape import Escape
from turnscript.engine.scanner import Look
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.grammar.nodes import Node

ODD_CALL = "odd_call"
"""The issue of a call that is understood, and not written as the format writes one."""

_SHOWN = 200


class Reading(Struct):
    """What a payload's reader may know: the escape, the fields of the opening tag, and the offered tools by name.

    `ends`: tags that end the turn, where the payload is no JSON. `closes`: what closes the payload; `space`: the white
    space before that which belongs to it; `opening`: what opens another call. `lead`: the white space behind the
    opening tag which belongs to that; None where white space around a payload says nothing, as in what a model writes.
    `tentative`: all of it may be text, so the name is looked at first.
    """

    escape: Escape
    head: Mapping[str, Any] = {}
    tools: Mapping[str, Tool] = {}
    ends: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    space: str = ""
    opening: str = ""
    lead: str | None = None
    tentative: bool = False

    @property
    def strict(self) -> bool:
        """Return whether a transcript is read, and not what a model writes."""
        return self.lead is not None


class Machine(ABC):
    """Reads one call. `feed` takes what belongs to the payload and returns where that ends.

    `name` and `id` are set when they are known; `deltas` collects argument text, for the parser to take. `done`: the
    payload is complete; `failed`: it never will be, and reading stopped where that showed.
    """

    name: str | None
    id: str | None

    def __init__(self) -> None:
        self.name = None
        self.id = None
        self.said: list[str] = []  # the argument text so far
        self.deltas: list[str] = []
        self.issues: list[tuple[str, str]] = []
        self.dropped: list[str] = []  # what of the payload is in no field of the call, in sentences
        self.left = ""  # what was read of what is behind the payload, and is to be read again
        self.waits: Callable[[str], object] | None = None  # tells that all of a piece must wait for what follows
        self.done = False
        self.failed = False

    @property
    def streams(self) -> bool:
        """Return whether the call may be announced already: its name and the beginning of its arguments are known."""
        return any(self.deltas)

    @abstractmethod
    def feed(self, text: str, start: int) -> int:
        """Read from `start`; returns where reading stopped. What is tentative is read no further than to its name."""

    @property
    def unread(self) -> list[Loss]:
        """Return what of the call is not kept as it stands, at its members."""
        odd = [Loss(".arguments", "approximated", detail) for kind, detail in self.issues if kind == ODD_CALL]
        return [*odd, *(Loss("", "dropped", detail) for detail in self.dropped)]

    def look(self) -> Look | None:
        """Return how to tell that a piece is argument text as it stands; None where every piece needs more than a look.

        Such a piece is appended to `said`, and not given to `feed`.
        """
        return None

    def certain(self, text: str) -> int:
        """Return how much of a piece is argument text as it stands, and so taken; the rest waits for what follows.

        -1 where only `feed` can tell; then nothing is taken. What is taken is appended to `said`.
        """
        return -1

    def end(self, held: str, stopped: bool) -> bool:
        """The text is over: whether what is missing of the payload may be taken for written, so that it is `done`, or
        something is `left`. `held`: what waits for more; `stopped`: the model ended there itself."""
        return False

    def drop(self, names: Iterable[str]) -> None:
        """Take note of members, or attributes, that no call has."""
        said = ", ".join(sorted(map(repr, names)))
        if said:
            self.dropped.append(f"members that no call has are left out: {said[:_SHOWN]}")

    def taken(self) -> str:
        """Return the argument text since the last time."""
        text = "".join(self.deltas)
        self.deltas.clear()
        return text

    @abstractmethod
    def fields(self) -> dict[str, Any] | None:
        """Return the call's fields once `done`, None if it is no call after all."""

    def whole(self, payload: Payload, message: str, expected: str) -> dict[str, Any]:
        """Return the fields of a call that is all of a payload, read from its start.

        Raises InvalidTranscript with `message`, which says how a call must be written: as `expected`.
        """
        end = self.feed(payload.text, 0)
        if not self.done:
            end = self.feed(payload.text, end)  # once more behind the name
        fields = self.fields() if self.done and not payload.text[end:].strip() else None
        if fields is None:
            raise InvalidTranscript(message, line=payload.line, column=1, expected=expected)
        return fields


def _none(item: Any, out: Writer) -> str | None:
    return None


class PlainBody:
    """What most payload shapes have in common: nothing in the opening tag, always shown, never empty, no machine."""

    literals: tuple[str, ...] = ()
    carries: tuple[str, ...] = ()
    formats = False
    plain = False
    begins = ""
    openings: tuple[str, ...] = ()
    next_text = ""
    says_name = False
    name_last = False
    compact = False

    def attributes(self, item: Any, archive: bool) -> Mapping[str, str]:
        """Return attributes that tell how the payload is written: none."""
        return {}

    def attributes_read(self, form: Json | None) -> dict[str, Any]:
        """Return fields from the `format` attribute of an opening tag: none."""
        return {}

    def shows(self, item: Any, out: Writer) -> bool:
        """Return whether there is anything to write: always."""
        return True

    def is_empty(self, item: Any, flattened: bool = False) -> bool:
        """Return whether the empty text would be written: no."""
        return False

    def only_text(self, silent: Callable[[Any], bool]) -> Callable[[Any, Writer], str | None]:
        """Return a function that gives the payload of an item that says nothing else, as text; None for all others.

        `silent`: whether an item says nothing beside its payload.
        """
        return _none

    def prefill(self, name: str | None, protect: Callable[[str], str]) -> str:
        """Return the beginning of the payload of a call that must be made, up to where the model decides."""
        return ""

    def machine(self, reading: Reading) -> Machine | None:
        """Return a reader for the payload in pieces; None where it is text."""
        return None

    def grammar(self, call: CallRules) -> Node | None:
        """Return what the payload of a call of a tool may be; None where that cannot be told."""
        return None
