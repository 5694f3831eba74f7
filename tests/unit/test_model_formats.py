"""Owns the checks of the formats of well-known models in `examples/formats`: what they write and read, how known."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora, modelfiles
from tests.conformance.test_parser_laws import (
    after_opening,
    answers,
    check_events,
    events_behind,
    every_cut,
    said,
    written_by_model,
)
from turnscript.conversation import text_content
from turnscript.detection import detect
from turnscript.format import Format
from turnscript.jsontext import json_of
from turnscript.registry import load_formats

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "formats"
MODELS = ("gemma", "glm", "granite", "hermes", "llama31", "minimax", "phi4-mini", "qwen3", "qwen3-coder")
SHOWN = ("c3", "thinking_text_call", "several_systems")
"""Conversations with parallel calls, with thoughts before and after a call, and with two instructions."""
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


def load(name: str) -> Format:
    return ts.get_format(str(FOLDER / f"{name}.toml"))


def asked(*items: ts.Item, tools: bool = True) -> ts.Request:
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=[TOOL] if tools else []))


def user(text: str) -> ts.User:
    return ts.User(content=[ts.Text(text=text)])


def outline(items: list[ts.Item]) -> list[str]:
    return [item.arguments if isinstance(item, ts.ToolCall) else text_content(item.content) for item in items]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", MODELS)
def test_a_conversation_is_written_as_the_golden_one(name: str, golden: Callable[[str, str], None]) -> None:
    """F1: what the model's own template writes, but for the words around the tools."""
    format_ = load(name)
    pages = []
    for shown in SHOWN:
        request = corpora.load(shown)
        pages.append(f"--- {shown}\n{format_.render(request, view='prompt').value}\n")
    for thinking in (False, True) if "thinking" in kinds(format_) else (False,):
        text = format_.prompt(asked(user("Hi"), tools=False), thinking=thinking).text
        pages.append(f"--- the prompt of an answer{' with a thought' * thinking}\n{text}\n")
    golden(f"models/{name}.txt", "".join(pages))


def kinds(format_: Format) -> set[str]:
    return {segment.kind for turn in format_.document.turns for segment in turn.segments}


