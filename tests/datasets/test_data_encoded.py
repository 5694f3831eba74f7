"""Owns the checks of conversations that are encoded in memory: the same as a build makes of their rows."""

import json
from pathlib import Path

import numpy as np
import pytest

import turnscript as ts
from tests.datasets.jobs import built, chat, documents, plan_for, written
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.verify import verify

TURNS = [("Hi", "Hello."), ("Wie geht's? 。", "Gut.\n\nUnd dir?", "é", "bye"), ("a", "<<USER>> b")]


@pytest.mark.parametrize("tokenizer", ["bytes", "rwkv-world"])
def test_a_conversation_in_memory_has_the_tokens_of_its_row(tokenizer: str, tmp_path: Path) -> None:
    rows = [chat(*texts) for texts in TURNS]
    file = written(tmp_path / "a.jsonl", [json.dumps(row).encode() for row in rows])
    plan = plan_for(file, tokenizer=tokenizer, outputs=("jsonl",), train="assistant,end")
    built(plan, tmp_path / "out")
    for row, document in zip(rows, documents(tmp_path / "out"), strict=True):
        found = plan.encode(ts.parse(json.dumps(row), "openai-chat"))
        assert (document["input_ids"], document["loss_weight"]) == (found.ids.tolist(), found.weights.tolist())
        assert [np.dtype(np.uint16), np.dtype(np.uint8)] == [found.ids.dtype, found.weights.dtype]
        assert [0, *(span.end for span in found.spans)] == [*(span.start for span in found.spans), len(found.ids)]
        for span in found.spans:
            assert {span.weight} == set(found.weights[span.start : span.end].tolist())
            assert span.kind in ("", "end") or (span.kind == "assistant") == bool(span.item % 2)


def test_a_suffix_is_refused_and_not_dropped() -> None:
    plan = plan_for("none", train="all")
    body = {"model": "m", "prompt": "def f(", "suffix": " return x"}
    with pytest.raises(BadRow, match="behind a hole") as caught:
        plan.encode(ts.parse(body, "openai-completions"))
    assert (Code.FORM, "$.suffix") == (caught.value.reason, caught.value.path)
    assert plan.encode(ts.parse(body | {"suffix": ""}, "openai-completions")).weights.any()


def test_weights_are_those_of_items() -> None:
    request = ts.parse(json.dumps(chat(*TURNS[1])), "openai-chat")
    plan = plan_for("none.jsonl")
    assert {1, 3} == {span.item for span in plan.encode(request).spans if span.weight and span.item >= 0}
    assert {3} == {span.item for span in plan.encode(request, {1: 0}).spans if span.weight and span.item >= 0}


def calling(arguments: str, result: str) -> bytes:
    """A row with a call and its result."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    said: list[dict[str, object]] = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "assistant", "content": '{"t":1}'},
    ]
    return json.dumps({"messages": said}).encode()


@pytest.mark.parametrize("name", ts.formats())
def test_rows_that_differ_in_how_json_is_spelled_are_one_where_the_plan_says_so(name: str, tmp_path: Path) -> None:
    rows = [calling('{"a":1.0,"b":[1]}', '{"t":2}'), calling('{ "a": 1.0, "b": [ 1 ] }', '{"t": 2}')]
    file = written(tmp_path / "a.jsonl", [*rows, calling('{"a": 1, "b": [1]}', '{"t": 2}')])
    plan = plan_for(file, format=name, outputs=("jsonl",), dedup="exact", normalize_json=True)
    report = built(plan, tmp_path / "out")
    assert (2, 1, 0) == (report.written, report.duplicates, report.rejects)
    assert verify(tmp_path / "out").ok
    encoded = plan.encode(ts.parse(rows[1], "openai-chat"))
    assert documents(tmp_path / "out")[0]["input_ids"] == encoded.ids.tolist()


@pytest.mark.parametrize("name", ts.formats())
def test_rows_that_differ_in_escapes_are_one_sample(name: str, tmp_path: Path) -> None:
    rows = [calling('{"é":"北京"}', '{"t":"北"}'), calling('{"\\u00e9":"\\u5317京"}', '{"t":"\\u5317"}')]
    plan = plan_for(written(tmp_path / "a.jsonl", rows), format=name, outputs=("jsonl",), dedup="exact", strict=False)
    report = built(plan, tmp_path / "out")
    assert (1, 1, 0) == (report.written, report.duplicates, report.rejects)
    first, second = [plan.encode(ts.parse(row, "openai-chat")) for row in rows]
    assert first.ids.tolist() == second.ids.tolist()
    assert "北京" in get_tokenizer("bytes").decode(second.ids.tolist()).decode()


def test_what_a_plan_asks_for_is_told_and_refused_by_nobody() -> None:
    request = ts.parse(calling('{"a":1}', '{"t": 2}'), "openai-chat")
    encoded = plan_for("none.jsonl", normalize_json=True, strict=True).encode(request)
    # The empty content before the call, too, is none in what is trained.
    assert ["$.messages[1].tool_calls[0].arguments", "$.messages[1]"] == [loss.path for loss in encoded.losses]
    assert b'{"a": 1}' in get_tokenizer("bytes").decode(encoded.ids.tolist())


def test_what_a_build_would_set_aside_is_an_error_with_the_same_code() -> None:
    request = ts.parse(json.dumps(chat("Hi")), "openai-chat")
    for plan, asked, code in (
        (plan_for("none.jsonl"), request, Code.NO_TRAINED_TOKEN),
        (plan_for("none.jsonl", max_tokens=9), ts.parse(json.dumps(chat("Hi", "Ho")), "openai-chat"), Code.TOO_LONG),
        (plan_for("none.jsonl"), ts.Request(), Code.EMPTY),
    ):
        with pytest.raises(BadRow) as caught:
            plan.encode(asked)
        assert code == caught.value.reason
