"""Owns the checks of `normalize_json`: one spelling of JSON in calls and results, no value another, all of it told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import turnscript as ts
from tests import corpora
from tests.strategies import jsontext as texts
from tests.strategies.conversations import requests
from turnscript.core.json_spelling import COMPACT, RESPELLED, SPACED, respelled
from turnscript.core.json_text import respell

CALL = '{"city":"T\\u00f6kyo", "n":1.0,"n" : 1e5,\n"big":1152921504606846976,"\\/":"\\u003cb>\\"","z":[]}'
SPELLED = '{"city": "Tökyo", "n": 1.0, "n": 1e5, "big": 1152921504606846976, "/": "<b>\\"", "z": []}'


def asked(call: str = CALL, result: str = '{"t":22,\n "u":-0}\n', **fields: Any) -> ts.Request:
    items: list[ts.Item] = [
        ts.User(content=[ts.Text(text='{"a":1}')]),
        ts.ToolCall(name="f", arguments=call, id="c1", **fields),
        ts.ToolResult(content=[ts.Text(text=result)], id="c1", name="f"),
        ts.Assistant(content=[ts.Text(text='{"b":2}')]),
    ]
    return ts.Request(conversation=ts.Conversation(items=items))


def told(losses: list[ts.Loss]) -> list[str]:
    return [loss.path for loss in losses if loss.detail == RESPELLED]


# The spelling.


@given(text=texts.json_texts())
def test_a_value_has_one_spelling_and_stays_what_it_is(text: str) -> None:
    spelled = respell(text)
    assert "" == texts.difference(texts.loads(text), texts.loads(spelled))
    assert spelled == respell(spelled) == respell(respell(text, ",", ":"))
    assert "\n" not in spelled


def test_numbers_order_and_keys_that_are_there_twice_stay() -> None:
    assert SPELLED == respell(CALL)


@pytest.mark.parametrize("text", ["", "{", "{'a':1}", '{"a":NaN}', '{"a":"\\ud800"}', "[1,2]", '"a\\u0041"', "{} {}"])
def test_arguments_that_are_no_object_are_left_alone(text: str) -> None:
    assert (asked(text, "{}"), []) == respelled(asked(text, "{}"))


@pytest.mark.parametrize("text", ["", "12 ", '"\\u00e9"', "{oops}", "[1,2", '{"a":1}\n{"b":2}', "null", "It is  {}."])
def test_results_that_are_no_object_and_no_array_are_left_alone(text: str) -> None:
    assert (asked("{}", text), []) == respelled(asked("{}", text))


def test_free_text_and_what_is_not_finished_stay_as_they_are() -> None:
    assert (asked(CALL, "{}", custom=True), []) == respelled(asked(CALL, "{}", custom=True))
    unfinished = asked()
    del unfinished.items[2:]
    unfinished.items[-1].open = True
    assert (unfinished, []) == respelled(unfinished)


def test_each_text_of_a_result_is_looked_at_and_nothing_else_of_it_changes() -> None:
    parts: list[ts.Part] = [ts.Text(text='{"a":1}'), ts.Image(url="u"), ts.Text(text="[1,2]"), ts.Text(text="[1, 2]")]
    request = asked()
    request.items[2] = ts.ToolResult(content=parts, id="c1", status="error", at="$.messages[2]")
    found, losses = respelled(request)
    expected = [ts.Text(text='{"a": 1}'), ts.Image(url="u"), ts.Text(text="[1, 2]"), ts.Text(text="[1, 2]")]
    assert ts.ToolResult(content=expected, id="c1", status="error") == found.items[2]
    assert ["items[1].arguments", "$.messages[2].content[0]", "$.messages[2].content[2]"] == told(losses)


# Where it is asked for.


@pytest.mark.parametrize("name", ts.formats())
def test_every_format_writes_one_text_for_all_spellings(name: str) -> None:
    format_ = ts.get_format(name)
    written = {
        str(format_.render(asked(call, result), view="prompt", normalize_json=True).value)
        for call in ('{"a":{"b":[1,"\\u00e9"]}}', '{ "a": {"b": [1, "é"]} }', '{"a": {"b": [1, "é"]}}')
        for result in ('{"t":[22]}', '{\n  "t": [\n    22\n  ]\n}', '{"t": [22]}')
    }
    assert 1 == len(written)


@pytest.mark.parametrize("name", ts.formats())
def test_a_request_in_the_formats_own_spelling_loses_nothing_by_it(name: str) -> None:
    format_ = ts.get_format(name)
    spelling = format_.normalized(asked('{"a":1,"b":[]}', "[1,2]"))[0]
    plain = format_.render(spelling, view="prompt")
    again = format_.render(spelling, view="prompt", normalize_json=True)
    assert (plain.value, plain.losses) == (again.value, again.losses)


def test_the_spelling_is_that_of_the_formats_own_calls() -> None:
    spaced = {name for name in ts.formats() if respelled(asked(), SPACED) == ts.get_format(name).normalized(asked())}
    assert {"rwkv-universal", "ai00-v1", "openchatml"} <= spaced
    assert respelled(asked(), COMPACT) == ts.get_format("rwkv-goose").normalized(asked())
    assert spaced.isdisjoint({"rwkv-goose", "batuta-chatml"})


def test_a_transcript_has_it_in_the_spelling_of_the_template() -> None:
    rendered = ts.render(asked(), "rwkv-universal", normalize_json=True)
    assert f'<<TOOL_CALL name="f" id="c1">>\n{SPELLED}\n<<END_TOOL_CALL>>' in str(rendered.value)
    assert '{"t": 22, "u": -0}\n<<END_TOOL_RESULT>>' in str(rendered.value)
    assert '<<USER>>\n{"a":1}\n<<USER_END>>' in str(rendered.value), "what people say is no result"
    assert ["items[1].arguments", "items[2].content[0]"] == told(rendered.losses)


@given(request=requests())
def test_an_archive_of_it_reads_back_as_what_was_written(request: ts.Request) -> None:
    rendered = ts.get_format("rwkv-universal").render(request, normalize_json=True)
    spelled, losses = respelled(request)
    assert spelled.items == ts.parse(rendered.data, "rwkv-universal").items
    assert len(losses) == len(rendered.losses)


@pytest.mark.parametrize("name", ts.apis())
def test_an_api_gets_it_too_and_the_request_stays_as_it_was(name: str) -> None:
    request, before = asked(), asked()
    rendered = ts.render(request, name, normalize_json=True)
    assert before == request
    assert rendered.data == ts.render(respelled(asked())[0], name).data
    assert ["items[1].arguments", "items[2].content[0]"] == told(rendered.losses)


def test_losses_are_at_their_place_in_the_source() -> None:
    body = ts.render(asked(), "openai-chat").data
    rendered = ts.convert(body, "openai-chat", "openai-responses", normalize_json=True)
    assert ["$.messages[1].tool_calls[0].function.arguments", "$.messages[2].content"] == told(rendered.losses)


def test_strict_refuses_what_was_not_asked_for_and_nothing_else() -> None:
    assert ts.render(asked(), "rwkv-universal", strict=True, normalize_json=True).losses
    assert ts.render(asked(), "openai-chat", strict=True, normalize_json=True).losses
    for name in ("rwkv-goose", "openai-completions"):
        with pytest.raises(ts.LossyConversion) as raised:
            ts.render(asked(), name, strict=True, normalize_json=True)
        assert [] == told(raised.value.losses)


# Prompts.


@pytest.mark.parametrize("name", ts.formats())
def test_a_prompt_is_that_of_the_request_as_it_is_spelled(name: str) -> None:
    format_ = ts.get_format(name)
    for conversation in corpora.names():
        request = corpora.load(conversation)
        spelled, losses = format_.normalized(request)
        prompt = format_.prompt(request, normalize_json=True)
        assert format_.prompt(spelled).text == prompt.text
        assert len(losses) == len(told(prompt.losses))
        assert format_.spans(spelled) == format_.spans(request, normalize_json=True)


def test_a_prompt_that_goes_on_spells_what_is_new_and_keeps_what_the_model_wrote() -> None:
    format_ = ts.get_format("rwkv-goose-hermes")
    tool = ts.Tool(name="f")
    user = ts.User(content=[ts.Text(text="Hi")])
    first = format_.prompt(ts.Request(conversation=ts.Conversation([user], [tool])), normalize_json=True)
    parser = first.parser()
    wrote = ' <tool_call>\n{"name": "f",  "arguments": { "a":1}}\n</tool_call>'
    response = ts.fold([*parser.feed(wrote), *parser.close()])
    result = ts.ToolResult(content=[ts.Text(text='{ "t": 22 }')], name="f")
    second = first.extend(response, [result])
    assert second is not None
    assert second.text.startswith(first.text + wrote)
    assert '{"t":22}' in second.suffix
    assert ["items[0].content[0]"] == told(second.losses)
    third = second.extend(response, [result])
    assert third is not None
    assert '{"t":22}' in third.suffix
