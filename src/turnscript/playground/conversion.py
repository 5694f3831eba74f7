"""Owns the first thing that the playground shows: a source in another API or format, with what was lost."""

from __future__ import annotations

from msgspec import Struct

from turnscript.convert import read, render, unread
from turnscript.errors import TurnscriptError
from turnscript.playground.telling import (
    Fault,
    Losses,
    Recognised,
    check_name,
    fault_of,
    losses_of,
    pretty,
    recognise,
)
from turnscript.recognition import AUTO
from turnscript.registry import is_format


class Conversion(Struct, forbid_unknown_fields=True):
    """What is asked: a source, what it is in, what it is wanted in, which side of an exchange, which view."""

    source: str
    to: str
    from_: str = AUTO
    side: str = AUTO
    view: str = "archive"


class Converted(Struct):
    """What came of it: a `value`, or a fault."""

    recognised: Recognised | None = None
    value: str | None = None
    losses: Losses | None = None
    fault: Fault | None = None


def converted(asked: Conversion) -> Converted:
    """The source in another API or format."""
    said = None
    try:
        check_name(asked.from_)
        check_name(asked.to)
        said = read(asked.source, asked.from_, asked.to, asked.side)
        if is_format(asked.to):
            rendered = render(said, asked.to, view=asked.view)
            value = rendered.value
        else:
            rendered = render(said, asked.to)
            value = pretty(rendered.data)
        losses = losses_of([*unread(said), *rendered.losses], asked.source)
    except TurnscriptError as error:
        return Converted(recognise(asked.source, asked.from_, said), fault=fault_of(error, asked.source))
    return Converted(recognise(asked.source, asked.from_, said), value, losses)
