"""Owns the meaning of items: digests that stay the same however a client spells again what it was sent.

Clients parse arguments and write them anew, move text between strings and lists, drop thoughts, strip white space at
the ends, put the texts of an answer before its calls, and give the model a name. None of that is a change, nor is what
they mend in a call before they run it (`mending`). Anything else is.

Clients mend a model's call before they run it, and send it back as if the model had written it. Some fill in the
defaults of a tool's schema, take a number or a list out of the quotes that a model put around it, or tidy a text. The
call is the same: it did what the model asked for. Undone are only what the schema tells, whoever did it, and what known
clients do to what a model wrote (`TIDIED`); whatever else differs is a change. A call that is taken for another puts
words into the model's mouth, one that is not costs time: so all doubt is for the change.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

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
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    all_tools,
)
from turnscript.engine.recent import MB, recent
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
            name = item.full_name
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
