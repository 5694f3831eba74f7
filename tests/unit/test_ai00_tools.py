"""Owns tools in ai00's chat format v1: definitions, calls, results, ids, typed arguments, and tags in texts."""

import json
import re

import pytest

import turnscript as ts
from tests.ai00 import (
    CALL,
    FORMAT,
    LONDON,
    RESULT,
    TOKYO,
    WEATHER,
    answer,
    assistant,
    calls,
    cities,
    invoke,
    read,
    request,
    results,
    said,
    short,
    text,
    turn,
    written,
)
from turnscript.core.conversation import text_content
from turnscript.core.json_text import json_of

# Definitions.

TOOLS_OPEN, TOOLS_CLOSE = "<ai00:available_tools>\n", "</ai00:available_tools>"
DEFINED = f'{TOOLS_OPEN}  <tool name="f">\n    {{"name": "f"}}\n  </tool>\n{TOOLS_CLOSE}'
INSTRUCTIONS = "\n\nTo call a function, use this format:\n" + calls(invoke("function_name", "param>value"))


def test_tool_definitions_are_read_in_any_layout_of_json() -> None:
    """D-A-3: keys in any order, expanded, or all on one line; what a tag holds that is no JSON is an error."""
    wide = '<tool name="f">{"input_schema":\n{"type":"object"},\n\n"description":"d", "name":"f"}</tool>'
    [tool] = FORMAT.parse(turn("system", f"s\n\n{TOOLS_OPEN}{wide}\n{TOOLS_CLOSE}")).tools
    assert ts.Tool(name="f", description="d", parameters=json_of({"type": "object"})) == tool
    for broken in ('<tool name="f">f</tool>', '<tool name="f">{"name": "f"}', '{"name": "f"}'):
        with pytest.raises(ts.InvalidTranscript, match="the tool list"):
            FORMAT.parse(turn("system", f"{TOOLS_OPEN}{broken}\n{TOOLS_CLOSE}"))


def test_the_name_of_a_tools_tag_is_that_of_its_json() -> None:
    """D-A-3."""
    with pytest.raises(ts.InvalidTranscript, match='the tag says the name "f", and the JSON "g"') as caught:
        FORMAT.parse(turn("system", DEFINED.replace('{"name": "f"}', '{"name": "g"}')))
    assert 4 == caught.value.line
    odd = ts.Tool(name='a "b"> c', description="</tool> <tool> </ai00:system>")
    assert [odd] == FORMAT.parse(written(*said("q"), tools=[odd])).tools


def test_tags_of_the_list_are_broken_in_definitions_and_there_alone() -> None:
    tool = ts.Tool(name="f", description="</tool> <tool>")
    text = written(*said("<tool> </tool>"), tools=[tool])
    assert '"description": "<\\/tool> <\\tool>"' in text
    assert text.endswith("<ai00:user>\n<tool> </tool>\n</ai00:user>")
    assert {"<tool", "</tool>"} <= set(FORMAT.special_tokens)
    assert [] == FORMAT.check(text)[1].all


def test_instructions_behind_the_tools_are_an_option_and_are_looked_over() -> None:
    """D-A-10: written only if asked for; any other text there would be lost, and is an error."""
    plain = turn("system", f"s\n\n{DEFINED}")
    instructed = turn("system", f"s\n\n{DEFINED}{INSTRUCTIONS}")
    system = FORMAT.parse(plain)
    assert system == FORMAT.parse(instructed)
    told = FORMAT.variant("tool-instructions")
    assert FORMAT.render(system).value == str(told.render(system).value).replace(INSTRUCTIONS, "")
    assert INSTRUCTIONS in str(told.render(system).value)
    assert system == told.parse(plain) == told.parse(instructed)
    with pytest.raises(ts.InvalidTranscript, match="move it before the list") as caught:
        FORMAT.parse(turn("system", f"s\n\n{DEFINED}\n\nAnd be brief."))
    assert (10, 1) == (caught.value.line, caught.value.column)


def test_white_space_between_the_blocks_of_a_turn_may_differ() -> None:
    """D-A-2: written as in A7; any of it is read."""
    parts = ["Hi.", calls(TOKYO), results(('name="t1"', "    1")), "Ho."]
    expected = [
        ("assistant", "Hi."),
        ("call", "get_weather", '{"city": "Tokyo"}', "t1"),
        ("result", "get_weather", "t1", "1"),
        ("assistant", "Ho."),
    ]
    for between in ("", "\n", "\n\n"):
        assert expected == read(turn("assistant", between.join(parts)))
    again = assistant(parts[0] + "\n", parts[1], parts[2] + "\n", parts[3])
    assert again == FORMAT.render(FORMAT.parse(turn("assistant", "".join(parts)))).value


