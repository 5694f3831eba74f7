"""Owns what a request forces on a generation: how long, how many calls, which shape, which sampling.

A backend continues a text and knows few of these. So each is done as well as it can be from outside, and a `Loss` says
where that is less than what was asked for. Nothing here waits or speaks to anybody.

- `max_tokens` is clamped to what the context leaves; a prompt that does not fit is an `Overflow` value.
- `parallel_tool_calls: false`: a `OneCall` stage ends the answer behind its first complete call.
- `response_format`: the instructions ask for it, and `check_answer` looks at the answer. A model that is held to a
  grammar loses nothing by that (`constraining`).
- Sampling: known names and ranges. `n` above 1: so many answers, up to a limit, each with a seed of its own; one, and a
  loss, where the API has no place for more.

A model is held to a grammar where its server takes one. A grammar is sent to servers of a kind that is known to take
its notation, and to no others: some die of one. It is for answers that can be nothing else than calls, and for answers
in JSON; a model that may write a text is left free. Where a server holds more of an answer's schema than a grammar
does, it is sent the schema itself. What a schema demands and neither tells is checked once the answer is there, as for
every other server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import lru_cache
from math import ceil
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.backends.backend import Backend, Completion, Facts
from turnscript.core.conversation import (
    Assistant,
    Conversation,
    Item,
    Request,
    Response,
    ResponseFormat,
    System,
    Text,
    ToolCall,
    text_content,
)
from turnscript.core.errors import InvalidRequest, TurnscriptError, UnknownName, UpstreamError
from turnscript.core.events import Event, MessageEnd, PartEnd
from turnscript.core.json_text import Json, plain, text_of
from turnscript.core.losses import Loss
from turnscript.core.presets import get_preset, presets
from turnscript.core.wire import mismatch
from turnscript.engine.constraint import Constraint
from turnscript.engine.escape import tags_in
from turnscript.engine.prompt import Prompt
from turnscript.gateway.checks import CallFinding, check_value, read_json
from turnscript.gateway.config import Model
from turnscript.grammar.nodes import Ending, Literal, children
from turnscript.grammar.notations import NOTATIONS
from turnscript.grammar.rest import behind

# Length.

NO_LIMIT = -1
"""What clients of local models send for "as many as there is room for": llama.cpp and LM Studio take it so."""


class Overflow(Struct, frozen=True):
    """A prompt that does not fit: with an answer it would have `asked` tokens, and there may be `limit`."""

    asked: int
    limit: int


class Fit(Struct, frozen=True):
    """How many tokens may be generated; none, where the prompt itself overflows."""

    allowed: int
    losses: list[Loss]
    overflow: Overflow | None = None


def fit(max_tokens: int | None, prompt_tokens: int, context: int | None, *, path: str = "$.max_tokens") -> Fit:
    """What of `max_tokens` there is room for behind a prompt. `context`: None where nobody knows it.

    Too many are not an error: agents ask for 32000 and more of any model. Raises InvalidRequest for less than none.
    """
    if max_tokens is not None and max_tokens < 0:
        message = f"there cannot be fewer tokens than none; {NO_LIMIT} says that there is no limit"
        raise InvalidRequest(message, path=path, expected="at least 0")
    if context is None:
        return Fit(UNLIMITED if max_tokens is None else max_tokens, [])
    room = context - prompt_tokens
    if room < 1:
        return Fit(0, [], Overflow(max(prompt_tokens, context + 1), context))
    if max_tokens is None or max_tokens <= room:
        return Fit(room if max_tokens is None else max_tokens, [])
    return Fit(room, [Loss(path, "approximated", f"{max_tokens} became {room}: the context holds no more")])


UNLIMITED = 1 << 20
"""How many tokens may be generated where neither the client nor the context says."""


def estimated_tokens(text: str) -> int:
    """About how many tokens a text has, where there is no tokenizer to ask."""
    return ceil(len(text) / 4)


# Calls.


class OneCall:
    """Ends an answer behind its first complete call. `done`: it is, and the backend can be stopped."""

    def __init__(self) -> None:
        self.done = False

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """The events up to the end of the first call, and the end of the message."""
        out: list[Event] = []
        for event in events:
            if not self.done:
                out.append(event)
                self.done = isinstance(event, PartEnd) and isinstance(event.part, ToolCall)
            elif isinstance(event, MessageEnd):
                end = copy(event)
                end.finish_reason, end.stop_sequence, end.raw = "tool_calls", None, ""
                out.append(end)
        return out


# The shape of the answer.


class Structured(Struct):
    """A request that asks in words for the shape of its answer, and what was lost. `shape`: None for any text."""

    request: Request
    losses: list[Loss]
    shape: ResponseFormat | None


def structured(request: Request) -> Structured:
    """Ask for the shape that the response format names.

    The words stand at the end of the first instructions: a session asks for one shape in all its requests, so its
    prompts keep their beginning. Raises InvalidRequest for a schema that is none.
    """
    shape = request.settings.response_format
    if shape is None or shape.type == "text":
        return Structured(request, [], None)
    path = request.paths.get("response_format", "$.response_format")
    if shape.type not in _SHAPES:
        return Structured(request, [Loss(path, "dropped", f"{shape.type!r} is no shape that is known here")], None)
    if shape.schema is not None and bytes(shape.schema)[:1] not in b"{tfn":
        raise mismatch(shape.schema, f"{path}.schema", "a JSON Schema: an object or a boolean")
    loss = Loss(path, "approximated", NOT_ENFORCED)
    return Structured(_asked(request, _instruction(shape)), [loss], shape)


NOT_ENFORCED = "structured output is not enforced: it is asked for in words"
_SHAPES = ("json_object", "json_schema")


def _instruction(shape: ResponseFormat) -> str:
    words = "Your final answer must be one JSON object and nothing else: no explanation, no Markdown."
    if shape.schema is None or shape.type == "json_object":
        return words
    about = f"\n{shape.description}" if shape.description else ""
    return f"{words} It must be valid under this JSON Schema:\n{text_of(shape.schema)}{about}"


def _asked(request: Request, words: str) -> Request:
    items = list(request.items)
    last = -1
    while last + 1 < len(items) and isinstance(items[last + 1], System):
        last += 1
    if last < 0:
        items.insert(0, System(content=[Text(text=words)]))
    else:
        items[last] = _longer(items[last], words)
    asked = copy(request)
    asked.conversation = Conversation(items=items, tools=request.tools)
    return asked


def _longer(item: Item, words: str) -> Item:
    """Instructions with more words at their end."""
    assert isinstance(item, System)
    longer = copy(item)
    part = item.content[-1] if item.content else None
    if type(part) is Text:
        longer.content = [*item.content[:-1], Text(text=f"{part.text}\n\n{words}", extra=part.extra)]
    else:
        longer.content = [*item.content, Text(text=words)]
    return longer


def check_answer(response: Response, shape: ResponseFormat | None) -> list[CallFinding]:
    """What is wrong with an answer that must have a shape. One that calls tools is not the final answer yet."""
    if shape is None or shape.type not in _SHAPES or any(isinstance(item, ToolCall) for item in response.items):
        return []
    text = "".join([text_content(item.content) for item in response.items if isinstance(item, Assistant)])
    value, odd = read_json(text.strip())
    found = [CallFinding(kind, "$", detail) for kind, detail in odd]
    if any(one.kind in ("invalid_json", "unchecked") for one in found):
        return found
    if not isinstance(value, dict) and (shape.type == "json_object" or shape.schema is None):
        found.append(CallFinding("not_an_object", "$", "the answer is one JSON object"))
    elif shape.type == "json_schema" and shape.schema is not None:
        found += [CallFinding(kind, f"${place}", detail) for kind, place, detail in check_value(value, shape.schema)]
    return found


# Stops and sampling.


_MOST_STOPS, _LONGEST_STOPS = 256, 8_192
"""Far more than the four that official APIs take: clients of local servers list every mark that a model may write. So
many take some 0.2 s to prepare, and a millisecond for each thousand characters."""


class Stops(Struct, frozen=True):
    """`sent`: what a backend is told to stop at. The client's own that it is not told of are found by the parser."""

    sent: list[str]
    losses: list[Loss]


