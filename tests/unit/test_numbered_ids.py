"""Owns ids that a format makes of a tool's name and a number: given, kept, shown by results, read from a model."""

import pytest

import turnscript as ts
from tests.conformance.test_format_laws import check_document
from tests.conformance.test_parser_laws import events_behind, every_cut
from turnscript.core.conversation import text_content

KIMI = ts.get_format("kimi")
THINKING = ts.get_format("kimi-thinking")
OPEN, MARK, CLOSE = "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>"
SECTION, END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"


def said(text: str) -> list[ts.Part]:
    return [ts.Text(text=text)]


def asked(*items: ts.Item) -> ts.Request:
    conversation = ts.Conversation(items=list(items), tools=[ts.Tool(name="f"), ts.Tool(name="g")])
    request = ts.Request(conversation=conversation)
    request.locate()
    return request


def call(id_: str | None, name: str = "f") -> ts.ToolCall:
    return ts.ToolCall(name=name, id=id_, arguments="{}")


def result(id_: str | None) -> ts.ToolResult:
    return ts.ToolResult(id=id_, name="f", content=said("r"))


def shown(*items: ts.Item) -> list[str | None]:
    """The ids that are written, of calls and results."""
    again = KIMI.parse(str(KIMI.render(asked(*items)).value)).items
    return [item.id for item in again if isinstance(item, ts.ToolCall | ts.ToolResult)]


@pytest.mark.parametrize(
    ("items", "ids"),
    [
        ([call("functions.f:7"), result("functions.f:7")], ["functions.f:7"] * 2),
        ([call("call_a"), result("call_a")], ["functions.f:0"] * 2),
        ([call(None), result(None)], ["functions.f:0"] * 2),
        ([call("functions.g:0"), result("functions.g:0")], ["functions.f:0"] * 2),  # of another tool
        ([call("functions.f:x"), result("functions.f:x")], ["functions.f:0"] * 2),
        ([call("f:0"), result("f:0")], ["functions.f:0"] * 2),
        ([call("functions.f:1:2", "f:1"), call("b", "f:1")], ["functions.f:1:2", "functions.f:1:1"]),
        (
            [call("a"), call("b", "g"), result("b"), result("a"), call("c"), result("c")],
            ["functions.f:0", "functions.g:1", "functions.g:1", "functions.f:0", "functions.f:2", "functions.f:2"],
        ),
        ([call("a"), call("b"), result(None), result(None)], ["functions.f:0", "functions.f:1"] * 2),
        ([call("a"), result("")], ["functions.f:0"] * 2),
        ([call("a"), result("b\nc")], ["functions.f:0"] * 2),
        ([call("a"), result("b")], ["functions.f:0", "b"]),  # which answers nothing
        ([result(None), call("a")], [None, "functions.f:0"]),
        ([call("a"), result("a"), result(None)], ["functions.f:0", "functions.f:0", None]),
    ],
)
def test_a_call_has_an_id_of_its_own_tool_and_its_result_the_same(items: list[ts.Item], ids: list[str | None]) -> None:
    assert ids == shown(*items)
    check_document(KIMI, asked(*items))


def test_another_id_is_told_as_renamed_and_one_that_was_made_up_too() -> None:
    losses = KIMI.render(asked(call("call_a"), call(None), result("call_a"))).losses
    assert [("items[0].id", "renamed"), ("items[1].id", "invented"), ("items[2].id", "renamed")] == [
        (loss.path, loss.kind) for loss in losses
    ]
    assert [] == KIMI.render(asked(call("functions.f:3"), result("functions.f:3"))).losses


ANSWERS = {
    f"Hm.{SECTION}{OPEN}functions.f:0{MARK}{{}}{CLOSE}{OPEN}functions.g:1{MARK}{{}}{CLOSE}{END}": (
        ["functions.f:0", "functions.g:1"],
        [],
    ),
    f"Hm.{SECTION}{OPEN} functions.f:0 {MARK} {{}} {CLOSE}\n{OPEN}functions.g:12\n{MARK}{{}}{CLOSE}{END}": (
        ["functions.f:0", "functions.g:12"],
        [],
    ),
    f"Hm.{SECTION}{OPEN}f:0{MARK}{{}}{CLOSE}{OPEN}functions.g{MARK}{{}}{CLOSE}{END}": (["f:0", "functions.g"], []),
    f"Hm.{SECTION}{OPEN}functions.f:0{MARK}{{}}{OPEN}functions.g:1{MARK}{{}}": (
        ["functions.f:0", "functions.g:1"],
        ["missing_close"] * 2,
    ),
    f"Hm.{SECTION}{OPEN}functions.f:0{MARK}{{}}{CLOSE}{OPEN}functions.:1{MARK}{{}}{CLOSE}{END}": (
        ["functions.f:0"],
        ["invalid_call"],
    ),
}


