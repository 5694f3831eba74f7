"""Owns one part of an answer while its stream is written: what was told of it, and in which events more is told."""

from __future__ import annotations

from collections.abc import Sequence

from turnscript.apis.api import Body
from turnscript.apis.openai_responses.naming import Named
from turnscript.apis.openai_responses.output import told_token
from turnscript.apis.openai_responses.parts import OUTPUT, REASONING, REFUSAL, blank_part
from turnscript.core.conversation import Assistant, Item, Part, Refusal, Text, Thinking, ToolCall
from turnscript.core.logprobs import TokenLogprob


class LivePart:
    """A part that is being told; the events call it an item. `at`: its output index; -1: it has no place here.
    `place`: what each of its events says of it.

    `closed`: its texts that are complete, each a content part, and `scored` how many tokens those have. `told`: the
    deltas of the one that goes on; `open`: that was announced. `telling`: the events that tell a delta, each with holes
    for its number and the text; None before one.
    """

    __slots__ = ("at", "closed", "kind", "named", "open", "place", "scored", "telling", "told")

    def __init__(self, named: Named, at: int) -> None:
        self.named = named
        self.at = at
        self.place: Body = {"item_id": _id(named.item), "output_index": at}
        self.kind = _kind(named.item)
        self.closed: list[Part] = []
        self.scored = 0
        self.told: list[str] = []
        self.open = False
        self.telling: list[bytes] | None = None

    def end_text(self, tokens: Sequence[TokenLogprob]) -> Body:
        """What was told since the last one is a text, and the next one begins with its first delta. Returns the content
        part that it is. `tokens`: those of all its item."""
        text = "".join(self.told)
        body = blank_part(self.kind, text)
        if self.kind == OUTPUT:
            body["logprobs"] = [told_token(one) for one in tokens[self.scored :]]
        self.closed.append(self._part(text))
        self.told, self.telling, self.open, self.scored = [], None, False, len(tokens)
        return body

    def content(self) -> list[Part]:
        """What was told."""
        told = "".join(self.told)
        return [*self.closed, self._part(told)] if told else [*self.closed]

    def _part(self, text: str) -> Part:
        return Refusal(text=text) if self.kind == REFUSAL else Text(text=text)


def _id(item: Item) -> str | None:
    return item.item_id if isinstance(item, ToolCall) else getattr(item, "id", None)


def _kind(item: Item) -> str:
    """The type of the text that the deltas of a part are."""
    if isinstance(item, Assistant):
        return REFUSAL if item.content and isinstance(item.content[0], Refusal) else OUTPUT
    return REASONING if isinstance(item, Thinking) else ""
