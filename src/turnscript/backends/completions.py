"""Owns `/v1/completions`, as vLLM, SGLang, TGI, transformers and llama-cpp-python have it.

| asked | wire |
| --- | --- |
| prompt, model, max_tokens, stops, stream | `prompt`, `model`, `max_tokens`, `stop`, `stream` |
| temperature, top_p, seed, the two penalties | by their own names |
| logprobs, top_logprobs, echo | `logprobs`: a number, at least 1; `echo` |
| grammar | vLLM: `structured_outputs.grammar`; SGLang: `ebnf` |

| wire | told |
| --- | --- |
| `choices[0].text`, or `delta.content` | `text` |
| `finish_reason` | `finish`, where it says something: what the word means |
| `stop_reason`, `matched_stop` | `stop` |
| `logprobs`, in the form of text completions or of chats | `logprobs` |
| `usage`, in any chunk, and `prompt_tokens_details.cached_tokens` | `usage` |
| `tokens` of `/tokenize`, which vLLM and SGLang have above `/v1` | tokens of a prompt |

Spec: platform.openai.com/docs/api-reference/completions. Quirks: some of these servers refuse every member that they do
not know, so no more is sent than all of them take; `also` names more, as `top_k` for one that has it. Some never say
`[DONE]`, some no usage, one leaves stop strings in the text, another fails inside a stream with `{"error": "..."}`, and
llama-cpp-python ends a stream without a word where it fails, or without a reason where somebody else asks. A grammar
goes through only where it is known whose server it is: another one dies of a bad one. `echo` is ignored by some in
silence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from turnscript.backends.backend import (
    UNREADABLE,
    AnswerReader,
    Backend,
    Completion,
    Facts,
    HttpCall,
    Piece,
    counted,
    encode,
    limit_of,
    stops_of,
    token_reader,
)
from turnscript.backends.shared.json_reader import JsonReader
from turnscript.core.conversation import Usage
from turnscript.core.error_object import upstream_error
from turnscript.core.errors import Unsupported, UpstreamError
from turnscript.core.finish_reasons import end_of
from turnscript.core.logprobs import TokenReader


class Completions(Backend):
    """The wire of `/v1/completions`."""

    name = "completions"
    title = "OpenAI-style text completions"
    default_path = "/v1"
    generic = True
    owned = MappingProxyType({"vllm": ("gbnf",), "sglang": ("gbnf",)})
    scores = "logprobs"
    settings = ("temperature", "top_p", "seed", "presence_penalty", "frequency_penalty")

    def call(self, ask: Completion) -> HttpCall:
        """The request for a completion."""
        asked = {"suffix": ask.suffix, "state": ask.state, "schema": ask.schema, "tokens before": ask.before or None}
        for what, said in asked.items():
            if said is not None:
                raise Unsupported(what, self.title)
        members: dict[str, Any] = {
            "prompt": ask.prompt,
            "max_tokens": limit_of(ask),
            "stream": ask.stream,
        } | self.sampling(ask)
        if members.get("top_p") == 0:
            members["top_p"] = _LEAST_TOP_P
        if stops := stops_of(ask)[:_MOST_STOPS]:  # transformers serve fails at an empty list
            members["stop"] = stops
        if ask.model is not None:
            members["model"] = ask.model
        if ask.stream:
            members["stream_options"] = {"include_usage": True}
        if ask.sampling.get("logprobs") is True:
            members["logprobs"] = max(1, ask.sampling.get("top_logprobs") or 0)
        if ask.echo:
            members["echo"] = True
        if ask.grammar is not None:
            members |= self._constrained(ask.grammar, ask.owner)
        return self.post("/completions", members)

    def _constrained(self, grammar: str, owner: str | None) -> dict[str, Any]:
        """The member that holds a grammar, where it is known whose server it is."""
        if owner == "vllm":
            return {"structured_outputs": {"grammar": grammar}}
        if owner == "sglang":
            return {"ebnf": grammar}
        raise Unsupported("grammar", self.title)

    def reader(self, ask: Completion) -> AnswerReader:
        """A reader for the answer."""
        return _Reader(token_reader(ask))

    def counts(self, facts: Facts) -> bool:
        """Others are not asked: a prompt is nothing to try paths with."""
        return facts.owner in _COUNTING

    def tokens_call(self, text: str, *, plain: bool = False) -> HttpCall | None:
        """The request for a prompt's tokens. These servers read control tokens in any text: none of it is plain."""
        return None if plain else self._tokenize(prompt=text)

    def bare_tokens_call(self, text: str) -> HttpCall | None:
        """The request for a prompt's tokens without the first one of the model."""
        return HttpCall("POST", "/../tokenize", encode({"prompt": text, _ADDS: False}))

    def _tokenize(self, **members: Any) -> HttpCall:
        """The request to its tokenizer, which puts before a text what a completion of it would have."""
        if _ADDS in self.extra:
            members[_ADDS] = self.extra[_ADDS]
        return HttpCall("POST", "/../tokenize", encode(members))

    def written_call(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] | None) -> HttpCall:
        """Return the request for the tokens that vLLM makes of messages of a chat, by the model's own template."""
        asked: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        return HttpCall("POST", "/../tokenize", encode(asked | ({"tools": tools} if tools else {})))

    def text_call(self, body: bytes) -> HttpCall:
        """Return the request for the text of these tokens."""
        return HttpCall("POST", "/../detokenize", encode({"tokens": self.read_tokens(body)}))

    def read_written(self, body: bytes) -> str:
        """Return the prompt."""
        try:
            return _read_prompt(body).prompt
        except UNREADABLE:
            said = body[:200].decode("utf-8", "replace")
            raise UpstreamError(f"the model server sent no prompt: {said!r}", body=said) from None

    def facts_calls(self) -> Sequence[HttpCall]:
        """The list of models, and what is put before a prompt."""
        return (*super().facts_calls(), self._tokenize(prompt="", return_token_strs=True))

    def read_facts(self, bodies: Sequence[bytes]) -> Facts:
        """What both say."""
        facts = super().read_facts(bodies)
        try:
            first = _read_tokens(bodies[1])
        except UNREADABLE:
            return facts
        return replace(facts, adds_bos=bool(first.tokens), bos_token=next(iter(first.token_strs or ()), None))

    def read_tokens(self, body: bytes) -> list[int]:
        """The ids."""
        try:
            return _read_tokens(body).tokens
        except UNREADABLE:
            said = body[:200].decode("utf-8", "replace")
            raise UpstreamError(f"the model server sent no tokens: {said!r}", body=said) from None


