"""Every row that goes in comes out in exactly one place."""

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnscript as ts
from tests.cli.running import run
from tests.datasets.jobs import built, chat, documents, plan_for, rejects, written
from turnscript.datasets.problems import BadRow, Code

PLAIN = ("--to", "rwkv-universal", "--tokenizer", "bytes")
TEXTS = st.text("ab é\n<>", min_size=1, max_size=12).filter(str.strip)
GOOD = st.lists(TEXTS, min_size=2, max_size=6).map(lambda texts: json.dumps(chat(*texts)).encode())
BAD = st.sampled_from(
    [b"{", b"[1]", b'"text"', b"7", b"\xff{}", b'{"messages": []}', b'{"messages": 1}', b'{"other": "x"}', b"nul\x00l"]
    + [json.dumps({"messages": [{"role": role, "content": "x"}]}).encode() for role in ("user", "nobody")]
)
BLANK = st.sampled_from([b"", b" ", b"\t", b"\r"])
LINES = st.lists(st.one_of(GOOD, GOOD, BAD, BLANK), max_size=30)
PLANS = st.fixed_dictionaries(
    {},
    optional={
        "dedup": st.just("exact"),
        "shuffle": st.integers(0, 3),
        "repeat": st.integers(1, 3),
    },
)
LIMITS = st.sampled_from([{}, {"max_tokens": 60}])
OVERFLOWS = st.sampled_from(["reject", "drop-turns", "cut", "split"])


@settings(max_examples=60)
@given(st.lists(LINES, min_size=1, max_size=3), PLANS, LIMITS, OVERFLOWS, st.integers(1, 5))
def test_rows_are_written_or_duplicates_or_rejected(
    files: list[list[bytes]], fields: dict[str, Any], limit: dict[str, int], overflow: str, shards: int
) -> None:
    if limit:
        fields = {**fields, **limit, "overflow": overflow}
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for at, lines in enumerate(files):
            paths.append(Path(folder, f"{at}.jsonl"))
            paths[-1].write_bytes(b"\n".join(lines))
        out = Path(folder, "out")
        report = built(plan_for(*paths, outputs=("jsonl",), **fields), out, shards=shards)
        found = documents(out)
        aside = rejects(out)
    rows = sum(bool(line.strip()) for lines in files for line in lines)
    assert rows == report.rows == report.written + report.duplicates + report.rejects
    assert report.rejected == dict(Counter(one["code"] for one in aside))
    sources = {source for sample in found for source in sample["source"]}
    places = {f"{one['file']}:{one['line']}" for one in aside}
    assert report.written == len(sources)
    assert not sources & places
    assert report.documents == len(found)
    assert report.tokens == sum(len(sample["input_ids"]) for sample in found)
    for source in sources | places:
        path, _, number = source.rpartition(":")
        assert files[paths.index(Path(path))][int(number) - 1].strip()
    if "dedup" not in fields:
        assert 0 == report.duplicates
    if limit:
        assert all(len(sample["input_ids"]) <= 60 for sample in found)


def test_rows_with_losses_or_undeclared_tools_are_set_aside_on_request(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    said, asked = {"role": "user", "content": "When?"}, {"role": "assistant", "content": None, "tool_calls": [call]}
    rows: list[dict[str, Any]] = [{"messages": [said, asked]}, {"messages": [said, asked], "tools": [tool]}]
    rows.append({"messages": [{**said, "note": "lost"}, asked], "tools": [tool]})
    file = written(tmp_path / "a.jsonl", [json.dumps(row).encode() for row in rows])

    def codes(*options: str) -> list[tuple[int, str]]:
        out = tmp_path / "-".join(("out", *options))
        to = ("--to", "rwkv-universal", "--tokenizer", "bytes", "--out", str(out), "--quiet")
        result = run("data", "build", str(file), *to, *options)
        assert bool(rejects(out)) == result.exit_code, result.output
        return [(one["line"], one["code"]) for one in rejects(out)]

    assert [] == codes()
    assert [(1, "E_TOOL_UNDECLARED")] == codes("--declared-tools")
    assert [(3, "E_LOSSY")] == codes("--strict")


CALLS: dict[str, dict[str, Any]] = {
    "messages": {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "[1]"}},
    "openai-chat": {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "when?"}},
    "openai-responses": {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{"},
}


@pytest.mark.parametrize("form", CALLS)
def test_a_call_whose_arguments_are_no_object_is_set_aside_without_a_wish(form: str, tmp_path: Path) -> None:
    """Every form refuses it; no switch is needed and none takes it away."""
    said, call = {"role": "user", "content": "When?"}, CALLS[form]
    asked = {"role": "assistant", "tool_calls": [call]}
    row: dict[str, Any] = {"input": [said, call]} if "call_id" in call else {"messages": [said, asked]}
    whole = row if form == "messages" else {"request": {"model": "m", **row}}
    file = written(tmp_path / "a.jsonl", [json.dumps(whole).encode()])
    out = tmp_path / "out"
    result = run("data", "build", str(file), "--from", form, *PLAIN, "--out", str(out), "--quiet")
    assert (1, ["E_ARGS"]) == (result.exit_code, [one["code"] for one in rejects(out)])


def test_a_conversation_in_memory_is_refused_for_such_arguments_too() -> None:
    call = ts.ToolCall(name="now", arguments="[1]")
    request = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="When?")]), call]))
    with pytest.raises(BadRow) as caught:
        plan_for("none.jsonl").encode(request)
    assert caught.value.reason is Code.ARGS
