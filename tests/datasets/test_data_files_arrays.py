"""Owns the checks of arrays and single values: elements are cut out exactly, and faults are told."""

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import assert_grows_below
from turnscript.datasets.files import LIMIT, Container, Piece, Rows, container_of, cut, read, streams
from turnscript.datasets.problems import Code
from turnscript.datasets.rows import RawRow

BOM = b"\xef\xbb\xbf"

texts = st.text(st.sampled_from('a"\\{}[],:\n\u2028é😀 '), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
arrays = st.lists(values, max_size=6)
spellings: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"indent": st.sampled_from([None, 0, 2]), "ensure_ascii": st.booleans(), "separators": st.just((",", ":"))}
) | st.just({})


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("arrays") / "rows.json"


def read_bytes(
    path: Path, content: bytes, block: int = 1 << 18, limit: int = LIMIT, kind: str = "array"
) -> list[RawRow]:
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK", block)
        rows = read(Piece(str(path), Container(kind)), limit=limit)
        found = list(rows)
    assert list(range(1, rows.numbers + 1)) == [row.number for row in found]
    return found


def faults(rows: list[RawRow]) -> list[Code | None]:
    return [row.problem.code if row.problem else None for row in rows]


def elements(content: bytes) -> list[tuple[int, bytes]]:
    """Where each element of an array begins, and its bytes, by the standard library's parser."""
    text = content.decode("latin-1")  # one character for each byte
    found: list[tuple[int, bytes]] = []
    place, decoder = text.index("[") + 1, json.JSONDecoder(strict=False)
    while True:
        while text[place] in " \t\r\n,":
            place += 1
        if text[place] == "]":
            return found
        end = decoder.raw_decode(text, place)[1]
        found.append((place, content[place:end]))
        place = end


@given(
    arrays,
    spellings,
    st.sampled_from([b"", BOM, b" \r\n"]),
    st.sampled_from([b"", b"\n", b" \r\n\t "]),
    st.integers(1, 30),
)
def test_the_rows_are_the_bytes_of_the_elements(
    path: Path, array: list[object], spelling: dict[str, Any], front: bytes, end: bytes, block: int
) -> None:
    content = front + json.dumps(array, **spelling).encode() + end
    rows = read_bytes(path, content, block)
    assert elements(content) == [(row.byte, row.data) for row in rows]
    assert array == [json.loads(row.data) for row in rows]
    assert all(row.problem is None for row in rows)


