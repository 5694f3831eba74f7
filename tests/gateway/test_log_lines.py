"""Owns lines of the log as somebody reads them on a terminal: whatever a server says, each is one line of text."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from tests.gateway.scripted import CLOSE
from tests.gateway.stage import APIS, Stage
from turnscript.gateway.logs import LOGGER, say, set_up

HOSTILE = "a\x1b]0;owned\x07\x1b[31m\x9b31m\r\n\u2028\u202efalse line\x7f"
SHOWN = r"a\x1b]0;owned\x07\x1b[31m\x9b31m\r\n\u2028\u202efalse line\x7f"
UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]")


@pytest.fixture(autouse=True)
def the_logs_of_before() -> Iterator[None]:
    names = (LOGGER, "uvicorn.error", "aiohttp", "asyncio")
    before = [(one, one.handlers, one.propagate, one.level) for one in map(logging.getLogger, names)]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def test_a_line_for_people_has_no_control_characters() -> None:
    stream = io.StringIO()
    set_up(as_json=False, stream=stream)
    say(logging.WARNING, "told", said=HOSTILE, model=HOSTILE)
    line, rest = stream.getvalue().split("\n")
    assert "" == rest
    assert line.endswith(f"said={SHOWN} model={SHOWN}")


def test_a_line_for_programs_has_none_either_and_says_the_same() -> None:
    stream = io.StringIO()
    set_up(as_json=True, stream=stream)
    say(logging.WARNING, "told", said=HOSTILE)
    assert UNSEEN.search(stream.getvalue()) is None
    assert HOSTILE == json.loads(stream.getvalue())["said"]


def failed() -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logging.getLogger(LOGGER).warning("failed", exc_info=sys.exc_info())


def test_the_message_of_an_error_is_shown_in_a_traceback_without_them() -> None:
    stream = io.StringIO()
    set_up(as_json=False, redact=False, stream=stream)
    failed()
    assert UNSEEN.search(stream.getvalue()) is None
    assert SHOWN.split(r"\n", maxsplit=1)[0] in stream.getvalue()


@pytest.mark.parametrize("redact", [True, False])
def test_a_line_for_programs_holds_its_traceback_and_the_message_only_where_that_may_be_told(redact: bool) -> None:
    stream = io.StringIO()
    set_up(as_json=True, redact=redact, stream=stream)
    failed()
    (line,) = stream.getvalue().splitlines()
    told = json.loads(line)["traceback"]
    assert "in failed" in told
    assert "ValueError" in told
    assert redact == (HOSTILE not in told)


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "lines"])
@pytest.mark.parametrize("said", [b"\x1b[31mred", b"\xe2\x80\xae", b"\xff\xfe"], ids=["colour", "mark", "no text"])
def test_where_a_server_points_to_is_one_line(capsys: pytest.CaptureFixture[str], as_json: bool, said: bytes) -> None:
    with Stage() as stage:
        set_up(as_json=as_json)
        location = b"location: http://elsewhere.test/" + said + b"\r\n"
        stage.play([b"HTTP/1.1 307 Elsewhere\r\n", location, b"content-length: 0\r\n\r\n", CLOSE])
        assert 502 == stage.ask(APIS[0], stream=False).status
        stage.until(stage.idle)
    for handler in logging.getLogger(LOGGER).handlers:
        handler.close()
    logged = capsys.readouterr().err
    assert "elsewhere.test" in logged
    assert UNSEEN.search(logged) is None
    assert 2 == logged.count("\n")


def test_lines_come_in_order_although_the_configuration_was_read_again_between_them() -> None:
    """One that may wait for others is before one that may not, and none is torn."""
    stream = io.StringIO()

    async def run() -> None:
        set_up(as_json=True, stream=stream)
        say(logging.INFO, "first")
        set_up(as_json=False, stream=stream)
        say(logging.INFO, "second")
        set_up(as_json=True, stream=stream)
        say(logging.WARNING, "third")

    asyncio.run(run())
    assert ["first", "second", "third"] == re.findall("first|second|third", stream.getvalue())


def test_lines_of_another_loop_are_written_although_the_one_before_it_ended_with_some_left() -> None:
    stream = io.StringIO()

    async def run(what: str, seconds: float) -> None:
        set_up(as_json=True, stream=stream)
        say(logging.INFO, what)
        await asyncio.sleep(seconds)

    asyncio.run(run("first", 0))
    asyncio.run(run("second", 0.2))
    assert ["first", "second"] == re.findall("first|second", stream.getvalue())


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "lines"])
def test_a_line_is_the_same_whether_or_not_others_listen(as_json: bool) -> None:
    lines = []
    for alone in (True, False):
        stream = io.StringIO()
        set_up(as_json=as_json, stream=stream)
        if not alone:
            logging.getLogger(LOGGER).addHandler(logging.NullHandler())
        say(logging.WARNING, "backend failed", model="m", status=None, said=HOSTILE, seconds=0.5)
        lines.append(re.sub(r"\d\d:\d\d:\d\d(\.\d{3})?", "", stream.getvalue()))
    assert lines[0] == lines[1]
    assert "backend failed" in lines[0]


def test_an_event_that_cannot_be_told_stops_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    set_up(stream=stream)
    say(logging.WARNING, "answered", tokens=_Untold())
    say(logging.WARNING, "answered", tokens=2)
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["tokens"] == 2
    assert "nobody can tell" in capsys.readouterr().err


class _Untold:
    def __str__(self) -> str:
        raise ValueError("nobody can tell")


def test_a_quiet_log_tells_nothing_of_little_weight() -> None:
    stream = io.StringIO()
    set_up("warning", stream=stream)
    say(logging.INFO, "answered")
    say(logging.WARNING, "backend failed")
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["event"] == "backend failed"
