"""What can be read and is hardly meant is a warning of `turnscript check`, with its place and what it nearly is."""

import pytest

import turnscript as ts
from tests.cli.running import run
from turnscript.convert.format_reference import example

CHAT = """<ai00:system>
<ai00:available_tools>
  <tool name="get_weather">
    {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"},
      "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}}, "required": ["city"]}}
  </tool>
</ai00:available_tools>
</ai00:system>

<ai00:user>
Weather in Tokyo?
</ai00:user>

<ai00:assistant>
<think>
Let me look.
</think>
I'll check that for you.

<ai00:function_calls>
  <invoke name="get_weather">
    <parameter name="city">Tokyo</parameter>
    <parameter name="days">3</parameter>
  </invoke>
</ai00:function_calls>
<ai00:function_results>
  <result name="toolu_01abc123">
    {"temperature": 22}
  </result>
</ai00:function_results>

It's 22 degrees.
</ai00:assistant>
"""
DAYS = '<parameter name="days">3</parameter>'
AI00 = [
    ("</think>\n", "", "15:1: warning: </think> is missing: what <think> opened here goes on to the end of the turn"),
    ("<think>", "<thinks>", "15:1: warning: <thinks> is no mark of this format, so it is text; did you mean <think>?"),
    ("<ai00:function_calls>", "<ai00:function_cals>", "20:1: warning: <ai00:function_cals> is no mark"),
    ("<ai00:function_results>", "<ai00:functon_results>", "did you mean <ai00:function_results>?"),
    ("</ai00:function_results>", "</ai00:function_result>", "did you mean </ai00:function_results>?"),
    ("<invoke name", "<invok name", "21:3: fault: text where </ai00:function_calls> or <invoke is expected"),
    ("<invoke name", "<invok name", "did you mean <invoke?"),
    ("<parameter name", "<pparameter name", "did you mean <parameter?"),
    ("<result name", "<reslt name", "did you mean <result?"),
    ("<ai00:user>", "<ai00:usr>", "10:1: fault: a turn must begin here"),
    ("<ai00:user>", "<ai00:usr>", "did you mean <ai00:user>?"),
    ("</ai00:user>", "</ai00:usr>", "12:1: warning: </ai00:usr> is no mark"),
    (DAYS, DAYS.replace("3", "three"), "21:3: warning: the argument 'days' must be integer, as the tool 'get_weather'"),
    (DAYS, DAYS.replace("3", "2.5"), "the argument 'days' must be integer"),
    (DAYS, '<parameter name="unit">k</parameter>', "the argument 'unit' must be one of 'c', 'f'"),
    ('name="city"', 'name="town"', "the argument 'city' is missing, as the tool 'get_weather' is defined here"),
]
BATUTA = """<|im_start|>system
<|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
<tool_call>
{"name":"f","input":{}}
</tool_call><|im_end|>
<|im_start|>user
<tool_result id="call_1">42</tool_result><|im_end|>
"""
HARMONY = ts.get_format("harmony")
GOOSE = "User: Hi\n\nAssistant: Hello.\n\nUser: Bye\n\nAssistant: See you\n"


def told(text: str, format_: str) -> str:
    result = run("check", "-", "--format", format_, stdin=text)
    assert result.exit_code in (1, 3), result.stdout
    return result.stdout


@pytest.mark.parametrize(("right", "wrong", "words"), AI00)
def test_what_is_wrong_with_a_mark_is_said_where_it_stands(right: str, wrong: str, words: str) -> None:
    result = run("check", "-", "--format", "ai00-v1", stdin=CHAT)
    assert "" == "".join(line for line in result.stdout.splitlines() if "warning" in line or "fault" in line)
    assert words in told(CHAT.replace(right, wrong, 1), "ai00-v1")


def test_a_thought_that_is_not_closed_is_one_thing_and_not_each_mark_behind_it() -> None:
    said = told(CHAT.replace("</think>\n", "", 1), "ai00-v1")
    assert 1 == said.count("<stdin>:")


