"""Owns the wire objects of Messages and how each becomes parts and items.

All messages are read with one msgspec call. Members that are ordinary but have no name in the conversation
(`cache_control`, `citations`, `caller`) are declared as verbatim JSON, so that they do not cost the slow,
member-by-member reading.

The SDK allows every block in a user and in an assistant message alike. Here each role declares the blocks that make
sense in it; any other (a `tool_use` of the user, a server tool's result) arrives as a `Verbatim` and stays whole, as an
`Opaque` item with the role of its message.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from turnscript.apis.api import leftover
from turnscript.core.conversation import (
    Assistant,
    Document,
    Extra,
    Image,
    Item,
    Opaque,
    Part,
    Raw,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.json_text import Json, json_of, members_in, plain, read_list, text_of
from turnscript.core.losses import Indexed
from turnscript.core.wire import Reader, Verbatim, Wire, extra_of, mismatch

# Wire objects.


WORDS = {
    "meant": "caller citations content data description id input input_schema is_error name role signature source"
    " strict text thinking tool_use_id type",
    "holders": "source metadata output_config",
    "silent": "citations caller=direct stop_sequence stop_details container context_management",
    "tool_call.arguments": "input",
    "tool_result.id": "tool_use_id",
    "tool_result.status": "is_error",
    "tool_result.name": "",
    "thinking.redacted": "data",
    "tool.parameters": "input_schema",
    "response.finish_reason": "stop_reason",
    "response.usage": "usage",
    "response.usage.output_tokens_details": "output_tokens_details",
}
"""What members of the model are called here, for losses."""


class Base64Source(Wire, tag="base64"):
    media_type: str
    data: str


class UrlSource(Wire, tag="url"):
    url: str


class FileSource(Wire, tag="file"):
    file_id: str


class TextSource(Wire, tag="text"):
    media_type: str
    data: str


class ContentSource(Wire, tag="content"):
    content: Json


class TextBlock(Wire, tag="text"):
    text: str
    cache_control: Json | UnsetType = UNSET
    citations: Json | UnsetType = UNSET


class ImageBlock(Wire, tag="image"):
    source: Base64Source | UrlSource | FileSource
    cache_control: Json | UnsetType = UNSET


class DocumentBlock(Wire, tag="document"):
    source: Base64Source | TextSource | ContentSource | UrlSource | FileSource
    title: str | UnsetType = UNSET
    context: str | UnsetType = UNSET
    cache_control: Json | UnsetType = UNSET
    citations: Json | UnsetType = UNSET


class ThinkingBlock(Wire, tag="thinking"):
    thinking: str
    signature: str | UnsetType = UNSET


class RedactedBlock(Wire, tag="redacted_thinking"):
    data: str


class ToolUseBlock(Wire, tag="tool_use"):
    id: str
    name: str
    input: Json
    cache_control: Json | UnsetType = UNSET
    caller: Json | UnsetType = UNSET


PartBlock = TextBlock | ImageBlock | DocumentBlock


class ToolResultBlock(Wire, tag="tool_result"):
    tool_use_id: str
    content: str | list[PartBlock] | UnsetType = UNSET
    is_error: bool | UnsetType = UNSET
    cache_control: Json | UnsetType = UNSET


class UserMessage(Wire, tag_field="role", tag="user"):
    content: str | list[TextBlock | ImageBlock | DocumentBlock | ToolResultBlock]


class AssistantMessage(Wire, tag_field="role", tag="assistant"):
    content: str | list[TextBlock | ThinkingBlock | ToolUseBlock | RedactedBlock | ImageBlock | DocumentBlock]


class SystemMessage(Wire, tag_field="role", tag="system"):
    content: str | list[PartBlock] | UnsetType = UNSET


MESSAGES = list[UserMessage | AssistantMessage | SystemMessage]
SYSTEM = str | list[PartBlock]
read_messages: Reader[list[Any]] = Reader(MESSAGES)
_read_system: Reader[Any] = Reader(SYSTEM)

# Parts.

# Blocks without a type of their own here that are something said, and so stay among the parts around them.
RAW_PARTS = frozenset({"search_result", "container_upload"})


def block_extra(block: Wire) -> Extra:
    """The members of a block that have no name in the conversation."""
    return extra_of(block, *_VERBATIM[type(block)])


_VERBATIM: dict[type[Wire], tuple[str, ...]] = {
    TextBlock: ("cache_control", "citations"),
    ImageBlock: ("cache_control",),
    DocumentBlock: ("cache_control", "citations"),
    ToolUseBlock: ("cache_control", "caller"),
    ToolResultBlock: ("cache_control",),
}
"""Members that are declared only to be read fast."""


def _text(block: TextBlock) -> Text:
    if block.cache_control is UNSET and block.citations is UNSET and not block.rest:
        return Text(text=block.text)
    return Text(text=block.text, extra=block_extra(block))


def _image(block: ImageBlock) -> Part:
    source: Any = block.source
    if isinstance(source, Verbatim):
        return _whole("image", source, block_extra(block))
    part = Image(extra=_with_source(block_extra(block), source))
    _place_source(part, source)
    return part


def _document(block: DocumentBlock) -> Part:
    source: Any = block.source
    extra = block_extra(block)
    named = {name: value for name, value in (("title", block.title), ("context", block.context)) if value is not UNSET}
    if isinstance(source, Verbatim):
        return _whole("document", source, extra | {name: json_of(value) for name, value in named.items()})
    part = Document(extra=extra, **named)
    if isinstance(source, ContentSource):
        # The structure waits in `extra`; the text is what another API can be given of it.
        part.text = content_text(source.content)
        extra["source"] = leftover({"type": json_of("content"), "content": source.content, **extra_of(source)})
        return part
    part.extra = _with_source(extra, source)
    if isinstance(source, TextSource):
        part.text, part.media_type = source.data, source.media_type
    else:
        _place_source(part, source)
    return part


def _place_source(part: Image | Document, source: Base64Source | UrlSource | FileSource) -> None:
    if isinstance(source, Base64Source):
        part.media_type, part.data = source.media_type, source.data
    elif isinstance(source, UrlSource):
        part.url = source.url
    else:
        part.file_id = source.file_id


def _with_source(extra: Extra, source: Wire) -> Extra:
    if source.rest:
        extra["source"] = leftover(source.rest)
    return extra


def _whole(type_: str, source: Verbatim, extra: Extra) -> Raw:
    """A block around a source of an unknown kind, put together again."""
    return Raw(type=type_, value=leftover({"type": json_of(type_), "source": source.value, **extra}))


def _raw(block: Verbatim) -> Raw:
    return Raw(type=block.tag, value=block.value)


def content_text(content: Json) -> str:
    """The text of a document's `content` source: a string, or the texts of its blocks as paragraphs."""
    if bytes(content)[:1] == b'"':
        return str(plain(content))
    if bytes(content)[:1] != b"[":
        return ""
    texts = []
    for element in read_list(content):
        text = members_in(element).get("text")
        if text is not None and bytes(text)[:1] == b'"':
            texts.append(str(plain(text)))
    return "\n\n".join(texts)


