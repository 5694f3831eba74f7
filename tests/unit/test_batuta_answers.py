"""Owns what is read of answers in batuta's templates, the options of those, and cleaning up what small models write."""

import json

import pytest

import turnscript as ts
from tests.batuta import (
    CALL,
    CHATML,
    END,
    NAMES,
    START,
    assistant,
    every_template,
    request_of,
    system,
    turn,
    user,
)
from turnscript.convert.cleanup import sanitize, strip_thinking

TOOL = ts.Tool(name="f", description="Does f.")


def answer(
    written: str, name: str = CHATML, option: str = "", tools: tuple[str, ...] = ("rag", "memory")
) -> ts.Response:
    """What is read where a model writes this and some tools are offered."""
    format_ = ts.get_format(name).variant(option) if option else ts.get_format(name)
    offered = [ts.Tool(name=one) for one in tools]
    parser = format_.prompt(request_of(user("q"), tools=offered)).parser()
    return ts.fold([*parser.feed(written), *parser.close()])


def outline(response: ts.Response) -> list[tuple[str, str]]:
    """The kind of each item and what it says: a call as `name arguments`."""
    shown = []
    for item in response.items:
        if isinstance(item, ts.ToolCall):
            shown.append((item.kind, f"{item.name} {item.arguments}"))
        else:
            assert isinstance(item, ts.Assistant | ts.Thinking)
            shown.append((item.kind, "".join(part.text for part in item.content if isinstance(part, ts.Text))))
    return shown


# What a model writes.


def test_calls_stand_in_tags_without_a_closing_or_in_a_fence() -> None:
    """R-B-40."""
    json_text = '{"name": "rag", "input": {"query": "SIMD"}}'
    call = ("tool_call", 'rag {"query": "SIMD"}')
    assert [call] == outline(answer(f"<tool_call>\n{json_text}\n</tool_call>"))
    assert [call] == outline(answer(f"<tool_call>\n{json_text}"))
    assert [("assistant", "Let me read."), call] == outline(answer(f"Let me read.\n<tool_call> {json_text}"))
    assert [("assistant", "Let me read."), call] == outline(answer(f"Let me read.\n```json\n{json_text}\n```"))


def test_the_earliest_mark_of_a_call_counts() -> None:
    """R-B-40: a fence inside a call is a part of it, and a call inside a fence is a part of the fence."""
    inside = '<tool_call>\n{"name": "rag", "input": {"query": "```json\\n1\\n```"}}\n</tool_call>'
    assert [("tool_call", 'rag {"query": "```json\\n1\\n```"}')] == outline(answer(inside))
    fenced = '```json\n{"name": "rag", "input": {"query": "<tool_call>"}}\n```'
    assert [("tool_call", 'rag {"query": "<tool_call>"}')] == outline(answer(fenced))


def test_a_value_counts_only_with_a_name_and_may_lack_input() -> None:
    """R-B-41."""
    assert [("tool_call", "rag {}")] == outline(answer('<tool_call>{"name": "rag"}</tool_call>'))
    for value in ('{"input": {"query": "test"}}', '{"name": 5, "input": {}}', "[1]", '"rag"', "not valid json"):
        response = answer(f"<tool_call>{value}</tool_call>")
        assert [("assistant", f"<tool_call>{value}</tool_call>")] == outline(response)
        assert ["invalid_call"] == [issue.kind for issue in response.issues]


@pytest.mark.parametrize("space", ["", " ", "\n  ", " " * 40])
@pytest.mark.parametrize("name", ["rag", "r\\u0061g", "<\\\\tool_call>", "n" * 70, ""])
@pytest.mark.parametrize("value", ["{}", '{"a": [{"b": "}"}, 1.5e3]}', "null", '"{}"'])
def test_a_call_is_the_same_however_it_is_spelled_and_cut(space: str, name: str, value: str) -> None:
    spelled = f'{{{space}"name"{space}:{space}"{name}",{space}"input":{space}{value}{space}}}'
    written = f"<tool_call>{space}{spelled}</tool_call>"
    read = "{}" if value in ("null", '"{}"') else value
    expected = [
        ("tool_call", json.loads(f'"{name}"'.replace("<\\\\", "<\\")) + f" {read}")
    ]  # of its escape, one is taken off
    prompt = ts.get_format(CHATML).prompt(request_of(user("q"), tools=[TOOL]))
    for size in (1, 2, 3, 5, 1000):
        parser = prompt.parser()
        events = [event for at in range(0, len(written), size) for event in parser.feed(written[at : at + size])]
        assert expected == outline(ts.fold([*events, *parser.close()]))


