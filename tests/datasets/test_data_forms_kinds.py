"""Owns the checks of each form but messages: what its rows become item by item, and what it refuses with what code."""

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from tests.datasets.samples import rows_of
from tests.growth import assert_grows_below
from turnscript import ToolCall
from turnscript.convert.registry import formats, get_format
from turnscript.core.errors import InvalidInput
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import Code, problem_of

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


def read(form: str, row: Any) -> list[Example]:
    return get_form(form).read(row if isinstance(row, bytes) else json.dumps(row, ensure_ascii=False).encode())


def refused(form: str, row: Any) -> tuple[Code, str]:
    with pytest.raises(InvalidInput) as caught:
        read(form, row)
    problem = problem_of(caught.value)
    assert problem.message
    return problem.code, problem.pointer


def said(example: Example) -> list[tuple[str, ...]]:
    return [
        (item.kind, item.name, item.arguments)
        if isinstance(item, ToolCall)
        else (item.kind, "".join([part.text for part in item.content]))  # type: ignore[attr-defined]
        for item in example.request.items
    ]


def turns(*pairs: tuple[str, str], **beside: Any) -> dict[str, Any]:
    return {"conversations": [{"from": role, "value": value} for role, value in pairs], **beside}


# ShareGPT and NeMo.


def test_sharegpt_calls_keep_their_bytes_and_may_be_several() -> None:
    calls = (
        '[{"name": "f", "arguments": {"b": 1.0, "a": 1152921504606846976, "a": 0}}, {"name": "g", "arguments": "{}"}]'
    )
    row = turns(("human", "Hi"), ("function_call", calls), ("observation", "1"), ("tool", "2"), ("gpt", "Done"))
    (example,) = read("sharegpt", row)
    assert said(example) == [
        ("user", "Hi"),
        ("tool_call", "f", '{"b": 1.0, "a": 1152921504606846976, "a": 0}'),
        ("tool_call", "g", "{}"),
        ("tool_result", "1"),
        ("tool_result", "2"),
        ("assistant", "Done"),
    ]
    assert ["f", "g"] == [getattr(item, "name", None) for item in example.request.items[3:5]]


def test_a_result_with_a_name_answers_the_call_of_that_name() -> None:
    calls = '[{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]'
    row = turns(("human", "Hi"), ("function_call", calls))
    row["conversations"] += [{"from": "tool", "value": value, "name": value} for value in ("g", "f")]
    (example,) = read("sharegpt", row)
    assert ["g", "f"] == [getattr(item, "name", None) for item in example.request.items[3:]]
    row["conversations"][-1]["name"] = "h"
    assert refused("sharegpt", row) == (Code.CALL, "$.conversations[3]")


def test_sharegpt_system_and_tools_stand_beside_the_turns() -> None:
    (example,) = read("sharegpt", turns(("human", "Hi"), ("gpt", "Yo"), system="Be kind.", tools=json.dumps(TOOLS)))
    assert said(example)[0] == ("system", "Be kind.")
    assert [tool.name for tool in example.request.tools] == ["f"]
    assert said(read("sharegpt", turns(("system", "A"), ("human", "Hi"), system="A"))[0])[0] == ("system", "A")
    assert refused("sharegpt", turns(("system", "B"), ("human", "Hi"), system="A")) == (Code.SHAPE, "$.system")


