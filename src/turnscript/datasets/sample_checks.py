"""Owns what must be true of one sample: it says what its conversation says, prompts lead into it, turns end.

The conversation is rendered anew and the tokens are decoded and read back, so that a fault of the encoder shows. The
work for a sample is linear in its length: of a conversation with many turns, the prompts of a few are looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import Conversation, Item, Request, Settings, Thinking, ToolCall, ToolChoice
from turnscript.core.errors import TurnscriptError, Unsupported
from turnscript.core.json_spelling import shown
from turnscript.datasets.answer_beginnings import Opened
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.encoding_rows import fill_order
from turnscript.datasets.form import Example
from turnscript.datasets.problems import Problem, difference
from turnscript.datasets.promptids import PromptIds
from turnscript.datasets.shape_checks import Looked, Proofs, held
from turnscript.datasets.tokenbytes import Spelled, TokenBytes
from turnscript.datasets.tokenizer import Ends
from turnscript.datasets.turn_checks import MODEL, PROMPTS, TurnChecker, spread, trained_turns
from turnscript.engine.escape import AUTO
from turnscript.engine.files import FileSequence, Fill, sequence_losses
from turnscript.engine.layout import layout_of
from turnscript.engine.prompt import Prompt
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, Span, Writer, text_of_spans

_SHOWN = 40


class SampleCounts(Struct):
    """What was looked at.

    `respelled`: samples whose tokens spell the text in another way, because the tokenizer normalizes what it reads.
    `equal`: conversations that the text gives back; `explained`: those that differ where the rendering reported a loss;
    `texts`: plain texts; `unread`: written without an escape, so that the text may not read back.
    `prompts`: turns of the model that begin where a prompt ends; `exact`: of these, those whose ids begin with the
    prompt's; `opened`: turns of another kind than a prompt opens, such as a call in the place of an answer; `later`:
    those that a format shows otherwise when the conversation has gone on. `ends`: ends of turns that are trained.
    `other`: turns in the words of a template that are read in another way than the row says.
    """

    samples: int = 0
    respelled: int = 0
    equal: int = 0
    explained: int = 0
    texts: int = 0
    unread: int = 0
    prompts: int = 0
    exact: int = 0
    opened: int = 0
    later: int = 0
    ends: int = 0
    other: int = 0

    def add(self, other: SampleCounts) -> None:
        """Count the other's too."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


def _bare(text: str) -> str:
    """Return a text without backslashes: a document can break a literal that begins in the prefix, and a prompt not."""
    return text.replace("\\", "")


