"""Owns the laws of conversations as messages: they read back as they were, or what is lost is told."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import turnscript as ts
from tests.datasets.jobs import logged
from tests.datasets.samples import rows_of
from tests.strategies import conversations, jsontext, text
from turnscript.core.errors import InvalidInput, TurnscriptError
from turnscript.datasets.chat_rows import chat_api
from turnscript.datasets.chat_writing import read_chat, write_chat
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import forms, get_form
from turnscript.datasets.row_checks import check_items
from turnscript.datasets.tagged_thoughts import has_doubt
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import parse_train

ARGUMENTS = '{ "a": 1.0,  "b":1e5 }'
TOOL = '{"type":"function","function":{"name":"get","parameters":{"type": "object",  "default":1.0}}}'


def example_of(form: str, row: dict[str, Any]) -> Example:
    (example,) = get_form(form).read(json.dumps(row).encode())
    return example


ENCODERS = [
    Encoder(ts.get_format(name), get_tokenizer("bytes"), parse_train("assistant"), weights="scaled")
    for name in ts.formats()
]


@pytest.mark.parametrize("form", forms())
def test_the_rows_of_every_form_give_the_same_tokens_and_weights_again_unless_a_loss_is_told(form: str) -> None:
    examples = []
    for row in rows_of(form):
        try:
            examples += get_form(form).read(row)
        except InvalidInput:
            continue
    assert examples
    for example in examples:
        found = write_chat(example)
        if not found.data:
            assert example.is_document
            continue
        (again,) = get_form("messages").read(found.data)
        for encoder in ENCODERS if not found.losses else ():
            first, second = (encoder.encode([one])[0] for one in (example, again))
            if isinstance(first, Sample) and isinstance(second, Sample):
                assert (first.ids.tolist(), first.weights.tolist()) == (second.ids.tolist(), second.weights.tolist())
            else:
                assert first == second


def compared(item: ts.Item) -> ts.Item:
    """An item without where and how it stood in its source."""
    return replace(item, at="", turn="", slot="", envelope=None, attributes=None, raw=None, extra={})


def one_text(said: str) -> list[ts.Part]:
    return [ts.Text(text=said)]


TAGGED = st.sampled_from(["<think>a</think>b", "<think></think>", " <think>a", "a</think>b", "a<think></think>"])
SAID = (text.texts() | TAGGED).map(one_text)
ANSWERED = st.tuples(
    st.builds(ts.ToolCall, name=text.words(), arguments=jsontext.argument_objects(), id=st.none() | text.words()),
    SAID,
).map(lambda pair: [pair[0], ts.ToolResult(content=pair[1], id=pair[0].id, name=pair[0].name)])
PLAIN = st.one_of(
    st.builds(ts.User, content=SAID, name=st.none() | text.words()),
    st.builds(ts.Assistant, content=SAID | st.lists(SAID, min_size=2, max_size=2).map(lambda two: two[0] + two[1])),
    st.builds(ts.Thinking, content=SAID),
    st.builds(ts.System, content=SAID, role=st.sampled_from(["system", "developer"])),
)
SOME = st.one_of(PLAIN.map(lambda one: [one]), PLAIN.map(lambda one: [one]), ANSWERED)
WEIGHTS = st.dictionaries(st.integers(0, 7), st.sampled_from([0.0, 0.25, 1.0]), max_size=4)


@given(found=st.lists(SOME, min_size=1, max_size=4), weights=WEIGHTS, own=st.booleans(), last=st.booleans())
def test_what_messages_can_say_reads_back_as_it_is(
    found: list[list[ts.Item]], weights: dict[int, float], own: bool, last: bool
) -> None:
    """All but an answer that would be read as a thought, or as half of one: that is told."""
    items = [item for some in found for item in some]
    for at, item in enumerate(items):
        item.at = f"$[{at}]"
    items[-1].open = last and isinstance(items[-1], ts.Assistant)
    weights = {at: weight for at, weight in weights.items() if at < len(items)}
    context = frozenset(at for at, weight in weights.items() if not weight)
    kept = {at: weight for at, weight in weights.items() if weight}
    origin = chat_api().origin if own else None
    request = ts.Request(conversation=ts.Conversation(items=items), origin=origin)
    try:
        check_items(items)
    except TurnscriptError:
        return
    before = msgspec.json.encode(items)
    line = write_chat(Example(request, weights=kept, context=context))
    assert before == msgspec.json.encode(items)
    doubtful = {item.at for item in items if has_doubt(item)}
    assert {loss.path for loss in line.losses} <= doubtful
    if line.losses:
        return
    again = read_chat(line.data)
    assert list(map(compared, items)) == list(map(compared, again.request.items))
    assert weights == again.weights


@given(items=st.lists(conversations.items(), max_size=4))
def test_what_messages_cannot_say_is_told(items: list[ts.Item]) -> None:
    for at, item in enumerate(items):
        item.at, item.open = f"$[{at}]", False
        if isinstance(item, ts.ToolCall) and not item.custom:
            item.arguments = "{}"
        for part in getattr(item, "content", []):
            if isinstance(part, ts.Audio):
                part.id = None if part.data is not None else part.id  # it is one or the other
    try:
        check_items(items)
    except TurnscriptError:
        return
    found = write_chat(Example(ts.Request(conversation=ts.Conversation(items=items), origin="elsewhere")))
    if not found.losses:
        assert list(map(compared, items)) == list(map(compared, read_chat(found.data).request.items))


def test_arguments_and_schemas_stay_the_text_that_they_were_in_strings_of_json() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get", "arguments": ARGUMENTS}}
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    row = b'{"messages":%s,"tools":[%s]}' % (json.dumps(messages).encode(), TOOL.encode())
    (example,) = get_form("messages").read(row)
    assert {"messages": messages, "tools": f"[{TOOL}]"} == json.loads(write_chat(example).data)


def test_an_answer_in_which_two_parts_count_differently_is_two_messages() -> None:
    turns = [
        {"from": "human", "value": "q"},
        {"from": "gpt", "value": "I look.", "weight": 0},
        {"from": "function_call", "value": '{"name": "get", "arguments": {}}', "weight": 1},
    ]
    example = example_of("sharegpt", {"conversations": turns})
    assert {1: 0.0, 2: 1.0} == example.weights
    messages = json.loads(write_chat(example).data)["messages"]
    assert [None, 0, 1] == [message.get("weight") for message in messages]
    assert "I look." == messages[1]["content"]
    assert "get" == messages[2]["tool_calls"][0]["function"]["name"]


def test_an_answer_that_was_cut_off_says_that_it_goes_on() -> None:
    row = logged("q", "Once upon")
    row["response"]["choices"][0]["finish_reason"] = "length"
    example = example_of("openai-chat", row)
    found = write_chat(example)
    assert ([], True) == (list(found.losses), json.loads(found.data)["messages"][-1]["prefix"])
    assert read_chat(found.data).request.items[-1].open
