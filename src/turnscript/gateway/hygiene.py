"""Owns hygiene: taking out of a request what a model should not read, so that a session's prompts only ever grow.

Every token of a prompt costs time, and a changed byte near its beginning costs a server the whole of its cache. What is
done here, each with a `Loss` unless it means nothing to a model at all:

- Blocks of the instructions that change with every request and are for a server (a billing header) are dropped.
- Marks for a cache (`cache_control`), other members in `MEANINGLESS` and the ids of items are taken off. They say
  nothing about the text; nor do unnamed members that are null or empty: SDKs write all that they know. The name of its
  tool, which many clients write into a result, is there already.
- A tool that is to be loaded later (`defer_loading`) leaves the list of tools. Where a tool result names it, a
  `ToolsChange` follows, so that the prompt before that place stays as it was. Definitions that a search brought, and
  additions and removals in the middle of a conversation, become a `ToolsChange` where they stand.
- A `ToolsChange` before anybody has spoken is the list of tools itself.
- Proofs of thoughts that another server made are taken off: whoever restored the thoughts has reported them. A thought
  with nothing else in it is dropped, because a model would take it for one that was empty. Proofs that are those of
  the server that reads the request stay, and all of such a thought.
- Texts without a character are dropped: in answers, which a model would otherwise not have begun like that; in
  instructions; and beside other parts.

A content that is a string and one that is a list with one text are the same content, and no format tells them apart.
The request that is given is not changed: the answer is written for that one, the prompt from the new one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from operator import is_
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Extra,
    Item,
    Opaque,
    Part,
    Raw,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    loaded,
)
from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, members_in, plain, read_object
from turnscript.core.losses import Loss, LossKind
from turnscript.core.source_paths import message_path, part_path, texts_in_source, unnamed
from turnscript.gateway.offers import (
    REFERENCE,
    defined,
    names_of,
    place_of,
    references,
    split,
    tool_paths,
    undeferred,
    unknown,
)

VOLATILE = (r"x-anthropic-billing-header:[^\n]*(?:\n|\Z)",)
"""What of instructions changes with every request: patterns that match from the beginning of a line."""

_NO_BRANCH = re.compile(r"\\.|\[[^\]]*\]", re.DOTALL)
_GROUP = re.compile(r"\([^()]*\)")
_PLAIN_WORDS = re.compile(r"[\w :-]*(?![*+?{])")


class Volatile:
    """What changes with every request, as patterns say it. Where each begins with words, a text without them has none
    of it, which is known many times as fast."""

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self._pattern = re.compile("|".join(f"^(?:{one})" for one in patterns), re.MULTILINE) if patterns else None
        words = [_words_of(one) for one in patterns]
        self._words = words if all(words) else [""]

    def stands_in(self, text: str) -> bool:
        """Whether a text has any of it."""
        for words in self._words:
            if words in text:
                return self._pattern is not None and self._pattern.search(text) is not None
        return False

    def without(self, text: str) -> str:
        """A text without it."""
        return text if self._pattern is None else self._pattern.sub("", text)


def _words_of(pattern: str) -> str:
    """The words that whatever a pattern matches begins with; none where that is not plain, as where it has branches."""
    outside = _NO_BRANCH.sub("", pattern)
    while (inner := _GROUP.sub("", outside)) != outside:
        outside = inner
    found = _PLAIN_WORDS.match(pattern) if "|" not in outside else None
    return found[0] if found else ""


volatile_of = lru_cache(maxsize=16)(Volatile)
"""The same for the same patterns."""


MEANINGLESS = frozenset(
    {"cache_control", "prompt_cache_breakpoint", "eager_input_streaming", "annotations", "logprobs", "citations"}
    | {"internal_chat_message_metadata_passthrough", "provider_specific_fields", "status", "caller", "execution"}
    | {"cache_breakpoint", "__copilotMessageSource", "environment", "max_output_length", "created_by", "type"}
)
"""Unnamed members of items, parts and tools that say nothing to a model."""

UNREAD = frozenset(
    {"betas", "cache_control", "client_metadata", "diagnostics", "include", "metadata", "prompt_cache_breakpoint"}
    | {"reasoning", "speed", "text", "user_id"}
    # Who pays, how soon, what else is counted or guessed; and how often tools run that never run here.
    | {"background_options", "billing_policy", "fallback_credit_token", "user_profile_id", "workspace_id"}
    | {"max_tool_calls", "prediction", "usage"}
)
"""Unnamed members of a request that change nothing about what a model should write."""
_USUAL: Mapping[str, Any] = {
    "add_generation_prompt": True,
    "include_reasoning": True,
    "modalities": ["text"],
    "search_parameters": {"mode": "off"},
    "truncation": "disabled",
    "verbosity": "medium",
}
"""Values that ask for what is done anyway. Some clients write all that they know into each request."""
_NO_EFFECT = "this has no effect here"
_ASKED = {"text": "format"}
"""What stands in some of them, and does: a shape of the answer that nobody here knows."""

_ID_OF: dict[type[Item], str] = {System: "id", User: "id", Assistant: "id", Thinking: "id"}
_ID_OF |= {ToolCall: "item_id", ToolResult: "item_id"}
"""Where an API names an item itself; the ids that tell which call a result answers are others."""

_SEARCHES = "tool_search"
_DIRECTIVES = ("tool_addition", "tool_removal")
_FOUND = "tool_search_output"


class Hygiene(Struct, frozen=True, kw_only=True):
    """What is to be done. `deferred`: tools that are loaded later appear at their `place`, or all at the `front`.

    `empty_texts`: whether texts without a character are dropped.
    """

    volatile: tuple[str, ...] = VOLATILE
    meaningless: frozenset[str] = MEANINGLESS
    deferred: Literal["place", "front"] = "place"
    empty_texts: bool = True


HYGIENE = Hygiene()


class Cleaned(Struct):
    """A request for a prompt. `hidden`: tools that nothing has named yet; they are declared, and may be called."""

    request: Request
    losses: list[Loss]
    hidden: list[Tool]


def clean(request: Request, rules: Hygiene = HYGIENE) -> Cleaned:
    """The request as its prompt should be made from it, and what of it is not there any more."""
    volatile = volatile_of(rules.volatile)
    for item in request.conversation.items:
        if not _is_clean(volatile, item):
            return _Cleaning(request, rules, volatile).run(False)
    return _Cleaning(request, rules, volatile).run(True) if request.conversation.tools else Cleaned(request, [], [])


def _is_clean(volatile: Volatile, item: Item) -> bool:
    """Whether an item is texts that say something, and nothing more; then nothing is to be done with it."""
    kind = type(item)
    if item.extra or item.envelope:
        return False
    if kind not in _ID_OF or getattr(item, _ID_OF[kind]) is not None:
        return False
    if kind is ToolCall:
        return True
    if kind is Thinking and (item.signature or item.encrypted or item.redacted):  # type: ignore[attr-defined]
        return False
    for part in item.content:  # type: ignore[attr-defined]
        if type(part) is not Text or not part.text or part.extra or (kind is System and volatile.stands_in(part.text)):
            return False
    return bool(item.content)  # type: ignore[attr-defined]


class _Cleaning:
    def __init__(self, request: Request, rules: Hygiene, volatile: Volatile) -> None:
        self._request = request
        self._rules = rules
        self._volatile = volatile
        self._losses: list[Loss] = []
        self._hidden: dict[str, Tool] = {}
        self._seen: dict[str, Tool] = {}  # all definitions so far, those of removed tools too
        self._known: set[str] = set()
        self._searched = False
        self._calling = {message_path(item.at) for item in request.items if type(item) is ToolCall}

    def run(self, clean_items: bool) -> Cleaned:
        """`clean_items`: whether nothing is to be done with any item."""
        request = self._request
        tools, items = self._front(request.tools), request.items
        if not clean_items:
            items = [kept for item in self._with_changes(items) if (kept := self._item(item)) is not None]
        cleaned = copy(request)
        cleaned.conversation = Conversation(*_led(items, tools))
        losses = texts_in_source(request, self._losses)
        return Cleaned(cleaned, losses, list(self._hidden.values()))

    def _lose(self, path: str, kind: LossKind, detail: str) -> None:
        self._losses.append(Loss(path, kind, detail))

    # Tools.

    def _front(self, tools: Sequence[Tool]) -> list[Tool]:
        """The tools that are offered from the start."""
        changes = [item for item in self._request.items if type(item) is ToolsChange]
        declared = [*tools, *(tool for change in changes for tool in change.added)]
        if not declared:
            return []
        self._searched = any(tool.type.startswith(_SEARCHES) for tool in declared)
        placed = [self._tool(tool, path) for tool, path in zip(tools, tool_paths(tools), strict=True)]
        front = [shown for tool in placed if (shown := self._offered(tool)) is not None]
        for tool in front:
            self._see(tool)
        return front

    def _see(self, tool: Tool) -> None:
        """Take note of a tool that is offered now."""
        for name in names_of(tool):
            self._hidden.pop(name, None)
            self._seen[name] = tool
            self._known.add(name)

    def _offered(self, tool: Tool) -> Tool | None:
        """What of a tool is offered where it is declared; the rest of it is hidden until it is named."""
        shown, later = split(tool) if tool.tools or tool.extra else (tool, [])
        if later and (self._searched or self._rules.deferred == "front"):
            why = "the search for it cannot run here" if self._searched else "so it is configured"
            for one in later:
                self._lose(place_of(one), "moved", f"offered from the start: {why}")
            return undeferred(tool)
        for one in later:
            self._hidden.setdefault(names_of(one)[0], one)
            self._seen.setdefault(names_of(one)[0], one)
        return shown

    def _tool(self, tool: Tool, path: str) -> Tool:
        """A tool without what is not for the model, knowing its place."""
        at, extra, envelope = tool.at or path, self._plain(tool.extra), self._plain(tool.envelope)
        inner = tool.tools and [self._tool(one, f"{path}.tools[{index}]") for index, one in enumerate(tool.tools)]
        return replace(tool, at=at, extra=extra, envelope=envelope, tools=inner)

    def _plain(self, extra: Extra) -> Extra:
        meaningless = self._rules.meaningless
        if extra and not meaningless.isdisjoint(extra):
            return {key: value for key, value in extra.items() if key not in meaningless}
        return extra

    # Changes of the tools, where they stand.

    def _with_changes(self, items: Sequence[Item]) -> Iterator[Item]:
        """The items, and behind each that changes the tools (behind all results of one turn) the change."""
        change = ToolsChange()
        for item in items:
            waits = type(item) is ToolResult or _is_found(item)
            if not waits and (change.added or change.removed):
                yield change
                change = ToolsChange()
            change.at = item.at
            kept = self._changed(item, change)
            if kept is not None:
                yield kept
            if type(item) is ToolsChange and not waits and (change.added or change.removed):
                yield change
                change = ToolsChange()
        if change.added or change.removed:
            yield change

    def _changed(self, item: Item, change: ToolsChange) -> Item | None:
        """Take what an item says about tools. Gives the item without that, None if there is nothing more in it."""
        if type(item) is ToolsChange:
            change.removed += item.removed
            self._known.difference_update(item.removed)
            for index, tool in enumerate(item.added):
                given = self._tool(tool, f"{item.at}.tools[{index}]")
                shown = undeferred(given) if _is_found(item) else self._offered(given)
                if shown is not None:
                    self._add(change, shown)
            return None
        if type(item) is Opaque:
            return None if self._told_by_opaque(item, change) else item
        if (type(item) is User or type(item) is ToolResult or type(item) is System) and _tells(item):
            return self._without_references(item, change)
        return item

    def _add(self, change: ToolsChange, tool: Tool) -> None:
        """Offer a tool from a place on, unless it is offered already."""
        new = unknown(tool, self._known)
        if new is not None:
            self._see(new)
            change.added.append(new)

    def _load(self, name: str, change: ToolsChange, path: str) -> None:
        tool = self._seen.get(name)
        if tool is not None:
            self._add(change, tool)
        else:
            self._lose(path, "dropped", f"no tool named {name!r} is declared")

    def _without_references(self, item: ToolResult | System | User, change: ToolsChange) -> Item | None:
        """An item whose references to tools are words, which a model reads better than their JSON."""
        content: list[Part] = []
        named: list[str] = []
        for index, part in enumerate(item.content):
            if type(part) is Raw and part.type == REFERENCE:
                name = next(references(plain(part.value)), "")
                self._load(name, change, part_path(item, index))
                named.append(name)
            elif type(part) is Raw and part.type in _DIRECTIVES:
                self._directive(part.type, part.value, change, part_path(item, index))
            else:
                content.append(part)
        if named:
            content.append(Text(text=loaded(named)))
        if not content and type(item) is not ToolResult:
            return None
        cleaned = copy(item)
        cleaned.content = content
        return cleaned

    def _directive(self, type_: str, value: Json, change: ToolsChange, path: str) -> None:
        """`tool_addition` and `tool_removal`: of a tool by its name, or with its definition."""
        tool = plain(value).get("tool")
        tool = tool if isinstance(tool, dict) else {}
        name = str(tool.get("name", tool.get("tool_name", "")))
        if type_ == "tool_removal":
            change.removed.append(name)
            self._known.discard(name)
        elif isinstance(tool.get("definition"), dict):
            definition = read_object(read_object(value)["tool"])["definition"]
            self._define(definition, change, f"{path}.tool.definition")
        else:
            self._load(name, change, path)

    def _define(self, definition: Json, change: ToolsChange, path: str) -> None:
        try:
            tool: Tool | None = defined(read_object(definition))
        except (InvalidRequest, msgspec.ValidationError):
            tool = None
        if tool is None or (not tool.name and tool.type == "function"):
            self._lose(path, "dropped", "this is no definition of a tool")
            return
        self._add(change, undeferred(self._tool(tool, path)))

    def _told_by_opaque(self, item: Opaque, change: ToolsChange) -> bool:
        """Take the tools that the result of a search has found. Gives whether the item was one."""
        members = members_in(item.value)
        if item.type == _FOUND and bytes(members.get("tools", b""))[:1] == b"[":
            for index, one in enumerate(msgspec.json.decode(members["tools"], type=list[Json])):
                self._define(one, change, f"{item.at}.tools[{index}]")
            return True
        if item.type in _DIRECTIVES:
            self._directive(item.type, item.value, change, item.at)
            return True
        names = list(references(plain(item.value))) if REFERENCE.encode() in bytes(item.value) else []
        for name in names:
            self._load(name, change, item.at)
        return bool(names)

    # Items.

    def _item(self, item: Item) -> Item | None:
        """An item without what a model need not read; None if nothing of it is left."""
        if type(item) is Thinking and (item.signature or item.encrypted or item.redacted):
            if self._request.proofs is not None:
                return item
            if not any(type(part) is not Text or part.text for part in (*item.content, *item.summary)):
                return None  # there is nothing to read in it
            item = replace(item, signature=None, encrypted=None, redacted=None)
        extra, id_ = self._said_by(_once(item)), _ID_OF.get(type(item), "")
        envelope = item.envelope and self._said_by(item.envelope)
        content: list[Part] | None = getattr(item, "content", None)
        parts = content if content is None else [self._part(part) if part.extra else part for part in content]
        if type(item) is System and parts is not None:
            parts = self._still(item, parts)
        if parts is not None and self._rules.empty_texts:
            parts = self._said(item, parts)
            if not parts and content and item.kind in ("system", "assistant"):
                return None
        named = bool(id_) and getattr(item, id_) is not None
        same = extra is item.extra and envelope is item.envelope and not named
        if same and (parts is content or _same(parts, content)):
            return item
        cleaned = copy(item)
        cleaned.extra, cleaned.envelope = extra, envelope
        if named:
            setattr(cleaned, id_, None)
        if parts is not None:
            cleaned.content = parts  # type: ignore[attr-defined]
        return cleaned

    def _said_by(self, extra: Extra) -> Extra:
        """Unnamed members without those that say nothing, to a model or at all."""
        if not extra:
            return extra
        extra = self._plain(extra)
        if any(bytes(value).strip() in _NOTHING for value in extra.values()):
            return {key: value for key, value in extra.items() if bytes(value).strip() not in _NOTHING}
        return extra

    def _part(self, part: Part) -> Part:
        extra = self._said_by(part.extra)
        if extra is part.extra:
            return part
        part = copy(part)
        part.extra = extra
        return part

    def _still(self, item: System, parts: list[Part]) -> list[Part]:
        """Instructions without what changes with every request."""
        kept: list[Part] = []
        for index, part in enumerate(parts):
            if type(part) is Text and self._volatile.stands_in(part.text):
                self._lose(part_path(item, index), "dropped", "this changes with every request and is for a server")
                text = self._volatile.without(part.text)
                if text.strip():
                    kept.append(Text(text=text, extra=part.extra))
            else:
                kept.append(part)
        return kept

    def _said(self, item: Item, parts: list[Part]) -> list[Part]:
        """The parts without empty texts. What a user or a tool said stays, however little it is. A message of calls
        whose text is empty has none, nor have empty instructions anything to lose: many clients write both."""
        kept = [part for part in parts if not (type(part) is Text and not part.text)]
        if len(kept) == len(parts) or (not kept and item.kind not in ("system", "assistant")):
            return parts
        if item.kind != "system" and (kept or message_path(item.at) not in self._calling):
            for index, part in enumerate(parts):
                if type(part) is Text and not part.text:
                    self._lose(part_path(item, index), "dropped", "an empty text says nothing")
        return kept


def _once(item: Item) -> Extra:
    """The unnamed members of an item, without the name of a tool where that is the item's own name, too."""
    name = item.extra.get("name") if type(item) is ToolResult else None
    if name is None or plain(name) != getattr(item, "name", None):
        return item.extra
    return {key: value for key, value in item.extra.items() if key != "name"}


