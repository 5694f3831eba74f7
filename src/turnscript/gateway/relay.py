"""Owns passing requests on to a server with a chat API: the body that it is sent, and its answer on the way back.

A request that came in the API that the server speaks goes on as it came, but for what the gateway answers for itself:
the name of the model, what is kept here, and thoughts. Any other one is cleaned as for a prompt, its tools become plain
functions, and the server's API writes it; what that cannot say is a loss. The answer is told as its events come. Its
calls keep their ids; what the server has proved of its thoughts goes to the client in a seal, and comes back from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from hashlib import sha256
from time import monotonic
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from turnscript.apis.api import Api
from turnscript.backends.backend import Backend, Completion, EventPiece, Piece
from turnscript.convert.registry import api_at
from turnscript.convert.verbs import left_out
from turnscript.core.conversation import Conversation, Item, Request, Settings, System, Thinking, ToolCall
from turnscript.core.errors import InvalidRequest, Unsupported, UpstreamError
from turnscript.core.events import Event, MessageEnd, PartDelta, PartEnd, PartStart, fold
from turnscript.core.losses import Loss
from turnscript.core.sealed_thoughts import restore_thoughts, sealed_proofs, unproved
from turnscript.engine.scanner import TextParser
from turnscript.gateway import forcing, states, texts
from turnscript.gateway.compacting import Compacted, opened
from turnscript.gateway.generation import Controls, Generation, Stage
from turnscript.gateway.hygiene import clean, unread
from turnscript.gateway.kinds import UNFIT, fits_header
from turnscript.gateway.naming import CallIds, Unrepeated
from turnscript.gateway.offers import Offering, offer
from turnscript.gateway.preparing import HANDLED, Preparation, Prepared, limit_of
from turnscript.gateway.served import Served
from turnscript.gateway.thinking import switched

_KEPT = ("store", "previous_response_id", "background")
_HEAD = frozenset(
    {*_KEPT, "object", "type", "role", "created", "created_at", "completed_at", "tools", "instructions", "truncation"}
    | {"max_tool_calls", "error", "incomplete_details", "system_fingerprint", "timings"}
)
"""What an answer says of itself beside the request, and the gateway says anew: to clients of the API, and to others."""
_DEVELOPER = "developer"
_OURS = ("previous_response_id", "background", states.MEMBER, forcing.PRESET)
"""Unnamed members of a request that are for the gateway alone."""


def called(served: Served) -> str:
    """What a model's servers are called in seals: the same for the same servers, and telling nobody where they are."""
    where = (served.model.kind, *map(str, served.model.backend))
    return sha256("\0".join(where).encode()).hexdigest()[:16]


def asked_of(
    server: Backend, request: Request, beside: Mapping[str, Any] = MappingProxyType({})
) -> tuple[Completion, list[Loss]]:
    """What a server is asked for a request, and what of it its API cannot say. `beside`: members that it knows beyond
    that."""
    api = api_at(server.endpoint)
    stream, settings = bool(request.settings.stream), request.settings
    written = copy(request)
    written.settings = replace(settings, stream=None, stream_options=None)
    rendered = api.render_request(written)
    body = server.body(rendered.value | dict(beside), stream=stream)
    most = settings.max_tokens or forcing.UNLIMITED
    return Completion(prompt=body, max_tokens=most, stream=stream, api=api), rendered.losses


def _instructed(items: Sequence[Item]) -> tuple[list[Item], list[Loss]]:
    """Items with the instructions of developers as the system's: many templates leave out other roles in silence."""
    said = [item for item in items if isinstance(item, System) and item.role == _DEVELOPER]
    told = [replace(item, role="system") if isinstance(item, System) else item for item in items]
    return told, [Loss(f"{item.at}.role", "renamed", "said as the system's, which all servers know") for item in said]


class Relayed(Prepared, kw_only=True):
    """A request that is ready to be passed on. It is asked once, and as it stands."""

    def generation(self) -> Generation:
        """An answer that has not begun."""
        return RelayedAnswer(self.new_controls(), self.tokens, self.served.estimate)

    def shorten(self, error: UpstreamError, generated: str) -> bool:
        """No: how much room there is, the client and the server know between them."""
        return False

    def ask_from(self, generated: str) -> Completion:
        """The same always: nobody goes on with such an answer."""
        return self.ask


