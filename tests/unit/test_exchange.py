"""Owns the checks of exchanges: what an archive says of an answer, how an answer is told, and which body is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from turnscript.core.errors import UpstreamError
from turnscript.core.exchange import NAMED
from turnscript.core.json_text import Json

CHAT: dict[str, Any] = {
    "id": "c1",
    "object": "chat.completion",
    "created": 17,
    "model": "m-1",
    "system_fingerprint": "fp",
    "choices": [
        {"index": at, "finish_reason": "stop", "logprobs": None}
        | {"message": {"role": "assistant", "content": text, "refusal": None, "annotations": []}}
        for at, text in enumerate(("a", "b", "c"))
    ],
    "usage": {
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 2},
    },
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "text", "text": "a", "citations": 7}],
    "stop_reason": "stop_sequence",
    "stop_sequence": "END",
    "usage": {"input_tokens": 1, "output_tokens": 2},
    "container": {"id": "x"},
}
RESPONSE = {
    "object": "response",
    "id": "r",
    "status": "completed",
    "instructions": "Be brief.",
    "output": [],
    "model": "m",
}
COMPLETION = {"object": "text_completion", "choices": [{"text": "a", "finish_reason": "length"}]}
ANSWERS: list[tuple[Any, str]] = [
    (CHAT, "openai-chat"),
    ({"choices": CHAT["choices"]}, "openai-chat"),
    (MESSAGE, "anthropic-messages"),
    ({"content": [], "stop_reason": "end_turn"}, "anthropic-messages"),
    (RESPONSE, "openai-responses"),
    ({"output": []}, "openai-responses"),
    (COMPLETION, "openai-completions"),
    ({"choices": COMPLETION["choices"]}, "openai-completions"),
]
ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ARCHIVE = "rwkv-universal"


def first_choice(body: dict[str, Any], at: int = 0) -> dict[str, Any]:
    return body | {"choices": [body["choices"][at]]}


# What an archive says.


def test_an_answer_alone_is_its_items_and_what_the_metadata_says() -> None:
    expected = (
        '<<META>>\n{"v": 1, "origin": "anthropic", "response": {"id": "msg_1", "model": "m", "finish_reason": "stop", '
        '"stop_sequence": "END", "usage": {"input": 1, "output": 2}, "container": {"id": "x"}}}\n'
        '<<META_END>>\n\n<<THINK signature="s">>\nt\n<<THINK_END>>\n\n'
        '<<ASSISTANT>>\n<<PART x={"citations":7}>>\na\n<<ASSISTANT_END>>'
    )
    rendered = ts.render(ts.parse_response(MESSAGE), ARCHIVE, strict=True)
    assert expected == rendered.value


def test_an_exchange_is_its_request_with_the_answer_behind_it() -> None:
    exchange = ts.Exchange(ts.parse(ASKED), ts.parse_response(first_choice(CHAT)))
    expected = (
        '<<META>>\n{"v": 1, "origin": "openai-chat", "options": {"model": "m"}, "response": {"id": "c1", '
        '"model": "m-1", "finish_reason": "stop", "usage": {"input": 9, "output": 3, "cached": 4}, '
        '"object": "chat.completion", "created": 17, "system_fingerprint": "fp", '
        '"x": {"usage": {"completion_tokens_details": {"audio_tokens": 2}}}}}\n<<META_END>>\n\n'
        "<<USER>>\nHi\n<<USER_END>>\n\n<<ASSISTANT>>\na\n<<ASSISTANT_END>>"
    )
    rendered = ts.render(exchange, ARCHIVE, strict=True)
    assert expected == rendered.value
    assert exchange == ts.parse_exchange(expected)
    whole = ts.parse(expected)
    assert ["user", "assistant"] == [item.kind for item in whole.items]
    assert expected == ts.render(whole, ARCHIVE, strict=True).value


def test_an_answer_that_goes_on_with_the_request_and_one_behind_another_come_back() -> None:
    begun = ts.Assistant(content=[ts.Text(text="The best is (")], open=True)
    told = ts.Response(items=[ts.Assistant(content=[ts.Text(text="B)")])], finish_reason="stop")
    for asked in ([begun], [ts.Assistant(content=[ts.Text(text="Hi")])], [ts.User(content=[ts.Text(text="x")])]):
        exchange = ts.Exchange(ts.Request(conversation=ts.Conversation(items=list(asked))), told)
        text = str(ts.render(exchange, ARCHIVE, strict=True).value)
        assert exchange == ts.parse_exchange(text)
        assert (begun in asked) == ('"continues": true' in text)
        assert (asked[0].kind == "assistant") == ('"items": 1' in text)


def test_an_answer_of_another_api_says_so() -> None:
    exchange = ts.Exchange(ts.parse(ASKED), ts.parse_response(MESSAGE))
    text = str(ts.render(exchange, ARCHIVE).value)
    assert ('"origin": "openai-chat", "options"' in text, '"origin": "anthropic"' in text) == (True, True)
    assert exchange == ts.parse_exchange(text)
    generated = ts.Exchange(ts.parse(ASKED), ts.Response(items=[ts.Assistant(content=[ts.Text(text="x")])]))
    assert generated == ts.parse_exchange(str(ts.render(generated, ARCHIVE).value))


def test_what_a_hand_wrote_of_an_answer_is_read() -> None:
    text = '<<META>>\n{"v": 1, "response": {"id": "r", "note": 1.0}}\n<<META_END>>\n\n<<USER>>\nq\n<<USER_END>>\n\n'
    text += "<<THINK>>\nt\n<<THINK_END>>\n\n<<ASSISTANT>>\na\n<<ASSISTANT_END>>"
    exchange = ts.parse_exchange(text)
    assert ["user"] == [item.kind for item in exchange.request.items]
    assert ["thinking", "assistant"] == [item.kind for item in exchange.response.items]
    assert ("r", {"note": Json(b"1.0")}) == (exchange.response.id, exchange.response.extra)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("7", "expected an object"),
        ('{"usage": {"prompt_tokens": 1}}', "prompt_tokens"),
        ('{"items": 2}', "cannot have 2 of the 1 items"),
        ('{"items": -1}', "cannot have -1"),
        ('{"id": 7}', "id"),
        ('{"x": []}', "expected an object"),
    ],
)
def test_what_cannot_be_meant_of_an_answer_is_an_error(said: str, reason: str) -> None:
    text = f'<<META>>\n{{"v": 1, "response": {said}}}\n<<META_END>>\n\n<<USER>>\nq\n<<USER_END>>'
    with pytest.raises(ts.InvalidTranscript, match=reason):
        ts.parse_exchange(text)
    assert text == ts.convert(text, "auto", ARCHIVE, strict=True).value


def test_a_transcript_without_an_answer_has_none() -> None:
    with pytest.raises(ts.InvalidTranscript, match="holds no answer"):
        ts.parse_response("<<USER>>\nq\n<<USER_END>>")


def test_half_a_surrogate_pair_is_in_no_archive() -> None:
    with pytest.raises(ts.InvalidConversation, match="surrogate"):
        ts.render(ts.Response(raw="\ud800"), ARCHIVE)


def test_a_prompt_shows_what_was_said_and_lists_the_rest() -> None:
    response = ts.parse_response(first_choice(CHAT))
    for name in ts.formats():
        rendered = ts.render(response, name, view="prompt")
        assert "a" in str(rendered.value)
        assert "$.response" in [loss.path for loss in rendered.losses]


# Telling an answer from a request.


@pytest.mark.parametrize(("body", "name"), ANSWERS, ids=[f"{at}-{row[1]}" for at, row in enumerate(ANSWERS)])
def test_an_unlabelled_answer_is_told(body: Any, name: str) -> None:
    assert ts.get_api(name).parse_response(body) == ts.parse_response(body)
    assert ts.convert(body, name, ARCHIVE).data == ts.convert(json.dumps(body), "auto", ARCHIVE).data
    with pytest.raises(ts.InvalidRequest, match=f"an answer of {name}; parse_response reads it"):
        ts.parse(body)


@pytest.mark.parametrize("body", [{}, {"error": None}, ASKED, {"choices": []}, {"content": [], "role": "user"}])
def test_what_is_no_answer_of_any_api_is_an_error(body: Any) -> None:
    with pytest.raises(ts.InvalidRequest) as caught:
        ts.parse_response(body)
    assert "'choices'" in caught.value.expected


@pytest.mark.parametrize("name", ["auto", *ts.apis()])
@pytest.mark.parametrize("body", [{"error": {"message": "slow down"}}, {"type": "error", "error": "slow down"}])
def test_an_error_body_is_the_servers_failure_whoever_sent_it(body: Any, name: str) -> None:
    with pytest.raises(UpstreamError, match="slow down"):
        ts.parse_response(body, name)
    with pytest.raises(UpstreamError, match="slow down"):
        ts.convert(body, name, ARCHIVE)
    with pytest.raises(ts.InvalidRequest):
        ts.parse(body)


def test_a_message_of_a_request_is_no_answer() -> None:
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]}
    with pytest.raises(ts.InvalidRequest):
        ts.parse_response(item)


def test_what_is_both_must_be_said() -> None:
    both = ASKED | CHAT
    with pytest.raises(ts.InvalidRequest, match="a request of openai-chat and an answer of openai-chat in one"):
        ts.convert(both, "auto", ARCHIVE)
    assert "<<USER>>" in str(ts.convert(both, "auto", ARCHIVE, side="request").value)
    assert "<<USER>>" not in str(ts.convert(both, "auto", ARCHIVE, side="response").value)
    assert ts.parse(both).items
    assert "<<USER>>" in str(ts.convert(both, "openai-chat", ARCHIVE).value), "whoever names the API is taken at that"
    with pytest.raises(ts.UnknownName, match="side"):
        ts.convert(both, "auto", ARCHIVE, side="answer")


def test_of_an_archive_with_both_an_api_gets_what_is_asked_for() -> None:
    text = ts.render(ts.Exchange(ts.parse(ASKED), ts.parse_response(first_choice(CHAT))), ARCHIVE).data
    with pytest.raises(ts.InvalidTranscript, match="a request and its answer"):
        ts.convert(text, "auto", "openai-chat")
    assert ASKED == ts.convert(text, "auto", "openai-chat", side="request", strict=True).value
    assert first_choice(CHAT) == ts.convert(text, "auto", "openai-chat", side="response", strict=True).value
    assert "<<USER>>" not in str(ts.convert(text, "auto", ARCHIVE, side="response").value)
    assert '"response"' not in str(ts.convert(text, "auto", ARCHIVE, side="request").value)


# Bodies.


def test_each_choice_is_an_answer_and_all_are_one_body_again() -> None:
    exchange = ts.parse_exchange(CHAT)
    assert exchange.is_alone
    assert CHAT == ts.render(exchange, "openai-chat", strict=True).value
    for at, response in enumerate((exchange.response, *exchange.others)):
        archive = ts.render(response, ARCHIVE, strict=True)
        assert first_choice(CHAT, at) == ts.convert(archive.value, "auto", "openai-chat", strict=True).value
    assert ["$.choices[2].message.content"] == [item.at for item in exchange.others[1].items]
    texts = {"choices": [{"index": at, "text": str(at), "finish_reason": "stop"} for at in range(2)]}
    assert ["0", "1"] == [said(one) for one in ts.get_api("openai-completions").parse_responses(texts)]


def said(response: ts.Response) -> str:
    (item,) = response.items
    assert isinstance(item, ts.Assistant)
    (part,) = item.content
    assert isinstance(part, ts.Text)
    return part.text


@pytest.mark.parametrize("target", [ARCHIVE, "anthropic-messages", "openai-responses", "openai-completions"])
def test_choices_without_a_place_are_losses(target: str) -> None:
    losses = ts.convert(CHAT, "auto", target).losses
    assert ["answer 2 of 3", "answer 3 of 3"] == [loss.detail[:13] for loss in losses[:2]]
    assert ["$.choices[1]", "$.choices[2]"] == [loss.path for loss in losses[:2]]
    with pytest.raises(ts.LossyConversion):
        ts.convert(CHAT, "auto", target, strict=True)


def test_the_index_of_a_choice_is_lost_only_where_another_is_written() -> None:
    said = [{"index": at, "text": str(at), "finish_reason": "stop", "new": 1} for at in (0, 1, 5)]
    body = {"object": "text_completion", "model": "m", "choices": said}
    rendered: Any = ts.convert(body, "openai-completions", "openai-chat")
    assert [0, 1, 2] == [choice["index"] for choice in rendered.value["choices"]]
    lost = ["$.choices[0].new", "$.choices[1].new", "$.choices[2].index", "$.choices[2].new"]
    assert lost == [loss.path for loss in rendered.losses]


@pytest.mark.parametrize("choices", [[CHAT["choices"][0], 7], [CHAT["choices"][0], {"message": {"content": 7}}]])
def test_a_broken_choice_is_an_error_at_its_place(choices: list[Any]) -> None:
    with pytest.raises(ts.InvalidRequest) as caught:
        ts.parse_exchange(CHAT | {"choices": choices})
    assert caught.value.path.startswith("$.choices[1]")


def test_what_was_left_out_of_an_answer_is_a_loss() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":'}}
    cut = {"choices": [{"message": {"content": "a", "tool_calls": [call]}, "finish_reason": "length"}]}
    for target in (ARCHIVE, *ts.apis()):
        rendered = ts.convert(cut, "auto", target)
        assert "cut off" in rendered.losses[0].detail
        with pytest.raises(ts.LossyConversion, match="cut off"):
            ts.convert(cut, "auto", target, strict=True)
    archive = ts.convert(cut, "auto", ARCHIVE).data
    assert ["unclosed_call"] == [issue.kind for issue in ts.parse_response(archive).issues]


def test_an_answer_is_written_in_another_api_with_the_words_of_the_answer() -> None:
    exchange = ts.Exchange(ts.parse(ASKED), ts.parse_response(MESSAGE))
    chat: Any = ts.render(exchange, "openai-chat").value
    assert ("m", "a") == (chat["model"], chat["choices"][0]["message"]["content"])
    back: Any = ts.render(exchange, "anthropic-messages", strict=True).value
    assert ("END", {"id": "x"}) == (back["stop_sequence"], back["container"])


def test_an_answer_has_none_of_the_options_of_requests() -> None:
    with pytest.raises(ts.Unsupported, match="option 'profile'"):
        ts.render(ts.parse_response(MESSAGE), "anthropic-messages", profile="seed")


def test_json_of_an_answer_is_spelled_in_one_way_where_that_is_asked_for() -> None:
    response = ts.Response(items=[ts.ToolCall(name="f", arguments='{"a":1}', id="c")], finish_reason="tool_calls")
    response.id, response.model = "r", "m"
    body = ts.render(response, "openai-chat").data
    for target in ("openai-chat", "openai-responses", ARCHIVE):
        rendered = ts.convert(body, "auto", target, normalize_json=True)
        assert ['{"a": 1}'] == [getattr(item, "arguments", "") for item in ts.parse_response(rendered.data).items]
        assert "$.choices[0].message.tool_calls[0].function.arguments" in [loss.path for loss in rendered.losses]


def test_an_answer_that_failed_is_no_answer() -> None:
    with pytest.raises(UpstreamError):
        ts.convert(RESPONSE | {"status": "failed", "error": {"code": "x", "message": "no"}}, "auto", ARCHIVE)
    with pytest.raises(UpstreamError):
        ts.convert(RESPONSE | {"status": "cancelled"}, "auto", "openai-chat")


def test_every_member_that_is_told_of_an_answer_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "rwkv-universal.md").read_text(encoding="utf-8")
    table = page.partition("## Answers")[2].partition("## Attributes")[0]
    assert [] == [name for name in sorted(NAMED) if f"`{name}`" not in table]


@pytest.mark.parametrize("said", [{"reasoning_content": "hm"}, {"audio": {"id": "a", "data": "AA=="}}, {"new": 1}])
@pytest.mark.parametrize("content", ["", None])
def test_a_message_without_text_says_so_again_as_it_did(content: str | None, said: dict[str, Any]) -> None:
    message: dict[str, Any] = {"role": "assistant", "refusal": None, "annotations": [], "content": "", **said}
    bare = {**CHAT, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    known = {loss.path for loss in ts.convert(bare, "openai-chat", "openai-responses").losses}
    message["content"] = content
    for through in ("openai-chat", ARCHIVE):
        again: Any = ts.convert(ts.convert(bare, "openai-chat", through).data, through, "openai-chat").value
        assert message == again["choices"][0]["message"]
    assert known == {loss.path for loss in ts.convert(bare, "openai-chat", "openai-responses").losses}