@pytest.mark.parametrize("name", MODELS)
def test_what_such_a_model_writes_is_read_in_any_pieces(name: str) -> None:
    format_ = load(name)
    thinks = "thinking" in kinds(format_)
    prompt = format_.prompt(asked(user("Rain?")), thinking=thinks)
    written = ANSWERS[name]
    whole = ts.fold(events_behind(prompt, [written]))
    calls = {"gemma": 0, "llama31": 1}.get(name, 2)
    expected = [THOUGHT] * thinks + [LOOK] * (name != "llama31") + [CALLED] * calls
    assert (expected, []) == (outline(whole.items), whole.issues)
    for pieces in every_cut(written):
        assert whole == ts.fold(events_behind(prompt, pieces))


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_for_the_model_is_read_in_pieces(name: str) -> None:
    """F2, F3, as for every registered format: an answer as the renderer writes it, cut in two and into characters."""
    format_ = load(name)
    for request, items in some_answers():
        written = written_by_model(format_, request, items)
        if written is None:
            continue
        written = after_opening(format_, written)
        prompt = format_.prompt(request, thinking=False)
        whole = check_events(events_behind(prompt, [written]), written)
        if all(pair in format_.document.joints for pair in zip(kinds_of(items), kinds_of(items)[1:], strict=False)):
            rendered = format_.render(ts.Request(conversation=ts.Conversation(items=items, tools=request.tools)))
            if not rendered.losses:
                assert said(items) == said(whole.items)
        for pieces in (list(written), [written[: len(written) // 2], written[len(written) // 2 :]]):
            assert whole == check_events(events_behind(prompt, pieces), written)


def kinds_of(items: list[ts.Item]) -> list[str]:
    return [item.kind for item in items]


def some_answers() -> Iterator[tuple[ts.Request, list[ts.Item]]]:
    for name in corpora.names():
        if name.startswith(("arguments", "thinking", "hostile", "text", "c1", "c3")):
            yield from answers(corpora.load(name))


@pytest.mark.parametrize("name", MODELS)
def test_a_transcript_is_written_again_byte_for_byte(name: str) -> None:
    """L3."""
    format_ = load(name)
    for shown in corpora.names():
        transcript = str(format_.render(corpora.load(shown)).value)
        assert transcript == format_.render(format_.parse(transcript)).value, shown


NAMES = {
    "qwen3": ("Qwen3-8B-Q4_K_M.gguf", "qwen/qwen3-30b-a3b"),
    "qwen3-coder": ("Qwen3-Coder-30B-A3B-Instruct-Q4_K_M.gguf",),
    "hermes": ("Hermes-3-Llama-3.1-8B.Q4_K_M.gguf", "NousResearch/Hermes-2-Pro-Llama-3-8B"),
    "llama31": ("Meta-Llama-3.1-8B-Instruct-Q8_0.gguf", "Llama-3.3-70B-Instruct"),
    "gemma": ("gemma-3-12b-it-q4_0.gguf", "google/gemma-2-9b-it"),
    "glm": ("GLM-4.5-Air-Q4_K_M.gguf", "zai-org/GLM-4.6"),
    "granite": ("granite-4.0-h-tiny-Q8_0.gguf",),
    "minimax": ("MiniMaxAI/MiniMax-M2",),
    "phi4-mini": ("microsoft_Phi-4-mini-instruct-Q6_K.gguf",),
}


TEMPLATES = {
    "qwen3": "<|im_start|>user <tool_response> reasoning_content <think>",
    "qwen3-coder": "<|im_start|> <tool_call>\\n<function= <parameter= <tool_response>",
    "hermes": "<|im_start|>tool <tool_call> <tool_response> FunctionCall",
    "llama31": "<|start_header_id|>ipython<|end_header_id|>",
    "gemma": "<start_of_turn>model",
    "glm": "[gMASK]<sop><|observation|> <tool_response> <arg_key> <think>",
    "granite": "<|start_of_role|>assistant <tool_call> <tool_response>",
    "minimax": "]~!b[]~b]ai <minimax:tool_call> <think>",
    "phi4-mini": "<|system|> <|tool|> <|/tool|> <|end|>",
}
"""What of a model's template tells it: tags that stand in it."""


@pytest.mark.parametrize("name", MODELS)
def test_a_model_file_is_known_by_its_template(name: str, tmp_path: Path) -> None:
    formats = [format_ for model in MODELS for format_ in load_formats(FOLDER / f"{model}.toml")]
    file = tmp_path / "model.gguf"
    file.write_bytes(modelfiles.header(modelfiles.text("tokenizer.chat_template", TEMPLATES[name])))
    assert name == detect(file, own=formats).format


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_known_by_its_name(name: str) -> None:
    """With all these files at hand, and the registered formats, each model finds its own."""
    formats = [format_ for model in MODELS for format_ in load_formats(FOLDER / f"{model}.toml")]
    for model in NAMES[name]:
        assert name == detect(model, own=formats).format


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
    format_ = load("qwen3")
    said = [user("Rain?"), thought("Past."), call(city="Oslo"), result("yes")]
    assert "Past." in format_.prompt(asked(*said)).text
    later = format_.prompt(asked(*said, answer("It rains."), user("And now?"), thought("New."), call(city="Bern")))
    assert ("Past." in later.text, "New." in later.text) == (False, True)
    assert [("items[1]", "dropped")] == [(one.path, one.kind) for one in later.losses if one.path == "items[1]"]


def test_a_turn_as_it_was_generated_is_written_anew_once_its_thought_is_past() -> None:
    format_ = load("qwen3")
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
    format_ = load("glm")
    request = asked(user("Hi"), answer("Hello."), user("Rain?"), call(city="Oslo"), result("no"), tools=False)
    text = str(format_.render(request).value)
    assert text.count("<|assistant|>\n<think></think>\n") == 2
    assert ["user", "assistant", "user", "tool_call", "tool_result"] == kinds_of(format_.parse(text).items)
    empty = format_.render(asked(user("Hi"), thought(""), answer("Hello."), tools=False))
    assert ["items[1]"] == [loss.path for loss in empty.losses]


def test_a_call_that_must_be_made_stands_behind_the_empty_thought() -> None:
    request = asked(user("Rain?"))
    request.settings.tool_choice = ts.ToolChoice(mode="named", name="get_weather")
    prompt = load("glm").prompt(request)
    assert prompt.text.endswith("<|assistant|>\n<think></think>\n<tool_call>get_weather\n")
    rest = "<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>"
    assert [CALLED] == outline(ts.fold(events_behind(prompt, list(rest))).items)


@pytest.mark.parametrize(("name", "first"), [("glm", "<|system|>\n# Tools"), ("llama31", "# Functions")])
def test_tools_before_the_instructions_read_back(name: str, first: str) -> None:
    system = ts.System(content=[ts.Text(text="Be brief.")])
    text = str(load(name).render(asked(system, user("Hi"))).value)
    assert text.index(first) < text.index("Be brief.")
    back = load(name).parse(text)
    assert (["Be brief.", "Hi"], ["get_weather"]) == (outline(back.items), [tool.name for tool in back.tools])


def test_instructions_that_begin_with_json_behind_tools_are_told_to_be_doubtful() -> None:
    system = ts.System(content=[ts.Text(text='{"tone": "dry"}')])
    rendered = load("llama31").render(asked(system, user("Hi")))
    assert ["items[0]"] == [loss.path for loss in rendered.losses]
    assert ['{"tone": "dry"}', "Hi"] == outline(load("llama31").parse(str(rendered.value)).items)


def test_instructions_stand_before_the_users_text_and_are_told_to_be_read_as_that() -> None:
    system = ts.System(content=[ts.Text(text="Be brief.")])
    rendered = load("gemma").render(asked(system, user("Hi"), answer("Hello."), tools=False))
    assert str(rendered.value).startswith("<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n")
    assert [("items[0]", "moved"), ("items[1]", "approximated")] == [(one.path, one.kind) for one in rendered.losses]


@pytest.mark.parametrize("written", ['{"name": "Bob", "age": 3}', '{"name": "Bob"', '{"city": "Oslo"}', "{", '{"name'])
def test_a_json_answer_is_no_call(written: str) -> None:
    """A call without an opening counts if it is of an offered tool, and whole."""
    prompt = load("llama31").prompt(asked(user("As JSON.")))
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
    prompt = load("llama31").prompt(asked(user("Rain?")))
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
    text = str(load(name).render(request).value)
    assert VALUES == json.loads(load(name).parse(text).items[1].arguments)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("said", "read"), [("True", "true"), ("None", "null"), ("7.0", "7.0"), ("abc", '"abc"')])
def test_a_value_in_pythons_words_is_what_the_schema_wants(said: str, read: str) -> None:
    tool = ts.Tool(name="put", parameters=json_of({"properties": {"flag": {"type": ["boolean", "null", "number"]}}}))
    written = f"<tool_call>\n<function=put>\n<parameter=flag>\n{said}\n</parameter>\n</function>\n</tool_call>"
    parser = load("qwen3-coder").parser([tool])
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
    prompt = load("qwen3-coder").prompt(asked(user("Rain?")))
    for pieces in ([written], list(written)):
        assert [CALLED] == outline(ts.fold(events_behind(prompt, pieces)).items)


def test_glm_47_writes_its_tags_without_line_breaks() -> None:
    written = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Oslo</arg_value></tool_call>"
    prompt = load("glm").prompt(asked(user("Rain?")), thinking=False)
    for pieces in ([written], list(written)):
        assert [CALLED] == outline(ts.fold(events_behind(prompt, pieces)).items)


@pytest.mark.parametrize("name", MODELS)
def test_an_empty_text_before_a_call_is_seen_or_told(name: str) -> None:
    format_ = load(name)
    if "tool_call" not in kinds(format_):
        return
    request = asked(user("Rain?"), answer(""), call(city="Oslo"), result("no"))
    rendered = format_.render(request)
    told = {loss.path for loss in rendered.losses}
    shown = [item.kind for index, item in enumerate(request.items) if f"items[{index}]" not in told]
    assert shown == kinds_of(format_.parse(str(rendered.value)).items)