class RelayedAnswer(Generation):
    """An answer while its server tells it, in events that are the client's but for what the stages change."""

    def __init__(self, controls: Controls, prompt_tokens: int, estimate: Any) -> None:
        super().__init__(partial(TextParser, ()), controls, prompt_tokens, estimate)
        self._told: list[Event] = []  # but for the deltas of texts
        self._end: MessageEnd | None = None

    def feed(self, pieces: Sequence[Piece]) -> list[Event]:
        """More pieces."""
        events = [event for piece in pieces if isinstance(piece, EventPiece) for event in piece.events]
        self._end = next((event for event in events if isinstance(event, MessageEnd)), self._end)
        events = [event for event in events if not isinstance(event, MessageEnd)]
        if events and self.first is None:
            self.first = monotonic()
        self._raw += [event.text for event in events if isinstance(event, PartDelta)]
        return self._passed_on(events)

    def close(self) -> list[Event]:
        """The server has come to its end, which it said."""
        end = self._end
        if end is None:
            raise UpstreamError("the answer broke off before its end", retryable=True)
        if end.usage is not None:
            self.counted = end.usage.input > 0
            self.usage = end.usage if self.counted else replace(end.usage, input=self.usage.input)
        self.finish, self.usage = end.finish_reason, self.used
        events = self._passed_on([replace(end, usage=self.usage)])
        self.response = fold(self._told)
        self.response.raw, self.response.cut = None, self._last_call.cut
        return events

    def lost(self) -> list[Loss]:
        """What of the answer could not be read."""
        return left_out(self.response.issues)

    def _passed_on(self, events: list[Event]) -> list[Event]:
        for stage in self._outward:
            events = stage.feed(events)
        self._told += [event for event in events if type(event) is not PartDelta]
        for event in events:
            self._last_call.note(event)
        return events


class Envelope:
    """Leaves to the gateway what it says itself of an answer, and to another API's server the ids of its items."""

    def __init__(self, api: Api, *, own: bool) -> None:
        self._own = own
        self._said = frozenset(_KEPT if own else {*_HEAD, *(option.key for option in api.options)})

    def feed(self, events: list[Event]) -> list[Event]:
        """The events without that."""
        return [self._without(event) for event in events]

    def _without(self, event: Event) -> Event:
        if isinstance(event, MessageEnd):
            return replace(event, extra={key: value for key, value in event.extra.items() if key not in self._said})
        if self._own or not isinstance(event, PartStart | PartEnd) or event.part is None:
            return event
        field = "item_id" if type(event.part) is ToolCall else "id"
        if getattr(event.part, field, None) is None:
            return event
        return replace(event, part=replace(event.part, **{field: None}))


class Proofs:
    """Seals what the server has proved of its thoughts, for a client that can bring it back. `asked`: that is told the
    seals of thoughts without proofs, too. `ids`: its API has ids for thoughts."""

    def __init__(self, key: bytes, by: str, *, asked: bool, ids: bool) -> None:
        self._key, self._by, self._asked, self._ids = key, by, asked, ids

    def feed(self, events: list[Event]) -> list[Event]:
        """The events, their thoughts with seals for proofs."""
        return [self._sealed(event) for event in events]

    def _sealed(self, event: Event) -> Event:
        if not isinstance(event, PartStart | PartEnd) or type(event.part) is not Thinking:
            return event
        part = event.part
        if isinstance(event, PartStart):
            return replace(event, part=unproved(part, ids=self._ids))
        if not (self._asked or part.signature or part.encrypted or part.redacted):
            return event
        return replace(event, part=sealed_proofs(part, self._key, self._by, ids=self._ids))