_PARTS: dict[type, Callable[[Any], Part]] = {
    TextBlock: _text,
    ImageBlock: _image,
    DocumentBlock: _document,
    Verbatim: _raw,
}


def _parts(blocks: Sequence[Any]) -> list[Part]:
    return [_PARTS[type(block)](block) for block in blocks]


# Items.


def _thinking(block: ThinkingBlock, at: str) -> Thinking:
    content: list[Part] = [Text(text=block.thinking)]
    if block.signature is not UNSET and not block.rest:
        return Thinking(content=content, signature=block.signature, at=at)
    item = Thinking(content=content, extra=extra_of(block), at=at)
    if block.signature is not UNSET:
        item.signature = block.signature
    return item


def _redacted(block: RedactedBlock, at: str) -> Thinking:
    return Thinking(redacted=block.data, extra=extra_of(block), at=at)


def _tool_use(block: ToolUseBlock, at: str) -> ToolCall:
    arguments = text_of(block.input)
    if arguments[:1] != "{":
        raise mismatch(block.input, f"{at}.input", "an object")
    item = ToolCall(name=block.name, arguments=arguments, as_object=True, id=block.id, at=at)
    if block.cache_control is not UNSET or block.caller is not UNSET or block.rest:
        item.extra = block_extra(block)
    return item


