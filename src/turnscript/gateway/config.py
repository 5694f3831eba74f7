"""Owns the configuration of `turnscript serve`: every setting with its kind and default, and which model a name means.

A field with a kind is a setting, by the same name in the file; the other fields are derived from settings. What a file,
the environment and the command line say is read by `configfile.load`. `docs/configuration.md` lists the settings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from msgspec import Struct
from msgspec.structs import asdict, replace

from turnscript.apis.api import Calls
from turnscript.backends.backend import Facts
from turnscript.convert.registry import get_backend
from turnscript.core.errors import InvalidRequest, UnknownName, Unsupported
from turnscript.core.presets import words_of
from turnscript.detection.place import TemplateSource, read_place
from turnscript.engine.template_prompt import History
from turnscript.formats.format import Format
from turnscript.gateway.addresses import Address, read_address
from turnscript.gateway.kinds import (
    AUTO,
    BACKEND,
    PRESET,
    RESTART,
    Addresses,
    AnyTable,
    Choice,
    File,
    Files,
    Flag,
    FormatName,
    Headers,
    Hidden,
    Host,
    Members,
    Number,
    Origins,
    Seconds,
    Secret,
    Size,
    Template,
    Text,
    Texts,
    TokenIds,
    Variable,
    Variables,
    Whole,
    preset_values,
)
from turnscript.gateway.modelformat import (
    NOT_SOUGHT,
    Found,
    Sought,
    Wishes,
    begins_otherwise,
    check_fill_order,
    detected,
    is_made,
    named,
    prompted,
    told,
    unused,
    written,
)

DEFAULT = "default"
"""What a model is called that only the command line knows."""

MB = 10**6
DAY = 86_400.0

Losses = Literal["ignore", "report", "error"]
HostedTools = Literal["refuse", "report"]
Media = Literal["report", "error"]
InvalidCalls = Literal["pass", "text", "retry"]
ReasoningName = Literal["reasoning_content", "reasoning"]
Unavailable = Literal["refuse", "memory"]
IncompleteAs = Literal["incomplete", "completed"]
Thinking = Literal["auto", "on", "off"]
Completions = Literal["wrap", "raw"]


class Section(Struct, frozen=True):
    """Stands in the annotation of a field that is a table of settings."""

    kind: type[Struct]


class Server(Struct, frozen=True, kw_only=True):
    """Where the server listens, and what it lets in.

    `max_body_total`: what all requests have together that are here at once; never less than one of them may have.
    `body_rate`: the fewest bytes of a body in a second, over each tenth of `body_timeout`.
    """

    host: Annotated[str, Host(), RESTART] = "127.0.0.1"
    port: Annotated[int, Whole(0, 65_535), RESTART] = 8400
    public: Annotated[bool, Flag()] = False
    keys: Annotated[Path | None, File()] = None
    origins: Annotated[tuple[str, ...], Origins()] = ()
    max_body: Annotated[int, Size()] = 64 * MB
    max_body_total: Annotated[int, Size()] = 256 * MB
    body_timeout: Annotated[float, Seconds()] = 300.0
    body_rate: Annotated[int | None, Size(bound=True)] = 1000
    header_timeout: Annotated[float, Seconds(), RESTART] = 30.0
    idle_timeout: Annotated[float, Seconds(), RESTART] = 75.0
    grace: Annotated[float, Seconds(), RESTART] = 30.0
    keepalive: Annotated[float, Seconds()] = 10.0
    default_model: Annotated[str | None, Text("the name of a model")] = None
    strict_models: Annotated[bool, Flag()] = False


class Limits(Struct, frozen=True, kw_only=True):
    """What each key may use, or all clients together where no keys are needed; None is no limit.

    `wait`: for how long a request may wait for its turn; as long as the official SDKs do, for on a slow machine a slot
    is free after minutes only. `choices`: how many answers one request may ask for.
    `backend_running`: how many requests a backend answers at once.
    """

    running: Annotated[int | None, Whole(bound=True)] = None
    queue: Annotated[int, Whole()] = 64
    wait: Annotated[float, Seconds()] = 600.0
    requests_per_minute: Annotated[int | None, Whole(bound=True)] = None
    tokens_per_minute: Annotated[int | None, Whole(bound=True)] = None
    choices: Annotated[int, Whole(1, 128)] = 16
    backend_running: Annotated[int | None, Whole(bound=True)] = None


class Policy(Struct, frozen=True, kw_only=True):
    """What happens to what a prompt cannot carry, to tools that only a vendor has, and to calls that fit no tool.

    `reasoning_name`, `incomplete_as`: how an answer is told to clients that know one way only, as in `api.Reply`.
    """

    losses: Annotated[Losses, Choice(("ignore", "report", "error"))] = "report"
    hosted_tools: Annotated[HostedTools, Choice(("refuse", "report"))] = "report"
    media: Annotated[Media, Choice(("report", "error"))] = "report"
    invalid_calls: Annotated[InvalidCalls, Choice(("pass", "text", "retry"))] = "pass"
    reasoning_name: Annotated[ReasoningName, Choice(("reasoning_content", "reasoning"))] = "reasoning_content"
    incomplete_as: Annotated[IncompleteAs, Choice(("incomplete", "completed"))] = "incomplete"


class Memory(Struct, frozen=True, kw_only=True):
    """The texts that models wrote, so that they come back byte for byte. `path` None: kept in memory only."""

    path: Annotated[Path | None, File(optional=True), RESTART] = None
    size: Annotated[int, Size(), RESTART] = 256 * MB
    ttl: Annotated[float | None, Seconds(bound=True), RESTART] = 7 * DAY


class Store(Struct, frozen=True, kw_only=True):
    """The answers that clients ask for again by their id. `path` None: kept in memory only. `unavailable`: what becomes
    of one while the file cannot be used."""

    path: Annotated[Path | None, File(optional=True), RESTART] = None
    size: Annotated[int, Size(), RESTART] = 1000 * MB
    ttl: Annotated[float | None, Seconds(bound=True), RESTART] = 30 * DAY
    unavailable: Annotated[Unavailable, Choice(("refuse", "memory")), RESTART] = "refuse"


class Signing(Struct, frozen=True, kw_only=True):
    """The key that thoughts are sealed with. `file` is made on first use; None: a new key each time the server starts.

    `former` and `former_env` name keys that were used before: what they have sealed is still opened. `key`, `retired`:
    the keys themselves, from the variables that `key_env` and `former_env` name.
    """

    file: Annotated[Path | None, File(optional=True), RESTART] = None
    key_env: Annotated[str | None, Variable(), RESTART] = None
    former: Annotated[tuple[Path, ...], Files(), RESTART] = ()
    former_env: Annotated[tuple[str, ...], Variables(), RESTART] = ()
    key: Secret | None = None
    retired: tuple[Secret, ...] = ()


class Logs(Struct, frozen=True, kw_only=True):
    """What is written to stderr. `redact`: no text of a conversation is."""

    level: Annotated[str, Choice(("debug", "info", "warning", "error"))] = "info"
    json: Annotated[bool, Flag()] = False
    redact: Annotated[bool, Flag()] = True


class Metrics(Struct, frozen=True, kw_only=True):
    """Counters for Prometheus. `public`: they are shown without a key."""

    enabled: Annotated[bool, Flag(), RESTART] = True
    public: Annotated[bool, Flag()] = False


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long a backend may take: to accept a connection, to begin its answer, between two pieces, and in all."""

    connect: Annotated[float, Seconds()] = 10.0
    first_byte: Annotated[float, Seconds()] = 600.0
    between: Annotated[float, Seconds()] = 120.0
    total: Annotated[float, Seconds()] = 3600.0


