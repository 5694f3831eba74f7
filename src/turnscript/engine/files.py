"""Owns documents that are files and no conversation: several texts in one sequence, the last of them maybe a fill.

    first file
    <|file_separator|>
    second file
    <|file_separator|>
    <|fim_prefix|>P<|fim_middle|><|fim_suffix|>S

The separator fills a line. All else is content, to the byte: a line break at the very end belongs to the last file.
A format without a separator has documents of one file.

As JSON they have one shape that is no format's: every order of every format writes it.

    {"files": ["first file", {"prefix": "P", "suffix": "S", "middle": "M"}], "leading": true}

`middle` is there where somebody has written it, `leading` where a separator stands before the first file, too.
Reading is strict: a member that is not named here is an error, with its JSON path.

Fill-in-the-middle is a text with a hole, written in the order that a family of models was trained on, and read.

    spec   <|fim_prefix|>P<|fim_middle|>M<|fim_suffix|>S     the middle stands in its hole: for documents
    psm    <|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>M     the middle comes last: a model can go on and write it
    spm    <|fim_prefix|><|fim_suffix|>S<|fim_middle|>PM     the same, and the prefix right before it

Families differ in literals more than in orders: StarCoder, Qwen and CodeGemma write psm, DeepSeek too with its words
begin, hole and end; Code Llama writes psm or spm with blanks in its literals, RWKV spm with flowers around its words;
Codestral writes S and P with one literal before each, and the middle after P.

Theory of operation. An order is a row of literals and fields, so one walk along it writes and another reads. Content is
escaped together with the characters next to it: neither a prefix and the middle that follows it, nor a text and half a
literal, make a literal where they meet. Reading is strict: what the writer would have written otherwise is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.conversation import Request, System, User, text_content
from turnscript.core.errors import (
    InvalidConversation,
    InvalidInput,
    InvalidRequest,
    InvalidTranscript,
    UnknownName,
    Unsupported,
)
from turnscript.core.json_text import Json, excerpt, plain, read_list, read_object, string_of, type_name
from turnscript.core.losses import Loss
from turnscript.engine.escape import Escape
from turnscript.engine.scanner import TextParser
from turnscript.engine.spans import Span, text_of_spans

_FIELDS = {"{prefix}": "prefix", "{suffix}": "suffix", "{middle}": "middle"}
_RUNS = {(), ("prefix",), ("suffix",), ("middle",), ("prefix", "middle")}
_BARE = ("$.prompt", "$.system")
"""Where the items of a bare text stand in their source."""

BYTE_ORDER_MARK = "\ufeff"


class Fill(Struct):
    """A text with a hole: what stands before it and after it, and what fills it. No middle: nobody has written it."""

    prefix: str
    suffix: str
    middle: str | None = None


def fill_of(request: Request) -> Fill | None:
    """Return the hole in a request of a bare text, before its `suffix`; None without one. Raises InvalidRequest."""
    said = request.extra.get("suffix")
    suffix = None if said is None else plain(said)
    if suffix is None:
        return None
    if not isinstance(suffix, str):
        raise InvalidRequest("suffix is a string", path="$.suffix", expected="a string or null")
    if "prompt" in request.extra:  # what is one text has become an item
        message = "what stands before a hole is one text; a prompt of tokens has no text that is known here"
        raise InvalidRequest(message, path="$.prompt", expected="a string")
    prefix = "".join([text_content(item.content) for item in request.items if isinstance(item, System | User)])
    return Fill(prefix, suffix)


def unfilled(request: Request) -> list[Loss]:
    """Return the losses of a bare text in a conversation: what stands behind a hole, a prompt without a text.

    In a request with messages, members of these names are strangers, of which nobody knows what they say.
    """
    if "suffix" not in request.extra and "prompt" not in request.extra:
        return []
    said, prompt = request.extra.get("suffix"), request.extra.get("prompt")
    if any(item.at.startswith("$") and item.at not in _BARE for item in request.items):
        return []
    losses = []
    if said is not None and bytes(said) not in (b"null", b'""'):
        losses.append(Loss("$.suffix", "dropped", "a conversation has no hole; `fill_prompt` writes a text with one"))
    if prompt is not None and bytes(prompt)[:1] == b"[":
        losses.append(Loss("$.prompt", "dropped", "tokens or several texts are no conversation; send one text"))
    return losses


class Slot(NamedTuple):
    """A literal, and the fields that follow it without another literal between them."""

    literal: str
    fields: tuple[str, ...]


class FillOrder(Struct, frozen=True):
    """One way to write a fill.

    `pieces`: literals as they are written, and the fields `{prefix}`, `{suffix}`, `{middle}`, each once. A literal
    comes first; the only fields that may touch are the prefix and the middle after it. `end`: what a model writes
    after the middle, where the middle comes last. `escape` protects every literal, and what else the format has.
    """

    name: str
    pieces: tuple[str, ...]
    escape: Escape
    end: str = ""

    def __post_init__(self) -> None:
        slots = self.slots
        wrong = ""
        if sorted(piece for piece in self.pieces if piece in _FIELDS) != sorted(_FIELDS):
            wrong = f"it needs each of {', '.join(_FIELDS)} once"
        elif not slots[0].literal or not slots[-1].fields or any(slot.fields not in _RUNS for slot in slots):
            wrong = "it goes from a literal to a field, and only {middle} right after {prefix} needs no literal between"
        elif self.end and not self.generates:
            wrong = "an end belongs after a middle that comes last"
        if wrong:
            raise InvalidInput(f"the fill order {self.name!r} cannot be read back: {wrong}", got=" ".join(self.pieces))

    @property
    def slots(self) -> list[Slot]:
        """Return the pieces as literals with the fields after each."""
        slots: list[Slot] = []
        for piece in self.pieces:
            if piece not in _FIELDS:
                slots.append(Slot(piece, ()))
            else:
                literal, fields = slots.pop() if slots else Slot("", ())
                slots.append(Slot(literal, (*fields, _FIELDS[piece])))
        return slots

    @property
    def literals(self) -> tuple[str, ...]:
        """Return all literals, the end included."""
        return tuple(piece for piece in (*self.pieces, self.end) if piece and piece not in _FIELDS)

    @property
    def generates(self) -> bool:
        """Return whether the middle comes last, so that a model can write it."""
        return self.pieces[-1] == "{middle}"


def write_fill(order: FillOrder, fill: Fill, *, open_: bool = False) -> list[Span]:
    """Return a fill as spans; the model writes middle and end. `open_`: the middle goes on, there is no end yet."""
    spans: list[Span] = []
    end = order.end if fill.middle is not None and not open_ else ""
    for slot, after in _steps(order, end):
        spans.append(Span(slot.literal, True, False, -1))
        text = "".join([getattr(fill, field) or "" for field in slot.fields])
        escaped = _between(order.escape.apply, slot.literal, text, after)
        middle = fill.middle or "" if "middle" in slot.fields else ""
        cut = len(escaped) - len(_between(order.escape.apply, "", middle, after))
        spans += [Span(escaped[:cut], False, False, -1), Span(escaped[cut:], False, True, -1)]
    spans.append(Span(end, True, True, -1))
    return [span for span in spans if span.text]


def fill_losses(order: FillOrder, fill: Fill, place: str) -> list[Loss]:
    """Return what of a fill cannot be read back: where its middle begins, or that it is there and empty."""
    path = f"{place}.middle"
    if fill.middle and any(slot.fields == ("prefix", "middle") for slot in order.slots):
        return [Loss(path, "moved", f"the order {order.name!r} marks no middle: it is read as the end of the prefix")]
    if fill.middle == "" and not order.end:
        return [Loss(path, "approximated", "an empty middle looks like one that nobody has written yet")]
    return []


def read_fill(order: FillOrder, text: str, start: int = 0) -> Fill:
    """Return the fill that stands from `start` to the end of a text. Raises InvalidTranscript."""
    position = start or skip_mark(text, order.pieces[0])
    fields: dict[str, str] = {}
    for slot, expected in _steps(order, order.end):
        if not text.startswith(slot.literal, position):
            fail(text, position, f"{slot.literal} is missing here, in a fill in the order {order.name!r}", slot.literal)
        position += len(slot.literal)
        if slot.fields:
            end = text.find(expected, position) if expected else -1
            after, end = (expected, end) if end >= 0 else ("", len(text))
            content = read_content(order.escape, text, (position, end), (slot.literal, after), expected)
            fields[slot.fields[0]], position = content, end
    closed = position < len(text)
    rest = position + len(order.end)
    if closed and rest < len(text):
        fail(text, rest, f"text after {order.end}, where the end of the text is expected", "the end of the text")
    if order.end and not closed and fields.get("middle"):
        fail(text, position, f"{order.end} is missing here, after the middle", order.end)
    return Fill(fields["prefix"], fields["suffix"], fields.get("middle") or ("" if closed else None))


def read_content(
    escape: Escape, text: str, place: tuple[int, int], around: tuple[str, str] = ("", ""), expected: str = ""
) -> str:
    """Return content between two literals of a text, without its escape. A bare literal in it is an error."""
    raw = text[slice(*place)]
    content = _between(escape.remove, around[0], raw, around[1])
    written = _between(escape.apply, around[0], content, around[1])
    if raw != written:
        # The writer would have put a backslash there, right after the character that begins a literal.
        pairs = enumerate(zip(raw, written, strict=False))
        same = next((index for index, pair in pairs if pair[0] != pair[1]), len(raw))
        wanted = expected or "only content"
        mark = next((mark for _, mark in escape.bare(raw)), "a control literal")
        message = f"{mark} stands where {wanted} is expected; put a backslash inside it if it is content"
        fail(text, place[0] + same - 1, message, expected or "content")
    return content


def skip_mark(text: str, *literals: str) -> int:
    """Return where a text begins: after a byte order mark that stands before a literal. Any other mark is content."""
    return int(text.startswith(tuple(BYTE_ORDER_MARK + literal for literal in literals)))


def fail(text: str, position: int, message: str, expected: str) -> NoReturn:
    """Raise the error for what stands at `position`."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    got = text[position : position + 40].split("\n", maxsplit=1)[0] or "the end of the text"
    raise InvalidTranscript(message, line=line, column=column, expected=expected, got=got)


