"""Owns the tools of OpenAI's own types that the client runs: what a model that has not learnt them is told of each.

Such a tool is declared by its type alone; its parameters are built into OpenAI's models. Here it is a function of that
name, `declared_as` its type; on the wire it stays what it was. Its type stays in `extra`, too: another API has no
place for it, and is told so. A shell in a container is the server's to run, and no function. Tools for a screen are
not here: they answer with pictures.

The parameters are the members of a call's `action` or `operation`. Clients write all that they know, so a null, or no
variables at all, is the default of what need not be said: such calls are still those that the model wrote.

Spec: the SDK's types (`FunctionShellTool`, `ApplyPatchTool`, `LocalShell`, and those of their calls), read 2026-11-28.

| wire | model |
|--|--|
| `local_shell_call`: `action`, `shell_call`: `action`, `apply_patch_call`: `operation` | `ToolCall`: `arguments` |
| `local_shell_call_output`: `output` | `ToolResult`: one text |
| `shell_call_output`: `output`, a list | `ToolResult`: one text, the JSON of it |
| `apply_patch_call_output`: `output`; `status` | `ToolResult`: one text, `completed` if there is none; `status` |

The slot of an item is its type on the wire. `"type": "exec"` stands in every action of a local shell, and in no
arguments. A call of a shell in a container was run by the server that made it: it stays verbatim, and so does its
output. What a model wrote for such a tool may be no action of it: then it is told as the call of a function, because
who runs commands should not have to guess which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec import Raw as RawJson

from turnscript.apis.api import Body, leftover
from turnscript.core.conversation import (
    Extra,
    Item,
    Opaque,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    single_text,
)
from turnscript.core.json_text import NULL, Json, is_json, json_of, members, plain, read_object, text_of

TOOL_SEARCH_CALL, TOOL_SEARCH_OUTPUT = "tool_search_call", "tool_search_output"
LOCAL_SHELL_CALL, LOCAL_SHELL_OUTPUT = "local_shell_call", "local_shell_call_output"
SHELL_CALL, SHELL_OUTPUT = "shell_call", "shell_call_output"
PATCH_CALL, PATCH_OUTPUT = "apply_patch_call", "apply_patch_call_output"
CLIENT_CALLS = frozenset({LOCAL_SHELL_CALL, SHELL_CALL, PATCH_CALL})
CLIENT_OUTPUTS = frozenset({LOCAL_SHELL_OUTPUT, SHELL_OUTPUT, PATCH_OUTPUT})


def reasoning_ids(items: Sequence[Item]) -> dict[int, str]:
    """An id for every reasoning item without one, by position: `rs_auto_NNN`, NNN counting reasoning items, ids in use
    skipped. Deterministic, so that the reader can take them off again."""
    used = {item.id for item in items if isinstance(item, Thinking) and item.id is not None}
    ids: dict[int, str] = {}
    number = 0
    for index, item in enumerate(items):
        if isinstance(item, Thinking) and is_written(item):
            number += 1
            if item.id is None:
                ids[index] = _free(number, used)
    return ids


def is_written(thinking: Thinking) -> bool:
    """Whether there is anything to say of a thought: one that only another API can read has no item here."""
    return bool(thinking.content or thinking.summary or thinking.encrypted or not thinking.redacted)


def _free(number: int, used: set[str]) -> str:
    while (candidate := f"rs_auto_{number:03d}") in used:
        number += 1
    used.add(candidate)
    return candidate


LOCAL_SHELL, SHELL, PATCH = "local_shell", "shell", "apply_patch"
_ENVIRONMENT, _LOCAL = "environment", "local"
_NOTHING = (None, {"type": _LOCAL})


class Known(Struct, frozen=True):
    """What OpenAI's models know of a tool."""

    description: str
    parameters: Json


def _known(description: str, required: list[str], properties: dict[str, Any], **more: Any) -> Known:
    schema = {"type": "object", "properties": properties, "required": required, **more}
    return Known(description, json_of(schema))


def _optional(type_: str, about: str) -> dict[str, Any]:
    return {"type": [type_, "null"], "description": about, "default": None}


