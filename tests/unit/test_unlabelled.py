"""Owns the checks of telling what an unlabelled source is, where its first character does not tell."""

import contextlib
import json

import pytest

import turnscript as ts
from tests.cli.running import run
from turnscript.convert.recognition import recognise
from turnscript.core.json_text import json_of

MESSAGES = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
BODY = {"model": "m", "messages": MESSAGES}
MARK = "\ufeff"


@pytest.mark.parametrize("name", ts.formats())
def test_the_archive_of_every_format_is_known_for_a_transcript(name: str) -> None:
    """Some formats read alike, and the first of them is told."""
    text = ts.render(ts.parse(BODY), name).value
    told = ts.detect_api(text)
    assert told in ts.formats()
    assert ts.parse(text, told) == ts.parse(text) == ts.parse(text.encode())


def test_a_transcript_that_begins_with_a_bracket_is_no_list() -> None:
    text = ts.render(ts.parse(BODY), "openchatml").value
    assert text.startswith("[")
    assert "openchatml" == ts.detect_api(text) == ts.detect_api(f"\n{text}") == ts.detect_api(text.encode())
    assert MESSAGES == ts.convert(text, "auto", "openai-chat").value["messages"]


@pytest.mark.parametrize("source", [BODY, MESSAGES])
def test_a_byte_order_mark_before_a_body_is_none_of_it_as_text_as_in_bytes(source: object) -> None:
    text = f"{MARK}{json.dumps(source)}"
    assert ts.parse(json.dumps(source)) == ts.parse(text) == ts.parse(text.encode())


def test_a_byte_order_mark_before_an_answer_is_none_of_it() -> None:
    text = json.dumps({"choices": [{"message": {"content": "Hi"}, "finish_reason": "stop"}]})
    assert ts.parse_response(text) == ts.parse_response(f"{MARK}{text}") == ts.parse_response(f"{MARK}{text}".encode())


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ('[{"role": "user" "content": "x"}]', 1, 18, "expected ',' or '}'"),
        ('[{"role": "user", "content": "x"},\n {"role" "user"}]', 2, 10, "expected ':'"),
        ("[1, 2", 1, 6, "ends in the middle"),
        ("[] x", 1, 4, "trailing characters"),
    ],
)
@pytest.mark.parametrize("mark", ["", MARK])
def test_a_broken_list_is_broken_where_it_says(text: str, line: int, column: int, message: str, mark: str) -> None:
    """The list is read as part of a body, whose beginning nobody has written."""
    for source in (f"{mark}{text}", f"{mark}{text}".encode()):
        with pytest.raises(ts.InvalidRequest) as caught:
            ts.parse(source)
        assert (line, column) == (caught.value.line, caught.value.column)
        assert message in caught.value.message


def test_a_list_with_a_byte_that_is_no_text_says_where_that_is() -> None:
    with pytest.raises(ts.InvalidRequest, match="0xff is not UTF-8") as caught:
        ts.parse(b'["\xff"]')
    assert (1, 3) == (caught.value.line, caught.value.column)


ODD = ["[]", "{}", "null", "5", '"x"']
MEMBERS = ["type", "object", "event", "choices", "output", "response", "delta", "error", "item", "messages", "input"]


@pytest.mark.parametrize("value", ODD)
@pytest.mark.parametrize("member", MEMBERS)
def test_what_is_told_by_its_members_is_told_or_refused_whatever_they_are(member: str, value: str) -> None:
    """Each API is asked whether it knows its own signs there."""
    body = f'{{"{member}": {value}}}'
    for source in (body, f"data: {body}\n\n", f"event: x\ndata: {body}\n\n"):
        for read in (ts.parse, ts.parse_response, ts.parse_exchange):
            with contextlib.suppress(ts.TurnscriptError):
                read(source)


@pytest.mark.parametrize("value", ODD)
def test_a_member_that_one_api_cannot_read_hides_nothing_from_the_others(value: str) -> None:
    body = f'{{"type": {value}, "choices": [{{"index": 0, "delta": {{"content": "Hi"}}, "finish_reason": "stop"}}]}}'
    assert "openai-chat" == ts.parse_response(f"data: {body}\n\ndata: [DONE]\n\n").origin