def _same(parts: list[Part] | None, content: list[Part] | None) -> bool:
    return parts is not None and content is not None and len(parts) == len(content) and all(map(is_, parts, content))


def _led(items: list[Item], tools: list[Tool]) -> tuple[list[Item], list[Tool]]:
    """Items and tools, with changes before anybody has spoken made: they are the list of tools itself."""
    kept: list[Item] = []
    for index, item in enumerate(items):
        if type(item) is ToolsChange:
            tools = [tool for tool in tools if tool.name not in item.removed] + item.added
        elif type(item) is System:
            kept.append(item)
        else:
            return kept + items[index:], tools
    return kept, tools


def _tells(item: ToolResult | System | User) -> bool:
    raw = [part for part in item.content if type(part) is Raw]
    return bool(raw) and any(part.type in (REFERENCE, *_DIRECTIVES) for part in raw)


def _is_found(item: Item | None) -> bool:
    """Whether an item is what a search has found: a change that belongs to the result before it."""
    return type(item) is ToolsChange and item.turn == "join"


# What is reported beside.


def unread(request: Request, handled: Collection[str] = ()) -> list[Loss]:
    """The members of a request that nobody reads and that a model's answer should have depended on.

    `handled`: those that the caller takes care of.
    """
    losses: list[Loss] = []
    for key, value in request.extra.items():
        if key in UNREAD or key in handled or bytes(value).strip() in _NOTHING:
            if _asks(key, value):
                losses.append(Loss(f"$.{key}.{_ASKED[key]}", "dropped", _NO_EFFECT))
        elif not _is_usual(key, plain(value)):
            losses += [Loss(f"$.{path}", "dropped", _NO_EFFECT) for path in unnamed({key: value}, request.words)]
    settings = request.settings
    for field in ("verbosity", "moderation"):
        if (said := getattr(settings, field)) is not None and not _is_usual(field, said):
            losses.append(Loss(request.paths.get(field, f"$.{field}"), "dropped", _NO_EFFECT))
    return losses


def _asks(key: str, value: Json) -> bool:
    """Whether a member that changes nothing has one in it that does."""
    members = plain(value) if key in _ASKED else None
    return isinstance(members, dict) and members.get(_ASKED[key]) is not None


_NOTHING = frozenset({b"null", b"[]", b"{}", b'""', b"false"})


def _is_usual(key: str, value: Any) -> bool:
    """Whether the value of a member or setting asks for nothing but what is done anyway."""
    if key != "context_management":
        return value in (None, _USUAL.get(key))
    edits = value.get("edits") if isinstance(value, dict) else None
    return isinstance(edits, list) and all(isinstance(one, dict) and one.get("keep") == "all" for one in edits)


__all__ = ["HYGIENE", "MEANINGLESS", "UNREAD", "VOLATILE", "Cleaned", "Hygiene", "clean", "unread"]
