"""Owns answers that call tools: functions and free text, one and several, from servers that mix their pieces."""

from __future__ import annotations

from copy import deepcopy

from tests import chatstream
from tests.answers.answer import Answer, Asked, Step, call, free, text, thought, told, with_pauses
from turnscript.core.conversation import Assistant, Tool, ToolCall
from turnscript.core.events import MessageEnd, PartDelta, PartEnd, PartStart
from turnscript.core.json_text import Json
from turnscript.core.sse import frame

CALL = ("call.open", "call.delta", "call.close")
FREE = "free.open/delta/close"
CALLED = "tool calls (complete)"

ODD = '{ "a":1.0,"b" : [1e5,-0,12345678901234567890],"é":"\\u00e9\\ud83d\\ude00","":null,"a b":"x\\ty\\/z" }'
DEEP = '{"a":' * 30 + '{"b":[[[[{}]]]]}' + "}" * 30
LONG = '{"text":"' + 'é字👍 \\n\\"' * 4000 + '","n":1}'
PATCH = '*** Begin Patch\n*** Update File: a "b"\\c.py\n@@\n-é\n+\t👍\u2028\n*** End Patch\n'

TIME = call('{"tz":"CET"}', "get_time", "call_b2")
NAMESPACE = Tool(
    type="namespace",
    name="fs",
    description="files",
    tools=[Tool(name="read", parameters=Json(b"{}")), Tool(name="edit", type="custom")],
)
PATCHER = Tool(name="apply_patch", type="custom")
LEGACY = Tool(name="get_weather", parameters=Json(b"{}"), slot="functions")


def mixed_by_the_server() -> list[Step]:
    """Two calls whose pieces a Chat server sends in turns, the second one begun before the first is over."""
    chunks = [
        chatstream.chunk({"role": "assistant", "content": None}),
        chatstream.chunk(chatstream.call_delta(0, '{"city":', id="call_a1", type="function", name="get_weather")),
        chatstream.chunk(chatstream.call_delta(1, '{"tz":', id="call_b2", type="function", name="get_time")),
        chatstream.chunk(chatstream.call_delta(0, '"Oslo"}')),
        chatstream.chunk(chatstream.call_delta(1, '"CET"}')),
        chatstream.CALLED,
        frame('{"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":7}}'),
        chatstream.DONE,
    ]
    events = chatstream.read(b"".join(chunks))
    end = events[-1]
    assert isinstance(end, MessageEnd)
    end.id, end.extra = None, {}
    return [*events]


def at_once() -> list[Step]:
    """A text and two calls that are told at the same time; the later call is over first."""
    first, second = call(), deepcopy(TIME)
    return [
        PartStart(0, Assistant()),
        PartDelta(0, "One "),
        PartStart(1, call("")),
        PartStart(2, call("", "get_time", "call_b2")),
        PartDelta(2, '{"tz":'),
        PartDelta(1, '{"city":'),
        PartDelta(0, "moment."),
        PartEnd(0, text("One moment.")),
        PartDelta(2, '"CET"}'),
        PartEnd(2, second),
        PartDelta(1, '"Oslo"}'),
        PartEnd(1, first),
        MessageEnd("tool_calls"),
    ]


def came_to_nothing() -> list[Step]:
    """What began as a call is put back as text, which is how formats read a call that they cannot."""
    return [
        PartStart(0, Assistant()),
        PartDelta(0, "Well: "),
        PartEnd(0, text("Well: ")),
        PartStart(1, call("", id_=None)),
        PartDelta(1, '{"city": Os'),
        PartEnd(1, None),
        PartStart(2, Assistant()),
        PartDelta(2, '<call>{"city": Os</call>'),
        PartEnd(2, text('<call>{"city": Os</call>')),
        MessageEnd("stop"),
    ]


