"""Owns the checks of the messages beside a sample: what they do not say as the row does is found, and told."""

from collections.abc import Sequence

import pytest

import turnscript as ts
from turnscript.core.losses import Loss
from turnscript.datasets.chat_checks import chat_faults
from turnscript.datasets.chat_writing import Written, write_chat
from turnscript.datasets.form import Example


def example(*texts: str, weights: dict[int, float] | None = None) -> Example:
    items: list[ts.Item] = [
        (ts.Assistant if number % 2 else ts.User)(content=[ts.Text(text=text)]) for number, text in enumerate(texts)
    ]
    request = ts.Request(conversation=ts.Conversation(items=items))
    request.locate()
    return Example(request, weights=weights or {})


def faults(changed: bytes, losses: Sequence[Loss] = (), **wishes: dict[int, float]) -> list[str]:
    """What is said of the messages of a short talk, where they are these."""
    return list(chat_faults(example("Hi", "Hello.", **wishes), Written(changed, losses)))


def test_messages_that_say_what_the_row_says_have_no_fault() -> None:
    for one in (example("Hi", "Hello."), example("Hi", "Hello.", "Bye", "See you.", weights={1: 0.0})):
        assert [] == list(chat_faults(one, write_chat(one)))
    assert [] == list(chat_faults(Example(ts.Request(), text="a text"), Written(b"", ())))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (b"Hello.", b"Hello?", "items[1]: its messages read"),
        (b'"assistant"', b'"user"', "items[1]: its messages read"),
        (b'"role"', b'"rule"', "its messages do not read back: "),
        (b"}],", b"},", "its messages do not read back: "),
        (b"Hello.", b"\\ud800", "its messages do not read back: "),
        (b'"Hello."', b'"Hello.","weight":0', "its messages read back with other weights"),
    ],
)
def test_messages_that_say_something_else_are_a_fault(old: bytes, new: bytes, words: str) -> None:
    data = write_chat(example("Hi", "Hello.")).data
    assert old in data
    (found,) = faults(data.replace(old, new))
    assert words in found


def test_a_weight_that_the_messages_do_not_say_is_a_fault() -> None:
    data = write_chat(example("Hi", "Hello.")).data
    assert ["its messages read back with other weights"] == faults(data, weights={1: 0.0})


def test_what_was_lost_there_is_no_fault() -> None:
    data = write_chat(example("Hi", "Hello.")).data
    changed, broken = data.replace(b"Hello.", b"Hello?"), data.replace(b'"role"', b'"rule"')
    assert [] == faults(changed, [Loss("items[1].content[0]", "approximated", "its text")])
    assert [] == faults(broken, [Loss("items[1]", "dropped", "all of it")])
    talk = example("Hi", "Hello.", "Bye", "See you.")
    other = Written(write_chat(talk).data.replace(b"See you.", b"See you?"), [Loss("items[0]", "dropped", "another")])
    assert 1 == len(list(chat_faults(talk, other)))
