"""Owns what Claude Code notes beside the messages: lines that are no conversation, and the texts of attachments."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from turnscript.core.json_text import Json, json_string
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.sessions import read_as
from turnscript.datasets.traces import elements_of, has, member, members_of, text_of_member

Said = list[tuple[bytes, str]]
"""Contents that the model was given, as JSON, each with its place."""

NOTES = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "attribution-snapshot",
        "bridge-session",
        "cost-state",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "queue-operation",
        "summary",
        "tag",
        "task-summary",
        "worktree-state",
    }
)
"""Lines about a session. A queued prompt (`queue-operation`) is written again where the model gets it."""

_TEXTS: dict[str, tuple[str, ...]] = {
    "queued_command": ("prompt",),
    "hook_additional_context": ("content",),
    "hook_success": ("content",),
    "hook_blocking_error": ("blockingError", "blockingError"),
    "hook_stopped_continuation": ("message",),
    "nested_memory": ("content", "content"),
    "edited_text_file": ("snippet",),
    "directory": ("content",),
    "skill_listing": ("content",),
    "mcp_instructions_delta": ("addedBlocks",),
    "deferred_tools_delta": ("addedLines",),
    "plan_file_reference": ("planContent",),
}
"""Where an attachment holds what the model was told. An attachment without it told nothing."""

_SILENT = frozenset(
    {
        "agent_mention",
        "auto_mode",
        "auto_mode_exit",
        "budget_usd",
        "command_permissions",
        "compact_file_reference",
        "date_change",
        "goal_status",
        "hook_cancelled",
        "hook_deferred_tool",
        "hook_error_during_execution",
        "hook_non_blocking_error",
        "hook_permission_decision",
        "hook_system_message",
        "max_turns_reached",
        "output_style",
        "plan_mode",
        "plan_mode_exit",
        "plan_mode_reentry",
        "structured_output",
        "task_reminder",
        "task_status",
        "todo_reminder",
    }
)
"""Attachments that hold no text for the model: only what the client makes its own reminders of."""

_text = msgspec.json.Decoder(str)


def rendered_texts(value: Json, at: str) -> Said:
    """Return the words of an attachment as the model saw them."""
    texts: Said = []
    for index, one in enumerate(elements_of(value, at)):
        place = f"{at}[{index}]"
        texts.append((_content(member(members_of(one, place), "content", place), f"{place}.content"), place))
    return texts


def said_by(kind: str, attachment: Mapping[str, Json], at: str, *, strict: bool) -> Said:
    """Return the texts that an attachment holds. `strict`: refuse one of an unknown type."""
    if kind == "file":
        return _file(attachment, at)
    if kind == "invoked_skills":
        return _each(attachment, "skills", at)
    if kind == "relevant_memories":
        return _each(attachment, "memories", at)
    if kind in _TEXTS:
        return _found(attachment, _TEXTS[kind], at)
    if kind not in _SILENT and strict:
        message = f"an attachment of a type that is not known: {kind!r}; the model may have been told what it holds"
        raise BadRow(Code.FORM, f"{message}, so the session is not read", path=f"{at}.type")
    return []


def _found(attachment: Mapping[str, Json], names: tuple[str, ...], at: str) -> Said:
    members = attachment
    for name in names[:-1]:
        if not has(members, name):
            return []
        members, at = members_of(members[name], f"{at}.{name}"), f"{at}.{name}"
    if not has(members, names[-1]):
        return []
    value, at = members[names[-1]], f"{at}.{names[-1]}"
    if bytes(memoryview(value)[:1]) == b"[" and not _is_blocks(value, at):
        texts = [(read_as(_text, one, f"{at}[{index}]"), index) for index, one in enumerate(elements_of(value, at))]
        return [(json_string(text).encode(), f"{at}[{index}]") for text, index in texts if text]
    content = _content(value, at)
    return [] if content == b'""' else [(content, at)]


def _is_blocks(value: Json, at: str) -> bool:
    return any(bytes(one)[:1] == b"{" for one in elements_of(value, at))


def _content(value: Json, at: str) -> bytes:
    """Return a content of a message: a text, or blocks."""
    if bytes(memoryview(value)[:1]) == b"[":
        elements_of(value, at)
    else:
        read_as(_text, value, at)
    return bytes(value)


def _each(attachment: Mapping[str, Json], name: str, at: str) -> Said:
    """Return the contents of a list of objects."""
    texts: Said = []
    for index, one in enumerate(elements_of(attachment.get(name, Json(b"[]")), f"{at}.{name}")):
        place = f"{at}.{name}[{index}]"
        texts.append((_content(member(members_of(one, place), "content", place), f"{place}.content"), place))
    return texts


def _file(attachment: Mapping[str, Json], at: str) -> Said:
    """Return a file that was mentioned: its text, or its picture, behind its name."""
    name = text_of_member(attachment, "filename", at)
    place = f"{at}.content"
    content = members_of(member(attachment, "content", at), place)
    kind = text_of_member(content, "type", place)
    if kind == "file_unchanged":
        return []
    file = members_of(member(content, "file", place), f"{place}.file")
    title = b'{"type":"text","text":%s}' % json_string(name).encode()
    if kind == "text":
        text = text_of_member(file, "content", f"{place}.file")
        return [(b'[%s,{"type":"text","text":%s}]' % (title, json_string(text).encode()), at)]
    if kind == "image":
        data, type_ = (text_of_member(file, one, f"{place}.file") for one in ("base64", "type"))
        source = b'{"type":"base64","media_type":%s,"data":%s}' % (
            json_string(type_).encode(),
            json_string(data).encode(),
        )
        return [(b'[%s,{"type":"image","source":%s}]' % (title, source), at)]
    message = f"a mentioned file of a kind that cannot be read: {kind!r}"
    raise BadRow(Code.FORM, message, path=f"{place}.type")