class Sampling(Struct, frozen=True, kw_only=True):
    """Settings for requests that do not say them; None: not set here."""

    temperature: Annotated[float | None, Number(0, 100)] = None
    top_p: Annotated[float | None, Number(0, 1)] = None
    top_k: Annotated[int | None, Whole(0)] = None
    presence_penalty: Annotated[float | None, Number(-10, 10)] = None
    frequency_penalty: Annotated[float | None, Number(-10, 10)] = None
    penalty_decay: Annotated[float | None, Number(0, 1)] = None


class Efforts(Struct, frozen=True, kw_only=True):
    """The most tokens of thought for each effort that a request may ask for; None: as many as it takes."""

    low: Annotated[int | None, Whole(bound=True)] = 2048
    medium: Annotated[int | None, Whole(bound=True)] = 8192
    high: Annotated[int | None, Whole(bound=True)] = 24_576
    xhigh: Annotated[int | None, Whole(bound=True)] = None
    max: Annotated[int | None, Whole(bound=True)] = None


@lru_cache(maxsize=64)
def _sampling_values(preset: str | None, sampling: Sampling) -> Mapping[str, float]:
    own = {name: value for name, value in asdict(sampling).items() if value is not None}
    return preset_values(preset) | own


class Model(Struct, frozen=True, kw_only=True):
    """A model that clients can ask for. `backend` is where it runs, in one place or in several.

    Derived: `key` is the backend's API key, `sends` what other headers its requests carry, wherever both came from;
    `takes` the prompt format with its variant and first token, None if nothing tells it; `why` says how it was found,
    `guessed` whether names alone told it, and `guess` whether these say too little; `settled` whether the settings say
    it; `older` what it is too old for. `source` is the chat template that the settings name, `reads` the format that
    they name, maybe beside it. `notes`: what is to be told of templates that cannot be used, or are not; `control` the
    control tokens of the tokenizer. `own` are the formats that the configuration declares.
    """

    name: str = DEFAULT
    backend: Annotated[tuple[Address, ...], Addresses()]
    kind: Annotated[str, BACKEND] = AUTO
    extra: Annotated[dict[str, Any] | None, AnyTable("a table of members")] = None
    drop: Annotated[tuple[str, ...], Texts("members")] = ()
    also: Annotated[tuple[str, ...], Members("settings", (*Sampling.__struct_fields__, "seed"))] = ()
    api_key: Annotated[Secret | None, Hidden()] = None
    api_key_env: Annotated[str | None, Variable()] = None
    api_key_file: Annotated[Path | None, File()] = None
    headers: Annotated[dict[str, Secret] | None, Headers(Hidden(inside=True))] = None
    headers_env: Annotated[dict[str, str] | None, Headers(Variable())] = None
    headers_file: Annotated[dict[str, Path] | None, Headers(File())] = None
    upstream_model: Annotated[str | None, Text("the name of a model")] = None
    aliases: Annotated[tuple[str, ...], Texts('names or patterns such as "claude-*"')] = ()
    format: Annotated[str | None, FormatName()] = None
    template: Annotated[str | None, Template()] = None
    history: Annotated[History | None, Choice(("template", "generated"))] = None
    variant: Annotated[str | None, Text("the name of a variant of the format")] = None
    first_token: Annotated[str | None, Text("a string", empty=True)] = None
    prepend_tokens: Annotated[tuple[int, ...], TokenIds()] = ()
    fill_order: Annotated[str | None, Text("the name of an order of the format")] = None
    prompts: Annotated[dict[str, Any] | None, AnyTable("a table as ai00 has it")] = None
    normalize_json: Annotated[bool, Flag()] = False
    grammar: Annotated[Literal["auto", "off"], Choice(("auto", "off"))] = "auto"
    completions: Annotated[Completions | None, Choice(("wrap", "raw"))] = None
    calls: Annotated[Calls, Choice(("live", "whole"))] = "live"
    thinking: Annotated[Thinking, Choice(("auto", "on", "off"))] = "auto"
    thoughts: Annotated[tuple[str, ...], Texts("kinds of thought")] = ()
    efforts: Annotated[Efforts, Section(Efforts)] = Efforts()
    preset: Annotated[str | None, PRESET] = None
    sampling: Annotated[Sampling, Section(Sampling)] = Sampling()
    context: Annotated[int | None, Whole(1)] = None
    trained_context: Annotated[int | None, Whole(1)] = None
    max_tokens: Annotated[int | None, Whole(1)] = None
    max_tokens_limit: Annotated[int | None, Whole(1)] = None
    slots: Annotated[int | None, Whole(1)] = None
    saved_slots: Annotated[int, Whole(0, 10_000)] = 0
    state: Annotated[str | None, Text("the id or the name of a state")] = None
    visible: Annotated[tuple[str, ...], Texts("tokens")] = ()
    timeouts: Annotated[Timeouts, Section(Timeouts)] = Timeouts()
    key: Secret | None = None
    sends: Mapping[str, Secret] = {}
    takes: Format | None = None
    why: str = ""
    guessed: bool = False
    guess: bool = False
    settled: bool = False
    older: str = ""
    source: TemplateSource | None = None
    reads: Format | None = None
    notes: tuple[str, ...] = ()
    control: tuple[str, ...] = ()
    own: Mapping[str, Format] = {}

    @property
    def relays(self) -> bool:
        """Whether its servers have a chat API, so that requests are passed on and no prompt is made."""
        return self.kind != AUTO and bool(get_backend(self.kind).endpoint)

    @property
    def settles(self) -> bool:
        """Whether it is known how its servers are spoken to."""
        return self.takes is not None or self.relays

    @property
    def sampling_values(self) -> Mapping[str, float]:
        """What to sample with where a request does not say: the preset's values, and `sampling` over them."""
        return _sampling_values(self.preset, self.sampling)

    @property
    def fills(self) -> str:
        """Return the order in which a text with a hole is written; empty where the format has none that is usable."""
        files = self.takes.document.files if self.takes is not None else None
        if files is None:
            return ""
        try:
            return files.prompt_order(self.fill_order or "").name
        except (UnknownName, Unsupported):
            return ""

    def matches(self, name: str) -> int:
        """How well one of the aliases fits a name, as a number; 0 if none does."""
        return max((_weight(alias) for alias in self.aliases if pattern_of(alias).fullmatch(name)), default=0)

    @property
    def wishes(self) -> Wishes:
        """Return what the settings say of how a chat template is to be used."""
        return Wishes(self.history, self.first_token, tuple(self.own.values()), self.reads)

    def told(self, facts: Facts, sought: Sought = NOT_SOUGHT) -> Model:
        """The same model once its backend has said what it runs: that may tell the format, if nothing did so far.

        What the settings say goes first, then the chat template, which `sought` has, then names.
        """
        if sought.source is not None and sought.source.control != self.control:
            return replace(self, control=sought.source.control).told(facts, sought)
        if self.source is not None:
            other = begins_otherwise(self.source, facts)
            return self._taking(written(self.source, self.wishes, facts)) if other else self
        if self.settled:
            return replace(self._dated(facts), notes=unused(sought.source))
        troubles = sought.troubles
        if sought.source is not None and not is_made(sought.source):
            found = written(sought.source, self.wishes, facts)
            if found.format is not None:
                return self._taking(found)
            troubles = (*troubles, found.why)
        model = replace(self, notes=troubles)
        if self.takes is not None and not (self.guessed and facts.template):
            return model
        names = (facts.model or "", facts.root or "", self.upstream_model or "", self.name)
        found = told(names, facts.template or "", self.own)
        if found.format is None or (self.takes is not None and (found.guessed or self.variant is not None)):
            return model
        return model._taking(found.finished(self.variant, self.first_token))

    def _dated(self, facts: Facts) -> Model:
        """The same model with the format that the settings name, as models take it that are as old as its names say."""
        if self.reads is None or self.takes is None:
            return self
        files = [str(address.path) for address in self.backend if not address.is_web]
        names = (facts.model, facts.root, facts.file, self.upstream_model, *files, self.name)
        found = replace(Found(self.reads, self.why), guess=self.guess).dated(filter(None, names))
        return self._taking(found.finished(self.variant, self.first_token))

    def _taking(self, found: Found) -> Model:
        told: dict[str, Any] = {"guessed": found.guessed, "guess": found.guess, "older": found.older}
        return replace(self, takes=found.format, why=found.why, **told)

    def begun_by(self, facts: Facts) -> Model:
        """The same model once its server has said which token begins a prompt, and whether it puts that there itself:
        read twice, it makes answers worse. What `first_token` says counts nevertheless."""
        takes, token = self.takes, facts.bos_token
        if takes is None or takes.template is not None or not token or self.first_token is not None:
            return self
        if facts.adds_bos and takes.seen.start.startswith(token):
            return replace(self, takes=takes.begun_with(takes.seen.start.removeprefix(token)))
        if facts.adds_bos is False and takes.document.stand_ins:
            return replace(self, takes=takes.begun_with(token))
        return self


