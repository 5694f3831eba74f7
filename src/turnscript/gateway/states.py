"""Owns the states that a model may begin from: which one a request or its model names, and its id at each server.

ai00_server has several at a time, each with an id and a name. What it does not know it takes for its default state, and
says nothing of that. So a name is looked up in what it lists, and so is an id, wherever there is such a list.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING

from turnscript.backends.backend import State
from turnscript.core.conversation import Request
from turnscript.core.errors import InvalidRequest, UnknownName, Unsupported, UpstreamError
from turnscript.core.json_text import plain

if TYPE_CHECKING:
    from turnscript.gateway.served import Served
    from turnscript.gateway.upstream import Upstream

MEMBER = "state"
"""What a request calls it, as ai00_server does."""
NONE = "00000000-0000-0000-0000-000000000000"
"""The id of no state: the server takes its default one, whatever the model's setting says."""
FRESH = 10.0
"""Seconds that a list is good for: a server that was started anew may have other ids for the same names."""
_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EXPECTED = "the id of a state, or its name"


class Listed:
    """The states of one server, asked for when somebody names one."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._states: Sequence[State] | None = None
        self._until = 0.0

    async def states(self) -> Sequence[State] | None:
        """All of them; None where it cannot tell."""
        if monotonic() >= self._until:
            self._states = await self._asked()
            self._until = monotonic() + FRESH
        return self._states

    async def id_of(self, said: str) -> str:
        """The id of the state that is meant. Raises UnknownName."""
        return said if said == NONE else find(said, await self.states())

    async def _asked(self) -> Sequence[State] | None:
        backend = self._upstream.backend
        for call in backend.states_calls():
            body = await self._upstream.told(call)
            states = backend.read_states(body) if body is not None else None
            if states is not None:
                return states
        return None


def find(said: str, states: Sequence[State] | None) -> str:
    """The id of the state that is meant, by its id or its name. Raises UnknownName.

    Where nobody knows which there are, an id is taken as it is.
    """
    if states is None:
        if _ID.fullmatch(said):
            return said
        raise UnknownName("state", said, ["its id, a UUID: this server does not list the names of its states"])
    named = [state.id for state in states if said == state.name or said.lower() == state.id.lower()]
    if len(named) == 1:
        return named[0]
    known = [shown(state) for state in states if not named or state.id in named]
    raise UnknownName("state", said, known)


def shown(state: State) -> str:
    """A state for people."""
    return f"{state.name} ({state.id})" if state.name else state.id


def said_in(request: Request) -> str | None:
    """The state that a request names. Raises InvalidRequest.

    A state itself, or a file on the server's disk, which ai00_server takes too, are nothing for clients to send.
    """
    value = request.extra.get(MEMBER)
    said = plain(value) if value is not None else None
    if said is None or (isinstance(said, str) and said.strip()):
        return said
    raise InvalidRequest(f"this is no state: expected {_EXPECTED}", path=f"$.{MEMBER}", expected=_EXPECTED)


def is_named(request: Request, served: Served) -> bool:
    """Whether anybody says which state an answer begins from; most say nothing of it."""
    return MEMBER in request.extra or served.model.state is not None


async def chosen(request: Request, served: Served) -> str | None:
    """The state that an answer begins from: the one that its request names, else its model's.

    Raises InvalidRequest for one that no server of the model has, UpstreamError if it is the model's own, Unsupported
    where its servers have none.
    """
    said = said_in(request)
    name = served.model.state if said is None else said
    if name is None:
        return None
    upstreams = [member.upstream for member in served.pool.members]
    if not upstreams[0].backend.begins:
        message = f"the model {served.name!r} runs on {upstreams[0].backend.title}, which has no states to begin from"
        raise Unsupported("a state", upstreams[0].backend.title, message, f"$.{MEMBER}")
    unknown: UnknownName | None = None
    for upstream in upstreams:
        try:
            await upstream.listed.id_of(name)
        except UnknownName as error:
            unknown = unknown or error
        else:
            return name
    if said is None:
        raise UpstreamError(f"the model {served.name!r} is to begin from a state that its server has not: {unknown}")
    raise InvalidRequest(str(unknown), path=f"$.{MEMBER}", expected=_EXPECTED, got=repr(said))