class Checker:
    """Checks samples against their examples."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._format = encoder.format
        self._escape = encoder.options.escape
        self._counts = SampleCounts()
        self._bytes = TokenBytes(encoder.tokenizer)
        self._prompts = PromptIds(encoder.tokenizer)
        self._turns = TurnChecker(encoder) if encoder.format.template is not None else None
        self._proofs = Proofs(encoder, self._probed)
        self.write = self._proofs.draft
        self._sizes: list[int] = []
        self._said: list[tuple[int, int, int]] = []

    @property
    def counts(self) -> SampleCounts:
        """Return what was looked at so far."""
        if self._encoder.mode == "text" and self._turns is None:
            self._counts.exact = self._prompts.exact()
        return self._counts

    def take(self) -> SampleCounts:
        """Return what was looked at since this was asked last."""
        counts, self._counts, self._prompts = self.counts, SampleCounts(), PromptIds(self._encoder.tokenizer)
        return counts

    def faults(self, example: Example, sample: Sample) -> list[str]:
        """Return what is wrong with a sample, a sentence each; nothing if it is as it should be."""
        return next(self.each([(example, sample)]))

    def each(self, samples: Sequence[tuple[Example, Sample]]) -> Iterator[list[str]]:
        """Give what is wrong with each of many samples, which make it fast."""
        held = self._held([(at, sample) for at, (_, sample) in enumerate(samples) if sample.by is not None])
        for at, (example, sample) in enumerate(samples):
            self._counts.samples += 1
            yield [] if at in held else self._looked_at(example, sample, self._bytes.spell(sample.ids))

    def _held(self, proved: Sequence[tuple[int, Sample]]) -> set[int]:
        """Return which of the samples that were written by proofs are as they should be, and count what they have."""
        if not proved:
            return set()
        samples = [sample for _, sample in proved]
        text = "".join([sample.by.text for sample in samples])
        widths = self._bytes.spells([sample.ids for sample in samples], text.encode())
        if widths is None:
            alike = [one for one in proved if self._bytes.spell(one[1].ids).data == one[1].by.text.encode()]
            return self._held(alike) if len(alike) < len(proved) else set()
        fine: set[int] = set()
        for proof, places, prompts, exact in held(samples, widths, ended=self._encoder.end is not None):
            self._counts.equal += 0 if proof.explained else len(places)
            self._counts.explained += len(places) if proof.explained else 0
            self._counts.prompts += exact.size
            self._counts.ends += len(places) * proof.ends
            fine.update(places)
            if self._encoder.tokenizer.cuts_free:
                self._prompts.add_proved(int(exact.sum()))
                continue
            for at, sizes in zip(places, prompts.tolist(), strict=True):
                ids = samples[at].ids
                self._prompts.add(samples[at].by.text.encode(), sizes, ids, self._bytes.spell(ids).widths.cumsum())
        return {proved[at][0] for at in fine}

    def _probed(self, probe: Example) -> Looked | None:
        """Look at a probe as at any sample; None if it is not as most are."""
        (sample,) = self._encoder.encode([probe])
        checker = Checker(self._encoder)
        if isinstance(sample, Problem) or checker.faults(probe, sample):
            return None
        counts = checker.take()
        read, led = (counts.equal, counts.explained), (counts.prompts, counts.exact)
        if counts != SampleCounts(1, 0, *read, prompts=led[0], exact=led[1], ends=counts.ends) or not any(read):
            return None
        return Looked(self._encoder.draft(probe), checker._sizes, checker._said, counts.ends, bool(read[1]))

    def _looked_at(self, example: Example, sample: Sample, found: Spelled) -> list[str]:
        """Return what is wrong with a sample, which is looked at by itself."""
        data, widths = found
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            return [f"its tokens are no UTF-8 text: {error.reason} at byte {error.start}"]
        if example.files is not None:
            self._counts.texts += 1
            return list(self._filled(example.files, sample, text, widths.cumsum()))
        if example.is_document:
            self._counts.texts += 1
            pieces = [example.text] if example.text is not None else [one for one, _ in example.mask]
            if self._spelled(text, pieces) is not None:
                return []
            return [f"it does not decode to the row's text: {difference(''.join(pieces), text)}"]
        example, opened = self._encoder.as_said(example)
        out = self._format.write(example.request, escape=self._escape, now=self._encoder.options.now)
        if self._turns is not None:
            return self._in_template(self._turns, example, sample, found, out)
        texts, marks = out.flat()
        request, again = example.request, out.text
        if opened is not None:
            texts, request = opened.texts(texts, marks), opened.read
            again = self._format.write(request, escape=self._escape).text
        rendered = "".join(texts)
        spelled = self._spelled(text, texts)
        if spelled is None:
            return [f"it does not decode to what the conversation is rendered as: {difference(rendered, text)}"]
        request = shown(request, out.escape.forges, layout_of(self._format.document).spelling)
        losses = [loss.path for loss in out.all_losses()]
        written = _Pieces(spelled, marks)
        ends = self._ends(sample, written, widths.cumsum())
        return [
            *self._unread(request, rendered, again, losses),
            *self._reread(rendered, text),
            *self._unprompted(example, opened, rendered, sample, ends if spelled is texts else None),
            *self._unended(example.request.items, sample, written, ends),
        ]

    def _filled(self, sequence: FileSequence, sample: Sample, text: str, ends: Ends) -> Iterator[str]:
        """Give what is wrong with files: whether they are read back, and whether a prompt leads to what is trained."""
        order = fill_order(self._format, self._encoder.options.order)
        assert order is not None, "a format without orders has no sample of files"
        written = text_of_spans(self._format.file_spans(sequence, order=order.name, escape=self._escape))
        if self._spelled(text, [written]) is None:
            yield f"it does not decode to what the files are rendered as: {difference(written, text)}"
            return
        is_whole = self._escape == AUTO and not sequence_losses(sequence, order)
        if is_whole and self._format.parse_files(written, order=order.name) != sequence:
            yield "its files are read back as others"
        last = sequence.files[-1]
        if not isinstance(last, Fill) or not order.generates or self._escape != AUTO or written != text:
            return
        asked = replace(sequence, files=[*sequence.files[:-1], replace(last, middle=None)])
        prompt = self._format.fill_prompt(asked, order=order.name).text
        if not _bare(written).startswith(_bare(prompt)):
            yield f"the prompt of its hole does not lead to it: {difference(prompt, written[: len(prompt)])}"
        start, size = len(prompt.encode()), int(ends[-1])
        begun, counts = np.concatenate(([0], ends[:-1])), sample.weights > 0
        if not self._encoder.train.everything and bool(counts[ends <= start].any()):
            yield "something before its hole is trained"
        if not bool(counts[(begun >= start) & (begun < size)].all()):
            yield "something of what fills its hole is not trained"

    def _in_template(
        self, checker: TurnChecker, example: Example, sample: Sample, told: Spelled, out: Writer
    ) -> list[str]:
        """Return what is wrong with a sample that a chat template wrote."""
        texts, marks = out.flat()
        text, widths = told.data.decode(), told.widths
        served = self._encoder.served(texts, marks)
        spelled = self._spelled(text, served)
        if spelled is None:
            return [f"it does not decode to what its template writes: {difference(''.join(served), text)}"]
        written = _Pieces(spelled, marks)
        ends = self._ends(sample, written, widths.cumsum())
        faults = [
            *checker.faults(example, sample, texts, marks),
            *self._unended(example.request.items, sample, written, ends),
        ]
        counts, found = self._counts, checker.counts
        counts.prompts += found.led
        counts.exact += found.exact
        counts.later += found.later
        counts.other += found.other
        counts.equal += not found.other
        counts.explained += bool(found.other)
        return faults

    def _spelled(self, text: str, pieces: Sequence[str]) -> Sequence[str] | None:
        """Return the pieces that tokens are of, given the text of these: as they are or normalized; None if neither."""
        if text == "".join(pieces):
            return pieces
        normal = self._encoder.tokenizer.normal
        respelled = list(map(normal, pieces))
        if text != "".join(respelled):
            if normal(text) != normal("".join(pieces)):
                return None
            respelled = list(pieces)  # one piece became one with the end of another
        self._counts.respelled += 1
        return respelled

    def _reread(self, text: str, spelled: str) -> Iterator[str]:
        """Give how a text reads otherwise once it is normalized: nothing in it may become a tag by that."""
        if text == spelled or self._escape == "none":
            return
        normal = self._encoder.tokenizer.normal

        def read(one: str) -> list[_Said]:
            return [_Said(*map(normal, _said(item))) for item in self._format.parse(one).items]

        try:
            same = read(text) == read(spelled)
        except TurnscriptError:
            same = False
        if not same:
            yield "as the tokenizer normalizes it, its text reads back as another conversation"

    def _unread(self, request: Request, text: str, rendered: str, losses: Sequence[str]) -> Iterator[str]:
        """Give how the strict reader reads another conversation. `rendered`: how a renderer writes this one."""
        if self._escape == "none":
            self._counts.unread += 1
            return
        try:
            found = self._format.parse(text)
            for item in found.items:
                if isinstance(item, ToolCall):
                    item.as_object = False  # a sample spells objects already: what is laid out in it is a row's text
            if text == rendered and found.items == request.items and found.tools == request.tools:
                self._counts.equal += 1
                return  # written again it is the same, because the same was written
            again = self._format.write(found, escape=self._escape).text
        except TurnscriptError as error:
            yield f"its text does not read back: {error}"
            return
        if again != rendered:
            yield f"its text, read and written again, is another: {difference(rendered, again)}"
        fault = unlike(request, found, losses)
        if fault:
            yield fault
        elif found.items == request.items and found.tools == request.tools:
            self._counts.equal += 1
        else:
            self._counts.explained += 1

    def _unprompted(
        self, example: Example, opened: Opened | None, text: str, sample: Sample, ends: Ends | None
    ) -> Iterator[str]:
        """Give where turns of the model begin that what a server would feed the model is not how the sample begins.

        What is only read in it may be shown in another way, as the past is.
        """
        request = example.request
        kinds = sorted({item.of for item in request.items if isinstance(item, Thinking) and item.content})
        # Flags of the thoughts that are still to come stand in the sample, so they are asked for.
        settings = Settings(thoughts=kinds or None)
        known: dict[str, list[int]] = {}
        begun: list[int] = []
        for at in spread(trained_turns(request.items, self._encoder.counts(example))):
            item, conversation = request.items[at], Conversation(request.items[:at], request.tools)
            asked = Request(conversation=conversation, settings=settings)
            # Spans are objects, and most prompts are only texts to look at.
            begins = (
                (prompt.text if opened is None else text_of_spans(opened.spans(prompt.spans)), prompt)
                for prompt in self._leading(asked, item)
            )
            leading = (one for one in begins if text.startswith(one[0]))
            first = next(leading, None)
            if first is None:
                yield from self._otherwise(asked, item, text)
                continue
            self._counts.prompts += 1
            if self._encoder.mode == "text":
                begun.append(len(first[0].encode()))
                continue
            spans = (prompt.spans for _, prompt in chain([first], leading))
            same = any(self._begins(sample, one if opened is None else opened.spans(one), known) for one in spans)
            self._counts.exact += same
            if not same:
                yield f"{item.at}: the ids of the prompt for this turn are not how the sample begins"
        self._sizes = begun
        if begun:
            self._prompts.add(text.encode(), begun, sample.ids, ends)

    def _leading(self, asked: Request, item: Item) -> Iterator[Prompt]:
        """Give the prompts that may lead to a turn: to a thought one that asks for it, and one for an answer to any."""
        for thinking in (True, False) if isinstance(item, Thinking) else (False,):
            prompt = self._begun(asked, thinking=thinking)
            if prompt is not None:
                yield prompt

    def _begins(self, sample: Sample, prompt: Sequence[Span], known: dict[str, list[int]]) -> bool:
        """Return whether a sample begins with the ids of a prompt. Of two prompts that its text begins with, one may
        end in the middle of a token: white space behind `<think>` is one token with that at the beginning of the
        thought."""
        ids = self._encoder.prompt_ids(prompt, known)
        found: list[int] = sample.ids[: len(ids)].tolist()
        return ids == found

    def _otherwise(self, asked: Request, item: Item, text: str) -> Iterator[str]:
        """Count a turn that no usual prompt leads to, or say that none does."""
        plain = self._begun(asked, thinking=False)
        assert plain is not None, "every format has a prompt for an answer"
        forced: list[Prompt | None] = []
        if isinstance(item, ToolCall):
            choices = (ToolChoice(mode="required"), ToolChoice(mode="named", name=item.name))
            demanded = [replace(asked, settings=Settings(tool_choice=choice)) for choice in choices]
            forced = [self._begun(one, thinking=False) for one in demanded]
        # The model may open another block than the one that the prompt opens for it.
        before = "".join(span.text for span in plain.spans[:-1])
        other = bool(plain.spans) and plain.spans[-1].control and text.startswith(before)
        if other or any(prompt is not None and text.startswith(prompt.text) for prompt in forced):
            self._counts.opened += 1
        elif self._format.document.grows:
            self._counts.later += 1
        else:
            found = difference(plain.text, text)
            yield f"{item.at}: the prompt for this turn is not how the sample begins: {found}"

    def _begun(self, asked: Request, thinking: bool) -> Prompt | None:
        try:
            return self._format.prompt(asked, thinking=thinking, escape=self._escape)
        except Unsupported:
            return None

    def _ends(self, sample: Sample, pieces: _Pieces, ends: Ends) -> Ends | None:
        """Return where each token ends, in bytes: where these do if they add up; None where nobody can tell."""
        if len(ends) and ends[-1] == pieces.size:
            return ends
        tokenizer, ids = self._encoder.tokenizer, sample.ids.tolist()
        inner = ids[:-1] if tokenizer.end is not None and ids[-1] == tokenizer.end else ids
        if not set(tokenizer.controls.values()).isdisjoint(inner):
            return None
        return tokenizer.ends("".join(pieces.texts), inner)

    def _unended(self, items: Sequence[Item], sample: Sample, pieces: _Pieces, ends: Ends | None) -> Iterator[str]:
        """Give each trained turn whose end is not trained: a model that never saw it never stops."""
        if ends is None:
            yield "where its tokens lie in the text cannot be told"
            return
        starts = np.concatenate(([0], ends[:-1]))
        weights = sample.weights[: len(ends)]
        self._said = []
        for index, written in pieces.written().items():
            item = items[index]
            if item.open or not isinstance(item, MODEL):
                continue
            inside = slice(np.searchsorted(starts, written.start), np.searchsorted(ends, written.stop, side="right"))
            if not weights[inside][starts[inside] < ends[inside]].any():
                continue
            closing = written.closing
            self._said.append((written.start, *closing))
            if closing[0] < closing[1]:
                first = int(np.searchsorted(ends, closing[0], side="right"))
                trained = bool(weights[first : int(np.searchsorted(starts, closing[1], side="left"))].all())
                name = repr(pieces.slice(closing))
            elif index + 1 < len(items) and isinstance(items[index + 1], MODEL):
                continue  # the turn goes on
            else:
                trained, name = True, ""
            late = index + 1 == len(items) and self._encoder.format.ends_late(item)
            if trained and late and self._encoder.end is not None:
                trained, name = bool(sample.weights[-1]), "the token behind the document"
            if trained:
                self._counts.ends += 1
            else:
                yield f"{item.at}: this turn is trained, and what ends it ({name}) is not"


class _Written(NamedTuple):
    """Where the text of an item lies, in bytes, and behind it what ends it: literals that are the model's too."""

    start: int
    stop: int
    closing: tuple[int, int]