def _strings(about: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string"}, "description": about}


_CREATE, _UPDATE, _DELETE = "create_file", "update_file", "delete_file"
_V4A = """Create, change or delete a file. `diff` says what shall stand in it, in the V4A form, without the file's name.
To create a file, each line of it begins with `+`.
To change one, give for each place a line `@@`, behind which may stand a line of the file that comes before the place, \
such as `@@ def read():`. Then the lines there, each behind one character: a space for a line that stays, `-` for one \
that goes, `+` for a new one. Show about three lines that stay on both sides of a change, exactly as they are."""

_TYPES = {
    LOCAL_SHELL: _known(
        "Run a program on the user's machine.",
        ["command"],
        {
            "command": _strings('The program and its arguments. For more than that, a shell: ["bash", "-lc", "..."].'),
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Environment variables to set.",
                "default": {},
            },
            "working_directory": _optional("string", "Where to run it."),
            "timeout_ms": _optional("integer", "How many milliseconds it may take."),
            "user": _optional("string", "As whom to run it."),
        },
    ),
    SHELL: _known(
        "Run commands in a shell on the user's machine.",
        ["commands"],
        {
            "commands": _strings("The commands, in their order."),
            "timeout_ms": _optional("integer", "How many milliseconds they may take."),
            "max_output_length": _optional("integer", "How many characters of output to get at most."),
        },
    ),
    PATCH: _known(
        _V4A,
        ["type", "path"],
        {
            "type": {"type": "string", "enum": [_CREATE, _UPDATE, _DELETE], "description": "What to do."},
            "path": {"type": "string", "description": "The file."},
            "diff": {"type": "string", "description": f"What shall stand in it. Needed unless it is {_DELETE}."},
        },
        anyOf=[{"properties": {"type": {"const": _DELETE}}}, {"required": ["diff"]}],
    ),
}


def client_tool(type_: str, members: Extra) -> Tool | None:
    """The function that a tool is that the client runs; None for any other. `members`: of its declaration, but for
    the type."""
    known = _TYPES.get(type_)
    if known is None or not (type_ != SHELL or is_local(members)):
        return None
    return Tool(
        name=type_,
        description="\n".join([known.description, *_skills(members)]),
        parameters=known.parameters,
        extra={"type": json_of(type_), **members},
        declared_as=type_,
    )


def is_local(members: Extra) -> bool:
    """Whether a shell, or a call of one, is not said to run in a container."""
    value: Any = plain(members[_ENVIRONMENT]) if _ENVIRONMENT in members else None
    return value is None or (isinstance(value, dict) and value.get("type") == _LOCAL)


def says_local(members: Extra) -> bool:
    """Whether the environment of a call is one that says no more than that the client runs it."""
    return _ENVIRONMENT in members and plain(members[_ENVIRONMENT]) in _NOTHING


def _skills(members: Extra) -> Iterator[str]:
    """What the model is told of the skills of a shell, each a folder that it may read."""
    value: Any = plain(members[_ENVIRONMENT]) if _ENVIRONMENT in members else None
    told = value.get("skills") if isinstance(value, dict) else None
    skills = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
    if skills:
        yield "Folders with instructions, to be read where they help:"
    for one in skills:
        yield f"- {one.get('path')} ({one.get('name')}): {one.get('description')}"


def as_function(tool: Tool) -> Tool | None:
    """The same tool again, where the model is told more of it than its client has said; None for any other."""
    return copy(tool) if tool.declared_as in _TYPES else None


_EXEC = json_of("exec")
_FAILED, _COMPLETED = "failed", "completed"
_STATUSES = {_COMPLETED: None, _FAILED: "error"}
_SAID = {PATCH_OUTPUT: (None, "ok", "error")}


_Whole = int | Annotated[float, Meta(multiple_of=1)]
"""An integer, which may be written `1e3`."""


class _Exec(Struct):
    command: list[str]
    type: Literal["exec"] = "exec"
    env: dict[str, str] = {}
    working_directory: str | None = None
    timeout_ms: _Whole | None = None
    user: str | None = None


class _Commands(Struct):
    commands: list[str]
    timeout_ms: _Whole | None = None
    max_output_length: _Whole | None = None


class _Written(Struct, tag_field="type", tag="create_file"):
    path: str
    diff: str


class _Updated(_Written, tag="update_file"):
    pass


