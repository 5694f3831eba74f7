r"""The RWKV Universal Chat Template: a block for each item, tags on lines of their own, everything an API says.

    <<SYS>>
    You are a helpful assistant.
    <<SYS_END>>

    <<USER>>
    What is 2 + 3?
    <<USER_END>>

    <<TOOL_CALL name="calculator" id="call_001">>
    {"operation": "add", "operands": [2, 3]}
    <<END_TOOL_CALL>>

Spec: requirements 1.1 (the template), 2.1 (decisions on its gaps), 3 (the lossless extension).

Quirks: TOOL_CALL, TOOL_RESULT and ITEM close with `<<END_X>>`, all others with `<<X_END>>`; both spellings are read.
META, TOOLS, THINK, ITEM, part lines and most attributes are ours: a plain conversation needs none of them, and then an
archive and a prompt are the same bytes. In a prompt only `name`, `id`, `status`, `format` and `role` are shown.
"""

from __future__ import annotations

from turnscript.core.clues import Clue
from turnscript.core.conversation import Assistant, Opaque, System, Thinking, ToolCall, ToolResult, ToolsChange, User
from turnscript.engine.bodies import CallArguments, Parts, Record, ResultContent, Thought
from turnscript.engine.escape import Escape
from turnscript.engine.table import Attribute, Document, Generation, Section, Segment, Turn
from turnscript.formats.format import Format

_NAMES = ("META", "TOOLS", "SYS", "USER", "ASSISTANT", "THINK", "TOOL_CALL", "TOOL_RESULT", "PART", "ITEM")

NAME = Attribute("name", "name", prompt=True)
ITEM_ID = Attribute("item_id", "id")
EVERY_ITEM = (
    Attribute("as", "", written=False),  # of archives of before: how a content was written
    Attribute("slot", "slot"),
    Attribute("turn", "turn"),
    Attribute("message", "envelope", "object"),
    Attribute("raw", "raw"),
    Attribute("x", "extra", "object"),
)

SEGMENTS = (
    Segment(
        kind="system",
        item=System,
        open="<<SYS",
        head_end=">>\n",
        close="\n<<SYS_END>>",
        also_closed_by=("<<END_SYS>>",),
        body=Parts(),
        attributes=(Attribute("role", "role", prompt=True, default="system"), NAME, ITEM_ID, *EVERY_ITEM),
    ),
    Segment(
        kind="user",
        item=User,
        open="<<USER",
        head_end=">>\n",
        close="\n<<USER_END>>",
        also_closed_by=("<<END_USER>>",),
        body=Parts(),
        attributes=(NAME, ITEM_ID, *EVERY_ITEM),
    ),
    Segment(
        kind="assistant",
        item=Assistant,
        open="<<ASSISTANT",
        head_end=">>\n",
        close="\n<<ASSISTANT_END>>",
        also_closed_by=("<<END_ASSISTANT>>",),
        body=Parts(),
        attributes=(NAME, Attribute("phase", "phase"), ITEM_ID, *EVERY_ITEM),
        model=True,
    ),
    Segment(
        kind="thinking",
        item=Thinking,
        open="<<THINK",
        head_end=">>\n",
        close="\n<<THINK_END>>",
        also_closed_by=("<<END_THINK>>",),
        body=Thought(),
        attributes=(
            Attribute("kind", "of", default="reason"),
            Attribute("signature", "signature"),
            Attribute("redacted", "redacted"),
            Attribute("id", "id"),
            Attribute("encrypted", "encrypted"),
            *EVERY_ITEM,
        ),
        model=True,
    ),
    Segment(
        kind="tool_call",
        item=ToolCall,
        open="<<TOOL_CALL",
        head_end=">>\n",
        close="\n<<END_TOOL_CALL>>",
        also_closed_by=("<<TOOL_CALL_END>>",),
        body=CallArguments(),
        attributes=(
            NAME,
            Attribute("id", "id", prompt=True),
            Attribute("item_id", "item_id"),
            Attribute("namespace", "namespace", prompt=True),
            *EVERY_ITEM,
        ),
        required="name",
        model=True,
    ),
    Segment(
        kind="tool_result",
        item=ToolResult,
        open="<<TOOL_RESULT",
        head_end=">>\n",
        close="\n<<END_TOOL_RESULT>>",
        also_closed_by=("<<TOOL_RESULT_END>>",),
        body=ResultContent(),
        attributes=(
            NAME,
            Attribute("id", "id", prompt=True),
            Attribute("status", "status", prompt=True),
            Attribute("item_id", "item_id"),
            Attribute("namespace", "namespace"),
            Attribute("custom", "custom", "flag"),
            *EVERY_ITEM,
        ),
    ),
    Segment(
        kind="tools_change",
        item=ToolsChange,
        open="<<TOOLS",
        head_end=">>\n",
        close="\n<<TOOLS_END>>",
        body=Parts(),
        attributes=EVERY_ITEM,
    ),
    Segment(
        kind="opaque",
        item=Opaque,
        open="<<ITEM",
        head_end=">>\n",
        close="\n<<END_ITEM>>",
        also_closed_by=("<<ITEM_END>>",),
        body=Record(),
        attributes=(Attribute("type", "type"), Attribute("role", "role", default=""), *EVERY_ITEM),
        prompt=False,
    ),
)

CLUES = (
    Clue(
        evidence="template",
        pattern=r"\Arwkv-world\Z|'User: ' \+ message",
        unless=r"eos_token|<\|",
        named=r"(?<![a-z])universal(?![a-z])",
        order=15,
        family="RWKV",
        reason="what llama.cpp writes for every RWKV model, and this one has the name of the Universal template",
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])universal(?![a-z])",
        also=("rwkv",),
        order=25,
        family="RWKV",
        reason="so it was trained on the RWKV Universal Chat Template",
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])universal(?![a-z])",
        order=90,
        guess=True,
        reason="it may have been trained on the RWKV Universal Chat Template",
    ),
)

FORMATS = (
    Format(
        name="rwkv-universal",
        title="RWKV Universal Chat Template",
        document=Document(
            turns=(Turn(SEGMENTS),),
            anchored=True,
            metadata=Section("<<META", "<<META_END>>", ("<<END_META>>",)),
            tools=Section("<<TOOLS", "<<TOOLS_END>>", ("<<END_TOOLS>>",)),
            escape=Escape(("<<", [prefix + name for name in _NAMES for prefix in ("", "END_")])),
            generation=Generation(
                stops=("<<ASSISTANT_END>>",),
                stops_with_tools=("<<USER", "<<TOOL_RESULT", "<<SYS"),
            ),
            wraps=True,
            grows="an answer is opened, and where the model calls a tool at once, that block is not written again",
        ),
        clues=CLUES,
    ),
)
