"""Owns writing items as messages: the top-level `system`, the turns, and what each kind of item and part becomes.

A message that came from this API and is unchanged goes back as it came. All others are arranged as the API wants it. Of
a *foreign* request, one from another API, unnamed members mean nothing here, and proofs of thinking are not sent.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from msgspec.structs import replace

from turnscript.apis.anthropic_messages.blocks import content_text
from turnscript.apis.api import SEED, Body, Rendering
from turnscript.apis.shared.thoughts import thought_texts
from turnscript.core import message_groups as grouping
from turnscript.core.call_pairing import distinct_ids, legal_id
from turnscript.core.conversation import (
    Assistant,
    Audio,
    Document,
    Image,
    Item,
    Opaque,
    Part,
    Raw,
    Refusal,
    ResponseFormat,
    System,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolsChange,
    User,
    object_arguments,
    single_text,
)
from turnscript.core.data_urls import data_url, is_data_url, taken_apart
from turnscript.core.json_text import Json, read_object
from turnscript.core.message_groups import group, side_of
from turnscript.core.source_paths import NOT_HERE, Unplaced, part_path

_PLAIN = "text/plain"
Media = TypeVar("Media", Image, Document)


def is_plain_block(block: Any) -> bool:
    """Whether a written block is a text and nothing else, so that a string can say it."""
    return type(block) is dict and len(block) == 2 and block["type"] == "text"


class PartWriter:
    """Writes the parts of one request, or of one answer."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering

    def write(self, part: Part, item: Item, index: int) -> Any:
        """The block for a part, or None when there is none (reported)."""
        if type(part) is Text:
            block: Body = {"type": "text", "text": part.text}
            if part.extra:
                self.rendering.put_extra(block, part.extra, part_path(item, index))
            return block
        return _PARTS[type(part)](self, part, part_path(item, index))

    def _image(self, given: Image, path: str) -> Body | None:
        part = self._apart(given, path)
        source = self._source(part, path, "image/png")
        if source is None:
            return None
        block: Body = {"type": "image", "source": source}
        self.rendering.lose_unplaced(part, path)
        self.rendering.put_extra(block, part.extra, path)
        return block

    def _document(self, given: Document, path: str) -> Body | None:
        part = self._apart(given, path)
        structure = None if self.rendering.foreign else _structure(part)
        source: Any = structure
        if structure is None and part.text is not None:
            plain = _PLAIN if part.media_type is None else part.media_type
            source = {"type": "text", "media_type": plain, "data": part.text}
        elif structure is None:
            source = self._text_source(part, path) or self._source(part, path, "application/pdf")
        if source is None:
            return None
        block: Body = {"type": "document", "source": source}
        title = self._title(part, path)
        if title is not None:
            block["title"] = title
        if part.context is not None:
            block["context"] = part.context
        self.rendering.put_extra(block, part.extra, path)
        return block

    def _text_source(self, part: Document, path: str) -> Body | None:
        """A text that came as bytes, as a text: bytes are taken of PDF alone. None for any other document."""
        kind = part.media_type or ""
        if part.data is None or not kind.startswith("text/"):
            return None
        try:
            text = b64decode(part.data, validate=True).decode()
        except ValueError:
            return None
        if kind != _PLAIN:
            self.rendering.lose(path, "approximated", f"a text of type {kind!r} is a plain text here")
        else:
            self.rendering.lose_member(part, "data", "renamed", "the base64 of a text becomes the text", path)
        source = self._source(part, path, kind)  # what else is given of it is reported
        return source and {"type": "text", "media_type": _PLAIN, "data": text}

    def _title(self, part: Document, path: str) -> str | None:
        if part.filename is None:
            return part.title
        if part.title is not None:
            why = "a document has a title here, no file name"
            self.rendering.lose_member(part, "filename", "dropped", why, path)
            return part.title
        self.rendering.lose_member(part, "filename", "renamed", "the file name becomes the title", path)
        return part.filename

    def _apart(self, part: Media, path: str) -> Media:
        """The part with its media type and its base64 text in two places, where another API says both in one string."""
        said = part.data if part.data is not None else part.url
        if said is None or not is_data_url(said) or part.media_type is not None:
            return part
        found = taken_apart(said)
        if found is None:
            self.rendering.lose(path, "approximated", "a data URL without base64 is no address that can be asked here")
            return part
        media_type, data = found
        if data_url(media_type, data) != said:
            self.rendering.lose(path, "approximated", "of a data URL the media type and the base64 text are sent")
        url = None if part.data is None else part.url
        return replace(part, media_type=media_type or None, data=data, url=url)

    def _source(self, part: Image | Document, path: str, media_type: str) -> Body | None:
        """Where the bytes are: the first of data, URL and file id that is given."""
        given = [name for name in ("data", "url", "file_id") if getattr(part, name) is not None]
        for name in given[1:]:
            self.rendering.lose_member(part, name, "dropped", f"only its {given[0]} is sent", path)
        if not given:
            self.rendering.lose(path, "dropped", "it has no data, no URL and no file id")
            return None
        if part.data is not None:
            if part.media_type is None:
                self.rendering.lose(path, "invented", f"no media type is given: {media_type!r}")
            said = media_type if part.media_type is None else part.media_type
            return {"type": "base64", "media_type": said, "data": part.data}
        if part.media_type is not None:
            self.rendering.lose(path, "dropped", "a media type is said with data only")
        if part.url is not None:
            return {"type": "url", "url": part.url}
        self.rendering.lose_file_id(path)
        return {"type": "file", "file_id": part.file_id}

    def _refusal(self, part: Refusal, path: str) -> Body:
        self.rendering.lose(path, "approximated", "a refusal becomes text")
        block: Body = {"type": "text", "text": part.text}
        self.rendering.put_extra(block, part.extra, path)
        return block

    def _audio(self, part: Audio, path: str) -> None:
        self.rendering.lose(path, "dropped", f"{self.rendering.target} takes no sound")

    def _raw(self, part: Raw, path: str) -> Json | None:
        if self.rendering.foreign:
            self.rendering.lose(path, "dropped", f"{self.rendering.target} has nothing like {part.type!r}")
            return None
        return part.value


