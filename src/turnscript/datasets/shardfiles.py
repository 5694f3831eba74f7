"""Owns the files between shards and merge: what a shard leaves in the folder, and how it is known to be whole.

    shards/00007.ids        the ids of its samples behind one another, two or four bytes each
    shards/00007.weights    a byte for each id
    shards/00007.index      a record of fixed width for each sample (`INDEX`)
    shards/00007.rejects    the rows that were set aside, a line of JSON each
    shards/00007.chats      the conversations of its samples as JSON, behind one another, if an output holds them
    shards/00007.ends       where each of them ends, eight bytes a sample
    shards/00007.json       the record: what the others hold, and their hashes

The record is written last, so a shard without one is not there. Every file is written under another name, handed to the
disk and then renamed; a process may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

FOLDER = "shards"
STAGING = ".merging"
"""The folder where a merge writes."""
IDS, WEIGHTS, INDEX_FILE, REJECTS, CHATS, ENDS = "ids", "weights", "index", "rejects", "chats", "ends"
SUFFIXES = (IDS, WEIGHTS, INDEX_FILE, REJECTS)
"""The files that every shard has."""
CHAT_SUFFIXES = (CHATS, ENDS)
"""Those that it has besides if an output holds conversations."""
FIRST_UNLIKE = 5
"""So many rows that differ from what their template writes are named."""
END = np.dtype("<u8")
_WITHOUT, _WITH = set(SUFFIXES), {*SUFFIXES, *CHAT_SUFFIXES}
PART = ".part"
"""Files with this suffix are being written, or are left from a process that was killed."""
_UNFINISHED = re.compile(rf"\..+-[0-9a-f]{{12}}{re.escape(PART)}")
_OF_SHARD = re.compile(
    rf"\.?(\d{{5,}})\.(?:{'|'.join((*SUFFIXES, *CHAT_SUFFIXES))}|json)(?:-[0-9a-f]{{12}}{re.escape(PART)})?"
)

INDEX = np.dtype(
    [
        ("start", "<u8"),  # of its first token, in the shard
        ("tokens", "<u4"),
        ("trained", "<u4"),
        ("straddling", "<u4"),
        ("losses", "<u4"),
        ("piece", "<u4"),  # of the shard
        ("place", "<u4"),  # among the samples of its row
        ("number", "<u8"),  # of its row, in the piece
        ("digest", "<u8", (2,)),  # of its row
    ]
)

Index = NDArray[np.void]


class FileFacts(Struct, frozen=True):
    """A file as it was written."""

    size: int
    sha256: str


class PieceCounts(Struct):
    """What was found in a piece: rows, and how many lines (or other places) it has."""

    rows: int = 0
    places: int = 0
    rejected: int = 0


class Cuts(Struct):
    """What was done with samples that were too long, and how many tokens that cost."""

    dropped_turns: int = 0
    cut: int = 0
    split: int = 0
    tokens: int = 0

    def add(self, other: Cuts) -> None:
        """Count the other's too."""
        for field in self.__struct_fields__:
            setattr(self, field, getattr(self, field) + getattr(other, field))


class Unlike(Struct, frozen=True):
    """A row that is not as its chat template writes it, and how it differs. `number`: of the row, in the piece."""

    piece: int
    number: int
    what: str


class TemplateCounts(Struct):
    """Rows that were compared with what their chat template makes of them, and those that differ: the first ones."""

    rows: int = 0
    unlike: int = 0
    first: list[Unlike] = []

    def add(self, piece: int, number: int, what: str) -> None:
        """Count a row. `what`: how it differs, empty if it does not."""
        self.rows += 1
        if what:
            self.unlike += 1
            if len(self.first) < FIRST_UNLIKE:
                self.first.append(Unlike(piece, number, what))


class Record(Struct):
    """What a shard holds. `key`: a hash over everything that decides it."""

    key: str
    number: int
    width: int
    """Bytes of an id."""
    files: dict[str, FileFacts]
    pieces: list[PieceCounts]
    samples: int = 0
    tokens: int = 0
    rejected: dict[str, int] = {}
    losses: dict[str, int] = {}
    chat_losses: dict[str, int] = {}
    warnings: dict[str, int] = {}
    cuts: Cuts = msgspec.field(default_factory=Cuts)
    template: TemplateCounts = msgspec.field(default_factory=TemplateCounts)

    @property
    def rows(self) -> int:
        """Return all rows that were found."""
        return sum(piece.rows for piece in self.pieces)


