"""Owns llama.cpp's own `/completion`, which can do more than its `/v1/completions`: slots, control tokens, grammars.

| asked | wire |
| --- | --- |
| max_tokens, stops, stream | `n_predict`, `stop`, `stream` |
| before | `prompt`: an array of ids, then the text |
| media, marker | `prompt`: `prompt_string` with a mark for each, `multimodal_data` in their order |
| slot, visible, grammar, schema | `id_slot`, `preserved_tokens`, `grammar`, `json_schema` |
| stream | `return_progress`, for how much of the prompt was cached |
| presence_penalty and the other settings | by their own names |
| logprobs, top_logprobs | `n_probs` |

| wire | told |
| --- | --- |
| `content` | `text` |
| `stop_type`: `word` or `eos`; `limit` | `finish`: `stop`; `length` |
| `stopped_word`, `stopped_eos`; `stopped_limit` | the same, of servers older than `stop_type` |
| `stopping_word` | `stop` |
| `tokens_evaluated`, `tokens_predicted`, `timings.cache_n` | `usage` |
| `tokens_evaluated`, `prompt_progress.cache` before the end | `usage` of the first text |
| `id_slot`, `completion_probabilities` | `slot`, `logprobs` |

Spec: tools/server/README.md of the llama.cpp project. Quirks: the last event repeats the whole prompt and all settings
unless `response_fields` says what is wanted, and there is no `[DONE]`. At the limit, a stream loses what was held back
because a stop might follow. A control token is nothing in the text unless it is in `preserved_tokens`, and a stop
string that names one is then never met. A prompt in text gets the model's first token put before it; one in ids does
not. The text of a control token is that token, in every prompt in text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from turnscript.backends.backend import (
    UNREADABLE,
    AnswerReader,
    Backend,
    Completion,
    Facts,
    HttpCall,
    Piece,
    SlotAction,
    at_least_one,
    counted,
    encode,
    given,
    limit_of,
    stops_of,
    token_reader,
)
from turnscript.backends.shared.json_reader import JsonReader
from turnscript.core.conversation import Usage
from turnscript.core.error_object import upstream_error
from turnscript.core.errors import Unsupported, UpstreamError
from turnscript.core.finish_reasons import LENGTH, STOP, end_of
from turnscript.core.json_text import Json
from turnscript.core.logprobs import TokenLogprob, TokenReader
from turnscript.core.losses import Loss
from turnscript.grammar.llamacpp import left_of

_CANDIDATES = 10
"""How many likely tokens are asked for at least: only among them is said what a token is whose text is held back."""
_STAND_IN = "{%- for message in messages -%}\n  {{- '<|im_start|>'"
"""How the template begins that is shown for a model without one: ChatML, which says nothing of the model."""
_BREAK = "\u200b"
"""A space without width."""
_SAMPLED = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_WANTED = (
    "content",
    "stop",
    "stop_type",
    "stopped_eos",
    "stopped_word",
    "stopped_limit",
    "stopping_word",
    "truncated",
    "id_slot",
    "tokens_evaluated",
    "tokens_predicted",
    "timings/cache_n",
    "completion_probabilities",
)


class LlamaCpp(Backend):
    """The wire of llama.cpp's server."""

    name = "llamacpp"
    title = "llama.cpp server"
    pins = True
    keeps = True
    names_stops = True
    prepends = True
    grammars = ("gbnf",)
    scores = "n_probs"
    settings = (
        *("temperature", "top_p", "top_k", "min_p", "typical_p", "seed", "presence_penalty", "frequency_penalty"),
        *("repeat_penalty", "repeat_last_n", "logit_bias", "ignore_eos", "mirostat", "mirostat_tau", "mirostat_eta"),
    )

    def call(self, ask: Completion) -> HttpCall:
        """The request for a completion."""
        for what in ("suffix", "state"):
            if getattr(ask, what) is not None:
                raise Unsupported(what, self.title)
        if ask.echo:
            raise Unsupported("echo", self.title)
        members: dict[str, Any] = {
            "prompt": _prompt_of(ask),
            "n_predict": limit_of(ask),
            "stop": stops_of(ask),
            "stream": ask.stream,
            "cache_prompt": True,
            "response_fields": _WANTED,
        } | self.sampling(ask)
        if ask.stream:
            members["return_progress"] = True
        if ask.slot is not None:
            members["id_slot"] = ask.slot
        if ask.visible:
            members["preserved_tokens"] = ask.visible
        if ask.grammar is not None:
            members["grammar"] = ask.grammar
        if ask.schema is not None:
            members["json_schema"] = ask.schema
        if ask.sampling.get("logprobs") is True:
            members["n_probs"] = max(_CANDIDATES, ask.sampling.get("top_logprobs") or 0)
        return self.post("/completion", members)

    def left_of(self, schema: Json, losses: Sequence[Loss]) -> list[Loss] | None:
        """Return which losses are left where it is sent the schema; None where a grammar is to be sent."""
        return left_of(schema, losses)

    def reader(self, ask: Completion) -> AnswerReader:
        """A reader for the answer."""
        return _Reader(token_reader(ask))

    def health_call(self) -> HttpCall:
        """503 while the model is loading."""
        return HttpCall("GET", "/health")

    def is_well(self, status: int) -> bool:
        """Its health is all that it is asked for here, so 500 means what it says."""
        return status < 500

    def facts_calls(self) -> Sequence[HttpCall]:
        """What the server is, and what it puts before a prompt."""
        start = {"content": "", "add_special": True, "with_pieces": True}
        return (HttpCall("GET", "/props"), HttpCall("POST", "/tokenize", encode(start)))

    def read_facts(self, bodies: Sequence[bytes]) -> Facts:
        """The context of one slot, the number of slots, the model's file, its first and last token, its templates."""
        try:
            found = _read_props(bodies[0])
        except UNREADABLE:
            return Facts()
        try:
            adds_bos = bool(_read_tokens(bodies[1]).tokens)
        except UNREADABLE:
            adds_bos = None
        model = found.model_alias or found.model_path
        settings = found.default_generation_settings
        return Facts(
            context=at_least_one(settings.n_ctx) if settings is not None else None,
            slots=at_least_one(found.total_slots),
            model=model.replace("\\", "/").rpartition("/")[2] if model else None,
            end_token=found.eos_token or None,
            bos_token=found.bos_token or None,
            adds_bos=adds_bos,
            build=found.build_info,
            template=_own_template(found.chat_template),
            tools_template=_own_template(found.chat_template_tool_use),
            file=found.model_path or None,
            sampling=_sampling(settings.params) if settings is not None else {},
            **_senses(found),
        )

    def slot_call(self, action: SlotAction, slot: int, file: str) -> HttpCall:
        """In the folder that it was started with (`--slot-save-path`); 501 without one. It waits for a busy slot."""
        return HttpCall("POST", f"/slots/{slot}?action={action}", encode({"filename": file}))

    def tokens_call(self, text: str, *, plain: bool = False) -> HttpCall:
        """The request for a text's tokens."""
        return HttpCall(
            "POST", "/tokenize", encode({"content": text, "add_special": not plain, "parse_special": not plain})
        )

    def read_tokens(self, body: bytes) -> list[int]:
        """The ids."""
        try:
            return [one if isinstance(one, int) else one.id for one in _read_tokens(body).tokens]
        except UNREADABLE:
            said = body[:200].decode("utf-8", "replace")
            raise UpstreamError(f"the model server sent no tokens: {said!r}", body=said) from None

    def written_call(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> HttpCall:
        """The request for a prompt by its own template, with the server's own ways of running it."""
        return HttpCall("POST", "/apply-template", encode({"messages": messages} | ({"tools": tools} if tools else {})))

    def read_written(self, body: bytes) -> str:
        """The prompt."""
        try:
            return _read_written(body).prompt
        except UNREADABLE:
            said = body[:200].decode("utf-8", "replace")
            raise UpstreamError(f"the model server sent no prompt: {said!r}", body=said) from None


def _prompt_of(ask: Completion) -> Any:
    """The prompt: text or ids, or an array of both, before which the server puts nothing of its own."""
    if ask.media:
        if ask.before:
            raise Unsupported("tokens before a prompt with pictures", LlamaCpp.title)
        return _shown(str(ask.prompt), ask)
    return [*ask.before, ask.prompt] if ask.before and isinstance(ask.prompt, str) else ask.prompt


def _shown(prompt: str, ask: Completion) -> dict[str, Any]:
    """The text with the server's marks, and what they stand for. Text that looks like its mark is told from one: it is
    broken by a character that nobody sees."""
    words = re.compile("|".join(map(re.escape, ask.media)))
    broken = f"{ask.marker[:1]}{_BREAK}{ask.marker[1:]}"
    text = words.sub(lambda _: ask.marker, prompt.replace(ask.marker, broken))
    return {"prompt_string": text, "multimodal_data": [ask.media[word] for word in words.findall(prompt)]}


class _Written(Struct):
    prompt: str


class _Defaults(Struct):
    n_ctx: int | None = None
    params: Any = None


class _Modalities(Struct):
    vision: bool = False
    audio: bool = False


class _Props(Struct):
    default_generation_settings: _Defaults | None = None
    total_slots: int | None = None
    model_alias: str | None = None
    model_path: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None
    build_info: str | None = None
    chat_template: str | None = None
    chat_template_tool_use: str | None = None
    modalities: _Modalities | None = None
    media_marker: str | None = None


def _sampling(said: Any) -> dict[str, float]:
    """Return what the server samples with by itself. It tells 32-bit numbers: 0.95 comes as 0.949999988."""
    values = [(name, said.get(name)) for name in _SAMPLED] if isinstance(said, dict) else []
    return {name: round(value, 6) for name, value in values if isinstance(value, int | float)}


def _senses(found: _Props) -> dict[str, Any]:
    """What the model takes beside text, and the mark for it: newer servers have one of their own each time."""
    senses = found.modalities or _Modalities()
    marker = {"marker": found.media_marker} if found.media_marker else {}
    return {"sees": senses.vision, "hears": senses.audio, **marker}


def _own_template(shown: str | None) -> str | None:
    """The template of the model itself."""
    return shown if shown and not shown.startswith(_STAND_IN) else None


class _Token(Struct):
    id: int


class _Tokens(Struct):
    tokens: list[int | _Token]


_read_props = msgspec.json.Decoder(_Props).decode
_read_written = msgspec.json.Decoder(_Written).decode
_read_tokens = msgspec.json.Decoder(_Tokens).decode


# Reading answers.


class _Timings(Struct, gc=False):
    cache_n: int | None = None


class _Progress(Struct, gc=False):
    cache: int | None = None


class _Event(Struct, gc=False):
    content: str | None = None
    stop: bool | None = None
    error: Raw | UnsetType = UNSET
    stop_type: str | None = None
    stopping_word: str | None = None
    truncated: bool | None = None
    stopped_eos: bool | None = None
    stopped_word: bool | None = None
    stopped_limit: bool | None = None
    id_slot: int | None = None
    tokens_evaluated: int | None = None
    tokens_predicted: int | None = None
    cached: int | None = field(name="timings/cache_n", default=None)
    timings: _Timings | None = None
    prompt_progress: _Progress | None = None
    completion_probabilities: Raw | UnsetType = UNSET


_read_event = msgspec.json.Decoder(_Event).decode


class _Reader(JsonReader):
    """Reads events; the last one, and a whole answer, say `"stop": true`.

    All say how long the prompt is, and those while it is read how much of it was known. The first text tells that on:
    an answer that is broken off has no last event.
    """

    def __init__(self, tokens: TokenReader | None) -> None:
        self._tokens = tokens
        self._cached = 0
        self._counted = False

    def take(self, data: bytes) -> Piece | None:
        """What one event says."""
        event = _read_event(data)
        text = event.content
        if event.stop:
            self.over = True
            return _last(event, text or "", self._list_of(event))
        if text or event.completion_probabilities is not UNSET:
            usage = None if self._counted else self._prompt(event)
            return Piece(text or "", None, None, usage, None, self._list_of(event))
        if event.prompt_progress is not None:
            self._cached = event.prompt_progress.cache or 0
            return None
        error = given(event.error)
        if error is not None:
            raise upstream_error(error, Raw(data))
        if text is None and event.stop is None:
            raise msgspec.ValidationError("there is no content")
        return None

    def _prompt(self, event: _Event) -> Usage | None:
        self._counted = True
        return counted(event.tokens_evaluated, 0, self._cached) if event.tokens_evaluated else None

    def _list_of(self, event: _Event) -> list[TokenLogprob] | None:
        said = event.completion_probabilities
        return None if said is UNSET or self._tokens is None else self._tokens.read(said)


def _last(event: _Event, text: str, tokens: list[TokenLogprob] | None) -> Piece:
    said = event.tokens_evaluated is not None or event.tokens_predicted is not None
    cached = event.cached if event.cached is not None else event.timings.cache_n if event.timings is not None else None
    usage = counted(event.tokens_evaluated or 0, event.tokens_predicted or 0, cached or 0) if said else None
    finish = LENGTH if event.truncated or event.stopped_limit else end_of(event.stop_type or _older(event))
    slot = event.id_slot if event.id_slot is not None and event.id_slot >= 0 else None
    return Piece(text, finish, event.stopping_word or None, usage, slot, tokens)


def _older(event: _Event) -> str | None:
    """The word for what servers of 2024 say in three members."""
    return STOP if event.stopped_eos or event.stopped_word else None


BACKENDS = (LlamaCpp(),)
