"""Owns the service: what lives as long as the gateway does, and how the parts of answering a request come together.

Nobody refuses conversations that are longer than what a model was trained with, and everybody is told. A recurrent
model has no context that could be full: it reads on, and what it makes of it gets worse without a word.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from time import monotonic, time

from msgspec.structs import replace

from turnscript.apis.serving import ModelCard, Serving, check
from turnscript.core.conversation import Issue, Request, Usage
from turnscript.core.errors import InvalidInput, Overloaded, TooLarge, TurnscriptError, Unsupported, UpstreamError
from turnscript.core.losses import Loss
from turnscript.gateway.aside import GRAMMAR_TAKES, LARGE, Aside
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import Reloader
from turnscript.gateway.database import Bounds, Database
from turnscript.gateway.divergence import Diagnosis
from turnscript.gateway.forcing import check_answer
from turnscript.gateway.generation import Generation, Outcome
from turnscript.gateway.headers import Told, random_hex
from turnscript.gateway.keeping import Apart, Keeping
from turnscript.gateway.limits import Caller, Callers, Room
from turnscript.gateway.logs import say, set_up
from turnscript.gateway.memory import SCHEMA as MEMORY
from turnscript.gateway.memory import Memory
from turnscript.gateway.metrics import Metrics
from turnscript.gateway.outlet import Heart
from turnscript.gateway.preparing import Leaned, Preparation, Prepared
from turnscript.gateway.relay import Relaying
from turnscript.gateway.reports import PATH, Reported, Reports
from turnscript.gateway.scoring import unscored
from turnscript.gateway.served import Served, served_models
from turnscript.gateway.sessions import Prefix, Prefixes, Sessions
from turnscript.gateway.signing import former_keys, held, may_hold, signing_key
from turnscript.gateway.store import SCHEMA as STORE
from turnscript.gateway.store import Store
from turnscript.gateway.visit import GONE, Visit

_SESSIONS = 10_000


class Trained:
    """Warns of prompts that are longer than the model's setting `trained_context` says, in the log once a session."""

    def __init__(self, sessions: int = _SESSIONS) -> None:
        self._most = sessions
        self._warned: OrderedDict[str, None] = OrderedDict()

    def warn(self, request_id: str, prepared: Prepared, told: Told) -> None:
        """Say so of a prompt that is too long for it, in what its answer tells of itself and in the log."""
        served, tokens = prepared.served, prepared.tokens
        trained = served.model.trained_context
        if trained is None or tokens <= trained:
            return
        told.trained = f"{tokens}/{trained}"
        session = prepared.session.key
        known = session in self._warned
        self._warned[session] = None
        self._warned.move_to_end(session)
        while len(self._warned) > self._most:
            self._warned.popitem(last=False)
        if not known:
            say(
                logging.WARNING,
                "longer than trained",
                request=request_id,
                model=served.name,
                session=session,
                tokens=tokens,
                trained=trained,
            )


def _unkept(serving: Serving, request: Request) -> list[Loss]:
    """Return what is lost where a client wants its answer kept, and the API has no path that gives one again."""
    wanted = request.settings.store and serving.stored is None
    return [Loss("$.store", "dropped", "answers of this API are not kept")] if wanted else []


def warnings(told: Told) -> list[str]:
    """What the report of an answer says of it."""
    if not told.trained:
        return []
    tokens, _, trained = told.trained.partition("/")
    return [f"the prompt has about {tokens} tokens, and the model was trained with {trained}: it may answer worse"]


CLIENT_GONE = 499
"""The status, in the log, of what nobody was there to be told."""
STALL = 120.0
"""Seconds that a client may take nothing of a stream that has something for it."""
STRAY = "stray_line"
PATIENCE = 2.0
"""Seconds that a start may take without a word about what it waits for."""
AGAIN = 5.0
"""Seconds until servers that did not answer are asked again."""
_BROKEN = (InvalidInput, Unsupported)
"""What is wrong with a model that cannot be run here at all, such as a damaged file: waiting does not mend it."""


