"""Owns one block of a stream while it is read: what its start and its deltas say, and the block that they make."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from turnscript.apis.anthropic_messages.response import item_of
from turnscript.apis.api import leftover
from turnscript.core.conversation import Assistant, Item, Thinking, ToolCall
from turnscript.core.json_text import Json, json_of, plain, read_list, read_object, text_of, type_word
from turnscript.core.wire import Wire

# Wire objects.


class TextDelta(Wire, tag="text_delta"):
    text: str


class ThinkingDelta(Wire, tag="thinking_delta"):
    thinking: str
    # A hint for progress bars, not content; declared so that it does not make the reading slow.
    estimated_tokens: Json | UnsetType = UNSET


class SignatureDelta(Wire, tag="signature_delta"):
    signature: str


class InputDelta(Wire, tag="input_json_delta"):
    partial_json: str


class CitationsDelta(Wire, tag="citations_delta"):
    citation: Json


class CompactionDelta(Wire, tag="compaction_delta"):
    """What it holds are members of its block."""


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputDelta | CitationsDelta | CompactionDelta
_CONTENT: dict[type[Wire], str] = {TextDelta: "text", ThinkingDelta: "thinking", InputDelta: "partial_json"}
"""The member of a delta that is one more piece; of others the last counts, or each is one of a list."""

_KINDS: dict[type[Wire], str] = {
    TextDelta: "text",
    CitationsDelta: "text",
    ThinkingDelta: "thinking",
    SignatureDelta: "thinking",
    CompactionDelta: "compaction",
}
"""The kind of block that a delta is for; input is for any other."""

TOLD = frozenset({"text", "thinking", "tool_use"})
"""Kinds of blocks whose content is told as it comes."""


def content_of(delta: Any) -> str:
    """What a delta says, as text."""
    if isinstance(delta, CitationsDelta):
        return text_of(delta.citation)
    if isinstance(delta, CompactionDelta):
        return text_of(leftover(delta.rest or {}))
    return str(delta.signature if isinstance(delta, SignatureDelta) else getattr(delta, _CONTENT[type(delta)]))


class Block:
    """A block that is being read."""

    def __init__(self, index: int, part: int, start: Json) -> None:
        self.index = index
        self.part = part
        self.kind = type_word(start)
        self.members = read_object(start)
        self.texts: list[str] = []
        self.citations: list[Json] = []
        self.signature: str | None = None
        said = self.members.get(self.kind) if self.kind in ("text", "thinking") else None
        self.opening = "" if said is None or bytes(said)[:1] != b'"' else str(plain(said))

    @property
    def model(self) -> str | None:
        """The model that goes on with the answer from here, where that changes in the middle of it."""
        to = self.members.get("to", Json(b"")) if self.kind == "fallback" else Json(b"")
        name = read_object(to).get("model", Json(b"")) if bytes(to)[:1] == b"{" else Json(b"")
        return str(plain(name)) if bytes(name)[:1] == b'"' else None

    def takes(self, delta: Any) -> bool:
        """Whether a delta is for a block of this kind."""
        wanted = _KINDS.get(type(delta))
        return self.kind not in ("text", "thinking", "compaction") if wanted is None else self.kind == wanted

    def take(self, delta: Any) -> str:
        """Take a delta; gives the text that is told of it at once."""
        name = _CONTENT.get(type(delta))
        if name is not None:
            text: str = getattr(delta, name)
            if text:
                self.texts.append(text)
            return text if self.kind in TOLD else ""
        if isinstance(delta, SignatureDelta):
            self.signature = delta.signature
        elif isinstance(delta, CitationsDelta):
            self.citations.append(delta.citation)
        else:
            self.members |= delta.rest or {}
        return ""

    def said(self) -> str:
        """The input as text: what the deltas said, else what the start did if that is more than an empty object."""
        given = self.members.get("input")
        opening = "" if given is None else text_of(given)
        return "".join(self.texts) or ("" if opening == "null" or not opening.strip("{} \t\r\n") else opening)

    def call(self, arguments: str) -> ToolCall:
        """The block as a call with these arguments, whatever they are."""
        call = item_of(leftover(self.members | {"input": Json(b"{}")}), self.part)
        assert isinstance(call, ToolCall)
        call.arguments, call.as_object = arguments, False  # a stream has them as a text, which nobody printed
        return call

    def whole(self) -> Json:
        """The block as a whole response would have it."""
        members = dict(self.members)
        if self.kind in ("text", "thinking"):
            members[self.kind] = json_of(self.opening + "".join(self.texts))
        elif self.texts:
            members["input"] = Json(self.said().encode())
        if self.signature is not None:
            members["signature"] = json_of(self.signature)
        if self.citations:
            before = members.get("citations")
            given = read_list(before) if before is not None and bytes(before)[:1] == b"[" else []
            members["citations"] = Json(b"[%b]" % b",".join([bytes(one) for one in given + self.citations]))
        return leftover(members)

    def without_content(self) -> Item:
        """The part that begins with the block: its item without content."""
        if self.kind == "text":
            return Assistant()
        if self.kind == "thinking":
            return Thinking()
        if self.kind != "tool_use":
            return item_of(self.whole(), self.part)
        return self.call("")
