"""Owns where things stood in their source: the JSON path of a part or a member, in the words of its API.

What is unchanged stands in a body of that API as it came: `Slices` finds it.

Who renders speaks of the model: the `id` of a tool result, part 1 of a content. The source may call that
`tool_call_id`, or hold it in a member of its own, and a loss is for people who look at the source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Audio,
    Conversation,
    Extra,
    Item,
    Part,
    Request,
    Response,
    Settings,
    SourceBody,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import NULL, Json, json_of, read_list, read_object, same
from turnscript.core.losses import Loss, LossKind, UnnamedLoss
from turnscript.core.losses import part_path as part_of_message

Words = Mapping[str, str]
"""What an API calls a member of the model: `tool_result.id` is `tool_call_id`. Empty for one that it has no member for.

`custom_call` is a tool call whose arguments are free text; an item that has a slot is asked for by that first. `image`,
`document` and so on are parts; `function_tool` and `custom_tool` name the member of a tool that holds the others;
`response.finish_reason` and `response.stop_sequence` are where an answer says why it ended. Any other member that
begins with `response.` (`response.usage`) is an object in an answer's body of which some members have a name in the
model, and where it stands; an empty one is never lost. `content` is `string` where a message of one plain text usually
holds it as a string, not in a list. `holders` lists the members of bodies and items that are objects with named members
in them. `silent` lists members of items and parts that answers have whether they say anything or not: null and what is
empty are nothing there, and are never lost. Nor is, for
`caller=direct`, an object that says that type alone: it says what is so where it is missing. `meant` lists members of
items, parts and tools that mean something in a body, so that what came from no API is not written under their names.
"""

NOT_HERE = "has no such member here"
"""How the loss of a member is told of a target."""
EMPTY = "it is empty, which says nothing, and is left out"

_NOTHING = (NULL, Json(b"[]"), Json(b"{}"))
_EMPTY = (*_NOTHING, Json(b'""'))
_UNSET = (*_EMPTY, Json(b"0"))
_ENDS = ("finish_reason", "stop_sequence")
_USAGE = "response.usage."
_CHOICE = "$.choices["
_FIRST = "choices[0]"

_FIRST_PARTS = (".content[0]", ".output[0]")
_PART = re.compile(r"\.content\[(\d+)\]")
_PART_OF_MESSAGE = re.compile(r"(\$\.messages\[\d+\])\.content\[(\d+)\]")
_STEP = re.compile(r"\.[^.\[]+|\[\d+\]")
_TOOLS = "$.tools["
_BLOCK = re.compile(r"\.(?:content|parts)\[\d+\]$")


def part_path(item: Item, index: int) -> str:
    """The source path of part `index` of an item. The parts of a tool result stand inside its own block; a system text
    read from a list (`$.system[2]`) is its block's only part, as is a thought in a message; an assistant's sound stands
    beside its content. What a choice of an answer says is a member of it."""
    if isinstance(item, ToolResult):
        return f"{item.at}{_content_of(item)}[{index}]" if index or not _is_value(item) else content_path(item)
    if _is_block(item) or item.at.startswith(_CHOICE):
        return item.at
    if index < len(getattr(item, "content", ())) and (beside := _beside(item, item.content[index])):  # type: ignore[attr-defined]
        return f"{item.at}.{beside}"
    return part_of_message(item.at, index)


def content_path(item: Item) -> str:
    """The source path of all parts of an item."""
    joint = not isinstance(item, ToolResult) and _BLOCK.search(item.at)
    return item.at if joint or _is_block(item) else f"{item.at}{_content_of(item)}"


Reason = str | tuple[LossKind, str]
Kinds = Mapping[type[Struct], Mapping[str, Reason]]


class Unplaced:
    """The fields that a target has no member for, by what has them (an item, a part, a tool, a setting), and why each
    has no place there. A reason may name the value, and the kind of the loss where it is not dropped.

    `in_answers`: the same of its answers. `answers` are the rows that differ there, None for a field with a place.
    """

    __slots__ = ("_kinds", "in_answers")

    def __init__(self, kinds: Kinds, answers: Mapping[type[Struct], Mapping[str, Reason | None]] | None = None) -> None:
        differing = {kind: {**kinds.get(kind, {}), **rows} for kind, rows in (answers or {}).items()}
        named = {kind: {field: why for field, why in rows.items() if why} for kind, rows in differing.items()}
        self.in_answers = Unplaced({**kinds, **named}) if named else self
        # One look at all fields of a thing: most say nothing.
        self._kinds = {
            kind: (
                attrgetter(*rows, "__class__"),
                _unsaid(kind, rows),
                [(field, *(told if isinstance(told, tuple) else ("dropped", told))) for field, told in rows.items()],
            )
            for kind, rows in kinds.items()
        }

    def said_by(self, thing: Struct) -> Sequence[tuple[str, LossKind, str]]:
        """Return the fields of a thing that say something and have no place, each with what is told of it."""
        found = self._kinds.get(type(thing))
        if found is None or (said := found[0](thing)) == found[1]:
            return ()
        rows = zip(found[2], said, found[1], strict=False)
        return [(field, kind, detail.format(value)) for (field, kind, detail), value, usual in rows if value != usual]


def _unsaid(kind: type[Struct], fields: Iterable[str]) -> tuple[Any, ...]:
    usual = {field.name: field.default for field in msgspec.structs.fields(kind)}
    return (*(usual[field] for field in fields), kind)


def not_here(target: str, path: str, value: Json | None = None) -> Loss:
    """The loss of a member without a name. `value`: what it says, where that may be nothing."""
    empty = value is not None and value in _NOTHING
    return UnnamedLoss(path, "dropped", EMPTY if empty else f"{target} {NOT_HERE}")


def unnamed(extra: Extra, words: Words) -> Iterator[str]:
    """Where unnamed members stood, below what has them as its `extra`. Those in a holder wait there under its key, and
    the holder itself is not unnamed, unless it is kept whole: then it says its type."""
    for key, value in extra.items():
        inner = read_object(value) if key in holders(words) and bytes(value)[:1] == b"{" else {}
        if inner and "type" not in inner:
            yield from (f"{key}.{member}" for member in unnamed(inner, words))
        else:
            yield key


class Unnamed:
    """The unnamed members of a request on its way to another API: losses, but for those that say nothing."""

    __slots__ = ("_items", "_lists", "_target", "_words")

    def __init__(self, target: str, request: Request) -> None:
        self._target = target
        self._items = request.items
        self._words = request.words
        self._lists: dict[str, bool] = {}  # the names of lists and members at the root: whether items stand there

    def lose(self, key: str, value: Json, at: str, losses: list[Loss]) -> None:
        """Report one member of what stands at a path."""
        usual = silent(self._words)
        if key in usual and says_nothing(value, usual[key]) and self._is_item(at):
            return
        if key in holders(self._words):
            paths = unnamed({key: value}, self._words)
            losses += [not_here(self._target, f"{at}.{path}", value if path == key else None) for path in paths]
        else:
            losses.append(not_here(self._target, f"{at}.{key}", value))

    def _is_item(self, at: str) -> bool:
        """Whether an item or a part stands there, not a setting or a tool: those may be called the same."""
        root = at.partition("[")[0]
        known = self._lists.get(root)
        if known is None:  # mostly the first item tells
            known = self._lists[root] = any(item.at.partition("[")[0] == root for item in self._items)
        return known


class Nameless:
    """The unnamed members of items and tools from no API, on their way to one: kept where they mean nothing."""

    __slots__ = ("_target", "_words")

    def __init__(self, target: str, words: Words) -> None:
        self._target = target
        self._words = words

    def put(self, body: dict[str, Any], extra: Extra, at: str, losses: list[Loss]) -> None:
        """Write them into `body`, and report each that has no place there: that says otherwise what the body says, that
        means something to the API; all of them where the body is empty, as is what stands for one that is not written.

        What is in an object stands in that object of the body, member by member.
        """
        meant, written = _names(self._words.get("meant", "")), bool(body)
        for key, value in extra.items():
            present = body.get(key)
            if isinstance(present, dict) and bytes(value)[:1] == b"{" and (inner := read_object(value)):
                self.put(present, inner, f"{at}.{key}", losses)
            elif written and key not in body and key not in meant:
                body[key] = value
            elif key not in body or not same(Json(msgspec.json.encode(present)), value):
                losses.append(not_here(self._target, f"{at}.{key}"))


def telling(extra: Extra, words: Words) -> Extra:
    """The unnamed members of an item or a part that say something. Clients send an answer back as they got it, with a
    null for the refusal that it is not."""
    usual = silent(words)
    return {key: value for key, value in extra.items() if key not in usual or not says_nothing(value, usual[key])}


def says_nothing(value: Json, usual: str = "") -> bool:
    """Whether a value is null or empty, as is an object whose members all are, or are zero. Some servers write one for
    the sound that an answer has not. `usual`: a type that an object may say alone, and nothing by it."""
    if value in _EMPTY:
        return True
    if bytes(value)[:1] != b"{":
        return False
    members = read_object(value)
    if usual and len(members) == 1 and members.get("type") == json_of(usual):
        return True
    return all(one in _UNSET for one in members.values())


def holders(words: Words) -> frozenset[str]:
    """The members that hold others, by those words."""
    return _names(words.get("holders", ""))


def silent(words: Words) -> dict[str, str]:
    """The members that an answer has whether they say anything or not, by those words, and the type that says nothing
    there; most have none."""
    return _usual(words.get("silent", ""))


@cache
def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


@cache
def _usual(words: str) -> dict[str, str]:
    return {name: type_ for name, _, type_ in (word.partition("=") for word in words.split())}


def message_path(at: str) -> str:
    """The source path of the message that holds what stands at a path."""
    return at[: at.find("]") + 1] or at


def member_path(words: Words, thing: Struct, at: str, field: str) -> str:
    """The source path of a field of an item, or of the part that stands at a path. The name of who speaks is that of
    the message; what a thought is of is its kind."""
    at = at or thing.at if isinstance(thing, Item) else at
    if field == "name" and isinstance(thing, System | User | Assistant):
        return f"{message_path(at)}.name"
    return f"{at}.kind" if field == "of" else at + _worded(words, _kind(thing), f".{field}")


def in_source_words(request: Request, losses: list[Loss]) -> list[Loss]:
    """Losses at members of items and tools, as the model calls them, with the paths that these have in the source."""
    if request.origin is None or not losses:
        return losses
    body = _Body(request.source)
    items: dict[str, Item] = {}
    silent: set[str] = set()
    for item in request.items:
        items.setdefault(item.at, item)
        silent.update(_silent(item, request.words))
    longest = max(map(len, items), default=0)
    found: list[Loss] = []
    for loss in losses:
        if loss.path.startswith(_TOOLS):
            found.append(loss)
        elif loss.path not in silent or not isinstance(loss, UnnamedLoss):
            found += _in_words(loss, items, longest, request.words, body)
    return at_source(request, found)


def _silent(item: Item, words: Words) -> Iterator[str]:
    """Where members say nothing around an item, and in its parts as they stand in the source."""
    around = [(message_path(item.at), item.envelope)] if item.envelope else []
    parts: list[Part] = getattr(item, "content", [])
    within = [(part_path(item, index), part.extra) for index, part in enumerate(parts) if part.extra]
    for at, extra in (*around, *within):
        yield from (f"{at}.{key}" for key in extra.keys() - telling(extra, words).keys())


def answer_in_source_words(response: Response, words: Words, losses: list[Loss], number: int = 0) -> list[Loss]:
    """Losses of an answer, as the model calls its members, with the paths that these have in the source. `number`: of
    the answer among those of a body, of which words name the first."""
    if number:
        words = {key: word.replace(_FIRST, f"choices[{number}]", 1) for key, word in words.items()}
    ends = {f"$.{name}": f"$.{words[key]}" for name in _ENDS if (key := f"response.{name}") in words}
    losses = [replace(loss, path=ends[loss.path]) if loss.path in ends else loss for loss in losses]
    losses = [one for loss in losses for one in _apart(loss, response, words, number)]
    conversation = Conversation(items=response.items)
    return in_source_words(Request(conversation=conversation, origin=response.origin, words=words), losses)


def _apart(loss: Loss, response: Response, words: Words, number: int) -> list[Loss]:
    """A loss of all that is unnamed in an object of the body, taken apart: its other members are not lost. Nor is the
    index of a choice that has the same one where it is written."""
    key = f"response.{loss.path[2:]}"
    if not isinstance(loss, UnnamedLoss) or key not in words or loss.path[2:] not in response.extra:
        return [loss]
    value = response.extra[loss.path[2:]]
    places = _leaves(value, f"$.{words[key]}", key, words)
    if number and key == "response.choices" and bytes(read_object(value).get("index", b"")) == b"%d" % number:
        places.remove(f"$.{words[key]}.index")
    return [replace(loss, path=place) for place in places]


def _leaves(value: Json, at: str, key: str, words: Words) -> list[str]:
    """The members of an object at their places, but for those that say nothing, as a count of none; for one that is
    read member by member itself, its members."""
    usual, name, counts = silent(words), key.rpartition(".")[2], key.startswith(_USAGE)
    if words.get(key) == "" or (counts and value in _UNSET):
        return []
    if (counts or name in usual) and says_nothing(value, usual.get(name, "")):
        return []
    if key not in words or bytes(value)[:1] != b"{":
        return [at]
    members = read_object(value)
    return [leaf for name in members for leaf in _leaves(members[name], f"{at}.{name}", f"{key}.{name}", words)]


def at_source(request: Request, losses: list[Loss]) -> list[Loss]:
    """Losses of a writer who knows the source's words for items: members of tools, and texts without parts there."""
    found = [_tool_in_words(loss, request) if loss.path.startswith(_TOOLS) else _plain(loss) for loss in losses]
    return texts_in_source(request, _members_beside(request, found))


