"""Owns the sample rows of forms: hand-made files in the shape of public data sets, read as a job would read them.

`rows/FORM.*` are the files of a form. Forms of formats have none: their rows are what the format writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from turnscript import Request, Text, ToolCall
from turnscript.convert.registry import formats, get_format
from turnscript.core.conversation import Assistant, Conversation, System, User
from turnscript.datasets.files import cut, read, sample
from turnscript.datasets.form import TRANSCRIPT, WHOLE, Example
from turnscript.datasets.form_registry import forms, get_form
from turnscript.datasets.rows import RawRow

ROWS = Path(__file__).parent / "rows"
GUESSED = [name for name in forms() if get_form(name).row != TRANSCRIPT]
WITH_FILES = [name for name in forms() if name not in formats()]


def files_of(form: str) -> list[Path]:
    """The sample files of a form."""
    return sorted(ROWS.glob(f"{form}.*"))


@cache
def rows_of(form: str) -> tuple[bytes, ...]:
    """The rows of a form, as its `read` gets them."""
    if form in formats():
        return _transcripts(form)
    whole = get_form(form).row == WHOLE
    pieces = [piece for path in files_of(form) for piece in cut(str(path), whole=whole, target=1 << 30)]
    return tuple(row.data for piece in pieces for row in read(piece))


def samples_of(path: Path) -> list[RawRow]:
    """The first records of a file, as detection gets them."""
    return sample(str(path))


def _transcripts(form: str) -> tuple[bytes, ...]:
    system, user = System(content=[Text(text="Be brief.")]), User(content=[Text(text="Hi")])
    items = [system, user, Assistant(content=[Text(text="Hello.")])]
    text = get_format(form).render(Request(conversation=Conversation(items=list(items)))).value
    return (str(text).encode(),)


def what_is_said(examples: list[Example]) -> list[object]:
    """All that a reader would learn from examples: what is said, called and answered, in order, and with which tools.

    Ids are left out: they only pair what the order pairs too.
    """
    return [
        (
            example.text,
            example.mask,
            example.files,
            [tool.name for tool in example.request.tools],
            list(_said(example)),
        )
        for example in examples
    ]


def _said(example: Example) -> Iterator[tuple[str, ...]]:
    for item in example.request.items:
        if isinstance(item, ToolCall):
            yield item.kind, item.name, item.arguments
        else:
            yield item.kind, *[getattr(part, "text", str(part)) for part in getattr(item, "content", [])]