@pytest.mark.parametrize(
    ("row", "code", "pointer"),
    [
        (turns(("alien", "Hi")), Code.ROLE, "$.conversations[0].from"),
        (turns(("human", "Hi"), ("observation", "1")), Code.CALL, "$.conversations[1]"),
        (turns(("human", "Hi"), ("function_call", "f(1)")), Code.JSON, "$.conversations[1].value"),
        (turns(("human", "Hi"), ("function_call", "[]")), Code.SHAPE, "$.conversations[1].value"),
        (turns(("human", "Hi"), ("function_call", '{"arguments": {}}')), Code.CALL, "$.conversations[1].value.name"),
        (
            turns(("human", "Hi"), ("function_call", '{"name": "f", "arguments": [1]}')),
            Code.ARGS,
            "$.conversations[1].value.arguments",
        ),
        (
            turns(("human", "Hi"), ("function_call", '{"name": "f", "arguments": {}, "why": 1}')),
            Code.SHAPE,
            "$.conversations[1].value.why",
        ),
        ({"conversations": [{"from": "human"}]}, Code.SHAPE, "$.conversations[0].value"),
        ({"conversations": [{"value": "Hi"}]}, Code.SHAPE, "$.conversations[0].from"),
        ({"conversations": []}, Code.EMPTY, "$"),
        ({"conversations": {}}, Code.SHAPE, "$.conversations"),
        (turns(("gpt", '<tool_call>{"name": "f"}</tool_call>')), Code.FORM, "$.conversations[0]"),
        (turns(("human", "Hi"), chosen="x"), Code.FORM, "$.chosen"),
        ({"conversations": [{"from": "gpt", "value": "x", "weight": 7}]}, Code.WEIGHT, "$.conversations[0].weight"),
    ],
)
def test_sharegpt_refuses_with_a_code_and_a_place(row: Any, code: Code, pointer: str) -> None:
    assert refused("sharegpt", row) == (code, pointer)


def test_the_side_that_nemo_masks_is_not_trained() -> None:
    row = turns(("User", "Hi"), ("Assistant", "Yo"), system="A chat.", mask="User", type="TEXT_TO_VALUE")
    (example,) = read("nemo-chat", row)
    assert [("system", "A chat."), ("user", "Hi"), ("assistant", "Yo")] == said(example)
    assert example.weights == {1: 0.0}
    labelled = {**row, "conversations": [{"from": "User", "value": "Hi", "label": "quality:4"}]}
    assert refused("nemo-chat", labelled) == (Code.SHAPE, "$.conversations[0].label")
    assert refused("nemo-chat", {**row, "mask": "Nobody"}) == (Code.ROLE, "$.mask")


# LLaMA-Factory, version 1.


def test_typed_values_keep_their_order() -> None:
    call = {"type": "tool_call", "value": '{"name": "f", "arguments": {"a": 1.0}}'}
    text = {"type": "text", "value": "I look."}
    thought = {"type": "reasoning", "value": "Hm."}
    row = {
        "messages": [
            {"role": "user", "content": [{"type": "text", "value": "Hi"}], "loss_weight": 0.0},
            {
                "role": "assistant",
                "content": [thought, text, call, text],
                "loss_weight": 0.5,
            },
            {"role": "tool", "content": [{"type": "tool_result", "value": "1"}]},
        ]
    }
    (example,) = read("llama-factory", row)
    assert said(example) == [
        ("user", "Hi"),
        ("thinking", "Hm."),
        ("assistant", "I look."),
        ("tool_call", "f", '{"a": 1.0}'),
        ("assistant", "I look."),
        ("tool_result", "1"),
    ]
    assert example.weights == {0: 0.0, 1: 0.5, 2: 0.5, 3: 0.5, 4: 0.5}


@pytest.mark.parametrize(
    ("part", "role", "code"),
    [
        ({"type": "image", "value": "x.png"}, "user", Code.SHAPE),
        ({"type": "reasoning", "value": "x"}, "user", Code.SHAPE),
        ({"type": "tool_call", "value": "f()"}, "assistant", Code.JSON),
        ({"type": "text", "value": "x"}, "robot", Code.ROLE),
        ({"type": "text", "value": 7}, "user", Code.SHAPE),
        ({"type": "text"}, "user", Code.SHAPE),
    ],
)
def test_llama_factory_refuses_with_a_code(part: Any, role: str, code: Code) -> None:
    assert refused("llama-factory", {"messages": [{"role": role, "content": [part]}]})[0] is code


def test_a_thought_may_stand_before_the_calls_of_a_turn() -> None:
    """As LLaMA-Factory takes it apart for models that think."""
    calls = '[{"name": "f", "arguments": {"a": 1.0}}, {"name": "g", "arguments": {}}]'
    row = turns(("human", "Hi"), ("function_call", f"<think>\nTwo.\n</think>\n\n{calls}"), ("observation", "1"))
    (example,) = read("sharegpt", row)
    expected = [("thinking", "Two."), ("tool_call", "f", '{"a": 1.0}'), ("tool_call", "g", "{}"), ("tool_result", "1")]
    assert expected == said(example)[1:]
    broken = turns(("human", "Hi"), ("function_call", "<think>\nTwo.\n</think>\nf(1)"))
    assert refused("sharegpt", broken) == (Code.JSON, "$.conversations[1].value")


