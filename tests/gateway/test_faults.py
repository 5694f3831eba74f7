"""Owns endings: however a model server fails, a client is told so in the words of its API, and never of a good end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.gateway.scripted import CLOSE, END, FLOOD, HANG, RESET, STREAM, Script, chunk, event, said, sse
from tests.gateway.stage import APIS, CHATS, WEATHER, Stage, Told, answer, named, piece, text_of_call
from turnscript.apis.api import Api
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UpstreamError, UpstreamTimeout
from turnscript.gateway.config import Timeouts

EACH = pytest.mark.parametrize("api", APIS, ids=named)
CHAT = pytest.mark.parametrize("api", CHATS, ids=named)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PATIENT = Timeouts(between=0.25)
HURRIED = Timeouts(first_byte=0.25)
PAGE = "<html><body><h1>502 Bad Gateway</h1></body></html>"


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(model={"timeouts": PATIENT}) as made:
        yield made


@pytest.fixture(scope="module")
def hurried() -> Iterator[Stage]:
    """A gateway that soon gives up; alone where nothing else may end the wait, because a machine can be slower."""
    with Stage(model={"timeouts": HURRIED}) as made:
        yield made


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream begins with the model, however busy this machine is."""
    monkeypatch.setattr("turnscript.gateway.answers.SOON", 60.0)


