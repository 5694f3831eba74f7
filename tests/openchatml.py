"""Owns what the tests of OpenChatML share: its examples, messages as the specification has them, items in short."""

from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from turnscript.formats.format import Format

FORMAT = ts.get_format("openchatml")
GOLDEN = Path(__file__).parent / "golden" / "openchatml"
STOCKS = "get_stock_fundamentals"
ROLES = ("system", "user", "assistant", "tool")


def example(name: str) -> str:
    """The bytes of an example."""
    return (GOLDEN / f"{name}.txt").read_bytes().decode()


Spoken = type[ts.System] | type[ts.User] | type[ts.Assistant] | type[ts.Thinking]


def said(kind: Spoken, words: str, **fields: Any) -> ts.Item:
    """An item of some kind with one text."""
    return kind(content=[ts.Text(text=words)], **fields)


def user(words: str, name: str | None = None) -> ts.Item:
    return said(ts.User, words, name=name)


def thought(words: str, of: str = "reason") -> ts.Item:
    return said(ts.Thinking, words, of=of)


def result(words: str, name: str | None = STOCKS) -> ts.Item:
    return ts.ToolResult(name=name, content=[ts.Text(text=words)])


def request_of(*items: ts.Item, tools: list[ts.Tool] | None = None, **settings: Any) -> ts.Request:
    """A request built by hand, its items with places."""
    conversation = ts.Conversation(items=list(items), tools=tools or [])
    request = ts.Request(conversation=conversation, settings=ts.Settings(**settings))
    request.locate()
    return request


def document(*items: ts.Item, format_: Format = FORMAT, **options: Any) -> str:
    """What is written for some items."""
    return str(format_.render(request_of(*items, **options)).value)


def inside(transcript: str) -> str:
    """A document without its ends."""
    return transcript.removeprefix("[BOS]").removesuffix("[EOS]")


def turn(role: str, words: str) -> str:
    """A message as the specification has it."""
    return f"<|im_start|>{role}\n{words}\n<|im_end|>"


def texts(request: ts.Request) -> list[str]:
    """The text of every item that has one."""
    return [
        "".join(part.text for part in item.content if isinstance(part, ts.Text))
        for item in request.items
        if isinstance(item, ts.System | ts.User | ts.Assistant | ts.Thinking | ts.ToolResult)
    ]


def answer(written: str, *, prefill: bool = False) -> ts.Response:
    """What is read where a model writes this and a tool is offered."""
    parser = FORMAT.prompt(request_of(user("q"), tools=[ts.Tool(name=STOCKS)]), thinking=prefill).parser()
    return ts.fold([*parser.feed(written), *parser.close()])


def error_of(transcript: str) -> tuple[int, int, str]:
    """Line, column and message of the error that a transcript gives."""
    with pytest.raises(ts.InvalidTranscript) as caught:
        FORMAT.parse(transcript)
    return caught.value.line, caught.value.column, caught.value.message
