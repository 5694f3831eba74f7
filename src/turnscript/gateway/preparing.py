"""Owns preparing a request: what the client sent becomes a prompt, and what is asked of a backend.

The request itself stays as it came, because the answer is written for it; what the prompt is made from is another one.
Each step says what was lost. The steps, in this order: the conversation so far is put before the request where the
server keeps it; sealed thoughts are opened; what is not for a model is taken out; tools are offered; what the model
wrote before is put back as it wrote it; and what is asked for is made to fit.

A model may see pictures and sounds beside a text, at a server that takes them. In the prompt a word stands in the place
of each, between the texts where it stood. Nobody else can write that word, so no text is taken for a picture. What the
server wants there is put in when the prompt is sent to it, because each server may want something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from hashlib import blake2b
from operator import is_
from time import time
from typing import Any, get_args

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from turnscript.apis.api import PLAIN, Reply
from turnscript.apis.serving import Serving
from turnscript.backends.backend import Backend, Completion, Facts
from turnscript.core.conversation import (
    Audio,
    Conversation,
    Image,
    Part,
    Request,
    ResponseFormat,
    Text,
    Thinking,
    Usage,
    is_unseen,
)
from turnscript.core.error_kinds import room_said
from turnscript.core.errors import ContextOverflow, InvalidRequest, LossyConversion, UpstreamError
from turnscript.core.events import Event, PartEnd
from turnscript.core.json_spelling import RESPELLED
from turnscript.core.losses import Loss
from turnscript.core.sealed_thoughts import restore_thoughts, sealed
from turnscript.engine.prompt import Prompt
from turnscript.engine.scanner import TextParser
from turnscript.formats.format import Format
from turnscript.gateway import forcing, states, texts, thinking
from turnscript.gateway.aside import Run, here
from turnscript.gateway.checks import CallFinding, CallGate, CallPolicy
from turnscript.gateway.compacting import Compacted, opened, summed_up
from turnscript.gateway.config import Losses, Policy
from turnscript.gateway.forcing import Held
from turnscript.gateway.generation import Blanks, Controls, Generation, Parser, Stage
from turnscript.gateway.headers import POLICY, Told
from turnscript.gateway.hygiene import clean, unread
from turnscript.gateway.limits import Caller
from turnscript.gateway.meaning import Beginning, beginning_of
from turnscript.gateway.memory import Memory, Recalled
from turnscript.gateway.naming import CallIds, Unrepeated, without_marks
from turnscript.gateway.nearness import wordlosses
from turnscript.gateway.offers import HOSTED_MEMBERS, Offer, Offering, offer, spelled
from turnscript.gateway.scoring import Scoring
from turnscript.gateway.served import Served
from turnscript.gateway.sessions import Session, Sessions
from turnscript.gateway.thinking import settled, switched


class Seeing:
    """What one prompt shows to a server that says these facts of itself. `key`: what makes marks nobody else's."""

    def __init__(self, facts: Facts, key: bytes) -> None:
        self._kinds = tuple(kind for kind, sees in ((Image, facts.sees), (Audio, facts.hears)) if sees)
        self._key = key
        self._data: dict[str, str] = {}

    def marked(self, request: Request) -> Request:
        """Return the request with a mark in place of each picture and sound that the server takes; others stay."""
        if not self._kinds or not any(self._takes(part) for item in request.items for part in _content(item)):
            return request
        asked = copy(request)
        items = [self._marked(item) for item in request.items]
        asked.conversation = Conversation(items=items, tools=request.tools)
        return asked

    def _marked(self, item: Any) -> Any:
        content = _content(item)
        if not any(map(self._takes, content)):
            return item
        shown = copy(item)
        shown.content = [self._mark(part) if self._takes(part) else part for part in content]
        return shown

    def _takes(self, part: Part) -> bool:
        data: str = getattr(part, "data", None) or ""
        return isinstance(part, self._kinds) and data != "" and not _is_webp(data)

    def _mark(self, part: Any) -> Text:
        """The same data has the same mark in each turn, so that prompts only grow."""
        mark = f"media-{blake2b(part.data.encode(), key=self._key[:64], digest_size=16).hexdigest()}"
        self._data[mark] = part.data
        return Text(text=mark)

    def media(self, prompt: str) -> dict[str, str]:
        """Return the base64 of what a prompt shows, by its mark there."""
        return {mark: data for mark, data in self._data.items() if mark in prompt}


