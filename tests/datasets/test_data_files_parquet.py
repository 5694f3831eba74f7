"""Owns the checks of Parquet: what each value becomes in JSON, which nulls are left out, and how tables break."""

import datetime as dt
import json
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from turnscript.core.errors import InvalidInput
from turnscript.datasets.files import Container, Piece, columns, cut, read, sample
from turnscript.datasets.problems import Code
from turnscript.datasets.rows import RawRow


def write(folder: Path, columns: dict[str, Any], **options: Any) -> str:
    path = str(folder / "t.parquet")
    pq.write_table(pa.table(columns), path, **options)
    return path


def rows_of(path: str, target: int = 1 << 40, limit: int = 64 << 20) -> list[RawRow]:
    found, before = [], 0
    for piece in cut(path, whole=False, target=target):
        rows = read(piece, limit=limit)
        found += [replace(row, number=before + row.number) for row in rows]
        before += rows.numbers
    return found


def one(folder: Path, array: Any) -> Any:
    """What the only value of a column becomes."""
    (row,) = rows_of(write(folder, {"x": array}))
    assert row.problem is None
    return json.loads(row.data, parse_float=Decimal).get("x", "left out")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("é\u2028\x00", pa.string(), "é\u2028\x00"),
        ("x", pa.large_string(), "x"),
        ("x", pa.string_view(), "x"),
        ("x", pa.dictionary(pa.int32(), pa.string()), "x"),
        ('{"a": 1}', pa.string(), '{"a": 1}'),
        (2**63 - 1, pa.int64(), 2**63 - 1),
        (2**64 - 1, pa.uint64(), 2**64 - 1),
        (0.5, pa.float32(), Decimal("0.5")),
        (1e300, pa.float64(), Decimal("1e300")),
        (True, pa.bool_(), True),
        (Decimal("12345678901234567890.10"), pa.decimal128(30, 2), Decimal("12345678901234567890.10")),
        (b"text", pa.binary(), "text"),
        (b"na\xc3\xafve", pa.binary_view(), "naïve"),
        (b"\xff\x00", pa.binary_view(), {"base64": "/wA="}),
        ([{"a": None, "b": 1}], pa.list_view(pa.struct({"a": pa.string(), "b": pa.int8()})), [{"b": 1}]),
        ([b"x"], pa.large_list_view(pa.binary()), ["x"]),
        (b"\xff\x00", pa.large_binary(), {"base64": "/wA="}),
        (b"\xff\x00", pa.binary(2), {"base64": "/wA="}),
        (dt.date(2026, 1, 2), pa.date32(), "2026-01-02"),
        (dt.time(1, 2, 3), pa.time64("us"), "01:02:03.000000"),
        (1_700_000_000_123_456_789, pa.timestamp("ns"), "2023-11-14T22:13:20.123456789"),
        (1_700_000_000, pa.timestamp("s"), "2023-11-14T22:13:20.000"),
        (1_700_000_000_123, pa.timestamp("ms", "Asia/Tokyo"), "2023-11-14T22:13:20.123Z"),
        (1_500, pa.duration("ms"), "PT1.500S"),
        ([1, None, 3], pa.list_(pa.int64()), [1, None, 3]),
        ([1, 2], pa.large_list(pa.int8()), [1, 2]),
        ([1, None], pa.list_(pa.int8(), 2), [1, None]),
        ([], pa.list_(pa.string()), []),
        ({"a": None, "b": []}, pa.struct({"a": pa.string(), "b": pa.list_(pa.string())}), {"b": []}),
        ([("a", 1), ("b", None)], pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}),
        ([(1, "x")], pa.map_(pa.int64(), pa.string()), {"1": "x"}),
        (None, pa.string(), "left out"),
        (None, pa.null(), "left out"),
    ],
)
def test_a_value_becomes_the_json_that_says_it(tmp_path: Path, value: Any, kind: Any, expected: Any) -> None:
    assert expected == one(tmp_path, pa.array([value], kind))