def test_marks_that_take_no_attributes_and_have_some_are_named() -> None:
    said = told(BATUTA, "batuta-chatml")
    assert "<stdin>:10:1: warning: <tool_result> takes no attributes here, so this is text" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (GOOSE.replace("Assistant", "Assistaant", 1), "3:1: warning: Assistaant: is no label of this format"),
        (GOOSE.replace("Assistant", "assistant", 1), "did you mean Assistant:?"),
        (
            GOOSE.replace("\nUser", "\nUsers"),
            "5:1: warning: Users: is no label of this format, so it is text; did you mean",
        ),
        (GOOSE.replace("\n\n", "\n"), "2:1: warning: Assistant: begins no turn without a blank line before it"),
        (
            GOOSE.replace("User", "Usr", 1),
            "1:1: fault: a turn must begin here: System: or User: or Assistant:; did you",
        ),
    ],
)
def test_a_label_that_begins_no_turn_is_named(text: str, words: str) -> None:
    assert words in told(text, "rwkv-goose")
    assert words in told(text.replace("\n", "\r\n"), "rwkv-goose")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<tink>a</tink> b", "3:12: warning: <tink> is no mark of this format, so it is text; did you mean <think>?"),
        ("<Think>a</Think> b", "3:12: warning: <Think> is no mark"),
        ("<thinc>a</think> b", "3:12: warning: <thinc> is no mark"),
        ("<thnik>a</think> b", "3:12: warning: <thnik> is no mark"),
        ("  <tink>a", "3:14: warning: <tink> is no mark"),
        ("</tink> b", "3:12: warning: </tink> is no mark"),
    ],
)
def test_a_tag_behind_the_label_of_a_turn_is_as_one_at_a_lines_begin(text: str, words: str) -> None:
    assert words in told(f"User: Hi\n\nAssistant: {text}\n", "rwkv-goose")


def test_a_mark_behind_the_word_that_opens_a_turn_is_named_in_harmony() -> None:
    text = "<|start|>user<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Yes<|end|>"
    said = told(str(HARMONY.document.start) + text.replace("<|channel|>final", "<|chanel|>final"), "harmony")
    assert "did you mean <|channel|>" in said


@pytest.mark.parametrize("begins", ["", "\ufeff"])
def test_the_ends_of_lines_and_a_mark_of_bytes_make_no_doubts(begins: str) -> None:
    text = begins + GOOSE.replace("\n", "\r\n")
    assert "warning" not in run("check", "-", "--format", "rwkv-goose", stdin=text.encode()).stdout


def test_what_only_looks_a_little_like_a_mark_is_a_text() -> None:
    """In the middle of a line, escaped, or less alike."""
    for words in (
        "See <thinks> there.",
        "Assistant: see <thinks>.",
        "<\\think>",
        "<div>\n<table>\n</div>",
        "Note: this.",
        "[1] and [INS]",
    ):
        items: list[ts.Item] = [ts.User(content=[ts.Text(text=words)])]
        request = ts.Request(conversation=ts.Conversation(items=items))
        for name in ("ai00-v1", "openchatml", "batuta-chatml", "rwkv-universal", "rwkv-goose"):
            text = str(ts.get_format(name).render(request).value)
            assert [] == ts.get_format(name).check(text)[1].all, name


# Calls and results.


def block(tag: str, payload: str = "{}") -> str:
    name = tag.split(" ", maxsplit=1)[0]
    close = f"END_{name}" if name.startswith("TOOL") else f"{name}_END"
    return f"<<{tag}>>\n{payload}\n<<{close}>>"


def universal(*blocks: str) -> str:
    return "\n\n".join([block("USER", "Hi"), *blocks])


