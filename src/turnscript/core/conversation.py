"""Owns the conversation: a flat list of items made of parts, the tools, and the settings of a request or response.

One item is one block of the Universal transcript. How items group into messages is a rule of each API, so it is not
stored; where a payload departs from its API's rule, the item's `turn` says so. Nothing here knows any API or format.

The structs are not watched by the garbage collector: they hold no reference cycles, and a long session makes many.

Eight fields that every item has:
- `extra`: members of the wire object that have no name here, as JSON text, written back at their place to the same API.
- `turn`, `slot`, `envelope`, `attributes`: how it stood in its source, and what the message or the tag around it
  says. None says a shape: a body that goes back to its API is taken from its source.
- `raw`: the text exactly as a model generated it, for exact replay.
- `open`: the item is not finished: a text to be continued (a prefill), or a stream that was cut off.
- `at`: the JSON path it was read from. Only for messages to people; two items that differ in `at` alone are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from types import NoneType
from typing import Any, ClassVar, Literal, cast

import msgspec
from msgspec import Struct

from turnscript.core.json_text import Json, is_object, plain, safe_json_string, same
from turnscript.core.logprobs import TokenLogprob
from turnscript.core.losses import Loss

_NOT_COMPARED = frozenset({"as_object", "at", "paths", "words", "generated", "unread", "proofs", "source"})


class Comparable:
    """Makes structs equal to those of their own kind that say the same. They may change, so they have no hash."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and equal(cast(Struct, self), cast(Struct, other))

    def __ne__(self, other: object) -> bool:  # msgspec's own compares identities
        return not self == other


def equal(first: Struct, second: Struct) -> bool:
    """Field by field; JSON texts by meaning, provenance not at all."""
    said = _compared(type(first))
    one, other = said(first), said(second)
    return one == other or all(map(_same_value, one, other))


@cache
def _compared(kind: type[Struct]) -> Callable[[Struct], tuple[Any, ...]]:
    return attrgetter("__class__", *(name for name in kind.__struct_fields__ if name not in _NOT_COMPARED))


def _same_value(first: Any, second: Any) -> bool:
    if type(first) is str:  # most of what differs in identity
        return bool(first == second)
    if isinstance(first, Json) and isinstance(second, Json):
        return same(first, second)
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same_value(first[key], second[key]) for key in first)
    return bool(first == second)


Extra = dict[str, Json]
"""Unnamed members of a wire object, each value the JSON text it arrived as."""

Turn = Literal["", "new", "join"]


# Parts: what content is made of.


class Part(Comparable, Struct, eq=False, kw_only=True, gc=False):
    """One piece of an item's content."""

    extra: Extra = {}


class Text(Part, eq=False, gc=False):
    """Plain text."""

    text: str


class Image(Part, eq=False, gc=False):
    """A picture: by `url`, by `file_id`, or as base64 `data` with its `media_type`."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    file_id: str | None = None
    detail: str | None = None


class Document(Part, eq=False, gc=False):
    """A file: by `url`, by `file_id`, as base64 `data` (or a data URL), or as plain `text`."""

    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    file_id: str | None = None
    text: str | None = None
    filename: str | None = None
    title: str | None = None
    context: str | None = None


class Audio(Part, eq=False, gc=False):
    """Sound: base64 `data` in a `format` such as `wav`, or the `id` of something said before."""

    data: str | None = None
    format: str | None = None
    id: str | None = None


class Refusal(Part, eq=False, gc=False):
    """What the model said when it declined."""

    text: str


class Raw(Part, eq=False, gc=False):
    """A part of a kind that has no name here: the wire object, verbatim."""

    type: str
    value: Json


# Items: what a conversation is made of.


class Item(Comparable, Struct, eq=False, kw_only=True, gc=False):
    """One entry of a conversation."""

    kind: ClassVar[str] = ""
    extra: Extra = {}
    turn: Turn = ""
    """Starts a message of its own (`new`) or belongs to the one before (`join`), against the API's grouping rule."""
    slot: str = ""
    """Names which of several things of its API it was: a tool of its own, or a way to say a thought."""
    envelope: Extra | None = None
    """Unnamed members of the message around this block, if it has any; on the first block of the message."""
    attributes: Extra | None = None
    """Attributes of a transcript's tag that its format does not name, in order, if there are any."""
    raw: str | None = None
    open: bool = False
    at: str = ""


