"""Jobs that are killed, at any moment: what was finished stays, and the end is the same as without."""

import os
import random
import select
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Self, cast

import psutil
import pytest

from tests.datasets.jobs import built, chats, plan_for, results, started, written
from turnscript.datasets.build import build
from turnscript.datasets.executors import Inline, Processes, Shard
from turnscript.datasets.merge import merge
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import prepare
from turnscript.datasets.shardfiles import FOLDER, PART

FIELDS: dict[str, Any] = {"dedup": "exact", "shuffle": 3, "pack": "stream:1024", "outputs": ("binidx", "jsonl")}
KILLS = 20
"""At so many random times builds are killed."""

FORKING = """
import os, signal, sys
from tests.datasets.jobs import plan_for
from turnscript.datasets.build import build
from turnscript.datasets.executors import Processes
plan = plan_for(sys.argv[1], **eval(sys.argv[2]))
for line in sys.stdin:
    child = os.fork()
    if child:
        print(child, flush=True)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        print("ended", flush=True)
        sys.stdin.readline()  # its number is its own until then, so that no other process is killed
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    out, *words = line.split()
{}
    os._exit(0)
"""

WORKERS = """
    build(plan, out, executor=Processes(2), shards=24)
"""

AT_A_RENAME = """
    left, replace = [int(words[0])], os.replace
    def counted(*names):
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*names)
    os.replace = counted
    build(plan, out, shards=3)
"""


class Builds:
    """A program that builds in a fork of itself whenever it is told to: to load what a build needs takes as long."""

    def __init__(self, what: str, file: Path, fields: dict[str, Any]) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        self._program = started(FORKING.format(what.strip("\n")), file, fields, stderr=subprocess.DEVNULL, **pipes)
        self._to, self._from = cast("IO[bytes]", self._program.stdin), cast("IO[bytes]", self._program.stdout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._to.close()
        self._program.wait(20)
        self._from.close()

    def begin(self, *words: object) -> int:
        """Start a build; gives its process."""
        self._to.write(" ".join(map(str, words)).encode() + b"\n")
        return int(self._from.readline())

    def ended(self, within: float) -> bool:
        """Whether it ends within so many seconds."""
        return bool(select.select([self._from], [], [], within)[0])

    def code(self) -> int:
        """How it ended."""
        assert b"ended\n" == self._from.readline()
        self._to.write(b"\n")
        return int(self._from.readline())


def stamps(out: Path) -> dict[str, tuple[int, int]]:
    """The records of finished shards, and which file each is."""
    found = [(path, path.stat()) for path in (out / FOLDER).glob("*.json")]
    return {path.name: (stat.st_ino, stat.st_mtime_ns) for path, stat in found}


def begun(out: Path) -> set[str]:
    """The shards that somebody began and did not finish."""
    return {path.name[1:6] for path in (out / FOLDER).glob(f".*{PART}")}


def killed(builds: Builds, out: Path, after: float) -> bool:
    """Start a build with two workers and kill it; whether it was still running."""
    number = builds.begin(out)
    if not builds.ended(after):
        workers = psutil.Process(number).children()
        os.kill(number, signal.SIGKILL)
        psutil.wait_procs(workers, timeout=20)
        assert not any(worker.is_running() for worker in workers), "a worker outlived its build"
    code = builds.code()
    assert code in (0, -signal.SIGKILL)
    return code != 0


@pytest.mark.deep
@pytest.mark.long
def test_a_build_that_is_killed_at_any_time_ends_with_the_same_bytes(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(3000, 5))
    plan = plan_for(file, **FIELDS)
    built(plan, tmp_path / "whole", Inline())
    expected = results(tmp_path / "whole")
    with Builds(WORKERS, file, FIELDS) as builds:
        began = time.monotonic()
        assert not killed(builds, tmp_path / "timed", 60)
        kill_at_random_times(builds, plan, tmp_path, time.monotonic() - began, expected)


def kill_at_random_times(builds: Builds, plan: Plan, folder: Path, lasts: float, expected: dict[str, bytes]) -> None:
    """One job after the other, each killed until it ends before that. `lasts`: the seconds that one took."""
    rng = random.Random(1)
    kills, job = 0, 0
    while kills < KILLS:
        out = folder / f"job{job}"
        before: dict[str, tuple[int, int]] = {}
        running = True
        while running and kills < KILLS:
            began = time.monotonic()
            running = killed(builds, out, rng.uniform(0.05, 0.95) * lasts)
            kills += running
            lasts = lasts if running else time.monotonic() - began  # a machine is not always as busy
            now = stamps(out)
            merged = (out / "manifest.json").exists()  # killed behind its last step, where shards are removed
            assert merged or not running or before.items() <= now.items(), "a finished shard was made again"
            assert len(begun(out)) <= 2 * (kills + 1)
            before = now
        built(plan, out, Inline())
        assert expected == results(out)
        job += 1


@pytest.mark.deep
def test_a_build_that_is_killed_before_any_of_its_renames_goes_on(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(40, 5))
    built(plan_for(file, **FIELDS), tmp_path / "whole", shards=3)
    expected = results(tmp_path / "whole")
    out = tmp_path / "out"
    built(plan_for(file, outputs=("jsonl",), name="other"), out, shards=3)
    old = results(out)
    kills = 0
    with Builds(AT_A_RENAME, file, FIELDS) as builds:
        # Each run may rename one file more than the last, so that each rename is the one that is not done.
        while builds.begin(out, kills) and (code := builds.code()) == -signal.SIGKILL:
            kills += 1
            now = results(out)
            assert "manifest.json" not in now or now in (old, expected), "a manifest stands beside files of another job"
            assert kills < 60
    assert 0 == code
    assert kills >= 15
    assert expected == results(out)
    assert not (out / FOLDER).exists()
    assert not list(out.rglob(f"*{PART}"))


@pytest.mark.usefixtures("forked_workers")
def test_a_part_that_does_not_resume_makes_its_own_shards_again_and_no_others(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(200, 5))
    out = tmp_path / "out"
    built(plan_for(file), out, shards=5, keep=True)
    (out / "manifest.json").unlink()
    for inner in (Inline(), Processes(2)):
        before = stamps(out)
        assert build(plan_for(file), out, executor=Shard(2, 2, inner), shards=5, resume=False) is None
        after = stamps(out)
        assert {"00001.json", "00003.json"} == {name for name in after if before[name] != after[name]}
    merge(out)
    built(plan_for(file), tmp_path / "whole")
    assert results(tmp_path / "whole") == results(out)


def test_a_worker_ends_in_the_middle_of_a_shard_when_nobody_listens_any_more(tmp_path: Path) -> None:
    file = written(tmp_path / "a.jsonl", chats(3000, 6))
    prepare(plan_for(file), tmp_path / "out", shards=1)
    program = "import sys; from turnscript.datasets.worker import work; work(sys.argv[1])"
    worker = started(program, tmp_path / "out", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    worker.communicate(b"0\n", timeout=60)
    assert 0 == worker.returncode
    assert {} == stamps(tmp_path / "out")
