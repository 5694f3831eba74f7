"""Plans: what cannot be meant is refused by name, and what changes a byte changes the key."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.datasets.jobs import built, chat, chats, plan_for, results, written
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.mapping import read_map
from turnscript.datasets.plan import Plan, plan_of, read_plan
from turnscript.datasets.preparation import load_prepared, prepare
from turnscript.datasets.runstats import stats_of
from turnscript.datasets.verify import verify


@pytest.mark.parametrize(
    ("fields", "path", "said"),
    [
        ({"inputs": ()}, "$.inputs", "at least one"),
        ({"inputs": "a.jsonl"}, "$.inputs", "in a list"),
        ({"outputs": ()}, "$.outputs", "at least one"),
        ({"format": ""}, "$.format", "empty"),
        ({"mode": "fast"}, "$.mode", "none of auto, ids, text"),
        ({"escape": "maybe"}, "$.escape", "none of"),
        ({"weights": "heavy"}, "$.weights", "none of binary, scaled"),
        ({"overflow": "drop"}, "$.overflow", "none of reject, drop-turns, cut, split"),
        ({"overflow": "cut"}, "$.overflow", "needs max_tokens"),
        ({"dedup": "near"}, "$.dedup", "none of none, exact"),
        ({"on_bad": "ignore"}, "$.on_bad", "none of quarantine, stop"),
        ({"max_tokens": 1}, "$.max_tokens", "less than 2"),
        ({"repeat": 0}, "$.repeat", "less than 1"),
        ({"shuffle": -1}, "$.shuffle", "less than 0"),
        ({"name": "a/b"}, "$.name", "names of files"),
        ({"name": ".hidden"}, "$.name", "names of files"),
        ({"name": "a\udcff"}, "$.name", "names of files"),
        ({"name": "rejects", "outputs": ("jsonl",)}, "$.name", "name of rejects.jsonl, which is written too"),
        ({"name": "Manifest"}, "$.name", "name of manifest.json"),
        ({"name": "plan"}, "$.name", "name of plan.json"),
        ({"name": "run"}, "$.name", "name of run.json"),
        ({"outputs": ("jsonl", "binidx", "jsonl")}, "$.outputs", "'jsonl' is named twice"),
        ({"map": "m.toml", "form": "nonsense"}, "$.form", "'nonsense' and the map 'm.toml' both say"),
        ({"pack": "tight"}, "", "bfd:4096"),
        ({"pack": "bfd:64", "max_tokens": 65}, "$.max_tokens", "lower max_tokens to 64"),
        ({"train": "nothing"}, "", "nothing that can be trained"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(fields: dict[str, Any], path: str, said: str) -> None:
    given: dict[str, Any] = {"inputs": ("a.jsonl",), "format": "f", "tokenizer": "t", **fields}
    with pytest.raises(InvalidInput, match=said) as caught:
        Plan(**given)
    assert path == caught.value.path
    if not isinstance(fields.get("inputs"), str):
        with pytest.raises(InvalidInput, match=said):
            plan_of({**given, "inputs": list(given["inputs"])})


@pytest.mark.parametrize("field", ["inputs", "outputs"])
def test_a_name_that_is_no_string_is_refused_with_what_to_write(field: str) -> None:
    given: dict[str, Any] = {"inputs": ("a.jsonl",), "format": "f", "tokenizer": "t", field: (Path("a"),)}
    with pytest.raises(InvalidInput, match=r"a name is a string, not .*Path\('a'\); write str\(path\)") as caught:
        Plan(**given)
    assert f"$.{field}" == caught.value.path


def test_a_plan_is_a_file_of_toml_or_json(tmp_path: Path) -> None:
    plan = Plan(inputs=("a", "b"), format="f", tokenizer="t", max_tokens=99, shuffle=4, pack="stream:64")
    (tmp_path / "plan.json").write_text(json.dumps(plan.facts()))
    lines = 'inputs = ["a", "b"]\nformat = "f"\ntokenizer = "t"\nmax_tokens = 99\nshuffle = 4\npack = "stream:64"\n'
    (tmp_path / "plan.toml").write_text(lines)
    assert plan == read_plan(tmp_path / "plan.json") == read_plan(tmp_path / "plan.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"inputs": ["a"], "format": "f", "tokenizer": "t", "colour": 1}', "colour"),
        ('{"inputs": ["a"], "format": "f"}', "tokenizer"),
        ('{"inputs": [1], "format": "f", "tokenizer": "t"}', r"\$.inputs"),
        ('{"inputs": ["a"], "format": "f", "tokenizer": "t", "repeat": 0}', r"\$.repeat: 0 is less"),
        ("{", "cannot be read"),
    ],
)
def test_a_file_that_is_no_plan_is_refused_with_its_name(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(InvalidInput, match=said):
        read_plan(tmp_path / "plan.json")
    with pytest.raises(InvalidInput, match=r"cannot read the plan .*none\.json"):
        read_plan(tmp_path / "none.json")


def test_a_byte_order_mark_before_a_plan_or_a_map_is_none_of_it(tmp_path: Path) -> None:
    """Editors write one before UTF-8, and the other files of turnscript are read with it."""
    plan = Plan(inputs=("a",), format="f", tokenizer="t")
    (tmp_path / "plan.json").write_text(f"\ufeff{json.dumps(plan.facts())}", encoding="utf-8")
    (tmp_path / "plan.toml").write_text('\ufeffinputs = ["a"]\nformat = "f"\ntokenizer = "t"\n', encoding="utf-8")
    assert plan == read_plan(tmp_path / "plan.json") == read_plan(tmp_path / "plan.toml")
    (tmp_path / "map.toml").write_text('\ufefftext = "said"\n', encoding="utf-8")
    assert "a" == read_map(str(tmp_path / "map.toml")).read(b'{"said": "a"}')[0].text


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("plan.json", b'{\n"a":}', "line 2, column 5: not valid JSON"),
        ("plan.json", b"[" * 100_000, "nested too deep"),
        ("plan.json", b'{"max_tokens": ' + b"9" * 5000 + b"}", "a number is out of range"),
        ("plan.json", '{"a": 1}'.encode("utf-16"), "this looks like UTF-16"),
        ("plan.toml", b"a = 1\nb = ", "line 2, column 5: not valid TOML"),
        ("plan.toml", b"a = " + b"[" * 5000, "nested too deep"),
        ("plan.toml", b"a = " + b"9" * 5000, "more digits than can be read"),
        ("plan.toml", b"a = '\xff'", "byte 0xff is not UTF-8"),
    ],
)
def test_a_plan_that_cannot_be_read_says_why_and_where(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput, match=f"the plan .*{name}' cannot be read: .*{said}"):
        read_plan(tmp_path / name)


def test_unknown_names_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(3))
    for field in ("format", "tokenizer", "form", "outputs", "variant"):
        plan = plan_for(file, **{field: ("nonsense",) if field == "outputs" else "nonsense"})
        with pytest.raises(UnknownName, match="nonsense"):
            prepare(plan, tmp_path / "out")
    with pytest.raises(InvalidInput, match="0 shards"):
        prepare(plan_for(file), tmp_path / "out", shards=0)
    for there_is_none in (load_prepared, verify, stats_of):
        with pytest.raises(InvalidInput, match="out: there is no such folder; check the path"):
            there_is_none(tmp_path / "out")
    with pytest.raises(InvalidInput, match="holds no plan"):
        load_prepared(tmp_path)


def test_a_name_that_is_no_utf8_is_refused_with_what_to_do(tmp_path: Path) -> None:
    odd = os.fsdecode(b"a\xff")
    file = written(tmp_path / "good" / "a.jsonl", chats(3))
    written(tmp_path / odd / "a.jsonl", chats(3))
    tokenizer = tmp_path / odd / "v.txt"
    tokenizer.write_text("".join(f"{at + 1} {bytes([at])!r} 1\n" for at in range(256)))
    plans = [plan_for(tmp_path), plan_for(tmp_path / odd / "a.jsonl"), plan_for(tmp_path / "*" / "a.jsonl")]
    for plan in [*plans, plan_for(file, tokenizer=f"rwkv:{tokenizer}")]:
        with pytest.raises(InvalidInput, match=r"a\\udcff/.*: its name is no UTF-8; rename it"):
            prepare(plan, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_forms_that_cannot_be_told_are_refused_with_the_file(tmp_path: Path) -> None:
    written(tmp_path / "good.jsonl", [json.dumps(chat("question", "answer")).encode()] * 9)
    written(tmp_path / "odd.jsonl", [b'{"colour": "red"}'] * 5)
    (tmp_path / "empty.jsonl").write_bytes(b"\n")
    with pytest.raises(InvalidInput, match=r"odd\.jsonl"):
        prepare(plan_for(tmp_path, form="auto"), tmp_path / "out")
    written(tmp_path / "strange.jsonl", [b'{"shape": "round"}'] * 5)
    with pytest.raises(InvalidInput, match=r"2 files: .*odd\.jsonl, .*strange\.jsonl; `turnscript data inspect`"):
        prepare(plan_for(tmp_path, form="auto"), tmp_path / "out")
    (tmp_path / "odd.jsonl").unlink()
    (tmp_path / "strange.jsonl").unlink()
    prepared = prepare(plan_for(tmp_path, form="auto"), tmp_path / "out")
    assert [("empty.jsonl", ""), ("good.jsonl", "messages")] == [
        (Path(file.name).name, file.form) for file in prepared.files
    ]


def test_whatever_changes_a_byte_changes_the_key(tmp_path: Path) -> None:
    """A format, a tokenizer or an input that changed is never taken for the one before."""
    file = written(tmp_path / "a.jsonl", chats(20))
    vocabulary = tmp_path / "v.txt"
    vocabulary.write_text("".join(f"{at + 1} {bytes([at])!r} 1\n" for at in range(256)))
    table = tmp_path / "f.toml"
    table.write_text('[[format]]\nname = "mine"\nbased_on = "batuta-chatml"\ntitle = "Mine"\n')
    base = {"tokenizer": f"rwkv:{vocabulary}", "format": str(table)}

    def keys(**fields: Any) -> tuple[str, str]:
        prepared = prepare(plan_for(file, **{**base, **fields}), tmp_path / "out")
        return prepared.key, prepared.row_key

    first = keys()
    assert first == keys()
    changes: list[dict[str, Any]] = [{"end": False}, {"train": "all"}, {"format": "openchatml"}, {"max_tokens": 99}]
    for fields in [*changes, {"pack": "bfd:512"}, {"expand": "turns"}, {"normalize_json": True}]:
        assert not set(first) & set(keys(**fields))
    # What the shards do not depend on.
    changes = [{"shuffle": 1}, {"dedup": "exact"}, {"repeat": 2}, {"outputs": ("jsonl",)}, {"name": "x"}]
    for fields in [*changes, {"train": "answers,calls,thinking"}]:
        assert (False, True) == tuple(a == b for a, b in zip(first, keys(**fields), strict=True))
    table.write_text('[[format]]\nname = "mine"\nbased_on = "batuta-llama3"\ntitle = "Mine"\n')
    assert not set(first) & set(keys())
    table.write_text('[[format]]\nname = "mine"\nbased_on = "batuta-chatml"\ntitle = "Mine"\n')
    assert first == keys()
    vocabulary.write_text("".join(f"{at + 2} {bytes([at])!r} 1\n" for at in range(256)))
    assert not set(first) & set(keys())


@pytest.mark.parametrize("settled", [False, True])
def test_an_input_that_changed_is_seen_even_with_the_same_size_and_time(tmp_path: Path, settled: bool) -> None:
    file = written(tmp_path / "a.jsonl", [json.dumps(chat("one", "two")).encode()])
    if settled:
        old = time.time() - 100
        os.utime(file, (old, old))
    before = built(plan_for(file), tmp_path / "out")
    stat = file.stat()
    written(file, [json.dumps(chat("six", "ten")).encode()])
    if not settled:  # within the same tick of the clock, as far as anybody can see
        os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = built(plan_for(file), tmp_path / "out")
    built(plan_for(file), tmp_path / "fresh")
    assert before == after
    assert results(tmp_path / "fresh") == results(tmp_path / "out")


def test_shards_that_are_there_are_used_for_another_order_and_packing(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(200))
    out = tmp_path / "out"
    built(plan_for(file), out, keep=True, shards=4)
    stamps = [path.stat().st_mtime_ns for path in sorted((out / "shards").iterdir())]
    other = plan_for(file, dedup="exact", shuffle=1, repeat=2, outputs=("parquet",), name="x")
    built(other, out, keep=True)
    assert stamps == [path.stat().st_mtime_ns for path in sorted((out / "shards").iterdir())]
    built(other, tmp_path / "fresh")
    assert results(tmp_path / "fresh") == results(out)
    built(plan_for(file, train="all"), out, keep=True)
    assert stamps != [path.stat().st_mtime_ns for path in sorted((out / "shards").iterdir())]


def test_shards_are_made_again_for_conversations_and_then_used_by_outputs_that_hold_none(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(200))
    out = tmp_path / "out"
    built(plan_for(file), out, keep=True, shards=4)
    assert not list((out / "shards").glob("*.chats"))
    lines = plan_for(file, outputs=("jsonl",))
    built(lines, out, keep=True)
    stamps = [path.stat().st_mtime_ns for path in sorted((out / "shards").iterdir())]
    assert 4 == len(list((out / "shards").glob("*.chats")))
    built(lines, tmp_path / "fresh")
    assert results(tmp_path / "fresh") == results(out)
    built(plan_for(file), out, keep=True)
    assert stamps == [path.stat().st_mtime_ns for path in sorted((out / "shards").iterdir())]
    built(plan_for(file), tmp_path / "ids")
    assert results(tmp_path / "ids") == results(out)


def test_shards_of_another_cut_are_made_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(200))
    built(plan_for(file), tmp_path / "out", shards=4, keep=True)
    report = built(plan_for(file, shuffle=3), tmp_path / "out", shards=3, keep=True)
    assert report == built(plan_for(file, shuffle=3), tmp_path / "fresh")
    assert results(tmp_path / "fresh") == results(tmp_path / "out")
