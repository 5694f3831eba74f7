"""Owns tools in RWKV Goose: lists, calls and results in JSON fences, in the tags of v0, and as Python."""

import pytest

import turnscript as ts
from tests.goose import (
    CALL,
    FENCE,
    FORMAT,
    STYLES,
    WEATHER,
    answer,
    content,
    example,
    read,
    request,
    result,
    said,
    short,
    written,
)

# Fences and tags.


def test_the_tool_list_follows_the_system_text_on_the_next_line() -> None:
    """D-G-10: the trained bytes; the sentence behind it is optional, in writing and in reading."""
    tools = 'Tools:\n[\n{"name":"get_weather","arguments":{"city":{"type":"string"}}}\n]'
    sentence = "\nReturn only a JSON function call."
    asked = request(ts.System(content=content("s")), *said("q"), tools=[WEATHER])
    whole = f"System: s\n{tools}{sentence}\n\nUser: q"
    bare = whole.replace(sentence, "")
    assert (whole, bare) == (FORMAT.render(asked).value, FORMAT.variant("no-sentence").render(asked).value)
    for format_ in (FORMAT, FORMAT.variant("no-sentence")):
        for transcript in (whole, bare, whole.replace("s\n", "s\n\n")):
            found = format_.parse(transcript)
            assert (asked.items, asked.tools) == (found.items, found.tools)
    with pytest.raises(ts.InvalidTranscript, match="move it before the list") as caught:
        FORMAT.parse(whole.replace("call.", "call.\nAnd be brief."))
    assert (7, 1) == (caught.value.line, caught.value.column)


def test_calls_are_fences_behind_the_text_and_results_are_user_turns() -> None:
    """D-G-10: one turn for each result; several calls are several fences."""
    items = [*said("q", "Hm."), CALL, CALL, result("1"), result("2")]
    expected = f"User: q\n\nAssistant: Hm.\n{FENCE}\n{FENCE}\n\nUser: Function output:\n1\n\nUser: Function output:\n2"
    assert expected == written(*items)
    assert items == FORMAT.parse(expected).items
    response = answer(f" Hm.\n{FENCE}\n{FENCE}", tools=[WEATHER])
    assert (items[1:4], []) == (response.items, response.issues)


@pytest.mark.parametrize("fence", ["```json", "a\n```json", '```json\n{"nam', "```json\n[1]\n```", FENCE])
def test_a_fence_that_an_answer_shows_is_no_call(fence: str) -> None:
    """D-G-10: neither before a real call nor at the end; of tools that are not offered neither."""
    items = [*said("q", fence), CALL]
    assert items == FORMAT.parse(written(*items)).items
    assert items[:2] == FORMAT.parse(written(*items[:2])).items
    assert [("assistant", fence)] == short(answer(f" {fence}", tools=[ts.Tool(name="other")]).items)


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("arguments", ['{"city":"Oslo"}', '{"city":  "Oslo"}'])
def test_an_answer_that_says_a_label_and_then_calls_is_one_turn(name: str, arguments: str) -> None:
    """D-G-4: a text that is the opening of its own turn is a text, and no turn without one."""
    format_ = ts.get_format(name)
    for label in ("Assistant:", "User:", "System:"):
        items = [*said("q", label), ts.ToolCall(name="get_weather", arguments=arguments)]
        transcript = written(*items, format_=format_)
        assert 1 == transcript.count("\n\n")
        assert transcript.startswith(f"User: q\n\nAssistant: {label}\n")
        back = format_.parse(transcript).items
        assert short(items)[:2] == short(back)[:2]
        assert [""] * 3 == [item.turn for item in back]
        whole = answer(f"{transcript.removeprefix('User: q')[12:]}", format_, [WEATHER])
        assert [label, "get_weather"] == [short([one])[0][1].split(" ")[0] for one in whole.items]


def test_the_list_of_ai00_v0_is_read_as_its_server_wrote_it() -> None:
    """D-G-14: with blank lines in it, and results together in one turn."""
    format_ = ts.get_format("ai00-v0")
    lean = example("c1", "ai00_v0")
    loose = lean.replace("\n# Tools\n", "\n\n# Tools\n\n").replace("\nYou are provided", "\n\nYou are provided")
    loose = loose.replace("\nIMPORTANT", "\n\nIMPORTANT").replace("\nNEVER", "\n\nNEVER")
    assert loose != lean
    assert format_.parse(lean).tools == format_.parse(loose).tools
    assert lean == format_.render(format_.parse(loose)).value
    several = "User: <tool_response>\n1\n</tool_response>\n<tool_response>2</tool_response>"
    assert [("tool_result", "1"), ("tool_result", "2")] == read(several, format_)


# Calls as Python, and observations.

OBSERVING = ts.get_format("rwkv-goose-observation")
PYTHON = 'get_weather\n```python\ntool_call("city"="Oslo")\n```'


def test_a_call_is_a_name_on_a_line_and_python_in_a_fence() -> None:
    """D-G-10: the result is a turn of its own."""
    call = ts.ToolCall(name="get_weather", arguments='{"city": "Oslo"}')
    items = [*said("q", "Hm."), call, call, result("1")]
    expected = f"User: q\n\nAssistant: Hm.\n{PYTHON}\n{PYTHON}\n\nObservation: 1"
    assert expected == written(*items, format_=OBSERVING)
    assert items == OBSERVING.parse(expected).items
    response = answer(f" Hm.\n{PYTHON}\n{PYTHON}", OBSERVING, [WEATHER])
    assert (items[1:4], [], "tool_calls") == (response.items, response.issues, response.finish_reason)