def _is_webp(data: str) -> bool:
    """Return whether base64 is a picture that llama.cpp cannot read: it would refuse every turn with it."""
    return data.startswith("UklGR") and data[12:16] == "RUJQ"  # `RIFF`, then `EBP` of `WEBP`


def _content(item: Any) -> list[Part]:
    content: list[Part] = getattr(item, "content", None) or []
    return content


HANDLED = (
    *("store", "previous_response_id", "background", "stream_options", "tool_choice", states.MEMBER, forcing.PRESET),
    *HOSTED_MEMBERS,
)
"""Unnamed members that the gateway itself reads."""
CAREFUL = 1.25
"""How much larger than estimated a prompt may really be: where even that fits, nobody needs to count."""
LEAST = 16
"""Tokens that an answer gets where nothing says how many."""
_SHORTEST = 8
"""How often an answer is asked for with less room."""
_THINKS = {"on": True, "off": False}
_LOSS_POLICIES: tuple[str, ...] = get_args(Losses)


class Ended(Struct):
    """When an answer was complete, in Unix seconds; None before. A stream and what is kept say the same."""

    at: int | None = None


class Leaned(Struct, frozen=True):
    """What a request leans on: the items that it names, by their ids, and the answer that it goes on from. `size`: the
    bytes of its body with all that."""

    named: dict[str, bytes] = {}
    previous: str | None = None
    size: int = 0


class Prepared(Struct, kw_only=True):
    """A request that is ready to be answered.

    `request`: as the client sent it, and naming the model that answers where it names none. `choices`: how many answers
    it gets. `session`: where it belongs. `quiet`: nobody is to be told of losses. `call_ids`: whether the client is
    told the ids of calls. `words`: what is to be told of those of its prompt, beside what is told of the model's.
    """

    request: Request
    served: Served
    caller: Caller
    ask: Completion
    new_parser: Callable[[], Parser]
    new_controls: Callable[[], Controls]
    losses: list[Loss]
    tokens: int
    session: Session
    choices: int = 1
    prompt: Prompt | None = None
    held: Held | None = None
    recalled: Recalled | None = None
    findings: list[CallFinding] = []
    shape: ResponseFormat | None = None
    body: bytes = b""
    reply: Reply = PLAIN
    ended: Ended = field(default_factory=Ended)
    told: Told = field(default_factory=Told)
    streams: bool = False
    detached: bool = False
    keep: bool = False
    leaned: Leaned = Leaned()
    quiet: bool = False
    call_ids: bool = True
    shortened: int = 0
    words: Sequence[str] = ()

    @property
    def reported(self) -> list[Loss]:
        """The losses that are told of."""
        return [] if self.quiet else self.losses

    def note_losses(self) -> None:
        """Have the headers say how much was lost so far."""
        self.told.losses = None if self.quiet else len(self.losses)

    def generation(self) -> Generation:
        """A generation that has not begun."""
        served = self.served
        scoring = Scoring() if self.ask.sampling.get("logprobs") is True else None
        controls = self.new_controls()
        return Generation(self.new_parser, controls, self.tokens, served.estimate, served.context, scoring)

    def head_of_answer(self, id_: str, policy: Policy, request_id: str) -> Reply:
        """What an answer says of itself besides what the model wrote."""
        ended = self.ended
        return Reply(
            id_,
            int(time()),
            lambda: ended.at,
            Usage(self.tokens),
            policy.reasoning_name,
            policy.incomplete_as,
            request_id,
            direct=True,
            calls=self.served.model.calls,
            sampling={**self.served.facts.sampling, **self.ask.sampling},
        )

    def choice(self, number: int) -> Prepared:
        """The same for one of its answers. What is lost on the way to any is lost for all of them."""
        ask = replace(self.ask, sampling=forcing.sampling_of(self.ask.sampling, number))
        return replace(self, ask=ask, reply=replace(self.reply, choice=number), findings=[])

    def lose(self, losses: Iterable[Loss]) -> None:
        """More is lost, which another of its answers may have said already."""
        self.losses += [loss for loss in losses if loss not in self.losses]

    def shorten(self, error: UpstreamError, generated: str) -> bool:
        """Ask for less, where a backend with a tokenizer of its own says that there is less room than was estimated.
        Returns whether that is so."""
        before = self.ask.max_tokens
        said = room_said(error, before)
        if said is None or self.shortened == _SHORTEST:
            return False
        written = self.served.estimate(generated)
        left = said.left + written if said.prompt else said.left - max(1, self.tokens)
        now = left if said.exact else before // 4
        if not 0 < now < before:
            return False
        if isinstance(self.ask.prompt, str) and not self.ask.media:
            self.served.learn_ratio(len(self.ask.prompt) + len(generated), said.prompt)
        self.ask, self.shortened = replace(self.ask, max_tokens=now), self.shortened + 1
        if limit_of(self.request) is not None:
            path = self.request.paths.get("max_tokens", "$.max_tokens")
            self.lose([Loss(path, "approximated", f"{before} became {now}: the context holds no more")])
            self.note_losses()
        return True

    def ask_from(self, generated: str) -> Completion:
        """What to ask of a backend that has written so much already."""
        if not generated:
            return self.ask
        left = self.ask.max_tokens - self.served.estimate(generated)
        ask = replace(self.ask, prompt=f"{self.ask.prompt}{generated}", max_tokens=max(1, left))
        return ask if self.held is None else self.held.ask(ask, generated)

    def unconstrained(self, error: UpstreamError, generated: str) -> bool:
        """Ask without a grammar, where a server may have refused it, or with one where it was sent a schema. Returns
        whether that is so."""
        if self.held is None or not forcing.is_refused(error, self.held, generated):
            return False
        self.held, losses = forcing.without(self.held, self.request, error)
        free = replace(self.ask, grammar=None, schema=None)
        self.ask = free if self.held is None else self.held.ask(free)
        self.lose(losses)
        self.note_losses()
        return True


