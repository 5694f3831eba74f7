r"""OpenChatML: one message per turn with the speaker's name in its opening, thoughts and calls as tagged lines.

    [BOS]<|im_start|>user name=Eric
    Hello there, AI.
    <|im_end|>
    <|im_start|>assistant
    <|start_reason|>A greeting.<|end_reason|>
    Hi Eric. Nice to meet you.
    <|im_end|>[EOS]

Spec: requirements 1.5 (the document), 2.5 (decisions on its gaps).

    <|fim_prefix|>The capital of France is <|fim_middle|><|fim_suffix|>, which has the Eiffel Tower.

Quirks: a call ends where its JSON does, and has its arguments before its name; so nothing of it can be told before the
name, and then all arguments at once. With the name first it is read, too, and its arguments stream. Neither calls nor
results have ids. Flags behind the first system text ask for kinds of thought (`thoughts` of a request), so the first
turn changes when a thought of a new kind appears, and a prompt opens the first kind that is flagged. In a system text
the function tags are ordinary words, as long as no list follows. `[BOS]` and `[EOS]` stand for a base model's own
strings: documents have them, prompts and samples what `with_ends` says, which is nothing where a tokenizer or a server
puts its own. The hole of a text is marked where it is, which no model can continue; for prompts there are the orders of
other families.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.core.clues import Clue
from turnscript.core.conversation import Assistant, System, Thinking, ToolCall, ToolResult, User
from turnscript.engine.escape import Escape
from turnscript.engine.files import Files, FillOrder
from turnscript.engine.jsoncalls import JsonCall, JsonResult
from turnscript.engine.jsonscan import pretty
from turnscript.engine.table import Attribute, Document, Flags, Generation, Segment, ToolsPlace, Turn
from turnscript.engine.texts import PlainText
from turnscript.engine.toollists import JsonTools
from turnscript.formats.format import Format

KINDS = ("reflect", "introspect", "reason")
NAME = (Attribute("name", "name", prompt=True),)
PREFIX, SUFFIX, MIDDLE, SEPARATOR = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_separator|>"
FILE_TAGS = tuple(tag.removeprefix("<") for tag in (PREFIX, SUFFIX, MIDDLE, SEPARATOR))
FLOWERS = ("prefix✿", "suffix✿", "middle✿")
FIM = Escape(("<", FILE_TAGS))
ORDERS = (
    FillOrder("spec", (PREFIX, "{prefix}", MIDDLE, "{middle}", SUFFIX, "{suffix}"), FIM),
    FillOrder("psm", (PREFIX, "{prefix}", SUFFIX, "{suffix}", MIDDLE, "{middle}"), FIM),
    FillOrder("spm", (PREFIX, SUFFIX, "{suffix}", MIDDLE, "{prefix}", "{middle}"), FIM),
    FillOrder(
        "rwkv",
        ("✿prefix✿", "✿suffix✿", "{suffix}", "✿middle✿", "{prefix}", "{middle}"),
        Escape(("<", FILE_TAGS), ("✿", FLOWERS)),
    ),
)
SYSTEM_TAGS = (
    "|im_start|>",
    "|im_end|>",
    *FILE_TAGS,
    "|function_list|>\n{",
    "|function_list|>\n[",
    *(f"|{kind}|>" for kind in KINDS),
)


def _turn(role: str, *segments: Segment) -> Turn:
    """A message: every role has the same literals around it."""
    opening = f"<|im_start|>{role}"
    return Turn(segments, role, open=opening, head_end="\n", close="\n<|im_end|>", attributes=NAME)


def _thought(kind: str) -> Segment:
    """A thought of one kind."""
    return Segment(
        "thinking",
        Thinking,
        PlainText(),
        open=f"<|start_{kind}|>",
        close=f"<|end_{kind}|>",
        model=True,
        of=kind,
    )


CLUES = (
    Clue(
        evidence="name",
        pattern="open[-_. ]?chatml",
        order=20,
        family="OpenChatML",
        reason="so it was trained on OpenChatML",
    ),
)

DOCUMENT = Document(
    turns=(
        _turn(
            "system",
            Segment("system", System, PlainText(), escape=Escape(("<", SYSTEM_TAGS))),
        ),
        _turn("user", Segment("user", User, PlainText())),
        _turn(
            "assistant",
            *map(_thought, KINDS),
            Segment("assistant", Assistant, PlainText(), model=True),
            Segment(
                "tool_call",
                ToolCall,
                JsonCall(spaced=True, arguments_first=True),
                open="<|function_call|>\n",
                model=True,
            ),
        ),
        _turn("tool", Segment("tool_result", ToolResult, JsonResult(), open="<|function_output|>\n")),
    ),
    separator="\n",
    start="[BOS]",
    end="[EOS]",
    stand_ins=True,
    joints={
        ("thinking", "thinking"): "\n",
        ("thinking", "assistant"): "\n",
        ("thinking", "tool_call"): "\n",
        ("assistant", "tool_call"): "\n",
        ("tool_call", "tool_call"): "\n",
        ("tool_result", "tool_result"): "\n",
    },
    also_joined={("tool_call", "assistant"): "\n", ("assistant", "thinking"): "\n"},
    tools_place=ToolsPlace(
        JsonTools(wrapped=True, shape=pretty),
        "<|function_list|>\n",
        "",
        joint="\n",
        continued="\n\n",
    ),
    flags=Flags({kind: f"<|{kind}|>" for kind in KINDS}),
    generation=Generation(stops=("<|im_end|>",), stops_with_tools=("<|im_end|>",)),
    results="named",
    files=Files(ORDERS, SEPARATOR),
    grows="a flag behind the first system text appears with the first thought of its kind",
)
TIGHT = replace(DOCUMENT, turns=tuple(replace(turn, close=turn.close.lstrip()) for turn in DOCUMENT.turns))

FORMATS = (
    Format(
        name="openchatml",
        title="OpenChatML 0.1",
        document=DOCUMENT,
        clues=CLUES,
        variants={"tight": TIGHT},
    ),
)