def texts_in_source(request: Request, losses: list[Loss]) -> list[Loss]:
    """Losses in a text that is a string in its source, at that string."""
    messages = {message_path(loss.path) for loss in losses if loss.path.endswith(_FIRST_PARTS)}
    if request.origin is None or not messages:
        return losses
    # A long conversation has many items, and a loss in a few of them.
    items = [item for item in request.items if message_path(item.at) in messages or "[" not in item.at]
    body = _Body(request.source)
    strings = {part_path(item, 0): _string_path(item, body) for item in items if _is_string(item, request.words, body)}
    return [_at(loss, strings.get(loss.path, loss.path)) for loss in losses]


def _members_beside(request: Request, losses: list[Loss]) -> list[Loss]:
    """Return losses of parts that stand in no content of the source at the member beside it that says them."""
    if request.source is None or b'"refusal"' not in request.source.data:
        return losses
    found: list[Loss] = []
    body = _Body(request.source)
    for loss in losses:
        place = _PART_OF_MESSAGE.match(loss.path)
        refused = place is not None and body.get(f"{place[1]}.refusal") is not None
        if place is not None and refused and int(place[2]) >= _count(body.get(f"{place[1]}.content")):
            found.append(_at(loss, f"{place[1]}.refusal{loss.path[place.end() :]}"))
        else:
            found.append(loss)
    return found


