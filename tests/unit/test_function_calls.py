"""Owns the checks of calls as Python writes them and of calls in braces: what models write of them is read."""

import json

import pytest
from msgspec import Raw

import turnscript as ts
from turnscript.core.events import raw_text

LIST = "<|tool_call_start|>[{}]<|tool_call_end|>"
BRACES = "<|tool_call>call:{}<tool_call|>"
FUNCTIONS = [
    ("nothing", "f()", {}, []),
    ("either quote", "f(a='x', b=\"y\")", {"a": "x", "b": "y"}, []),
    ("words of Python's", "f(a=True, b=False, c=None)", {"a": True, "b": False, "c": None}, []),
    ("words of JSON's", "f(a=true, b=false, c=null)", {"a": True, "b": False, "c": None}, []),
    ("numbers", "f(a=-3, b=1.5e3, c=1_000, d=.5, e=0x10)", {"a": -3, "b": 1500.0, "c": 1000, "d": 0.5, "e": 16}, []),
    ("structures", "f(a=[1, ('x', {'k': []}), {}],)", {"a": [1, ["x", {"k": []}], {}]}, []),
    ("a key that is a number", "f(a={1: 2, True: 3})", {"a": {"1": 2, "true": 3}}, []),
    ("white space", "f ( a = 1 ,\n  b = [ ] )", {"a": 1, "b": []}, []),
    ("escapes of Python's", r"f(a='\x41\u00e9\101\U0001F600\'\a\d\/')", {"a": "A\u00e9A\U0001f600'\x07\\d\\/"}, []),
    ("a line that goes on", "f(a='x\\\ny')", {"a": "xy"}, []),
    ("a line break in a string", "f(a='x\ny')", {"a": "x\ny"}, []),
    ("three quotes", 'f(a="""x "y" \n""", b=\'\'\'\'\'\')', {"a": 'x "y" \n', "b": ""}, []),
    ("a quote that is not escaped", "f(a='it's 'a', b', c=1)", {"a": "it's 'a', b", "c": 1}, ["ambiguous_close"]),
    ("a quote in a list", "f(a=['it's', 'b'])", {"a": ["it's", "b"]}, ["ambiguous_close"]),
    ("a key in quotes", 'f("x y"=1)', {"x y": 1}, []),
]
BRACED = [
    ("nothing", "f{}", {}, []),
    ("strings are their texts", 'f{a:<|"|>x, "y" {z}\\n<|"|>}', {"a": 'x, "y" {z}\\n'}, []),
    ("tags in strings", 'f{a:<|"|><|tool_call>call:f{}<tool_call|><turn|><|"|>}', None, []),
    ("words and numbers", "f{a:true,b:null,c:-1.5e-05,d:None}", {"a": True, "b": None, "c": -1.5e-05, "d": None}, []),
    ("structures", 'f{a:[1,[<|"|>x<|"|>],{k:{}}]}', {"a": [1, ["x"], {"k": {}}]}, []),
    ("keys with blanks, and between marks", 'f{a b:1,<|"|>c:d<|"|>:2}', {"a b": 1, "c:d": 2}, []),
    ("white space", 'f {\n a : <|"|>x<|"|> , b : [ 1 , 2 ] }', {"a": "x", "b": [1, 2]}, []),
    ("a string without marks", "f{a:New York,b:[x]}", {"a": "New York", "b": ["x"]}, ["odd_call"]),
]
NONE = [
    (LIST, "f(1)"),
    (LIST, "f(a=Oslo)"),
    (LIST, "f(a={b: 1})"),
    (LIST, "f(a=[1, 2)"),
    (LIST, "f(a=1 b=2)"),
    (LIST, "f(a=)"),
    (LIST, "f(a={'b'})"),
    (BRACES, "f{a}"),
    (BRACES, "f{a:}"),
    (BRACES, "f{a:1"),
    (BRACES, "f{a:{b:1]}"),
    (BRACES, "f{{a:1}:2}"),
]


def read(text: str, size: int, tools: tuple[str, ...] | None = None) -> ts.Response:
    """What is read of a text in pieces of a size."""
    format_ = ts.get_format("gemma4" if "<|tool_call>" in text else "lfm2")
    parser = format_.parser(None if tools is None else [ts.Tool(name=name) for name in tools])
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.close()
    assert text == raw_text(events)
    return ts.fold(events)


@pytest.mark.parametrize("size", [1, 2, 5, 4096])
@pytest.mark.parametrize(
    ("call", "expected", "issues"), [row[1:] for row in FUNCTIONS], ids=[row[0] for row in FUNCTIONS]
)
def test_a_call_of_a_function_is_read(call: str, expected: object, issues: list[str], size: int) -> None:
    response = read(LIST.format(f"{call}, g()"), size)
    first, second = response.items
    assert isinstance(first, ts.ToolCall)
    assert ("f", expected) == (first.name, json.loads(first.arguments))
    assert isinstance(second, ts.ToolCall)
    assert ("g", "{}") == (second.name, second.arguments)
    assert issues == [issue.kind for issue in response.issues]


