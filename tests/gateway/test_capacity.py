"""Owns how long a context an embedded model gets: what its header says, what fits into memory, what was asked for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.gateway import tinygguf
from tests.modelfiles import ARRAY, array, header, pair, text
from turnscript.gateway import embedded
from turnscript.gateway.embedded import LEAST, Plan, Shape, free_memory, in_bytes, planned, read_shape

GB = 10**9
APART = 512 * 1024 * 1024


def number(key: str, value: int) -> bytes:
    """A key and a number."""
    return pair(key, 4, struct.pack("<I", value))


def numbers(key: str, *values: int) -> bytes:
    """A key and an array of numbers."""
    return pair(key, ARRAY, array(5, len(values), struct.pack(f"<{len(values)}i", *values)))


def file(folder: Path, *pairs: bytes, arch: str = "qwen2", name: str = "m.gguf") -> Path:
    """A file with a header and nothing else."""
    path = folder / name
    path.write_bytes(header(text("general.architecture", arch), *pairs))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The numbers of a model with half a billion parameters: 12 KiB a token."""
    said = {"block_count": 24, "context_length": 32768, "embedding_length": 896}
    heads = {"attention.head_count": 14, "attention.head_count_kv": 2}
    return file(tmp_path, *(number(f"qwen2.{key}", value) for key, value in (said | heads).items()))


def test_a_token_takes_a_key_and_a_value_for_each_head_in_each_layer(model: Path) -> None:
    assert Shape(32768, 24 * 2 * (64 + 64) * 2) == read_shape(model)


@pytest.mark.parametrize(
    ("pairs", "each"),
    [
        ([number("a.attention.head_count", 8)], 4 * 8 * (8 + 8) * 2),
        ([number("a.attention.head_count", 8), number("a.attention.head_count_kv", 1)], 4 * 1 * (8 + 8) * 2),
        ([number("a.attention.head_count", 8), number("a.attention.key_length", 32)], 4 * 8 * (32 + 8) * 2),
        ([number("a.attention.head_count", 8), number("a.attention.value_length", 32)], 4 * 8 * (8 + 32) * 2),
        ([number("a.attention.head_count", 8), numbers("a.attention.head_count_kv", 0, 2, 0, 2)], 4 * (8 + 8) * 2),
        ([number("a.attention.head_count", 8), number("a.full_attention_interval", 4)], 8 * (8 + 8) * 2),
        ([numbers("a.attention.head_count", 8, 0, 8, 0)], 16 * (8 + 8) * 2),
        ([number("a.attention.head_count", 0)], 0),
        ([number("b.attention.head_count", 8)], 0),
        ([], 0),
    ],
)
def test_layers_may_differ_and_recurrent_ones_take_nothing(tmp_path: Path, pairs: list[bytes], each: int) -> None:
    path = file(tmp_path, number("a.block_count", 4), number("a.embedding_length", 64), *pairs, arch="a")
    assert Shape(None, each) == read_shape(path)


def test_real_writers_of_such_files_are_read(tmp_path: Path) -> None:
    assert Shape(4096, 2 * 2 * (16 + 16) * 2) == read_shape(tinygguf.write_llama(tmp_path / "a"))
    assert Shape(4096, 0) == read_shape(tinygguf.write_rwkv7(tmp_path / "b"))


def test_a_file_that_is_none_says_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    for path in (broken, tmp_path / "none.gguf", tmp_path):
        assert Shape() == read_shape(path)
    assert Plan(4096, 2, 0, 0, "its file does not tell more") == planned(
        tmp_path / "none.gguf", context=None, slots=None, free=GB
    )


def plan(model: Path, context: int | None = None, slots: int | None = None, free: int | None = None) -> Plan:
    return planned(model, context=context, slots=slots, free=free)


def test_a_model_gets_all_that_it_has_where_it_fits(model: Path) -> None:
    size = model.stat().st_size
    for free in (None, 8 * GB):
        assert Plan(32768, 2, 2 * 32768 * 12288, size, "all that the model has") == plan(model, free=free)
    assert Plan(32768, 5, 5 * 32768 * 12288, size, "all that the model has") == plan(model, slots=5)


def test_where_memory_is_short_there_is_one_conversation_before_there_are_two_shorter_ones(model: Path) -> None:
    whole = 32768 * 12288
    free = model.stat().st_size + APART + int(1.5 * whole / 0.75)
    assert (32768, 1) == (plan(model, free=free).context, plan(model, free=free).slots)
    short = plan(model, slots=2, free=free)
    assert (24576, 2, "what fits into memory; the model has 32768") == (short.context, short.slots, short.why)
    half = plan(model, free=model.stat().st_size + APART + int(0.5 * whole / 0.75))
    assert (16384, 1) == (half.context, half.slots)
    assert LEAST == plan(model, free=0).context


def test_what_was_asked_for_counts_up_to_what_the_model_has(model: Path) -> None:
    assert (30_001, "as asked for", False) == told(plan(model, context=30_001, free=0))
    assert (32768, "the model has no more, though 50000 were asked for", True) == told(plan(model, context=50_000))


def told(plan: Plan) -> tuple[int, str, bool]:
    return plan.context, plan.why, plan.cut


def test_a_recurrent_model_costs_nothing_however_long_its_context_is(tmp_path: Path) -> None:
    path = file(
        tmp_path, number("rwkv7.context_length", 1 << 20), number("rwkv7.attention.head_count", 0), arch="rwkv7"
    )
    assert ((1 << 20), 2, 0) == (plan(path, free=GB).context, plan(path, free=GB).slots, plan(path, free=GB).memory)


def test_all_files_of_a_split_model_count(tmp_path: Path) -> None:
    for part in (1, 2, 3):
        (tmp_path / f"m-0000{part}-of-00003.gguf").write_bytes(bytes(1000 * part))
    (tmp_path / "other.gguf").write_bytes(bytes(5))
    assert 6000 == plan(tmp_path / "m-00001-of-00003.gguf").size


def test_a_container_may_have_less_than_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("meminfo", "max", "current")
    meminfo, limit, taken = (tmp_path / name for name in names)
    monkeypatch.setattr(embedded, "_MEMINFO", meminfo)
    monkeypatch.setattr(embedded, "_LIMITS", ((limit, taken),))
    assert (free_memory() or 0) > GB  # half of what the machine has, as where nothing else tells
    meminfo.write_text("MemTotal:       16000 kB\nMemAvailable:    8000 kB\n", encoding="ascii")
    assert 8000 * 1024 == free_memory()
    limit.write_text("max\n", encoding="ascii")
    taken.write_text("1000\n", encoding="ascii")
    assert 8000 * 1024 == free_memory()
    limit.write_text("5000\n", encoding="ascii")
    assert 4000 == free_memory()


def test_sizes_are_shown_in_the_unit_that_fits() -> None:
    assert ["0 MB", "491 MB", "8.1 GB"] == [in_bytes(size) for size in (0, 491_400_064, 8_100_000_000)]