def test_a_column_of_json_is_that_json(tmp_path: Path) -> None:
    column = pa.ExtensionArray.from_storage(pa.json_(pa.string()), pa.array(['{"a": null, "b": [1e2]}']))
    assert {"a": None, "b": [Decimal("1e2")]} == one(tmp_path, column)


messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant"])},
        optional={
            "content": st.text(max_size=5),
            "weight": st.integers(0, 1),
            "tool_calls": st.lists(st.fixed_dictionaries({"id": st.text(max_size=3)}), max_size=2),
        },
    ),
    max_size=3,
)
CALLS = pa.list_(pa.struct({"id": pa.string()}))
MESSAGES = pa.list_(pa.struct({"role": pa.string(), "content": pa.string(), "weight": pa.int8(), "tool_calls": CALLS}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


@given(st.lists(messages, min_size=1, max_size=8), st.integers(1, 4), st.integers(1, 300))
def test_messages_come_back_as_they_were_however_the_table_is_cut(
    folder: Path, records: list[Any], group: int, target: int
) -> None:
    path = write(folder, {"messages": pa.array(records, MESSAGES)}, row_group_size=group)
    rows = rows_of(path, target)
    assert [{"messages": record} for record in records] == [json.loads(row.data) for row in rows]
    assert list(range(1, len(records) + 1)) == [row.number for row in rows]
    assert {-1} == {row.byte for row in rows}


def test_a_null_list_and_an_empty_one_stay_apart_in_slices(tmp_path: Path) -> None:
    lists = pa.array([None, [], [{"a": 1}], None, [{"a": None}, None]], pa.list_(pa.struct({"a": pa.int8()})))
    rows = rows_of(write(tmp_path, {"x": lists}))
    expected = [{}, {"x": []}, {"x": [{"a": 1}]}, {}, {"x": [{}, None]}]
    assert expected == [json.loads(row.data) for row in rows]


CALL = {"name": "weather", "arguments": {"city": "Paris", "unit": None}}


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a", "function": CALL}]}]},
        {"content": [{"type": "tool_use", "name": "f", "input": {"a": {"b": None}, "c": 1}}]},
        {"call": {"name": "f", "parameters": {"a": 1, "b": None}}},
        {"call": {"name": "f", "kwargs": {"a": [{"b": None}]}}},
    ],
)
def test_a_null_in_arguments_that_may_be_none_sets_the_row_aside(tmp_path: Path, record: dict[str, Any]) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.Table.from_pylist([record]), path)
    (row,) = rows_of(path)
    assert row.problem is not None
    assert Code.SHAPE is row.problem.code
    assert "JSON string" in row.problem.message
    assert row.problem.pointer.startswith("$.")
    assert record == json.loads(row.data)


@pytest.mark.parametrize(
    "record",
    [
        {"function": {"name": "f", "arguments": {"city": "Paris"}}},
        {"function": {"name": "f", "arguments": '{"city": null}'}},
        {"function": {"name": "f", "arguments": {"cities": ["a", None]}}},
        {"input": "Hi", "name": "x"},
        {"name": "run 7", "request": {"input": [{"role": "user"}]}},
    ],
)
def test_arguments_without_doubtful_nulls_are_kept_as_they_are(tmp_path: Path, record: dict[str, Any]) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.Table.from_pylist([record]), path)
    (row,) = rows_of(path)
    assert (record, None) == (json.loads(row.data), row.problem)


def test_nulls_that_arrow_added_to_schemas_of_tools_are_left_out(tmp_path: Path) -> None:
    def tool(name: str, **properties: Any) -> dict[str, Any]:
        return {"name": name, "parameters": {"type": "object", "properties": properties}}

    tools = [tool("f", city={"type": "string"}), tool("g", unit={"type": "string", "enum": ["c", "f"]})]
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.Table.from_pylist([{"tools": tools}]), path)
    (row,) = rows_of(path)
    assert ({"tools": tools}, None) == (json.loads(row.data), row.problem)


