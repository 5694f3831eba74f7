"""Owns the checks of JSON Lines: what is a row, and that no way to cut or block a file changes its rows."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from turnscript.datasets.files import LIMIT, Container, Piece, Rows, cut, read, streams
from turnscript.datasets.problems import Code
from turnscript.datasets.rows import RawRow

BOM = b"\xef\xbb\xbf"
Found = tuple[int, int, bytes, str]

odd_bytes = [b"\r", b"\r\n", BOM, b"\x00", b"\x0b\x85", b"\xff\xfe", b"\xc3", "é€😀".encode(), "\u2028".encode()]
fragments = st.sampled_from([b"\n", b"\n\n", b" ", b"\t", b"\\n", b'"a\\nb"', b"{}", b"abcdef", *odd_bytes])
contents = st.builds(lambda mark, parts: mark + b"".join(parts), st.sampled_from([b"", BOM]), st.lists(fragments))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lines") / "rows.jsonl"


def expected_rows(content: bytes, limit: int) -> list[Found]:
    """The rows, by the definition: no blocks and no pieces."""
    rows, byte = [], 0
    for number, line in enumerate(content.split(b"\n"), 1):
        mark = len(BOM) if number == 1 and line.startswith(BOM) else 0
        row = line[mark:].removesuffix(b"\r")
        if len(row) > limit:
            rows.append((number, byte + mark, row[: min(limit, 4096)], Code.ROW_SIZE.value))
        elif row.strip():
            rows.append((number, byte + mark, row, ""))
        byte += len(line) + 1
    return rows


def found(row: RawRow, before: int = 0) -> Found:
    return before + row.number, row.byte, row.data, row.problem.code.value if row.problem else ""


def read_all(pieces: list[Piece], limit: int = LIMIT) -> list[Found]:
    """The rows of pieces one behind another, with the numbers that they have in the file."""
    result, before = [], 0
    for piece in pieces:
        rows = read(piece, limit=limit)
        result += [found(row, before) for row in rows]
        before += rows.numbers
    return result


def pieces_at(path: Path, bounds: list[int]) -> list[Piece]:
    starts = [0, *bounds]
    return [
        Piece(str(path), Container.LINES, start=start, end=end)
        for start, end in zip(starts, [*bounds, -1], strict=True)
    ]


@given(contents, st.lists(st.integers(0, 60)), st.integers(1, 40), st.sampled_from([1, 3, 6, 20, LIMIT]))
def test_no_way_to_cut_a_file_changes_its_rows(
    path: Path, content: bytes, bounds: list[int], block: int, limit: int
) -> None:
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        actual = read_all(pieces_at(path, sorted({bound for bound in bounds if 0 < bound})), limit)
    assert expected_rows(content, limit) == actual


@given(contents)
def test_every_target_gives_the_same_rows(path: Path, content: bytes) -> None:
    path.write_bytes(b'{"a": 1}\n' + content)
    expected = expected_rows(path.read_bytes(), LIMIT)
    for target in range(1, len(content) + 12):
        assert expected == read_all(cut(str(path), whole=False, target=target))


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"", []),
        (b"\n\r\n \t\n", []),
        (b"1", [b"1"]),
        (b"1\n\n2\r\n3", [b"1", b"2", b"3"]),
        (BOM + b"1\n" + BOM + b"2", [b"1", BOM + b"2"]),
        ('"\u2028"\n"\x85"\n'.encode(), ['"\u2028"'.encode(), '"\x85"'.encode()]),
        (b"\x00\x00\n1\n", [b"\x00\x00", b"1"]),
        (b"1\r2\n", [b"1\r2"]),
    ],
)
def test_lines_end_with_a_line_feed_and_blank_ones_are_no_rows(path: Path, content: bytes, rows: list[bytes]) -> None:
    path.write_bytes(content)
    assert rows == [row.data for row in read(Piece(str(path), Container.LINES))]


def test_a_row_of_exactly_the_limit_is_a_row(path: Path) -> None:
    path.write_bytes(b"x" * 10_000 + b"\r\n" + b"y" * 10_001 + b"\n")
    first, second = read(Piece(str(path), Container.LINES), limit=10_000)
    assert (10_000, None) == (len(first.data), first.problem)
    assert second.problem is not None
    assert (Code.ROW_SIZE, b"y" * 4096) == (second.problem.code, second.data)
    assert "10000 bytes" in second.problem.message


@pytest.mark.deep
def test_a_row_of_a_gigabyte_is_skipped_in_little_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b'{"first": 1}\n')
        file.seek(1 << 30, 1)  # a hole: zeros that take no room on the disk
        file.write(b'\n{"last": 1}\n')
    tracemalloc.start()
    rows = list(read(Piece(str(path), Container.LINES), limit=1 << 20))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    path.unlink()
    assert [1, 2, 3] == [row.number for row in rows]
    assert [12, 4096, 11] == [len(row.data) for row in rows]
    assert rows[1].problem is not None
    assert "1 MiB" in rows[1].problem.message
    assert peak < 8 << 20


def test_a_piece_does_not_read_on_for_a_row_that_is_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"x")
        file.seek(1 << 42, 1)  # nobody could read as much as this hole
        file.write(b"\n")
    first = Piece(str(path), Container.LINES, start=0, end=10)
    inner = Piece(str(path), Container.LINES, start=10, end=1 << 20)
    assert [Code.ROW_SIZE] == [row.problem.code for row in read(first, limit=1 << 20) if row.problem]
    assert [] == list(read(inner))
    path.unlink()


def test_the_work_grows_with_the_bytes_of_a_row_and_not_faster(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reading(size: int) -> Callable[[], object]:
        def run() -> None:
            assert [size] == [len(row.data) for row in read(Piece(str(file), Container.LINES))]

        file = path.with_name(f"{size}.jsonl")
        file.write_bytes(b"x" * size)
        return run

    monkeypatch.setattr(streams, "BLOCK", 1 << 10)
    assert_grows_below(40, reading, 8 << 20, 64 << 20)


def test_rows_can_be_taken_one_by_one_and_left(path: Path) -> None:
    path.write_bytes(b"1\n2\n3\n")
    rows = read(Piece(str(path), Container.LINES))
    assert isinstance(rows, Rows)
    assert b"1" == next(rows).data
    assert [b"2", b"3"] == [row.data for row in rows]
    assert 3 == rows.numbers
