"""Owns writing Goose transcripts in tests: conversations and answers in any style, and what they say in short."""

from pathlib import Path

import turnscript as ts
from turnscript.core.conversation import Part, text_content
from turnscript.core.json_text import json_of
from turnscript.formats.format import Format

FORMAT = ts.get_format("rwkv-goose")
STYLES = ["rwkv-goose", "rwkv-goose-hermes", "rwkv-goose-observation", "ai00-v0"]
GOLDEN = Path(__file__).parent / "golden"
WEATHER = ts.Tool(
    name="get_weather", parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}})
)
CALL = ts.ToolCall(name="get_weather", arguments='{"city":"Oslo"}')
FENCE = '```json\n{"name":"get_weather","arguments":{"city":"Oslo"}}\n```'


def example(name: str, folder: str = "rwkv_goose") -> str:
    """The bytes of a golden transcript."""
    return (GOLDEN / folder / f"{name}.txt").read_bytes().decode()


def content(text: str) -> list[Part]:
    """The content that a text is."""
    return [ts.Text(text=text)]


def said(*texts: str) -> list[ts.Item]:
    """User and assistant by turns."""
    return [(ts.Assistant if at % 2 else ts.User)(content=content(one)) for at, one in enumerate(texts)]


def request(*items: ts.Item, tools: list[ts.Tool] | None = None) -> ts.Request:
    """A request of some items."""
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=tools or []))


def result(text: str) -> ts.ToolResult:
    """What the weather tool answers."""
    return ts.ToolResult(name="get_weather", content=content(text))


def written(*items: ts.Item, format_: Format = FORMAT) -> str:
    """The transcript of some items."""
    return str(format_.render(request(*items)).value)


def short(items: list[ts.Item]) -> list[tuple[str, str]]:
    """Kind and text of each item; of a call its name and arguments."""
    return [
        ("call", f"{item.name} {item.arguments}")
        if isinstance(item, ts.ToolCall)
        else (item.kind, text_content(getattr(item, "content", [])))
        for item in items
    ]


def read(transcript: str, format_: Format = FORMAT) -> list[tuple[str, str]]:
    """What a transcript says, in short."""
    return short(format_.parse(transcript).items)


def answer(
    output: str,
    format_: Format = FORMAT,
    tools: list[ts.Tool] | None = None,
    thinking: bool = False,
    choice: ts.ToolChoice | None = None,
) -> ts.Response:
    """What a model writes after a question, read in single characters."""
    asked = request(*said("q"), tools=tools)
    asked.settings.tool_choice = choice
    parser = format_.prompt(asked, thinking=thinking).parser()
    return ts.fold([event for piece in output for event in parser.feed(piece)] + parser.close())