def _steps(order: FillOrder, end: str) -> list[tuple[Slot, str]]:
    """Return each slot of an order with the literal that comes after it; after the last there is `end`."""
    slots = order.slots
    return list(zip(slots, [*(slot.literal for slot in slots[1:]), end], strict=True))


def _between(change: Callable[[str], str], before: str, text: str, after: str) -> str:
    """Return what `change` makes of a text between two literals, of which it sees the nearest characters."""
    left, right = before[-1:], after[:1]
    whole = change(left + text + right)
    return whole[len(left) : len(whole) - len(right)]


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


FILES, LEADING = "files", "leading"
_HOLE = ("prefix", "suffix", "middle")
_TEXT = type_name(Json(b'""'))


def is_files(members: Mapping[str, object]) -> bool:
    """Return whether an object has the members of files, and no other: what they are is not looked at."""
    return FILES in members and members.keys() <= {FILES, LEADING}


def files_of(members: Mapping[str, Json]) -> FileSequence:
    """Return the files that an object holds. Raises InvalidRequest with the JSON path."""
    _check_members(members, (FILES, LEADING), "$")
    if FILES not in members:
        raise InvalidRequest("there is no member 'files' here", path="$", expected="a list of files")
    given = members[FILES]
    if bytes(given)[:1] != b"[":
        raise _wrong(given, f"$.{FILES}", "a list of files")
    entries = read_list(given)
    if not entries:
        raise InvalidRequest("a document has a file at least; write an empty one as an empty text", path=f"$.{FILES}")
    found = [_file(entry, f"$.{FILES}[{index}]") for index, entry in enumerate(entries)]
    early = next((index for index, file in enumerate(found[:-1]) if isinstance(file, Fill)), -1)
    if early >= 0:
        message = "only the last file may have a hole: a model goes on at the end"
        raise InvalidRequest(message, path=f"$.{FILES}[{early}]", expected="a text", got="a text with a hole")
    leading = members.get(LEADING, Json(b"false"))
    if bytes(leading) not in (b"true", b"false"):
        raise _wrong(leading, f"$.{LEADING}", "true or false")
    return FileSequence(found, leading=bytes(leading) == b"true")


