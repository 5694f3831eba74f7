"""An instruction, maybe with an input, and its output: Alpaca, LLaMA-Factory's rows of that name, and Dolly.

    {"instruction": "Translate to French.", "input": "Good day", "output": "Bonjour", "system": "", "history": []}

Spec: https://github.com/tatsu-lab/stanford_alpaca,
https://llamafactory.readthedocs.io/en/latest/getting_started/data_preparation.html.

Quirks: instruction and input are one user text with a line break between them; the prompt around them that Alpaca was
trained with is not written, because the format has turns for that. `history` is earlier pairs of user and model.
`text` is Alpaca's own copy of all of it and is not read. Dolly calls the members `context` and `response`, GPTeacher
and others call them `input` and `response`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from turnscript.datasets.chat_rows import read_tools
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    check_unread,
    check_wanted,
    is_null,
    record,
    required_text,
    text_member,
    unread,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight


class Alpaca(Form):
    """Rows of an instruction and its output."""

    name = "alpaca"
    members = frozenset({"instruction"})
    title = "Alpaca: instruction, input and output, LLaMA-Factory's system and history included"
    fields = "instruction, input, output, system, history: [[user, assistant]]"
    given: ClassVar[str] = "input"
    answer: ClassVar[str] = "output"
    reads: ClassVar[tuple[str, ...]] = ("instruction", "input", "output", "system", "history", "text", "tools")

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for the members `instruction` and `output`."""
        if not (isinstance(record.get("instruction"), str) and isinstance(record.get(self.answer), str)):
            return 0, ""
        if extra := unread(record, self.reads):
            return 0.2, f"instruction and {self.answer}, but also {extra[0]}"
        own = self.given in record
        return (0.95 if own else 0.9), f"instruction{f', {self.given}' if own else ''} and {self.answer}"

    def read(self, data: bytes) -> list[Example]:
        """Return one exchange behind its history."""
        members = record(data)
        check_unread(members, self.reads, self.name)
        check_wanted(members)
        turns = Turns()
        begin(turns, members, self._given(members))
        first = len(turns.items)
        turns.assistant(required_text(members, self.answer), f"$.{self.answer}")
        turns.weigh(first, take_weight(members, "$"))
        return [turns.example(read_tools(members.get("tools")))]

    def _given(self, members: Members) -> str:
        """Return the member beside the instruction."""
        return self.given


class Dolly(Alpaca):
    """Alpaca with other names."""

    name = "dolly"
    title = "Dolly: instruction, context (or GPTeacher's input) and response"
    fields = "instruction, context (or input), response"
    given = "context"
    answer = "response"
    reads = ("instruction", "context", "input", "response")

    def _given(self, members: Members) -> str:
        found = [key for key in ("context", "input") if bytes(members.get(key, b"null")) not in (b"null", b'""')]
        if len(found) > 1:
            raise BadRow(Code.SHAPE, "a context and an input stand beside the instruction; make one of them", path="$")
        return found[0] if found else self.given


def begin(turns: Turns, members: Members, given: str) -> None:
    """Add everything before the answer: system, history, and the question."""
    if said := text_member(members, "system"):
        turns.system(said, "$.system")
    if not is_null(members.get("history")):
        turns.history(members["history"], "$.history")
    question, more = required_text(members, "instruction"), text_member(members, given)
    said = f"{question}\n{more}" if question and more else question or more
    if not said:
        raise BadRow(Code.EMPTY, "the instruction is empty", path="$.instruction")
    turns.user(said, "$.instruction")


FORMS = (Alpaca(), Dolly())
