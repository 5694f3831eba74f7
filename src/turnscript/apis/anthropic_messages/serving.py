"""Owns what a server of this API does beside answering: counts of tokens, models, and what it must refuse.

It also says what a model is told of the tools of Anthropic's own types that the client runs. Such a tool is declared by
its type and name alone; its parameters are built into Anthropic's models. Everything else about it is as with any
function: the model calls it by its name, and the client runs it and tells the result. So a model that is told the
parameters can use it. Tools for a screen are not here: they answer with pictures.

Spec: the SDK's types (`beta_memory_tool_20250818_*_command`), and the pages of the bash, text editor and memory tools.
The text of an insertion is `new_str` in the first editors, and `insert_text` in the later ones and in the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.apis.anthropic_messages.errors import ThreadsUnsupported
from turnscript.apis.anthropic_messages.tools import FUNCTION
from turnscript.apis.serving import CacheVerdict, Diagnosing, EffortChange, ModelCard, Serving, unasked, unseen
from turnscript.core.conversation import Item, Opaque, Request, System, Text, Tool
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, json_of, members_in, plain, read_object

_REASONS = {
    "unknown": "previous_message_not_found",
    "model": "model_changed",
    "tools": "tools_changed",
    "instructions": "system_changed",
    "input": "messages_changed",
    "compacted": "messages_changed",
}
_SIZELESS = ("previous_message_not_found", "unavailable")


def _asked(request: Request) -> dict[str, Any] | None:
    said = request.extra.get("diagnostics")
    asked = None if said is None else plain(said)
    return asked if isinstance(asked, dict) else None


def _earlier(request: Request) -> str | None:
    earlier = (_asked(request) or {}).get("previous_message_id")
    return earlier if isinstance(earlier, str) else None


def _told(verdict: CacheVerdict) -> dict[str, Any]:
    """Null where nothing has changed, and where there is nothing to compare with yet."""
    if verdict.cause == "":
        return {"diagnostics": None}
    reason: dict[str, Any] = {"type": _REASONS.get(verdict.cause, "unavailable")}
    if reason["type"] not in _SIZELESS:
        reason["cache_missed_input_tokens"] = verdict.missed
    return {"diagnostics": {"cache_miss_reason": reason}}


DIAGNOSING = Diagnosing(wished=lambda request: _asked(request) is not None, earlier=_earlier, told=_told)


class Known(Struct, frozen=True):
    """A tool as Anthropic's models know it."""

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
"""All editors of text take these, and so does the memory."""
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


THREAD, CONFIG, COMPACTION = "$.thread", "output_config", "compaction"
_IN_MESSAGES = "$.messages["


def _count(tokens: int) -> bytes:
    return msgspec.json.encode({"input_tokens": tokens})


def _models(cards: Sequence[ModelCard]) -> bytes:
    page: dict[str, Any] = {"data": [_entry(card) for card in cards], "has_more": False}
    page |= {"first_id": cards[0].id if cards else None, "last_id": cards[-1].id if cards else None}
    return msgspec.json.encode(page)


def _model(card: ModelCard) -> bytes:
    return msgspec.json.encode(_entry(card))


def _entry(card: ModelCard) -> dict[str, Any]:
    return {
        "type": "model",
        "id": card.id,
        "display_name": card.id,
        "created_at": datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z"),
        "lifecycle": "active",
        "line": None,
        "deprecated_at": None,
        "retires_at": None,
        "max_input_tokens": card.context,
        "max_tokens": card.answer,
        "capabilities": _capabilities(card),
    }


def _capabilities(card: ModelCard) -> dict[str, Any]:
    """Return what a model that continues text can do here: all alike, but for thinking, pictures and JSON."""
    no, thinks = {"supported": False}, {"supported": card.thinks}
    efforts = ("low", "medium", "high", "xhigh", "max")
    return {
        "batch": no,
        "citations": no,
        "code_execution": no,
        "context_management": no
        | {"clear_thinking_20251015": no, "clear_tool_uses_20250919": no, "compact_20260112": no},
        "effort": thinks | dict.fromkeys(efforts, thinks),
        "image_input": {"supported": card.sees},
        "pdf_input": no,
        "server_tools": no | {"code_execution": no, "web_search": no},
        "structured_outputs": {"supported": card.shapes},
        "thinking": thinks
        | {
            "types": {
                "adaptive": thinks,
                "between_tools": no,
                "disabled": {"supported": True},
                "enabled": thinks,
            }
        },
    }


def _refusal(request: Request) -> InvalidRequest | None:
    """A thread holds a conversation that the server keeps. Ignored, the model would answer without it; refused in these
    words, clients send all of it again."""
    thread = request.extra.get("thread")
    if thread is None or bytes(thread) == b"null":
        return None
    message = "message threads are not kept here; send the whole conversation"
    return ThreadsUnsupported(message, path=THREAD, expected="no such member")


def _unasked(request: Request) -> InvalidRequest | None:
    """A system text alone is no turn of anybody's."""
    said = [item for item in request.items if not isinstance(item, System) or item.at.startswith(_IN_MESSAGES)]
    return unseen(said) if said else unasked("$.messages", "message")


def _effort(item: Item) -> EffortChange | None:
    """What a message of the system's in the middle says of it."""
    if not isinstance(item, System) or CONFIG not in item.extra:
        return None
    config = item.extra[CONFIG]
    members = members_in(config)
    value = members.pop("effort", None)
    effort = plain(value) if value is not None else None
    if not isinstance(effort, str):
        return None
    rest = copy(item)
    rest.extra = {key: value for key, value in item.extra.items() if key != CONFIG}
    if members:
        rest.extra[CONFIG] = Json(msgspec.json.encode(members))
    said = rest.extra or any(not isinstance(part, Text) or part.text for part in item.content)
    return EffortChange(effort, rest if said else None)


def _summary(item: Item) -> str | None:
    """That of a compaction, which Anthropic's servers make. One without a text has failed."""
    if not isinstance(item, Opaque) or item.type != COMPACTION:
        return None
    value = read_object(item.value).get("content")
    text = plain(value) if value is not None else None
    return text if isinstance(text, str) and text else None


SERVING = Serving(
    models=_models,
    model=_model,
    header="anthropic-version",
    id_prefix="msg_",
    count_path="/v1/messages/count_tokens",
    count=_count,
    refusal=_refusal,
    unasked=_unasked,
    effort=_effort,
    as_function=as_function,
    summary=_summary,
    seals=lambda request: True,
    diagnosing=DIAGNOSING,
    needs=("model", "max_tokens"),
)
