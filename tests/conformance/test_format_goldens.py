"""Owns the golden spans: a file for each format that shows white space, control and loss mask."""

from collections.abc import Callable
from itertools import groupby

import turnscript as ts
from tests import corpora
from turnscript.cli.prompt import marked

SHOWN = ("c1", "c2", "c3")


def test_the_spans_are_the_golden_ones(format_name: str, golden: Callable[[str, str], None]) -> None:
    """F1: one span per line: `#` control, `=` content, `*` and `+` the same where the model writes them."""
    format_ = ts.get_format(format_name)
    pages = [f"{name}\n{marked(format_.spans(corpora.load(name)))}" for name in SHOWN]
    asked = corpora.load("c1")
    asked.conversation.items = asked.items[:2]
    pages.append(f"prompt\n{marked(format_.prompt(asked, thinking=False).spans)}")
    if format_.features.thinking:
        pages.append(f"prompt, thinking\n{marked(format_.prompt(asked, thinking=True).spans)}")
    golden(f"spans/{format_.name}.txt", "\n".join(pages))


def test_the_items_of_the_spans_are_the_golden_ones(format_name: str, golden: Callable[[str, str], None]) -> None:
    """F1: for each stretch of one item its kind, `-` if it belongs to none, and its text.

    What ends a turn is of its last item. Behind a closing of its own, what stands between turns is of the next.
    """
    format_ = ts.get_format(format_name)
    pages = []
    for name in SHOWN:
        request = corpora.load(name)
        lines = [
            f"{number} {request.items[number].kind if number >= 0 else '-'}: {''.join(span.text for span in spans)!r}"
            for number, spans in groupby(format_.spans(request), key=lambda span: span.item)
        ]
        pages.append("\n".join([name, *lines, ""]))
    golden(f"owners/{format_.name}.txt", "\n".join(pages))