def test_calls_after_results_follow_a_blank_line() -> None:
    """D-A-2: results-calls as results-text."""
    second = ts.ToolCall(name="get_weather", arguments='{"city": "London"}')
    assert results(('name="toolu_01abc123"', '    {"temperature": 22, "condition": "sunny"}')) + "\n\n" + calls(
        LONDON
    ) in written(CALL, RESULT, second)


def test_neighbouring_blocks_are_read_as_one() -> None:
    """D-A-13: of calls and of results, in transcripts and in answers."""
    first, second = results(('name="t1"', "    1")), results(('name="t2"', "    2"))
    split = assistant(calls(TOKYO), calls(LONDON), first, second)
    joined = assistant(calls(TOKYO, LONDON), results(('name="t1"', "    1"), ('name="t2"', "    2")))
    assert FORMAT.parse(joined).items == FORMAT.parse(split).items
    assert joined == FORMAT.render(FORMAT.parse(split)).value
    for between in ("", "\n", "\n\n"):
        response = answer(calls(TOKYO) + between + calls(LONDON), [WEATHER])
        assert (["Tokyo", "London"], []) == (cities(response), response.issues)


@pytest.mark.parametrize(
    ("lines", "one"),
    [
        ("    a\n\n      b", "a\n\n  b"),
        ("    a\n    \n      b", "a\n\n  b"),
        ("  a\n    b", "a\n  b"),
        ("    a\n   b\n      c", " a\nb\n   c"),
        ("a", "a"),
        ("    ", ""),
    ],
)
def test_results_lose_their_four_spaces_or_what_all_lines_have(lines: str, one: str) -> None:
    """D-A-4: the text is verbatim otherwise, pretty or compact, and never laid out anew."""
    found = FORMAT.parse(assistant(results(('name="t1"', lines)))).items[0]
    assert isinstance(found, ts.ToolResult)
    assert one == text_content(found.content)
    for verbatim in ('{"a":  1}', "  in\n\n\tdent ", "", "\n"):
        result = ts.ToolResult(id="t1", content=text(verbatim))
        assert [result] == FORMAT.parse(str(FORMAT.render(request(result)).value)).items


# Ids, errors, arguments.


def test_a_result_is_named_by_the_id_of_its_call_and_the_call_takes_it() -> None:
    """D-A-5: the i-th result answers the i-th call of the block before it."""
    both = assistant(calls(TOKYO, LONDON), results(('name="t1"', "    1"), ('name="t2"', "    2")))
    assert [("t1", "Tokyo"), ("t2", "London")] == [
        (item.id, json.loads(item.arguments)["city"])
        for item in FORMAT.parse(both).items
        if isinstance(item, ts.ToolCall)
    ]
    assert both == FORMAT.render(FORMAT.parse(both)).value


@pytest.mark.parametrize("name", ["get_weather", "a b", "t.1"])
def test_a_result_that_names_a_tool_or_no_id_leaves_its_call_without_one(name: str) -> None:
    """D-A-5: written where a result has no id."""
    transcript = assistant(calls(TOKYO), results((f'name="{name}"', "    1")))
    assert [None, None] == [getattr(item, "id", "") for item in FORMAT.parse(transcript).items]
    assert name == FORMAT.parse(transcript).items[1].name  # type: ignore[attr-defined]
    assert transcript == FORMAT.render(FORMAT.parse(transcript)).value


def test_an_id_on_a_call_is_read_decides_and_is_never_written() -> None:
    """D-A-5: equality with a known id wins over the order."""
    first, second = invoke("f", id_=' id="a"'), invoke("g", id_=' id="b"')
    transcript = assistant(calls(first, second), results(('name="b"', "    1"), ('name="a"', "    2")))
    expected = [
        ("call", "f", "{}", "a"),
        ("call", "g", "{}", "b"),
        ("result", "g", "b", "1"),
        ("result", "f", "a", "2"),
    ]
    assert expected == read(transcript)
    offered = [ts.Tool(name="f"), ts.Tool(name="g")]
    assert [("call", "f", "{}", "a"), ("call", "g", "{}", "b")] == short(answer(calls(first, second), offered).items)
    assert ' id="' not in str(FORMAT.render(FORMAT.parse(transcript)).value)


def test_an_id_stands_on_every_call_that_has_one_if_that_is_asked_for() -> None:
    """D-A-5: the option `ids-always`; then neither calls that nobody answers nor other orders lose an id."""
    format_ = FORMAT.variant("ids-always")
    f, g = ts.ToolCall(name="f", id="a"), ts.ToolCall(name="g", id='b "2"')
    answers = [
        ts.ToolResult(name="g", id='b "2"', content=text("2")),
        ts.ToolResult(name="f", id="a", content=text("1")),
    ]
    for items in ([f], [f, g], [f, g, *answers], [f, g, answers[0]], [ts.ToolCall(name="f"), g, answers[0]]):
        rendered = format_.render(request(*items))
        assert [] == rendered.losses
        assert items == format_.parse(str(rendered.value)).items
    shown = '  <invoke name="f" id="a">\n  </invoke>\n  <invoke name="g" id="b \\"2\\"">\n  </invoke>\n'
    assert shown in str(format_.render(request(f, g)).value)
    assert '<invoke name="f">' in str(format_.render(request(ts.ToolCall(name="f"))).value)