ANSWERS = [
    Answer(name="one call", steps=told(call(), reason="tool_calls"), covers=CALL, ending=CALLED),
    Answer(
        name="call in single characters",
        steps=with_pauses(told(call(), reason="tool_calls", size=1)),
        covers=(*CALL, "idle"),
        ending=CALLED,
    ),
    Answer(name="call without arguments", steps=told(call("{}"), reason="tool_calls"), covers=CALL, ending=CALLED),
    Answer(
        name="call with nothing for arguments",
        steps=told(call(""), reason="tool_calls"),
        covers=("call.open", "call.close", "broken arguments"),
        ending=CALLED,
    ),
    Answer(
        name="parallel calls",
        steps=told(
            call(), call('{"tz":"CET"}', "get_time", "call_b2"), call("{}", "f", "call_c3"), reason="tool_calls"
        ),
        covers=(*CALL, "parallel"),
        ending=CALLED,
    ),
    Answer(
        name="two equal calls without ids",
        steps=told(call(id_=None), call(id_=None), reason="tool_calls"),
        covers=("parallel", "no ids"),
        ending=CALLED,
    ),
    Answer(name="calls mixed by the server", steps=mixed_by_the_server, covers=("parallel", "mixed"), ending=CALLED),
    Answer(name="parts told at once", steps=at_once, covers=("parallel", "at once"), ending=CALLED),
    Answer(
        name="text and call",
        steps=told(text("Let me look."), call(), reason="tool_calls"),
        covers=(*CALL, "text.open/delta/close"),
        ending=CALLED,
    ),
    Answer(
        name="text, call, text",
        steps=told(text("Let me look. "), call(), text("Done."), reason="tool_calls"),
        covers=("text-call-text",),
        ending=CALLED,
    ),
    Answer(
        name="thought, call, thought, call",
        steps=told(thought("Hm."), call(), thought("Ah."), call("{}", "f", "call_c3"), reason="tool_calls"),
        covers=("thinking between",),
        ending=CALLED,
    ),
    Answer(name="odd arguments", steps=told(call(ODD), reason="tool_calls"), covers=("odd JSON",), ending=CALLED),
    Answer(name="deep arguments", steps=told(call(DEEP), reason="tool_calls"), covers=CALL, ending=CALLED),
    Answer(name="long arguments", steps=told(call(LONG), reason="tool_calls", size=97), covers=CALL, ending=CALLED),
    Answer(
        name="arguments of odd characters",
        steps=told(call('{"x":"👨‍👩‍👧 e\u0301 𝔘 \u2028"}'), reason="tool_calls", size=1),
        covers=("emoji", "combining", "astral"),
        ending=CALLED,
    ),
    Answer(
        name="arguments that are no JSON",
        steps=told(call('{"city": Oslo'), reason="tool_calls"),
        covers=("broken arguments",),
        ending=CALLED,
    ),
    Answer(
        name="a call that came to nothing",
        steps=came_to_nothing,
        covers=("came to nothing",),
    ),
    # Free text and namespaces.
    Answer(name="free text", steps=told(free("*** x"), reason="tool_calls"), covers=(FREE,), ending=CALLED),
    Answer(
        name="free text with everything to escape",
        steps=told(text("Patching."), free(PATCH), reason="tool_calls", size=1),
        covers=(FREE,),
        ending=CALLED,
    ),
    Answer(
        name="free text that the model wrote as JSON",
        steps=told(call('{"input": "*** x\\n"}', "apply_patch"), reason="tool_calls"),
        covers=("free text as JSON",),
        ending=CALLED,
        asked=Asked(tools=(PATCHER,)),
    ),
    Answer(
        name="call in a namespace",
        steps=told(ToolCall(name="read", namespace="fs", arguments='{"p":1}', id="call_n1"), reason="tool_calls"),
        covers=("namespace",),
        ending=CALLED,
        asked=Asked(tools=(NAMESPACE,)),
    ),
    Answer(
        name="call in a namespace by its long name",
        steps=told(call('{"p":1}', "fs__read", "call_n1"), reason="tool_calls"),
        covers=("namespace",),
        ending=CALLED,
        asked=Asked(tools=(NAMESPACE,)),
    ),
    Answer(
        name="call of a deprecated function",
        steps=told(text("Let me look."), call(id_=None), reason="tool_calls"),
        covers=("deprecated function",),
        ending=CALLED,
        asked=Asked(tools=(LEGACY,)),
    ),
]