def _tool_result(block: ToolResultBlock, at: str) -> ToolResult:
    content = block.content
    if isinstance(content, str):
        item = ToolResult(content=[Text(text=content)], id=block.tool_use_id, at=at)
    else:
        item = ToolResult(id=block.tool_use_id, at=at)
    if block.is_error is not UNSET:
        item.status = "error" if block.is_error else "ok"
    if block.cache_control is not UNSET or block.rest:
        item.extra = block_extra(block)
    if not isinstance(content, str):
        _place_content(item, content)
    return item


def _place_content(item: ToolResult | System, content: list[PartBlock] | UnsetType) -> None:
    """Give an item its parts. A null, which the slow reader keeps with the unnamed members, has none."""
    if content is not UNSET:
        item.content = _parts(content)
    else:
        item.extra.pop("content", None)


_ITEMS: dict[type, Callable[[Any, str], Item]] = {
    ThinkingBlock: _thinking,
    RedactedBlock: _redacted,
    ToolUseBlock: _tool_use,
    ToolResultBlock: _tool_result,
}


# Messages.

_CONTENT = Indexed(".content")
_SYSTEM = Indexed("$.system")


def items_of(message: Any, at: str) -> list[Item]:
    """The items of one message; an Opaque without a role when its role is unknown."""
    kind = type(message)
    if kind is SystemMessage:
        return [_system_message(message, at)]
    if kind is Verbatim:
        return [Opaque(type=message.tag, value=message.value, at=at)]
    return _turn(message, User if kind is UserMessage else Assistant, at)


def _turn(message: UserMessage | AssistantMessage, speaker: type[User | Assistant], at: str) -> list[Item]:
    content = message.content
    items: list[Item]
    if isinstance(content, str):
        items = [speaker(content=[Text(text=content)], at=at)]
    elif content:
        items = _split(content, speaker, at)
    else:
        items = [speaker(at=at)]
    if message.rest:
        if isinstance(items[0], speaker):
            items[0].extra = extra_of(message)
        else:
            items[0].envelope = extra_of(message)
    return items


def _split(blocks: Sequence[Any], speaker: type[User | Assistant], at: str) -> list[Item]:
    """One item for each run of parts and each other block, in order."""
    items: list[Item] = []
    run: list[Part] | None = None
    for index, block in enumerate(blocks):
        kind = type(block)
        if (make := _ITEMS.get(kind)) is not None:
            items.append(make(block, at + _CONTENT[index]))
            run = None
        elif kind is Verbatim and block.tag not in RAW_PARTS:
            place = at + _CONTENT[index]
            items.append(Opaque(type=block.tag, value=block.value, role=speaker.kind, at=place))
            run = None
        elif run is None:
            run = [_PARTS[kind](block)]
            items.append(speaker(content=run, at=at + _CONTENT[index] if index else at))
        else:
            run.append(_PARTS[kind](block))
    return items


def _system_message(message: SystemMessage, at: str) -> System:
    item = System(extra=extra_of(message), at=at)
    content = message.content
    if isinstance(content, str):
        item.content = [Text(text=content)]
    else:
        _place_content(item, content)
    return item


def system_items(value: Any) -> list[Item]:
    """The items of the top-level `system`: one for a string, one for each block of a list."""
    content = _read_system(value, "$.system")
    if isinstance(content, str):
        return [System(content=[Text(text=content)], at="$.system")]
    return [System(content=[part], at=_SYSTEM[index]) for index, part in enumerate(_parts(content))]
