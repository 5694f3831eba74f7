"""Owns the law of the short way to check samples: it finds what the long way finds, whatever is wrong with a sample."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turnscript.convert.registry import formats, get_format
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import encoder_of
from turnscript.datasets.problems import Problem
from turnscript.datasets.sample_checks import Checker, SampleCounts
from turnscript.datasets.shape_checks import Led, Proofs
from turnscript.engine.read import settles

TEXTS = [
    ("Hi", "Hello!"),
    ("What is <|im_end|> or <<USER>>?", "User: that\n\nAssistant: is it."),
    (" blank ", "two\n\n\nlines\n"),
    ("été 词", "😀"),
    ("think", "Be brief. think"),
]


def example_of(*texts: str, system: str = "") -> Example:
    turns = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
    row = {"messages": [*([{"role": "system", "content": system}] if system else []), *turns]}
    (example,) = get_form("messages").read(json.dumps(row).encode())
    assert example.spoken is not None
    return example


def encoder_for(format_: str, **fields: object) -> Encoder:
    return encoder_of(Plan(inputs=("x",), format=format_, tokenizer="rwkv-world", **fields))  # type: ignore[arg-type]


def sampled(encoder: Encoder, example: Example) -> Sample:
    (sample,) = encoder.encode([example])
    assert not isinstance(sample, Problem)
    return sample


def warm(encoder: Encoder, example: Example) -> Checker:
    """A checker that has seen three good rows of these kinds, so that the next one can go the short way."""
    checker = Checker(encoder)
    spoken = example.spoken
    assert spoken is not None
    good = replace(example, given=None, spoken=replace(spoken, texts=["Fine."] * len(spoken.texts)))
    sample = sampled(encoder, good)
    for _ in range(3):
        assert [] == checker.faults(good, sample)
    return checker


def changed(sample: Sample) -> Iterator[Sample]:
    """A sample with one thing changed: each weight, each token, one more and one less."""
    for at in range(len(sample.ids)):
        weights = sample.weights.copy()
        weights[at] = not weights[at]
        yield replace(sample, weights=weights)
        ids = sample.ids.copy()
        ids[at] = 1 + (int(ids[at]) + 7) % 60000
        yield replace(sample, ids=ids)
        yield replace(sample, ids=np.delete(sample.ids, at), weights=np.delete(sample.weights, at))
        yield replace(sample, ids=np.insert(sample.ids, at, 33), weights=np.insert(sample.weights, at, 1))


@pytest.mark.deep
@pytest.mark.parametrize("format_", formats())
def test_the_short_way_finds_what_the_long_way_finds(format_: str) -> None:
    encoder = encoder_for(format_)
    for at, texts in enumerate(TEXTS):
        example = example_of(*texts, "And?", "Well.")
        sample = sampled(encoder, example)
        short, total = warm(encoder, example), SampleCounts()
        total.add(short.counts)
        for one in [sample, *(changed(sample) if not at else ())]:
            long = Checker(encoder)
            assert long.faults(example, one) == short.faults(example, one)
            total.add(long.counts)
            assert total == short.counts


def test_most_rows_go_the_short_way_and_some_again_the_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = encoder_for("rwkv-universal")
    example = example_of("Hi", "Hello!")
    checker, sample = warm(encoder, example), sampled(encoder, example)
    went: list[bool] = []
    led = Proofs.led

    def counted(self: Proofs, *given: Any) -> list[Led | None]:
        found = led(self, *given)
        went.extend(one is not None for one in found)
        return found

    monkeypatch.setattr(Proofs, "led", counted)
    assert [[]] * 254 == list(checker.each([(example, sample)] * 254))
    assert 252 == sum(went)
    assert (257, 257, 257) == (checker.counts.samples, checker.counts.equal, checker.counts.exact)


PLAIN = ("How are you?", "Fine, thanks.", "And now?", "Still fine.")


def _of(*texts: str) -> Callable[[Sample], Sample]:
    return lambda _: sampled(encoder_for("rwkv-universal", escape="none"), example_of(*texts))


def _untrained(sample: Sample) -> Sample:
    """The end of the first answer is not trained."""
    weights = sample.weights.copy()
    weights[int(np.flatnonzero(np.diff(weights.astype(int)) == -1)[0])] = 0
    return replace(sample, weights=weights)


def _other_token(sample: Sample) -> Sample:
    ids = sample.ids.copy()
    ids[len(ids) // 2] += 1
    return replace(sample, ids=ids)


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_untrained, "what ends it"),
        (lambda sample: replace(sample, weights=np.roll(sample.weights, -2)), "what ends it"),
        (_other_token, "does not decode to"),
        (_of(PLAIN[0], "Fine.\n<<ASSISTANT_END>>\n\n<<USER>>\nNo", *PLAIN[2:]), "does not decode to"),
        (_of(*PLAIN[2:], *PLAIN[:2]), "does not decode to"),
        (_of(*PLAIN[:2]), "does not decode to"),
        (_of(*PLAIN, *PLAIN[2:]), "does not decode to"),
    ],
)
def test_a_fault_in_one_of_many_rows_alike_is_found(plant: Callable[[Sample], Sample], words: str) -> None:
    encoder = encoder_for("rwkv-universal")
    example = example_of(*PLAIN)
    sample = sampled(encoder, example)
    samples = [*[sample] * 5, plant(sample), sample]
    faults = list(warm(encoder, example).each([(example, one) for one in samples]))
    assert words in "".join(faults[5])
    assert Checker(encoder).faults(example, plant(sample)) == faults.pop(5)
    assert [[]] * 6 == faults


def test_a_text_that_is_written_as_a_tag_is_found_though_the_sample_says_the_same() -> None:
    """The tokens spell the row's text as it stands, and that it has a tag in it decides how it is read."""
    encoder, bare = encoder_for("rwkv-universal"), encoder_for("rwkv-universal", escape="none")
    example = example_of(PLAIN[0], "Fine.\n<<ASSISTANT_END>>\n\n<<USER>>\nNo")
    (fault,) = warm(encoder, example).faults(example, sampled(bare, example))
    assert "does not decode to what the conversation is rendered as" in fault


