"""Owns the meaning of items: digests that stay the same however a client spells again what it was sent.

Clients parse arguments and write them anew, move text between strings and lists, drop thoughts, strip white space at
the ends, put the texts of an answer before its calls, and give the model a name. None of that is a change, nor is what
they mend in a call before they run it (`mending`). Anything else is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.call_pairing import is_generated
from turnscript.core.conversation import (
    Assistant,
    Item,
    Opaque,
    Part,
    Refusal,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
)
from turnscript.engine.recent import MB, recent
from turnscript.gateway.mending import Mend, read

MODEL = frozenset({Assistant, Thinking, ToolCall})
"""What a model writes."""
SIZE = 16
_FREE = "input"  # free text stands in an object under this name where an API wants an object
_UNMENDED: Mapping[str, Mend] = {}
_encode = msgspec.msgpack.Encoder().encode


def digest(*parts: object) -> bytes:
    """A digest of some values, each apart from its neighbours."""
    hashed = _NOTHING.copy()
    hashed.update(_encode(parts))
    return hashed.digest()


_NOTHING = blake2b(digest_size=SIZE)
"""Its copies take three quarters of the time of new ones."""


@lru_cache(maxsize=1024)
def _begun(*start: str) -> blake2b:
    """A hash that has begun with who speaks with which model: few things, which each request begins with."""
    return blake2b(digest(*start), digest_size=SIZE)


def turns(items: Sequence[Item]) -> Iterator[tuple[int, int]]:
    """Where the model's turns are: first item and behind the last, as far as items of the model follow each other."""
    start = -1
    for index, item in enumerate(items):
        if type(item) in MODEL:
            start = index if start < 0 else start
        elif start >= 0:
            yield start, index
            start = -1
    if start >= 0:
        yield start, len(items)


def unlabelled(items: Sequence[Item]) -> Sequence[Item]:
    """The items without the name of the model, where one stands on all that it said: nobody is told apart by that."""
    names = {item.name for item in items if type(item) is Assistant}
    return _without(names.pop(), items) if len(names) == 1 else items


def _without(name: str | None, items: Sequence[Item]) -> Sequence[Item]:
    if name is None:
        return items
    return [replace(item, name=None) if type(item) is Assistant and item.name == name else item for item in items]


def meanings(items: Sequence[Item], ids: bool = True, mends: Mapping[str, Mend] = _UNMENDED) -> list[bytes]:
    """What a turn says, thoughts left out: as it stands, and as it would be with each text stripped.

    `ids`: the ids of its calls are a part of that, but those that follow from where a call stands: readers of requests
    take them off. `mends`: by the name of a tool, what clients mend in its calls; then also as it is mended.
    """
    only = items[0] if len(items) == 1 else None
    if type(only) is Assistant and only.name is None and len(only.content) == 1:  # as most are
        part = only.content[0]
        if type(part) is Text:
            return [digest(_bytes(part.text.strip()), (), ())]
    texts: list[str] = []
    bare: list[str] = []
    others: list[object] = []
    called: list[object] = []
    mended: list[object] = []
    for item in items:
        if type(item) is Assistant:
            each: list[str] = []
            for part in item.content:
                if type(part) is Text or type(part) is Refusal:
                    each.append(part.text)
                else:
                    others.append(_part(part))
            text = "".join(each)
            texts += [text] if text.strip() else []
            bare += [one.strip() for one in each]
            others += [item.name] if item.name is not None else []
        elif type(item) is ToolCall:
            name = f"{item.namespace}__{item.name}" if item.namespace else item.name
            said, same = arguments(item.arguments, item.custom, mends.get(name))
            id_ = item.id if ids and not is_generated(item.id) else None
            called.append((_bytes(name), said, None if id_ is None else _bytes(id_)))
            mended.append((_bytes(name), same, None if id_ is None else _bytes(id_)))
    spoken = dict.fromkeys(("".join(texts).strip(), "".join(bare)))
    calls = [called] if mended == called else [called, mended]
    return [digest(_bytes(text), others, one) for one in calls for text in spoken]


def thoughts(items: Iterable[Item]) -> list[bytes]:
    """What each thought of a turn says, and last what all of them say as one; white space does not matter.

    One without text, as clients may not see it, says nothing.
    """
    thought = [item for item in items if type(item) is Thinking]
    if not thought:
        return []
    texts = ["".join("".join([part.text for part in item.content if type(part) is Text]).split()) for item in thought]
    texts = [text for text in texts if text]
    return [digest(_bytes(text)) for text in (*texts, *(["".join(texts)] if texts else ()))]


