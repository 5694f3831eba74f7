"""Owns checks of the short way to drafts: it gives what the long way gives, or leaves the row to that."""

from __future__ import annotations

import random

import pytest

from turnscript.convert.registry import formats, get_format
from turnscript.core.conversation import Assistant, Conversation, Item, Request, System, Text, Thinking, User
from turnscript.core.errors import LossyConversion
from turnscript.datasets.drafts import Draft
from turnscript.datasets.encoding_rows import Drafter, Options
from turnscript.datasets.encoding_shapes import Shapes
from turnscript.datasets.expansion import beginning
from turnscript.datasets.form import Example, Spoken
from turnscript.datasets.train import parse_train
from turnscript.formats.format import Format

_SPEAKERS = (System, User, Assistant)
_KINDS = (*_SPEAKERS, Thinking)
_WORDS = ("a", " b", "\n", "\n\n", "\r", "\u3000", "é", "世界", "\\", "<", "<<", "[", "`", "User:", "\x00", " ")


def _said(rng: random.Random, format_: Format) -> list[Item]:
    words = (*_WORDS, *format_.special_tokens)
    kinds = rng.choices(_KINDS, [1, 4, 4, 1], k=rng.randrange(1, 7))
    return [
        kind(content=[Text(text="".join(rng.choices(words, k=rng.randrange(5))))], at=f"$[{at}]")
        for at, kind in enumerate(kinds)
    ]


def _drafted(drafter: Drafter, items: list[Item], said: bool) -> object:
    try:
        draft = drafter.draft(Example(Request(conversation=Conversation(items=items)), said=said))
    except Exception as error:  # noqa: BLE001  (whatever it is, both ways raise it)
        return type(error).__name__, str(error)
    return [getattr(draft, name) for name in Draft.__slots__], draft.digest


@pytest.mark.parametrize("name", formats())
def test_texts_are_put_into_the_shape_of_their_kinds_as_they_are_rendered(name: str) -> None:
    rng, format_ = random.Random(6), get_format(name)
    drafters = [
        Drafter(format_, parse_train(train), options)
        for train in ("assistant", "assistant,end")
        for options in (Options(), Options(strict=True, weights="scaled"), Options(escape="none"))
    ]
    for _ in range(300):
        items, drafter = _said(rng, format_), rng.choice(drafters)
        assert _drafted(drafter, items, said=True) == _drafted(drafter, items, said=False)


@pytest.mark.parametrize("name", formats())
def test_a_question_and_its_answer_have_a_shape_in_every_format(name: str) -> None:
    shapes = Shapes(get_format(name), 1)
    for said in ("a", "b <x>", "世界"):
        draft = shapes.draft(Spoken((User, Assistant), [said, said], ["a", "b"]))
        assert draft is not None
        assert said in draft.text
    assert shapes.draft(Spoken((User, Assistant), ["", "b"], ["a", "b"])) is None


def test_what_a_short_way_loses_is_told_and_refused_as_by_the_long_one() -> None:
    items: list[Item] = [User(content=[Text(text="a\n\nb")], at="$[0]"), Assistant(content=[Text(text="c")], at="$[1]")]
    example = Example(Request(conversation=Conversation(items=items)), said=True)
    goose, plain = get_format("rwkv-goose"), parse_train("assistant")
    assert [loss.path for loss in Drafter(goose, plain, Options()).draft(example).losses] == ["$[0]"]
    with pytest.raises(LossyConversion):
        Drafter(goose, plain, Options(strict=True)).draft(example)


def test_nothing_is_kept_of_rows_too_long_to_have_a_shape() -> None:
    """Hardly two of them are alike, and what stands for each would take as much room as it has items."""
    shapes, rng = Shapes(get_format("rwkv-universal"), 1), random.Random(1)
    for size in (0, 65, 1000):
        kinds = tuple(rng.choices(_SPEAKERS, k=size))
        assert shapes.draft(Spoken(kinds, ["a"] * size, ["$"] * size)) is None
    assert not shapes._known


def test_what_is_spoken_is_made_to_items_once_and_forgotten_with_another_conversation() -> None:
    spoken = Spoken((User, Assistant, User), ["a", "b", "c"], ["$[0]", "$[1]", "$[2]"])
    example = Example(None, said=True, spoken=spoken)
    drafter = Drafter(get_format("rwkv-universal"), parse_train("assistant"), Options())
    shorter = beginning(example, 2)
    assert example.request is example.request
    assert [User(content=[Text(text="a")]), Assistant(content=[Text(text="b")])] == shorter.request.items
    assert ["$[0]", "$[1]"] == [item.at for item in shorter.request.items]
    assert drafter.draft(shorter).text == drafter.draft(Example(shorter.request)).text
    assert drafter.draft(example).text == drafter.draft(Example(example.request)).text