@given(st.integers(0, 5), st.integers(0, 6))
def test_a_slice_of_a_batch_has_the_rows_of_the_slice(start: int, length: int) -> None:
    rows: list[dict[str, Any]] = [
        {"x": [["a"], []], "m": [("k", [1])], "s": {"l": ["b"]}},
        {"x": [], "m": [], "s": {"l": []}},
        {"x": None, "m": None, "s": None},
        {"x": [None, ["c", None]], "m": [("k", None), ("l", [2, 3])], "s": {"l": None}},
        {"x": [["d"]], "m": [("n", [4])], "s": {"l": ["e", "f"]}},
    ]
    lists = pa.list_(pa.string())
    kinds = {"x": pa.list_(lists), "m": pa.map_(pa.string(), pa.list_(pa.int8())), "s": pa.struct({"l": lists})}
    arrays = [pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(kinds))
    assert columns.rows_of(batch)[start : start + length] == columns.rows_of(batch.slice(start, length))


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_what_json_has_no_number_for_sets_only_its_row_aside(tmp_path: Path, number: float) -> None:
    column = pa.array([{"score": 1.5}, {"score": number}, {"score": None}])
    rows = rows_of(write(tmp_path, {"x": column}))
    assert [False, True, False] == [row.problem is not None for row in rows]
    problem = rows[1].problem
    assert problem is not None
    assert (Code.SHAPE, "$.x.score") == (problem.code, problem.pointer)
    assert str(number) in rows[1].data.decode()


def test_a_string_that_is_no_utf8_sets_only_its_row_aside(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 3, pa.array([b"a", b"\xff", None], pa.binary()).buffers())
    rows = rows_of(write(tmp_path, {"x": broken}))
    assert [None, Code.UTF8, None] == [row.problem.code if row.problem else None for row in rows]
    assert [b'{"x":"a"}', b"{}"] == [rows[0].data, rows[2].data]


def test_a_map_with_the_same_key_twice_sets_its_row_aside(tmp_path: Path) -> None:
    maps = pa.array([[("a", 1), ("a", 2)], [("b", 3)]], pa.map_(pa.string(), pa.int8()))
    first, second = rows_of(write(tmp_path, {"x": maps}))
    assert first.problem is not None
    assert b'{"x":{"b":3}}' == second.data


def test_a_row_over_the_limit_is_set_aside(tmp_path: Path) -> None:
    small, large = rows_of(write(tmp_path, {"x": ["a", "b" * 9000]}), limit=8000)
    assert small.problem is None
    assert large.problem is not None
    assert (Code.ROW_SIZE, 4096) == (large.problem.code, len(large.data))


def test_row_groups_are_put_together_until_a_piece_has_enough(tmp_path: Path) -> None:
    path = write(tmp_path, {"x": [str(number) * 50 for number in range(100)]}, row_group_size=10)
    one_each = cut(path, whole=False, target=1)
    assert [(number, number + 1) for number in range(10)] == [(piece.start, piece.end) for piece in one_each]
    total = sum(piece.size for piece in one_each)
    assert 3 <= len(cut(path, whole=False, target=total // 4)) <= 5
    assert [(0, 10, total)] == [(p.start, p.end, p.size) for p in cut(path, whole=False, target=total * 2)]
    assert [1, 2, 3] == [row.number for row in sample(path, 3)]
    assert [] == rows_of(write(tmp_path, {"x": pa.array([], pa.string())}))


def test_a_table_as_a_whole_is_its_rows_on_lines(tmp_path: Path) -> None:
    path = write(tmp_path, {"x": ["a", "b"]})
    (piece,) = cut(path, whole=True, target=1)
    rows = read(piece)
    assert [(1, b'{"x":"a"}\n{"x":"b"}', None)] == [(row.number, row.data, row.problem) for row in rows]
    assert 1 == rows.numbers
    (row,) = read(piece, limit=10)
    assert row.problem is not None
    assert Code.ROW_SIZE is row.problem.code
    assert row.problem.message.startswith("the whole file is one row here, and a row may have ")


@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: b"PAR1" + bytes(100), lambda data: b"PAR1"])
def test_a_table_without_its_end_is_refused_with_a_remedy(tmp_path: Path, damage: Any) -> None:
    path = Path(write(tmp_path, {"x": ["a"]}))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InvalidInput, match="fetch or make it again") as caught:
        cut(str(path), whole=False, target=1)
    assert str(path) in str(caught.value)
    with pytest.raises(InvalidInput, match="fetch or make it again"):
        list(read(Piece(str(path), Container.PARQUET)))


