"""Owns answering: from a request's bytes to the last byte of its answer, whole or streamed, and what ends it early.

A stream begins when the model does, or soon after it was asked: before that an error still has a status of its own, and
clients try again. What waits longer gets its first bytes and signs of life. A call that is to be made once more goes on
from where it began; the client has seen nothing of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from turnscript.apis.api import Api
from turnscript.core.conversation import Request, User
from turnscript.core.errors import Conflict, TurnscriptError, UpstreamError
from turnscript.core.events import Event
from turnscript.gateway.choices import Choices, Tell
from turnscript.gateway.generation import Generation
from turnscript.gateway.headers import for_clients, stream_headers
from turnscript.gateway.outlet import Outlet
from turnscript.gateway.pool import open_any
from turnscript.gateway.preparing import Prepared
from turnscript.gateway.service import Service
from turnscript.gateway.upstream import Answer
from turnscript.gateway.visit import GONE, LEFT, ClientGone, Visit

SOON = 0.05
"""Seconds after which a stream begins although the model has not."""
QUEUED = 5.0
"""The same while the request waits for its turn: it may yet be refused, and tried elsewhere."""
OWN_END = 0.1
"""Seconds that a server has to come to the end by itself, once the model has ended its turn."""


class AnswerRequests:
    """Answers the requests of one API."""

    def __init__(self, service: Service, api: Api) -> None:
        self._service = service
        self._api = api

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        visit = Visit(self._api, scope, receive, send)
        service = self._service
        service.visits.add(visit)
        try:
            await self._answer(visit)
        except TurnscriptError as error:
            visit.settle()
            await self._refuse(visit, error)
        except ClientGone:
            visit.ended_by = LEFT
        except asyncio.CancelledError:
            if not visit.ended_by:
                raise
            visit.take_back()
            if visit.reason is not None:
                await self._refuse(visit, visit.reason)
            else:
                await visit.gone()
        finally:
            visit.settle()
            visit.release()
            if visit.outlet is not None:
                await self._leave(visit, visit.outlet)
            service.visits.discard(visit)
            service.note_end(visit)
            service.aside.free(*visit.forget())

    async def _leave(self, visit: Visit, outlet: Outlet) -> None:
        """Never leave a stream without an end: where nothing else has ended it, something unforeseen has."""
        renderer = visit.renderer
        if renderer is not None and outlet.begun and not outlet.over and visit.ended_by not in GONE:
            await outlet.end(renderer.fail(TurnscriptError("the gateway has failed; its log says why")))
        self._service.heart.forget(outlet)

    async def _refuse(self, visit: Visit, error: TurnscriptError) -> None:
        visit.error = error
        if isinstance(error, UpstreamError) and visit.prepared is not None and visit.prepared.served.model.relays:
            visit.told.theirs = for_clients(error.headers)
        await visit.refuse(error)

    async def _prepared(self, visit: Visit, wish: Callable[[Request], None] | None = None) -> Prepared:
        service = self._service
        caller = visit.caller = service.admit(visit.headers)
        share = service.room.share(caller.tally)
        body = await visit.body(service.config.server, share)
        prepared = await service.prepare(visit, caller, body, wish=wish)
        visit.prepared, visit.told = prepared, prepared.told
        service.metrics.running.add(self._api.name, visit.model)
        return prepared

    async def _answer(self, visit: Visit) -> None:
        prepared = await self._prepared(visit)
        if prepared.detached:
            visit.unwatch()
            await self._apart(visit, prepared)
            return
        self._supersede(visit, prepared)
        if prepared.choices > 1:
            await self._several(visit, prepared)
        elif prepared.streams:
            await self._stream(visit, prepared)
        else:
            await visit.answer(await self._whole(visit, prepared))

    def _supersede(self, visit: Visit, prepared: Prepared) -> None:
        """An agent that sends the same request of the same session again no longer waits for the first one."""
        if not prepared.session.single:
            return
        mark = visit.mark = (prepared.caller.name, prepared.session.thread, prepared.body)
        for other in self._service.visits:
            if other is not visit and other.mark == mark:
                message = "the same request came again; this one is not answered any more"
                other.give_up(Conflict(message), "superseded")

    # Whole.

    async def _whole(self, visit: Visit, prepared: Prepared) -> bytes:
        generation = visit.generation = prepared.generation()
        await self._generate(visit, prepared, generation, _say_nothing)
        return await self._service.finish(visit, prepared, generation)

    async def _apart(self, visit: Visit, prepared: Prepared) -> None:
        """An answer that is made whether or not its client stays."""
        service, stored, share = self._service, self._api.serving.stored, visit.share
        assert stored is not None
        assert share is not None

        async def make(prepared: Prepared, tell: Tell) -> tuple[Generation, bytes]:
            # The visit is over before, and has let go of its model and of what was generated.
            prepared.served.users += 1
            generation = visit.generation = prepared.generation()
            try:
                await self._generate(visit, prepared, generation, tell)
                return generation, await service.finish(visit, prepared, generation)
            except asyncio.CancelledError:
                service.note_cancelled(visit, "shutdown" if service.draining else LEFT)
                raise
            finally:
                prepared.served.users -= 1
                service.note_answer(visit, prepared, generation)  # what was cancelled or has failed took tokens, too

        body = await service.apart.start(self._api, prepared, make, share.leave)
        visit.share = None
        if not prepared.streams:
            await visit.answer(body)
            return
        events = await service.keeping.follow(stored, prepared.caller.name, prepared.reply.id or "")
        outlet = visit.open(self._api.stream_renderer(prepared.request, prepared.reply))
        service.heart.watch(outlet, visit.stalled)
        visit.watch()
        await outlet.head(stream_headers(self._api.headers(request_id=visit.request_id), prepared.told.raw()))
        if events is not None:
            async for event in events:
                await outlet.write(event)
        await outlet.end(b"")

    # Streamed.

    async def _stream(self, visit: Visit, prepared: Prepared) -> None:
        renderer = self._api.stream_renderer(prepared.request, prepared.reply)
        outlet = visit.open(renderer)
        self._watch(visit, prepared, outlet)

        async def tell(events: list[Event]) -> None:
            if not outlet.begun:
                await visit.begin()
            await outlet.write(renderer.send(events))

        try:
            visit.begin_in(QUEUED)
            generation = visit.generation = prepared.generation()
            await self._generate(visit, prepared, generation, tell)
            await visit.begin()
            await self._service.finish(visit, prepared, generation)
            last = renderer.send(generation.last) + renderer.close()
            prepared.losses += generation.untold(renderer.losses)
            visit.settle()
            await outlet.end(last)
        finally:
            visit.begin_never()

    def _head(self, visit: Visit, prepared: Prepared) -> None:
        """What the head of a stream says. It may be sent later, when more is known to be lost."""
        visit.headers_out = stream_headers(self._api.headers(request_id=visit.request_id), prepared.told.raw())

    def _opened(self, visit: Visit, prepared: Prepared, answer: Answer) -> None:
        """A server has begun: what it says of its limits is said in the head, too."""
        if prepared.served.model.relays:
            prepared.told.theirs = for_clients(answer.headers)
            self._head(visit, prepared)

    def _watch(self, visit: Visit, prepared: Prepared, outlet: Outlet) -> None:
        self._head(visit, prepared)
        self._service.heart.watch(outlet, visit.stalled)

    # Several answers to one request.

    async def _several(self, visit: Visit, prepared: Prepared) -> None:
        choices = Choices(self._service, self._api, visit, prepared, self._run)
        visit.generation = choices.tally

        def let_in() -> None:
            visit.begin_in(_soon(prepared))

        if not prepared.streams:
            await choices.make(let_in)
            await visit.answer(choices.body())
            return
        outlet = choices.stream()
        self._watch(visit, prepared, outlet)
        try:
            visit.begin_in(QUEUED)
            await choices.make(let_in)
            await visit.begin()
            last = choices.last()
            visit.settle()
            await outlet.end(last)
        finally:
            visit.begin_never()

    # All.

    async def _generate(self, visit: Visit, prepared: Prepared, generation: Generation, tell: Tell) -> None:
        """Run a generation, in its turn. All but its last events are told."""
        async with prepared.served.turn(prepared.caller.gate, visit.waits):
            visit.begin_in(_soon(prepared))
            await self._run(visit, prepared, generation, tell)

    async def _run(self, visit: Visit, prepared: Prepared, generation: Generation, tell: Tell) -> None:
        """All that a model's servers write of an answer, pauses included. All but its last events are told."""

        def failed(error: UpstreamError, url: str) -> None:
            self._service.note_failure(visit.request_id, prepared.served.name, error, url)

        while True:
            try:
                url, stray = await _read(prepared, generation, tell, partial(self._opened, visit, prepared), failed)
                if stray:
                    self._service.note_stray(visit, prepared.served.name, stray, url)
            except UpstreamError as error:
                if prepared.unconstrained(error, generation.text):
                    self._service.metrics.grammars_refused.add(prepared.served.name)
                elif not prepared.shorten(error, generation.text):
                    raise
                self._head(visit, prepared)
                continue
            events: list[Event] = []
            if not generation.paused:
                events = generation.close()
                if not generation.repeats:
                    generation.last = events
                    return
            events += generation.resume()
            if events:
                await tell(events)


