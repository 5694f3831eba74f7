"""Owns the room for requests: how many bytes of them the server has at once, and how many of those are one key's.

A request takes its share as its body comes, whatever its head has announced: who only says much keeps nobody out. It
takes more for the answers that it names and for what its seals hold. All of it is given back when its answer is over,
however it ends. Kept answers that are fetched have their share until they are taken.

Nobody waits for room: two requests that are half read would wait for each other. Who does not fit is told to come
again, and what that one had taken is free for the others, so that one of them always comes through.
"""

from __future__ import annotations

from collections.abc import Callable

from turnscript.core.errors import Overloaded
from turnscript.gateway.config import Server

AGAIN = 5.0
"""Seconds after which who did not fit may try again. How long the others take is anybody's guess."""


class Tally:
    """The bytes of all requests of one key."""

    __slots__ = ("name", "size")

    def __init__(self, name: str) -> None:
        self.name = name
        self.size = 0


class Room:
    """The bytes of all requests. `refused` is told of each that does not fit."""

    def __init__(self, server: Server, refused: Callable[[], None]) -> None:
        self.taken = 0
        self._refused = refused
        self.change(server)

    def change(self, server: Server) -> None:
        """Other limits from now on. What is here may stay."""
        self.most = max(server.max_body_total, server.max_body)

    def share(self, tally: Tally | None) -> Share:
        """What a request takes of it: nothing yet. `tally`: that of its key, where there are several."""
        return Share(self, tally)

    def check(self, share: Share, more: int, tally: Tally | None) -> None:
        """Raises Overloaded where a share cannot have so much more. Who is alone can.

        What a key has here is never more than what is left for the others then, so that it cannot keep them out; only
        a single request of it may take all that is left.
        """
        left = self.most - self.taken - more
        if left < 0 and self.taken > share.size:
            self._refused()
            message = "the requests that are being answered take up all the room for requests; try again later"
            raise Overloaded(message, retry_after=AGAIN)
        if tally is not None and tally.size > share.size and tally.size + more > left:
            self._refused()
            message = f"the requests of the key {tally.name!r} take up as much room as is left for all others"
            raise Overloaded(f"{message}; try again later", retry_after=AGAIN)


class Share:
    """What one request takes. `size`: its bytes so far."""

    __slots__ = ("_room", "_tally", "size")

    def __init__(self, room: Room, tally: Tally | None) -> None:
        self._room = room
        self._tally = tally
        self.size = 0

    def check(self, size: int) -> None:
        """Raises Overloaded where there is no room now for so many bytes in all."""
        if size > self.size:
            self._room.check(self, size - self.size, self._tally)

    def take(self, size: int) -> None:
        """Have so many bytes in all, if those are more than before. Raises Overloaded where there is no room."""
        more = size - self.size
        if more > 0:
            self._room.check(self, more, self._tally)
            self._add(more)

    def leave(self) -> None:
        """Give it all back."""
        self._add(-self.size)

    def _add(self, more: int) -> None:
        self.size += more
        self._room.taken += more
        if self._tally is not None:
            self._tally.size += more
