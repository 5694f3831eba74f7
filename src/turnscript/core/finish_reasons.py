"""Owns the words for why an answer ended: one closed list of what servers say, and what each word means.

| means | words, in any case |
| --- | --- |
| `stop` | `stop`, `eos`, `eos_token`, `stop_sequence`, `end_turn`, ... |
| `tool_calls` | `tool_calls`, `function_call`, `tool_use`, ... |
| `length` | `length`, `limit`, `max_tokens`, `model_length`, ... |
| `content_filter` | `content_filter`, `refusal`, `safety`, ... |
| no end at all | `abort`, `error`, `timeout`, `insufficient_system_resource`, ... |

Any other word stands for itself. It is never a good end: nobody knows that the model came to its end.

Sources: the finish reasons of OpenAI, Anthropic, Mistral, DeepSeek, Cohere, Gemini, Bedrock, TGI, vLLM, SGLang, Ollama
and llama.cpp.
"""

from __future__ import annotations

from types import MappingProxyType

from turnscript.core.errors import UpstreamError

STOP, LENGTH, CALLED, FILTERED = "stop", "length", "tool_calls", "content_filter"

_MEANT = {
    STOP: "stop eos eos_token endoftext stop_sequence stop_token word end_turn complete completed",
    CALLED: "tool_calls tool_call tool_use function_call",
    LENGTH: "length limit max_tokens max_length max_new_tokens max_output_tokens model_length error_limit",
    FILTERED: (
        "content_filter content_filtered refusal safety recitation blocklist prohibited_content spii image_safety "
        "guardrail_intervened error_toxic"
    ),
}
MEANT = MappingProxyType({word: meant for meant, words in _MEANT.items() for word in words.split()})
"""What each word means, written small."""
FAILURES = frozenset(
    {"error", "failed", "failure", "abort", "aborted", "cancel", "cancelled", "canceled", "user_cancel", "timeout"}
    | {"timed_out", "interrupted", "insufficient_system_resource", "server_error", "unload"}
)
"""Words that are no end: there is an error instead. Written small."""
_WELL = frozenset({STOP, CALLED})


def meaning(word: str) -> str:
    """Return what a word means, in the words of all APIs; one that is not on the list is returned as it is."""
    return MEANT.get(word.lower(), word)


def check_end(word: str | None) -> None:
    """Raise UpstreamError for a word that says that the answer failed."""
    if word is not None and word.lower() in FAILURES:
        raise UpstreamError(f"the answer broke off: {word}", retryable=True)


def end_of(word: str | None) -> str | None:
    """Return what a server's word means, None where it says none. Raises UpstreamError for one that is no end."""
    if not word:  # servers written in Go say "" for none
        return None
    check_end(word)
    return STOP if meaning(word) == CALLED else meaning(word)


def is_cut(word: str | None) -> bool:
    """Return whether an answer that ended for this reason may lack its end. Where nobody said why, it is taken as it
    is."""
    return word is not None and meaning(word) not in _WELL
