"""Owns asking a model server over HTTP: one request, its answer as pieces, and every way in which that fails.

Theory of operation. A `Transport` sends one call and gives its `Reply`, whose bytes are read only when the next pieces
are asked for: so a slow reader pauses the server, and nothing grows in between. `Answer` reads them through the
backend's reader. All that came in one read is handed over in one list. Leaving an answer before its end closes the
connection at once, and the server stops generating.

A clock watches each answer. It does not run again for each piece: when it rings, it looks how long the answer has
been waiting, and only for the server; the time that the reader of the pieces takes is nobody's fault.

Secrets are hidden in what a server says: some repeat the key that they refuse, and clients read that.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import Any, Protocol, Self

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Backend, Completion, Facts, HttpCall, Piece
from turnscript.core.errors import UpstreamError, UpstreamTimeout
from turnscript.gateway.kinds import SHOWN
from turnscript.gateway.refusals import redirected, seconds_to_wait
from turnscript.gateway.states import Listed
from turnscript.gateway.transport import (
    UNNAMED,
    HttpTransport,
    Reply,
    Transport,
    at,
    base_of,
    named,
    secrets_of,
    shown,
)

_LONG = 8
_ENDS = "\"'."  # what stands behind words that are cut


class Mask:
    """Hides secrets wherever they stand, a short one only where it stands alone. A short word is no secret: servers
    that want no key are given `none` or `EMPTY`. What an error shows of a server's words is cut somewhere, perhaps in
    the middle of a secret: its beginning is hidden at the end of an error, too."""

    def __init__(self, secrets: Iterable[str]) -> None:
        ranked = sorted({one for one in secrets if one and not _is_word(one)}, key=len, reverse=True)
        pattern = "|".join(map(_pattern, ranked))
        self._text = re.compile(pattern) if ranked else None
        self._bytes = re.compile(pattern.encode()) if ranked else None
        self._cut = [one for one in ranked if len(one) > _LONG]

    def body(self, data: bytes) -> bytes:
        """What a server said, without them."""
        return data if self._bytes is None else self._bytes.sub(SHOWN.encode(), data)

    def error(self, error: UpstreamError) -> UpstreamError:
        """The same error, which does not show them any more."""
        if self._text is not None:
            error.message = self._hidden(self._text, error.message)
            error.body = self._hidden(self._text, error.body)
            error.args = tuple(self._hidden(self._text, one) if isinstance(one, str) else one for one in error.args)
        return error

    def _hidden(self, pattern: re.Pattern[str], text: str) -> str:
        text = pattern.sub(SHOWN, text)
        said = text.rstrip(_ENDS)
        for secret in self._cut:
            for length in range(len(secret) - 1, _LONG - 1, -1):
                if said.endswith(secret[:length]):
                    return said[:-length] + SHOWN + text[len(said) :]
        return text


def _is_word(secret: str) -> bool:
    return len(secret) < _LONG and secret.isalpha()


def _pattern(secret: str) -> str:
    found = re.escape(secret)
    return found if len(secret) >= _LONG else rf"(?<![A-Za-z0-9]){found}(?![A-Za-z0-9])"


class Waits(Protocol):
    """What can be due."""

    def ring(self) -> None:
        """It is due. Whoever goes on waiting sets the clock again."""
        ...


class Alarms:
    """Tells those that wait in an event loop when they are due.

    Nearly nobody is late, so setting the clock and leaving it must cost little: the timer is set for the first of all,
    stays as it is when that one leaves, and looks for the next one when it rings.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._due: dict[Waits, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next = inf

    def set(self, one: Waits, due: float) -> None:
        """Ring at this time, in place of an earlier or a later one."""
        self._due[one] = due
        if due < self._next:
            self._arm(due)

    def drop(self, one: Waits) -> None:
        """It does not wait any more."""
        self._due.pop(one, None)

    def _arm(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next = due
        self._timer = self.loop.call_at(due, self._ring)

    def _ring(self) -> None:
        self._timer, self._next = None, inf
        now = self.loop.time()
        late = [one for one, due in self._due.items() if due <= now]
        for one in late:
            del self._due[one]
        for one in late:
            one.ring()
        first = min(self._due.values(), default=inf)
        if first < self._next:
            self._arm(first)


LONGEST_ERROR = 64 * 1024
LONGEST_BODY = 16 * 1024 * 1024
TAIL = 5.0
"""Seconds to wait for what may follow a finish reason: token counts, `[DONE]`, the end."""
_AFTER = 0.1  # seconds to wait for the end of a body whose answer is over
_READS = 4  # and how often to look for it
_SHORT = 10.0  # seconds for a small question
_REFUSED = 400
_NO_KEY = 401
_LOADING = 503


class Timeouts(Struct, frozen=True, kw_only=True):
    """How many seconds may pass until a connection stands, until the answer begins (the time in the server's queue and
    for reading the prompt), between two pieces, and for all. An answer in one piece has only the first and the last."""

    connect: float = 10.0
    first_byte: float = 600.0
    between: float = 120.0
    total: float = 3600.0


class Upstream:
    """One model server: its URL, its wire, its key, and what it said of itself. `told`: whether errors name the URL."""

    def __init__(  # noqa: PLR0913  (each is one thing that a server may be told or asked with)
        self,
        url: str,
        backend: Backend,
        key: str | None = None,
        timeouts: Timeouts | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        told: bool = True,
    ) -> None:
        self.backend = backend
        self.timeouts = timeouts or Timeouts()
        self.url = shown(url)
        self.name = named(url, told=told)
        self.secrets = secrets_of(url, key, headers)
        self.mask = Mask(self.secrets)
        sends = dict(backend.headers) | ({backend.key_header: key} if key and backend.key_header else {})
        theirs = {name.lower() for name in headers or ()}
        sends = {name: value for name, value in sends.items() if name not in theirs} | dict(headers or {})
        bearer = None if backend.key_header else key
        self.transport = transport or HttpTransport(
            url, base_of(url, backend), bearer, self.timeouts.connect, sends, told=told
        )
        self.wants_key = False
        """Whether it has refused the last small question for want of a key, or of another one."""
        self.heard = 0
        """How often a part of an answer came: it lives."""
        self.mute = True
        """Whether it has not answered any small question so far, in whatever words."""
        self.listed = Listed(self)
        """The states that it has, from which an answer may begin."""
        self._facts: Facts | None = None
        self._silent: list[bool] = []
        self._alarms: Alarms | None = None

    @property
    def alarms(self) -> Alarms:
        """The clock of the event loop that it is used in, which Python finds by a call of the operating system."""
        alarms = self._alarms
        if alarms is None or alarms.loop.is_closed():
            alarms = self._alarms = Alarms(asyncio.get_running_loop())
        return alarms

    def open(self, ask: Completion) -> Answer:
        """Ask for a completion: `async with upstream.open(ask) as answer: async for pieces in answer: ...`"""
        return Answer(self, ask)

    async def facts(self) -> Facts:
        """What the server says of itself; asked once it answers. Nothing if it cannot be asked now."""
        if self._facts is None:
            bodies = await self._bodies()
            facts = self._read(bodies)
            if bodies and bodies[0] is None:
                return facts
            self._facts, self._silent = facts, _silent(bodies)
        return self._facts

    @property
    def known(self) -> Facts:
        """What it has said of itself so far."""
        return self._facts or Facts()

    def forget(self) -> None:
        """Ask for the facts again: the server may be another one now."""
        self._facts, self.listed = None, Listed(self)

    async def renew(self) -> bool:
        """Ask for the facts again. Returns whether they are others now; where less is answered than before, they are
        not, because a server that is busy is no other one."""
        known = self._facts
        if known is None:
            return False
        bodies = await self._bodies()
        told = self._read(bodies)
        if _silent(bodies) != self._silent or told == known:
            return False
        self._facts = told
        return True

    async def marker(self) -> str:
        """What stands for a picture in a prompt, asked for anew: llama.cpp makes up another one each time it starts."""
        first, *others = self.backend.facts_calls()
        body = await self.told(first)
        return self.known.marker if body is None else self._read([body, *(None for _ in others)]).marker

    async def _bodies(self) -> list[bytes | None]:
        """The answers to the questions for the facts. All but the first are for a tokenizer, if there is one."""
        first, *others = self.backend.facts_calls() or (None,)
        bodies = [await self.told(first)] if first is not None else []
        told = self._read([*bodies, *(None for _ in others)])
        asks = told != Facts() and self.backend.counts(told)
        return bodies + [await self.told(call) if asks else None for call in others]

    def _read(self, bodies: Sequence[bytes | None]) -> Facts:
        return self.backend.read_facts([body or b"" for body in bodies]) if any(bodies) else Facts()

    async def tokens(self, text: str, *, plain: bool = False) -> list[int] | None:
        """The ids of a text's tokens, as a prompt or, `plain`, as content; None if the server cannot tell."""
        call = self.backend.tokens_call(text, plain=plain) if self.counts else None
        body = await self.told(call) if call is not None else None
        return self.backend.read_tokens(body) if body is not None else None

    @property
    def counts(self) -> bool:
        """Whether it has a tokenizer to ask. A prompt is nothing to send where nobody answered a question without
        one."""
        return self.backend.counts(self.known) and not any(self._silent[1:])

    @property
    def prepends(self) -> bool:
        """Whether tokens can be put before a prompt in text: by the server, or with the tokens that it tells."""
        return self.backend.prepends or (self.counts and self.backend.bare_tokens_call("") is not None)

    async def in_ids(self, ask: Completion) -> Completion:
        """The same request with a prompt of ids, which begins with the tokens that stand before it. Raises
        UpstreamError where the server does not tell those of the text."""
        assert isinstance(ask.prompt, str)
        call = self.backend.bare_tokens_call(ask.prompt) if self.counts else None
        body = await self.told(call) if call is not None else None
        if body is None:
            message = f"{at(self.name)} does not tell the tokens of a prompt, before which others are to stand"
            raise UpstreamError(message, upstream=503, retryable=True)
        return replace(ask, prompt=[*ask.before, *self.backend.read_tokens(body)], before=())

    async def written(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> str | None:
        """The prompt that it makes of messages of a chat; None if it cannot be asked, or refuses them."""
        call = self.backend.written_call(messages, tools)
        body = await self.told(call) if call is not None else None
        if body is None:
            return None
        text = self.backend.text_call(body)
        body = await self.told(text) if text is not None else body
        try:
            return self.backend.read_written(body) if body is not None else None
        except UpstreamError:
            return None  # a server may know the path, and nothing of messages

    async def count(self, text: str, headers: Mapping[str, str] | None = None) -> int | None:
        """How many tokens a prompt has; None if the server cannot tell."""
        if self.backend.endpoint:
            call = self.backend.count_call(text)
            body = await self.told(replace(call, headers=headers or {})) if call is not None else None
            return self.backend.read_count(body) if body is not None else None
        try:
            ids = await self.tokens(text)
        except UpstreamError:
            return None
        return None if ids is None else len(ids)

    async def healthy(self) -> bool:
        """Whether the server can answer, as far as it says so itself."""
        return await self.trouble() is None

    async def trouble(self) -> UpstreamError | None:
        """Why the server cannot answer, as far as it says so itself; None if it can."""
        try:
            async with asyncio.timeout(_SHORT):
                reply = await self.transport.send(self.backend.health_call())
                reply.close()
        except UpstreamError as error:
            return error
        except TimeoutError:
            return UpstreamError(f"{self.name} does not answer within {_SHORT:g} s", upstream=503, retryable=True)
        if self.backend.is_well(reply.status):
            return None
        loading = "; it may still be loading its model" if reply.status == _LOADING else ""
        message = f"{self.name} answers {reply.status} when asked whether it is well{loading}"
        return UpstreamError(message, upstream=reply.status, retryable=True)

    async def close(self) -> None:
        """Let go of all connections."""
        await self.transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def told(self, call: HttpCall) -> bytes | None:
        """The body of the answer to a small question, None if there is none."""
        try:
            async with asyncio.timeout(_SHORT):
                reply = await self.transport.send(call)
                try:
                    body = await whole(reply, LONGEST_BODY)
                finally:
                    reply.close()
        except (UpstreamError, TimeoutError):
            return None
        self.mute = False
        self.wants_key = reply.status == _NO_KEY
        return body if reply.status < 300 else None


class Answer:
    """An answer that goes on: a context and, inside it, an iterator of lists of pieces, none of them empty.

    Entering sends the request. It raises UpstreamError for a refusal or a failure, and so does each step. `status` and
    `headers` are those of the server.
    """

    def __init__(self, upstream: Upstream, ask: Completion) -> None:
        self.status = 0
        self._upstream = upstream
        self._ask = ask
        self._reader = upstream.backend.reader(ask)
        self._reply: Reply | None = None
        self._replied: Reply | None = None
        self._ready: list[Piece] = []
        self._heard = self._begun = self._ended = False
        # The clock: what is late, when all must be over, how long a wait may last, since when there is one.
        self._late = ""
        self._end = self._limit = self._since = 0.0
        self._waiting = False
        self._alarms: Alarms | None = None
        self._task: asyncio.Task[object] | None = None

    async def __aenter__(self) -> Self:
        upstream, limits = self._upstream, self._upstream.timeouts
        if self._ask.state is not None:
            self._ask = replace(self._ask, state=await upstream.listed.id_of(self._ask.state))
        if self._ask.media:
            self._ask = replace(self._ask, marker=await upstream.marker())
        if self._ask.before and not upstream.backend.prepends:
            self._ask = await upstream.in_ids(self._ask)
        call = upstream.backend.call(self._ask)
        alarms = self._alarms = upstream.alarms
        loop = self._loop = alarms.loop
        began = loop.time()
        self._end = began + limits.total
        limit = min(limits.first_byte, limits.total) if self._ask.stream else limits.total
        self._allow(limit)
        begun = False
        try:
            reply = self._reply = self._replied = await self._sent(call, limit)
            self.status = reply.status
            self._since = loop.time()
            self._limit = began + limit - self._since
            if self.status >= 300:
                raise self._refusal(call, await whole(self, LONGEST_ERROR))
            begun = True
        finally:
            if not begun:
                self.leave()
        return self

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the answer."""
        return self._replied.headers if self._replied is not None else {}

    async def _sent(self, call: HttpCall, limit: float) -> Reply:
        """The answer, once its head is there. The clock ends the wait for it as `asyncio.timeout` would, which is one
        more clock."""
        task = self._task = asyncio.current_task(self._loop)
        assert task is not None
        before = task.cancelling()
        self._waiting = True
        try:
            return await self._upstream.transport.send(call)
        except asyncio.CancelledError:
            if self._late and task.uncancel() <= before:
                raise self._timeout(f"has not begun to answer after {limit:.3g} s") from None
            raise
        except UpstreamError as error:
            raise self._upstream.mask.error(error) from None
        finally:
            self._task, self._waiting = None, False

    def _refusal(self, call: HttpCall, body: bytes) -> UpstreamError:
        upstream, location = self._upstream, self.headers.get("location", "")
        if self.status < 400:
            asked = base_of(upstream.url, upstream.backend) + call.path
            return redirected(self.status, asked, call.path, location, told=upstream.name != UNNAMED)
        error = _read_error(upstream, self.status, body)
        error.retry_after, error.headers = seconds_to_wait(self.headers), dict(self.headers)
        return error

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            reply = self._reply
            if error is None and self._reader.over and reply is not None:
                await self._reach_end(reply)
        finally:
            self.leave()

    def __aiter__(self) -> AsyncIterator[list[Piece]]:
        return self

    async def __anext__(self) -> list[Piece]:
        if self._ready:
            pieces, self._ready = self._ready, []
            return pieces
        while not self._ended:
            pieces = await self._more()
            if pieces:
                return pieces
        raise StopAsyncIteration

    async def first(self) -> None:
        """Wait until there are pieces, or the end. They are kept for the next step."""
        while not self._ready and not self._ended:
            self._ready = await self._more()

    @property
    def stray(self) -> str:
        """The beginning of the first line that was passed over because it is no part of a stream of events."""
        said = self._reader.stray
        return self._upstream.mask.body(said.encode()).decode() if said else ""

    async def read(self) -> bytes:
        """More bytes of the answer, as they are."""
        reply = self._reply
        if reply is None:
            return b""
        self._since, self._waiting = self._loop.time(), True
        try:
            return await reply.read()
        except UpstreamError:
            if self._late:
                raise self._timeout(self._late) from None
            raise
        finally:
            self._waiting = False

    async def _more(self) -> list[Piece]:
        reader = self._reader
        finished = reader.finished
        try:
            data = await self.read()
            if data:
                self._heard = True
                self._upstream.heard += 1
            pieces = reader.feed(data) if data else reader.close()
        except UpstreamError as error:
            self._ended = True
            if reader.finished:  # the answer was whole; what did not come is nothing that anybody needs
                return []
            told = self._heard or isinstance(error, UpstreamTimeout)
            why = None if told else await self._why()
            raise why or self._upstream.mask.error(error) from None
        self._ended = reader.over or not data
        if self._ended:
            return pieces
        if reader.finished and not finished:
            self._allow(TAIL)
        elif pieces and not self._begun and self._ask.stream:
            self._allow(self._upstream.timeouts.between)
        self._begun = self._begun or bool(pieces)
        return pieces

    async def _why(self) -> UpstreamError | None:
        """Why a stream was over before it began, where the server says so when it is asked in another way."""
        upstream = self._upstream
        call = upstream.backend.why_call(self._ask)
        if call is None:
            return None
        self.leave()
        try:
            async with asyncio.timeout(_SHORT):
                reply = await upstream.transport.send(call)
                try:
                    body = await whole(reply, LONGEST_ERROR) if reply.status >= _REFUSED else b""
                finally:
                    reply.close()
        except (UpstreamError, TimeoutError):
            return None
        return _read_error(upstream, reply.status, body) if reply.status >= _REFUSED else None

    async def _reach_end(self, reply: Reply) -> None:
        """Read the end that follows the last piece, so that no server takes it for an answer that was given up; not for
        long."""
        try:
            async with asyncio.timeout(_AFTER):
                for _ in range(_READS):
                    if not await reply.read():
                        return
        except (UpstreamError, TimeoutError):
            return

    def leave(self) -> None:
        """Let go of the server, wherever its answer is."""
        self._ended = True
        if self._alarms is not None:
            self._alarms.drop(self)
        if self._reply is not None:
            self._reply.close()
            self._reply = None

    # The clock.

    def _allow(self, seconds: float) -> None:
        """From now on, a wait may last so long."""
        self._limit, self._since = seconds, self._loop.time()
        if self._alarms is not None:
            self._alarms.set(self, min(self._since + seconds, self._end))

    def ring(self) -> None:
        """Look whether the server is late; if not, look again when it may be."""
        now, limits = self._loop.time(), self._upstream.timeouts
        due = self._since + self._limit if self._waiting else now + self._limit
        if now < min(due, self._end):
            if self._alarms is not None:
                self._alarms.set(self, min(due, self._end))
            return
        if now >= self._end:
            self._late = f"has not come to an end after {limits.total:g} s"
        elif self._begun:
            self._late = f"sent nothing for {self._limit:g} s"
        else:
            self._late = f"has not begun to answer after {limits.first_byte:g} s"
        if self._reply is not None:
            self._reply.close()
        elif self._task is not None:
            self._task.cancel()

    def _timeout(self, what: str) -> UpstreamTimeout:
        return UpstreamTimeout(f"{at(self._upstream.name)} {what}")


def _read_error(upstream: Upstream, status: int, body: bytes) -> UpstreamError:
    """What a refusal means, in words that hold no secret."""
    mask = upstream.mask
    return mask.error(upstream.backend.read_error(status, mask.body(body)))


def _silent(bodies: Sequence[bytes | None]) -> list[bool]:
    """Which of several questions got no answer."""
    return [body is None for body in bodies]


async def whole(source: Reply | Answer, limit: int) -> bytes:
    """All that there is to read, as far as `limit`; the beginning of it where it breaks off."""
    found = bytearray()
    try:
        while len(found) < limit:
            data = await source.read()
            if not data:
                break
            found += data
    except UpstreamTimeout:
        raise
    except UpstreamError:
        if not found:
            raise
    return bytes(found[:limit])