def stops(own: Sequence[str], client: Sequence[str] | None, *, limit: int | None = None, path: str = "$.stop") -> Stops:
    """The strings to stop at: a format's `own` first, then the client's, at most `limit`. An empty one is none.

    Raises InvalidRequest for more of the client's than anybody needs: each costs time for each piece of the answer, and
    each character time and memory before the first one.
    """
    if not client:
        return Stops(list(dict.fromkeys(own))[:limit], [])
    said = client
    characters = sum(map(len, said))
    if len(said) > _MOST_STOPS or characters > _LONGEST_STOPS:
        expected = f"at most {_MOST_STOPS} stop strings, of {_LONGEST_STOPS:,} characters together"
        got = f"{len(said):,} of {characters:,}"
        raise InvalidRequest(f"expected {expected}, found {got}", path=path, expected=expected, got=got)
    sent, losses = dict.fromkeys(own), []
    for index, one in enumerate(said):
        if not one:
            losses.append(Loss(f"{path}[{index}]", "dropped", "an empty string stops nothing"))
        else:
            sent.setdefault(one)
    return Stops(list(sent)[:limit], losses)


def told_stops(stops: Sequence[str], own: Sequence[str], tags: Sequence[str]) -> Sequence[str]:
    """The stop strings that the server of a conversation is told of, if it may be told of the client's: those that it
    can meet in text alone. One that stands in a tag ends nothing."""
    return [one for one in stops if one in own or not any(one in tag for tag in tags)]


