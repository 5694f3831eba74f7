"""Owns where a prompt parts from what was said before: at which byte, what stood there, and what of the request it is.

Only a prompt that does part from it costs anything. What is written at a place is read off the prompt's own spans.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from turnscript.core.conversation import Item, System, ToolResult, ToolsChange
from turnscript.engine.prompt import Prompt
from turnscript.engine.spans import Span
from turnscript.gateway.meaning import MODEL

Kind = Literal["tools", "instructions", "first", "message", "answer", "result", "settings", "opening"]

_EXCERPT, _SHARED = 80, 40  # characters
_SAID: dict[str, str] = {
    "tools": "the tools differ: another list, order or description, or another shape of answers",
    "instructions": "the instructions differ",
    "message": "a message differs, or another one stands there",
    "first": "the first message differs, or tools or instructions are left out before it",
    "answer": "a turn of the model is not as it wrote it: the client changed it, or it is not remembered any more",
    "result": "the result of a call differs, or stands in another place",
    "settings": "what the request asks beside the conversation is told otherwise",
    "opening": "the answer begins in another way: other thinking, a call that is forced, or nothing said since",
}


class Place(Struct, frozen=True):
    """What of a request is written at a place in its prompt. `path`: of the member, where it is known which."""

    kind: Kind
    path: str | None = None


class Divergence(Struct, frozen=True):
    """Where a prompt parts from what was said before. `known`: how many characters that has. The texts are short."""

    character: int
    byte: int
    known: int
    place: Place
    shared: str
    before: str
    now: str

    @property
    def told(self) -> str:
        """A sentence for people."""
        where = "" if self.place.path is None else f" (`{self.place.path}`)"
        lost = self.known - self.character
        return f"At byte {self.byte}{where} {_SAID[self.place.kind]}. {lost} characters behind it are of no more use."


def divergence(before: str, now: str, at: int, prompt: Prompt) -> Divergence:
    """How a prompt (`now` is its text) parts from a text that begins with the same `at` characters."""
    return Divergence(
        character=at,
        byte=len(now[:at].encode("utf-8", "surrogatepass")),
        known=len(before),
        place=place(prompt, at),
        shared=now[max(0, at - _SHARED) : at],
        before=before[at : at + _EXCERPT],
        now=now[at : at + _EXCERPT],
    )


def place(prompt: Prompt, at: int) -> Place:
    """What is written at a character of a prompt."""
    spans, end = prompt.spans, 0
    for number, span in enumerate(spans):
        begin, end = end, end + len(span.text)
        if end > at:
            return _at_span(prompt, spans, number, inside=at > begin)
    return Place("opening")


def opening(prompt: Prompt) -> int:
    """How many characters open the answer: what stands behind all items and tools."""
    size = 0
    for span in reversed(prompt.spans):
        if span.item >= 0:
            break
        size += len(span.text)
    return size


def _at_span(prompt: Prompt, spans: list[Span], number: int, *, inside: bool) -> Place:
    index = spans[number].item
    if index >= 0 and _is_over(spans, number, inside):
        # Behind the end of an item, what differs is what comes next.
        number = next((at for at in range(number, len(spans)) if spans[at].item != index), number)
        index = spans[number].item
    request, items = prompt.request, prompt.request.items
    if 0 <= index < len(items):
        return Place(_kind(items, index), items[index].at or None)
    if all(span.item < 0 for span in spans[number:]):
        asked = (request.paths.get(name) for name in ("effort", "thinking", "tool_choice"))
        return Place("opening", next((path for path in asked if path), None))
    if request.tools:
        return Place("tools", request.paths.get("tools", "$.tools"))
    return Place("settings")


def _is_over(spans: list[Span], number: int, inside: bool) -> bool:
    """Whether an item has ended before a place: nothing of it follows but literals, and the first of these is behind.
    At the very beginning of them its content may have gone on before."""
    index = spans[number].item
    if any(not span.control for span in spans[number:] if span.item == index):
        return False
    return inside or (number > 0 and spans[number - 1].control)


def _kind(items: list[Item], index: int) -> Kind:
    item, leads = items[index], all(isinstance(one, System | ToolsChange) for one in items[:index])
    if isinstance(item, System):
        return "instructions" if leads else "message"
    if isinstance(item, ToolsChange):
        return "tools"
    if isinstance(item, ToolResult):
        return "result"
    if type(item) in MODEL:
        return "answer"
    return "first" if leads else "message"
