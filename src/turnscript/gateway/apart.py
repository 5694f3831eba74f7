"""Owns answers that are made apart from whoever asked for them: their tasks, what is kept of them, and their ends.

The client gets an id at once. It asks for the answer later, or follows its stream and comes back to it; its leaving
ends nothing. What the gateway was working on when it was killed is told to have failed when it starts again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from turnscript.apis.api import Api
from turnscript.core.conversation import Response
from turnscript.core.errors import Conflict, InvalidRequest, TurnscriptError
from turnscript.core.events import Event
from turnscript.gateway.database import StorageUnavailable
from turnscript.gateway.generation import Generation
from turnscript.gateway.keeping import Keeping
from turnscript.gateway.logs import say
from turnscript.gateway.preparing import Prepared
from turnscript.gateway.store import EventLog
from turnscript.gateway.visit import let_go

Tell = Callable[[list[Event]], Awaitable[None]]
Make = Callable[[Prepared, Tell], Awaitable[tuple[Generation, bytes]]]
"""Makes an answer, telling its events, and gives it as a body; what is to be kept is kept by then."""


class Making:
    """An answer that is being made. `body`: what its client was told first. `losses`: how many there were until then;
    None where nobody is told. `error`: why it was ended early; None if its client wished it. `ending`: nothing can end
    it early any more. `begun`: its task runs."""

    def __init__(self, task: asyncio.Task[None], body: bytes, losses: int | None) -> None:
        self.task = task
        self.body = body
        self.losses = losses
        self.error: TurnscriptError | None = None
        self.ending = False
        self.begun = False

    def begin(self) -> None:
        """Its task runs now. Raises CancelledError where it was ended before: cancelled then, it would not have begun,
        and nobody would have been told."""
        self.begun = True
        if self.ending:
            raise asyncio.CancelledError

    def end(self, error: TurnscriptError | None = None) -> None:
        """End it early. Once: a second time would break off what is kept and told of its end."""
        if not self.ending:
            self.ending, self.error = True, error
            if self.begun:
                self.task.cancel()


class Apart:
    """The answers that are being made."""

    def __init__(self, keeping: Keeping) -> None:
        self._keeping = keeping
        self._making: dict[tuple[str, str], Making] = {}

    def begun(self, owner: str, id_: str) -> bytes | None:
        """What the client of an answer was told first, while it is being made."""
        making = self._making.get((owner, id_))
        return making.body if making is not None else None

    def losses_of(self, owner: str, id_: str) -> int | None:
        """How many losses an answer has so far, while it is being made."""
        making = self._making.get((owner, id_))
        return making.losses if making is not None else None

    def check_over(self, owner: str, id_: str | None) -> None:
        """Raises Conflict for an answer that is being made: whoever goes on from it would go on without it."""
        if id_ is not None and (owner, id_) in self._making:
            raise Conflict(f"the response {id_!r} is still being made; go on from it once it is completed")

    async def cancel(self, owner: str, id_: str) -> None:
        """Stop working on an answer, if it is being made. Whatever its end is then, it is kept when this returns."""
        making = self._making.get((owner, id_))
        if making is not None:
            making.end()
            await asyncio.wait((making.task,))  # not by awaiting it: who is cancelled here would cancel it

    async def start(self, api: Api, prepared: Prepared, make: Make, over: Callable[[], None]) -> bytes:
        """Begin to make an answer; once that has begun, `over` is called at its end. Returns the body that says so.
        Raises InvalidRequest where it would be lost."""
        owner, id_, stored = prepared.caller.name, prepared.reply.id, api.serving.stored
        assert id_ is not None
        assert stored is not None
        if not prepared.keep:
            message = "an answer that is made in the background must be kept"
            raise InvalidRequest(message, path="$.background", expected="store: true")
        empty = api.render_response(Response(), prepared.request, reply=prepared.reply)
        body = stored.with_status(msgspec.json.encode(empty.value), "queued")
        await self._keeping.keep(api, prepared, body, finished=False)
        log = self._keeping.store.begin_events(owner, id_) if prepared.streams else None
        task = asyncio.get_running_loop().create_task(self._make(api, prepared, make, log, body))
        task.add_done_callback(lambda _: over())
        self._making[owner, id_] = Making(task, body, prepared.told.losses)
        return body

    async def _make(self, api: Api, prepared: Prepared, make: Make, log: EventLog | None, body: bytes) -> None:
        owner, id_, stored = prepared.caller.name, prepared.reply.id or "", api.serving.stored
        assert stored is not None
        making, renderer = self._making[owner, id_], api.stream_renderer(prepared.request, prepared.reply)
        error: TurnscriptError = TurnscriptError("the gateway has failed; its log says why")
        ending, last = stored.failed(body, error), b""

        async def tell(events: list[Event]) -> None:
            _log(log, renderer.send(events))

        try:
            _log(log, renderer.start() if log is not None else b"")
            making.begin()
            generation, ending = await make(prepared, tell)
            last = renderer.send(generation.last) + renderer.close()
        except TurnscriptError as failed:
            ending, error = stored.failed(body, failed), failed
        except asyncio.CancelledError:
            ended = making.error
            ending = stored.failed(body, ended) if ended is not None else stored.with_status(body, "cancelled")
            error = ended or Conflict("the answer was cancelled")
        finally:
            making.ending = True
            try:
                await self._keep(api, prepared, ending, log, last or renderer.fail(error))
            finally:
                self._making.pop((owner, id_), None)
                self._keeping.store.end_events(owner, id_)
                let_go(error)

    async def _keep(self, api: Api, prepared: Prepared, body: bytes, log: EventLog | None, last: bytes) -> None:
        """Keep how it ended, and only then tell it. Where it is not kept, whoever follows is told so, as those are
        who ask for it later."""
        stored = api.serving.stored
        assert stored is not None
        kept = log is not None and not log.overflowed
        try:
            events = [*log.events, *_events(last)] if log is not None and kept else None
            await self._keeping.keep(api, prepared, body, events=events)
        except StorageUnavailable as error:
            say(logging.ERROR, "answer not kept", id=prepared.reply.id, error=str(error))
            if log is not None:
                log.add(stored.left(error, log.next))
        else:
            _log(log, last)

    def cancel_all(self, error: TurnscriptError) -> None:
        """Stop working on all of them, because of an error that is none of theirs."""
        for making in list(self._making.values()):
            making.end(error)

    async def settle(self) -> None:
        """Wait until they have ended."""
        if self._making:
            await asyncio.wait([making.task for making in self._making.values()])


def _log(log: EventLog | None, data: bytes) -> None:
    """Keep events of a stream."""
    if log is not None:
        log.add(*_events(data))


def _events(data: bytes) -> list[bytes]:
    return [event + b"\n\n" for event in data.split(b"\n\n")[:-1]]