def files_body(sequence: FileSequence) -> dict[str, Any]:
    """Return files as the object that holds them."""
    files = [file if isinstance(file, str) else hole_body(file) for file in sequence.files]
    return {FILES: files, LEADING: True} if sequence.leading else {FILES: files}


def hole_body(fill: Fill) -> dict[str, str]:
    """Return a text with a hole as the object that holds it."""
    return {key: text for key in _HOLE if (text := getattr(fill, key)) is not None}


def _file(entry: Json, at: str) -> str | Fill:
    if bytes(entry)[:1] == b'"':
        return _text(entry, at)
    if bytes(entry)[:1] != b"{":
        raise _wrong(entry, at, "a text, or an object with prefix and suffix")
    members = read_object(entry)
    _check_members(members, _HOLE, at)
    for key in _HOLE[:2]:
        if key not in members:
            raise InvalidRequest(f"a text with a hole has a {key}, maybe an empty one", path=at, expected=f"{key!r}")
    return Fill(**{key: _text(value, f"{at}.{key}") for key, value in members.items()})


def _text(value: Json, at: str) -> str:
    if bytes(value)[:1] != b'"':
        raise _wrong(value, at, _TEXT)
    try:
        return string_of(value)
    except InvalidRequest as error:  # half of a surrogate pair, whose place is counted from the quote
        error.path, error.line, error.column = at, 0, 0
        raise


def _check_members(members: Mapping[str, Json], known: tuple[str, ...], at: str) -> None:
    strange = next((key for key in members if key not in known), "")
    if strange:
        raise InvalidRequest(
            f"{strange!r} is no member of it", path=f"{at}.{strange}", expected=f"one of: {', '.join(known)}"
        )


def _wrong(value: Json, at: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"expected {expected}, got {excerpt(value)}", path=at, expected=expected, got=type_name(value)
    )