class CompactRequests(AnswerRequests):
    """Answers with what a conversation goes on from: what its users said, and a summary of all of it."""

    async def _answer(self, visit: Visit) -> None:
        compacting = self._api.serving.compacting
        assert compacting is not None
        prepared = await self._prepared(visit, compacting.wish)
        self._supersede(visit, prepared)
        generation = visit.generation = prepared.generation()
        await self._generate(visit, prepared, generation, _say_nothing)
        response, asked = generation.response, prepared.request.items
        summed = [item for item in response.items if compacting.proof(item) is not None]
        response.items = [*(item for item in asked if isinstance(item, User)), *summed]
        await visit.answer(compacting.body(await self._service.finish(visit, prepared, generation)))


def _soon(prepared: Prepared) -> float:
    """After how many seconds a stream begins whose turn it is. A server with a chat API may take longer to refuse: what
    it says of its limits has a place in the head alone, and clients try again by the status."""
    return QUEUED if prepared.served.model.relays else SOON


async def _read(
    prepared: Prepared,
    generation: Generation,
    tell: Tell,
    opened: Callable[[Answer], None],
    failed: Callable[[UpstreamError, str], None],
) -> tuple[str, str]:
    """What a model's server writes until it, or the answer, comes to an end or to a pause. Returns the server, and the
    beginning of a line that it has sent and that is no part of a stream of events."""
    ask = prepared.ask_from(generation.text)
    async with open_any(prepared.served.pool, ask, prepared.session.thread, failed) as (answer, lease):
        opened(answer)
        async for pieces in answer:
            events = generation.feed(pieces)
            if events:
                await tell(events)
            if generation.ended or generation.paused or generation.overrun(ask.max_tokens):
                break
        if lease.slot is not None and generation.ends_at(ask.stops):
            await _let_end(answer, generation)
    return lease.upstream.url, answer.stray


async def _let_end(answer: Answer, generation: Generation) -> None:
    """Wait a moment for the server's own end, where it keeps what it has read: it stops at the same strings.

    Broken off, it may have read a token more than the next prompt holds, and a recurrent model cannot go back. Behind a
    single call, where the rest is not wanted, no end is near: the longer the wait, the more it reads of that rest.
    """
    try:
        async with asyncio.timeout(OWN_END):
            async for pieces in answer:
                generation.note(pieces)
    except (TimeoutError, UpstreamError):
        return


async def _say_nothing(events: list[Event]) -> None:
    """A whole answer is told when it is complete."""
