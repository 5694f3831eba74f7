"""Owns the tests of what is rare in Messages streams: a compaction, a model that takes over, a message begun twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.loopback import SSE, Loopback
from tests.messages import API, STOP, block, end, frames, read, request, start, stream, text, written
from tests.sdks import anthropic_sdk
from turnscript.apis.api import Reply
from turnscript.core.conversation import Opaque
from turnscript.core.errors import UpstreamError
from turnscript.core.events import fold
from turnscript.core.json_text import plain
from turnscript.datasets.form_registry import get_form

ASK = [{"role": "user", "content": "Hi"}]
SUMMARY = {"type": "compaction_delta", "content": "They spoke of é.", "encrypted_content": "opaque"}
EMPTY = {"type": "compaction", "content": None}
COMPACTED = stream(start(), *block(0, EMPTY, SUMMARY), *text(1, "On we go."), *end())


def block_of(data: bytes, index: int = 0) -> Any:
    item = fold(read(data)).items[index]
    assert isinstance(item, Opaque)
    return plain(item.value)


def kinds_of_row(data: bytes) -> list[str]:
    """The kinds of items in a row of training data that has a stream as its answer."""
    row = {"request": {"model": "m", "max_tokens": 9, "messages": ASK}, "response": data.decode()}
    (example,) = get_form("anthropic-messages").read(json.dumps(row).encode())
    return [item.kind for item in example.request.items]


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with Loopback() as running:
        yield running


@pytest.fixture(scope="module")
def told(server: Loopback) -> Iterator[Callable[[bytes], Any]]:
    """Gives the message that the official SDK makes of a stream."""
    with anthropic_sdk(server.url) as client:

        def message(data: bytes) -> Any:
            server.answer(data, SSE)
            asked: Any = {"model": "m", "max_tokens": 9, "messages": ASK}
            with client.beta.messages.stream(**asked) as messages:
                return messages.get_final_message()

        yield message


def test_a_compaction_is_read_from_its_delta() -> None:
    response = fold(read(COMPACTED))
    assert ["opaque", "assistant"] == [item.kind for item in response.items]
    assert EMPTY | SUMMARY | {"type": "compaction"} == block_of(COMPACTED)
    assert [] == response.issues


def test_the_last_delta_of_a_compaction_counts_and_keeps_what_only_the_start_said() -> None:
    first = {"type": "compaction_delta", "content": "No.", "encrypted_content": "x"}
    signed = EMPTY | {"signature": "sig"}
    data = stream(start(), *block(0, signed, first, {"type": "compaction_delta", "content": "Yes."}), *end())
    assert {"type": "compaction", "content": "Yes.", "encrypted_content": "x", "signature": "sig"} == block_of(data)


def test_a_compaction_delta_in_another_block_is_an_issue() -> None:
    response = fold(read(stream(start(), *block(0, {"type": "text", "text": "a"}, SUMMARY), *end())))
    assert ["misplaced_delta"] == [issue.kind for issue in response.issues]
    assert "They spoke of" in response.issues[0].detail


def test_a_compaction_is_written_as_servers_write_it() -> None:
    data = written(read(COMPACTED))
    begun, delta = [said for _, said in frames(data)][1:3]
    assert EMPTY == begun["content_block"]
    assert SUMMARY == delta["delta"]
    assert block_of(COMPACTED) == block_of(data)


@pytest.mark.parametrize("again", [False, True])
def test_the_sdk_finds_the_compaction(told: Callable[[bytes], Any], again: bool) -> None:
    message = told(written(read(COMPACTED)) if again else COMPACTED)
    assert ("They spoke of é.", "opaque") == (message.content[0].content, message.content[0].encrypted_content)


HOP = {"type": "fallback", "from": {"model": "m"}, "to": {"model": "smaller"}, "trigger": {"type": "refusal"}}


def test_the_model_is_the_last_that_went_on_with_the_answer(told: Callable[[bytes], Any]) -> None:
    second = HOP | {"to": {"model": "smallest"}}
    for hops, model in (([HOP], "smaller"), ([HOP, second], "smallest")):
        blocks = [event for index, hop in enumerate(hops) for event in block(index, hop)]
        data = stream(start(), *blocks, *text(len(hops), "Hello."), *end())
        parser = API.stream_parser()
        response = fold(parser.feed(data) + parser.close())
        assert [model] * 3 == [response.model, parser.head().model, told(data).model]


@pytest.mark.parametrize("to", [None, "smaller", {}, {"model": 1}, [1]])
def test_a_hop_that_names_no_model_changes_none(to: Any) -> None:
    response = fold(read(stream(start(), *block(0, HOP | {"to": to}), *end())))
    assert ("m", []) == (response.model, response.issues)


def test_a_message_that_begins_twice_is_one_message() -> None:
    usage = {"input_tokens": 3, "output_tokens": 1, "service_tier": "standard"}
    more = start(usage=usage, container=None, model="behind")
    data = stream(start(), more, *text(0, "Hello."), *end())
    response = fold(read(data))
    once = fold(read(stream(more, *text(0, "Hello."), *end())))
    assert ["second_start"] == [issue.kind for issue in response.issues]
    assert (once.items, once.usage, once.extra) == (response.items, response.usage, response.extra)
    assert ("msg_1", "behind") == (response.id, response.model)
    assert ["user", "assistant"] == kinds_of_row(data)
    assert "m" == fold(read(stream(start(), start(model=None), *text(0, "Hello."), *end()))).model


def test_the_count_at_a_second_start_is_not_that_of_the_answer() -> None:
    last = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    response = fold(read(stream(start(), start(), *text(0, "Hello."), last, STOP)))
    assert None is response.usage
    assert ["second_start", "missing_count"] == [issue.kind for issue in response.issues]


def test_what_a_server_says_beside_the_message_is_kept_and_no_issue() -> None:
    """As Bedrock's does in the last event of each stream."""
    metrics = {"firstByteLatency": 41.0}
    last = [end()[0], STOP | {"x-metrics": metrics}]
    data = stream(start() | {"x-node": 7}, *text(0, "Hello."), *last)
    response = fold(read(data))
    assert [] == response.issues
    assert {"x-metrics": metrics, "x-node": 7} == {name: plain(value) for name, value in response.extra.items()}
    assert response.extra == fold(read(written(read(data)))).extra
    assert ["user", "assistant"] == kinds_of_row(data)


