"""Owns the second thing that the playground shows: the prompt of a request as pieces and tokens, and whose each is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import groupby

from msgspec import Struct

from turnscript.convert.format_reference import has_thoughts
from turnscript.convert.prompting import Written, left_out, written
from turnscript.convert.recognition import AUTO
from turnscript.convert.verbs import parse
from turnscript.core.conversation import Item, Request
from turnscript.core.errors import TurnscriptError, UnknownName
from turnscript.engine.files import FillPrompt
from turnscript.engine.spans import Span
from turnscript.formats.format import Format
from turnscript.playground.offered import format_named
from turnscript.playground.places import Place, Places
from turnscript.playground.telling import (
    Fault,
    Losses,
    Recognised,
    check_name,
    fault_of,
    losses_of,
    recognise,
)

MOST_TOKENS = 5_000
"""So many are shown one by one."""
_PACKAGES = ("numpy", "pyrwkv_tokenizer")
"""What tokens need: the extra `data`."""


class Ask(Struct, forbid_unknown_fields=True):
    """What is asked: a request, what it is in, a prompt format; whether the model thinks first (None: as the request
    says); the name of a tokenizer, empty for none."""

    source: str
    format: str
    from_: str = AUTO
    thinking: bool | None = None
    tokenizer: str = ""


class Piece(Struct):
    """Neighbouring spans of one kind and item. `escapes`: where the escape has put a character, in UTF-16 units."""

    text: str
    control: bool
    trainable: bool
    item: int
    escapes: list[int] = []


class Told(Struct):
    """An item of the conversation: what it is called, and where it stands in the source."""

    name: str
    place: Place | None


class Box(Struct):
    """A token. `text`: what it stands for; a piece of a character is an escape."""

    text: str
    id: int
    weight: int
    control: bool
    straddles: bool
    item: int


class Tokens(Struct):
    """A prompt as tokens. `more`: how many are not shown; `mode`: how control tokens are found."""

    boxes: list[Box]
    total: int
    trained: int
    mode: str
    more: int = 0


class Prompted(Struct):
    """What came of it: pieces, or a fault. `thinks`: whether a model can think in this format; `unheard`: why there are
    no tokens."""

    recognised: Recognised | None = None
    pieces: list[Piece] = []
    items: list[Told] = []
    stops: list[str] = []
    client_stops: list[str] = []
    prefill: str = ""
    thinks: bool = True
    losses: Losses | None = None
    tokens: Tokens | None = None
    unheard: Fault | None = None
    fault: Fault | None = None


def prompted(asked: Ask) -> Prompted:
    """The prompt of a request."""
    request = None
    try:
        check_name(asked.from_)
        check_name(asked.format, formats_only=True)
        format_ = format_named(asked.format)
        request = parse(asked.source, asked.from_)
        made = written(request, format_, asked.thinking)
        losses = losses_of(left_out(made, request, format_), asked.source)
        places = Places(asked.source, [item.at for item in request.items])
    except TurnscriptError as error:
        return Prompted(recognise(asked.source, asked.from_, request), fault=fault_of(error, asked.source))
    result = Prompted(
        recognise(asked.source, asked.from_, request),
        pieces=list(_pieces(made.spans, _unescaped(made, request, format_, asked.thinking))),
        items=[Told(_name_of(item), places.of(item.at)) for item in request.items],
        stops=list(made.stops),
        client_stops=list(made.client_stops),
        prefill=made.prefill,
        thinks=has_thoughts(format_),
        losses=losses,
    )
    if asked.tokenizer:
        try:
            result.tokens = _tokens(asked.tokenizer, format_, made.spans, request.items)
        except TurnscriptError as error:
            result.unheard = fault_of(error)
    return result


def tokenizers() -> list[str]:
    """The tokenizers that come with the extra `data`; none where it is not installed."""
    if any(find_spec(package) is None for package in _PACKAGES):
        return []
    from turnscript.datasets.tokenizers import BYTES, WORLD  # noqa: PLC0415  (needs the extra)

    return [WORLD, BYTES]


def _name_of(item: Item) -> str:
    kind, name = item.kind.replace("_", " "), getattr(item, "name", None)
    return f"{kind} {name}" if name else kind


def _unescaped(made: Written, request: Request, format_: Format, thinking: bool | None) -> Sequence[Span]:
    """The same spans without the escape. A text with a hole has an escape of its own."""
    if isinstance(made, FillPrompt):
        return made.spans
    return format_.prompt(request, thinking=thinking if has_thoughts(format_) else False, escape="none").spans


def _pieces(spans: Sequence[Span], plain: Sequence[Span]) -> Iterator[Piece]:
    """Neighbours of one kind and item joined, and where the escape has put something."""
    pairs = zip(spans, plain, strict=True) if len(plain) == len(spans) else zip(spans, spans, strict=True)
    for (control, trainable, item), run in groupby(pairs, key=lambda pair: pair[0][1:]):
        piece = Piece("", control, trainable, item)
        texts, at = [], 0
        for span, other in run:
            piece.escapes += [at + place for place in _added(span.text, other.text)]
            texts.append(span.text)
            at += _units(span.text)
        piece.text = "".join(texts)
        if piece.text:
            yield piece


def _added(text: str, plain: str) -> Iterator[int]:
    """Where a text has characters that a shorter one has not, in UTF-16 units. All others are the same."""
    if len(text) == len(plain):
        return
    at, units = 0, 0
    for character in text:
        if at < len(plain) and character == plain[at]:
            at += 1
        else:
            yield units
        units += _units(character)


def _units(text: str) -> int:
    return len(text) if text.isascii() else len(text) + sum(1 for one in text if one > "\uffff")


def _tokens(name: str, format_: Format, spans: Sequence[Span], items: Sequence[Item]) -> Tokens:
    known = tokenizers()
    if name not in known:
        raise UnknownName("tokenizer", name, known)
    # Only here: these need the extra.
    from turnscript.datasets.encoding import Encoder  # noqa: PLC0415
    from turnscript.datasets.tokenizers import get_tokenizer  # noqa: PLC0415
    from turnscript.datasets.train import Train  # noqa: PLC0415

    encoder = Encoder(format_, get_tokenizer(name), Train(), end=False)
    found = encoder.explain_prompt(spans, items)
    boxes = [
        Box(one.text.decode("utf-8", "backslashreplace"), one.id, one.weight, one.control, one.straddles, one.item)
        for one in found[:MOST_TOKENS]
    ]
    return Tokens(boxes, len(found), sum(1 for one in found if one.weight), encoder.mode, len(found) - len(boxes))
