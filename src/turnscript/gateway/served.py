"""Owns a model that is served: its servers, the wire they speak, its prompt format, and how many tokens texts have.

What the configuration leaves open the servers tell: which kind they are, how long their context is, which model they
run and so which format it takes. They are asked when the gateway starts, again with the next request if they did not
answer then, and with each check of their health: a server may be started anew with another context, or another model.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from secrets import token_urlsafe
from time import monotonic

from msgspec.structs import asdict, replace

from turnscript.apis.serving import ModelCard
from turnscript.backends.backend import Backend, Facts
from turnscript.convert.registry import get_backend
from turnscript.core.errors import InvalidInput, UpstreamError
from turnscript.formats.format import Format
from turnscript.gateway.addresses import EMBEDDED, Address
from turnscript.gateway.config import Config, Limits, Model
from turnscript.gateway.embedded import Embedded, clock, free_memory, in_bytes, planned
from turnscript.gateway.forcing import accepted, takes_grammars, untaken
from turnscript.gateway.kinds import AUTO
from turnscript.gateway.limits import Gate, Tell
from turnscript.gateway.logs import say
from turnscript.gateway.modelformat import template_of, told_apart
from turnscript.gateway.nearness import sentences
from turnscript.gateway.pool import Member, Pool
from turnscript.gateway.recognizing import generic, taken_for
from turnscript.gateway.replay import Replay
from turnscript.gateway.sessions import SlotFiles
from turnscript.gateway.upstream import Timeouts, Upstream

_FIRST_GUESS = 3.5
"""Characters in a token, until a server has counted some."""
_WEIGHT = 0.2
_ASK_AGAIN = 5.0
"""Seconds until a server that has told nothing of itself is asked again."""
_PATIENCE = 0.1
"""Seconds that a request waits for that."""
_NOTHING = Facts()
"""What a server has told that has told nothing."""


class Served:
    """One model. `ready()` before anything else; `format`, `context` and `pool` are known then."""

    def __init__(self, model: Model, config: Config, created: int) -> None:
        self.configured = model
        self.model = model
        self.created = created
        self.gate = Gate(config.limits, None, f"the model {model.name!r}")
        self.held_up = 0  # requests that wait for their key's turn
        self.users = 0  # requests and background answers that have it, wherever they wait
        self._limits = config.limits
        self._told = config.server.keys is None and not config.server.public  # or strangers learn where it runs
        self._engines: list[Embedded] = []
        self._pool: Pool | None = None
        self._facts = Facts()
        self._teller: Upstream | None = None
        self._attempts = 0
        self._refused = False
        self._mute: set[str] = set()  # servers that have just been waited for in vain
        self._tags: tuple[Format, list[str]] | None = None
        self._sentences: tuple[Model, list[str]] | None = None
        self._words: tuple[Format, str] | None = None
        self._ask_again = 0.0
        self._learning: asyncio.Task[None] | None = None
        self._characters = _FIRST_GUESS
        self.counts_tokens = False
        self.limit(config.limits)

    def limit(self, limits: Limits) -> None:
        """How many requests run and wait, from now on."""
        self._limits = limits
        for member in self._pool.members if self._pool is not None else ():
            member.max_running = self._most_running
        self.fit_gate()

    @property
    def _most_running(self) -> int | None:
        """How many requests a server is given at a time, as far as the settings say."""
        said = (self._limits.backend_running, self.model.slots)
        return min((most for most in said if most is not None), default=None)

    def fit_gate(self) -> None:
        """Let in as many requests as the servers that are up do at once. What waits for a slot waits here: there, it
        may change the answer that is made in that slot."""
        self.gate.change(self._limits, self._pool.capacity if self._pool is not None else None)

    def turn(self, first: Gate, tell: Tell | None = None) -> Turn:
        """A context: inside, it is the turn of a request, that of its key, `first`, and then that of the model. `tell`
        is told of its place while it waits for either."""
        return Turn(self, first, tell)

    @property
    def waiting(self) -> int:
        """How many requests for it wait, whichever limit holds them up."""
        return self.held_up + self.gate.waiting

    def say_waiting(self) -> None:
        """Without this, a start that waits for a server that is mute looks like one that hangs."""
        where = ", ".join(str(one) for one in self.model.backend)
        say(logging.INFO, "waiting for the model", model=self.name, backend=where)

    def is_as(self, other: Served) -> bool:
        """Whether another one is configured in the same way. A format is what the settings say, made anew each time."""
        mine, its = (
            replace(served.configured, takes=None, reads=None, why="", guessed=False, own={})
            for served in (self, other)
        )
        return bool(mine == its) and self._told == other._told

    @property
    def name(self) -> str:
        """The model's name in the configuration."""
        return self.model.name

    @property
    def pool(self) -> Pool:
        """Its servers."""
        assert self._pool is not None, "ready() was not called"
        return self._pool

    @property
    def context(self) -> int | None:
        """How many tokens a conversation may have, None if nobody knows."""
        embedded = min((engine.context for engine in self._engines), default=None)
        return embedded or self.model.context or self._facts.context

    @property
    def facts(self) -> Facts:
        """What its servers have said of themselves."""
        return self._facts

    @property
    def format(self) -> Format:
        """The format of its prompts. Raises InvalidInput if nothing has told it, UpstreamError if its servers would."""
        takes = self.model.takes
        if takes is None and self.wants_key:
            raise UpstreamError("the model server asks for a key (check the key that the gateway has for this server)")
        if takes is None:
            message = f"nothing tells which prompt format the model {self.name!r} takes"
            remedy = 'start the gateway with `--format NAME`, or say `format = "NAME"` in its configuration'
            raise InvalidInput(f"{message}: {remedy}")
        return takes

    @property
    def words(self) -> str:
        """Return what tells the words of its prompts from those of another template, for what is remembered of them."""
        format_ = self.format
        if self._words is None or self._words[0] is not format_:
            self._words = format_, told_apart(format_)
        return self._words[1]

    @property
    def sentences(self) -> list[str]:
        """Return what people are told of the words of its prompts."""
        if self._sentences is None or self._sentences[0] is not self.model:
            self._sentences = self.model, sentences(self.model)
        return self._sentences[1]

    @property
    def shortfalls(self) -> list[str]:
        """Return what its settings ask for and its servers do not do, each a sentence for people."""
        asked = self.model.sampling_values
        missing: dict[str, str] = {}
        for backend, _ in self.backends():
            for name in untaken(asked, accepted(backend)):
                missing.setdefault(f"{name} {asked[name]:g}", backend.title)
        told = [f"its sampling has {said}, which {title} does not take" for said, title in missing.items()]
        if self._pool is not None and self.before != self.model.prepend_tokens:
            told.append(f"{self.unprepended}, so they are left out")
        return told

    @property
    def before(self) -> tuple[int, ...]:
        """The tokens that stand before a prompt in text; none where its servers cannot be told."""
        wanted = self.model.prepend_tokens
        return wanted if wanted and any(member.upstream.prepends for member in self.pool.members) else ()

    @property
    def unprepended(self) -> str:
        """Return why the tokens that are to stand before a prompt do not."""
        backend = self.pool.members[0].upstream.backend
        said = list(self.model.prepend_tokens)
        return f"`prepend_tokens` {said} cannot be told to {backend.title} that have no tokenizer to ask"

    @property
    def special_tokens(self) -> list[str]:
        """The tags of the format."""
        format_ = self.format
        if self._tags is None or self._tags[0] is not format_:
            self._tags = format_, format_.special_tokens
        return self._tags[1]

    @property
    def known(self) -> bool:
        """Whether all is known of its servers that anybody waits for, as it is for most requests."""
        model = self.model
        return self._pool is not None and model.settles and (model.context is not None or not self._is_mute())

    def _is_mute(self) -> bool:
        """Whether its servers have told nothing of themselves, and are to be asked again."""
        return self._facts == _NOTHING and monotonic() >= self._ask_again

    async def ready(self) -> Served:
        """The same, once what is needed is known of the servers. Raises UpstreamError where none answers yet.

        What would only be good to know nobody waits for: a server that is busy may say nothing for minutes.
        """
        if self._pool is None or not self.model.settles:
            await asyncio.shield(self._learned())
        elif not self.known:
            self._ask_again = monotonic() + _ASK_AGAIN
            await asyncio.wait((self._learned(),), timeout=_PATIENCE)
        self.fit_gate()
        return self

    def _learned(self) -> asyncio.Task[None]:
        """What its servers are asked now. All who wait for it get what comes of it: a server that is mute would keep
        each of them for as long again."""
        if self._learning is None or self._learning.done():
            self._learning = asyncio.get_running_loop().create_task(self._learn())
            self._learning.add_done_callback(_noted)
        return self._learning

    async def _learn(self) -> None:
        self._attempts += 1
        if self._pool is None:
            members = [self._member(upstream) for upstream in await self._upstreams()]
            self._pool = Pool(members, renewed=self._heed)
            await self._pool.__aenter__()
            backend = self._pool.members[0].upstream.backend
            self.counts_tokens = (backend.count_call("{}") if backend.endpoint else backend.tokens_call("")) is not None
        if self._facts == Facts():
            told = await _first_told([member for member in self._pool.members if member.upstream.url not in self._mute])
            self._mute.clear()  # they are asked the next time
            if told is not None:
                member, facts = told
                await member.learn()  # or the first conversation begins in a place that nobody knows
                await self._taken(member, facts)

    async def _taken(self, member: Member, facts: Facts) -> None:
        """Take what a server says of itself. Reading a template may take a second, and other models go on meanwhile."""
        model = await asyncio.to_thread(self._modelled, facts, member.upstream.url)
        self._take(member, facts, model)

    def _modelled(self, facts: Facts, url: str) -> Model:
        """Return the model as it is with what its server says."""
        if self.model.relays:
            return self.configured
        names = [str(one.path) for one in self.configured.backend if not one.is_web]
        inside = next((str(engine.path) for engine in self._engines if engine.url == url), url)
        sought = template_of(facts, inside, [*names, self.configured.upstream_model or ""])
        return self.configured.told(facts, sought)

    def _take(self, member: Member, facts: Facts, model: Model) -> None:
        """What a server says of itself holds from now on: its context, and its model where nothing else says which."""
        late = self._attempts > 1 or self._teller is not None
        self._teller, self._facts, self.model = member.upstream, facts, model
        self.model = self.model.begun_by(facts)
        if late:  # whoever started the server now, or anew, waits for this line
            takes = self.model.takes
            told = {"context": self.context, "format": takes.name if takes is not None else None, "why": self.model.why}
            say(logging.INFO, "model ready", model=self.name, server=facts.model, **told)

    async def _heed(self, member: Member) -> None:
        """A server has said what it is by now. It counts if its word did before."""
        facts = member.upstream.known
        if self._teller is member.upstream and facts not in (Facts(), self._facts):
            await self._taken(member, facts)
        self.fit_gate()

    def slot_files(self) -> list[tuple[str, Mapping[str, int]]]:
        """Its servers that keep what was in their slots, and how often each of them did what."""
        members = self._pool.members if self._pool is not None else ()
        return [(member.upstream.url, member.files.done) for member in members if member.files is not None]

    def _member(self, upstream: Upstream) -> Member:
        most = self.model.saved_slots
        return Member(upstream, self._most_running, SlotFiles(upstream, most) if most else None)

    async def _upstreams(self) -> list[Upstream]:
        """Its servers. One that does not answer yet is taken for what the others are: they serve the same model."""
        asked = [self._upstream(address) for address in self.model.backend]
        found = await asyncio.gather(*asked, return_exceptions=True)
        known = next((one.backend for one in found if isinstance(one, Upstream)), None)
        upstreams: list[Upstream] = []
        for address, one in zip(self.model.backend, found, strict=True):
            if isinstance(one, BaseException):
                if known is None or not isinstance(one, UpstreamError):
                    raise one
                upstreams.append(self._over_the_web(address.target, known))
            else:
                upstreams.append(one)
        return upstreams

    def _over_the_web(self, url: str, backend: Backend) -> Upstream:
        timeouts = Timeouts(**asdict(self.model.timeouts))
        return Upstream(url, self._wire(backend), self._key, timeouts, headers=self._headers, told=self._told)

    def _wire(self, backend: Backend) -> Backend:
        """The wire of its kind, as the settings say that this deployment has it. Raises InvalidInput for what it has
        not."""
        model = self.model
        if model.state is not None and not backend.begins:
            message = f"the model {self.name!r} is to begin from a state, and its server is taken for {backend.title}"
            raise InvalidInput(f'{message}, which has none: say `kind = "ai00"` if it has, or leave out `state`')
        if model.prepend_tokens and backend.no_ids:
            message = f"tokens are to stand before the prompts of {self.name!r}, and its server is taken for"
            raise InvalidInput(f"{message} {backend.title}: {backend.no_ids}. Leave out `prepend_tokens`")
        if model.saved_slots and not backend.keeps:
            message = f"the slots of {self.name!r} are to be saved, and its server is taken for {backend.title}"
            raise InvalidInput(f"{message}, which saves none: leave out `saved_slots`")
        return backend.configured(extra=model.extra, drop=model.drop, also=model.also)

    @property
    def _key(self) -> str | None:
        return self.model.key.reveal() if self.model.key is not None else None

    @property
    def _headers(self) -> dict[str, str]:
        return {name: value.reveal() for name, value in self.model.sends.items()}

    async def _upstream(self, address: Address) -> Upstream:
        model = self.model
        if address.is_web:
            taken = await taken_for(address.target, model.kind, self._key, self._headers, told=self._told)
            self._refused = self._refused or taken.refused
            upstream = self._over_the_web(taken.url, taken.backend)
            if taken.mute:
                self._mute.add(upstream.url)
            return upstream
        if str(address).startswith(EMBEDDED):
            key = token_urlsafe()
            engine = await asyncio.to_thread(self._embedded, address.path, key)
            self._engines.append(engine)
            taken = await taken_for(engine.url, model.kind, key)
            wire, timeouts = self._wire(taken.backend), Timeouts(**asdict(model.timeouts))
            return Upstream(engine.url, wire, key, timeouts, told=self._told)
        return Replay(address.path, self._wire(generic() if model.kind == AUTO else get_backend(model.kind)))

    def _embedded(self, path: Path, key: str) -> Embedded:
        """Load a model, and tell what it gets: it may take minutes, and gigabytes."""
        model = self.model
        plan = planned(path, context=model.context, slots=model.slots, free=free_memory())
        gets = {"context": plan.context, "slots": plan.slots}
        sizes = {"size": in_bytes(plan.size), "memory": in_bytes(plan.memory)}
        level = logging.WARNING if plan.cut else logging.INFO
        say(level, "loading the model", model=model.name, file=str(path), **sizes, **gets, why=plan.why)
        began = monotonic()
        with clock(path, plan.size + plan.memory):
            engine = Embedded(path, context=plan.context, parallel=plan.slots, key=key, keeps=model.saved_slots > 0)
        say(logging.INFO, "model loaded", model=model.name, seconds=round(monotonic() - began, 1), **gets)
        return engine

    async def close(self) -> None:
        """Let go of the servers; engines that run in here are stopped."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.gather(self._learning, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()
            self._pool = None
        for engine in self._engines:
            await asyncio.to_thread(engine.close)
        self._engines = []

    def health(self) -> dict[str, object]:
        """How it is, in short."""
        up = [up for _, up in self.servers()]
        return {
            "up": any(up),
            "servers": len(self.model.backend),
            "running": self.gate.running,
            "waiting": self.waiting,
        }

    def servers(self) -> list[tuple[str, bool]]:
        """Its servers, and whether each answers. None before they were first asked."""
        members = self._pool.members if self._pool is not None else ()
        return [(member.upstream.url, member.healthy) for member in members]

    @property
    def wants_key(self) -> bool:
        """Whether a server of its refuses to tell of itself for want of a key."""
        members = self._pool.members if self._pool is not None else ()
        return self._refused or any(member.upstream.wants_key for member in members)

    # Tokens.

    def estimate(self, text: str) -> int:
        """About how many tokens a text has."""
        return round(len(text) / self._characters) or 1 if text else 0

    def learn_ratio(self, characters: int, tokens: int) -> None:
        """A server has counted: later estimates are better."""
        if characters > 200 and tokens > 0:
            ratio = min(20.0, max(0.5, characters / tokens))
            self._characters += _WEIGHT * (ratio - self._characters)

    async def count(self, text: str, headers: Mapping[str, str] | None = None) -> tuple[int, bool]:
        """How many tokens a prompt has, and whether that is exact."""
        if self.counts_tokens:
            for member in self.pool.members:
                if member.healthy and (count := await member.upstream.count(text, headers)) is not None:
                    return count + self._more_before, True
        return self.estimate(text) + self._more_before, False

    @property
    def _more_before(self) -> int:
        """How many tokens stand before a prompt beside the one that its server counts."""
        return len(before) - bool(self._facts.adds_bos) if (before := self.before) else 0

    def card(self, name: str | None = None) -> ModelCard:
        """The model as lists show it, under its own name or under an alias."""
        takes = self.model.takes
        thinks = self.model.relays or (takes is not None and not self.model.older)
        answer = self.model.max_tokens_limit or self.context
        shapes = self.model.relays or takes_grammars(self.backends(), self.model)
        return ModelCard(
            id=name or self.name,
            created=self.created,
            context=self.context,
            answer=answer,
            thinks=thinks,
            shapes=shapes,
            sees=self._facts.sees,
        )

    def backends(self) -> Iterator[tuple[Backend, Facts]]:
        """What each of its servers speaks, and what is known of it. None before they were first asked."""
        members = self._pool.members if self._pool is not None else ()
        return ((member.upstream.backend, member.upstream.known) for member in members)

    def cards(self) -> list[ModelCard]:
        """All names under which it can be asked for that are no patterns."""
        plain = [alias for alias in self.model.aliases if "*" not in alias and "?" not in alias]
        return [self.card(), *map(self.card, plain)]


class Turn:
    """The turn of a request: first in its key's gate, then in the model's. A class, because each request has one: a
    generator as a context costs as much as a dozen calls."""

    __slots__ = ("_first", "_served", "_tell")

    def __init__(self, served: Served, first: Gate, tell: Tell | None = None) -> None:
        self._served = served
        self._first = first
        self._tell = tell

    async def __aenter__(self) -> None:
        served = self._served
        if not self._first.passes():
            served.held_up += 1
            try:
                await self._first.enter(self._tell)
            finally:
                served.held_up -= 1
        let_in = served.gate.passes()
        if let_in:
            return
        try:
            await served.gate.enter(self._tell)
            let_in = True
        finally:
            if not let_in:
                self._first.leave()

    async def __aexit__(self, *failed: object) -> None:
        self._served.gate.leave()
        self._first.leave()


async def _first_told(members: Sequence[Member]) -> tuple[Member, Facts] | None:
    """What the first of several servers says of itself that says anything. All are asked at once."""
    asks = [asyncio.ensure_future(member.upstream.facts()) for member in members]
    try:
        for member, ask in zip(members, asks, strict=True):
            facts = await ask
            if facts != Facts():
                return member, facts
        return None
    finally:
        for ask in asks:
            ask.cancel()
        await asyncio.gather(*asks, return_exceptions=True)


def _noted(task: asyncio.Task[None]) -> None:
    """Nobody may wait any more for what a task failed in."""
    if not task.cancelled():
        task.exception()


def served_models(config: Config, created: int) -> list[Served]:
    """The models of a configuration."""
    return [Served(model, config, created) for model in config.models]


__all__: Sequence[str] = ["Served", "served_models"]