def test_a_call_without_an_id_has_none_where_calls_show_theirs() -> None:
    """D-A-5: no order gives it one, so what is read is written again as it was; results have names by the order."""
    both = assistant(calls(TOKYO, LONDON), results(('name="t1"', "    1"), ('name="t2"', "    2")))
    format_ = FORMAT.variant("ids-always")
    items = format_.parse(both).items
    assert [None, None, "t1", "t2"] == [getattr(item, "id", "") for item in items]
    assert ["get_weather"] * 4 == [getattr(item, "name", "") for item in items]
    assert both == format_.render(format_.parse(both)).value


def test_a_result_without_id_and_name_shows_the_tool_that_it_answers() -> None:
    """D-A-5: the name of the i-th call, which is what a reader makes of it."""
    items = [ts.ToolCall(name="f"), ts.ToolCall(name="g"), *(ts.ToolResult(content=text(one)) for one in "12")]
    transcript = str(FORMAT.render(request(*items)).value)
    assert ['  <result name="f">', '  <result name="g">'] == re.findall(" +<result.*", transcript)
    assert transcript == FORMAT.render(FORMAT.parse(transcript)).value


@pytest.mark.parametrize("mode", ["named", "required"])
def test_a_forced_call_shows_its_id_where_calls_do(mode: str) -> None:
    """D-A-5, D-X-7: the prompt opens the call with the next id; where the model names the tool, it writes the id."""
    asked = request(*said("q"), tools=[WEATHER])
    asked.settings.tool_choice = ts.ToolChoice(mode=mode, name="get_weather" if mode == "named" else None)
    prompt = FORMAT.variant("ids-always").prompt(asked)
    opening = '  <invoke name="' if mode == "required" else '  <invoke name="get_weather" id="call_auto_001">\n'
    assert prompt.text.endswith(f"<ai00:function_calls>\n{opening}")
    rest = 'get_weather" id="x">\n' if mode == "required" else ""
    parser = prompt.parser()
    answered = ts.fold([*parser.feed(f"{rest}  </invoke>\n</ai00:function_calls>"), *parser.close()])
    id_ = "x" if mode == "required" else "call_auto_001"
    assert [ts.ToolCall(name="get_weather", arguments="{}", id=id_)] == answered.items


def test_ids_that_the_order_does_not_give_back_are_losses() -> None:
    """D-A-5: of a call that nobody answers, and of results in another order."""
    unanswered = FORMAT.render(request(ts.ToolCall(name="f", id="c1")))
    assert ["items[0].id: dropped: this format has no place for it; its variant ids-always shows it"] == list(
        map(str, unanswered.losses)
    )


def test_a_failed_tool_is_marked_on_its_result() -> None:
    """D-A-6."""
    failed = ts.ToolResult(name="get_weather", id="toolu_01abc123", status="error", content=text("no\nnet"))
    block = results(('name="toolu_01abc123" is_error="true"', "    no\n    net"))
    assert assistant(calls(TOKYO), block) == written(CALL, failed, tools=None)
    assert failed == FORMAT.parse(assistant(calls(TOKYO), block)).items[1]


SCHEMA = {"s": {"type": "string"}, "n": {"type": "integer"}, "u": {"type": ["string", "integer"]}, "x": {}}
TYPED = ts.Tool(name="f", parameters=json_of({"type": "object", "properties": SCHEMA}))


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("s", '"42"', "42"),
        ("s", '"  a\\n"', "  a\n"),
        ("s", '"\\"q\\""', '"q"'),
        ("s", '""', ""),
        ("n", "42", "42"),
        ("n", "null", "null"),
        ("n", '"a"', '"a"'),
        ("u", "42", "42"),
        ("u", '"42"', '"42"'),
        ("u", '"a"', "a"),
        ("x", '"true"', '"true"'),
        ("x", "true", "true"),
        ("x", '{"k":  [1.0, 1e5]}', '{"k":  [1.0, 1e5]}'),
        ("none", '"null"', '"null"'),
        ("none", '"a b"', "a b"),
    ],
)
def test_the_schema_types_a_parameter(key: str, value: str, shown: str) -> None:
    """D-A-7: strings verbatim, other types as JSON; where it may be either, a string that is JSON is quoted."""
    call = ts.ToolCall(name="f", arguments=f'{{"{key}": {value}}}')
    transcript = written(call, tools=[TYPED])
    assert f'<parameter name="{key}">{shown}</parameter>' in transcript
    assert [call] == FORMAT.parse(transcript).items
    response = answer(calls(invoke("f", f"{key}>{shown}")), [TYPED])
    assert ([call], []) == (response.items, response.issues)


