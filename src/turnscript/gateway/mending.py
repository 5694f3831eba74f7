"""Owns what clients mend in a model's call before they run it, and then send back as if the model had written it.

Some fill in the defaults of a tool's schema, take a number or a list out of the quotes that a model put around it, or
tidy a text. The call is the same: it did what the model asked for. Undone are only what the schema tells and the habits
of known clients (`TIDIED`); whatever else differs is a change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from turnscript.conversation import Request, ToolsChange
from turnscript.gateway.toolset import names_of

_NONE: frozenset[str] = frozenset()


class Mend(NamedTuple):
    """What may be mended in the calls of a tool: members with a default, each with its JSON; those that are no text."""

    tool: str
    defaults: frozenset[tuple[str, str]] = frozenset()
    untexted: frozenset[str] = _NONE

    def __call__(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as they are after any of this, whoever did it."""
        tidied = TIDIED.get(self.tool, {})
        made = {}
        for key, value in arguments.items():
            said = value
            if isinstance(value, str):
                said = _taken_out(value) if key in self.untexted else tidied.get(key, str)(value)
            if all(key != name or _spelled(said) != default for name, default in self.defaults):
                made[key] = said
        return made


def mends(request: Request) -> dict[str, Mend]:
    """By the names of the tools of a conversation."""
    later = [tool for item in request.items if isinstance(item, ToolsChange) for tool in item.added]
    found = {}
    for tool in (*request.tools, *later):
        for name, one in zip(names_of(tool), tool.tools or [tool], strict=False):
            found[name] = _of(name, b"" if one.parameters is None else bytes(one.parameters))
    return found


def read(text: str) -> Any:
    """A JSON value as most programs read it, with doubles for numbers. Raises ValueError and RecursionError."""
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=_number)


def _number(token: str) -> Any:
    """One that is no double stays as it is spelled."""
    number = float(token) if token[-1] not in "yN" else math.inf
    return number + 0.0 if math.isfinite(number) else ["number", token]


@lru_cache(maxsize=1024)
def _of(name: str, schema: bytes) -> Mend:
    try:
        whole = read(schema.decode() or "{}")
        said = whole.get("properties") if isinstance(whole, dict) else None
        members = {key: one for key, one in said.items() if isinstance(one, dict)} if isinstance(said, dict) else {}
        defaults = {(key, _spelled(one["default"])) for key, one in members.items() if "default" in one}
        untexted = {key for key, one in members.items() if (types := set(_types(one))) and "string" not in types}
    except (ValueError, RecursionError):
        return Mend(name)
    return Mend(name, frozenset(defaults), frozenset(untexted))


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


# Habits of known clients.


def _line_ends(text: str) -> str:
    """No white space stands before the end of a line."""
    return "\n".join([line.rstrip() for line in text.split("\n")])


def _command(text: str) -> str:
    """A command need not go to the folder where it is run anyway; and a shell takes one backslash for two."""
    folder, there, command = text.partition(" && ")
    here = there and folder.startswith("cd ") and "\n" not in folder
    return (command if here else text).replace("\\\\;", "\\;")


TIDIED: Mapping[str, Mapping[str, Callable[[str], str]]] = {
    "Bash": {"command": _command},
    "Edit": {"new_string": _line_ends},
    "Write": {"content": _line_ends},
}
"""By tool and member, what is left of the difference once the client has run the call: these are Claude Code's."""