@pytest.mark.parametrize("size", [1, 2, 5, 4096])
@pytest.mark.parametrize(("call", "expected", "issues"), [row[1:] for row in BRACED], ids=[row[0] for row in BRACED])
def test_a_call_in_braces_is_read(call: str, expected: object, issues: list[str], size: int) -> None:
    response = read(BRACES.format(call), size)
    [item] = response.items
    assert isinstance(item, ts.ToolCall)
    expected = {"a": "<|tool_call>call:f{}<tool_call|><turn|>"} if expected is None else expected
    assert ("f", expected) == (item.name, json.loads(item.arguments))
    assert issues == [issue.kind for issue in response.issues]


@pytest.mark.parametrize(("around", "call"), NONE)
def test_what_is_no_call_stays_text(around: str, call: str) -> None:
    text = around.format(call)
    for size in (1, 3, 4096):
        response = read(text, size)
        assert [] == [item for item in response.items if isinstance(item, ts.ToolCall)]
        assert text == "".join(part.text for item in response.items for part in item.content)  # type: ignore[attr-defined]
        assert response.issues


@pytest.mark.parametrize("size", [1, 3, 4096])
def test_a_tag_that_closes_itself_is_a_call_without_arguments(size: int) -> None:
    """A habit of DeepSeek V4."""
    call = '<｜DSML｜invoke name="{}"{}>\n'
    inner = call.format("now", "/") + call.format("weather", "") + "</｜DSML｜invoke>\n"
    text = f"<｜DSML｜tool_calls>\n{inner}</｜DSML｜tool_calls>"
    parser = ts.get_format("deepseek-v4").parser()
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    items = ts.fold([*events, *parser.close()]).items
    assert [("now", "{}"), ("weather", "{}")] == [
        (one.name, one.arguments) for one in items if isinstance(one, ts.ToolCall)
    ]


TYPED = """
<｜DSML｜tool_calls>
<｜DSML｜invoke name="f">
<｜DSML｜parameter name="code" string="true">{"a": 1}</｜DSML｜parameter>
<｜DSML｜parameter name="n" string="false">-1.5</｜DSML｜parameter>
<｜DSML｜parameter name="list" string="false">[1, "x"]</｜DSML｜parameter>
<｜DSML｜parameter name="broken" string="false">{no}</｜DSML｜parameter>
</｜DSML｜invoke>
</｜DSML｜tool_calls>"""


@pytest.mark.parametrize("size", [1, 3, 4096])
def test_a_parameter_is_what_its_tag_says(size: int) -> None:
    """Whatever the schema says, or none does. What is no JSON is a text all the same."""
    schema = Raw(b'{"properties": {"code": {"type": "object"}, "n": {"type": "string"}}}')
    for tools in (None, [ts.Tool(name="f", parameters=schema)]):
        parser = ts.get_format("deepseek-v4").parser(tools)
        events = [event for at in range(0, len(TYPED), size) for event in parser.feed(TYPED[at : at + size])]
        [item] = ts.fold([*events, *parser.close()]).items
        assert isinstance(item, ts.ToolCall)
        expected = {"code": '{"a": 1}', "n": -1.5, "list": [1, "x"], "broken": "{no}"}
        assert expected == json.loads(item.arguments)


def test_a_name_in_an_attribute_may_be_escaped_as_in_xml() -> None:
    """Kimi K3 writes `&quot;` in one."""
    arguments = '{"q&a": "fish & chips", "say \\"hi\\"": "&amp;", "&quot;": 1}'
    format_ = ts.get_format("kimi-k3")
    items = [ts.User(content=[ts.Text(text="q")]), ts.ToolCall(name="f", arguments=arguments)]
    text = str(format_.render(ts.Request(conversation=ts.Conversation(items=items))).value)
    assert 'key="say &quot;hi&quot;" type="string"<|sep|>&amp;<|close|>' in text
    assert 'key="&amp;quot;" type="number"<|sep|>1<|close|>' in text
    [_, again] = format_.parse(text).items
    assert isinstance(again, ts.ToolCall)
    assert json.loads(arguments) == json.loads(again.arguments)


CITY = ("weather", '{"city": "Oslo"}')
BARE = [
    ("calls alone", '[weather(city="Oslo"), now()]<|eot|>', "", [CITY, ("now", "{}")]),
    ("in the model's own tags", '<|python_start|>[weather(city="Oslo")]<|python_end|><|eot|>', "", [CITY]),
    ("behind white space, not closed", '\n[weather(city="Oslo")', "", [CITY]),
    ("a tool that nobody offers", '[other(city="Oslo")]', '[other(city="Oslo")]', []),
    ("a link", "[weather](https://example.org)", "[weather](https://example.org)", []),
    ("no literal", "[weather(city=Oslo)] is a call.", "[weather(city=Oslo)] is a call.", []),
    ("words behind a call", '[weather(city="Oslo"), or so] it is', ", or so] it is", [CITY]),
    ("bare JSON", '{"name": "weather", "parameters": {"city": "Oslo"}}<|eot|>', "", [CITY]),
]


