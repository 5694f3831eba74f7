"""Owns the contract of payload machines: small readers that a parser feeds with a payload as it comes.

A payload shape is given one tool and its arguments to tell its calls as a grammar, and says what is lost of arguments
that are written one by one: values of a key that comes twice, and their spelling.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import Tool
from turnscript.core.errors import InvalidTranscript
from turnscript.core.json_text import Json, every_member, json_string
from turnscript.core.losses import Loss
from turnscript.engine.escape import Escape
from turnscript.engine.spans import Writer
from turnscript.engine.table import Payload
from turnscript.grammar.nodes import EMPTY, Node, Repeat, Token, Without, chars, choice, sequence
from turnscript.grammar.rules import COMMA, STRING, VALUE, Others, Rules, separated
from turnscript.grammar.schema import Member, Members, Schema, listed_strings

IDENTIFIER = Token(Repeat(chars("AZ", "az", "09", "_", "-"), 1, 64))
"""An id that a model makes up."""
KEY = Token(sequence(chars("AZ", "az", "_"), Repeat(chars("AZ", "az", "09", "_", "-"), 0, 63)))
"""A key that no schema names."""
NUMBER = Token(Repeat(chars("09"), 1, 4))


class CallRules(Struct, frozen=True):
    """A tool whose calls are to be told. `schema`: that of its arguments.

    `protect`: how a text is written here, and `spelled` one in quotes inside a tag.
    """

    tool: Tool
    name: str
    rules: Rules
    schema: Schema
    path: str
    protect: Callable[[str], str]
    spelled: Callable[[str], str]

    def lose_more(self) -> None:
        """Report that the schema allows members that it does not name: only those that it names are told."""
        self.rules.lose(f"{self.path}.additionalProperties", "a grammar tells only the parameters that have a name")

    def row(self, opened: Callable[[str], str], any_key: Node, spelled: Callable[[Node], Node] = sequence) -> Node:
        """Return arguments with commas between them: those of the schema in its order, or any where it names none.

        `opened`: what stands before the value of a key, and `any_key` before that of a key that the schema does not
        name. `spelled`: how a value is written, given its JSON.
        """
        members = self.schema.members()
        others = self.others(members, lambda: sequence(any_key, spelled(self.rules.shared(VALUE))))
        known: list[tuple[Node, bool]] = []
        for member in members.known if members is not None else ():
            name = self.rules.named(self.name, member.key)
            argument = sequence(opened(member.key), spelled(self.schema.member(member)))
            known.append((self.rules.add(name, argument), member.required))
        return separated(self.rules, known, COMMA, self.name, others)

    def others(self, members: Members | None, free: Callable[[], Node]) -> Others | None:
        """Return the arguments that no schema names, where it leaves them all open; None where it names some."""
        if members is not None and not members.is_open:
            if members.more is not None:
                self.lose_more()
            return None
        self.schema.lose_alternatives()
        least, most = (0, self.rules.most_others) if members is None else (members.least, members.most)
        if members is not None and members.more not in (True, {}):
            self.rules.lose(f"{self.path}.additionalProperties", "a grammar tells them of parameters with a name alone")
        if members is not None and members.names is not None:
            self.rules.lose(f"{self.path}.propertyNames", "a grammar tells it of JSON alone")
        return Others(self.rules.add(self.rules.named(self.name, "any"), free()), least, most)

    def parameters(
        self,
        kinds: Mapping[str, str],
        opened: Callable[[str], Node | str],
        any_key: Node | str,
        close: str,
    ) -> Node:
        """Return arguments as tags, in the order of the schema. `kinds`: what is written as a text, and not as JSON.

        `opened`: the tag before the value of a key, and `any_key` that of a key that the schema does not name.
        `close`: what ends a value.
        """
        members = self.schema.members()
        others = self.others(members, lambda: sequence(any_key, self.rules.shared(VALUE), close))
        if others is not None or members is None:
            return EMPTY if others is None else others.behind(EMPTY)
        parts: list[Node] = []
        for member in members.known:
            name = self.rules.named(self.name, member.key)
            rule = self.rules.add(name, sequence(opened(member.key), self._value(member, kinds, close), close))
            parts.append(rule if member.required else Repeat(rule, 0, 1))
        return sequence(*parts)

    def _value(self, member: Member, kinds: Mapping[str, str], close: str) -> Node:
        """Return a value: as JSON, or a string as its text, which ends where the closing begins."""
        if kinds.get(member.key) != "string":
            return self.schema.member(member)
        words = listed_strings(member.schema)
        if words and self.rules.spend(len(words)):
            return choice(*(sequence(self.protect(word)) for word in words))
        self.schema.lose_text(member)
        self.rules.shared(STRING)
        return Without((close.strip(),))


__all__ = ["IDENTIFIER", "KEY", "NUMBER", "CallRules", "Node"]


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
    is_json = False
    """A payload is one JSON object where this is true. Machines look at no more of that than they need."""

    def __init__(self) -> None:
        self.name = None
        self.id = None
        self.said: list[str] = []  # the argument text so far
        self.deltas: list[str] = []
        self.issues: list[tuple[str, str]] = []
        self.dropped: list[str] = []  # what of the payload is in no field of the call, in sentences
        self.left = ""  # what was read of what is behind the payload, and is to be read again
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

    def passes(self, text: str) -> int:
        """Return how much of a piece is argument text as it stands, and so taken; the rest waits for what follows.

        -1 where only `feed` can tell; then nothing is taken. Whoever asks appends to `said` what is taken.
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

    def prefill(self, name: str | None, protect: Callable[[str], str], number: int) -> str:
        """Return the beginning of the payload of a call that must be made, up to where the model decides."""
        return ""

    def machine(self, reading: Reading) -> Machine | None:
        """Return a reader for the payload in pieces; None where it is text."""
        return None

    def grammar(self, call: CallRules) -> Node | None:
        """Return what the payload of a call of a tool may be; None where that cannot be told."""
        return None


def lose_difference(arguments: str, kept: int, spelled: Callable[[str, str], str], out: Writer, detail: str) -> None:
    """Report why a JSON object of arguments will not be read again as it is. `kept`: how many are written, one for each
    key; `spelled`: how the value of a key will be read; `detail`: what to say where that differs."""
    if arguments.count(":") > kept:  # else no key comes twice
        members = every_member(arguments)
        for key, times in Counter([key for key, _ in members]).items():
            if times > 1:
                said = f"the key {json_string(key)} comes {times} times: its last value alone is kept"
                out.lose(".arguments", "dropped", said)
        if len(members) > kept and joined([(key, spelled(key, value)) for key, value in members]) == arguments:
            return
    out.lose(".arguments", "approximated", detail)


def lose_arguments(
    arguments: str, again: str | None, kept: int, spelled: Callable[[str, str], str], out: Writer
) -> None:
    """Report why arguments will not be read again as they are, if so. `again`: what will be read; None where they are
    no JSON object. `kept` and `spelled`: as for `lose_difference`."""
    if again is None:
        out.lose(".arguments", "approximated", "no JSON object; written as an argument called 'arguments'")
    elif again != arguments:
        detail = "keys and values are kept, not how the JSON was spelled"
        lose_difference(arguments, kept, spelled, out, detail)


def joined(members: list[tuple[str, str]]) -> str:
    """Return a JSON object as readers of single arguments spell it."""
    return "{" + ", ".join([f"{json_string(key)}: {value}" for key, value in members]) + "}"