class Relaying(Preparation):
    """Prepares requests for a server with a chat API."""

    async def conversation(self, request: Request) -> Prepared:
        """A request of any API. Raises InvalidRequest with the place, Unsupported, and LossyConversion."""
        if states.is_named(request, self.served):
            await states.chosen(request, self.served)  # which these servers have none of
        return await self.run(partial(self._relayed, request))

    async def text(self, request: Request) -> Prepared:
        """A request that is a text to go on from: it is what a user says. Raises InvalidRequest, Unsupported."""
        if not isinstance(texts.prompt(request), str):
            message = "this model's server has a chat API, to which nobody can say tokens; send the text itself"
            raise InvalidRequest(message, path="$.prompt", expected="a string", got="tokens")
        if texts.string(request, "suffix"):
            message = "this model's server has a chat API, which fills no holes; leave the suffix out"
            raise Unsupported("a hole", self._backend.title, message, "$.suffix")
        losses = texts.best_of(request)
        echo = texts.echoed(request, texts.prompt(request), fills=False, losses=losses)
        prepared = await self.run(partial(self._relayed, request, bare=True))
        prepared.lose(losses)
        if echo is not None:
            controls = prepared.new_controls
            prepared.new_controls = lambda: Controls(outward=[*controls().outward, texts.Echo(echo)])
        return prepared

    def _relayed(self, request: Request, *, bare: bool = False) -> Relayed:
        served, server, policy = self.served, self._backend, self.caller.policy
        api = api_at(server.endpoint)
        losses = restore_thoughts(request, self.signing_key, self.former_keys, called(served))
        request.proofs = api.origin
        shown, stages, lost = self._shown(request, api)
        losses += lost
        choices = self._choices(request, losses)
        settings, beside, lost = self._settings(shown, request, api)
        losses += lost
        shown = copy(shown)
        shown.settings = settings
        ask, lost = asked_of(server, shown, beside)
        losses += lost
        if request.origin == api.origin:
            passed, lost = self._passed()
            ask, losses = replace(ask, headers=passed), losses + lost
        return Relayed(
            request=request,
            served=served,
            caller=self.caller,
            ask=ask,
            new_parser=partial(TextParser, ()),
            new_controls=lambda: Controls(outward=[*(stage() for stage in stages)]),
            choices=choices,
            losses=losses,
            tokens=served.estimate(str(ask.prompt)),
            shape=request.settings.response_format,
            session=self._session(shown, bare=bare),
            quiet=self._judge(losses, policy),
        )

    def _shown(self, request: Request, api: Api) -> tuple[Request, list[Callable[[], Stage]], list[Loss]]:
        """The request that the server's API writes, and what the events of its answer pass on their way back."""
        serving, own, hosted = self.serving, request.origin == api.origin, self.caller.policy.hosted_tools
        assert serving is not None
        shown, losses = self._thoughts(request)
        stages: list[Callable[[], Stage]] = [CallIds]
        if own:
            if serving.compacting is not None:
                shown, lost = opened(shown, serving.compacting, self.signing_key, self.former_keys)
                losses += lost
            if hosted == "refuse":
                offer(shown, None, Offering(hosted=hosted))
            shown = copy(shown)
            shown.extra = {key: value for key, value in shown.extra.items() if key not in _OURS}
        else:
            shown, lost = self._told(shown, serving)
            shown = switched(shown)
            cleaned = clean(shown)
            offered = offer(cleaned.request, None, Offering(hosted=hosted), hidden=cleaned.hidden)
            unnamed = Request(extra=shown.extra, words=shown.words)
            losses += lost + unread(unnamed, (*HANDLED, *texts.HANDLED)) + cleaned.losses + offered.losses
            shown = copy(offered.request)
            shown.extra = {}
            items, lost = _instructed(shown.items)
            losses += lost
            shown.conversation = Conversation(items=items, tools=[*shown.tools, *offered.worded])
            stages.append(offered.restorer)
        stages.append(partial(Unrepeated, request))
        if serving.seals is not None:
            by, asked = called(self.served), serving.seals(request)
            stages.append(partial(Proofs, self.signing_key, by, asked=asked, ids=own))
        stages.append(partial(Envelope, api, own=own))
        if serving.compacting is not None and serving.compacting.wished(request):
            stages.append(partial(Compacted, serving.compacting, self.signing_key))
        return shown, stages, losses

    def _passed(self) -> tuple[dict[str, str], list[Loss]]:
        """Headers of a client that are for the server as they are."""
        own = {name.lower(): value.reveal() for name, value in self.served.model.sends.items()}
        said = {name: self.headers[name] for name in self._backend.passes if name in self.headers}
        passed = {name: value for name, value in said.items() if name not in own and fits_header(value, words=True)}
        return passed, [
            Loss(name, "dropped", f"`headers` of the model have it already, or it {UNFIT}")
            for name, value in said.items()
            if name not in passed and value != own.get(name)
        ]

    def _thoughts(self, request: Request) -> tuple[Request, list[Loss]]:
        """The request without thoughts that are not the server's, where it may refuse them."""
        strange = [item for item in request.items if type(item) is Thinking and item.seal is None]
        if not strange or not self._backend.signs:
            return request, []
        shown = copy(request)
        items = [item for item in request.items if type(item) is not Thinking or item.seal is not None]
        shown.conversation = Conversation(items=items, tools=request.tools)
        return shown, [Loss(item.at, "dropped", "the server takes back no thoughts but its own") for item in strange]

    def _settings(self, request: Request, came: Request, api: Api) -> tuple[Settings, dict[str, Any], list[Loss]]:
        """The settings that the server's API writes, and members for those that this server knows beyond its API.
        `came`: the request with all its members."""
        served, server = self.served, self._backend
        unsaid = copy(came)
        unsaid.settings = Settings()
        sampling = forcing.sampling(unsaid, served.model.sampling_values, accepts=forcing.accepted(server))
        said, losses = limit_of(request), sampling.losses
        path = forcing.path_of(request, "max_tokens")
        forcing.fit(said, 0, None, path=path)  # a number below none is refused
        wanted = served.model.max_tokens if said is None else said
        limit = self._within_limit(wanted, path, losses if said is not None else [])
        name = served.model.upstream_model or served.facts.asked_as or request.settings.model
        settings = replace(request.settings, model=name, max_tokens=limit, n=None, store=None)
        for field, value in sampling.values.items():
            if getattr(request.settings, field, value) is None:
                setattr(settings, field, value)
        written = {field for option in api.options for field in option.fields}
        beside = {field: value for field, value in sampling.values.items() if not hasattr(settings, field)}
        for field in server.also - written:
            if (value := getattr(settings, field, None)) is not None:
                beside[field] = value
                setattr(settings, field, None)
        return settings, beside, losses
