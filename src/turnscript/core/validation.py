"""Owns telling what is wrong in a conversation that a program put together, once it could not be written.

Nothing checks structs while a program fills them, and a content that is no list is met deep in some writer. So the
edges through which conversations are written catch what that raises (`MISTAKES`), and ask here. What is written well is
never looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from turnscript.core.conversation import Item, Part, Request, Response, Settings, Text, Tool, ToolChoice
from turnscript.core.errors import InvalidConversation, half_a_pair, type_of
from turnscript.core.json_text import Json

MISTAKES = (AttributeError, KeyError, TypeError, UnicodeEncodeError)
"""What values of a wrong type raise, wherever they are used, and texts that no UTF-8 can hold."""

_WANTED = {"request": Request, "response": Response, "items": list[Item], "tools": list[Tool] | None}
_READERS = {Request: "`parse` makes one of a body", Response: "`parse_response` makes one of a body"}
_MODES = ("auto", "none", "required", "named", "allowed")
_WORDS: dict[tuple[type[Struct], str], Any] = {(ToolChoice, "mode"): Literal[_MODES]}
"""Members that are one of a few words. Their type is that of all texts, because programs compute them."""
_ROOTS = ("conversation", "request", "response")
"""Members that a place does without: `items[3]`, as losses call it."""


def refuse_mistakes(**given: object) -> None:
    """Raise InvalidConversation for the first value that is not of its type, or else for the first text with half of a
    surrogate pair; nothing if there is none.

    `request`, `response`, `items` and `tools` are what they are called.
    """
    for name, value in given.items():
        for path, expected, got in _misfits(value, _WANTED[name], name):
            remedy = _remedy(expected, got)
            came = repr(got) if isinstance(got, str) and get_origin(expected) is Literal else type_of(got)
            told = f"expected {_told(expected)}, got {came}"
            message = f"{told}; {remedy}" if remedy else told
            raise InvalidConversation(message, path=path, expected=_told(expected), got=came) from None
    for name, value in given.items():
        for path, error in _unencodable(value, name):
            raise half_a_pair(error, "this text", path) from None


def check_words(settings: Settings) -> None:
    """Refuse a tool choice that no API has: one would write its word as it stands, another leave it out.

    Raises TypeError, which `refuse_mistakes` explains, and InvalidConversation for a choice of a tool without a name.
    """
    choice = settings.tool_choice
    if choice is None:
        return
    if choice.mode not in _MODES:
        raise TypeError(f"expected a mode, got {choice.mode!r}")
    if choice.mode == "named" and choice.name is None and choice.type in ("function", "custom"):
        expected, path = "the name of a tool", "settings.tool_choice.name"
        message = f"expected {expected}, got None: the mode is 'named'"
        raise InvalidConversation(message, path=path, expected=expected, got="None") from None


def kind_of(part: object) -> str:
    """What a loss calls a part that has no place. Raises TypeError for what is none."""
    if not isinstance(part, Part):
        raise TypeError(f"expected a part, got {type_of(part)}")
    return type(part).__name__.lower()


def text_only(value: object) -> str:
    """A text that is written as it stands, where anything else would be written too. Raises TypeError for that."""
    if not isinstance(value, str):
        raise TypeError(f"expected a str, got {type_of(value)}")
    return value


def _misfits(value: object, hint: Any, path: str) -> Iterator[tuple[str, Any, object]]:
    """Where a value is not of its type: the place, the type, and the value. In the order of the members."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    fitting = next((one for one in choices if _fits(value, one)), None)
    if fitting is None:
        yield path, hint, value
    elif isinstance(value, Struct):
        before = "" if path in _ROOTS else f"{path}."
        for name, type_ in _members(type(value)):
            yield from _misfits(getattr(value, name), type_, f"{before}{name}")
    elif isinstance(value, list | tuple) and get_args(fitting):
        for index, one in enumerate(value):
            yield from _misfits(one, get_args(fitting)[0], f"{path}[{index}]")


def _unencodable(value: object, path: str) -> Iterator[tuple[str, UnicodeEncodeError]]:
    """The texts that UTF-8 cannot hold: where each is, and what is wrong."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            yield path, error
    elif isinstance(value, Struct):
        before = "" if path in _ROOTS else f"{path}."
        for name in value.__struct_fields__:
            yield from _unencodable(getattr(value, name), f"{before}{name}")
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            yield from _unencodable(one, f"{path}[{index}]")


def _fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type that is no union; of a list only that it is one."""
    kind = get_origin(hint) or hint
    if kind is Literal:
        return value in get_args(hint)
    if kind is list:
        return isinstance(value, list | tuple)
    return isinstance(value, Mapping if kind is dict else kind)


@cache
def _members(struct: type[Struct]) -> list[tuple[str, Any]]:
    return [(field.name, _WORDS.get((struct, field.name), field.type)) for field in msgspec.structs.fields(struct)]


def _told(hint: Any) -> str:
    """A type in the words of a message."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return " or ".join(_word(one) for one in choices)


def _word(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is list:
        return f"a list of {_word(get_args(hint)[0])}"
    if hint is Json:
        return "JSON text as msgspec.Raw"
    return "None" if hint is type(None) else str((get_origin(hint) or hint).__name__)


def _remedy(hint: Any, got: object) -> str:
    """What to write instead, where that can be told."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next((remedy for one in choices if (remedy := _instead(one, got))), "")


def _instead(hint: Any, got: object) -> str:
    if get_origin(hint) is list:
        inner = "..." if _fits(got, get_args(hint)[0]) else _construction(get_args(hint)[0], got)
        return f"write [{inner}]" if inner else ""
    if hint in _READERS and not isinstance(got, Struct):
        return _READERS[hint]
    if hint is Json:
        return "write msgspec.Raw(json.dumps(...).encode())"
    if hint is str and isinstance(got, dict | list):
        return "write json.dumps(...)"
    made = _construction(hint, got)
    return f"write {made}" if made else ""


def _construction(hint: Any, got: object) -> str:
    """Of a text where a struct is expected whose one necessary member is a text: how that is made of it."""
    struct = Text if hint is Part else hint
    if not isinstance(got, str) or not isinstance(struct, type) or not issubclass(struct, Struct):
        return ""
    fields = msgspec.structs.fields(struct)
    needed = [one for one in fields if one.default is NODEFAULT and one.default_factory is NODEFAULT]
    return f"{struct.__name__}({needed[0].name}=...)" if len(needed) == 1 and needed[0].type is str else ""
