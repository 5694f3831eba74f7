"""Owns the checks of tool calls: what a call must be before it leaves, and what is done with one that is not.

A model's call is checked when it is complete: its name is declared, its arguments are one JSON object that the tool's
JSON Schema accepts (requirements R-U-44, D-X-12). What is wrong is a `CallFinding`, a value for reports and counters;
nothing is raised and no byte is lost. A `CallGate` stands between a parser and whoever writes the answer and does what
a `CallPolicy` says about calls with faults:

- `pass`: they go out as they are, live. Clients have their own checks and their own words for the model.
- `text`: they are answered as text, exactly as the model wrote them, and only that.
- `retry`: the caller generates once more from where the call began; the second time `fallback` decides.

A text that began as a call and that no parser can read as one is told as text, or made again like any other.

Where calls may be taken back (`text`, `retry`) the events of a call wait until it is complete; texts and thoughts
never wait. In every policy the events of a whole answer and those of the same answer in pieces come out alike.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import cached_property
from itertools import islice
from typing import Any, Literal, Protocol

import jsonschema_rs
from msgspec import Struct

from turnscript.core.conversation import Assistant, Issue, Response, Text, Tool, ToolCall
from turnscript.core.conversation import calls as calls_of
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, raw_text
from turnscript.core.json_text import Json, is_object, plain, text_of
from turnscript.engine.recent import MB, recent
from turnscript.gateway.offers import NAMESPACE
from turnscript.gateway.schemasize import References, applications, revisited, too_deep, unrolled

_SEPARATORS = ("__", "::", ".", "/", ":")


class Declared:
    """The tools that may be called, by the names a model may use for them."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._inside: dict[tuple[str, str], Tool] = {}
        for tool in tools:
            if tool.type == NAMESPACE:
                for inner in tool.tools:
                    if tool.name is not None and inner.name is not None:
                        self._inside[tool.name, inner.name] = inner
                        self._tools.setdefault(f"{tool.name}__{inner.name}", inner)
            elif tool.name is not None:
                self._tools[tool.name] = tool

    def find(self, call: ToolCall) -> Tool | None:
        """The tool that a call is for."""
        if call.namespace is not None:
            return self._inside.get((call.namespace, call.name))
        return self._tools.get(call.name)

    def snapped(self, name: str) -> str | None:
        """The one declared name that differs from `name` by case, `-` for `_` or a namespace before it alone."""
        if name in self._tools:
            return None
        key = _key(name)
        near = self._by_key.get(key)
        if near is None:
            bare = _bare(key)
            # Two different namespaces are two different tools; so one of the names has none.
            near = [one for one in self._by_bare.get(bare, ()) if key == bare or _key(one) == bare]
        return near[0] if len(near) == 1 else None

    # Most answers call no tool, and most calls name one as it is declared: nobody asks for these then.

    @cached_property
    def _by_key(self) -> dict[str, list[str]]:
        return _grouped(self._tools, _key)

    @cached_property
    def _by_bare(self) -> dict[str, list[str]]:
        return _grouped(self._tools, lambda name: _bare(_key(name)))


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return found


def _key(name: str) -> str:
    return name.casefold().replace("-", "_")


def _bare(key: str) -> str:
    """A name without a namespace before it."""
    for separator in _SEPARATORS:
        key = key.rpartition(separator)[2] or key
    return key


FindingKind = Literal[
    "unreadable",
    "unknown_tool",
    "renamed",
    "invalid_json",
    "not_an_object",
    "not_a_number",
    "duplicate_key",
    "schema_mismatch",
    "schema_unusable",
    "grammar_unchecked",
    "unchecked",
]

FAULTS: frozenset[str] = frozenset(
    {"unknown_tool", "invalid_json", "not_an_object", "not_a_number", "schema_mismatch"},
)
"""The findings that make a call faulty. The others are reported: they are the schema's fault, or harm no client."""