_MOST_STOPS = 4
"""vLLM and TGI refuse more, unless they are started with another number. Who reads the answer looks for all of them."""
_LEAST_TOP_P = 1e-6
"""What stands for 0, which OpenAI takes and vLLM, SGLang and TGI refuse: the likeliest token alone."""
_ADDS = "add_special_tokens"
_COUNTING = frozenset({"vllm", "sglang"})
"""Who has a tokenizer to ask, by the name that stands in its list of models."""


class _Tokens(Struct):
    tokens: list[int]
    token_strs: list[str] | None = None


class _Prompt(Struct):
    prompt: str


_read_prompt = msgspec.json.Decoder(_Prompt).decode
_read_tokens = msgspec.json.Decoder(_Tokens).decode


# Reading answers.


_NULL = Raw(b"null")
"""Many servers write it into every chunk: compared, not read."""


class _Delta(Struct, gc=False):
    content: str | None = None


class _Choice(Struct, gc=False):
    text: str | None = None
    index: int = 0
    finish_reason: str | None = None
    delta: _Delta | None = None
    stop_reason: str | int | None = None
    matched_stop: str | int | list[int] | None = None
    logprobs: Raw = _NULL


class _Answer(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: Raw = _NULL
    error: Raw = _NULL


class _Details(Struct):
    cached_tokens: int | None = None


class _Counts(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


_read_answer = msgspec.json.Decoder(_Answer).decode
_read_counts = msgspec.json.Decoder(_Counts).decode


class _Reader(JsonReader):
    """Reads chunks, which have the shape of a whole answer."""

    member = b'"text"'
    unless = b'"delta"'

    def __init__(self, tokens: TokenReader | None) -> None:
        self._tokens = tokens

    def take(self, data: bytes) -> Piece | None:
        """What one chunk says."""
        answer = _read_answer(data)
        if answer.error != _NULL:
            raise upstream_error(answer.error, Raw(data))
        usage = None if answer.usage == _NULL else _usage(answer.usage)
        if not answer.choices:
            if answer.choices is None and usage is None:
                raise msgspec.ValidationError("there are no choices")
            return None if usage is None else Piece(usage=usage)
        choice = answer.choices[0]
        if choice.index:
            return None
        text = choice.text or (choice.delta.content if choice.delta is not None else None) or ""
        tokens = None if self._tokens is None or choice.logprobs == _NULL else self._tokens.read(choice.logprobs)
        finish = end_of(choice.finish_reason)
        if finish is not None:
            stop = choice.stop_reason if isinstance(choice.stop_reason, str) else choice.matched_stop
            return Piece(text, finish, stop if isinstance(stop, str) else None, usage, None, tokens)
        if not text and usage is None and tokens is None:
            return None
        return Piece(text, None, None, usage, None, tokens)


def _usage(counts: Raw) -> Usage | None:
    """Token counts; what is none is no reason to lose an answer."""
    try:
        found = _read_counts(counts)
    except UNREADABLE:
        return None
    cached = found.prompt_tokens_details.cached_tokens if found.prompt_tokens_details is not None else None
    if found.prompt_tokens is None and found.completion_tokens is None:
        return None
    return counted(found.prompt_tokens or 0, found.completion_tokens or 0, cached or 0)


BACKENDS = (Completions(),)
