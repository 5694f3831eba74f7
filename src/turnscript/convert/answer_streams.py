"""Owns telling an answer again as the stream of an API: one that is known whole, or a recording while it is read.

Who writes an answer anew is no server: the answer keeps its id, its time and its model, and its token counts are told
although nobody may have asked for them.
"""

from __future__ import annotations

from msgspec.structs import replace

from turnscript.apis.api import Api, Head, Reply, StreamRenderer
from turnscript.apis.shared.answers import head_of
from turnscript.convert.recording import Recording
from turnscript.convert.registry import origin_of
from turnscript.core.conversation import Issue, Item, Request, Response, Usage
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import Event, MessageEnd, PartEnd, PartStart, unfold
from turnscript.core.exchange import Exchange
from turnscript.core.json_text import Json
from turnscript.core.losses import Loss
from turnscript.core.source_paths import answer_in_source_words

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
    head = head_of(response.id, response.model, response.extra, response.usage)
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
