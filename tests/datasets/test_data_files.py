"""Owns the checks of input files: which files inputs stand for, what holds their rows, and how they are cut."""

import bz2
import gzip
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnscript.core.errors import InvalidInput
from turnscript.datasets.files import (
    Compression,
    Container,
    Piece,
    compression_of,
    container_of,
    cut,
    expand,
    read,
    sample,
    sha256,
    survey,
)
from turnscript.datasets.problems import Code

ROW = b'{"messages": [{"role": "user", "content": "Hi"}]}'


def put(folder: Path, name: str, content: bytes = ROW + b"\n") -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return str(path)


def test_a_folder_stands_for_its_files_with_rows_in_an_order_of_names(tmp_path: Path) -> None:
    names = ["b.jsonl", "a.json", "deep/c.parquet", "deep/a.txt", "deeper/x/z.jsonl.gz", "t.traj", "u.NDJSON"]
    for name in names:
        put(tmp_path, name)
    for name in ["README.md", ".hidden.jsonl", "_SUCCESS", "_temporary/p.jsonl", ".git/x.json", "deep/data.csv"]:
        put(tmp_path, name)
    expected = sorted(names, key=lambda name: name.split("/"))
    listing = survey([str(tmp_path)])
    assert expected == [os.path.relpath(path, tmp_path) for path in listing.files]
    assert ["README.md", "deep/data.csv"] == sorted(os.path.relpath(path, tmp_path) for path in listing.left_out)


def test_what_tells_about_the_files_of_a_folder_is_no_row_unless_it_is_named(tmp_path: Path) -> None:
    put(tmp_path, "data/train-00000-of-00001.parquet")
    names = ("LICENSE.txt", "README.txt", "dataset_infos.json", "dataset_dict.json", "data/dataset_info.json")
    packed = ("LICENSE.txt.gz", "ReadMe.txt.zst", "requirements.txt.xz")
    about = [put(tmp_path, name) for name in (*names, *packed)]
    listing = survey([str(tmp_path)])
    assert ["train-00000-of-00001.parquet"] == [os.path.basename(path) for path in listing.files]
    assert sorted(about) == sorted(listing.left_out)
    assert [about[2]] == expand([about[2]])


def test_what_is_no_file_in_a_folder_is_told_and_not_waited_for(tmp_path: Path) -> None:
    rows = put(tmp_path, "rows.jsonl")
    (tmp_path / "sub").mkdir()
    for name, target in {"none.jsonl": "gone", "loop.jsonl": "loop.jsonl", "again": "sub", "same.jsonl": rows}.items():
        (tmp_path / name).symlink_to(target)
    os.mkfifo(tmp_path / "pipe.jsonl")
    listing = survey([str(tmp_path)])
    assert ["rows.jsonl", "same.jsonl"] == [os.path.basename(path) for path in listing.files]
    found = {os.path.basename(path): what for path, what in listing.odd.items()}
    assert "too many" in found.pop("loop.jsonl")
    told = {
        "none.jsonl": "a link that leads nowhere",
        "again": "a link to a folder",
        "pipe.jsonl": "a pipe or a device",
    }
    assert told == found


def test_a_folder_of_broken_links_says_so(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").symlink_to("gone")
    with pytest.raises(
        InvalidInput, match=r"it has '.*rows\.jsonl' \(a link that leads nowhere\); rows are looked for"
    ):
        survey([str(tmp_path)])


def test_inputs_keep_their_order_and_a_file_is_taken_once(tmp_path: Path) -> None:
    b, a = put(tmp_path, "b.jsonl"), put(tmp_path, "a.jsonl")
    assert [b, a] == expand([b, str(tmp_path), str(tmp_path / "*.jsonl"), b])
    assert [a, b] == expand([str(tmp_path / "*.jsonl")])


def test_names_stay_as_they_were_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "in/a.jsonl")
    monkeypatch.chdir(tmp_path)
    assert ["in/a.jsonl"] == expand(["in"]) == expand(["in/*"]) == expand(["in/a.jsonl"])


