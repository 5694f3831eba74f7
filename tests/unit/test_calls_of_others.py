"""Owns calls under other keys, in arrays, behind other marks and joined by others, as models write them."""

import pytest

import turnscript as ts
from turnscript.core.conversation import ToolCall, text_content
from turnscript.core.json_text import json_of

TOOLS = [ts.Tool(name=name, parameters=json_of({"type": "object"})) for name in ("f", "g")]
Outline = list[tuple[str, str, str | None]]


def read(name: str, text: str, size: int) -> ts.Response:
    """A model's text, fed in pieces."""
    parser = ts.get_format(name).parser(TOOLS)
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return ts.fold(events + parser.close())


def outline(response: ts.Response) -> Outline:
    return [
        (item.name, item.arguments, item.id)
        if isinstance(item, ToolCall)
        else (item.kind, text_content(item.content), None)  # type: ignore[attr-defined]
        for item in response.items
    ]


COMMAND = '<|START_ACTION|>[\n    {"tool_call_id": "3", "tool_name": "f", "parameters": {"a": 1}}'
IDENTIFIED = "<|tool_call:begin|>c1<|tool_call:name|>f<|tool_call:args|>{}<|tool_call:end|>"
UNIDENTIFIED = "<|tool_call:begin|>g<|tool_call:args|>{}<|tool_call:end|>"
TAGS = "<|message|><atem:function_calls>\n<atem:invoke name="
ADDRESSED = f' to=f{TAGS}"f">\n<atem:parameter name="a">1</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
ANOTHER = f' to=g{TAGS}"g">\n</atem:invoke>\n</atem:function_calls>'
ANSWERS: list[tuple[str, str, Outline, list[str]]] = [
    # Other keys, and numbers for ids.
    (
        "command-a",
        COMMAND
        + ',\n    {"tool_call_id": 4, "tool_name": "g", "parameters": {}}\n]<|END_ACTION|><|END_OF_TURN_TOKEN|>',
        [("f", '{"a": 1}', "3"), ("g", "{}", "4")],
        [],
    ),
    ("command-a", COMMAND.replace("\n    ", "") + "]<|END_ACTION|>", [("f", '{"a": 1}', "3")], []),
    ("command-a", '<|START_ACTION|>[{"parameters":{},"tool_name":"f"}]<|END_ACTION|>', [("f", "{}", None)], []),
    (
        "command-r7b",
        "<|START_THINKING|>Hm.<|END_THINKING|>Hi.",
        [("thinking", "Hm.", None), ("assistant", "Hi.", None)],
        ["missing_open"],
    ),
    (
        "command-r",
        'Sure.\nAction: ```json\n[\n    {\n        "tool_name": "f",\n        "parameters": {}\n    }\n]\n```',
        [("assistant", "Sure.", None), ("f", "{}", None)],
        [],
    ),
    # Arrays: behind a word, in tags, and with nothing before them.
    (
        "firefunction",
        ' functools[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]<|eot_id|>',
        [("f", "{}", None), ("g", "{}", None)],
        [],
    ),
    ("phi4-mini", 'functools[{"name": "f", "arguments": {}}]<|end|>', [("f", "{}", None)], []),
    ("phi4-mini", "See functools.partial.<|end|>", [("assistant", "See functools.partial.", None)], []),
    ("granite33", '<|tool_call|>[{"name": "f", "arguments": {}}]<|end_of_text|>', [("f", "{}", None)], []),
    (
        "granite33",
        "<think>Hm.</think>\n<response>Hi.</response>",
        [("thinking", "Hm.", None), ("assistant", "Hi.", None)],
        [],
    ),
    (
        "minimax-m1",
        '<tool_calls>\n{"name": "f", "arguments": {}}\n{"name": "g", "arguments": {}}\n</tool_calls>',
        [("f", "{}", None), ("g", "{}", None)],
        [],
    ),
    (
        "xlam",
        '[{"name": "f", "arguments": {}},\n {"name": "g", "arguments": {}}]<|eot_id|>',
        [("f", "{}", None), ("g", "{}", None)],
        [],
    ),
    ("xlam", '[\n  {"name": "f", "arguments": {}}\n]', [("f", "{}", None)], []),
    (
        "xlam",
        '[{"name": "h", "arguments": {}}]<|eot_id|>',
        [("assistant", '[{"name": "h", "arguments": {}}]', None)],
        [],
    ),
    ("xlam", "[1] and [2]<|eot_id|>", [("assistant", "[1] and [2]", None)], []),
    # Joined by marks, and behind others.
    (
        "llama31",
        '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}<|eot_id|>',
        [("f", "{}", None), ("g", "{}", None)],
        [],
    ),
    (
        "llama31",
        '{"name": "f", "parameters": {}};{"name": "h", "parameters": {}}',
        [("f", "{}", None), ("assistant", ';{"name": "h", "parameters": {}}', None)],
        [],
    ),
    (
        "functionary31",
        'Hi.<function=f>{"a": ">"}</function><function=g>{}</function><|eom_id|>',
        [("assistant", "Hi.", None), ("f", '{"a": ">"}', None), ("g", "{}", None)],
        [],
    ),
    (
        "solar",
        f"<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|>{IDENTIFIED}{UNIDENTIFIED}<|calls|>",
        [("thinking", "Hm.", None), ("f", "{}", "c1"), ("g", "{}", None)],
        [],
    ),
    (
        "functionary32",
        'all\nSay >>> x\n.>>>f\n{"a": 1}>>>g\n{}<|eot_id|>',
        [("assistant", "Say >>> x\n.", None), ("f", '{"a": 1}', None), ("g", "{}", None)],
        [],
    ),
    ("functionary32", "f\n{}<|eot_id|>", [("f", "{}", None)], []),
    (
        "muse",
        f" to=self<|message|>Hm.<|eom|><|start|>assistant{ADDRESSED}<|eom|><|start|>assistant{ANOTHER}<|eot|>",
        [("thinking", "Hm.", None), ("f", '{"a": 1}', None), ("g", "{}", None)],
        [],
    ),
    ("muse", " to=user<|message|>Hi.<|eot|>", [("assistant", "Hi.", None)], []),
    # What ends a turn, and what does not.
    (
        "gigachat3",
        'Hi.<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "f", "arguments": {}}<|message_sep|>\n\n',
        [("assistant", "Hi.", None), ("f", "{}", None)],
        [],
    ),
    ("gigachat3", "Hi.<|message_sep|>\n\n", [("assistant", "Hi.", None)], []),
    ("reka", "The human: he errs.\n\n<sep>", [("assistant", "The human: he errs.", None)], []),
    ("minimax-m3", "</mm:think>Hi.[e~[", [("assistant", "Hi.", None)], []),
    (
        "apriel16",
        "Here are my reasoning steps:\nHm.\n[BEGIN FINAL RESPONSE]\nHi.\n<|end|>",
        [("thinking", "Hm.", None), ("assistant", "Hi.", None)],
        [],
    ),
]


