"""Owns the law of declared types: every body and every event of ours is what the SDKs declare, and has no other member.

The SDKs themselves take anything that has a type which they know, and check no member of it; clients of typed languages
do. What is told otherwise on purpose stands here, so that nothing else is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

import anthropic.types.beta as messages
import openai.types as completions
import openai.types.chat as chat
import openai.types.responses as responses
import pytest
from pydantic import BaseModel, ValidationError

from tests.answers.corpus import ALL, WHOLE
from tests.answers.probes import frames
from tests.answers.wires import APIS, stream, whole

BODIES: dict[str, type[BaseModel]] = {
    "chat": chat.ChatCompletion,
    "responses": responses.Response,
    "messages": messages.BetaMessage,
    "completions": completions.Completion,
}
EVENTS: dict[str, Any] = {
    "chat": chat.ChatCompletionChunk,
    "responses": responses.ResponseStreamEvent,
    "messages": messages.BetaRawMessageStreamEvent,
    "completions": completions.Completion,
}
"""The type of all events, or a union of one for each."""
UNDECLARED = {"messages": {"ping", "error"}}
"""Events that the types leave out."""
EXTENSIONS = {
    ("ChatCompletionMessage", "reasoning_content"),
    ("ChoiceDelta", "reasoning_content"),
    ("Response", "frequency_penalty"),
    ("Response", "presence_penalty"),
    ("Response", "store"),
    ("ResponseCustomToolCall", "status"),
    ("ResponseFunctionCallArgumentsDoneEvent", "name"),
}
"""Members that the types lack: thoughts, what the API itself sends besides, and the name that other SDKs ask for."""
OTHER_WORDS: dict[str, set[Any]] = {
    "responses": {"pause_turn", "compaction", "context_length_exceeded"},
    "completions": {None},
}
"""Values that the types lack: reasons of another API that are no good end, the code of a full context, and the reason
of a chunk that is not the last."""


def bodies(wire: str) -> Iterator[tuple[str, Any]]:
    """Every whole answer that is none of an error."""
    for answer in WHOLE:
        status, body = whole(wire, answer)
        if status == 200:
            yield answer.name, json.loads(body)


def events(wire: str) -> Iterator[tuple[str, Any]]:
    """Every event that is declared."""
    for answer in ALL:
        for _, payload in frames(stream(wire, answer)):
            is_error = wire in ("chat", "completions") and "error" in payload
            if isinstance(payload, dict) and not is_error and payload.get("type") not in UNDECLARED.get(wire, ()):
                yield answer.name, payload


def declared(wire: str, event: dict[str, Any]) -> type[BaseModel]:
    """The type of an event."""
    if "type" not in event:
        return EVENTS[wire]  # type: ignore[no-any-return]
    members: tuple[type[BaseModel], ...] = get_args(get_args(EVENTS[wire])[0])  # of a union that is annotated
    (found,) = [one for one in members if event["type"] in get_args(one.model_fields["type"].annotation)]
    return found


def wrong(type_: type[BaseModel], body: Any, words: set[Any]) -> list[str]:
    """What of a body is not as it is declared."""
    try:
        read = type_.model_validate(body, strict=True)
    except ValidationError as error:
        return [str(one)[:300] for one in error.errors() if not _is_word(one["input"], words)]
    return [str(member) for member in undeclared(read) if member not in EXTENSIONS]


def _is_word(value: Any, words: set[Any]) -> bool:
    return (value is None or isinstance(value, str)) and value in words


def undeclared(value: Any) -> Iterator[tuple[str, str]]:
    """The members that a value has and its type does not, at any depth."""
    if isinstance(value, BaseModel):
        yield from ((type(value).__name__, name) for name in value.model_extra or ())
        for name in type(value).model_fields:
            yield from undeclared(getattr(value, name))
    elif isinstance(value, list):
        for one in value:
            yield from undeclared(one)


@pytest.mark.parametrize("wire", APIS)
def test_every_body_is_what_the_sdk_declares(wire: str) -> None:
    told = list(bodies(wire))
    assert len(told) > 50
    words = OTHER_WORDS.get(wire, set())
    assert [] == [(name, said) for name, body in told for said in wrong(BODIES[wire], body, words)]


@pytest.mark.parametrize("wire", APIS)
def test_every_event_is_what_the_sdk_declares(wire: str) -> None:
    told = list(events(wire))
    assert len(told) > 1000
    words = OTHER_WORDS.get(wire, set())
    assert [] == [(name, said) for name, body in told for said in wrong(declared(wire, body), body, words)]