_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "top_k": (0, 1 << 20),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}
SAMPLING = frozenset({*_RANGES, "seed", "penalty_decay"})
PRESET = "preset"
"""What a request calls the preset that it names."""
_SEEDS = 1 << 32
_NEEDS = {
    "logit_bias": "its token ids are those of another tokenizer",
    "logprobs": "the model's server tells no log probabilities",
    "top_logprobs": "the model's server tells no log probabilities",
}
_NO_SUCH = "the backend has no such setting"
_READ = (*_RANGES, "seed", *_NEEDS)
_values_of = attrgetter(*_READ)
_UNSAID = (None,) * len(_READ)
LOGPROBS = frozenset({"logprobs", "top_logprobs"})
_MOST_LOGPROBS = 20


class Sampling(Struct, frozen=True):
    """Settings by the names of `conversation.Settings`, as a backend takes them."""

    values: dict[str, Any]
    losses: list[Loss]


def _is_empty(value: Any) -> bool:
    """Whether a setting asks for nothing: no tokens, or none of them."""
    return not (plain(value) if isinstance(value, Json) else value)


def sampling(
    request: Request,
    preset: Mapping[str, float] | None = None,
    *,
    accepts: Collection[str] = SAMPLING,
) -> Sampling:
    """What to sample with: the model's own values (`preset`), those of a preset that the request names, and over them
    the client's, each in its range. Raises InvalidRequest for a preset that there is not.

    `accepts`: the names that the backend takes.
    """
    settings, asked = request.settings, _values_of(request.settings)
    values, losses = _preset(request, preset or {}, accepts)
    if asked == _UNSAID and "top_logprobs" not in values:
        return Sampling(values, losses)
    for name, value in zip(_READ, asked, strict=True):
        if value is None or value is False or (name in _NEEDS and _is_empty(value)):
            continue
        if name not in accepts:
            detail = _NEEDS.get(name, _NO_SUCH)
            losses.append(Loss(path_of(request, name), "dropped", detail))
        else:
            values[name] = _in_range(name, value, path_of(request, name), losses)
    if "top_logprobs" in values and not settings.logprobs:
        del values["top_logprobs"]
        losses.append(Loss(path_of(request, "top_logprobs"), "dropped", "log probabilities were not asked for"))
    return Sampling(values, losses)


def _preset(request: Request, own: Mapping[str, float], accepts: Collection[str]) -> tuple[dict[str, Any], list[Loss]]:
    """Return what the model's settings and a named preset say, and what of that the backend does not take. What the
    client says itself is not missed."""
    named = preset_in(request) if PRESET in request.extra else {}
    values, losses = {**own, **named}, []
    for name in untaken(values, accepts):
        value = values.pop(name)
        if getattr(request.settings, name, None) is None:
            path = f"$.{PRESET}" if name in named else "$.model"
            losses.append(Loss(path, "dropped", f"{name} {value:g}: {_NO_SUCH}"))
    return values, losses


def preset_in(request: Request) -> dict[str, float]:
    """Return what the preset sets that a request names. Raises InvalidRequest."""
    value = request.extra.get(PRESET)
    said = None if value is None else plain(value)
    if said is None:
        return {}
    try:
        return get_preset(said).values()
    except UnknownName as error:
        expected = f"one of: {', '.join(presets())}"
        raise InvalidRequest(str(error), path=f"$.{PRESET}", expected=expected, got=repr(said)) from None


