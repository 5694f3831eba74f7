"""Recorded streams as inputs, and answers as streams: what is written, what is said, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import CHAT, EXAMPLES, convert, live, read_rows
from turnscript.core.errors import UpstreamError
from turnscript.core.events import unfold
from turnscript.core.json_text import plain

RECORDED = EXAMPLES / "messages_stream.sse"
ANSWER = EXAMPLES / "chat_response.json"
ASKED = EXAMPLES / "chat_request.json"


def stream_of(api: str, text: str = "Hello", *, error: UpstreamError | None = None) -> bytes:
    """An answer of an API, one character an event; or its beginning, and an error."""
    events = unfold(ts.Response(items=[ts.Assistant(content=[ts.Text(text=text)])], finish_reason="stop", model="m"))
    deltas = [ts.PartDelta(0, letter) for letter in text]
    renderer = ts.get_api(api).stream_renderer(ts.Request())
    told = renderer.send([events[0], *deltas])
    return told + (renderer.fail(error) if error is not None else renderer.send(events[2:]) + renderer.close())


@pytest.mark.parametrize("target", ts.apis())
@pytest.mark.parametrize("api", ts.apis())
@pytest.mark.parametrize("named", [False, True])
def test_a_recording_becomes_a_body_of_any_api(api: str, target: str, named: bool) -> None:
    data = stream_of(api)
    result = convert(*(["--from", api] if named else []), "--to", target, stdin=data)
    assert (0, json.loads(ts.convert(data, api, target).data)) == (result.exit_code, json.loads(result.stdout_bytes))
    assert "Hello" == ts.parse_response(result.stdout_bytes, target).items[0].content[0].text  # type: ignore[attr-defined]


@pytest.mark.parametrize("target", ts.apis())
@pytest.mark.parametrize("api", ts.apis())
def test_a_recording_becomes_a_stream_of_any_api(api: str, target: str) -> None:
    result = convert("--to", target, "--stream", "--quiet", stdin=stream_of(api))
    assert (0, "") == (result.exit_code, result.stderr)
    assert "Hello" == ts.parse_response(result.stdout_bytes, target).items[0].content[0].text  # type: ignore[attr-defined]
    assert 5 == sum(
        b'"%b"' % letter in line for line in result.stdout_bytes.splitlines() for letter in [b"H", b"e", b"l", b"o"]
    )


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("named", [False, True])
def test_a_recording_may_be_one_array(named: bool, indent: int | None) -> None:
    """As `curl` keeps it of a Gemini server that was not asked for events, in one line or in many."""
    chunks = [json.loads(line[6:]) for line in stream_of("gemini", "Hello" * 3000).split(b"\n\n") if line]
    data = json.dumps(chunks, indent=indent).encode()
    result = convert(*(["--from", "gemini"] if named else []), "--to", "openai-chat", stdin=data)
    assert 0 == result.exit_code
    assert "Hello" * 3000 == json.loads(result.stdout_bytes)["choices"][0]["message"]["content"]
    broken = convert("--to", "openai-chat", stdin=data[: len(data) // 2])
    assert (1, True) == (broken.exit_code, "kept: 1 text" in broken.stderr)


def test_a_recording_and_its_request_are_one_transcript() -> None:
    archive = convert(RECORDED, "--request", ASKED, "--to", "rwkv-universal", "--strict")
    assert 0 == archive.exit_code
    exchange = ts.parse_exchange(archive.stdout_bytes)
    assert ts.parse(ASKED.read_bytes()).items == exchange.request.items
    assert ts.parse_response(RECORDED.read_bytes()) == exchange.response


def test_a_whole_answer_becomes_a_stream() -> None:
    for source in (ANSWER.read_bytes(), ts.convert(ANSWER.read_bytes(), "auto", "rwkv-universal").data):
        result = convert("--to", "openai-chat", "--stream", "--strict", stdin=source)
        assert 0 == result.exit_code
        before, after = ts.parse_response(ANSWER.read_bytes()), ts.parse_response(result.stdout_bytes)
        assert (before.id, before.model, before.usage) == (after.id, after.model, after.usage)
        assert plain(before.extra["created"]) == plain(after.extra["created"]) > 0
        assert before.items == after.items


def test_the_request_names_the_model_of_a_stream_that_does_not() -> None:
    data = stream_of("openai-completions").replace(b'"model":"m"', b'"model":""')
    result = convert("--to", "openai-chat", "--stream", "--request", ASKED, stdin=data)
    assert json.loads(ASKED.read_bytes())["model"].encode() in result.stdout_bytes


@pytest.mark.parametrize("target", [*ts.apis(), "rwkv-universal"])
@pytest.mark.parametrize("api", ts.apis())
def test_a_recording_that_is_cut_off_is_kept_as_far_as_it_goes(api: str, target: str, tmp_path: Path) -> None:
    whole = stream_of(api)
    data = whole[: whole.rindex(b'"o"')]
    lost, out = tmp_path / "lost.jsonl", tmp_path / "out"
    result = convert("--to", target, "--losses", lost, "--output", out, stdin=data)
    assert 1 == result.exit_code
    assert "Hell" == ts.parse_response(out.read_bytes()).items[0].content[0].text  # type: ignore[attr-defined]
    reason = ts.parse_response(out.read_bytes()).finish_reason
    assert (None if target == "rwkv-universal" else "length") == reason
    line = data.count(b"\n") + 1
    assert f"turnscript: error: <stdin>:{line}: " in result.stderr
    assert "kept: 1 text, the last of them cut off; what should follow is missing" in result.stderr
    assert "dropped" in [loss["kind"] for loss in read_rows(lost)]
    strict = convert("--to", target, "--strict", "--output", tmp_path / "none", stdin=data)
    assert (1, False) == (strict.exit_code, (tmp_path / "none").exists())
    assert "nothing is written under --strict" in strict.stderr


@pytest.mark.parametrize("target", ts.apis())
@pytest.mark.parametrize("api", ts.apis())
def test_an_error_in_a_recording_is_told_as_the_error_that_it_is(api: str, target: str) -> None:
    data = stream_of(api, error=UpstreamError("the gpu is on fire"))
    result = convert("--to", target, "--stream", stdin=data)
    assert 1 == result.exit_code
    assert "on fire" in result.stderr.splitlines()[0]
    with pytest.raises(UpstreamError, match="on fire"):
        ts.parse_response(result.stdout_bytes, target)
    body = convert("--to", target, stdin=data)
    assert (1, "length") == (body.exit_code, ts.parse_response(body.stdout_bytes, target).finish_reason)


def test_an_event_that_is_broken_is_named_with_its_line() -> None:
    frames = stream_of("openai-chat").split(b"\n\n")
    frames.insert(3, b"data: {oops")
    result = convert("--to", "openai-chat", stdin=b"\n\n".join(frames))
    assert 1 == result.exit_code
    assert "turnscript: error: <stdin>:7: the server sent a chunk that cannot be read" in result.stderr
    assert "lines 7 to " in result.stderr
    assert "He" == json.loads(result.stdout)["choices"][0]["message"]["content"]


def test_nothing_is_written_of_a_recording_in_which_no_answer_begins() -> None:
    for data in (b'data: {"error": {"message": "busy"}}\n\n', b"data: [DONE]\n\n"):
        result = convert("--from", "openai-chat", "--to", "openai-chat", stdin=data)
        assert (1, "") == (result.exit_code, result.stdout)
        assert "no answer had begun" in result.stderr


def test_a_second_recording_behind_the_first_is_a_loss() -> None:
    data = stream_of("openai-chat")
    for more in ([], ["--stream"]):
        result = convert("--to", "openai-chat", *more, stdin=data + data)
        assert 0 == result.exit_code
        assert "stand behind the end of the answer, and are not read" in result.stderr
        assert 3 == convert("--to", "openai-chat", "--strict", *more, stdin=data + data).exit_code


def test_strict_writes_no_stream_that_loses_something(tmp_path: Path) -> None:
    out, lost = tmp_path / "out", tmp_path / "lost.jsonl"
    given = ("--to", "openai-completions", "--stream", "--output", out, "--losses", lost)
    result = convert(RECORDED, *given, "--strict")
    assert (3, False, True) == (result.exit_code, out.exists(), bool(read_rows(lost)))
    assert 0 == convert(RECORDED, *given).exit_code
    assert out.read_bytes().startswith(b"data: ")


def test_strict_writes_a_stream_that_loses_nothing() -> None:
    result = convert(RECORDED, "--to", "anthropic-messages", "--stream", "--strict")
    assert 0 == result.exit_code
    assert ts.parse_response(RECORDED.read_bytes()) == ts.parse_response(result.stdout_bytes)


def test_calls_of_a_stream_are_spelled_in_one_way_where_that_is_asked_for() -> None:
    result = convert(RECORDED, "--to", "openai-chat", "--stream", "--normalize-json")
    calls = [item for item in ts.parse_response(result.stdout_bytes).items if isinstance(item, ts.ToolCall)]
    assert ['{"city": "Lisbon"}'] == [call.arguments for call in calls]
    assert "normalize_json asks for it" in result.stderr


def test_a_stream_of_nobody_asks_for_its_name() -> None:
    result = convert("--to", "openai-chat", stdin=b'data: {"content": "x", "stop": false}\n\n')
    assert 1 == result.exit_code
    assert "its first event has 'content', 'stop'" in result.stderr
    assert "--from NAME says what it is" in result.stderr


def test_what_cannot_be_a_stream_is_refused() -> None:
    for given, said in [
        (("--to", "rwkv-universal", "--stream"), "rwkv-universal is a prompt format"),
        (("--to", "openai-chat", "--stream", "--side", "request"), "says that FILE is none"),
        (("--to", "openai-chat", "--stream", "--profile", "seed"), "are not for answers"),
        (("--to", "openai-chat", "--stream", "--pretty"), "are for documents"),
        (("--to", "openai-chat", "--stream", "--lines"), "is for one answer"),
    ]:
        result = convert(ANSWER, *given)
        assert (2, True) == (result.exit_code, said in result.stderr), result.stderr
    request = convert("--to", "openai-chat", "--stream", stdin=json.dumps(CHAT))
    assert (1, True) == (request.exit_code, "this is a request" in request.stderr)
    asked = convert(RECORDED, "--to", "openai-chat", "--side", "request")
    assert (1, True) == (asked.exit_code, "a recorded stream is an answer" in asked.stderr)


def test_oddities_of_a_recording_are_told() -> None:
    data = b'data: {"choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\n'
    result = convert("--to", "openai-chat", stdin=data)
    assert 0 == result.exit_code
    assert "<stdin>: the server did not say why the answer ended" in result.stderr


HEADS = {
    "one": b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n",
    "behind another": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/2 200 \r\nserver: x\r\n\r\n",
    "with bare line ends": b"HTTP/1.0 201 Created\nserver: x\n\n",
}


@pytest.mark.parametrize("name", HEADS)
def test_the_head_that_curl_prints_before_an_answer_is_left_out(name: str) -> None:
    for data in (RECORDED.read_bytes(), ANSWER.read_bytes()):
        for more in ([], ["--stream"]):
            plain = convert("--to", "openai-chat", "--strict", *more, stdin=data)
            result = convert("--to", "openai-chat", "--strict", *more, stdin=HEADS[name] + data)
            assert (0, plain.stdout_bytes) == (result.exit_code, result.stdout_bytes)


def test_lines_are_counted_with_the_head_before_them() -> None:
    data = stream_of("openai-chat").replace(b'"content":"l"', b'"content"', 1)
    plain, result = (convert("--to", "openai-chat", stdin=head + data) for head in (b"", HEADS["one"]))
    line = data[: data.index(b'"content"}')].count(b"\n") + 1
    assert f"<stdin>:{line}: " in plain.stderr
    assert f"<stdin>:{line + 3}: " in result.stderr


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "slow down"}}', "HTTP 429 Too Many Requests: the server says: slow down"),
        (b"<html>Too many</html>", "HTTP 429 Too Many Requests: <html>Too many</html>"),
        (b"", "HTTP 429 Too Many Requests"),
        (stream_of("openai-chat"), "HTTP 429 Too Many Requests: data: {"),
    ],
)
def test_a_failure_that_was_recorded_with_its_head_is_told_as_one(body: bytes, said: str) -> None:
    for more in ([], ["--stream"], ["--from", "openai-chat"]):
        result = convert(
            "--to", "openai-chat", *more, stdin=b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 3\r\n\r\n" + body
        )
        assert (1, "") == (result.exit_code, result.stdout)
        assert f"error: <stdin>: {said}" in result.stderr
        assert "no answer of a model" in result.stderr


def test_what_is_said_to_be_a_transcript_has_no_head() -> None:
    result = convert("--from", "rwkv-goose", "--to", "openai-chat", stdin="HTTP/1.1 404 Not Found")
    assert (1, True) == (result.exit_code, "a turn must begin here" in result.stderr)


def test_a_stream_is_told_again_while_it_still_comes() -> None:
    events = [event + b"\n\n" for event in stream_of("openai-chat").split(b"\n\n") if event]
    with live("convert", "--to", "anthropic-messages", "--stream", "--quiet") as process:
        for event in events[:3]:
            process.send(event)
        told = b""
        while b'"text":"e"' not in told:
            told += os.read(process.stdout.fileno(), 4096)
        for event in events[3:]:
            process.send(event)
        process.stdin.close()
        told += process.stdout.read()
        assert 0 == process.wait()
    assert "Hello" == ts.parse_response(told).items[0].content[0].text  # type: ignore[attr-defined]
