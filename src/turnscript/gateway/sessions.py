"""Owns sessions: which requests belong together, and how much of a prompt its backend has seen in its session already.

A client may name its session in a header or in its body; all such names are data. One that names none is known by how
its conversation begins. A session may hold several conversations, such as those of subagents: a `thread` is one.
"""

from __future__ import annotations

import re
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import Struct

from turnscript.core.conversation import Request, Settings
from turnscript.core.json_text import Json
from turnscript.gateway.meaning import Beginning, beginning_of, begun, digest

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
