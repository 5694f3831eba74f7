"""Owns the words in which servers refuse a prompt that does not fit: each becomes what clients shorten for."""

from __future__ import annotations

import json

import pytest

from turnscript.backends.shared.server_errors import refusal
from turnscript.convert.registry import get_api
from turnscript.core.error_kinds import fault_of, room_said
from turnscript.core.errors import UpstreamError

VLLM = "Make sure that `max_model_len` is no smaller than the number of text tokens."
FULL = {
    "vllm, one word more": "You passed 9000 input tokens and requested 0 output tokens. However, the model's context "
    "length is only 4096 tokens, resulting in a maximum input length of 4096 tokens. Please reduce the length of the "
    "input prompt. (parameter=input_tokens, value=9000)",
    "vllm, engine": f"The decoder prompt (length 9000) is longer than the maximum model length of 4096. {VLLM}",
    "vllm, pictures": f"The prompt (total length 9000) is too long to fit into the model (context length 4096). {VLLM}",
    "sglang": "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
    "sglang, scheduler": "Input length (9000 tokens) exceeds the maximum allowed length (4096 tokens). Use a shorter "
    "input or enable --allow-auto-truncate.",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 9000 `inputs` tokens "
    "and 20 `max_new_tokens`",
    "tgi, input": "Input validation error: `inputs` must have less than 4096 tokens. Given: 9000",
    "llama-cpp-python": "Requested tokens (9000) exceed context window of 4096",
    "lm studio": "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with "
    "context length of only 4096 tokens, which is not enough.",
}
EACH = pytest.mark.parametrize("server", FULL)


def refused(message: str, status: int = 400) -> UpstreamError:
    return refusal(status, json.dumps({"error": {"message": message, "type": "BadRequestError"}}).encode())


@EACH
@pytest.mark.parametrize("status", [400, 422])
def test_clients_are_told_in_the_words_that_they_shorten_for(server: str, status: int) -> None:
    error = refused(FULL[server], status)
    fault = fault_of(error)
    assert ("overflow", 400, 9000, 4096) == (fault.kind, fault.status, fault.asked, fault.limit)
    _, body = get_api("anthropic-messages").render_error(error)
    assert b"prompt is too long: 9000 tokens > 4096 maximum" in body
    for name in ("openai-chat", "openai-responses"):
        _, body = get_api(name).render_error(error)
        assert b'"context_length_exceeded"' in body
        assert b"This model's maximum context length is 4096 tokens" in body


@EACH
def test_the_same_words_inside_a_stream_mean_the_same(server: str) -> None:
    error = UpstreamError(f"the server says: {FULL[server]}", upstream=None, body="")
    assert "overflow" == fault_of(error).kind


def test_where_only_the_answer_does_not_fit_both_counts_are_told() -> None:
    said = FULL["tgi"].replace("9000", "4090")
    _, body = get_api("anthropic-messages").render_error(refused(said))
    assert b"exceed context limit: 4090 + 20 > 4096" in body
    said = FULL["vllm, one word more"].replace("9000", "4090").replace("requested 0", "requested 20")
    assert (4090, 6) == ((room := room_said(refused(said), 20)) and (room.prompt, room.left))
    assert "overflow" == fault_of(refused(said)).kind


@pytest.mark.parametrize(
    "message",
    [
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
        "Input length of 'user' exceeds the maximum allowed length (64 characters)",
        "`max_new_tokens` must be <= 512. Given: 1000",
        "`stop` supports up to 4 stop sequences. Given: 9",
        "string too long. Expected at most 64 characters",
    ],
)
def test_what_is_too_long_for_another_reason_is_no_overflow(message: str) -> None:
    assert "bad_request" == fault_of(refused(message)).kind
