"""Server-sent events: bytes cut anywhere are read the same, and nothing that a server sends hangs or grows for ever."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from tests.strategies import text
from tests.strategies.events import cut_anywhere
from turnscript.core.errors import UpstreamError
from turnscript.core.sse import SseReader, comment, frame

Events = list[tuple[str, str]]


def read(data: bytes, size: int = 0, limit: int = 1 << 24) -> Events:
    reader = SseReader(limit)
    events: Events = []
    for start in range(0, len(data), size or max(1, len(data))):
        events += reader.feed(data[start : start + (size or len(data))])
    return events + reader.close()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"data: a\n\n", [("", "a")]),
        (b"data:a\n\n", [("", "a")]),
        (b"data:  a\n\n", [("", " a")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [("", "a"), ("", "b")]),
        (b"data: a\r\ndata: b\r\n\r\n", [("", "a\nb")]),
        (b"data: a\r\rdata: b\r\r", [("", "a"), ("", "b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("", "a")]),
        (b"data: \xef\xbb\xbfa\n\n", [("", "\ufeffa")]),
        (b"event: ping\ndata: {}\n\ndata: x\n\n", [("ping", "{}"), ("", "x")]),
        (b"data: a\nevent: late\n\n", [("late", "a")]),
        (b"event: nothing\n\ndata: x\n\n", [("", "x")]),
        (b": comment\n\n: another\ndata: a\n: third\ndata: b\n\n", [("", "a\nb")]),
        (b"data: a\ndata: b\n\n", [("", "a\nb")]),
        (b"data: a\ndata\ndata:\n\n", [("", "a\n\n")]),
        (b"data\n\n", [("", "")]),
        (b"id: 7\nretry: 10\ndata: a\n\n", [("", "a")]),
        (b"\n\n\r\n\rdata: a\n\n", [("", "a")]),
        (b"data: a\xe2\x80\xa8b\x0b\x0c\n\n", [("", "a\u2028b\x0b\x0c")]),
        (b"", []),
        (b"\xef\xbb\xbf", []),
    ],
)
def test_events_are_read_as_the_standard_has_them_in_any_pieces(data: bytes, expected: Events) -> None:
    assert expected == read(data)
    for size in (1, 2, 3):
        assert expected == read(data, size)


@pytest.mark.parametrize(
    "data", [b"data: a\n\ndata: [DONE]", b"data: a\n\ndata: [DONE]\n", b"data: a\n\ndata: [DONE]\r"]
)
def test_the_last_event_may_lack_its_empty_line(data: bytes) -> None:
    assert [("", "a"), ("", "[DONE]")] == read(data)


@given(st.lists(st.tuples(st.sampled_from(["", "ping", "a.b"]), text.texts())), st.data())
def test_what_was_framed_is_read_again_whatever_it_holds(pairs: Events, data: st.DataObject) -> None:
    body = b"".join([frame(one, event) + comment("keepalive") for event, one in pairs])
    reader = SseReader()
    actual: Events = []
    for piece in cut_anywhere(data.draw, body):
        actual += reader.feed(piece)
    expected = [(event, one.replace("\r\n", "\n").replace("\r", "\n")) for event, one in pairs]
    assert expected == actual + reader.close()


def test_bytes_and_text_are_framed_alike() -> None:
    assert b"event: e\ndata: \xc3\xa9\n\n" == frame("é", "e") == frame("é".encode(), "e")


def test_a_line_without_an_end_is_an_error_and_not_a_full_memory() -> None:
    reader = SseReader(limit=1000)
    assert [("", "a")] == reader.feed(b"data: a\n\ndata: " + b"x" * 900)
    with pytest.raises(UpstreamError, match="one line of more than 1000 bytes"):
        reader.feed(b"x" * 200)
    with pytest.raises(UpstreamError, match="one line"):
        reader.feed(b"\n\ndata: b\n\n")
    with pytest.raises(UpstreamError, match="one line"):
        reader.close()


def test_a_line_that_came_whole_has_the_same_limit() -> None:
    with pytest.raises(UpstreamError, match="one line"):
        read(b"data: " + b"x" * 1000 + b"\n\n", limit=1000)


def test_many_lines_of_one_event_have_a_limit_together() -> None:
    with pytest.raises(UpstreamError, match="one event of more than 1000 bytes"):
        read(b"data: x\n" * 600, limit=1000)


@pytest.mark.parametrize("line", [b"data:\n", b"data: x\n", b"data: ab\n", b"data: \xc3\xa9b\n"])
def test_many_short_lines_of_one_event_take_no_more_memory_than_a_long_one(line: bytes) -> None:
    limit = 1 << 18
    reader = SseReader(limit=limit)

    def fill() -> None:
        for _ in range(limit // len(line) + 1):
            reader.feed(line)

    tracemalloc.start()
    with pytest.raises(UpstreamError, match="one event"):
        fill()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * limit


def test_the_limit_is_one_of_each_event_and_not_of_the_stream() -> None:
    events = [("", "x" * 600)] * 5
    assert events == read(b"".join([frame(data) for _, data in events]), limit=1000)


def test_a_line_of_a_megabyte_is_read_in_any_pieces() -> None:
    data = b"data: " + b"x" * 1_000_000 + b"\n\n"
    assert [("", "x" * 1_000_000)] == read(data) == read(data, 4096)


def test_bytes_that_are_no_utf8_are_an_error_behind_the_events_before_them() -> None:
    reader = SseReader()
    assert [("", "a")] == reader.feed(b"data: a\n\ndata: \xff\xfe\n\ndata: c\n\n")
    with pytest.raises(UpstreamError, match="no UTF-8"):
        reader.close()


def test_a_page_instead_of_a_stream_leaves_its_beginning() -> None:
    reader = SseReader()
    assert [] == reader.feed(b"<html>\n<body>Bad gateway</body>\n</html>\n") + reader.close()
    assert "<html>" == reader.stray


def test_an_event_with_a_name_and_without_data_is_none_and_is_noted() -> None:
    for data, stray in ((b"event: a\n\n", "event: a"), (b"event: a", "event: a"), (b"event: ping\n\n", "")):
        reader = SseReader()
        assert [("", "b")] == reader.feed(b"data: b\n\n" + data) + reader.close()
        assert stray == reader.stray


@pytest.mark.deep
def test_time_is_linear_in_a_line_that_comes_byte_by_byte() -> None:
    def reading(length: int) -> Callable[[], object]:
        def read() -> None:
            reader = SseReader()
            reader.feed(b"data: ")
            for _ in range(length):
                reader.feed(b"x")
            assert [("", "x" * length)] == reader.feed(b"\n\n")

        return read

    assert_grows_below(8, reading, 20_000, 80_000)
