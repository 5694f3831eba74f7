"""Owns the exact bytes of binidx, and a reader of its own, written from the layout, that opens what is written."""

import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.datasets.batches import FACTS, Document, batches, contents, documents, write
from turnscript.core.errors import InvalidInput
from turnscript.datasets.output import OutputFacts
from turnscript.datasets.output_registry import get_output
from turnscript.datasets.outputs import binidx
from turnscript.datasets.packing import pack
from turnscript.datasets.packingnames import read_packing

TWO = [Document([1, 2, 3, 0], [0, 1, 1, 0], "a.jsonl:1"), Document([10, 20, 0], [0, 1, 0], "a.jsonl:2")]


class MappedReader:
    """What a trainer does with a stem: it maps both files, and takes any length of ids from any place."""

    TYPES: ClassVar[dict[int, Any]] = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}

    def __init__(self, stem: Path) -> None:
        index = Path(f"{stem}.idx").read_bytes()
        assert b"MMIDIDX\x00\x00" == index[:9]
        version, code = struct.unpack_from("<QB", index, 9)
        assert 1 == version
        self.type = self.TYPES[code]
        count, borders = struct.unpack_from("<QQ", index, 18)
        self.sizes = np.frombuffer(index, np.int32, count, 34)
        self.offsets = np.frombuffer(index, np.int64, count, 34 + 4 * count)
        self.borders = np.frombuffer(index, np.int64, borders, 34 + 12 * count)
        assert len(index) == 34 + 12 * count + 8 * borders
        file = Path(f"{stem}.bin")
        self.ids: NDArray[Any] = np.memmap(file, dtype=self.type, mode="r") if file.stat().st_size else np.empty(0)

    def get(self, idx: int, offset: int = 0, length: int | None = None) -> list[int]:
        """From a place of a document, on over the borders of documents if the length says so."""
        start = int(self.offsets[idx]) // np.dtype(self.type).itemsize + offset
        count = int(self.sizes[idx]) - offset if length is None else length
        found: list[int] = self.ids[start : start + count].tolist()
        return found


def test_the_bytes_are_those_of_the_specification(tmp_path: Path) -> None:
    write("binidx", tmp_path, batches(TWO, 2), stem="x")
    files = contents(tmp_path)
    assert ["x.bin", "x.idx", "x.mask.bin", "x.mask.idx", "x.sources.jsonl"] == sorted(files)
    assert bytes.fromhex("0100 0200 0300 0000 0a00 1400 0000") == files["x.bin"]
    head = (
        b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + b"\x08" + (2).to_bytes(8, "little") + (3).to_bytes(8, "little")
    )
    sizes = (4).to_bytes(4, "little") + (3).to_bytes(4, "little")
    offsets = (0).to_bytes(8, "little") + (8).to_bytes(8, "little")
    borders = b"".join(number.to_bytes(8, "little") for number in range(3))
    assert head + sizes + offsets + borders == files["x.idx"]
    assert (14, 82) == (len(files["x.bin"]), len(files["x.idx"]))
    assert bytes([0, 1, 1, 0, 0, 1, 0]) == files["x.mask.bin"]
    mask_offsets = (0).to_bytes(8, "little") + (4).to_bytes(8, "little")
    assert head[:17] + b"\x01" + head[18:] + sizes + mask_offsets + borders == files["x.mask.idx"]
    assert b'"a.jsonl:1"\n"a.jsonl:2"\n' == files["x.sources.jsonl"]