def _structure(part: Document) -> Json | None:
    """The `content` source that the document was read from, unless its text has been changed since."""
    source = part.extra.get("source")
    if source is None or part.text is None:
        return None
    content = read_object(source).get("content")
    return source if content is not None and content_text(content) == part.text else None


_PARTS: dict[type, Callable[[PartWriter, Any, str], Any]] = {
    Image: PartWriter._image,
    Document: PartWriter._document,
    Refusal: PartWriter._refusal,
    Audio: PartWriter._audio,
    Raw: PartWriter._raw,
}


# All results of a turn go into one user message.
JOINS = grouping.JOINS | {("tool_result", "tool_result")}
SIDES = {**grouping.SIDES, "tool_result": "user"}

_NOT_HERE = f"anthropic-messages {NOT_HERE}"
_NAMED = {"name": _NOT_HERE, "id": _NOT_HERE}
_PROOF = "a proof is only for the API that made it"
_SCHEMA_ALONE = "only the schema has a place here"
UNPLACED = Unplaced(
    {
        System: {"role": ("renamed", "anthropic-messages has no role {!r}: system"), **_NAMED},
        User: _NAMED,
        Assistant: {**_NAMED, "phase": _NOT_HERE},
        Thinking: {
            "redacted": _PROOF,
            "encrypted": _NOT_HERE,
            "id": _NOT_HERE,
            "of": ("approximated", "{!r} becomes ordinary thinking"),
        },
        ToolCall: {
            "item_id": _NOT_HERE,
            "namespace": ("renamed", "there are no namespaces here: it begins the name of the tool"),
        },
        ToolResult: {
            "item_id": _NOT_HERE,
            "namespace": _NOT_HERE,
            "custom": ("approximated", "the result of a function: there are no free-text tools here"),
        },
        Image: {"detail": "a picture has no detail level here"},
        ResponseFormat: dict.fromkeys(("name", "strict", "description"), _SCHEMA_ALONE),
    },
    answers={Thinking: {"redacted": None}},
)

TAKEN = "an earlier call has the id {!r}, and no two may have the same here: {!r}"


