"""Owns the Universal transcript in use: its blocks, the way through each API, prompts, answers and tokens."""

import json
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests import corpora, goldens
from turnscript.core.events import PartDelta
from turnscript.core.json_text import compact

NAME = "rwkv-universal"
FORMAT = ts.get_format(NAME)
GOLDEN = Path(__file__).parents[1] / "golden" / "rwkv_universal"
APIS = {
    "openai-chat": "openai_chat",
    "openai-responses": "openai_responses",
    "anthropic-messages": "anthropic_messages",
}
CASES = ("c1", "c2", "c3")
TOOL = ts.Tool(name="f")
CALL = '<<TOOL_CALL name="f">>\n{"a": 1}\n<<END_TOOL_CALL>>'


def example(name: str) -> str:
    """The bytes of a golden transcript."""
    return (GOLDEN / f"{name}.txt").read_bytes().decode()


def system(words: str, role: str = "system") -> ts.Item:
    return ts.System(content=[ts.Text(text=words)], role=role)


def user(words: str) -> ts.Item:
    return ts.User(content=[ts.Text(text=words)])


def assistant(words: str) -> ts.Item:
    return ts.Assistant(content=[ts.Text(text=words)])


def call(name: str = "f", **fields: Any) -> ts.ToolCall:
    return ts.ToolCall(name=name, **fields)


def result(**fields: Any) -> ts.ToolResult:
    return ts.ToolResult(content=[ts.Text(text='{"b": 2}')], **fields)


def request_of(*items: ts.Item, tools: list[ts.Tool] | None = None, **settings: Any) -> ts.Request:
    """A request built by hand."""
    conversation = ts.Conversation(items=list(items), tools=tools or [])
    return ts.Request(conversation=conversation, settings=ts.Settings(**settings))


def document(*items: ts.Item, view: str = "archive") -> str:
    """What is written for some items."""
    return str(FORMAT.render(request_of(*items), view=view).value)


def answer(written: str, tools: list[ts.Tool] | None = None, thinking: bool = False) -> ts.Response:
    """What is read where a model writes this, by default with a tool offered."""
    offered = [TOOL] if tools is None else tools
    parser = FORMAT.prompt(request_of(user("q"), tools=offered), thinking=thinking).parser()
    return ts.fold([*parser.feed(written), *parser.close()])


def outline(response: ts.Response) -> list[tuple[str, str]]:
    """The kind of each item and what it says."""
    shown = []
    for item in response.items:
        words = item.arguments if isinstance(item, ts.ToolCall) else ""
        if isinstance(item, ts.Assistant | ts.Thinking):
            words = "".join(part.text for part in item.content if isinstance(part, ts.Text))
        shown.append((item.kind, words))
    return shown


# Blocks.


def test_a_block_is_an_opening_a_payload_and_a_closing_on_lines_of_their_own() -> None:
    """R-U-3, R-U-4, R-U-5: and one blank line between two blocks."""
    assert "<<USER>>\nHi\n<<USER_END>>\n\n<<ASSISTANT>>\nYo\n<<ASSISTANT_END>>" == document(user("Hi"), assistant("Yo"))


@pytest.mark.parametrize(
    ("item", "opening", "closing"),
    [
        (system("x"), "<<SYS>>", "<<SYS_END>>"),
        (user("x"), "<<USER>>", "<<USER_END>>"),
        (assistant("x"), "<<ASSISTANT>>", "<<ASSISTANT_END>>"),
        (call(arguments='{"a": 1}'), '<<TOOL_CALL name="f">>', "<<END_TOOL_CALL>>"),
        (result(name="f", id="c1"), '<<TOOL_RESULT name="f" id="c1">>', "<<END_TOOL_RESULT>>"),
    ],
    ids=lambda value: value.kind if isinstance(value, ts.Item) else "",
)
def test_every_kind_has_a_tag_of_its_own(item: ts.Item, opening: str, closing: str) -> None:
    """R-U-2, R-U-6, R-U-7, R-U-8, R-U-9, R-U-10: the two of tools close with END in front."""
    written = document(item)
    assert (opening, closing) == (written.split("\n")[0], written.split("\n")[-1])
    assert [item] == FORMAT.parse(written).items


def test_attributes_stand_behind_the_name_of_the_tag_in_their_order() -> None:
    """R-U-11: each behind one blank, the value in double quotes."""
    opening = '<<TOOL_RESULT name="calculator" id="call_001" status="ok">>'
    assert opening in example("u2")
    assert opening == document(result(status="ok", id="call_001", name="calculator")).split("\n")[0]


