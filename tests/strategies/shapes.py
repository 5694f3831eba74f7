"""Owns the shapes of SDK types: what a wire value may be at each place, and the names of all places ("sites").

A site is something that a set of test bodies must contain: a field of a TypedDict present, an optional field absent, a
member of a union at the field that holds the union. Sites are bits of an int, so "which sites lie below this shape" is
one mask per shape and number of nested records.
"""

from __future__ import annotations

import enum
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import typing_extensions as tx
from pydantic import BaseModel

from tests.strategies.jsontext import Spelled

# Records nested in records that a body may have. Today's types need 9; the bound is for a future recursive type.
MAX_HOPS = 10


@dataclass(eq=False, slots=True)
class Shape:
    """Base: `within[k]` is the sites that a value with at most k nested records can reach; `floor` is the least k."""

    within: list[int] = field(default_factory=list, init=False, repr=False)
    floor: int = field(default=0, init=False, repr=False)


@dataclass(eq=False, slots=True)
class Leaf(Shape):
    """One JSON value without sites: kind is str, int, float, bool, null, object (any keys) or any."""

    kind: str
    owner: str
    """The record and the field that hold it: they choose what is drawn."""
    name: str


@dataclass(eq=False, slots=True)
class Options(Shape):
    """One of fixed values."""

    values: tuple[Any, ...]


@dataclass(eq=False, slots=True)
class ListOf(Shape):
    item: Shape
    owner: str
    name: str


@dataclass(eq=False, slots=True)
class MapOf(Shape):
    value: Shape


@dataclass(eq=False, slots=True)
class Member:
    site: int
    shape: Shape


@dataclass(eq=False, slots=True)
class OneOf(Shape):
    members: list[Member]


@dataclass(eq=False, slots=True)
class Field:
    name: str
    shape: Shape
    required: bool
    present: int
    absent: int
    """Site bits; `absent` is 0 for a required field."""


@dataclass(eq=False, slots=True)
class Record(Shape):
    """A TypedDict, or a pydantic model that a client may send back as it got it."""

    name: str
    """The class name, with "@module" where two classes share one."""
    is_model: bool
    fields: list[Field] = field(default_factory=list)


class Typed(dict[str, Any]):
    """An object of a body that knows its record. Equal to a plain dict with the same members."""

    __slots__ = ("record",)

    def __init__(self, members: Mapping[str, Any] | Iterable[tuple[str, Any]], record: Record) -> None:
        super().__init__(members)
        self.record = record

    def __deepcopy__(self, memo: dict[int, Any]) -> Typed:
        return Typed({key: deepcopy(value, memo) for key, value in self.items()}, self.record)


# ------------------------------------------------------------------------------------------------- hints to shapes

_KINDS: dict[Any, str] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    type(None): "null",
    object: "any",
    Any: "any",
    datetime: "str",  # as which it is sent
}
_LISTS = (list, tuple, Iterable, Sequence)
_MAPS = (dict, Mapping)
# Never on the wire: upload handles that the SDK turns into base64 text, and its "argument not given" marks.
_OFF_WIRE = {"bytes", "IO", "PathLike", "Omit", "NotGiven"}


def record_of(hint: Any) -> bool:
    return tx.is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, BaseModel))


def unwrapped(hint: Any) -> Any:
    """The hint without Annotated, Required, NotRequired, ReadOnly, NewType and `type` aliases."""
    while True:
        origin: Any = tx.get_origin(hint)
        if any(origin is wrapper for wrapper in (tx.Annotated, tx.Required, tx.NotRequired, tx.ReadOnly)):
            hint = tx.get_args(hint)[0]
        elif isinstance(hint, tx.TypeAliasType):
            hint = hint.__value__
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        else:
            return hint


