"""Owns reading log probabilities: what llama.cpp calls a token, and lists side by side."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

import turnscript as ts
from turnscript.core.conversation import Assistant, Text, text_content
from turnscript.core.events import Event, MessageEnd, PartEnd, PartStart, ScoredDelta, fold, unfold
from turnscript.core.logprobs import LEAST, TokenLogprob, TokenReader, data_of


def entry(id_: int, sent: str | bytes, *others: tuple[int, str | bytes]) -> dict[str, Any]:
    """A token as llama.cpp says it: by what is sent with it, and by its name among the likely ones."""
    data = sent.encode() if isinstance(sent, str) else sent
    named = [(one, token.encode() if isinstance(token, str) else token) for one, token in others]
    likely = [
        {"id": one, "token": token.decode("utf-8", "replace"), "bytes": list(token), "logprob": -2.0}
        for one, token in named
    ]
    head = {"id": id_, "token": data.decode("utf-8", "replace"), "bytes": list(data), "logprob": -1.0}
    return head | {"top_logprobs": likely}


def read(*said: Any, top: int = 1) -> list[TokenLogprob]:
    """The tokens of an answer that came in so many pieces."""
    reader = TokenReader(top)
    return [token for one in said for token in reader.read(Raw(json.dumps(one).encode()))]


def words(*said: Any, top: int = 1) -> list[str]:
    return [token.token for token in read(*said, top=top)]


def test_a_token_that_is_held_back_is_told_with_its_own_text() -> None:
    held = entry(11, "", (11, "\n"))
    assert [] == words([held])
    assert ["\n", "Hi"] == words([held], [entry(5, "\nHi")])
    assert ["\n", "\n", "Hi"] == words([held, held], [entry(5, "\n\nHi", (11, "\n"))])
    assert ["\n", "Hi"] == words([entry(11, "")], [entry(5, "\nHi", (5, "Hi"))])
    assert ["\n"] * 2 == words([entry(11, "\n")], [entry(11, "")], [entry(3, "\nx")])[:2]
    assert ["", "\nHi"] == words([entry(11, "")], [entry(5, "\nHi")])
    assert [-1.0, -1.0] == [token.logprob for token in read([held], [entry(5, "\nHi")])]


def test_a_token_that_a_stop_cuts_is_whole() -> None:
    assert ["END"] == words([entry(7, "EN", (7, "END"))])
    assert ["a"] == words([entry(1, "a"), entry(2, ""), entry(3, "")])


def test_a_character_of_several_tokens_is_one() -> None:
    """The server tells of the last one only, as the whole character."""
    (token,) = read([entry(9, "字", (9, b"\x97"))])
    assert ("字", list("字".encode())) == (token.token, token.bytes)


def test_only_so_many_likely_tokens_are_told_as_were_asked_for() -> None:
    token = entry(1, "a", (1, "a"), (2, "b"), (3, "c"))
    assert ["a", "b"] == [one.token for one in read([token], top=2)[0].top_logprobs]
    assert [] == read({"content": [token]}, top=0)[0].top_logprobs
    lists = {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": [{"c": -3, "a": -1, "b": -2}]}
    assert ["a", "b"] == [one.token for one in read(lists, top=2)[0].top_logprobs]


def test_lists_say_what_they_can() -> None:
    cut, written, odd = read({"tokens": ["\ufffd", "bytes:\\xe2\\x80", "a"], "token_logprobs": [None, -0.5]})
    assert (None, LEAST) == (cut.bytes, cut.logprob)
    assert ([0xE2, 0x80], "bytes:\\xe2\\x80", -0.5) == (written.bytes, written.token, written.logprob)
    assert ([97], LEAST, []) == (odd.bytes, odd.logprob, odd.top_logprobs)
    assert ["\ufffd".encode(), b"\xe2\x80", b"a"] == list(map(data_of, (cut, written, odd)))


@pytest.mark.parametrize("said", [[0.5, 0.25], "x", 3, {"tokens": 5}, {"content": [3]}, {}, [], {"content": []}])
def test_what_has_another_form_says_nothing(said: Any) -> None:
    assert [] == read(said)


def test_a_response_has_the_tokens_of_its_texts() -> None:
    token = TokenLogprob("Hi", [72, 105], -0.5)
    part = Assistant(content=[Text(text="Hi")])
    start, end = PartStart(3, Assistant()), PartEnd(3, part)
    assert {0: [token]} == fold([start, ScoredDelta(3, "Hi", "Hi", [token]), end, MessageEnd("stop")]).logprobs
    assert {} == fold([start, end, MessageEnd("stop")]).logprobs


@pytest.mark.parametrize("name", ts.apis())
def test_an_answer_says_how_likely_its_tokens_were_or_that_it_does_not(name: str) -> None:
    token = TokenLogprob(token="Hi", bytes=[72, 105], logprob=-0.125)
    said = Assistant(content=[Text(text="HiHi")])
    events: list[Event] = [PartStart(0, Assistant())]
    events += [ScoredDelta(0, "Hi", tokens=[token]), ScoredDelta(0, "Hi", tokens=[token])]
    events += [PartEnd(0, said), MessageEnd("stop", usage=ts.Usage(1, 2))]
    api, request = ts.get_api(name), ts.Request(conversation=ts.Conversation(items=[]))
    whole = api.render_response(fold(events), request)
    told = [(str(whole.value), whole.losses)]
    for pieces in ([events], [[event] for event in events]):
        writer = api.stream_renderer(request)
        sent = b"".join([*map(writer.send, pieces), writer.close()])
        told.append((sent.decode(), writer.losses))
    for wire, losses in told:
        lost = [loss for loss in losses if loss.path == "$.logprobs"]
        assert ("-0.125" not in wire) == (len(lost) == 1), lost


@pytest.mark.parametrize("name", ts.apis())
def test_the_tokens_of_several_texts_are_told_whole_and_streamed(name: str) -> None:
    tokens = [TokenLogprob(token="Hi", bytes=[72, 105], logprob=-0.125), TokenLogprob("Ho", [72, 111], -0.25)]
    response = ts.Response(items=[Assistant(content=[Text(text="Hi"), Text(text="Ho")])], finish_reason="stop")
    response.logprobs = {0: tokens}
    assert response.logprobs == fold(unfold(response)).logprobs
    api = ts.get_api(name)
    whole = api.render_response(response, ts.Request())
    writer = api.stream_renderer(ts.Request())
    sent = (writer.send(unfold(response)) + writer.close()).decode()
    assert ("-0.25" in sent) == ("-0.25" in str(whole.value))
    assert [loss for loss in whole.losses if loss.path == "$.logprobs"] == [
        loss for loss in writer.losses if loss.path == "$.logprobs"
    ]
    folded = ts.parse_response(sent.encode(), name)
    assert "HiHo" == "".join(text_content(item.content) for item in folded.items if isinstance(item, Assistant))