@pytest.fixture
def early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream begins before the model is asked."""
    monkeypatch.setattr("turnscript.gateway.answers.SOON", 0.0)


BEFORE: dict[str, Script] = {
    "reset": [RESET],
    "closed": [CLOSE],
    "closed behind the head": [STREAM, CLOSE],
    "a page": said(PAGE, media="text/html"),
    "a page with a status": said(PAGE, status=502, media="text/html"),
    "no HTTP": [b"SSH-2.0-OpenSSH_9.9\r\n\r\n", CLOSE],
    "a failure": said({"error": {"message": "out of memory", "type": "server_error"}}, status=500),
    "an error in a good answer": sse({"error": {"message": "out of memory"}}),
    "a string as an error": sse({"error": "out of memory"}),
    "no text": [STREAM, chunk(b"data: \xff\xfe\n\n"), END],
    "nothing": [STREAM, END],
}
"""What happens instead of the first piece."""
AFTER: dict[str, Script] = {
    "reset": [RESET],
    "closed": [CLOSE],
    "ended": [END],
    "an error": [chunk(event({"error": {"message": "out of memory", "code": 500}})), END],
    "a string as an error": [chunk(event({"error": "out of memory"})), END],
    "a named error": [chunk(b"event: error\ndata: out of memory\n\n"), END],
    "no JSON": [chunk(b"data: {oops\n\n"), END],
    "no text": [chunk(b'data: {"choices":[{"text":"\xff\xfe"}]}\n\n'), END],
    "aborted": [chunk(event(piece("", "abort"))), END],
    "no chunk": [b"zz\r\nfoo", CLOSE],
    "silence": [HANG],
}
"""What happens behind the first piece."""


def is_failure(told: Told, stream: bool) -> None:
    """The client knows that there is no answer, by all that its API has for it."""
    assert told.error is not None, told.body
    assert told.end is None
    assert not told.calls
    if told.streamed:
        assert stream
        assert 200 == told.status
        assert isinstance(told.error, UpstreamError)
    else:
        of_api, body = told.api.render_error(UpstreamError("?"))
        expected = of_api if told.status != 504 else told.api.render_error(UpstreamTimeout("?"))[0]
        assert expected == told.status
        assert shape(json.loads(body)) == shape(told.json)
        assert told.api.request_id in told.headers
        assert "false" != told.headers.get("x-should-retry")


def shape(value: object) -> object:
    """The members of a body."""
    if not isinstance(value, dict):
        return None
    return {name: shape(member) for name, member in value.items() if name != "request_id"}


@EACH
@BOTH
@pytest.mark.parametrize("case", BEFORE)
@pytest.mark.usefixtures("late")
def test_a_failure_before_the_first_piece_is_an_error_with_a_status(
    stage: Stage, api: Api, stream: bool, case: str
) -> None:
    stage.play(BEFORE[case])
    told = stage.ask(api, stream=stream)
    assert not told.streamed
    assert 502 == told.status
    is_failure(told, stream)


@EACH
@BOTH
@pytest.mark.usefixtures("late")
def test_silence_before_the_first_piece_is_an_error_with_a_status(hurried: Stage, api: Api, stream: bool) -> None:
    hurried.play([HANG])
    told = hurried.ask(api, stream=stream)
    assert not told.streamed
    assert 504 == told.status
    is_failure(told, stream)


@EACH
@pytest.mark.parametrize("case", BEFORE)
@pytest.mark.usefixtures("early")
def test_a_failure_in_a_stream_that_has_begun_ends_it(stage: Stage, api: Api, case: str) -> None:
    stage.play([0.02, *BEFORE[case]])
    told = stage.ask(api, stream=True)
    assert told.streamed
    is_failure(told, stream=True)


@EACH
@BOTH
@pytest.mark.parametrize("case", AFTER)
@pytest.mark.usefixtures("late")
def test_a_failure_behind_the_first_piece_is_never_a_good_end(stage: Stage, api: Api, stream: bool, case: str) -> None:
    stage.play([STREAM, chunk(event(piece("Once upon a time"))), 0.01, *AFTER[case]])
    told = stage.ask(api, stream=stream)
    assert stream == told.streamed
    is_failure(told, stream)
    if stream:
        assert b"Once upon" in told.body
    assert 1 == len(stage.asks[0])


@CHAT
@BOTH
@pytest.mark.parametrize("case", ["reset", "ended", "an error"])
@pytest.mark.usefixtures("late")
def test_a_call_that_a_failure_cuts_off_is_never_made(stage: Stage, api: Api, stream: bool, case: str) -> None:
    text = text_of_call()
    for cut in (len(text) // 2, text.index("Paris") + 3):
        stage.play([STREAM, chunk(event(piece(text[:cut]))), 0.01, *AFTER[case]])
        is_failure(stage.ask(api, stream=stream, tools=[WEATHER]), stream)
    stage.play(answer(text))
    told = stage.ask(api, stream=stream, tools=[WEATHER])
    assert ["get_weather"] == [call.name for call in told.calls]
    assert "tool_calls" == told.end.finish_reason if told.end else False


@CHAT
@BOTH
def test_a_call_that_the_limit_cuts_off_is_not_made_either(stage: Stage, api: Api, stream: bool) -> None:
    stage.play(answer(text_of_call().partition("ris")[0], finish="length"))
    told = stage.ask(api, stream=stream, tools=[WEATHER])
    assert told.end is not None
    assert "length" == told.end.finish_reason
    assert not [call for call in told.calls if not call.open]


@EACH
@BOTH
@pytest.mark.parametrize(
    "rest",
    [
        [END],
        [chunk(event("[DONE]")), END],
        [CLOSE],
        [chunk(b"data: [DO"), RESET],
    ],
    ids=["no mark of the end", "no counts", "closed", "cut behind the end"],
)
def test_what_may_be_missing_behind_a_whole_answer_is_not_missed(
    stage: Stage, api: Api, stream: bool, rest: Script
) -> None:
    stage.play([STREAM, chunk(event(piece("Hello"))), chunk(event(piece(" you", "stop"))), *rest])
    told = stage.ask(api, stream=stream)
    assert told.error is None
    assert "Hello you" == told.text
    assert told.end is not None
    assert "stop" == told.end.finish_reason
    if not stream:
        assert told.usage is not None
        assert told.usage.output >= 1


@EACH
@BOTH
@pytest.mark.parametrize("line", [b"data: " + bytes(70_000), b"x" * 70_000], ids=["data", "no field"])
@pytest.mark.usefixtures("late")
def test_a_line_without_an_end_is_not_read_for_ever(
    stage: Stage, api: Api, stream: bool, line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnscript.core.sse.SseReader.__init__.__defaults__", (500_000,))
    stage.play([STREAM, chunk(event(piece("Hello"))), chunk(line), FLOOD])
    told = stage.ask(api, stream=stream)
    is_failure(told, stream)
    assert stage.asks[0][0].written < 8_000_000
    stage.until(lambda: stage.asks[0][0].gone)


@EACH
@BOTH
def test_a_server_that_does_not_stop_is_stopped(stage: Stage, api: Api, stream: bool) -> None:
    stage.play([STREAM, chunk(event(piece("And so on. " * 20))), FLOOD])
    told = stage.ask(api, stream=stream)
    assert told.end is not None
    assert "length" == told.end.finish_reason
    assert 64 * 64 < len(told.text) < 1_000_000
    stage.until(lambda: stage.asks[0][0].gone)


@EACH
@BOTH
@pytest.mark.parametrize(
    ("status", "said_", "kind"),
    [
        (429, {"error": {"message": "slow down", "type": "rate_limit_error"}}, "rate_limited"),
        (503, {"error": {"message": "loading the model"}}, "overloaded"),
        (400, {"error": {"message": "the request exceeds the available context size", "n_ctx": 10}}, "overflow"),
        (400, {"error": {"message": "temperature is too hot"}}, "bad_request"),
        (401, {"error": {"message": "who are you?"}}, "server"),
        (404, {"detail": "Not Found"}, "server"),
    ],
)
@pytest.mark.usefixtures("late")
def test_what_a_server_refuses_is_told_with_its_own_kind(
    stage: Stage, api: Api, stream: bool, status: int, said_: object, kind: str
) -> None:
    stage.play(said(said_, status=status))
    told = stage.ask(api, stream=stream)
    error = UpstreamError("?", upstream=status, body=json.dumps(said_))
    assert kind == fault_of(error).kind
    assert api.render_error(error)[0] == told.status
    assert not told.streamed
    assert told.error is not None
    assert (kind in ("rate_limited", "overloaded")) == ("retry-after" in told.headers)


@EACH
@BOTH
@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize("headers", [{}, {"retry_after": "7"}], ids=["silent", "told"])
@pytest.mark.usefixtures("late")
def test_a_server_that_has_no_room_says_when_to_come_again_or_the_gateway_does(
    stage: Stage, api: Api, stream: bool, status: int, headers: dict[str, str]
) -> None:
    stage.play(said({"error": {"message": "later"}}, status=status, **headers))
    told = stage.ask(api, stream=stream)
    wanted = 7 if headers else 5
    assert (str(wanted), str(wanted * 1000)) == (told.headers["retry-after"], told.headers["retry-after-ms"])


# Several servers.


@pytest.fixture(scope="module")
def pair() -> Iterator[Stage]:
    with Stage(servers=2) as made:
        yield made


@EACH
@BOTH
@pytest.mark.parametrize("case", [case for case in BEFORE if case != "a failure"])
@pytest.mark.usefixtures("late")
def test_another_server_is_asked_as_long_as_nothing_was_told(pair: Stage, api: Api, stream: bool, case: str) -> None:
    pair.play(BEFORE[case])
    pair.play(answer("Hello"), server=1)
    pair.gateway.run(healed(pair))
    told = pair.ask(api, stream=stream, text=f"{api.name} {stream} {case}")
    assert "Hello" == told.text
    assert 1 == len(pair.asks[1])
    assert pair.asks[0]


@EACH
@BOTH
def test_no_other_server_is_asked_once_something_was_told(pair: Stage, api: Api, stream: bool) -> None:
    broken: Script = [STREAM, chunk(event(piece("Once upon a time"))), 0.01, RESET]
    pair.play(broken)
    pair.play(broken, server=1)
    pair.gateway.run(healed(pair))
    is_failure(pair.ask(api, stream=stream), stream)
    assert 1 == len(pair.asks[0]) + len(pair.asks[1])


async def healed(pair: Stage) -> None:
    """Forget that a server has failed."""
    for served in pair.gateway.service.models():
        for member in served.pool.members:
            member.healthy, member.failures = True, 0


@EACH
@BOTH
def test_nobody_listens_where_the_server_should_be(api: Api, stream: bool, gone: Stage) -> None:
    told = gone.ask(api, stream=stream)
    is_failure(told, stream)
    assert b"nothing listens" in told.body


@pytest.fixture(scope="module")
def gone() -> Iterator[Stage]:
    with Stage() as made:
        made.thread.run(made.models[0].__aexit__(None, None, None))
        yield made


@EACH
@BOTH
def test_a_fault_of_the_gateway_itself_is_no_good_end(
    stage: Stage, api: Api, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> bytes:
        raise KeyError("a bug")

    monkeypatch.setattr("turnscript.gateway.generation.Generation.close", broken)
    stage.play(answer("Once upon a time"))
    told = stage.ask(api, stream=stream, headers={"connection": "close"})
    assert told.end is None
    assert told.error is not None
    assert "a bug" not in told.body.decode()
    assert ("200" if stream else "500") == str(told.status)
    stage.until(stage.idle)


@EACH
def test_a_header_of_several_lines_is_not_sent(stage: Stage, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one would be a header that somebody has planted."""
    monkeypatch.setattr("turnscript.gateway.headers.Told.raw", lambda _: [(b"x-told", b"a\r\nx-planted: b")])
    stage.play(answer("Once upon a time"))
    told = stage.ask(api, stream=False, headers={"connection": "close"})
    assert 500 == told.status
    assert "x-planted" not in told.headers
    stage.until(stage.idle)
