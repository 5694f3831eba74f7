"""Owns the laws of `expand`: a sample for each turn that is trained, which begins as its prompt; nothing is twice."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnscript as ts
from tests import corpora
from tests.cli.running import run
from tests.datasets.jobs import built, chat, chats, documents, plan_for, rejects, results, written
from turnscript.core.errors import InvalidInput
from turnscript.datasets import preview, verify
from turnscript.datasets.encoding import Sample
from turnscript.datasets.executors import Processes
from turnscript.datasets.form import Example
from turnscript.datasets.ordercheck import SHOWN_ANEW
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import encoder_of
from turnscript.datasets.problems import BadRow, Code, Problem
from turnscript.datasets.rowsamples import Made, RowSamples
from turnscript.datasets.runstats import stats_of
from turnscript.datasets.sample_checks import Checker
from turnscript.datasets.train import MODEL

CHATML = "batuta-chatml"
USER, SAID = {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}
THOUGHT = {**SAID, "reasoning_content": "hm"}


def turns(**fields: Any) -> Plan:
    return plan_for("none.jsonl", **{"format": CHATML, "expand": "turns", **fields})


def made(plan: Plan, *examples: Example) -> Made:
    [found] = RowSamples(encoder_of(plan), plan).make([list(examples)])
    return found


def said(sample: Sample) -> tuple[str, str]:
    """The text of a sample of bytes, and what of it is trained."""
    ids = np.where(sample.ids < 256, sample.ids, 0).astype(np.uint8)
    return ids[:-1].tobytes().decode(), ids[sample.weights > 0].tobytes().decode().rstrip("\0")


def example(*texts: str, **rest: Any) -> Example:
    return Example(ts.parse(json.dumps(chat(*texts)), "openai-chat"), **rest)


def test_each_turn_of_the_model_is_the_end_of_a_sample() -> None:
    found = [said(one) for one in made(turns(), example("Hi", "Ho", "And?", "So", "Bye")).samples]
    assert ["Ho<|im_end|>", "So<|im_end|>"] == [trained for _, trained in found]
    assert found[1][0].startswith(found[0][0])
    assert "Bye" not in found[1][0]


def test_a_turn_is_what_the_model_says_until_somebody_else_speaks() -> None:
    found = made(turns(), Example(corpora.load("thinking_text_call"))).samples
    trained = [said(one)[1] for one in found]
    assert [1, 1, 0] == [text.count("</think>") for text in trained]
    assert [True, True, False] == [text.endswith("</tool_call><|im_end|>") for text in trained]
    assert "Tokyo is warmer.<|im_end|>" == trained[2]


@pytest.mark.parametrize(("train", "trained"), [("last", ["So"]), ("answers", ["Ho", "So"]), ("user", ["Hi", "And?"])])
def test_what_is_trained_is_trained_once(train: str, trained: list[str]) -> None:
    found = made(turns(train=train), example("Hi", "Ho", "And?", "So")).samples
    assert trained == [said(one)[1].removesuffix("<|im_end|>") for one in found]


def test_what_stands_behind_the_last_turn_has_a_sample_if_it_is_trained() -> None:
    found = made(turns(train="user"), example("Hi", "Ho", "Bye")).samples
    assert ["Hi<|im_end|>", "Bye<|im_end|>"] == [said(one)[1] for one in found]


def test_a_turn_that_is_not_trained_has_no_sample() -> None:
    texts = ("Hi", "Ho", "And?", "So", "Now?", "Yes")
    for marked in (example(*texts, weights={1: 0.0}), example(*texts, context=frozenset(range(2)))):
        assert ["So", "Yes"] == [said(one)[1].removesuffix("<|im_end|>") for one in made(turns(), marked).samples]
    nothing = made(turns(), example("Hi", "Ho", weights={1: 0.0}))
    assert nothing.problem is not None
    assert Code.NO_TRAINED_TOKEN == nothing.problem.code


@pytest.mark.parametrize("name", ["rwkv-goose", "rwkv-universal", CHATML])
def test_an_answer_without_a_word_costs_no_other_turn(name: str) -> None:
    found = made(turns(format=name), example("Hi", "", "And?", "So"))
    assert found.problem is None
    assert said(found.samples[-1])[1].startswith(("So", " So"))


def test_a_plain_text_is_one_sample() -> None:
    assert 1 == len(made(turns(), Example(ts.Request(), text="Hi")).samples)


CHANGING = [("rwkv-goose", ""), ("rwkv-universal", ""), ("openchatml", "")]
FORGETTING = [(name, "drop-thinking") for name in ts.formats() if "drop-thinking" in ts.get_format(name).variants]


@pytest.mark.deep
@pytest.mark.parametrize(("name", "variant"), [*CHANGING, *FORGETTING])
def test_every_sample_begins_as_its_prompt_and_ends_with_a_trained_end(name: str, variant: str) -> None:
    """No trained turn of any conversation is shown in another way than its prompt leads to."""
    plan = turns(format=name, variant=variant)
    checker = Checker(encoder_of(plan))
    for case in corpora.names():
        request = corpora.load(case)
        request.locate()
        for part, sample in made(plan, Example(request)).whole[-3:]:
            faults = checker.faults(part, sample)
            assert [] == [one for one in faults if "what ends it" not in one], (case, part.label)
    assert checker.counts.prompts + checker.counts.opened == checker.counts.samples > 100
    assert 0 == checker.counts.later


@pytest.mark.parametrize(("name", "variant"), FORGETTING)
def test_a_thought_is_there_while_it_is_thought_and_gone_afterwards(name: str, variant: str, tmp_path: Path) -> None:
    rows = [{"messages": [USER, THOUGHT, USER, THOUGHT]}]
    file = written(tmp_path / "a.jsonl", [json.dumps(row).encode() for row in rows])
    fields: dict[str, Any] = {"format": name, "variant": variant, "outputs": ("jsonl",)}
    report = built(plan_for(file, **fields), tmp_path / "whole")
    assert {SHOWN_ANEW: 1} == report.warnings
    assert 2 == report.losses
    report = built(plan_for(file, **fields, expand="turns"), tmp_path / "out")
    assert ({}, 0) == (report.warnings, report.losses)
    assert verify(tmp_path / "out").ok
    texts = [bytes(one["input_ids"][:-1]).decode() for one in documents(tmp_path / "out")]
    assert [1, 1] == [text.count("hm") for text in texts]
    format_ = ts.get_format(name).variant(variant)
    for text, end in zip(texts, (1, 3), strict=True):
        asked = ts.parse(json.dumps({"messages": rows[0]["messages"][:end]}), "openai-chat")
        assert text.startswith(format_.prompt(asked, thinking=False).text)


ROWS = [chat("Hi", "Ho"), chat("a", "b", "c", "d"), chat("Hi", "Ho"), chat("alone"), {"messages": 7}]


def test_rows_are_counted_as_rows_and_samples_as_samples(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [json.dumps(row).encode() for row in ROWS])
    plan = plan_for(file, outputs=("jsonl", "binidx"), expand="turns", dedup="exact", repeat=2)
    report = built(plan, tmp_path / "out")
    assert (5, 2, 1, 2) == (report.rows, report.written, report.duplicates, report.rejects)
    assert 6 == report.samples == report.documents == len(documents(tmp_path / "out"))
    assert {"E_NO_TRAINED_TOKEN", "E_SHAPE"} == {one["code"] for one in rejects(tmp_path / "out")}
    found = verify(tmp_path / "out")
    assert found.ok, found.findings
    assert 4 == found.checks.prompts + found.checks.opened
    stats = stats_of(tmp_path / "out")
    assert (6, 5) == (stats.samples, stats.looked_at)


TEXTS = st.lists(st.text("ab é\n<>", min_size=1, max_size=9), min_size=1, max_size=8)
OVERFLOWS = st.sampled_from(["reject", "drop-turns", "cut", "split"])


@settings(max_examples=25)
@given(st.lists(TEXTS, min_size=1, max_size=5), OVERFLOWS, st.integers(30, 90), st.booleans())
def test_every_row_is_in_one_place_whatever_is_too_long(
    rows: list[list[str]], overflow: str, limit: int, duplicates: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder, "a.jsonl"), [json.dumps(chat(*row)).encode() for row in rows])
        fields = {"overflow": overflow, "max_tokens": limit, "dedup": "exact" if duplicates else "none"}
        report = built(plan_for(file, outputs=("jsonl",), expand="turns", **fields), Path(folder, "out"))
        found = verify(Path(folder, "out"))
        samples = documents(Path(folder, "out"))
    assert len(rows) == report.rows == report.written + report.duplicates + report.rejects
    assert found.ok, found.findings
    assert all(len(one["input_ids"]) <= limit and any(one["loss_weight"]) for one in samples)
    assert report.documents == len(samples) >= report.written


def test_turns_that_are_too_long_are_left_out_and_counted(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [json.dumps(chat("Hi", "Ho", "And?" * 40, "So")).encode()])
    report = built(plan_for(file, expand="turns", max_tokens=100), tmp_path / "aside")
    assert {"E_TOO_LONG": 1} == report.rejected
    for overflow in ("drop-turns", "cut"):
        plan = plan_for(file, expand="turns", max_tokens=100, overflow=overflow, outputs=("jsonl",))
        report = built(plan, tmp_path / overflow)
        assert (1, 1, 1) == (report.written, report.samples, report.cuts.dropped_turns)
        assert report.cuts.tokens > 160


def test_a_row_with_one_bad_example_is_set_aside_whole() -> None:
    good, bad = example("Hi", "Ho", "And?", "So"), example("Hi")
    found = made(turns(), good, bad)
    assert not found.samples
    assert found.problem is not None
    assert 3 == len(made(turns(), good, example("Hi", "Ha")).samples)


@pytest.mark.usefixtures("forked_workers")
def test_workers_and_shards_change_no_byte(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(120))
    plan = plan_for(file, outputs=("jsonl", "binidx"), expand="turns", dedup="exact", shuffle=3)
    built(plan, tmp_path / "one", shards=1)
    built(plan, tmp_path / "many", Processes(2), shards=5)
    assert results(tmp_path / "one") == results(tmp_path / "many")


def test_a_plan_says_it_in_its_key_and_refuses_what_would_train_twice() -> None:
    assert turns().row_facts() != turns(expand="none").row_facts()
    with pytest.raises(InvalidInput, match="again and again"):
        turns(train="all")
    with pytest.raises(InvalidInput, match="none, turns"):
        turns(expand="rows")


def test_a_preview_shows_the_samples_and_so_does_the_command_line(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [json.dumps(chat("Hi", "Ho", "", "", "And?", "So")).encode()])
    found = preview(str(file), format="rwkv-goose", tokenizer="rwkv-world", form="messages", expand="turns")
    assert ["turn 1", "turn 3"] == [one.label for one in found.examples]
    assert [None, None] == [one.problem for one in found.examples]
    to = ("--to", "rwkv-goose", "--tokenizer", "rwkv-world", "--expand", "turns")
    result = run("data", "preview", str(file), *to)
    assert "example 2 of 2: turn 3" in result.output


def test_a_conversation_in_memory_has_the_samples_of_its_row(tmp_path: Path) -> None:
    row = chat("Hi", "Ho", "And?", "So")
    file = written(tmp_path / "a.jsonl", [json.dumps(row).encode()])
    plan = plan_for(file, expand="turns", outputs=("jsonl",))
    built(plan, tmp_path / "out")
    request = ts.parse(json.dumps(row), "openai-chat")
    found = [(one.ids.tolist(), one.weights.tolist()) for one in plan.encode_all(request)]
    assert found == [(one["input_ids"], one["loss_weight"]) for one in documents(tmp_path / "out")]
    with pytest.raises(InvalidInput, match="encode_all"):
        plan.encode(request)
    with pytest.raises(BadRow):
        plan.encode_all(ts.Request())
    assert 1 == len(plan_for(file).encode_all(request))


def test_a_long_conversation_is_encoded_some_turns_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = turns()
    encoder = encoder_of(plan)
    sizes: list[int] = []
    encode = encoder.encode
    monkeypatch.setattr("turnscript.datasets.rowsamples.BATCH_BYTES", 5000)

    def counted(parts: Sequence[Example]) -> list[Sample | Problem]:
        sizes.append(len(parts))
        return encode(parts)

    monkeypatch.setattr(encoder, "encode", counted)
    texts = ["text " * 10] * 100
    [found] = RowSamples(encoder, plan).make([[example(*texts)]])
    assert 50 == len(found.samples) == sum(sizes)
    assert len(sizes) > 10
    assert all(item.kind in MODEL for part, _ in found.whole for item in part.request.items[-1:])