def test_a_pattern_takes_any_file_and_goes_into_folders(tmp_path: Path) -> None:
    one, two = put(tmp_path, "x/one.log"), put(tmp_path, "x/y/two.jsonl")
    assert [one, two] == expand([str(tmp_path / "x" / "*")])
    assert [two] == expand([str(tmp_path / "**" / "*.jsonl")])


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path: Path) -> None:
    odd = put(tmp_path, "rows[1].jsonl")
    put(tmp_path, "rows1.jsonl")
    assert [odd] == expand([odd])


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("missing.jsonl", "no such file or directory; check the path"),
        ("none*.jsonl", "no file matches this pattern"),
        ("empty", "there is no file with rows in it"),
        ("prose", "it has '"),
        ("texts", "name a file itself to have it read"),
        ("pipe", "write it to a file first"),
        ("a\x00b", "NUL byte"),
    ],
)
def test_an_input_without_files_says_why_and_what_to_do(tmp_path: Path, given: str, part: str) -> None:
    (tmp_path / "empty").mkdir()
    put(tmp_path, "prose/notes.md")
    put(tmp_path, "texts/notice.txt")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput) as caught:
        expand([f"{tmp_path}/{given}"])
    assert given in str(caught.value)
    assert part in str(caught.value)


def test_standard_input_and_no_input_are_refused_with_a_remedy() -> None:
    with pytest.raises(InvalidInput, match="write it to a file first"):
        expand(["-"])
    with pytest.raises(InvalidInput, match="no input was given"):
        expand([])


def test_a_circle_of_links_ends(tmp_path: Path) -> None:
    row = put(tmp_path, "in/a.jsonl")
    (tmp_path / "in" / "again").symlink_to(tmp_path / "in")
    assert [row] == expand([str(tmp_path / "in")])


