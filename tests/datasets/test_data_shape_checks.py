"""Owns the laws of the short way to check samples: it makes what a build makes, and finds what the long way finds."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.datasets.jobs import built, chat, plan_for, written
from turnscript.convert.registry import formats, get_format
from turnscript.datasets.drafts import Draft
from turnscript.datasets.encoding import Encoder, Sample, Write
from turnscript.datasets.encoding_rows import Drafter
from turnscript.datasets.form import Example
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import encoder_of
from turnscript.datasets.problems import Problem
from turnscript.datasets.sample_checks import Checker, SampleCounts
from turnscript.datasets.verify import verify

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


def call_of(
    *, name: str = "search", id_: str = "c1", result: str = '{"ok": true}', said: str = "Well.", tool: str = ""
) -> Example:
    """A conversation with a thought, a call and its result."""
    arguments = json.dumps({"query": f'{said} "é"', "n": 3}, ensure_ascii=False)
    called = {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
    turns: list[dict[str, object]] = [
        {"role": "user", "content": said},
        {"role": "assistant", "content": None, "reasoning_content": f"I look: {said}", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": id_, "content": result},
        {"role": "assistant", "content": said},
    ]
    declared = [
        {"type": "function", "function": {"name": one, "description": "<<it>>"}} for one in filter(None, [tool])
    ]
    (example,) = get_form("messages").read(json.dumps({"messages": turns, "tools": declared}).encode())
    return example


def sampled(encoder: Encoder, example: Example, write: Write | None = None) -> Sample:
    (sample,) = encoder.encode([example], write)
    assert not isinstance(sample, Problem)
    return sample


def warm(encoder: Encoder, good: Example) -> Checker:
    """A checker that has seen three good rows of this shape, so that the next one can go the short way."""
    checker = Checker(encoder)
    for _ in range(3):
        sample = sampled(encoder, good, checker.write)
        assert (None, []) == (sample.by, checker.faults(good, sample))
    return checker


def fine(example: Example) -> Example:
    """The same kinds of items, with texts that nobody stumbles over."""
    assert example.spoken is not None
    return replace(example, given=None, spoken=replace(example.spoken, texts=["Fine."] * len(example.spoken.texts)))


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
def test_the_short_way_makes_what_a_build_makes_and_finds_what_the_long_way_finds(format_: str) -> None:
    encoder = encoder_for(format_)
    for at, texts in enumerate(TEXTS):
        example = example_of(*texts, "And?", "Well.")
        short, total = warm(encoder, fine(example)), SampleCounts()
        total.add(short.counts)
        sample, built = sampled(encoder, example, short.write), sampled(encoder, example)
        assert (built.ids.tolist(), built.weights.tolist()) == (sample.ids.tolist(), sample.weights.tolist())
        for one in [sample, *(changed(sample) if not at else ())]:
            long = Checker(encoder)
            assert long.faults(example, replace(one, by=None)) == short.faults(example, one)
            total.add(long.counts)
            assert total == short.counts


CALLS: list[tuple[dict[str, str], bool]] = [
    ({}, True),
    ({"name": "ns.look-up_2", "id_": "call:7/a"}, True),
    ({"said": "two\n\n\nlines 😀 \\ and < or > "}, True),
    ({"name": 'say "x"'}, False),
    ({"id_": "é"}, False),
    ({"said": "<<USER>>"}, False),
    ({"result": '{"a": "\\u00e9"}'}, False),
    ({"result": ""}, False),
]


@pytest.mark.parametrize(("told", "is_short"), CALLS)
def test_rows_with_calls_are_proved_where_nothing_in_them_decides_how_they_are_written(
    told: dict[str, str], is_short: bool
) -> None:
    encoder = encoder_for("rwkv-universal")
    short, long, example = warm(encoder, call_of()), Checker(encoder), call_of(**told)
    sample, built = sampled(encoder, example, short.write), sampled(encoder, example)
    assert is_short == (sample.by is not None)
    assert (built.ids.tolist(), built.weights.tolist()) == (sample.ids.tolist(), sample.weights.tolist())
    short.take()
    assert [] == short.faults(example, sample) == long.faults(example, built)
    assert long.counts == short.counts


def test_whatever_is_wrong_with_a_row_with_a_call_is_found() -> None:
    encoder, example = encoder_for("rwkv-universal"), call_of(said="Well.")
    short = warm(encoder, example)
    sample, total = sampled(encoder, example, short.write), SampleCounts()
    assert sample.by is not None
    short.take()
    for one in changed(sample):
        long = Checker(encoder)
        assert long.faults(example, replace(one, by=None)) == short.faults(example, one)
        total.add(long.counts)
        assert total == short.counts


@pytest.mark.parametrize("result", ['{"n": 1}', "[1, 2]", "It is warm.", "7"])
def test_results_that_are_marked_otherwise_are_rows_of_another_shape(result: str) -> None:
    encoder = encoder_for("rwkv-universal")
    checker = warm(encoder, call_of(result=result))
    for other in ('{"n": 1}', "[1, 2]", "It is warm.", "7"):
        example = call_of(result=other)
        sample, built = sampled(encoder, example, checker.write), sampled(encoder, example)
        assert built.ids.tolist() == sample.ids.tolist()
        assert [] == checker.faults(example, sample)


def test_other_calls_of_one_tool_are_a_row_of_another_shape() -> None:
    """Where ids are the same and where they differ is what pairs results with calls."""
    encoder = encoder_for("rwkv-universal")
    checker = warm(encoder, call_of())
    assert sampled(encoder, call_of(name="c1", id_="c1"), checker.write).by is None
    assert sampled(encoder, call_of(name="other", id_="c9"), checker.write).by is not None


def test_rows_with_the_same_tools_are_of_one_shape() -> None:
    encoder = encoder_for("rwkv-universal")
    checker = warm(encoder, call_of(tool="search"))
    for tool, is_short in (("search", True), ("other", False), ("", False)):
        example = call_of(tool=tool, said="And then?")
        sample, built = sampled(encoder, example, checker.write), sampled(encoder, example)
        assert (is_short, built.ids.tolist()) == (sample.by is not None, sample.ids.tolist())
        assert [] == checker.faults(example, sample)


def test_most_rows_go_the_short_way_and_some_again_the_long_one() -> None:
    encoder = encoder_for("rwkv-universal")
    example = example_of("Hi", "Hello!")
    checker = warm(encoder, example)
    samples = [sampled(encoder, example, checker.write) for _ in range(254)]
    assert 252 == sum(sample.by is not None for sample in samples)
    assert [[]] * 254 == list(checker.each([(example, sample) for sample in samples]))
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
    checker = warm(encoder, example)
    sample = sampled(encoder, example, checker.write)
    planted = replace(plant(sample), by=sample.by)
    faults = list(checker.each([(example, one) for one in [*[sample] * 5, planted, sample]]))
    assert words in "".join(faults[5])
    assert Checker(encoder).faults(example, plant(sample)) == faults.pop(5)
    assert [[]] * 6 == faults


def test_a_row_with_a_tag_in_its_text_goes_the_long_way() -> None:
    """Its text as it stands could be read as a turn."""
    encoder, bare = encoder_for("rwkv-universal"), encoder_for("rwkv-universal", escape="none")
    example = example_of(PLAIN[0], "Fine.\n<<ASSISTANT_END>>\n\n<<USER>>\nNo")
    checker = warm(encoder, example_of("Hi", "Hello!"))
    assert checker.write(example) is None
    (fault,) = checker.faults(example, sampled(bare, example))
    assert "does not decode to what the conversation is rendered as" in fault


@pytest.mark.parametrize("called", [False, True])
def test_where_a_build_makes_some_rows_otherwise_its_outputs_show_it(
    called: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verification makes most samples by what is proved of their shape, and a build does not."""
    draft = Drafter.draft

    def faulty(self: Drafter, example: Example) -> Draft:
        found = draft(self, example)
        if "plant" in found.text:
            found.kept = [1] * len(found.kept)
        return found

    monkeypatch.setattr(Drafter, "draft", faulty)
    rows = [chat(f"{at} what?", f"{at} that.") for at in range(40)]
    rows[30] = chat("plant what?", "That.")
    if called:
        ask = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]}
        for row in rows:
            row["messages"][1:1] = [ask, {"role": "tool", "tool_call_id": "c", "content": "{}"}]
    source = written(tmp_path / "rows.jsonl", [json.dumps(row).encode() for row in rows])
    built(plan_for(source, outputs=("jsonl",)), tmp_path / "run")
    found = verify(tmp_path / "run")
    words = "it is not what all rows of its shape are proved to be"
    assert ["jsonl has it 0 times", f"in jsonl, {words}"] == [
        one.message.split(",")[0] if "times" in one.message else one.message.split(";")[0] for one in found.findings
    ]
    assert all(one.place.endswith("rows.jsonl:31") for one in found.findings)


