"""Owns the checks of answers that a row marks as bad, which nobody learns, or that were cut off, which have no end."""

import json
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.datasets.jobs import built, documents, plan_for, rejects, written
from tests.datasets.samples import rows_of
from turnscript.datasets.encoding import Encoder
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import parse_train
from turnscript.datasets.verify import verify

CHATML, BYTES = ts.get_format("batuta-chatml"), get_tokenizer("bytes")


def read(form: str, row: Any) -> list[Example]:
    return get_form(form).read(json.dumps(row).encode())


def refused(form: str, row: Any) -> tuple[Code, str]:
    with pytest.raises(BadRow) as caught:
        read(form, row)
    assert caught.value.message
    return caught.value.reason, caught.value.path


def trained(example: Example, train: str = "assistant") -> str:
    """The text that is trained, with tags and all."""
    tokens = Encoder(CHATML, BYTES, parse_train(train)).explain(example)
    return b"".join(token.text for token in tokens if token.weight).decode()


# Bad answers.


def test_the_rejected_answer_of_a_pair_is_in_no_example() -> None:
    for row in rows_of("preference"):
        (example,) = get_form("preference").read(row)
        assert "What." not in trained(example, "all")
        assert trained(example, "all").endswith(("Hello!<|im_end|>\n", "Hello!<|im_end|>", "Bonjour<|im_end|>\n"))


def test_what_a_row_marks_as_bad_is_in_no_output(tmp_path: Path) -> None:
    pairs = [{"prompt": "Hi", "chosen": "GOOD answer", "rejected": "BAD answer"}]
    file = written(tmp_path / "pairs.jsonl", [json.dumps(row).encode() for row in pairs])
    report = built(plan_for(file, form="preference", outputs=("jsonl",)), tmp_path / "out")
    assert (1, 1, 0) == (report.written, report.documents, report.rejects)
    (document,) = documents(tmp_path / "out")
    text = bytes(one for one in document["input_ids"] if one < 256)
    assert (True, False) == (b"GOOD answer" in text, b"BAD" in text)


def test_a_completion_that_nobody_wants_is_set_aside(tmp_path: Path) -> None:
    rows = [{"prompt": "Hi", "completion": said, "label": said == "GOOD"} for said in ("GOOD", "BAD")]
    file = written(tmp_path / "kto.jsonl", [json.dumps(row).encode() for row in rows])
    report = built(plan_for(file, form="prompt-completion", outputs=("jsonl",)), tmp_path / "out")
    assert (1, 1) == (report.written, report.rejects)
    (aside,) = rejects(tmp_path / "out")
    assert ("E_UNWANTED", "$.label") == (aside["code"], aside["pointer"])
    messages = {
        key: [{"role": role, "content": "x"}] for key, role in (("prompt", "user"), ("completion", "assistant"))
    }
    assert (Code.UNWANTED, "$.label") == refused("prompt-completion", messages | {"label": False})
    for label in (True, None, "easy"):
        assert read("prompt-completion", messages | {"label": label})


