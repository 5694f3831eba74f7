"""Owns the checks of what the formats of well-known models say that no registered format does, and of such answers."""

import json

import pytest

import turnscript as ts
from tests.conformance.test_parser_laws import events_behind, every_cut
from turnscript.core.conversation import text_content
from turnscript.core.json_text import json_of
from turnscript.formats.format import Format

CALLED = '{"city": "Oslo"}'
TOOL = ts.Tool(
    name="get_weather",
    parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}}),
)
THOUGHT, LOOK = "Hm.", "Let me look."

ANSWERS = {
    "qwen3": '<think>\nHm.\n</think>\n\nLet me look.\n<tool_call>\n{"name": "get_weather", "arguments": '
    '{"city": "Oslo"}}\n</tool_call>\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n'
    "</tool_call><|im_end|>",
    "qwen3-coder": "Let me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "</function>\n</tool_call><|im_end|>",
    "qwen35": "<think>\nHm.\n</think>\n\nLet me look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n"
    "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
    "</function>\n</tool_call><|im_end|>",
    "glm47": "Hm.</think>Let me look.<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value>"
    "</tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call><|observation|>",
    "hermes": 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>{"arguments": {"city": "Oslo"}, "name": "get_weather"}</tool_call><|im_end|>',
    "llama31": '{"name": "get_weather", "parameters": {"city": "Oslo"}}<|eot_id|>',
    "glm": "\n<think>Hm.</think>\nLet me look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Oslo</arg_value>\n</tool_call>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
    "<arg_value>Oslo</arg_value>\n</tool_call><|observation|>",
    "granite": 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call><|end_of_text|>',
    "minimax": '<think>\nHm.\n</think>\n\nLet me look.\n<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Oslo</parameter>\n</invoke>\n<invoke name="get_weather">\n'
    '<parameter name="city">Oslo</parameter>\n</invoke>\n</minimax:tool_call>[e~[\n',
    "phi4-mini": 'Let me look.<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo"}},'
    '{"name": "get_weather", "arguments": {"city": "Oslo"}}]<|/tool_call|><|end|>',
    "gemma": "Let me look.<end_of_turn>\n",
}
"""What such a model writes: a thought where it has those, a text, and calls, both of one tool."""


def asked(*items: ts.Item, tools: bool = True) -> ts.Request:
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=[TOOL] if tools else []))


def user(text: str) -> ts.User:
    return ts.User(content=[ts.Text(text=text)])


def outline(items: list[ts.Item]) -> list[str]:
    return [item.arguments if isinstance(item, ts.ToolCall) else text_content(item.content) for item in items]  # type: ignore[attr-defined]


def kinds(format_: Format) -> set[str]:
    return {segment.kind for turn in format_.document.turns for segment in turn.segments}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_such_a_model_writes_is_read_in_any_pieces(name: str) -> None:
    format_ = ts.get_format(name)
    thinks = "thinking" in kinds(format_)
    prompt = format_.prompt(asked(user("Rain?")), thinking=thinks)
    written = ANSWERS[name]
    whole = ts.fold(events_behind(prompt, [written]))
    calls = {"gemma": 0, "llama31": 1}.get(name, 2)
    expected = [THOUGHT] * thinks + [LOOK] * (name != "llama31") + [CALLED] * calls
    assert (expected, []) == (outline(whole.items), whole.issues)
    for pieces in every_cut(written):
        assert whole == ts.fold(events_behind(prompt, pieces))


def kinds_of(items: list[ts.Item]) -> list[str]:
    return [item.kind for item in items]


# What these tables say that no registered format does.


def thought(text: str) -> ts.Thinking:
    return ts.Thinking(content=[ts.Text(text=text)])


def answer(text: str) -> ts.Assistant:
    return ts.Assistant(content=[ts.Text(text=text)])


def call(**arguments: object) -> ts.ToolCall:
    return ts.ToolCall(name="get_weather", arguments=json.dumps(arguments))


def result(text: str) -> ts.ToolResult:
    return ts.ToolResult(name="get_weather", content=[ts.Text(text=text)])