def _count(content: Json | None) -> int:
    """Return how many parts a content has, of which a text without a list is one."""
    start = bytes(memoryview(content)[:1]) if content is not None else b"n"
    return len(read_list(content)) if content is not None and start == b"[" else int(start != b"n")


class _Body:
    """The body that a request came from, for a look at what stands at a path. One that is not known has nothing."""

    __slots__ = ("_known", "_source")

    def __init__(self, source: SourceBody | None) -> None:
        self._source = source
        self._known: dict[str, Any] = {}

    def get(self, path: str) -> Json | None:
        """Return the value at a path of names and indexes; None where there is none."""
        if self._source is None:
            return None
        if not self._known:
            self._known["$"] = Json(self._source.data)
        found: Any = self._known["$"]
        at = "$"
        for step in _STEP.findall(path):
            inner = self._inner(at, found)
            at += step
            key: Any = step[1:] if step[0] == "." else int(step[1:-1])
            there = key in inner if isinstance(inner, dict) else isinstance(key, int) and key < len(inner)
            if not there:
                return None
            found = inner[key]
        return found  # type: ignore[no-any-return]

    def _inner(self, at: str, value: Json) -> Any:
        inner = self._known.get(f"{at}/")
        if inner is None:
            start = bytes(memoryview(value)[:1])
            inner = read_object(value) if start == b"{" else read_list(value) if start == b"[" else []
            self._known[f"{at}/"] = inner
        return inner