F, G = block('TOOL_CALL name="f" id="c1"'), block('TOOL_CALL name="g" id="c2"')
OF_F, OF_G = block('TOOL_RESULT name="f" id="c1" status="ok"'), block('TOOL_RESULT name="g" id="c2"')
DONE = block("ASSISTANT", "Done.")
OPENCHATML = """[BOS]<|im_start|>user
Hi
<|im_end|>
<|im_start|>assistant
<|function_call|>
{"arguments": {}, "name": "f"}
<|im_end|>
<|im_start|>tool
<|function_output|>
{"name": "g", "content": {}}
<|im_end|>[EOS]"""
UNCALLED = """<|im_start|>system
<|im_end|>
<|im_start|>user
Hi<|im_end|>
<|im_start|>assistant
Hm.<|im_end|>
<|im_start|>user
<tool_result>42</tool_result><|im_end|>
"""
MORE = '  </result>\n  <result name="toolu_2">\n    1\n  </result>\n'
UNPAIRED = [
    (
        "rwkv-universal",
        universal(F, OF_G, DONE),
        "9:1: warning: no call that waits for a result has the id 'c2'; there is 'c1'",
    ),
    ("rwkv-universal", universal(F, OF_F, OF_F, DONE), "13:1: warning: no call waits for this result"),
    ("rwkv-universal", universal(F, F, OF_F, OF_F, DONE), "9:1: warning: the call at line 5 has the id 'c1', too"),
    ("rwkv-universal", universal(F, block("USER", "Well?")), "5:1: warning: no result answers this call of 'f', and"),
    ("rwkv-universal", universal(F, G, OF_F, DONE), "9:1: warning: no result answers this call of 'g'"),
    ("openchatml", OPENCHATML, "9:1: warning: no call that waits for a result has the name 'g'; there is 'f'"),
    ("batuta-chatml", UNCALLED, "8:1: warning: no call waits for this result"),
    ("ai00-v1", CHAT.replace("  </result>\n", MORE), "warning: no call waits for this result"),
]
PAIRED = [
    universal(F, OF_F, DONE),
    universal(F, G, OF_G, OF_F, DONE),
    universal(F, G),
    universal(F, G, OF_F),
    universal(block('TOOL_CALL name="f"'), block('TOOL_RESULT name="f"'), DONE),
    universal(block('TOOL_CALL name="f"'), OF_F, DONE),
]


@pytest.mark.parametrize(("name", "text", "words"), UNPAIRED)
def test_calls_and_results_that_do_not_fit_are_named(name: str, text: str, words: str) -> None:
    assert words in told(text, name)


@pytest.mark.parametrize("text", PAIRED)
def test_calls_and_results_that_fit_are_not(text: str) -> None:
    assert "" == run("check", "-", "--format", "rwkv-universal", stdin=text).stdout


@pytest.mark.parametrize("name", ts.formats())
def test_a_result_that_is_taken_out_is_missed_in_every_format(name: str) -> None:
    format_, request = ts.get_format(name), example()
    request.items.append(ts.User(content=[ts.Text(text="Thanks.")]))
    assert [] == format_.check(str(format_.render(request).value))[1].all
    request.conversation.items = [item for item in request.items if not isinstance(item, ts.ToolResult)]
    found = format_.check(str(format_.render(request).value))[1].all
    assert 1 == sum("no result answers this call" in one.message for one in found)


TYPED = '{"type": "object", "properties": {"n": {"type": ["number", "null"]}, "s": {"type": "string"}, "x": {}}}'
ARGUMENTS = [
    ('{"n": 1}', ""),
    ('{"n": null, "s": "a", "x": [1], "y": 2}', ""),
    ('{"n": "1"}', "the argument 'n' must be number or null"),
    ('{"n": true}', "the argument 'n' must be number or null"),
    ('{"s": 5}', "the argument 's' must be string"),
]


@pytest.mark.parametrize(("arguments", "words"), ARGUMENTS)
@pytest.mark.parametrize("change", ["", ' change=""'])
def test_arguments_are_held_to_what_the_transcript_says_of_the_tool(arguments: str, words: str, change: str) -> None:
    """At the beginning, or where tools change; to nothing where it says nothing."""
    defined = f'<<TOOLS{change}>>\n{{"name": "f", "parameters": {TYPED}}}\n<<TOOLS_END>>'
    call = block('TOOL_CALL name="f" id="c1"', arguments)
    blocks = [defined, universal(call)] if not change else [universal(defined.replace('=""', "=true"), call)]
    said = run("check", "-", "--format", "rwkv-universal", stdin="\n\n".join(blocks)).stdout
    assert words in said
    assert bool(words) == ("warning" in said)
    assert "warning" not in run("check", "-", "--format", "rwkv-universal", stdin=universal(call)).stdout


# All at once.


def lines_of(text: str, name: str = "rwkv-universal") -> list[str]:
    return [line for line in told(text, name).splitlines() if line.startswith("<stdin>:")]


