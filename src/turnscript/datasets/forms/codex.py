"""Owns sessions of Codex: rollout files, whose lines hold the items of the Responses API among notes of the client.

    {"timestamp": "...", "type": "session_meta", "payload": {"id": "...", "base_instructions": {"text": "..."}}}
    {"timestamp": "...", "type": "turn_context", "payload": {"cwd": "...", "model": "..."}}
    {"timestamp": "...", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [...]}}
    {"timestamp": "...", "type": "event_msg", "payload": {"type": "user_message", "message": "..."}}

Older files have the items bare, behind a first line with the id of the session.

- `response_item` lines are the conversation. Events tell the person the same again, but for `thread_rolled_back`: the
  last turns were taken back. They are an example up to there; what goes on before them is another one, in which
  nothing is trained twice.
- A `compacted` line replaces what came before it. So the conversation up to it is an example, and what follows is
  another one: it begins with the `replacement_history`, which is not trained, or where there is none with the summary
  as a message of the user.
- `base_instructions` are the instructions. Older sessions have `instructions` instead: those of the user's files, which
  are read unless a message holds them too. `dynamic_tools` are the tools; Codex's own are not in a session.
- A `local_shell_call` is a call of a tool `local_shell`, as in the API; here older ones without a `call_id` are, too.
  An output `{"content": ..., "success": false}` becomes its content, and an error.
- `ghost_snapshot` items are notes of the client. A subagent and a fork have files of their own.

Shape: https://github.com/openai/codex, codex-rs/protocol (2025-12), and reports of later versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.core.call_pairing import name_results
from turnscript.core.conversation import Item, Opaque, ToolCall, ToolResult
from turnscript.core.json_text import Json, json_of, members, type_name
from turnscript.datasets.form import WHOLE, Example, Form
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.sessions import lines_of, read_as
from turnscript.datasets.traces import (
    RESPONSES,
    check,
    elements_of,
    has,
    member,
    members_of,
    message_index,
    of_list,
    relocate,
    request_of,
    text_of_member,
    untrained,
    value_of,
)

_ITEM, _EVENT, _META, _COMPACTED = "response_item", "event_msg", "session_meta", "compacted"
_NOTES = frozenset({"token_usage_record", "turn_context", "world_state"})
_TYPES = _NOTES | {_ITEM, _EVENT, _META, _COMPACTED}
_CALLED = frozenset({"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"})
_OUTPUTS = frozenset({"function_call_output", "custom_tool_call_output"})
_ITEMS = _CALLED | {
    "compaction",
    "compaction_summary",
    "image_generation_call",
    "local_shell_call",
    "message",
    "reasoning",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
}
_NO_ITEMS = frozenset({"ghost_snapshot", "other"})
_SHELL = "local_shell"
_NONE = Json(b"null")


class _Line(Struct, gc=False):
    type: str | None = None
    payload: Json = _NONE
    record_type: str | None = None


class _Payload(Struct, gc=False):
    type: str | None = None


_line = msgspec.json.Decoder(_Line)
_payload = msgspec.json.Decoder(_Payload)


class Codex(Form):
    """Sessions of Codex."""

    name = "codex"
    members = frozenset({"type", "record_type", "timestamp"})
    title = "Codex sessions"
    fields = "lines with `timestamp`, `type` and `payload`, as in ~/.codex/sessions"
    row = WHOLE

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        kind = record.get("type")
        if isinstance(kind, str) and kind in _TYPES and "payload" in record:
            return 1.0, f"a `payload` of the type {kind!r}"
        if record.get("record_type") == "state":
            return 1.0, "a record of the state"
        if isinstance(kind, str) and kind in _ITEMS | _NO_ITEMS and "messages" not in record:
            return (0.9 if kind in _CALLED and "call_id" in record else 0.6), f"a bare item of the type {kind!r}"
        if kind is None and "timestamp" in record and "id" in record and "instructions" in record:
            return 0.9, "the first line of an older session"
        return 0.0, "no line of a session"

    def read(self, data: bytes) -> list[Example]:
        session = _Session()
        for at, text in lines_of(data):
            session.feed(at, text)
        examples = session.close()
        if not examples:
            raise BadRow(Code.EMPTY, "the model says nothing in this session", path="$")
        if len(examples) > 1:
            for number, example in enumerate(examples, 1):
                example.label = f"part {number}"
        return examples


class _Entry(Struct, gc=False):
    """An item, where it stands, and whether its output is the error of a tool."""

    value: bytes
    at: str
    failed: bool = False


class _Session:
    """The history as the model had it, while the lines go by.

    `_learned`: how many items of it were in an example already, or replace what was. `_turns`: where the turns of the
    user begin. `_said`: whether the model said anything that is not in an example yet.
    """

    def __init__(self) -> None:
        self._history: list[_Entry] = []
        self._learned = 0
        self._turns: list[int] = []
        self._users: list[int] = []
        self._said = False
        self._examples: list[Example] = []
        self._prompt: dict[str, bytes] = {}
        self._older: tuple[bytes, str] | None = None
        self._prompt_at = "$"
        self._known = False

    def feed(self, at: str, text: bytes) -> None:
        """Take one more line."""
        line = read_as(_line, text, at)
        if line.type in (_ITEM, _EVENT, _META, _COMPACTED):
            self._of_payload(line.type or "", line.payload, f"{at}.payload")
        elif line.type is None and line.record_type is None and not self._known:
            self._meta(members_of(text, at), at)  # the first line of an older session
        elif line.type is not None and line.type not in _NOTES:
            if line.type not in _ITEMS | _NO_ITEMS:
                raise _unknown("a line", line.type, f"{at}.type")
            self._item(text.strip(), line.type, at)
        elif line.type is None and line.record_type != "state":
            raise BadRow(Code.SHAPE, "required, but missing", path=f"{at}.type")
        self._known = True

    def close(self) -> list[Example]:
        """Return the examples of all lines."""
        self._emit()
        return self._examples

    def _of_payload(self, kind: str, payload: Json, at: str) -> None:
        if kind == _META:
            if not self._prompt:  # a fork repeats the lines that it was made of, and the first is its own
                self._meta(members_of(payload, at), at)
            return
        if kind == _COMPACTED:
            self._compact(members_of(payload, at), at)
            return
        word = read_as(_payload, payload, at).type
        if word is None:
            raise BadRow(Code.SHAPE, "required, but missing", path=f"{at}.type")
        if kind == _EVENT:
            self._event(word, payload, at)
        elif word in _ITEMS | _NO_ITEMS:
            self._item(bytes(payload), word, at)
        else:
            raise _unknown("an item", word, f"{at}.type")

    def _item(self, value: bytes, kind: str, at: str) -> None:
        if kind in _NO_ITEMS:
            return
        entry = _Entry(value, at)
        if kind == "message":
            role = text_of_member(members_of(value, at), "role", at)
            if role == "user":
                self._users.append(len(self._history))
            self._said = self._said or role == "assistant"
        elif kind in _OUTPUTS:
            entry = _output(value, at)
        else:
            self._said = True
        self._history.append(entry)

    def _event(self, kind: str, payload: Json, at: str) -> None:
        if kind == "user_message" and self._users and self._users[-1] not in self._turns[-1:]:
            self._turns.append(self._users[-1])
        elif kind == "thread_rolled_back":
            number = value_of(member(members_of(payload, at), "num_turns", at), f"{at}.num_turns")
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= len(self._turns):
                message = f"turns that cannot be taken back: there are {len(self._turns)}"
                raise BadRow(Code.SHAPE, message, path=f"{at}.num_turns")
            if number:
                self._roll_back(number)

    def _roll_back(self, number: int) -> None:
        start = self._turns[-number]
        self._emit()
        del self._history[start:], self._turns[-number:]
        self._users = [index for index in self._users if index < start]
        self._learned = min(self._learned, start)

    def _compact(self, payload: Mapping[str, Json], at: str) -> None:
        """Go on from what replaces the history."""
        self._emit()
        self._history, self._turns, self._users = [], [], []
        if has(payload, "replacement_history"):
            place = f"{at}.replacement_history"
            for index, one in enumerate(elements_of(payload["replacement_history"], place)):
                spot = f"{place}[{index}]"
                self._item(bytes(one), text_of_member(members_of(one, spot), "type", spot), spot)
            self._turns = list(self._users)
        elif has(payload, "message"):
            text = json_of(text_of_member(payload, "message", at))
            value = b'{"type":"message","role":"user","content":[{"type":"input_text","text":%s}]}' % bytes(text)
            self._history.append(_Entry(value, f"{at}.message"))
        self._learned, self._said = len(self._history), False

    def _meta(self, meta: Mapping[str, Json], at: str) -> None:
        self._prompt_at = at
        if has(meta, "base_instructions"):
            place = f"{at}.base_instructions"
            text = json_of(text_of_member(members_of(meta["base_instructions"], place), "text", place))
            self._prompt["instructions"] = bytes(text)
        elif has(meta, "instructions"):
            self._older = bytes(meta["instructions"]), text_of_member(meta, "instructions", at)
        if has(meta, "dynamic_tools"):
            place = f"{at}.dynamic_tools"
            tools = elements_of(meta["dynamic_tools"], place)
            found = [_tool(members_of(tool, f"{place}[{index}]")) for index, tool in enumerate(tools)]
            self._prompt["tools"] = b"[" + b",".join(found) + b"]"

    # Examples.

    def _emit(self) -> None:
        """Keep the history so far as an example, if the model said anything in it that is in none yet."""
        if not self._said:
            return
        places = [entry.at for entry in self._history]
        place = of_list(places, self._prompt_at)
        prompt = dict(self._prompt)
        if self._older is not None and not self._repeats(self._older[1]):
            prompt["instructions"] = self._older[0]
        body = {**prompt, "input": b"[" + b",".join([entry.value for entry in self._history]) + b"]"}
        request = request_of(RESPONSES, body, place)
        request.conversation.items = [self._completed(item) for item in request.items]
        name_results(request.items)
        learned = self._learned
        context = untrained(request.items, lambda index: index >= learned)
        relocate(request, place)
        check(request.items)
        self._examples.append(Example(request, context=context))
        self._learned, self._said = len(self._history), False

    def _repeats(self, instructions: str) -> bool:
        """Return whether a message before the first answer holds the instructions too."""
        spelled = bytes(json_of(instructions))[1:-1]
        ahead = self._history[: self._users[-1] + 1] if self._users else []
        return any(spelled in entry.value for entry in ahead)

    def _completed(self, item: Item) -> Item:
        index = message_index(item.at)
        if isinstance(item, ToolResult) and self._history[index].failed:
            item.status = "error"
        if isinstance(item, Opaque) and item.type == "local_shell_call":
            return _shell_call(item, self._history[index].at)
        return item


def _unknown(what: str, kind: str, at: str) -> BadRow:
    message = (
        f"{what} of a type that is not known: {kind!r}; it may belong to the conversation, so the session is not read"
    )
    return BadRow(Code.FORM, message, path=at)


def _output(value: bytes, at: str) -> _Entry:
    """Return a result; the older spelling of an output is an object."""
    result = members_of(value, at)
    output = member(result, "output", at)
    if type_name(output) != "an object":
        return _Entry(value, at)
    inner = members_of(output, f"{at}.output")
    result = {**result, "output": member(inner, "content", f"{at}.output")}
    members = b",".join([bytes(json_of(name)) + b":" + bytes(one) for name, one in result.items()])
    return _Entry(b"{" + members + b"}", at, failed=bytes(inner.get("success", b"")) == b"false")


def _shell_call(item: Opaque, at: str) -> ToolCall:
    call = members_of(item.value, at)
    action = members_of(member(call, "action", at), f"{at}.action")
    action.pop("type", None)
    found = call.get("call_id", call.get("id", _NONE))
    id_ = value_of(found, f"{at}.call_id")
    if id_ is not None and not isinstance(id_, str):
        raise BadRow(Code.SHAPE, "expected a string", path=f"{at}.call_id")
    return ToolCall(name=_SHELL, arguments=members(action), as_object=True, id=id_, at=item.at)


def _tool(tool: Mapping[str, Json]) -> bytes:
    """Return a tool of the client as the API has it; its schema stays as it is."""
    names = {"name": "name", "description": "description", "input_schema": "parameters", "inputSchema": "parameters"}
    members = [b'"%s":%s' % (names[name].encode(), bytes(value)) for name, value in tool.items() if name in names]
    return b'{"type":"function",' + b",".join(members) + b"}"


FORMS = (Codex(),)