TURNS = {"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]}
ANSWERS: dict[str, dict[str, Any]] = {
    "messages": {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
    "sharegpt": TURNS,
    "hermes": TURNS,
    "alpaca": {"instruction": "Q", "input": "", "output": "A"},
    "prompt-completion": {"prompt": "Q", "completion": "A"},
}


@pytest.mark.parametrize("name", ["label", "kto_tag"])
@pytest.mark.parametrize("form", ANSWERS)
def test_an_answer_that_nobody_wants_is_refused_in_every_form_of_answers(form: str, name: str) -> None:
    row = ANSWERS[form]
    assert (Code.UNWANTED, f"$.{name}") == refused(form, row | {name: False})
    assert (Code.UNWANTED, f"$.{name}") == refused(form, row | {name: "false"})
    assert (Code.SHAPE, f"$.{name}") == refused(form, row | {name: 0})
    for wanted in (True, None, "easy"):
        assert read(form, row | {name: wanted})


@pytest.mark.parametrize("name", ["args", "input", "params"])
def test_a_call_whose_arguments_have_another_name_is_not_one_without_arguments(name: str) -> None:
    def row(call: dict[str, Any], key: str = "tool_calls") -> dict[str, Any]:
        said = {"role": "assistant", "content": "", key: [call] if key == "tool_calls" else call}
        return {"messages": [{"role": "user", "content": "Q"}, said]}

    call = {"name": "f", "parameters": {"x": 1.0}}
    for one in (row(call), row({"id": "1", "type": "function", "function": call}), row(call, "function_call")):
        (example,) = read("messages", one)
        made = example.request.items[-1]
        assert isinstance(made, ts.ToolCall)
        assert '{"x": 1.0}' == made.arguments
    other = {"name": "f", name: {"x": 1}}
    at = "$.messages[1]"
    assert (Code.SHAPE, f"{at}.tool_calls[0].{name}") == refused("messages", row(other))
    assert (Code.SHAPE, f"{at}.tool_calls[0].function.{name}") == refused("messages", row({"function": other}))
    assert (Code.SHAPE, f"{at}.function_call.{name}") == refused("messages", row(other, "function_call"))


def test_an_answer_that_was_cut_off_is_no_duplicate_of_the_whole_one(tmp_path: Path) -> None:
    ends = ("length", "stop", "stop", "length")
    rows = [
        {
            "request": {"model": "m", "messages": [{"role": "user", "content": "Q"}]},
            "response": {"choices": [{"message": {"role": "assistant", "content": "A"}, "finish_reason": end}]},
        }
        for end in ends
    ]
    file = written(tmp_path / "log.jsonl", [json.dumps(row).encode() for row in rows])
    plan = plan_for(file, format="rwkv-goose", form="openai-chat", outputs=("jsonl",), dedup="exact")
    report = built(plan, tmp_path / "out")
    assert (2, 2, 0) == (report.written, report.duplicates, report.rejects)
    assert [0, 1] == sorted(one["loss_weight"][-1] for one in documents(tmp_path / "out"))
    assert verify(tmp_path / "out").ok


def test_the_side_that_is_not_masked_is_trained_as_the_plan_says() -> None:
    turns = [{"from": side, "value": said} for side, said in (("User", "a"), ("Assistant", "b")) * 2]
    (example,) = read("nemo-chat", {"system": "", "mask": "User", "type": "TEXT", "conversations": turns})
    assert trained(example).count("b") == 2
    assert trained(example, "last").count("b") == 1


# Context.


def test_a_prompt_is_context_whatever_its_row_says() -> None:
    prompt = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Earlier", "weight": 1}]
    answer = [{"role": "assistant", "content": "Now"}]
    turn = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Earlier"}]}
    for form, row in (
        ("prompt-completion", {"prompt": prompt, "completion": answer}),
        ("preference", {"prompt": prompt, "chosen": answer, "rejected": answer}),
        ("preference", turn | {key: {"from": "gpt", "value": "Now"} for key in ("chosen", "rejected")}),
    ):
        for train in ("assistant", "assistant,no-flags"):
            assert "Now<|im_end|>" == trained(read(form, row)[0], train).rstrip()


def test_the_side_that_nemo_masks_is_a_mark_of_the_row() -> None:
    turns = [{"from": "User", "value": "Hi"}, {"from": "Assistant", "value": "Yo"}]
    (example,) = read("nemo-chat", {"conversations": turns, "mask": "Assistant", "type": None, "system": ""})
    assert "Yo" not in trained(example)
    assert "Yo" in trained(example, "assistant,no-flags")


# Unfinished answers.

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
USE = {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}
CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'}


def of_chat(reason: str, **message: Any) -> tuple[str, Any]:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": reason}
    return "openai-chat", {"request": ASKED, "response": {"choices": [choice]}}


def of_anthropic(reason: str, *blocks: Any) -> tuple[str, Any]:
    response = {"type": "message", "role": "assistant", "content": list(blocks), "stop_reason": reason}
    return "anthropic-messages", {"request": ASKED | {"max_tokens": 9}, "response": response}


def of_responses(status: str, reason: str, *output: Any) -> tuple[str, Any]:
    response = {"output": list(output), "status": status, "incomplete_details": {"reason": reason} if reason else None}
    return "openai-responses", {"request": {"model": "m", "input": "Hi"}, "response": response}


def said(text: str) -> Any:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def thought(text: str) -> Any:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


@pytest.mark.parametrize(
    ("log", "text"),
    [
        (of_chat("length", content="Half"), "Half"),
        (of_chat("content_filter", content="Half"), "Half"),
        (of_chat("length", content="", reasoning_content="Hm"), "Hm"),
        (of_chat("nobody knows this word", content="Half"), "Half"),
        (of_anthropic("max_tokens", {"type": "text", "text": "Half"}), "Half"),
        (of_anthropic("refusal", {"type": "text", "text": "Half"}), "Half"),
        (of_anthropic("model_context_window_exceeded", {"type": "text", "text": "Half"}), "Half"),
        (of_anthropic("max_tokens", {"type": "thinking", "thinking": "Hm"}), "Hm"),
        (of_anthropic("max_tokens", {"type": "thinking", "thinking": "Hm"}, {"type": "text", "text": ""}), "Hm"),
        (of_responses("incomplete", "max_output_tokens", said("Half")), "Half"),
        (of_responses("incomplete", "content_filter", said("Half")), "Half"),
        (of_responses("incomplete", "", said("Half")), "Half"),
        (of_responses("completed", "max_output_tokens", said("Half")), "Half"),
        (of_responses("incomplete", "max_output_tokens", thought("Hm")), "Hm"),
    ],
)
@pytest.mark.parametrize("train", ["assistant", "assistant,end", "all"])
def test_an_answer_that_was_cut_off_has_no_end_to_learn(log: tuple[str, Any], text: str, train: str) -> None:
    (example,) = read(*log)
    assert trained(example, train).endswith(text)
    assert Encoder(CHATML, BYTES, parse_train(train)).explain(example)[-1].weight == 0 or train == "all"


@pytest.mark.parametrize(
    "log",
    [
        of_chat("length", content="x", tool_calls=[CALL]),
        of_chat("length", content="x", tool_calls=[CALL | {"function": {"name": "f", "arguments": '{"a'}}]),
        of_anthropic("max_tokens", {"type": "text", "text": "x"}, USE),
        of_anthropic("pause_turn", {"type": "text", "text": "x"}, USE),
        of_responses("incomplete", "max_output_tokens", said("x"), CALLED),
        of_responses("incomplete", "max_output_tokens", said("x"), CALLED | {"status": "incomplete"}),
    ],
)
def test_a_call_that_may_have_been_cut_off_is_refused(log: tuple[str, Any]) -> None:
    assert (Code.UNFINISHED, "$.response") == (refused(*log)[0], refused(*log)[1][:10])


@pytest.mark.parametrize(
    "log",
    [
        of_chat("stop", content="Hello"),
        of_chat("eos_token", content="Hello"),
        of_anthropic("end_turn", {"type": "text", "text": "Hello"}),
        of_anthropic("stop_sequence", {"type": "text", "text": "Hello"}),
        of_responses("completed", "", said("Hello")),
        ("openai-chat", {"request": ASKED, "response": {"role": "assistant", "content": "Hello"}}),
    ],
)
def test_an_answer_that_came_to_its_end_learns_it(log: tuple[str, Any]) -> None:
    (example,) = read(*log)
    assert trained(example).rstrip().endswith("Hello<|im_end|>")


@pytest.mark.parametrize("usage", [7, {}, {"prompt_tokens": None, "input_tokens": "9"}], ids=str)
@pytest.mark.parametrize(
    "log",
    [
        of_chat("stop", content="Hello"),
        of_anthropic("end_turn", {"type": "text", "text": "Hello"}),
        of_responses("completed", "", said("Hello")),
    ],
)
def test_what_an_answer_cost_is_no_reason_to_set_it_aside(log: tuple[str, Any], usage: Any) -> None:
    form, row = log
    (example,) = read(form, row | {"response": row["response"] | {"usage": usage}})
    assert trained(example).rstrip().endswith("Hello<|im_end|>")


def test_what_a_server_sends_behind_an_answer_is_no_reason_to_set_it_aside() -> None:
    chunk = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": "stop"}]}
    stream = f'data: {json.dumps(chunk)}\n\ndata: [DONE]\n\ndata: {{"cost": 1}}\n\n'
    (example,) = read("openai-chat", {"request": ASKED, "response": stream})
    assert trained(example).rstrip().endswith("Hello<|im_end|>")


def test_of_several_choices_only_those_that_were_cut_off_have_no_end() -> None:
    form, row = of_chat("stop", content="one")
    row["response"]["choices"].append({"message": {"role": "assistant", "content": "two"}, "finish_reason": "length"})
    assert [False, True] == [example.request.items[-1].open for example in read(form, row)]
