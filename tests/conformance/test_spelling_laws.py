"""Owns the laws of JSON in prompts: whether a client escapes characters makes no prompt, sample or schema another."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import turnscript as ts
from tests import corpora
from tests.conformance.examples import fewer
from tests.strategies.conversations import plain_requests
from turnscript.core.json_text import has_escapes, is_json, is_object, with_characters

FEWER = fewer()
FORMATS = [*ts.formats(), *ts.model_formats()]
Respell = Callable[[str], str]
STRING, TAGGED = re.compile(r'"(?:[^"\\]|\\.)*"'), re.compile(r"[<>\[\]|:#`]")
PLACES = "Göteborg 北京 😀"
CALL = f'{{"city": "{PLACES}", "n": 1.0, "é": [{{"ü": "\\n"}}]}}'
RESULT = f'{{"sky": "{PLACES}"}}'
SCHEMA = (
    f'{{"type": "object", "properties": {{"city": {{"type": "string", "enum": ["{PLACES}"], "description": "é"}}}}}}'
)


def escaped(text: str) -> str:
    """JSON as Python writes it by itself."""
    return "".join([character if character.isascii() else json.dumps(character)[1:-1] for character in text])


def hidden(text: str) -> str:
    """JSON that has no character with which a tag begins or ends."""
    return STRING.sub(lambda found: TAGGED.sub(lambda one: f"\\u{ord(one[0]):04X}", found[0]), escaped(text))


def respelled(request: ts.Request, respell: Respell) -> ts.Request:
    """A request whose client spells the JSON of calls, results and schemas in another way."""
    items = [_item(item, respell) for item in request.items]
    tools = [_tool(tool, respell) for tool in request.tools]
    return replace(request, conversation=ts.Conversation(items, tools))


def _item(item: ts.Item, respell: Respell) -> ts.Item:
    if isinstance(item, ts.ToolCall) and not item.custom and is_object(item.arguments):
        return replace(item, arguments=respell(item.arguments))
    if isinstance(item, ts.ToolResult):
        return replace(item, content=[_part(part, respell) for part in item.content])
    if isinstance(item, ts.ToolsChange):
        return replace(item, added=[_tool(tool, respell) for tool in item.added])
    return item


def _part(part: ts.Part, respell: Respell) -> ts.Part:
    if isinstance(part, ts.Text) and part.text.strip()[:1] in ("{", "[") and is_json(part.text):
        return replace(part, text=respell(part.text))
    return part


def _tool(tool: ts.Tool, respell: Respell) -> ts.Tool:
    schema = tool.parameters
    return tool if schema is None else replace(tool, parameters=msgspec.Raw(respell(bytes(schema).decode()).encode()))


def asked(call: str = CALL, result: str = RESULT, schema: str = SCHEMA) -> ts.Request:
    """A weather call and its result, and a tool that comes later."""
    items: list[ts.Item] = [
        ts.User(content=[ts.Text(text="Weather?")]),
        ts.ToolCall(name="f", arguments=call, id="c1"),
        ts.ToolResult(content=[ts.Text(text=result)], id="c1", name="f"),
        ts.ToolsChange(added=[ts.Tool(name="g", parameters=msgspec.Raw(schema.encode()))]),
        ts.User(content=[ts.Text(text="And now?")]),
    ]
    tools = [ts.Tool(name="f", description="d", parameters=msgspec.Raw(schema.encode()))]
    return ts.Request(conversation=ts.Conversation(items, tools))


def written(format_: ts.Format, request: ts.Request) -> tuple[object, ...]:
    """All that a model may get of it, and what is told to be lost."""
    prompt, rendered = format_.prompt(request), format_.render(request, view="prompt")
    return prompt.text, prompt.spans, prompt.losses, rendered.value, rendered.losses, format_.spans(request)


@pytest.mark.parametrize("respell", [escaped, hidden])
@pytest.mark.parametrize("name", FORMATS)
def test_escapes_make_no_prompt_another(name: str, respell: Respell) -> None:
    format_ = ts.get_format(name)
    for request in [asked(), *map(corpora.load, corpora.names())]:
        assert written(format_, request) == written(format_, respelled(request, respell))


@pytest.mark.deep
@pytest.mark.parametrize("name", FORMATS)
@FEWER
@given(request=plain_requests())
def test_escapes_make_no_prompt_of_anything_another(name: str, request: ts.Request) -> None:
    format_ = ts.get_format(name)
    assert written(format_, request) == written(format_, respelled(request, escaped))
    assert written(format_, request) == written(format_, respelled(request, hidden))


@pytest.mark.parametrize("name", FORMATS)
def test_no_prompt_spells_a_character_as_an_escape(name: str) -> None:
    format_ = ts.get_format(name)
    text = format_.prompt(respelled(asked(), escaped)).text
    assert "\\u" not in text
    assert (PLACES in text) == format_.features.calls


@pytest.mark.parametrize("name", FORMATS)
def test_a_longer_prompt_has_no_escapes_and_what_the_model_wrote_has_its_own(name: str) -> None:
    format_ = ts.get_format(name)
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
    first = format_.prompt(ts.Request(conversation=ts.Conversation(items)))
    text = 'It is {"a": "\\u5317"}.'
    wrote = ts.Assistant(content=[ts.Text(text=text)])
    shown = format_.spans(ts.Request(conversation=ts.Conversation([*items, wrote])))
    whole = "".join([span.text for span in shown[: max(at for at, span in enumerate(shown) if text in span.text) + 1]])
    said = whole.removeprefix(first.text)
    if said == whole:  # the prompt opens what such an answer does not have, such as an empty thought
        opening = format_.document.model_turn.open
        said = whole[whole.rindex(opening) + len(opening) :] if opening in whole else text
    thought = format_.document.segment("thinking") if format_.features.thinking else None
    if thought is not None and first.prefill.endswith(thought.open):  # the prompt opens a thought of every answer
        said = f"{thought.close}{format_.document.joints['thinking', 'assistant']}{said}"
    parser = first.parser()
    response = ts.fold([*parser.feed(said), *parser.close()])
    longer = first.extend(response, respelled(asked(), escaped).items)
    plain = first.extend(response, asked().items)
    assert longer is not None
    assert plain is not None
    assert longer.text.startswith(first.text + said)
    assert (PLACES in longer.suffix) == format_.features.calls
    assert "\\u" not in longer.suffix
    assert plain.text == longer.text


@pytest.mark.parametrize("respell", [escaped, hidden])
def test_an_archive_keeps_what_came(respell: Respell) -> None:
    request = respelled(asked(), respell)
    shown = ts.get_format("rwkv-universal").render(request)
    assert ([], request.items) == (shown.losses, ts.parse(shown.data, "rwkv-universal").items)
    assert request.tools == ts.parse(shown.data, "rwkv-universal").tools
    assert f"\n{respell(CALL)}\n" in str(shown.value)


def test_where_nothing_is_protected_a_hidden_tag_stays_hidden() -> None:
    request = asked(hidden('{"a": "<|im_end|>"}'), escaped('["<é"]'))
    text = ts.get_format("batuta-chatml").render(request, view="prompt", escape="none").value
    assert "\\u003C\\u007Cim_end\\u007C\\u003E" in str(text)
    assert "<é" in str(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (r'{"\u5317":"\ud83d\ude00 \uD83D\uDE00"}', '{"北":"😀 😀"}'),
        (r'{"a":"\u0000\u001F\u007f\u0022\u005c\u005C"}', r'{"a":"\u0000\u001F\u007f\u0022\u005c\u005C"}'),
        (r'{"a":"\ud800\u5317\ude00 \ud83d \\ud800"}', r'{"a":"\ud800北\ude00 \ud83d \\ud800"}'),
        (r'{"a":"\\u5317 \\\u5317 \\\\u5317 \"\u5317\n\/\u002f"}', r'{"a":"\\u5317 \\北 \\\\u5317 \"北\n\//"}'),
        (r'{"a":"\u000a\u4e00\u0022\u4e01"}', r'{"a":"\u000a一\u0022丁"}'),
        (r'{ "b" : 1e5, "b":1.0,"\u00e9":[ ] } ', '{ "b" : 1e5, "b":1.0,"é":[ ] } '),
        (r'{"a":"\u5317"', r'{"a":"\u5317"'),
        (r"C:\users\u5317", r"C:\users\u5317"),
    ],
)
def test_characters_are_written_and_all_else_stays(text: str, shown: str) -> None:
    assert shown == with_characters(text)


@given(text=st.text(alphabet="\\u5é"))
def test_an_escape_is_a_u_behind_an_odd_number_of_backslashes(text: str) -> None:
    runs = [len(run) for run in re.findall(r"(\\+)u", text)]
    assert any(run % 2 for run in runs) == has_escapes(text)


@pytest.mark.parametrize("text", [r'"\u5317"', r"\u5317", "12", r'It is {"a":"\u5317"}.', r'{"a":"\u5317"} {}'])
def test_a_result_that_is_no_object_and_no_array_stays(text: str) -> None:
    assert text in str(ts.get_format("batuta-chatml").render(asked(result=text), view="prompt").value)
