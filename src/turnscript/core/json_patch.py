"""Owns the difference between two JSON values, which is small where they are nearly the same.

A patch is a list of edits, each a list itself, made one after the other:

    ["/messages/0/content", "Hi"]                     set what stands at a place, which is a JSON pointer
    ["/messages/0/name"]                              take a member away
    ["/messages/0:2", []]                             put other elements in the place of some
    ["/text", null, {"": "/messages/0/content"}]      put there what stands elsewhere in the value, before all edits
    ["/a", [{"text": null}], {"/0/text": "/b/0"}]     the same within what is set

The last two forms say no long text twice.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, plain, read_list, read_object, same

_LONG = 16
"""Bytes of a value from which on it is not repeated where it stands in the old value, too."""
_EMPTY = len("{}")
_DEEP = 30
"""How far down values are looked into."""


def are_equal(old: Mapping[str, Any], new: Mapping[str, Json]) -> bool:
    """Return whether all members of two objects are equal, in any order of what is within."""
    if old.keys() != new.keys():
        return False
    for key, value in new.items():
        pairs: Iterable[tuple[Any, Json]] = [(old[key], value)]
        if isinstance(old[key], list) and bytes(memoryview(value)[:1]) == b"[":  # each for itself: they are long
            elements = read_list(value)
            if len(elements) != len(old[key]):
                return False
            pairs = zip(old[key], elements, strict=True)
        if not all(_is_equal(one, other) for one, other in pairs):
            return False
    return True


def difference(old: Any, new: Json | dict[str, Any]) -> Json | None:
    """Return the patch that makes `new` of `old`; None where they are the same but for the order of members, white
    space and escapes. What of `old` is JSON text is one value: it is replaced whole, so that its members keep their
    order."""
    changes = _Difference(old)
    made = changes.edits(old, new, "", "") if isinstance(new, Json) else changes.member_edits(old, new, "", "")
    edits = list(made)
    return Json(msgspec.json.encode(edits)) if edits else None


def patched(old: Json, patch: Json) -> Json:
    """Return a value with the edits of a patch made in it. One that fits nowhere, or is none, is passed over, as is one
    that would make the value many times as long."""
    root, texts = [old], _Texts(old)
    for edit in _list(patch):
        pointer, *said = _list(edit) or [Json(b"null")]
        place = plain(pointer)
        if isinstance(place, str):
            _apply(root, texts, place, said)
    return Json(msgspec.json.encode(root[0]))


# Making edits.


class _Difference:
    """Finds the edits of one value. `old` is the whole of it, in which texts are looked up."""

    __slots__ = ("_chooses", "_known", "_old")

    def __init__(self, old: Any) -> None:
        self._old = old
        self._chooses = True  # but not within a choice, or each level of lists would double the work
        self._known: dict[int, str] | None = None

    def edits(self, old: Any, new: Any, at: str, was: str) -> Iterator[list[Any]]:
        """Yield the edits that make `new` of `old`, which stood at `was` and is at `at` after the edits before."""
        if isinstance(old, list) and isinstance(new, list):  # each as text for itself: together they are long
            yield from self._element_edits(old, list(map(_text, new)), at, was)
            return
        new = _text(new)
        start = bytes(memoryview(new)[:1])
        if isinstance(old, dict) and start == b"{" and _are_alike(old, members := read_object(new)):
            yield from self.member_edits(old, members, at, was)
        elif isinstance(old, list) and start == b"[":
            yield from self._element_edits(old, read_list(new), at, was)
        elif not (same(old, new) if isinstance(old, Json) else start not in b"{[" and _is_value(old, new)):
            yield self._setting(at, new, _known(old, was))

    def member_edits(self, olds: dict[str, Any], news: dict[str, Any], at: str, was: str) -> Iterator[list[Any]]:
        for key, value in news.items():
            name = _escaped(key)
            if key in olds:
                yield from self.edits(olds[key], value, f"{at}/{name}", f"{was}/{name}")
            else:
                yield self._setting(f"{at}/{name}", _text(value))
        yield from [[f"{at}/{_escaped(key)}"] for key in olds if key not in news]

    def _element_edits(self, olds: list[Any], news: list[Json], at: str, was: str) -> Iterator[list[Any]]:
        """Where one list is longer, the others may be alike from its start or from its end on: what is shorter."""
        more = len(olds) - len(news)
        if not more:
            for index, (one, other) in enumerate(zip(olds, news, strict=True)):
                if not _is_equal(one, other):
                    yield from self.edits(one, other, f"{at}/{index}", f"{was}/{index}")
            return
        outer, self._chooses = self._chooses, False
        common = min(len(olds), len(news))
        first = [self._setting(f"{at}/0:{max(more, 0)}", _joined(news[: max(-more, 0)]))]
        for index in range(common):
            place = index + max(-more, 0)
            before = index + max(more, 0)
            if not _is_equal(olds[before], news[place]):
                first += self.edits(olds[before], news[place], f"{at}/{place}", f"{was}/{before}")
        if outer:
            last = [self._setting(f"{at}/{common}:{len(olds)}", _joined(news[common:]))]
            for index in range(common):
                if not _is_equal(olds[index], news[index]):
                    last += self.edits(olds[index], news[index], f"{at}/{index}", f"{was}/{index}")
            first = min(first, last, key=lambda edits: len(msgspec.json.encode(edits)))
            self._chooses = True
        yield from first

    def _setting(self, at: str, new: Json, here: Mapping[int, str] = MappingProxyType({})) -> list[Any]:
        """Return the edit that sets a value. `here`: the places of what stands in the one that it replaces, where most
        often all stands that is long."""
        found: dict[str, str] = {}
        value, whole = _without(new, "", here, found)
        if not whole:
            if self._known is None:
                self._known = _known(self._old, "")
            found = {}
            value, _ = _without(new, "", ChainMap(dict(here), self._known), found)
        return [at, value, found] if found else [at, value]


def _without(value: Json, at: str, known: Mapping[int, str], found: dict[str, str]) -> tuple[Any, bool]:
    """Return a value with null for all that is known, whose places are added to `found`, and whether that is all in it
    that is worth a reference."""
    data = bytes(value)
    if not _is_worth(data) or at.count("/") >= _DEEP:
        return value, True
    source = known.get(hash(data))
    if source is not None:
        found[at] = source
        return None, True
    if data[:1] not in b"{[":
        return value, False
    before, whole, inner = len(found), True, at + "/"
    made: Any
    if data[:1] == b"{":
        made = {}
        for key, one in read_object(value).items():
            made[key], all_known = _without(one, inner + _escaped(key), known, found)
            whole = whole and all_known
    else:
        made = []
        for index, one in enumerate(read_list(value)):
            without, all_known = _without(one, f"{inner}{index}", known, found)
            made.append(without)
            whole = whole and all_known
    return made, whole and len(found) > before


def _known(old: Any, at: str) -> dict[int, str]:
    """Return the places of all values in a value that are worth a reference, by the hash of each: texts are long."""
    found: dict[int, str] = {}
    for place, value in _values(old, at):
        found.setdefault(hash(value), place)
    return found


def _are_alike(old: dict[str, Any], new: dict[str, Json]) -> bool:
    """Return whether two objects are of one kind."""
    said = [key for key in _KINDS if key in old or key in new]
    both = [key for key in said if key in old and key in new]
    return (bool(both) or not said) and all(_is_value(old[key], new[key]) for key in both)


_KINDS = ("type", "role")


def _is_equal(old: Any, new: Json) -> bool:
    """Return whether two values are equal, in any order of members. This is the fast way to know it of most."""
    try:
        return _in_order(msgspec.json.encode(old)) == _in_order(new)
    except (msgspec.DecodeError, RecursionError):
        return False


def _in_order(value: bytes | Json) -> bytes:
    return _encode(_decode(value))


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode
_compact = msgspec.json.Encoder().encode


def _is_value(old: Any, new: Json) -> bool:
    """Return whether a scalar is what a text says."""
    value = _decode(new)
    return type(value) is type(old) and bool(value == old)


def _text(value: Any) -> Json:
    return value if isinstance(value, Json) else Json(msgspec.json.encode(value))


def _joined(elements: list[Json]) -> Json:
    return Json(msgspec.json.encode(elements))


def _is_worth(data: bytes) -> bool:
    """Return whether a value is worth a reference: it is long, or has white space, which an archive spells anew."""
    return len(data) >= _LONG or (len(data) > _EMPTY and data[:1] in b"{[")


def _values(value: Any, at: str) -> Iterator[tuple[str, bytes]]:
    """Yield all values in a value that are worth a reference, outer ones first, with their places."""
    data = bytes(value) if isinstance(value, Json) else _compact(value)
    if not _is_worth(data) or at.count("/") >= _DEEP:
        return
    yield at, data
    inner = _opened(value) if isinstance(value, Json) else value
    if isinstance(inner, dict):
        for key, member in inner.items():
            yield from _values(member, f"{at}/{_escaped(key)}")
    elif isinstance(inner, list):
        for index, one in enumerate(inner):
            yield from _values(one, f"{at}/{index}")


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


# Making them in a value. What is opened on the way to a place is a dict or a list, all else stays text.


class _Texts:
    """The value before all edits, in which texts are looked up. What is opened on the way to one stays open."""

    __slots__ = ("_left", "_root")

    def __init__(self, old: Json) -> None:
        self._root: list[Any] = [old]
        self._left = 4 * len(bytes(old)) + 65536

    def at(self, pointer: str) -> Json | None:
        """Return what stands at a place; None where nothing does, or where too much was asked for."""
        holder, key = _holder(self._root, pointer)
        if holder is None or isinstance(key, slice) or not _has(holder, key):
            return None
        found = _text(holder[key])
        self._left -= len(bytes(found))
        return found if self._left >= 0 else None


def _apply(root: list[Any], texts: _Texts, pointer: str, said: list[Json]) -> None:
    holder, key = _holder(root, pointer)
    if holder is None:
        return
    if not said:
        if isinstance(holder, dict):
            holder.pop(key, None)
        return
    made: list[Any] = [said[0]]
    known = plain(said[1]) if len(said) > 1 else {}
    for place, source in known.items() if isinstance(known, dict) else ():
        inner, name = _holder(made, place)
        value = texts.at(source) if isinstance(source, str) else None
        if inner is None or value is None:
            return
        inner[name] = value
    if not isinstance(key, slice):
        holder[key] = made[0]
    elif isinstance(elements := _opened(made[0]), list):
        holder[key] = elements


def _holder(root: list[Any], pointer: str) -> tuple[Any, Any]:
    """Return what holds the value at a pointer, and its key there, all on the way opened; None for a place that is not
    there. The last key of an object may be new."""
    holder: Any = root
    key: Any = 0
    for token in pointer.split("/")[1:]:
        opened = _opened(holder[key]) if _has(holder, key) else None
        if opened is None:
            return None, None
        holder[key] = opened
        holder, key = opened, _key(opened, token)
    return (holder, key) if isinstance(holder, dict) or _has(holder, key) else (None, None)


def _opened(value: Any) -> Any:
    if not isinstance(value, Json):
        return value
    try:
        start = bytes(value)[:1]
        return read_object(value) if start == b"{" else read_list(value) if start == b"[" else None
    except InvalidRequest:
        return None


def _list(value: Json) -> list[Json]:
    found = _opened(value)
    return found if isinstance(found, list) else []


def _key(holder: Any, token: str) -> Any:
    if not isinstance(holder, list):
        return token.replace("~1", "/").replace("~0", "~")
    start, colon, end = token.partition(":")
    if not start.isdecimal() or (colon and not end.isdecimal()):
        return -1
    return slice(int(start), int(end)) if colon else int(start)


def _has(holder: Any, key: Any) -> bool:
    if isinstance(holder, dict):
        return key in holder
    return (isinstance(key, int) and 0 <= key < len(holder)) or (isinstance(key, slice) and key.stop <= len(holder))
