"""One shard: rows kept or set aside whole, samples that are too long, and what is counted on the way."""

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.jobs import built, chat, documents, logged, plan_for, rejects, written
from turnscript.core.errors import InvalidInput
from turnscript.core.losses import Loss
from turnscript.datasets.form_registry import get_form
from turnscript.datasets.losskinds import MOST, OTHER, count_losses, kind_of, loss_lines, summed
from turnscript.datasets.ordercheck import (
    CALL_ALONE,
    CALL_FIRST,
    NO_ANSWER,
    NO_RESULT,
    OWN_WORDS,
    SHOWN_ANEW,
    order_warnings,
)
from turnscript.datasets.overflow import Overflow
from turnscript.datasets.preparation import encoder_of, prepare
from turnscript.datasets.shard import run_shard, run_shard_in
from turnscript.datasets.shardfiles import REJECTS, find_record, shard_file

LONG = chat("q1", "first answer", "q2", "second answer", "q3", "the third and longest answer of all")


def made(folder: Path, rows: list[Any], **fields: Any) -> tuple[Any, list[dict[str, Any]], list[dict[str, Any]]]:
    """The report, the samples and the rejects of some rows."""
    file = written(folder / "in" / "a.jsonl", [json.dumps(row).encode() for row in rows])
    report = built(plan_for(file, outputs=("jsonl",), **fields), folder / "out", resume=False)
    return report, documents(folder / "out"), rejects(folder / "out")


def text_of(sample: dict[str, Any]) -> str:
    """The text of a sample whose tokens are bytes; the end of a document is `$`."""
    return "".join(chr(one) if one < 256 else "$" for one in sample["input_ids"])


def trained(sample: dict[str, Any]) -> str:
    """The text that counts."""
    pairs = zip(text_of(sample), sample["loss_weight"], strict=True)
    return "".join(one for one, weight in pairs if weight)


def test_a_sample_that_is_too_long_is_set_aside(tmp_path: Path) -> None:
    _, [whole], _ = made(tmp_path, [LONG])
    size = len(whole["input_ids"])
    report, samples, aside = made(tmp_path, [LONG, chat("q", "a")], max_tokens=size - 1)
    assert ["E_TOO_LONG"] == [one["code"] for one in aside]
    assert f"{size} tokens, and {size - 1} are allowed" in aside[0]["message"]
    assert (1, 1, 0) == (len(samples), report.written, report.cuts.tokens)
    assert 2 == len(made(tmp_path, [LONG, chat("q", "a")], max_tokens=size)[1])


def test_turns_are_dropped_from_the_end_until_it_fits(tmp_path: Path) -> None:
    _, [two], _ = made(tmp_path, [chat("q1", "first answer", "q2", "second answer")])
    _, [whole], _ = made(tmp_path, [LONG])
    size = len(two["input_ids"])
    for limit, expected in ((size, 2), (size + 5, 2), (size - 1, 1)):
        report, [sample], aside = made(tmp_path, [LONG], max_tokens=limit, overflow="drop-turns")
        assert expected == trained(sample).count("answer")
        assert text_of(whole).startswith(text_of(sample).removesuffix("$"))
        assert (1, []) == (report.cuts.dropped_turns, aside)
        assert report.cuts.tokens == len(whole["input_ids"]) - len(sample["input_ids"])
    _, samples, aside = made(tmp_path, [LONG], max_tokens=10, overflow="drop-turns")
    assert ([], ["E_TOO_LONG"]) == (samples, [one["code"] for one in aside])


def test_a_cut_keeps_the_beginning_and_is_counted(tmp_path: Path) -> None:
    _, [whole], _ = made(tmp_path, [LONG])
    report, [sample], _ = made(tmp_path, [LONG], max_tokens=80, overflow="cut")
    assert sample["input_ids"] == whole["input_ids"][:80]
    assert sample["loss_weight"] == whole["loss_weight"][:80]
    assert (1, len(whole["input_ids"]) - 80) == (report.cuts.cut, report.cuts.tokens)
    assert report.trained == len(trained(sample))
    assert "E_TOO_LONG" == made(tmp_path, [LONG], max_tokens=5, overflow="cut")[2][0]["code"]


def test_a_split_keeps_every_token_that_is_trained(tmp_path: Path) -> None:
    _, [whole], _ = made(tmp_path, [LONG])
    report, samples, _ = made(tmp_path, [LONG], max_tokens=40, overflow="split")
    assert trained(whole) == "".join(map(trained, samples))
    assert all(map(trained, samples))
    assert 1 == report.cuts.split
    assert report.cuts.tokens == len(whole["input_ids"]) - sum(len(one["input_ids"]) for one in samples)
    # Where windows keep documents whole, they set the limit if nobody else does.
    report, windows, _ = made(tmp_path, [LONG], pack="bfd:40", overflow="split")
    assert sorted(map(trained, samples)) == sorted(map(trained, windows))
    assert all(40 == len(one["input_ids"]) for one in windows)


