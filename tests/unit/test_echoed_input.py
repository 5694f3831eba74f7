"""Owns refusals that repeat what was sent: what a user wrote about full contexts is no full context."""

import json
from typing import Any

import pytest

from turnscript.backends.shared.server_errors import refusal
from turnscript.convert.registry import apis, get_api
from turnscript.core.error_kinds import fault_of, room_said

SAID = 'My log: prompt is too long: 9000 tokens > 4096 maximum. context_length_exceeded "n_ctx": 4096, it\'s'
WRONG = {"type": "extra_forbidden", "loc": ["body", "top_k"], "msg": "Extra inputs are not permitted"}
MISSING = {"type": "missing", "loc": ("body", "model"), "msg": "Field required", "input": {"prompt": SAID}}
ECHOES: dict[str, Any] = {
    "FastAPI": {"detail": [WRONG | {"input": SAID}]},
    "FastAPI, with the body": {"detail": [WRONG], "body": {"prompt": SAID}},
    "llama-cpp-python": {"error": {"message": str([MISSING]), "type": "internal_server_error"}},
    "vLLM": {"object": "error", "message": str([MISSING | {"loc": ("body", 0)}]), "type": "BadRequestError"},
    "vLLM, later": {"error": {"message": f"1 validation error:\\n  {MISSING}", "type": "Bad Request", "code": 422}},
    "long": {"detail": [WRONG | {"input": [SAID] * 100}]},
}
EACH = pytest.mark.parametrize("server", ECHOES)


@EACH
@pytest.mark.parametrize("status", [400, 422, 500])
def test_what_a_server_repeats_is_not_what_it_says(server: str, status: int) -> None:
    error = refusal(status, json.dumps(ECHOES[server]).encode())
    assert "overflow" != fault_of(error).kind
    assert room_said(error, 64) is None
    for name in apis():
        told = get_api(name).render_error(error)[1].decode()
        assert "too long" not in told
        assert "context_length" not in told


@EACH
def test_what_it_says_is_kept(server: str) -> None:
    error = refusal(422, json.dumps(ECHOES[server]).encode())
    said = "Field required" if "LM" in server or "llama" in server else "Extra inputs are not permitted"
    assert said in str(error)
    assert SAID not in error.body


def test_a_body_that_was_cut_off_is_no_other() -> None:
    """Of a long one only the beginning is read."""
    body = json.dumps({"detail": [WRONG | {"input": SAID * 2}]}).encode()
    for size in range(len(body)):
        assert "overflow" != fault_of(refusal(422, body[:size])).kind
        assert "overflow" != fault_of(refusal(422, body.replace(b'": ', b'":')[:size])).kind


@pytest.mark.parametrize("status", [400, 422])
def test_a_full_context_beside_an_echo_is_one(status: int) -> None:
    said = "prompt is too long: 9000 tokens > 4096 maximum"
    for body in ({"detail": said, "body": "x"}, {"error": {"message": said, "input": "x"}}, {"message": said}):
        fault = fault_of(refusal(status, json.dumps(body).encode()))
        assert ("overflow", 9000, 4096) == (fault.kind, fault.asked, fault.limit)


@pytest.mark.parametrize(
    "body",
    [
        {"statusCode": 400, "body": "prompt is too long: 9000 tokens > 4096 maximum"},
        {"detail": {"input": "prompt is too long: 9000 tokens > 4096 maximum"}},
        {"errors": {"input": ["prompt is too long: 9000 tokens > 4096 maximum"]}},
    ],
    ids=json.dumps,
)
def test_what_stands_where_nothing_else_is_said_is_no_echo(body: dict[str, Any]) -> None:
    """Some servers say what is wrong under the name of the member, and a proxy wraps a whole answer."""
    fault = fault_of(refusal(400, json.dumps(body).encode()))
    assert ("overflow", 9000, 4096) == (fault.kind, fault.asked, fault.limit)


def test_a_body_without_an_echo_is_shown_as_it_came() -> None:
    body = b'{ "error" : {"message":"no", "x":1.0} }'
    assert body.decode() == refusal(400, body).body


@pytest.mark.parametrize("body", [b"[" * 5000, b'{"detail":' * 3000, b'{"detail":[{"input":"', b"\xff", b"{}", b"[]"])
def test_no_body_is_an_error_of_our_own(body: bytes) -> None:
    assert 422 == refusal(422, body).upstream
