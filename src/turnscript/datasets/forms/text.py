"""Texts that are no conversations: one text a row, pieces that say whether they are trained, and files of text.

    {"text": "Once upon a time ..."}
    {"segments": [{"label": false, "text": "Q: 2 + 2?\\n"}, {"label": true, "text": "A: 4\\n"}]}

Spec: https://docs.axolotl.ai/docs/dataset-formats, "Template-Free".

Quirks: a text is never taken apart, whatever tags it holds. To read it as a transcript, name its format; where most
texts begin like transcripts, one of both has to be named. A file that is JSON is refused: an object is a record, and a
string or an array would be trained with its quotes and escapes. So is a text with a `role` or a `speaker` beside it: it
is a turn of a conversation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.conversation import Request
from turnscript.core.json_text import is_object
from turnscript.datasets.form import TRANSCRIPT, Example, Form
from turnscript.datasets.members import (
    absent,
    check_unread,
    is_null,
    json_in,
    list_of,
    object_of,
    record,
    required_text,
    unread,
    whole,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.transcript_claims import chat_in
from turnscript.datasets.weights import weight_of

_SPEAKERS = ("role", "speaker")
"""Members of rows that are turns: their text is what one side of a conversation says."""


class Plain(Form):
    """Rows of one text."""

    name = "text"
    members = frozenset({"text"})
    title = "One text a row, trained as it stands"
    fields = "text"
    plain = True

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for the member `text`. One that begins like a transcript is no plain text: all of it would count."""
        text = record.get("text")
        if not isinstance(text, str) or unread(record, ("text",)):
            return 0, ""
        for who in _SPEAKERS:
            if record.get(who):
                return 0.2, f"text, but also {who}"
        if found := chat_in(text):
            return 0.4, f"text, but {found} (--from {self.name})"
        return 0.8, "text, and no member of a conversation"

    def read(self, data: bytes) -> list[Example]:
        """Return the text."""
        members = record(data)
        check_unread(members, ("text",), self.name)
        for who in _SPEAKERS:
            if bytes(members.get(who, b"null")) not in (b"null", b'""'):
                message = "somebody says this text, so it is a turn; a map file can say that it is a text all the same"
                raise BadRow(Code.FORM, message, path=f"$.{who}")
        return [_of_text(required_text(members, "text"), "$.text")]


class File(Form):
    """Files of text."""

    name = "text-file"
    title = "A file of text, trained as it stands"
    fields = "the whole file"
    plain = True
    row = TRANSCRIPT

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Return 0: no record is a text."""
        return 0, ""

    def read(self, data: bytes) -> list[Example]:
        """Return the text."""
        text = whole(data).decode()
        if is_object(text):
            raise BadRow(Code.FORM, "this is a record and no text; name the form of the record")
        if text.lstrip()[:1] in ('"', "[") and _is_json(text):
            message = 'this is a value of JSON and no text; write it as {"text": ...} or {"messages": [...]}'
            raise BadRow(Code.FORM, message)
        return [_of_text(text, "")]


class Segments(Form):
    """Rows of pieces, each trained or not."""

    name = "segments"
    members = frozenset({"segments"})
    title = "Pieces of a text, each with whether it is trained (axolotl's input_output)"
    fields = "segments: [{text, label}]"
    plain = True

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Look for pieces with `text` and `label`."""
        pieces = record.get("segments")
        if not isinstance(pieces, list) or not pieces or unread(record, ("segments",)):
            return 0, ""
        fits = all(isinstance(one, dict) and "text" in one and "label" in one for one in pieces)
        return (1, "segments with text and label") if fits else (0, "")

    def read(self, data: bytes) -> list[Example]:
        """Return the text of all pieces."""
        members = record(data)
        check_unread(members, ("segments",), self.name)
        if "segments" not in members:
            raise absent("$.segments", "an array of pieces")
        mask: list[tuple[str, bool]] = []
        for index, entry in enumerate(list_of(members["segments"], "$.segments")):
            at = f"$.segments[{index}]"
            piece = object_of(entry, at)
            if is_null(piece.get("label")):
                raise absent(f"{at}.label", "true or false")
            weight = weight_of(piece["label"], f"{at}.label")
            if weight not in (0, 1):
                raise BadRow(Code.WEIGHT, f"a piece is trained or not, got {weight:g}", path=f"{at}.label")
            mask.append((required_text(piece, "text", at), weight == 1))
        example = _of_text("".join([piece for piece, _ in mask]), "$.segments")
        example.mask = mask
        return [example]


def _is_json(text: str) -> bool:
    try:
        json_in(text, "$")
    except BadRow:
        return False
    return True


def _of_text(text: str, at: str) -> Example:
    if not text:
        raise BadRow(Code.EMPTY, "the text is empty", path=at)
    return Example(Request(), text=text)


FORMS = (Plain(), File(), Segments())