class _Pieces:
    """A rendered conversation as pieces, and where each lies in its bytes."""

    def __init__(self, texts: Sequence[str], marks: Sequence[int]) -> None:
        self.marks = marks
        self.texts = texts
        self.data = [text.encode() for text in texts]
        self.size = sum(map(len, self.data))

    def written(self) -> dict[int, _Written]:
        """Return where the text of each item lies of which the model writes some."""
        found: dict[int, _Written] = {}
        at, last = 0, -1
        for piece, mark in zip(self.data, self.marks, strict=True):
            end, item = at + len(piece), mark // ITEM
            if not mark & CONTROL and mark & TRAINABLE and item >= 0 and piece:
                start = found[item].start if item in found else at
                found[item] = _Written(start, end, (end, end))
                last = item
            elif mark & CONTROL and piece and last >= 0:
                own = mark & TRAINABLE and item == last
                if own:
                    found[last] = found[last]._replace(closing=(found[last].stop, end))
                last = last if own else -1
            at = end
        return found

    def slice(self, bounds: tuple[int, int]) -> str:
        """Return a part of the text."""
        return self._whole[bounds[0] : bounds[1]].decode("utf-8", "replace")

    @cached_property
    def _whole(self) -> bytes:
        return b"".join(self.data)


class _Said(NamedTuple):
    """What an item says, to compare."""

    kind: str
    name: str
    text: str


