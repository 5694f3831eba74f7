"""Owns the states of conversations that outlive their slot: the model server writes them to files and reads them back.

A recurrent model cannot go back, so a conversation whose slot went to another one is read from its beginning again when
it returns. llama.cpp can write what a slot holds to a file and put it into any slot later. It is asked to do so while a
slot is idle, for the conversation that would have to give its slot up next: so a newcomer finds it done, and waits only
where it is just being done. It cannot be asked to delete a file, so there are as many names as files may be kept, which
are numbers and nothing of a client, and the oldest one is written over.

Nothing here fails a request: what could not be written or read is read anew by the model. A server puts a state only
before a prompt that begins with the very tokens that it was made of.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from functools import partial
from typing import Protocol

from msgspec import Struct

from turnscript.backends.backend import SlotAction
from turnscript.core.errors import UpstreamError
from turnscript.gateway.logs import say
from turnscript.gateway.upstream import LONGEST_ERROR, Upstream, whole

PATIENCE = 5.0
"""Seconds that a state may take to be written or put back. Then the request goes on without it."""
WORTH = 1000
"""Characters of a prompt from which on its state is worth a file."""
CANNOT = 501
"""The status of a server that was not told where to put files."""


class Holder(Protocol):
    """A slot, as far as it matters here: whose conversation is in it, and when it was used last."""

    number: int
    owner: str | None
    running: int
    used: int


class _File(Struct):
    """A file with the state of a conversation. `slot` and `used`: where and when that was in a slot."""

    number: int
    slot: int
    used: int


class SlotFiles:
    """The files of one server, at most `most`. `done`: how often each was done."""

    def __init__(self, upstream: Upstream, most: int) -> None:
        self.done = {"saved": 0, "restored": 0, "failed": 0}
        self._upstream = upstream
        self._files: OrderedDict[str, _File] = OrderedDict()
        self._free = list(range(most - 1, -1, -1))
        self._sizes: dict[int, int] = {}
        self._writing: dict[int, asyncio.Task[bool]] = {}
        self._unable = False
        self._told = False
        self._era = 0

    def forget(self) -> None:
        """The server may be another one, with another model: no state of before is of use to it."""
        self._era += 1
        for session in list(self._files):
            self._free.append(self._files.pop(session).number)
        self._unable = self._told = False

    async def enter(self, slot: Holder, before: str | None, session: str | None, size: int) -> None:
        """A request with a prompt of so many characters is about to be sent to a slot that held the conversation
        `before`: have its own there, if it is known."""
        self._sizes[slot.number] = size
        if before == session:
            return
        writing = self._writing.get(slot.number)
        if writing is not None:  # which is given up after PATIENCE
            await asyncio.wait((writing,))
        file = self._files.get(session) if session is not None else None
        if file is None or session is None or self._unable:
            return
        self._files.move_to_end(session)
        if await self._do("restore", slot.number, file.number):
            self.done["restored"] += 1
        elif self._files.get(session) is file:  # whatever is in there, it is nothing that the server takes
            self._free.append(self._files.pop(session).number)

    def left(self, following: Holder | None) -> None:
        """A request is over. `following`: the slot that the next new conversation gets, if any is idle."""
        slot = following
        if slot is None or slot.owner is None or self._unable or slot.number in self._writing:
            return
        file = self._files.get(slot.owner)
        if file is not None and (file.slot, file.used) == (slot.number, slot.used):
            return
        number = self._number(slot.owner) if self._sizes.get(slot.number, 0) >= WORTH else None
        if number is not None:
            task = asyncio.get_running_loop().create_task(self._do("save", slot.number, number))
            self._writing[slot.number] = task
            task.add_done_callback(partial(self._written, slot.owner, _File(number, slot.number, slot.used), self._era))

    async def close(self) -> None:
        """Let go of what is being written; nothing more is."""
        self._unable = True
        for task in list(self._writing.values()):
            task.cancel()
        await asyncio.gather(*self._writing.values(), return_exceptions=True)

    def _written(self, session: str, file: _File, era: int, task: asyncio.Task[bool]) -> None:
        """The server is done with a file, or nobody waits for it any more."""
        del self._writing[file.slot]
        if task.cancelled() or task.exception() is not None or not task.result():
            self._free.append(file.number)
            return
        self.done["saved"] += 1
        known = self._files.get(session)  # it may have gone on in another slot, and have been saved from there
        if era != self._era or (known is not None and known.used > file.used):
            self._free.append(file.number)
            return
        if known is not None:
            self._free.append(self._files.pop(session).number)
        self._files[session] = file

    def _number(self, session: str) -> int | None:
        """The file of a conversation, a new one, or that of the conversation which was here longest ago; None where all
        are being written. Until then it is nobody's."""
        if session in self._files:
            return self._files.pop(session).number
        if self._free:
            return self._free.pop()
        return self._files.popitem(last=False)[1].number if self._files else None

    async def _do(self, action: SlotAction, slot: int, number: int) -> bool:
        """Have the server do it. Returns whether it has."""
        call = self._upstream.backend.slot_call(action, slot, f"turnscript-{number}")
        try:
            async with asyncio.timeout(PATIENCE):
                reply = await self._upstream.transport.send(call)
                try:
                    body = await whole(reply, LONGEST_ERROR)
                finally:
                    reply.close()
        except UpstreamError as error:
            return self._failed(action, str(error))
        except TimeoutError:
            return self._failed(action, f"not done after {PATIENCE:g} s")
        if reply.status < 300:
            return True
        self._unable = reply.status == CANNOT
        refused = self._upstream.backend.read_error(reply.status, self._upstream.mask.body(body))
        return self._failed(action, str(refused))

    def _failed(self, action: str, why: str) -> bool:
        self.done["failed"] += 1
        if not self._told:
            self._told = True
            say(logging.WARNING, "slot not kept", server=self._upstream.url, action=action, error=why)
        return False
