"""Owns the doctor's small suite of tool calls: what a model makes of eight requests, prepared and read as always.

It measures the model in its prompt format more than the server: a small model fails some of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import token_bytes
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    Settings,
    Text,
    Tool,
    ToolCall,
    ToolChoice,
    ToolResult,
    User,
    calls,
    text_content,
)
from turnscript.core.errors import ContextOverflow
from turnscript.formats.format import Format
from turnscript.gateway.checks import FAULTS, CallFinding
from turnscript.gateway.config import Policy
from turnscript.gateway.doctor_findings import Check, Findings
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.generation import LENGTH
from turnscript.gateway.limits import Caller
from turnscript.gateway.memory import Memory
from turnscript.gateway.preparing import Preparation, Prepared
from turnscript.gateway.sessions import Sessions

LIMIT = 200
"""Tokens that an answer may have."""
_GOOD = 7
_REMEDY = (
    "this is what the model can do, no fault of the server, and a small model fails some of these; where most fail, "
    "check that the format is the one that the model was trained on"
)


def _tool(name: str, description: str, required: Sequence[str], **properties: dict[str, Any]) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Tool(name=name, description=description, parameters=msgspec.Raw(msgspec.json.encode(schema)))


WEATHER = _tool("get_weather", "The weather in a city now.", ["city"], city={"type": "string"})
TIMER = _tool(
    "set_timer",
    "Start a timer.",
    ["minutes"],
    minutes={"type": "integer", "minimum": 1},
    label={"type": "string"},
)
SEARCH = _tool("search_files", "Find files whose text has a word.", ["word"], word={"type": "string"})
MAIL = _tool("send_mail", "Send a mail.", ["to", "text"], to={"type": "string"}, text={"type": "string"})


def _user(text: str) -> User:
    return User(content=[Text(text=text)])


_ASKED: list[Item] = [
    _user("What is the weather in Oslo?"),
    ToolCall(name="get_weather", arguments='{"city":"Oslo"}', id="call_1"),
    ToolResult(name="get_weather", id="call_1", content=[Text(text='{"sky":"snow","degrees":-3}')]),
]


class Case(Struct, frozen=True):
    """A request. `wanted`: the tools that its answer calls, in any order, of which a format
    without room for two has the first; none if it is a text. `must`: a call is
    demanded."""

    name: str
    items: Sequence[Item]
    tools: Sequence[Tool]
    wanted: tuple[str, ...] = ()
    must: bool = False


CASES = (
    Case("one tool", [_user("What is the weather in Paris?")], [WEATHER], ("get_weather",)),
    Case("a number", [_user("Set a timer for 10 minutes, please.")], [TIMER], ("set_timer",)),
    Case("several tools", [_user("Which files mention invoices?")], [WEATHER, SEARCH, TIMER], ("search_files",)),
    Case(
        "several arguments",
        [_user("Send a mail to ann@example.org that says: The train is late.")],
        [SEARCH, MAIL, WEATHER],
        ("send_mail",),
    ),
    Case(
        "two calls",
        [_user("What is the weather in Rome, and what is it in Lima? Ask for both at once.")],
        [WEATHER],
        ("get_weather", "get_weather"),
    ),
    Case("after a result", _ASKED, [WEATHER]),
    Case("no tool needed", [_user("Say hello in French.")], [WEATHER, TIMER]),
    Case("a call is demanded", [_user("I am in Cairo and it is noon.")], [WEATHER], ("get_weather",), must=True),
)


class Outcome(Struct, frozen=True):
    """What became of a case. `parsed`: nothing in the answer was malformed; `right`: it calls what is wanted; `valid`:
    the tools' schemas accept the arguments; `ended`: the model came to an end by itself. `why`: where it failed."""

    case: str
    parsed: bool = False
    right: bool = False
    valid: bool = False
    ended: bool = False
    why: str = ""

    @property
    def passed(self) -> bool:
        """Whether all of it is as wanted."""
        return self.parsed and self.right and self.valid


