"""Owns several answers to one request: generations of one prompt, and how their client is told them as one answer.

Theory of operation. The request is let in like any other, and its first answer begins. As many more run beside it as
the key, the model and its servers have room for then; the others come after these, each in its turn among the requests
that wait. Each looks again for room beside it. What fails for one fails for all, and a client that leaves ends all.

In a stream each answer has a writer of its own, and one of them sends at a time. All begin at once and in order,
because clients count choices as they come. The answer that ends last tells what all of them took, and ends the stream.
"""

from __future__ import annotations

import asyncio
from asyncio import TaskGroup
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from math import inf

from msgspec.structs import replace

from turnscript.apis.api import Api
from turnscript.apis.streams import StreamRenderer
from turnscript.core.conversation import Response, Usage
from turnscript.core.errors import TurnscriptError
from turnscript.core.events import Event, MessageEnd
from turnscript.core.framing import Framing
from turnscript.core.losses import Loss
from turnscript.gateway.generation import Generation
from turnscript.gateway.outlet import Outlet
from turnscript.gateway.preparing import Prepared
from turnscript.gateway.service import Service
from turnscript.gateway.visit import Visit

Tell = Callable[[list[Event]], Awaitable[None]]
Run = Callable[[Visit, Prepared, Generation, Tell], Awaitable[None]]
"""Runs a generation, and tells its events."""


class Tally:
    """Several answers as one where they are counted. Their prompt counts once, however often it was read."""

    def __init__(self, answers: Sequence[Generation]) -> None:
        self._answers = answers

    @property
    def first(self) -> float | None:
        """When the first text of any came."""
        return min((one.first for one in self._answers if one.first is not None), default=None)

    @property
    def usage(self) -> Usage:
        """What all of them took."""
        return _sum([one.usage for one in self._answers])

    @property
    def used(self) -> Usage:
        """The same; estimated where nobody has counted."""
        return _sum([one.used for one in self._answers])

    @property
    def counted(self) -> bool:
        """Whether a server has counted the prompt."""
        return self._answers[0].counted

    @property
    def text(self) -> str:
        """What a session goes on from, as far as that can be known: the first of them."""
        return self._answers[0].text

    @property
    def response(self) -> Response:
        """What is wrong with any of them, and why each ended."""
        each = [one.response for one in self._answers]
        reasons = [one.finish_reason for one in each if one.finish_reason is not None]
        issues = [
            replace(issue, detail=f"{_place(number)}: {issue.detail}")
            for number, one in enumerate(each)
            for issue in one.issues
        ]
        return Response(finish_reason=", ".join(reasons) or None, issues=issues)