class System(Item, eq=False, gc=False):
    """Instructions. `role` is `system`, or `developer` where the API tells them apart."""

    kind: ClassVar[str] = "system"
    content: list[Part] = []
    role: str = "system"
    name: str | None = None
    id: str | None = None


class User(Item, eq=False, gc=False):
    """What the user said; `name` is the participant's."""

    kind: ClassVar[str] = "user"
    content: list[Part] = []
    name: str | None = None
    id: str | None = None


class Assistant(Item, eq=False, gc=False):
    """What the model said. `phase` is the Responses API's `commentary` or `final_answer`."""

    kind: ClassVar[str] = "assistant"
    content: list[Part] = []
    name: str | None = None
    id: str | None = None
    phase: str | None = None


class Thinking(Item, eq=False, gc=False):
    """What the model thought before it spoke.

    `of` says which kind of thought: `reason`, or OpenChatML's `reflect` and `introspect`. `signature`, `redacted` and
    `encrypted` are proofs that only the API that made them can read. `seal` is our own: it holds the text itself, so a
    thought that has one is whole, and an answer of any API carries it in the place of the API's proof.
    """

    kind: ClassVar[str] = "thinking"
    content: list[Part] = []
    summary: list[Part] = []
    of: str = "reason"
    signature: str | None = None
    redacted: str | None = None
    encrypted: str | None = None
    id: str | None = None
    seal: str | None = None


class ToolCall(Item, eq=False, gc=False):
    """A request to run a tool.

    `arguments` is the text that the model wrote, never parsed and written again: a JSON object when it is well formed,
    free text when `custom` is true. `as_object`: its source has them as an object, so nobody wrote the white space and
    the escapes in them; `respelling` says where that matters. `id` pairs it with its result; `item_id` is the Responses
    item's own id.
    """

    kind: ClassVar[str] = "tool_call"
    name: str
    arguments: str = "{}"
    as_object: bool = False
    id: str | None = None
    item_id: str | None = None
    namespace: str | None = None
    custom: bool = False

    @property
    def full_name(self) -> str:
        """Its name behind that of its namespace, for whoever knows tools by one name alone."""
        return self.name if self.namespace is None else f"{self.namespace}__{self.name}"


class ToolResult(Item, eq=False, gc=False):
    """What a tool answered. `status` is `ok`, `error` or any other word; it never changes how the result is paired."""

    kind: ClassVar[str] = "tool_result"
    content: list[Part] = []
    id: str | None = None
    name: str | None = None
    status: str | None = None
    item_id: str | None = None
    namespace: str | None = None
    custom: bool = False

    @property
    def is_error(self) -> bool:
        """Whether the tool failed."""
        return self.status == "error"


class ToolsChange(Item, eq=False, gc=False):
    """Tools that become available from here on, and names of tools that no longer are."""

    kind: ClassVar[str] = "tools_change"
    added: list[Tool] = []
    removed: list[str] = []


class Opaque(Item, eq=False, gc=False):
    """An item or content block of a kind that has no name here: the wire object, verbatim.

    `role` is the role of the message that held it, `user` or `assistant`, or empty where the API has no roles.
    """

    kind: ClassVar[str] = "opaque"
    type: str
    value: Json
    role: str = ""


_JSON = (Json, NoneType)
_STRINGS = (list, tuple, NoneType)
"""What an argument may be where another type would be taken for it, and be found out late or never."""