@settings(max_examples=settings().max_examples // 4)  # every example waits for the disk
@given(found=documents().filter(bool), size=st.integers(1, 31), choice=st.data())
def test_a_trainers_reader_takes_any_stretch_of_ids_and_its_mask(
    found: list[Document], size: int, choice: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write("binidx", Path(folder), batches(found, size))
        ids, mask = MappedReader(Path(folder, "train")), MappedReader(Path(folder, "train.mask"))
        assert (np.uint16, np.uint8) == (ids.type, mask.type)
        for at, document in enumerate(found):
            assert document.ids == ids.get(at)
            assert document.weights == mask.get(at)
        flat = [one for document in found for one in document.ids]
        weights = [one for document in found for one in document.weights]
        start = choice.draw(st.integers(0, len(flat) - 1))
        length = choice.draw(st.integers(1, len(flat) - start))
        assert flat[start : start + length] == ids.get(idx=0, offset=start, length=length)
        assert weights[start : start + length] == mask.get(idx=0, offset=start, length=length)
        assert list(range(len(found) + 1)) == ids.borders.tolist() == mask.borders.tolist()
        assert ids.sizes.tolist() == mask.sizes.tolist()


def test_windows_lie_where_a_trainer_that_counts_slots_looks(tmp_path: Path) -> None:
    found = [Document([at + 1] * (at % 7 + 1) + [0], [1] * (at % 7 + 1) + [0], f"a:{at}") for at in range(40)]
    packed = list(pack(batches(found, 9), read_packing("bfd:10"), FACTS))
    write("binidx", tmp_path, iter(packed))
    reader = MappedReader(tmp_path / "train")
    assert {10} == set(reader.sizes.tolist())
    ids = np.concatenate([one.ids for one in packed])
    for slot in range(len(reader.sizes)):
        assert ids[10 * slot : 10 * slot + 10].tolist() == reader.get(idx=0, offset=10 * slot, length=10)
    first = (tmp_path / "train.sources.jsonl").read_text().splitlines()[0]
    assert first.startswith('[0,"a:')


@pytest.mark.parametrize(("size", "code", "width"), [(65_529, 8, 2), (65_536, 8, 2), (65_537, 4, 4), (151_936, 4, 4)])
def test_two_bytes_are_enough_up_to_65536_ids(size: int, code: int, width: int, tmp_path: Path) -> None:
    facts = OutputFacts(size, 0)
    document = Document([size - 1, 0], [1, 0], "a:1")
    write("binidx", tmp_path, batches([document], 1), facts)
    assert (code, 2 * width) == ((tmp_path / "train.idx").read_bytes()[17], (tmp_path / "train.bin").stat().st_size)
    assert [size - 1, 0] == MappedReader(tmp_path / "train").get(0)
    assert bool(get_output("binidx").notes(facts)) == (width == 4)


def test_an_index_of_many_blocks_is_that_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Document([1] * (at % 5) + [0], [0] * (at % 5 + 1), f"a:{at}") for at in range(1000)]
    one, many = tmp_path / "one", tmp_path / "many"
    one.mkdir()
    many.mkdir()
    write("binidx", one, batches(found, 1000))
    monkeypatch.setattr(binidx, "_BLOCK", 7)
    write("binidx", many, batches(found, 3))
    assert contents(one) == contents(many)
    assert 1000 == sum(len(batch.lengths) for batch in get_output("binidx").read(many, "train"))


@pytest.mark.parametrize(
    ("name", "at", "value", "reason"),
    [
        ("train.idx", 9, 2, "header"),
        ("train.idx", 17, 6, "header"),
        ("train.idx", 18, 3, "header"),
        ("train.idx", 34, 5, "offsets"),
        ("train.idx", 42, 2, "offsets"),
        ("train.idx", 58, 1, "borders"),
        ("train.idx", 74, 9, "borders"),
        ("train.mask.idx", 17, 8, "mask"),
        ("train.sources.jsonl", 0, ord("7"), "sources"),
    ],
)
def test_an_index_that_contradicts_itself_is_refused(
    name: str, at: int, value: int, reason: str, tmp_path: Path
) -> None:
    write("binidx", tmp_path, batches(TWO, 2))
    data = bytearray((tmp_path / name).read_bytes())
    data[at] = value
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InvalidInput, match=reason):
        list(get_output("binidx").read(tmp_path, "train"))


def test_a_mask_of_other_sizes_and_sources_of_other_samples_are_refused(tmp_path: Path) -> None:
    write("binidx", tmp_path, batches(TWO, 2))
    write("binidx", tmp_path, batches(TWO[::-1], 2), stem="other")
    good = (tmp_path / "train.mask.idx").read_bytes()
    (tmp_path / "train.mask.idx").write_bytes((tmp_path / "other.mask.idx").read_bytes())
    with pytest.raises(InvalidInput, match="sizes are not those"):
        list(get_output("binidx").read(tmp_path, "train"))
    (tmp_path / "train.mask.idx").write_bytes(good)
    with (tmp_path / "train.sources.jsonl").open("ab") as file:
        file.write(b'"a.jsonl:3"\n')
    with pytest.raises(InvalidInput, match="more lines"):
        list(get_output("binidx").read(tmp_path, "train"))


@pytest.mark.deep
def test_the_index_takes_little_memory_however_many_documents_there_are(tmp_path: Path) -> None:
    """At most 24 bytes a document are allowed; sizes wait on the disk, so it is far less."""
    program = (
        "import sys, resource\n"
        "import numpy as np\n"
        "from pathlib import Path\n"
        "from turnscript.datasets.output import Batch, OutputFacts\n"
        "from turnscript.datasets.output_registry import get_output\n"
        "writer = get_output('binidx').open(Path(sys.argv[1]), 'train', OutputFacts(10, 0))\n"
        "n = 10_000\n"
        "ones = np.ones(n, dtype=np.int64)\n"
        "batch = Batch(ones.astype(np.uint32), ones.astype(np.uint8), ones, ones - 1, ones, ['a:1'] * n)\n"
        "def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024\n"
        "for _ in range(20): writer.write(batch)\n"
        "before = most()\n"
        "for _ in range(180): writer.write(batch)\n"
        "writer.close()\n"
        "print((most() - before) / 1_800_000)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 24
    assert 2_000_000 == len(MappedReader(tmp_path / "train").sizes)
