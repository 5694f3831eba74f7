"""Owns what a payload shape is given to tell its calls as a grammar: one tool, its arguments, and how a text stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from turnscript.core.conversation import Tool
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