@pytest.mark.parametrize(("name", "text", "expected", "odd"), ANSWERS)
def test_what_a_model_writes_is_read_alike_in_any_pieces(
    name: str, text: str, expected: Outline, odd: list[str]
) -> None:
    whole = read(name, text, len(text))
    assert (expected, odd) == (outline(whole), [issue.kind for issue in whole.issues])
    for size in (1, 2, 3, 7):
        assert whole == read(name, text, size)


def test_calls_are_numbered_and_their_results_say_the_same_number() -> None:
    items: list[ts.Item] = [
        ts.User(content=[ts.Text(text="Both?")]),
        ToolCall(name="f", arguments="{}", id="call_a"),
        ToolCall(name="g", arguments="{}", id="7"),
        ts.ToolResult(id="7", content=[ts.Text(text="second")]),
        ts.ToolResult(id="call_a", content=[ts.Text(text='"first"')]),
    ]
    request = ts.Request(conversation=ts.Conversation(items=items))
    request.locate()
    rendered = ts.get_format("command-a").render(request)
    again = ts.get_format("command-a").parse(str(rendered.value)).items
    assert ["0", "7", "7", "0"] == [item.id for item in again[1:]]  # type: ignore[attr-defined]
    assert ["second", '"first"'] == [text_content(item.content) for item in again[3:]]  # type: ignore[attr-defined]
    assert {("items[1].id", "renamed"), ("items[4].id", "renamed")} <= {
        (loss.path, loss.kind) for loss in rendered.losses
    }


def test_a_name_that_opens_a_text_is_told() -> None:
    request = ts.Request(
        conversation=ts.Conversation(items=[ToolCall(name=name, arguments="{}") for name in ("all", "f")])
    )
    request.locate()
    rendered = ts.get_format("functionary32").render(request)
    assert ["items[0].name"] == [loss.path for loss in rendered.losses if loss.path.endswith(".name")]


@pytest.mark.parametrize("said", ["a", "a >", ">", ">>>", "> a"])
def test_a_text_that_runs_into_the_opening_of_a_call_is_read_back(said: str) -> None:
    asked = ts.User(content=[ts.Text(text="q")])
    items: list[ts.Item] = [asked, ts.Assistant(content=[ts.Text(text=said)]), ToolCall(name="f", arguments="{}")]
    rendered = ts.get_format("functionary32").render(ts.Request(conversation=ts.Conversation(items=items)))
    again = ts.parse(rendered.value, "functionary32").items[1:]
    assert [] == [loss for loss in rendered.losses if loss.kind != "dropped"]
    assert [said, "f"] == [text_content(again[0].content), again[1].name]  # type: ignore[attr-defined]


@pytest.mark.deep
def test_many_calls_of_an_array_take_time_in_proportion() -> None:
    text = "[" + ", ".join(['{"name": "f", "arguments": {"a": 1}}'] * 4000) + "]"
    assert 4000 == len(read("xlam", text, 64).items)