class Tool(Comparable, Struct, eq=False, kw_only=True, gc=False):
    """A tool that the model may call.

    `type` is `function` (with `parameters`, a JSON Schema), `custom` (free text, with `format`), `namespace` (with
    `tools`), or the wire name of a tool that the API itself runs. `declared_as`: that of a function which its client
    declares as something else. `slot`: the list that it stands in, where that is not the usual one. `envelope` holds
    unnamed members of the wrapper that one API puts around a tool. `at`: the JSON path of its definition, where lists
    of tools were put together; only for messages to people.
    """

    name: str | None = None
    description: str | None = None
    parameters: Json | None = None
    type: str = "function"
    format: Json | None = None
    strict: bool | None = None
    tools: list[Tool] = []
    extra: Extra = {}
    envelope: Extra = {}
    declared_as: str = ""
    slot: str = ""
    at: str = ""

    def __post_init__(self) -> None:
        if self.parameters.__class__ not in _JSON or self.format.__class__ not in _JSON:
            raise TypeError(
                "a tool's parameters and format are JSON text: write msgspec.Raw(json.dumps(schema).encode()), "
                f"or None (got {type(self.parameters).__name__} and {type(self.format).__name__})"
            )


def loaded(names: Sequence[str]) -> str:
    """What a result that brings tools says in words."""
    return f"Loaded: {', '.join(names)}" if names else "No tool was found."


# Requests and responses: a conversation with what was asked of the model, and what came back.


class ToolChoice(Comparable, Struct, eq=False, omit_defaults=True, gc=False):
    """Which tools the model may or must use.

    `mode` is `auto`, `none`, `required`, `named` (one tool: `name`, of `type`) or `allowed` (only `tools`, which holds
    the API's own list, `required` telling whether one of them must be called).
    """

    mode: str
    name: str | None = None
    type: str = "function"
    tools: Json | None = None
    required: bool = False
    extra: Extra = {}


class ThinkingMode(Comparable, Struct, eq=False, omit_defaults=True, gc=False):
    """Whether and how the model thinks first: `mode` as on the wire (`enabled`, ...), at most `budget` tokens."""

    mode: str
    budget: int | None = None
    display: str | None = None
    extra: Extra = {}


class ResponseFormat(Comparable, Struct, eq=False, omit_defaults=True, gc=False):
    """The shape the answer must have: `text`, `json_object`, or `json_schema` with its `schema`."""

    type: str
    name: str | None = None
    schema: Json | None = None
    strict: bool | None = None
    description: str | None = None
    extra: Extra = {}


class Settings(Comparable, Struct, eq=False, kw_only=True, omit_defaults=True, gc=False):
    """What more than one API lets a client say about the generation. None: not said.

    `thoughts`: the kinds of thought that the model is to write, for a format that has a flag for each (`reflect`, ...).
    """

    model: str | None = None
    max_tokens: int | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    top_k: int | None = None
    stop: list[str] | None = None
    stream: bool | None = None
    stream_options: Json | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    thinking: ThinkingMode | None = None
    thoughts: list[str] | None = None
    effort: str | None = None
    reasoning_summary: str | None = None
    response_format: ResponseFormat | None = None
    verbosity: str | None = None
    seed: int | None = None
    presence_penalty: int | float | None = None
    frequency_penalty: int | float | None = None
    logit_bias: Json | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: int | None = None
    user: str | None = None
    metadata: Json | None = None
    service_tier: str | None = None
    store: bool | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    prompt_cache_options: Json | None = None
    moderation: Json | None = None

    def __post_init__(self) -> None:
        if self.stop.__class__ not in _STRINGS:  # a string, as one API has it: each letter would be a stop string
            raise TypeError(f"stop is a list of strings: write [{self.stop!r}]")
        if self.thoughts.__class__ not in _STRINGS:
            raise TypeError(f"thoughts is a list of strings: write [{self.thoughts!r}]")


class Conversation(Struct, gc=False):
    """Who said what, in order, and with which tools."""

    items: list[Item] = []
    tools: list[Tool] = []


