"""Owns what is made of a model server's refusals, whatever bytes they hold."""

import json

import pytest

from turnscript.backends.backend import Backend
from turnscript.backends.shared.server_errors import refusal
from turnscript.convert import registry

BODIES = [
    b'{"error": {"message": "oh \xe9", "type": "server_error"}}',
    b'{"error": "oh \xe9"}',
    b'{"error": ["oh \xe9"]}',
    b'{"message": "oh \xe9"}',
    b'{"detail": {"msg": "oh \xe9"}}',
    b"oh \xe9",
]


@pytest.mark.parametrize(
    "backend", [registry.get_backend(name) for name in registry.backends()], ids=lambda it: it.name
)
@pytest.mark.parametrize("body", BODIES)
def test_a_refusal_that_is_not_utf8_is_told_as_far_as_it_can_be_read(backend: Backend, body: bytes) -> None:
    error = backend.read_error(503, body)
    assert 503 == error.upstream
    assert error.retryable
    assert "oh \ufffd" in str(error)
    assert body.decode("utf-8", "replace") == error.body


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"error": {}}', b'{"detail": "\\ud800"}', b"\xff\xfe", b'{"error": null}']
)
def test_a_refusal_that_says_nothing_is_one_all_the_same(body: bytes) -> None:
    for name in registry.backends():
        assert str(registry.get_backend(name).read_error(400, body)).startswith("the model server answers 400: ")


WHICH = [
    (404, "model 'qwen2.5:7b' not found"),
    (404, 'model "llama3.2" not found, try pulling it first'),
    (404, "The model `Qwen/Qwen2.5-7B-Instruct` does not exist."),
    (400, "Model hf.co/a/b.gguf is not loaded"),
    (400, "'model' is a required property"),
    (400, "you must provide a model parameter"),
    (400, "Missing required parameter: 'model'"),
    (400, "Failed to deserialize the JSON body: missing field `model` at line 1 column 40"),
    (400, "Invalid model name passed in model=a"),
    (404, "unknown model: a.b"),
    (422, '[{"loc": ["body", "model"], "msg": "field required", "type": "value_error.missing"}]'),
]
OTHER = [
    (400, "Unsupported: unknown model parameter min_p"),
    (400, "Unknown parameter for model: a"),
    (400, "invalid grammar for model"),
    (400, "Invalid model output: the grammar ended"),
    (400, "This model requires a prompt; tool_choice required"),
    (400, "For this model max_tokens is required"),
    (400, "the model ran out of tokens; prefix is required to be shorter"),
    (400, "The model does not support this parameter, a tool name is required"),
    (422, '[{"loc": ["body", "prompt"], "msg": "field required", "ctx": {"model": "a"}}]'),
]


@pytest.mark.parametrize(
    ("status", "said", "asks"), [*((*one, True) for one in WHICH), *((*one, False) for one in OTHER)]
)
def test_only_a_server_that_asks_for_a_model_is_answered_with_its_name(status: int, said: str, asks: bool) -> None:
    """Names of models have dots in them, and a model is spoken of in other refusals too."""
    assert asks is ("`upstream_model`" in str(refusal(status, said.encode())))
    body = json.dumps({"error": {"message": said}}).encode()
    assert asks is ("`upstream_model`" in str(refusal(status, body)))
