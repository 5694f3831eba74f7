"""Whole jobs: the bytes that come out depend on the inputs and the plan, and on nothing else."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from tests.datasets.jobs import built, chat, chats, documents, peak_of, plan_for, rejects, results, started, written
from turnscript.core.errors import InvalidInput
from turnscript.datasets import executors, shardfiles
from turnscript.datasets.build import Progress, build
from turnscript.datasets.executors import Executor, Inline, Processes, Shard, WorkerDied
from turnscript.datasets.merge import merge
from turnscript.datasets.preparation import prepare
from turnscript.datasets.shardfiles import FOLDER, ShardWriter, unfinished

BUSY = {"dedup": "exact", "shuffle": 7, "repeat": 2, "pack": "bfd:512", "max_tokens": 512, "overflow": "drop-turns"}
PLAIN: dict[str, Any] = {"outputs": ("binidx", "jsonl")}
pytestmark = pytest.mark.usefixtures("forked_workers")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, with doubles within and across them."""
    folder = tmp_path_factory.mktemp("inputs")
    written(folder / "a.jsonl", chats(300, 1))
    written(folder / "b.jsonl", chats(120, 2) + chats(40, 1))
    return folder


@pytest.mark.deep
@pytest.mark.long
@pytest.mark.parametrize("fields", [PLAIN, {**PLAIN, **BUSY}], ids=["plain", "busy"])
def test_the_number_of_workers_and_shards_changes_no_byte(inputs: Path, tmp_path: Path, fields: dict[str, Any]) -> None:
    plan = plan_for(inputs, **fields)
    runs: list[tuple[Executor, int]] = [(Inline(), 1), (Inline(), 64)]
    runs += [(Processes(1), 16), (Processes(2), 1), (Processes(2), 64), (Processes(7), 16)]
    found = []
    for at, (executor, shards) in enumerate(runs):
        built(plan, tmp_path / str(at), executor, shards=shards)
        found.append(results(tmp_path / str(at)))
    assert set(found[0]) >= {"train.bin", "train.mask.bin", "train.jsonl", "rejects.jsonl", "manifest.json"}
    for other in found[1:]:
        assert other == found[0]


def test_parts_that_many_machines_make_are_merged_to_the_same_bytes(inputs: Path, tmp_path: Path) -> None:
    plan = plan_for(inputs, **PLAIN, **BUSY)
    built(plan, tmp_path / "one", shards=5)
    for part in (2, 3, 1):
        assert build(plan, tmp_path / "parts", executor=Shard(part, 3), shards=5) is None
    merge(tmp_path / "parts")
    assert results(tmp_path / "one") == results(tmp_path / "parts")


def test_a_merge_before_all_parts_are_there_says_which_shards_are_missing(inputs: Path, tmp_path: Path) -> None:
    build(plan_for(inputs), tmp_path / "out", executor=Shard(2, 3), shards=5)
    with pytest.raises(InvalidInput, match="3 of 5 shards are not finished: 1, 3, 4"):
        merge(tmp_path / "out")


def test_a_part_that_does_not_exist_is_refused() -> None:
    for i, n in ((0, 3), (4, 3), (1, 0)):
        with pytest.raises(InvalidInput, match=f"no part {i} of {n}"):
            Shard(i, n)
    with pytest.raises(InvalidInput, match="0 workers"):
        Processes(0)


def test_progress_ends_with_all_rows_and_all_bytes(inputs: Path, tmp_path: Path) -> None:
    for executor in (Inline(), Processes(2)):
        seen: list[Progress] = []
        out = tmp_path / type(executor).__name__
        report = built(plan_for(inputs), out, executor, shards=4, progress=seen.append)
        last = [one for one in seen if one.stage == "shards"][-1]
        assert (report.rows, report.rejects) == (last.rows, last.rejects)
        assert 0.9 * last.total < last.bytes <= last.total
        assert report.documents == [one for one in seen if one.stage == "merge"][-1].bytes