def test_a_row_that_is_cut_is_made_as_a_build_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No output has all of it, so only the long way finds what is wrong with that."""
    draft = Drafter.draft

    def faulty(self: Drafter, example: Example) -> Draft:
        found = draft(self, example)
        return Draft([*found.texts, "plant"], [*found.marks, 1], [*found.values, 0]) if "plant" in found.text else found

    monkeypatch.setattr(Drafter, "draft", faulty)
    rows = [chat(*[f"{at} {turn} what?" for turn in range(8)]) for at in range(40)]
    rows[30]["messages"][-1]["content"] = "plant"
    source = written(tmp_path / "rows.jsonl", [json.dumps(row).encode() for row in rows])
    built(plan_for(source, outputs=("jsonl",), max_tokens=200, overflow="drop-turns"), tmp_path / "run")
    found = verify(tmp_path / "run")
    assert [31] == [int(one.place.rpartition(":")[2]) for one in found.findings]
    assert "does not decode to what the conversation is rendered as" in found.findings[0].message


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
    text = format_.render(request).value
    assert isinstance(text, str)
    plain = not any("<<" in one for one in texts)
    assert not plain or text == f"<<USER>>\n{texts[0]}\n<<USER_END>>\n\n<<ASSISTANT>>\n{texts[1]}\n<<ASSISTANT_END>>"
    assert request.items == format_.parse(text).items


@pytest.mark.parametrize(
    "fields", [{"train": "all"}, {"train": "answers,last"}, {"escape": "none"}, {"weights": "scaled"}, {"end": False}]
)
def test_whatever_the_plan_trains_the_counts_are_those_of_the_long_way(fields: dict[str, object]) -> None:
    encoder = encoder_for("rwkv-universal", **fields)
    example = example_of("Hi", "Hello!", "Bye", "Ciao!")
    short, long = warm(encoder, example), SampleCounts()
    sample = sampled(encoder, example, short.write)
    assert [] == short.faults(example, sample)
    for _ in range(4):
        good = Checker(encoder)
        assert [] == good.faults(example, replace(sample, by=None))
        long.add(good.counts)
    assert long == short.counts


def test_a_row_that_says_itself_what_counts_goes_the_long_way() -> None:
    encoder = encoder_for("rwkv-universal")
    example = example_of("Hi", "Hello!", "Bye", "Ciao!")
    checker = warm(encoder, example)
    weighed = replace(example, weights={1: 0.0})
    assert [] == checker.faults(weighed, sampled(encoder, weighed, checker.write))
    assert 2 * 3 + 1 == checker.counts.ends