def test_a_call_with_a_wrong_payload_and_no_name_has_two_faults() -> None:
    said = lines_of(universal(block('TOOL_CALL id="a"', "[1]")))
    assert 2 == len(said)
    assert "5:1: fault: <<TOOL_CALL needs the attribute 'name'" in said[0]
    assert "6:1: fault: the payload must be a JSON object" in said[1]


BAD = block('TOOL_CALL name="f" id="c1"', "[1]")
WITH_FAULTS = [
    (
        universal(BAD, F, OF_F, DONE),
        ["6:1: fault", "9:1: warning: the call at line 5 has the id 'c1', too", "no result answers this call"],
    ),
    (universal(BAD, OF_G, DONE), ["6:1: fault", "no call that waits for a result has the id 'c2'; there is 'c1'"]),
    (universal(BAD, block("USER", "Well?")), ["5:1: warning: no result answers this call of 'f'", "6:1: fault"]),
    (universal(F, OF_F, OF_F, BAD), ["13:1: warning: no call waits for this result", "the id 'c1', too", "fault"]),
    (universal(BAD, OF_F, DONE), ["6:1: fault"]),
    (universal(block("TOOL_CALL name=f id=c1"), OF_F, DONE), ["5:18: fault"]),  # it may have that id
    (universal(F, block("TOOL_RESULT id=c1"), DONE), ["9:18: fault"]),
]


@pytest.mark.parametrize(("text", "words"), WITH_FAULTS)
def test_faults_do_not_keep_from_naming_what_is_unpaired(text: str, words: list[str]) -> None:
    said = lines_of(text)
    assert all(word in "\n".join(said) for word in words)
    assert len(words) == len(said)


def test_what_was_not_read_may_be_what_is_missing() -> None:
    """A call behind a fault may be the one that a result answers; not that of another round."""
    broken = OPENCHATML.replace('{"arguments": {}, "name": "f"}', '{"arguments": {}, "name": "f"')
    assert "fault" in told(broken, "openchatml")
    assert "warning" not in told(broken, "openchatml")
    again = OPENCHATML.removeprefix("[BOS]").replace("[EOS]", "")
    assert "no call that waits for a result has the name 'g'" in told(
        broken.replace("[EOS]", "\n") + again + "[EOS]", "openchatml"
    )


def test_a_call_with_an_empty_name_is_named() -> None:
    said = lines_of(universal(block('TOOL_CALL name=""')))
    assert 1 == len(said)
    assert "5:1: warning: this call has an empty name" in said[0]


def defined(schema: str, *blocks: str) -> str:
    return "\n\n".join([f'<<TOOLS>>\n{{"name": "f", "parameters": {schema}}}\n<<TOOLS_END>>', universal(*blocks)])


CLOSED = '{"type": "object", "properties": {"n": {"type": "string"}}, "additionalProperties": false}'


def test_arguments_that_a_closed_schema_does_not_have_are_named_beside_others() -> None:
    call = block('TOOL_CALL name="f"', '{"n": 5, "m": 2}')
    said = lines_of(defined(CLOSED, call))
    assert 2 == len(said)
    assert "the argument 'n' must be string, as the tool 'f' is defined here" in "\n".join(said)
    assert "there is no argument 'm', as the tool 'f' is defined here" in "\n".join(said)
    patterns = CLOSED.replace('"additional', '"patternProperties": {"m": {}}, "additional')
    assert 1 == len(lines_of(defined(patterns, call)))


def test_a_call_of_a_tool_that_is_not_defined_is_named_where_some_are() -> None:
    said = lines_of(defined("{}", block('TOOL_CALL name="ff"'), block('TOOL_CALL name="other"')))
    assert 2 == len(said)
    assert "9:1: warning: no tool 'ff' is defined here; did you mean 'f'?" in said[0]
    assert "13:1: warning: no tool 'other' is defined here; there is 'f'" in said[1]
    removed = block('TOOLS change=true removed=["f"]', '{"name": "g"}').replace("END_TOOLS", "TOOLS_END")
    assert "no tool 'f' is defined here; there is 'g'" in told(defined("{}", removed, F), "rwkv-universal")
    broken = defined("{}", F).replace("}}", "}")
    assert all("fault" in line for line in lines_of(broken))