def test_a_row_with_one_bad_sample_is_set_aside_whole(tmp_path: Path) -> None:
    rows = [logged("q", "short", "very long " * 30), logged("q", "a", "b")]
    report, samples, aside = made(tmp_path, rows, form="openai-chat", max_tokens=100)
    assert (2, 1, 1) == (report.rows, report.written, report.rejects)
    assert ["E_TOO_LONG"] == [one["code"] for one in aside]
    assert 2 == len(samples)
    # Nothing of a row that was set aside is counted as cut, either.
    rows[0] = logged("q" * 200, "x" * 300, "y")
    report, _, _ = made(tmp_path, rows, form="openai-chat", max_tokens=100, overflow="cut")
    assert (1, 0) == (report.rejects, report.cuts.cut)


def test_a_row_that_is_nested_too_deep_is_set_aside(tmp_path: Path) -> None:
    deep = b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    file = written(tmp_path / "a.jsonl", [json.dumps(chat("q", "a")).encode(), deep])
    report = built(plan_for(file), tmp_path / "out")
    assert (1, 1) == (report.written, report.rejects)


@pytest.mark.parametrize("number", [-1, 2, 64])
def test_a_shard_that_is_not_there_is_told_with_how_many_there_are(tmp_path: Path, number: int) -> None:
    """Those who count from 1 must not miss the first and fail at the last, nor get the last for -1."""
    out = str(tmp_path / "out")
    rows = [json.dumps(chat("question", "answer")).encode()] * 2
    prepare(plan_for(written(tmp_path / "a.jsonl", rows)), out, shards=2)
    with pytest.raises(InvalidInput, match=f"no shard {number}: the folder has 2, counted from 0"):
        run_shard_in(out, number)


def test_a_shard_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [json.dumps(LONG).encode()] * 3)
    prepared = prepare(plan_for(file), tmp_path / "out")
    told: list[object] = []
    record = run_shard(prepared, tmp_path / "out", 0, told.append)
    assert told
    told.clear()
    assert record == run_shard(prepared, tmp_path / "out", 0, told.append)
    assert not told
    path = shard_file(tmp_path / "out", 0, REJECTS)
    for damage in (lambda: path.write_bytes(b"x"), path.unlink):
        damage()
        assert find_record(tmp_path / "out", 0, record.key) is None
        assert record == run_shard(prepared, tmp_path / "out", 0)
    assert find_record(tmp_path / "out", 0, "another key") is None


def call(name: str = "t", number: str = "1") -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": number, "type": "function", "function": function}],
    }


USER, SAID = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "r"}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([USER, SAID], set()),
        ([USER, {**call(), "content": "let me see"}, RESULT, SAID], set()),
        ([USER, call(), RESULT, SAID], {CALL_ALONE}),
        ([call(), RESULT, SAID], {CALL_FIRST}),
        ([USER, {**call(), "content": "so"}], {NO_RESULT}),
        ([USER, {**call(), "content": "so"}, RESULT], {NO_ANSWER}),
        ([USER, {**call(), "content": "so"}, RESULT, USER, SAID], {NO_ANSWER}),
    ],
)
def test_turns_with_tools_in_an_unusual_order_are_counted(
    tmp_path: Path, messages: list[Any], expected: set[str]
) -> None:
    """R-U-38: user, acknowledgement, call, result, final answer; anything else is a warning."""
    [example] = get_form("messages").read(json.dumps({"messages": messages}).encode())
    assert expected == order_warnings(example.request.items)
    report, samples, _ = made(tmp_path, [{"messages": messages}, chat("q", "a")])
    calls = any("tool_calls" in message for message in messages)
    assert dict.fromkeys(sorted([*expected, *[OWN_WORDS] * calls]), 1) == report.warnings
    assert 2 == len(samples)
    assert len(expected) + calls <= len(list(report.notes()))
    bare, _, _ = made(tmp_path / "bare", [{"messages": messages}, chat("q", "a")], bare_calls=True)
    anew = {SHOWN_ANEW} if CALL_ALONE in expected or CALL_FIRST in expected else set()
    assert dict.fromkeys(sorted([*expected, *anew, *[OWN_WORDS] * calls]), 1) == bare.warnings


THOUGHT = {**SAID, "reasoning_content": "hm"}