class Writer:
    """Writes the items of one request. Afterwards `changes` holds the tools added or removed on the way, and
    `spoken` the last item of which the assistant says anything."""

    def __init__(self, rendering: Rendering) -> None:
        self.rendering = rendering
        self.items = rendering.request.items
        self.foreign = rendering.foreign
        self.own = rendering.request.origin == rendering.origin
        self.seed = rendering.profile == SEED
        self.parts = PartWriter(rendering)
        self.crowded = self.blank = False
        self.changes: list[ToolsChange] = []
        self.spoken: Assistant | None = None
        self._called: set[str] = set()
        self._distinct: dict[int, str] | None = None  # once two calls have the same id
        self._names: dict[str, str] = {}

    # Losses and ids.

    def _id(self, item: ToolCall | ToolResult) -> str:
        source = self.rendering.told_id(item)
        legal = legal_id(source)
        if legal != source:
            self.rendering.lose(
                item.at, "renamed", f"the id {source!r} has characters that are not allowed here: {legal!r}"
            )
        if self._distinct is None:
            if not isinstance(item, ToolCall):
                return legal
            if legal not in self._called:
                self._called.add(legal)
                return legal
            self._distinct = distinct_ids(self.items, lambda one: legal_id(self.rendering.call_id(one)))
        distinct = self._distinct.get(id(item), legal)
        if distinct != legal:
            self.rendering.lose(item.at, "renamed", TAKEN.format(legal, distinct))
        return distinct

    # The order of things.

    def write(self, body: Body) -> None:
        """Write `system` and `messages`."""
        items = self.items
        count = self._leading(items)
        top, items = items[:count], items[count:]
        if self.seed or self.rendering.flags["mid_system"] == "hoist":
            top = top + self._hoisted(items)
            items = [item for item in items if not isinstance(item, System)]
        system: Any = self.rendering.slices.member("system", top)
        if system is None:
            system = self._system([item for item in top if isinstance(item, System)])
        if system is not None:
            body["system"] = system
        messages: list[Any] = []
        called: set[str] = set()  # the calls of a message that is as it came
        for value, run in self.rendering.slices.runs(items):
            if value is None:
                messages += self._arranged(run, called)
                called = set()
                continue
            messages.append(value)
            called = {item.id for item in run if isinstance(item, ToolCall) and item.id is not None}
            self._called |= called
            self._names |= {item.id: item.name for item in run if isinstance(item, ToolCall) and item.id is not None}
            self.spoken = next((item for item in reversed(run) if isinstance(item, Assistant)), self.spoken)
        body["messages"] = messages

    def _arranged(self, items: Sequence[Item], called: set[str]) -> list[Any]:
        """Items as messages, in the order that this API takes. `called`: the calls of the message before."""
        items = self._results_first(self._without_strangers(items), called)
        groups = [[item] for item in items] if self.seed else group(items, JOINS, SIDES)
        return [message for one in groups if (message := self._message(one)) is not None]

    def _leading(self, items: Sequence[Item]) -> int:
        """How many items at the start make up the top-level `system`."""
        for index, item in enumerate(items):
            if not isinstance(item, System) or self.rendering.slices.place(item).startswith("$.messages["):
                return index
        return len(items)

    def _hoisted(self, items: Sequence[Item]) -> list[Item]:
        moved: list[Item] = [item for item in items if isinstance(item, System)]
        for item in moved:
            self.rendering.lose(
                item.at, "moved", "to the top-level system, which the model reads before everything else"
            )
        return moved

    def _without_strangers(self, items: Sequence[Item]) -> list[Item]:
        """All items but those that only another API understands."""
        kept = []
        for item in items:
            if type(item) is Opaque and self.foreign:
                self.rendering.lose(item.at, "dropped", f"{self.rendering.target} has nothing like {item.type!r}")
            else:
                kept.append(item)
        return kept

    def _results_first(self, items: Sequence[Item], called: set[str]) -> list[Item]:
        """Results right after the calls that they answer: this API takes them nowhere else."""
        ordered: list[Item] = []
        open_calls = called
        front, in_turn = 0, False
        parted: Item | None = None  # the text between which and the next one a result stood that was moved
        for item in items:
            if side_of(item, SIDES) == "assistant":
                if not in_turn:
                    open_calls, in_turn = set(), True
                if isinstance(item, ToolCall):
                    open_calls.add(self.rendering.call_id(item))
                ordered.append(item)
                front = len(ordered)
                continue
            in_turn = False
            if isinstance(item, ToolResult) and self.rendering.call_id(item) in open_calls:
                if front < len(ordered):
                    self.rendering.lose(item.at, "moved", "results come directly after their calls here")
                    parted = ordered[-1]
                ordered.insert(front, item)
                front += 1
            else:
                if parted is not None and parted is ordered[-1] and isinstance(item, User):
                    self.rendering.lose(item.at, "approximated", "joined with the text before the results between them")
                ordered.append(item)
        return ordered

    # System.

    def _system(self, items: Sequence[System]) -> str | list[Any] | None:
        """The value of the top-level `system`: a string, or a list of blocks where one can say more."""
        blocks: list[Any] = []
        for item in items:
            found = self._system_blocks(item)
            if item.extra:
                self.rendering.put_extra(found[0] if found and type(found[0]) is dict else {}, item.extra, item.at)
            blocks += found
        if not blocks:
            return None
        if not self.seed and self._as_blocks(items, blocks):
            for item in items:
                if len(item.content) > 1:
                    self.rendering.lose(item.at, "approximated", "each part becomes a system block of its own")
            return blocks
        for item in items if len(items) > 1 else ():
            self.rendering.lose(item.at, "approximated", "joined to the other system texts by blank lines")
        return "\n\n".join([block["text"] for block in blocks])

    def _as_blocks(self, items: Sequence[System], blocks: Sequence[Any]) -> bool:
        """Whether a string could not say what the blocks say, or a list is asked for."""
        if self.rendering.flags["system"] == "blocks" or (self.own and len(items) > 1):
            return True
        return (len(items) == 1 and len(blocks) > 1) or not all(map(is_plain_block, blocks))

    def _system_blocks(self, item: System) -> list[Any]:
        self.rendering.lose_unplaced(item)
        blocks = []
        for index, part in enumerate(item.content):
            block = self._block(part, item, index)
            if block is None:
                continue
            if not is_plain_block(block):
                block = self._system_text(block, part_path(item, index))
            if block is not None:
                blocks.append(block)
        if not blocks:
            self.rendering.lose(item.at, "dropped", "a system text needs text here")
        return blocks

    def _system_text(self, block: Any, path: str) -> Any:
        """A block that is no plain text, as far as a system text can hold it."""
        if not is_text(block):
            self.rendering.lose(path, "dropped", "a system text is text only here")
            return None
        if not self.seed:
            return block
        for key in [key for key in block if key not in ("type", "text")]:
            self.rendering.lose(f"{path}.{key}", "dropped", "the system text is one string here")
        return {"type": "text", "text": block["text"]}

    def _system_message(self, item: System) -> Body | None:
        blocks = self._system_blocks(item)
        if not blocks:
            return None
        message: Body = {"role": "system", "content": blocks}
        if item.extra:
            self.rendering.put_extra(message, item.extra, item.at)
        return message

    # Messages.

    def _message(self, items: Sequence[Item]) -> Body | Json | None:
        first = items[0]
        kind = type(first)
        if kind is System:
            return self._system_message(cast("System", first))
        side = side_of(first, SIDES)
        if kind is ToolsChange:
            self.changes.append(cast("ToolsChange", first))
            return None
        if kind is Opaque and not side:
            return cast("Opaque", first).value
        blocks: list[Any] = []
        message: Body = {"role": side, "content": blocks}
        self.crowded, self.blank, spoken = len(items) > 1, False, self.spoken
        for item in items:
            _BLOCKS[type(item)](self, item, blocks, message)
            self.rendering.put_envelope(message, item)
        if self.blank and _is_blank(blocks):
            blocks[:] = [block for block in blocks if not is_text(block)]
            self._lose_blanks(items)
            self.spoken = spoken
        if not blocks:
            if len(items) == 1 and isinstance(first, User | Assistant):
                self.rendering.lose(first.at, "dropped", "a message without content is not accepted here")
            return None
        return message

    def _speech(self, item: User | Assistant, blocks: list[Any], message: Body) -> None:
        before = len(blocks)
        for index, part in enumerate(item.content):
            if type(part) is Text and part.text and not part.extra:
                self.blank |= part.text.isspace()
                blocks.append({"type": "text", "text": part.text})
                continue
            block = self._block(part, item, index)
            if block is not None:
                blocks.append(block)
        if self.crowded and not item.content:
            self.rendering.lose_member(item, "content", "dropped", "a text without parts is nothing here")
        if item.extra:
            self.rendering.put_extra(message, item.extra, item.at)
        self.rendering.lose_unplaced(item)
        if isinstance(item, Assistant):
            self.spoken = item if len(blocks) > before else self.spoken

    def _block(self, part: Part, item: Item, index: int) -> Any:
        """The block for a part, or None when there is none (reported): the API refuses an empty text."""
        block = self.parts.write(part, item, index)
        if not is_text(block) or block["text"]:
            self.blank = self.blank or (is_text(block) and block["text"].isspace())
            return block
        self.rendering.lose(part_path(item, index), "dropped", "an empty text is not accepted here")
        return None

    def _lose_blanks(self, items: Sequence[Item]) -> None:
        for item in items:
            for index, part in enumerate(item.content if isinstance(item, User | Assistant) else ()):
                if isinstance(part, Text | Refusal) and part.text:
                    why = "white space alone is not accepted here"
                    self.rendering.lose(part_path(item, index), "dropped", why)

    def _opaque(self, item: Opaque, blocks: list[Any], message: Body) -> None:
        blocks.append(item.value)

    def _thinking(self, item: Thinking, blocks: list[Any], message: Body) -> None:
        block = self._thought(item)
        if block is None:
            return
        if item.extra:
            self.rendering.put_extra(block, item.extra, item.at)
        blocks.append(block)

    def _thought(self, item: Thinking) -> Body | None:
        proved = self.rendering.proved
        if item.redacted is not None and proved:
            return {"type": "redacted_thinking", "data": item.redacted}
        if item.signature is not None and not proved:
            self.rendering.lose_member(item, "signature", "dropped", _PROOF)
        self.rendering.lose_unplaced(item)
        texts = thought_texts(self.rendering, item)
        if not any(texts) and not (proved and item.signature):
            self.rendering.lose(item.at, "dropped", "a thought without text is nothing here")
            return None
        signature = item.signature if proved else None
        return {"type": "thinking", "thinking": "".join(texts), "signature": signature or ""}

    def _tool_use(self, item: ToolCall, blocks: list[Any], message: Body) -> None:
        block: Body = {"type": "tool_use", "id": self._id(item), "name": item.full_name}
        arguments, why = object_arguments(item)
        block["input"] = Json(arguments.encode())
        if why:
            self.rendering.lose(item.at, "approximated", why)
        if item.extra:
            self.rendering.put_extra(block, item.extra, item.at)
        self._names[self.rendering.call_id(item)] = item.name
        self.rendering.lose_unplaced(item)
        blocks.append(block)

    def _tool_result(self, item: ToolResult, blocks: list[Any], message: Body) -> None:
        block: Body = {"type": "tool_result", "tool_use_id": self._id(item)}
        text = single_text(item.content)
        parts = self._result_parts(item) if text is None else []
        if text is not None:
            block["content"] = text
        else:
            block["content"] = parts[0]["text"] if len(parts) == 1 and is_plain_block(parts[0]) else parts
        if item.status is not None:
            if item.status in ("error", "ok"):
                block["is_error"] = item.status == "error"
            else:
                self.rendering.lose_member(
                    item, "status", "dropped", "a result has failed or not here, and nothing else"
                )
        if item.extra:
            self.rendering.put_extra(block, item.extra, item.at)
        self._foreign_result(item)
        blocks.append(block)

    def _result_parts(self, item: ToolResult) -> list[Any]:
        parts = []
        for index, part in enumerate(item.content):
            block = self._block(part, item, index)
            if block is not None:
                parts.append(block)
        if self.seed and len(parts) > 1 and all(map(is_plain_block, parts)):
            self.rendering.lose(item.at, "approximated", "its parts become one text")
            return [{"type": "text", "text": "".join([block["text"] for block in parts])}]
        return parts

    def _foreign_result(self, item: ToolResult) -> None:
        source = self.rendering.call_id(item)
        if item.name is not None and item.name != self._names.get(source) and "name" not in item.extra:
            self.rendering.lose_member(item, "name", "dropped", _NOT_HERE)
        self.rendering.lose_unplaced(item)


def is_text(block: Any) -> bool:
    """Whether a written block is a text, whatever else it has."""
    return isinstance(block, dict) and block["type"] == "text"


def _is_blank(blocks: Sequence[Any]) -> bool:
    """Whether all texts of a message are white space: the server refuses those, and takes one beside another text."""
    return all(block["text"].isspace() for block in blocks if is_text(block))


_BLOCKS: dict[type, Callable[[Writer, Any, list[Any], Body], None]] = {
    User: Writer._speech,
    Assistant: Writer._speech,
    Thinking: Writer._thinking,
    ToolCall: Writer._tool_use,
    ToolResult: Writer._tool_result,
    Opaque: Writer._opaque,
}