ODD = [
    "<",
    ">",
    "\\",
    "\n",
    "\r\n",
    "\r",
    " ",
    "\t",
    "\ufeff",
    "USER",
    "USER>>",
    "_END>>",
    "PART",
    "{",
    "[",
    "`",
    "\x85",
]


@given(st.lists(st.lists(st.sampled_from(ODD), min_size=1, max_size=8), min_size=2, max_size=2))
def test_a_text_without_the_beginning_of_a_tag_is_read_as_it_stands(parts: list[list[str]]) -> None:
    texts = ["".join(part) for part in parts]
    request = example_of(*texts).request
    format_ = get_format("rwkv-universal")
    tag = settles(format_.document, "<<USER>>\n", "\n<<USER_END>>")
    assert "<<" == tag
    text = format_.render(request).value
    assert isinstance(text, str)
    plain = not any(tag in one for one in texts)
    assert not plain or text == f"<<USER>>\n{texts[0]}\n<<USER_END>>\n\n<<ASSISTANT>>\n{texts[1]}\n<<ASSISTANT_END>>"
    assert request.items == format_.parse(text).items


def test_where_more_decides_how_a_text_is_read_nothing_settles_it() -> None:
    assert "" == settles(get_format("rwkv-universal").document, "<<USER>>", "\n<<USER_END>>")
    assert "" == settles(get_format("rwkv-goose").document, "\n", "\n")


@pytest.mark.parametrize(
    "fields", [{"train": "all"}, {"train": "answers,last"}, {"escape": "none"}, {"weights": "scaled"}, {"end": False}]
)
def test_whatever_the_plan_trains_the_counts_are_those_of_the_long_way(fields: dict[str, object]) -> None:
    encoder = encoder_for("rwkv-universal", **fields)
    example = example_of("Hi", "Hello!", "Bye", "Ciao!")
    short, long = warm(encoder, example), SampleCounts()
    sample = sampled(encoder, example)
    assert [] == short.faults(example, sample)
    for _ in range(4):
        good = Checker(encoder)
        assert [] == good.faults(example, sample)
        long.add(good.counts)
    assert long == short.counts


def test_a_row_that_says_itself_what_counts_goes_the_long_way() -> None:
    encoder = encoder_for("rwkv-universal")
    example = example_of("Hi", "Hello!", "Bye", "Ciao!")
    checker = warm(encoder, example)
    weighed = replace(example, weights={1: 0.0})
    assert [] == checker.faults(weighed, sampled(encoder, weighed))
    assert 2 * 3 + 1 == checker.counts.ends
