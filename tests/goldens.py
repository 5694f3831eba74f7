"""Owns the golden conversations C1, C2 and C3 (requirements 4), and reading the golden files of an API."""

from pathlib import Path

from turnscript import Assistant, Item, System, Text, Thinking, Tool, ToolCall, ToolResult, User
from turnscript.core.json_text import json_of

FOLDER = Path(__file__).parent / "golden" / "apis"
WEATHER = Tool(
    name="get_weather",
    description="Get current weather for a location",
    parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
)
SPACED = '{{"city": "{}"}}'
COMPACT = '{{"city":"{}"}}'


def golden(api: str, name: str) -> str:
    """The bytes of a golden body, as text."""
    return (FOLDER / f"{api}_{name}.json").read_text(encoding="utf-8").strip()


def c1(arguments: str = SPACED) -> list[Item]:
    """A text and a call in one turn, a result, an answer. `arguments`: how the API's golden spells them."""
    return [
        System(content=[Text(text="You are a helpful assistant.")]),
        User(content=[Text(text="What's the weather in Tokyo?")]),
        Assistant(content=[Text(text="I'll check that for you.")]),
        ToolCall(name="get_weather", arguments=arguments.format("Tokyo"), id="toolu_01abc123"),
        ToolResult(
            content=[Text(text='{"temperature": 22, "condition": "sunny"}')], id="toolu_01abc123", name="get_weather"
        ),
        Assistant(content=[Text(text="It's 22°C and sunny in Tokyo!")]),
    ]


def c2(signature: str | None = None) -> list[Item]:
    """A thought and an answer. `signature`: what the API's golden has beside the thought."""
    return [
        System(content=[Text(text="You are a helpful assistant.")]),
        User(content=[Text(text="What is 6 x 7?")]),
        Thinking(content=[Text(text="Let me reason through this step by step...")], signature=signature),
        Assistant(content=[Text(text="Based on my analysis, the answer is 42.")]),
    ]


def c3(arguments: str = SPACED) -> list[Item]:
    """Two parallel calls, two results, an answer."""
    return [
        User(content=[Text(text="Compare the weather in Tokyo and London.")]),
        ToolCall(name="get_weather", arguments=arguments.format("Tokyo"), id="call_001"),
        ToolCall(name="get_weather", arguments=arguments.format("London"), id="call_002"),
        ToolResult(content=[Text(text='{"temperature": 22}')], id="call_001", name="get_weather"),
        ToolResult(content=[Text(text='{"temperature": 15}')], id="call_002", name="get_weather"),
        Assistant(content=[Text(text="Tokyo is 22°C and London is 15°C.")]),
    ]