ASK = [{"role": "user", "content": "Hi"}]
MESSAGES_SIGNS = [
    {"stop_sequences": ["\n\n"]},
    {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"thinking": {"type": "adaptive"}},
    {"output_config": {"effort": "low"}},
    {"output_format": {"type": "json_schema", "schema": {"type": "object"}}},
    {"context_management": {"edits": []}},
    {"mcp_servers": [{"type": "url", "url": "https://x", "name": "x"}]},
    {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    {"tools": [{"type": "function", "name": "f"}], "tool_choice": {"type": "any"}},
    {"messages": [*ASK, {"role": "assistant", "content": [{"type": "text", "text": "Hello", "citations": None}]}]},
    {"messages": [*ASK, {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "n"}]}]},
]
CHAT_SIGNS = [
    {"messages": [{"role": "developer", "content": "Be brief."}, *ASK]},
    {"messages": [*ASK, {"role": "assistant", "content": None, "tool_calls": []}]},
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}]},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"messages": [{"role": ["user"], "content": "Hi"}]},
    {"messages": [{"role": "system", "content": "Be brief."}, *ASK]},
    {"messages": [{"role": "user", "name": "ann", "content": "Hi"}]},
    {"messages": [*ASK, {"role": "assistant", "content": None, "refusal": "No."}, *ASK]},
    {"stream": True, "stream_options": {"include_usage": True}},
    {"stop": ["."]},
    {"stop": ["."], "stop_sequences": ["."]},
    {"max_completion_tokens": 9, "tool_choice": {"type": "any"}},
    {"response_format": {"type": "json_object"}},
    {"reasoning_effort": "low", "output_config": {}},
    {"frequency_penalty": 0.1, "mcp_servers": []},
]
SAID_BY_BOTH = [
    {"thinking": {"type": "enabled"}},
    {"thinking": "So.", "stop_sequences": "stop", "output_format": "markdown", "context_management": None},
    {"tool_choice": "auto", "tools": []},
    {"tool_choice": {"type": "auto"}},
    {"tool_choice": {"type": "none"}},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"tools": [{"type": "web_search"}]},
]


@pytest.mark.parametrize("sign", MESSAGES_SIGNS, ids=json.dumps)
def test_what_only_messages_can_ask_for_tells_its_requests(sign: dict[str, object]) -> None:
    """Requests as they are recorded from Anthropic's SDKs, without tools and instructions that would tell it sooner."""
    assert "anthropic-messages" == ts.detect_api({"model": "m", "max_tokens": 9, "messages": ASK} | sign)


@pytest.mark.parametrize("sign", CHAT_SIGNS, ids=json.dumps)
def test_messages_of_another_api_are_that_whatever_is_asked(sign: dict[str, object]) -> None:
    """Servers that speak several take the budget of thinking anywhere, as Anthropic's own does in Chat Completions."""
    body = {"model": "m", "max_tokens": 9, "messages": ASK, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert "openai-chat" == ts.detect_api(body | sign)


@pytest.mark.parametrize("sign", SAID_BY_BOTH, ids=json.dumps)
def test_what_others_say_too_is_no_sign(sign: dict[str, object]) -> None:
    assert "openai-chat" == ts.detect_api({"model": "m", "max_tokens": 9, "messages": ASK} | sign)


def test_a_request_that_is_told_so_keeps_what_it_asks_for() -> None:
    body = {
        "max_tokens": 9,
        "messages": ASK,
        "stop_sequences": ["."],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    chat = ts.convert(body, "auto", "openai-chat").value
    assert (["."], "low") == (chat["stop"], chat["reasoning_effort"])


V0 = 'User: hi\n\nAssistant: <tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>\n\nUser: ok'
SPACED = "<|im_start|>user\nhi\n<|im_end|>\n<|im_start|>assistant\nHello.\n<|im_end|>"
CALLED = 'hi\n<|im_end|>\n<|im_start|>assistant\n<|function_call|>\n{"arguments": {"a": 1}, "name": "f"}<|im_end|>'


@pytest.mark.parametrize(
    ("text", "name", "mark"),
    [
        (V0, "rwkv-goose-hermes", "'<tool_call>', and ai00-v0 would read it alike"),
        (SPACED, "openchatml", r"'\n<|im_end|>'"),
        (f"<|im_start|>user\n{CALLED}", "openchatml", "'<|function_call|>'"),
        ("<|im_start|>user\nhi<|im_end|>", "batuta-chatml", "no other format has more of what stands in it"),
        ("<ai00:user>\nhi\n</ai00:user>", "ai00-v1", "no other format begins so"),
    ],
)
def test_a_transcript_is_known_by_what_only_its_format_has(text: str, name: str, mark: str) -> None:
    found = recognise(text)
    assert found is not None
    assert (name, True) == (found.name, mark in found.reason), found
    assert name == ts.detect_api(text)


def test_a_transcript_that_two_formats_read_differently_is_refused_with_both_names() -> None:
    both = V0.replace("User: ok", 'User: ok\n\nAssistant: ```json\n{"name":"f","arguments":{}}\n```')
    with pytest.raises(ts.InvalidInput, match="rwkv-goose or rwkv-goose-hermes or ai00-v0, which read it differently"):
        ts.parse(both)
    assert ts.parse(both, "rwkv-goose").items != ts.parse(both, "ai00-v0").items


WRITES_A_MARK = [{"role": "user", "content": 'How do I write <tool_call>{"name":"f"}</tool_call>?'}]


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("batuta-chatml", "batuta-chatml or openchatml"),
        ("batuta-llama3", "batuta-llama3 or llama31"),
        ("rwkv-goose-hermes", "rwkv-goose or rwkv-goose-observation or rwkv-goose-hermes or ai00-v0"),
        ("ai00-v0", "rwkv-goose or rwkv-goose-observation or rwkv-goose-hermes or ai00-v0"),
    ],
)
def test_a_content_with_escapes_of_some_formats_only_is_refused_with_all_their_names(name: str, named: str) -> None:
    """What stands in a content tells nothing, such as the beginning of a call of another format."""
    text = ts.convert(WRITES_A_MARK, "auto", name).value
    with pytest.raises(ts.InvalidInput, match=f"this may be {named}, which read it differently"):
        ts.parse(text)
    assert WRITES_A_MARK == ts.convert(text, name, "openai-chat").value["messages"]


