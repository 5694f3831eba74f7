"""Owns what several APIs say of an answer, each in a place of its own: when it was made, and how fast it was served."""

import itertools
from typing import Any

import pytest

import turnscript as ts
from turnscript.convert.recording import stream_of

WHEN = 1700000000
CHAT = {
    "id": "c",
    "object": "chat.completion",
    "created": WHEN,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}],
    "service_tier": "priority",
}
RESPONSE = {
    "id": "r",
    "object": "response",
    "created_at": WHEN,
    "model": "m",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi"}]}],
    "service_tier": "priority",
}
TEXT = {
    "id": "t",
    "object": "text_completion",
    "created": WHEN,
    "model": "m",
    "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}],
}
ANSWERS: dict[str, Any] = {"openai-chat": CHAT, "openai-responses": RESPONSE, "openai-completions": TEXT}
PAIRS = list(itertools.permutations(ANSWERS, 2))


def paths(losses: list[ts.Loss]) -> set[str]:
    return {loss.path for loss in losses}


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_when_an_answer_was_made_is_told(source: str, target: str) -> None:
    rendered = ts.convert(ANSWERS[source], source, target, side="response")
    assert WHEN == rendered.value.get("created", rendered.value.get("created_at"))
    assert not {"$.created", "$.created_at"} & paths(rendered.losses)


@pytest.mark.parametrize(
    ("source", "target"), [("openai-chat", "openai-responses"), ("openai-responses", "openai-chat")]
)
def test_how_it_was_served_is_told(source: str, target: str) -> None:
    rendered = ts.convert(ANSWERS[source], source, target, side="response")
    assert "priority" == rendered.value["service_tier"]
    assert "$.service_tier" not in paths(rendered.losses)
    odd = ts.convert(ANSWERS[source] | {"service_tier": 7}, source, target, side="response")
    assert "$.service_tier" in paths(odd.losses)
    assert 7 != odd.value.get("service_tier")


def test_a_tier_that_chat_has_not_is_a_loss() -> None:
    rendered = ts.convert(RESPONSE | {"service_tier": "ultrafast"}, "openai-responses", "openai-chat", side="response")
    assert "service_tier" not in rendered.value
    assert "$.service_tier" in paths(rendered.losses)


@pytest.mark.parametrize("source", ANSWERS)
def test_what_messages_has_no_place_for_is_a_loss(source: str) -> None:
    losses = ts.convert(ANSWERS[source], source, "anthropic-messages", side="response").losses
    assert {"$.created", "$.created_at"} & paths(losses)


@pytest.mark.parametrize("odd", ["yesterday", -1, True, None])
def test_what_is_no_time_is_a_loss(odd: Any) -> None:
    rendered = ts.convert(CHAT | {"created": odd}, "openai-chat", "openai-responses", side="response")
    assert 0 == rendered.value["created_at"]
    assert "$.created" in paths(rendered.losses)


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_stream_says_the_same(source: str, target: str) -> None:
    response = ts.parse_response(ANSWERS[source], source)
    data, losses = stream_of(response, ts.Request(), ts.get_api(target))
    api = ts.get_api(target)
    parser = api.stream_parser()
    told = api.render_response(ts.fold([*parser.feed(data), *parser.close()]), ts.Request()).value
    assert WHEN == told.get("created", told.get("created_at"))
    assert not {"$.created", "$.created_at"} & paths(losses)
    if "service_tier" in ANSWERS[source] and "service_tier" in ANSWERS[target]:
        assert "priority" == told["service_tier"]
        assert "$.service_tier" not in paths(losses)


MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "Hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 1, "service_tier": "standard", "speed": "standard"},
}
SERVED = ["openai-chat", "openai-responses"]
SAME = [("standard", "default"), ("priority", "priority")]


@pytest.mark.parametrize("target", SERVED)
@pytest.mark.parametrize(("word", "told"), SAME)
def test_a_tier_among_the_counts_is_told_beside_them(target: str, word: str, told: str) -> None:
    body = MESSAGE | {"usage": MESSAGE["usage"] | {"service_tier": word}}
    rendered = ts.convert(body, "anthropic-messages", target, side="response")
    assert told == rendered.value["service_tier"]
    assert {"$.usage.speed"} == {path for path in paths(rendered.losses) if path.startswith("$.usage")}
    data, losses = stream_of(ts.parse_response(body, "anthropic-messages"), ts.Request(), ts.get_api(target))
    assert b'"service_tier":"%s"' % told.encode() in data
    assert "$.usage.service_tier" not in paths(losses)


@pytest.mark.parametrize("source", SERVED)
@pytest.mark.parametrize(("told", "word"), SAME)
def test_a_tier_beside_the_counts_is_told_among_them(source: str, told: str, word: str) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "input_tokens": 3, "output_tokens": 1}
    body = ANSWERS[source] | {"service_tier": word, "usage": usage}
    rendered = ts.convert(body, source, "anthropic-messages", side="response")
    assert told == rendered.value["usage"]["service_tier"]
    assert "$.service_tier" not in paths(rendered.losses)
    _, losses = stream_of(ts.parse_response(body, source), ts.Request(), ts.get_api("anthropic-messages"))
    assert "$.service_tier" in paths(losses), "its streams say it at their beginning"


@pytest.mark.parametrize("target", SERVED)
@pytest.mark.parametrize("odd", ["batch", "express", 7, ["standard"]])
def test_a_tier_that_means_nothing_elsewhere_is_a_loss(target: str, odd: Any) -> None:
    body = MESSAGE | {"usage": MESSAGE["usage"] | {"service_tier": odd}}
    rendered = ts.convert(body, "anthropic-messages", target, side="response")
    assert rendered.value.get("service_tier") in (None, "default")
    assert {"$.usage.service_tier", "$.usage.speed"} <= paths(rendered.losses)


@pytest.mark.parametrize("source", SERVED)
@pytest.mark.parametrize("odd", ["flex", "scale", "auto", 7])
def test_messages_has_no_word_for_other_tiers(source: str, odd: Any) -> None:
    rendered = ts.convert(ANSWERS[source] | {"service_tier": odd}, source, "anthropic-messages", side="response")
    assert rendered.value["usage"]["service_tier"] is None
    assert "$.service_tier" in paths(rendered.losses)


def test_an_answer_with_both_tells_the_one_beside_the_counts() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "service_tier": "priority"}
    body = CHAT | {"service_tier": "flex", "usage": usage}
    rendered = ts.convert(body, "openai-chat", "openai-responses", side="response")
    assert "flex" == rendered.value["service_tier"]
    assert "$.usage.service_tier" in paths(rendered.losses)