class Service:
    """The gateway without its sockets. `start` before anything is asked, `stop` after everything."""

    def __init__(self, config: Config, reloader: Reloader | None = None) -> None:
        self.config = config
        self.visits: set[Visit] = set()
        self.draining = False
        self.metrics = Metrics()
        self.room = Room(config.server, self.metrics.crowded.add)
        self.reports = Reports()
        self.heart = Heart(config.server.keepalive, STALL)
        self._reloader = reloader
        self._created = int(time())
        self._callers = Callers(config)
        self._models = {served.name: served for served in served_models(config, self._created)}
        self._signing_key, self._former_keys = signing_key(config.signing), former_keys(config.signing)
        self._tasks: set[asyncio.Task[object]] = set()
        self._asked: set[Served] = set()  # those whose servers do not answer
        self._stray: set[str] = set()  # the servers that send lines which nobody understands
        kept = config.memory
        self._databases = [] if kept.path is None else [Database(kept.path, MEMORY, Bounds(kept.size, kept.ttl))]
        self.memory = Memory(self._databases[0] if self._databases else None, ttl=kept.ttl)
        store = config.store
        self._databases.append(Database(store.path, STORE, Bounds(store.size, store.ttl), store.unavailable))
        self.aside = Aside()
        self.keeping = Keeping(Store(self._databases[-1]), self.aside)
        self.sessions = Sessions()
        self.prefixes = Prefixes()
        self.diagnosis = Diagnosis()
        self.trained = Trained()
        self.apart = Apart(self.keeping)

    # Its life.

    async def start(self) -> None:
        """Open what is kept, and ask the models' servers what they are. Those that do not answer are asked later.

        Raises InvalidInput or Unsupported for a model that cannot be run here at all.
        """
        await self.keeping.mend()
        errors = await asyncio.gather(*map(self._get_ready, self._models.values()))
        broken = next((error for error in errors if isinstance(error, _BROKEN)), None)
        if broken is not None:
            raise broken
        for served, error in zip(self._models.values(), errors, strict=True):
            if error is not None:
                self._run(self._ask_later(served))

    async def _get_ready(self, served: Served) -> TurnscriptError | None:
        """Ask a model's servers what they are. Returns why they cannot be asked."""
        waited = asyncio.get_running_loop().call_later(PATIENCE, served.say_waiting)
        try:
            await served.ready()
        except TurnscriptError as error:
            where = ", ".join(str(address) for address in served.model.backend)
            say(logging.WARNING, "model not ready", model=served.name, backend=where, error=str(error))
            return error
        finally:
            waited.cancel()
        return None

    async def _ask_later(self, served: Served) -> None:
        """Ask a model's servers until one answers, whether a request comes or not: `/health` tells of them."""
        if served in self._asked:
            return
        self._asked.add(served)
        try:
            while self._models.get(served.name) is served:
                await asyncio.sleep(AGAIN)
                with suppress(TurnscriptError):
                    await served.ready()
                    return
        finally:
            self._asked.discard(served)

    async def _get_ready_later(self, served: Served) -> None:
        if await self._get_ready(served) is not None:
            await self._ask_later(served)

    async def stop(self) -> None:
        """Close everything."""
        self.apart.cancel_all(Overloaded("the gateway is shutting down; try again", retry_after=2.0))
        await self.apart.settle()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.heart.stop()
        await asyncio.gather(*(served.close() for served in self._models.values()))
        for database in self._databases:
            await database.close()
        self.aside.close()

    def drain(self) -> None:
        """Take nothing new."""
        self.draining = True

    def end_answers(self) -> None:
        """End the answers that still go on, each with the error that its API has for it."""
        error = Overloaded("the gateway is shutting down; try again", retry_after=2.0)
        for visit in list(self.visits):
            if not visit.follows:
                visit.give_up(error, "shutdown")
        self.apart.cancel_all(error)

    def reload(self) -> None:
        """Read the configuration and the keys again. Models that are still the same keep their servers."""
        self._callers.reload()
        if self._reloader is None:
            return
        self._reloader.reload(self._take)
        for sentence in self._reloader.report.sentences:
            failed = self._reloader.report.error is not None
            say(logging.ERROR if failed else logging.INFO, "configuration", said=sentence)

    def _take(self, config: Config) -> None:
        """Put a configuration in force. Raises InvalidConfig for a bad file of keys, before anything has changed."""
        callers, models = Callers(config, self._callers), served_models(config, self._created)
        old, self.config = self._models, config
        self._callers = callers
        self.heart.interval = config.server.keepalive
        self.room.change(config.server)
        set_up(config.logs.level, as_json=config.logs.json, redact=config.logs.redact)
        gone = list(old.values())
        self._models = {}
        for fresh in models:
            known = next((served for served in gone if served.is_as(fresh)), None)
            if known is not None:
                gone.remove(known)
                known.limit(config.limits)
            self._models[fresh.name] = known or fresh
        for served in gone:
            self._run(self._close_later(served))
        for served in self._models.values():
            self._run(self._get_ready_later(served))

    async def _close_later(self, served: Served) -> None:
        """Let go of a model that nobody asks any more; some may just be about to."""
        idle = 0
        try:
            while idle < 2:
                await asyncio.sleep(0.25)
                idle = idle + 1 if not served.users else 0
        finally:  # the gateway may stop first
            await served.close()

    def _run(self, work: Coroutine[None, None, object]) -> None:
        """Do something that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # What is there.

    def served_for(self, name: str | None) -> Served:
        """The model that a client means. Raises UnknownName."""
        named = self._models.get(name or "")  # as most requests name it
        return self._models[self.config.model_for(name).name] if named is None else named

    async def _ready(self, visit: Visit, served: Served) -> None:
        """Wait until a model can be asked. Raises UpstreamError where no server of it can be.

        A damaged file is no fault of the client, who is not told where on this machine it is either.
        """
        try:
            await served.ready()
        except UpstreamError as error:
            where = ", ".join(str(address) for address in served.model.backend)
            self.note_failure(visit.request_id, served.name, error, where)
            raise
        except _BROKEN as error:
            say(logging.WARNING, "model not ready", model=served.name, error=str(error))
            message = f"the model {served.name!r} cannot be run; the log of this server says why"
            raise UpstreamError(message) from None

    def models(self) -> list[Served]:
        """All models."""
        return list(self._models.values())

    def cards(self) -> list[ModelCard]:
        """The models as lists show them."""
        return [card for served in self._models.values() for card in served.cards()]

    def health(self) -> dict[str, object]:
        """Of each model, whether a server of it answers, and how busy it is."""
        return {name: served.health() for name, served in self._models.items()}

    @property
    def storage(self) -> dict[str, str]:
        """What cannot be kept as it is to be, and the kind of failure."""
        names = ("memory", "store")[-len(self._databases) :]
        return {name: one.trouble for name, one in zip(names, self._databases, strict=True) if one.trouble}

    def metrics_text(self) -> bytes:
        """The metrics as they are now."""
        self.metrics.held.put(self.room.taken)
        self.metrics.holdable.put(self.room.most)
        self.metrics.waiting.clear()  # of models and servers that were taken away
        self.metrics.backend_up.clear()
        self.metrics.slot_files.clear()
        for served in self._models.values():
            self.metrics.waiting.put(served.waiting, served.name)
            for url, up in served.servers():
                self.metrics.backend_up.put(up, served.name, url)
            for url, done in served.slot_files():
                for what, count in done.items():
                    self.metrics.slot_files.put(count, served.name, url, what)
        return self.metrics.text()

    def report(self, caller: Caller, request_id: str) -> bytes:
        """The report of an answer."""
        return self.reports.body(request_id, caller.name)

    # A request.

    def admit(self, headers: dict[str, str], *, counted: bool = True) -> Caller:
        """Who asks. Raises Unauthorized or Forbidden, Overloaded while the gateway shuts down, RateLimited where it is
        too often."""
        caller = self._callers.caller(headers)
        if self.draining:
            raise Overloaded("the gateway is shutting down; try again", retry_after=2.0)
        if counted:
            caller.budget.admit()
        return caller

    async def prepare(
        self,
        visit: Visit,
        caller: Caller,
        body: bytes,
        *,
        fits: bool = True,
        wish: Callable[[Request], None] | None = None,
    ) -> Prepared:
        """A request ready to be answered, which its client's leaving ends; `wish` alters it. Raises what it is told."""
        serving, share, most = visit.api.serving, visit.share, self.config.server.max_body
        assert share is not None  # its body has been read
        size, parse = len(body), visit.api.parse_request
        request = parse(body) if size < LARGE else await self.aside.run(size)(partial(parse, body))
        check(serving, request, asks=fits)
        if wish is not None:
            wish(request)
        settings = request.settings
        served = visit.hold(self.served_for(settings.model))
        if served.known:
            served.fit_gate()
        else:
            await self._ready(visit, served)
        visit.watch()  # not before: others wait for the same model to be ready
        if not settings.model:
            settings.model = served.name  # an answer says who gave it
        leaned = Leaned({}, None, size)
        if serving.stored is not None:
            self.apart.check_over(caller.name, serving.stored.previous(request))
            leaned = await self.keeping.complete(serving.stored, request, caller.name, share, most)
        if leaned.size >= LARGE or may_hold(request):  # what is large is looked through elsewhere
            leaned = await self._unpacked(request, serving, leaned)
        if leaned.size > size:  # the body has its share already
            share.take(leaned.size)
        preparation = (Relaying if served.model.relays else Preparation)(
            served=served,
            caller=caller,
            headers=visit.headers,
            memory=self.memory,
            signing_key=self._signing_key,
            former_keys=self._former_keys,
            sessions=self.sessions,
            serving=serving,
            fits=fits,
            run=self.aside.run(leaned.size),
            hold=self.aside.run(leaned.size * GRAMMAR_TAKES),
        )
        prepared = await (preparation.text(request) if serving.bare else preparation.conversation(request))
        prepared.leaned, prepared.body, prepared.streams = leaned, body, bool(settings.stream)
        prepared.call_ids = serving.call_ids is None or serving.call_ids(request)
        if serving.stored is not None:
            prepared.keep = serving.stored.asks(request)
            prepared.detached = serving.stored.detached(request) and fits
        prepared.lose(_unkept(serving, request))
        id_ = f"{serving.id_prefix}{random_hex(16)}"
        prepared.reply = prepared.head_of_answer(id_, caller.policy, visit.request_id)
        if prepared.keep:
            await self._check_kept(prepared, fits)
            self.sessions.note(prepared.session, id_, caller.name)
        if (prefix := self._measure(visit, prepared, fits)) is not None and (serving.diagnosing or prefix.parts):
            await self.diagnosis.look(visit, prepared, prefix, self.prefixes, preparation.run)
        return prepared

    async def _check_kept(self, prepared: Prepared, fits: bool) -> None:
        """Raises StorageUnavailable where an answer could not be kept, before anybody works on it. `fits`: it is more
        than a count."""
        if fits and (said := await self.keeping.store.ask()):
            prepared.lose([Loss("$.store", "approximated", said)])

    async def _unpacked(self, request: Request, serving: Serving, leaned: Leaned) -> Leaned:
        """What a request leans on with what its seals hold. Raises TooLarge where that is more than is read. Each step
        is done where its own size belongs."""
        room = self.config.server.max_body - leaned.size
        look = partial(held, request, serving.compacting, min(room, LARGE))
        size = look() if leaned.size < LARGE else await self.aside.run(leaned.size)(look)
        if LARGE < size <= room:
            size = await self.aside.run(size)(partial(held, request, serving.compacting, room))
        if size > room:
            raise TooLarge(self.config.server.max_body, what="the request, with what is sealed in it,")
        return replace(leaned, size=leaned.size + size) if size else leaned

    def _measure(self, visit: Visit, prepared: Prepared, fits: bool) -> Prefix | None:
        """How much of the prompt was there before, for the headers."""
        told, text = prepared.told, prepared.ask.prompt
        told.report = PATH + visit.request_id
        prepared.note_losses()
        if fits:
            self.trained.warn(visit.request_id, prepared, told)
        if prepared.prompt is not None and isinstance(text, str) and fits:
            prefix = self.prefixes.measure(prepared.session.thread, text)
            told.reused, told.total = prefix.reused, prefix.total
            return prefix
        return None

    async def tokens(self, prepared: Prepared) -> tuple[int, bool]:
        """How many tokens a prompt has, and whether that is exact: nobody can be asked for those of a picture."""
        text, headers = prepared.ask.prompt, prepared.ask.headers
        count, exact = await prepared.served.count(text, headers) if isinstance(text, str) else (len(text), True)
        return count, exact and not prepared.ask.media

    async def finish(self, visit: Visit, prepared: Prepared, generation: Generation) -> bytes:
        """Keep what is to be kept of an answer, before its client is told that it is whole. Returns it as a body."""
        self.conclude(prepared, generation)
        prepared.losses += generation.lost()
        body, later = b"", 0
        if prepared.keep or not prepared.streams or prepared.detached:
            rendered = visit.api.render_response(generation.response, prepared.request, reply=prepared.reply)
            if prepared.streams:
                later = len(rendered.losses)
            else:
                prepared.losses += generation.untold(rendered.losses)
            prepared.note_losses()
            body = rendered.data
        if prepared.keep and not prepared.detached:
            await self.keeping.keep(visit.api, prepared, body, later=later)
        return body

    def conclude(self, prepared: Prepared, generation: Generation) -> None:
        """An answer is complete: what was found about it, and the model's own text, for when it comes back."""
        response = generation.response
        prepared.ended.at = int(time())
        if prepared.shape is not None or generation.findings:
            prepared.findings = [*generation.findings, *check_answer(response, prepared.shape)]
        if generation.scoring is not None:
            prepared.lose(unscored(prepared.request, response, generation.scoring))
        if prepared.prompt is not None and prepared.recalled is not None:
            own, ids = generation.own, prepared.call_ids
            self.memory.remember(prepared.recalled, own, prepared.prompt, ids=ids)

    def note_failure(self, request_id: str, model: str, error: UpstreamError, url: str) -> None:
        """Count and log that a server has failed, whether or not another one could do it."""
        self.metrics.backend_errors.add(model, error.code)
        said = str(error) if not (error.body and self.config.logs.redact) else "see the answer's error"
        say(
            logging.WARNING,
            "backend failed",
            request=request_id,
            model=model,
            url=url,
            code=error.code,
            status=error.upstream,
            error=said,
        )

    def note_stray(self, visit: Visit, model: str, line: str, url: str) -> None:
        """Report that a server has sent a line that no reader of events understands; the log says so once of each."""
        said = f"the model server sent what is no part of a stream of events: {line[:100]!r}"
        visit.strays.append(Issue(STRAY, said))
        if url not in self._stray:
            self._stray.add(url)
            why = "it sends lines that are no part of a stream of events; the reports of its answers show the first"
            say(logging.WARNING, "lines passed over", request=visit.request_id, model=model, url=url, why=why)

    def note_end(self, visit: Visit) -> None:
        """Count and log a request that is over."""
        prepared, generation = visit.prepared, visit.generation
        if visit.ended_by in GONE:
            visit.status = CLIENT_GONE
        api, model = visit.api.name, visit.model or "none"
        age, used = visit.age, None if generation is None else generation.used
        counts = self.metrics.of(api, model)
        counts.ended(visit.status, age)
        if prepared is not None:
            counts.running.add(-1)
        if visit.place is not None:
            self.metrics.note_waiting(model, visit.place, visit.waited)
        if visit.ended_by not in ("", "itself") and not visit.follows:
            self.note_cancelled(visit, visit.ended_by)
        if generation is not None and generation.first is not None:
            counts.first_token.observe(generation.first - visit.began)
        if prepared is not None and generation is not None and not prepared.detached:
            self.note_answer(visit, prepared, generation, used)
        say(
            logging.INFO,
            "answered",
            request=visit.request_id,
            path=visit.path,
            model=model,
            status=visit.status,
            by=visit.ended_by,
            seconds=round(age * 10_000) / 10_000,  # to so many digits, Python's own takes twice the time
            input=used.input if used else None,
            output=used.output if used else None,
            losses=visit.told.losses,
            prefix=f"{visit.told.reused}/{visit.told.total}",
            error=None if visit.error is None else visit.error.code,
        )

    def note_cancelled(self, visit: Visit, reason: str) -> None:
        """Count an answer that was broken off."""
        self.metrics.cancelled.add(visit.api.name, visit.model or "none", reason)

    def note_count(self, visit: Visit, prepared: Prepared, tokens: int) -> None:
        """Keep the report of a request whose tokens were counted, and that was not answered."""
        owner, losses = prepared.caller.name, prepared.reported
        self.reports.keep(visit.request_id, Reported(owner, visit.model, losses, usage={"input": tokens}))

    def note_answer(self, visit: Visit, prepared: Prepared, generation: Outcome, used: Usage | None = None) -> None:
        """Count what an answer took, and keep its report. `used`: its tokens, if they are at hand."""
        text = prepared.ask.prompt
        if prepared.prompt is not None and isinstance(text, str):
            self.prefixes.answered(prepared.session.thread, text, generation.text)
        metrics, model, usage = self.metrics, visit.model, used or generation.used
        counts = metrics.of(visit.api.name, model)
        counts.input.add(usage.input)
        counts.output.add(usage.output)
        prepared.caller.budget.use(usage.input + usage.output)
        response, told, findings = generation.response, prepared.told, prepared.findings
        issues, losses = [*response.issues, *visit.strays], prepared.reported
        metrics.count_each(metrics.losses, visit.api.name, losses)
        metrics.count_each(metrics.issues, model, issues)
        metrics.count_each(metrics.findings, model, findings)
        if told.total:
            counts.reuse.observe(told.reused / told.total)
        took = monotonic() - (generation.first or visit.began)
        if usage.output > 1 and took > 0:
            counts.speed.observe(usage.output / took)
        if usage.input and isinstance(text, str) and generation.counted and not prepared.ask.media:
            prepared.served.learn_ratio(len(text), usage.input)
        reported = Reported(
            caller=prepared.caller.name,
            model=model,
            losses=losses,
            findings=findings,
            issues=issues,
            reused=told.reused,
            total=told.total,
            usage=usage,
            finish_reason=response.finish_reason,
            answer=prepared.reply.id,
            session=prepared.session.key,
            warnings=warnings(told) if told.trained else (),
            words=[*prepared.served.sentences, *prepared.words],
        )
        self.reports.keep(visit.request_id, reported)
