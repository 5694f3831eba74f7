"""Owns the tools of OpenAI's own types that the client runs: what a model that has not learnt them is told of each.

Such a tool is declared by its type alone; its parameters are built into OpenAI's models. Here it is a function of that
name, with the hint `declared_as`; on the wire it stays what it was. Its type stays in `extra`, too: another API has no
place for it, and is told so. A shell in a container is the server's to run, and no function. Tools for a screen are
not here: they answer with pictures.

The parameters are the members of a call's `action` or `operation`. Clients write all that they know, so a null, or no
variables at all, is the default of what need not be said: such calls are still those that the model wrote.

Spec: the SDK's types (`FunctionShellTool`, `ApplyPatchTool`, `LocalShell`, and those of their calls), read 2026-11-28.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import DECLARED_AS, Extra, Tool
from turnscript.core.json_text import Json, json_of, plain

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
        hints={DECLARED_AS: type_},
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
    return copy(tool) if tool.hints.get(DECLARED_AS) in _TYPES else None
