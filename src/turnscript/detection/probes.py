"""Owns probes: short conversations that a chat template writes, and the items that a reader must find in the answer.

The last message of a probe is the answer under test. Its texts are words that stand in no template, so each is found
in what the template wrote, and what the template left out is known to be missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import Tool
from turnscript.core.json_text import json_of

Message = Mapping[str, Any]
"""A message as transformers hands it to a template."""

USER = "quorvex asks"
LATER = "mirbolt asks"
SYSTEM = "sundrake rules"
THOUGHT = "wyndle thinks first"
TEXT = "zephkin speaks plainly"
RESULT = "drollop weather"
CALL = "vexlumo"
OTHER = "brimtack"
ID = "kq7Wz81Ab"
OTHER_ID = "kq7Wz82Cd"


class Call(Struct, frozen=True):
    """A tool call of a probe. `arguments` are the object that is written and must be read."""

    name: str
    arguments: dict[str, Any]
    id: str = ID


class Manner(Struct, frozen=True):
    """How a template takes what an answer says.

    `thoughts` is the key of a message's thought, empty where it takes none. `text_arguments`: arguments are JSON text
    and no objects. `named_ids`: it writes the id of a call in place of its name, as in `functions.f:0`. `closes`: where
    it opens a thought before each content, what ends the thought there, because the content then begins inside it.
    """

    thoughts: str = "reasoning_content"
    text_arguments: bool = False
    named_ids: bool = False
    closes: str = ""


class Probe(Struct, frozen=True):
    """A conversation whose last message is an answer. `shows` says in a few words what is tried.

    `thought`, `text` and `calls` are what the answer says. `before` are the messages in front of it.
    """

    shows: str
    text: str = ""
    thought: str = ""
    calls: tuple[Call, ...] = ()
    before: tuple[Message, ...] = ({"role": "user", "content": USER},)
    tools: bool = True

    def messages(self, manner: Manner) -> list[dict[str, Any]]:
        """Return the conversation for a template: new messages each time, because a template may change them."""
        said = self.text
        if manner.closes and (self.text or self.thought):
            said = f"{self.thought}{manner.closes}{self.text}"
        answer: dict[str, Any] = {"role": "assistant", "content": said, "calls": self.calls}
        if self.thought and manner.thoughts and not manner.closes:
            answer[manner.thoughts] = self.thought
        ids: dict[str, str] = {}
        return [_written(message, manner, ids) for message in (*self.before, answer)]


def _written(message: Message, manner: Manner, ids: dict[str, str]) -> dict[str, Any]:
    """Return one message. `ids`: what each id of the probe is called, where ids say a name and a number."""
    written = dict(message)
    calls: Sequence[Call] = written.pop("calls", ())
    for call in calls:
        ids.setdefault(call.id, f"functions.{call.name}:{len(ids)}" if manner.named_ids else call.id)
    if calls:
        written["tool_calls"] = [_call(call, manner, ids[call.id]) for call in calls]
    if "tool_call_id" in written:
        written["tool_call_id"] = ids.get(written["tool_call_id"], written["tool_call_id"])
    return written


def _call(call: Call, manner: Manner, id_: str) -> dict[str, Any]:
    text = json.dumps(call.arguments, ensure_ascii=False)
    arguments = text if manner.text_arguments else json.loads(text)
    return {"id": id_, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": dict(properties), "required": []}


_PARAMETERS = {
    CALL: _schema(
        {
            "glimfort": {"type": "string", "description": "A place"},
            "tarnish": {"type": "string", "description": "A word"},
            "plover": {"type": "integer", "description": "A number"},
            "quillon": {"type": "number", "description": "A measure"},
            "sorrel": {"type": "boolean", "description": "A switch"},
            "umbrix": {"type": "object", "description": "A thing", "additionalProperties": {"type": "string"}},
            "wicket": {"type": "array", "description": "Things", "items": {"type": "string"}},
        }
    ),
    OTHER: _schema({"fennimore": {"type": "string", "description": "A place"}}),
}

DEFINITIONS: tuple[dict[str, Any], ...] = tuple(
    {"type": "function", "function": {"name": name, "description": "A probe", "parameters": parameters}}
    for name, parameters in _PARAMETERS.items()
)
"""The tools of the probes, as a template takes them."""

TOOLS: tuple[Tool, ...] = tuple(
    Tool(name=name, description="A probe", parameters=json_of(parameters)) for name, parameters in _PARAMETERS.items()
)
"""The tools of the probes, as a reader takes them."""

_ONE = Call(CALL, {"glimfort": "yarrowby"})
_TWO = Call(OTHER, {"fennimore": "oxlade"}, OTHER_ID)
_ASKED: tuple[Message, ...] = ({"role": "user", "content": USER},)
_ROUND: tuple[Message, ...] = (
    *_ASKED,
    {"role": "assistant", "content": "", "calls": (_ONE,)},
    {"role": "tool", "tool_call_id": ID, "name": CALL, "content": RESULT},
)
_ROUNDS: tuple[Message, ...] = (
    *_ROUND,
    {"role": "assistant", "content": "", "calls": (_TWO,)},
    {"role": "tool", "tool_call_id": OTHER_ID, "name": OTHER, "content": RESULT},
)

TEXT_ONLY = Probe("a text", text=TEXT, tools=False)
THOUGHT_TEXT = Probe("a thought and a text", text=TEXT, thought=THOUGHT, tools=False)
ONE_CALL = Probe("a call", calls=(_ONE,))
TEXT_CALL = Probe("a text and a call", text=TEXT, calls=(_ONE,))
THOUGHT_CALL = Probe("a thought and a call", thought=THOUGHT, calls=(_ONE,))
TWO_CALLS = Probe("two calls", calls=(_ONE, _TWO))
TWO_ARGUMENTS = Probe("two arguments", calls=(Call(CALL, {"glimfort": "yarrowby", "tarnish": "hobclaw"}),))

PROBES: tuple[Probe, ...] = (
    TEXT_ONLY,
    THOUGHT_TEXT,
    ONE_CALL,
    TEXT_CALL,
    THOUGHT_CALL,
    Probe("a thought, a text and a call", text=TEXT, thought=THOUGHT, calls=(_ONE,)),
    TWO_CALLS,
    Probe("a text and two calls", text=TEXT, calls=(_ONE, _TWO)),
    TWO_ARGUMENTS,
    Probe(
        "nested arguments",
        calls=(Call(CALL, {"umbrix": {"inner": [1, {"deep": ["a", None]}], "flag": True}, "wicket": ["x", "y z"]}),),
    ),
    Probe("arguments in other scripts", calls=(Call(CALL, {"glimfort": "北京 Ünïcode 🌧", "tarnish": "línea\ndos"}),)),
    Probe("a call without arguments", calls=(Call(CALL, {}),)),
    Probe(
        "numbers and words of JSON",
        calls=(Call(CALL, {"plover": 42, "quillon": -1.5, "sorrel": False}),),
    ),
    Probe(
        "texts that look like JSON",
        calls=(Call(CALL, {"glimfort": "17", "tarnish": '{"a": "b"}'}),),
    ),
    Probe("a text of several lines", text=f"{TEXT}\n\n  indented {{braces}} <b>tags</b> and `code`\nlast", tools=False),
    Probe("a text behind a result", text=TEXT, before=_ROUND),
    Probe("a second round of calls", calls=(_TWO,), before=_ROUND),
    Probe("a text behind two rounds", text=TEXT, before=_ROUNDS),
    Probe("a thought behind a result", text=TEXT, thought=THOUGHT, before=_ROUND),
)
"""All probes. The first are the simplest, so what differs there explains most."""

__all__ = [
    "CALL",
    "DEFINITIONS",
    "ID",
    "LATER",
    "ONE_CALL",
    "OTHER",
    "OTHER_ID",
    "PROBES",
    "RESULT",
    "SYSTEM",
    "TEXT",
    "TEXT_CALL",
    "TEXT_ONLY",
    "THOUGHT",
    "THOUGHT_CALL",
    "THOUGHT_TEXT",
    "TOOLS",
    "TWO_ARGUMENTS",
    "TWO_CALLS",
    "USER",
    "Call",
    "Manner",
    "Probe",
]