class _Deleted(Struct, tag_field="type", tag="delete_file"):
    path: str


_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    LOCAL_SHELL_CALL: msgspec.json.Decoder(_Exec),
    SHELL_CALL: msgspec.json.Decoder(_Commands),
    PATCH_CALL: msgspec.json.Decoder(_Written | _Updated | _Deleted),
}
_ACTIONS = {LOCAL_SHELL_CALL: "action", SHELL_CALL: "action", PATCH_CALL: "operation"}
ID_PREFIXES = {LOCAL_SHELL_CALL: "lsh_", SHELL_CALL: "sh_", PATCH_CALL: "apc_"}


def fits(slot: str, arguments: str) -> bool:
    """Whether arguments are an action of such a tool."""
    try:
        _DECODERS[slot].decode(arguments)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


# Reading.


def read_client_item(kind: str, value: Json, at: str) -> Item | None:
    """The call or output that an item is; None where it is anything else, or has not what one needs."""
    if kind in CLIENT_CALLS:
        return _call(kind, read_object(value), at)
    return _output(kind, read_object(value), at) if kind in CLIENT_OUTPUTS else None


def _call(slot: str, given: Extra, at: str) -> ToolCall | None:
    action = given.pop(_ACTIONS[slot], None)
    if action is None or not _is_string(given.get("call_id")) or (slot == SHELL_CALL and not is_local(given)):
        return None
    arguments = text_of(action)
    if slot == LOCAL_SHELL_CALL and arguments[:1] == "{":
        said = read_object(action)
        if said.pop("type", None) != _EXEC:
            return None
        arguments = members(said)
    if not fits(slot, arguments):
        return None
    call = ToolCall(name=name_of(slot), arguments=arguments, as_object=True, slot=slot, at=at)
    call.id = plain(given.pop("call_id"))
    _identify(call, given)
    return call


def name_of(slot: str) -> str:
    """What the tool is called that such a call is of, if no other tool has that name."""
    return slot.removesuffix("_call")


def _output(slot: str, given: Extra, at: str) -> ToolResult | None:
    by_id = slot == LOCAL_SHELL_OUTPUT and "call_id" not in given and _is_string(given.get("id"))
    if not (by_id or _is_string(given.get("call_id"))):
        return None
    result = ToolResult(slot=slot, at=at)
    if not _READ[slot](result, given):
        return None
    result.id = plain(given["id"] if by_id else given.pop("call_id"))
    _identify(result, given)
    return result


def _identify(item: ToolCall | ToolResult, given: Extra) -> None:
    """The id of the item itself, and the members that have no name here."""
    if _is_string(given.get("id")):
        item.item_id = plain(given.pop("id"))
    item.extra = given


def _local_shell_output(result: ToolResult, given: Extra) -> bool:
    if not _is_string(given.get("output")):
        return False
    result.content = [Text(text=plain(given.pop("output")))]
    return True


def _shell_output(result: ToolResult, given: Extra) -> bool:
    output = given.get("output")
    if output is None or bytes(output)[:1] != b"[":
        return False
    result.content = [Text(text=text_of(given.pop("output")))]
    return True


def _patch_output(result: ToolResult, given: Extra) -> bool:
    output, status = given.get("output"), given.pop("status", NULL)
    said = plain(status) if _is_string(status) else None
    if said not in _STATUSES:
        return False
    result.status = _STATUSES[said]
    if _is_string(output):
        result.content = [Text(text=plain(given.pop("output")))]
    elif output is None or plain(output) is None:
        result.content = [Text(text=said)]
    else:
        return False
    return True


_READ = {LOCAL_SHELL_OUTPUT: _local_shell_output, SHELL_OUTPUT: _shell_output, PATCH_OUTPUT: _patch_output}


def _is_string(value: Json | None) -> bool:
    return value is not None and bytes(value)[:1] == b'"'


