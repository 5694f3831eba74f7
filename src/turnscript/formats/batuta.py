r"""The three templates of batuta: ChatML, Llama 3 and a generic one, with tools described in the system turn.

    <|im_start|>assistant
    <tool_call>
    {"name":"get_weather","input":{"city":"Tokyo"}}
    </tool_call><|im_end|>
    <|im_start|>user
    <tool_result>{"temperature": 22}</tool_result><|im_end|>

Spec: requirements 1.4 (the source), 2.4 (decisions on its gaps).

Quirks: a system turn is always written, so an empty one reads as none. A call is an assistant turn of its own, a result
a user turn of its own, without ids. Of a tool's parameters only names, types and descriptions are shown. A model may
put several calls and text into one turn, or a call into a JSON fence; a reader understands that.

Options: `skip-empty-system` writes no system turn if there is nothing to say. `drop-thinking` leaves thoughts out.
`compat` reads answers as the source does: the first broken call makes the rest text, and any JSON fence with a name is
a call.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.core.clues import Clue
from turnscript.core.conversation import Assistant, System, Thinking, ToolCall, ToolResult, User
from turnscript.engine.jsoncalls import JsonCall
from turnscript.engine.table import Document, Generation, Segment, ToolsPlace, Turn
from turnscript.engine.texts import PlainText
from turnscript.engine.toollists import MarkdownTools
from turnscript.formats.format import Format

TOOLS = ToolsPlace(
    body=MarkdownTools(),
    joint="",
    open=(
        "\n\n## Available Tools\n\n"
        "To use a tool, output a <tool_call> block with JSON inside. "
        "You will receive the result in a <tool_result> block.\n\n"
        "Format:\n```\n<tool_call>\n"
        '{"name": "tool_name", "input": {"param": "value"}}\n'
        "</tool_call>\n```\n\n"
    ),
    close="After receiving a <tool_result>, analyze it and either use another tool or respond to the user.\n",
)
CALL = Segment(
    kind="tool_call",
    item=ToolCall,
    open="<tool_call>\n",
    body=JsonCall(arguments="input"),
    close="\n</tool_call>",
    model=True,
)
FENCED = replace(CALL, open="```json\n", close="\n```", tentative=True)
ASSISTANT = (
    Segment("thinking", Thinking, PlainText(), open="<think>\n", close="\n</think>", model=True),
    Segment("assistant", Assistant, PlainText(), model=True),
    CALL,
)
USER = (
    Segment("user", User, PlainText()),
    Segment("tool_result", ToolResult, PlainText(), open="<tool_result>", close="</tool_result>"),
)

CHATML = Document(
    turns=(
        Turn(
            (Segment("system", System, PlainText(), protects=(("## ", ("Available Tools\n",)),)),),
            "system",
            open="<|im_start|>system\n",
            close="<|im_end|>\n",
        ),
        Turn(USER, "user", open="<|im_start|>user\n", close="<|im_end|>\n"),
        Turn(ASSISTANT, "assistant", open="<|im_start|>assistant\n", close="<|im_end|>\n", also_read=(FENCED,)),
    ),
    separator="",
    joints={("thinking", "assistant"): "\n\n", ("thinking", "tool_call"): "\n\n"},
    also_joined={
        ("assistant", "tool_call"): "\n",
        ("tool_call", "tool_call"): "\n",
        ("tool_call", "assistant"): "\n",
    },
    tools_place=TOOLS,
    always_system=True,
    generation=Generation(stops=("<|im_end|>",), stops_with_tools=("<|im_end|>",)),
    results="hidden",
)


def _speaking(document: Document, opening: str, close: str, stop: str, start: str = "") -> Document:
    """The same document with other literals around turns. `opening` holds `{role}`."""
    turns = tuple(replace(turn, open=opening.format(role=turn.role), close=close) for turn in document.turns)
    generation = Generation(stops=(stop,), stops_with_tools=(stop,))
    return replace(document, turns=turns, start=start, generation=generation)


def _options(document: Document) -> dict[str, Document]:
    """The variants of a document."""
    *others, model = document.turns
    thought, answer, call = model.segments
    unthinking = replace(model, segments=(replace(thought, prompt=False), answer, call))
    believing = replace(model, also_read=(replace(FENCED, tentative=False),))
    return {
        "skip-empty-system": replace(document, always_system=False),
        "drop-thinking": replace(document, turns=(*others, unthinking), grows="past thoughts are left out"),
        "compat": replace(document, turns=(*others, believing), gives_up=True),
    }


LLAMA3 = _speaking(
    CHATML,
    "<|start_header_id|>{role}<|end_header_id|>\n\n",
    "<|eot_id|>",
    "<|eot_id|>",
    start="<|begin_of_text|>",
)
GENERIC = _speaking(CHATML, "<|{role}|>\n", "\n<|end|>\n", "\n<|end|>")

CHATML_CLUES = (
    Clue(
        rule="batuta",
        evidence="stem",
        pattern="qwen|deepseek|yi-",
        order=1,
        reason="a family that takes ChatML",
    ),
    Clue(
        rule="batuta",
        evidence="stem",
        pattern="",
        order=3,
        reason="its file name has no known family, and ChatML is what most models take",
    ),
)
LLAMA3_CLUES = (
    Clue(
        rule="batuta",
        evidence="stem",
        pattern="llama",
        order=2,
        reason="taken for Llama 3, whichever Llama it is",
    ),
)

FORMATS = (
    Format("batuta-chatml", "ChatML as batuta writes it", CHATML, CHATML_CLUES, _options(CHATML)),
    Format("batuta-llama3", "Llama 3 as batuta writes it", LLAMA3, LLAMA3_CLUES, _options(LLAMA3)),
    Format("batuta-generic", "The generic template of batuta", GENERIC, (), _options(GENERIC)),
)
