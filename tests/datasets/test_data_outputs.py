"""Owns the laws of outputs: what is written is read back, in bytes that depend on nothing else, whole or not at all."""

import contextlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.datasets.batches import FACTS, Document, batch, batches, contents, documents, made, samples, write
from turnscript.core.errors import InvalidInput, UnknownName, Unsupported
from turnscript.datasets.output import Batch, OutputFacts
from turnscript.datasets.output_registry import get_output, outputs
from turnscript.datasets.outputs import parquet
from turnscript.datasets.packing import pack
from turnscript.datasets.packingnames import read_packing

NAMES = outputs()
FEWER = settings(max_examples=settings().max_examples // 4)  # every example waits for the disk


def test_every_output_is_registered_and_others_are_no_names() -> None:
    assert ["binidx", "jsonl", "parquet"] == NAMES
    for name in NAMES:
        assert name == get_output(name).name
        assert get_output(name).title
    with pytest.raises(UnknownName, match="parquet"):
        get_output("parket")


@pytest.mark.parametrize("name", NAMES)
@FEWER
@given(found=documents(), size=st.integers(1, 31), packing=st.sampled_from(["none", "bfd:12", "stream:5"]))
def test_what_is_written_is_read_back(name: str, found: list[Document], size: int, packing: str) -> None:
    packed = list(pack(batches(found, size), read_packing(packing), FACTS))
    with tempfile.TemporaryDirectory() as folder:
        write(name, Path(folder), iter(packed))
        chats = get_output(name).chats
        expected = samples(iter(packed), chats=chats)
        assert expected == samples(get_output(name).read(Path(folder), "train"), chats=chats)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_do_not_depend_on_how_samples_arrive(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 100)
    monkeypatch.setattr(parquet, "GROUP_TOKENS", 20_000)
    found = made(450)
    written = []
    for size in (1, 7, 100, 450):
        folder = tmp_path / str(size)
        folder.mkdir()
        write(name, folder, batches(found, size))
        written.append(contents(folder))
    assert all(written[0] == other for other in written[1:])


@pytest.mark.parametrize("name", NAMES)
def test_files_appear_only_when_they_are_closed(name: str, tmp_path: Path) -> None:
    writer = get_output(name).open(tmp_path, "train", FACTS)
    writer.write(batch(made(3)))
    assert all(path.name.startswith(".") for path in tmp_path.iterdir())
    names = writer.close()
    writer.discard()
    assert sorted(names) == sorted(contents(tmp_path))


@pytest.mark.parametrize("name", NAMES)
def test_what_is_discarded_leaves_nothing(name: str, tmp_path: Path) -> None:
    writer = get_output(name).open(tmp_path, "train", FACTS)
    writer.write(batch(made(3)))
    writer.discard()
    writer.discard()
    assert {} == contents(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_written_is_an_empty_file_that_can_be_read(name: str, tmp_path: Path) -> None:
    write(name, tmp_path, iter([]))
    assert [] == samples(get_output(name).read(tmp_path, "train"))


@pytest.mark.parametrize("name", NAMES)
def test_an_id_that_the_tokenizer_does_not_have_is_refused_with_its_row(name: str, tmp_path: Path) -> None:
    writer = get_output(name).open(tmp_path, "train", OutputFacts(100, 0))
    writer.write(batch([Document([99, 0], [1, 0], "a:1")]))
    with pytest.raises(InvalidInput, match=r"a:3: the token id 100 is not below 100.*tokenizer"):
        writer.write(batch([Document([1, 0], [1, 0], "a:2"), Document([5, 100], [1, 0], "a:3")]))
    writer.discard()


@pytest.mark.parametrize("name", NAMES)
def test_large_vocabularies_get_wider_ids(name: str, tmp_path: Path) -> None:
    found = [Document([65535, 65536, 128_255, 0], [1, 1, 1, 0], "a:1")]
    write(name, tmp_path, batches(found, 1), OutputFacts(128_256, 0))
    assert [65535, 65536, 128_255, 0] == samples(get_output(name).read(tmp_path, "train"))[0].ids


@pytest.mark.parametrize("name", NAMES)
@FEWER
@given(share=st.floats(0, 1), value=st.integers(0, 255))
def test_a_damaged_byte_is_no_other_error(name: str, share: float, value: int) -> None:
    """Not every change can be seen in a file by itself: the hashes in the manifest are there for that."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for victim in write(name, folder, batches(made(5, mean=2), 2)):
            good = (folder / victim).read_bytes()
            data = bytearray(good)
            data[round(share * (len(data) - 1))] = value
            (folder / victim).write_bytes(data)
            with contextlib.suppress(InvalidInput):
                samples(get_output(name).read(folder, "train"))
            (folder / victim).write_bytes(good)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_missing_or_ends_too_early_is_named(name: str, tmp_path: Path) -> None:
    for victim in write(name, tmp_path, batches(made(20), 7)):
        good = (tmp_path / victim).read_bytes()
        (tmp_path / victim).write_bytes(good[: len(good) * 2 // 3])
        with pytest.raises(InvalidInput, match=re.escape(victim.removesuffix("bin").removesuffix("idx"))):
            samples(get_output(name).read(tmp_path, "train"))
        (tmp_path / victim).unlink()
        with pytest.raises(InvalidInput, match="build the files again"):
            samples(get_output(name).read(tmp_path, "train"))
        (tmp_path / victim).write_bytes(good)


HI, HO = ([{"role": "user", "content": text}] for text in ("Hi", "Ho"))
TOOLS = '[{"type":"function"}]'


def told(messages: list[dict[str, str]], tools: str | None = None) -> bytes:
    return json.dumps({"messages": messages, "tools": tools}).encode()


def line_of(tmp_path: Path, found: list[Document], packing: str) -> dict[str, Any]:
    kind = read_packing(packing)
    facts = OutputFacts(65536, 0, window=kind.window)
    write("jsonl", tmp_path, pack(batches(found, 2), kind, facts), facts)
    text = (tmp_path / "train.jsonl").read_text()
    assert text.endswith("\n")
    line: dict[str, Any] = json.loads(text)
    return line


def test_json_lines_are_what_anybody_reads(tmp_path: Path) -> None:
    expected = {
        "input_ids": [7, 0],
        "loss_weight": [1, 0],
        "doc_starts": [0],
        "source": ["a:1"],
        "messages": HI,
        "tools": TOOLS,
    }
    line = line_of(tmp_path, [Document([7, 0], [1, 0], "a:1", told(HI, TOOLS))], "none")
    assert expected == line
    assert list(expected) == list(line)


def test_windows_have_the_conversations_of_their_documents_in_their_order(tmp_path: Path) -> None:
    found = [Document([7, 0], [1, 0], "a:1", told(HI, TOOLS)), Document([8, 9, 0], [1, 1, 0], "b:2", told(HO))]
    expected = {
        "input_ids": [7, 0, 8, 9, 0, 0],
        "loss_weight": [1, 0, 1, 1, 0, 0],
        "doc_starts": [0, 2],
        "source": ["a:1", "b:2"],
        "messages": [HI, HO],
        "tools": [TOOLS, None],
    }
    assert expected == line_of(tmp_path, found, "bfd:6")
    alone = line_of(tmp_path, found[:1], "bfd:6")
    assert ([HI], [TOOLS]) == (alone["messages"], alone["tools"])


def test_an_old_line_without_conversations_is_read(tmp_path: Path) -> None:
    line = '{"input_ids":[1],"loss_weight":[1],"doc_starts":[0],"source":["a:1"]}'
    (tmp_path / "train.jsonl").write_text(line + "\n")
    assert [[b""]] == [one.chats for one in samples(get_output("jsonl").read(tmp_path, "train"), chats=True)]


LINE = '{"input_ids":[1],"loss_weight":[1],"doc_starts":[0],"source":["a"]'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"input_ids":[1],"loss_weight":[1,2],"doc_starts":[0],"source":["a"]}', "as long as"),
        ('{"input_ids":[1],"loss_weight":[1],"doc_starts":[0],"source":[]}', "as long as"),
        ('{"input_ids":[-1],"loss_weight":[1],"doc_starts":[0],"source":["a"]}', ">= 0"),
        ('{"input_ids":[1],"loss_weight":[256],"doc_starts":[0],"source":["a"]}', "<= 255"),
        ('{"input_ids":[1],"loss_weight":[1],"doc_starts":[0],"source":["a"],"x":1}', "unknown field"),
        ("{", "truncated"),
        (f'{LINE},"messages":[[{{}}],[{{}}]],"tools":[null,null]}}', "as long as"),
        (f'{LINE},"messages":[null],"tools":[]}}', "as long as"),
        (f'{LINE},"messages":[{{}}],"tools":nul}}', "malformed"),
        (f'{LINE},"messages":7,"tools":null}}', "Expected `array`"),
    ],
)
def test_a_line_that_is_no_sample_is_named(line: str, reason: str, tmp_path: Path) -> None:
    good = '{"input_ids":[1],"loss_weight":[1],"doc_starts":[0],"source":["a:1"]}\n'
    (tmp_path / "train.jsonl").write_text(good + line + "\n")
    with pytest.raises(InvalidInput, match=rf"train\.jsonl:2 is no sample: .*{reason}"):
        list(get_output("jsonl").read(tmp_path, "train"))


@pytest.mark.parametrize(("size", "type_"), [(65536, pa.uint16()), (65537, pa.uint32())])
def test_parquet_has_the_columns_that_it_promises(size: int, type_: pa.DataType, tmp_path: Path) -> None:
    facts = OutputFacts(size, 0, scale=255, window=0)
    write("parquet", tmp_path, batches(made(50), 9), facts)
    file = pq.ParquetFile(tmp_path / "train.parquet")
    wanted = {"input_ids": type_, "loss_weight": pa.uint8(), "doc_starts": pa.int32(), "source": pa.string()}
    assert {name: pa.list_(kind) for name, kind in wanted.items()} == {
        field.name: field.type for field in file.schema_arrow
    }
    about = json.loads(file.schema_arrow.metadata[b"turnscript"])
    assert {"size": size, "end": 0, "scale": 255, "window": 0} == about
    assert "ZSTD" == file.metadata.row_group(0).column(0).compression


def test_parquet_row_groups_are_bounded_in_rows_and_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 10)
    monkeypatch.setattr(parquet, "GROUP_TOKENS", 50)
    lengths = [1] * 25 + [30] * 4 + [500] + [2]
    found = [Document([1] * length, [1] * length, f"a:{at}") for at, length in enumerate(lengths)]
    write("parquet", tmp_path, batches(found, 6))
    metadata = pq.ParquetFile(tmp_path / "train.parquet").metadata
    assert [10, 10, 7, 2, 1, 1] == [metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)]


def test_text_takes_little_more_than_a_byte_a_token_in_parquet(tmp_path: Path) -> None:
    """Ids of text are skewed and repeat; random ones could not be packed at all."""
    rng = np.random.default_rng(0)
    phrases = [rng.zipf(1.3, rng.integers(3, 12)) % 60_000 + 1 for _ in range(4000)]
    chosen = rng.zipf(1.2, 60_000) % len(phrases)
    ids = np.concatenate([phrases[at] for at in chosen]).astype(np.uint32)
    lengths = np.full(len(ids) // 400, 400, dtype=np.int64)
    ids = ids[: int(lengths.sum())]
    weights = np.tile(np.repeat([0, 1], 200), len(lengths)).astype(np.uint8)
    count = len(lengths)
    sources = [f"a.jsonl:{at}" for at in range(count)]
    ones = np.ones(count, dtype=np.int64)
    write("parquet", tmp_path, iter([Batch(ids, weights, lengths, ones - 1, ones, sources)]))
    assert (tmp_path / "train.parquet").stat().st_size < 1.5 * len(ids)


def test_parquet_without_pyarrow_says_what_to_install(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyarrow'] = None; sys.modules['pyarrow.parquet'] = None\n"
        "from pathlib import Path\n"
        "from turnscript.datasets.output import OutputFacts\n"
        "from turnscript.datasets.output_registry import get_output, outputs\n"
        "from turnscript.core.errors import Unsupported\n"
        "print(outputs())\n"
        "try:\n    get_output('parquet').open(Path(sys.argv[1]), 'train', OutputFacts(10, 0))\n"
        "except Unsupported as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "pip install 'turnscript[parquet]'" in done.stdout
    assert {} == contents(tmp_path)


def test_ids_that_no_file_can_hold_are_unsupported(tmp_path: Path) -> None:
    for name in ("binidx", "parquet"):
        with pytest.raises(Unsupported, match="the tokenizer has"):
            get_output(name).open(tmp_path, "train", OutputFacts(1 << 33, 0))
    assert {} == contents(tmp_path)