def test_the_examples_of_the_template_are_these_bytes() -> None:
    """R-U-13, R-U-14, R-U-15."""
    assert (
        "<<SYS>>\nSystem instructions go here.\n<<SYS_END>>\n\n<<USER>>\nUser message goes here.\n<<USER_END>>\n\n"
        "<<ASSISTANT>>\nAssistant reply goes here.\n<<ASSISTANT_END>>"
    ) == example("u1")
    assert (
        "<<ASSISTANT>>\nI will call the calculator tool.\n<<ASSISTANT_END>>\n\n"
        '<<TOOL_CALL name="calculator" id="call_001">>\n{"operation": "add", "operands": [2, 3]}\n<<END_TOOL_CALL>>\n\n'
        '<<TOOL_RESULT name="calculator" id="call_001" status="ok">>\n{"result": 5}\n<<END_TOOL_RESULT>>\n\n'
        "<<ASSISTANT>>\nThe result is 5.\n<<ASSISTANT_END>>"
    ) == example("u2")
    factorial = example("u3")
    assert (528, 2) == (len(factorial), factorial.count("<<ASSISTANT>>"))
    assert "Here is the implementation:\n\n```python\ndef factorial(n):\n    if n < 0:\n        raise" in factorial


def test_a_result_stands_behind_its_call_and_answers_it_by_id() -> None:
    """R-U-12, R-U-34: an id may be missing, and then results answer in order (D-X-6)."""
    for name in ("u2", "c1", "c3"):
        items = FORMAT.parse(example(name)).items
        called = [item.id for item in items if isinstance(item, ts.ToolCall)]
        assert called == [item.id for item in items if isinstance(item, ts.ToolResult)]
        assert None not in called
    bare = "\n\n".join([CALL, "<<TOOL_RESULT>>\n{}\n<<END_TOOL_RESULT>>"])
    request = FORMAT.parse(bare)
    assert [None, None] == [item.id for item in request.items]  # type: ignore[attr-defined]
    body: Any = ts.render(request, "openai-chat").value
    assert body["messages"][0]["tool_calls"][0]["id"] == body["messages"][1]["tool_call_id"]
    named = ts.convert(body, "openai-chat", NAME).value
    assert bare.replace("<<TOOL_RESULT>>", '<<TOOL_RESULT name="f">>') == named


def test_a_prompt_shows_the_name_of_a_result_that_follows_from_its_call() -> None:
    """D-U-15: by its id, or by its order; an archive keeps what was there."""
    items = [call("f", id="a"), call("g", id="b"), result(id="b"), result(id="a"), result(id="z")]
    shown = [line for line in document(*items, view="prompt").split("\n") if line.startswith("<<TOOL_RESULT")]
    expected = ['<<TOOL_RESULT name="g" id="b">>', '<<TOOL_RESULT name="f" id="a">>', '<<TOOL_RESULT id="z">>']
    assert expected == shown
    bare = [call("f"), call("g"), result(), result()]
    written = document(*bare, view="prompt")
    assert ['<<TOOL_RESULT name="f">>', '<<TOOL_RESULT name="g">>'] == [
        line for line in written.split("\n") if line.startswith("<<TOOL_RESULT")
    ]
    assert items == FORMAT.parse(document(*items)).items
    assert [None, None, None] == [item.name for item in items[2:] if isinstance(item, ts.ToolResult)]


def test_a_later_prompt_shows_those_names_too() -> None:
    """D-U-15: whether it is written anew or is longer than the one before."""
    prompt = FORMAT.prompt(request_of(user("q"), tools=[TOOL]))
    parser = prompt.parser()
    response = ts.fold([*parser.feed(f"a\n<<ASSISTANT_END>>\n\n{CALL}"), *parser.close()])
    longer = prompt.extend(response, [result()])
    assert longer is not None
    whole = request_of(user("q"), *response.items, result(), tools=[TOOL])
    assert FORMAT.prompt(whole).text == longer.text
    assert '<<TOOL_RESULT name="f">>' in longer.suffix


def test_guardrails_are_system_blocks() -> None:
    """R-U-39: instructions of a system and of a developer, wherever they stand."""
    written = document(system("Be kind."), user("q"), system("Be brief.", "developer"), view="prompt")
    assert written.startswith("<<SYS>>\nBe kind.\n<<SYS_END>>")
    assert '<<SYS role="developer">>\nBe brief.\n<<SYS_END>>' in written


