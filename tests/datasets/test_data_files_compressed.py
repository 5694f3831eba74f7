"""Owns the checks of compressed files: they read like plain ones, and where they break the rows before are kept."""

import bz2
import gzip
import lzma
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

from turnscript.datasets.files import Container, cut, read, sample
from turnscript.datasets.problems import Code
from turnscript.datasets.rows import RawRow

ROWS = [b'{"text": "%d %s"}' % (number, str(hash(number) ** 9).encode()) for number in range(4000)]
PLAIN = b"\n".join(ROWS) + b"\n"
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"  # a zstd frame that holds nothing of the text

WAYS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": partial(lzma.compress, preset=0),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
}
each_way = pytest.mark.parametrize("way", WAYS)


def rows_of(folder: Path, content: bytes, name: str = "rows.jsonl") -> list[RawRow]:
    path = folder / name
    path.write_bytes(content)
    (piece,) = cut(str(path), whole=False, target=100)
    return list(read(piece))


def facts(rows: list[RawRow]) -> list[tuple[int, int, bytes]]:
    return [(row.number, row.byte, row.data) for row in rows]


@each_way
def test_a_compressed_file_has_the_rows_of_the_plain_one(tmp_path: Path, way: str) -> None:
    (tmp_path / "plain.jsonl").write_bytes(PLAIN)
    expected = [(number, byte, row) for number, (byte, row) in enumerate(zip(_starts(), ROWS, strict=True), 1)]
    assert expected == facts(rows_of(tmp_path, WAYS[way](PLAIN)))
    assert expected[:200] == facts(sample(str(tmp_path / "rows.jsonl")))


def _starts() -> list[int]:
    starts, byte = [], 0
    for row in ROWS:
        starts.append(byte)
        byte += len(row) + 1
    return starts


@each_way
def test_streams_one_behind_another_are_one_file(tmp_path: Path, way: str) -> None:
    half = len(PLAIN) // 2
    parts = [WAYS[way](part) for part in (PLAIN[:half], b"", PLAIN[half:])]
    assert ROWS == [row.data for row in rows_of(tmp_path, b"".join(parts))]


def test_zstd_frames_without_text_are_stepped_over(tmp_path: Path) -> None:
    content = SKIPPED + zstandard.compress(PLAIN) + SKIPPED + zstandard.compress(b"1\n") + SKIPPED
    assert [*ROWS, b"1"] == [row.data for row in rows_of(tmp_path, content)]


@each_way
@pytest.mark.parametrize("share", [0.1, 0.5, 0.999])
def test_a_stream_cut_off_keeps_the_rows_before_and_says_so(tmp_path: Path, way: str, share: float) -> None:
    packed = WAYS[way](PLAIN)
    *kept, last = rows_of(tmp_path, packed[: int(len(packed) * share)])
    assert ROWS[: len(kept)] == [row.data for row in kept]
    assert last.problem is not None
    assert Code.TRUNCATED is last.problem.code
    assert "end in the middle" in last.problem.message
    assert (len(kept) + 1, PLAIN[last.byte :][: len(last.data)]) == (last.number, last.data)


@each_way
@pytest.mark.parametrize("at", [0.3, 0.7])
def test_damage_in_a_stream_is_one_row_more(tmp_path: Path, way: str, at: float) -> None:
    whole = WAYS[way](PLAIN)
    place = int(len(whole) * at)
    second = whole[:place] + bytes(64) + whole[place + 64 :]
    rows = rows_of(tmp_path, whole + second)
    assert ROWS == [row.data for row in rows[: len(ROWS)]]
    assert [Code.TRUNCATED] == [row.problem.code for row in rows if row.problem]
    assert rows[-1].problem is not None


def test_damage_that_only_the_checksum_shows_says_that_rows_before_it_may_be_wrong(tmp_path: Path) -> None:
    packed = gzip.compress(PLAIN, compresslevel=0, mtime=0)
    place = packed.index(ROWS[0]) + 1
    changed, *_, last = rows_of(tmp_path, packed[:place] + bytes([packed[place] ^ 1]) + packed[place + 1 :])
    assert changed.problem is None
    assert changed.data != ROWS[0]
    assert last.problem is not None
    assert "rows before this one may be wrong too" in last.problem.message


@each_way
def test_what_no_longer_begins_like_a_stream_is_told(tmp_path: Path, way: str) -> None:
    rows = rows_of(tmp_path, WAYS[way](b"1\n")[:-1])
    assert [Code.TRUNCATED] == [row.problem.code for row in rows if row.problem]


@pytest.mark.deep
@each_way
def test_a_bomb_does_not_fill_the_memory(tmp_path: Path, way: str) -> None:
    path = tmp_path / "bomb.jsonl"
    path.write_bytes(WAYS[way](bytes(128 << 20)))
    (piece,) = cut(str(path), whole=False, target=1)
    tracemalloc.start()
    (row,) = read(piece, limit=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert row.problem is not None
    assert Code.ROW_SIZE is row.problem.code
    assert peak < 100 << 20


@each_way
def test_arrays_texts_and_single_values_can_be_compressed(tmp_path: Path, way: str) -> None:
    for name, content, kind, expected in [
        ("a.json", b'[{"a": 1},\n{"a": 2}]', Container.ARRAY, [b'{"a": 1}', b'{"a": 2}']),
        ("b.json.gz", b'\n{"a": 1}\n', Container.OBJECT, [b'{"a": 1}']),
        ("c.txt.xz", b"User: Hi\n", Container.TEXT, [b"User: Hi\n"]),
        ("d.json", b'{"data": [{"a": 1}]}', Container.MEMBER, [b'{"a": 1}']),
    ]:
        path = tmp_path / name
        path.write_bytes(WAYS[way](content))
        (piece,) = cut(str(path), whole=False, target=1)
        assert kind is piece.container
        assert expected == [row.data for row in read(piece)]
        path.write_bytes(WAYS[way](content)[:-3])
        assert Code.TRUNCATED in [row.problem.code for row in read(piece) if row.problem]