class Seals:
    """Seals thoughts on their way out."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def feed(self, events: list[Event]) -> list[Event]:
        """The events, with a seal on each thought that ends."""
        for event in events:
            if type(event) is PartEnd and type(event.part) is Thinking:
                return sealed(events, self._key)
        return events  # as most are


class Preparation(Struct, kw_only=True):
    """What preparing needs beside the request. `serving`: the API as a server sees it, None where nobody asked."""

    served: Served
    caller: Caller
    headers: Mapping[str, str]
    memory: Memory
    signing_key: bytes
    former_keys: Sequence[bytes] = ()
    sessions: Sessions
    serving: Serving | None = None
    fits: bool = True
    """Whether the prompt must fit: not where it is only counted."""
    run: Run = here
    """Does what takes long for a large request."""
    hold: Run = here
    """Makes a grammar, which takes long sooner."""
    seeing: Seeing | None = None
    """What its model sees of pictures."""

    # A conversation.

    async def conversation(self, request: Request) -> Prepared:
        """A request that is a conversation. Raises InvalidRequest with the place, ContextOverflow, LossyConversion."""
        served, policy = self.served, self.caller.policy
        format_ = served.format
        state = await states.chosen(request, served) if states.is_named(request, served) else None
        stays = self.run is here  # as most requests do: nothing has to be awaited for them
        made = self._offered(request) if stays else await self.run(partial(self._offered, request))
        offered, shape, session, beginning, losses = made
        choices = self._choices(request, losses)
        plan = self._thinking(offered.request, format_)
        model = served.model
        names = (self.caller.name, model.name, format_.name, model.variant or "", model.first_token or "", served.words)
        recalled = await self.memory.recall("\0".join(names), offered.request, self.run, beginning)
        if stays:
            prompt, text, lost = self._written(offered, plan.opens, recalled, session)
        else:
            prompt, text, lost = await self.run(partial(self._written, offered, plan.opens, recalled, session))
        losses += lost
        losses += plan.losses
        tokens, allowed = await self._fitted(request, text, losses)
        ask = self._completion(request, text, allowed, prompt.stops, losses, state)
        held = await self.hold(partial(self._held, prompt, losses)) if forcing.wants(prompt.request) else None
        quiet = self._judge(losses, policy)

        def controls() -> Controls:
            calls = bool(prompt.offered)  # where none can be read, nothing has to look for them in each event
            stages: list[Stage] = [offered.restorer(), Unrepeated(request)] if calls else []
            if self.serving is None or (self.serving.seals is not None and self.serving.seals(request)):
                stages.append(Seals(self.signing_key))
            compacting = self.serving.compacting if self.serving is not None else None
            if compacting is not None and compacting.wished(request):
                stages.append(Compacted(compacting, self.signing_key))
            return Controls(
                ids=CallIds() if calls else None,
                meter=thinking.ThoughtMeter(plan.budget, served.estimate) if plan.budget is not None else None,
                gate=CallGate(offered.tools, _call_policy(policy)) if offered.tools else None,
                one_call=forcing.OneCall() if request.settings.parallel_tool_calls is False else None,
                stops=prompt.client_stops,
                blanks=Blanks() if offered.tools else None,
                closing=None if plan.budget is None else partial(thinking.closing, format_),
                outward=stages,
            )

        return Prepared(
            request=request,
            served=served,
            caller=self.caller,
            ask=ask if held is None else held.ask(ask),
            held=held,
            new_parser=prompt.parser,
            new_controls=controls,
            choices=choices,
            losses=losses,
            tokens=tokens,
            prompt=prompt,
            recalled=recalled,
            shape=shape,
            session=session,
            quiet=quiet,
        )

    def _offered(self, request: Request) -> tuple[Offer, ResponseFormat | None, Session, Beginning | None, list[Loss]]:
        """The conversation without what is not for a model, and with the tools as it gets them; and how it begins, if
        that is as it was before there were tools."""
        losses, shown = restore_thoughts(request, self.signing_key, self.former_keys), request
        if self.serving is not None:
            shown, lost = self._told(shown, self.serving)
            losses += lost
        shown = switched(shown)
        cleaned = clean(without_marks(shown))
        hosted = Offering(hosted=self.caller.policy.hosted_tools)
        offered = offer(cleaned.request, self.served.format, hosted, hidden=cleaned.hidden)
        asked = forcing.structured(offered.request)
        offered.request = asked.request
        losses += unread(shown, HANDLED) + cleaned.losses + offered.losses + asked.losses
        items = cleaned.request.items
        beginning = beginning_of(items)
        session = self._session(cleaned.request, beginning)
        same = asked.request is cleaned.request or all(map(is_, items[: beginning.length], asked.request.items))
        return offered, asked.shape, session, beginning if same else None, losses

    def _told(self, request: Request, serving: Serving) -> tuple[Request, list[Loss]]:
        """The request with what only its API knows told in words that a model understands."""
        losses: list[Loss] = []
        if serving.compacting is not None:
            request, losses = opened(request, serving.compacting, self.signing_key, self.former_keys)
        if serving.summary is not None:
            request = summed_up(request, serving.summary)
        if serving.effort is not None:
            request = settled(request, serving.effort)
        if serving.as_function is not None:
            request, told = spelled(request, serving.as_function)
            losses = losses + told
        return request, losses

    def _written(
        self, offered: Offer, thinks: bool | None, recalled: Recalled, session: Session
    ) -> tuple[Prompt, str, list[Loss]]:
        """The prompt, as one text too, and what it could not carry. A date in it stays that of the session's start."""
        format_, spells = self.served.format, self.served.model.normalize_json
        seeing = self.seeing = Seeing(self.served.facts, self.signing_key)
        asked = seeing.marked(self._flagged(offered.request, thinks))
        now = self.sessions.since(session) if format_.template is not None else None
        made = format_.prompt(asked, thinking=thinks, replays=recalled.replays, normalize_json=spells, now=now)
        prompt = offered.bind(made)
        losses = [*offered.located(prompt.losses), *wordlosses(self.served.model, asked, thinks=bool(thinks))]
        return prompt, prompt.text, losses

    def _flagged(self, request: Request, thinks: bool | None) -> Request:
        """The request with the kinds of thought that the model is to write where it does not say, and may think."""
        kinds, flags = self.served.model.thoughts, self.served.format.document.flags
        if not kinds or flags is None or thinks is False or request.settings.thoughts is not None:
            return request
        asked = copy(request)
        asked.settings = replace(request.settings, thoughts=list(kinds))
        return asked

    def _held(self, prompt: Prompt, losses: list[Loss]) -> Held | None:
        """The grammar that the answer is held to."""
        return forcing.held(prompt, self.served.backends(), self.served.model, losses)

    def _thinking(self, request: Request, format_: Format) -> thinking.ThinkingPlan:
        model, limit = self.served.model, limit_of(request)
        default, settings = _THINKS.get(model.thinking), request.settings
        if settings.thinking is None and settings.effort is None and not default:
            return thinking.ThinkingPlan(default, None, [])  # as most requests leave it
        budgets = {} if settings.effort is None else asdict(model.efforts)
        return thinking.plan_thinking(request, format_, default=default, max_tokens=limit, budgets=budgets)

    def _choices(self, request: Request, losses: list[Loss]) -> int:
        several = self.serving is not None and self.serving.together is not None
        choices, lost = forcing.choices(request, self.caller.limits.choices if several else None)
        losses += lost
        return choices

    def _judge(self, losses: Sequence[Loss], policy: Policy) -> bool:
        """By policy, a request that loses anything but a spelling is refused, so `losses` has to be all of them.
        Returns whether nobody is to be told of them."""
        said = self.headers.get(POLICY)
        if policy.media == "error" and (lost := list(filter(is_unseen, losses))):
            raise LossyConversion(lost, f"the model {self.served.name!r}")
        wanted = policy.losses if said is None else said.strip().lower()
        if wanted not in _LOSS_POLICIES:
            expected = "ignore, report or error"
            raise InvalidRequest(f"expected {expected}, found {said!r}", path=POLICY, expected=expected, got=repr(said))
        if wanted == "error" and losses:
            unasked = [loss for loss in losses if loss.detail != RESPELLED]
            if unasked:
                raise LossyConversion(unasked, f"the model {self.served.name!r}")
        return wanted == "ignore"

    async def _fitted(self, request: Request, text: str | list[int], losses: list[Loss]) -> tuple[int, int]:
        """The tokens of the prompt, and how many the answer may have."""
        served, said = self.served, limit_of(request)
        tokens = served.estimate(text) + len(served.before) if isinstance(text, str) else len(text)
        if not self.fits:
            return tokens, 1
        path = request.paths.get("max_tokens", "$.max_tokens")
        # What the client did not ask for it does not lose: only its own number is worth a word.
        found = losses if said is not None else []
        wanted = self._within_limit(served.model.max_tokens if said is None else said, path, found)
        context = served.context
        if isinstance(text, str) and context is not None and (wanted or LEAST) > context - tokens * CAREFUL:
            tokens, _ = await served.count(text)
        fit = forcing.fit(wanted, tokens, context, path=path)
        if fit.overflow is not None:
            raise ContextOverflow(fit.overflow.asked, fit.overflow.limit)
        found += fit.losses
        if fit.allowed < 1:
            found.append(Loss(path, "approximated", f"{fit.allowed} became 1: a model writes at least one token"))
        return tokens, max(1, fit.allowed)

    def _within_limit(self, wanted: int | None, path: str, losses: list[Loss]) -> int | None:
        """So many tokens, or as many as an answer of this model may have whatever a request says."""
        limit = self.served.model.max_tokens_limit
        if limit is None or (wanted is not None and wanted <= limit):
            return wanted
        losses.append(Loss(path, "approximated", f"{wanted} became {limit}: the model's limit here"))
        return limit

    def _completion(
        self,
        request: Request,
        text: str | list[int],
        allowed: int,
        own_stops: Sequence[str],
        losses: list[Loss],
        state: str | None,
    ) -> Completion:
        served, model, backend = self.served, self.served.model, self._backend
        sampling = forcing.sampling(request, model.sampling_values, accepts=forcing.accepted(backend))
        visible = [*model.visible, *(served.special_tokens if own_stops else ())]
        losses += sampling.losses
        sent, asked = own_stops, request.settings.stop
        if asked:
            stops = forcing.stops(own_stops, asked, path=request.paths.get("stop", "$.stop"))
            losses += stops.losses
            # One in a call ends nothing. And a client is told at which of its strings a text ended: where the server
            # would not know the difference, or does not say, only we look for them.
            if backend.names_stops and not (own_stops and request.tools):
                sent = forcing.told_stops(stops.sent, own_stops, served.special_tokens if own_stops else ())
        media = {} if self.seeing is None or not isinstance(text, str) else self.seeing.media(text)
        return Completion(
            prompt=text,
            max_tokens=allowed,
            stops=sent,
            model=model.upstream_model or served.facts.asked_as,
            sampling=sampling.values,
            visible=visible,
            state=state,
            media=media,
            before=self._before(losses, media=bool(media)) if model.prepend_tokens and isinstance(text, str) else (),
        )

    def _before(self, losses: list[Loss], *, media: bool) -> Sequence[int]:
        """The tokens before a prompt in text. What the settings want there and the server cannot be told is a loss."""
        before = self.served.before
        if before and not media:
            return before
        why = "`prepend_tokens` cannot stand before a prompt with pictures or sounds" if media else ""
        losses.append(Loss("$.model", "dropped", why or self.served.unprepended))
        return ()

    # A text.

    async def text(self, request: Request) -> Prepared:
        """A request that is a text to go on from, or with a hole to fill. Raises InvalidRequest and ContextOverflow."""
        losses = [*unread(request, texts.HANDLED), *texts.best_of(request)]
        choices = self._choices(request, losses)
        state = await states.chosen(request, self.served) if states.is_named(request, self.served) else None
        session = await self.run(partial(self._session, request, bare=True))
        prompt, suffix = await self.run(partial(texts.prompt, request)), texts.string(request, "suffix")
        stops: Sequence[str] = ()
        words: Sequence[str] = ()
        if suffix == "" and not (self._backend.fills or self.served.format.document.files):
            suffix = None  # nothing stands behind the hole, so it is none
        echo = texts.echoed(request, prompt, fills=suffix is not None, losses=losses)
        wraps = suffix is None and isinstance(prompt, str) and self._wraps
        wrapped = await self.run(partial(self.served.format.prompt, request, thinking=False)) if wraps else None
        if wrapped is not None:
            prompt, stops = wrapped.text, wrapped.stops
            losses += wrapped.losses
        elif suffix is not None and not self._backend.fills:
            fill = texts.filled(self.served.format, prompt, suffix, self.served.model.fill_order)
            words = (f"the hole is written in the order {fill.order!r} of {self.served.format.name}",)
            prompt, stops, suffix = fill.text, fill.stops, None
            losses += fill.losses
        tokens, allowed = await self._fitted(request, prompt, losses)
        ask = self._completion(request, prompt, allowed, stops, losses, state)
        ends = [stop for stop in (*stops, *(request.settings.stop or ())) if stop]
        ask = replace(ask, prompt=prompt, suffix=suffix, stops=ends if wrapped is None else ask.stops)
        client_stops = () if wrapped is None else wrapped.client_stops
        return Prepared(
            request=request,
            served=self.served,
            caller=self.caller,
            ask=ask,
            new_parser=(lambda: TextParser(ends)) if wrapped is None else wrapped.parser,
            new_controls=lambda: Controls(stops=client_stops, outward=[] if echo is None else [texts.Echo(echo)]),
            choices=choices,
            losses=losses,
            tokens=tokens,
            session=session,
            words=words,
            quiet=self._judge(losses, self.caller.policy),
        )

    @property
    def _wraps(self) -> bool:
        """Whether a bare text is what a user says. Else the model goes on from it as it is, as it does from tokens."""
        said = self.served.model.completions
        return self.served.format.document.wraps if said is None else said == "wrap"

    def _session(self, request: Request, beginning: Beginning | None = None, *, bare: bool = False) -> Session:
        """Where a request belongs. What changes from one request to the next, and is not for a model, is out of it."""
        return self.sessions.find(self.headers, request, self.caller.name, beginning, bare=bare)

    @property
    def _backend(self) -> Backend:
        return self.served.pool.members[0].upstream.backend


def _call_policy(policy: Policy) -> CallPolicy:
    return CallPolicy(action=policy.invalid_calls)


def limit_of(request: Request) -> int | None:
    """How many tokens a request lets its answer have, None where it leaves that open."""
    said = request.settings.max_tokens
    return None if said == forcing.NO_LIMIT else said
