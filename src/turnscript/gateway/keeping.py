"""Owns what clients lean on the gateway to keep: answers by id, the conversations behind them, the items in them."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial

from turnscript.apis.api import Api
from turnscript.apis.serving import Stored
from turnscript.convert.registry import apis, get_api
from turnscript.core.conversation import Request, Thinking
from turnscript.core.errors import NotFound, TooLarge, TurnscriptError
from turnscript.gateway.aside import Aside, here
from turnscript.gateway.database import StorageUnavailable
from turnscript.gateway.logs import say
from turnscript.gateway.preparing import Leaned, Prepared
from turnscript.gateway.room import Share
from turnscript.gateway.store import Answer, Behind, Kept, Store, StoredItem


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
