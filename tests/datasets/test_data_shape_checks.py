"""Owns the law of the short way to check samples: it finds what the long way finds, whatever is wrong with a sample."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import encoder_of
from turnscript.datasets.problems import Problem
from turnscript.datasets.sample_checks import Checker, SampleCounts
from turnscript.datasets.shape_checks import Led, Proofs
from turnscript.registry import formats

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

    def counted(self: Proofs, *given: Any, **named: Any) -> Led | None:
        went.append(True)
        return led(self, *given, **named)

    monkeypatch.setattr(Proofs, "led", counted)
    for _ in range(97):
        assert [] == checker.faults(example, sample)
    assert 94 == len(went)
    assert (100, 100, 100) == (checker.counts.samples, checker.counts.equal, checker.counts.exact)


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