def arguments(text: str, custom: bool = False, mend: Mend | None = None) -> tuple[bytes, bytes]:
    """The arguments of a call whatever their spelling: numbers as doubles, members in any order, the last of a name.

    As they stand, and as their client may have mended them.
    """
    return (_cached if len(text) < _SHORT else _arguments)(text, custom, mend)


def _arguments(text: str, custom: bool, mend: Mend | None) -> tuple[bytes, bytes]:
    value: Any = text
    if not custom:
        try:
            value = read(text)
        except (ValueError, RecursionError):
            value = text
    said = json.dumps(value if isinstance(value, dict) else {_FREE: text}, sort_keys=True)
    exact = _hashed(said)
    return exact, exact if mend is None or not isinstance(value, dict) else _mended(mend, value, exact)


def _mended(mend: Mend, value: dict[str, Any], exact: bytes) -> bytes:
    """The same as mended; what nests too deeply for that stays as it is said."""
    try:
        made = mend(value)
        return exact if made == value else _hashed(json.dumps(made, sort_keys=True))
    except RecursionError:
        return exact


def _hashed(said: str) -> bytes:
    return blake2b(said.encode(), digest_size=SIZE).digest()


_SHORT = 2048
_cached = lru_cache(maxsize=4096)(_arguments)


class Beginning(Struct, frozen=True, gc=False):
    """What is said before the model first speaks: how many items that are, and what they say."""

    length: int
    said: bytes


def beginning_of(items: Sequence[Item]) -> Beginning:
    """How a conversation begins."""
    said: list[bytes] = []
    for item in items:
        if type(item) in MODEL:
            break
        said.append(_encode(_said(item)))
    return Beginning(len(said), said[0] if len(said) == 1 else b"".join(said))


def begun(beginning: Beginning, *start: str) -> blake2b:
    """The hash of a `History` that has said no more than that."""
    hashed = _begun(*start).copy()
    hashed.update(beginning.said)
    return hashed


class History:
    """The digest of a conversation as it grows: what was said, and nothing of how.

    The name of the model's first message is left out: whether all will have it is not known yet, and what was said at
    first must mean the same later, whoever else speaks by then.
    """

    def __init__(self, *start: str) -> None:
        self._hash = _begun(*start).copy()
        self._names: list[str | None] = []

    def begin(self, beginning: Beginning) -> None:
        """The items that a conversation begins with: as `add`, for who has their bytes at hand."""
        self._hash.update(beginning.said)

    def add(self, items: Sequence[Item]) -> None:
        """Items that no model wrote, or one whole turn of the model."""
        if items and type(items[0]) in MODEL:
            self._names = self._names or [item.name for item in items if type(item) is Assistant][:1]
            self._hash.update(_encode(meanings(_without(self._names[0], items) if self._names else items)[-1]))
        else:
            for item in items:  # each says where it ends, so no two conversations are the same bytes
                self._hash.update(_encode(_said(item)))

    @property
    def digest(self) -> bytes:
        """The digest of all so far."""
        return self._hash.digest()


def _said(item: Item) -> tuple[object, ...]:
    """What an item says. The name of a participant counts; one that follows from an id does not, nor does the id of an
    item that nothing refers to."""
    more: tuple[object, object]
    if type(item) is User or type(item) is System:
        role, name = item.role if type(item) is System else "", item.name
        content = item.content
        told = [_part(content[0])] if len(content) == 1 else list(map(_part, content))
        return item.kind, told, (role, _bytes(name) if name else b"")
    if type(item) is ToolResult:
        more = _bytes(item.id or ""), item.is_error
    elif type(item) is ToolsChange:
        more = _bytes_of(item.added), _bytes_of(item.removed)
    elif type(item) is Opaque:
        more = _bytes(item.type), _bytes_of(item.value)
    else:
        more = getattr(item, "role", ""), _bytes(getattr(item, "name", None) or "")
    return item.kind, [_part(part) for part in getattr(item, "content", ())], more


def _part(part: Part) -> object:
    if type(part) is Text or type(part) is Refusal:
        text = part.text
        return _bytes(text) if len(text) < _LONG else (_long(text),)
    fields = [(field, getattr(part, field)) for field in part.__struct_fields__ if field != "extra"]
    return type(part).__name__, [(field, _bytes_of(value)) for field, value in fields if value is not None]


_LONG = 1024


@recent(8 * MB)
def _long(text: str) -> bytes:
    """The digest of a long text, such as the instructions that each request of an agent begins with."""
    return blake2b(_bytes(text), digest_size=SIZE).digest()


def _bytes_of(value: Any) -> bytes:
    return _bytes(value) if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str)


def _bytes(text: str) -> bytes:
    """A text as bytes, half of a surrogate pair included."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