BROKEN = 'a\n<tool_call>\nnot valid json\n</tool_call>\n<tool_call>\n{"name": "rag", "input": {}}\n</tool_call>\nb'


def test_the_source_takes_all_that_follows_a_broken_call_for_text() -> None:
    """R-B-42, D-B-8: with the option `compat`."""
    response = answer(BROKEN, option="compat")
    assert [("assistant", BROKEN)] == outline(response)
    assert ("stop", ["invalid_call"]) == (response.finish_reason, [issue.kind for issue in response.issues])
    nameless = 'a\n<tool_call>{"input": {}}</tool_call>\n```json\n{"name": "rag"}\n```'
    assert [("assistant", nameless)] == outline(answer(nameless, option="compat"))
    data = 'see\n```json\n{"key": "value"}\n```\n<tool_call>{"name": "rag"}</tool_call>'
    assert [("assistant", data)] == outline(answer(data, option="compat"))


def test_calls_before_a_broken_one_are_calls_even_so() -> None:
    """R-B-42."""
    written = f'<tool_call>{{"name": "memory"}}</tool_call>\n{BROKEN}'
    assert [("tool_call", "memory {}"), ("assistant", BROKEN)] == outline(answer(written, option="compat"))


def test_a_broken_call_is_text_and_does_not_hide_the_next_one() -> None:
    """D-B-8: the default."""
    response = answer(BROKEN)
    expected = [
        ("assistant", "a\n<tool_call>\nnot valid json\n</tool_call>"),
        ("tool_call", "rag {}"),
        ("assistant", "b"),
    ]
    assert expected == outline(response)
    assert ("tool_calls", ["invalid_call"]) == (response.finish_reason, [issue.kind for issue in response.issues])


@pytest.mark.parametrize("option", ["", "compat"])
def test_an_answer_in_single_characters_reads_the_same(option: str) -> None:
    """D-X-1 (L5), with and without the option."""
    format_ = ts.get_format(CHATML).variant(option) if option else ts.get_format(CHATML)
    asked = format_.prompt(request_of(user("q"), tools=[ts.Tool(name="rag")]))
    for written in (BROKEN, f"<think>\nhm {BROKEN}", f"```json\n[1]\n```\n{BROKEN}<|im_end|>"):
        whole, pieces = asked.parser(), asked.parser()
        expected = ts.fold([*whole.feed(written), *whole.close()])
        assert expected == ts.fold([event for one in written for event in pieces.feed(one)] + pieces.close())
        assert written == expected.raw


def test_calls_are_numbered_where_an_api_needs_ids() -> None:
    """R-B-43: in the order of the calls, counted from 1, with the word that all generated ids have (D-X-7)."""
    response = answer(f'{CALL}\nMiddle\n<tool_call>{{"name": "memory"}}</tool_call>')
    assert [None, None] == [item.id for item in response.items if isinstance(item, ts.ToolCall)]
    body = ts.render(request_of(user("q"), *response.items), "openai-chat").value
    assert isinstance(body, dict)
    ids = [call["id"] for message in body["messages"] for call in message.get("tool_calls", [])]
    assert ["call_auto_001", "call_auto_002"] == ids


def test_what_remains_of_a_text_has_no_white_space_where_calls_were() -> None:
    """R-B-44."""
    response = answer(f"Before text\n{CALL}\nAfter text")
    call = ("tool_call", 'rag {"query":"test"}')
    assert [("assistant", "Before text"), call, ("assistant", "After text")] == outline(response)
    texts = [words for kind, words in outline(response) if kind == "assistant"]
    assert "Before text\n\nAfter text" == "\n\n".join(texts)
    assert [call] == outline(answer(CALL))


def test_an_answer_ends_for_its_calls_only_if_there_is_one() -> None:
    """R-B-45."""
    for written, reason in (
        ("Hello world", "stop"),
        (CALL, "tool_calls"),
        (f"a\n{CALL}\nb", "tool_calls"),
        ("<tool_call>\nnot valid json\n</tool_call>", "stop"),
        ("", "stop"),
    ):
        assert reason == answer(written).finish_reason


def test_other_words_for_the_input_are_read_and_noted() -> None:
    """D-B-6: any order of keys; `arguments` and `parameters` are understood."""
    for key in ("arguments", "parameters"):
        response = answer(f'<tool_call>{{"{key}": {{"a": 1}}, "name": "rag"}}</tool_call>')
        assert [("tool_call", 'rag {"a": 1}')] == outline(response)
        assert ["odd_call"] == [issue.kind for issue in response.issues]
    swapped = answer('<tool_call>{"input": {"a": 1}, "name": "rag"}</tool_call>')
    assert ([("tool_call", 'rag {"a": 1}')], []) == (outline(swapped), swapped.issues)