@pytest.mark.deep
def test_a_script_without_a_main_guard_may_build_with_processes(inputs: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tests.datasets.jobs import built, plan_for\n"
        "from turnscript.datasets.executors import Processes\n"
        "import pathlib, sys\n"
        "print('begun')\n"
        "print(built(plan_for(sys.argv[1]), pathlib.Path(sys.argv[2]), Processes(2), shards=4).rows)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    command = [sys.executable, str(script), str(inputs), str(tmp_path / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    begun, rows = ran.stdout.split()
    assert "begun" == begun
    assert int(rows) > 400


INTERRUPTED = """
import os, signal, sys, threading
from tests.datasets.jobs import plan_for
from turnscript.datasets.build import build
from turnscript.datasets.executors import Processes
interrupts = iter([threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT))])
def tell(progress):
    for one in interrupts:
        one.start()
build(plan_for(sys.argv[1], tokenizer="rwkv-world"), sys.argv[2], executor=Processes(2), shards=40, progress=tell)
"""


@pytest.mark.deep
def test_ctrl_c_ends_a_build_and_its_workers_and_leaves_what_is_finished(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(4000, 3))
    program = started(INTERRUPTED, file, tmp_path / "out", stderr=subprocess.PIPE)
    _, errors = program.communicate(timeout=30)
    assert program.returncode != 0
    assert errors.count(b"Traceback") == 1
    assert errors.rstrip().endswith(b"KeyboardInterrupt")
    plan = plan_for(file, tokenizer="rwkv-world")
    built(plan, tmp_path / "out", Inline())
    built(plan, tmp_path / "fresh", Inline())
    assert results(tmp_path / "fresh") == results(tmp_path / "out")


@pytest.mark.deep
def test_workers_that_are_stopped_leave_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_GRACE", 60.0)
    file = written(tmp_path / "a.jsonl", chats(20_000, 3))
    folder = tmp_path / "out" / FOLDER

    def stop(_: Progress) -> None:
        if any(unfinished(folder)):
            raise OSError(errno.ENOSPC, "no space left on device")

    with pytest.raises(OSError, match="no space left"):
        build(plan_for(file, tokenizer="rwkv-world"), tmp_path / "out", executor=Processes(2), shards=2, progress=stop)
    assert [] == list(unfinished(folder))


def test_a_shard_that_is_stopped_while_a_file_begins_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal may come when the file is there and nobody has it yet."""

    def interrupted(*args: Any) -> NoReturn:
        open(*args).close()
        raise SystemExit(0)

    writer = ShardWriter(tmp_path, 0, 2, chats=True)
    assert [] == list(unfinished(tmp_path / FOLDER))
    with writer:
        writer.reject(b"a row")
        assert 1 == len(list(unfinished(tmp_path / FOLDER)))
        monkeypatch.setattr(shardfiles, "open", interrupted, raising=False)
        with pytest.raises(SystemExit):
            writer.tell(b"another file")
    assert [] == list(unfinished(tmp_path / FOLDER))


def test_a_worker_that_is_killed_is_named_with_its_shard(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(3000, 3))
    me = psutil.Process()
    before = set(me.children())

    def kill(_: Progress) -> None:
        for child in set(me.children()) - before:
            child.kill()

    with pytest.raises(WorkerDied, match=r"worker on shard \d+ died: it was killed.*memory.*build again"):
        built(plan_for(file), tmp_path / "out", Processes(1), shards=8, progress=kill)
    assert set() == set(me.children()) - before
    assert built(plan_for(file), tmp_path / "out", Inline()).rows > 3000


def test_the_first_bad_row_ends_the_job_if_the_plan_says_so(tmp_path: Path) -> None:
    lines = [json.dumps(chat("a", "b")).encode()] * 90 + [b"", b"{bad"] + [json.dumps(chat("c", "d")).encode()] * 9
    file = written(tmp_path / "a.jsonl", lines)
    for executor in (Inline(), Processes(1)):
        with pytest.raises(InvalidInput, match=r"a\.jsonl, row 92.*E_JSON"):
            built(plan_for(file, on_bad="stop"), tmp_path / "out", executor, shards=6)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_build_that_is_finished_is_not_done_again(inputs: Path, tmp_path: Path) -> None:
    first = built(plan_for(inputs), tmp_path / "out")
    stamp = (tmp_path / "out" / "train.bin").stat()
    again = built(plan_for(inputs), tmp_path / "out")
    assert first == again
    assert stamp == (tmp_path / "out" / "train.bin").stat()
    built(plan_for(inputs), tmp_path / "out", resume=False)
    assert stamp.st_mtime_ns < (tmp_path / "out" / "train.bin").stat().st_mtime_ns


MEASURED = """
import pathlib, sys
from tests.datasets.jobs import built, plan_for
built(plan_for(sys.argv[1], tokenizer="rwkv-world", dedup="exact"), pathlib.Path(sys.argv[2]), shards=1)
"""


@pytest.mark.deep
def test_memory_does_not_grow_with_the_input_and_disk_is_three_bytes_a_token(tmp_path: Path) -> None:
    peaks: list[int] = []
    out = tmp_path / "out"
    for megabytes in (6, 36):
        row = "A sentence about something that somebody may want to know, number {}. " * 13
        with open(tmp_path / f"{megabytes}.jsonl", "w") as file:
            for at in range(megabytes * 500):
                numbers = range(26 * at, 26 * at + 26)
                file.write(json.dumps(chat(row.format(*numbers), row.format(*reversed(numbers)))) + "\n")
        out = tmp_path / f"out{megabytes}"
        peaks.append(peak_of(MEASURED, tmp_path / f"{megabytes}.jsonl", out))
    assert max(peaks) < 400
    assert peaks[1] < peaks[0] + 40
    report = json.loads((out / "manifest.json").read_text())["report"]
    size = sum((out / f"train{suffix}").stat().st_size for suffix in (".bin", ".idx", ".mask.bin", ".mask.idx"))
    assert size / report["tokens"] <= 3.1


def test_files_in_the_output_folder_are_no_inputs(tmp_path: Path) -> None:
    written(tmp_path / "a.jsonl", chats(20, 4))
    first = built(plan_for(tmp_path, outputs=("jsonl",)), tmp_path / "run")
    again = built(plan_for(tmp_path, outputs=("jsonl",)), tmp_path / "run", resume=False)
    assert first == again
    with pytest.raises(InvalidInput, match="all inputs are in"):
        prepare(plan_for(tmp_path / "run", form="messages"), tmp_path / "run")


def test_an_input_that_is_named_is_never_left_out_without_a_word(tmp_path: Path) -> None:
    out = tmp_path / "run"
    file = written(tmp_path / "a.jsonl", chats(20, 4))
    mine = written(out / "mine" / "b.jsonl", chats(3, 5))
    for given in (mine, mine.parent, out / "mi*", out / "*" / "b.jsonl"):
        with pytest.raises(InvalidInput, match=r"the input .*mi.* is in .*run, where the outputs go; write to another"):
            prepare(plan_for(file, given), out)
    assert ["mine"] == os.listdir(out)
    # What is found in a folder on the way may be ours, and what builds wrote is: a pattern names it the second time.
    for given in (tmp_path, tmp_path / "**" / "[at]*.jsonl"):
        for name in ("train", "two", "two"):
            assert 1 == len(built(plan_for(given, outputs=("jsonl",), name=name), out, keep=True).files)
    assert ["b.jsonl"] == os.listdir(mine.parent)


@pytest.mark.parametrize(
    "name", ["train.bin", "manifest.json", "plan.json", "run.json", "rejects.jsonl", "shards/00000.ids", ".merging/a"]
)
def test_files_that_no_build_made_are_not_overwritten(tmp_path: Path, name: str) -> None:
    file = written(tmp_path / "a.jsonl", chats(20, 4))
    mine = written(tmp_path / "out" / name, [b'{"inputs": ["a.jsonl"], "plan": "\xe9"}'])
    written(tmp_path / "out" / "notes.txt", [b"mine too"])
    before = mine.read_bytes()
    said = rf"out/{Path(name).parts[0]} is there already.* another folder.* move it"
    for resume in (True, False):
        with pytest.raises(InvalidInput, match=said):
            build(plan_for(file), tmp_path / "out", resume=resume)
        assert before == mine.read_bytes()
    mine.rename(tmp_path / "elsewhere")
    if mine.parent != tmp_path / "out":
        mine.parent.rmdir()
    built(plan_for(file), tmp_path / "out")
    assert b"mine too\n" == (tmp_path / "out" / "notes.txt").read_bytes()


def test_the_folder_of_another_version_is_built_in_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(20, 4))
    out = tmp_path / "out"
    built(plan_for(file), out)
    expected = results(out)
    for name in ("plan.json", "manifest.json"):
        facts = json.loads((out / name).read_bytes())
        (out / name).write_text(json.dumps({**facts, "version": "0.0.1", "key": "old", "of_old": 1}))
    built(plan_for(file), out)
    assert expected == results(out)
    (out / "plan.json").unlink()
    built(plan_for(file), out)
    assert expected == results(out)


def test_only_files_of_shards_are_removed_with_the_shards(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(20, 4))
    out = tmp_path / "out"
    built(plan_for(file), out, keep=True)
    left = ".00000.ids-0123456789ab.part"
    mine = ["00000.txt", "1.json", "film.part", "notes"]
    for name in (left, *mine):
        (out / "shards" / name).touch()
    (out / "film.part").touch()
    built(plan_for(file), out, resume=False)
    assert mine == sorted(os.listdir(out / "shards"))
    assert (out / "film.part").exists()
    built(plan_for(file, train="all"), out)
    assert mine == sorted(os.listdir(out / "shards"))


def test_shards_stay_until_everything_about_the_next_build_was_checked(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(20, 4))
    built(plan_for(file), tmp_path / "out", keep=True)
    before = sorted(os.listdir(tmp_path / "out" / "shards"))
    with pytest.raises(InvalidInput, match="cannot read"):
        build(plan_for(tmp_path / "none.jsonl"), tmp_path / "out", resume=False)
    assert before == sorted(os.listdir(tmp_path / "out" / "shards"))


def test_rejects_name_the_line_the_byte_and_the_reason(tmp_path: Path) -> None:
    lines = [json.dumps(chat("a", "b")).encode(), b"", b"{bad", b"\xff", json.dumps({"messages": []}).encode()] * 20
    file = written(tmp_path / "a.jsonl", lines)
    built(plan_for(file, outputs=("jsonl",)), tmp_path / "out", shards=9)
    data = file.read_bytes()
    found = rejects(tmp_path / "out")
    assert [number for number in range(1, 101) if number % 5 in (3, 4, 0)] == [one["line"] for one in found]
    assert ["E_JSON", "E_UTF8", "E_EMPTY"] * 20 == [one["code"] for one in found]
    for one in found:
        assert data.startswith(lines[one["line"] - 1] + b"\n", one["byte"])
        assert (one["file"], bool(one["message"])) == (str(file), True)
    assert "/w==" == found[1]["row_base64"]
    assert "{bad" == found[0]["row"]
    assert [f"{file}:{number}" for number in range(1, 101, 5)] == [
        source for one in documents(tmp_path / "out") for source in one["source"]
    ]