@pytest.mark.parametrize("written", ANSWERS)
def test_what_a_model_writes_is_read_in_any_pieces(written: str) -> None:
    prompt = KIMI.prompt(asked(ts.User(content=said("q"))))
    whole = ts.fold(events_behind(prompt, [f"{written}<|im_end|>"]))
    calls = [item for item in whole.items if isinstance(item, ts.ToolCall)]
    ids, issues = ANSWERS[written]
    assert ["f", "g"][: len(ids)] == [item.name for item in calls]
    assert (ids, issues) == ([item.id for item in calls], [issue.kind for issue in whole.issues])
    for pieces in every_cut(f"{written}<|im_end|>"):
        again = ts.fold(events_behind(prompt, pieces))
        assert (whole.items, issues) == (again.items, [issue.kind for issue in again.issues])


def test_a_call_that_must_be_made_leaves_its_number_to_the_model() -> None:
    request = asked(ts.User(content=said("q")))
    for mode, name, end in (("named", "g", "functions.g:"), ("required", None, "functions.")):
        request.settings.tool_choice = ts.ToolChoice(mode=mode, name=name)
        prompt = KIMI.prompt(request)
        assert prompt.text.endswith(f"{SECTION}{OPEN}{end}")
        rest = f"{'' if name else 'g:'}4{MARK}{{}}{CLOSE}{END}"
        [made] = ts.fold(events_behind(prompt, list(rest))).items
        assert isinstance(made, ts.ToolCall)
        assert ("functions.g:4", "g") == (made.id, made.name)


@pytest.mark.parametrize("ids", [True, False], ids=["its own", "of a client"])
def test_a_session_goes_on_counting(ids: bool) -> None:
    """A prompt that grows writes what the whole conversation would, though the ids of a client are renamed in both."""
    prompt = KIMI.prompt(asked(ts.User(content=said("q"))))
    items: list[ts.Item] = [ts.User(content=said("q"))]
    for number in range(3):
        written = f"{SECTION}{OPEN}functions.f:{number}{MARK}{{}}{CLOSE}{END}<|im_end|>"
        response = ts.fold(events_behind(prompt, [written]))
        [made] = response.items
        assert isinstance(made, ts.ToolCall)
        made.id = made.id if ids else f"call_{number}"
        new = result(made.id)
        longer = prompt.extend(response, [new])
        assert longer is not None
        assert longer.text.startswith(prompt.text + written)
        prompt, items = longer, [*items, made, new]
    assert KIMI.prompt(asked(*items)).text == prompt.text


def test_a_result_may_answer_a_call_of_long_ago() -> None:
    prompt = KIMI.prompt(asked(ts.User(content=said("q")), call("old"), ts.User(content=said("wait"))))
    response = ts.fold(events_behind(prompt, ["Well.<|im_end|>"]))
    longer = prompt.extend(response, [result("old")])
    assert longer is not None
    assert "## Return of functions.f:0\nr<|im_end|>" in longer.suffix


def test_thoughts_stand_before_a_text_and_calls_and_none_is_empty() -> None:
    written = f"<think>Hm.</think>Well.{SECTION}{OPEN}functions.f:0{MARK}{{}}{CLOSE}{END}<|im_end|>"
    prompt = THINKING.prompt(asked(ts.User(content=said("q"))), thinking=True)
    assert prompt.text.endswith("<|im_assistant|>assistant<|im_middle|>")
    for pieces in every_cut(written):
        whole = ts.fold(events_behind(prompt, pieces))
        assert ["thinking", "assistant", "tool_call"] == [item.kind for item in whole.items]
        assert [] == whole.issues
    quiet = THINKING.prompt(asked(ts.User(content=said("q"))), thinking=False)
    assert quiet.text.endswith("<|im_middle|><think></think>")


def test_a_list_of_tools_comes_first_of_all() -> None:
    items = [ts.System(content=said("s")), ts.User(content=said("q"))]
    text = str(KIMI.render(asked(*items)).value)
    assert text.startswith("<|im_system|>tool_declare<|im_middle|>[{")
    read = KIMI.parse(text)
    assert (["f", "g"], ["s", "q"]) == (
        [tool.name for tool in read.tools],
        [text_content(item.content) for item in read.items],  # type: ignore[attr-defined]
    )
    assert text == KIMI.render(read).value


def test_a_call_that_must_be_made_begins_with_its_number() -> None:
    """Command A writes the number of a call before its name."""
    format_ = ts.get_format("command-a")
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="Hi")])]
    request = ts.Request(conversation=ts.Conversation(items=items, tools=[ts.Tool(name="f")]))
    request.settings.tool_choice = ts.ToolChoice("named", name="f")
    for number in range(3):
        assert format_.prompt(request).text.endswith(f'{{"tool_call_id": "{number}", "tool_name": "f", "parameters": ')
        parser = format_.prompt(request).parser()
        events = [*parser.feed("{}}\n]<|END_ACTION|>"), *parser.close()]
        (call,) = ts.fold(events).items
        assert isinstance(call, ts.ToolCall)
        assert (str(number), "f", "{}") == (call.id, call.name, call.arguments)
        items += [call, ts.ToolResult(id=call.id, name="f", content=[ts.Text(text="1")])]