@lru_cache(maxsize=64)
def accepted(backend: Backend) -> frozenset[str]:
    """Return the names of the settings that a backend takes."""
    known = backend.also.union(backend.settings, LOGPROBS if backend.tells_logprobs else ())
    return known.difference(backend.drop)


def untaken(values: Iterable[str], accepts: Collection[str]) -> list[str]:
    """Return the settings that a backend does not take."""
    return [name for name in values if name not in accepts]


def _in_range(name: str, value: Any, path: str, losses: list[Loss]) -> Any:
    if name == "seed":
        kept = value % _SEEDS
    elif name == "top_logprobs":
        kept = min(max(value, 0), _MOST_LOGPROBS)
    elif name in _RANGES:
        low, high = _RANGES[name]
        kept = min(max(value, low), high)
    else:
        return value
    if kept != value:
        losses.append(Loss(path, "approximated", f"{value} became {kept}"))
    return kept


def choices(request: Request, limit: int | None) -> tuple[int, list[Loss]]:
    """How many answers are made. `limit`: how many there may be; None where the API can tell only one.

    Raises InvalidRequest for more than that, and for less than one.
    """
    asked = request.settings.n
    if asked is None or asked == 1:
        return 1, []
    path = path_of(request, "n")
    if asked < 1 or (limit is not None and asked > limit):
        expected = "an integer from 1" if limit is None else f"an integer from 1 to {limit}"
        message = f"{asked} answers were asked for; expected {expected}"
        raise InvalidRequest(message, path=path, expected=expected, got=str(asked))
    if limit is None:
        return 1, [Loss(path, "approximated", f"{asked} answers were asked for, and there is one")]
    return asked, []


def sampling_of(values: Mapping[str, Any], number: int) -> Mapping[str, Any]:
    """What to sample the answer of a number with. Its seed is so much higher: with the same one it would be a copy."""
    seed = values.get("seed")
    return values if seed is None or not number else {**values, "seed": (seed + number) % _SEEDS}


def path_of(request: Request, field: str) -> str:
    """Where a setting stands in the body of a request."""
    return request.paths.get(field, f"$.{field}")


__all__ = [
    "LOGPROBS",
    "PRESET",
    "SAMPLING",
    "UNLIMITED",
    "Fit",
    "OneCall",
    "Overflow",
    "Sampling",
    "Stops",
    "Structured",
    "accepted",
    "check_answer",
    "choices",
    "estimated_tokens",
    "fit",
    "path_of",
    "preset_in",
    "sampling",
    "sampling_of",
    "stops",
    "structured",
    "untaken",
]


OWN_MEMBERS = frozenset({"grammar", "bnf_schema", "json_schema", "structured_outputs", "ebnf"})
"""Members with which a configuration constrains a server itself; where it does, or drops one, nothing is added."""
_LARGEST = 400_000
"""Characters of a grammar: servers compile it for each answer."""
_REFUSED = frozenset({400, 422})
"""How servers refuse a grammar: llama.cpp with 400, others as a member that they cannot read."""
_NO_ROOM = ("context", "too long", "too large")


class Held(Struct, frozen=True):
    """The grammar that an answer is held to. `owner`: whose server it is, where that tells how to send it. `schema`:
    what the server is sent instead, as long as nothing is written.
    """

    constraint: Constraint
    owner: str | None = None
    schema: Json | None = None

    def ask(self, ask: Completion, generated: str = "") -> Completion:
        """The same, held to the grammar where so much is written already: to what is left of it, or to nothing."""
        told = self.constraint
        if not generated and self.schema is not None:
            return replace(ask, grammar=None, schema=self.schema)
        if not generated:
            return replace(ask, grammar=told.text, schema=None, owner=self.owner)
        rest = behind(told.rules, generated)
        if rest is None:
            return replace(ask, grammar=None, schema=None)
        return replace(ask, grammar=NOTATIONS[told.notation](rest), schema=None, owner=self.owner)


def wants(request: Request) -> bool:
    """Whether an answer is anything else than free: one look, because it is taken for every request."""
    choice, shape = request.settings.tool_choice, request.settings.response_format
    if choice is not None and (choice.mode in ("required", "named") or (choice.mode == "allowed" and choice.required)):
        return True
    return shape is not None and shape.type in ("json_object", "json_schema")


