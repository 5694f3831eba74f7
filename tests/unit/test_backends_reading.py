"""Owns reading the answers of model servers: whatever they leave out, put elsewhere, break off or send instead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from turnscript.backends.backend import Backend, Completion, Piece
from turnscript.convert import registry
from turnscript.core.conversation import Usage
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UpstreamError
from turnscript.core.sse import LIMIT

ASK = Completion(prompt="Hi", max_tokens=5)
COMPLETIONS, LLAMA, AI00 = (registry.get_backend(name) for name in ("completions", "llamacpp", "ai00"))
EACH = pytest.mark.parametrize("backend", [COMPLETIONS, LLAMA, AI00], ids=["completions", "llamacpp", "ai00"])


def sse(*events: Any) -> bytes:
    """A stream of events; text stands as it is."""
    texts = [one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in events]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def event(backend: Backend, text: str, finish: str | None = None) -> Any:
    """A piece of text as this server streams it, or the last event."""
    if backend is LLAMA:
        if finish is None:
            return {"index": 0, "content": text, "tokens": [1], "stop": False, "id_slot": -1, "tokens_predicted": 2}
        return {"content": text, "stop": True, "stop_type": {"stop": "eos", "length": "limit"}[finish]}
    if backend is AI00:
        delta = {"content": text} if text else {}
        choice = {"delta": delta, "index": 0, "finish_reason": finish}
        return {"object": "text_completion.chunk", "model": "m", "choices": [choice]}
    return {"id": "cmpl-1", "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}]}


def whole(backend: Backend, text: str, finish: str | None = "stop") -> bytes:
    """An answer in one piece."""
    if backend is AI00:
        counts = {"prompt": 11, "completion": 4, "total": 15, "duration": {"secs": 0, "nanos": 1}}
        choice = {"text": text, "index": 0, "finish_reason": finish}
        return json.dumps({"object": "text_completion", "choices": [choice], "usage": counts}).encode()
    return json.dumps(event(backend, text, finish)).encode()


def read(backend: Backend, *pieces: bytes) -> list[Piece]:
    """All that a reader tells of some bytes."""
    reader = backend.reader(ASK)
    found = [piece for data in pieces for piece in reader.feed(data)]
    return found + reader.close()


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


def summary(pieces: list[Piece]) -> tuple[str, str | None, str | None, Usage | None]:
    """What the pieces say together."""
    finish = next((piece.finish for piece in pieces if piece.finish), None)
    stop = next((piece.stop for piece in pieces if piece.stop), None)
    return text_of(pieces), finish, stop, next((piece.usage for piece in pieces if piece.usage), None)


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """Every way to cut bytes in two, and single bytes."""
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(len(data)):
        yield [data[:at], data[at:]]


@EACH
def test_a_stream_is_read_the_same_however_it_is_cut(backend: Backend) -> None:
    data = sse(event(backend, "a\n\n"), event(backend, "é👍"), event(backend, ""), event(backend, "", "stop"), "[DONE]")
    assert ("a\n\né👍", "stop", None, None) == summary(read(backend, data))
    for pieces in cuts(data):
        assert ("a\n\né👍", "stop", None, None) == summary(read(backend, *pieces))


@EACH
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"data: ", b"data:"),
        (b"\n", b"\r\n"),
        (b"\n", b"\r"),
        (b"data: ", b": ping\n\ndata: "),
        (b"data: ", b"event: completion\nid: 3\ndata: "),
        (b"\n\n", b"\n\n\n\n"),
        (b"{", b"\n{"),
    ],
)
def test_a_stream_may_be_written_in_other_ways(backend: Backend, old: bytes, new: bytes) -> None:
    if new == b"\n{":  # one object on several lines
        old, new = b"{", b"{\ndata: "
    plain = sse(event(backend, "a"), event(backend, "b", "length"), "[DONE]")
    data = plain.replace(old, new)
    assert data != plain
    for pieces in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        assert ("ab", "length", None, None) == summary(read(backend, *pieces))
    assert ("ab", "length", None, None) == summary(read(backend, b"\xef\xbb\xbf" + data))


@EACH
def test_events_that_arrive_together_are_told_together(backend: Backend) -> None:
    reader = backend.reader(ASK)
    assert ["a", "b", "c"] == [piece.text for piece in reader.feed(sse(*(event(backend, text) for text in "abc")))]
    assert [] == reader.feed(sse(event(backend, "")))
    assert [] == reader.feed(b"")
    assert (False, False) == (reader.finished, reader.over)


@EACH
def test_a_whole_answer_is_read_however_it_is_cut_and_whatever_was_asked(backend: Backend) -> None:
    data = whole(backend, "one\n\ntwo é", "length")
    for pieces in cuts(data):
        text, finish, _, _ = summary(read(backend, *pieces))
        assert ("one\n\ntwo é", "length") == (text, finish)
    reader = backend.reader(ASK)
    assert [] == reader.feed(b" \n " + data)
    assert 1 == len(reader.close())
    assert (True, True) == (reader.finished, reader.over)


def test_a_stream_without_done_ends_with_its_reason() -> None:
    for backend in (COMPLETIONS, AI00):
        assert "stop" == summary(read(backend, sse(event(backend, "a"), event(backend, "", "stop"))))[1]
    no_empty_line = sse(event(COMPLETIONS, "a", "stop")).rstrip(b"\n")
    assert ("a", "stop") == summary(read(COMPLETIONS, no_empty_line))[:2]


@EACH
def test_a_stream_that_breaks_off_is_an_error_that_may_be_tried_again(backend: Backend) -> None:
    data = sse(event(backend, "a"), event(backend, "b"))
    for end in range(len(data) + 1):
        reader = backend.reader(ASK)
        assert "ab".startswith(text_of(reader.feed(data[:end])))
        with pytest.raises(UpstreamError, match=r"broke off|no completion") as caught:
            reader.close()
        assert caught.value.retryable


@pytest.mark.parametrize("backend", [COMPLETIONS, AI00], ids=["completions", "ai00"])
def test_an_empty_reason_is_none(backend: Backend) -> None:
    """LocalAI and others written in Go put one into every chunk: it was taken for the end, so that nobody saw a cut."""
    events = [event(backend, "a", ""), event(backend, "b", "")]
    reader = backend.reader(ASK)
    assert "ab" == text_of(reader.feed(sse(*events)))
    assert (False, False) == (reader.finished, reader.over)
    with pytest.raises(UpstreamError, match="broke off"):
        reader.close()
    assert ("ab", "length") == summary(read(backend, sse(*events, event(backend, "", "length"))))[:2]
    for data in (sse(*events, "[DONE]"), whole(backend, "a", "")):
        with pytest.raises(UpstreamError, match="does not say why"):
            read(backend, data)


@EACH
def test_a_whole_answer_that_breaks_off_is_an_error(backend: Backend) -> None:
    data = whole(backend, "one")
    for end in range(1, len(data)):
        with pytest.raises(UpstreamError):
            read(backend, data[:end])


@EACH
@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"<html>It works!</html>",
        b"null",
        b"[]",
        b"{}",
        b'{"choices":"x"}',
        b'{"choices":[]}',
        b"data: {}\n\n",
        b"data: null\n\n",
        b"data: 3\n\n",
        b"data: {\xff}\n\n",
        b'data: {"content":"\xff","choices":[{"text":"\xff"}]}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"x":' + b"[" * 100_000 + b"\n\n",
        b"hello\n\n",
    ],
    ids=range(15),
)
def test_what_is_no_answer_is_an_error_and_nothing_worse(backend: Backend, garbage: bytes) -> None:
    with pytest.raises(UpstreamError):
        read(backend, garbage)


def test_what_came_instead_is_shown() -> None:
    with pytest.raises(UpstreamError, match="It works"):
        read(COMPLETIONS, b"<html>It works!</html>\n")


@EACH
@given(data=st.data())
def test_any_bytes_are_read_or_refused(backend: Backend, data: st.DataObject) -> None:
    known = [sse(event(backend, "a")), sse("[DONE]"), whole(backend, "b"), b"data: ", b"\n\n", b"{", b'"', b"\r"]
    reader = backend.reader(ASK)
    for piece in data.draw(st.lists(st.sampled_from(known) | st.binary(max_size=9))):
        try:
            assert all(isinstance(one, Piece) for one in reader.feed(piece))
        except UpstreamError:
            return


ERRORS: list[tuple[Any, str, str]] = [
    ({"error": "cannot reshape"}, "cannot reshape", "server"),
    ({"error": {"message": "slow down", "type": "rate_limit_error"}}, "slow down", "rate_limited"),
    ({"error": {"code": 503, "message": "Loading", "type": "unavailable_error"}}, "Loading", "overloaded"),
    ({"error": {"message": "maximum context length", "type": "invalid_request_error"}}, "context", "overflow"),
]


@EACH
@pytest.mark.parametrize(("said", "message", "kind"), ERRORS)
def test_an_error_inside_an_answer_is_one(backend: Backend, said: Any, message: str, kind: str) -> None:
    """What was written before it is told first."""
    reader = backend.reader(ASK)
    assert "a" == text_of(reader.feed(sse(event(backend, "a"), said)))
    with pytest.raises(UpstreamError, match=message) as caught:
        reader.feed(b"")
    assert kind == fault_of(caught.value).kind
    with pytest.raises(UpstreamError, match=message):
        reader.close()
    for alone in (sse(said), json.dumps(said).encode(), b"event: error\n" + sse(said)):
        with pytest.raises(UpstreamError, match=message):
            read(backend, alone)


@EACH
def test_an_event_that_is_called_an_error_is_one(backend: Backend) -> None:
    with pytest.raises(UpstreamError, match="no memory"):
        read(backend, b'event: error\ndata: {"message":"no memory","code":500}\n\n')


def test_an_aborted_answer_is_an_error() -> None:
    with pytest.raises(UpstreamError, match="abort"):
        read(COMPLETIONS, sse(event(COMPLETIONS, "", "abort")))


@EACH
def test_no_error_is_no_error(backend: Backend) -> None:
    data = [event(backend, text, finish) | {"error": None} for text, finish in (("a", None), ("", "stop"))]
    assert ("a", "stop") == summary(read(backend, sse(*data)))[:2]


@EACH
def test_half_a_character_at_the_limit_is_left_out_and_elsewhere_it_stays(backend: Backend) -> None:
    for half in ("\ufffd", "\ufffd\ufffd\ufffd"):
        assert "a" == text_of(read(backend, sse(event(backend, "a" + half), event(backend, "", "length"))))
        assert "a" == text_of(
            read(backend, sse(event(backend, "a"), event(backend, half), event(backend, "", "length")))
        )
        assert "a" == text_of(read(backend, sse(event(backend, "a" + half, "length"))))
        assert "a" == text_of(read(backend, whole(backend, "a" + half, "length")))
        assert "a" + half == text_of(read(backend, sse(event(backend, "a" + half), event(backend, "", "stop"))))
        assert "a" + half == text_of(read(backend, whole(backend, "a" + half, "stop")))
        middle = sse(event(backend, half), event(backend, "a"), event(backend, "", "length"))
        assert half + "a" == text_of(read(backend, middle))
    four = "\ufffd" * 4
    assert four[:1] == text_of(read(backend, sse(event(backend, four), event(backend, "", "length"))))


@EACH
def test_nothing_is_read_behind_the_end(backend: Backend) -> None:
    reader = backend.reader(ASK)
    last = event(backend, "a", "stop")
    assert "a" == text_of(reader.feed(sse(last, "[DONE]", event(backend, "b"), {"error": "late"})))
    assert (True, True) == (reader.finished, reader.over)
    assert [] == reader.feed(sse(event(backend, "c")))
    assert [] == reader.close()


@EACH
def test_a_long_event_in_small_pieces_is_read_in_linear_time(backend: Backend) -> None:
    def reading(size: int) -> Callable[[], object]:
        text = "word " * size
        data = sse(event(backend, text), event(backend, "", "stop"))

        def run() -> None:
            assert text == text_of(read(backend, *(data[at : at + 500] for at in range(0, len(data), 500))))

        return run

    assert_grows_below(14, reading, 100_000, 600_000, least=0.005)


@EACH
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_each_event_is_told_as_it_arrives(backend: Backend, end: str) -> None:
    reader = backend.reader(ASK)
    for text in "abc":
        assert text == text_of(reader.feed(sse(event(backend, text)).replace(b"\n", end.encode())))


@EACH
@pytest.mark.parametrize("start", [b"data: ", b'{"a":"', b"x"])
def test_an_answer_without_an_end_is_given_up(backend: Backend, start: bytes) -> None:
    piece = b"y" * (1 << 20)
    with pytest.raises(UpstreamError, match="more than"):
        read(backend, start, *([piece] * (LIMIT // len(piece) + 2)))


# The members of each wire.


def test_completions_say_stops_counts_and_probabilities() -> None:
    usage = {"prompt_tokens": 8, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}
    counted = Usage(8, 3, 4)
    last = event(COMPLETIONS, "", "stop")
    last["choices"][0] |= {"stop_reason": "</s>"}
    for events in ([last | {"usage": usage}], [last, {"choices": [], "usage": usage}], [last, {"usage": usage}]):
        assert ("a", "stop", "</s>", counted) == summary(
            read(COMPLETIONS, sse(event(COMPLETIONS, "a"), *events, "[DONE]"))
        )
    odd: Any
    for odd in (None, {}, {"prompt_tokens": "x"}, [], 3, {"prompt_tokens_details": None}):
        assert None is summary(read(COMPLETIONS, sse(last | {"usage": odd})))[3]
    last["choices"][0] |= {"stop_reason": 128001, "matched_stop": [1, 2]}
    assert ("", "stop", None, None) == summary(read(COMPLETIONS, sse(last)))
    tokens = event(COMPLETIONS, "a")
    tokens["choices"][0]["logprobs"] = {"tokens": ["a"]}
    assert [None, None] == [piece.logprobs for piece in read(COMPLETIONS, sse(tokens, last))]


@pytest.mark.parametrize("number", [-1, -(1 << 70), 1 << 70, 10**400], ids=["-1", "-2^70", "2^70", "10^400"])
@EACH
def test_what_cannot_be_a_count_is_none(backend: Backend, number: int) -> None:
    """Whoever adds them up would fail, after the answer."""
    names = {LLAMA: ("tokens_evaluated", "tokens_predicted"), AI00: ("prompt", "completion")}
    for name in names.get(backend, ("prompt_tokens", "completion_tokens")):
        last = event(backend, "", "stop")
        (last if backend is LLAMA else last.setdefault("usage", {}))[name] = number
        assert ("a", None) == summary(read(backend, sse(event(backend, "a"), last)))[::3]


def test_no_more_is_cached_than_there_is() -> None:
    last = event(COMPLETIONS, "", "stop")
    for said, cached in ((9, 8), (8, 8), (-3, 0)):
        usage = {"prompt_tokens": 8, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": said}}
        assert Usage(8, 3, cached) == summary(read(COMPLETIONS, sse(last | {"usage": usage})))[3]


def test_only_the_first_choice_is_read() -> None:
    second = {"choices": [{"index": 1, "text": "no", "finish_reason": "length"}]}
    assert ("a", "stop") == summary(read(COMPLETIONS, sse(second, event(COMPLETIONS, "a", "stop"), "[DONE]")))[:2]


@pytest.mark.parametrize(
    ("word", "finish"),
    [("eos_token", "stop"), ("stop_sequence", "stop"), ("length", "length"), ("new word", "new word")],
)
def test_completions_end_for_reasons_in_many_words(word: str, finish: str) -> None:
    assert finish == summary(read(COMPLETIONS, sse(event(COMPLETIONS, "a", word))))[1]


def test_llamacpp_says_why_where_and_how_much_it_had_read() -> None:
    last = {"content": "", "stop": True, "stop_type": "word", "stopping_word": "\n\n", "id_slot": 1}
    counts = {"tokens_evaluated": 8, "tokens_predicted": 3}
    for cached in ({"timings/cache_n": 4}, {"timings": {"cache_n": 4, "prompt_n": 4}}):
        [piece] = read(LLAMA, sse(last | counts | cached))
        assert ("stop", "\n\n", Usage(8, 3, 4), 1) == (piece.finish, piece.stop, piece.usage, piece.slot)
    for kind, finish in (("eos", "stop"), ("none", "none"), ("limit", "length")):
        [piece] = read(LLAMA, sse(last | {"stop_type": kind, "stopping_word": "", "id_slot": -1}))
        assert (finish, None, None, None) == (piece.finish, piece.stop, piece.usage, piece.slot)
    assert "length" == read(LLAMA, sse(last | {"truncated": True}))[0].finish
    older = {"content": "", "stop": True, "stopped_eos": False, "stopped_word": False, "stopped_limit": False}
    for name, finish in (("stopped_eos", "stop"), ("stopped_word", "stop"), ("stopped_limit", "length")):
        assert finish == read(LLAMA, sse(older | {name: True}))[0].finish


def test_llamacpp_counts_the_prompt_before_its_answer() -> None:
    """Who leaves before the end knows how much was read, too."""
    reading = [{"total": 8, "cache": 4, "processed": done, "time_ms": done} for done in (4, 8)]
    head = {"content": "", "stop": False, "tokens_evaluated": 8, "tokens_predicted": 0}
    progress = sse(*[head | {"prompt_progress": one} for one in reading])
    texts = sse(*[head | {"content": text, "tokens_predicted": 1} for text in "ab"])
    reader = LLAMA.reader(ASK)
    assert [] == reader.feed(progress)
    assert [Usage(8, 0, 4), None] == [piece.usage for piece in reader.feed(texts)]
    assert [Usage(8, 0), None] == [piece.usage for piece in LLAMA.reader(ASK).feed(texts)]


def test_ai00_counts_by_other_names() -> None:
    assert ("Paris", "stop", None, Usage(11, 4)) == summary(read(AI00, whole(AI00, "Paris")))


def escaped(backend: Backend, *texts: str, finish: str = "stop") -> bytes:
    """A stream in which whatever is not ASCII is escaped, halves of characters too."""
    return sse(*[json.dumps(event(backend, text)) for text in texts], json.dumps(event(backend, "", finish)), "[DONE]")


@EACH
@pytest.mark.parametrize("end", [b"\n", b"\r\n"], ids=["read at once", "read with care"])
def test_a_character_that_a_server_cut_between_two_events_is_one(backend: Backend, end: bytes) -> None:
    """Servers in JavaScript do, between the two escapes that JSON has for an emoji."""
    data = escaped(backend, "a\ud83d", "\ude00\ud83d", "", "\ude01!", "\ud83d", "\ude02", r"\ud83d").replace(b"\n", end)
    for pieces in ([data], [data[at : at + 7] for at in range(0, len(data), 7)]):
        assert r"a😀😁!😂\ud83d" == text_of(read(backend, *pieces))


@EACH
def test_half_of_a_character_is_told_as_one_that_could_not_be_read(backend: Backend) -> None:
    assert "a\ufffdb\ufffdc" == text_of(read(backend, escaped(backend, "a\ud83d", "b\ud83d", "c")))
    assert "a\ufffd" == text_of(read(backend, escaped(backend, "a\ud83d")))
    assert "a" == text_of(read(backend, escaped(backend, "a\ud83d", finish="length")))
    careful = escaped(backend, "a\ud83d").replace(b"\n", b"\r\n")
    assert "a\ufffd" == text_of(read(backend, careful))


@EACH
def test_the_second_half_alone_is_no_answer(backend: Backend) -> None:
    for texts in (["a\ude00"], ["\ude00"], ["a\ud83d", "b", "\ude00"]):
        with pytest.raises(UpstreamError, match="what is no completion"):
            read(backend, escaped(backend, *texts))
