"""Owns what `turnscript convert` does with one document: a body, a transcript, or a recorded stream of an answer.

A document becomes another one, or a stream. What is known only while it is written, what was lost and where a recording
broke off, stands in the job afterwards.

A `Conversion` has the names checked once, and is then applied to a document or to rows.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import IO, Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.apis.api import Api
from turnscript.cli.advice import advice
from turnscript.cli.failures import USAGE, Failed
from turnscript.cli.report import Fault, Screen, fault, plural
from turnscript.cli.source import Source
from turnscript.convert.file_documents import FoundFiles, files_in, render_files
from turnscript.convert.recognition import ANSWER, AUTO, REQUEST, detect_api, recognised_transcript
from turnscript.convert.recording import Recording, Retelling, ended, read_recording, stream_of
from turnscript.convert.registry import get_format, is_format, lookup
from turnscript.convert.verbs import beyond_first, left_out, parse_exchange, read, render, respelled_answer, unread
from turnscript.core.conversation import Issue, Request, Response
from turnscript.core.errors import (
    InvalidInput,
    InvalidRequest,
    LossyConversion,
    TurnscriptError,
    UnknownName,
    Unsupported,
)
from turnscript.core.exchange import Exchange, alone
from turnscript.core.json_text import Json, one_line, plain, read_object, type_name, utf8
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.engine.escape import POLICIES
from turnscript.engine.files import FILES
from turnscript.formats.format import VIEWS, Format

TEXT = "text"
"""The member of a row that holds a transcript."""


class Wishes(Struct, frozen=True):
    """How to convert. `side`: which of both an input is, or which is wanted of one that holds a request and its answer.
    `asked`: the request that every input answers. `variant`: of the format that inputs are in. `order`, `from_order`:
    how a text with a hole is written, and how the one that is read was."""

    strict: bool = False
    compact: bool = False
    normalize_json: bool = False
    side: str = AUTO
    asked: Request | None = None
    variant: str | None = None
    order: str = ""
    from_order: str = ""


class Conversion:
    """From one API or format (`auto`: tell from the input) to another: of requests, and of answers.

    A row in a format is an object with a member `text`, both ways. Raises UnknownName for names that nobody registered.
    """

    def __init__(self, source: str, target: str, wishes: Wishes, options: Mapping[str, str]) -> None:
        self.source = source
        self.target = target
        self.reads_text = source not in (AUTO, FILES) and isinstance(lookup(source), Format)
        self.writes_text = target != FILES and isinstance(lookup(target), Format)
        self.wishes = wishes
        self.read_as = ""  # what a document was taken for that nobody named, and why
        self.needed: Counter[str] = Counter()  # what requests lack that servers of the target insist on, how often
        self._options = dict(options)
        if target != FILES:
            _check(lookup(target), self._options)
        elif options:
            raise UnknownName("option of files", min(options), [])
        # A body of a bare text is one with a hole where that can be written.
        self._fills = target == FILES or (is_format(target) and get_format(target).document.files is not None)

    def document(self, data: bytes) -> Rendered[Any]:
        """A whole input. Raises InvalidInput, Unsupported, and LossyConversion if it is strict."""
        found = self._files(data)
        if found is not None:
            self.read_as = found.read_as
            return self._of_files(found)
        self._recognise(data)
        return self.rendered(self._read(data, self.source))

    def row(self, data: bytes) -> tuple[bytes, list[Loss]]:
        """One row as one line, and what was lost. Raises the same."""
        members = self._text_members(data)
        rendered = self._convert(data, self.source) if members is None else self._text(members)
        if self.writes_text:
            return msgspec.json.encode({TEXT: rendered.value}), rendered.losses
        return spaced(rendered.data, pretty=False if self.wishes.compact else None), rendered.losses

    def _convert(self, data: bytes | str, source: str, beside: Sequence[Loss] = ()) -> Rendered[Any]:
        found = self._files(data)
        return self._of_files(found, beside) if found is not None else self.rendered(self._read(data, source), beside)

    def _files(self, data: bytes | str) -> FoundFiles | None:
        """The files that an input holds, or None. What is said of an answer makes it one."""
        if self.wishes.asked is not None or self.wishes.side == ANSWER:
            return None
        return files_in(data, self.source, self.wishes.from_order, holes=self._fills)

    def _of_files(self, found: FoundFiles, beside: Sequence[Loss] = ()) -> Rendered[Any]:
        """Files in the target. Raises as `document` does."""
        rendered = render_files(found.sequence, self.target, self.wishes.order)
        rendered.losses[:0] = [*beside, *found.losses]
        if self.wishes.strict and rendered.losses:
            raise LossyConversion(rendered.losses, self.target)
        return rendered

    def said(self, data: bytes) -> Request | Exchange:
        """What a whole input says, not converted yet. Raises InvalidInput."""
        found = self._files(data)
        if found is not None:
            self._of_files(found)  # which says that an API has no place for them
        self._recognise(data)
        return self._read(data, self.source)

    def _recognise(self, data: bytes) -> None:
        found = recognised_transcript(data) if self.source == AUTO else None
        self.read_as = "" if found is None else str(found)

    def rendered(self, said: Request | Exchange, beside: Sequence[Loss] = ()) -> Rendered[Any]:
        """What an input says in the target. `beside`: what is lost already. Raises as `document` does."""
        strict = self.wishes.strict
        if self.target == FILES or self.wishes.order:
            remedy = "name an API or a format with --to" if self.target == FILES else "leave --order out"
            message = f"this is a conversation, and neither files nor a text with a hole; {remedy}"
            raise Unsupported("a conversation", "files", message)
        beside = [*beside, *unread(said)]
        try:
            rendered = render(
                said, self.target, strict=strict, normalize_json=self.wishes.normalize_json, **self._options
            )
        except LossyConversion as error:
            raise LossyConversion([*beside, *error.losses], self.target) from None
        if strict and beside:
            raise LossyConversion(beside, self.target)
        rendered.losses[:0] = beside
        target = lookup(self.target)
        if isinstance(said, Request) and isinstance(target, Api) and said.origin != target.origin:
            members = read_object(rendered.data)
            self.needed.update([name for name in target.serving.needs if name not in members])
        return rendered

    def _read(self, data: bytes | str, source: str) -> Request | Exchange:
        if self.wishes.asked is None:
            return read(data, source, self.target, self.wishes.side, self.wishes.variant)
        return replace(parse_exchange(data, source, variant=self.wishes.variant), request=self.wishes.asked)

    def recorded(self, response: Response) -> Exchange:
        """A recorded answer, with the request if that was named."""
        return alone(response) if self.wishes.asked is None else Exchange(self.wishes.asked, response)

    def _text_members(self, data: bytes) -> dict[str, Json] | None:
        """The members of a row that holds a transcript, None for a row that is an API body."""
        if self.source != AUTO:
            return read_object(utf8(data)) if self.reads_text else None
        if b'"text"' not in data or data.lstrip(b"\xef\xbb\xbf \t")[:1] != b"{":
            return None
        members = read_object(utf8(data))
        if TEXT not in members or type_name(members[TEXT]) != _STRING:
            return None
        try:
            detect_api(data)
        except InvalidRequest:
            return members
        return None

    def _text(self, members: Mapping[str, Json]) -> Rendered[Any]:
        if TEXT not in members or type_name(members[TEXT]) != _STRING:
            got = type_name(members[TEXT]) if TEXT in members else "no such member"
            message = f"a row in a format is an object whose member {TEXT!r} is a string; here it is {got}"
            raise InvalidRequest(message, path=f"$.{TEXT}", expected=_STRING, got=got)
        others = [
            Loss(f"$.{key}", "dropped", "a row with a transcript keeps only that") for key in members if key != TEXT
        ]
        try:
            return self._convert(plain(members[TEXT]), self.source, others)
        except InvalidInput as error:
            if error.line:
                error.message = f"line {error.line}, column {error.column} of the transcript: {error.message}"
            error.path, error.line, error.column = f"$.{TEXT}", 0, 0
            raise


_STRING = type_name(Json(b'""'))


def spaced(body: bytes, *, pretty: bool | None) -> bytes:
    """A JSON body indented, without any white space, or (None) on one line as it is.

    Numbers, escapes and the order of keys stay as they are.
    """
    if pretty is None:
        return one_line(body)
    try:
        return msgspec.json.format(body, indent=2 if pretty else -1)
    except RecursionError:  # nested too deep for this
        return one_line(body)


def _check(target: Api | Format, options: Mapping[str, str]) -> None:
    """Raise UnknownName for an option that the target does not have, before anything is read."""
    if isinstance(target, Api):
        flags = {name: value for name, value in options.items() if name != "profile"}
        target.rendering(Request(), options.get("profile", target.profiles[0]), flags)
        return
    known = {"view": VIEWS, "escape": POLICIES, "variant": target.variants}
    for name, value in options.items():
        if name not in known:
            raise UnknownName(f"option of {target.name}", name, known)
        if value not in known[name]:
            raise UnknownName(name, value, known[name])


_PIECE = 1 << 16
_MOST = 1 << 24
"""So much of a stream waits in memory, where it is not written before it is known whether all of it may be."""


def note_needed(screen: Screen, conversion: Conversion, *, rows: bool) -> None:
    """Say what requests still lack that servers of the target insist on: a transcript by itself has neither a model
    nor a limit."""
    lacks = [
        f"no `{name}`" + (f" in {plural(count, 'row', 'rows')}" if rows else "")
        for name, count in conversion.needed.items()
    ]
    if lacks:
        screen.note(f"{' and '.join(lacks)} yet, which {conversion.target} insists on")


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
    if conversion.wishes.variant is not None:
        message = "--variant is for a format, and this is a recorded stream of an API"
        raise Failed(message, place=source.name, remedy="leave it out", code=USAGE)
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