# Glaive.


def test_glaive_text_is_taken_apart() -> None:
    (example,) = get_form("glaive").read(rows_of("glaive")[0])
    assert said(example) == [
        ("system", "You are a helpful assistant."),
        ("user", "Cold in Oslo?"),
        ("tool_call", "get_weather", '{\n  "city": "Oslo",\n  "days": 1.0\n}'),
        ("tool_result", '{"t": 4}'),
        ("assistant", "Yes, it's 4 degrees."),
        ("user", "Thanks"),
        ("assistant", "You're welcome."),
    ]
    assert [tool.name for tool in example.request.tools] == ["get_weather", "now"]


def glaive(chat: str, system: str = "") -> dict[str, Any]:
    return {"system": system, "chat": chat}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("""{"name": "f", "arguments": '{"a": "it\\'s"}'}""", '{"a": "it\'s"}'),
        ("""{"name": "f", "arguments": '{"a": "it's"}'}""", '{"a": "it\'s"}'),
        ("""{"name": "f", "arguments": '{"a": "x\\ny"}'}""", '{"a": "x\\ny"}'),
        ("""{"name": "f", "arguments": {"a": 1.0}}""", '{"a": 1.0}'),
        ("""{"name": "f", "arguments": "{}"}""", "{}"),
    ],
)
def test_glaive_arguments_are_what_stands_between_the_quotes(call: str, arguments: str) -> None:
    (example,) = read("glaive", glaive(f"USER: Hi\n\n\nASSISTANT: Well. <functioncall> {call} <|endoftext|>"))
    assert said(example)[1:] == [("assistant", "Well."), ("tool_call", "f", arguments)]


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (glaive("Hi"), Code.SHAPE),
        (glaive("USER: Hi ASSISTANT: Hello"), Code.SHAPE),
        (glaive("USER: Hi\n\n\nASSISTANT: <functioncall> f(1)"), Code.ARGS),
        (glaive("""USER: Hi\n\n\nASSISTANT: <functioncall> {"name": "f", "arguments": 'x'}"""), Code.ARGS),
        (glaive("USER: Hi\n\n\nFUNCTION RESPONSE: 1"), Code.CALL),
        (glaive("USER: Hi", "SYSTEM: x with access to the following functions. Use them if required -\n{"), Code.SHAPE),
    ],
)
def test_glaive_refuses_with_a_code(row: Any, code: Code) -> None:
    assert refused("glaive", row)[0] is code


# Instructions, prompts, preferences, texts.


def test_alpaca_joins_instruction_and_input_behind_the_history() -> None:
    row = {"instruction": "I", "input": "x", "output": "o", "system": "s", "history": [["a", "b"]]}
    assert said(read("alpaca", row)[0]) == [
        ("system", "s"),
        ("user", "a"),
        ("assistant", "b"),
        ("user", "I\nx"),
        ("assistant", "o"),
    ]
    assert said(read("alpaca", {"instruction": "I", "input": None, "output": "o"})[0])[0] == ("user", "I")
    assert refused("alpaca", row | {"history": [["a"]]}) == (Code.SHAPE, "$.history[0]")
    assert refused("alpaca", row | {"instruction": "", "input": ""}) == (Code.EMPTY, "$.instruction")
    assert refused("alpaca", row | {"output": ["better", "worse"]}) == (Code.SHAPE, "$.output")
    assert refused("alpaca", {"instruction": "I"}) == (Code.SHAPE, "$.output")
    assert refused("alpaca", row | {"context": "x"}) == (Code.FORM, "$.context")


