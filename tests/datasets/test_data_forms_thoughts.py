"""Owns the checks of thoughts that stand as tagged text before an answer: every form of rows reads them as thoughts."""

import json
from typing import Any

import pytest

import turnscript as ts
from tests.datasets.test_data_forms_kinds import read, refused, said, turns
from turnscript.datasets.chat_writing import read_chat, write_chat
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.problems import Code
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import parse_train

TOLD = "<think>\nTwo and two.\n</think>\n\nFour."
ROWS: dict[str, list[dict[str, Any]]] = {
    "messages": [
        {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": TOLD}]},
        {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "\n" + TOLD, "x": 1}]},
        {
            "messages": [
                {"role": "user", "content": "2+2?"},
                {"role": "assistant", "content": [{"type": "text", "text": TOLD}]},
            ]
        },
        {
            "messages": [
                {"role": "user", "content": "2+2?"},
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": TOLD[:-5]}, {"type": "text", "text": "Four."}],
                },
            ]
        },
    ],
    "sharegpt": [turns(("human", "2+2?"), ("gpt", TOLD))],
    "alpaca": [{"instruction": "2+2?", "input": "", "output": TOLD}],
    "dolly": [{"instruction": "2+2?", "context": "", "response": TOLD}],
    "prompt-completion": [
        {"prompt": "2+2?", "completion": TOLD},
        {"prompt": [{"role": "user", "content": "2+2?"}], "completion": [{"role": "assistant", "content": TOLD}]},
    ],
    "preference": [{"prompt": "2+2?", "chosen": TOLD, "rejected": "Five."}],
    "llama-factory": [
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "value": "2+2?"}]},
                {"role": "assistant", "content": [{"type": "text", "value": TOLD}]},
            ]
        }
    ],
    "hermes": [turns(("human", "2+2?"), ("gpt", TOLD))],
}


@pytest.mark.parametrize(("form", "row"), [(form, row) for form, rows in ROWS.items() for row in rows])
def test_a_thought_before_an_answer_is_a_thought_in_every_form(form: str, row: dict[str, Any]) -> None:
    expected = [("user", "2+2?"), ("thinking", "Two and two."), ("assistant", "Four.")]
    for data in (json.dumps(row), json.dumps(row).replace("<", "\\u003c").replace(">", "\\u003e")):
        (example,) = get_form(form).read(data.encode())
        assert expected == said(example)


def test_a_model_learns_the_tags_of_its_format_and_not_broken_ones() -> None:
    (example,) = read("messages", ROWS["messages"][0])
    (sample,) = Encoder(ts.get_format("rwkv-goose"), get_tokenizer("bytes"), parse_train("assistant")).encode([example])
    assert isinstance(sample, Sample)
    text = get_tokenizer("bytes").decode(sample.ids.tolist())
    assert b"User: 2+2?\n\nAssistant: <think>\nTwo and two.\n</think>\nFour." in text


def answer(content: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": content, **more}]}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (answer("The tag <think> opens, </think> closes."), [("assistant", "The tag <think> opens, </think> closes.")]),
        (answer("<think>\n\n</think>\n\nFour."), [("thinking", ""), ("assistant", "Four.")]),
        (answer("<think>a</think>"), [("thinking", "a")]),
        (answer("I rethink>it"), [("assistant", "I rethink>it")]),
        (answer("<think>b</think>c", reasoning_content="a"), [("thinking", "a"), ("assistant", "<think>b</think>c")]),
        (answer("<think>b</think>c", reasoning_content=""), [("thinking", "b"), ("assistant", "c")]),
        (answer("<think>b</think>c", reasoning=""), [("thinking", "b"), ("assistant", "c")]),
        (answer("c", reasoning_content=""), [("thinking", ""), ("assistant", "c")]),
    ],
)
def test_only_a_beginning_is_a_thought_and_only_where_nothing_else_is(row: Any, expected: list[Any]) -> None:
    (example,) = read("messages", row)
    assert expected == said(example)[1:]


def test_what_the_user_says_stays_what_it_was() -> None:
    row = {"messages": [{"role": "user", "content": TOLD}, {"role": "assistant", "content": "Yes."}]}
    (example,) = read("messages", row)
    assert [("user", TOLD), ("assistant", "Yes.")] == said(example)


@pytest.mark.parametrize("text", ["<think>\nTwo and", "Two and two.\n</think>\n\nFour.", "</think>a<think>b"])
def test_half_a_thought_is_refused(text: str) -> None:
    assert (Code.SHAPE, "$.messages[1].content") == refused("messages", answer(text))
    assert (Code.SHAPE, "$.conversations[1]") == refused("sharegpt", turns(("human", "q"), ("gpt", text)))
    assert (Code.SHAPE, "$.output") == refused("alpaca", {"instruction": "q", "output": text})


def test_the_mark_of_a_turn_holds_for_its_thought_too() -> None:
    (example,) = read("messages", answer(TOLD, weight=0))
    assert {1: 0.0, 2: 0.0} == example.weights
    (example,) = read("alpaca", {"instruction": "q", "output": TOLD, "weight": 0})
    assert {1: 0.0, 2: 0.0} == example.weights
    (example,) = read("sharegpt", {"conversations": [{"from": "gpt", "value": TOLD, "weight": 0}]})
    assert {0: 0.0, 1: 0.0} == example.weights
    parts = [{"type": "text", "text": TOLD[:-5], "train": False}, {"type": "text", "text": "Four.", "train": True}]
    assert Code.WEIGHT == refused("messages", answer(parts))[0]


@pytest.mark.parametrize("text", [TOLD, "a</think>b", "<think>a"])
def test_a_text_that_would_be_read_as_a_thought_is_told_where_it_is_written_as_a_message(text: str) -> None:
    items: list[ts.Item] = [ts.User(content=[ts.Text("q")]), ts.Assistant(content=[ts.Text(text)], at="$.x")]
    line = write_chat(Example(ts.Request(conversation=ts.Conversation(items=items))))
    assert [("$.x", "approximated")] == [(loss.path, loss.kind) for loss in line.losses]
    items.insert(1, ts.Thinking(content=[ts.Text("")]))
    line = write_chat(Example(ts.Request(conversation=ts.Conversation(items=items))))
    assert [("$.x", "approximated")] == [(loss.path, loss.kind) for loss in line.losses]
    items[1] = ts.Thinking(content=[ts.Text("t")])
    line = write_chat(Example(ts.Request(conversation=ts.Conversation(items=items))))
    assert [] == list(line.losses)
    again = Example(read_chat(line.data).request)
    assert [("user", "q"), ("thinking", "t"), ("assistant", text)] == said(again)
