"""Transcripts of every prompt format: the form has the format's name, and is never guessed.

    User: Hi

    Assistant: Hello.

Spec: that of each format.

Quirks: a row is a file of text, or the member `text`, `transcript` or `conversation` of a record. It is read strictly,
as the format's parser does; where it is wrong, the line and column are those in the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turnscript.convert.file_documents import files_in
from turnscript.convert.registry import formats, get_format
from turnscript.convert.verbs import parse
from turnscript.core.conversation import Request
from turnscript.datasets.form import TRANSCRIPT, Example, Form
from turnscript.datasets.members import check_unread, required_text, whole
from turnscript.datasets.members import record as members_of_row
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.row_checks import check_items
from turnscript.formats.format import Format

_MEMBERS = ("text", "transcript", "conversation")


class Transcript(Form):
    """Transcripts of one format."""

    row = TRANSCRIPT

    def __init__(self, format_: Format) -> None:
        self.name = format_.name  # type: ignore[misc]  # one class, as many forms as there are formats
        self.title = f"Transcripts: {format_.title}"  # type: ignore[misc]
        self.fields = "a file of text, or a record with text, transcript or conversation"  # type: ignore[misc]

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Return 0: a transcript is taken for one only if somebody says so."""
        return 0, ""

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation, or the files that a text of a format with files is."""
        text = _text_of(data)
        found = files_in(text, self.name)
        if found is not None:
            if found.orders:
                orders = " or ".join(found.orders)
                message = (
                    f"its hole may be in the order {orders}; give rows with prefix, suffix and middle (form `fill`)"
                )
                raise BadRow(Code.FORMAT, message)
            return [Example(Request(), files=found.sequence)]
        request = parse(text, self.name)
        check_items(request.conversation.items)
        return [Example(request)]


def _text_of(data: bytes) -> str:
    """Return the transcript, maybe out of a record that holds it."""
    data = whole(data)
    if data.lstrip()[:1] == b"{":
        try:
            members = members_of_row(data)
        except BadRow:
            return data.decode()
        found = [key for key in _MEMBERS if key in members]
        if found:
            check_unread(members, found[:1], "of a transcript")
            return required_text(members, found[0])
    return data.decode()


def _all() -> Iterator[Form]:
    for name in formats():
        yield Transcript(get_format(name))


FORMS = tuple(_all())
