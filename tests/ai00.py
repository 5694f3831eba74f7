"""Owns writing ai00 transcripts in tests: turns, blocks and conversations, and what they say in short."""

import json
from pathlib import Path

import turnscript as ts
from turnscript.core.conversation import Part, text_content
from turnscript.core.json_text import json_of

FORMAT = ts.get_format("ai00-v1")
GOLDEN = Path(__file__).parent / "golden" / "ai00_v1"


def example(name: str) -> str:
    """The bytes of a golden transcript."""
    return (GOLDEN / f"{name}.txt").read_bytes().decode()


def turn(role: str, text: str) -> str:
    """A turn as the document describes it."""
    return f"<ai00:{role}>\n{text}\n</ai00:{role}>"


def assistant(*blocks: str) -> str:
    """An assistant's turn that holds some blocks."""
    return turn("assistant", "\n".join(blocks))


def calls(*invokes: str) -> str:
    """A block of calls."""
    return "<ai00:function_calls>\n" + "".join(invokes) + "</ai00:function_calls>"


def invoke(name: str, *parameters: str, id_: str = "") -> str:
    """A call; each parameter is `key>value`."""
    lines = "".join([f'    <parameter name="{one.replace(">", chr(34) + ">", 1)}</parameter>\n' for one in parameters])
    return f'  <invoke name="{name}"{id_}>\n{lines}  </invoke>\n'


def results(*entries: tuple[str, str]) -> str:
    """A block of results, each with what it says in its tag, and lines that are indented already."""
    inner = "".join([f"  <result {head}>\n{text}\n  </result>\n" for head, text in entries])
    return f"<ai00:function_results>\n{inner}</ai00:function_results>"


def text(*parts: str) -> list[Part]:
    """The content that some texts are."""
    return [ts.Text(text=part) for part in parts]


def said(*texts: str) -> list[ts.Item]:
    """User and assistant by turns."""
    return [(ts.Assistant if at % 2 else ts.User)(content=text(one)) for at, one in enumerate(texts)]


def request(*items: ts.Item, tools: list[ts.Tool] | None = None) -> ts.Request:
    """A request of some items."""
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=tools or []))


def written(*items: ts.Item, tools: list[ts.Tool] | None = None) -> str:
    """The transcript of some items, of which nothing may be lost."""
    rendered = FORMAT.render(request(*items, tools=tools))
    assert [] == rendered.losses
    return str(rendered.value)


def short(items: list[ts.Item]) -> list[tuple[str | None, ...]]:
    """Kind and text of each item; of a call name, arguments and id; of a result name, id and text."""
    found: list[tuple[str | None, ...]] = []
    for item in items:
        if isinstance(item, ts.ToolCall):
            found.append(("call", item.name, item.arguments, item.id))
        elif isinstance(item, ts.ToolResult):
            found.append(("result", item.name, item.id, text_content(item.content)))
        else:
            found.append((item.kind, text_content(getattr(item, "content", []))))
    return found


def read(transcript: str) -> list[tuple[str | None, ...]]:
    """What a transcript says, in short."""
    return short(FORMAT.parse(transcript).items)


def answer(output: str, tools: list[ts.Tool] | None = None, thinking: bool = False) -> ts.Response:
    """What a model writes after a question, read in single characters."""
    parser = FORMAT.prompt(request(*said("q"), tools=tools), thinking=thinking).parser()
    return ts.fold([event for piece in output for event in parser.feed(piece)] + parser.close())


WEATHER = ts.Tool(
    name="get_weather",
    description="Get current weather for a location",
    parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
)
CALL = ts.ToolCall(name="get_weather", arguments='{"city": "Tokyo"}', id="toolu_01abc123")
RESULT = ts.ToolResult(
    name="get_weather", id="toolu_01abc123", content=text('{"temperature": 22, "condition": "sunny"}')
)
TOKYO, LONDON = invoke("get_weather", "city>Tokyo"), invoke("get_weather", "city>London")


def cities(response: ts.Response) -> list[str]:
    """The cities that the calls of an answer ask about."""
    return [json.loads(item.arguments)["city"] for item in response.items if isinstance(item, ts.ToolCall)]