def held(prompt: Prompt, servers: Iterable[tuple[Backend, Facts]], model: Model, losses: list[Loss]) -> Held | None:
    """What the answer behind a prompt is held to; None for one that is free, or cannot be held to anything.

    With a grammar, what was lost because nothing holds the answer to its shape is no loss any more.
    """
    if not wants(prompt.request):
        return None
    servers = list(servers)
    notation, owner = _notation(servers, model)
    if not notation:
        return None
    try:
        found = prompt.grammar(notation)
    except TurnscriptError:  # no grammar tells it; what else is wrong with the request, others say
        return None
    if found is None or found.lazy or len(found.text) > _LARGEST or (owner is not None and _has_tags(found)):
        return None
    schema, left = _passed_on(prompt, found, servers)
    at = next((index for index, loss in enumerate(losses) if loss.detail == NOT_ENFORCED), None)
    if at is not None:
        losses[at : at + 1] = _left_over(losses[at].path, left)
    return Held(found, owner, schema)


def _passed_on(
    prompt: Prompt, found: Constraint, servers: Sequence[tuple[Backend, Facts]]
) -> tuple[Json | None, Sequence[Loss]]:
    """Return the schema of the answer, if its servers hold more of it than the grammar does, and what is lost."""
    shape = prompt.request.settings.response_format
    if not found.bare or shape is None or shape.schema is None or len({type(backend) for backend, _ in servers}) != 1:
        return None, found.losses
    left = servers[0][0].left_of(shape.schema, found.losses)
    return (None, found.losses) if left is None else (shape.schema, left)


def takes_grammars(servers: Iterable[tuple[Backend, Facts]], model: Model) -> bool:
    """Whether the servers of a model take grammars, as far as is known of them now."""
    return bool(_notation(servers, model)[0])


def is_refused(error: UpstreamError, held: Held | None, generated: str) -> bool:
    """Whether a server may have refused the grammar, before it has written anything by it."""
    said = f"{error} {error.body}".lower()
    return (
        held is not None
        and not generated
        and ("grammar" in said or (error.upstream in _REFUSED and not any(word in said for word in _NO_ROOM)))
    )


def without(held: Held, request: Request, error: UpstreamError) -> tuple[Held | None, list[Loss]]:
    """Return what an answer is held to where a server refused what it was to be held to, and what is lost by that."""
    field = "tool_choice" if request.settings.response_format is None else "response_format"
    path = request.paths.get(field, f"$.{field}")
    if held.schema is not None:
        return replace(held, schema=None), _left_over(path, held.constraint.losses)
    detail = f"the model server refused the grammar ({str(error)[:200]}), and was asked without it"
    return None, [Loss(path, "approximated", detail)]


def _notation(servers: Iterable[tuple[Backend, Facts]], model: Model) -> tuple[str, str | None]:
    """The first notation that every server of a model takes, none if empty, and whose they are if that matters."""
    if model.grammar == "off":
        return "", None
    common: tuple[str, ...] | None = None
    owners: set[str | None] = set()
    for backend, facts in servers:
        own = OWN_MEMBERS & (backend.extra.keys() | backend.drop)
        if own or backend.extra.get("ignore_eos"):  # which leaves a model nothing to write behind the end
            return "", None
        taken = backend.grammars or backend.owned.get(facts.owner or "", ())
        owners.add(None if backend.grammars else facts.owner)
        common = tuple(one for one in taken if one in NOTATIONS and (common is None or one in common))
    return (common[0], owners.pop()) if common and len(owners) == 1 else ("", None)


def _has_tags(found: Constraint) -> bool:
    """Whether a literal has a tag, which may be a token of its own. xgrammar lets a model write none of these, so it
    would have to spell it, which it has never seen."""
    waiting = [found.rules.start, *found.rules.rules.values()]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Literal | Ending) and tags_in(node.text):
            return True
        waiting += children(node)
    return False


def _left_over(path: str, losses: Sequence[Loss]) -> list[Loss]:
    """What of the shape is left to the check of the answer."""
    told = [loss for loss in losses if loss.path.startswith("$.schema")]
    if not told:
        return []
    place = told[0].path.removeprefix("$.schema").lstrip(".") or "the schema"
    more = f" and {len(told) - 1} more" if len(told) > 1 else ""
    return [Loss(path, "approximated", f"no grammar tells {place}{more}: the answer is checked when it is complete")]
