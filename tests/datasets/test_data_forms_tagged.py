"""Owns the checks of rows with calls as tagged text: the dialects of Hermes and Qwen, and what of them is refused."""

import json
from typing import Any

import pytest

from tests.datasets.samples import rows_of
from tests.datasets.test_data_forms_kinds import read, refused, said, turns
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import BadRow, Code, problem_of


def test_hermes_calls_tools_and_results_become_real_ones() -> None:
    first, second, third = (get_form("hermes").read(row)[0] for row in rows_of("hermes"))
    assert said(first) == [
        ("user", "Is it cold in Oslo?"),
        ("tool_call", "get_weather", '{"city": "Oslo", "days": 1.0}'),
        ("tool_result", '{"t": 4}'),
        ("assistant", "Yes, 4 degrees."),
    ]
    schema = first.request.tools[0].parameters
    assert json.loads(bytes(schema or b""))["properties"]["days"]["maximum"] == 2**60
    assert said(second) == [
        ("system", "You know the weather."),
        ("user", "Oslo and Rome?"),
        ("thinking", "Two calls."),
        ("assistant", "I look."),
        ("tool_call", "get_weather", '{"city": "Oslo"}'),
        ("tool_call", "get_weather", '{"city": "Rome"}'),
        ("tool_result", "4"),
        ("tool_result", "21"),
        ("assistant", "4 and 21."),
    ]
    assert [tool.name for tool in second.request.tools] == ["get_weather", "now"]
    assert said(third) == [("user", "Hi"), ("assistant", "Hello.")]


def hermes(answer: str, system: str = "<tools>[{'name': 'f'}]</tools>", result: str = "") -> dict[str, Any]:
    last = [("tool", result)] if result else []
    return turns(("system", system), ("human", "Hi"), ("gpt", answer), *last)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (hermes("<tool_call>f(1)</tool_call>"), Code.ARGS),
        (hermes("<tool_call>7</tool_call>"), Code.ARGS),
        (hermes('<tool_call>{"name": "f", "arguments": 7}</tool_call>'), Code.ARGS),
        (hermes('<tool_call>{"name": "f", "arguments": "x"}</tool_call>'), Code.ARGS),
        (hermes('<tool_call>{"arguments": {}}</tool_call>'), Code.CALL),
        (hermes('<tool_call>{"name": "f", "arguments": {}}'), Code.SHAPE),
        (hermes("text </tool_call>"), Code.SHAPE),
        (hermes("<tool_call>{'name': 'f', 'arguments': {1, 2}}</tool_call>"), Code.ARGS),
        (hermes("<tool_call>__import__('os')</tool_call>"), Code.ARGS),
        (hermes("x", "<tools>[{'type': 'function'}]</tools>"), Code.SHAPE),
        (hermes("x", "<tools>[nothing]</tools>"), Code.SHAPE),
        (hermes("x", "Say it in a <tool_call>. <tools>[{'name': 'f'}]</tools>"), Code.SHAPE),
        (hermes("x", result="<tool_response>1</tool_response>"), Code.CALL),
        (
            hermes('<tool_call>{"name": "f"}</tool_call>', result="Result: <tool_response>1</tool_response>"),
            Code.SHAPE,
        ),
    ],
)
def test_a_tag_that_cannot_be_read_refuses_the_row(row: Any, code: Code) -> None:
    assert refused("hermes", row)[0] is code


def test_hermes_keeps_what_else_the_system_text_says() -> None:
    (example,) = read("hermes", hermes("x", "You are Ada.\n<tools>[{'name': 'f'}]</tools>\nBe brief."))
    assert said(example)[0] == ("system", "You are Ada.\n\nBe brief.")


TOOLS = '[{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]'
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
SCHEMA = (
    "{'title': 'FunctionCall', 'type': 'object', 'properties': {'name': {'title': 'Name', 'type': 'string'}, "
    "'arguments': {'title': 'Arguments', 'type': 'object'}}, 'required': ['arguments', 'name']}"
)
BLANKS = "<tool_call>\n{'arguments': <args-dict>, 'name': <function-name>}\n</tool_call>"
BEFORE = (
    "You are a function calling AI model. You are provided with function signatures within <tools> </tools> XML tags. "
    "You may call one or more functions to assist with the user query. If available tools are not relevant in "
    "assisting with user query, just respond in natural conversational language. Don't make assumptions about what "
    "values to plug into functions. After calling & executing the functions, you will be provided with function "
    "results within <tool_response> </tool_response> XML tags."
)
BEHIND = (
    f"For each function call return a JSON object, with the following pydantic model json schema:\n{SCHEMA}\n"
    "Each function call should be enclosed within <tool_call> </tool_call> XML tags."
)
PAD = "You must plan within <scratch_pad> </scratch_pad> XML tags.\nExample:\n<scratch_pad>\nGoal\n</scratch_pad>"