@pytest.mark.parametrize("name", [CHATML, "rwkv-goose-hermes"])
def test_no_arguments_of_a_call_are_lost_without_an_issue(name: str) -> None:
    """In the wrapper of an API too. What stands beside the name only may be arguments, and an issue says so."""
    wrapped = '{"type": "function", "function": {"name": "f", %s}}'
    for text in (
        '{"name": "f", "parameters": {"a": 1}}',
        wrapped % '"parameters": {"a": 1}',
        wrapped % '"args": {"a": 1}',
    ):
        response = answer(f"<tool_call>\n{text}\n</tool_call>", name, tools=("f",))
        assert ([("tool_call", 'f {"a": 1}')], ["odd_call"]) == (
            outline(response),
            [one.kind for one in response.issues],
        )
    for text in ('{"name": "f", "a": 1}', '{"name": "f", "params": {"a": 1}}', wrapped % '"a": 1'):
        response = answer(f"<tool_call>\n{text}\n</tool_call>", name, tools=("f",))
        assert ([("tool_call", "f {}")], ["odd_call"]) == (outline(response), [one.kind for one in response.issues])
    for text in ('{"name": "f"}', '{"type": "function", "id": "c", "name": "f"}', wrapped.replace(", %s", "")):
        response = answer(f"<tool_call>\n{text}\n</tool_call>", name, tools=("f",))
        assert ([("tool_call", "f {}")], []) == (outline(response), response.issues)


def test_json_in_a_fence_is_a_call_only_of_a_tool_that_is_offered() -> None:
    """D-B-9: the source believes any name, and so does `compat`."""
    written = 'Here:\n```json\n{"name": "Ada", "input": {}}\n```'
    assert [("assistant", written)] == outline(answer(written))
    assert [("assistant", "Here:"), ("tool_call", "Ada {}")] == outline(answer(written, option="compat"))


def test_a_call_in_the_wrapper_of_an_api_is_one_only_of_an_offered_tool() -> None:
    """D-B-9."""
    written = 'Here:\n```json\n{"type": "function", "function": {"name": "Ada", "arguments": {}}}\n```'
    assert [("assistant", written)] == outline(answer(written))
    expected = [("assistant", "Here:"), ("tool_call", "rag {}")]
    assert expected == outline(answer(written.replace("Ada", "rag")))


@every_template
@pytest.mark.parametrize("words", ["\n\n```json\n[1]\n```", "```json", '```json\n{"a": 1', "a\n```json"])
def test_white_space_around_a_fence_that_is_no_call_is_as_it_was_written(name: str, words: str) -> None:
    """D-B-9: what is before it is of the text, and what is behind it may be of the closing."""
    written = turn(name, "assistant", words).removeprefix(END[name])
    assert [("assistant", words)] == outline(answer(written, name))


# Options.


@every_template
def test_an_empty_system_turn_can_be_left_out(name: str) -> None:
    """D-B-1: and only an empty one."""
    format_ = ts.get_format(name).variant("skip-empty-system")
    assert START[name] + turn(name, "user", "q") + END[name] == format_.prompt(request_of(user("q"))).text
    for request in (request_of(system("Be brief."), user("q")), request_of(user("q"), tools=[TOOL])):
        assert ts.get_format(name).prompt(request).text == format_.prompt(request).text
    empty = request_of(system(""), user("q"))
    assert START[name] + turn(name, "system", "") + turn(name, "user", "q") == format_.render(empty).value
    assert [system(""), user("q")] == format_.parse(str(format_.render(empty).value)).items


def test_an_option_is_taken_by_name_wherever_formats_are_written() -> None:
    """D-B-1: also by `render`; an unknown one is named with the known ones."""
    request = request_of(user("q"))
    expected = turn(CHATML, "user", "q")
    assert expected == ts.render(request, CHATML, variant="skip-empty-system").value
    with pytest.raises(ts.UnknownName, match="did you mean 'compat'"):
        ts.get_format(CHATML).variant("compact")
    assert ["compat", "drop-thinking", "skip-empty-system"] == sorted(ts.get_format(CHATML).variants)


