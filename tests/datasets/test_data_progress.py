"""Owns the checks of how far a job says that it is: with any kind of inputs, in a part of them, behind earlier runs."""

import json
import time
import zlib
from pathlib import Path

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.datasets.jobs import built, chats, plan_for, written
from turnscript.cli.data import build as command
from turnscript.cli.progress import Pace
from turnscript.datasets.build import Progress, build
from turnscript.datasets.executors import Processes, Shard
from turnscript.datasets.files import Piece, cut, read
from turnscript.datasets.shard import Done


def rows(count: int) -> list[bytes]:
    """Good rows, so that every kind of file can hold them."""
    lines = [line for line in chats(count, 9) if line.startswith(b'{"messages": [{')]
    return lines * 3


def compressed(data: bytes) -> bytes:
    """As gzip, but not by much: Python 3.12 and later take 128 KiB of a file at once, and a small one whole."""
    packer = zlib.compressobj(wbits=31, strategy=zlib.Z_HUFFMAN_ONLY)
    return packer.compress(data) + packer.flush()


def files(folder: Path) -> dict[str, Path]:
    lines = rows(700)
    found = {name: folder / f"a.{name}" for name in ("jsonl", "json", "jsonl.gz", "parquet")}
    written(found["jsonl"], lines)
    found["json"].write_bytes(b"[" + b",".join(lines) + b"]")
    found["jsonl.gz"].write_bytes(compressed(b"\n".join(lines)))
    table = pa.Table.from_pylist([json.loads(line) for line in lines])
    pq.write_table(table, found["parquet"], row_group_size=900)
    return found


@pytest.mark.parametrize("kind", ["jsonl", "json", "jsonl.gz", "parquet"])
def test_a_job_is_as_far_as_its_inputs_were_read(kind: str, tmp_path: Path) -> None:
    """Rows of a compressed file have more bytes than the file, and are no more of it for that."""
    seen: list[Progress] = []
    report = built(plan_for(files(tmp_path)[kind]), tmp_path / "out", shards=1, progress=seen.append)
    shares = [one.bytes / one.total for one in seen if one.stage == "shards"]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert report.rows > 1500
    assert any(0.1 < share < 0.9 for share in shares), shares


def test_pieces_say_how_much_of_them_was_taken(tmp_path: Path) -> None:
    def taken(piece: Piece) -> int:
        reading = read(piece)
        for _ in reading:
            assert 0 < reading.taken
        return reading.taken

    for path in files(tmp_path).values():
        for piece in cut(str(path), whole=False, target=60_000):
            assert taken(piece) > 0.9 * piece.size  # a line that began before it is none of it


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("workers", [None, 2])
def test_a_part_of_a_job_counts_its_own_part_and_what_was_done_before(workers: int | None, tmp_path: Path) -> None:
    inner = Processes(workers) if workers else None
    plan = plan_for(written(tmp_path / "a.jsonl", rows(200)))
    seen: list[Progress] = []
    assert build(plan, tmp_path / "out", executor=Shard(2, 4, inner), shards=8, progress=seen.append) is None
    whole = (tmp_path / "a.jsonl").stat().st_size
    assert 0.2 * whole < seen[-1].total < 0.3 * whole
    assert (seen[-1].bytes, Done()) == (seen[-1].total, seen[-1].before)
    part = seen[-1]
    report = built(plan, tmp_path / "out", shards=8, progress=seen.append)
    last = [one for one in seen if one.stage == "shards"][-1]
    assert (report.rows, whole, whole) == (last.rows, last.bytes, last.total)
    assert Done(part.rows, part.bytes, part.rejects) == last.before


def test_speed_and_time_left_are_those_of_this_run() -> None:
    assert "100 rows/s  2.0 MB/s" == str(Pace(10, 1000, 20_000_000))
    assert "0:00:30 left" == Pace(10, 1000, 20_000_000).left(80_000_000)
    resumed = Pace(10, 1000, 60_000_000, 900, 55_000_000)
    assert "10 rows/s  0.5 MB/s" == str(resumed)
    assert "0:00:40 left" == resumed.left(80_000_000)
    assert "" == Pace(10, 900, 55_000_000, 900, 55_000_000).left(80_000_000)


def test_a_log_gets_a_line_now_and_then_with_speed_rejects_and_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    with command.Watch() as watch:
        for second in range(0, 130, 5):
            now = 1000.0 + second
            done = 300 + second
            watch.see(Progress("shards", done * 1000, done * 10**6, 7, 10**9, Done(300_000, 300 * 10**6, 7)))
    said = capsys.readouterr().err.splitlines()
    assert 2 == len(said)
    assert said[0].endswith("360000 rows  1000 rows/s  1.0 MB/s  7 rejected  36%  0:10:40 left")
    assert said[1].endswith("420000 rows  1000 rows/s  1.0 MB/s  7 rejected  42%  0:09:40 left")