@pytest.mark.parametrize(
    ("system", "left"),
    [
        (f"{BEFORE}\n<tools>\n{TOOLS}\n</tools>\n{BEHIND}\nExample:\n{BLANKS}", ""),
        (f"{BEFORE} Here are the available tools:\n<tools>\n{TOOLS}\n</tools>\n{BEHIND}\nExample:\n{BLANKS}", ""),
        (f"Be Ada.\n\n{BEFORE}\n<tools>{TOOLS}</tools>\n{BEHIND.replace('schema:', 'schema for each:')}", "Be Ada."),
        (f"{BEFORE}\n<tools>\n{TOOLS}\n</tools>\n{BEHIND} {PAD}\n{BLANKS}\n", PAD),
        (
            (
                f"<tools>{TOOLS}</tools>\nFor each function call return a JSON object with function name and arguments "
                f"within <tool_call></tool_call> XML tags with the following schema:\n{BLANKS}\n"
            ),
            "",
        ),
    ],
)
def test_what_a_system_text_says_about_calling_is_left_out(system: str, left: str) -> None:
    (example,) = read("hermes", hermes(CALL, system, "<tool_response>\n7\n</tool_response>"))
    spoken = [("system", left)] if left else []
    assert said(example) == [*spoken, ("user", "Hi"), ("tool_call", "f", '{"a": 1}'), ("tool_result", "7")]
    assert [tool.name for tool in example.request.tools] == ["f"]


def test_words_about_the_tags_that_are_not_known_are_shown_with_what_to_do() -> None:
    row = hermes(CALL, f"You are Ada.\n<tools>{TOOLS}</tools>\nCall with <tool_call></tool_call>, Ada.\nBe brief.")
    with pytest.raises(BadRow) as caught:
        read("hermes", row)
    message = caught.value.message
    assert "'Call with <tool_call></tool_call>, Ada.'" in message
    assert "take them out" in message


def test_a_call_that_is_an_example_is_not_taken_for_one_with_blanks() -> None:
    row = hermes(CALL, f"{BEFORE}\n<tools>{TOOLS}</tools>\n{BEHIND}\nExample:\n{CALL}")
    assert refused("hermes", row) == (Code.SHAPE, "$.conversations[0].value")


def test_results_may_stand_in_a_turn_of_the_user() -> None:
    answers = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    spoken = [("user", "Hi"), ("assistant", f"{CALL}\n{CALL}"), ("user", answers), ("assistant", "3")]
    row = {"messages": [{"role": role, "content": content} for role, content in spoken]}
    (example,) = read("hermes", row)
    assert said(example)[3:] == [("tool_result", "1"), ("tool_result", "2"), ("assistant", "3")]
    row["messages"][2]["content"] = f"{answers} And now?"
    assert refused("hermes", row) == (Code.SHAPE, "$.messages[2].content")
    row["messages"][1]["content"] = "No call"
    row["messages"][2]["content"] = answers
    assert refused("hermes", row)[0] is Code.CALL


@pytest.mark.parametrize("inside", ["[" * 100_000, "{'a':" * 3000, "-" * 100_000, "(" * 3000 + ")" * 3000])
def test_a_call_nested_too_deep_is_refused(inside: str) -> None:
    assert refused("hermes", hermes(f"<tool_call>{inside}</tool_call>"))[0] is Code.ARGS


@pytest.mark.parametrize("bracket", ["<", "\\u003c", "\\u003C"])
def test_tags_are_seen_however_their_brackets_are_spelled(bracket: str) -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    for form, row in (
        ("sharegpt", turns(("human", "Hi"), ("gpt", call))),
        ("messages", {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": call}]}),
    ):
        with pytest.raises(BadRow) as caught:
            get_form(form).read(json.dumps(row).replace("<", bracket).encode())
        assert Code.FORM is problem_of(caught.value).code
