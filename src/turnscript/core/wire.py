"""Owns reading JSON objects of a declared shape without losing the members that the declaration does not name.

An API declares its objects as `Wire` structs: the members it has a name for, typed. Reading one takes two steps.
First msgspec decodes it strictly, in C: that succeeds for ordinary bodies. Where it meets a member that nobody named, a
null where a value was expected or an unknown kind of block, the object is read again member by member: named ones by
their type, all others verbatim into `rest`. So the same declaration gives speed, types, error messages with a JSON
path, and no silent loss.

- An unnamed member goes to `rest`; so does a null given to a member that may be absent (null and absent stay distinct).
- An object whose tag no declared struct has becomes a `Verbatim`.
- A named member of the wrong type, or a required one that is missing, is an `InvalidRequest` with its path.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, excerpt, plain, read_list, read_object, syntax_error, type_name

T = TypeVar("T")


class Rest(dict[str, Json]):
    """Unnamed members of a wire object. A type of its own, so that no body can fill the field by using its name."""


class Wire(Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Base of all declared wire objects. `known_by`: the member that tells what an object is where its tag is missing;
    some servers take it so, and then some clients leave the tag out."""

    known_by: ClassVar[str | None] = None
    # The odd wire name keeps `rest` out of reach of a body: under its own name, `"rest": null` would be read as None.
    rest: Rest | None = msgspec.field(default=None, name="(rest)")


def extra_of(wire: Wire, *names: str) -> dict[str, Json]:
    """Return the members that the model has no name for: the undeclared ones, and the verbatim `names`."""
    extra: dict[str, Json] = dict(wire.rest) if wire.rest else {}
    for name in names:
        value = getattr(wire, name)
        if value is not UNSET:
            extra[name] = value
    return extra


def given(value: T | UnsetType) -> T | None:
    """Return a member that may be absent, in the model's terms."""
    return None if value is UNSET else value


class Verbatim(Struct, gc=False):
    """An object of an undeclared kind: its tag and its whole text."""

    tag: str
    value: Json


class Reader(Generic[T]):
    """Reads JSON text as `type_`: strictly first, member by member if that fails. `at` is the value's JSON path."""

    __slots__ = ("_decode", "_lenient")

    def __init__(self, type_: Any) -> None:
        self._decode = msgspec.json.Decoder(type_).decode
        self._lenient = reader_of(type_)

    def __call__(self, value: Json | T, at: str) -> T:
        """The typed value. One that was typed before, with the body around it, is given back as it is."""
        if not isinstance(value, Raw):
            return value
        try:
            result: T = self._decode(value)
        except (msgspec.ValidationError, RecursionError):
            return self._lenient(value, at)  # type: ignore[no-any-return]
        except msgspec.DecodeError as error:
            raise syntax_error(bytes(value), error) from None
        return result


def mismatch(value: Json, at: str, expected: str) -> InvalidRequest:
    """The error for a value of the wrong type at `at`."""
    got = f"{type_name(value)} ({excerpt(value)})"
    if type_name(value) == expected == _WORDS[float]:
        expected = "a number that a double can hold"
    return InvalidRequest(f"expected {expected}, got {got}", path=at, expected=expected, got=got)


def missing(at: str, name: str, expected: str) -> InvalidRequest:
    """The error for a required member that is not there; the path names the member."""
    message = f"required, but missing; expected {expected}"
    return InvalidRequest(message, path=f"{at}.{name}", expected=expected, got="nothing")


@cache
def reader_of(type_: Any) -> Callable[[Json, str], Any]:
    """The member-by-member reader of a declared type."""
    if isinstance(type_, type) and issubclass(type_, Wire):
        return _struct_reader(type_)
    if get_origin(type_) is list:
        return _list_reader(get_args(type_)[0])
    if get_origin(type_) in (Union, types.UnionType) and not _is_plain(type_):
        return _union_reader(type_)
    return _plain_reader(type_)


def _is_plain(type_: Any) -> bool:
    """Whether msgspec alone can read every value of the type: no wire object is inside."""
    if isinstance(type_, type) and issubclass(type_, Wire):
        return False
    return all(_is_plain(argument) for argument in get_args(type_))


def _plain_reader(type_: Any) -> Callable[[Json, str], Any]:
    decode = msgspec.json.Decoder(type_).decode
    expected = describe(type_)

    def read(value: Json, at: str) -> Any:
        try:
            return decode(value)
        except (msgspec.ValidationError, RecursionError):
            raise mismatch(value, at, expected) from None

    return read


