"""Owns recorded streams: frames that somebody kept, of whichever API and framing, read as the answer that they tell.

Theory of operation. A recording is cut behind its frames, so that it is known in which line it went wrong, and each
goes to the parser of its API. Which API that is, the first frame says that one of them claims. A recording that cannot
be read to its end, or has none, is no reason to lose what it tells until then: the parts that are open are ended, and
so is the answer, with an issue of the kind `BROKEN`. The part that it broke off in is `open`.

An answer is also told again as the stream of an API: one that is known whole, or a recording while it is read. Who
writes an answer anew is no server: the answer keeps its id, its time and its model, and its token counts are told
although nobody may have asked for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from turnscript.apis.api import Api, Reply
from turnscript.apis.streams import Head, StreamParser, StreamRenderer, head_of
from turnscript.convert.registry import apis, claiming_api, framings, origin_of
from turnscript.core.conversation import Assistant, Issue, Item, Request, Response, Thinking, Usage, text_content
from turnscript.core.errors import InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.events import Event, LastCall, MessageEnd, PartDelta, PartEnd, PartStart, fold, unfold
from turnscript.core.exchange import Exchange
from turnscript.core.framing import SSE, Frames, Framing, framing_of, says_nothing
from turnscript.core.json_text import Json, is_json, is_object, read_object
from turnscript.core.losses import Loss
from turnscript.core.source_paths import answer_in_source_words
from turnscript.core.sse import LIMIT
from turnscript.core.unread_stream import DONE

BROKEN = "broken_stream"
"""The kind of the issue that a recording adds to those of its answer: it is not whole."""

_WORDS = {"assistant": "text", "thinking": "thought", "tool_call": "call", "opaque": "other part"}

_DATA = re.compile(rb"^(?:\xef\xbb\xbf)?data\b", re.MULTILINE)
_PIECE = 1 << 16
_MOST = 1 << 20
"""An event that is longer goes to its parser in pieces."""


class Recording:
    """Reads a recording in pieces of any size. `api`: which it is of, None as long as that is not known.

    `error` is why it could not be read to its end, and `line` where; None and 0 if it could. Raises InvalidRequest if
    nobody named the API and none claims what stands here, and nothing else.
    """

    def __init__(self, api: Api | None = None) -> None:
        self.api = api
        self.error: UpstreamError | None = None
        self.line = 0
        self._parser: StreamParser | None = None if api is None else api.stream_parser()
        self._cutter = _Cutter(framings() if api is None else [*api.framings.values()])
        self._frames: Frames | None = None  # as long as the API is not known
        self._waiting: list[tuple[int, bytes]] = []  # what came before the API was known
        self._held = 0  # bytes of that
        self._seen = ""  # the members of the first event, for who must name the API
        self._open: set[int] = set()
        self._end: MessageEnd | None = None
        self._told: Counter[str] = Counter()
        self._is_cut = False

    @property
    def head(self) -> Head:
        """What the stream has said of itself so far."""
        return Head() if self._parser is None else self._parser.head()

    def feed(self, data: bytes) -> list[Event]:
        """More bytes; returns the events that are certain now. The last one of all comes from `close`."""
        events: list[Event] = []
        for line, piece in self._cutter.feed(data, whole=self._parser is None):
            self._take(line, piece, events)
        return events

    def close(self) -> list[Event]:
        """The recording is over: the last events. The end of the answer is among them, if one had begun."""
        events: list[Event] = []
        line, rest = self._cutter.rest()
        mends = self._cutter.framing.mends
        cut = mends and self._end is None and not self._cutter.split and _is_cut(rest)
        if rest and not cut:
            self._take(line, rest + b"\n\n", events)
        if self._parser is None:
            raise self._nobodys()
        if self.error is None:
            try:
                self._keep(self._parser.close(), events)
            except UpstreamError as error:
                inside = UpstreamError(f"{error} (inside an event)", retryable=True) if cut else error
                self._fail(inside, self._cutter.lines, events)
        if self._end is not None:
            events.append(self._concluded(self._end))
        return events

    def _take(self, line: int, piece: bytes, events: list[Event]) -> None:
        """One more event, mostly; a long one comes in pieces."""
        if self._parser is None:
            self._waiting.append((line, piece))
            self._held += len(piece)
            self.api = self._recognised(piece)
            if self.api is not None:
                self._parser = self.api.stream_parser()
                waiting, self._waiting = self._waiting, []
                for at, one in waiting:
                    self._take(at, one, events)
            elif self._held > LIMIT:
                raise self._nobodys()
            return
        if self.error is not None:
            return
        try:
            self._keep(self._parser.feed(piece), events)
        except UpstreamError as error:
            data = _DATA.search(piece)
            self._fail(error, line + (_lines(piece[: data.start()]) if data else 0), events)

    def _keep(self, told: list[Event], events: list[Event]) -> None:
        for event in told:
            if isinstance(event, PartStart):
                self._open.add(event.index)
            elif isinstance(event, PartEnd):
                self._open.discard(event.index)
                if event.part is not None:
                    self._told[event.part.kind] += 1
            elif isinstance(event, MessageEnd):
                self._end = event
                return
            events.append(event)

    def _fail(self, error: UpstreamError, line: int, events: list[Event]) -> None:
        """It cannot be read any more. What was told so far is ended."""
        assert self._parser is not None
        self.error, self.line = error, line
        broken = set(self._open)
        salvaged = self._parser.salvage()
        for event in salvaged:
            if isinstance(event, PartEnd) and event.index in broken and isinstance(event.part, Assistant | Thinking):
                if text_content(event.part.content) or isinstance(event.part, Thinking):
                    event.part.open = self._is_cut = True
                else:
                    event.part = None
        self._keep(salvaged, events)

    def _concluded(self, end: MessageEnd) -> MessageEnd:
        if self.error is not None:
            end.issues = [*end.issues, Issue(BROKEN, f"line {self.line}: {self.error}; {self.missing}")]
        return end

    @property
    def kept(self) -> str:
        """What of a recording that is broken was read, in words."""
        told = [f"{count} {_WORDS.get(kind, kind)}{'s' * (count > 1)}" for kind, count in self._told.items()]
        cut = ", the last of them cut off" if told and self._is_cut else ""
        return f"kept: {', '.join(told) or 'nothing'}{cut}"

    @property
    def missing(self) -> str:
        """What of a recording that is broken was not read, in words."""
        if self.line >= self._cutter.lines:
            return "what should follow is missing"
        return f"lines {self.line} to {self._cutter.lines} are not read"

    # Which API it is of.

    def _recognised(self, piece: bytes) -> Api | None:
        framing = self._cutter.framing
        self._frames = self._frames or framing.reader()
        try:
            frames = self._frames.feed(piece)
        except UpstreamError:
            self._frames = None
            return None
        for name, text in frames:
            if is_object(text):
                members = read_object(Json(text))
                self._seen = self._seen or ", ".join(map(repr, list(members)[:8])) or "no member"
                api = claiming_api(name, members, framing)
                if api is not None:
                    return api
        return None

    def _nobodys(self) -> InvalidRequest:
        has = f"its first event has {self._seen}" if self._seen else "it has no event"
        message = f"cannot tell which API this stream is of ({has}); name it, one of: {', '.join(apis())}"
        return InvalidRequest(message, path="$", expected="a stream of a known API", got=self._seen or "no event")


class _Cutter:
    """Cuts bytes behind each frame, and counts their lines. `split`: the last one was cut inside a frame."""

    def __init__(self, framings: list[Framing]) -> None:
        self.framing = framings[0]
        self._framings = framings
        self._begun = False  # something has come that is not blank
        self._kept = bytearray()
        self._looked = 0  # so far there is no end of an event in what is kept
        self._line = 1  # in which that begins
        self.split = False

    @property
    def lines(self) -> int:
        """How many lines there are."""
        return self._line + _lines(self._kept) - (not self._kept or self._kept.endswith((b"\n", b"\r")))

    def feed(self, data: bytes, *, whole: bool) -> Iterator[tuple[int, bytes]]:
        """The events that are complete, each with its line. `whole`: an event must not come in pieces."""
        kept, start = self._kept, 0
        kept += data
        if not self._begun:
            self.framing = framing_of(bytes(kept), self._framings)
            self._begun = not says_nothing(kept)
        for found in self.framing.between.finditer(kept, self._looked):
            yield self._cut(bytes(kept[start : found.end()]))
            start, self.split = found.end(), False
        if len(kept) - start > (LIMIT if whole else _MOST):
            yield self._cut(bytes(kept[start:]))
            start, self.split = len(kept), True
        del kept[:start]
        self._looked = max(0, len(kept) - 3)

    def rest(self) -> tuple[int, bytes]:
        """What has no end."""
        return self._line, bytes(self._kept)

    def _cut(self, piece: bytes) -> tuple[int, bytes]:
        line = self._line
        self._line += _lines(piece)
        return line, piece


def _lines(data: bytes | bytearray) -> int:
    return data.count(b"\n") or data.count(b"\r")


def _events_of(piece: bytes) -> list[tuple[str, str]] | None:
    """The events in a piece; None if they cannot be read."""
    reader = SSE.reader()
    try:
        return [*reader.feed(piece), *reader.close()]
    except UpstreamError:
        return None


def _is_cut(rest: bytes) -> bool:
    """Whether the last event is cut off inside a line. Servers may forget the line end behind it, or the empty line."""
    if not rest.strip() or rest.endswith((b"\n", b"\r")):
        return False
    events = _events_of(rest)
    return not events or not all(is_json(text) or text.strip() == DONE for _, text in events)


def pieces_of(source: bytes | str) -> Iterator[bytes]:
    """A recording in pieces, so that work on it needs no second copy."""
    for start in range(0, len(source), _PIECE):
        piece = source[start : start + _PIECE]
        yield piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")


def read_recording(pieces: Iterable[bytes], recording: Recording) -> Response | None:
    """The answer in a recording, whole or as far as it was told; None if none had begun. Raises as a recording does."""
    events: list[Event] = []
    last = LastCall()
    for piece in pieces:
        told = recording.feed(piece)
        for event in told:
            last.note(event)
        events += [event for event in told if type(event) is not PartDelta]
    told = recording.close()
    for event in told:
        last.note(event)
    events += told
    if not isinstance(events[-1] if events else None, MessageEnd):
        return None
    response = fold(events)
    response.raw, response.cut = None, last.cut
    return response


def read_whole(source: bytes | str, api: Api | None = None) -> Response:
    """The answer in a recording. Raises UpstreamError where it breaks off or holds an error, and InvalidRequest."""
    recording = Recording(api)
    response = read_recording(pieces_of(source), recording)
    if recording.error is not None:
        raise recording.error
    assert response is not None
    return response


def api_of(source: bytes | str) -> Api:
    """The API that a recording is of, from its beginning. Raises InvalidRequest where none claims it."""
    recording = Recording()
    for piece in pieces_of(source):
        recording.feed(piece)
        if recording.api is not None:
            return recording.api
    recording.close()
    assert recording.api is not None
    return recording.api


_CUT_OFF = "length"
"""What the end of an answer that broke off is called where it needs a name: no other says that it is not whole."""
_WITH_USAGE = Json(b'{"include_usage":true}')


def answered(api: Api, request: Request, response: Response) -> Request:
    """The request that an answer is written for. An answer of the API itself says all that its body says.

    The name of the model is what the answer says; a stop string that was met is one that the client asked for.
    """
    own = response.origin == api.origin
    settings = replace(request.settings) if not own else type(request.settings)()
    settings.model = response.model or settings.model
    if response.stop_sequence is not None:
        settings.stop = [*(settings.stop or ()), response.stop_sequence]
    return Request(settings=settings, origin=request.origin) if own else replace(request, settings=settings)


def stream_of(
    response: Response, request: Request, api: Api, error: TurnscriptError | None = None
) -> tuple[bytes, list[Loss]]:
    """A whole answer as a stream, and what that cannot say. One that broke off ends with its `error`."""
    head = head_of(response)
    renderer = _renderer(api, request, response, head)
    events = unfold(api.spelled(response))
    if error is None:
        data = renderer.send(events) + renderer.close()
    else:
        data = renderer.send(events[:-1]) + renderer.fail(error)
    return data, losses_in_source_words(response, renderer.losses)


def ended(exchange: Exchange) -> tuple[Exchange, list[Loss]]:
    """An answer of a recording that broke off, with an end that a body can say, and what that is not."""
    if exchange.response.finish_reason is not None:
        return exchange, []
    detail = f"the stream broke off; it is told as {_CUT_OFF}, so that nobody takes the answer for a whole one"
    answer = replace(exchange.response, finish_reason=_CUT_OFF)
    return replace(exchange, response=answer), [Loss("$.finish_reason", "invented", detail)]


def losses_in_source_words(response: Response, losses: list[Loss], number: int = 0) -> list[Loss]:
    """Losses of an answer, as the model calls its members, with the paths that these have where it came from. `number`:
    of the answer among those of a body."""
    api = origin_of(response.origin)
    return answer_in_source_words(response, api.words if api is not None else {}, losses, number)


class Retelling:
    """Writes a recording as a stream of an API, in pieces of any size. One that breaks off ends as the API's own error.

    `end`: what the recording says of its answer at the end, None until `close`, or where none had begun.
    """

    def __init__(self, recording: Recording, request: Request, api: Api) -> None:
        self.end: MessageEnd | None = None
        self._recording = recording
        self._request = request
        self._api = api
        self._renderer: StreamRenderer | None = None
        self._items: list[Item] = []  # of the answer, because they know where they stand in it
        self._places: dict[str, str] = {}  # of parts, as losses of those that came to nothing name them

    @property
    def losses(self) -> list[Loss]:
        """What the stream could not say so far."""
        if self._renderer is None:
            return []
        source = self._recording.api
        answer = Response(items=self._items, origin=source.origin if source is not None else None)
        answer.extra = {} if self.end is None else self.end.extra
        losses = [replace(loss, path=self._places.get(loss.path, loss.path)) for loss in self._renderer.losses]
        return losses_in_source_words(answer, losses)

    @property
    def issues(self) -> list[Issue]:
        """What was not as it should be in the recording."""
        return [] if self.end is None else self.end.issues

    def feed(self, data: bytes) -> bytes:
        """More of the recording."""
        events = self._recording.feed(data)
        self._note(events)
        return self._begun().send(events) if events else b""

    def close(self) -> bytes:
        """The recording is over."""
        events: list[Event] = self._recording.close()
        self._note(events)
        if events and isinstance(events[-1], MessageEnd):
            self.end = events[-1]
        renderer, error = self._begun(), self._recording.error
        if error is None:
            return renderer.send(events) + renderer.close()
        if self.end is not None:
            del events[-1]
        return (renderer.send(events) if events else b"") + renderer.fail(error)

    def fail(self, error: TurnscriptError) -> bytes:
        """Nothing more can be told, because of an error."""
        return self._begun().fail(error)

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if type(event) is PartEnd and event.part is not None:
                self._items.append(event.part)
            elif type(event) is PartStart and event.part.at:
                self._places[f"items[{event.index}]"] = event.part.at

    def _begun(self) -> StreamRenderer:
        if self._renderer is None:
            source, head = self._recording.api, self._recording.head
            known = Response(model=head.model, origin=source.origin if source is not None else None)
            self._renderer = _renderer(self._api, self._request, known, head)
        return self._renderer


def _renderer(api: Api, request: Request, response: Response, head: Head) -> StreamRenderer:
    """A writer of the stream of an answer, of which at least the model and the origin are known."""
    asked = answered(api, request, response)
    asked.settings.stream = True
    asked.settings.stream_options = asked.settings.stream_options or _WITH_USAGE
    usage = head.usage
    before = None if usage is None else Usage(usage.input, 0, usage.cached, usage.cache_written)
    return api.stream_renderer(asked, Reply(id=head.id, created=head.created, usage=before, any_stop=True))
