"""Owns map files: a TOML file that says where a data set of unknown shape keeps its conversations.

    # {"id": 7, "dialog": {"turns": [{"who": "agent", "said": "Hello", "ok": true}, ...]}, "persona": "Be kind."}
    messages = "dialog.turns"      # the path of the array of turns: names with dots between them, numbers in arrays
    role = "who"                   # members of a turn, paths too; these are what they are called if nothing is said:
    content = "said"               # role, content
    weight = "ok"                  # how much a turn counts: a number from 0 to 1, true or false; optional
    calls = "actions"              # a call or an array of calls, {"name": ..., "arguments": {...}}; optional
    name = "tool"                  # of a result: the tool that answers; optional
    system = "persona"             # paths in the row: the system text, and the list of tools; both optional
    tools = "functions"

    [roles]                        # what a turn of each role is
    customer = "user"              # system, user, assistant, thinking, call, result, or skip
    agent = "assistant"

A data set with a column for each turn has, in place of `messages`, its turns in order; one of texts has `text`:

    [[turn]]
    kind = "user"                  # system, user, assistant, thinking, call or result
    path = "question"
    optional = true                # a row may be without it

    text = "body.plain"

Nothing but that is read, and every row must have what the file names: a row that has not is set aside. A turn of the
role `skip` is left out; it is the only way to leave out something. Tools and calls may be strings of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.core.conversation import Request
from turnscript.core.errors import InvalidInput
from turnscript.core.json_text import Json
from turnscript.datasets.chat_rows import read_tools
from turnscript.datasets.form import Example, Form
from turnscript.datasets.members import (
    Members,
    absent,
    embedded,
    first_byte,
    is_null,
    list_of,
    object_of,
    record,
    text,
)
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.turns import Turns
from turnscript.datasets.weights import weight_of
from turnscript.tableio.tables import read_toml

_KINDS = ("system", "user", "assistant", "thinking", "call", "result")
_SKIP = "skip"
_EMPTY = (b"null", b'""', b"[]")
_OF_TURNS = ("role", "content", "weight", "calls", "name")


class InvalidMap(InvalidInput):
    """A map file that is not as it should be; `path` names the key."""

    code = "invalid_map"


class _Column(Struct, forbid_unknown_fields=True):
    """A turn that has a place of its own in the row."""

    kind: str
    path: str
    optional: bool = False


class _Map(Struct, forbid_unknown_fields=True):
    """The keys of a map file."""

    messages: str = ""
    text: str = ""
    turn: list[_Column] = []
    role: str = "role"
    content: str = "content"
    weight: str = ""
    calls: str = ""
    name: str = ""
    system: str = ""
    tools: str = ""
    roles: dict[str, str] = {}


class Mapped(Form):
    """The form that a map file declares."""

    name = "map"
    title = "What a map file says"
    fields = "what the map file names"

    def __init__(self, map_: _Map) -> None:
        self._map = map_

    def score(self, record: Mapping[str, Any]) -> tuple[float, str]:
        """Return 0: nobody guesses a map file."""
        return 0, ""

    def read(self, data: bytes) -> list[Example]:
        """Return one conversation, or one text."""
        row, map_ = record(data), self._map
        if map_.text:
            said = text(_needed(row, map_.text), f"$.{map_.text}")
            if not said:
                raise BadRow(Code.EMPTY, "the text is empty", path=f"$.{map_.text}")
            return [Example(Request(), text=said)]
        turns = Turns()
        system = find(row, map_.system) if map_.system else None
        if system is not None and bytes(system) not in _EMPTY:
            turns.system(text(system, f"$.{map_.system}"), f"$.{map_.system}")
        if map_.messages:
            self._add_messages(turns, row)
        else:
            self._add_columns(turns, row)
        tools = find(row, map_.tools) if map_.tools else None
        return [turns.example(read_tools(tools, f"$.{map_.tools}"))]

    def _add_columns(self, turns: Turns, row: Members) -> None:
        for column in self._map.turn:
            value = find(row, column.path)
            if column.optional and (value is None or bytes(value) in _EMPTY):
                continue
            _add(turns, column.kind, _needed(row, column.path), f"$.{column.path}")

    def _add_messages(self, turns: Turns, row: Members) -> None:
        map_, where = self._map, f"$.{self._map.messages}"
        for index, entry in enumerate(list_of(embedded(_needed(row, map_.messages), where), where)):
            at, turn = f"{where}[{index}]", object_of(entry, f"{where}[{index}]")
            role = text(_needed(turn, map_.role, at), f"{at}.{map_.role}")
            kind = map_.roles.get(role)
            if kind is None:
                message = f"the map file does not say what a turn of the role {role!r} is; add it to [roles]"
                raise BadRow(Code.ROLE, message, path=f"{at}.{map_.role}")
            if kind != _SKIP:
                first = len(turns.items)
                self._add_turn(turns, turn, kind, at)
                weight = find(turn, map_.weight) if map_.weight else None
                if weight is not None and not is_null(weight):
                    turns.weigh(first, weight_of(weight, f"{at}.{map_.weight}"))

    def _add_turn(self, turns: Turns, turn: Members, kind: str, at: str) -> None:
        map_ = self._map
        content, calls = find(turn, map_.content), find(turn, map_.calls) if map_.calls else None
        has_calls = calls is not None and bytes(calls) not in _EMPTY
        if not has_calls or (content is not None and bytes(content) not in _EMPTY):
            name = find(turn, map_.name) if map_.name and kind == "result" else None
            tool = None if name is None or is_null(name) else text(name, f"{at}.{map_.name}")
            _add(turns, kind, _needed(turn, map_.content, at), f"{at}.{map_.content}", tool)
        if has_calls and calls is not None:
            where = f"{at}.{map_.calls}"
            turns.calls(embedded(calls, where), where)


def read_map(path: str) -> Form:
    """Return the form that a map file declares. Raises InvalidMap with the key."""
    try:
        source = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidMap(f"cannot read the map file {path}: {reason}") from None
    try:
        return map_of(source)
    except InvalidMap as error:
        error.message = f"{error.message} (in {path})"
        raise


def map_of(source: str) -> Form:
    """Return the form that the text of a map file declares. Raises InvalidMap with the key."""
    try:
        map_ = msgspec.convert(read_toml(source), _Map)
    except msgspec.ValidationError as error:
        known = ", ".join(_Map.__struct_fields__)
        raise InvalidMap(f"{error}; the keys of a map file are {known}") from None
    except InvalidInput as error:
        raise InvalidMap(error.message, line=error.line, column=error.column) from None
    _check(map_)
    return Mapped(map_)


def _check(map_: _Map) -> None:
    given = [key for key in ("messages", "turn", "text") if getattr(map_, key)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise InvalidMap(f"expected one of messages, [[turn]] and text, which says where the turns are; got {found}")
    if map_.messages and not map_.roles:
        raise InvalidMap('expected what a turn of each role is, such as human = "user"', path="roles")
    if not map_.messages:
        _check_unused(map_, given[0])
    _check_kinds({f"roles.{role}": kind for role, kind in map_.roles.items()}, (*_KINDS, _SKIP))
    _check_kinds({f"turn[{index}].kind": column.kind for index, column in enumerate(map_.turn)}, _KINDS)
    paths = {key: getattr(map_, key) for key in (*_OF_TURNS, "messages", "text", "system", "tools")}
    paths |= {f"turn[{index}].path": column.path for index, column in enumerate(map_.turn)}
    for key, path in paths.items():
        if (path or key in ("role", "content") or "[" in key) and not all(path.split(".")):
            raise InvalidMap(f"expected a path, names with dots between them, got {path!r}", path=key)


def _check_unused(map_: _Map, used: str) -> None:
    plain = _Map()
    keys = [*_OF_TURNS, "roles"] + (["system", "tools"] if used == "text" else [])
    for key in keys:
        if getattr(map_, key) != getattr(plain, key):
            raise InvalidMap(f"{key} has no meaning beside {used}: only turns in an array have one", path=key)


def _check_kinds(kinds: Mapping[str, str], known: Sequence[str]) -> None:
    for key, kind in kinds.items():
        if kind not in known:
            raise InvalidMap(f"expected one of {', '.join(known)}, got {kind!r}", path=key)


def find(members: Members, path: str) -> Json | None:
    """Return the value at a path, None if there is none."""
    first, *rest = path.split(".")
    value = members.get(first)
    for name in rest:
        if value is None:
            return None
        value = _member(value, name)
    return value


def _member(value: Json, name: str) -> Json | None:
    kind = first_byte(value)
    if kind == b"{":
        return object_of(value, "$").get(name)
    if kind == b"[" and name.isascii() and name.isdecimal():
        entries = list_of(value, "$")
        return entries[int(name)] if len(name) < 10 and int(name) < len(entries) else None
    return None


def _needed(members: Members, path: str, at: str = "$") -> Json:
    value = find(members, path)
    if value is None:
        raise absent(f"{at}.{path}", "what the map file says")
    return value


def _add(turns: Turns, kind: str, value: Json, at: str, tool: str | None = None) -> None:
    if kind == "call":
        turns.calls(embedded(value, at), at)
        return
    said = text(value, at)
    if kind == "result":
        turns.result(said, at, tool)
        return
    add = {"system": turns.system, "user": turns.user, "assistant": turns.assistant, "thinking": turns.thinking}
    add[kind](said, at)
