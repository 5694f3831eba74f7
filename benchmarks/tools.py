"""The eight tools that every generated session declares, short (first request) or with full guidance."""

from __future__ import annotations

from random import Random
from typing import Any

JsonObject = dict[str, Any]

_PATH = {"type": "string", "description": "Absolute path of the file, inside the workspace."}

TOOLS: tuple[tuple[str, str, JsonObject, tuple[str, ...]], ...] = (
    (
        "read_file",
        "Read a text file and return it with line numbers.",
        {
            "path": _PATH,
            "offset": {"type": "integer", "minimum": 1, "description": "First line to return."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 2000, "default": 400},
        },
        ("path",),
    ),
    (
        "write_file",
        "Create a file, or replace the whole of an existing one.",
        {"path": _PATH, "content": {"type": "string"}, "executable": {"type": "boolean", "default": False}},
        ("path", "content"),
    ),
    (
        "edit_file",
        "Replace exact text in a file. The old text must occur exactly once unless all is true.",
        {
            "path": _PATH,
            "old_text": {"type": "string", "description": "Text to find, with its whitespace."},
            "new_text": {"type": "string", "description": "Text to put in its place."},
            "all": {"type": "boolean", "default": False},
        },
        ("path", "old_text", "new_text"),
    ),
    (
        "run_command",
        "Run a shell command and return its exit status, stdout and stderr.",
        {
            "command": {"type": "string"},
            "timeout_ms": {"type": "integer", "minimum": 1, "maximum": 600000},
            "environment": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        ("command",),
    ),
    (
        "search_text",
        "Search file contents with a regular expression.",
        {
            "pattern": {"type": "string"},
            "glob": {"type": "string", "description": "Only files that match, such as **/*.py"},
            "mode": {"type": "string", "enum": ["lines", "files", "count"]},
            "context": {"type": "integer", "minimum": 0, "maximum": 20},
        },
        ("pattern",),
    ),
    (
        "find_files",
        "List files by glob pattern, newest first.",
        {"pattern": {"type": "string"}, "under": {"type": "string"}, "limit": {"type": "integer"}},
        ("pattern",),
    ),
    (
        "fetch_page",
        "Fetch a web page and return its readable text.",
        {
            "url": {"type": "string", "format": "uri"},
            "question": {"type": ["string", "null"], "description": "What to look for on the page."},
        },
        ("url",),
    ),
    (
        "update_plan",
        "Replace the visible task list.",
        {
            "steps": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string", "minLength": 1},
                        "status": {"type": "string", "enum": ["pending", "active", "done"]},
                        "weight": {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "null"}]},
                    },
                    "required": ["title", "status"],
                    "additionalProperties": False,
                },
            }
        },
        ("steps",),
    ),
)

_GUIDANCE = (
    "Prefer this tool over a shell command that does the same: its output is shorter and it is checked.",
    "Call it in parallel with other independent calls; do not wait for one result to ask for the next.",
    'Paths are absolute. Quote names that contain spaces ("My Files/notes.txt").',
    "Results longer than 30,000 characters are cut in the middle; the cut is marked with an ellipsis …",
    "Never guess a value that another tool can look up.",
    "If the call fails, read the message before you try again. Do not repeat an identical call.",
    "Keep the indentation of the file (tabs or spaces) exactly as it is, and do not add a trailing newline.",
    "Do not use it for secrets, and never write credentials into a file or an environment variable.",
    'Example:\n    {"path": "/workspace/src/app.py", "limit": 80}\n  returns lines 1 to 80.',
    "The user does not see the result. Say in your answer what matters in it.",
)


def declarations(full: bool) -> list[tuple[str, str, JsonObject]]:
    """Name, description and JSON schema of each tool; `full` adds usage notes as coding agents write them."""
    rng = Random(8)
    declared: list[tuple[str, str, JsonObject]] = []
    for name, summary, properties, required in TOOLS:
        description = summary
        if full:
            notes = [f"- {rng.choice(_GUIDANCE)}" for _ in range(18)]
            description = f"{summary}\n\nUsage notes:\n" + "\n".join(notes)
        schema = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": properties,
            "required": list(required),
            "additionalProperties": False,
        }
        declared.append((name, description, schema))
    return declared