def wire_fields(hint: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name on the wire, hint and "is required" of each field of a TypedDict or model."""
    if not tx.is_typeddict(hint):
        for name, info in hint.model_fields.items():
            yield info.alias or name, _sent_as_text(hint, info.annotation), info.is_required()
        return
    for name, given in tx.get_type_hints(hint, include_extras=True).items():
        # `from __future__ import annotations` hides Required from __required_keys__, so the hint has the last word.
        origin: Any = tx.get_origin(given)
        required = origin is tx.Required or (name in hint.__required_keys__ and origin is not tx.NotRequired)
        inner = tx.get_args(given)[0] if origin in (tx.Required, tx.NotRequired) else given
        alias: str | None = None
        for note in getattr(inner, "__metadata__", ()):
            alias = alias or getattr(note, "alias", None)
        yield alias or name, inner, required


def _sent_as_text(model: Any, hint: Any) -> Any:
    """The hint of a field of a pydantic model; bytes are base64 text on the wire of Google's."""
    if "google" in model.__module__ and hint in (bytes, bytes | None):
        return str if hint is bytes else str | None
    return hint


def union_members(hint: Any) -> list[Any]:
    """The hint's alternatives that can be on the wire, nested unions opened; [hint] if it is not a union."""
    hint = unwrapped(hint)
    if tx.get_origin(hint) in (typing.Union, types.UnionType):
        return [member for argument in tx.get_args(hint) for member in union_members(argument)]
    # The origin's name, not the hint's: typing.IO[bytes] has none of its own.
    return [] if getattr(tx.get_origin(hint) or hint, "__name__", "") in _OFF_WIRE else [hint]


class Model:
    """All shapes under some root types, and the sites in them."""

    def __init__(self, roots: Sequence[Any], sent: Mapping[Any, set[str]]) -> None:
        """`sent` says for a root which of its fields go into the body; the others are headers."""
        self.sites: list[str] = []
        self._sent = sent
        self._records: dict[Any, Record] = {}
        self._names: set[str] = set()
        self._shapes: list[Shape] = []
        self.root = self._union([unwrapped(root) for root in roots], "body", "")
        self._measure()

    def site(self, name: str) -> int:
        self.sites.append(name)
        return 1 << (len(self.sites) - 1)

    def names(self, mask: int) -> list[str]:
        return [name for number, name in enumerate(self.sites) if mask >> number & 1]

    def records(self) -> Iterator[Record]:
        return iter(self._records.values())

    # -- building

    def _keep(self, shape: Shape) -> Any:
        self._shapes.append(shape)
        return shape

    def _shape(self, hint: Any, owner: str, name: str) -> Shape:
        members = union_members(hint)
        if not members:
            raise TypeError(f"{owner}.{name}: {hint} has no form on the wire")
        return self._single(members[0], owner, name) if len(members) == 1 else self._union(members, owner, name)

    def _union(self, hints: list[Any], owner: str, name: str) -> Shape:
        members: list[Member] = []
        taken: set[str] = set()
        for hint in hints:
            shape = self._single(hint, owner, name)
            label = described(shape)
            taken.add(label := label if label not in taken else f"{label}#{len(taken)}")
            members.append(Member(self.site(f"{owner}.{name} | {label}"), shape))
        return typing.cast("Shape", self._keep(OneOf(members)))

    def _single(self, hint: Any, owner: str, name: str) -> Shape:
        origin, arguments = tx.get_origin(hint), tx.get_args(hint)
        shape: Shape
        if record_of(hint):
            return self._record(hint)
        elif origin is tx.Literal:
            shape = Options(tuple(arguments))
        elif isinstance(hint, type) and issubclass(hint, enum.Enum):
            shape = Options(tuple(member.value for member in hint))
        elif origin in _LISTS:
            shape = ListOf(self._shape(arguments[0], owner, f"{name}[]"), owner, name)
        elif hint is dict or (origin in _MAPS and unwrapped(arguments[1]) in (object, Any)):
            shape = Leaf("object", owner, name)
        elif origin in _MAPS:
            shape = MapOf(self._shape(arguments[1], owner, f"{name}{{}}"))
        elif hint in _KINDS:
            shape = Leaf(_KINDS[hint], owner, name)
        else:
            raise TypeError(f"{owner}.{name}: no shape for {hint!r}; teach tests/strategies/shapes.py about it")
        return typing.cast("Shape", self._keep(shape))

    def _record(self, hint: Any) -> Record:
        if hint in self._records:
            return self._records[hint]
        name = hint.__name__
        if name in self._names:
            name = f"{name}@{hint.__module__.partition('.types.')[2] or hint.__module__}"
        self._names.add(name)
        record: Record = self._keep(Record(name, is_model=not tx.is_typeddict(hint)))
        self._records[hint] = record
        for key, inner, required in wire_fields(hint):
            if key in self._sent.get(hint, {key}):
                present = self.site(f"{name}.{key}")
                absent = 0 if required else self.site(f"{name}.{key} absent")
                record.fields.append(Field(key, self._shape(inner, name, key), required, present, absent))
        return record

    # -- measuring

    def _measure(self) -> None:
        changed = True
        while changed:
            changed = False
            for shape in self._shapes:
                floor = _floor(shape)
                changed, shape.floor = changed or floor != shape.floor, floor
        for hops in range(MAX_HOPS + 1):
            for record in self._records.values():
                record.within.append(0)
                if hops:
                    for member in record.fields:
                        record.within[hops] |= member.present | member.absent | _reach(member.shape, hops - 1)
        for shape in self._shapes:
            if not isinstance(shape, Record):
                shape.within = [_reach(shape, hops) for hops in range(MAX_HOPS + 1)]


def described(shape: Shape) -> str:
    """A union member's label."""
    match shape:
        case Record():
            return shape.name
        case Options():
            return "literal " + ",".join(str(value) for value in shape.values[:3])
        case ListOf():
            return f"list of {described(shape.item)}"
        case MapOf():
            return f"map of {described(shape.value)}"
        case OneOf():
            return f"{len(shape.members)} kinds"
        case Leaf():
            return shape.kind
    raise TypeError(shape)


def _floor(shape: Shape) -> int:
    if isinstance(shape, Record):
        return 1 + max((member.shape.floor for member in shape.fields if member.required), default=0)
    if isinstance(shape, OneOf):
        return min(member.shape.floor for member in shape.members)
    return 0


def _reach(shape: Shape, hops: int) -> int:
    match shape:
        case Record():
            return shape.within[hops] if hops < len(shape.within) else 0
        case OneOf():
            mask = 0
            for member in shape.members:
                if member.shape.floor <= hops:
                    mask |= member.site | _reach(member.shape, hops)
            return mask
        case ListOf():
            return _reach(shape.item, hops)
        case MapOf():
            return _reach(shape.value, hops)
    return 0


# ------------------------------------------------------------------------------------------------- reading a value


def fits(shape: Shape, value: Any) -> bool:
    """Whether a drawn value is one of this shape."""
    match shape:
        case Record():
            return isinstance(value, Typed) and value.record is shape
        case Options():
            return any(type(value) is type(option) and value == option for option in shape.values)
        case OneOf():
            return any(fits(member.shape, value) for member in shape.members)
        case ListOf():
            return isinstance(value, list) and all(fits(shape.item, element) for element in value)
        case MapOf():
            return type(value) is dict and all(fits(shape.value, element) for element in value.values())
        case Leaf():
            return _leaf_fits(shape.kind, value)
    raise TypeError(shape)


_PYTHON: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "null": (type(None),),
    "object": (dict, Spelled),
}


def _leaf_fits(kind: str, value: Any) -> bool:
    return not isinstance(value, Typed) if kind == "any" else type(value) in _PYTHON[kind]


def _breadth(shape: Shape) -> int:
    if isinstance(shape, Leaf):
        return 2 if shape.kind == "any" else 1
    return 0


def sites_of(shape: Shape, value: Any) -> int:
    """The mask of the sites that a drawn value contains, read off the value alone."""
    match shape:
        case Record():
            mask = 0
            for member in shape.fields:
                if member.name in value:
                    mask |= member.present | sites_of(member.shape, value[member.name])
                else:
                    mask |= member.absent
            return mask
        case OneOf():
            # Two may fit, as a literal and str do: the narrowest was meant.
            chosen = min((m for m in shape.members if fits(m.shape, value)), key=lambda m: _breadth(m.shape))
            return chosen.site | sites_of(chosen.shape, value)
        case ListOf():
            mask = 0
            for element in value:
                mask |= sites_of(shape.item, element)
            return mask
        case MapOf():
            mask = 0
            for element in value.values():
                mask |= sites_of(shape.value, element)
            return mask
    return 0
