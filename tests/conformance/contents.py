"""Owns how contents stand in what a format writes: with its marks broken, so that nobody reads them as marks."""

from collections.abc import Iterable

import turnscript as ts

Said = ts.Assistant | ts.Thinking


def escaped(
    format_: ts.Format, texts: Iterable[str], kind: type[ts.Assistant | ts.Thinking] = ts.Assistant
) -> list[str]:
    """Return each text as the content of an item of that kind."""
    items: list[ts.Item] = [kind(content=[ts.Text(text=text)]) for text in texts]
    written = [""] * len(items)
    asked = ts.Request(conversation=ts.Conversation(items=items))
    for span in format_.remembering().spans(asked, view="archive"):
        if not span.control:
            written[span.item] += span.text
    return written
