"""Owns ai00_server's completions: OpenAI's path with shapes of its own, for RWKV models.

| asked | wire |
| --- | --- |
| prompt, max_tokens, stops, stream | `prompt`, `max_tokens`, `stop`, `stream` |
| temperature, top_p, top_k, the two penalties | `sampler`, an object with a `type` |
| logit_bias, grammar, state | `bias`, `bnf_schema`, `state`: the id of one that is loaded |
| which states there are | `GET /api/models/info` |

| wire | told |
| --- | --- |
| `choices[0].text`; in a stream `choices[0].delta.content` | `text` |
| `finish_reason` | `finish`: what the word means |
| `usage`: `prompt`, `completion`, `total` | `usage`; a stream has none |

Spec: crates/ai00-server/src/api/oai/completion.rs of the ai00_server project, read 2026-11-20, and its api/model.rs and
ai00-core/src/run.rs for states. Quirks: for a state that it does not know it takes its default one, and says nothing;
where its configuration gives no id, a state has another each time the server starts. A state may also be sent whole, or
as the path of a file on the server's disk: neither is passed on. Without `stop` a text
ends at its first blank line, so it is always sent, even empty. A stop that begins inside a near miss is not met
(`\\n\\nUser:` in `\\n\\n\\nUser:`), and at the limit of a stream the last token is not sent. There is no seed. Its own
defaults (`top_p` 0.5, penalties 0.3) stay where the client says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from turnscript.backends.backend import (
    UNREADABLE,
    AnswerReader,
    Backend,
    Completion,
    HttpCall,
    Piece,
    State,
    counted,
    given,
    limit_of,
    stops_of,
)
from turnscript.backends.shared.json_reader import JsonReader
from turnscript.core.error_object import upstream_error
from turnscript.core.errors import Unsupported
from turnscript.core.finish_reasons import end_of

_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Ai00(Backend):
    """The wire of ai00_server."""

    name = "ai00"
    title = "ai00_server"
    default_path = "/api/oai/v1"
    begins = True
    no_ids = "it takes text alone, and prepares the state that a prompt begins from"
    grammars = ("kbnf",)
    sections = ("listen", "tokenizer", "bnf", "adapter", "lora", "state", "web", "embed")
    settings = ("temperature", "top_p", "top_k", "presence_penalty", "frequency_penalty", "penalty_decay", "logit_bias")

    def call(self, ask: Completion) -> HttpCall:
        """The request for a completion."""
        if ask.suffix is not None or ask.echo:
            raise Unsupported("echo" if ask.echo else "suffix", self.title)
        if ask.schema is not None:
            raise Unsupported("schema", self.title)
        if not isinstance(ask.prompt, str) or ask.before:
            raise Unsupported("a prompt in token ids", self.title)
        if ask.state is not None and not _ID.fullmatch(ask.state):
            raise Unsupported(
                "state", self.title, f"{self.title} knows a state by its id, a UUID, not by {ask.state!r}"
            )
        members: dict[str, Any] = {
            "prompt": ask.prompt,
            "max_tokens": limit_of(ask),
            "stop": stops_of(ask),
            "stream": ask.stream,
        }
        sampling = self.sampling(ask)
        bias = sampling.pop("logit_bias", None)
        if bias is not None:
            members["bias"] = bias
        if sampling:
            members["sampler"] = {"type": "Nucleus"} | _greedy(sampling)
        if ask.grammar is not None:
            members["bnf_schema"] = ask.grammar
        if ask.state is not None:
            members["state"] = ask.state
        return self.post("/completions", members)

    def reader(self, ask: Completion) -> AnswerReader:
        """A reader for the answer."""
        return _Reader()

    def states_calls(self) -> Sequence[HttpCall]:
        """Its paths for completions stand with `/v1` and without."""
        return (HttpCall("GET", "/../../models/info"), HttpCall("GET", "/../models/info"))

    def read_states(self, body: bytes) -> list[State] | None:
        """The states of the model that is loaded. One that is in the model's own file is called `internal`."""
        try:
            return _read_info(body).states
        except UNREADABLE:
            return None


class _Info(Struct):
    states: list[State]


_read_info = msgspec.json.Decoder(_Info).decode


def _greedy(sampling: dict[str, Any]) -> dict[str, Any]:
    """A temperature of 0, by which this server divides, as the choice of the likeliest token."""
    temperature = sampling.get("temperature")
    if temperature is None or temperature > 0:
        return sampling
    return sampling | {"temperature": 1, "top_k": 1}


# Reading answers.


class _Delta(Struct, gc=False):
    content: str | None = None


class _Choice(Struct, gc=False):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Counts(Struct, gc=False):
    prompt: int = 0
    completion: int = 0


class _Answer(Struct, gc=False):
    choices: list[_Choice] | None = None
    usage: _Counts | None = None
    error: Raw | UnsetType = UNSET


_read_answer = msgspec.json.Decoder(_Answer).decode


class _Reader(JsonReader):
    """Reads chunks, which say `delta`, and whole answers, which say `text`."""

    def take(self, data: bytes) -> Piece | None:
        """What one chunk says."""
        answer = _read_answer(data)
        if not answer.choices:
            error = given(answer.error)
            if error is not None:
                raise upstream_error(error, Raw(data))
            raise msgspec.ValidationError("there are no choices")
        choice = answer.choices[0]
        text = choice.text or (choice.delta.content if choice.delta is not None else None) or ""
        usage = None if answer.usage is None else counted(answer.usage.prompt, answer.usage.completion)
        finish = end_of(choice.finish_reason)
        if finish is not None:
            return Piece(text, finish, None, usage)
        return Piece(text, None, None, usage) if text or usage is not None else None


BACKENDS = (Ai00(),)
