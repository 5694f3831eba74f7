"""Owns calls as tags that say the tool's name twice: to whom a message goes, and again in the first tag."""

from __future__ import annotations

from typing import Any

from turnscript.core.conversation import ToolCall
from turnscript.engine.callrules import CallRules
from turnscript.engine.machine import ODD_CALL, Machine, Reading
from turnscript.engine.spans import Writer
from turnscript.engine.tagcalls import TagCall, TagReader, word_before, word_of
from turnscript.grammar.nodes import Node


class AddressedCall(TagCall):
    """A call as tags, its name first of all. `name_close`: what stands between that and the name in the first tag;
    `name_again`: what stands behind it there."""

    def __init__(
        self, key_open: str, value_open: str, value_close: str, *, name_close: str, name_again: str, end: str = ""
    ) -> None:
        super().__init__(key_open, value_open, value_close, name_close=name_close, end=end)
        self.name_again = name_again

    def write(self, item: ToolCall, out: Writer) -> None:
        """Write the name twice, and tags for each member."""
        self._of(item.name).write(item, out)

    def prefill(self, name: str | None, protect: Any) -> str:
        """Return the name, up to where the model decides."""
        return super().prefill(name, protect) if name is None else self._of(name).prefill(name, protect)

    def machine(self, reading: Reading) -> Machine:
        """Return a reader for a call that comes in pieces."""
        return _AddressedReader(self, reading)

    def grammar(self, call: CallRules) -> Node:
        """Return the name twice, and tags for each parameter of the schema."""
        return self._of(call.name).grammar(call)

    def _of(self, name: str) -> TagCall:
        """Return the shape of the calls of one tool, whose name is a part of the first tag."""
        close = f"{self.name_close}{word_of(name)}{self.name_again}"
        return TagCall(self.key_open, self.value_open, self.value_close, name_close=close, end=self.end)


class _AddressedReader(TagReader):
    """Reads the name twice. The first one counts: it is where the message goes."""

    def __init__(self, body: AddressedCall, reading: Reading) -> None:
        super().__init__(body, reading)
        self._addressee: str | None = None
        self._second_name = word_before((body.name_again.strip(),), True)

    def _name(self, text: str, position: int) -> tuple[int, bool]:
        end, waits = super()._name(text, position)
        if not (waits or self.failed):
            self._state, self._addressee, self.name = self._second, self.name, None
        return end, waits

    def _second(self, text: str, position: int) -> tuple[int, bool]:
        found = self._word(self._second_name, text, position)
        if found is None:
            return position, not self.failed
        if found[0] != self._addressee and self._reading.strict:
            self.issues.append((ODD_CALL, f"the first tag says another name: {found[0]}"))
        self.name, self._state = self._addressee, self._between
        return found[1], False
