r"""RWKV Goose: `User: ...`, `Assistant: ...`, a blank line between turns and nowhere else. ai00 v0 is a dialect.

    System: You are a helpful assistant.

    User: What is 6 x 7? think

    Assistant: <think>
    Six sevens.
    </think>
    42

Spec: requirements 1.3 (the document), 2.3 (decisions on its gaps), S6 and S7 (tool styles).

Quirks: a blank line ends a turn, so blank lines inside a text become single newlines and white space at its ends goes;
that is reported. A turn has no closing, and a prompt no white space at its end: the model writes the space behind
`Assistant:` itself. Calls are JSON in a fence, which counts only for tools that are offered. `rwkv-goose-hermes` has
tags instead. In `rwkv-goose-observation` a call is the tool's name on a line and Python in a fence, and its result is a
turn `Observation:`.

Options: `paren` asks for thinking by ` (think)`, as models of 2026 know it. `unhinted` does not ask, for older models.
`fake-think` opens an answer with an empty thought, for models that think too much, and `fast-think` with one that has
no line end, as fast answers begin. `drop-thinking` leaves past thoughts out. `blank-whitespace` takes lines of white
space out of texts like empty ones, as ai00_server does. `no-sentence` leaves out the sentence behind the tool list.

    ✿prefix✿✿suffix✿, which has the Eiffel Tower.✿middle✿The capital of France is

A text with a hole is no conversation, and a document of its own: models from G1c on go on behind the prefix.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.core.clues import Clue
from turnscript.core.conversation import Assistant, System, Thinking, ToolCall, ToolResult, User
from turnscript.core.json_text import compact
from turnscript.engine.escape import Escape
from turnscript.engine.files import Files, FillOrder
from turnscript.engine.jsoncalls import JsonCall
from turnscript.engine.pythoncalls import PythonCall
from turnscript.engine.table import Document, Generation, Segment, ToolsPlace, Turn
from turnscript.engine.texts import PlainText
from turnscript.engine.toollists import IndentedTools, JsonTools
from turnscript.formats.format import Format

TOOLS = ToolsPlace(
    body=JsonTools("arguments", properties=True, shape=compact, between=",\n"),
    open="Tools:\n[\n",
    close="\n]\nReturn only a JSON function call.",
    joint="\n",
    footer="Return only a JSON function call.",
)
THOUGHTS = ("think>", "/think>")
HINTS = {"low": " think a bit", "medium": " think", "high": " think a lot"}
PAREN_HINTS = {"low": " (think a bit)", "medium": " (think)", "high": " (think a lot)"}  # of models of 2026
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
# What other programs call the turn of a tool's answer.
OBSERVATION = Turn((Segment("tool_result", ToolResult, PlainText()),), "observation", "Observation:", lead=" ")
TOOL = Turn((Segment("tool_result", ToolResult, PlainText()),), "tool", "Tool:", lead=" ")
FLOWERS = ("✿", ("prefix✿", "suffix✿", "middle✿"))
FILES = Files(
    (
        FillOrder(
            "rwkv",
            ("✿prefix✿", "✿suffix✿", "{suffix}", "✿middle✿", "{prefix}", "{middle}"),
            Escape(FLOWERS),
        ),
    )
)
GOOSE = Document(
    turns=(SYSTEM, USER, ASSISTANT),
    also_read=(OBSERVATION, TOOL),
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
        stops_of_call=("\n```",),
        stripped=True,
        thinking_prefill="<think",
        hints=HINTS,
    ),
    results="hidden",
    files=FILES,
    grows="the word that asks for thinking stands behind the last user text only",
)

HERMES_FOOTER = (
    "IMPORTANT: To call a function, use EXACTLY this XML format:\n"
    "<tool_call>\n"
    '{"name": "function_name", "arguments": {"param": "value"}}\n'
    "</tool_call>\n"
    'NEVER use <tool_use>. ALWAYS use <tool_call> with "arguments" field.'
)
HERMES_TOOLS = ToolsPlace(
    body=JsonTools(wrapped=True),
    open=(
        "# Tools\n"
        "You may call one or more functions to assist with the user query.\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n"
        "<tools>\n"
    ),
    close=f"\n</tools>\n{HERMES_FOOTER}",
    joint="\n",
    footer=HERMES_FOOTER,
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
    also_joined={**GOOSE.also_joined, ("tool_result", "tool_result"): "\n"},
    generation=replace(GOOSE.generation, stops_of_call=()),
    tools_place=HERMES_TOOLS,
)

OBSERVATION_LIST = "You are a helpful assistant", " with access to the following functions. Use them if required -"
PYTHON_CALL = "```", ("python\ntool_call(",)
OBSERVING = replace(
    GOOSE,
    turns=(
        replace(
            SYSTEM,
            segments=(replace(SYSTEM.segments[0], escape=Escape((OBSERVATION_LIST[0], OBSERVATION_LIST[1:]))),),
        ),
        replace(USER, segments=(replace(USER.segments[0], escape=Escape()),)),
        replace(
            ASSISTANT,
            segments=(
                replace(_thought, escape=Escape(("<", THOUGHTS), PYTHON_CALL)),
                replace(_answer, escape=Escape(("<", THOUGHTS), PYTHON_CALL)),
                replace(_call, body=PythonCall(), open="```python\ntool_call(", named=True, tentative=False),
            ),
        ),
        OBSERVATION,
    ),
    also_read=(TOOL,),
    generation=replace(
        GOOSE.generation, stops_with_tools=(*GOOSE.generation.stops, "\n\nObservation:"), stops_of_call=()
    ),
    tools_place=ToolsPlace(
        body=IndentedTools(),
        open=f"{''.join(OBSERVATION_LIST)}[\n",
        close="\n]",
        joint="\n",
    ),
)


def _options(document: Document) -> dict[str, Document]:
    """The variants of a document."""
    generation, turns = document.generation, document.turns
    model = next(turn for turn in turns if turn.role == ASSISTANT.role)
    thought, *others = model.segments
    unthinking = replace(model, segments=(replace(thought, prompt=False), *others))
    return {
        "paren": replace(document, generation=replace(generation, hints=PAREN_HINTS)),
        "unhinted": replace(document, generation=replace(generation, hints={}), grows=""),
        "blank-whitespace": replace(document, blank="whitespace"),
        "fake-think": replace(document, generation=replace(generation, prefill="<think>\n</think")),
        "fast-think": replace(document, generation=replace(generation, prefill="<think></think")),
        "drop-thinking": replace(
            document,
            turns=tuple(unthinking if turn is model else turn for turn in turns),
            grows="past thoughts are left out",
        ),
    }


GOOSE_FROM = "20250922"
TRAINED_ON = "RWKV models are trained on turns that begin with `User:` and `Assistant:`"

CLUES = (
    Clue(
        evidence="template",
        pattern=r"\Arwkv-world\Z",
        order=20,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        older="unhinted",
        reason="what llama.cpp writes for RWKV models",
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])rwkv[-_. ]?v?7|(?<![a-z0-9])x070(?![0-9])|(?<![a-z])goose(?![a-z])",
        order=40,
        family="RWKV-7",
        thinks_from=GOOSE_FROM,
        older="unhinted",
        reason=TRAINED_ON,
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])rwkv",
        unless="raven",
        order=80,
        guess=True,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        older="unhinted",
        reason=TRAINED_ON,
    ),
    Clue(
        evidence="architecture",
        pattern=r"\Arwkv7(?:forcausallm)?\Z",
        order=40,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        older="unhinted",
        reason=TRAINED_ON,
    ),
    Clue(
        evidence="architecture",
        pattern=r"\Arwkv6(?:forcausallm)?\Z",
        order=80,
        guess=True,
        family="RWKV",
        thinks_from=GOOSE_FROM,
        older="unhinted",
        reason=TRAINED_ON,
    ),
)
V0_CLUES = (
    Clue(
        evidence="template",
        pattern=r"\Arwkv-world\Z|'User: ' \+ message",
        unless=r"eos_token|<\|",
        named=r"(?<![a-z])ai00[-_. ]?v0(?![0-9])",
        order=10,
        family="RWKV",
        reason="what llama.cpp writes for every RWKV model, and this one has the name of ai00's first format",
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])ai00[-_. ]?v0(?![0-9])",
        order=10,
        family="RWKV",
        reason="so it was trained on the first format of ai00",
    ),
)

GOOSE_OPTIONS = _options(GOOSE) | {
    "no-sentence": replace(GOOSE, tools_place=replace(TOOLS, close="\n]", footer="", also_behind=(TOOLS.footer,))),
}

PRESETS = ("math", "chat", "creative", "chat-2026")
# The same models take all dialects. Where a clue fits several, the first by name is told: the plain format.
FORMATS = tuple(
    Format(name, title, document, clues, variants, presets=PRESETS, prepend_tokens=(0,))
    for name, title, document, clues, variants in (
        ("rwkv-goose", "RWKV Goose (RWKV-7 G1)", GOOSE, CLUES, GOOSE_OPTIONS),
        ("rwkv-goose-hermes", "RWKV Goose with calls in tags", HERMES, CLUES, _options(HERMES)),
        (
            "rwkv-goose-observation",
            "RWKV Goose with calls as Python and observations",
            OBSERVING,
            CLUES,
            _options(OBSERVING),
        ),
        ("ai00-v0", "ai00 Chat Format v0", HERMES, V0_CLUES, _options(HERMES)),
    )
)
