"""Owns answers that a server cuts at a stop string, and arguments as templates spell them in tags."""

import json

import pytest

import turnscript as ts
from turnscript.core.conversation import ToolCall, text_content
from turnscript.core.json_text import json_of

_PARAMETERS = {
    "type": "object",
    "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "string"}, "c": {"type": "boolean"}},
}
TOOLS = [ts.Tool(name="f", parameters=json_of(_PARAMETERS))]
KIMI = "Hm.<|close|>think<|sep|><|open|>response<|sep|>Hi.<|close|>response<|sep|><|close|>message<|sep|>"
APERTUS = '<|tools_prefix|>[{"f": {"a": "b"}}]'


def read(name: str, text: str, prefill: str, size: int) -> ts.Response:
    parser = ts.get_format(name).parser(TOOLS, prefill=prefill or None)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.close(finish_reason="stop")
    assert "".join(event.raw for event in events if getattr(event, "raw", None)) == text
    return ts.fold(events)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_closing_that_the_stop_string_cuts_in_two_is_no_text(size: int) -> None:
    response = read("kimi-k3", KIMI, "<|open|>think<|sep|>", size)
    texts = [text_content(item.content) for item in response.items]  # type: ignore[attr-defined]
    assert (texts, response.issues) == (["Hm.", "Hi."], [])


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_calls_whose_list_the_stop_string_cuts_are_whole(size: int) -> None:
    response = read("apertus", APERTUS, "", size)
    [call] = response.items
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments, response.issues) == ("f", '{"a": "b"}', [])


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    ("written", "value"),
    [("None", None), ('"None"', "None"), ("None of it", "None of it"), ("null", None)],
)
def test_nothing_is_read_where_a_schema_allows_it(written: str, value: str | None, size: int) -> None:
    text = f"<tool_call>\n<function=f>\n<parameter=a>\n{written}\n</parameter>\n</function>\n</tool_call>"
    [call] = read("qwen3-coder", text, "", size).items
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == {"a": value}


@pytest.mark.parametrize("value", [None, "None", "none", "null", "17"])
def test_a_string_that_looks_like_nothing_comes_back(value: str | None) -> None:
    call = ToolCall(name="f", arguments=json.dumps({"a": value, "b": "None"}))
    request = ts.Request(conversation=ts.Conversation([ts.User(content=[ts.Text(text="?")]), call], TOOLS))
    fmt = ts.get_format("qwen3-coder")
    text = str(fmt.render(request).value)
    answer = text[text.rindex("<tool_call>") :].removesuffix("<|im_end|>\n")
    [again] = read("qwen3-coder", answer, "", 1000).items
    assert isinstance(again, ToolCall)
    assert json.loads(again.arguments) == {"a": value, "b": "None"}


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("key", ["q&a", "two words", 'say "hi" twice', "ü 北京"])
def test_keys_that_are_no_words_are_read_as_templates_write_them(key: str, size: int) -> None:
    tags = f"<tool_call>f\n<arg_key>{key}</arg_key>\n<arg_value>1</arg_value>\n</tool_call>"
    coder = f"<tool_call>\n<function=f>\n<parameter={key}>\n1\n</parameter>\n</function>\n</tool_call>"
    for name, text in (("glm", tags), ("qwen3-coder", coder)):
        [call] = read(name, text, "", size).items
        assert isinstance(call, ToolCall)
        assert json.loads(call.arguments) == {key: 1}
