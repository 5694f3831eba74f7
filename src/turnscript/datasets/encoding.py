"""Owns the way from examples to samples: token ids with a weight for each, many rows at once, none of them lost unsaid.

Three steps: a draft is the example as pieces of text (encoding_rows), its tokens and their weights are made in the mode
`text` (encoding_text) or `ids` (encoding_ids), and what comes of it is looked at: is anything trained, do the ids fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypedDict, Unpack

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from turnscript.core.conversation import Item
from turnscript.core.errors import LossyConversion, TurnscriptError, UnknownName, Unsupported
from turnscript.core.losses import Loss
from turnscript.datasets.answer_beginnings import Opened
from turnscript.datasets.drafts import Draft
from turnscript.datasets.encoding_ids import Cutter, encode_ids
from turnscript.datasets.encoding_rows import WEIGHTS, Drafter, Options, untrained
from turnscript.datasets.encoding_spaces import Spaces
from turnscript.datasets.encoding_text import Flat, encode_texts
from turnscript.datasets.explaining import Token, explained
from turnscript.datasets.form import Example
from turnscript.datasets.problems import DEFECTS, BadRow, Code, Problem, problem_of
from turnscript.datasets.tokenizer import EACH, FIRST, Ids, Tokenizer
from turnscript.datasets.train import Train
from turnscript.engine.escape import POLICIES
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, Span
from turnscript.formats.format import Format

MODES = ("auto", "ids", "text")
Write = Callable[[Example], Draft | None]


class Sample(Struct, frozen=True, gc=False):
    """Tokens, and how much each counts in the loss: 0 to the encoder's `scale`.

    `trained`: how many count. `straddling`: how many lie across a border of what is trained. `losses`: what of the
    conversation the format does not show. `digest`: equal for samples with the same text and weights. `unlike`: how it
    differs from what its chat template makes of it, empty if it does not; None for what no template wrote. `by`: what
    wrote it, if a proof did; then it has no digest, as nobody asks for it.
    """

    ids: Ids
    weights: NDArray[np.uint8]
    trained: int
    straddling: int
    losses: Sequence[Loss]
    digest: bytes
    unlike: str | None = None
    by: Any = None


class Wishes(TypedDict, total=False):
    """The options of an encoder: `Options` says what they mean."""

    mode: str
    escape: str
    weights: str
    end: bool
    now: datetime | None
    strict: bool
    declared: bool
    media: str
    normalize_json: bool
    bare_calls: bool
    order: str
    largest: int | None


class Encoder:
    """Makes samples of examples. `mode`: `ids` or `text`, resolved. `scale`: the weight byte that stands for 1.

    `end`: the id that is put behind each document, None if there is none.
    """

    def __init__(self, format: Format, tokenizer: Tokenizer, train: Train, **wishes: Unpack[Wishes]) -> None:  # noqa: A002
        options = Options(**wishes)
        for kind, said, known in (
            ("mode", options.mode, MODES),
            ("escape", options.escape, tuple(POLICIES)),
            ("weights", options.weights, tuple(WEIGHTS)),
        ):
            if said not in known:
                raise UnknownName(kind, said, known)
        self.format = format
        self.tokenizer = tokenizer
        self.train = train
        self.options = options
        self._cutter = Cutter(format, tokenizer)
        self._spaces = Spaces.of(self._cutter, tokenizer) if format.template is not None else None
        self.mode = _mode(options.mode, self._cutter, format, tokenizer)
        self.scale = WEIGHTS[options.weights]
        self.end = tokenizer.end if options.end and not _ends_with(format_=format, tokenizer=tokenizer) else None
        self._drafter = Drafter(format, train, options)

    def encode(self, examples: Sequence[Example], write: Write | None = None) -> list[Sample | Problem]:
        """Return a sample of each example, or what is wrong with it. Many at once make it fast.

        `write`: makes the drafts of some examples, None for those that are made as a build makes them.
        """
        results: list[Sample | Problem | None] = [None] * len(examples)
        places: list[int] = []
        drafts: list[Draft] = []
        for at, example in enumerate(examples):
            try:
                drafts.append((write and write(example)) or self.draft(example))
                places.append(at)
            except (TurnscriptError, *DEFECTS) as error:
                results[at] = _problem(error)
        if drafts:
            made = self._samples([examples[at] for at in places], drafts)
            for at, sample in zip(places, made, strict=True):
                results[at] = sample
        return [result for result in results if result is not None]

    def draft(self, example: Example) -> Draft:
        """Return an example in pieces. Raises what `encode` gives as a problem."""
        return self._served(self._drafter.draft(example))

    def counts(self, example: Example) -> list[int]:
        """Return for each item the byte that its trained tokens get. Raises BadRow for weights that cannot be meant."""
        return self._drafter.weights(example)

    def normalized(self, example: Example) -> Example:
        """Return an example as it is written: its JSON in one spelling, where the options want that."""
        return self._drafter.normalized(example)[0]

    def as_said(self, example: Example) -> tuple[Example, Opened | None]:
        """Return a conversation as its text says it: normalized, with empty answers before calls at once."""
        return self._drafter.as_said(example)

    def explain(self, example: Example) -> list[Token]:
        """Return every token of an example, with what it belongs to. Raises what `encode` gives as a problem."""
        return self._explained(self.draft(example), example.request.items)

    def explain_prompt(self, spans: Sequence[Span], items: Sequence[Item]) -> list[Token]:
        """Return every token of the prompt of these items: what the model has written in it counts."""
        spans = [span for span in spans if span.text]
        if not spans:
            return []
        texts = self.served([span.text for span in spans], _marks(spans))
        return self._explained(Draft(texts, _marks(spans), [self.scale * span.trainable for span in spans]), items)

    def served(self, texts: list[str], marks: Sequence[int]) -> list[str]:
        """Return pieces as a server's tokenizer reads them: of what a template wrote, without the white space that it
        takes away and with the spaces that it puts there. What a format wrote stays as it is.
        """
        return texts if self._spaces is None else self._spaces.served(texts, marks)

    def _served(self, draft: Draft) -> Draft:
        texts = self.served(draft.texts, draft.marks)
        if texts is draft.texts:
            return draft
        served = Draft(texts, draft.marks, draft.values)
        served.end, served.losses, served.unlike = draft.end, draft.losses, draft.unlike
        return served

    def prompt_ids(self, spans: Sequence[Span], known: dict[str, list[int]] | None = None) -> list[int]:
        """Return a prompt as ids, by the same rule: what a model is fed that was trained on these samples.

        `known`: ids of texts that stood between tags before, for who has many prompts of one conversation.
        """
        texts = self.served([span.text for span in spans], _marks(spans))
        if self.mode == "text":
            return self.tokenizer.encode(["".join(texts)])[0] if any(texts) else []
        plan = self._cutter.plan(texts, _marks(spans), [0] * len(texts))
        known = {} if known is None else known
        new = [text for text in dict.fromkeys(plan.texts) if text not in known]
        known.update(zip(new, self.tokenizer.encode(new), strict=True))
        found = [known[text] for text in plan.texts]
        return [number for place in plan.order for number in (found[place] if place >= 0 else (~place,))]

    def facts(self) -> dict[str, Any]:
        """Return what decides the ids and weights, for a manifest: plain values, the same for the same plan."""
        document = self.format.document
        kept = self.format.template is None  # what a template writes is as a server's tokenizer reads it
        strips = sorted(self.tokenizer.strips & self._cutter.controls.keys()) if self.mode == "ids" and kept else []
        spaced = kept and (self.tokenizer.spaced == EACH or (self.tokenizer.spaced == FIRST and self.mode == "text"))
        return {
            "format": self.format.name,
            "grows": document.grows,
            **self._template_facts(),
            "tokenizer": self.tokenizer.spec,
            "tokenizer_sha256": self.tokenizer.fingerprint,
            "size": self.tokenizer.size,
            "mode": self.mode,
            "controls": dict(sorted(self._cutter.controls.items(), key=lambda pair: pair[1]))
            if self.mode == "ids"
            else {},
            "end": self.end,
            "train": self.train.spelling,
            "escape": self.options.escape,
            "media": self.options.media,
            "normalize_json": self.options.normalize_json,
            "bare_calls": self.options.bare_calls,
            **({"order": self.options.order} if self.options.order else {}),
            "weights": self.options.weights,
            "scale": self.scale,
            **({"strips": strips} if strips else {}),
            **({"spaced": self.tokenizer.spaced} if spaced else {}),
            **({"prefill": document.generation.prefill} if document.generation.prefill and kept else {}),
        }

    def _template_facts(self) -> dict[str, Any]:
        template, now = self.format.template, self.options.now
        if template is None:
            return {}
        found = {"template": template.told_by, "read_as": template.read_as, "reading": template.sentence}
        return found if now is None else {**found, "date": now.date().isoformat()}

    def _batch(self, examples: Sequence[Example], drafts: Sequence[Draft]) -> list[Sample | Problem]:
        flat, problems = self._flat(drafts)
        ids, weights, offsets = flat.ids, flat.weights, flat.offsets
        problems = self._over(ids, offsets) | problems
        found: list[Sample | Problem] = []
        bounds = itertools.pairwise(offsets.tolist())
        for at, (draft, (first, last), across) in enumerate(zip(drafts, bounds, flat.straddling, strict=True)):
            if at in problems:
                found.append(problems[at])
                continue
            worth = weights[first:last]
            trained = int(np.count_nonzero(worth))
            if trained == (draft.end != 0 and self.end is not None):
                found.append(problem_of(untrained(examples[at], draft)))
                continue
            digest = draft.digest if draft.by is None else b""
            found.append(Sample(ids[first:last], worth, trained, across, draft.losses, digest, draft.unlike, draft.by))
        return found

    def _samples(self, examples: Sequence[Example], drafts: Sequence[Draft]) -> list[Sample | Problem]:
        """Return a sample of each draft. Where a text is refused, or is too odd for the code, its row is looked for."""
        try:
            return self._batch(examples, drafts)
        except (BadRow, *DEFECTS) as error:
            if len(drafts) == 1:
                return [problem_of(error)]
        pairs = zip(examples, drafts, strict=True)
        return [found for example, draft in pairs for found in self._samples([example], [draft])]

    def _explained(self, draft: Draft, items: Sequence[Item]) -> list[Token]:
        flat, problems = self._flat([draft])
        if problems:
            raise Unsupported("the mask of this row", f"the mode {self.mode!r}", problems[0].message)
        plan = self._cutter.plan(draft.texts, draft.marks, draft.values) if self.mode == "ids" else None
        return explained(draft, flat, self.tokenizer, items, plan, self.end)

    def _flat(self, drafts: Sequence[Draft]) -> tuple[Flat, dict[int, Problem]]:
        if self.mode == "ids":
            return encode_ids(drafts, self._cutter, self.tokenizer, self.end)
        return encode_texts(drafts, self.tokenizer, self.end)

    def _over(self, ids: Ids, offsets: NDArray[np.int64]) -> dict[int, Problem]:
        """Return rows with ids that an output cannot hold."""
        largest = self.options.largest
        if largest is None or not len(ids) or int(ids.max()) <= largest:
            return {}
        rows = np.searchsorted(offsets, np.flatnonzero(ids > largest), "right") - 1
        message = f"a token id is larger than {largest}, the largest that the output holds; choose a wider one"
        return {int(row): Problem(Code.ID_RANGE, message) for row in rows}


def _ends_with(format_: Format, tokenizer: Tokenizer) -> bool:
    """Return whether a template ends all turns with the token that separates documents: one is enough then."""
    if format_.template is None:
        return False
    literals = [literal for literal, number in tokenizer.controls.items() if number == tokenizer.end]
    return any(literal in format_.template.traits.ends for literal in literals)


def _marks(spans: Sequence[Span]) -> list[int]:
    """Return what is known of each span, as a Writer has it."""
    return [span.item * ITEM + CONTROL * span.control + TRAINABLE * span.trainable for span in spans]


def _mode(asked: str, cutter: Cutter, format_: Format, tokenizer: Tokenizer) -> str:
    if asked == "auto":
        return "ids" if cutter.controls else "text"
    if asked == "ids" and not cutter.controls and format_.special_tokens:
        tags = ", ".join(format_.special_tokens[:4])
        message = (
            f"the tokenizer {tokenizer.spec!r} has no control token for any tag of {format_.name!r} ({tags}, ...); "
            "add them (`turnscript data tokens`) or use the mode 'text'"
        )
        raise Unsupported("the mode 'ids'", tokenizer.spec, message)
    return asked


def _problem(error: Exception) -> Problem:
    found = problem_of(error, Code.FORMAT)
    if isinstance(error, LossyConversion):
        first = error.losses[0]
        return Problem(Code.LOSSY, found.message, first.path)
    return found


__all__ = ["Encoder", "Sample", "Token"]
