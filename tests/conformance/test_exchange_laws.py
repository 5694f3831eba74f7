"""Owns the laws of exchanges: an answer comes back from an archive, alone or behind its request; so does its body."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st
from msgspec.structs import replace

import turnscript as ts
from tests.conformance.examples import fewer
from tests.strategies import conversations, jsontext
from tests.strategies import events as answers
from tests.strategies.answer_bodies import answer_bodies
from turnscript.convert.recording import stream_of
from turnscript.convert.verbs import unread
from turnscript.core.conversation import calls
from turnscript.core.exchange import alone, archived
from turnscript.core.json_spelling import objects_in_one_spelling
from turnscript.core.json_text import is_object
from turnscript.core.logprobs import Candidate, TokenLogprob

FEWER = fewer()
KINDS = ("text", "texts", "thinking", "call", "refusal", "custom", "idless")
ARCHIVES = [name for name in ts.formats() if ts.get_format(name).document.metadata is not None]
OWN = st.sampled_from(["created", "usage", "items", "x", "origin", "choices", "é", "<<META>>", "stop_details", "raw"])


@st.composite
def responses(draw: st.DrawFn) -> ts.Response:
    """Answers with all that they may say."""
    response = draw(answers.responses(KINDS))
    response.extra = draw(st.dictionaries(OWN, conversations.json_texts(), max_size=3))
    response.origin = draw(st.sampled_from([None, "openai-chat", "anthropic", "somebody"]))
    response.raw = draw(st.none() | answers.texts())
    if draw(st.booleans()):
        response.issues = [ts.Issue("odd_call", draw(answers.texts()), draw(st.integers(0, 9)))]
        token = TokenLogprob("a", [97], -0.5, [Candidate("�", None, -1.25)])
        response.logprobs = {0: [token], 3: [token, token]}
    if response.items and draw(st.integers(0, 4)) == 0:
        response.items[-1].open = True
    return response


@given(response=responses())
def test_an_answer_comes_back_from_an_archive(response: ts.Response) -> None:
    for name in ARCHIVES:
        rendered = ts.render(response, name, strict=True)
        assert response == ts.parse_response(rendered.data)
        assert response == ts.parse_exchange(rendered.data, name).response
        again = ts.render(ts.parse_exchange(rendered.data), name)
        assert rendered.data == again.data
        assert rendered.data == ts.convert(rendered.data, name, name, strict=True).data


@given(request=conversations.requests(), response=responses(), origin=st.sampled_from([None, "openai-chat"]))
def test_a_whole_exchange_comes_back_from_an_archive(
    request: ts.Request, response: ts.Response, origin: str | None
) -> None:
    request.origin = origin
    request.extra, request.settings = {}, ts.Settings(model=request.settings.model)
    exchange = ts.Exchange(request, response)
    for name in ARCHIVES:
        rendered = ts.render(exchange, name, strict=True)
        assert exchange == ts.parse_exchange(rendered.data)
        assert rendered.data == ts.convert(rendered.data, name, name, strict=True).data
        assert archived(exchange).items == ts.parse(rendered.data).items


@FEWER
@given(data=st.data())
def test_a_body_that_a_server_sends_is_the_same_behind_an_archive(api_name: str, data: st.DataObject) -> None:
    """For every answer of the SDK's types: what is written from the archive is what is written without it."""
    body = jsontext.dumps(data.draw(answer_bodies(api_name)))
    exchange = ts.parse_exchange(body)
    assert exchange == ts.parse_exchange(body, api_name)
    for response in (exchange.response, *exchange.others):
        direct = ts.render(response, api_name)
        for name in ARCHIVES:
            archive = ts.render(response, name, strict=True)
            assert response == ts.parse_response(archive.data)
            back = ts.convert(archive.data, "auto", api_name)
            assert "" == jsontext.difference(jsontext.loads(direct.data), jsontext.loads(back.data))
            told = [*unread(alone(response)), *direct.losses]
            assert [loss.kind for loss in told] == [loss.kind for loss in back.losses]


