"""Owns what must be true of the conversation beside a sample: it reads back as that of the row, weights included."""

from __future__ import annotations

from collections.abc import Iterator

from turnscript.core.errors import TurnscriptError
from turnscript.datasets.chat_writing import Written, read_chat
from turnscript.datasets.form import Example
from turnscript.datasets.problems import DEFECTS
from turnscript.datasets.sample_checks import unlike


def chat_faults(example: Example, written: Written) -> Iterator[str]:
    """Give what is wrong with a conversation as it was written, a sentence each; nothing if it is as it should be."""
    if not written.data:
        return
    try:
        found = read_chat(written.data)
    except (TurnscriptError, *DEFECTS) as error:
        if not written.losses:
            yield f"its messages do not read back: {error}"
        return
    difference = unlike(example.request, found.request, [loss.path for loss in written.losses], "its messages read")
    if difference:
        yield difference
        return
    weights = {**example.weights, **dict.fromkeys(example.context, 0.0)}
    if len(found.request.items) == len(example.request.items) and found.weights != weights:
        yield "its messages read back with other weights"
