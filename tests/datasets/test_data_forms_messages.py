"""Owns the checks of rows of messages: every dialect gives the same conversation, arguments and schemas stay as they
were byte by byte, marks become weights, and what is wrong is named with its code and place."""

import json
from typing import Any

import pytest

from tests.datasets.samples import what_is_said
from turnscript import ToolCall, ToolResult
from turnscript.core.conversation import Assistant, System, Thinking, text_content
from turnscript.core.errors import InvalidInput
from turnscript.datasets.clean_rows import is_clean
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import BadRow, Code, problem_of
from turnscript.datasets.weights import MARKS

SCHEMA = (
    '{"type":"object","properties":{"b":{"maximum":1152921504606846976,"default":1.0},"a":{"enum":[null,1e5]},"a":{}}}'
)
ARGUMENTS = '{"z": 1.0, "a": 1152921504606846976, "a": "\\u00e9", "n": null}'
TOOL = f'{{"type":"function","function":{{"name":"f","description":"d","parameters":{SCHEMA}}}}}'
WEATHER = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def read(row: dict[str, Any] | str) -> Example:
    data = row if isinstance(row, str) else json.dumps(row)
    (example,) = get_form("messages").read(data.encode())
    return example


def refused(row: dict[str, Any] | str | bytes) -> tuple[Code, str]:
    data = row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else json.dumps(row).encode()
    with pytest.raises(InvalidInput) as caught:
        get_form("messages").read(data)
    problem = problem_of(caught.value)
    assert problem.message
    return problem.code, problem.pointer


def chat(*messages: dict[str, Any], **beside: Any) -> dict[str, Any]:
    return {"messages": list(messages), **beside}


def user(content: Any = "Hi", **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **more}