def settle_client_items(items: list[Item]) -> None:
    """Give outputs to the calls that they answer, where they name the item and not its call; and leave those verbatim
    whose calls a server ran."""
    hosted = {id_ for item in items if type(item) is Opaque and item.type == SHELL_CALL for id_ in _call_ids(item)}
    called = {item.item_id: item.id for item in items if type(item) is ToolCall and item.slot == LOCAL_SHELL_CALL}
    for index, item in enumerate(items):
        if type(item) is not ToolResult:
            continue
        slot = item.slot
        if slot == LOCAL_SHELL_OUTPUT and item.id == item.item_id:
            item.id = called.get(item.item_id, item.id)
        elif slot == SHELL_OUTPUT and item.id in hosted and (body := output_body(item, item.id)) is not None:
            items[index] = Opaque(type=SHELL_OUTPUT, value=leftover(item.extra | body), at=item.at)


def _call_ids(call: Opaque) -> Iterator[str]:
    value = read_object(call.value).get("call_id")
    if _is_string(value):
        yield plain(value)  # type: ignore[arg-type]


# Writing.


def call_body(item: ToolCall, call_id: str | None, *, whole: bool = False) -> Body | None:
    """A call as an item of its own; None where its arguments are no action. `whole`: with all that an answer says,
    whether a request says it or not."""
    slot = item.slot
    if slot not in CLIENT_CALLS or not fits(slot, item.arguments):
        return None
    body: Body = {"type": slot}
    if item.item_id is not None:
        body["id"] = item.item_id
    return body | {"call_id": call_id} | _acting(slot, item.arguments, whole)


def _acting(slot: str, arguments: str, whole: bool) -> Body:
    usual: Body = {"type": "exec"} if slot == LOCAL_SHELL_CALL else {}
    body: Body = {_ACTIONS[slot]: _with(arguments, usual | (_USUAL[slot] if whole else {}))}
    if slot == SHELL_CALL and whole:
        body["environment"] = {"type": "local"}
    return body


_USUAL: dict[str, Body] = {
    LOCAL_SHELL_CALL: {"env": {}},
    SHELL_CALL: {"timeout_ms": None, "max_output_length": None},
    PATCH_CALL: {},
}
"""What an action says in any answer."""


def _with(arguments: str, usual: Body) -> Json:
    """The text of an action, as it was written, and behind it what it has to say and does not."""
    said = read_object(arguments)
    more = {key: value for key, value in usual.items() if key not in said}
    if not more:
        return RawJson(arguments.encode())
    begun = arguments.rstrip().removesuffix("}").rstrip()
    return RawJson(f"{begun}{', ' if said else ''}{members(more)[1:]}".encode())


def begun_body(body: Body) -> Body:
    """A call as it is announced: without what its events tell, which grows."""
    if body["type"] == SHELL_CALL:
        return body | {"action": {**read_object(body["action"]), "commands": []}}
    return body


def command_events(item: ToolCall) -> Iterator[tuple[str, Body]]:
    """What tells a call before it is done: the commands of a shell. All others are told by their item alone."""
    if item.slot != SHELL_CALL:
        return
    commands: Sequence[str] = _DECODERS[SHELL_CALL].decode(item.arguments).commands
    event = "response.shell_call_command"
    for index, command in enumerate(commands):
        place: Body = {"command_index": index}
        yield f"{event}.added", place | {"command": ""}
        if command:
            yield f"{event}.delta", place | {"delta": command}
        yield f"{event}.done", place | {"command": command}


def output_body(item: ToolResult, call_id: str | None) -> Body | None:
    """The output of such a call; None where it is none, or says what such an output cannot."""
    slot, text = item.slot, single_text(item.content)
    if slot not in CLIENT_OUTPUTS or text is None or item.status not in _SAID.get(slot, (None,)):
        return None
    body: Body = {"type": slot, "call_id": call_id, "output": text}
    if item.item_id is not None:
        body["id"] = item.item_id
    if slot == SHELL_OUTPUT:
        if text[:1] != "[" or not is_json(text):
            return None
        body["output"] = RawJson(text.encode())
    elif slot == PATCH_OUTPUT:
        body["status"] = _FAILED if item.is_error else _COMPLETED
    return body


def settle_call(call: ToolCall) -> None:
    """Take off a call in an answer what every such call says there."""
    usual = {"type"} | ({"environment"} if says_local(call.extra) else set())
    call.extra = {key: value for key, value in call.extra.items() if key not in usual}
    more = _USUAL[call.slot]
    if more:  # which any spelling may say
        said = read_object(call.arguments).items()
        call.arguments = members({key: value for key, value in said if key not in more or plain(value) != more[key]})