class Setting(Struct, frozen=True):
    """A setting as people are shown it: its place, its value, and where that came from. Secrets are never in it."""

    path: str
    value: str
    where: str

    def __str__(self) -> str:
        return f"{self.path} = {self.value}  ({self.where})"


class Config(Struct, frozen=True, kw_only=True):
    """All settings. `origins`: where values came from that are no defaults, by path; `notes`: what to tell people."""

    server: Annotated[Server, Section(Server)] = Server()
    limits: Annotated[Limits, Section(Limits)] = Limits()
    policy: Annotated[Policy, Section(Policy)] = Policy()
    memory: Annotated[Memory, Section(Memory)] = Memory()
    store: Annotated[Store, Section(Store)] = Store()
    signing: Annotated[Signing, Section(Signing)] = Signing()
    logs: Annotated[Logs, Section(Logs)] = Logs()
    metrics: Annotated[Metrics, Section(Metrics)] = Metrics()
    models: tuple[Model, ...] = ()
    origins: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    @classmethod
    def for_backend(cls, url: str, format_: str | None = None, **settings: Any) -> Config:
        """One model that takes every name, and nothing kept on disk. `settings`: other fields of the model.

        Raises ValueError for a URL that is none, InvalidInput for a format that is none.
        """
        address = read_address(url, Path.cwd())
        model = Model(backend=(address,), format=format_, **settings)
        source = read_place(model.template) if model.template is not None else None
        reads = named(format_).format if format_ is not None else None
        if source is not None:
            found = written(source, replace(model, reads=reads).wishes, strict=True)
        elif format_ is not None:
            found = named(format_).dated(("" if address.is_web else str(address.path), model.upstream_model or ""))
        elif model.prompts is not None:
            found = prompted(model.prompts)
        elif model.relays:
            found = Found(None, "")
        else:
            found = detected(("" if address.is_web else str(address.path), model.upstream_model or ""))
        found = found.finished(model.variant, model.first_token)
        check_fill_order(found.format, model.fill_order)
        secrets = {"key": model.api_key, "sends": model.headers or {}}
        told_so: dict[str, Any] = {"source": source, "reads": reads, "settled": found.settled, "takes": found.format}
        told_so |= {"why": found.why, "guessed": found.guessed, "guess": found.guess, "older": found.older}
        return cls(models=(replace(model, **secrets, **told_so),))

    @property
    def default_model(self) -> Model | None:
        """The model for names that no other has: the one that `server.default_model` names, else the first."""
        named = (model for model in self.models if model.name == self.server.default_model)
        return next(named, self.models[0] if self.models else None)

    def model_for(self, name: str | None) -> Model:
        """The model that a client means: by its name, by the alias that fits best, else the default one.

        Clients ask for names of their own, so any name will do, and none, unless `strict_models` is set. Raises
        UnknownName, InvalidRequest where there is no name.
        """
        for model in self.models:
            if model.name == name:
                return model
        asked = name or ""
        fits = [(model.matches(asked), model) for model in self.models]
        best = max((fit for fit, _ in fits), default=0)
        if best:
            return next(model for fit, model in fits if fit == best)
        default = self.default_model
        if default is not None and not self.server.strict_models:
            return default
        known = [model.name for model in self.models]
        if default is not None and not name:
            expected = f"the name of a model: {', '.join(known)}"
            raise InvalidRequest(f"required, but missing; expected {expected}", path="$.model", expected=expected)
        raise UnknownName("model", asked, known)

    def describe(self) -> tuple[Setting, ...]:
        """Every setting in force. Of a model only what is set, and the numbers of its presets."""
        found = [
            Setting(path, shown_value(kind, value), self.origins.get(path, "default"))
            for path, kind, value in values_of(self)
        ]
        for model in self.models:
            place = f"models.{key_text(model.name)}"
            told = model.takes.name if model.takes else "not known yet"
            found += [
                Setting(path, shown_value(kind, value), self.origins.get(path, "default"))
                for path, kind, value in values_of(model, place)
                if path in self.origins
            ]
            if f"{place}.format" not in self.origins and not model.relays:
                found.append(Setting(f"{place}.format", told, model.why or "detected"))
            found += [
                Setting(f"{place}.sampling.{name}", f"{value:g}", f"the preset {model.preset}")
                for name, value in preset_values(model.preset).items()
                if f"{place}.sampling.{name}" not in self.origins
            ]
            if f"{place}.fill_order" not in self.origins and model.fills:
                found.append(Setting(f"{place}.fill_order", model.fills, f"the first of {told} for prompts"))
        return (*found, *self._presets())

    def _presets(self) -> Iterator[Setting]:
        """Return the sampling presets that the formats of the models have, and their numbers."""
        named = [name for model in self.models if model.takes is not None for name in model.takes.presets]
        for name in dict.fromkeys(named):
            yield Setting(f"presets.{name}", words_of(preset_values(name)), "built in; a model or a request names it")