class ShardWriter:
    """Writes the files of a shard. Used in a `with`: what is not `finish`ed is removed.

    `chats`: whether the conversations of its samples are told too, in the order of the samples.
    """

    def __init__(self, out: Path, number: int, width: int, *, chats: bool = False) -> None:
        self._stem = _stem(out, number)
        self._stem.parent.mkdir(parents=True, exist_ok=True)
        suffixes = (*SUFFIXES, *CHAT_SUFFIXES) if chats else SUFFIXES
        self._files = {suffix: Unfinished(_file(self._stem, suffix), hashed=True) for suffix in suffixes}
        self._told = 0
        self._ends: list[int] = []
        self._type = np.dtype(np.uint16 if width == 2 else np.uint32)
        self.tokens = 0
        self.samples = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.discard()

    def add(self, ids: list[NDArray[np.uint32]], weights: list[NDArray[np.uint8]], index: Index) -> None:
        """Add some samples; `start` of the index is filled in here."""
        if not ids:
            return
        lengths = index["tokens"].astype(np.uint64)
        index["start"] = np.cumsum(lengths) - lengths + np.uint64(self.tokens)
        self._files[IDS].write(np.concatenate(ids, dtype=self._type, casting="unsafe").data)
        self._files[WEIGHTS].write(np.concatenate(weights).data)
        self._files[INDEX_FILE].write(index.tobytes())
        if self._ends:
            self._files[ENDS].write(np.array(self._ends, dtype=END).data)
            self._ends.clear()
        self.samples += len(ids)
        self.tokens += int(lengths.sum())

    def tell(self, chat: bytes) -> None:
        """Keep the conversation, as JSON, of a sample that is added later; nothing if it holds none."""
        self._files[CHATS].write(chat)
        self._told += len(chat)
        self._ends.append(self._told)

    def reject(self, line: bytes) -> None:
        """Keep a row that was set aside."""
        self._files[REJECTS].write(line)

    def finish(self, record: Record) -> Record:
        """Take the final names, the record's last, once everything is written."""
        place = _file(self._stem, "json")
        if place.exists():  # an older record may not stand beside files that are not its own, not even for a moment
            place.unlink()
            sync_folder(place.parent)
        with ThreadPoolExecutor(len(self._files)) as pool:  # the disk takes a third of the time for all of them at once
            list(pool.map(Unfinished.sync, self._files.values()))
        for suffix, file in self._files.items():
            record.files[suffix] = file.publish()
        record.samples, record.tokens = self.samples, self.tokens
        sync_folder(place.parent)
        _write(place, msgspec.json.encode(record, order="deterministic"))
        return record


class Unfinished:
    """A file that has its final name only when it is published. `hashed`: whether its facts shall have the hash.

    It begins with what is first written of it. So it is never on the disk before somebody can discard it, although a
    worker is asked to stop at any moment.
    """

    def __init__(self, path: Path, *, hashed: bool = False) -> None:
        self._path = path
        self._unfinished = path.with_name(f".{path.name}-{secrets.token_hex(6)}{PART}")
        self._file: IO[bytes] | None = None
        self._hash = hashlib.sha256() if hashed else None
        self._size = 0
        self._published = False

    def write(self, data: bytes | memoryview) -> None:
        """Write some more."""
        (self._file or self._begun()).write(data)
        if self._hash is not None:
            self._hash.update(data)
        self._size += memoryview(data).nbytes

    def sync(self) -> None:
        """Hand it to the disk. Nothing can be written any more."""
        file = self._file or self._begun()
        if not file.closed:
            file.flush()
            os.fsync(file.fileno())
            file.close()

    def publish(self) -> FileFacts:
        """Hand it to the disk and give it its name."""
        self.sync()
        os.replace(self._unfinished, self._path)
        self._published = True
        return FileFacts(self._size, self._hash.hexdigest() if self._hash is not None else "")

    def discard(self) -> None:
        """Remove it, unless it was published."""
        if not self._published:
            with contextlib.suppress(OSError):
                if self._file is not None:
                    self._file.close()
            self._unfinished.unlink(missing_ok=True)

    def _begun(self) -> IO[bytes]:
        self._file = open(self._unfinished, "xb")  # noqa: SIM115  (closed by publish or discard)
        return self._file


def write_whole(path: Path, data: bytes) -> None:
    """Write a file that is there whole or not at all, and stays there if the power goes."""
    _write(path, data)
    sync_folder(path.parent)


def _write(path: Path, data: bytes) -> None:
    file = Unfinished(path)
    try:
        file.write(data)
        file.publish()
    finally:
        file.discard()


def sync_folder(folder: Path) -> None:
    """Make sure that the names in a folder are on the disk, where a folder can be asked for that."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def find_record(out: Path, number: int, key: str, *, chats: bool = False) -> Record | None:
    """Return the record of a shard, if it is finished, is of this key and its files are as large as it says.

    `chats`: it must hold conversations; whoever needs none can use one that does.
    """
    stem = _stem(out, number)
    try:
        record = msgspec.json.decode(_file(stem, "json").read_bytes(), type=Record)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if record.key != key or set(record.files) not in (_WITH, *(() if chats else (_WITHOUT,))):
        return None
    for suffix, facts in record.files.items():
        try:
            if _file(stem, suffix).stat().st_size != facts.size:
                return None
        except OSError:
            return None
    return record


def shard_file(out: Path, number: int, suffix: str) -> Path:
    """Return where a file of a shard is."""
    return _file(_stem(out, number), suffix)


def unfinished(folder: Path) -> Iterator[Path]:
    """Give the files that somebody began and did not finish."""
    if folder.is_dir():
        yield from sorted(path for path in folder.iterdir() if _UNFINISHED.fullmatch(path.name))


def remove_shards(out: Path, numbers: Container[int] | None = None) -> None:
    """Remove the files of these shards, or of all. Whatever else somebody put into the folder stays."""
    folder = out / FOLDER
    if not folder.is_dir():
        return
    for path in sorted(folder.iterdir()):
        made = _OF_SHARD.fullmatch(path.name)
        if made and (numbers is None or int(made[1]) in numbers):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something else is in it
        folder.rmdir()


def _stem(out: Path, number: int) -> Path:
    return out / FOLDER / f"{number:05}"


def _file(stem: Path, suffix: str) -> Path:
    return stem.with_name(f"{stem.name}.{suffix}")
