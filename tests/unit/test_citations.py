"""Owns citations of web pages on their way between answers: what each API can say arrives, and the rest is told."""

import json
from typing import Any

import pytest

import turnscript as ts
from turnscript.convert.recording import stream_of

PAGE = {"title": "T", "url": "https://e.x", "start_index": 4, "end_index": 8}
FLAT = {"type": "url_citation", **PAGE}
WRAPPED = {"type": "url_citation", "url_citation": PAGE}
FILE = {"type": "file_citation", "file_id": "f", "filename": "a", "index": 1}
FOUND = {
    "type": "web_search_result_location",
    "url": "https://e.x",
    "title": "T",
    "encrypted_index": "e",
    "cited_text": "read there",
}


def response(*texts: tuple[str, list[Any]]) -> dict[str, Any]:
    """An answer of Responses, a message a text."""
    parts = [{"type": "output_text", "text": text, "annotations": cited} for text, cited in texts]
    output = [{"type": "message", "role": "assistant", "content": [part]} for part in parts]
    return {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": output}


def message(*texts: tuple[str, list[Any]]) -> dict[str, Any]:
    """An answer of Messages."""
    content = [{"type": "text", "text": text, "citations": cited} for text, cited in texts]
    usage = {"input_tokens": 1, "output_tokens": 1}
    return {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": content} | {
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": usage,
    }


def chat(text: str, cited: list[Any]) -> dict[str, Any]:
    said = {"role": "assistant", "content": text, "annotations": cited}
    choices = [{"index": 0, "finish_reason": "stop", "message": said}]
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}


def converted(body: dict[str, Any], source: str, target: str) -> tuple[Any, dict[str, str]]:
    rendered = ts.convert(body, source, target, side="response")
    cited = ("annotations", "citations")
    return rendered.value, {loss.path: loss.kind for loss in rendered.losses if any(one in loss.path for one in cited)}


def on_message(body: Any) -> Any:
    return body["choices"][0]["message"].get("annotations")


def on_texts(body: Any) -> Any:
    return [part["annotations"] for item in body["output"] for part in item["content"]]


def test_pages_on_a_text_are_on_the_message_and_back() -> None:
    value, losses = converted(response(("See here.", [FLAT])), "openai-responses", "openai-chat")
    assert ([WRAPPED], {}) == (on_message(value), losses)
    value, losses = converted(chat("See here.", [WRAPPED]), "openai-chat", "openai-responses")
    assert ([[FLAT]], {}) == (on_texts(value), losses)


def test_places_count_from_the_beginning_of_the_message() -> None:
    value, _ = converted(response(("é🙂", []), ("See here.", [FLAT])), "openai-responses", "openai-chat")
    (entry,) = on_message(value)
    assert "here" == value["choices"][0]["message"]["content"][slice(6, 10)]
    assert (6, 10) == (entry["url_citation"]["start_index"], entry["url_citation"]["end_index"])


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses"])
def test_pages_that_were_searched_stand_behind_all_of_their_text(target: str) -> None:
    body = message(("See", []), ("here.", [FOUND]))
    value, losses = converted(body, "anthropic-messages", target)
    assert {"$.content[1].citations[0]": "approximated"} == losses
    if target == "openai-chat":
        start, page = 3, on_message(value)[0]["url_citation"]
    else:
        start, page = 0, next(one for text in on_texts(value) for one in text)
    assert ("https://e.x", "T", start, start + 5) == tuple(
        page[key] for key in ("url", "title", "start_index", "end_index")
    )


@pytest.mark.parametrize("odd", [FILE, {"type": "url_citation"}, FLAT | {"url": 7}, FLAT | {"start_index": None}, 7])
def test_what_is_no_page_is_told(odd: Any) -> None:
    value, losses = converted(response(("See here.", [FLAT, odd])), "openai-responses", "openai-chat")
    assert [WRAPPED] == on_message(value)
    assert {"$.output[0].content[0].annotations[1]": "dropped"} == losses


@pytest.mark.parametrize("cited", [[WRAPPED, FILE], "x", 7])
def test_a_message_of_which_not_all_can_be_said_is_told(cited: Any) -> None:
    value, losses = converted(chat("See here.", cited), "openai-chat", "openai-responses")
    assert ([[]], {"$.choices[0].message.annotations": "dropped"}) == (on_texts(value), losses)


def test_what_a_message_cites_that_also_refuses_is_told() -> None:
    """Its refusal is a part of its own, so it is not one text that cites."""
    body = chat("See here.", [WRAPPED])
    body["choices"][0]["message"]["refusal"] = "No more."
    value, losses = converted(body, "openai-chat", "openai-responses")
    assert {"$.choices[0].message.annotations": "dropped"} == losses
    assert FLAT not in [
        one for item in value["output"] for part in item["content"] for one in part.get("annotations", ())
    ]


