"""What the clients of a gateway ask for, in each API: something small, or what a coding agent sends."""

from __future__ import annotations

import json
from copy import deepcopy
from functools import cache
from typing import Any

from benchmarks import bodies
from benchmarks.gateway_upstream import WORDS
from benchmarks.session import Session, build
from benchmarks.tools import JsonObject, declarations

PATHS = {"chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses"}
_NAMES = {"chat": "openai-chat", "messages": "anthropic-messages", "responses": "openai-responses"}
_LIMITS = {"chat": "max_tokens", "messages": "max_tokens", "responses": "max_output_tokens"}
_TURNS = {"chat": "messages", "messages": "messages", "responses": "input"}
TOOLS = 12
AGENT = 45_000
ANSWER = " ".join(["word"] * WORDS)
"""What the model's server says."""


@cache
def small(api: str, model: str, tokens: int, *, stream: bool = False) -> str:
    """A short question, whose answer nobody has to keep unless the API's name is followed by `, kept`."""
    api, _, kept = api.partition(", ")
    asked: JsonObject = {"model": model, _LIMITS[api]: tokens, "stream": stream}
    if api == "responses":
        asked["store"] = bool(kept)
    asked[_TURNS[api]] = [{"role": "user", "content": "Say the words that you know."}]
    return json.dumps(asked)


def second_turns(api: str, sessions: int, rounds: int) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """For each round the first requests of some sessions, and the second ones, which go on from the model's answers."""
    base = _agent(api)
    firsts: list[list[bytes]] = []
    seconds: list[list[bytes]] = []
    for number in range(rounds):
        both = [_turns(api, base, f"session {number}.{one}") for one in range(sessions)]
        firsts.append([first for first, _ in both])
        seconds.append([second for _, second in both])
    return firsts, seconds


def _agent(api: str) -> JsonObject:
    """A coding agent's first request, with its instructions and tools. No session is named in it."""
    described = declarations(full=True)
    more = [(f"{name}_again", f"{text}\nThe same, once more.", schema) for name, text, schema in described]
    start = build(AGENT + 20_000)
    session = Session(
        (*start.system, "\n".join(["Say what you did."] * 400)), (described + more)[:TOOLS], closing_user="Begin."
    )
    asked = bodies.SHAPES[_NAMES[api]](session)
    asked["model"] = "quick"
    for name in ("metadata", "max_tokens", "max_completion_tokens", "max_output_tokens", "thinking"):
        asked.pop(name, None)
    asked[_LIMITS[api]] = WORDS
    asked["stream"] = True
    return asked


def _turns(api: str, base: JsonObject, question: str) -> tuple[bytes, bytes]:
    first = deepcopy(base)
    turns: list[Any] = first[_TURNS[api]]
    del turns[1 if api == "chat" else 0 :]
    turns.append({"role": "user", "content": f"{question}: what does the reader do with an empty list?"})
    second = deepcopy(first)
    second[_TURNS[api]] += [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "Go on, please."}]
    return bodies.encode(first), bodies.encode(second)