@pytest.mark.parametrize("name", ["id", "model", "role", "content", "stop_reason", "stop_sequence", "usage"])
@pytest.mark.parametrize("last", [False, True])
def test_what_has_its_place_in_the_message_is_not_kept_beside_it(name: str, last: bool) -> None:
    """Nobody would read it there, and it could be written nowhere: the message says the same member."""
    odd = {name: "x"}
    first, ending = start() | ({} if last else odd), STOP | (odd if last else {})
    response = fold(read(stream(first, *text(0, "Hello."), end()[0], ending)))
    assert {} == response.extra
    assert ["unknown_member"] == [issue.kind for issue in response.issues]


def test_what_says_nothing_beside_a_text_is_written_or_left_out_and_an_unknown_member_is_lost() -> None:
    """A text is on its way before what stands beside it is known."""
    said = {"type": "text_delta", "text": "Hello."}
    for name, deltas, kept, losses in (
        ("citations", (), True, []),
        ("citations", (said,), False, []),
        ("caveats", (said,), False, ["$.content[0].caveats"]),
    ):
        cited = {"type": "text", "text": "", name: []}
        events = read(stream(start(), *block(0, cited, *deltas), *end()))
        writer = API.stream_renderer(request(), Reply(id="msg_1"))
        again = fold(read(writer.send(events) + writer.close())).items[0]
        assert kept == (again == fold(events).items[0])
        assert losses == [loss.path for loss in writer.losses]


@pytest.mark.parametrize("ids", [("msg_1", "msg_2"), (None, None), ("msg_1", None)])
def test_another_message_in_the_middle_of_one_is_an_error(ids: tuple[str | None, str | None]) -> None:
    one, other = [start(id=id_) for id_ in ids]
    with pytest.raises(UpstreamError, match="message_start again"):
        read(stream(one, *text(0, "Say"), other, *text(0, "Hello."), *end()))
