"""Owns the wires of model servers, as tests play them: how each takes a request, and how it says a text.

Each has the quirks that were measured of it (spec backends 4 and 5): which of them the gateway must not stumble over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.gateway.scripted import END, Asked, Script, said, sse

Body = dict[str, Any]


@dataclass
class Written:
    """A text as a server lets it out, in tokens; why it ended, and the stop string that it ended at."""

    tokens: Sequence[str]
    finish: str
    stop: str | None = None

    @property
    def text(self) -> str:
        """The text."""
        return "".join(self.tokens)


@dataclass(frozen=True)
class Wire:
    """A kind of server. `kind`: the backend that speaks to it; `path`: of its base URL; `knows`: the members that it
    takes, None for all; `echoes`: stop strings stay in its texts."""

    kind: str
    path: str
    answer: Callable[[Asked, Written], Script]
    models: Callable[[str], Any]
    limit_name: str = "max_tokens"
    default_limit: int = 16
    knows: frozenset[str] | None = None
    echoes: bool = False

    def facts(self, asked: Asked) -> Script | None:
        """The answer to a request that is none for a text, and to one with a member that this server does not know."""
        if asked.line.startswith("GET"):
            found = self.models(asked.line.split(" ")[1])
            return said({"error": {"message": "not found"}}, status=404) if found is None else said(found)
        if asked.line.endswith("/tokenize"):
            text = asked.json["content" if self.kind == "llamacpp" else "prompt"]
            return said({"tokens": list(range(len(text) // 3 + 1))})
        strange = set() if self.knows is None else set(asked.json) - self.knows
        if strange:
            return said({"detail": f"Unexpected keys in the request: {strange}"}, status=422)
        return None

    def stops(self, body: Body) -> list[str]:
        """The stop strings that this server looks for."""
        found = body.get("stop")
        return [found] if isinstance(found, str) else list(found or ())

    def limit(self, body: Body) -> int:
        """How many tokens it writes."""
        return int(body.get(self.limit_name) or self.default_limit)


def _models(path: str) -> Any:
    return {"object": "list", "data": [{"id": "model"}]} if path.endswith("/models") else None


def _usage(asked: Asked, written: Written) -> Body:
    prompt = asked.json["prompt"]
    inside = len(prompt) // 3 if isinstance(prompt, str) else len(prompt)
    made = len(written.tokens)
    return {"prompt_tokens": inside, "completion_tokens": made, "total_tokens": inside + made}


def _chunks(asked: Asked, written: Written, *, last: Body, ends: Sequence[Any] = ()) -> Script:
    events: list[Any] = [{"choices": [{"text": token, "index": 0, "finish_reason": None}]} for token in written.tokens]
    return sse(*events, last, *ends, end=(END,))


# Plain.


def _plain(asked: Asked, written: Written) -> Script:
    usage = _usage(asked, written)
    if not asked.json.get("stream"):
        whole = {"text": written.text, "index": 0, "finish_reason": written.finish}
        return said({"object": "text_completion", "choices": [whole], "usage": usage})
    last = {"choices": [{"text": "", "index": 0, "finish_reason": written.finish}], "usage": usage}
    return _chunks(asked, written, last=last, ends=["[DONE]"])


# vLLM and SGLang: they name the stop, count in a chunk without choices, and write 16 tokens where nobody says more. The
# last text of vLLM comes with the reason for the end.


def _vllm(asked: Asked, written: Written) -> Script:
    streams = asked.json.get("stream")
    text = "".join(written.tokens[-1:] if streams else written.tokens)
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": written.finish, "stop_reason": written.stop}
    last, usage = {"object": "text_completion", "choices": [choice]}, _usage(asked, written)
    if not streams:
        return said(last | {"usage": usage})
    before = Written(written.tokens[:-1], written.finish)
    return _chunks(asked, before, last=last, ends=[{"choices": [], "usage": usage}, "[DONE]"])


def _vllm_models(path: str) -> Any:
    model = {"id": "org/model", "owned_by": "vllm", "root": "org/model", "parent": None, "max_model_len": 32768}
    return {"object": "list", "data": [model]} if path.endswith("/models") else None


def _sglang(asked: Asked, written: Written) -> Script:
    last = {"text": "", "index": 0, "finish_reason": written.finish, "matched_stop": written.stop or 2}
    return _chunks(
        asked, written, last={"choices": [last]}, ends=[{"choices": [], "usage": _usage(asked, written)}, "[DONE]"]
    )


# TGI: `data:` without a space, and reasons of its own.


def _tgi(asked: Asked, written: Written) -> Script:
    finish = {"length": "length"}.get(written.finish, "stop_sequence" if written.stop else "eos_token")
    events = [
        f"data:{json.dumps({'choices': [{'text': token, 'index': 0, 'finish_reason': None}]})}\n\n"
        for token in written.tokens
    ]
    events.append(f"data:{json.dumps({'choices': [{'text': '', 'index': 0, 'finish_reason': finish}]})}\n\n")
    return _raw_stream("".join([*events, "data:[DONE]\n\n"]))


def _raw_stream(body: str) -> Script:
    return said(body, media="text/event-stream")


# transformers: no `[DONE]`, no reason in the chunks before the last, and the stop string stays. It wants a name.


def _transformers(asked: Asked, written: Written) -> Script:
    if asked.json.get("model") != "model":
        return said({"detail": "Missing field in the request: model"}, status=422)
    if asked.json.get("stop") == []:
        return sse({"error": "Stop string preprocessing was unable to identify tokens"}, end=(END,))
    events: list[Any] = [{"choices": [{"index": 0, "text": token}]} for token in written.tokens]
    last = {"choices": [{"index": 0, "finish_reason": written.finish, "text": ""}], "usage": _usage(asked, written)}
    return sse(*events, last, end=(END,))


# llama-cpp-python: no count in a stream, and 16 tokens where nobody says more.


def _llama_cpp_python(asked: Asked, written: Written) -> Script:
    last = {"choices": [{"text": "", "index": 0, "logprobs": None, "finish_reason": written.finish}]}
    return _chunks(asked, written, last=last, ends=["[DONE]"])


# ai00: other names, a delta in a text stream, and two blank lines as the stop where nobody says one.


def _ai00(asked: Asked, written: Written) -> Script:
    usage = {"prompt": 9, "completion": len(written.tokens), "total": 9, "duration": {"secs": 0, "nanos": 1}}
    if not asked.json.get("stream"):
        whole = {"text": written.text, "index": 0, "finish_reason": written.finish}
        return said({"object": "text_completion", "model": "rwkv", "choices": [whole], "usage": usage})
    deltas: list[Body] = [{"delta": {"content": token}, "index": 0, "finish_reason": None} for token in written.tokens]
    if written.finish == "length":
        deltas.pop()  # the last token never leaves it
    deltas.append({"delta": {}, "index": 0, "finish_reason": written.finish})
    return sse(*[{"object": "text_completion.chunk", "choices": [one]} for one in deltas], "[DONE]", end=(END,))


# llama.cpp's own wire.


def _llamacpp(asked: Asked, written: Written) -> Script:
    last = {
        "content": "",
        "stop": True,
        "id_slot": asked.json.get("id_slot", 0),
        "stop_type": "limit" if written.finish == "length" else "word" if written.stop else "eos",
        "stopping_word": written.stop or "",
        "tokens_predicted": len(written.tokens),
        "tokens_evaluated": len(asked.json["prompt"]) // 3,
        "timings": {"cache_n": 4, "prompt_n": 4},
    }
    if not asked.json.get("stream"):
        return said(last | {"content": written.text})
    return sse(*[{"content": token, "stop": False, "id_slot": -1} for token in written.tokens], last, end=(END,))


def _llamacpp_facts(path: str) -> Any:
    if path == "/props":
        return {"default_generation_settings": {"n_ctx": 8192}, "total_slots": 2, "model_path": "model.gguf"}
    return {"status": "ok"} if path == "/health" else None


_OPENAI = frozenset(
    {"prompt", "model", "max_tokens", "stop", "stream", "temperature", "top_p", "seed", "frequency_penalty"}
    | {"presence_penalty", "stream_options", "logprobs", "echo", "n", "best_of", "user", "logit_bias", "suffix"}
)

WIRES = {
    "completions": Wire("completions", "/v1", _plain, _models),
    "vllm": Wire("completions", "/v1", _vllm, _vllm_models),
    "sglang": Wire("completions", "/v1", _sglang, _models),
    "tgi": Wire("completions", "/v1", _tgi, _models, default_limit=100),
    "transformers": Wire("completions", "/v1", _transformers, _models, knows=_OPENAI, echoes=True, default_limit=400),
    "llama-cpp-python": Wire("completions", "/v1", _llama_cpp_python, _models),
    "ai00": Wire("ai00", "/api/oai/v1", _ai00, _models, default_limit=256),
    "llamacpp": Wire("llamacpp", "", _llamacpp, _llamacpp_facts, limit_name="n_predict", default_limit=10**6),
}