class Option(Protocol):
    """A member of a body that holds settings."""

    @property
    def key(self) -> str:
        """Its name."""
        ...

    @property
    def fields(self) -> tuple[str, ...]:
        """The settings."""
        ...


Runs = Iterator[tuple[Json | None, Sequence[Item]]]


class Slices:
    """The body that a request came from, read again. Where a message, an item, a setting or the tools are still what
    the body says, that goes back to the API of origin as it came, whatever shape it has. All else is written anew.

    `said` is what reading the body gives, `members` are its members as they came, `places` where in it items stand that
    were read elsewhere. Without members there is no such body, and everything is written anew.
    """

    __slots__ = ("_groups", "_lists", "_places", "members", "said")

    def __init__(self, said: Request, members: dict[str, Json], places: Mapping[str, str]) -> None:
        self.said = said
        self.members = members
        self._places = places
        self._groups: dict[str, list[Item]] = {}
        for item in said.items:
            self._groups.setdefault(message_path(item.at), []).append(item)
        self._lists: dict[str, list[Json]] = {}

    def runs(self, items: Sequence[Item]) -> Runs:
        """Yield items in runs: those of a message that is as it came with its slice, and all between with None."""
        if not self._groups and items:
            yield None, items
            return
        anew: list[Item] = []
        for path, run in self._messages(items):
            before = self._groups.get(path)
            if before is None or not path.endswith("]") or not _are_same(run, before):
                anew += run
                continue
            if anew:
                yield None, anew
                anew = []
            yield self._slice(path), run
        if anew:
            yield None, anew

    def settings(self, request: Request, options: Iterable[Option]) -> dict[str, Json | None]:
        """Return the members that settings came as, of which nothing has changed; None where there was no member."""
        if not self.members:
            return {}
        said = self.said
        changed = {
            field
            for field in Settings.__struct_fields__
            if getattr(said.settings, field) != getattr(request.settings, field)
        }
        return {
            option.key: self.members.get(option.key)
            for option in options
            if changed.isdisjoint(option.fields) and said.extra.get(option.key) == request.extra.get(option.key)
        }

    def place(self, item: Item) -> str:
        """Return where an item stands in the body, or stood where it was read; empty where there is none."""
        return self._places.get(item.at, item.at) if self.members else ""

    def member(self, name: str, items: Sequence[Item]) -> Json | None:
        """Return a member as it came, if it says these items and no other."""
        at = f"$.{name}"
        said = [item for item in self.said.items if item.at == at or item.at.startswith(f"{at}[")]
        return self.members[name] if said and _are_same(items, said) else None

    def tools(self, request: Request, *names: str) -> dict[str, Json] | None:
        """Return the members that hold tools as they came, if they still say all tools of the request."""
        if not self.said.tools or self.said.tools != request.tools:
            return None
        return {name: self.members[name] for name in names if name in self.members and name not in request.extra}

    def _messages(self, items: Sequence[Item]) -> Iterator[tuple[str, list[Item]]]:
        run: list[Item] = []
        before = ""
        for item in items:
            path = message_path(self.place(item))
            if run and path != before:
                yield before, run
                run = []
            run.append(item)
            before = path
        if run:
            yield before, run

    def _slice(self, path: str) -> Json:
        name, _, index = path.removeprefix("$.").partition("[")
        if name not in self._lists:
            self._lists[name] = read_list(self.members[name])
        return self._lists[name][int(index[:-1])]