def fields_of(struct: type[Struct]) -> dict[str, Any]:
    """The settings of a table, each with its kind or the Section that it is."""
    return {name: annotation.__metadata__[0] for name, annotation in _annotations(struct).items()}


def needs_restart(struct: type[Struct], name: str) -> bool:
    """Whether a setting only counts when the server starts."""
    return RESTART in _annotations(struct)[name].__metadata__[1:]


def values_of(table: Struct, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, kind and value of every setting in a table and the tables inside it."""
    for name, kind in fields_of(type(table)).items():
        path, value = f"{place}.{name}" if place else name, getattr(table, name)
        if isinstance(kind, Section):
            yield from values_of(value, path)
        else:
            yield path, kind, value


def shown_value(kind: Any, value: Any) -> str:
    """A value for people. None is what the kind says of it, or that nothing was set."""
    if value is not None or getattr(kind, "bound", False) or getattr(kind, "optional", False):
        return str(kind.shown(value))
    return "not set"


def key_text(name: str) -> str:
    """A key as TOML writes it: bare where it can be."""
    if re.fullmatch(r"[A-Za-z0-9_-]+", name):
        return name
    escaped = "".join(f"\\u{ord(one):04x}" if one < " " or one in '"\\\x7f' else one for one in name)
    return f'"{escaped}"'


@cache
def pattern_of(alias: str) -> re.Pattern[str]:
    """The names that an alias stands for: `*` is any text, `?` one character, all else itself; case does not count.

    Names come from clients. The groups are atomic, so that no name makes the search slow.
    """
    first, *others = [_literal(piece) for piece in re.sub(r"\*+", "*", alias).split("*")]
    if not others:
        return re.compile(first, re.IGNORECASE | re.DOTALL)
    *middle, last = others
    found = "".join(f"(?>.*?{piece})" for piece in middle)
    return re.compile(f"{first}{found}.*{last}", re.IGNORECASE | re.DOTALL)


def _literal(piece: str) -> str:
    return "".join("." if one == "?" else re.escape(one) for one in piece)


def _weight(alias: str) -> int:
    """How much a pattern says: the more characters of its own the more, and one without `*` most."""
    own = sum(one not in "*?" for one in alias)
    return 2 * own + 2 if "*" in alias or "?" in alias else 2**32


@cache
def _annotations(struct: type[Struct]) -> dict[str, Any]:
    """The fields that are settings, with their annotations."""
    hints = get_type_hints(struct, include_extras=True)
    return {name: hint for name, hint in hints.items() if hasattr(hint, "__metadata__")}