@pytest.mark.parametrize("name", ["an-odd-name", "x" * 300])
def test_a_table_whose_schema_is_damaged_is_refused_with_a_remedy(tmp_path: Path, name: str) -> None:
    path = Path(write(tmp_path, {name: ["a"]}, store_schema=False))
    path.write_bytes(path.read_bytes().replace(name[1:].encode(), b"\xff" * (len(name) - 1)))
    with pytest.raises(InvalidInput, match=r"this is no whole Parquet file .*fetch or make it again"):
        cut(str(path), whole=False, target=1)


def test_a_table_that_is_nested_too_deep_is_no_trouble_of_the_disk(tmp_path: Path) -> None:
    kind: Any = pa.string()
    value: Any = "x"
    for _ in range(150):
        kind, value = pa.struct([("a", kind)]), {"a": value}
    path = write(tmp_path, {"x": pa.array([value], kind)})
    with pytest.raises(InvalidInput, match=r"too deeply nested.*fetch or make it again"):
        cut(path, whole=False, target=1)


def test_a_damaged_row_group_is_one_row_and_the_others_are_read(tmp_path: Path) -> None:
    texts = [f"{number} " + "x" * 300 for number in range(30)]
    columns = {"x": texts}
    path = Path(write(tmp_path, columns, row_group_size=10, write_page_checksum=True, compression="none"))
    content = path.read_bytes()
    place = content.index(b"15 xxx") + 100
    path.write_bytes(content[:place] + b"!" * 50 + content[place + 50 :])
    rows = rows_of(str(path))
    good = [(number + 1, {"x": text}) for number, text in enumerate(texts) if not 10 <= number < 20]
    assert good == [(row.number, json.loads(row.data)) for row in rows if row.problem is None]
    (bad,) = [row for row in rows if row.problem]
    assert bad.problem is not None
    assert (Code.TRUNCATED, 11) == (bad.problem.code, bad.number)
    assert "10 rows of it are lost" in bad.problem.message


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    twins = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    pq.write_table(pa.table({"x": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), twins)}), path)
    with pytest.raises(InvalidInput, match=r"two columns 'x\[\]\.a'"):
        cut(path, whole=False, target=1)


@pytest.mark.deep
def test_memory_holds_a_batch_and_not_the_table(tmp_path: Path) -> None:
    path = write(tmp_path, {"x": [str(number) + "x" * 100_000 for number in range(1000)]}, row_group_size=1000)
    tracemalloc.start()
    assert 1000 == sum(1 for _ in read(Piece(path, Container.PARQUET)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("made", [pa.array, lambda values: pa.array(values).dictionary_encode()])
def test_memory_holds_a_batch_however_small_its_rows_are_in_the_file(tmp_path: Path, made: Any) -> None:
    """A value that stands in every row stands in the file once."""
    path = write(tmp_path, {"x": made(["x" * 100_000] * 1000)})
    assert Path(path).stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    rows, arrow = 0, 0
    for row in read(Piece(path, Container.PARQUET)):
        assert 100_008 == len(row.data)
        rows, arrow = rows + 1, max(arrow, pa.total_allocated_bytes() - before)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 1000 == rows
    assert peak < 32 << 20
    assert arrow < 32 << 20


@given(st.lists(st.sampled_from(["a", "b", "", None]), min_size=1), st.integers(0, 9), st.integers(1, 9))
def test_values_that_rows_share_are_those_of_the_rows(values: list[str | None], start: int, length: int) -> None:
    array = pa.array(values, pa.string()).dictionary_encode()
    batch = pa.record_batch({"x": array}).slice(start, length)
    assert [{} if value is None else {"x": value} for value in values[start:][:length]] == columns.rows_of(batch)
