"""Owns the ids of calls and results in declared formats: who shows them, and how the two find each other by them."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import turnscript as ts
from tests.conformance.test_format_laws import check_inverse
from turnscript.convert.registry import load_formats
from turnscript.core.conversation import Item
from turnscript.formats.format import Format

ROOT = Path(__file__).resolve().parents[2]
TAGGED = (ROOT / "tests" / "formats" / "tagged.toml").read_text(encoding="utf-8")
FOR = '{ key = "for", path = "id", prompt = true }'
OF = '{ key = "of", path = "name", prompt = true }'
JSON = '{ name = "json-call", spaced = true }'
ID = '{ key = "id", path = "id", prompt = true }'
NAME = '{ key = "tool", path = "name", prompt = true }'
SHOWN = 'open = "<{tag}"\nhead_end = ">\\n"\nattributes = [{attributes}]\n'


def format_of(results: str, result: str, call: str = "", body: str = "") -> Format:
    """The example format with another word for how results find calls; a result with attributes, and maybe a call."""
    text = TAGGED.replace('results = "hidden"', f'results = "{results}"')
    plain = 'kind = "tool_result"\nbody = "text"\n'
    shown = SHOWN.format(tag="result", attributes=result) + 'close = "\\n</result>"\n'
    text = text.replace(plain, plain + shown)
    if call:
        text = text.replace('open = "<call>\\n"\n', SHOWN.format(tag="call", attributes=call))
    [format_] = load_formats(text.replace(JSON, body) if body else text)
    return format_


def call(name: str = "f", id_: str | None = None, **arguments: Any) -> ts.ToolCall:
    return ts.ToolCall(name=name, id=id_, arguments=json.dumps(arguments))


def result(text: str, name: str | None = "f", id_: str | None = None) -> ts.ToolResult:
    return ts.ToolResult(name=name, id=id_, content=[ts.Text(text=text)])


def asking(*items: Item) -> ts.Request:
    return ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="q")]), *items]))


def test_a_result_of_one_text_shows_its_id() -> None:
    """Whatever its payload is: a table that says so is obeyed."""
    format_ = format_of("on_results", FOR)
    request = asking(call(id_="c1"), result("22", id_="c1"))
    rendered = format_.render(request)
    assert '<result for="c1">\n22\n</result>' in str(rendered.value)
    assert [] == rendered.losses
    check_inverse(format_, request)


def test_a_result_of_one_text_shows_the_name_of_its_tool() -> None:
    format_ = format_of("named", OF)
    request = asking(call("f"), call("g"), result("22", "g"), result("23", "f"))
    rendered = format_.render(request)
    assert ['<result of="g">', '<result of="f">'] == [
        line for line in str(rendered.value).split("\n") if line.startswith("<result")
    ]
    assert [] == rendered.losses
    check_inverse(format_, request)


def test_a_result_without_a_name_shows_the_name_of_the_call_that_it_answers() -> None:
    format_ = format_of("named", OF)
    rendered = format_.render(asking(call("f"), call("g"), result("22", None), result("23", None)))
    assert ['<result of="f">', '<result of="g">'] == [
        line for line in str(rendered.value).split("\n") if line.startswith("<result")
    ]


TABLES = {
    "in JSON": (FOR, ID, ""),
    "in the opening": (FOR, f"{NAME}, {ID}", '"call-arguments"\nrequired = "name"'),
    "the id first": (f"{OF}, {FOR}", f"{ID}, {NAME}", '"call-arguments"\nrequired = "name"'),
    "and a name for none": ('{ key = "for", path = "id", prompt = true, fallback = "name" }', ID, ""),
}
CALLED: dict[str, list[Item]] = {
    "in order": [call("f", "c1"), call("g", "c2"), result("1", "f", "c1"), result("2", "g", "c2")],
    "the other way round": [call("f", "c1"), call("g", "c2"), result("2", "g", "c2"), result("1", "f", "c1")],
    "of one name": [call("f", "c1"), call("f", "c2"), result("2", "f", "c2")],
    "without results": [call("f", "c1")],
    "without ids": [call("f"), result("1", "f")],
    "only one of them": [call("f"), call("g", "c2"), result("2", "g", "c2")],
    "not the result": [call("f", "c1"), result("1", "f")],
    "not the call": [call("f"), result("1", "f", "c1")],
    "an orphan": [result("1", "h", "c9"), call("f", "c1"), result("1", "h")],
    "ids that are names": [call("f", "g"), call("g", "f"), result("1", "f", "g"), result("2", "g", "f")],
    "an id that is a tool": [result("1", None, "h"), call("f"), result("2", "f")],
    "no ids and names": [call("f", "c1"), call("g"), result("1", None), result("2", None), result("3", None)],
    "only ids": [call("f", "c1"), call("g", "c2"), result("1", None, "c2"), result("2", None, "c1")],
    "odd ids": [call("f", "a b"), result("1", "f", "a b"), call("g", '<"'), result("2", "g", '<"')],
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CALLED)
def test_calls_that_show_their_ids_keep_them(table: str, name: str) -> None:
    """What comes back is what was written, or a loss says so; where all have id and name, nothing of them is lost."""
    format_ = format_of("on_results", *TABLES[table])
    request = asking(*CALLED[name])
    check_inverse(format_, request)
    paired = [item for item in CALLED[name] if isinstance(item, ts.ToolCall | ts.ToolResult)]
    ids = [item.id for item in paired]
    calls = {item.id for item in CALLED[name] if isinstance(item, ts.ToolCall)}
    if None not in [*ids, *(item.name for item in paired)] and calls >= set(ids):
        assert [] == format_.render(request).losses


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", CALLED)
def test_what_is_read_is_written_again(table: str, name: str) -> None:
    """L3: a reader finds no id and no name that the writer would not have shown."""
    format_ = format_of("on_results", *TABLES[table])
    written = str(format_.render(asking(*CALLED[name])).value)
    assert written == format_.render(format_.parse(written)).value


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("mode", ["named", "required"])
def test_a_prompt_that_forces_a_call_opens_it_as_the_table_says(table: str, mode: str) -> None:
    """D-X-7: with the attributes of the table, in its order, and the id that the next call gets."""
    format_ = format_of("on_results", *TABLES[table])
    asked = ts.Request(conversation=ts.Conversation(items=asking().items, tools=[ts.Tool(name="f")]))
    asked.settings.tool_choice = ts.ToolChoice(mode=mode, name="f" if mode == "named" else None)
    forced = call("f", "call_auto_001", a=1)
    whole = ts.Request(conversation=ts.Conversation(items=[*asked.items, forced], tools=asked.tools))
    prompt = format_.prompt(asked)
    written = str(format_.render(whole, view="prompt").value)
    assert "<call " in prompt.text
    assert written.startswith(prompt.text)
    parser = prompt.parser()
    answer = ts.fold([*parser.feed(written[len(prompt.text) :]), *parser.close()])
    assert ([forced], []) == (answer.items, answer.issues)


@pytest.mark.parametrize("results", ["hidden", "named"])
@pytest.mark.parametrize("name", CALLED)
def test_ids_that_are_shown_are_kept_where_results_answer_in_order(results: str, name: str) -> None:
    """What a model sees comes back, though nothing is found by it."""
    for shown in ((OF, ID), (f"{OF}, {FOR}", ""), (f"{OF}, {FOR}", ID)):
        format_ = format_of(results, *shown)
        request = asking(*CALLED[name])
        check_inverse(format_, request)
        back = format_.parse(str(format_.render(request).value)).items
        for kind, seen in ((ts.ToolCall, bool(shown[1])), (ts.ToolResult, FOR in shown[0])):
            ids = [[item.id for item in items if isinstance(item, kind)] for items in (request.items, back)]
            assert ids[1] == (ids[0] if seen else [None] * len(ids[0]))


@pytest.mark.parametrize("custom", [False, True])
@pytest.mark.parametrize(
    "arguments", ["", "free", "[1]", '{"a": ', "a\n</call>b", "x\n", "\n", "<\\/call>", " <", "\\"]
)
def test_arguments_that_are_no_object_come_back_where_the_opening_says_so(arguments: str, custom: bool) -> None:
    """D-U-11: `call-arguments` marks them, in speakers' turns as elsewhere."""
    format_ = format_of("on_results", *TABLES["in the opening"])
    odd = ts.ToolCall(name="f", arguments=arguments, id="c1", custom=custom)
    items: list[Item] = [odd, call("f", "c2", a=1), replace(odd, id="c3")]
    rendered = format_.render(asking(*items))
    assert [] == rendered.losses
    assert items == format_.parse(str(rendered.value)).items[1:]
    written = str(rendered.value)
    for pieces in ([written], list(written)):  # what a model writes is JSON or text
        parser = format_.parser([ts.Tool(name="f")])
        answer = ts.fold([event for piece in pieces for event in parser.feed(piece)] + parser.close())
        assert not any(isinstance(item, ts.ToolCall) and item.arguments == arguments for item in answer.items)