# Through the APIs.


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("api", APIS)
def test_a_body_comes_back_from_the_transcript_as_it_was(api: str, case: str) -> None:
    """R-U-1, R-U-2, R-U-45: for each of the three APIs, plain chat, thoughts and parallel calls."""
    body = json.loads(goldens.golden(APIS[api], case))
    transcript = ts.convert(body, api, NAME)
    assert [] == transcript.losses
    back = ts.convert(str(transcript.value), NAME, api)
    assert (body, []) == (back.value, back.losses)


BARE: list[tuple[str, Any]] = [
    ("openai-chat", {"messages": [{"role": "user", "content": [{"type": "text", "text": "q"}]}]}),
    ("openai-chat", {"messages": [{"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}]}),
    ("openai-chat", {"messages": [], "functions": [{"name": "f"}]}),
    ("openai-responses", {"input": [{"type": "message", "role": "user", "content": []}]}),
    ("anthropic-messages", {"messages": [{"role": "system", "content": []}, {"role": "user", "content": ""}]}),
    ("anthropic-messages", {"messages": [{"role": "user", "content": [{"type": "new", "x": 1}]}]}),
    ("openai-completions", {"prompt": ["q"]}),
]


@pytest.mark.parametrize(("api", "body"), BARE)
def test_a_body_without_settings_comes_back_too(api: str, body: Any) -> None:
    back = ts.convert(ts.convert(body, api, NAME).value, NAME, api)
    assert (body, []) == (back.value, back.losses)


def test_what_stands_in_a_summary_stays_there() -> None:
    unknown, declined = {"type": "new", "x": 1}, {"type": "refusal", "refusal": "no"}
    thought = {"type": "reasoning", "id": "r", "summary": [unknown, declined], "content": [unknown]}
    body = {"input": [thought]}
    archive = ts.convert(body, "openai-responses", NAME).value
    assert '<<PART type="raw" in="summary">>' in archive
    assert body == ts.convert(archive, NAME, "openai-responses").value
    for view in ("archive", "prompt"):
        transcript = ts.convert(body, "openai-responses", NAME, view=view).value
        assert transcript == ts.render(ts.parse(transcript, NAME), NAME, view=view).value


@pytest.mark.parametrize("api", APIS)
def test_blocks_are_the_messages_that_the_tables_of_the_template_say(api: str) -> None:
    """R-U-17..32: the profile of the template, block by block, from the transcript and to it."""
    request = FORMAT.parse(example("c1"))
    if api != "anthropic-messages":
        request.conversation.tools = []
    body = json.loads(goldens.golden(APIS[api], "c1_seed"))
    rendered = ts.render(request, api, profile="seed", strict=True)
    assert body == rendered.value
    for item in request.items:
        if isinstance(item, ts.ToolCall) and api == "anthropic-messages":  # its arguments are no text there
            item.arguments = compact(item.arguments)
    assert request.items == without_shapes(ts.parse(body, api)).items


def without_shapes(request: ts.Request) -> ts.Request:
    """A request without what it remembers of its API's shapes."""
    for item in request.items:
        item.turn, item.slot, item.envelope, item.extra = "", "", None, {}
    return request


def test_each_block_is_one_input_item() -> None:
    """R-U-22."""
    for name in ("c1", "c2", "c3", "u3"):
        request = FORMAT.parse(example(name))
        body: Any = ts.render(request, "openai-responses", profile="seed").value
        assert len([item for item in request.items if item.kind != "thinking"]) == len(
            [item for item in body["input"] if item.get("type") != "reasoning"]
        )


def test_plain_chat_functions_and_tools_work_in_one_interface() -> None:
    """R-U-20, R-U-45: the deprecated functions of the Chat API, and its tools."""
    asked = {"role": "user", "content": "q"}
    function = {"name": "f", "arguments": '{"a": 1}'}
    bodies: list[Any] = [
        [asked, {"role": "assistant", "content": "hi"}],
        [
            asked,
            {"role": "assistant", "content": None, "function_call": function},
            {"role": "function", "name": "f", "content": '{"b": 2}'},
        ],
        [
            asked,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": '{"b": 2}'},
        ],
    ]
    for messages in bodies:
        body = {"model": "m", "messages": messages}
        transcript = str(ts.convert(body, "openai-chat", NAME).value)
        assert body == ts.convert(transcript, NAME, "openai-chat").value
        prompt = str(ts.convert(body, "openai-chat", NAME, view="prompt").value)
        assert ("<<TOOL_CALL" in prompt) == ("<<TOOL_RESULT" in prompt) == (messages is not bodies[0])


def test_a_legacy_prompt_is_a_user_block_and_the_text_that_follows_an_answer() -> None:
    """R-U-2, R-U-37: a system text goes before it."""
    for extra, before in (({}, ""), ({"system": "Be brief."}, "<<SYS>>\nBe brief.\n<<SYS_END>>\n\n")):
        request = ts.parse({"model": "m", "prompt": "Once upon ", **extra}, "openai-completions")
        prompt = FORMAT.prompt(request)
        assert f"{before}<<USER>>\nOnce upon \n<<USER_END>>\n\n<<ASSISTANT>>\n" == prompt.text
        parser = prompt.parser()
        response = ts.fold([*parser.feed("a time."), *parser.close()])
        request.conversation.items.extend(response.items)
        written = str(FORMAT.render(request, view="prompt").value)
        assert written.endswith("\n\n<<ASSISTANT>>\na time.\n<<ASSISTANT_END>>")


@pytest.mark.parametrize("api", APIS)
def test_a_body_becomes_a_prompt_and_the_answer_is_a_message_of_the_same_api(api: str) -> None:
    """R-U-42: body, template, model, template, body."""
    request = ts.parse(json.loads(goldens.golden(APIS[api], "c1")), api)
    asked = ts.Request(conversation=ts.Conversation(items=request.items[:2], tools=request.tools), origin=api)
    prompt = FORMAT.prompt(asked)
    whole = str(FORMAT.render(ts.Request(conversation=request.conversation), view="prompt").value)
    assert whole.startswith(prompt.text)
    written = whole[len(prompt.text) :].split("\n\n<<TOOL_RESULT", maxsplit=1)[0]
    parser = prompt.parser()
    response = ts.fold([*parser.feed(written), *parser.close()])
    assert (["assistant", "tool_call"], "tool_calls") == (
        [item.kind for item in response.items],
        response.finish_reason,
    )
    first = ts.render(ts.Request(conversation=ts.Conversation(items=[*asked.items, *response.items])), api).value
    expected = ts.render(ts.Request(conversation=ts.Conversation(items=without_shapes(request).items[:4])), api).value
    assert expected == first


# Training.


def test_training_follows_the_order_of_question_call_result_and_answer() -> None:
    """R-U-38: that order is kept, the model's own blocks are what is trained; no other order is an error."""
    items = FORMAT.parse(example("c1")).items
    order = ["system", "user", "assistant", "tool_call", "tool_result", "assistant"]
    assert order == [item.kind for item in items]
    spans = FORMAT.spans(request_of(*items))
    trained = {items[span.item].kind for span in spans if span.trainable}
    assert {"assistant", "tool_call"} == trained
    for odd in ([items[4], items[3]], [items[3], items[1]], [items[5], items[2], items[4]]):
        assert odd == FORMAT.parse(document(*odd)).items


@corpora.on_every
def test_every_conversation_has_its_tags(name: str) -> None:
    """R-U-41: every item that is shown stands in a block, and there is no text outside one."""
    request = corpora.load(name)
    written = str(FORMAT.render(request).value)
    openings = {segment.open for turn in FORMAT.document.turns for segment in turn.segments}
    lines = [line for line in written.split("\n") if line.endswith(">>") and not line.startswith("<<\\")]
    blocks = [line for line in lines if any(line.startswith((f"{one} ", f"{one}>>")) for one in openings)]
    assert len(request.items) + bool(request.tools) == len(blocks)
    assert FORMAT.claims(written) == bool(blocks)


# Tokens.


def test_the_special_tokens_are_whole_tags_and_beginnings_of_those_with_attributes() -> None:
    """R-U-40, D-U-19: the ten of the template, then ours."""
    seed = ["<<SYS>>", "<<SYS_END>>", "<<USER>>", "<<USER_END>>", "<<ASSISTANT>>", "<<ASSISTANT_END>>"]
    seed += ["<<TOOL_CALL", "<<END_TOOL_CALL>>", "<<TOOL_RESULT", "<<END_TOOL_RESULT>>"]
    ours = ["<<PART", "<<THINK>>", "<<THINK_END>>", "<<TOOLS>>", "<<TOOLS_END>>"]
    ours += ["<<ITEM", "<<END_ITEM>>", "<<META>>", "<<META_END>>"]
    assert [*seed, *ours] == sorted(FORMAT.special_tokens, key=[*seed, *ours].index)
    assert len(set(FORMAT.special_tokens)) == len(FORMAT.special_tokens)
    for name in ("u1", "u2", "u3"):
        tags = [line for line in example(name).split("\n") if line.startswith("<<")]
        assert all(any(tag.startswith(token) for token in seed) for tag in tags)


# Prompts.


@pytest.mark.parametrize(
    ("choice", "end", "prefill"),
    [
        (None, "<<ASSISTANT>>\n", ""),
        (ts.ToolChoice(mode="auto"), "<<ASSISTANT>>\n", ""),
        (ts.ToolChoice(mode="none"), "<<ASSISTANT>>\n", ""),
        (ts.ToolChoice(mode="required"), '<<TOOL_CALL name="', '<<TOOL_CALL name="'),
        (
            ts.ToolChoice(mode="named", name="f"),
            '<<TOOL_CALL name="f" id="call_auto_001">>\n',
            '<<TOOL_CALL name="f" id="call_auto_001">>\n',
        ),
    ],
    ids=lambda value: value.mode if isinstance(value, ts.ToolChoice) else "",
)
def test_a_prompt_opens_what_the_model_is_to_write(choice: ts.ToolChoice | None, end: str, prefill: str) -> None:
    """D-U-16: behind a blank line, or at the very beginning."""
    prompt = FORMAT.prompt(request_of(user("q"), tools=[TOOL], tool_choice=choice), thinking=False)
    assert prompt.text.endswith(f"q\n<<USER_END>>\n\n{end}")
    assert prefill == prompt.prefill
    if prefill:
        parser = prompt.parser()
        rest = '{"a": 1}\n<<END_TOOL_CALL>>' if end.endswith("\n") else 'f">>\n{"a": 1}\n<<END_TOOL_CALL>>'
        assert [("tool_call", '{"a": 1}')] == outline(ts.fold([*parser.feed(rest), *parser.close()]))
    thought = FORMAT.prompt(request_of(user("q")), thinking=True)
    assert thought.text.endswith("q\n<<USER_END>>\n\n<<THINK>>\n")
    assert "<<ASSISTANT>>\n" == FORMAT.prompt(request_of()).text


@pytest.mark.parametrize("kind", [ts.Assistant, ts.User, ts.System, ts.Thinking])
def test_a_last_block_that_is_open_has_no_closing(kind: Any) -> None:
    """R-U-16, D-U-18."""
    item = kind(content=[ts.Text(text="half")], open=True)
    written = document(user("q"), item)
    assert written.endswith("\nhalf")
    assert [user("q"), item] == FORMAT.parse(written).items


def test_a_question_to_be_continued_in_an_api_is_an_open_block() -> None:
    """D-U-18: an open last answer is the prefill of the Messages API."""
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "q"}]}
    body["messages"].append({"role": "assistant", "content": "The answer is ("})  # type: ignore[attr-defined]
    request = ts.parse(body, "anthropic-messages")
    assert request.items[-1].open
    prompt = FORMAT.prompt(request)
    assert prompt.text.endswith("<<ASSISTANT>>\nThe answer is (")
    assert "The answer is (" == prompt.prefill


# Answers.


def test_an_answer_is_told_while_it_comes_and_its_closing_never_is() -> None:
    """R-U-16, R-U-43: in single characters, all but what may become the closing."""
    words = "Let me see: <<ASSISTANT and <<ASSIST\nand 2 < 3"
    parser = FORMAT.prompt(request_of(user("q"))).parser()
    told = ""
    for count, character in enumerate(words, 1):
        told += "".join(event.text for event in parser.feed(character) if isinstance(event, PartDelta))
        assert words.startswith(told)
        assert count - len(told) <= len("\n<<ASSISTANT_END>>")
    for character in "\n<<ASSISTANT_END>>":
        told += "".join(event.text for event in parser.feed(character) if isinstance(event, PartDelta))
    assert words == told
    assert [] == [event for event in parser.close() if isinstance(event, PartDelta)]


def test_an_answer_without_its_closing_is_complete() -> None:
    """R-U-16, R-U-43: a backend may take the stop string away, and the line break before it or not."""
    for written in ("Hi\n<<ASSISTANT_END>>", "Hi\n", "Hi"):
        assert ([("assistant", "Hi")], []) == (outline(answer(written, tools=[])), answer(written, tools=[]).issues)


@pytest.mark.parametrize("arguments", ["{'a': 1}", '{"a": 1,}', "[1]", "5", '"a"', '{"a": 1', ""])
def test_the_json_of_a_call_is_checked_before_there_is_a_call(arguments: str) -> None:
    """R-U-35, R-U-44: what is no JSON object is text of the answer, and an issue."""
    written = f'<<TOOL_CALL name="f">>\n{arguments}\n<<END_TOOL_CALL>>'
    response = answer(f"a\n<<ASSISTANT_END>>\n\n{written}")
    assert not [item for item in response.items if isinstance(item, ts.ToolCall)]
    assert ("stop", True) == (response.finish_reason, bool(response.issues))
    assert arguments in "".join(words for _, words in outline(response))
    with pytest.raises(ts.InvalidTranscript):
        FORMAT.parse(written)


def test_a_call_without_a_name_is_none() -> None:
    """R-U-33, R-U-44: an id may be missing (R-U-34)."""
    nameless = answer('<<TOOL_CALL id="c1">>\n{}\n<<END_TOOL_CALL>>')
    assert ["assistant"] == [item.kind for item in nameless.items]
    assert "invalid_call" in {issue.kind for issue in nameless.issues}
    assert [("tool_call", '{"a": 1}')] == outline(answer(CALL))


def test_a_tool_that_nobody_offered_is_reported() -> None:
    """R-U-44: the call is kept, so that the client can say what is wrong with it."""
    response = answer(CALL.replace('"f"', '"rm"'))
    assert [("tool_call", '{"a": 1}')] == outline(response)
    assert "unknown_tool" in {issue.kind for issue in response.issues}


def test_a_turn_ends_by_itself_where_nothing_of_the_model_follows() -> None:
    """D-U-17: calls and thoughts follow an answer; anything else is not of this turn."""
    said = "a\n<<ASSISTANT_END>>\n\n"
    assert [("assistant", "a"), ("tool_call", '{"a": 1}')] == outline(answer(f"{said}{CALL}\n\n<<TOOL_RESULT"))
    assert ["assistant", "thinking", "assistant"] == [
        item.kind for item in answer(f"{said}<<THINK>>\nt\n<<THINK_END>>\n\n<<ASSISTANT>>\nb").items
    ]
    for rest in ("loose words", "<<USER>>\nhi\n<<USER_END>>", "<<SYS>>\nx"):
        assert [("assistant", "a")] == outline(answer(said + rest))
    assert ["<<ASSISTANT_END>>"] == FORMAT.stops
    assert ["<<USER", "<<TOOL_RESULT", "<<SYS"] == FORMAT.prompt(request_of(user("q"), tools=[TOOL])).stops


@pytest.mark.parametrize("empty", ["<<ASSISTANT_END>>", "\n<<ASSISTANT_END>>"])
def test_an_empty_answer_before_a_call_is_dropped(empty: str) -> None:
    """D-U-17: a model that only calls has closed the block that the prompt opened."""
    response = answer(f"{empty}\n\n{CALL}")
    assert [("tool_call", '{"a": 1}')] == outline(response)
    assert ("tool_calls", []) == (response.finish_reason, response.issues)


def test_text_outside_blocks_is_an_error_in_a_file_and_an_issue_in_an_answer() -> None:
    """D-U-20."""
    with pytest.raises(ts.InvalidTranscript, match="text outside any block: 'loose'"):
        FORMAT.parse("<<USER>>\nhi\n<<USER_END>>\nloose")
    response = answer("a\n<<ASSISTANT_END>>\n\nloose words")
    assert [("assistant", "a")] == outline(response)
    assert "text_outside" in {issue.kind for issue in response.issues}
    assert "a\n<<ASSISTANT_END>>\n\nloose words" == response.raw


def test_what_was_no_call_is_told_as_the_model_wrote_it() -> None:
    """R-U-44: the newline that the prompt ends with is not the model's, and issues count from its first character."""
    response = answer("<<TOOL_CALL name=x>>\n{}")
    assert [("assistant", "<<TOOL_CALL name=x>>\n{}")] == outline(response)
    assert min(issue.start for issue in response.issues) == 0
