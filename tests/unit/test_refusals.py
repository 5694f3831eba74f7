"""Owns what is made of a model server's refusals, whatever bytes they hold."""

import pytest

from turnscript import registry
from turnscript.backend import Backend

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
