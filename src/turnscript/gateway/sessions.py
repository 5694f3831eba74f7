"""Owns sessions: which requests belong together, and how much of a prompt its backend has seen in its session already.

A client may name its session in a header or in its body; all such names are data. One that names none is known by how
its conversation begins. A session may hold several conversations, such as those of subagents: a `thread` is one.

States of conversations outlive their slot: the model server writes them to files and reads them back. A recurrent model
cannot go back, so a conversation whose slot went to another one is read from its beginning again when it returns.
llama.cpp can write what a slot holds to a file and put it into any slot later. It is asked to do so while a slot is
idle, for the conversation that would have to give its slot up next: so a newcomer finds it done, and waits only where
it is just being done. It cannot be asked to delete a file, so there are as many names as files may be kept, which are
numbers and nothing of a client, and the oldest one is written over.

Nothing here fails a request: what could not be written or read is read anew by the model. A server puts a state only
before a prompt that begins with the very tokens that it was made of.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from turnscript.backends.backend import SlotAction
from turnscript.core.conversation import Request, Settings
from turnscript.core.errors import UpstreamError
from turnscript.core.json_text import Json
from turnscript.gateway.logs import say
from turnscript.gateway.meaning import Beginning, beginning_of, begun, digest
from turnscript.gateway.upstream import LONGEST_ERROR, Upstream, whole

MB = 1024 * 1024
_SETTINGS = frozenset(Settings.__struct_fields__)
_LONGEST = 512  # characters of a name that a client gives
_PLACE = 300  # bytes


class Source(Struct, frozen=True):
    """A place where a client may name its session.

    `header`, or `member`: a setting or unnamed member of the request, dots lead into objects. `pattern`: the name is
    its first group. `inside`: the name is this member, where the text is a JSON object. `answer`: it is no name but the
    id of an answer, whose session this is. `single`: whether its client asks one thing at a time there; not where
    several requests may share it, such as those of all users of a program, or several ways to go on from an answer.
    """

    header: str = ""
    member: str = ""
    pattern: str = ""
    inside: str = ""
    answer: bool = False
    single: bool = True


_USER = r"_session_([0-9A-Za-z-]+)"
SOURCES = (
    Source(header="x-claude-code-session-id"),
    Source(header="x-session-id"),
    Source(header="x-session-affinity"),
    Source(header="session_id"),
    Source(header="session-id"),
    Source(header="conversation_id"),
    Source(member="user", pattern=_USER, inside="session_id"),
    Source(member="metadata.user_id", pattern=_USER, inside="session_id"),
    Source(member="prompt_cache_key", single=False),
    Source(member="previous_response_id", answer=True, single=False),
    Source(member="conversation"),
    Source(member="conversation.id"),
)
"""What known clients do."""

AGENTS = ("x-claude-code-agent-id",)
"""Headers in which known clients say which agent of a session asks. Several may ask the same thing at the same time."""


class Session(Struct, frozen=True):
    """Where a request belongs: `key` is of the session, `thread` of the one conversation in it, which is one agent's.
    Both are safe to log.

    `source`: the name of the header or member that told it, empty where the conversation itself did. `single`: whether
    an agent waits for one answer at a time, so that it no longer waits for the first where it asks the same again.
    """

    key: str
    thread: str
    source: str = ""
    single: bool = False


class Sessions:
    """Finds the session of a request. `most`: how many answers are known by their ids."""

    def __init__(self, sources: Sequence[Source] = SOURCES, most: int = 20_000) -> None:
        self._sources = [(source, source.member.split(".")) for source in sources]
        self._headers = frozenset(source.header for source in sources if source.header)
        roots = {members[0] for source, members in self._sources if source.member}
        self._members = frozenset(roots)
        settings = roots & _SETTINGS
        self._settings: Callable[[Settings], object] = attrgetter(*sorted(settings)) if settings else _nothing
        self._unsaid = self._settings(Settings())
        self._most = most
        self._answers: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._since: OrderedDict[str, datetime] = OrderedDict()

    def find(
        self,
        headers: Mapping[str, str],
        request: Request,
        owner: str = "",
        beginning: Beginning | None = None,
        *,
        bare: bool = False,
    ) -> Session:
        """The session of a request of a client (`owner`: the name of its key). Header names are in small letters.
        `beginning`: that of its conversation, if it is at hand. `bare`: it is a text, which has no beginning that the
        next one of its conversation would repeat."""
        start, extra = begun(beginning or beginning_of(request.items), owner), request.extra
        if not self._may_name(headers, request):
            key = start.hexdigest()
            return Session(key, key)
        for source, members in self._sources:
            if source.header:
                name = headers.get(source.header, "")
            else:
                name = _told(request, members) if members[0] in extra or members[0] in _SETTINGS else ""
            name = name and _name(source, name)[:_LONGEST].strip()
            if not name:
                continue
            known = self._answers.get((owner, name)) if source.answer else None
            key = known or _short("name", owner, source.answer, name)
            # A thread of answers has one beginning, which later requests need not repeat.
            agent = next((headers[one] for one in AGENTS if one in headers), "")
            thread = key if source.answer else _short("thread", key, agent, b"" if bare else start.digest())
            return Session(key, thread, source.header or source.member, source.single)
        key = start.hexdigest()
        return Session(key, key)

    def since(self, session: Session) -> datetime:
        """Return when the first request of a session came: prompts that write a date keep this one."""
        since = self._since.setdefault(session.key, datetime.now())
        self._since.move_to_end(session.key)
        while len(self._since) > self._most:
            self._since.popitem(last=False)
        return since

    def key_of(self, name: str, owner: str = "") -> str:
        """The key of the session that a client calls so."""
        return _short("name", owner, False, name[:_LONGEST].strip())

    def _may_name(self, headers: Mapping[str, str], request: Request) -> bool:
        """Whether a request has anything that might name its session; most have nothing."""
        if not self._headers.isdisjoint(headers) or not self._members.isdisjoint(request.extra):
            return True
        return self._settings(request.settings) != self._unsaid

    def note(self, session: Session, answer_id: str, owner: str = "") -> None:
        """An answer of a session, which a later request may name."""
        self._answers[owner, answer_id] = session.key
        self._answers.move_to_end((owner, answer_id))
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)


def _nothing(_: Settings) -> None:
    """What settings say where none names a session."""


def _short(*parts: object) -> str:
    return digest(*[part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part for part in parts]).hex()


def _told(request: Request, members: Sequence[str]) -> str:
    """The text at a path in a request; nothing where there is none."""
    first = members[0]
    value: Any = getattr(request.settings, first) if first in _SETTINGS else None
    if value is None:
        value = request.extra.get(first)
        if value is None:
            return ""
    for member in (None, *members[1:]):
        if isinstance(value, Json):
            try:
                value = msgspec.json.decode(value)
            except (msgspec.DecodeError, RecursionError):
                return ""
        if member is not None:
            value = value.get(member) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


def _name(source: Source, text: str) -> str:
    if source.inside and text.lstrip().startswith("{"):
        try:
            found = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            return ""
        name = found.get(source.inside) if isinstance(found, dict) else None
        return name if isinstance(name, str) else ""
    if source.pattern:
        match = _compiled(source.pattern).search(text)
        return match[1] if match else ""
    return text


@lru_cache(maxsize=64)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


class Prefix(Struct, frozen=True):
    """How much of a prompt its session has said before, in characters.

    `whole`: all that was said before is kept, so that a model without a way back can go on. If not, `known` is what was
    said before.
    """

    reused: int
    total: int
    whole: bool
    known: str = ""

    @property
    def parts(self) -> bool:
        """Whether something stands in the prompt in the place of what was said, or nothing was said that it goes on."""
        return self.reused < self.total and not (self.whole and self.reused)

    def __str__(self) -> str:
        return f"{self.reused}/{self.total}"


class Prefixes:
    """Remembers what was said in each session: the last prompts with what was generated, up to `held` bytes in all and
    `branches` in a session, because a session may hold several conversations."""

    def __init__(self, held: int = 64 * MB, branches: int = 8) -> None:
        self._most, self._branches = held, branches
        self._held = 0
        self._said: OrderedDict[str, list[str]] = OrderedDict()

    def measure(self, session: str, text: str) -> Prefix:
        """How much of a prompt is known, which from now on is known itself."""
        branches = self._said.get(session)
        if not branches:
            self._keep(session, text)
            return Prefix(0, len(text), True)
        best, shared = 0, -1
        for at, branch in enumerate(branches):
            found = common(branch, text)
            if found >= shared:  # the last of the longest
                best, shared = at, found
        known = branches[best]
        whole = shared == len(known)
        if whole:
            self._held -= _cost(branches.pop(best))
        self._keep(session, text)
        return Prefix(shared, len(text), whole, "" if whole else known)

    def answered(self, session: str, text: str, generated: str) -> None:
        """What was generated for a prompt that was measured."""
        branches = self._said.get(session)
        if not generated or branches is None or text not in branches:
            return
        whole = text + generated
        branches.remove(text)
        self._held -= _cost(text)
        if whole in branches:  # asked again and answered alike: one branch, which is the newest now
            branches.remove(whole)
            branches.append(whole)
            self._said.move_to_end(session)
        else:
            self._keep(session, whole)

    def said(self, session: str) -> Sequence[str]:
        """What was said in a session, as far as it is kept."""
        return self._said.get(session, ())

    def _keep(self, session: str, text: str) -> None:
        said = self._said
        branches = said.setdefault(session, [])
        said.move_to_end(session)
        branches.append(text)
        self._held += _cost(text)
        if len(branches) > self._branches:
            self._held -= _cost(branches.pop(0))
        while self._held > self._most and said:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        """Forget the oldest branch of the session that was used least lately."""
        session, branches = next(iter(self._said.items()))
        self._held -= _cost(branches.pop(0))
        if not branches:
            del self._said[session]


def _cost(text: str) -> int:
    """Bytes that a text takes with its place in its session."""
    return size_of(text) + _PLACE


def size_of(text: str) -> int:
    """Bytes that a text takes, which one emoji makes four times its characters. It is the same at any time: a text
    itself grows when its bytes are asked for, as they are where it is sent; a copy has none yet."""
    return sys.getsizeof(text if text.isascii() else " " + text)


def common(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    if first[:high] == second[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle
    return low


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
