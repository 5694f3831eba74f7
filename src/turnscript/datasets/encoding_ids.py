"""Owns the mode `ids`: control tokens by their ids, and the text between them encoded apart, as text alone.

A text is cut at control tokens of the format's own literals, and where what the model writes begins or ends. A tag is
one token even if it ends there: `<<USER>>`, of which a model writes `<<USER`. The ids of a prompt are made by the same
rule, so they are the beginning of what was trained, and no text can forge a tag.

What a chat template writes is cut at control tokens alone, as a server does that tokenizes the whole text.
"""

from __future__ import annotations

import itertools
import re
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turnscript.datasets.drafts import Draft
from turnscript.datasets.encoding_text import Flat
from turnscript.datasets.problems import BadRow, Problem, problem_of
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.engine.spans import CONTROL, TRAINABLE
from turnscript.engine.table import Document
from turnscript.formats.format import Format

_REMEMBERED = 4096
Change = tuple[int, int]
"""Where another weight begins in a text, in bytes, and which."""


class Plan(NamedTuple):
    """What is encoded for a row: `order` has places in `texts`, or `~id` for a control token; `values` their weights.

    `changes`: of texts with more than one weight, by place in `order`, where each begins. `across`: places in `order`
    of control tokens that begin in what has one weight and end in what has another.
    """

    texts: list[str]
    order: list[int]
    values: list[int]
    changes: dict[int, list[Change]]
    across: list[int]


class Cutter:
    """Cuts pieces into texts and control tokens. A literal of a format stands in thousands of rows, and is cut once."""

    def __init__(self, format_: Format, tokenizer: Tokenizer) -> None:
        # Where a template writes, a server finds every control token in its text, and a text is cut at no other place.
        self._whole = format_.template is not None
        self.controls = dict(tokenizer.controls) if self._whole else controls_of(format_, tokenizer)
        ordered = sorted(self.controls, key=len, reverse=True)  # of two that begin alike, the longer one
        self._pattern = re.compile(f"({'|'.join(map(re.escape, ordered))})" if ordered else "((?!))")
        self._heads = _heads_of(format_.document)
        self._cut: dict[str, list[str | int]] = {}
        self._joined: dict[tuple[str, str], tuple[str, str]] = {}

    def cut(self, text: str) -> list[str | int]:
        """Return a literal as texts and ids."""
        found = self._cut.get(text)
        if found is None:
            start, end = (len(text), len(text)) if self._whole else self._attributes_in(text)
            found = [*self._split(text[:start]), *filter(None, [text[start:end]]), *self._split(text[end:])]
            if len(self._cut) >= _REMEMBERED:
                self._cut.clear()
            self._cut[text] = found
        return found

    def parts(self, text: str) -> list[tuple[str, bool]]:
        """Return a literal of a template as texts, each with whether it is a control token."""
        return [(part, at % 2 == 1) for at, part in enumerate(self._pattern.split(text))]

    def _split(self, text: str) -> list[str | int]:
        parts = self._pattern.split(text)
        return [self.controls[part] if at % 2 else part for at, part in enumerate(parts) if part]

    def _attributes_in(self, text: str) -> tuple[int, int]:
        """Return where the attributes of an opening stand: what is in them is somebody's, and no tag in it is one."""
        for open_, end in self._heads:
            at = text.find(open_)
            start = at + len(open_)
            if at >= 0 and not text[:at].strip() and text[start : start + 1] == " " and text.endswith(end):
                return start, max(len(text) - len(end), start)
        return len(text), len(text)

    def plan(self, texts: Sequence[str], marks: Sequence[int], values: Sequence[int]) -> Plan:
        """Return what is encoded for pieces."""
        plan = Plan([], [], [], {}, [])
        parts: list[str] = []
        worths: list[int] = []
        model, before = 0, ""
        for literal, mark, value in zip(texts, marks, values, strict=True):
            text = literal
            if (mark & TRAINABLE) != model and not self._whole:
                begun, rest = self._joint(before, text) if before and mark & CONTROL else ("", "")
                if rest and parts and parts[-1].endswith(begun):  # the token is worth what it begins in
                    parts[-1], worth = parts[-1].removesuffix(begun), worths[-1]
                    _flush(plan, parts, worths)
                    if worth != value:
                        plan.across.append(len(plan.order))
                    plan.order.append(~self.controls[begun + rest])
                    plan.values.append(worth)
                    text = text.removeprefix(rest)
                _flush(plan, parts, worths)
                model = mark & TRAINABLE
            before = literal if mark & CONTROL else ""
            if not mark & CONTROL:
                parts.append(text)
                worths.append(value)
                continue
            for part in self.cut(text):
                if isinstance(part, str):
                    parts.append(part)
                    worths.append(value)
                    continue
                _flush(plan, parts, worths)
                plan.order.append(~part)
                plan.values.append(value)
        _flush(plan, parts, worths)
        return plan

    def _joint(self, before: str, text: str) -> tuple[str, str]:
        """Return the parts in two literals of a tag that begins in one and ends in the next; nothing without one.

        What a model writes may end within a tag, as in `<<USER` of `<<USER>>`.
        """
        found = self._joined.get((before, text))
        if found is None:
            border, found = len(before), ("", "")
            for tag in self._pattern.finditer(before + text):
                if tag.start() < border < tag.end():
                    found = before[tag.start() :], text[: tag.end() - border]
            if len(self._joined) >= _REMEMBERED:
                self._joined.clear()
            self._joined[before, text] = found
        return found


