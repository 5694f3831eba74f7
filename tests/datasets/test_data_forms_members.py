"""Owns the checks of members that a form could pass over in silence: marks of what is trained, and pieces of talk."""

import json
from typing import Any

import pytest

from tests.datasets.test_data_forms_kinds import read, refused, said
from turnscript.datasets.chat_writing import write_chat
from turnscript.datasets.form_detection import Verdict, detect_form
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.rows import RawRow


def answer(**more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", **more}]}


def turns_with(**more: Any) -> dict[str, Any]:
    return {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a", **more}]}


def verdict_of(*rows: Any) -> Verdict:
    raw = [RawRow("x.jsonl", at, 0, json.dumps(row).encode()) for at, row in enumerate(rows, 1)]
    return detect_form(raw, "x.jsonl")


# Marks.


@pytest.mark.parametrize("form", ["messages", "sharegpt"])
def test_the_scale_of_a_loss_is_a_weight(form: str) -> None:
    row = answer if form == "messages" else turns_with
    assert [{1: 0.0}, {1: 1.0}] == [read(form, row(loss_scale=scale))[0].weights for scale in (0.0, 1)]
    assert Code.WEIGHT == refused(form, row(loss_scale=2.0))[0]
    assert Code.WEIGHT == refused(form, row(loss_scale=1.0, loss=False))[0]


@pytest.mark.parametrize("mark", ["loss_mask", "mask", "is_masked", "compute_loss", "calculate_loss"])
def test_a_mark_that_nobody_knows_is_refused_rather_than_trained(mark: str) -> None:
    for value in (True, 0, [0, 1]):
        assert (Code.WEIGHT, f"$.messages[1].{mark}") == refused("messages", answer(**{mark: value}))
        assert (Code.WEIGHT, f"$.conversations[1].{mark}") == refused("sharegpt", turns_with(**{mark: value}))
    assert {} == read("messages", answer(**{mark: None}))[0].weights


def test_measures_of_a_row_are_no_marks() -> None:
    row = {"instruction": "q", "output": "a", "eval_loss": 1.25, "attention_mask": [1, 1]}
    assert {} == read("alpaca", row)[0].weights
    assert {} == read("messages", answer(glossary=True, mask_token="[MASK]"))[0].weights


# Pieces of the conversation.


@pytest.mark.parametrize(
    "more",
    [
        {"images": ["a.png"]},
        {"thought": "Hm."},
        {"tools": '[{"name": "f"}]'},
        {"function_calls": "f(a=1)"},
        {"tool_plan": "I look."},
        {"context": "A page."},
    ],
)
def test_a_message_with_more_to_say_than_its_content_is_refused(more: dict[str, Any]) -> None:
    (name,) = more
    assert (Code.FORM, f"$.messages[1].{name}") == refused("messages", answer(**more))
    assert [] == read("messages", answer(**{name: None}))[0].request.tools
    row = {"prompt": [{"role": "user", "content": "q"}], "completion": answer(**more)["messages"][1:]}
    assert (Code.FORM, f"$.completion[0].{name}") == refused("prompt-completion", row)


def test_notes_on_a_message_are_no_reason_to_refuse_it() -> None:
    (example,) = read("messages", answer(id="m1", timestamp=3, annotations=[], audio=None, refusal=None, model="x"))
    assert 2 == len(example.request.items)


def test_what_is_said_in_another_channel_is_no_answer() -> None:
    assert [] == list(read("messages", answer(channel="final", recipient="all"))[0].weights)
    assert [] == list(read("messages", answer(channel="", recipient=""))[0].weights)
    assert (Code.SHAPE, "$.messages[1].channel") == refused("messages", answer(channel="analysis"))
    assert (Code.SHAPE, "$.messages[1].recipient") == refused("messages", answer(recipient="functions.f"))
    row = answer()
    row["messages"][0] |= {"channel": "general", "recipient": "Ann"}
    assert ["user", "assistant"] == [item.kind for item in read("messages", row)[0].request.items]


def test_a_thought_that_a_message_has_twice_is_one() -> None:
    (example,) = read("messages", answer(thinking="t", reasoning_content="t"))
    assert ["user", "thinking", "assistant"] == [item.kind for item in example.request.items]
    assert (Code.FORM, "$.messages[1].thinking") == refused("messages", answer(thinking="t", reasoning_content="u"))


def test_a_log_with_such_a_member_is_written_as_messages_that_read_back() -> None:
    row = answer(images=["a.png"], loss_mask=1, weight=0, channel="analysis") | {"model": "m"}
    (example,) = read("openai-chat", row)
    line = write_chat(example)
    assert {"images", "loss_mask", "weight", "channel"} == {loss.path.rpartition(".")[2] for loss in line.losses}
    assert {} == read("messages", json.loads(line.data))[0].weights


@pytest.mark.parametrize(
    ("form", "row"),
    [
        ("prompt-completion", {"question": "q", "answer": "a", "article": "What it is about."}),
        ("alpaca", {"instruction": "q", "output": "a", "reflection": "Wrong.", "corrected": "b"}),
        ("alpaca", {"instruction": "q", "output": "a", "reflection": "", "corrected": "b"}),
    ],
)
def test_what_an_answer_is_about_and_what_corrects_it_is_not_passed_over(form: str, row: dict[str, Any]) -> None:
    assert Code.FORM == refused(form, row)[0]
    assert "" == verdict_of(row).form


# Texts that are none.


@pytest.mark.parametrize("key", ["role", "speaker"])
def test_a_text_that_somebody_says_is_a_turn_and_no_text(key: str) -> None:
    row = {"text": "Hi!", key: "prompter", "parent_message_id": None}
    assert "" == verdict_of(row).form
    assert f"text, but also {key}" in verdict_of(row).refusal
    assert (Code.FORM, f"$.{key}") == refused("text", row)
    assert "text" == verdict_of({"text": "Hi!", key: None}).form


@pytest.mark.parametrize("value", ["How are\nyou?", ["How are you?"], {"text": "How are you?"}])
def test_a_text_file_is_not_made_of_json(value: Any) -> None:
    with pytest.raises(BadRow, match="no text"):
        get_form("text-file").read(json.dumps(value).encode())


@pytest.mark.parametrize("text", ['"Quoted", he said.', '"', "[1] A note.", "{x}", "42", "null"])
def test_a_text_file_may_begin_as_json_does(text: str) -> None:
    (example,) = get_form("text-file").read(text.encode())
    assert text == example.text


# Conversations without a name.

BARE = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "<think>t</think>a", "loss": False}]


