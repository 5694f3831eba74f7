"""Chats in one text with labelled turns, one form for each way to label them.

    {"text": "<s>[INST] <<SYS>>\\nBe brief.\\n<</SYS>>\\n\\nHi [/INST] Hello! </s>"}
    {"text": "### Human: Hi### Assistant: Hello!"}

Spec: `labelled_texts` names the sets and projects that have each.

Quirks: a row is the member `text` of a record, or a file of text. White space and end tokens around turns are not kept.
The two sentences that begin Alpaca's prompt belong to the prompt and are left out; any other words before the first
label are instructions. Turns must alternate: a text in which they do not is refused, because a label in it may be a
quotation. An answer that is empty at the end is a prompt that nobody answered. Mistral's tools are read by the format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.datasets.form import Example, Form
from turnscript.datasets.labelled_texts import STYLES, Style, style_of, turns_of
from turnscript.datasets.members import Members, check_unread, quoted, record, required_text, unread, whole
from turnscript.datasets.problems import BadRow
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import take_weight_of_row

_READS = ("text",)


class Labelled(Form):
    """Texts in one style."""

    members = frozenset(_READS)

    def __init__(self, style: Style) -> None:
        self.style = style
        self.name = style.name  # type: ignore[misc]  # one class, as many forms as there are styles
        self.title = style.title  # type: ignore[misc]
        self.fields = style.example  # type: ignore[misc]

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """A `text` that can be taken apart, with an answer in it."""
        text = record.get("text")
        if not isinstance(text, str) or unread(record, _READS) or style_of(text) is not self.style:
            return 0, ""
        try:
            sides = [side for side, _ in turns_of(self.style, text, "$.text")]
        except BadRow as error:
            return 0.3, f"text that begins as {self.title}, but {error.message}"
        return (0.9, f"text with the turns of {self.title}") if "assistant" in sides else (0, "")

    def read(self, data: bytes) -> list[Example]:
        """One conversation."""
        members = _members(data)
        check_unread(members, _READS, self.name)
        turns = Turns()
        for side, said in turns_of(self.style, required_text(members, "text"), "$.text"):
            getattr(turns, side)(said, "$.text")
        return [turns.example(weight=take_weight_of_row(members))]


def _members(data: bytes) -> Members:
    """The record, or a text as one."""
    return record(data) if data.lstrip()[:1] == b"{" else {"text": quoted(whole(data).decode())}


FORMS = tuple(Labelled(style) for style in STYLES)
