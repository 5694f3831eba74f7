"""Owns the first thing that the playground shows: a source in another API or format, with what was lost."""

from __future__ import annotations

from msgspec import Struct

from turnscript.convert.recognition import AUTO
from turnscript.convert.recording import Recording, ended, pieces_of, read_recording
from turnscript.convert.registry import get_api, is_format, is_stream
from turnscript.convert.verbs import read, render, unread
from turnscript.core.conversation import Request
from turnscript.core.errors import TurnscriptError, UpstreamError
from turnscript.core.exchange import Exchange
from turnscript.core.losses import Loss
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


class Conversion(Struct, forbid_unknown_fields=True):
    """What is asked: a source, what it is in, what it is wanted in, which side of an exchange, which view."""

    source: str
    to: str
    from_: str = AUTO
    side: str = AUTO
    view: str = "archive"


class Converted(Struct):
    """What came of it: a `value`, or a fault; or both, where a recorded stream broke off that is kept so far."""

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
        try:
            said, fault = read(asked.source, asked.from_, asked.to, asked.side), None
        except UpstreamError:
            if not is_stream(asked.source):
                raise
            said, fault = _broken_off(asked)
        value, losses = _rendered(said, asked, is_broken=fault is not None)
    except TurnscriptError as error:
        return Converted(recognise(asked.source, asked.from_, said), fault=fault_of(error, asked.source))
    return Converted(recognise(asked.source, asked.from_, said), value, losses_of(losses, asked.source), fault)


def _rendered(said: Request | Exchange, asked: Conversion, *, is_broken: bool) -> tuple[str, list[Loss]]:
    losses = unread(said)
    if is_format(asked.to):
        rendered = render(said, asked.to, view=asked.view)
        return rendered.value, [*losses, *rendered.losses]
    if is_broken:
        assert isinstance(said, Exchange)
        said, invented = ended(said)
        losses = [*invented, *losses]
    rendered = render(said, asked.to)
    return pretty(rendered.data), [*losses, *rendered.losses]


def _broken_off(asked: Conversion) -> tuple[Exchange, Fault]:
    """What a recorded stream told before it broke off, and how it did. Raises UpstreamError if that is nothing."""
    recording = Recording(None if asked.from_ == AUTO else get_api(asked.from_))
    response = read_recording(pieces_of(asked.source), recording)
    error, api = recording.error, recording.api
    assert error is not None, "it was read to its end"
    if response is None or api is None:
        raise error
    fault = fault_of(error, asked.source, recording.line)
    fault.message += f"; {recording.kept}; {recording.missing}"
    return Exchange(Request(origin=api.origin, words=api.words), response), fault