def _heads_of(document: Document) -> list[tuple[str, str]]:
    """Return the beginning and the end of every opening that takes attributes, longer ones first."""
    heads = {("", turn.head_end) for turn in document.turns if turn.attributes}
    heads |= {(one.open, one.head_end) for turn in document.turns for one in turn.segments if one.attributes}
    return sorted(heads, key=lambda head: len(head[0]), reverse=True)


def controls_of(format_: Format, tokenizer: Tokenizer) -> dict[str, int]:
    """Return the format's tags that the tokenizer has control tokens for."""
    controls = tokenizer.controls
    return {tag: controls[tag] for tag in format_.special_tokens if tag in controls}


def _flush(plan: Plan, parts: list[str], worths: list[int]) -> None:
    """Make one text of the pieces since the last cut."""
    if not parts:
        return
    value = worths[0]
    if worths.count(value) != len(worths):
        at, changes, before = 0, [], None
        for part, worth in zip(parts, worths, strict=True):
            if worth != before and part:
                changes.append((at, worth))
                before = worth
            at += len(part.encode())
        if len(changes) > 1:
            plan.changes[len(plan.order)] = changes
        value = changes[0][1] if changes else value
    text = parts[0] if len(parts) == 1 else "".join(parts)
    if text:
        plan.order.append(len(plan.texts))
        plan.values.append(value)
        plan.texts.append(text)
    parts.clear()
    worths.clear()


def encode_ids(
    drafts: Sequence[Draft], cutter: Cutter, tokenizer: Tokenizer, end: int | None
) -> tuple[Flat, dict[int, Problem]]:
    """Return drafts as tokens, with the problems of those without a mask, by position; they have a row, too."""
    plans = [cutter.plan(draft.texts, draft.marks, draft.values) for draft in drafts]
    encoded = tokenizer.each([text for plan in plans for text in plan.texts])
    ids, values, sizes = array("I"), bytearray(), array("q")
    offsets, straddling = [0], []
    problems: dict[int, Problem] = {}
    later: list[tuple[int, bytes]] = []
    for row, (draft, plan) in enumerate(zip(drafts, plans, strict=True)):
        found = list(itertools.islice(encoded, len(plan.texts)))
        across = len(plan.across)
        for at, place in enumerate(plan.order):
            if place < 0:
                ids.append(~place)
                sizes.append(1)
                continue
            if at in plan.changes:
                try:
                    weights, count = _changing(tokenizer, plan.texts[place], found[place], plan.changes[at])
                    later.append((len(ids), weights))
                    across += count
                except BadRow as error:
                    problems[row] = problem_of(error)
            ids.fromlist(found[place])
            sizes.append(len(found[place]))
        values += bytes(plan.values)
        if end is not None:
            ids.append(end)
            sizes.append(1)
            values.append(draft.end)
        offsets.append(len(ids))
        straddling.append(across)
    spread = np.repeat(np.frombuffer(values, np.uint8), np.frombuffer(sizes, np.int64))
    for start, weights in later:
        spread[start : start + len(weights)] = np.frombuffer(weights, np.uint8)
    return Flat(np.frombuffer(ids, np.uint32), spread, np.array(offsets, np.int64), straddling), problems


def _changing(tokenizer: Tokenizer, text: str, ids: Sequence[int], changes: Sequence[Change]) -> tuple[bytes, int]:
    """Return the weights of the tokens of a text that has more than one, and how many tokens lie across."""
    ends = tokenizer.ends(text, ids)
    starts = np.concatenate(([0], ends[:-1]))
    places = np.array([at for at, _ in changes], np.int64)
    first = np.searchsorted(starts, places, "left")
    values = np.frombuffer(bytes(value for _, value in changes), np.uint8)
    across = first[1:][ends[first[1:] - 1] > places[1:]]
    weights = np.repeat(values, np.diff(np.append(first, len(ends))))
    return weights.tobytes(), len(np.unique(across))
