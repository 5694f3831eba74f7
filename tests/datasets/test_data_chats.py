"""Owns the laws of conversations beside their tokens: built again they give the same, and a change of one is found."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.json  # type: ignore[import-untyped]
import pytest

from tests.cli.running import run
from tests.datasets.jobs import built, chat, chats, documents, peak_of, plan_for, rejects, written
from tests.datasets.test_data_verify import believed, said
from turnscript.core.errors import InvalidInput
from turnscript.datasets.build import build
from turnscript.datasets.executors import Shard
from turnscript.datasets.merge import merge
from turnscript.datasets.verify import verify

CALL = {"id": "c1", "type": "function", "function": {"name": "get", "arguments": '{ "a": 1.0,  "b":1e5 }'}}
TOOL = '{"type":"function","function":{"name":"get","parameters":{"type": "object",  "default":1.0}}}'
BUSY: list[dict[str, Any]] = [
    chat("Hi", "Hello.", "Bye", "See you."),
    {
        "messages": [
            {"role": "developer", "content": "Be brief.", "name": "boss"},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "reasoning_content": "hm", "content": "I look.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "é"},
            {"role": "assistant", "content": "No.", "weight": 0},
            {"role": "user", "content": "Sure?", "id": "m5"},
            {"role": "assistant", "content": "Yes."},
        ],
        "tools": [json.loads(TOOL)],
    },
    {
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "get", "arguments": {"a": [1, 2]}}}]},
            {"role": "tool", "content": {"found": 1}},
            {"role": "assistant", "content": "a", "weight": 0.5},
        ]
    },
]


def lines(*rows: dict[str, Any]) -> list[bytes]:
    return [json.dumps(row).encode() for row in rows]


def told(out: Path) -> list[Any]:
    return [line["messages"] for line in documents(out)]


def without_sources(out: Path) -> list[dict[str, Any]]:
    return [{name: value for name, value in line.items() if name != "source"} for line in documents(out)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"format": "openchatml", "weights": "scaled", "train": "all"},
        {"format": "rwkv-goose", "tokenizer": "rwkv-world", "weights": "scaled"},
        {"format": "batuta-chatml", "expand": "turns"},
        {"overflow": "drop-turns", "max_tokens": 120},
    ],
)
def test_what_was_built_is_built_again_from_its_messages(fields: dict[str, Any], tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", [*lines(*BUSY), *chats(30)])
    first = built(plan_for(rows, outputs=("jsonl",), **fields), tmp_path / "one")
    again = built(
        plan_for(tmp_path / "one" / "train.jsonl", outputs=("jsonl",), **{**fields, "form": "auto"}), tmp_path / "two"
    )
    assert (first.documents, first.tokens, first.trained) == (again.documents, again.tokens, again.trained)
    assert without_sources(tmp_path / "one") == without_sources(tmp_path / "two")
    assert (first.chatless, {}, 0) == (0, first.chat_losses, again.rejects)
    assert verify(tmp_path / "one").ok
    assert verify(tmp_path / "two").ok


def test_messages_spell_json_as_their_tokens_do(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines(*BUSY))
    plan: dict[str, Any] = {"outputs": ("jsonl",), "weights": "scaled"}
    built(plan_for(rows, normalize_json=True, **plan), tmp_path / "one")
    (_, call, _) = told(tmp_path / "one")
    assert '{"a": 1.0, "b": 1e5}' == call[2]["tool_calls"][0]["function"]["arguments"]
    built(plan_for(tmp_path / "one" / "train.jsonl", **plan), tmp_path / "two")
    assert without_sources(tmp_path / "one") == without_sources(tmp_path / "two")
    assert verify(tmp_path / "one").ok


def test_each_turn_has_what_led_to_it(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines(chat("Hi", "Hello.", "Bye", "See you.")))
    built(plan_for(rows, outputs=("jsonl",), expand="turns"), tmp_path / "out")
    one, two = told(tmp_path / "out")
    assert [("Hi", None), ("Hello.", None)] == [(each["content"], each.get("weight")) for each in one]
    assert [0, 0, None, None] == [each.get("weight") for each in two]


def test_turns_that_are_dropped_are_dropped_from_the_messages_too(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines(chat("Hi", "Hello.", "Bye", "See you. " * 90)))
    plan = plan_for(rows, outputs=("jsonl",), overflow="drop-turns", max_tokens=200)
    report = built(plan, tmp_path / "out")
    assert [["Hi", "Hello."]] == [[message["content"] for message in one] for one in told(tmp_path / "out")]
    assert 0 == report.chatless


@pytest.mark.parametrize(("overflow", "samples"), [("cut", 1), ("split", 3)])
def test_a_part_of_a_conversation_has_no_messages_and_that_is_told(overflow: str, samples: int, tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines(chat("Hi", "Hello. " * 40), chat("Hi", "Hello.")))
    report = built(plan_for(rows, outputs=("jsonl",), overflow=overflow, max_tokens=150), tmp_path / "out")
    found = documents(tmp_path / "out")
    parts = [one for one in found if one["source"][0].endswith(":1")]
    assert [(None, None)] * samples == [(one["messages"], one["tools"]) for one in parts]
    assert ["Hi", "Hello."] == [message["content"] for message in found[-1]["messages"]]
    assert samples == report.chatless
    assert [True] == ["no messages" in note for note in report.notes() if "document" in note]
    assert verify(tmp_path / "out").ok


def test_a_plain_text_has_no_messages(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines({"text": "Once."}))
    report = built(plan_for(rows, outputs=("jsonl",), form="text"), tmp_path / "out")
    assert ([None], 1) == (told(tmp_path / "out"), report.chatless)
    assert verify(tmp_path / "out").ok


ERROR: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "get", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": True}],
        },
        {"role": "assistant", "content": "It failed."},
    ]
}


def test_what_messages_cannot_say_is_counted_and_sets_aside_under_strict_alone(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines({"model": "m", "max_tokens": 1, **ERROR}))
    plan: dict[str, Any] = {"form": "anthropic-messages"}
    report = built(plan_for(rows, outputs=("jsonl",), **plan), tmp_path / "out")
    assert ({}, [1]) == (report.loss_kinds, list(report.chat_losses.values()))
    (kind,) = report.chat_losses
    assert "$.messages[].content[].is_error: dropped: " in kind
    assert verify(tmp_path / "out").ok
    # The format can say it, so a strict build without messages takes the row.
    for outputs, kept in ((("binidx",), 1), (("binidx", "jsonl"), 0), (("binidx",), 1)):
        report = built(plan_for(rows, outputs=outputs, strict=True, **plan), tmp_path / "strict", keep=True)
        assert kept == report.written
    built(plan_for(rows, outputs=("jsonl",), strict=True, **plan), tmp_path / "strict")
    (reject,) = rejects(tmp_path / "strict")
    assert ("E_LOSSY", "$.messages[2].content[0].is_error") == (reject["code"], reject["pointer"])
    assert "leave JSON Lines out" in reject["message"]


def test_no_reader_of_columns_fills_arguments_or_schemas_with_nulls(tmp_path: Path) -> None:
    calls = [{**CALL, "function": {"name": "get", "arguments": json.dumps(each)}} for each in ({"a": 1}, {"b": [2]})]
    pairs = [
        {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "tool_calls": [call]}], "tools": [tool]}
        for call, tool in zip(calls, [json.loads(TOOL), {"name": "get", "parameters": {"type": 1}}], strict=True)
    ]
    rows = written(tmp_path / "rows.jsonl", lines(*pairs, chat("q", "a")))
    built(plan_for(rows, outputs=("jsonl",)), tmp_path / "out")
    table = pyarrow.json.read_json(tmp_path / "out" / "train.jsonl").to_pylist()
    written(tmp_path / "again.jsonl", lines(*table))
    assert [None] == [one["tools"] for one in table[2:]]
    assert "null" not in "".join(one["tools"] for one in table[:2])
    built(plan_for(tmp_path / "again.jsonl", outputs=("jsonl",)), tmp_path / "two")
    assert without_sources(tmp_path / "out") == without_sources(tmp_path / "two")


def test_windows_of_packed_samples_are_verified_and_refused_as_rows(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", chats(60))
    for pack, fields in (("bfd:600", {"max_tokens": 600, "overflow": "drop-turns"}), ("stream:500", {"shuffle": 2})):
        out = tmp_path / pack[:3]
        report = built(plan_for(rows, outputs=("jsonl",), pack=pack, **fields), out)
        whole = [one for window in documents(out) for one in window["messages"] if one is not None]
        pieces = sum(len(window["doc_starts"]) for window in documents(out))
        assert 0 < len(whole) == pieces - report.chatless
        found = verify(out)
        assert "" == said(found)
        assert len(whole) == found.outputs["jsonl"].chats
        with pytest.raises(InvalidInput, match="form"):
            built(plan_for(out / "train.jsonl", form="auto"), tmp_path / "again")


# What was changed afterwards.


def _changed(messages: Any) -> Any:
    messages[-1]["content"] += "!"
    return messages


def _emptied(messages: Any) -> None:
    return None


def _spaced(messages: Any) -> Any:
    return [*messages, {"role": "user", "content": "More."}]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_changed, "its messages are others: at character"),
        (_spaced, "its messages are others: at character"),
        (_emptied, "it has no messages and should have some"),
    ],
)
def test_messages_that_were_changed_are_found_with_their_row(
    change: Callable[[Any], Any], reason: str, tmp_path: Path
) -> None:
    rows = written(tmp_path / "rows.jsonl", chats(20))
    out = tmp_path / "out"
    built(plan_for(rows, outputs=("jsonl", "binidx")), out)
    found = documents(out)
    found[7]["messages"] = change(found[7]["messages"])
    (out / "train.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, found)) + b"\n")
    believed(out)
    (missing, other) = verify(out).findings
    assert "jsonl has it 0 times, and the plan says 1" == missing.message
    assert (found[7]["source"][0], True) == (other.place, reason in other.message), other


def test_messages_of_a_part_are_found(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", chats(10))
    out = tmp_path / "out"
    built(plan_for(rows, outputs=("jsonl",), pack="stream:60"), out)
    found = documents(out)
    at = next(at for at, one in enumerate(found) if one["messages"] == [None])
    found[at] |= {"messages": [[{"role": "user", "content": "x"}]], "tools": [None]}
    (out / "train.jsonl").write_bytes(b"\n".join(map(msgspec.json.encode, found)) + b"\n")
    believed(out)
    assert "a part of the row has messages, which say more than its tokens" in said(verify(out))


# The folder.


def test_a_folder_that_an_earlier_layout_left_is_refused_in_plain_words(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", chats(10))
    out = tmp_path / "out"
    plan = plan_for(rows, outputs=("jsonl",))
    report = built(plan, out, keep=True)
    (out / "manifest.json").unlink()
    prepared = json.loads((out / "plan.json").read_bytes())
    del prepared["chats"]
    (out / "plan.json").write_text(json.dumps({**prepared, "layout": 1}))
    with pytest.raises(InvalidInput, match="holds no plan of this version of turnscript; build there first"):
        merge(out)
    assert report == built(plan, out)


def test_nobody_else_pays_for_conversations(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", chats(10))
    built(plan_for(rows, outputs=("binidx", "parquet")), tmp_path / "out", keep=True)
    assert {".ids", ".weights", ".index", ".rejects", ".json"} == {
        path.suffix for path in (tmp_path / "out" / "shards").iterdir()
    }


def test_damaged_conversations_of_a_shard_are_not_merged(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", chats(40))
    out = tmp_path / "out"
    from_parts = plan_for(rows, outputs=("jsonl",))
    for part in (1, 2):
        build(from_parts, out, executor=Shard(part, 2), shards=2)
    path = out / "shards" / "00001.chats"
    path.write_bytes(path.read_bytes().replace(b"wort", b"mort", 1))
    with pytest.raises(InvalidInput, match=r"00001\.chats: damaged"):
        merge(out)
    path.unlink()
    with pytest.raises(InvalidInput, match="1 of 2 shards are not finished: 2"):
        merge(out)


MEASURED = """
import pathlib, sys
from tests.datasets.jobs import built, plan_for
from turnscript.datasets.verify import verify
out = pathlib.Path(sys.argv[2])
built(plan_for(sys.argv[1], format="rwkv-goose", media="drop", outputs=("jsonl",), shuffle=1), out, shards=1)
assert verify(out).ok
"""


@pytest.mark.deep
@pytest.mark.long
def test_memory_does_not_grow_with_conversations_that_say_more_than_their_tokens(tmp_path: Path) -> None:
    """Pictures, which the format does not show: few tokens each, and a megabyte of text."""
    peaks: list[int] = []
    for count in (10, 80):
        with open(tmp_path / f"{count}.jsonl", "w") as file:
            for at in range(count):
                picture = {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/png;base64,{at:04}{'aGVs' * (1 << 18)}"},
                }
                asked = {"role": "user", "content": [{"type": "text", "text": f"What is {at}?"}, picture]}
                row = {"messages": [asked, {"role": "assistant", "content": "Nothing."}]}
                file.write(json.dumps(row) + "\n")
        peaks.append(peak_of(MEASURED, tmp_path / f"{count}.jsonl", tmp_path / str(count)))
    assert peaks[1] < peaks[0] + 30


def test_what_messages_cannot_say_is_on_the_screen(tmp_path: Path) -> None:
    rows = written(tmp_path / "rows.jsonl", lines({"model": "m", "max_tokens": 1, **ERROR}))
    options = ["--from", "anthropic-messages", "--to", "rwkv-universal", "--tokenizer", "bytes", "--format", "jsonl"]
    shown = run("data", "build", str(rows), *options, "--out", str(tmp_path / "out")).output
    assert "note: 1 thing in the rows cannot be said in the messages beside the tokens\n  1 x $.messages[]" in shown
