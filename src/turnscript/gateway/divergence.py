"""Owns where a prompt parts from what was said before: at which byte, what stood there, and what of the request it is.

Only a prompt that does part from it costs anything. What is written at a place is read off the prompt's own spans.

Who asks is told why a prompt could not go on from what was said before, here or in an API's words. A page tells of each
request of a session how its prompt goes on. It is kept for those that do not, the last of them. An API may have its
clients name an earlier answer: its prompt is kept where a client may ask for that, up to a size.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.apis.api import Api
from turnscript.apis.serving import CacheCause, CacheVerdict, Diagnosing, Serving
from turnscript.core.conversation import Item, Opaque, Request, System, ToolResult, ToolsChange, text_content
from turnscript.core.errors import NotFound
from turnscript.engine.prompt import Prompt
from turnscript.engine.spans import Span
from turnscript.gateway.aside import Run, here
from turnscript.gateway.meaning import MODEL, History
from turnscript.gateway.preparing import Prepared
from turnscript.gateway.reports import Reported, Reports
from turnscript.gateway.sessions import Prefix, Prefixes, Sessions, common, size_of
from turnscript.gateway.visit import Visit

Kind = Literal["tools", "instructions", "first", "message", "answer", "result", "settings", "opening"]

_EXCERPT, _SHARED = 80, 40  # characters
_SAID: dict[str, str] = {
    "tools": "the tools differ: another list, order or description, or another shape of answers",
    "instructions": "the instructions differ",
    "message": "a message differs, or another one stands there",
    "first": "the first message differs, or tools or instructions are left out before it",
    "answer": "a turn of the model is not as it wrote it: the client changed it, or it is not remembered any more",
    "result": "the result of a call differs, or stands in another place",
    "settings": "what the request asks beside the conversation is told otherwise",
    "opening": "the answer begins in another way: other thinking, a call that is forced, or nothing said since",
}


class Place(Struct, frozen=True):
    """What of a request is written at a place in its prompt. `path`: of the member, where it is known which."""

    kind: Kind
    path: str | None = None


class Divergence(Struct, frozen=True):
    """Where a prompt parts from what was said before. `known`: how many characters that has. The texts are short."""

    character: int
    byte: int
    known: int
    place: Place
    shared: str
    before: str
    now: str

    @property
    def told(self) -> str:
        """A sentence for people."""
        where = "" if self.place.path is None else f" (`{self.place.path}`)"
        lost = self.known - self.character
        return f"At byte {self.byte}{where} {_SAID[self.place.kind]}. {lost} characters behind it are of no more use."


def divergence(before: str, now: str, at: int, prompt: Prompt) -> Divergence:
    """How a prompt (`now` is its text) parts from a text that begins with the same `at` characters."""
    return Divergence(
        character=at,
        byte=len(now[:at].encode("utf-8", "surrogatepass")),
        known=len(before),
        place=place(prompt, at),
        shared=now[max(0, at - _SHARED) : at],
        before=before[at : at + _EXCERPT],
        now=now[at : at + _EXCERPT],
    )


def place(prompt: Prompt, at: int) -> Place:
    """What is written at a character of a prompt."""
    spans, end = prompt.spans, 0
    for number, span in enumerate(spans):
        begin, end = end, end + len(span.text)
        if end > at:
            return _at_span(prompt, spans, number, inside=at > begin)
    return Place("opening")


def opening(prompt: Prompt) -> int:
    """How many characters open the answer: what stands behind all items and tools."""
    size = 0
    for span in reversed(prompt.spans):
        if span.item >= 0:
            break
        size += len(span.text)
    return size


def _at_span(prompt: Prompt, spans: list[Span], number: int, *, inside: bool) -> Place:
    index = spans[number].item
    if index >= 0 and _is_over(spans, number, inside):
        # Behind the end of an item, what differs is what comes next.
        number = next((at for at in range(number, len(spans)) if spans[at].item != index), number)
        index = spans[number].item
    request, items = prompt.request, prompt.request.items
    if 0 <= index < len(items):
        return Place(_kind(items, index), items[index].at or None)
    if all(span.item < 0 for span in spans[number:]):
        asked = (request.paths.get(name) for name in ("effort", "thinking", "tool_choice"))
        return Place("opening", next((path for path in asked if path), None))
    if request.tools:
        return Place("tools", request.paths.get("tools", "$.tools"))
    return Place("settings")


def _is_over(spans: list[Span], number: int, inside: bool) -> bool:
    """Whether an item has ended before a place: nothing of it follows but literals, and the first of these is behind.
    At the very beginning of them its content may have gone on before."""
    index = spans[number].item
    if any(not span.control for span in spans[number:] if span.item == index):
        return False
    return inside or (number > 0 and spans[number - 1].control)


def _kind(items: list[Item], index: int) -> Kind:
    item, leads = items[index], all(isinstance(one, System | ToolsChange) for one in items[:index])
    if isinstance(item, System):
        return "instructions" if leads else "message"
    if isinstance(item, ToolsChange):
        return "tools"
    if isinstance(item, ToolResult):
        return "result"
    if type(item) in MODEL:
        return "answer"
    return "first" if leads else "message"


MB = 1024 * 1024
_DIVERGED = 1000
"""How many divergences are kept; each takes a kilobyte or two."""
_PLACE = 400  # bytes
_THREADS = 4
"""How many conversations of a session the beginning of another one is compared with."""


class Asked(Struct, frozen=True):
    """A request that an answer was made for: its prompt, its body, and the model that answered."""

    text: str
    body: bytes
    model: str

    @property
    def cost(self) -> int:
        """The bytes that it takes."""
        return size_of(self.text) + len(self.body) + _PLACE


class Diagnosis:
    """What is known of prompts that parted from what was said before. `held`: the bytes of those that clients of an API
    may name."""

    def __init__(self, held: int = 32 * MB, diverged: int = _DIVERGED) -> None:
        self._most, self._most_diverged = held, diverged
        self._held = 0
        self._asked: OrderedDict[tuple[str, str], Asked] = OrderedDict()
        self._diverged: OrderedDict[str, Divergence] = OrderedDict()
        self._threads: OrderedDict[str, list[str]] = OrderedDict()

    async def look(self, visit: Visit, prepared: Prepared, prefix: Prefix, prefixes: Prefixes, run: Run = here) -> None:
        """Look at how a prompt goes on, for the page and for clients whose API may ask for it."""
        if prefix.parts:
            await self.note(visit.request_id, prepared, prefix, prefixes, run)
        diagnosing = visit.api.serving.diagnosing
        if diagnosing is not None:
            await self.answer(prepared, visit.api, diagnosing, run)

    # What its own page tells.

    async def note(
        self, request_id: str, prepared: Prepared, prefix: Prefix, prefixes: Prefixes, run: Run = here
    ) -> None:
        """Keep how a prompt that does not go on from all that its session has said parts from that."""
        text, prompt = str(prepared.ask.prompt), prepared.prompt
        known, at = (prefix.known, prefix.reused) if not prefix.whole else self._nearest(prepared, text, prefixes)
        if prompt is None or not known:
            return
        find = partial(divergence, known, text, at, prompt)
        self._diverged[request_id] = find() if run is here else await run(find)
        if len(self._diverged) > self._most_diverged:
            self._diverged.popitem(last=False)

    def _nearest(self, prepared: Prepared, text: str, prefixes: Prefixes) -> tuple[str, int]:
        """What was said in the session of a conversation that is new there and begins most as it does, and for how many
        characters. What stands before the first answer tells one conversation from another."""
        if not prepared.session.source:
            return "", 0
        key, thread = prepared.session.key, prepared.session.thread
        threads = self._threads.setdefault(key, [])
        self._threads.move_to_end(key)
        if len(self._threads) > self._most_diverged:
            self._threads.popitem(last=False)
        known = [said for one in threads if one != thread for said in prefixes.said(one)]
        threads[:] = [*(one for one in threads if one != thread), thread][-_THREADS:]
        nearest = max(known, key=lambda said: common(said, text), default="")
        return nearest, common(nearest, text)

    def page(self, reports: Reports, sessions: Sessions, owner: str, name: str, *, shown: bool) -> bytes:
        """How the prompt of a request goes on from what its session has said. `name`: the id of the request or of its
        answer, or its session, whose last answer is meant. `shown`: texts too. Raises NotFound."""
        request_id = reports.find(owner, name, sessions.key_of(name, owner))
        if request_id is None:
            raise NotFound("request, answer or session", name)
        report = reports.get(request_id)
        assert report is not None
        found = self._diverged.get(request_id)
        told: dict[str, Any] = {"request_id": request_id, "answer": report.answer, "session": report.session}
        told |= {"model": report.model, "reused": report.reused, "total": report.total}
        told["differs"] = None if found is None else _told(found, shown)
        told["told"] = _sentence(report) if found is None else found.told
        return msgspec.json.encode(told)

    # What clients of an API are told.

    async def answer(self, prepared: Prepared, api: Api, diagnosing: Diagnosing, run: Run = here) -> None:
        """Have an answer say how its prompt goes on from that of an earlier one, if its client wishes to know, and keep
        the prompt for later ones."""
        text, owner = prepared.ask.prompt, prepared.caller.name
        wished = diagnosing.wished(prepared.request)
        id_ = prepared.reply.id
        if prepared.prompt is None or id_ is None or not isinstance(text, str):
            return
        if wished:
            earlier = diagnosing.earlier(prepared.request)
            compare = partial(self._compared, prepared, api, None if earlier is None else (owner, earlier))
            verdict = compare() if run is here else await run(compare)
            prepared.reply = replace(prepared.reply, members=diagnosing.told(verdict))
        if wished or prepared.keep:
            self._keep((owner, id_), Asked(text, prepared.body, prepared.served.name))

    def _keep(self, name: tuple[str, str], asked: Asked) -> None:
        self._asked[name] = asked
        self._held += asked.cost
        while self._held > self._most and self._asked:
            self._held -= self._asked.popitem(last=False)[1].cost

    def _compared(self, prepared: Prepared, api: Api, name: tuple[str, str] | None) -> CacheVerdict:
        """How a prompt goes on from that of an earlier answer; where none is named there is nothing to be said."""
        if name is None:
            return CacheVerdict("")
        asked = self._asked.get(name)
        if asked is None:
            return CacheVerdict("unknown")
        now, prompt, count = str(prepared.ask.prompt), prepared.prompt, prepared.served.estimate
        assert prompt is not None
        if asked.model != prepared.served.name:
            return CacheVerdict("model", missed=count(asked.text), affected=count(now))
        at = common(asked.text, now)
        if at == len(asked.text) or at >= len(asked.text) - opening(prompt):
            return CacheVerdict("")
        cause = _cause(api.parse_request(asked.body), prepared.request, place(prompt, at), api.serving)
        missed, affected = count(asked.text[at:]), count(now[at:])
        return CacheVerdict(cause, missed=missed, affected=affected, reusable=count(now[:at]))


def _cause(before: Request, now: Request, where: Place, serving: Serving) -> CacheCause:
    """Which member of a request has changed what stands at a place, or `other` where that is not known for sure."""
    then, settings = before.settings, now.settings
    changed: list[tuple[CacheCause, bool]] = [
        ("tools", before.tools != now.tools),
        ("instructions", _leading(before) != _leading(now)),
        ("format", then.response_format != settings.response_format),
        ("verbosity", then.verbosity != settings.verbosity),
        ("effort", (then.effort, then.thinking) != (settings.effort, settings.thinking)),
    ]
    if where.kind == "instructions":
        changed[:2] = changed[1::-1]
    found = next((cause for cause, is_so in changed if is_so), None)
    if where.kind in ("tools", "instructions", "settings") or (where.kind == "first" and found):
        return found or "other"
    if where.kind == "opening":
        return "effort" if changed[-1][1] else "other"
    if _summaries(now, serving) > _summaries(before, serving):
        return "compacted"
    goes_on = serving.stored is not None and serving.stored.previous(before) is not None
    if goes_on:  # its own items are not all
        return "other" if where.kind == "answer" else "input"
    count = len(before.items)
    same = _meant(before.items) == _meant(now.items[:count])
    return "other" if same else "input"


def _meant(items: Sequence[Any]) -> bytes:
    history = History("")
    history.add(items)
    return history.digest


def _leading(request: Request) -> list[str]:
    """The instructions before all else."""
    found: list[str] = []
    for item in request.items:
        if not isinstance(item, System):
            break
        found.append(text_content(item.content))
    return found


def _summaries(request: Request, serving: Serving) -> int:
    compacting = serving.compacting
    if compacting is None:
        return 0
    return sum(isinstance(item, Opaque) and compacting.proof(item) is not None for item in request.items)


def _told(found: Divergence, shown: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"byte": found.byte, "character": found.character, "said_before": found.known}
    told |= {"part": found.place.kind, "path": found.place.path}
    texts = {"shared": found.shared, "before": found.before, "now": found.now}
    return told | (texts if shown else dict.fromkeys(texts))


def _sentence(report: Reported) -> str:
    """What is to be said of a prompt that has not parted from what was said before."""
    if not report.total:
        return "This was a text, or tokens were only counted: such a request belongs to no conversation."
    if not report.reused:
        return "This session had said nothing before, or it is forgotten."
    if report.reused == report.total:
        return "All of the prompt was said before: the conversation ends here, where it may have gone on then."
    return f"The prompt begins with all {report.reused} characters that were said before."
