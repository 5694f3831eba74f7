"""Owns the checks of what is trained: the words for it, and which items they choose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from turnscript.core.errors import InvalidInput
from turnscript.datasets.train import MODEL, WORDS, Train, last_turn, parse_train

ITEMS = [
    ts.System(),
    ts.User(),
    ts.Thinking(),
    ts.ToolCall(name="now"),
    ts.ToolResult(),
    ts.Thinking(),
    ts.Assistant(),
    ts.User(),
]


@given(st.lists(st.sampled_from([*WORDS, *(f"no-{word}" for word in WORDS)]), max_size=6))
def test_a_spelling_is_read_as_what_it_spells(words: list[str]) -> None:
    try:
        train = parse_train(",".join(words))
    except InvalidInput:
        train = Train()
    assert train == parse_train(train.spelling)


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("", [2, 3, 5, 6]),
        ("assistant", [2, 3, 5, 6]),
        ("flags", [2, 3, 5, 6]),
        ("answers", [6]),
        ("calls, thinking", [2, 3, 5]),
        ("assistant,no-thinking", [3, 6]),
        ("last", [5, 6]),
        ("assistant,user,last", [1, 5, 6, 7]),
        ("system,results", [0, 4]),
        ("no-calls", [2, 5, 6]),
    ],
)
def test_words_choose_items(text: str, counted: list[int]) -> None:
    counts = parse_train(text).counts(ITEMS)
    assert counted == [at for at, one in enumerate(counts) if one]


def test_nothing_said_is_all_that_the_model_writes() -> None:
    assert Train() == parse_train("") == parse_train("assistant,flags,no-end,no-last")
    assert Train().is_plain()
    assert "assistant" == Train().spelling
    assert tuple(sorted(MODEL)) == Train().kinds


def test_the_last_turn_is_what_the_model_wrote_since_anybody_else_spoke() -> None:
    assert 5 == last_turn(ITEMS)
    assert 2 == last_turn(ITEMS[:4])
    assert 2 == last_turn(ITEMS[:2])


@pytest.mark.parametrize("text", ["assistants", "assistant;calls", "no-", "last,reasoning"])
def test_a_word_that_is_none_is_named_with_those_there_are(text: str) -> None:
    with pytest.raises(InvalidInput, match="nothing that can be trained; write some of: assistant, answers"):
        parse_train(text)


def test_nothing_left_to_train_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="leaves nothing to train"):
        parse_train("answers,no-assistant")


@pytest.mark.parametrize("text", ["all,no-user", "all,last", "no-thinking,all", "all,assistant", "user,all"])
def test_every_token_is_every_token(text: str) -> None:
    with pytest.raises(InvalidInput, match="`all` is every token"):
        parse_train(text)
    assert parse_train("all,end,no-flags").everything