PRETTY = json.dumps({"messages": [{"role": "user"}]}, indent=2).encode()
ARRAY = json.dumps([{"a": [1, 2]}, {"b": "]"}]).encode()


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", ROW + b"\n" + ROW, Container.LINES),
        ("a.jsonl", b"", Container.LINES),
        ("a.jsonl", b"garbage", Container.LINES),
        ("a.jsonl", b'[{"role": "user"}]\n[{"role": "user"}]\n', Container.LINES),
        ("a.jsonl", b'[{"role": "user"}]\n', Container.LINES),
        ("a.jsonl", b'{"broken": [1,\n' + ROW, Container.LINES),
        ("a.jsonl", b"{" + b" " * 200_000 + b"}\n" + ROW, Container.LINES),
        ("a.jsonl", b"[\n" + ROW + b",\n" + ROW + b"\n]", Container.ARRAY),
        ("a.jsonl", b'{\n"text"\n' + ROW, Container.LINES),
        ("a.jsonl", PRETTY, Container.OBJECT),
        ("a.jsonl", b'{\n"data": [\n{"a":1}]}', Container.MEMBER),
        ("a.json", ROW + b"\n\n" + ROW + b"\n", Container.LINES),
        ("a.json", b'{"broken": "\n' + ROW + b"\n", Container.LINES),
        ("a.json", b"[1]\n[2]", Container.LINES),
        ("a.json", b"  \n", Container.LINES),
        ("a.json", b'{"x": "' + b"y" * 2_000_000 + b'"}\n' + ROW, Container.LINES),
        ("a.json", ROW, Container.OBJECT),
        ("a.json", ROW + b"\n", Container.OBJECT),
        ("a.json", b'{"x": "' + b"y" * 2_000_000 + b'"}\n', Container.OBJECT),
        ("a.json", PRETTY, Container.OBJECT),
        ("a.json", b'"text"', Container.OBJECT),
        ("a.json", ROW + ROW, Container.OBJECT),
        ("a.json", ARRAY, Container.ARRAY),
        ("a.json", b"\xef\xbb\xbf \r\n" + ARRAY, Container.ARRAY),
        ("a.json", b"[\n" + PRETTY + b"\n]", Container.ARRAY),
        ("a.json", b'{"data": [\n{"a":1},\n{"a":2}\n]}', Container.MEMBER),
        ("a.json", b'{"object": "list", "data": [{"a":1}], "has_more": false}', Container.MEMBER),
        ("a.json", b'{"messages": [{"a":1}]}', Container.OBJECT),
        ("a.json", b'{"tools": [], "data": [{"a":1}]}', Container.OBJECT),
        ("a.traj", PRETTY, Container.OBJECT),
        ("noname", ARRAY, Container.ARRAY),
        ("a.log", ROW + b"\n" + ROW, Container.LINES),
        ("a.log", b"User: Hi\n", Container.TEXT),
        ("a.txt", b"User: Hi\n", Container.TEXT),
        ("a.txt", ROW, Container.TEXT),
        ("a.txt", ROW + b"\n" + ROW, Container.LINES),
        ("a.txt", b"", Container.TEXT),
    ],
)
def test_the_container_is_told_by_name_and_first_bytes(
    tmp_path: Path, name: str, content: bytes, expected: Container
) -> None:
    assert expected is container_of(put(tmp_path, name, content))
    assert expected is container_of(put(tmp_path, name + ".gz", gzip.compress(content, mtime=0)))


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.parquet", b"", "does not|do not begin"),
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        ("a.jsonl", b"PK\x03\x04", "unpack"),
        ("a.csv", b"a,b\n", "CSV"),
        ("a.jsonl", ROW.decode().encode("utf-16"), "this is UTF-16; convert it: iconv -f UTF-16 -t"),
        ("a.jsonl", b"\xfe\xff" + ROW.decode().encode("utf-16-be"), "iconv -f UTF-16 -t"),
        ("a.jsonl", ROW.decode().encode("utf-16-le"), "iconv -f UTF-16LE -t"),
        ("a.jsonl", ROW.decode().encode("utf-16-be"), "iconv -f UTF-16BE -t"),
        ("a.jsonl", ROW.decode().encode("utf-32"), "this is UTF-32; convert it: iconv -f UTF-32 -t"),
        ("a.jsonl", ROW.decode().encode("utf-32-le"), "iconv -f UTF-32LE -t"),
        ("a.jsonl", ROW.decode().encode("utf-32-be"), "iconv -f UTF-32BE -t"),
        ("a.jsonl", b"x" * 257 + b"ustar" + b"x" * 400, "tar archive"),
        ("a.parquet.gz", gzip.compress(b"PAR1...PAR1", mtime=0), "compressed Parquet"),
        ("a.json", b"SQLite format 3\x00", "database"),
    ],
)
def test_a_file_of_another_kind_is_refused_with_a_remedy(tmp_path: Path, name: str, content: bytes, part: str) -> None:
    path = put(tmp_path, name, content)
    with pytest.raises(InvalidInput, match=part) as caught:
        container_of(path)
    assert path in str(caught.value)
    assert ";" in str(caught.value)


@pytest.mark.parametrize("act", [container_of, sample, sha256, compression_of])
def test_a_missing_file_and_a_folder_are_errors_that_name_them(tmp_path: Path, act: object) -> None:
    assert callable(act)
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(InvalidInput, match="cannot read this") as caught:
            act(str(path))
        assert str(path) in str(caught.value)
    with pytest.raises(InvalidInput, match="cannot read this"):
        list(read(Piece(str(tmp_path / "none.jsonl"), Container.LINES)))


def test_compression_is_told_by_the_bytes_and_not_by_the_name(tmp_path: Path) -> None:
    assert Compression.GZIP is compression_of(put(tmp_path, "a.jsonl", gzip.compress(ROW, mtime=0)))
    assert Compression.NONE is compression_of(put(tmp_path, "a.jsonl.gz", ROW))
    assert Compression.BZIP2 is compression_of(put(tmp_path, "b.jsonl", bz2.compress(b"")))
    assert Compression.NONE is compression_of(put(tmp_path, "c.txt", b"BZh is how this text begins"))


