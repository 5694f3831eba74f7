"""Owns what clients mend in a model's call before they run it, and then send back as if the model had written it.

Some fill in the defaults of a tool's schema, take a number or a list out of the quotes that a model put around it, or
tidy a text. The call is the same: it did what the model asked for. Undone are only what the schema tells, whoever did
it, and what known clients do to what a model wrote (`TIDIED`); whatever else differs is a change. A call that is taken
for another puts words into the model's mouth, one that is not costs time: so all doubt is for the change.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

from turnscript.core.conversation import Request, System, Text, Tool, all_tools
from turnscript.gateway.offers import names_of

LONGEST = 32 * 1024
"""Of a schema: what is known of some is kept, and no tool has a longer one."""

_NONE: frozenset[str] = frozenset()
_UNTEXTED = frozenset({"array", "boolean", "integer", "null", "number", "object"})
_FOLDER = re.compile(r"orking directory: ((?:/|[A-Za-z]:[\\/])\S*)$", re.MULTILINE)
"""How Claude Code tells a model where its commands run."""


class Mend(NamedTuple):
    """What may be mended in the calls of a tool: members with a default, each with its JSON; those that are no text.

    `tool`: as which it is tidied, where the model wrote the call; `folder`: where its commands run.
    """

    defaults: frozenset[tuple[str, str]] = frozenset()
    optional: frozenset[str] = _NONE
    untexted: frozenset[str] = _NONE
    tool: str = ""
    folder: str = ""

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are after any of this, whoever did it."""
        tidy = TIDIED.get(self.tool)
        made = {}
        for key, value in (arguments if tidy is None else tidy(arguments, self.folder)).items():
            said = _taken_out(value) if key in self.untexted and isinstance(value, str) else value
            if key not in self.optional or (key, _spelled(said)) not in self.defaults:
                made[key] = said
        return made


class Mends:
    """What clients mend in the calls of a conversation, by the names of its tools: as a client tells them, and as a
    model wrote them. It is read when it is asked for: agents declare many tools, and call a few."""

    def __init__(self, request: Request | None = None) -> None:
        self._request = request or Request()

    @cached_property
    def told(self) -> Mapping[str, Mend]:
        """Of calls as a client tells them."""
        return _Each(self._tools)

    @cached_property
    def written(self) -> Mapping[str, Mend]:
        """Of calls as a model wrote them; the same where no client is known to tidy any of them."""
        tidied = not TIDIED.keys().isdisjoint(self._tools)
        return _Each(self._tools, _folder(self._request)) if tidied else self.told

    @cached_property
    def _tools(self) -> dict[str, Tool]:
        each = ((names_of(tool), tool.tools or [tool]) for tool in all_tools(self._request))
        return {name: tool for names, tools in each for name, tool in zip(names, tools, strict=False)}


class _Each(Mapping[str, Mend]):
    """What is mended in the calls of each tool. `folder`: where its commands run, if they are as a model wrote them."""

    def __init__(self, tools: Mapping[str, Tool], folder: str | None = None) -> None:
        self._tools = tools
        self._folder = folder

    def __getitem__(self, name: str) -> Mend:
        schema = self._tools[name].parameters
        mend = mend_of(b"" if schema is None else bytes(schema))
        if self._folder is None or name not in TIDIED:
            return mend
        return mend._replace(tool=name, folder=self._folder)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)


def mend_of(schema: bytes) -> Mend:
    """What a schema tells."""
    return _read(schema) if len(schema) <= LONGEST else Mend()


def read(text: str) -> Any:
    """A JSON value as most programs read it, with doubles for numbers. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_number)


def _number(token: str) -> Any:
    """One that is no double stays as it is spelled."""
    number = float(token) if token[-1] not in "yN" else math.inf
    return number + 0.0 if math.isfinite(number) else ["number", token]


@lru_cache(maxsize=1024)
def _read(schema: bytes) -> Mend:
    try:
        whole = read(schema.decode() or "{}")
        said = whole.get("properties") if isinstance(whole, dict) else None
        members = {key: one for key, one in said.items() if isinstance(one, dict)} if isinstance(said, dict) else {}
        defaults = {(key, _spelled(one["default"])) for key, one in members.items() if "default" in one}
        untexted = {key for key, one in members.items() if (types := set(_types(one))) and types <= _UNTEXTED}
    except (ValueError, RecursionError):
        return Mend()
    return Mend(frozenset(defaults), frozenset(key for key, _ in defaults), frozenset(untexted))


def _types(schema: Mapping[str, Any]) -> Iterator[str]:
    """The types that a schema allows; none where it does not say."""
    several = schema.get("anyOf")
    if isinstance(several, list):
        each = [list(_types(one)) if isinstance(one, dict) else [] for one in several]
        yield from [name for names in each for name in names] if all(each) else []
    else:
        said = schema.get("type")
        yield from [name for name in (said if isinstance(said, list) else [said]) if isinstance(name, str)]


def _spelled(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _taken_out(text: str) -> Any:
    """What stands in quotes where no text is allowed."""
    try:
        value = read(text)
    except (ValueError, RecursionError):
        return text
    return text if value is None else value


# Habits of known clients. None of them can be undone: what a client tells is compared as it stands.

_LINE_END = re.compile(r"(\r\n|\n|\r)")
_MARKDOWN = (".md", ".mdx")
"""Files in which white space at the end of a line breaks it, so that it stays."""


def _folder(request: Request) -> str:
    """Where the commands of a session run, as its instructions say."""
    told = [part for item in request.items if isinstance(item, System) for part in item.content]
    found = [_FOLDER.search(part.text) for part in told if isinstance(part, Text)]
    return next((one[1] for one in found if one), "")


def _line_ends(member: str) -> Callable[[dict[str, Any], str], dict[str, Any]]:
    """No white space stands before the end of a line."""

    def tidied(arguments: dict[str, Any], _: str) -> dict[str, Any]:
        text, path = arguments.get(member), arguments.get("file_path")
        if not isinstance(text, str) or (isinstance(path, str) and path.lower().endswith(_MARKDOWN)):
            return arguments
        pieces = enumerate(_LINE_END.split(text))
        return arguments | {member: "".join([piece if number % 2 else piece.rstrip() for number, piece in pieces])}

    return tidied


def _command(arguments: dict[str, Any], folder: str) -> dict[str, Any]:
    """A command need not go to the folder where it is run anyway; and a shell takes one backslash for two."""
    command = arguments.get("command")
    if not isinstance(command, str):
        return arguments
    there = command.removeprefix(f"cd {folder} && ")
    return arguments | {"command": there.replace("\\\\;", "\\;")}


TIDIED: Mapping[str, Callable[[dict[str, Any], str], dict[str, Any]]] = {
    "Bash": _command,
    "Edit": _line_ends("new_string"),
    "Write": _line_ends("content"),
}
"""By tool, what its client makes of a call before it runs it, where commands run in a folder: Claude Code's."""
