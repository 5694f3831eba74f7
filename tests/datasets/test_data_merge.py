"""The merge: which samples, in which order, and what happens to a folder that is not as it should be."""

import fcntl
import hashlib
import json
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.datasets.jobs import built, chat, chats, documents, logged, plan_for, results, written
from turnscript.core.errors import Conflict, InvalidInput
from turnscript.datasets.executors import Inline
from turnscript.datasets.merge import merge
from turnscript.datasets.preparation import prepare
from turnscript.datasets.sequence import in_order, shuffled


def lines(*texts: str) -> list[bytes]:
    """Rows that differ in their answers."""
    return [json.dumps(chat("question", text)).encode() for text in texts]


def sources(out: Path) -> list[str]:
    """The rows of an output, in its order."""
    return [Path(source).name for sample in documents(out) for source in sample["source"]]


def test_of_equal_rows_the_first_stays_whatever_file_and_shard_they_are_in(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", lines("x", "y", "x"))
    # The same conversation with other spaces and another order of members is the same.
    other = b'{"messages": [{"content":"question","role":"user"},   {"role":"assistant","content":"y"}]}'
    written(tmp_path / "b.jsonl", [*lines("z", "x"), other, *lines("Y")])
    report = built(plan_for(tmp_path, dedup="exact", outputs=("jsonl",)), tmp_path / "out", shards=7)
    assert ["a.jsonl:1", "a.jsonl:2", "b.jsonl:1", "b.jsonl:4"] == sources(tmp_path / "out")
    assert (7, 4, 3) == (report.rows, report.written, report.duplicates)
    assert [(3, 2, 1), (4, 2, 2)] == [(file.rows, file.written, file.duplicates) for file in report.files]


def test_a_row_of_several_samples_stays_or_goes_whole(tmp_path: Path) -> None:
    pairs = [("yes", "no"), ("yes", "never"), ("yes", "no"), ("no", "yes")]
    rows = [logged("q", *pair) for pair in pairs]
    file = written(tmp_path / "a.jsonl", [json.dumps(row).encode() for row in rows])
    plan = plan_for(file, form="openai-chat", dedup="exact", outputs=("jsonl",))
    report = built(plan, tmp_path / "out", shards=3)
    assert [f"a.jsonl:{number}" for number in (1, 1, 2, 2, 4, 4)] == sources(tmp_path / "out")
    assert (4, 3, 1, 6) == (report.rows, report.written, report.duplicates, report.documents)


def test_a_seed_gives_one_order_and_each_repetition_another(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", lines(*map(str, range(50))))
    orders = {}
    for seed in (None, 1, 2):
        plan = plan_for(file, shuffle=seed, repeat=3, outputs=("jsonl",))
        report = built(plan, tmp_path / str(seed), shards=4)
        assert (50, 150) == (report.written, report.documents)
        assert report.tokens == sum(len(one["input_ids"]) for one in documents(tmp_path / str(seed)))
        found = sources(tmp_path / str(seed))
        orders[seed] = [found[:50], found[50:100], found[100:]]
        assert all(sorted(orders[seed][0]) == sorted(one) for one in orders[seed])
    assert 1 == len(set(map(tuple, orders[None])))
    assert 6 == len({tuple(one) for seed in (1, 2) for one in orders[seed]})


def test_the_order_of_a_seed_never_changes() -> None:
    """Numbers written down once: builds of years ago can be made again."""
    assert [[0, 1, 6, 5, 8, 7, 9, 3, 4, 2]] == [part.tolist() for part in shuffled(10, None, 7, 0)]


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 5))
def test_an_order_has_every_sample_that_is_kept_once(kept: list[bool], seed: int) -> None:
    mask = np.array(kept, dtype=np.bool_)
    expected = [at for at, one in enumerate(kept) if one]
    assert expected == [number for part in in_order(len(kept), mask) for number in part.tolist()]
    assert expected == sorted(number for part in shuffled(len(kept), mask, seed, 0) for number in part.tolist())


def test_a_merge_may_be_done_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(100))
    out = tmp_path / "out"
    report = built(plan_for(file), out, keep=True)
    first = results(out)
    assert report == merge(out, keep=True) == merge(out, keep=True, again=True)
    (out / "train.bin").unlink()
    assert report == merge(out)
    assert first == results(out)
    assert report == merge(out)
    (out / "train.bin").write_bytes(b"")
    with pytest.raises(InvalidInput, match="shards are not finished: 1"):
        merge(out)


def test_a_shard_that_was_damaged_is_not_merged(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(100))
    out = tmp_path / "out"
    prepared = prepare(plan_for(file), out, shards=3)
    Inline().run(str(out), range(len(prepared.shards)), lambda number, done: None)
    path = out / "shards" / "00001.ids"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(InvalidInput, match=r"00001\.ids: damaged"):
        merge(out)
    path.write_bytes(data[:-1])
    with pytest.raises(InvalidInput, match="1 of 3 shards are not finished: 2;"):
        merge(out)
    path.write_bytes(data)
    record = out / "shards" / "00000.json"
    record.write_bytes(record.read_bytes().replace(b'"key":"', b'"key":"\xff', 1))
    with pytest.raises(InvalidInput, match="1 of 3 shards are not finished: 1;"):
        merge(out)


def test_files_of_an_earlier_plan_do_not_stay(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(20))
    out = tmp_path / "out"
    built(plan_for(file, outputs=("jsonl", "binidx"), name="old"), out)
    (out / "mine.txt").write_text("not yours")
    built(plan_for(file, outputs=("jsonl",)), out)
    assert {"train.jsonl", "rejects.jsonl", "manifest.json", "mine.txt"} == set(results(out))


def test_two_merges_of_one_folder_do_not_meet(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(20))
    out = tmp_path / "out"
    built(plan_for(file), out, keep=True)
    with open(out / ".lock", "ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="another process is merging"):
            merge(out)
    merge(out)


def test_the_manifest_knows_every_hash_and_no_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifests = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        written(Path("in/a.jsonl"), chats(50))
        built(plan_for("in"), Path("out"), shards=2 if name == "one" else 3)
        manifests.append(Path("out/manifest.json").read_bytes())
    assert manifests[0] == manifests[1]
    manifest = json.loads(manifests[0])
    for name, facts in manifest["outputs"].items():
        data = Path("out", name).read_bytes()
        assert facts == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    [source] = manifest["inputs"]
    assert hashlib.sha256(Path("in/a.jsonl").read_bytes()).hexdigest() == source["sha256"]
    assert str(tmp_path) not in manifests[0].decode()


def test_nothing_but_bad_rows_is_a_result_too(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", [b"{", b"[]"])
    report = built(plan_for(file, outputs=("binidx", "jsonl", "parquet")), tmp_path / "out")
    assert (2, 0, 2) == (report.rows, report.written, report.rejects)
    assert any("nothing was written" in note for note in report.notes())
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.jsonl").write_bytes(b"")
    report = built(plan_for(tmp_path / "empty", form="auto", dedup="exact", shuffle=1), tmp_path / "none")
    assert (0, 0) == (report.rows, report.written)


@pytest.mark.deep
def test_many_shards_need_few_open_files(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", lines(*map(str, range(400))))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        built(plan_for(file, shuffle=1, dedup="exact"), tmp_path / "out", shards=90)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
