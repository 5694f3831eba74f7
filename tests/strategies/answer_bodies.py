"""Owns answers of APIs as their servers send them: strategies drawn from the official SDKs' own response types.

An answer that failed or is not over is none, so what says that is put right. Nothing has an empty id, in whose place a
writer makes one up. All else is as it was drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from anthropic.types import Message
from anthropic.types.beta import BetaMessage
from hypothesis import strategies as st
from openai.types import Completion
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tests.strategies.google import GenerateContentResponse
from tests.strategies.sdk import drawn_from
from tests.strategies.shapes import Model

HOPS = 6
Body = dict[str, Any]


def _chat(body: Body, draw: st.DrawFn) -> None:
    _choices(body, draw, ["stop", "length", "tool_calls", "content_filter", "function_call"])


def _completion(body: Body, draw: st.DrawFn) -> None:
    _choices(body, draw, ["stop", "length", "content_filter"])


def _choices(body: Body, draw: st.DrawFn, reasons: list[str]) -> None:
    for number, choice in enumerate(body["choices"]):
        choice["index"] = number
        choice["finish_reason"] = draw(st.sampled_from(reasons))


def _response(body: Body, draw: st.DrawFn) -> None:
    body["error"] = None
    body["status"] = draw(st.sampled_from(["completed", "incomplete"]))


def _message(body: Body, draw: st.DrawFn) -> None:
    body["type"], body["role"] = "message", "assistant"
    body["stop_reason"] = draw(st.sampled_from(["end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn"]))
    body["stop_sequence"] = "END" if body["stop_reason"] == "stop_sequence" else None


def _candidates(body: Body, draw: st.DrawFn) -> None:
    body.pop("promptFeedback", None)
    body["responseId"] = "r1"  # in whose place one is made up, of what stands where
    for number, candidate in enumerate(body["candidates"]):
        candidate["index"] = number
        candidate["finishReason"] = draw(st.sampled_from(["STOP", "MAX_TOKENS", "SAFETY", "OTHER", "SPII"]))


_TYPES: dict[str, tuple[tuple[Any, ...], Callable[[Body, st.DrawFn], None]]] = {
    "openai-chat": ((ChatCompletion,), _chat),
    "openai-completions": ((Completion,), _completion),
    "openai-responses": ((Response,), _response),
    "anthropic-messages": ((Message, BetaMessage), _message),
    "gemini": ((GenerateContentResponse,), _candidates),
}


@cache
def _drawn(api: str) -> st.SearchStrategy[Any]:
    return st.one_of([drawn_from(Model([type_], {}).root, HOPS) for type_ in _TYPES[api][0]])


@st.composite
def answer_bodies(draw: st.DrawFn, api: str) -> Body:
    """An answer of an API, with one choice at least where it has any."""
    body: Body = draw(_drawn(api))
    if [] in (body.get("choices"), body.get("candidates")):
        return draw(answer_bodies(api))
    _TYPES[api][1](body, draw)
    _name(body)
    return body


def _name(value: Any) -> None:
    """Give whatever has an empty id another one."""
    if isinstance(value, dict):
        for key in ("id", "call_id"):
            if value.get(key) == "":
                value[key] = "x1"
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _name(one)
