"""Owns what `turnscript convert` does with one document: a body, a transcript, or a recorded stream of an answer.

A document becomes another one, or a stream. What is known only while it is written, what was lost and where a recording
broke off, stands in the job afterwards.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, Protocol

from turnscript.apis.api import Api
from turnscript.cli.advice import advice
from turnscript.cli.conversion import Conversion
from turnscript.cli.failures import Failed
from turnscript.cli.report import Fault, Screen, fault
from turnscript.cli.source import Source
from turnscript.convert.answer_streams import Retelling, ended, stream_of
from turnscript.convert.recognition import AUTO, REQUEST, lookup
from turnscript.convert.recording import Recording, read_recording
from turnscript.convert.verbs import beyond_first, left_out, respelled_answer, unread
from turnscript.core.conversation import Issue, Request
from turnscript.core.errors import InvalidInput, LossyConversion, TurnscriptError
from turnscript.core.exchange import Exchange
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered

_PIECE = 1 << 16
_MOST = 1 << 24
"""So much of a stream waits in memory, where it is not written before it is known whether all of it may be."""


class Job(Protocol):
    """One document on its way."""

    losses: list[Loss]
    issues: list[Issue]

    @property
    def recording(self) -> Recording | None:
        """The recording that the input is."""

    def make(self) -> Rendered[Any] | Iterator[bytes]:
        """What is to be written: a document, or a stream. Raises Failed and TurnscriptError, a stream later too."""
        ...

    def advice(self, error: TurnscriptError) -> str:
        """What to try where the input could not be read and the error does not say it."""
        ...


def job_of(conversion: Conversion, source: Source, *, stream: bool) -> Job:
    """The job for an input. `stream`: a stream is wanted."""
    is_recorded = not conversion.reads_text and source.is_stream()
    if not is_recorded:
        return _Told(conversion, source) if stream else _Whole(conversion, source)
    if conversion.wishes.side == REQUEST:
        raise Failed("a recorded stream is an answer, and --side request says that it is none", place=source.name)
    if stream and not conversion.wishes.normalize_json:
        return _Retold(conversion, source)
    return _Recorded(conversion, source, stream=stream)


def broke_off(recording: Recording, name: str) -> Fault | None:
    """How a recording that was read broke off, and what was kept of it; None if it did not."""
    if recording.error is None:
        return None
    found = fault(recording.error, name, recording.line)
    found.remedy = f"{recording.kept}; {recording.missing}"
    return found


def note_issues(screen: Screen, job: Job, name: str) -> None:
    """Say what was odd in a recording that could be read, and is no loss."""
    if job.recording is None or job.recording.error is not None:
        return
    lost = {loss.detail for loss in left_out(job.issues)}
    for issue in job.issues:
        if issue.detail not in lost:
            screen.note(f"{name}: {issue.detail}")


class _Whole:
    """A body or a transcript as another one."""

    def __init__(self, conversion: Conversion, source: Source) -> None:
        self.losses: list[Loss] = []
        self.issues: list[Issue] = []
        self.recording = None
        self._conversion = conversion
        self._source = source
        self._data = b""

    def make(self) -> Rendered[Any] | Iterator[bytes]:
        self._read()
        rendered = self._conversion.document(self._data)
        self.losses = rendered.losses
        return rendered

    def _read(self) -> None:
        self._data = self._source.whole()
        if not self._data.strip():
            raise Failed("the input is empty", place=self._source.name, remedy="give a request body or a transcript")

    def advice(self, error: TurnscriptError) -> str:
        return advice(error, self._conversion.source, self._data, "if these are JSON Lines, add --lines")


class _Told(_Whole):
    """A body or a transcript as a stream."""

    def make(self) -> Rendered[Any] | Iterator[bytes]:
        self._read()
        said = self._conversion.said(self._data)
        if isinstance(said, Request):
            message = "this is a request, and --stream writes answers"
            raise Failed(
                message, place=self._source.name, remedy="leave out --stream; or --side response, if it is one"
            )
        data, self.losses = _streamed(self._conversion, said)
        return iter([data])


class _Recording:
    """A recorded stream."""

    def __init__(self, conversion: Conversion, source: Source) -> None:
        named = None if conversion.source == AUTO else lookup(conversion.source)
        self.losses: list[Loss] = []
        self.issues: list[Issue] = []
        self.recording = Recording(named if isinstance(named, Api) else None)
        self._conversion = conversion
        self._source = source

    def advice(self, error: TurnscriptError) -> str:
        if not isinstance(error, InvalidInput) or self.recording.api is not None:
            return ""
        return "--from NAME says what it is; `turnscript apis` lists the names"

    def _check(self) -> None:
        """Under --strict nothing of a recording that broke off is written."""
        found = broke_off(self.recording, self._source.name)
        if found is not None and self._conversion.wishes.strict:
            remedy = "nothing is written under --strict; without it, what was told before is kept"
            raise Failed(found.message, place=found.place, remedy=remedy)


class _Recorded(_Recording):
    """A recorded stream as a document; or as a stream, if all of it must be known before."""

    def __init__(self, conversion: Conversion, source: Source, *, stream: bool) -> None:
        super().__init__(conversion, source)
        self._stream = stream

    def make(self) -> Rendered[Any] | Iterator[bytes]:
        response = read_recording(self._source.pieces(), self.recording)
        self._check()
        if response is None:
            assert self.recording.error is not None
            place = f"{self._source.name}:{self.recording.line}"
            raise Failed(str(self.recording.error), place=place, remedy="no answer had begun, so nothing is written")
        self.issues = response.issues
        exchange = self._conversion.recorded(response)
        if self._stream:
            data, self.losses = _streamed(self._conversion, exchange, self.recording)
            return iter([data])
        rendered = self._conversion.rendered(*self._ended(exchange))
        self.losses = rendered.losses
        return rendered

    def _ended(self, exchange: Exchange) -> tuple[Exchange, list[Loss]]:
        """The exchange with an end that a body can say, and what that is not."""
        is_broken = self.recording.error is not None and not self._conversion.writes_text
        return ended(exchange) if is_broken else (exchange, [])


class _Retold(_Recording):
    """A recorded stream as another one, while it is read."""

    def make(self) -> Rendered[Any] | Iterator[bytes]:
        api = lookup(self._conversion.target)
        assert isinstance(api, Api)
        request = self._conversion.wishes.asked or Request()
        retelling = Retelling(self.recording, request, api)
        if not self._conversion.wishes.strict:
            return self._told(retelling)
        with ExitStack() as stack:
            kept = stack.enter_context(tempfile.SpooledTemporaryFile(max_size=_MOST))
            for piece in self._told(retelling):
                kept.write(piece)
            self._check()
            if self.losses:
                raise LossyConversion(self.losses, self._conversion.target)
            stack.pop_all()
        return _drained(kept)

    def _told(self, retelling: Retelling) -> Iterator[bytes]:
        try:
            for piece in self._source.pieces():
                yield retelling.feed(piece)
            yield retelling.close()
        except InvalidInput as error:
            if self.recording.api is not None:
                yield retelling.fail(error)
            raise
        self.issues = retelling.issues
        self.losses = [*left_out(retelling.issues), *retelling.losses]


def _drained(kept: IO[bytes]) -> Iterator[bytes]:
    with kept:
        kept.seek(0)
        while piece := kept.read(_PIECE):
            yield piece


def _streamed(
    conversion: Conversion, exchange: Exchange, recording: Recording | None = None
) -> tuple[bytes, list[Loss]]:
    """An answer that is known whole as a stream. Raises LossyConversion if the conversion is strict."""
    api = lookup(conversion.target)
    assert isinstance(api, Api)
    response, asked = exchange.response, list[Loss]()
    losses = [*unread(exchange), *beyond_first(exchange, f"a stream of {api.name}")]
    if conversion.wishes.normalize_json:
        response, asked = respelled_answer(response)
    error = None if recording is None else recording.error
    data, lost = stream_of(response, exchange.request, api, error)
    losses += lost
    if conversion.wishes.strict and losses:
        raise LossyConversion(losses, api.name)
    return data, [*asked, *losses]
