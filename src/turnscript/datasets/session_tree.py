"""Owns the tree in a session of Claude Code: which lines make one message, which lines go on from which, what is kept.

Theory of operation. Each line names its parent. A *unit* is what the API has as one exchange of one side: a message of
the assistant with the results of its calls, or a message of the user. The lines of a unit and of its notes all stand
for it, so the tree of units is the tree of conversations:

- A message of the assistant is written in several lines, one for each block, with the same `message.id`.
- Calls that run at once each have a line, and each result hangs under the line of its own call. So results are no
  branches: they belong to the unit that made the calls, by their ids.
- A line that names no parent, which differs from one whose parent is null, goes on from the line before it.
- Lines that say nothing to the model (durations, hooks, progress, titles) only pass their parent on.
- `attachment` lines are what the client told the model between the messages: a prompt that was queued, a file that was
  mentioned, the output of a hook. Newer versions keep the words that the model was `rendered`; of older ones, the text
  that an attachment holds is read, without the words that the client put around it. An attachment of an unknown type
  is refused where it may hold such a text.
- A `compact_boundary` is the root of a new tree, and says which earlier messages were kept behind it.

What is no conversation is in `NOTES` and `_SYSTEM`: a line of any other type is refused, since it may hold a message.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from turnscript.core.json_text import Json
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.session_notes import NOTES, rendered_texts, said_by
from turnscript.datasets.sessions import lines_of, read_as
from turnscript.datasets.traces import elements_of, has, members_of, text_of_member

LINES = frozenset({"user", "assistant", "system", "attachment", "progress"})
"""The types of lines that have a parent."""

_SYSTEM = frozenset(
    {
        "agents_killed",
        "api_error",
        "api_metrics",
        "away_summary",
        "bridge_status",
        "informational",
        "memory_saved",
        "microcompact_boundary",
        "permission_retry",
        "scheduled_task_fire",
        "stop_hook_summary",
        "turn_duration",
    }
)
"""What the client tells the person alone, by `subtype`."""

_USER, _ASSISTANT = "user", "assistant"
_SYNTHETIC = "<synthetic>"
_NONE = Json(b"null")


class Part(NamedTuple):
    """A content, or a block of one, and where it stands."""

    value: bytes
    at: str
    is_block: bool = True


class Snapshot(NamedTuple):
    """What the model was given beside the messages: texts of the system prompt as JSON strings, and tools."""

    at: str
    side: bool
    unit: Unit | None
    system: list[bytes]
    tools: Json | None


class _Line(Struct, rename="camel", gc=False):
    """The members of a line that matter here."""

    type: str
    uuid: str | None = None
    parent_uuid: str | UnsetType | None = UNSET
    is_sidechain: bool | None = None
    is_api_error_message: bool | None = None
    subtype: str | None = None
    message: Json = _NONE
    content: Json = _NONE
    attachment: Json = _NONE
    rendered: Json = _NONE
    rendered_role: str | None = None
    compact_metadata: Json = _NONE


class _Message(Struct, gc=False):
    role: str
    content: Json
    id: str | None = None
    model: str | None = None


class _Block(Struct, gc=False):
    type: str
    id: str | None = None
    tool_use_id: str | None = None


_line = msgspec.json.Decoder(_Line)
_message = msgspec.json.Decoder(_Message)
_block = msgspec.json.Decoder(_Block)


class Unit:
    """A message of the assistant with the results of its calls, or a message of the user; and the notes behind it.

    `number` tells units apart and orders them as the file does. `written`: whether the model itself wrote it.
    """

    __slots__ = ("blocks", "children", "id", "notes", "number", "open", "parent", "results", "role", "side", "written")

    def __init__(self, number: int, role: str, parent: Unit | None, side: bool) -> None:
        self.number = number
        self.role = role
        self.parent = parent
        self.side = side
        self.written = False
        self.id: str | None = None
        self.blocks: list[Part] = []
        self.open: set[str] = set()
        self.results: list[Part] = []
        self.notes: list[tuple[str, Part]] = []
        self.children: list[Unit] = []
        if parent is not None:
            parent.children.append(self)

    def messages(self) -> Iterator[tuple[str, list[Part]]]:
        """Give the messages of the API: role and content."""
        if self.blocks:
            yield self.role, self.blocks
        if self.results:
            yield _USER, self.results
        for role, note in self.notes:
            yield role, [note]


class Session:
    """All lines of a file as units. `roots`: the first unit of each conversation, in the order of the file."""

    def __init__(self, data: bytes) -> None:
        self.roots: list[Unit] = []
        self._units: dict[str, Unit | None] = {}
        self._owners: dict[str, Unit] = {}
        self._kept: dict[int, list[Unit]] = {}
        self._snapshots: list[Snapshot] = []
        self._number = 0
        nodes = _nodes(data)
        self._renders = any(bytes(line.rendered) != b"null" for _, line, _ in nodes.values())
        boundaries = []
        for uuid, (at, line, _) in _ordered(nodes):
            side = bool(line.is_sidechain)
            parent = self._units.get(line.parent_uuid) if isinstance(line.parent_uuid, str) else None
            if parent is not None and parent.side != side:
                parent = None  # a subagent starts a conversation of its own
            self._units[uuid] = self._placed(line, at, parent, side)
            if has_metadata(line):
                boundaries.append((uuid, line, at))
        for uuid, line, at in boundaries:
            self._keep(uuid, members_of(line.compact_metadata, f"{at}.compactMetadata"), f"{at}.compactMetadata")

    def way(self, leaf: Unit) -> list[Unit]:
        """Return the units from the root to a leaf, with those that a compaction kept."""
        way = []
        unit: Unit | None = leaf
        while unit is not None:
            way.append(unit)
            unit = unit.parent
            kept = self._kept.get(unit.number, []) if unit is not None else []
            if kept and way[-1] not in kept:
                way += reversed(kept)
        return way[::-1]

    def snapshot(self, way: list[Unit]) -> Snapshot | None:
        """Return what the model was given beside the messages on a way: the last noted, with the last tools."""
        numbers = {unit.number for unit in way}
        found: Snapshot | None = None
        for one in self._snapshots:
            if one.side == way[-1].side and (one.unit is None or one.unit.number in numbers):
                tools = one.tools if one.tools is not None or found is None else found.tools
                found = one._replace(tools=tools)
        return found

    # Where a line belongs.

    def _placed(self, line: _Line, at: str, parent: Unit | None, side: bool) -> Unit | None:
        """Return the unit that a line is of, which may be that of its parent."""
        if line.type == _ASSISTANT:
            return self._of_assistant(line, at, parent, side)
        if line.type == _USER:
            return self._of_user(line, at, parent, side)
        if line.type == "attachment":
            return self._of_attachment(line, at, parent, side)
        if line.type != "system" or line.subtype in _SYSTEM:
            return parent
        if line.subtype == "compact_boundary":
            return self._new(_USER, None, side)
        if line.subtype == "local_command":
            if bytes(line.content)[:1] != b'"':
                raise BadRow(Code.SHAPE, "expected a string", path=f"{at}.content")
            unit = self._new(_USER, parent, side)
            unit.blocks = [Part(bytes(line.content), f"{at}.content", is_block=False)]
            return unit
        message = f"a line of the client with a subtype that is not known: {line.subtype!r}; it may belong to the"
        raise BadRow(Code.FORM, f"{message} conversation, so the session is not read", path=f"{at}.subtype")

    def _new(self, role: str, parent: Unit | None, side: bool) -> Unit:
        unit = Unit(self._number, role, parent, side)
        self._number += 1
        if parent is None:
            self.roots.append(unit)
        return unit

    def _of_assistant(self, line: _Line, at: str, parent: Unit | None, side: bool) -> Unit | None:
        if line.is_api_error_message:
            return parent  # the client tells the person that a request failed
        message, blocks = _said(line, at, _ASSISTANT)
        if parent is not None and parent.role == _ASSISTANT and message.id is not None and parent.id == message.id:
            unit = parent
        else:
            unit = self._new(_ASSISTANT, parent, side)
            unit.id = message.id
        if len(blocks) == 1 and not blocks[0].is_block:
            blocks = [Part(b'{"type":"text","text":%s}' % blocks[0].value, blocks[0].at)]
        unit.written = unit.written or (bool(blocks) and message.model != _SYNTHETIC)
        unit.blocks += blocks
        for part in blocks:
            block = read_as(_block, part.value, part.at)
            if block.type == "tool_use" and block.id is not None:
                unit.open.add(block.id)
                self._owners[block.id] = unit
        return unit

    def _of_user(self, line: _Line, at: str, parent: Unit | None, side: bool) -> Unit:
        _, blocks = _said(line, at, _USER)
        read = [read_as(_block, part.value, part.at) for part in blocks if part.is_block]
        answered = [
            block.tool_use_id for block in read if block.type == "tool_result" and block.tool_use_id is not None
        ]
        owner = self._owners.get(answered[0]) if answered else None
        if owner is not None and owner.side == side and owner.open.issuperset(answered):
            owner.open.difference_update(answered)
            owner.results += blocks
            return parent if parent is not None else owner
        unit = self._new(_USER, parent, side)
        unit.blocks = blocks
        return unit

    def _of_attachment(self, line: _Line, at: str, parent: Unit | None, side: bool) -> Unit | None:
        place = f"{at}.attachment"
        attachment = members_of(line.attachment, place)
        kind = text_of_member(attachment, "type", place)
        if kind == "prompt_snapshot":
            self._snapshots.append(_snapshot(attachment, place, side, parent))
            return parent
        role = "system" if line.rendered_role == "system" else _USER
        if bytes(line.rendered) != b"null":
            texts = rendered_texts(line.rendered, f"{at}.rendered")
        else:
            texts = said_by(kind, attachment, place, strict=not self._renders)
        if not texts:
            return parent
        unit = parent if parent is not None else self._new(_USER, None, side)
        unit.notes += [(role, Part(text, spot, is_block=False)) for text, spot in texts]
        return unit

    # Compaction.

    def _keep(self, boundary: str, metadata: Mapping[str, Json], at: str) -> None:
        """Note which units a compaction kept, and behind which one."""
        for name in ("preservedMessages", "preservedSegment"):
            if has(metadata, name):
                place = f"{at}.{name}"
                kept = members_of(metadata[name], place)
                anchor = text_of_member(kept, "anchorUuid", place) if has(kept, "anchorUuid") else boundary
                unit = self._units.get(anchor)
                if unit is not None:
                    units = self._listed(kept, place) if "uuids" in kept else self._between(kept, place)
                    self._kept[unit.number] = units
                return

    def _listed(self, kept: Mapping[str, Json], at: str) -> list[Unit]:
        uuids = [read_as(_text, value, f"{at}.uuids") for value in elements_of(kept["uuids"], f"{at}.uuids")]
        units = [unit for uuid in uuids if (unit := self._units.get(uuid)) is not None]
        return list({unit.number: unit for unit in units}.values())

    def _between(self, kept: Mapping[str, Json], at: str) -> list[Unit]:
        head = self._units.get(text_of_member(kept, "headUuid", at))
        unit = self._units.get(text_of_member(kept, "tailUuid", at))
        units: list[Unit] = []
        while unit is not None:
            units.append(unit)
            if unit is head:
                return units[::-1]
            unit = unit.parent
        raise BadRow(Code.SHAPE, "the messages that a compaction kept do not go on from one another", path=at)


_text = msgspec.json.Decoder(str)


def has_metadata(line: _Line) -> bool:
    """Return whether a line says what a compaction kept."""
    return line.type == "system" and line.subtype == "compact_boundary" and bytes(line.compact_metadata) != b"null"


def _said(line: _Line, at: str, role: str) -> tuple[_Message, list[Part]]:
    """Return the message in a line, and its content: blocks, or one text."""
    place = f"{at}.message"
    message = read_as(_message, line.message, place)
    if message.role != role:
        raise BadRow(Code.ROLE, f"a message of {message.role!r} in a line of {role!r}", path=f"{place}.role")
    at = f"{place}.content"
    if bytes(memoryview(message.content)[:1]) == b'"':
        return message, [Part(bytes(message.content), at, is_block=False)]
    blocks = elements_of(message.content, at)
    return message, [Part(bytes(block), f"{at}[{index}]") for index, block in enumerate(blocks)]


def _snapshot(attachment: Mapping[str, Json], at: str, side: bool, unit: Unit | None) -> Snapshot:
    system: list[bytes] = []
    if has(attachment, "systemPrompt"):
        value = attachment["systemPrompt"]
        texts = [value] if bytes(value)[:1] == b'"' else elements_of(value, f"{at}.systemPrompt")
        for index, text in enumerate(texts):
            read_as(_text, text, f"{at}.systemPrompt[{index}]")
            system.append(bytes(text))
    return Snapshot(at, side, unit, system, attachment["tools"] if has(attachment, "tools") else None)


# The order of lines.

_Node = tuple[str, _Line, bytes]


def _nodes(data: bytes) -> dict[str, _Node]:
    """Return the lines that have a parent, by their ids. Others must be known to say nothing."""
    nodes: dict[str, _Node] = {}
    last: dict[bool, str] = {}
    for at, text in lines_of(data):
        line = read_as(_line, text, at)
        if line.type not in LINES:
            if line.type not in NOTES:
                message = (
                    f"a line of a type that is not known: {line.type!r}; it may belong to the conversation, so the"
                )
                raise BadRow(Code.FORM, f"{message} session is not read", path=f"{at}.type")
            continue
        side = bool(line.is_sidechain)
        if line.uuid is None:
            if line.type != "attachment":
                raise BadRow(Code.SHAPE, "required, but missing", path=f"{at}.uuid")
            line.uuid = at  # some versions gave attachments no id
        elif line.uuid in nodes:
            if nodes[line.uuid][2].strip() != text.strip():
                raise BadRow(Code.SHAPE, "another line has this id", path=f"{at}.uuid")
            continue
        if line.parent_uuid is UNSET:
            line.parent_uuid = last.get(side)
        nodes[line.uuid] = at, line, text
        last[side] = line.uuid
    return nodes


def _ordered(nodes: dict[str, _Node]) -> Iterator[tuple[str, _Node]]:
    """Give the lines in the order of the file, but each behind its parent."""
    numbers = {uuid: number for number, uuid in enumerate(nodes)}
    uuids = list(nodes)
    children: dict[str, list[int]] = {}
    ready: list[int] = []
    for uuid, (at, line, _) in nodes.items():
        if not isinstance(line.parent_uuid, str):
            ready.append(numbers[uuid])
        elif line.parent_uuid not in nodes:
            message = "goes on from a line that is not in the file: the beginning of the conversation is missing"
            raise BadRow(Code.SHAPE, message, path=f"{at}.parentUuid")
        else:
            children.setdefault(line.parent_uuid, []).append(numbers[uuid])
    done = 0
    while ready:
        uuid = uuids[heapq.heappop(ready)]
        done += 1
        yield uuid, nodes[uuid]
        for child in children.get(uuid, ()):
            heapq.heappush(ready, child)
    if done < len(nodes):
        raise BadRow(Code.SHAPE, f"{len(nodes) - done} lines go on from one another in a circle", path="$")
