"""Owns the sample rows of traces: reading them, and saying an example in few words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from turnscript.core.conversation import Image, Item, Part, Text, Thinking, ToolCall, ToolResult
from turnscript.datasets.form import WHOLE, Example, Form
from turnscript.datasets.forms import bfcl, claude_code, codex, oasst, swe_agent, taskmaster, tau_bench, toolbench
from turnscript.datasets.problems import BadRow

FOLDER = Path(__file__).parent / "rows"
MODULES = (bfcl, claude_code, codex, oasst, swe_agent, taskmaster, tau_bench, toolbench)
FORMS: dict[str, Form] = {form.name: form for module in MODULES for form in module.FORMS}
FILES = sorted(path.name for path in FOLDER.iterdir() if path.name.split(".")[0] in FORMS)


def form_of(file: str) -> Form:
    return FORMS[file.split(".", maxsplit=1)[0]]


def records(file: str) -> list[Any]:
    """The records of a sample file."""
    text = (FOLDER / file).read_text(encoding="utf-8")
    if file.endswith(".jsonl"):
        return [json.loads(line) for line in text.splitlines()]
    value = json.loads(text)
    return value if isinstance(value, list) else [value]


def rows(form: Form, found: Iterable[Any]) -> Iterator[bytes]:
    """Records as the rows of a form."""
    encoded = [json.dumps(record).encode() for record in found]
    yield from [b"\n".join(encoded)] if form.row == WHOLE else encoded


def read(file: str) -> list[Example]:
    """All examples of a sample file."""
    form = form_of(file)
    return [example for row in rows(form, records(file)) for example in form.read(row)]


def lines(*found: Any) -> bytes:
    """Records as the lines of a session."""
    return b"\n".join([json.dumps(record).encode() for record in found])


def fault(form: str, row: Any) -> tuple[str, str]:
    """The code and the place of what is wrong with a row."""
    data = row if isinstance(row, bytes) else json.dumps(row).encode()
    try:
        FORMS[form].read(data)
    except BadRow as error:
        return error.reason.value, error.where
    return "", ""


def said(example: Example) -> list[str]:
    """Each item in one line; `-` before what is not trained though the model wrote it."""
    items = enumerate(example.request.items)
    return [("-" if index in example.context else "") + _said(item) for index, item in items]


def _said(item: Item) -> str:
    if isinstance(item, ToolCall):
        return f"{item.name}({item.arguments}) {item.id or ''}".strip()
    text = " | ".join(_shown(part) for part in getattr(item, "content", []))
    if isinstance(item, ToolResult):
        status = f" {item.status}" if item.status else ""
        return f"= {text} {item.id or item.name or ''}{status}"
    if isinstance(item, Thinking):
        return f"({text or ' | '.join(_shown(part) for part in item.summary)})"
    return f"{item.kind}: {text}"


def _shown(part: Part) -> str:
    if isinstance(part, Text):
        return part.text
    return f"<{part.media_type}>" if isinstance(part, Image) else type(part).__name__