@pytest.mark.parametrize(
    ("messages", "anew"),
    [
        ([USER, SAID, USER, SAID], False),
        ([USER, THOUGHT], False),
        ([USER, THOUGHT, USER, SAID], True),
        ([USER, SAID, USER, THOUGHT], False),
        ([USER, {**call(), "content": "so"}, RESULT, SAID, USER, SAID], False),
        ([USER, {**call(), **THOUGHT}, RESULT, SAID], False),
        ([USER, {**call(), **THOUGHT}, RESULT, SAID, USER, SAID], True),
        ([USER, call(), RESULT, SAID], False),
        ([USER, call()], False),
    ],
)
@pytest.mark.parametrize("name", ["rwkv-goose", "batuta-chatml", "rwkv-universal", "openchatml"])
def test_turns_that_later_prompts_may_show_otherwise_are_counted(
    tmp_path: Path, messages: list[Any], anew: bool, name: str
) -> None:
    report, _, _ = made(tmp_path, [{"messages": messages}], format=name)
    bare, _, _ = made(tmp_path / "bare", [{"messages": messages}], format=name, bare_calls=True)
    changes = name in ("rwkv-goose", "openchatml")
    assert int(anew and changes) == report.warnings.get(SHOWN_ANEW, 0)
    at_once = name == "rwkv-universal" and messages[1:3] == [call(), RESULT]
    assert int((anew and changes) or at_once) == bare.warnings.get(SHOWN_ANEW, 0)


def test_what_a_format_cannot_say_is_counted_by_what_and_where(tmp_path: Path) -> None:
    rows = [{"messages": [USER, {**call(), "content": "so"}, RESULT, SAID] * turns} for turns in (1, 2, 2)]
    report, samples, _ = made(tmp_path, rows, format="rwkv-goose")
    expected = {
        f"$.messages[].{place}: dropped: this format has no place for it": 5 for place in ("id", "tool_calls[].id")
    }
    assert expected == report.loss_kinds
    assert (10, 3) == (report.losses, len(samples))
    # A sample that is cut in two says nothing twice, and what was set aside says nothing.
    short = made(tmp_path, rows, format="rwkv-goose", max_tokens=60, overflow="split")[0]
    assert short.cuts.split
    assert expected == short.loss_kinds
    assert {} == made(tmp_path, rows, format="rwkv-goose", max_tokens=20)[0].loss_kinds
    assert {} == made(tmp_path, rows, format="rwkv-universal")[0].loss_kinds


def test_kinds_of_losses_are_told_apart_up_to_a_limit() -> None:
    several = 3 * MOST
    many = [Loss(f"$.a[{at}].m{at % several:05}", "dropped", "no place") for at in range(3 * several)]

    def counted(*cuts: int) -> dict[str, int]:
        shards = []
        for first, last in itertools.pairwise((0, *cuts, len(many))):
            counts: Counter[str] = Counter()
            for loss in many[first:last]:
                count_losses(counts, [loss])
            assert len(counts) <= 2 * MOST + 1
            shards.append(summed([counts]))
        return summed(shards)

    counts = counted()
    assert (MOST + 1, len(many)) == (len(counts), sum(counts.values()))
    assert counts[OTHER] == 3 * (several - MOST)
    assert 3 == counts["$.a[].m00000: dropped: no place"]
    assert counts == counted(1) == counted(2500, 2501) == counted(100, 4000, 8999), "however rows are cut into shards"
    shown = list(loss_lines(counts, most=2))
    more = f"  and {MOST - 1} more kinds, which manifest.json has"
    assert ["  3 x $.a[].m00000: dropped: no place", more] == shown[1:]


def test_losses_of_a_session_are_told_by_what_and_where_in_a_line() -> None:
    assert "$.message.id: dropped: no place" == kind_of(Loss("line 17: $.message.id", "dropped", "no place"))


def test_dropping_turns_never_tries_more_than_it_must(tmp_path: Path) -> None:
    """A long row is halved, not shortened turn by turn: a thousand turns take a dozen tries."""
    texts = [f"text number {at}" for at in range(1000)]
    plan = plan_for("unused", max_tokens=3000, overflow="drop-turns")
    encoder = encoder_of(plan)
    tries = 0

    class Counting:
        def encode(self, examples: Any) -> Any:
            nonlocal tries
            tries += 1
            return encoder.encode(examples)

    [example] = get_form("messages").read(json.dumps(chat(*texts)).encode())
    [sample] = encoder.encode([example])
    fitted = Overflow(Counting(), "drop-turns", 3000).fit(example, sample)  # type: ignore[arg-type]
    assert hasattr(fitted, "samples")
    assert 2900 < len(fitted.samples[0].ids) <= 3000
    assert tries <= 10