# Tags in texts.


@pytest.mark.parametrize(
    "tag", ["</ai00:assistant>", "<ai00:user>", "<ai00:function_calls>", "</ai00:function_results>"]
)
@pytest.mark.parametrize("at", range(3))
def test_tags_with_the_prefix_are_broken_in_every_text(tag: str, at: int) -> None:
    """D-A-8: because one of them ends the model's turn."""
    item = [ts.System, ts.User, ts.Assistant][at](content=text(f"a {tag} b"))
    lead = "</" if tag.startswith("</") else "<"
    broken = tag.replace(lead, "<\\/" if lead == "</" else "<\\", 1)
    assert f"\na {broken} b\n" in written(item)
    assert [item] == FORMAT.parse(written(item)).items


@pytest.mark.parametrize("tag", ['<invoke name="f">', '<parameter name="k">', "</parameter>", "</result>", "<think>"])
def test_other_tags_are_broken_only_where_they_mean_something(tag: str) -> None:
    """D-A-8: in the assistant's turn, in arguments and in results; a user may say them as they are."""
    broken = tag.replace("</", "<\\/", 1) if tag.startswith("</") else tag.replace("<", "<\\", 1)
    assert turn("user", tag) == written(*said(tag))
    items = [
        ts.Assistant(content=text(tag)),
        ts.ToolCall(name="f", arguments=json.dumps({"k": tag}), id="t1"),
        ts.ToolResult(name="f", id="t1", content=text(tag)),
    ]
    transcript = written(*items)
    assert (3, 1) == (transcript.count(broken), len(FORMAT.parse(transcript).items) - 2)
    assert items == FORMAT.parse(transcript).items


def test_marks_of_calls_without_a_call_are_told() -> None:
    empty = "<ai00:function_calls>\n</ai00:function_calls>"
    transcript = f"<ai00:user>\nHi\n</ai00:user>\n\n<ai00:assistant>\nOK\n\n{empty}\n</ai00:assistant>"
    told = ("dropped", "marks of calls, and no call in them")
    read = FORMAT.parse(transcript)
    assert [("line 8", *told)] == [(loss.path, loss.kind, loss.detail) for loss in read.unread]
    found = FORMAT.check(transcript)[1].all
    assert [(8, 1, *told)] == [(one.line, one.column, one.kind, one.message) for one in found]
    (issue,) = answer(f"OK\n\n{empty}\n</ai00:assistant>", [WEATHER]).issues
    assert ("empty_calls", told[1]) == (issue.kind, issue.detail)


def test_a_parameter_that_is_given_twice_is_told() -> None:
    (issue,) = answer(calls(invoke("get_weather", "city>Tokyo", "city>Kyoto")), [WEATHER]).issues
    assert ("odd_call", 'the argument "city" is given twice') == (issue.kind, issue.detail)


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_transcript_that_ends_behind_results_is_the_prompt_for_what_follows(end: str) -> None:
    """Only the turn is unfinished there, which is told, and not the result in it."""
    call = ts.ToolCall(name="f", arguments='{"a": 1}', id="c1")
    result = ts.ToolResult(content=[ts.Text(text="12")], id="c1")
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="q")]), call, result]
    asked = FORMAT.prompt(ts.Request(conversation=ts.Conversation(items=items))).text
    transcript = asked.rstrip() + end
    read = FORMAT.parse(transcript)
    told = "the turn that <ai00:assistant> opened is not finished: </ai00:assistant> is written behind it"
    assert (False, [("line 15, column 25", told)]) == (
        read.items[-1].open,
        [(one.path, one.detail) for one in read.unread],
    )
    again = FORMAT.prompt(read)
    assert (asked, []) == (again.text, again.losses)
    assert read.unread == ts.convert(transcript, "ai00-v1", "openai-chat").losses
    found = FORMAT.check(transcript)[1].all
    assert [(15, 25, told)] == [(one.line, one.column, one.message) for one in found]
    assert [] == ts.convert(asked, "ai00-v1", "openai-chat", strict=True).losses
    assert asked == FORMAT.prompt(FORMAT.parse(asked)).text


def test_a_result_that_is_cut_off_is_unfinished() -> None:
    text = f'<ai00:assistant>\n{calls(invoke("f"))}\n<ai00:function_results>\n  <result name="c1">\n    1'
    for end in ("", "\n  </result>"):
        assert FORMAT.parse(f"<ai00:user>\nq\n</ai00:user>\n\n{text}{end}").items[-1].open