class Choices:
    """All answers to a request: `make` them, then `body`, or `last` for a stream, is what its client is told.

    In a stream it stands for all their writers.
    """

    def __init__(self, service: Service, api: Api, visit: Visit, prepared: Prepared, run: Run) -> None:
        self._service = service
        self._api = api
        self._visit = visit
        self._prepared = prepared
        self._run = run
        self._parts = [prepared.choice(number) for number in range(prepared.choices)]
        self._answers = [part.generation() for part in self._parts]
        self._left = deque(range(prepared.choices))
        self._coming = 0  # answers that have a place promised, and are not in it yet
        self._open = prepared.choices
        self._writers: list[StreamRenderer] = []
        self._outlet: Outlet | None = None
        self._sending = asyncio.Lock()
        self._end: tuple[int, list[Event]] | None = None  # which of them ended last, and how
        self.tally = Tally(self._answers)

    # Making.

    async def make(self, let_in: Callable[[], None]) -> None:
        """All answers, to the end of each. `let_in`: called when the first has its place."""
        try:
            async with TaskGroup() as group:
                async with self._prepared.served.turn(self._prepared.caller.gate, self._visit.waits):
                    let_in()
                    await self._next(group)
                await self._others(group)
        except BaseExceptionGroup as failed:
            if self._visit.ended_by:  # in the same moment
                raise asyncio.CancelledError from None
            raise failed.exceptions[0] from None

    async def _others(self, group: TaskGroup) -> None:
        while self._left:
            async with self._prepared.caller.gate.again(), self._prepared.served.gate.again():
                await self._next(group)

    async def _beside(self, group: TaskGroup) -> None:
        async with self._prepared.caller.gate.again(), self._prepared.served.gate.again():
            self._coming -= 1
            await self._next(group)
        await self._others(group)

    async def _next(self, group: TaskGroup) -> None:
        """The next answer, if any is left, in a place that it has."""
        if not self._left:
            return
        number = self._left.popleft()
        for _ in range(self._room()):
            self._coming += 1
            group.create_task(self._beside(group))
        await self._one(number)

    def _room(self) -> int:
        """How many answers may begin now beside the one that is about to."""
        caller, served = self._prepared.caller, self._prepared.served
        capacity = served.pool.capacity
        free = inf if capacity is None else capacity - served.pool.running - 1
        return int(max(0, min(caller.gate.room, served.gate.room, free, len(self._left)) - self._coming))

    async def _one(self, number: int) -> None:
        part, answer = self._parts[number], self._answers[number]

        async def tell(events: list[Event]) -> None:
            await self._tell(number, events)

        await self._run(self._visit, part, answer, tell)
        events = answer.last
        self._service.conclude(part, answer)
        self._open -= 1
        end = events[-1]
        assert isinstance(end, MessageEnd)
        if self._open:
            end.usage = None
            await self._tell(number, events)
        else:
            end.usage = self.tally.usage
            self._end = number, events

    # Telling.

    def body(self) -> bytes:
        """All of them as the body of one answer."""
        together = self._api.serving.together
        assert together is not None
        self._answers[0].response.usage = self.tally.usage
        bodies = []
        for number, (part, answer) in enumerate(zip(self._parts, self._answers, strict=True)):
            rendered = self._api.render_response(answer.response, part.request, reply=part.reply)
            self._lose(number, [*answer.lost(), *answer.untold(rendered.losses)])
            bodies.append(rendered.data)
        self._find()
        self._prepared.note_losses()
        return together(bodies)

    def last(self) -> bytes:
        """The end of the stream, which has begun."""
        assert self._end is not None
        ending, events = self._end
        data = self._writers[ending].send(events) + self._writers[ending].close()
        for number, (writer, answer) in enumerate(zip(self._writers, self._answers, strict=True)):
            self._lose(number, [*answer.lost(), *answer.untold(writer.losses)])
        self._find()
        return data

    def stream(self) -> Outlet:
        """Tell them as a stream."""
        self._writers = [self._api.stream_renderer(part.request, part.reply) for part in self._parts]
        self._outlet = self._visit.open(self)
        return self._outlet

    async def _tell(self, number: int, events: list[Event]) -> None:
        """Tell events of one of them, if this is a stream."""
        outlet = self._outlet
        if outlet is None:
            return
        async with self._sending:
            if not outlet.begun:
                await self._visit.begin()
            await outlet.write(self._writers[number].send(events))

    def start(self) -> bytes:
        """The beginning of each."""
        return b"".join([writer.start() for writer in self._writers])

    @property
    def framing(self) -> Framing:
        """Return how the frames of all its writers stand on the wire."""
        return self._writers[0].framing

    def idle(self) -> bytes:
        """A sign of life of one that has not ended."""
        return next((sign for writer in self._writers if (sign := writer.idle())), b"")

    def fail(self, error: TurnscriptError) -> bytes:
        """The error, once: it ends all of them."""
        told = [writer.fail(error) for writer in self._writers]
        return next(filter(None, told), b"")

    # What is said of them.

    def _lose(self, number: int, losses: Sequence[Loss]) -> None:
        self._prepared.losses += [Loss(_within(number, loss.path), loss.kind, loss.detail) for loss in losses]

    def _find(self) -> None:
        self._prepared.findings = [
            replace(finding, path=_within(number, finding.path))
            for number, part in enumerate(self._parts)
            for finding in part.findings
        ]


def _place(number: int) -> str:
    return f"choices[{number}]"


def _within(number: int, path: str) -> str:
    """A path in one of the answers as a path in all of them."""
    return f"{_place(number)}.{path.removeprefix('$').removeprefix('.')}".removesuffix(".")


def _sum(each: Sequence[Usage]) -> Usage:
    output, reasoning = (sum([getattr(one, name) for one in each]) for name in ("output", "reasoning"))
    return replace(each[0], output=output, reasoning=reasoning)
