r"""RWKV Goose: `User: ...`, `Assistant: ...`, a blank line between turns and nowhere else. ai00 v0 is a dialect.

    System: You are a helpful assistant.

    User: What is 6 x 7? think

    Assistant: <think>
    Six sevens.
    </think>
    42

Spec: requirements 1.3 (the document), 2.3 (decisions on its gaps), S6 and S7 (tool styles).

Quirks: a blank line ends a turn, so blank lines inside a text become single newlines and white space at its ends goes;
that is reported. A turn has no closing. The model writes the space behind `Assistant:` itself. Calls are JSON in a
fence, which counts only for tools that are offered; `rwkv-goose-hermes` has tags instead.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.clues import Clue
from turnscript.conversation import Assistant, System, Thinking, ToolCall, ToolResult, User
from turnscript.engine.escape import Escape
from turnscript.engine.jsoncalls import JsonCall
from turnscript.engine.table import Document, Generation, Segment, ToolsPlace, Turn
from turnscript.engine.texts import PlainText
from turnscript.engine.toollists import JsonTools
from turnscript.format import Format
from turnscript.jsontext import compact

TOOLS = ToolsPlace(
    body=JsonTools("arguments", properties=True, shape=compact, between=",\n"),
    open="Tools:\n[\n",
    close="\n]\nReturn only a JSON function call.",
    joint="\n",
    footer="Return only a JSON function call.",
)
THOUGHTS = ("think>", "/think>")
FENCED_CALL = ("```", ('json\n{"name"',))
SYSTEM = Turn(
    (Segment("system", System, PlainText(), escape=Escape(("Tools", (":\n[",)))),), "system", "System:", lead=" "
)
USER = Turn(
    (
        Segment("user", User, PlainText(), escape=Escape(("Function", (" output:",)))),
        Segment("tool_result", ToolResult, PlainText(), open="Function output:\n", escape=Escape()),
    ),
    "user",
    "User:",
    lead=" ",
)
ASSISTANT = Turn(
    (
        Segment(
            "thinking",
            Thinking,
            PlainText(),
            open="<think>\n",
            close="\n</think>",
            model=True,
            escape=Escape(("<", THOUGHTS)),
        ),
        Segment("assistant", Assistant, PlainText(), model=True, escape=Escape(("<", THOUGHTS), FENCED_CALL)),
        Segment(
            "tool_call",
            ToolCall,
            JsonCall(),
            open="```json\n",
            close="\n```",
            model=True,
            tentative=True,
            escape=Escape(),
        ),
    ),
    "assistant",
    "Assistant:",
    lead=" ",
)
GOOSE = Document(
    turns=(SYSTEM, USER, ASSISTANT),
    flattened=True,
    escape=Escape(),
    joints={
        ("thinking", "assistant"): "\n",
        ("thinking", "tool_call"): "\n",
        ("assistant", "tool_call"): "\n",
        ("tool_call", "tool_call"): "\n",
    },
    also_joined={("tool_call", "assistant"): "\n"},
    tools_place=TOOLS,
    generation=Generation(
        stops=("\n\nUser:", "\n\nSystem:"),
        stops_with_tools=("\n\nUser:", "\n\nSystem:"),
        thinking_prefill="<think",
        hints={"low": " think a bit", "medium": " think", "high": " think a lot"},
    ),
    results="hidden",
    grows="the word that asks for thinking stands behind the last user text only",
)

HERMES_TOOLS = ToolsPlace(
    body=JsonTools(wrapped=True),
    open=(
        "# Tools\n"
        "You may call one or more functions to assist with the user query.\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        "<tools>\n"
    ),
    close=(
        "\n</tools>\n"
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n"
        "<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call>"
    ),
    joint="\n",
    footer=(
        "For each function call, return a json object with function name and arguments within "
        "<tool_call></tool_call> XML tags:\n"
        "<tool_call>\n"
        '{"name": <function-name>, "arguments": <args-json-object>}\n'
        "</tool_call>"
    ),
)
_thought, _answer, _call = ASSISTANT.segments
HERMES = replace(
    GOOSE,
    escape=None,
    turns=(
        replace(SYSTEM, segments=(replace(SYSTEM.segments[0], escape=None, protects=(("# ", ("Tools\nYou may",)),)),)),
        replace(
            USER,
            segments=(
                replace(USER.segments[0], escape=None),
                replace(USER.segments[1], open="<tool_response>\n", close="\n</tool_response>", escape=None),
            ),
        ),
        replace(
            ASSISTANT,
            segments=(
                replace(_thought, escape=None),
                replace(_answer, escape=None),
                replace(_call, open="<tool_call>\n", close="\n</tool_call>", tentative=False, escape=None),
            ),
        ),
    ),
    tools_place=HERMES_TOOLS,
)

GOOSE_FROM = "20250922"
TRAINED_ON = "RWKV models are trained on turns that begin with `User:` and `Assistant:`"

CLUES = (
    Clue(
        evidence="template",
        pattern=r"\Arwkv-world\Z",
        order=20,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        reason="what llama.cpp writes for RWKV models",
    ),
    Clue(
        evidence="template",
        pattern="User:",
        also=("Assistant:", r"\\n\\n|\n\n"),
        unless=r"eos_token|<\|",
        order=90,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        reason="turns that begin with `User:` and `Assistant:` and end with an empty line",
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])rwkv[-_. ]?v?7|(?<![a-z0-9])x070(?![0-9])|(?<![a-z])goose(?![a-z])",
        order=40,
        family="RWKV-7",
        thinks_from=GOOSE_FROM,
        reason=TRAINED_ON,
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])rwkv",
        unless="raven",
        order=80,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        reason=TRAINED_ON,
    ),
    Clue(
        evidence="architecture",
        pattern=r"\Arwkv[67](?:forcausallm)?\Z",
        order=40,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        reason=TRAINED_ON,
    ),
)
V0_CLUES = (
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])ai00[-_. ]?v0(?![0-9])",
        order=10,
        family="RWKV",
        reason="so it was trained on the first format of ai00",
    ),
)

FORMATS = (
    Format("rwkv-goose", "RWKV Goose (RWKV-7 G1)", GOOSE, CLUES),
    Format("rwkv-goose-hermes", "RWKV Goose with calls in tags", HERMES),
    Format("ai00-v0", "ai00 Chat Format v0", HERMES, V0_CLUES),
)