def test_a_prompt_of_messages_is_not_trained() -> None:
    row = {"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    (example,) = read("prompt-completion", row | {"completion": [{"role": "assistant", "content": "c"}]})
    assert [("user", "a"), ("assistant", "b"), ("assistant", "c")] == said(example)
    assert not example.weights
    assert frozenset({0, 1}) == example.context
    assert ["$.prompt[0]", "$.prompt[1]", "$.completion[0]"] == [item.at for item in example.request.items]
    assert refused("prompt-completion", row | {"completion": [{"role": "robot", "content": "c"}]}) == (
        Code.ROLE,
        "$.completion[0].role",
    )
    assert refused("prompt-completion", row | {"completion": []}) == (Code.SHAPE, "$.completion")


def test_texts_of_a_prompt_are_kept_as_they_stand() -> None:
    (example,) = read("prompt-completion", {"prompt": " a\n\n###\n\n", "completion": " b END"})
    assert [("user", " a\n\n###\n\n"), ("assistant", " b END")] == said(example)


def test_a_label_that_is_a_number_is_refused() -> None:
    assert refused("prompt-completion", {"prompt": "a", "completion": "b", "label": 1}) == (Code.SHAPE, "$.label")


@pytest.mark.parametrize(
    ("row", "code", "pointer"),
    [
        ({"prompt": "a", "chosen": "b"}, Code.SHAPE, "$.rejected"),
        ({"chosen": "b", "rejected": "c"}, Code.SHAPE, "$.prompt"),
        (
            {
                "prompt": "other",
                "chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
                "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}],
            },
            Code.FORM,
            "$.prompt",
        ),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "query": "d"}, Code.FORM, "$.query"),
        ({"prompt": "a", "chosen": "b", "rejected": "c", "messages": [{"role": "user"}]}, Code.FORM, "$.messages"),
    ],
)
def test_a_preference_is_refused_with_a_code_and_a_place(row: Any, code: Code, pointer: str) -> None:
    assert refused("preference", row) == (code, pointer)


def test_texts_and_pieces_of_texts() -> None:
    assert read("text", {"text": "a <|im_end|>"})[0].text == "a <|im_end|>"
    assert read("text-file", b"\xef\xbb\xbfa\n")[0].text == "a\n"
    (example,) = read("segments", {"segments": [{"text": "a", "label": False}, {"text": "b", "label": True}]})
    assert (example.text, example.mask) == ("ab", [("a", False), ("b", True)])
    assert refused("text", {"text": ""}) == (Code.EMPTY, "$.text")
    assert refused("text", {"text": "a", "chosen": "b"}) == (Code.FORM, "$.chosen")
    assert refused("text-file", b'{"text": "a"}')[0] is Code.FORM
    assert refused("text-file", b"\xff")[0] is Code.UTF8
    assert refused("segments", {"segments": [{"text": "a", "label": 0.5}]}) == (Code.WEIGHT, "$.segments[0].label")
    assert refused("segments", {"segments": [{"text": "a"}]}) == (Code.SHAPE, "$.segments[0].label")


# Transcripts and logs.


@pytest.mark.parametrize("name", formats())
@pytest.mark.parametrize("member", ["", "text", "transcript", "conversation"])
def test_a_transcript_is_read_as_its_format_reads_it(name: str, member: str) -> None:
    (data,) = rows_of(name)
    row = json.dumps({"id": 7, member: data.decode()}).encode() if member else data
    (example,) = get_form(name).read(row)
    assert example.request.items == get_format(name).parse(data.decode()).items


def test_a_broken_transcript_is_refused_at_its_line() -> None:
    code, pointer = refused("rwkv-universal", b"<<USER>>\nHi\n<<USER_END>>\n\n<<USER_END>>")
    assert code is Code.SHAPE
    assert pointer.startswith("line ")


CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def answer(*texts: str) -> dict[str, Any]:
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for index, text in enumerate(texts)
    ]
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": choices}


def test_each_choice_of_a_response_is_an_example() -> None:
    examples = read("openai-chat", {"request": CHAT, "response": answer("a", "b", "c")})
    assert ["choice 1", "choice 2", "choice 3"] == [example.label for example in examples]
    assert [[("user", "Hi"), ("assistant", text)] for text in "abc"] == [said(example) for example in examples]
    assert read("openai-chat", {"request": CHAT, "response": answer("a")})[0].label == ""


def test_what_a_request_began_the_response_continues() -> None:
    request = {"model": "c", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    request["messages"] = [*CHAT["messages"], {"role": "assistant", "content": "He"}]
    response = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "llo"}],
        "stop_reason": "end_turn",
    }
    (example,) = read("anthropic-messages", {"request": request, "response": response})
    assert [("user", "Hi"), ("assistant", "Hello")] == said(example)
    assert not any(item.open for item in example.request.items)
    (alone,) = read("anthropic-messages", request)
    assert not any(item.open for item in alone.request.items)