def _said(item: Item) -> _Said:
    if isinstance(item, ToolCall):
        return _Said(item.kind, item.name, item.arguments)
    content = getattr(item, "content", [])
    return _Said(item.kind, "", "".join([getattr(part, "text", None) or "" for part in content]))


def unlike(request: Request, found: Request, losses: Sequence[str], what: str = "its text reads") -> str:
    """Return where two conversations differ without a loss that says so; empty if they do not. `what`: was read again.

    Items may be joined or left out, so the first place and the last one where they differ are looked at: a loss is
    reported at one of the items there.
    """
    known = Counter(losses)
    before, after = list(map(_said, request.items)), list(map(_said, found.items))
    if before == after:
        if not known and [tool.name for tool in request.tools] != [tool.name for tool in found.tools]:
            return f"{what} back with other tools, and no loss was reported"
        return ""
    least = min(len(before), len(after))
    first = next((at for at in range(least) if before[at] != after[at]), least)
    last = next((at for at in range(least - first) if before[-1 - at] != after[-1 - at]), least - first)
    for at in (first, len(before) - 1 - last):
        near = request.items[max(at - 1, 0) : at + 2]
        if not any(loss.startswith(item.at) for loss in known for item in near):
            said = before[at] if 0 <= at < len(before) else None
            read = after[at] if 0 <= at < len(after) else None
            place = request.items[min(at, len(before) - 1)].at if before else "$"
            return f"{place}: {what} back as {_short(read)} in the place of {_short(said)}, without a loss"
    return ""


def _short(said: _Said | None) -> str:
    if said is None:
        return "nothing"
    text = said.text if len(said.text) <= _SHOWN else f"{said.text[:_SHOWN]}..."
    return " ".join(filter(None, (said.kind, said.name, repr(text))))


__all__ = ["PROMPTS", "Checker", "SampleCounts", "unlike"]
