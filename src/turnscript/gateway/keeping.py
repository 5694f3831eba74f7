"""Owns what clients lean on the gateway to keep: answers by id, the conversations behind them, the items in them.

Some answers are made apart from whoever asked for them. The client gets an id at once. It asks for the answer later, or
follows its stream and comes back to it; its leaving ends nothing. What the gateway was working on when it was killed is
told to have failed when it starts again.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

import msgspec

from turnscript.apis.api import Api
from turnscript.apis.serving import Stored
from turnscript.convert.registry import apis, get_api
from turnscript.core.conversation import Request, Response, Thinking
from turnscript.core.errors import Conflict, InvalidRequest, NotFound, TooLarge, TurnscriptError
from turnscript.core.events import Event
from turnscript.gateway.aside import Aside, here
from turnscript.gateway.database import StorageUnavailable
from turnscript.gateway.generation import Generation
from turnscript.gateway.limits import Share
from turnscript.gateway.logs import say
from turnscript.gateway.preparing import Leaned, Prepared
from turnscript.gateway.store import Answer, Behind, EventLog, Kept, Store, StoredItem
from turnscript.gateway.visit import let_go


class Keeping:
    """The answers that are kept, as the APIs that have such see them. What takes long is done `aside`."""

    def __init__(self, store: Store, aside: Aside) -> None:
        self.store = store
        self._aside = aside

    async def complete(self, stored: Stored, request: Request, owner: str, share: Share, most: int) -> Leaned:
        """Put what a request leans on into it: named items, and the conversation before it. Its share is that of its
        body, and grows. Raises NotFound for what is not there, or is somebody else's, Overloaded where there is no room
        for it now, and TooLarge where it has more than `most` bytes with all that: an item is named in a few bytes, and
        as often as one likes."""
        size = share.size
        run = self._aside.run(size)
        look = partial(stored.references, request)
        references = look() if run is here else await run(look)
        named: dict[str, bytes] = {}
        if references:
            found = await self.store.items(owner, list(references.values()), most)
            named = {id_: item.body for id_, item in found.items()}
            size += sum([len(named.get(id_, b"")) for id_ in references.values()])
            _take(share, size, most)
            await self._aside.run(size)(partial(_resolve, stored, request, references, named))
        previous = stored.previous(request)
        if previous is not None:
            before = await self.store.chain(owner, previous, most)
            if before is None:
                raise NotFound("response", previous, "$.previous_response_id")
            said = [item.body for item in before]
            size += sum(map(len, said))
            _take(share, size, most)
            await self._aside.run(size)(partial(stored.join, request, said))
        return Leaned(named, previous, size)

    async def mend(self) -> None:
        """Answers that nobody is working on any more, because the gateway was killed, are told to have failed."""
        error = TurnscriptError("the gateway was stopped while it worked on this answer; send the request again")
        servings = [get_api(name).serving for name in apis()]
        try:
            unfinished = await self.store.unfinished()
        except StorageUnavailable as problem:  # all who ask are told so
            say(logging.ERROR, "answers not looked through", error=str(problem))
            return
        for owner, id_ in unfinished:
            own = (serving.stored for serving in servings if id_.startswith(serving.id_prefix))
            stored = next((one for one in own if one is not None), None)
            try:
                if stored is not None:
                    await self._fail(stored, owner, id_, error)
            except StorageUnavailable as problem:  # whoever asks for it is told that it was not kept
                say(logging.ERROR, "answer not kept", id=id_, error=str(problem))

    async def _fail(self, stored: Stored, owner: str, id_: str, error: TurnscriptError) -> None:
        kept = await self.store.get(owner, id_)
        asked = await self.store.input_items(owner, id_, limit=sys.maxsize, order="asc")
        if kept is not None and asked is not None:
            answer = Answer(
                id=id_,
                request=kept.request,
                body=stored.failed(kept.body, error),
                items_in=asked.items,
                previous=kept.previous,
                losses=await self.store.losses_of(owner, id_),
            )
            await self.store.put(owner, answer)

    async def keep(
        self,
        api: Api,
        prepared: Prepared,
        body: bytes,
        *,
        finished: bool = True,
        events: Sequence[bytes] | None = None,
        later: int = 0,
    ) -> None:
        """Keep an answer. It is on disk when this returns, unless nothing is kept there. `later`: how many
        losses there are that `prepared` does not have yet."""
        stored, id_ = api.serving.stored, prepared.reply.id
        if stored is None or id_ is None or not prepared.keep:
            return
        leaned = prepared.leaned
        run = self._aside.run(leaned.size)
        answer = Answer(
            id=id_,
            request=prepared.body,
            body=body,
            items_in=await run(partial(_items_in, stored, prepared.body, id_, leaned)),
            items_out=[StoredItem(*one) for one in stored.outputs(body)] if finished else [],
            previous=leaned.previous,
            finished=finished,
            events=events,
            losses=None if prepared.quiet else len(prepared.losses) + later,
        )
        await self.store.put(prepared.caller.name, answer)

    async def fetch(self, owner: str, id_: str) -> Kept:
        """An answer. Raises NotFound."""
        kept = await self.store.get(owner, id_)
        if kept is None:
            raise NotFound("response", id_)
        return kept

    async def follow(self, stored: Stored, owner: str, id_: str, after: int = -1) -> AsyncIterator[bytes] | None:
        """The events of a stream behind the one with the number `after`, as they come. None where none are kept."""
        events = await self.store.follow(owner, id_, after)
        return None if events is None else _followed(stored, events)


def _take(share: Share, size: int, most: int) -> None:
    if size > most:
        raise TooLarge(most, what="the request, with the answers and items that it names,")
    share.take(size)


def _resolve(stored: Stored, request: Request, references: dict[int, str], named: dict[str, bytes]) -> None:
    """Put named items in the place of their names, from the last on: one item may become several."""
    for index, id_ in sorted(references.items(), reverse=True):
        if id_ in named:
            stored.resolve(request, index, named[id_])
        elif not isinstance(request.items[index], Thinking):
            raise NotFound("item", id_, request.items[index].at)


def _items_in(stored: Stored, body: bytes, id_: str, leaned: Leaned) -> list[StoredItem]:
    return [StoredItem(*one) for one in stored.inputs(body, id_, leaned.named)]


async def _followed(stored: Stored, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The events; who reads them too slowly is told so, and never left without an end."""
    try:
        async for event in events:
            yield event
    except Behind as error:
        yield stored.left(error, error.number)


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