@pytest.mark.parametrize(
    ("form", "row", "pointer"),
    [
        ("openai-chat", {"request": CHAT, "response": {"error": {"message": "no", "type": "x"}}}, "$.response"),
        ("openai-chat", {"request": CHAT, "response": {"choices": []}}, "$.response.choices"),
        ("openai-chat", {"request": {"model": "m"}, "response": answer("a")}, "$.request.messages"),
        ("openai-chat", CHAT | {"prompt": "more"}, "$.prompt"),
        ("openai-chat", CHAT | {"output": answer("a"), "choices": [1]}, "$.choices"),
        ("openai-responses", {"model": "m", "input": "Hi", "previous_response_id": "r"}, "$.previous_response_id"),
        ("openai-responses", {"model": "m", "input": [{"type": "item_reference", "id": "x"}]}, "$.input[0]"),
        (
            "openai-chat",
            {"request": CHAT, "response": 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'},
            "$.response",
        ),
    ],
)
def test_a_log_that_is_no_conversation_is_refused_at_its_place(form: str, row: Any, pointer: str) -> None:
    code, found = refused(form, row)
    assert code in (Code.SHAPE, Code.FORM, Code.EMPTY)
    assert found == pointer


def reversed_answers(count: int) -> dict[str, Any]:
    """Calls of as many tools, the last of which is answered first."""
    called = [{"from": "function_call", "value": json.dumps({"name": f"f{at}"})} for at in range(count)]
    answers = [{"from": "observation", "value": "1", "name": f"f{at}"} for at in reversed(range(count))]
    return {"conversations": [*called, *answers]}


HOSTILE: dict[str, list[Callable[[int], Any]]] = {
    "hermes": [
        lambda n: turns(("system", "</tools>" + "<tools>[" * n), ("gpt", "x")),
        lambda n: turns(("gpt", "<tool_call>{" * n)),
        lambda n: turns(("gpt", "<tool_call></tool_call>" * n)),
        lambda n: turns(("system", "for each tool call you will make: {" * n + "<tools>"), ("gpt", "x")),
        lambda n: turns(("system", "<tools>Example: <tool_call>{" + "<a>" * n), ("gpt", "x")),
        lambda n: turns(("system", "<tools>" + "Example: <tool_call>{<a>" * n), ("gpt", "x")),
    ],
    "glaive": [
        lambda n: glaive("USER: a\n" + "\n" * n),
        lambda n: glaive("USER: a\n\n\nASSISTANT: <functioncall> " + "{'" * n),
        lambda n: glaive("USER: a\n\n\n" * n),
        lambda n: glaive("USER: a", "x with access to the following functions. Use them if required -\n" + "{}" * n),
        lambda n: glaive(
            "USER: a",
            "x with access to the following functions. Use them if required -\n" + "{}" * n + json.dumps("x" * 400 * n),
        ),
    ],
    "toolbench": [
        lambda n: turns(("assistant", f"Action:{' ' * (n // 16)}x\nAction Input")),
        lambda n: turns(("assistant", "Action:" + "\n" * n)),
        lambda n: turns(("assistant", "\nAction:" * n + "f\nAction Input: {}")),
    ],
    "sharegpt": [
        lambda n: turns(("gpt", "<tool_call>[" * n)),
        lambda n: turns(*[("function_call", '{"name": "f"}')] * n, *[("observation", "1")] * n),
        reversed_answers,
    ],
    "messages": [
        lambda n: {"messages": [{"role": "assistant", "tool_calls": [{"name": "f"}] * n}, *[{"role": "tool"}] * n]},
    ],
}


@pytest.mark.parametrize(("form", "number"), [(form, at) for form, rows in HOSTILE.items() for at in range(len(rows))])
def test_hostile_rows_cost_no_more_than_their_length(form: str, number: int) -> None:
    def reading(size: int) -> Callable[[], object]:
        data = json.dumps(HOSTILE[form][number](size)).encode()

        def run() -> None:
            with suppress(InvalidInput):
                get_form(form).read(data)

        return run

    assert_grows_below(80, reading, 800, 12_800)  # 16 times the length; the square of it would be 256
