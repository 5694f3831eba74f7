"""Owns the tools of Anthropic's own types that the client runs: what a model that has not learnt them is told of each.

Such a tool is declared by its type and name alone; its parameters are built into Anthropic's models. Everything else
about it is as with any function: the model calls it by its name, and the client runs it and tells the result. So a
model that is told the parameters can use it. Tools for a screen are not here: they answer with pictures.

Spec: the SDK's types (`beta_memory_tool_20250818_*_command`), and the pages of the bash, text editor and memory tools.
The text of an insertion is `new_str` in the first editors, and `insert_text` in the later ones and in the memory.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from msgspec import Struct

from turnscript.apis.anthropic_messages.tools import FUNCTION
from turnscript.core.conversation import Tool
from turnscript.core.json_text import Json, json_of


class Known(Struct, frozen=True):
    """What Anthropic's models know of a tool."""

    description: str
    parameters: Json


def _known(description: str, required: list[str], properties: dict[str, Any]) -> Known:
    return Known(description, json_of({"type": "object", "properties": properties, "required": required}))


def _string(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


def _command(*words: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(words), "description": "What to do."}


_PATH = _string("The file or folder.")
_INSERTED = {"insert_text": _string("For insert: the text to put in.")}
_EDIT: dict[str, Any] = {
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "For view: the first and the last line to show, counted from 1; -1 is the end of the file.",
    },
    "file_text": _string("For create: all that the file is to hold."),
    "old_str": _string("For str_replace: the text to replace, exactly as it stands in the file, where it stands once."),
    "new_str": _string("For str_replace: what to put in its place."),
    "insert_line": {
        "type": "integer",
        "description": "For insert: the line behind which the text goes; 0 is the beginning.",
    },
}
"""What all editors of text take, the memory too."""
_REPLACED_OR_INSERTED = _string("For str_replace: what to put in its place. For insert: the text to put in.")

_BASH = _known(
    "Run a command in a shell that stays open between calls.",
    [],
    {
        "command": _string("The command to run. Needed unless the shell is restarted."),
        "restart": {"type": "boolean", "description": "Whether to start the shell anew."},
    },
)


def _editor(*commands: str, **more: dict[str, Any]) -> Known:
    about = "Look at text files and folders, create files, and change them."
    return _known(about, ["command", "path"], {"command": _command(*commands), "path": _PATH} | _EDIT | more)


_FIRST_EDITOR = _editor("view", "create", "str_replace", "insert", "undo_edit", new_str=_REPLACED_OR_INSERTED)
_EDITOR = _editor("view", "create", "str_replace", "insert", **_INSERTED)
_MEMORY = _known(
    "Keep notes for later conversations in files below /memories: look there first, and write down what matters.",
    ["command"],
    {
        "command": _command("view", "create", "str_replace", "insert", "delete", "rename"),
        "path": _string("The file or folder, below /memories. Needed for all but rename."),
        **_EDIT,
        **_INSERTED,
        "old_path": _string("For rename: the file or folder."),
        "new_path": _string("For rename: where it goes."),
    },
)
_TYPES = {
    "bash_20241022": _BASH,
    "bash_20250124": _BASH,
    "text_editor_20241022": _FIRST_EDITOR,
    "text_editor_20250124": _FIRST_EDITOR,
    "text_editor_20250429": _EDITOR,
    "text_editor_20250728": _EDITOR,
    "memory_20250818": _MEMORY,
}


def as_function(tool: Tool) -> Tool | None:
    """The function that a tool is for a model that does not know its type; None for any other tool."""
    known = _TYPES.get(tool.type)
    if known is None or tool.name is None:
        return None
    function = copy(tool)
    function.type, function.parameters = FUNCTION, known.parameters
    function.description = known.description if tool.description is None else tool.description
    return function
