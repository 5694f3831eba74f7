"""Owns the law of endings: whatever word a server has for why it stopped, no client is told of a better end than that.

Generated over the words on the list, in any case, and any others; over every backend, every API, streamed and whole.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import turnscript as ts
from turnscript.apis.api import Api
from turnscript.backends.backend import Backend, Completion, Piece
from turnscript.convert import registry
from turnscript.core.errors import UpstreamError
from turnscript.core.events import fold
from turnscript.core.finish_reasons import CALLED, FAILURES, FILTERED, LENGTH, MEANT, STOP, meaning

BACKENDS = [registry.get_backend(name) for name in registry.backends()]
APIS = [registry.get_api(name) for name in registry.apis()]
FORMAT = ts.get_format("batuta-chatml")
ASK = Completion(prompt="Hi", max_tokens=5)
TOLD = {
    "openai-chat": {STOP: "stop", LENGTH: "length", FILTERED: "content_filter"},
    "openai-completions": {STOP: "stop", LENGTH: "length", FILTERED: "content_filter"},
    "openai-responses": {STOP: "completed", LENGTH: "max_output_tokens", FILTERED: "content_filter"},
    "anthropic-messages": {STOP: "end_turn", LENGTH: "max_tokens", FILTERED: "refusal"},
    "gemini": {STOP: "STOP", LENGTH: "MAX_TOKENS", FILTERED: "SAFETY"},
}
"""The word of each API for each end. For a word that nobody knows, all say that the answer is not whole."""


def cased(words: Any) -> st.SearchStrategy[str]:
    """Words as servers write them: small, large, or somehow."""
    return st.builds(lambda word, change: change(word), st.sampled_from(sorted(words)), st.sampled_from(CASES))


CASES = (str, str.upper, str.title, str.swapcase)
OWN = (
    "pause_turn",
    "compaction",
    "steered",
    "max_messages",
    "model_context_window_exceeded",
    "context_length_exceeded",
)
"""Words that one API has, and that mean the same wherever they come from."""
STRANGE = st.text(min_size=1, max_size=12).filter(lambda word: word.lower() not in {*MEANT, *FAILURES, *OWN})
BOTH = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
EACH_BACKEND = pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
EACH_API = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def said(backend: Backend, word: str | None, *, streamed: bool) -> bytes:
    """An answer of this kind of server that ends with a word."""
    if backend.name == "llamacpp":
        last: dict[str, Any] = {"content": "Hello", "stop": True, "stop_type": word}
        return f"data: {json.dumps(last)}\n\n".encode() if streamed else json.dumps(last).encode()
    choice = {"index": 0, "text": "Hello", "finish_reason": word}
    if not streamed:
        return json.dumps({"choices": [choice]}).encode()
    first = {"choices": [{"index": 0, "text": "Hello", "finish_reason": None}]}
    events = [first, {"choices": [choice | {"text": ""}]}]
    return "".join(f"data: {json.dumps(one)}\n\n" for one in events).encode() + b"data: [DONE]\n\n"


def read(backend: Backend, data: bytes) -> list[Piece]:
    """All that a reader tells of an answer. Raises UpstreamError where it is none."""
    reader = backend.reader(ASK)
    return reader.feed(data) + reader.close()


def told(api: Api, pieces: list[Piece], *, streamed: bool) -> tuple[str | None, list[str]]:
    """The word for the end that a client of an API gets, and where losses are reported."""
    parser = FORMAT.parser()
    events = [event for piece in pieces for event in parser.feed(piece.text)]
    events += parser.close(next((piece.finish for piece in pieces if piece.finish), None))
    request = ts.Request()
    request.settings.model = "m"
    if not streamed:
        rendered = api.render_response(fold(events), request)
        return word_of(rendered.value), [loss.path for loss in rendered.losses]
    renderer = api.stream_renderer(request)
    data = renderer.send(events) + renderer.close()
    frames = [line[6:] for line in data.decode().split("\n") if line.startswith("data: {")]
    words = [word for word in (word_of(json.loads(frame)) for frame in frames) if word is not None]
    return (words[-1] if words else None), [loss.path for loss in renderer.losses]


def word_of(body: Any) -> str | None:
    """The word for the end in a body, or in an event of a stream."""
    found: Any = body.get("stop_reason")
    response = body.get("response", body)
    if body.get("candidates"):
        found = body["candidates"][0].get("finishReason")
    elif body.get("choices"):
        found = body["choices"][0].get("finish_reason")
    elif "status" in response:
        details = response.get("incomplete_details") or {}
        found = response["status"] if response["status"] == "completed" else details.get("reason")
    elif body.get("type") == "message_delta":
        found = body["delta"].get("stop_reason")
    return None if found is None else str(found)


@BOTH
@EACH_API
@EACH_BACKEND
@given(cased(MEANT))
@example("length")
def test_a_word_on_the_list_is_told_in_the_words_of_the_api(
    backend: Backend, api: Api, streamed: bool, word: str
) -> None:
    meant = STOP if meaning(word) == CALLED else meaning(word)
    pieces = read(backend, said(backend, word, streamed=streamed))
    assert TOLD[api.name][meant] == told(api, pieces, streamed=streamed)[0]


@BOTH
@EACH_BACKEND
@given(cased(FAILURES))
@example("abort")
def test_a_word_for_a_failure_is_an_error(backend: Backend, streamed: bool, word: str) -> None:
    with pytest.raises(UpstreamError):
        read(backend, said(backend, word, streamed=streamed))


@BOTH
@EACH_API
@EACH_BACKEND
@given(STRANGE)
@example("banana")
def test_any_other_word_is_told_as_an_answer_that_is_not_whole(
    backend: Backend, api: Api, streamed: bool, word: str
) -> None:
    end, losses = told(api, read(backend, said(backend, word, streamed=streamed)), streamed=streamed)
    expected = word if api.name == "openai-responses" else TOLD[api.name][LENGTH]
    assert expected == end
    assert "$.finish_reason" in losses


@EACH_BACKEND
@pytest.mark.parametrize("word", [None, ""], ids=["none", "empty"])
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("empty", [False, True])
@BOTH
def test_no_word_is_no_end(backend: Backend, streamed: bool, word: str | None, counted: bool, empty: bool) -> None:
    """Whatever the server said before, whether its last list of choices is empty, and whether it counted tokens."""
    data = said(backend, word, streamed=streamed)
    usage = {"prompt_tokens": 3, "completion_tokens": 1} if backend.name != "ai00" else {"prompt": 3, "completion": 1}
    more: dict[str, Any] = {"usage": usage} if counted else {}
    if empty and backend.name != "llamacpp":
        body = {"choices": []} | more
        event = f"data: {json.dumps(body)}\n\ndata: [DONE]".encode()
        data = data.replace(b"data: [DONE]", event) if streamed else json.dumps(body).encode()
    with pytest.raises(UpstreamError):
        read(backend, data)