Action = Literal["pass", "text", "retry"]

_MOST_FINDINGS = 8
_MOST_FOLLOWED, _MOST_APPLIED = 10_000, 10_000
"""References in a schema, and parts of it applied to parts of a value. So many take some 200 ms at the worst: those to
be compiled, these to say what is wrong."""
_LONGEST = 300
_COMPILED = 30  # times the size of a schema, with what is known of its references
_JSON_SPACE = " \t\n\r"


class CallFinding(Struct, frozen=True):
    """Something about a call. `path`: where in it (`name`, `arguments.files[0]`); `tool`: as the model named it."""

    kind: FindingKind
    path: str
    detail: str
    call_id: str | None = None
    tool: str = ""

    def __str__(self) -> str:
        return f"{self.tool}: {self.path}: {self.kind}: {self.detail}"


class CallPolicy(Struct, frozen=True, kw_only=True):
    """What is done with faulty calls. `snap`: whether names that differ only in spelling are corrected."""

    action: Action = "pass"
    fallback: Literal["pass", "text"] = "pass"
    snap: bool = True
    faults: frozenset[str] = FAULTS


PASS = CallPolicy()


# Schemas.


class _Unusable(Struct, frozen=True):
    detail: str


class _Usable(Struct, frozen=True):
    validator: jsonschema_rs.Validator
    references: References


@recent(32 * MB, weight=_COMPILED)
def _validator(schema: bytes) -> _Usable | _Unusable:
    """A schema compiled, once for each text. Nothing is fetched: a reference to elsewhere makes it unusable."""
    try:
        references = References(plain(Json(schema)))
        if unrolled(references, _MOST_FOLLOWED) >= _MOST_FOLLOWED:
            return _Unusable("its references lead to one another too many times")
        if revisited(references, _MOST_FOLLOWED) >= _MOST_FOLLOWED:
            return _Unusable("what it says of unevaluated members leads through too many schemas")
        validator = jsonschema_rs.validator_for(schema.decode(), offline=True)
        if references.unclear:
            return _Unusable("where its references lead is not clear")
        return _Usable(validator, references)
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError) as error:
        return _Unusable(_first_line(error))


def check_value(value: Any, schema: Json) -> Iterator[tuple[FindingKind, str, str]]:
    """What a JSON Schema says against a value: kind, place in it (`.files[0]`) and a sentence."""
    validator = _validator(bytes(schema))
    if isinstance(validator, _Unusable):
        yield "schema_unusable", "", f"the tool's schema cannot be used: {validator.detail}"
        return
    if too_deep(validator.references, value):
        yield "unchecked", "", "the schema could not be applied: nested too deep"
        return
    try:
        if validator.validator.is_valid(value):
            return
        # To say what is wrong takes a thousand times as long as to say that something is, and nothing is remembered.
        if applications(validator.references, value, _MOST_APPLIED) >= _MOST_APPLIED:
            yield "schema_mismatch", "", "not what the schema allows"
            return
        for error in islice(validator.validator.iter_errors(value), _MOST_FINDINGS):
            yield "schema_mismatch", _place(error.instance_path), _first_line(error)
    except (ValueError, RecursionError, jsonschema_rs.ReferencingError) as error:
        yield "unchecked", "", f"the schema could not be applied: {_first_line(error)}"


def _place(path: Iterable[str | int]) -> str:
    return "".join([f"[{step}]" if isinstance(step, int) else f".{step}" for step in path])


def _first_line(error: Exception) -> str:
    text = str(getattr(error, "message", "") or error).strip().split("\n")[0]
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


# Arguments.