NO_SLICES = Slices(Request(), {}, {})
"""A request that is written to another API, or comes from none, goes back to no slices."""


def _are_same(items: Sequence[Item], before: Sequence[Item]) -> bool:
    return len(items) == len(before) and all(map(_is_same, items, before))


def _is_same(item: Item, before: Item) -> bool:
    """Return whether an item is what was read. One that was to go on may be finished now: where it stands says that."""
    return item == before or (before.open and not item.open and replace(item, open=True) == before)


def _is_string(item: Item, words: Words, body: _Body) -> bool:
    """Whether the first part of an item stands in no list in its source."""
    content: list[Part] = getattr(item, "content", [])
    if not content or type(content[0]) is not Text or content[0].extra or part_path(item, 0) == item.at:
        return False
    held = body.get(content_path(item)) if "[" in item.at else None
    if held is not None:
        return bytes(held)[:1] != b"["
    usual = isinstance(item, ToolResult) or words.get("content") == "string" or "[" not in item.at
    return usual and all(_beside(item, part) for part in content[1:])


def _string_path(item: Item, body: _Body) -> str:
    """The source path of that part: the content, or for a member of the body (`$.input`) what the member holds."""
    if "[" in item.at:
        return content_path(item)
    held = body.get(item.at)
    return f"{item.at}[0]" if held is not None and bytes(held)[:1] == b"[" else item.at


def _tool_in_words(loss: Loss, request: Request) -> Loss:
    end = loss.path.find("]")
    number, place, member = loss.path[len(_TOOLS) : end], loss.path[: end + 1], loss.path[end + 1 :]
    tools, paths, words = request.conversation.tools, request.paths, request.words
    if end < 0 or not number.isdecimal() or int(number) >= len(tools):
        return _plain(loss)
    tool = tools[int(number)]
    if member[1:] not in tool.extra:
        if not member and place not in paths and "tool" not in words:
            return _plain(loss)
        member = _worded(words, "tool", member)
    path = paths.get(place)
    if path is None:
        path = place
        inner = words.get(f"{tool.type}_tool") if member else None
        if inner and not any(_leads_into(member, key) for key in tool.envelope):
            path = f"{place}.{inner}"
    return _at(loss, path + member)


