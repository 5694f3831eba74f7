"""Owns what must be true of turns that a chat template wrote in a sample: prompts lead into them, and they are read.

What is trained of a turn begins where a prompt of the conversation before it ends, whatever that prompt has opened. No
reader knows the whole text of a template, so it is read as a server reads answers: turn by turn, behind its prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from turnscript.core.conversation import Assistant, Conversation, Item, Request, Thinking, ToolCall
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import fold
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.engine.prompt import Prompt
from turnscript.engine.spans import ITEM, TRAINABLE

MODEL = (Assistant, Thinking, ToolCall)
PROMPTS = 8
"""Of so many turns of a conversation the prompts are compared: the first, the last and some between."""
_SHOWN = 40


class TurnCounts(NamedTuple):
    """What was seen of the turns of a sample: `led` into by a prompt, with the very ids of it (`exact`), `later` shown
    in another way than any prompt, and read in `other` words than the row has."""

    led: int = 0
    exact: int = 0
    later: int = 0
    other: int = 0


class TurnChecker:
    """Checks the turns of samples that a template wrote."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._format = encoder.format
        self.counts = TurnCounts()

    def faults(self, example: Example, sample: Sample, texts: Sequence[str], marks: Sequence[int]) -> Iterator[str]:
        """Return what is wrong with the turns of a sample, whose pieces these are; `counts` is what was seen of it."""
        request, text = example.request, "".join(texts)
        known: dict[str, list[int]] = {}
        led = exact = later = other = 0
        for first in spread(trained_turns(request.items, self._encoder.counts(example))):
            ends = (at for at in range(first, len(request.items)) if not isinstance(request.items[at], MODEL))
            end = next(ends, len(request.items))
            said = request.items[first:end]
            start, stop = _trained(texts, marks, first, first + len(said))
            prompt = self._leading(request, first, text)
            if prompt is None or start < 0:
                later += 1
                continue
            led += 1
            ids = self._encoder.prompt_ids(prompt.spans, known)
            exact += ids == sample.ids[: len(ids)].tolist()
            if start != len(prompt.text):
                place, around = said[0].at or f"items[{first}]", text[start : start + _SHOWN]
                yield f"{place}: what is trained of this turn, {around!r}, does not begin where its prompt ends"
            other += not _reads(prompt, text[start:stop], said)
        self.counts = TurnCounts(led, exact, later, other)

    def _leading(self, request: Request, first: int, text: str) -> Prompt | None:
        """Return the prompt that leads to a turn: of those that do, the one that has opened most."""
        asked = Request(conversation=Conversation(request.items[:first], request.tools))
        found: list[Prompt] = []
        for thinking in (None, True, False):
            try:
                prompt = self._format.prompt(
                    asked, thinking=thinking, escape=self._encoder.options.escape, now=self._encoder.options.now
                )
            except TurnscriptError:
                continue  # a template may have no place for thoughts, or take no conversation that ends so
            if text.startswith(prompt.text):
                found.append(prompt)
        return max(found, key=lambda prompt: len(prompt.text), default=None)


def _trained(texts: Sequence[str], marks: Sequence[int], first: int, end: int) -> tuple[int, int]:
    """Return where what the model writes of some items begins and ends in the text; -1 if there is nothing."""
    at, start, stop = 0, -1, -1
    for text, mark in zip(texts, marks, strict=True):
        if text and mark & TRAINABLE and first <= mark // ITEM < end:
            start = at if start < 0 else start
            stop = at + len(text)
        at += len(text)
    return start, stop


def _reads(prompt: Prompt, written: str, said: Sequence[Item]) -> bool:
    """Return whether what a model writes behind a prompt is read as these items, but for white space at the ends."""
    stop = min((at for one in prompt.stops if (at := written.find(one)) >= 0), default=len(written))
    parser = prompt.parser()
    response = fold(parser.feed(written[:stop]) + parser.close())
    return list(_said(response.items)) == list(_said(said))


def _said(items: Sequence[Item]) -> Iterator[tuple[str, object]]:
    for item in items:
        if isinstance(item, ToolCall):
            yield item.name, _value(item.arguments)
            continue
        text = "".join([getattr(part, "text", None) or "" for part in getattr(item, "content", ())]).strip()
        if text:
            yield item.kind, text


def _value(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def trained_turns(items: Sequence[Item], counts: Sequence[int]) -> list[int]:
    """Return where turns of the model begin of which something is trained. `counts`: how much each item is."""
    found: list[int] = []
    first = 0
    for at, item in enumerate(items):
        if not isinstance(item, MODEL):
            first = at + 1
        elif counts[at] and (not found or found[-1] != first):
            found.append(first)
    return found


def spread(places: Sequence[int]) -> list[int]:
    """Return at most PROMPTS of them, spread evenly, the first and the last included."""
    if len(places) <= PROMPTS:
        return list(places)
    return [places[round(step * (len(places) - 1) / (PROMPTS - 1))] for step in range(PROMPTS)]


__all__ = ["MODEL", "PROMPTS", "TurnChecker", "TurnCounts", "spread", "trained_turns"]