def assistant(content: Any = "Hello.", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def called(arguments: Any = "{}", id_: str | None = "c1", **more: Any) -> dict[str, Any]:
    ids = {} if id_ is None else {"id": id_}
    return assistant(
        None, tool_calls=[ids | {"type": "function", "function": {"name": "f", "arguments": arguments}}], **more
    )


def answered(content: Any = "ok", id_: str | None = "c1", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "content": content, **({} if id_ is None else {"tool_call_id": id_}), **more}


def the_call(example: Example) -> ToolCall:
    return next(item for item in example.request.items if isinstance(item, ToolCall))


# Dialects.

PLAIN = chat(user(), called('{"a": 1}'), answered(), assistant(), tools=[WEATHER])
ENTRY = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
DIALECTS: dict[str, dict[str, Any]] = {
    "notes beside the messages": PLAIN | {"id": 7, "source": "x", "score": None},
    "settings of a request": PLAIN | {"model": 7, "temperature": "hot", "parallel_tool_calls": False},
    "nulls that a table added": chat(
        user(name=None, tool_calls=None),
        called('{"a": 1}', name=None),
        answered(name=None, tool_calls=None),
        assistant(),
    )
    | {"tools": [WEATHER | {"strict": None}], "functions": None},
    "tools as a string": PLAIN | {"tools": json.dumps([WEATHER])},
    "each tool as a string": PLAIN | {"tools": [json.dumps(WEATHER)]},
    "tools without their wrapper": PLAIN | {"tools": [WEATHER["function"]]},
    "tools with an input_schema": PLAIN | {"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    "one tool and no list": PLAIN | {"tools": WEATHER},
    "parameters as a string": PLAIN | {"tools": [{"name": "f", "parameters": '{"type": "object"}'}]},
    "functions": {key: value for key, value in PLAIN.items() if key != "tools"} | {"functions": [WEATHER["function"]]},
    "messages as a string": PLAIN | {"messages": json.dumps(PLAIN["messages"])},
    "arguments as an object": chat(user(), called({"a": 1}), answered(), assistant(), tools=[WEATHER]),
    "arguments encoded twice": chat(user(), called(json.dumps('{"a": 1}')), answered(), assistant(), tools=[WEATHER]),
    "calls as a string": chat(
        user(), assistant(None, tool_calls=json.dumps([ENTRY])), answered(), assistant(), tools=[WEATHER]
    ),
    "calls without a type": chat(
        user(),
        assistant(None, tool_calls=[{key: ENTRY[key] for key in ("id", "function")}]),
        answered(),
        assistant(),
        tools=[WEATHER],
    ),
    "bare calls": chat(
        user(),
        assistant(None, tool_calls=[{"id": "c1", "name": "f", "arguments": {"a": 1}}]),
        answered(),
        assistant(),
        tools=[WEATHER],
    ),
    "a content of text parts": chat(
        user([{"type": "text", "text": "Hi", "image_url": None}]), *PLAIN["messages"][1:], tools=[WEATHER]
    ),
    "a name on the result": chat(user(), called('{"a": 1}'), answered(name="f"), assistant(), tools=[WEATHER]),
    "no ids": chat(user(), called('{"a": 1}', None), answered(id_=None, name="f"), assistant(), tools=[WEATHER]),
    "function_call": chat(
        user(),
        assistant(None, function_call={"name": "f", "arguments": {"a": 1}}),
        {"role": "function", "name": "f", "content": "ok"},
        assistant(),
        tools=[WEATHER],
    ),
    "a prompt that repeats the user": PLAIN | {"prompt": "Hi", "prompt_id": "p"},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gives_the_same_conversation(dialect: str) -> None:
    expected, found = what_is_said([read(PLAIN)]), what_is_said([read(DIALECTS[dialect])])
    assert json.loads(json.dumps(expected).replace(" ", "")) == json.loads(json.dumps(found).replace(" ", ""))


def test_a_clean_row_needs_no_repair_and_reads_as_with_repair() -> None:
    clean = json.dumps(PLAIN).encode()
    assert is_clean(clean)
    for dialect in ("nulls that a table added", "arguments as an object", "calls without a type", "function_call"):
        assert not is_clean(json.dumps(DIALECTS[dialect]).encode())
    assert what_is_said([read(PLAIN)]) == what_is_said([read(PLAIN | {"note": None})])


@pytest.mark.parametrize("written", [ARGUMENTS, f"  {ARGUMENTS}", json.dumps(ARGUMENTS)])
def test_a_text_of_arguments_arrives_byte_by_byte_and_an_object_in_one_spelling(written: str) -> None:
    for given, expected in ((json.dumps(written), ARGUMENTS), (ARGUMENTS, ARGUMENTS.replace("\\u00e9", "é"))):
        row = (
            '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"id":"1","type":"function",'
        )
        row += f'"function":{{"name":"f","arguments":{given}}}}}]}}]}}'
        assert the_call(read(row)).arguments.strip() == expected


@pytest.mark.parametrize("tools", [f"[{TOOL}]", json.dumps(f"[{TOOL}]"), f"[{json.dumps(TOOL)}]", TOOL])
def test_schemas_arrive_byte_by_byte(tools: str) -> None:
    row = f'{{"messages":[{{"role":"user","content":"Hi"}}],"tools":{tools}}}'
    (tool,) = read(row).request.tools
    assert bytes(tool.parameters or b"").decode() == SCHEMA
    assert (tool.name, tool.description) == ("f", "d")


@pytest.mark.parametrize("nothing", [None, "", "[]", "null", []])
def test_no_tools_are_said_in_many_ways(nothing: Any) -> None:
    assert read(chat(user(), tools=nothing)).request.tools == []


def test_a_text_is_never_changed() -> None:
    text = " \n\tIt's <|im_end|> \\u0041 null \u2028 😀\u0000 "
    example = read(chat(user(text), assistant(text)))
    assert [text, text] == [text_content(item.content) for item in example.request.items]  # type: ignore[attr-defined]


@pytest.mark.parametrize("member", ["reasoning_content", "thinking", "reasoning"])
def test_thoughts_stand_before_what_is_said(member: str) -> None:
    items = read(chat(user(), assistant("Yes.", **{member: "Hm."}))).request.items
    assert [Thinking, Assistant] == [type(item) for item in items[1:]]
    assert text_content(items[1].content) == "Hm."  # type: ignore[attr-defined]


def test_a_result_may_be_an_object_or_nothing() -> None:
    row = '{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","tool_calls":[{"id":"1","type":"function",'
    row += '"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":{"t": 1.0}}]}'
    results = [item for item in read(row).request.items if isinstance(item, ToolResult)]
    assert ['{"t": 1.0}'] == [text_content(item.content) for item in results]
    assert read(chat(user(), called(), answered(None))).request.items[-1].kind == "tool_result"


def test_an_id_may_come_again_once_its_call_was_answered() -> None:
    row = chat(user(), called(), answered(), user(), called(), answered())
    assert len(read(row).request.items) == 6


def test_a_system_column_is_the_first_message() -> None:
    example = read(chat(user(), assistant(weight=0), system="Be kind."))
    assert isinstance(example.request.items[0], System)
    assert example.weights == {2: 0.0}
    same = chat({"role": "system", "content": "Be kind."}, user(), system="Be kind.")
    assert len(read(same).request.items) == 2
    assert refused(chat({"role": "system", "content": "Be cold."}, user(), system="Be kind.")) == (
        Code.SHAPE,
        "$.system",
    )


# Weights.


@pytest.mark.parametrize(
    ("mark", "weight"),
    [
        ({"weight": 0}, 0.0),
        ({"weight": 1}, 1.0),
        ({"weight": 0.25}, 0.25),
        ({"train": False}, 0.0),
        ({"trainable": True}, 1.0),
        ({"training": False}, 0.0),
        ({"loss": False}, 0.0),
        ({"loss_weight": 0.5}, 0.5),
        ({"masked": True}, 0.0),
        ({"masked": False}, 1.0),
        ({"weight": 1, "train": True}, 1.0),
        ({"masked": True, "train": False}, 0.0),
    ],
)
def test_marks_are_weights_of_all_items_of_the_message(mark: dict[str, Any], weight: float) -> None:
    example = read(chat(user(), called(reasoning_content="Hm.", **mark), answered(), assistant()))
    assert [Thinking, ToolCall] == [type(item) for item in example.request.items[1:3]]
    assert example.weights == {1: weight, 2: weight}
    for item in example.request.items:
        kept = item.extra | (item.envelope or {})
        assert kept.keys().isdisjoint({*MARKS, "masked"})


def test_marks_on_the_parts_of_a_content_are_those_of_the_message() -> None:
    parts = [{"type": "text", "text": "a", "train": False}, {"type": "text", "text": "b", "train": False}]
    example = read(chat(user(), assistant(parts)))
    assert example.weights == {1: 0.0}
    mixed = [{"type": "text", "text": "a", "train": True}, {"type": "text", "text": "b", "weight": 0}]
    assert refused(chat(user(), assistant(mixed))) == (Code.WEIGHT, "$.messages[1].content")


@pytest.mark.parametrize("mark", [2, -1, "1", 1.5, [1], {"a": 1}, 10**400, 1e308])
def test_a_mark_that_is_no_weight_is_refused(mark: Any) -> None:
    assert refused(chat(user(), assistant(weight=mark))) == (Code.WEIGHT, "$.messages[1].weight")


def test_marks_that_disagree_are_refused() -> None:
    assert refused(chat(user(), assistant(weight=1, train=False))) == (Code.WEIGHT, "$.messages[1]")


def test_a_message_and_its_parts_that_disagree_are_refused() -> None:
    part = {"type": "text", "text": "PART", "train": False}
    assert refused(chat(user(), assistant([part], weight=1))) == (Code.WEIGHT, "$.messages[1]")
    assert read(chat(user(), assistant([part], weight=0))).weights == {1: 0.0}


def test_a_mark_that_is_null_says_nothing() -> None:
    assert read(chat(user(), assistant(weight=None, masked=None, train_detail=[]))).weights == {}


@pytest.mark.parametrize("mark", ["train_detail", "training_detail"])
def test_marks_of_characters_are_refused(mark: str) -> None:
    """A weight is that of a whole message. To train all of one that says something else would be worse."""
    detail = [{"begin_offset": 0, "end_offset": 1, "train": False}]
    expected = (Code.WEIGHT, f"$.messages[1].{mark}")
    assert refused(chat(user(), assistant(**{mark: detail}))) == expected
    turns = [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello.", mark: detail}]
    with pytest.raises(BadRow, match="part of a text") as caught:
        get_form("sharegpt").read(json.dumps({"conversations": turns}).encode())
    assert (Code.WEIGHT, f"$.conversations[1].{mark}") == (caught.value.reason, caught.value.path)


# What is wrong.

WRONG: list[tuple[Any, Code, str]] = [
    (chat(user(), {"role": "robot", "content": "x"}), Code.ROLE, "$.messages[1].role"),
    (chat(), Code.EMPTY, "$"),
    (chat(user(""), assistant("")), Code.EMPTY, "$"),
    (chat(user(None)), Code.SHAPE, "$.messages[0].content"),
    (chat({"role": "user"}), Code.SHAPE, "$.messages[0].content"),
    (chat(user(), assistant(None)), Code.SHAPE, "$.messages[1].content"),
    (chat({"content": "Hi"}), Code.SHAPE, "$.messages[0].role"),
    (chat(user(7)), Code.SHAPE, "$.messages[0].content"),
    (chat(user({"a": 1})), Code.SHAPE, "$.messages[0].content"),
    (chat(user([{"type": "hologram", "data": "x"}])), Code.SHAPE, "$.messages[0].content[0]"),
    ({"messages": ["Hi"]}, Code.SHAPE, "$.messages[0]"),
    ({"messages": 7}, Code.SHAPE, "$.messages"),
    ({"messages": None}, Code.SHAPE, "$.messages"),
    ({"messages": "Hi"}, Code.JSON, "$.messages"),
    ({"turns": []}, Code.SHAPE, "$.messages"),
    (chat(user(), called("[1]"), answered()), Code.ARGS, "$.messages[1].tool_calls[0]"),
    (chat(user(), called("{'a': 1}"), answered()), Code.ARGS, "$.messages[1].tool_calls[0]"),
    (chat(user(), called('{"a": NaN}'), answered()), Code.ARGS, "$.messages[1].tool_calls[0]"),
    (chat(user(), called(json.dumps(json.dumps("{}")))), Code.ARGS, "$.messages[1].tool_calls[0]"),
    (chat(user(), answered()), Code.CALL, "$.messages[1]"),
    (chat(user(), called(), answered(id_="c2")), Code.CALL, "$.messages[2]"),
    (chat(user(), called(), answered(), answered()), Code.CALL, "$.messages[3]"),
    (chat(user(), called(), called()), Code.CALL, "$.messages[2].tool_calls[0]"),
    (chat(user(), answered(id_=None)), Code.CALL, "$.messages[1]"),
    (chat(user(), tools=[{"type": "function"}]), Code.SHAPE, "$.tools[0]"),
    (chat(user(), tools="{{"), Code.JSON, "$.tools"),
    (chat(user(), tools=7), Code.SHAPE, "$.tools"),
    (chat(user(), tools=[{"name": "f", "parameters": []}]), Code.SHAPE, "$.tools[0].parameters"),
    (chat(user(), chosen="x"), Code.FORM, "$.chosen"),
    (chat(user(), prompt="another"), Code.FORM, "$.prompt"),
    (chat(user(), images=["a.png"]), Code.FORM, "$.images"),
    (chat(user(), system_message="Be brief."), Code.FORM, "$.system_message"),
    (chat(user(), chat_template_kwargs={"xml_tools": ["{}"]}), Code.FORM, "$.chat_template_kwargs.xml_tools"),
    (chat(user(), chat_template_kwargs='{"python_tools": "[f]"}'), Code.FORM, "$.chat_template_kwargs.python_tools"),
    (chat(user(), assistant('<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>')), Code.FORM, "$.messages[1]"),
    (b"{", Code.JSON, "column 2"),
    (b"[]", Code.JSON, "$"),
    (b'{"messages": [{"role": "user", "content": "\xff"}]}', Code.UTF8, "column 44"),
    ('{"messages": [{"role": "user", "content": "\\ud800"}]}', Code.UTF8, ""),
    ('{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}", Code.JSON, "$"),  # more than any Python reads
]


@pytest.mark.parametrize(("row", "code", "pointer"), WRONG)
def test_what_is_wrong_has_a_code_and_a_place(row: Any, code: Code, pointer: str) -> None:
    found = refused(row)
    assert found[0] is code
    assert found[1] == pointer or not pointer


def test_a_call_without_a_name_is_refused() -> None:
    row = chat(user(), assistant(None, tool_calls=[{"function": {"arguments": "{}"}}]))
    assert refused(row)[0] in (Code.SHAPE, Code.CALL)
    row = chat(user(), assistant(None, tool_calls=[{"type": "function", "function": {"name": "", "arguments": "{}"}}]))
    assert refused(row)[0] is Code.CALL


def test_what_switches_a_chat_template_is_no_conversation() -> None:
    told = {"enable_thinking": False, "reasoning_effort": "low", "xml_tools": [], "custom_instructions": None, "n": 1}
    for spelled in (told, json.dumps(told), None):
        example = read(chat(user(), assistant("Hello."), chat_template_kwargs=spelled))
        assert len(example.request.items) == 2


def test_refusals_are_errors_of_the_row_and_nothing_else() -> None:
    with pytest.raises(BadRow, match="robot"):
        read(chat(user(), {"role": "robot", "content": "x"}))
