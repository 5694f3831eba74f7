r"""ai00 Chat Format v1: turns in tags of one namespace, calls and their results inside the assistant's turn.

    <ai00:assistant>
    I'll check that for you.

    <ai00:function_calls>
      <invoke name="get_weather">
        <parameter name="city">Tokyo</parameter>
      </invoke>
    </ai00:function_calls>
    <ai00:function_results>
      <result name="toolu_01abc123">
        {"temperature": 22}
      </result>
    </ai00:function_results>

    It's 22 degrees.
    </ai00:assistant>

Spec: requirements 1.2 (the document), 2.2 (decisions on its gaps).

Quirks: a result shows the id of its call and a call shows none, so they are paired by order. Arguments are tags, typed
by the tool's schema: their values are kept, their spelling as JSON is not. Tags such as `<invoke>` and `<think>` mean
something in the assistant's turn only, and only there they are escaped.

Options: `strip-prompt` ends a prompt without white space, as ai00_server does. `tool-instructions` says behind the
tools how one is called. `merge-turns` writes neighbouring texts of one speaker as one turn. `ids-always` shows the id
of a call on the call, too: `<invoke name="get_weather" id="toolu_01abc123">`.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.core.clues import Clue
from turnscript.core.conversation import Assistant, System, Thinking, ToolCall, ToolResult, User
from turnscript.engine.table import Attribute, Document, Generation, Group, Segment, ToolsPlace, Turn
from turnscript.engine.texts import IndentedText, PlainText
from turnscript.engine.toollists import TaggedTools
from turnscript.engine.xmlcalls import XmlParameters
from turnscript.formats.format import Format

# What ai00_server writes behind the list, though the document does not.
INSTRUCTIONS = (
    "To call a function, use this format:\n"
    "<ai00:function_calls>\n"
    '  <invoke name="function_name">\n'
    '    <parameter name="param">value</parameter>\n'
    "  </invoke>\n"
    "</ai00:function_calls>"
)
TOOLS = ToolsPlace(
    TaggedTools(),
    "<ai00:available_tools>\n",
    "</ai00:available_tools>",
    joint="\n\n",
    also_behind=(INSTRUCTIONS,),
)
CALLS = Group("<ai00:function_calls>\n", "</ai00:function_calls>")
RESULTS = Group("<ai00:function_results>\n", "</ai00:function_results>")

SYSTEM = Turn(
    role="system",
    open="<ai00:system>\n",
    close="\n</ai00:system>",
    segments=(Segment("system", System, PlainText()),),
)
USER = Turn(
    role="user",
    open="<ai00:user>\n",
    close="\n</ai00:user>",
    segments=(Segment("user", User, PlainText()),),
)
ASSISTANT = Turn(
    role="assistant",
    open="<ai00:assistant>\n",
    close="\n</ai00:assistant>",
    segments=(
        Segment("thinking", Thinking, PlainText(), open="<think>\n", close="\n</think>", model=True, local=True),
        Segment("assistant", Assistant, PlainText(), model=True),
        Segment(
            kind="tool_call",
            item=ToolCall,
            open="  <invoke",
            attributes=(Attribute("name", "name", prompt=True), Attribute("id", "id", written=False)),
            required="name",
            head_end=">\n",
            body=XmlParameters("<parameter", "</parameter>", "</invoke>", indent="    "),
            close="  </invoke>\n",
            group=CALLS,
            model=True,
            local=True,
        ),
        Segment(
            kind="tool_result",
            item=ToolResult,
            open="  <result",
            attributes=(
                Attribute("name", "id", prompt=True, fallback="name"),
                Attribute("is_error", "status", prompt=True, words=(("error", "true"),)),
            ),
            head_end=">\n",
            body=IndentedText(),
            close="\n  </result>\n",
            group=RESULTS,
            local=True,
        ),
    ),
)

CLUES = (
    Clue(
        evidence="template",
        pattern=r"\Arwkv-world\Z|'User: ' \+ message",
        unless=r"eos_token|<\|",
        named=r"(?<![a-z])ai00(?![-_. ]?v0|[0-9])",
        order=15,
        family="RWKV",
        reason="what llama.cpp writes for every RWKV model, and this one has the name of ai00's format",
    ),
    Clue(
        evidence="name",
        pattern=r"(?<![a-z])ai00(?![0-9])",
        order=15,
        family="RWKV",
        reason="so it was trained on the format of ai00",
    ),
)

AI00 = Document(
    turns=(SYSTEM, USER, ASSISTANT),
    joints={
        ("thinking", "assistant"): "\n",
        ("thinking", "tool_call"): "\n",
        ("assistant", "tool_call"): "\n\n",
        ("tool_call", "tool_call"): "",
        ("tool_call", "tool_result"): "\n",
        ("tool_result", "tool_result"): "",
        ("tool_result", "assistant"): "\n\n",
        ("tool_result", "thinking"): "\n\n",
        ("tool_result", "tool_call"): "\n\n",
    },
    also_joined={("tool_call", "assistant"): "\n\n"},
    tools_place=TOOLS,
    generation=Generation(
        stops=("</ai00:assistant>",),
        stops_with_tools=("</ai00:assistant>", "</ai00:function_calls>"),
    ),
    results="on_results",
    with_ids="ids-always",
)
_thought, _answer, _call, _result = ASSISTANT.segments
IDENTIFIED = replace(_call, attributes=(Attribute("name", "name", prompt=True), Attribute("id", "id", prompt=True)))
MERGED = {("user", "user"): "\n\n", ("assistant", "assistant"): "\n\n"}
OPTIONS = {
    "strip-prompt": replace(AI00, generation=replace(AI00.generation, stripped=True)),
    "tool-instructions": replace(
        AI00, tools_place=replace(TOOLS, close=f"{TOOLS.close}\n\n{INSTRUCTIONS}", footer=INSTRUCTIONS, also_behind=())
    ),
    "ids-always": replace(
        AI00, turns=(SYSTEM, USER, replace(ASSISTANT, segments=(_thought, _answer, IDENTIFIED, _result))), with_ids=""
    ),
    "merge-turns": replace(AI00, joints={**AI00.joints, **MERGED}),
}

FORMATS = (Format("ai00-v1", "ai00 Chat Format v1", AI00, CLUES, OPTIONS, presets=("math", "chat", "creative")),)