def _list_reader(element: Any) -> Callable[[Json, str], Any]:
    read_one: Callable[[Json, str], Any] = Reader(element)  # one odd element does not slow down the others
    expected = describe(list[element])

    def read(value: Json, at: str) -> Any:
        if bytes(value).lstrip()[:1] != b"[":
            raise mismatch(value, at, expected)
        return [read_one(one, f"{at}[{index}]") for index, one in enumerate(read_list(value))]

    return read


def _struct_reader(cls: type[Wire]) -> Callable[[Json, str], Any]:
    hints = get_type_hints(cls)
    fields = {field.encode_name: field for field in msgspec.structs.fields(cls) if field.name != "rest"}
    config = cls.__struct_config__
    readers: dict[str, Callable[[Json, str], Any]] = {}

    def read(value: Json, at: str) -> Any:
        if bytes(value).lstrip()[:1] != b"{":
            raise mismatch(value, at, describe(cls))
        if not readers:  # built at first use: a struct may contain itself
            readers.update({name: Reader(_without_unset(hints[field.name])) for name, field in fields.items()})
        found: dict[str, Any] = {}
        rest = Rest()
        for key, member in read_object(value).items():
            field = fields.get(key)
            if field is None:
                if key != config.tag_field:
                    rest[key] = member
            elif not field.required and bytes(member).strip() == b"null":
                rest[key] = member
            else:
                found[field.name] = readers[key](member, f"{at}.{key}")
        for name, field in fields.items():
            if field.required and field.name not in found:
                raise missing(at, name, describe(_without_unset(hints[field.name])))
        return cls(**found, rest=rest or None)

    return read


def _union_reader(type_: Any) -> Callable[[Json, str], Any]:
    members = get_args(type_)
    structs = [one for one in members if isinstance(one, type) and issubclass(one, Wire)]
    tags = {tag: cls for cls in structs for tag in [cls.__struct_config__.tag] if tag is not None}
    tag_field = structs[0].__struct_config__.tag_field if tags else None
    lists = [one for one in members if get_origin(one) is list]
    scalars = tuple(one for one in members if one not in structs and one not in lists and one is not msgspec.UnsetType)
    read_scalar = _plain_reader(Union[scalars]) if scalars else None  # noqa: UP007 - built at run time
    expected = describe(type_)

    def read(value: Json, at: str) -> Any:
        first = bytes(value).lstrip()[:1]
        if first == b"[" and lists:
            return reader_of(lists[0])(value, at)
        if first == b"{" and tag_field:
            return _tagged(value, at, tags, tag_field)
        if first == b"{" and structs:
            return reader_of(structs[0])(value, at)
        if read_scalar is None or first in (b"[", b"{"):
            raise mismatch(value, at, expected)
        try:
            return read_scalar(value, at)
        except InvalidRequest:
            raise mismatch(value, at, expected) from None

    return read


def _tagged(value: Json, at: str, tags: dict[Any, type[Wire]], tag_field: str) -> Any:
    members = read_object(value)
    tag = members.get(tag_field)
    if tag is None:
        untagged = next((cls for cls in tags.values() if cls.known_by in members), None)
        if untagged is not None:
            return reader_of(untagged)(value, at)
        known = ", ".join(sorted(map(repr, tags)))
        raise missing(at, tag_field, f"one of {known}")
    word = plain(tag)
    if not isinstance(word, str):
        raise mismatch(tag, f"{at}.{tag_field}", "a string")
    cls = tags.get(word)
    return Verbatim(word, Raw(bytes(value))) if cls is None else reader_of(cls)(value, at)


def _without_unset(type_: Any) -> Any:
    if get_origin(type_) in (Union, types.UnionType):
        kept = tuple(one for one in get_args(type_) if one is not msgspec.UnsetType)
        return Union[kept]  # noqa: UP007 - built at run time
    return type_


_WORDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
    Raw: "any value",
}
_MANY = {
    "a string": "strings",
    "an integer": "integers",
    "a number": "numbers",
    "an object": "objects",
    "any value": "any values",
    "a string or an object": "strings or objects",
}


def describe(type_: Any) -> str:
    """A declared type in the words of an error message: `a string or an array of content parts`."""
    if type_ in _WORDS:
        return _WORDS[type_]
    if isinstance(type_, type):
        return "an object"
    if get_origin(type_) is list:
        one = describe(get_args(type_)[0])
        return f"an array of {_MANY.get(one, one)}"
    if get_origin(type_) in (Union, types.UnionType):
        words = dict.fromkeys(describe(one) for one in get_args(type_) if one is not msgspec.UnsetType)
        if "an integer" in words and "a number" in words:
            del words["an integer"]
        return " or ".join(words)
    if get_origin(type_) is dict:
        return "an object"
    return "one of " + ", ".join(map(repr, get_args(type_)))