def test_a_mark_that_a_content_quotes_is_no_sign_of_its_format() -> None:
    text = str(ts.convert(WRITES_A_MARK, "auto", "rwkv-goose").value)
    assert WRITES_A_MARK == ts.convert(text, "auto", "openai-chat").value["messages"]


def test_a_transcript_with_an_unknown_role_is_told_the_roles_of_its_format() -> None:
    for text in ("[BOS]<|im_start|>critic\nHi<|im_end|>[EOS]", "<|begin_of_text|><|start_header_id|>critic"):
        with pytest.raises(ts.InvalidTranscript, match=r"a turn must begin here: .*system.* or .*assistant"):
            ts.parse(text)


def test_a_call_of_the_first_format_of_ai00_becomes_one_of_the_second() -> None:
    assert '<invoke name="f">' in ts.convert(V0, "auto", "ai00-v1", strict=True).value


@pytest.mark.parametrize("name", ts.model_formats())
def test_a_transcript_of_a_model_is_not_taken_for_one_that_reads_half_of_it(name: str) -> None:
    """Where a registered format begins alike, the one with more marks is told, or all that may be meant."""
    tools = [ts.Tool(name="f", description="d", parameters=json_of({"type": "object"}))]
    items: list[ts.Item] = [ts.System(content=[ts.Text(text="Be brief.")]), ts.User(content=[ts.Text(text="Hi")])]
    items += [ts.ToolCall(name="f", id="c"), ts.ToolResult(name="f", id="c", content=[ts.Text(text="ok")])]
    request = ts.Request(conversation=ts.Conversation(items=items, tools=tools))
    format_ = ts.get_format(name)
    text = str(format_.render(request).value)
    with contextlib.suppress(ts.InvalidInput):
        read, own = ts.parse(text), format_.parse(text)
        assert (read.items, read.tools) == (own.items, own.tools)


@pytest.mark.parametrize(
    ("text", "name", "opening"),
    [
        ("<ai00:usr>\nHi\n</ai00:usr>\n", "ai00-v1", "<ai00:user>"),
        ("<<UUSER>>\nHi\n<<USER_END>>\n", "rwkv-universal", "<<USER"),
        ("<|im_strat|>user\nHi<|im_end|>\n", "batuta-chatml", "<|im_start|>user"),
        ("[BOS]<|im_strat|>user\nHi\n<|im_end|>[EOS]", "openchatml", ""),
        ("usr: Hi\n\nAssistant: Hello.\n", "rwkv-goose", "User:"),
    ],
)
def test_what_nearly_begins_as_a_transcript_is_told_for_that(text: str, name: str, opening: str) -> None:
    with pytest.raises(ts.InvalidInput) as told:
        ts.convert(text, "auto", "openai-chat")
    assert (f"that is nearly {opening!r} of {name}" if opening else "did you mean <|im_start|>user?") in str(told.value)
    for command in (["convert", "-", "--to", "openai-chat"], ["check", "-"]):
        result = run(*command, stdin=text)
        assert not opening or f"`turnscript check --format {name}` names all that is wrong" in result.stderr


@pytest.mark.parametrize("text", ["System design is hard.\n", "Dear user:\n", "<html>", "An assistant: x"])
def test_a_text_is_not_said_to_be_nearly_a_transcript(text: str) -> None:
    with pytest.raises(ts.InvalidInput) as told:
        ts.convert(text, "auto", "openai-chat")
    assert "nearly" not in str(told.value)