@pytest.mark.parametrize(("source", "body"), [("openai-chat", chat("See here.", [WRAPPED]))])
def test_messages_cannot_say_where_a_page_was_found(source: str, body: Any) -> None:
    _, losses = converted(body, source, "anthropic-messages")
    assert "dropped" in losses.values()


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ("openai-responses", response(("See here.", [FLAT]))),
        ("anthropic-messages", message(("here", [FOUND]))),
    ],
)
def test_a_stream_of_chunks_says_the_same(source: str, body: Any) -> None:
    whole, _ = converted(body, source, "openai-chat")
    data, losses = stream_of(ts.parse_response(body, source), ts.Request(), ts.get_api("openai-chat"))
    parser = ts.get_api("openai-chat").stream_parser()
    told = ts.fold([*parser.feed(data), *parser.close()])
    assert on_message(whole) == on_message(ts.get_api("openai-chat").render_response(told, ts.Request()).value)
    assert not [loss for loss in losses if loss.kind == "dropped" and "tions" in loss.path]


def test_a_stream_of_items_says_the_same() -> None:
    body = message(("here", [FOUND]))
    data, _ = stream_of(ts.parse_response(body, "anthropic-messages"), ts.Request(), ts.get_api("openai-responses"))
    assert b"response.output_text.annotation.added" in data
    parser = ts.get_api("openai-responses").stream_parser()
    told = ts.fold([*parser.feed(data), *parser.close()])
    whole, _ = converted(body, "anthropic-messages", "openai-responses")
    assert on_texts(whole) == on_texts(ts.get_api("openai-responses").render_response(told, ts.Request()).value)


def chunks(*deltas: dict[str, Any], reason: str = "stop") -> bytes:
    """A recorded stream of Chat: each delta in a chunk, then the end."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": one, "finish_reason": None} for one in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": reason})
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"".join(b"data: " + json.dumps(head | {"choices": [one]}).encode() + b"\n\n" for one in choices)


def retold(recorded: bytes, size: int) -> tuple[list[Any], set[str]]:
    """What texts cite in the stream of Responses that a recording becomes, and the paths of what is lost of it."""
    parser = ts.get_api("openai-chat").stream_parser()
    renderer = ts.get_api("openai-responses").stream_renderer(ts.Request())
    data = renderer.start()
    for at in range(0, len(recorded), size):
        data += renderer.send(parser.feed(recorded[at : at + size]))
    data += renderer.send(parser.close()) + renderer.close()
    reader = ts.get_api("openai-responses").stream_parser()
    told = ts.fold([*reader.feed(data), *reader.close()])
    value = ts.get_api("openai-responses").render_response(told, ts.Request()).value
    texts = {**value, "output": [item for item in value["output"] if item["type"] == "message"]}
    return on_texts(texts), {loss.path for loss in renderer.losses if loss.path.startswith("$.choices")}


@pytest.mark.parametrize("size", [1, 50, 10_000])
def test_a_recorded_stream_keeps_its_pages(size: int) -> None:
    """They come behind the text, and are told before its end."""
    recorded = chunks({"role": "assistant", "content": "See "}, {"content": "here."}, {"annotations": [WRAPPED]})
    assert ([[FLAT]], set()) == retold(recorded + b"data: [DONE]\n\n", size)


def test_a_stream_that_cites_more_than_pages_is_told_as_it_is() -> None:
    recorded = chunks({"role": "assistant", "content": "See here."}, {"annotations": [WRAPPED, FILE]})
    assert ([[]], {"$.choices"}) == retold(recorded + b"data: [DONE]\n\n", 10_000)


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_text_that_ends_before_its_pages_come_has_none(size: int) -> None:
    """A call ends it, and by then its end is told. A thought before it changes nothing, and the pieces do not."""
    call = {"index": 0, "id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    deltas = ({"reasoning_content": "hm"}, {"content": "See here."}, {"annotations": [WRAPPED]})
    assert ([[FLAT]], set()) == retold(chunks(*deltas) + b"data: [DONE]\n\n", size)
    recorded = chunks(*deltas, {"tool_calls": [call]}, reason="tool_calls")
    assert ([[]], {"$.choices"}) == retold(recorded + b"data: [DONE]\n\n", size)


def test_a_whole_answer_as_a_stream_keeps_its_pages() -> None:
    data, losses = stream_of(
        ts.parse_response(chat("See here.", [WRAPPED]), "openai-chat"), ts.Request(), ts.get_api("openai-responses")
    )
    assert b"response.output_text.annotation.added" in data
    assert not [loss for loss in losses if "annotations" in loss.path]


@pytest.mark.parametrize("target", ["openai-chat", "openai-responses", "openai-completions"])
def test_a_text_that_cites_nothing_loses_nothing_by_it_whole_and_streamed(target: str) -> None:
    """Anthropic's own server says so of each text."""
    body = message(("here.", []))
    body["content"][0]["citations"] = None
    rendered = ts.convert(body, "anthropic-messages", target, side="response")
    _, streamed = stream_of(ts.parse_response(body, "anthropic-messages"), ts.Request(), ts.get_api(target))
    assert not [loss for loss in [*rendered.losses, *streamed] if "citations" in loss.path]
