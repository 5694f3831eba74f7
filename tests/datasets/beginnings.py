"""Owns what models write before a call at once, by hand: what samples must say, told apart from the encoder.

In the Universal transcript a prompt opens an answer, which is ended right behind its opening, before the call.
"""

from __future__ import annotations

from collections.abc import Iterator

import turnscript as ts
from turnscript.datasets.train import MODEL
from turnscript.formats.format import Format

EMPTY, CLOSED, OPENED = "\n<<ASSISTANT_END>>", "<<ASSISTANT_END>>", "<<ASSISTANT>>\n"


def turns_of(items: list[ts.Item]) -> Iterator[tuple[int, int]]:
    """Where turns of the model begin and end: what it says until anybody else speaks."""
    first = 0
    for at, item in enumerate(items):
        if item.kind not in MODEL:
            if first < at:
                yield first, at
            first = at + 1
    if first < len(items):
        yield first, len(items)


def calls_at_once(items: list[ts.Item]) -> list[int]:
    """Where turns begin with a call."""
    return [start for start, _ in turns_of(items) if items[start].kind == "tool_call"]


def spans_of(format_: Format, request: ts.Request) -> list[ts.Span]:
    """The spans of a sample: those of the rendering, and what the model writes before calls at once."""
    return _as_said(format_, request.items, format_.spans(request))


def prompts_of(format_: Format, request: ts.Request, start: int) -> Iterator[list[ts.Span]]:
    """The prompts that may lead to a turn, what the model has written before included.

    Flags of thoughts stand at the beginning, so who asks for a thought later has asked for it from there on.
    """
    items = request.items
    thoughts = [item.of for item in items if isinstance(item, ts.Thinking) and item.content]
    conversation = ts.Conversation(items=items[:start], tools=request.tools)
    asked = ts.Request(conversation=conversation, settings=ts.Settings(thoughts=thoughts or None))
    yield _as_said(format_, asked.items, format_.prompt(asked, thinking=False).spans)
    if isinstance(items[start], ts.Thinking):
        yield _as_said(format_, asked.items, format_.prompt(asked, thinking=True).spans)


def _as_said(format_: Format, items: list[ts.Item], spans: list[ts.Span]) -> list[ts.Span]:
    if format_.name != "rwkv-universal":
        return spans
    at_once = calls_at_once(items)
    saying_nothing = [
        start
        for start, end in turns_of(items)
        if items[start] == ts.Assistant(content=[ts.Text(text="")])
        and [item.kind for item in items[start + 1 : end]][:1] == ["tool_call"]
    ]
    found: list[ts.Span] = []
    for span in spans:
        if span.item in at_once and span.text.startswith("<<TOOL_CALL"):
            ended = [ts.Span(text, True, True, span.item) for text in (CLOSED, "\n\n")]
            found += [ts.Span(OPENED, True, False, span.item), *ended, span]
        else:
            found.append(span._replace(text=CLOSED) if span.item in saying_nothing and span.text == EMPTY else span)
    return found


def joined(spans: list[ts.Span]) -> str:
    """The text of spans."""
    return "".join([span.text for span in spans])


def text_of(format_: Format, request: ts.Request) -> str:
    """The text of a sample."""
    return joined(spans_of(format_, request))