@pytest.mark.parametrize("size", [1, 2, 3, 4096])
@pytest.mark.parametrize(("text", "said", "calls"), [row[1:] for row in BARE], ids=[row[0] for row in BARE])
def test_a_list_that_nothing_opens_holds_calls_of_offered_tools(
    text: str, said: str, calls: list[tuple[str, str]], size: int
) -> None:
    """Llama 4 leaves its tags out."""
    parser = ts.get_format("llama4").parser([ts.Tool(name="weather"), ts.Tool(name="now")])
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    events += parser.close()
    assert text == raw_text(events)
    items = ts.fold(events).items
    assert calls == [(item.name, item.arguments) for item in items if isinstance(item, ts.ToolCall)]
    texts = [part.text for item in items if isinstance(item, ts.Assistant) for part in item.content]  # type: ignore[attr-defined]
    assert said == "".join(texts)
    assert len(texts) == bool(said)


@pytest.mark.parametrize("name", ["lfm2", "gemma4"])
@pytest.mark.parametrize("called", ["weather-of.x", "", "f(x=1)"])
@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "x", "b": [1, {"c": null}], "d": true}',
        '{"q\\"": "\\u00e9\\n\\\\ <|im_end|> <|\\"|> \\u0000", "": {"": ""}, "k,v:": [], "é": -0.0}',
        '{"big": 123456789012345678901234567890, "e": 1e400, "long": "' + "ab " * 400 + '"}',
        '["no", "object"]',
        "no JSON",
    ],
)
def test_what_is_written_is_read_again(name: str, called: str, arguments: str) -> None:
    format_ = ts.get_format(name)
    call, result = ts.ToolCall(name=called, arguments=arguments), ts.ToolResult(content=[ts.Text(text="ok")])
    items = [ts.User(content=[ts.Text(text="q")]), call, result]
    rendered = format_.render(ts.Request(conversation=ts.Conversation(items=items)))
    again = format_.parse(str(rendered.value)).items[1]
    assert isinstance(again, ts.ToolCall)
    assert call.name == again.name
    try:
        expected = json.loads(arguments)
    except ValueError:
        expected = None
    expected = expected if isinstance(expected, dict) else {"arguments": arguments}
    assert expected == json.loads(again.arguments)
    assert again.arguments == arguments or ".arguments" in " ".join(loss.path for loss in rendered.losses)


def test_a_result_in_the_turn_of_the_model_says_its_tool() -> None:
    """Whatever its text holds, and in other members, too."""
    format_ = ts.get_format("gemma4")
    results = [ts.ToolResult(name=name, content=[ts.Text(text=text)]) for name, text in RESULTS]
    calls = [ts.ToolCall(name=name, arguments="{}") for name, _ in RESULTS]
    items = [ts.User(content=[ts.Text(text="q")]), *calls, *results]
    text = str(format_.render(ts.Request(conversation=ts.Conversation(items=items))).value)
    again = [item for item in format_.parse(text).items if isinstance(item, ts.ToolResult)]
    assert RESULTS == [(item.name, "".join(part.text for part in item.content)) for item in again]  # type: ignore[attr-defined]
    other = text.replace('{value:<|"|>rain<|"|>}', '{sky:<|"|>grey<|"|>,wet:true}')
    [first, *_] = [item for item in format_.parse(other).items if isinstance(item, ts.ToolResult)]
    assert '{"sky": "grey", "wet": true}' == "".join(part.text for part in first.content)  # type: ignore[attr-defined]


RESULTS = [("f", "rain"), ("x y{", '<|"|>}<tool_response|>'), ("g", ""), ("h", '{"a": 1}\n')]


@pytest.mark.parametrize("name", ["gemma4", "lfm2", "llama4", "qwen3"])
def test_arguments_that_the_prompt_has_begun_are_told_as_they_come(name: str) -> None:
    """Who only reads the deltas has the whole call."""
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="q")])]))
    request.conversation.tools = [ts.Tool(name="f")]
    items = [*request.items, ts.ToolCall(name="f", arguments='{"a": "x"}')]
    request.settings.tool_choice = ts.ToolChoice(mode="named", name="f")
    prompt = ts.get_format(name).prompt(request)
    whole = ts.Request(conversation=ts.Conversation(items=items, tools=request.tools))
    written = str(ts.get_format(name).render(whole, view="prompt").value).removeprefix(prompt.text)
    parser = prompt.parser()
    events = [event for piece in written for event in parser.feed(piece)] + parser.close()
    told = "".join(event.text for event in events if isinstance(event, ts.PartDelta))
    assert {"a": "x"} == json.loads(told)