def test_thoughts_are_shown_until_the_user_speaks_again() -> None:
    format_ = ts.get_format("qwen3")
    said = [user("Rain?"), thought("Past."), call(city="Oslo"), result("yes")]
    assert "Past." in format_.prompt(asked(*said)).text
    later = format_.prompt(asked(*said, answer("It rains."), user("And now?"), thought("New."), call(city="Bern")))
    assert ("Past." in later.text, "New." in later.text) == (False, True)
    assert [("items[1]", "dropped")] == [(one.path, one.kind) for one in later.losses if one.path == "items[1]"]


def test_a_turn_as_it_was_generated_is_written_anew_once_its_thought_is_past() -> None:
    format_ = ts.get_format("qwen3")
    first = format_.prompt(asked(user("Rain?")), thinking=True)
    raw = '<think>\nPast.\n</think>\n\n<tool_call>\n{"name":"get_weather","arguments":{"city":"Oslo"}}\n</tool_call>'
    response = ts.fold(events_behind(first, [raw]))
    generated = first.generated(response)
    assert generated is not None
    items = [user("Rain?"), *response.items, result("yes")]
    replays = [(1, 3, generated)]
    assert raw in format_.prompt(asked(*items), replays=replays).text
    again = format_.prompt(asked(*items, answer("It rains."), user("And now?")), replays=replays).text
    assert ("Past." in again, '{"name": "get_weather"' in again) == (False, True)


def test_a_turn_without_a_thought_has_an_empty_one_and_reads_as_without() -> None:
    format_ = ts.get_format("glm")
    request = asked(user("Hi"), answer("Hello."), user("Rain?"), call(city="Oslo"), result("no"), tools=False)
    text = str(format_.render(request).value)
    assert text.count("<|assistant|>\n<think></think>\n") == 2
    assert ["user", "assistant", "user", "tool_call", "tool_result"] == kinds_of(format_.parse(text).items)
    empty = format_.render(asked(user("Hi"), thought(""), answer("Hello."), tools=False))
    assert ["items[1]"] == [loss.path for loss in empty.losses]


def test_an_empty_thought_that_is_still_open_is_one() -> None:
    items = [user("Hi"), ts.Thinking(content=[ts.Text(text="")], open=True)]
    rendered = ts.get_format("glm").render(asked(*items, tools=False))
    assert ([], items) == (rendered.losses, ts.get_format("glm").parse(str(rendered.value)).items)


def test_a_call_that_must_be_made_stands_behind_the_empty_thought() -> None:
    request = asked(user("Rain?"))
    request.settings.tool_choice = ts.ToolChoice(mode="named", name="get_weather")
    prompt = ts.get_format("glm").prompt(request)
    assert prompt.text.endswith("<|assistant|>\n<think></think>\n<tool_call>get_weather\n")
    rest = "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
    assert [CALLED] == outline(ts.fold(events_behind(prompt, list(rest))).items)


@pytest.mark.parametrize(("name", "first"), [("glm", "<|system|>\n# Tools"), ("llama31", "# Functions")])
def test_tools_before_the_instructions_read_back(name: str, first: str) -> None:
    system = ts.System(content=[ts.Text(text="Be brief.")])
    text = str(ts.get_format(name).render(asked(system, user("Hi"))).value)
    assert text.index(first) < text.index("Be brief.")
    back = ts.get_format(name).parse(text)
    assert (["Be brief.", "Hi"], ["get_weather"]) == (outline(back.items), [tool.name for tool in back.tools])


def test_instructions_that_begin_with_json_behind_tools_are_told_to_be_doubtful() -> None:
    system = ts.System(content=[ts.Text(text='{"tone": "dry"}')])
    rendered = ts.get_format("llama31").render(asked(system, user("Hi")))
    assert ["items[0]"] == [loss.path for loss in rendered.losses]
    assert ['{"tone": "dry"}', "Hi"] == outline(ts.get_format("llama31").parse(str(rendered.value)).items)