class SourceBody(Struct, frozen=True, gc=False):
    """The body of an API that a request was read from. `places`: where in it stands what was read at another place, as
    an item of an archive was. `is_partial`: it has settings alone, and is silent about the conversation."""

    data: bytes
    places: Mapping[str, str] = {}
    is_partial: bool = False


class Request(Comparable, Struct, eq=False, kw_only=True, gc=False):
    """A conversation and what is asked of the model.

    `origin` is the API the request came from, None when it was built by hand or read from a prompt. `extra` holds the
    request's members that have no name in `settings`. `tight`: of a transcript whose turns have no white space before
    their closings, though its format writes it. `unasked`: the kinds of thought in it that no flag asks for.
    `framing`: how a stream that is asked for stands on the wire, where an API has several ways: `array`. `paths` maps
    a setting to its JSON path in the source where the API calls it otherwise, `words` members of items likewise (see
    `sources`). `archived`: what else an archive says. `generated`: ids of ours in the source, by item (`pairing`).
    `unread`: what of a transcript is not here as it stood there, as losses at their lines. `proofs`: the API whose
    proofs its thoughts have, where that is another than `origin`. `source`: the body that it came from, so that what is
    unchanged goes back to its API as it came.
    """

    conversation: Conversation = msgspec.field(default_factory=Conversation)
    settings: Settings = msgspec.field(default_factory=Settings)
    extra: Extra = {}
    origin: str | None = None
    tight: bool = False
    unasked: list[str] = []
    framing: str = ""
    paths: dict[str, str] = {}
    words: Mapping[str, str] = {}
    archived: Extra = {}
    generated: dict[str, str] = {}
    unread: list[Loss] = []
    proofs: str | None = None
    source: SourceBody | None = None

    @property
    def items(self) -> list[Item]:
        """The conversation's items."""
        return self.conversation.items

    @property
    def tools(self) -> list[Tool]:
        """The conversation's tools."""
        return self.conversation.tools

    def locate(self) -> None:
        """Give items that were built by hand their place (`items[3]`), so that a message to people can name it."""
        for index, item in enumerate(self.conversation.items):
            if item.at[:1] != "$" and (not item.at or item.at.startswith("items[")):
                item.at = f"items[{index}]"