@pytest.mark.parametrize(
    ("shown", "arguments"),
    [
        ("", "{}"),
        ('"a"="x", "n"=5', '{"a": "x", "n": 5}'),
        ('"n"=-1.50, "t"=true, "z"=null', '{"n": -1.50, "t": true, "z": null}'),
        ('"o"={"k": [1, ")"]}, "e"=""', '{"o": {"k": [1, ")"]}, "e": ""}'),
        ('"s"="a\\n\\n```\\n\\"="', '{"s": "a\\n\\n```\\n\\"="}'),
    ],
)
def test_arguments_are_keys_and_json_values(shown: str, arguments: str) -> None:
    """D-G-10."""
    call = ts.ToolCall(name="get_weather", arguments=arguments)
    text = f"get_weather\n```python\ntool_call({shown})\n```"
    assert f"Assistant: {text}" == written(call, format_=OBSERVING)
    assert [call] == OBSERVING.parse(f"Assistant: {text}").items
    assert ([call], []) == ((found := answer(f" {text}", OBSERVING, [WEATHER])).items, found.issues)


def test_pythons_own_spelling_is_read_and_told() -> None:
    """D-G-10."""
    response = answer(" get_weather\n```python\ntool_call(city = True,n=None, )\n```", OBSERVING, [WEATHER])
    assert [("call", 'get_weather {"city": true, "n": null}')] == short(response.items)
    assert ["odd_call"] == [issue.kind for issue in response.issues]


@pytest.mark.parametrize("name", ["a b", "", "<think>", 'say "x"', "two\nlines", "```python", "字"])
def test_any_name_fills_one_line(name: str) -> None:
    """D-G-10: what is no word is a JSON string."""
    items: list[ts.Item] = [*said("q", "Hm."), ts.ToolCall(name=name)]
    transcript = written(*items, format_=OBSERVING)
    assert items == OBSERVING.parse(transcript).items
    output = transcript.removeprefix("User: q\n\nAssistant:")
    assert items[1:] == answer(output, OBSERVING, [ts.Tool(name=name)]).items


@pytest.mark.parametrize(
    ("output", "issues"),
    [
        ("my_get_weather\n```python\ntool_call()\n```", []),
        ("other\n```python\ntool_call()\n```", []),
        ("get_weather\n\n```python\ntool_call()\n```", []),
        ("get_weather\n```python\ntool_call(...)\n```", ["invalid_call"]),
        ("get_weather\n```python\ntool_call('a'=1)\n```", ["invalid_call"]),
        ('get_weather\n```python\ntool_call("a"="x', ["unclosed_call"]),
    ],
)
def test_what_is_no_call_of_an_offered_tool_stays_text(output: str, issues: list[str]) -> None:
    """D-G-10: a name must fill its line."""
    response = answer(f" {output}", OBSERVING, [WEATHER])
    assert [("assistant", output)] == short(response.items)
    assert issues == [issue.kind for issue in response.issues]
    flat = output.replace("\n\n", "\n")
    assert [("assistant", flat)] == read(written(*said("q", output), format_=OBSERVING), OBSERVING)[1:]


def test_a_named_tool_is_begun_by_the_prompt_and_any_other_is_not() -> None:
    """D-G-8, D-G-10: nothing can be written before the name is known."""
    asked = request(*said("q"), tools=[WEATHER])
    asked.settings.tool_choice = ts.ToolChoice(mode="named", name="get_weather")
    prompt = OBSERVING.prompt(asked)
    assert prompt.text.endswith("Assistant: get_weather\n```python\ntool_call(")
    assert [*OBSERVING.stops, "\n\nObservation:"] == prompt.stops
    choice = asked.settings.tool_choice
    assert [("call", 'get_weather {"city": "Oslo"}')] == short(
        answer('"city"="Oslo")\n```', OBSERVING, [WEATHER], choice=choice).items
    )
    asked.settings.tool_choice = ts.ToolChoice(mode="required")
    assert OBSERVING.prompt(asked).text.endswith("\n\nAssistant:")


LABELLED = ["Assistant:", "Assistant: hm", "Look.\nAssistant:", "Look.\nAssistant: hm", "Observation: none\nAssistant:"]


@pytest.mark.parametrize("text", LABELLED)
def test_a_label_inside_a_line_of_an_answer_begins_no_turn_before_a_call(text: str) -> None:
    """A turn begins behind a blank line only: what was read is written as it was, and the prompt grows."""
    call = ts.ToolCall(name="get_weather", arguments='{"city": "Oslo"}')
    asked = request(*said("q"), tools=[WEATHER])
    wrote = f' {text}\nget_weather\n```python\ntool_call("city"="Oslo")\n```'
    prompt = OBSERVING.prompt(asked, thinking=False)
    parser = prompt.parser()
    response = ts.fold([*parser.feed(wrote), *parser.close()])
    assert ([*said("q", text)[1:], call], []) == (response.items, response.issues)
    items = [*asked.items, *response.items, result("rain")]
    document = str(OBSERVING.render(request(*items, tools=[WEATHER]), view="prompt").value)
    assert document.endswith(f"\n\nAssistant:{wrote}\n\nObservation: rain")
    assert document == OBSERVING.render(OBSERVING.parse(document), view="prompt").value
    longer = prompt.extend(response, [result("rain")])
    assert longer is not None
    assert longer.text.startswith(prompt.text + wrote)