async def tool_calls(patient: Patient) -> Check:
    """How many of the suite's answers are right."""
    found = Findings("tool calls")
    outcomes = [await _outcome(patient, case) for case in CASES]
    passed = sum(one.passed for one in outcomes)
    counts: dict[str, int] = {
        "parsed": sum(one.parsed for one in outcomes),
        "right": sum(one.right for one in outcomes),
        "valid": sum(one.valid for one in outcomes),
        "ended": sum(one.ended for one in outcomes),
    }
    failed = [f"{one.case} ({one.why})" for one in outcomes if not one.passed]
    found.figures = {"cases": len(CASES), "passed": passed, **counts, "failed": failed}
    words = (
        f"{passed} of {len(CASES)} answers are right: {counts['parsed']} parse, {counts['right']} call what is wanted, "
        f"{counts['valid']} with arguments that fit, {counts['ended']} come to an end by themselves"
    )
    if passed >= _GOOD:
        found.say(words)
    else:
        found.warn(f"{words}; not right: {', '.join(failed)}", _REMEDY)
    return found.check


async def _outcome(patient: Patient, case: Case) -> Outcome:
    try:
        prepared = await _prepared(patient, case)
    except ContextOverflow as error:
        return Outcome(case.name, why=str(error))
    response, findings = await _answered(patient, prepared)
    return judged(case, response, findings, together=patient.format is not None and calls_together(patient.format))


async def _prepared(patient: Patient, case: Case) -> Prepared:
    """A case as the gateway makes it ready. Nothing is remembered, and calls come out as the model wrote them."""
    config = replace(patient.config, policy=Policy(invalid_calls="pass"))
    settings = Settings(max_tokens=LIMIT, temperature=0, tool_choice=ToolChoice("required") if case.must else None)
    request = Request(conversation=Conversation(list(case.items), list(case.tools)), settings=settings)
    preparation = Preparation(
        served=patient.served,
        caller=Caller(None, config),
        headers={},
        memory=Memory(),
        signing_key=token_bytes(32),
        sessions=Sessions(),
    )
    return await preparation.conversation(request)


async def _answered(patient: Patient, prepared: Prepared) -> tuple[Response, list[CallFinding]]:
    generation = prepared.generation()
    async with patient.upstream.open(prepared.ask) as answer:
        async for pieces in answer:
            generation.feed(pieces)
            if generation.ended or generation.overrun(prepared.ask.max_tokens):
                break
    generation.close()
    return generation.response, generation.findings


_HARMLESS = frozenset({"unknown_tool", "odd_call", "missing_close", "ambiguous_close"})
"""Issues of answers that parse nevertheless; a tool that nobody offered is told apart."""


def calls_together(format_: Format) -> bool:
    """Whether one turn of a format can hold two calls: nothing between them ends it."""
    first, second = (ToolCall(name="get_weather", arguments=f'{{"city":"{city}"}}') for city in _CITIES)
    request = Request(conversation=Conversation([CASES[0].items[0], first, second], [WEATHER]))
    text = str(format_.render(request, view="prompt").value)
    between = text.rpartition(_CITIES[0])[2].partition(_CITIES[1])[0]
    request.conversation.items = request.items[:1]
    return not any(stop in between for stop in format_.prompt(request).stops)


_CITIES = ("Reykjavik", "Montevideo")


def judged(case: Case, response: Response, findings: Sequence[CallFinding], *, together: bool = True) -> Outcome:
    """How an answer fits its case. `together`: whether its format can hold more than one call."""
    named = sorted(call.name for call in calls(response.items))
    text = "".join([text_content(item.content) for item in response.items if isinstance(item, Assistant)]).strip()
    issues = [issue.kind for issue in response.issues if issue.kind not in _HARMLESS]
    kinds = [finding.kind for finding in findings if finding.kind in FAULTS and finding.kind != "unknown_tool"]
    wanted = sorted(case.wanted if together else case.wanted[:1])
    right = named == wanted and (bool(text) or bool(case.wanted))
    ended = response.finish_reason != LENGTH
    why = issues or kinds
    if not why and not right:
        why = [f"calls {', '.join(named)}" if named else "no call" if case.wanted else "no text"]
    parsed = not issues and "invalid_json" not in kinds and (bool(named) or bool(text))
    return Outcome(case.name, parsed, right, right and not kinds, ended, ", ".join(dict.fromkeys(why)))