@given(arrays, spellings, st.integers(1, 30))
def test_cutting_an_array_changes_no_row(path: Path, array: list[object], spelling: dict[str, Any], block: int) -> None:
    content = json.dumps(array, **spelling).encode()
    for kind, whole in (("array", content), ("member", b'{"version": 1, "data": [[],\n' + content[1:] + b', "n": 2}')):
        if kind == "member" and not array:
            continue
        path.write_bytes(whole)
        assert Container(kind) is container_of(str(path)) or not array or b"\n" in content
        expected = [(row.byte, row.data, row.problem) for row in read(Piece(str(path), Container(kind)))]
        for target in (1, 5, len(content) // 2, len(content)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(streams, "BLOCK", block)
                pieces = [piece for piece in cut(str(path), whole=False, target=target) if piece.container == kind]
                actual = [(row.byte, row.data, row.problem) for piece in pieces for row in read(piece)]
            if pieces:
                assert expected == actual


def test_a_large_array_is_cut_into_pieces_of_about_the_size(path: Path) -> None:
    path.write_bytes(json.dumps([{"text": "x" * 90}] * 1000).encode())
    pieces = cut(str(path), whole=False, target=10_000)
    assert 10 <= len(pieces) <= 11
    assert [0, *(piece.end for piece in pieces[:-1])] == [piece.start for piece in pieces]
    assert path.stat().st_size == sum(piece.size for piece in pieces)
    assert 1000 == sum(read_all.numbers for read_all in map(consumed, pieces))


def consumed(piece: Piece) -> Rows:
    rows = read(piece)
    for _ in rows:
        pass
    return rows


@given(
    st.lists(st.dictionaries(texts, texts, min_size=1, max_size=2), min_size=1, max_size=3),
    st.integers(1, 30),
    st.randoms(),
)
def test_an_array_cut_off_anywhere_keeps_the_rows_before_and_says_so(
    path: Path, array: list[object], block: int, random: Random
) -> None:
    content = json.dumps(array, ensure_ascii=False).encode()
    known = elements(content)
    for end in random.sample(range(1, len(content)), 5):
        *kept, last = read_bytes(path, content[:end], block)
        assert [(at, data) for at, data in known if at + len(data) <= end] == [(row.byte, row.data) for row in kept]
        assert last.problem is not None
        assert Code.TRUNCATED is last.problem.code
        assert content[last.byte : end] == last.data


@pytest.mark.parametrize("block", [1, 2, 7, 1 << 18])
@pytest.mark.parametrize(
    ("content", "good", "place", "part"),
    [
        (b'[{"a":1} {"a":2}]', 1, 9, "a comma or the end"),
        (b'[{"a":1}, ]', 1, 10, "behind a comma"),
        (b"[,1]", 0, 1, "an element"),
        (b"[1,,2]", 1, 3, "behind a comma"),
        (b"[1}", 1, 2, "a comma or the end"),
        (b"[1]\n[2]\n", 1, 4, "jq -c ."),
        (b"[1] x", 1, 4, "more behind the array"),
        (b"{}", 0, 0, "an array"),
    ],
)
def test_a_fault_is_one_row_that_says_where_and_what(
    path: Path, content: bytes, good: int, place: int, part: str, block: int
) -> None:
    *kept, bad = read_bytes(path, content, block)
    assert good == len(kept)
    assert bad.problem is not None
    assert (Code.JSON, place) == (bad.problem.code, bad.byte)
    assert bad.data
    assert content[place:].startswith(bad.data)
    assert part.replace("an array", "a JSON array") in bad.problem.message


@pytest.mark.parametrize("block", [1, 5, 1 << 18])
def test_an_element_over_the_limit_is_set_aside_and_the_next_are_read(path: Path, block: int) -> None:
    content = json.dumps([{"a": 1}, {"b": "x" * 9000}, {"c": 3}]).encode()
    rows = read_bytes(path, content, block, limit=5000)
    assert [None, Code.ROW_SIZE, None] == faults(rows)
    assert b'{"b": "' + b"x" * 4089 == rows[1].data
    exact = json.dumps(["x" * 98, "y" * 99]).encode()
    assert [None, Code.ROW_SIZE] == faults(read_bytes(path, exact, block, limit=100))


@pytest.mark.deep
def test_a_huge_array_needs_little_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"[")
        for _ in range(100):
            file.write(json.dumps({"text": "x" * (1 << 20)}).encode() + b",")
        file.write(b'{"huge": "' + b"y" * (100 << 20) + b'"}]')
    tracemalloc.start()
    found = [row.problem and row.problem.code for row in read(Piece(str(path), Container.ARRAY), limit=2 << 20)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    path.unlink()
    assert [None] * 100 + [Code.ROW_SIZE] == found
    assert peak < 16 << 20


@pytest.mark.parametrize(
    "element", [b'{"a":"\\\\\\""}', b"[[[[]]]]", b'"' + b"x" * 60 + b'"', b"12345", b"[" * 50 + b"]" * 50]
)
def test_the_work_grows_with_the_bytes_and_not_faster(
    path: Path, element: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reading(size: int) -> Callable[[], object]:
        def run() -> None:
            assert 1 == len(list(read(Piece(str(file), Container.ARRAY))))

        file = path.with_name(f"{size}.json")
        file.write_bytes(b"[[" + b",".join([element] * (size // len(element))) + b"]]")  # one row: it is gathered too
        return run

    monkeypatch.setattr(streams, "BLOCK", 1 << 12)
    assert_grows_below(40, reading, 1 << 17, 1 << 20)


@pytest.mark.parametrize("block", [1, 3, 1 << 18])
def test_an_object_with_an_array_of_rows_gives_the_rows(path: Path, block: int) -> None:
    front = b'{"object": "list", "first_id": "a\\"b", "n": -1.5e3, "data": '
    content = BOM + front + b'[{"a": 1}, {"a": 2}]' + b', "has_more": false, "x": null}\n'
    path.write_bytes(content)
    assert Container.MEMBER is container_of(str(path))
    rows = read_bytes(path, content, block, kind="member")
    assert [b'{"a": 1}', b'{"a": 2}'] == [row.data for row in rows]
    assert [content.index(b'{"a": 1}'), content.index(b'{"a": 2}')] == [row.byte for row in rows]


@pytest.mark.parametrize("block", [1, 1 << 18])
@pytest.mark.parametrize(
    ("end", "code"),
    [(b', "more": [1]}', Code.JSON), (b"} {", Code.JSON), (b"", Code.TRUNCATED), (b" \n", Code.TRUNCATED)],
)
def test_an_object_that_does_not_end_behind_its_rows_has_a_problem(
    path: Path, end: bytes, code: Code, block: int
) -> None:
    rows = read_bytes(path, b'{"rows": [{"a": 1}]' + end, block, kind="member")
    assert [None, code] == faults(rows)


@given(values, st.sampled_from([b"", BOM, b"\n \t"]), st.sampled_from([b"", b"\r\n\n"]), st.sampled_from([None, 2]))
def test_one_value_is_one_row(path: Path, value: object, front: bytes, end: bytes, indent: int | None) -> None:
    inner = json.dumps(value, indent=indent).encode()
    (row,) = read_bytes(path, front + inner + end, kind="object")
    assert (inner, len(front), None) == (row.data, row.byte, row.problem)


@pytest.mark.parametrize(
    ("content", "code", "part"),
    [
        (b'{"a": 1}{"a": 2}', Code.JSON, "several JSON values"),
        (b'{\n "a": 1\n}\n{\n "a": 2\n}\n', Code.JSON, "jq -c . FILE > FILE.jsonl"),
        (b'{"a": 1}}', Code.JSON, "from byte 8 on"),
        (b"hello world", Code.JSON, "from byte 6 on"),
        (b'}{"a": 1}', Code.JSON, "from byte 0 on"),
        (b'{"a": [1, 2}', Code.TRUNCATED, "in the middle"),
        (b'"text', Code.TRUNCATED, "in the middle"),
        (b'{"a": "' + b"x" * 200 + b'"}', Code.ROW_SIZE, "100 bytes"),
    ],
)
def test_what_is_not_one_value_is_one_problem_that_says_what_to_do(
    path: Path, content: bytes, code: Code, part: str
) -> None:
    (row,) = read_bytes(path, content, limit=100, kind="object")
    assert row.problem is not None
    assert code is row.problem.code
    assert part in row.problem.message
    assert content.startswith(row.data)


def test_an_empty_file_has_no_rows(path: Path) -> None:
    for kind in ("array", "object", "member", "text"):
        assert [] == read_bytes(path, b"", kind=kind)
        assert [] == read_bytes(path, BOM, kind=kind)