def test_a_row_may_be_nothing_but_its_messages() -> None:
    verdict = verdict_of(BARE, BARE)
    assert ("messages", "2 of 2 rows: messages with role and content") == (verdict.form, verdict.reasons[0])
    (example,) = read("messages", BARE)
    assert ["user", "thinking", "assistant"] == [item.kind for item in example.request.items]
    assert {1: 0.0, 2: 0.0} == example.weights
    assert ["$[0]", "$[1].reasoning_content", "$[1]"] == [item.at for item in example.request.items]
    assert [] == example.request.tools
    assert (Code.ROLE, "$[0].role") == refused("messages", [{"role": "bot", "content": "x"}])
    assert (Code.SHAPE, "$[1]") == refused("messages", [BARE[0], 7])
    assert {(Code.JSON, "$")} == {refused("messages", row) for row in ([], [7], "q")}
    with pytest.raises(BadRow, match="not JSON"):
        get_form("messages").read(json.dumps(BARE).encode() + b',"tools":[]')


def test_a_file_that_is_one_conversation_is_told_to_be_one() -> None:
    """Each element of an array is a row, so each message is one."""
    verdict = verdict_of(*BARE)
    assert "" == verdict.form
    assert "messages: one message, and a row is a conversation" in verdict.refusal


@pytest.mark.parametrize(
    ("row", "remedy"),
    [
        ("How are you?", '{"text": ...}'),
        (["How are you?", "Fine."], '{"messages": [...]}'),
        ([["user", "Hi"]], '{"messages": [...]}'),
    ],
)
def test_a_row_that_is_no_object_is_told_what_it_could_be(row: Any, remedy: str) -> None:
    verdict = verdict_of(row)
    assert "" == verdict.form
    assert remedy in verdict.refusal


def test_an_array_of_rows_in_one_line_is_told_to_be_one() -> None:
    """By its name the file is JSON Lines, or a text, and that one line is a row."""
    rows = [{"messages": [{"role": "user", "content": "Hi"}]}] * 2
    refusal = verdict_of(rows).refusal
    assert "one array of all rows" in refusal
    assert ".json" in refusal
    assert "one array" not in verdict_of(rows, rows).refusal


# Earlier exchanges.


def test_earlier_exchanges_may_stand_beside_a_query() -> None:
    """As ms-swift has them, whose rows have no history, an empty one, or pairs."""
    row = {"system": "s", "query": "c", "response": "d", "history": [["a", "<think>t</think>b"]], "weight": 0}
    assert "prompt-completion" == verdict_of(row, row | {"history": []}, {"query": "c", "response": "d"}).form
    (example,) = read("prompt-completion", row)
    assert [
        ("system", "s"),
        ("user", "a"),
        ("thinking", "t"),
        ("assistant", "b"),
        ("user", "c"),
        ("assistant", "d"),
    ] == (said(example))
    assert {5: 0.0} == example.weights
    assert 3 == len(read("prompt-completion", row | {"history": None})[0].request.items)
    assert (Code.SHAPE, "$.history[0]") == refused("prompt-completion", row | {"history": [["a"]]})
    messages = {"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}
    assert (Code.SHAPE, "$.history") == refused("prompt-completion", messages | {"history": [["a", "b"]]})
    assert 2 == len(read("prompt-completion", messages | {"history": [], "system": ""})[0].request.items)


def test_a_response_may_have_an_input_beside_its_instruction() -> None:
    """As GPTeacher has them, which axolotl's documentation names."""
    row = {"instruction": "Translate.", "input": "Good day", "response": "Bonjour"}
    assert "dolly" == verdict_of(row, row | {"input": ""}).form
    assert [("user", "Translate.\nGood day"), ("assistant", "Bonjour")] == said(read("dolly", row)[0])
    assert [("user", "Translate."), ("assistant", "Bonjour")] == said(read("dolly", row | {"input": ""})[0])
    assert (Code.SHAPE, "$") == refused("dolly", row | {"context": "French."})
    assert [("user", "Translate.\nFrench.")] == said(read("dolly", row | {"input": None, "context": "French."})[0])[:1]
