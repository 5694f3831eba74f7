"""Owns the golden spans: a file for each format that shows white space, control and loss mask."""

from collections.abc import Callable

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
    pages.append(f"prompt, thinking\n{marked(format_.prompt(asked, thinking=True).spans)}")
    golden(f"spans/{format_.name}.txt", "\n".join(pages))
