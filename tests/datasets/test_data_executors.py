"""Owns the checks of workers that begin before their work is known: they are used, and none is left behind."""

import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.datasets.jobs import built, chats, plan_for, results, written
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.build import build
from turnscript.datasets.executors import Executor, Inline, Processes, Shard
from turnscript.datasets.preparation import likely_shards, prepare
from turnscript.datasets.shard import Done

HUGE = "glibc.malloc.hugetlb=1"


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize(("executor", "ahead"), [(Processes(2), 2), (Shard(1, 3, Processes(2)), 1), (Inline(), 0)])
def test_workers_begin_before_the_folder_is_prepared_and_do_its_shards(
    executor: Executor, ahead: int, tmp_path: Path
) -> None:
    file = written(tmp_path / "a.jsonl", chats(40))
    before, told = children(), dict[int, Done]()
    with executor.begun(str(tmp_path / "out"), "bytes", 3) as run:
        begun = children() - before
        assert ahead == len(begun)
        prepare(plan_for(file), tmp_path / "out", shards=3)
        run([0, 1, 2], told.__setitem__)
        assert begun <= children()
    assert before == children()
    assert {0, 1, 2} == told.keys()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere nobody can see what a process was given")
@pytest.mark.parametrize(("shards", "own", "seen"), [(63, None, None), (64, None, HUGE), (64, "", "")])
def test_workers_with_much_to_do_have_large_pages_unless_somebody_has_said_otherwise(
    shards: int, own: str | None, seen: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    if own is not None:
        monkeypatch.setenv("GLIBC_TUNABLES", own)
    before = children()
    with Processes(2).begun(str(tmp_path / "out"), "bytes", shards):
        given = [environment(pid) for pid in children() - before]
    assert [seen, seen] == [one.get("GLIBC_TUNABLES") for one in given]
    assert all({one["RAYON_NUM_THREADS"], one["OPENBLAS_NUM_THREADS"]} == {"1"} for one in given)


def environment(pid: int) -> dict[str, str]:
    """What a process was given. While it begins a program, there is nothing to see."""
    process, until = psutil.Process(pid), time.monotonic() + 20
    while not (found := process.environ()) and time.monotonic() < until:
        time.sleep(0.001)
    return found


@pytest.mark.usefixtures("forked_workers")
def test_workers_that_nobody_needs_are_ended_before_the_others_work(tmp_path: Path) -> None:
    prepare(plan_for(written(tmp_path / "a.jsonl", chats(9))), tmp_path / "out", shards=1)
    before = children()
    with Processes(3).begun(str(tmp_path / "out"), "bytes", 3) as run:
        assert 3 == len(children() - before)
        run([0], lambda number, done: None)
        assert 1 == len(children() - before)
        run([], lambda number, done: None)
    assert before == children()


@pytest.mark.usefixtures("forked_workers")
def test_what_is_wrong_with_a_plan_is_said_as_ever_and_leaves_no_worker(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(9))
    before = children()
    with pytest.raises(UnknownName, match="tokenizer"):
        build(plan_for(file, tokenizer="rwkv-word"), tmp_path / "out", executor=Processes(2))
    with pytest.raises(InvalidInput, match=r"none\.jsonl"):
        build(plan_for(tmp_path / "none.jsonl"), tmp_path / "out", executor=Processes(2))
    assert before == children()
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("forked_workers")
def test_none_begin_ahead_where_an_earlier_build_may_have_done_all(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(40))
    plan, out = plan_for(file), tmp_path / "out"
    assert (1, 5) == (
        likely_shards(plan, out, shards=None, resume=True),
        likely_shards(plan, out, shards=5, resume=True),
    )
    os.truncate(written(tmp_path / "large.jsonl", chats(1)), 40 << 20)
    assert 11 == likely_shards(plan_for(tmp_path), out, shards=None, resume=True)
    built(plan, out, Processes(2), shards=5)
    whole = results(out)
    assert [0, 5] == [likely_shards(plan, out, shards=5, resume=resume) for resume in (True, False)]
    built(plan, out, Processes(2), shards=5, resume=False)
    assert whole == results(out)


@pytest.mark.deep
def test_workers_run_nothing_that_lies_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path / "a.jsonl", chats(9))
    for name in ("json", "base64", "numpy", "msgspec", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    built(plan_for(file), tmp_path / "out", Processes(2), shards=2)
    assert not (tmp_path / "ran").exists()