@FEWER
@given(response=answers.responses(KINDS, empty=False))
def test_a_body_comes_back_json_equal_through_an_archive(api_name: str, response: ts.Response) -> None:
    """API answer -> transcript -> API answer, alone and behind its request, without a loss on the way."""
    asked = ts.Request(settings=ts.Settings(model="the client's", stop=list(answers.STOPS)), origin=None)
    body = ts.get_api(api_name).render_response(response, asked).data
    expected = jsontext.loads(body)
    for name in ARCHIVES:
        archive = ts.convert(body, "auto", name, strict=True)
        assert "" == jsontext.difference(expected, jsontext.loads(_strictly(archive.data, api_name)))
        asked.items[:] = [ts.User(content=[ts.Text(text="Hi")])]
        whole = ts.render(ts.Exchange(asked, ts.parse_response(body, api_name)), name, strict=True)
        assert "" == jsontext.difference(expected, jsontext.loads(_strictly(whole.data, api_name, side="response")))


def _strictly(source: bytes, to: str, **options: Any) -> bytes:
    return ts.convert(source, "auto", to, strict=True, **options).data


@FEWER
@given(data=st.data())
def test_what_another_api_cannot_tell_of_an_answer_is_listed(api_name: str, data: st.DataObject) -> None:
    """A8: texts, thoughts and calls are the same behind another API, or a loss names the item; so is why it ended.

    All APIs have each answer, because to draw one takes longer than to convert it.
    """
    body = jsontext.dumps(data.draw(answer_bodies(api_name)))
    source = ts.parse_exchange(body).response
    for other_name in ts.apis():
        note(other_name)
        converted = ts.convert(body, "auto", other_name)
        paths = [loss.path for loss in converted.losses]
        named = [item.at for item in source.items if any(path.startswith(item.at) for path in paths)]
        arrived = ts.parse_response(converted.data, other_name)
        if not named and "$" not in paths:
            assert spelled_alike(source) == spelled_alike(arrived)
        assert source.finish_reason == arrived.finish_reason or not ENDS.isdisjoint(paths)


ENDS = frozenset(
    {"$", "$.finish_reason", "$.choices[0].finish_reason", "$.status", "$.stop_reason", "$.candidates[0].finishReason"}
)
"""Where answers say why they ended."""
CALLED = ts.ToolCall(name="f", arguments="{}", id="c")
SPOKEN = ts.Assistant(content=[ts.Text(text="Hi")])


@pytest.mark.parametrize("items", [[CALLED], [SPOKEN], []], ids=["a call", "a text", "nothing"])
@pytest.mark.parametrize("reason", ["stop", "tool_calls", "length", "content_filter", "something new", None])
def test_an_end_that_reads_back_as_another_is_listed(api_name: str, items: list[ts.Item], reason: str | None) -> None:
    """Servers say that an answer ended by itself where it calls a tool, and the other way round."""
    response = ts.Response(items=items, finish_reason=reason, model="m", origin="somebody")
    whole = ts.render(response, api_name)
    streamed, losses = stream_of(response, ts.Request(), ts.get_api(api_name))
    for data, lost in ((whole.data, whole.losses), (streamed, losses)):
        arrived = ts.parse_response(data, api_name)
        assert reason == arrived.finish_reason or "$.finish_reason" in [loss.path for loss in lost]


def spelled_alike(response: ts.Response) -> list[tuple[str, str]]:
    """What the parts of an answer say, with arguments that are objects in one spelling: some APIs have no other."""
    items = [
        replace(item, as_object=True) if isinstance(item, ts.ToolCall) and is_object(item.arguments) else item
        for item in response.items
    ]
    return texts_of(replace(response, items=[*objects_in_one_spelling(items)]))


def texts_of(response: ts.Response) -> list[tuple[str, str]]:
    return [(item.kind, answers.content_of(item)) for item in response.items if answers.content_of(item)]


def test_arguments_stay_the_text_that_they_are() -> None:
    call = '{"a":1.0,"é":1e5,"a":18446744073709551616}'
    response = ts.Response(items=[ts.ToolCall(name="f", arguments=call, id="c")], finish_reason="tool_calls")
    for name in ("openai-chat", "openai-responses", "anthropic-messages"):
        body = ts.render(response, name).data
        back = ts.convert(ts.convert(body, "auto", ARCHIVES[0]).data, "auto", name).data
        assert [call] == [item.arguments for item in calls(ts.parse_response(back).items)]
