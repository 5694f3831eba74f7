"""Owns the short way to check samples: what is true of one row of some shape is true of all rows of that shape.

Rows of one shape have the same tools, items of the same kinds and, in calls and results, equal names and ids at the
same places. They differ in what fills the holes of the shape: texts, arguments, names and ids. Of the first rows of a
shape, and of one in some more, everything is checked the long way. For the others it is proved once, on a probe that
passes the long way, what stands around the holes, what is trained, which prompts lead to turns, and that the strict
reader gives it back. From that their samples are made, and not by what a build makes them with, so an output shows
where that goes wrong. Each is still looked at: its tokens spell its text, byte for byte, exactly that is trained which
the proof says, and of each turn some of its text is.

A row is read back as the probe was where its texts decide nothing about that: where all tags begin alike, at the start
of a line, and no text has that, there are no tags but those of the literals (`engine.read.settles`). Any other row is
read back itself. Whatever is otherwise about a row goes the long way, which says what is wrong. Many rows are looked at
together, because most of the work is over arrays.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, json
from numpy.typing import NDArray

from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    System,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    User,
)
from turnscript.core.errors import TurnscriptError
from turnscript.core.json_text import is_json, is_object
from turnscript.datasets.drafts import Draft, Measured
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.tokenizer import Ends
from turnscript.engine.bodies import CallArguments, ResultContent
from turnscript.engine.layout import Place, layout_of
from turnscript.engine.read import settles
from turnscript.engine.spans import CONTROL, flatten

Kinds = tuple[Any, ...]
"""Of each item its kind; of a call or a result also what its text and its message look like, and which words are its
name and id. Behind them a digest of the tools, if there are any."""
Spot = tuple[int, int]
"""A place in any row of a shape: how many bytes of its literals and how many of its holes are before it."""

_FIRST, _AGAIN = 3, 128
"""So many first rows of a shape go the long way, and one in so many afterwards."""
_LONGEST, _REMEMBERED = 64, 4096
_BODIES: dict[type[Item], object] = {ToolCall: CallArguments, ToolResult: ResultContent}
"""Bodies that write the text of a call or a result as it stands."""
_WORD = re.compile(r"[A-Za-z0-9_.:/-]+")
"""A name or an id that is written as it stands."""
_OBJECT, _JSON, _PLAIN = '{{"{}": 1}}', '["{}"]', "{}"
_HELD = {"at", "content", "name", "id", "arguments"}


def _rest(kind: Any) -> tuple[Callable[[Any], object], object]:
    """Return what gives of an item what no hole holds, and what that is where it says nothing."""
    held = _HELD if kind in _BODIES else {"at", "content"}
    rest = attrgetter(*[name for name in kind.__struct_fields__ if name not in held])
    return rest, rest(kind(name="") if kind is ToolCall else kind())


_REST = {kind: _rest(kind) for kind in (System, User, Assistant, Thinking, ToolCall, ToolResult)}


class Said(NamedTuple):
    """What fills the holes of a row: its texts, and its names and ids, each once; only calls and results have these.
    And its tools, which are no hole: rows with others are of another shape.
    """

    kinds: Kinds
    texts: Sequence[str]
    words: Sequence[str] = ()
    tools: Sequence[Tool] = ()


class Looked(NamedTuple):
    """What was seen of a probe that is as it should be: its draft, how many bytes its prompts have, of each trained
    text of the model where it begins and ends and where what ends it does, how many ends are trained, and whether it
    is read back as another conversation with the same texts.
    """

    draft: Draft
    prompts: Sequence[int]
    said: Sequence[tuple[int, int, int]]
    ends: int
    explained: bool


class Proof(Struct):
    """What is known of all rows of some shape.

    `parts`: the literals, with nothing between them; `holes`: which text or word, behind all texts, fills each. `tag`:
    what texts have to be without to be read back as they stand, empty if that is unknown; `tags`: how often the
    literals have it. `places`: where the texts stand. `size`: the bytes of all literals. `borders` and `kept`: where
    other weights begin, and all weights; `end`: that of the token behind the document. `prompts`: where prompts end,
    `said`: where texts of the model begin. `ends` and `explained`: as with the probe.
    """

    parts: list[str]
    holes: list[int]
    tag: str
    tags: int
    places: list[Place]
    size: int
    borders: list[Spot]
    kept: list[int]
    end: int
    prompts: list[Spot]
    said: list[Spot]
    ends: int
    explained: bool


class Proved(NamedTuple):
    """What a proof wrote: how many bytes fill each hole, and the text."""

    proof: Proof
    sizes: list[int]
    text: str


class Proofs:
    """The proofs of one encoder's rows. Where there are several ways to write a row, all go the long way.

    `look`: looks at a probe the long way; None where it is not as most rows are.
    """

    def __init__(self, encoder: Encoder, look: Callable[[Example], Looked | None]) -> None:
        options = encoder.options
        plain = encoder.train.is_plain() and options.escape == "auto" and encoder.format.template is None
        self._able = plain and encoder.mode == "text"
        self._format = encoder.format
        self._look = look
        layout = layout_of(encoder.format.document)
        self._places: dict[type[Item], Place] = dict(layout.plain)
        for kind, body in _BODIES.items():
            place = layout.places.get(kind.kind)
            if place is not None and type(place.body) is body and not (options.declared or options.normalize_json):
                self._places[kind] = place
        self._seen: dict[Kinds, int] = {}
        self._known: dict[Kinds, Proof | None] = {}

    def draft(self, example: Example) -> Draft | None:
        """Return a row as the proof of its shape says that it is written; None if it must go the long way."""
        said = self._said(example)
        proof = self._of(said) if said is not None else None
        if said is None or proof is None:
            return None
        values = said.texts
        if said.words:
            known = [*values, *said.words]
            values = [known[at] for at in proof.holes]
        parts = proof.parts.copy()
        parts[1::2] = values
        text = "".join(parts)
        try:
            sizes = [len(value) if value.isascii() else len(value.encode()) for value in values]
        except UnicodeEncodeError:
            return None
        if not self._is_given_back(proof, said, text):
            return None
        ends = [0, *accumulate(sizes)]
        starts = [0, *[size + ends[holes] for size, holes in proof.borders]]
        draft = Draft([text], [0], [0], Measured(proof.size + ends[-1], starts, proof.kept))
        draft.end, draft.by = proof.end, Proved(proof, sizes, text)
        return draft

    def _said(self, example: Example) -> Said | None:
        if not self._able or example.weights or example.context or example.is_document:
            return None
        spoken = example.spoken
        if spoken is None:
            return _said(example.request)
        return Said(spoken.kinds, spoken.texts) if all(spoken.texts) else None

    def _of(self, said: Said) -> Proof | None:
        """Return the proof for a row; None where it goes the long way."""
        kinds = said.kinds
        if not 0 < len(kinds) <= _LONGEST:
            return None
        if len(self._seen) >= _REMEMBERED:
            self._seen.clear()
            self._known.clear()
        seen = self._seen[kinds] = self._seen.get(kinds, -1) + 1
        if seen < _FIRST or not seen % _AGAIN:
            return None
        if kinds not in self._known:
            self._known[kinds] = self._proved(said)
        return self._known[kinds]

    def _is_given_back(self, proof: Proof, said: Said, written: str) -> bool:
        """Return whether the renderer writes the texts unchanged and the strict reader gives them back."""
        if proof.tag and written.count(proof.tag) == proof.tags:
            return True
        return not said.words and self._as_they_are(proof, said.texts) and self._reads(said, written)

    def _as_they_are(self, proof: Proof, texts: Sequence[str]) -> bool:
        """Return whether the renderer writes texts without a change."""
        document = self._format.document
        if document.flattened and any(flatten(text, document.blank) != text for text in texts):
            return False
        pairs = zip(proof.places, texts, strict=True)
        return all(place.lead_of_tags not in text or place.protect(text) == text for place, text in pairs)

    def _reads(self, said: Said, written: str) -> bool:
        """Return whether the strict reader gives the items back, and nothing beside them."""
        try:
            found = _said(self._format.parse(written))
        except TurnscriptError:
            return False
        return found is not None and found.kinds == said.kinds and found.texts == list(said.texts)

    def _proved(self, said: Said) -> Proof | None:
        items, probes = _probe(said)
        places = [place for item in items if (place := self._places.get(type(item))) is not None]
        request = Request(conversation=Conversation(items, list(said.tools)))
        looked = self._look(Example(request)) if len(places) == len(items) else None
        if looked is None or looked.draft.losses:
            return None
        draft, text = looked.draft, looked.draft.text
        found = list(re.finditer("|".join(map(re.escape, probes)), text))
        edges = [0, *[at for one in found for at in one.span()], len(text)]
        literals = [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
        holes = [probes.index(one[0]) for one in found]
        around = list(zip(holes, pairwise(literals), strict=True))
        tag = self._tag(places, [pair for hole, pair in around if hole < len(items)])
        quoted = [before[-1:] + after[:1] == '""' for hole, (before, after) in around if hole >= len(items)]
        written = [
            piece for piece, mark in zip(draft.texts, draft.marks, strict=True) if mark >= 0 and not mark & CONTROL
        ]
        once = [hole for hole in holes if hole < len(items)] == list(range(len(items)))
        if not once or written != probes[: len(items)] or (said.words and not (tag and all(quoted))):
            return None
        # From here on in bytes.
        bounds = [(len(text[: one.start()].encode()), len(text[: one.end()].encode())) for one in found]
        stretches = list(zip(draft.starts, [*draft.starts[1:], draft.size], draft.kept, strict=True))
        for start, stop, end in looked.said:
            untrained = any(begin < end and start < last and not worth for begin, last, worth in stretches)
            if untrained or (start, stop) not in bounds:
                return None
        of_all = (draft.starts[1:], looked.prompts, [start for start, _, _ in looked.said])
        borders, prompts, begun = ([_spot(bounds, at) for at in some] for some in of_all)
        if any(before < 0 for _, before in (*borders, *prompts, *begun)):
            return None
        size = draft.size - sum(stop - start for start, stop in bounds)
        tags = sum(literal.count(tag) for literal in literals) if tag else 0
        parts = [part for literal in literals for part in (literal, "")][:-1]
        more = (draft.kept, draft.end, prompts, begun, looked.ends, looked.explained)
        return Proof(parts, holes, tag, tags, places, size, borders, *more)

    def _tag(self, places: Sequence[Place], around: Sequence[tuple[str, str]]) -> str:
        """Return what texts between these have to be without to be written and read as they stand; empty if unknown."""
        document = self._format.document
        tags = {settles(document, *pair) for pair in around}
        tags.update(*(place.escape.leads for place in places))
        return tags.pop() if len(tags) == 1 and not document.flattened else ""


def _said(request: Request) -> Said | None:
    """Return what a conversation holds in which all items say one text or call; None if it says more."""
    if request.unread or request.tight or request.unasked:
        return None
    kinds: list[Any] = []
    texts: list[str] = []
    words: dict[str, int] = {}
    for item in request.items:
        kind: Any = type(item)
        rest, usual = _REST.get(kind, (None, None))
        if rest is None or rest(item) != usual:
            return None
        text = item.arguments if isinstance(item, ToolCall) else _only_text(item)
        if isinstance(item, ToolCall | ToolResult):
            # An escape may be written as its character, and arguments on several lines may be laid out.
            form = _OBJECT if is_object(text) else _JSON if is_json(text) else _PLAIN
            if "\\u" in text or (kind is ToolCall and (form is not _OBJECT or "\n" in text)):
                return None
            named = [-1 if one is None else words.setdefault(one, len(words)) for one in (item.name, item.id)]
            kind = (kind, form, *named)
        kinds.append(kind)
        texts.append(text)
    if not all(texts) or not all(map(_WORD.fullmatch, words)):
        return None
    if request.tools:
        kinds.append(hashlib.sha256(json.encode(request.tools)).digest())
    return Said(tuple(kinds), texts, list(words), request.tools)


def _only_text(item: Any) -> str:
    """Return the text of an item that has one and nothing beside it; empty if it has not."""
    content = item.content
    return content[0].text if len(content) == 1 and type(content[0]) is Text and not content[0].extra else ""


def _probe(said: Said) -> tuple[list[Any], list[str]]:
    """Return items of the same shape, and what fills its holes."""
    fill = [f"zq{at}qz" for at in range(len(said.texts) + len(said.words))]
    words = [*fill[len(said.texts) :], None]
    items: list[Any] = []
    for at, kind in enumerate(said.kinds[: len(said.texts)]):
        named: dict[str, Any] = {}
        if isinstance(kind, tuple):
            kind, form, name, id_ = kind  # noqa: PLW2901
            fill[at], named = form.format(fill[at]), {"name": words[name], "id": words[id_]}
        text = {"arguments": fill[at]} if kind is ToolCall else {"content": [Text(text=fill[at])]}
        items.append(kind(at=str(at), **named, **text))
    return items, fill


def _spot(holes: Sequence[tuple[int, int]], place: int) -> Spot:
    """Return a place in a probe as one in any row: its literals and holes; -1 of these if it is inside of one."""
    if any(start < place < stop for start, stop in holes):
        return place, -1
    before = [stop - start for start, stop in holes if stop <= place]
    return place - sum(before), len(before)


def held(
    samples: Sequence[Sample], widths: Ends, *, ended: bool
) -> Iterator[tuple[Proof, list[int], NDArray[np.int64], NDArray[np.bool_]]]:
    """Give, by their proofs, the positions of samples that proofs wrote and in which exactly that is trained which the
    proof says, and of each turn a token that begins in its text, so all that ends the turn is trained, too. With them
    how many bytes the prompts of each have, and whether a token ends there.

    `widths`: the bytes of their tokens, one sample behind the other. `ended`: there is a token behind each document.
    """
    ends = widths.cumsum()
    starts = ends - widths
    counts = np.concatenate([sample.weights for sample in samples]) > 0
    trained = np.concatenate(([0], counts.cumsum()))
    first = np.cumsum([0, *[len(sample.ids) for sample in samples]])
    bytes_ = np.concatenate(([0], ends))[first]
    alike: dict[int, list[int]] = {}
    for at, sample in enumerate(samples):
        alike.setdefault(id(sample.by.proof), []).append(at)
    for rows in alike.values():
        proof: Proof = samples[rows[0]].by.proof
        places, sizes = np.array(rows), np.array([samples[at].by.sizes for at in rows])
        before = bytes_[places, None] + np.pad(sizes.cumsum(axis=1), ((0, 0), (1, 0)))
        spots = (np.array(some, np.int64).reshape(-1, 2) for some in (proof.borders, proof.prompts, proof.said))
        borders, prompts, said = (before[:, some[:, 1]] + some[:, 0] for some in spots)
        behind = first[places + 1]
        edges = np.column_stack((first[places], np.searchsorted(starts, borders), behind - ended, behind))
        worth = np.array([*proof.kept, proof.end]) > 0
        fine = (np.diff(trained[edges]) == np.diff(edges) * worth).all(axis=1)
        stops = said + sizes[:, [hole for _, hole in proof.said]]
        fine &= (starts[np.searchsorted(starts, said)] < stops).all(axis=1)
        fine &= before[:, -1] + proof.size == bytes_[places + 1]
        exact = ends[np.searchsorted(ends, prompts)] == prompts
        yield (proof, places[fine].tolist(), (prompts - bytes_[places, None])[fine], exact[fine])


__all__ = ["Looked", "Proofs", "Proved", "held"]