def _leads_into(path: str, key: str) -> bool:
    """Whether a path below an object leads to this member of it, or into that."""
    return path.startswith(f".{key}") and path[len(key) + 1 : len(key) + 2] in ("", ".", "[")


def _in_words(loss: Loss, items: Mapping[str, Item], longest: int, words: Words, body: _Body) -> list[Loss]:
    for at in _prefixes(loss.path, longest):
        if at in items:
            item, unnamed_one = items[at], isinstance(loss, UnnamedLoss)
            members = _unnamed_of(item, loss.path[len(at) :], words)
            return [_at(loss, _path(item, member, words, body, unnamed=unnamed_one)) for member in members]
    return [loss]


def _at(loss: Loss, path: str) -> Loss:
    return loss if path == loss.path and type(loss) is Loss else Loss(path, loss.kind, loss.detail)


def _plain(loss: Loss) -> Loss:
    return loss if type(loss) is Loss else Loss(loss.path, loss.kind, loss.detail)


def _unnamed_of(item: Item, member: str, words: Words) -> list[str]:
    """What of a member of an item or of its part is unnamed: the member itself, or some of what it holds."""
    holder, _, key = member.rpartition(".")
    part = _part_at(item, holder)
    extra = item.extra if not holder else part.extra if part is not None else {}
    return (
        [f"{holder}.{path}" for path in unnamed(telling({key: extra[key]}, words), words)] if key in extra else [member]
    )


def _part_at(item: Item, member: str) -> Part | None:
    found = _PART.fullmatch(member)
    content: list[Part] = getattr(item, "content", [])
    return content[int(found[1])] if found and int(found[1]) < len(content) else None


def _prefixes(path: str, longest: int) -> Iterable[str]:
    """The path, and every path above it that is no longer than `longest`, longest first. Keys of people may hold dots:
    those prefixes name no item."""
    yield path
    for end in range(min(len(path) - 1, longest), 0, -1):
        if path[end] in ".[":
            yield path[:end]


def _path(item: Item, member: str, words: Words, body: _Body, *, unnamed: bool) -> str:
    content: list[Part] = getattr(item, "content", [])
    found = _PART.match(member)
    if found and int(found[1]) < len(content):
        index, rest = int(found[1]), member[found.end() :]
        return part_path(item, index) + (rest if unnamed else _worded(words, _kind(content[index]), rest))
    if unnamed:
        return item.at + member  # maybe called like a member of the model's
    if member == ".open":
        return item.at
    if member == ".content":
        return content_path(item)
    if item.at.endswith(".function_call"):  # the one call whose members stand in no object of their own
        return item.at + member
    kind = item.slot if f"{item.slot}{member}" in words else _kind(item)
    path = item.at + _worded(words, kind, member)
    own = item.at + member  # some calls of one kind name a member as the model does, others as its API does
    return own if body.get(path) is None and body.get(own) is not None else path


def _kind(thing: Struct) -> str:
    """Return what words call an item or a part."""
    if isinstance(thing, Item):
        return "custom_call" if isinstance(thing, ToolCall) and thing.custom else thing.kind
    return type(thing).__name__.lower()


def _worded(words: Words, kind: str, member: str) -> str:
    word = words.get(f"{kind}{member}")
    return member if word is None else f".{word}" if word else ""


def _is_block(item: Item) -> bool:
    """Whether an item was read from nothing but its content: a system block, a thought in a message."""
    if isinstance(item, System):
        return item.at.startswith(("$.system[", "$.instructions["))
    return isinstance(item, Thinking) and item.at.startswith("$.messages[")


_RESULTS = {"$.input[": ".output", "$.contents[": ".functionResponse.response"}
"""What the content of a result is called where that is not `content`, by what its path begins with."""


def _content_of(item: Item) -> str:
    if not isinstance(item, ToolResult):
        return ".content"
    return next((name for root, name in _RESULTS.items() if item.at.startswith(root)), ".content")


def _is_value(item: Item) -> bool:
    """Return whether the content of a result is one value in its source, and no list of parts."""
    return item.at.startswith("$.contents[")


def _beside(item: Item, part: Part) -> str:
    """The member beside the content that says a part, if one does."""
    if not isinstance(item, Assistant) or not item.at.startswith("$.messages["):
        return ""
    return "audio" if isinstance(part, Audio) and part.id is not None else ""