class Usage(Struct, gc=False):
    """Token counts. `input` includes what was read from or written to a cache."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_written: int = 0
    reasoning: int = 0


class Issue(Struct, frozen=True, gc=False):
    """Something in what a model wrote that is not as its format says: `kind` is a stable word (`unclosed_call`,
    `invalid_call`, `unknown_tool`, ...), `detail` a sentence for people, `start` and `end` where, in characters."""

    kind: str
    detail: str
    start: int = 0
    end: int = 0


class Dropped(Issue, frozen=True, eq=False, gc=False):
    """An issue of what a model wrote and no item has. To who compares or shows it, it is one like others."""

    def _plain(self) -> Issue:
        return Issue(self.kind, self.detail, self.start, self.end)

    def __eq__(self, other: object) -> bool:
        return self._plain() == (other._plain() if isinstance(other, Dropped) else other)

    def __hash__(self) -> int:
        return hash(self._plain())

    def __repr__(self) -> str:
        return repr(self._plain())


def dropped(issues: Iterable[Issue]) -> list[Loss]:
    """Return what of an answer was read and is in none of its items, as losses."""
    return [Loss("$", "dropped", issue.detail) for issue in issues if isinstance(issue, Dropped)]


class Response(Comparable, Struct, eq=False, kw_only=True, gc=False):
    """What the model answered, and why it stopped: `stop`, `length`, `tool_calls`, `content_filter`, or another word.

    `raw` is the text as it was generated, if it came from a prompt. `origin`: the API whose members `extra` holds, that
    of the response and those of its items; None when it was built by hand or generated. `logprobs`: the tokens of its
    texts, by the place of the text in `items`, where they were asked for and told. `cut`: the call in which the answer
    ended, as far as it had come. It is none of the items, because nobody may run it.
    """

    items: list[Item] = []
    finish_reason: str | None = None
    stop_sequence: str | None = None
    usage: Usage | None = None
    id: str | None = None
    model: str | None = None
    issues: list[Issue] = []
    raw: str | None = None
    extra: Extra = {}
    origin: str | None = None
    logprobs: dict[int, list[TokenLogprob]] = {}
    cut: ToolCall | None = None


def text_content(content: Iterable[Part]) -> str:
    """The texts of a content joined, other parts left out."""
    return "".join([part.text for part in content if isinstance(part, Text)])


def all_tools(request: Request) -> Iterator[Tool]:
    """The tools of a request, and those that come in the course of its conversation."""
    yield from request.tools
    for item in request.items:
        if type(item) is ToolsChange:
            yield from item.added


def object_arguments(call: ToolCall) -> tuple[str, str]:
    """Return the arguments of a call where they can only be an object, and what that makes of them, if anything."""
    text = call.arguments.strip(" \t\r\n")
    if not (text or call.custom):  # as some models call a tool that takes none
        return "{}", "no arguments are an empty object here"
    if call.custom or not is_object(text):
        why = "free text becomes" if call.custom else "arguments that are not a JSON object become"
        return in_object(call.arguments), f"{why} an object with one string, 'input'"
    spaced = len(text) != len(call.arguments)
    return text, "white space around the arguments is no part of an object" if spaced else ""


def in_object(text: str) -> str:
    """Return free text as the argument `input` of a function."""
    return f'{{"input":{safe_json_string(text)}}}'


def calls(items: Iterable[Item]) -> Iterator[ToolCall]:
    """The tool calls among `items`, in order."""
    return (item for item in items if type(item) is ToolCall)


SEARCH_RESULT = "search_result"
"""The kind of part that holds passages which a search found: a client's own, in what its tool answers, for example."""


def single_text(content: Sequence[Part]) -> str | None:
    """The text of a content that is one text without unnamed members, so that a string says all of it; else None."""
    if len(content) == 1:
        part = content[0]
        if type(part) is Text and not part.extra:
            return part.text
    return None


def readable(part: Part) -> str | None:
    """The text of a part; None for one that has nothing to read, such as a picture."""
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Refusal | Document):
        return part.text
    if isinstance(part, Raw) and part.type == SEARCH_RESULT:
        return _passages(part.value) or None
    return None


def shown(part: Part) -> str | None:
    """What a prompt shows of a part: its text, or, of a picture, sound or file that no text can show, that it was left
    out. A model that is told nothing would answer as if there were nothing. None for any other part."""
    text = readable(part)
    return text if text is not None or not isinstance(part, _MEDIA) else f"[{_called(part)} was left out: {_UNSEEN}]"


def unseen(part: Part) -> str:
    """What the loss of such a part says."""
    return f"{_UNSEEN}: the prompt says that {_called(part)} was left out"


def is_unseen(loss: Loss) -> bool:
    """Whether a loss is that of a picture, sound or file which the model cannot see."""
    return loss.detail.startswith(_UNSEEN)


_UNSEEN = "the model cannot see this"
_MEDIA = (Image, Audio, Document)
_KINDS = {Image: "an image", Audio: "a sound", Document: "a file"}


def _called(part: Part) -> str:
    name = (part.filename or part.title) if isinstance(part, Document) else None
    return _KINDS.get(type(part), "a part") if not name else f"the file {safe_json_string(name)}"


def _passages(value: Json) -> str:
    """The title, the source and the texts of a search result as paragraphs."""
    block = plain(value)
    content = block.get("content") if isinstance(block, dict) else None
    if not isinstance(content, list):
        return ""
    texts = [one.get("text") for one in content if isinstance(one, dict)]
    found = [text for text in (block.get("title"), block.get("source"), *texts) if isinstance(text, str)]
    return "\n\n".join(found)