def read_json(text: str) -> tuple[Any, list[tuple[FindingKind, str]]]:
    """A JSON text as Python data, with what is odd about it. None and a finding where it is none."""
    odd: list[tuple[FindingKind, str]] = []

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in members:
            if key in found:
                odd.append(("duplicate_key", f"{key!r} is there twice; most readers take the last"))
            found[key] = value
        return found

    def constant(word: str) -> None:
        odd.append(("not_a_number", f"{word} is not JSON"))

    try:
        value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as error:
        return None, [("invalid_json", f"{error.msg} at character {error.pos}")]
    except RecursionError:
        return None, [("invalid_json", "nested too deep")]
    except ValueError as error:  # a number with thousands of digits
        return None, [("unchecked", _first_line(error))]
    return value, odd


def _check_arguments(arguments: str, schema: Json | None) -> Iterator[tuple[FindingKind, str, str]]:
    value, odd = read_json(arguments)
    for kind, detail in odd:
        yield kind, "", detail
    kinds = {kind for kind, _ in odd}
    if kinds & {"invalid_json", "unchecked"}:
        return
    if not isinstance(value, dict):
        yield "not_an_object", "", "arguments are one JSON object"
        return
    if not is_object(arguments):
        if "not_a_number" not in kinds:
            yield "invalid_json", "", "half of a surrogate pair, which no UTF-8 text can hold"
        return
    if schema is not None and text_of(schema).strip(_JSON_SPACE) != "null":
        yield from check_value(value, schema)


# Calls.


def _check(declared: Declared, call: ToolCall) -> Iterator[CallFinding]:
    """Everything there is to say about a call."""
    tool = declared.find(call)
    if tool is None:
        detail = "no tool of this name is declared"
        yield CallFinding("unknown_tool", "name", detail, call.id, call.name)
    if call.custom:
        if tool is not None and _has_grammar(tool):
            detail = "the tool's input has a grammar, which is not checked"
            yield CallFinding("grammar_unchecked", "arguments", detail, call.id, call.name)
        return
    schema = None if tool is None else tool.parameters
    for kind, place, detail in _check_arguments(call.arguments, schema):
        yield CallFinding(kind, f"arguments{place}", detail, call.id, call.name)


def _has_grammar(tool: Tool) -> bool:
    if tool.format is None:
        return False
    value, _ = read_json(text_of(tool.format))
    return isinstance(value, dict) and value.get("type") == "grammar"


def check_calls(answer: Response | Iterable[Event], tools: Iterable[Tool]) -> list[CallFinding]:
    """The findings of all complete calls of an answer, whole or as events."""
    declared = Declared(tools)
    if isinstance(answer, Response):
        items: Iterable[Any] = answer.items
    else:
        items = [event.part for event in answer if isinstance(event, PartEnd)]
    return [finding for call in calls_of(items) for finding in _check(declared, call)]


# The gate.


class _Parser(Protocol):
    def feed(self, text: str) -> list[Event]: ...


