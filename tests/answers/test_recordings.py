"""Owns the agreement of the official SDKs with streams that are told again, from a recording or from a whole answer."""

from __future__ import annotations

from itertools import permutations

import pytest

import turnscript as ts
from tests.answers.answer import Fail, Gone
from tests.answers.corpus import ALL, BY_NAME, WHOLE
from tests.answers.seen import seen
from tests.answers.test_agreement import LIMITS, ask_stream, check_stream
from tests.answers.verdict import Sdk
from tests.answers.wanted import NO_ID, View, wanted
from tests.answers.wires import APIS, Server, stream, whole
from tests.every import every
from turnscript.convert.recording import Recording, Retelling, stream_of

KINDS = [
    "text",
    "only white space",
    "thought and text",
    "thought with a signature",
    "redacted thought",
    "nothing at all",
    "text and refusal",
    "emoji",
    "parallel calls",
    "text, call, text",
    "odd arguments",
    "free text",
    "call of a deprecated function",
    "met a stop string of the client's",
    "met a limit in the second call",
]
"""One answer of each kind, for what is asked of every pair of APIs."""
BROKEN = [answer.name for answer in ALL if any(isinstance(step, Fail | Gone) for step in answer.steps())]


def retold(data: bytes, wire: str, asked: ts.Request | None = None) -> bytes:
    """A recording as a stream of another API."""
    retelling = Retelling(Recording(), asked or ts.Request(), APIS[wire])
    return retelling.feed(data) + retelling.close()


def words(view: View) -> set[str]:
    """All texts, names and arguments in an answer, and the ids that it has: whatever an API calls what they are of."""
    return {word for part in view.parts for word in part[1:] if isinstance(word, str)} - {NO_ID}


@pytest.mark.deep
@pytest.mark.parametrize("wire", APIS)
@every("name", [answer.name for answer in WHOLE])
def test_a_recording_that_is_told_again_is_told_as_it_was(sdk: Sdk, server: Server, wire: str, name: str) -> None:
    answer = BY_NAME[name]
    again = retold(stream(wire, answer), wire, answer.asked.of(APIS[wire].origin))
    check_stream(sdk, wire, answer, ask_stream(sdk, server, wire, again))


@pytest.mark.parametrize(("source", "wire"), list(permutations(APIS, 2)))
@every("name", KINDS)
def test_a_recording_of_one_api_is_understood_as_that_of_another(
    sdk: Sdk, server: Server, source: str, wire: str, name: str
) -> None:
    verdict = ask_stream(sdk, server, wire, retold(stream(source, BY_NAME[name]), wire))
    assert verdict.error is None or verdict.error.name in LIMITS.values()
    both = words(wanted(source, BY_NAME[name], streamed=True)) & words(wanted(wire, BY_NAME[name], streamed=True))
    told = words(seen(wire, verdict, streamed=True))
    assert set() == {word for word in both if not any(word in one for one in told)}  # an API may join two texts


@pytest.mark.parametrize("wire", APIS)
@every("name", KINDS)
def test_a_whole_answer_as_a_stream_is_understood(sdk: Sdk, server: Server, wire: str, name: str) -> None:
    answer = BY_NAME[name]
    status, body = whole(wire, answer)
    assert status == 200
    said = ts.parse_response(body, APIS[wire].name)
    if any(issue.kind == "cut_call" for issue in said.issues):
        # The last call of an answer at its limit may be half of one, so it is not told.
        assert (wire, name) == ("messages", "met a limit in the second call")
        return
    data, _ = stream_of(said, answer.asked.of(APIS[wire].origin), APIS[wire])
    check_stream(sdk, wire, answer, ask_stream(sdk, server, wire, data))


@pytest.mark.parametrize("wire", [wire for wire in APIS if wire != "responses"])
@pytest.mark.parametrize("source", APIS)
@every("name", BROKEN)
def test_a_recording_that_broke_off_is_an_error_to_an_sdk(
    sdk: Sdk, server: Server, source: str, wire: str, name: str
) -> None:
    data = stream(source, BY_NAME[name])
    recording = Recording(APIS[source])
    recording.feed(data)
    recording.close()
    if data and recording.error is not None:
        verdict = ask_stream(sdk, server, wire, retold(data, wire))
        assert verdict.error is not None
