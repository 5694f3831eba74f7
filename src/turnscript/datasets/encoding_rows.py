"""Owns what one example is before it is tokens: its text in pieces, and how much each piece counts in the loss.

A piece counts if the format says that a model writes it and the plan or the row says that it is trained. So the mask is
a projection of what the renderer knows, and nothing is searched for in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from turnscript.core.conversation import Audio, Document, Image, Item, Request, Tool, ToolCall, ToolsChange
from turnscript.core.errors import InvalidConversation, InvalidInput, LossyConversion, TurnscriptError
from turnscript.core.losses import Loss
from turnscript.core.source_paths import part_path
from turnscript.datasets.answer_beginnings import AnswerBeginnings, Opened
from turnscript.datasets.drafts import Draft
from turnscript.datasets.form import Example
from turnscript.datasets.hosted_tools import hosted_in
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.template_rows import Likeness
from turnscript.datasets.tokenizers.raw import half_pair
from turnscript.datasets.train import MODEL, Train
from turnscript.engine.files import FileSequence, Fill, FillOrder
from turnscript.engine.spans import CONTROL, ITEM, TRAINABLE, Span, Writer
from turnscript.formats.format import Format

WEIGHTS = {"binary": 1, "scaled": 255}
"""How weights are written, and the byte that stands for 1."""
_REJECT = "reject"
_NOWHERE = -1 * ITEM


class Options(Struct, frozen=True, kw_only=True):
    """How rows become tokens. `strict`: what a format would lose is a problem. `declared`: so are calls of tools that
    the row does not declare. `media`: with `reject`, so is a picture that the format drops. `normalize_json`: the JSON
    of calls and results is spelled in one way. `bare_calls`: a call at once stands as in a transcript, without the
    answer that its prompt has opened. `end`: the token that separates documents is put behind each, if the tokenizer
    has one. `now`: the date that a template writes. `largest`: the largest id that an output can hold.
    `order`: how a text with a hole is written; empty: as the format's prompts are.
    """

    mode: str = "auto"
    escape: str = "auto"
    weights: str = "binary"
    end: bool = True
    now: datetime | None = None
    strict: bool = False
    declared: bool = False
    media: str = "reject"
    normalize_json: bool = False
    bare_calls: bool = False
    order: str = ""
    largest: int | None = None


class Drafter:
    """Makes drafts of examples, or says what is wrong with one."""

    def __init__(self, format_: Format, train: Train, options: Options) -> None:
        self.format = format_
        self.train = train
        self.options = options
        self.scale = WEIGHTS[options.weights]
        template = format_.template  # which keeps shapes of its own, and writes what a model does before a call
        self._likeness = None if template is None else Likeness(template, options.now)
        self._beginnings = None if options.bare_calls or template is not None else AnswerBeginnings(format_)
        self._plain = train.is_plain()
        self._order = fill_order(format_, options.order)

    def draft(self, example: Example) -> Draft:
        """Return the example in pieces. Raises BadRow, or another error of the library, that says what is wrong."""
        if example.files is not None:
            return self._of_files(example.files)
        if example.is_document:
            return self._of_text(example)
        return self._of_items(example)

    def _of_items(self, example: Example) -> Draft:
        """Return any conversation in pieces."""
        example, asked = self.normalized(example)
        request = example.request
        items = request.items
        self._check(request)
        opened = self._opened(request)
        out = self._write(request if opened is None else opened.request)
        texts, marks = out.flat()
        if opened is not None:
            texts, marks = opened.texts(texts, marks), opened.as_given(marks)
            asked = [*asked, *opened.losses]
        scale = self.scale
        if self._plain and not example.weights and not example.context:
            values = [scale if mark & TRAINABLE else 0 for mark in marks]
        else:
            values = self._values(marks, self.weights(example), items)
        try:
            draft = Draft(texts, marks, values)
        except UnicodeEncodeError:
            raise _broken(texts, marks, items) from None
        losses = out.all_losses()
        if losses and self.options.media == _REJECT:
            _check_media(items, losses)
        losses = [*request.unread, *losses] if request.unread else losses
        if losses and self.options.strict:
            raise LossyConversion(losses, f"{self.format.name} (prompt view)")
        draft.losses = [*asked, *losses] if asked else losses
        if self._likeness is not None:
            draft.unlike = self._likeness.difference(request, draft.text)
        if not items[-1].open and (self.train.end or (marks[-1] & TRAINABLE and self.format.ends_late(items[-1]))):
            draft.end = scale if self.train.end else values[-1]
        return draft

    def _check(self, request: Request) -> None:
        """Raise BadRow for a conversation of which no sample may be made."""
        if not any(map(_says, request.items)):
            raise BadRow(Code.EMPTY, "there is nothing in it to learn from: no message says anything")
        if (hosted := hosted_in(request.items)) is not None:
            message = (
                f"the provider ran {hosted.type!r} itself; `--hosted calls` or `text` (`hosted` in a plan) takes it"
            )
            raise BadRow(Code.HOSTED, message, path=hosted.at)
        if self.options.declared:
            _check_declared(request)

    def normalized(self, example: Example) -> tuple[Example, list[Loss]]:
        """Return an example with its JSON in one spelling where the options want that, and what this changed."""
        if not self.options.normalize_json:
            return example, []
        request, losses = self.format.normalized(example.request)
        return example.but(request) if losses else example, losses

    def as_said(self, example: Example) -> tuple[Example, Opened | None]:
        """Return a conversation as its text says it: normalized, with the empty answers that a model writes."""
        example, _ = self.normalized(example)
        opened = self._opened(example.request)
        if opened is None:
            return example, None
        origins = list(enumerate(opened.origins))
        said = example.but(
            opened.request,
            weights={to: example.weights[at] for to, at in origins if at in example.weights},
            context=frozenset(to for to, at in origins if at in example.context),
        )
        return said, opened

    def _opened(self, request: Request) -> Opened | None:
        return None if self._beginnings is None else self._beginnings.opened(request)

    def _write(self, request: Request) -> Writer:
        escape = self.options.escape
        try:
            return self.format.write(request, escape=escape, now=self.options.now)
        except InvalidConversation as error:
            if escape == "reject" and self._is_writable(request):
                raise BadRow(Code.TAG_IN_TEXT, error.message, path=error.path) from None
            raise

    def _is_writable(self, request: Request) -> bool:
        """Return whether it was the tags alone that could not be written."""
        try:
            self.format.write(request)
        except TurnscriptError:
            return False
        return True

    def _of_text(self, example: Example) -> Draft:
        """Return a plain text, without a conversation: no tag in it is one."""
        pieces = example.mask or [(example.text or "", True)]
        texts = [text for text, _ in pieces]
        if example.text is not None and example.text != "".join(texts):
            raise BadRow(Code.SHAPE, "the pieces of the text, joined, are not the text")
        if not any(texts):
            raise BadRow(Code.EMPTY, "the text is empty")
        marks = [_NOWHERE + TRAINABLE * trained for _, trained in pieces]
        values = [self.scale if trained or self.train.everything else 0 for _, trained in pieces]
        try:
            draft = Draft(texts, marks, values)
        except UnicodeEncodeError as error:
            raise half_pair(error) from None
        draft.end = self.scale if self.train.end else 0
        return draft

    def _of_files(self, sequence: FileSequence) -> Draft:
        """Return files in pieces: of a text with a hole what fills that is trained, and files without one are whole."""
        if self._order is None:
            name = self.format.name
            message = (
                f"{name} has no words for files and texts with a hole; choose a format that has (`turnscript show`)"
            )
            raise BadRow(Code.FORMAT, message, path="$")
        last = sequence.files[-1]
        spans = self._file_spans(sequence, self._order.name)
        if isinstance(last, Fill) and last.middle is None:
            raise BadRow(Code.NO_TRAINED_TOKEN, "nothing in it would be trained: nobody has filled its hole")
        if not spans:
            raise BadRow(Code.EMPTY, "the text is empty")
        trained = [span.trainable or isinstance(last, str) for span in spans]
        marks = [
            _NOWHERE + CONTROL * span.control + TRAINABLE * counts for span, counts in zip(spans, trained, strict=True)
        ]
        values = [self.scale if counts or self.train.everything else 0 for counts in trained]
        try:
            draft = Draft([span.text for span in spans], marks, values)
        except UnicodeEncodeError as error:
            raise half_pair(error) from None
        # Where nothing is written behind the middle, a model learns to stop from the end of the document alone.
        if isinstance(last, Fill) and self._order.generates:  # a server is given all before it, and nothing more
            draft.apart = sum(len(span.text) for span in spans if not span.trainable)
        late = isinstance(last, Fill) and self._order.generates and not self._order.end
        draft.end = self.scale if late or self.train.end else 0
        return draft

    def _file_spans(self, sequence: FileSequence, order: str) -> list[Span]:
        escape = self.options.escape
        try:
            return self.format.file_spans(sequence, order=order, escape=escape)
        except InvalidConversation as error:
            if escape == "reject":
                self.format.file_spans(sequence, order=order)  # which raises what no policy could write
                raise BadRow(Code.TAG_IN_TEXT, error.message, path=error.path) from None
            raise

    def weights(self, example: Example) -> list[int]:
        """Return for each item the byte that its trained pieces get."""
        items, scale, everything = example.request.items, self.scale, self.train.everything
        found = [scale if counts or everything else 0 for counts in self.train.counts(items)]
        if self.train.flags:
            for at, weight in example.weights.items():
                if not 0 <= at < len(items):
                    raise BadRow(Code.WEIGHT, f"there is a weight for item {at}, and there are {len(items)} items")
                found[at] = self._byte(weight, items[at])
        return [0 if at in example.context else weight for at, weight in enumerate(found)]

    def _byte(self, weight: float, item: Item) -> int:
        if not 0 <= weight <= 1:
            raise BadRow(Code.WEIGHT, f"a weight is a number from 0 to 1, not {weight!r}", path=item.at)
        if self.scale == 1 and weight not in (0, 1):
            message = f"the weight {weight!r} is neither 0 nor 1; build with scaled weights, or round it"
            raise BadRow(Code.WEIGHT, message, path=item.at)
        return max(round(self.scale * weight), 1) if weight else 0

    def _values(self, marks: Sequence[int], weights: list[int], items: Sequence[Item]) -> list[int]:
        """Return what each piece is worth.

        Of what others say, the text is trained, and what closes it; an opening is not, because a prompt has it.
        """
        everything = self.train.everything
        weights = [*weights, self.scale if everything else 0]  # what belongs to no item has position -1
        others = [item.kind not in MODEL for item in items]
        values: list[int] = []
        said = -1
        for mark in marks:
            item = mark // ITEM
            if item >= 0 and not mark & CONTROL:
                said = item
            counts = everything or mark & TRAINABLE or (item >= 0 and others[item] and said == item)
            values.append(weights[item] if counts else 0)
        return values


def fill_order(format_: Format, name: str = "") -> FillOrder | None:
    """Return the order in which a format writes a hole: that of a name, else that of its prompts; None without one.

    Raises UnknownName, and InvalidInput for a name where there are no orders.
    """
    files = format_.document.files
    if files is None:
        if name:
            raise InvalidInput(f"{format_.name} has no orders of a hole; leave the order {name!r} out", path="order")
        return None
    return files.order(name) if name else next((one for one in files.orders if one.generates), files.order())


def _says(item: Item) -> bool:
    """Return whether there is anything in an item."""
    content = getattr(item, "content", None)
    if content is None:
        return True
    return any(getattr(part, "text", True) for part in content)


_MEDIA = (Image, Document, Audio)


def _check_media(items: Sequence[Item], losses: Sequence[Loss]) -> None:
    """Refuse a conversation of which a picture, a sound or a file is dropped: what is said of it would be made up."""
    dropped = {loss.path: loss.detail for loss in losses if loss.kind == "dropped"}
    for item in items:
        for index, part in enumerate(getattr(item, "content", ())):
            if isinstance(part, _MEDIA) and (where := part_path(item, index)) in dropped:
                message = f"{dropped[where]}; `--media drop` (`media` in a plan) takes the row without it"
                raise BadRow(Code.MEDIA, message, path=where)


def _check_declared(request: Request) -> None:
    """Refuse a call of a tool that was not declared before it, or was taken away."""
    known = set(_names_of(request.tools))
    for item in request.items:
        if isinstance(item, ToolsChange):
            known = (known - set(item.removed)) | set(_names_of(item.added))
        elif isinstance(item, ToolCall) and item.name not in known:
            tools = ", ".join(sorted(known)[:5]) or "no tool"
            message = f"it calls {item.name!r}, and the row declares {tools}; declare the tool, or leave the call out"
            raise BadRow(Code.TOOL_UNDECLARED, message, path=item.at)


def _names_of(tools: Sequence[Tool]) -> Iterator[str]:
    """Give the names of tools, and of those in namespaces; one that an API runs itself goes by its type."""
    for tool in tools:
        yield tool.name or tool.type
        yield from _names_of(tool.tools)


def _broken(texts: Sequence[str], marks: Sequence[int], items: Sequence[Item]) -> InvalidInput:
    """Return the half of a surrogate pair that is in one of the pieces, with the place of its item."""
    for text, mark in zip(texts, marks, strict=True):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            item = mark // ITEM
            return half_pair(error, items[item].at or f"items[{item}]" if item >= 0 else "")
    raise AssertionError("every piece is UTF-8, and all of them are not")


def untrained(example: Example, draft: Draft) -> BadRow:
    """Return why nothing of an example would be trained."""
    items = example.request.items
    if example.files is not None:
        why = "what fills the hole is empty, or only the rest of a token"
    elif example.is_document:
        why = "no piece of the text is marked as trained, or each is only the rest of a token"
    elif not any(item.kind in MODEL for item in items):
        why = "the model says nothing in it"
    elif any(draft.values):
        why = "what would be trained is only the rest of a token that began before"
    elif example.weights:
        why = "the row gives weight 0 to all that would be trained"
    elif example.context:
        why = "all that would be trained is context: a prompt, or what another example trains"
    else:
        why = "the model says nothing in it of what the plan trains"
    return BadRow(Code.NO_TRAINED_TOKEN, f"nothing in it would be trained: {why}")
