"""Owns documents that are files and no conversation: several texts in one sequence, the last of them maybe a fill.

    first file
    <|file_separator|>
    second file
    <|file_separator|>
    <|fim_prefix|>P<|fim_middle|><|fim_suffix|>S

The separator fills a line. All else is content, to the byte: a line break at the very end belongs to the last file.
A format without a separator has documents of one file.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.errors import InvalidConversation, InvalidInput, InvalidTranscript, UnknownName, Unsupported
from turnscript.core.losses import Loss
from turnscript.engine.escape import Escape
from turnscript.engine.fill import (
    BYTE_ORDER_MARK,
    Fill,
    FillOrder,
    fail,
    fill_losses,
    read_content,
    read_fill,
    skip_mark,
    write_fill,
)
from turnscript.engine.plaintext import TextParser
from turnscript.engine.spans import Span, text_of_spans


class FileSequence(Struct):
    """Files in one sequence. Only the last may be a fill. `leading`: a separator stands before the first, too."""

    files: list[str | Fill]
    leading: bool = False


class FillPrompt(Struct, frozen=True):
    """Files for a model to continue, the last of them with a hole.

    `prefill`: how much of the middle is written already. `stops`: the strings that end it. `losses`: what the order of
    the fill cannot show. `client_stops`: those that the client of a request asked for. `order`: that of
    the hole.
    """

    text: str
    spans: list[Span]
    stops: list[str]
    prefill: str
    losses: list[Loss]
    client_stops: tuple[str, ...] = ()
    order: str = ""

    def parser(self) -> TextParser:
        """Return a parser for what a model writes after this prompt: the middle, which is a text and nothing else."""
        return TextParser(self.client_stops, self.stops)


class Files(Struct, frozen=True):
    """What a format declares for files: the orders of a fill, the separator, and the strings that end any text.

    The first order is that of documents, the first order that ends in the middle is that of prompts. Each order
    protects its own literals; those of the format it belongs to, the layout adds (`within`). No separator: a document
    is one file.
    """

    orders: tuple[FillOrder, ...]
    separator: str = ""
    ends: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for order in self.orders:
            for literal in (*order.literals, *self._separators):
                if not order.escape.holds(literal):
                    message = f"the escape of the fill order {order.name!r} does not protect {literal!r}"
                    raise InvalidInput(message, expected="an escape with that literal among its names")

    @property
    def literals(self) -> tuple[str, ...]:
        """Return every control literal, each once."""
        return tuple(dict.fromkeys([*(each for order in self.orders for each in order.literals), *self._separators]))

    def order(self, name: str = "") -> FillOrder:
        """Return the order of that name; the first if none is named. Raises UnknownName."""
        return self._named(name) if name else self.orders[0]

    def prompt_order(self, name: str = "") -> FillOrder:
        """Return an order in which a model can write the middle. Raises UnknownName or Unsupported."""
        usable = [order for order in self.orders if order.generates]
        if not name and usable:
            return usable[0]
        order = self.order(name)
        if order not in usable:
            others = ", ".join(repr(each.name) for each in usable) or "none is declared"
            message = f"a model cannot go on in the fill order {order.name!r}; orders that end in the middle: {others}"
            raise Unsupported("a prompt", f"the fill order {order.name!r}", message)
        return order

    def stops(self, order: FillOrder) -> list[str]:
        """Return the strings that end a middle: where it ends, where anything else begins."""
        strings = (order.end, *order.literals, *self._separators, *self.ends)
        return list(dict.fromkeys(string for string in strings if string))

    def within(self, escape: Escape, end: str) -> Files:
        """Return the files of a format with that escape, and with that string at the end of its documents.

        Each order protects the literals of all: what is a hole in one is no content of another, so it can be told.
        """
        rules = [rule for order in self.orders for rule in order.escape.rules]
        orders = tuple(replace(order, escape=type(escape)(*escape.rules, *rules)) for order in self.orders)
        return replace(self, orders=orders, ends=(*self.ends, end) if end else self.ends)

    def mark_in(self, text: str) -> str:
        """Return what shows that a text is files: how an order begins, or a separator that fills a line; else nothing.

        No content has it bare, neither of files nor of a conversation in the same format.
        """
        opening = next((order.pieces[0] for order in self.orders if _opens(text, order.pieces[0])), "")
        if opening or not self.separator:
            return opening
        stands = re.search(rf"(?:\A{BYTE_ORDER_MARK}?|\n){re.escape(self.separator)}(?=\r?\n|\Z)", text)
        return self.separator if stands is not None else ""

    @property
    def _separators(self) -> tuple[str, ...]:
        return (self.separator,) if self.separator else ()

    def _named(self, name: str) -> FillOrder:
        for order in self.orders:
            if order.name == name:
                return order
        raise UnknownName("fill order", name, [order.name for order in self.orders])


def write_files(files: Files, sequence: FileSequence, order: FillOrder, *, open_: bool = False) -> list[Span]:
    """Return a sequence as spans. `open_`: for a model to continue, so the last file must be a fill."""
    _check(files, sequence, open_)
    spans: list[Span] = []
    for index, file in enumerate(sequence.files):
        if index or sequence.leading:
            spans.append(Span(f"\n{files.separator}\n" if index else f"{files.separator}\n", True, False, -1))
        if isinstance(file, Fill):
            spans += write_fill(order, file, open_=open_)
        elif file:
            spans.append(Span(order.escape.apply(file), False, False, -1))
    return spans


def sequence_losses(sequence: FileSequence, order: FillOrder) -> list[Loss]:
    """Return what of a sequence cannot be read back."""
    fills = [(index, file) for index, file in enumerate(sequence.files) if isinstance(file, Fill)]
    return [loss for index, fill in fills for loss in fill_losses(order, fill, f"files[{index}]")]


def read_files(files: Files, text: str, order: FillOrder) -> FileSequence:
    """Return the sequence that a text holds. A text without a separator is one file. Raises InvalidTranscript."""
    opening = order.pieces[0]
    position = skip_mark(text, opening)
    sequence = FileSequence([])
    if files.separator:
        text = _unix_lines(text, files.separator)
        position = skip_mark(text, files.separator, opening)
        first = f"{files.separator}\n"
        sequence.leading = text.startswith(first, position)
        position += len(first) if sequence.leading else 0
    line = f"\n{files.separator}\n"
    if files.separator and text.endswith(line[:-1], max(position - 1, 0)):
        message = f"a file follows {files.separator}, on the next line; take it away if there is none"
        fail(text, len(text) - len(files.separator), message, "a file")
    while not text.startswith(opening, position):
        end = text.find(line, position) if files.separator else -1
        place = (position, end if end >= 0 else len(text))
        sequence.files.append(read_content(order.escape, text, place))
        if end < 0:
            return sequence
        position = end + len(line)
    if files.separator and (end := text.find(line, position)) >= 0:
        message = f"only the last file may have a hole, and {files.separator} begins another; put the hole's file last"
        fail(text, end + 1, message, "the last file")
    sequence.files.append(read_fill(order, text, position))
    return sequence


def readings(files: Files, text: str) -> list[tuple[FillOrder, FileSequence]]:
    """Return what a text is in each order that reads it whole, those that read the same once: the first of them.

    Raises the InvalidTranscript of the order that gets furthest, where none does.
    """
    found: list[tuple[FillOrder, FileSequence]] = []
    errors: list[InvalidTranscript] = []
    for order in files.orders:
        try:
            sequence = read_files(files, text, order)
        except InvalidTranscript as error:
            errors.append(error)
        else:
            found += [(order, sequence)] if all(sequence != other for _, other in found) else []
    if not found:
        raise max(errors, key=lambda error: (error.line, error.column))
    return found


def prompt_of(files: Files, sequence: FileSequence, order: FillOrder) -> FillPrompt:
    """Return the prompt whose continuation is the middle of the last file."""
    spans = write_files(files, sequence, order, open_=True)
    begun = text_of_spans(span for span in spans if span.trainable)
    losses = sequence_losses(sequence, order)
    return FillPrompt(text_of_spans(spans), spans, files.stops(order), begun, losses, order=order.name)


def _check(files: Files, sequence: FileSequence, open_: bool) -> None:
    if not sequence.files:
        raise InvalidConversation("a sequence needs a file; for an empty one, give an empty text", path="files")
    if not files.separator and (sequence.leading or len(sequence.files) > 1):
        path = "leading" if sequence.leading else "files[1]"
        message = "the format has nothing that stands between files; give one file, or choose a format with a separator"
        raise InvalidConversation(message, path=path, expected="one file", got=f"{len(sequence.files)} files")
    for index, file in enumerate(sequence.files[:-1]):
        if isinstance(file, Fill):
            message = "only the last file may be a fill: a model goes on at the end"
            raise InvalidConversation(message, path=f"files[{index}]", expected="a text", got="a fill")
    if open_ and not isinstance(sequence.files[-1], Fill):
        message = "there is no hole to fill: the last file is a text"
        path = f"files[{len(sequence.files) - 1}]"
        raise InvalidConversation(message, path=path, expected="a fill", got="a text")


def _opens(text: str, literal: str) -> bool:
    return text.startswith((literal, BYTE_ORDER_MARK + literal))


def _unix_lines(text: str, separator: str) -> str:
    """Return the text with LF line ends if its first separator line ends in CRLF; otherwise CR is content (D-X-8)."""
    found = text.find(separator)
    crlf = found >= 0 and text.startswith("\r\n", found + len(separator))
    return text.replace("\r\n", "\n") if crlf else text
