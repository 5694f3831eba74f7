"""Owns errors on their way between processes and threads: a copy says the same, and has what programs ask it for."""

import copy
import pickle
from collections.abc import Callable

import pytest

import turnscript as ts
from turnscript.core.errors import (
    InvalidRequest,
    InvalidTranscript,
    LossyConversion,
    Overloaded,
    TooLarge,
    Unsupported,
    UpstreamError,
)
from turnscript.core.losses import Loss
from turnscript.gateway.store import Behind

ERRORS: list[ts.TurnscriptError] = [
    InvalidRequest("wrong", path="$.a", expected="a number", got="b"),
    InvalidTranscript("wrong", line=3, column=2, expected="a tag"),
    LossyConversion([Loss("$.a", "dropped", "it has no place")], "a format"),
    Overloaded("busy", retry_after=2.5),
    TooLarge(5),
    Unsupported("thinking", "a format"),
    UpstreamError("refused", upstream=500, retryable=True, body="why"),
    Behind(7),
]


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_copy_of_an_error_says_the_same(
    error: ts.TurnscriptError, way: Callable[[ts.TurnscriptError], ts.TurnscriptError]
) -> None:
    found = way(error)
    assert (type(error), str(error), error.args) == (type(found), str(found), found.args)
    assert vars(error) == vars(found)


@pytest.mark.parametrize(("text", "line", "column"), [("Hi\ud800", 1, 3), ("<<USER>>\nx\udfff\n<<USER_END>>", 2, 2)])
def test_half_a_character_in_a_transcript_is_an_error_at_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(InvalidTranscript, match="half of a surrogate pair") as caught:
        ts.parse(text, "rwkv-universal")
    assert (line, column) == (caught.value.line, caught.value.column)


def test_a_recorded_stream_is_no_request() -> None:
    stream = b'data: {"id":"x","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'
    with pytest.raises(InvalidRequest, match="a recorded stream is an answer"):
        ts.convert(stream, "openai-chat", "anthropic-messages", side="request")
    assert b"Hi" in str(ts.convert(stream + b"data: [DONE]\n\n", "openai-chat", "anthropic-messages").value).encode()
