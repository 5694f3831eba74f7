r"""Owns fill-in-the-middle: a text with a hole, written in the order that a family of models was trained on, and read.

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

from collections.abc import Callable
from typing import NamedTuple, NoReturn

from msgspec import Struct

from turnscript.core.conversation import Request, System, User, text_content
from turnscript.core.errors import InvalidInput, InvalidRequest, InvalidTranscript
from turnscript.core.json_text import plain
from turnscript.core.losses import Loss
from turnscript.engine.escape import Escape
from turnscript.engine.spans import Span

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