@every_template
def test_thoughts_are_shown_before_the_answer_or_dropped(name: str) -> None:
    """D-B-10: `drop-thinking` leaves them out of the history and says so."""
    thought = ts.Thinking(content=[ts.Text(text="T")])
    request = request_of(user("q"), thought, assistant("A"))
    begin = START[name] + turn(name, "system", "") + turn(name, "user", "q")
    rendered = ts.get_format(name).render(request)
    assert (begin + turn(name, "assistant", "<think>\nT\n</think>\n\nA"), []) == (rendered.value, rendered.losses)
    dropping = ts.get_format(name).variant("drop-thinking")
    rendered = dropping.render(request, view="prompt")
    assert begin + turn(name, "assistant", "A") == rendered.value
    assert [("items[1]", "dropped")] == [(loss.path, loss.kind) for loss in rendered.losses]
    asked = dropping.prompt(request_of(user("q")), thinking=True)
    parser = asked.parser()
    events = [*parser.feed("T\n</think>\n\nA"), *parser.close()]
    assert [("thinking", "T"), ("assistant", "A")] == outline(ts.fold(events))


# Cleaning up before parsing.

TEMPLATES = [ts.get_format(name) for name in NAMES]
SYSTEM = "You are apr code, a sovereign AI coding assistant. You read files, run commands, and answer in few words."


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"{SYSTEM} And then the model continues here.", "And then the model continues here."),
        (f"{SYSTEM[:90]}\nOf course.", "Of course."),
        (f"{SYSTEM[:80]}\nOf course.", "Of course."),
        (SYSTEM, ""),
        (f"{SYSTEM[:79]}!", f"{SYSTEM[:79]}!"),
        (f"Yes. {SYSTEM}", f"Yes. {SYSTEM}"),
        ("<|im_start|>assistant\nHello world<|im_end|>", "Hello world"),
        ("a<|im_start|>b<|im_end|>c<|start_header_id|>d<|end_header_id|>e<|eot_id|>f", "abcdef"),
        ("<|system|>g<|user|>h<|assistant|>i<|end|>", "ghi"),
        ("  The answer is 42.\n", "The answer is 42."),
        ("assistant\nHere is my response.", "Here is my response."),
        ("system\nassistant\nHi", "Hi"),
        ("assistant\nsystem\nHi", "system\nHi"),
        ("system\nsystem\nHi", "system\nHi"),
        ("user\nHi", "user\nHi"),
        ("assistant: Hi", "assistant: Hi"),
        ("<tool_call>\n{}\n</tool_call>", "<tool_call>\n{}\n</tool_call>"),
    ],
)
def test_echoes_marks_and_role_names_are_cleaned_away_when_asked_for(written: str, expected: str) -> None:
    """R-B-46, D-B-10."""
    assert expected == sanitize(written, TEMPLATES, SYSTEM)


def test_a_short_system_text_is_an_echo_as_a_whole() -> None:
    """R-B-46: its first 80 bytes at most; half a character is none."""
    assert "continues" == sanitize("Be brief. continues", TEMPLATES, "Be brief.")
    accents = "é" * 39 + "aébc" * 10
    assert "x" == sanitize(f"{accents}x", TEMPLATES, accents)
    assert "The answer is 42." == sanitize("The answer is 42.", TEMPLATES)
    assert "<|im_end|>" == sanitize("<|im_end|>", [])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("<think>hm</think>\n\nYes", "Yes"),
        ("a<think>one</think>b<think>two\nlines</think>c", "abc"),
        ("Yes\n<think>and then", "Yes"),
        ("</think>Yes</think>", "Yes"),
        ("hm</think>\n\nYes", "hm\n\nYes"),
        ("<think>a<think>b</think>c", "c"),
        ("<thinking>a</thinking>", "<thinking>a</thinking>"),
    ],
)
def test_thoughts_are_cleaned_away_when_asked_for(written: str, expected: str) -> None:
    """R-B-47, D-B-10."""
    assert [expected] * 3 == [strip_thinking(written, format_) for format_ in TEMPLATES]


def test_nothing_is_cleaned_away_by_itself() -> None:
    """D-B-10: neither from an answer nor from a transcript."""
    written = "assistant\nYes</think>"
    assert [("assistant", written)] == outline(answer(written))
    assert [assistant(written)] == ts.get_format(CHATML).parse(turn(CHATML, "assistant", written)).items


@pytest.mark.parametrize("begun", ["`", "```", "\n```", " "])
def test_no_character_is_lost_behind_a_prefill_that_broke_off_a_call(begun: str) -> None:
    """What was read of the call once more is the prompt's; what the model writes is on the events all the same."""
    call = '```json\n{"name": "f", "arguments": {"a": 1\n'
    request = request_of(user("q"), tools=[TOOL])
    request.conversation.items.append(ts.Assistant(content=[ts.Text(text=f"{call}{begun}")], open=True))
    for written in ("`json`", "ab", "\n```\nYes"):
        parser = ts.get_format("batuta-generic").prompt(request, thinking=False).parser()
        response = ts.fold([*parser.feed(written), *parser.close()])
        assert written == response.raw
