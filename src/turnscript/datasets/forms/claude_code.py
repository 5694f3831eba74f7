"""Owns sessions of Claude Code: lines that name their parents, with the messages of Anthropic's API in them.

    {"type": "user", "uuid": "1", "parentUuid": null, "isSidechain": false, "sessionId": "s",
     "message": {"role": "user", "content": "Hi"}}
    {"type": "assistant", "uuid": "2", "parentUuid": "1", "isSidechain": false, "sessionId": "s",
     "message": {"id": "msg_1", "role": "assistant", "model": "...", "content": [{"type": "text", "text": "Hello"}]}}
    {"type": "summary", "summary": "A greeting", "leafUuid": "2"}

How the lines become conversations is in `session_tree`; here is what the examples are.

- The first example of a tree is the way to its last answer. A way that was given up (the user went back and asked anew)
  is an example of its own; what it shares with an earlier one is not trained again. One without an answer of its own is
  left out.
- A compaction begins a new tree, with the summary that the model was given as its first message, and the messages that
  were kept. So what came before is an example, and what came after another.
- A subagent's lines (`isSidechain`) are a tree of their own. Newer versions write them to a file of their own.
- What the client itself wrote in the assistant's name (the model `<synthetic>`) is not trained. Neither are thoughts
  whose text is kept from the client.
- System prompt and tools are in a session only where it has a `prompt_snapshot`: then they are read, the tools'
  schemas as they are.

Shape: https://github.com/oneryalcin/agent-schemas (versions up to 2.1.144), and reports of later ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from turnscript.core.conversation import Request
from turnscript.core.json_text import Json
from turnscript.datasets.form import WHOLE, Example, Form
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.session_notes import NOTES
from turnscript.datasets.session_tree import LINES, Part, Session, Snapshot, Unit
from turnscript.datasets.traces import (
    MESSAGES,
    check,
    elements_of,
    has,
    members_of,
    relocate,
    request_of,
    untrained,
)

_BLOCK = re.compile(r"\$\.messages\[(\d+)\](?:\.content\[(\d+)\])?")


class ClaudeCode(Form):
    """Sessions of Claude Code."""

    name = "claude-code"
    members = frozenset({"type"})
    title = "Claude Code sessions"
    fields = "lines with `type`, `uuid`, `parentUuid` and `message`, as in ~/.claude/projects"
    row = WHOLE

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        kind = record.get("type")
        if not isinstance(kind, str):
            return 0.0, "no `type`"
        if kind in LINES and "uuid" in record and ("parentUuid" in record or "sessionId" in record):
            return 1.0, "a line with `uuid` and `parentUuid`"
        if kind in NOTES and any(name in record for name in ("sessionId", "leafUuid", "snapshot")):
            return 1.0, f"a note of the type {kind!r}"
        return 0.0, "no line of a session"

    def read(self, data: bytes) -> list[Example]:
        session = Session(data)
        examples = [example for tree in _trees(session) for example in tree]
        if not examples:
            raise BadRow(Code.EMPTY, "the model says nothing in this session", path="$")
        if len(examples) == 1:
            examples[0].label = ""
        return examples


def _trees(session: Session) -> Iterator[Iterator[Example]]:
    """Give the examples of each tree. A file of nothing but a subagent's lines has no main chain beside them."""
    mixed = len({root.side for root in session.roots}) > 1
    numbers = {False: 0, True: 0}
    trained: set[int] = set()
    for root in session.roots:
        ways = list(_ways(session, root))
        if any(unit.written for way in ways for unit in way):
            side = root.side and mixed
            numbers[side] += 1
            label = f"{'sidechain' if side else 'part'} {numbers[side]}"
            yield _examples(session, ways, label, trained)


def _ways(session: Session, root: Unit) -> Iterator[list[Unit]]:
    """Give the ways from a root to its leaves: first the one written last, then the others as in the file."""
    leaves, waiting = [], [root]
    while waiting:
        unit = waiting.pop()
        waiting += unit.children
        if not unit.children:
            leaves.append(unit)
    leaves.sort(key=lambda unit: unit.number)
    for leaf in leaves[-1:] + leaves[:-1]:
        yield session.way(leaf)


def _examples(session: Session, ways: list[list[Unit]], label: str, trained: set[int]) -> Iterator[Example]:
    for number, way in enumerate(ways):
        own = {unit.number for unit in way if unit.written} - trained
        if own:
            trained |= own
            yield _example(way, own, session.snapshot(way), f"{label}, branch {number}" if number else label)


def _example(way: list[Unit], own: set[int], snapshot: Snapshot | None, label: str) -> Example:
    messages: list[bytes] = []
    places: list[list[str]] = []
    owners: list[int] = []
    for unit in way:
        for role, parts in unit.messages():
            messages.append(b'{"role":"%s","content":%s}' % (role.encode(), _content(parts)))
            places.append([part.at for part in parts])
            owners.append(unit.number)
    place = _place(places, snapshot)
    body = {**_prompt(snapshot), "messages": b"[" + b",".join(messages) + b"]"}
    request: Request = request_of(MESSAGES, body, place)
    context = untrained(request.items, lambda index: index >= 0 and owners[index] in own)
    relocate(request, place)
    check(request.items)
    return Example(request, label=label, context=context)


def _content(parts: list[Part]) -> bytes:
    if len(parts) == 1 and not parts[0].is_block:
        return parts[0].value
    return b"[" + b",".join([part.value for part in parts]) + b"]"


def _place(places: list[list[str]], snapshot: Snapshot | None) -> Any:
    """Return where the blocks of the body stand in the session."""

    def place(at: str) -> str:
        found = _BLOCK.match(at)
        if not found:
            return snapshot.at if snapshot is not None else "$"
        blocks = places[int(found[1])]
        return blocks[int(found[2] or 0)] + at[found.end() :]

    return place


def _prompt(snapshot: Snapshot | None) -> dict[str, bytes]:
    """Return system prompt and tools of a snapshot, as the API has them."""
    if snapshot is None:
        return {}
    body: dict[str, bytes] = {}
    if snapshot.system:
        texts = [b'{"type":"text","text":%s}' % text for text in snapshot.system]
        body["system"] = b"[" + b",".join(texts) + b"]"
    if snapshot.tools is not None:
        at = f"{snapshot.at}.tools"
        tools = [_tool(tool, f"{at}[{index}]") for index, tool in enumerate(elements_of(snapshot.tools, at))]
        body["tools"] = b"[" + b",".join(tools) + b"]"
    return body


def _tool(value: Json, at: str) -> bytes:
    """Return a tool; its schema stands alone, or in the definition that was sent."""
    tool = dict(members_of(value, at))
    schema = tool.pop("schema", None)
    if schema is not None:
        sent = members_of(schema, f"{at}.schema")
        tool = {**tool, **sent} if "input_schema" in sent else {**tool, "input_schema": schema}
    members = [b'"%s":%s' % (name.encode(), bytes(tool[name])) for name in _TOOL if has(tool, name)]
    return b"{" + b",".join(members) + b"}"


_TOOL = ("type", "name", "description", "input_schema", "strict")

FORMS = (ClaudeCode(),)