def test_instructions_stand_before_the_users_text_and_are_told_to_be_read_as_that() -> None:
    system = ts.System(content=[ts.Text(text="Be brief.")])
    rendered = ts.get_format("gemma").render(asked(system, user("Hi"), answer("Hello."), tools=False))
    assert str(rendered.value).startswith("<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n")
    assert [("items[0]", "moved"), ("items[1]", "approximated")] == [(one.path, one.kind) for one in rendered.losses]


@pytest.mark.parametrize("written", ['{"name": "Bob", "age": 3}', '{"name": "Bob"', '{"city": "Oslo"}', "{", '{"name'])
def test_a_json_answer_is_no_call(written: str) -> None:
    """A call without an opening counts if it is of an offered tool, and whole."""
    prompt = ts.get_format("llama31").prompt(asked(user("As JSON.")))
    for pieces in ([written], list(written)):
        response = ts.fold(events_behind(prompt, pieces))
        assert ([written], ["assistant"]) == (outline(response.items), kinds_of(response.items))


@pytest.mark.parametrize(
    "written",
    [
        '{"name": "get_weather", "parameters": {"city": "Oslo"}}',
        '{\n  "name": "get_weather",\n  "parameters": {"city": "Oslo"}\n}',
        '{"type": "function", "name": "get_weather", "parameters": {"city": "Oslo"}}',
        '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Oslo"}}<|eom_id|>',
    ],
)
def test_a_call_of_bare_json_is_read_however_it_is_laid_out(written: str) -> None:
    prompt = ts.get_format("llama31").prompt(asked(user("Rain?")))
    for pieces in ([written], list(written)):
        assert [CALLED] == outline(ts.fold(events_behind(prompt, pieces)).items)


VALUES = {
    "a": "x\n\ny",
    "b": "",
    "c": "\n",
    "d": 5,
    "e": [1, {"f": None}],
    "g": True,
    "": "no name",
    "h i": '"',
    "j": "<b>",
}
SCHEMA = {"type": "object", "properties": {key: {"type": "string"} for key in "abcj"} | {"d": {"type": "integer"}}}


@pytest.mark.parametrize("name", ["qwen3-coder", "glm"])
def test_arguments_in_tags_come_back(name: str) -> None:
    """White space at the ends of values, keys that are no word, values that are no string: written and read again."""
    tool = ts.Tool(name="put", parameters=json_of(SCHEMA))
    items = [user("Go."), ts.ToolCall(name="put", arguments=json.dumps(VALUES))]
    request = ts.Request(conversation=ts.Conversation(items=items, tools=[tool]))
    text = str(ts.get_format(name).render(request).value)
    assert VALUES == json.loads(ts.get_format(name).parse(text).items[1].arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("said", "read"), [("True", "true"), ("None", "null"), ("7.0", "7.0"), ("abc", '"abc"')])
def test_a_value_in_pythons_words_is_what_the_schema_wants(said: str, read: str) -> None:
    tool = ts.Tool(name="put", parameters=json_of({"properties": {"flag": {"type": ["boolean", "null", "number"]}}}))
    written = f"<tool_call>\n<function=put>\n<parameter=flag>\n{said}\n</parameter>\n</function>\n</tool_call>"
    parser = ts.get_format("qwen3-coder").parser([tool])
    response = ts.fold(parser.feed(written) + parser.close())
    assert [f'{{"flag": {read}}}'] == outline(response.items)


@pytest.mark.parametrize(
    "written",
    [
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</tool_call>",
        "<tool_call><function=get_weather><parameter=city>Oslo</parameter></function></tool_call>",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>",
    ],
)
def test_a_call_in_tags_is_read_with_a_closing_missing_or_without_white_space(written: str) -> None:
    prompt = ts.get_format("qwen3-coder").prompt(asked(user("Rain?")))
    for pieces in ([written], list(written)):
        assert [CALLED] == outline(ts.fold(events_behind(prompt, pieces)).items)


def test_glm_47_writes_its_tags_without_line_breaks() -> None:
    written = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
    prompt = ts.get_format("glm").prompt(asked(user("Rain?")), thinking=False)
    for pieces in ([written], list(written)):
        assert [CALLED] == outline(ts.fold(events_behind(prompt, pieces)).items)
