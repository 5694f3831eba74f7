"""Owns what becomes of rows: the samples of each, all of them or the reason why it has none.

A row may have several examples, and by the plan each of these becomes several samples. Many rows are encoded at once,
because that is what makes it fast, and not too many, because that is what bounds the memory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from turnscript.core.conversation import Item
from turnscript.core.errors import TurnscriptError
from turnscript.datasets.chat_writing import Written, write_chat
from turnscript.datasets.drafts import DIGEST
from turnscript.datasets.encoding import Encoder, Sample, Write
from turnscript.datasets.expansion import UNTRAINED, expanded, turns_of
from turnscript.datasets.form import Example
from turnscript.datasets.hosted_tools import REJECT, retold
from turnscript.datasets.overflow import Overflow
from turnscript.datasets.plan import CUT, DROP_TURNS, TURNS, Plan
from turnscript.datasets.preparation import format_of
from turnscript.datasets.problems import DEFECTS, Code, Problem, problem_of
from turnscript.datasets.shardfiles import Cuts

BATCH_ROWS = 256
BATCH_BYTES = 2 << 20
"""Rows are encoded together, so many or of so many bytes: enough for speed, and few enough to bound the memory."""


class Made(Struct, gc=False):
    """What becomes of a row. A Struct, as all that is made for each row: a named tuple takes three times as long.

    `whole`: each sample before anything was cut, with its example. `samples`: what the outputs get, none if there is a
    `problem`. `said`: what each of these says, None for a part of something. `chats`: that as messages, if these are
    asked for. `digest`: what the row is compared by: equal for rows with equal samples, before anything was cut.
    """

    whole: list[tuple[Example, Sample]]
    samples: list[Sample]
    said: list[Example | None]
    chats: list[Written]
    cuts: list[Cuts]
    digest: bytes = b""
    problem: Problem | None = None


_Pair = tuple[Example, Sample | Problem]


class RowSamples:
    """Makes the samples of rows as a plan says. `chats`: their conversations too. `write`: that of `Encoder.encode`."""

    def __init__(self, encoder: Encoder, plan: Plan, *, chats: bool = False, write: Write | None = None) -> None:
        self._encoder = encoder
        self._write_draft = write
        self._chats = chats
        self._strict = plan.strict
        self._hosted = plan.hosted
        self._expands = plan.expand == TURNS
        self._forgotten = format_of(plan).forgets
        self._limit = plan.limit
        self._overflow = Overflow(encoder, plan.overflow, plan.limit or 0)
        self._leaves_out = plan.overflow in (DROP_TURNS, CUT)

    def make(self, rows: Sequence[Sequence[Example]]) -> Iterator[Made]:
        """Give what becomes of each row. One without examples has no samples either, and no problem."""
        if self._hosted != REJECT:
            rows = [[retold(example, self._hosted) for example in row] for row in rows]
        if self._expands:
            yield from self._make_turns(rows)
            return
        results = iter(self._encoder.encode([example for row in rows for example in row], self._write_draft))
        for row in rows:
            if len(row) == 1:
                yield self._fitting(row[0], next(results))
            else:
                yield self._made([(example, next(results)) for example in row])

    def parts(self, example: Example) -> list[Example]:
        """Return what there are samples of: the example itself, or those of its turns of which something is trained."""
        example = retold(example, self._hosted)
        turns = turns_of(self._encoder, example) if self._expands else []
        if not turns:
            return [example]
        pairs = list(self._encoded(expanded(example, turns, self._forgotten)))
        return [part for part, found in pairs if not _is_untrained(found)] or [part for part, _ in pairs[:1]]

    def _make_turns(self, rows: Sequence[Sequence[Example]]) -> Iterator[Made]:
        turns = [[turns_of(self._encoder, example) for example in row] for row in rows]
        parts = (
            part
            for row, of_row in zip(rows, turns, strict=True)
            for example, own in zip(row, of_row, strict=True)
            for part in expanded(example, own, self._forgotten)
        )
        pairs = self._encoded(parts)
        for of_row in turns:
            made = [self._made(list(islice(pairs, len(own) or 1)), turns=bool(own)) for own in of_row]
            yield made[0] if len(made) == 1 else _joined(made)

    def _encoded(self, parts: Iterable[Example]) -> Iterator[_Pair]:
        """Give parts with what they are encoded as. All turns of a long conversation are much longer than their row."""
        waiting: list[Example] = []
        size = 0
        for part in parts:
            waiting.append(part)
            size += sum(map(_length, part.request.items))
            if size >= BATCH_BYTES:
                yield from zip(waiting, self._encoder.encode(waiting), strict=True)
                waiting, size = [], 0
        yield from zip(waiting, self._encoder.encode(waiting), strict=True)

    def _fitting(self, example: Example, result: Sample | Problem) -> Made:
        """Return what becomes of the one example of a row: most have one, and it fits."""
        if isinstance(result, Problem) or self._chats or self._is_long(result):
            return self._made([(example, result)])
        return Made([(example, result)], [result], [example], [], [], result.digest)

    def _is_long(self, sample: Sample) -> bool:
        return self._limit is not None and len(sample.ids) > self._limit

    def _made(self, pairs: Sequence[_Pair], turns: bool = False) -> Made:
        """Return what becomes of an example, or of all examples of a row.

        `turns`: these are turns of one example. Then one that nothing is trained of has no sample, and neither has one
        that is too long where that is no reason to set the row aside, as long as another one has.
        """
        made = Made([], [], [], [], [])
        left_out: Problem | None = None
        for example, result in pairs:
            if isinstance(result, Sample) and result.by is not None and self._is_long(result):
                # No output has all of it, which would show how a build makes it.
                (result,) = self._encoder.encode([example])  # noqa: PLW2901
            if isinstance(result, Problem):
                if not turns or result.code not in UNTRAINED:
                    return _refused(result)
                left_out = left_out or result
                continue
            made.whole.append((example, result))
            if not self._is_long(result):
                made.samples.append(result)
                made.said.append(example)
                continue
            fitted = self._overflow.fit(example, result, turn=turns)
            if not isinstance(fitted, Problem):
                made.samples.extend(fitted.samples)
                made.said.extend([fitted.example] * len(fitted.samples))
                made.cuts.append(fitted.cuts)
            elif turns and self._leaves_out:
                left_out = fitted
                made.cuts.append(Cuts(dropped_turns=1, tokens=len(result.ids)))
            else:
                return _refused(fitted)
        if not made.samples:
            return _refused(left_out)
        if self._chats and (problem := self._write(made)) is not None:
            return _refused(problem)
        made.digest = _digest([sample.digest for _, sample in made.whole])
        return made

    def _write(self, made: Made) -> Problem | None:
        """Write what samples say as messages, in the spelling of their tokens, or tell why that cannot be."""
        said, chats, normalized = made.said, made.chats, self._encoder.normalized
        try:
            said[:] = [normalized(example) if example is not None else None for example in said]
            chats += [write_chat(example) if example is not None else Written(b"", ()) for example in said]
        except (TurnscriptError, *DEFECTS) as error:
            return problem_of(error)
        losses = [loss for chat in chats for loss in chat.losses] if self._strict else []
        if losses:
            message = f"messages cannot say all of it: {losses[0].kind}: {losses[0].detail}; leave JSON Lines out"
            return Problem(Code.LOSSY, message, losses[0].path)
        return None


def unlike_of(whole: Sequence[tuple[Example, Sample]]) -> str | None:
    """Return how a row differs from what its chat template writes: empty if not at all, None without a template."""
    found = [sample.unlike for _, sample in whole if sample.unlike is not None]
    return next(filter(None, found), "") if found else None


def _refused(problem: Problem | None) -> Made:
    return Made([], [], [], [], [], problem=problem)


def _is_untrained(found: Sample | Problem) -> bool:
    return isinstance(found, Problem) and found.code in UNTRAINED


def _joined(made: Sequence[Made]) -> Made:
    """Return what becomes of a row of several examples: of all of them, or of none."""
    for one in made:
        if one.problem is not None:
            return one
    whole = [pair for one in made for pair in one.whole]
    samples = [sample for one in made for sample in one.samples]
    said = [example for one in made for example in one.said]
    chats = [chat for one in made for chat in one.chats]
    cuts = [cut for one in made for cut in one.cuts]
    return Made(whole, samples, said, chats, cuts, _digest([one.digest for one in made]))


def _digest(digests: Sequence[bytes]) -> bytes:
    return digests[0] if len(digests) == 1 else hashlib.blake2b(b"".join(digests), digest_size=DIGEST).digest()


def _length(item: Item) -> int:
    """Return about how much text an item has."""
    texts = [getattr(part, "text", None) or "" for part in getattr(item, "content", ())]
    return sum(map(len, texts)) + len(getattr(item, "arguments", ""))