class CallGate:
    """Passes the events of one answer on, calls checked.

    `findings`: of all calls so far, also those of an attempt that was given up. `wants_retry`: a call was faulty and
    the policy is to generate once more. Then stop the backend, generate from the prompt's text and `kept` behind it,
    and give `resume` a fresh parser of the same prompt; what that parser tells is fed here again.
    """

    def __init__(self, tools: Iterable[Tool], policy: CallPolicy = PASS) -> None:
        self.findings: list[CallFinding] = []
        self.wants_retry = False
        self._declared = Declared(tools)
        self._policy = policy
        self._action: Action = policy.action
        self._kept: list[str] = []
        self._told: dict[int, int] = {}  # of parts that have begun: how much of them is out (`_size`)
        self._held: list[Event] = []  # a call that is not complete, or the start of a text; before it the end of a part
        self._in_call = False
        self._none: int | None = None  # the part that began as a call, is held, and came to nothing
        self._left = 0  # calls that went out
        self._issues: list[Issue] = []
        self._skip_raw = 0
        self._skip_text: dict[int, int] = {}
        self._at = 0  # characters that the events so far have read, where a call may be made again
        self._broken: int | None = None  # where among them one began that cannot be read

    @property
    def kept(self) -> str:
        """The generated text of all that has been passed on."""
        return "".join(self._kept)

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """More events; returns what may leave now."""
        out: list[Event] = []
        for event in events:
            if self._broken is not None and self._at + len(event.raw) > self._broken:
                self._give_up()
            if self.wants_retry:
                break
            if self._action == "retry":
                self._at += len(event.raw)
            self._take(self._cut(event) if self._skip_raw or self._skip_text else event, out)
        if self._broken is not None:
            self._give_up()
        return out

    def unreadable(self, issue: Issue) -> None:
        """What began as a call is none, says the parser whose next events are fed here. They tell it as text."""
        self.findings.append(CallFinding("unreadable", "", issue.detail))
        if self._action == "retry" and self._broken is None:
            self._broken = issue.start

    def _give_up(self) -> None:
        """Generate once more. Of what was held, nothing has left."""
        self._held, self._broken, self.wants_retry = [], None, True

    def close(self) -> list[Event]:
        """The answer is over, maybe in the middle: what was held goes out as it is, so that nothing is lost."""
        out: list[Event] = []
        if not self.wants_retry:
            self._release(out)
        return out

    def resume(self, parser: _Parser) -> None:
        """Begin the second attempt. `parser` is fed what has been passed on, and what it says to that is not told."""
        kept = self.kept
        again = parser.feed(kept) if kept else []
        self._skip_raw = len(kept) - len(raw_text(again))
        said: dict[int, int] = {}
        for event in again:
            if not isinstance(event, MessageEnd):
                said[event.index] = said.get(event.index, 0) + _size(event)
        # A part of the first attempt that the parser has not begun yet will begin once more: -1 is that beginning.
        self._skip_text = {index: told - said.get(index, -1) for index, told in self._told.items()}
        self._skip_text = {index: count for index, count in self._skip_text.items() if count > 0}
        self._action = self._policy.fallback
        self._held, self._in_call, self._none, self.wants_retry = [], False, None, False

    # Passing on.

    def _take(self, event: Event, out: list[Event]) -> None:
        if self._none is not None and not isinstance(event, MessageEnd):
            event = self._without_call(event, self._none, out)
        self._none = None
        if isinstance(event, PartStart) and isinstance(event.part, ToolCall):
            event = self._named(event, event.part)
            if self._action == "pass":
                self._pass(event, out)
            else:
                self._held.append(event)
                self._in_call = True
        elif self._in_call and not isinstance(event, MessageEnd):
            self._held.append(event)
            if isinstance(event, PartEnd):
                self._decide(event, out)
        elif isinstance(event, PartEnd):
            self._end(event, out)
        elif isinstance(event, PartStart) and self._action == "retry":
            self._held.append(event)  # its text may be of a call that cannot be read
        else:
            self._release(out)
            self._pass(self._ended(event) if isinstance(event, MessageEnd) else event, out)

    def _without_call(self, event: Event, index: int, out: list[Event]) -> Event:
        """What follows a call that turned out to be none takes what was read of it; nothing else is told of that."""
        held = self._held
        begin = next(at for at, one in enumerate(held) if isinstance(one, PartStart) and one.index == index)
        self._held, raw = held[:begin], raw_text(held[begin:])
        self._release(out)
        event = copy(event)
        event.raw = raw + event.raw
        return event

    def _end(self, event: PartEnd, out: list[Event]) -> None:
        """The end of a part whose events went out live."""
        self._release(out)
        if isinstance(event.part, ToolCall):
            event = self._renamed(event, event.part)
            assert isinstance(event.part, ToolCall)
            self.findings += _check(self._declared, event.part)
            self._left += 1
            self._pass(event, out)
        elif self._action == "retry" and not event.raw:
            self._held.append(event)  # a second attempt may go on with this part
        else:
            self._pass(event, out)

    def _decide(self, event: PartEnd, out: list[Event]) -> None:
        self._in_call = False
        if not isinstance(event.part, ToolCall):
            self._none = event.index  # if the answer ends there, it was cut off, and goes out as that
            return
        event = self._renamed(event, event.part)
        assert isinstance(event.part, ToolCall)
        self._held[-1] = event
        found = list(_check(self._declared, event.part))
        self.findings += found
        fault = next((one for one in found if one.kind in self._policy.faults), None)
        if fault is None:
            self._left += 1
            self._release(out)
        elif self._action == "retry":
            self._give_up()
        else:
            self._say(event.part, event.index, fault, out)

    def _say(self, call: ToolCall, index: int, fault: CallFinding, out: list[Event]) -> None:
        """A call as text: what the model wrote, or the call as JSON where it was not written by a model."""
        held, self._held = self._held, []
        raw = raw_text(held)
        text = raw or json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
        self._issues.append(Issue("call_as_text", str(fault)))
        self._pass(PartStart(index, Assistant()), out)
        self._pass(PartDelta(index, text, raw), out)
        self._pass(PartEnd(index, Assistant(content=[Text(text=text)])), out)

    def _ended(self, event: MessageEnd) -> MessageEnd:
        if not self._issues:
            return event
        end = copy(event)
        end.issues = [*event.issues, *self._issues]
        if end.finish_reason == "tool_calls" and not self._left:
            end.finish_reason = "stop"
        return end

    def _release(self, out: list[Event]) -> None:
        held, self._held, self._in_call = self._held, [], False
        for event in held:
            self._pass(event, out)

    def _pass(self, event: Event, out: list[Event]) -> None:
        out.append(event)
        if self._policy.action != "retry":
            return
        self._kept.append(event.raw)
        if isinstance(event, PartStart):
            self._told[event.index] = 0
        elif isinstance(event, PartDelta):
            self._told[event.index] = self._told.get(event.index, 0) + _size(event)
        elif isinstance(event, PartEnd):
            self._told.pop(event.index, None)

    # Names.

    def _named(self, event: PartStart, call: ToolCall) -> PartStart:
        name = self._name(call)
        if name is None:
            return event
        part = copy(call)
        part.name = name
        return PartStart(event.index, part, event.raw, event.origin)

    def _renamed(self, event: PartEnd, call: ToolCall) -> PartEnd:
        name = self._name(call)
        if name is None:
            return event
        self.findings.append(CallFinding("renamed", "name", f"taken for {name!r}", call.id, call.name))
        part = copy(call)
        part.name = name
        return PartEnd(event.index, part, event.raw)

    def _name(self, call: ToolCall) -> str | None:
        return self._declared.snapped(call.name) if self._policy.snap and call.namespace is None else None

    # The second attempt.

    def _cut(self, event: Event) -> Event:
        """An event without what the first attempt has told already."""
        cut = copy(event)
        cut.raw, self._skip_raw = cut.raw[self._skip_raw :], max(0, self._skip_raw - len(cut.raw))
        if isinstance(cut, MessageEnd):
            return cut
        count = self._skip_text.get(cut.index, 0)
        if not count:
            return cut
        if isinstance(cut, PartDelta):
            self._skip_text[cut.index] = max(0, count - _size(cut))
            if type(cut) is NextText:
                return PartDelta(cut.index, "", cut.raw)
            cut.text = cut.text[count:]
        elif isinstance(cut, PartStart):
            self._skip_text[cut.index] = count - 1
            return PartDelta(cut.index, "", cut.raw)
        return cut


def _size(event: Event) -> int:
    """How much an event adds to its part: characters, or the end of one of its texts, which counts as one."""
    return 1 if type(event) is NextText else len(event.text) if isinstance(event, PartDelta) else 0


__all__ = [
    "FAULTS",
    "PASS",
    "Action",
    "CallFinding",
    "CallGate",
    "CallPolicy",
    "FindingKind",
    "check_calls",
    "check_value",
    "read_json",
]