def test_lines_are_cut_into_even_pieces_that_join_without_gaps(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", ROW * 100)
    size = len(ROW) * 100
    for target in (1, 7, 999, size, 10 * size):
        pieces = cut(path, whole=False, target=target)
        assert [0, *(piece.end for piece in pieces[:-1])] == [piece.start for piece in pieces]
        assert -1 == pieces[-1].end
        assert size == sum(piece.size for piece in pieces)
        assert pieces == cut(path, whole=False, target=target)
    assert 5 == len(cut(path, whole=False, target=size // 5))
    assert 1 == len(cut(put(tmp_path, "e.jsonl", b""), whole=False, target=10))


def test_what_is_compressed_or_one_row_stays_in_one_piece(tmp_path: Path) -> None:
    for name, content in [("a.jsonl.gz", gzip.compress(ROW, mtime=0)), ("a.txt", b"User: Hi"), ("a.json", PRETTY)]:
        assert 1 == len(cut(put(tmp_path, name, content), whole=False, target=1))
    assert [True] == [piece.whole for piece in cut(put(tmp_path, "a.jsonl", ROW * 50), whole=True, target=1)]


def test_a_whole_file_is_one_row_with_its_bytes_but_for_the_mark(tmp_path: Path) -> None:
    content = ROW + b"\r\n\n" + ROW
    path = put(tmp_path, "a.jsonl", b"\xef\xbb\xbf" + content)
    (piece,) = cut(path, whole=True, target=1)
    rows = read(piece)
    (row,) = rows
    assert (1, 3, content, None, 1) == (row.number, row.byte, row.data, row.problem, rows.numbers)
    (row,) = read(piece, limit=len(content) - 1)
    assert row.problem is not None
    assert (Code.ROW_SIZE, content) == (row.problem.code, row.data + content[len(row.data) :])
    assert row.problem.message.startswith("the whole file is one row here, and a row may have ")
    (piece,) = cut(put(tmp_path, "b.jsonl", b" \n\n"), whole=True, target=1)
    assert [] == list(read(piece))


def test_a_text_is_one_row_and_must_be_utf8(tmp_path: Path) -> None:
    (row,) = sample(put(tmp_path, "a.txt", "\ufeffUser: é\r\n\r\n".encode()))
    assert ("User: é\r\n\r\n".encode(), None) == (row.data, row.problem)
    (row,) = sample(put(tmp_path, "b.txt", b"User: \xe9\n"))
    assert row.problem is not None
    assert Code.UTF8 is row.problem.code
    assert "iconv" in row.problem.message
    assert [] == sample(put(tmp_path, "c.txt", b"\n"))


def test_a_sample_is_the_first_rows_and_small(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", (ROW + b"\n") * 300)
    assert list(range(1, 201)) == [row.number for row in sample(path)]
    assert 3 == len(sample(path, 3))
    assert [] == sample(path, 0)
    large = put(tmp_path, "b.jsonl", (b'"' + b"x" * (5 << 20) + b'"\n') * 8)
    assert 4 == len(sample(large))


def test_sha256_is_that_of_the_bytes_on_the_disk(tmp_path: Path) -> None:
    assert hashlib.sha256(ROW).hexdigest() == sha256(put(tmp_path, "a.jsonl", ROW))


def test_large_libraries_are_loaded_only_for_files_that_need_them(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['pyarrow'] = sys.modules['zstandard'] = None\n"
        "from turnscript.datasets.files import *\n"
        "from turnscript.core.errors import Unsupported\n"
        "print(len(sample(sys.argv[1])))\n"
        "for path in sys.argv[2:]:\n"
        "    try:\n"
        "        cut(path, whole=False, target=1)\n"
        "    except Unsupported as error:\n"
        "        print(error)\n"
        "assert 'numpy' not in sys.modules\n"
    )
    paths = [put(tmp_path, "a.jsonl"), put(tmp_path, "a.parquet", b"PAR1"), put(tmp_path, "z", b"\x28\xb5\x2f\xfd")]
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    count, parquet, zstd = done.stdout.splitlines()
    assert "1" == count
    assert "pip install 'turnscript[parquet]'" in parquet
    assert "pip install 'turnscript[data]'" in zstd
