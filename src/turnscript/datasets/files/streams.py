"""Owns the bytes of files: plain or compressed, in blocks of bounded size, and the hash over them."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import zlib
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, Protocol, cast

from turnscript.core.errors import Unsupported
from turnscript.datasets.files.troubles import reading

BLOCK = 1 << 18
"""So many bytes are read at once: enough to make the cost of a block vanish, and few enough to stay in the cache."""
_ZSTD_INPUT = 1 << 10
"""So many bytes are decompressed at once. It bounds the memory: four bytes may stand for 128 KiB."""
BOM = b"\xef\xbb\xbf"


class Compression(StrEnum):
    """How a file is compressed."""

    NONE = "none"
    GZIP = "gzip"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZSTD = "zstd"


class Broken(Exception):
    """The compressed bytes end too early or make no sense; what came before this was delivered."""


def _damaged(error: Exception) -> Broken:
    """Return the error of a damaged file. The checksum is at its end, so what came before may be other bytes."""
    return Broken(f"the compressed bytes are damaged ({error}), so rows before this one may be wrong too")


class Counter(Protocol):
    """Is told how many bytes of a file were read."""

    taken: int


class _Decoded(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def compression_by(head: bytes) -> Compression:
    """Return how a file is compressed, by its first bytes. Names of files lie too often."""
    if head.startswith(b"\x1f\x8b"):
        return Compression.GZIP
    if head.startswith(b"BZh") and head[4:10] in {b"1AY&SY", b"\x17rE8P\x90"}:
        return Compression.BZIP2
    if head.startswith(b"\xfd7zXZ\x00"):
        return Compression.XZ
    if head[1:4] == b"\xb5\x2f\xfd" and head[:1] == b"\x28":
        return Compression.ZSTD
    if head[1:4] == b"\x2a\x4d\x18" and 0x50 <= head[0] <= 0x5F:  # a frame that decoders skip, as pzstd begins with
        return Compression.ZSTD
    return Compression.NONE


def compression_of(path: str) -> Compression:
    """Return how a file is compressed."""
    with reading(path), open(path, "rb") as file:
        return compression_by(file.read(16))


def blocks(path: str, compression: Compression, start: int = 0, counter: Counter | None = None) -> Iterator[bytes]:
    """Give the bytes of a file, decompressed, from `start` (plain files only). Raises Broken where they break."""
    with reading(path), open(path, "rb", buffering=0) as file:
        file.seek(start)
        for block in _blocks(cast(IO[bytes], file), compression, path):
            if counter is not None:
                counter.taken = file.tell() - start
            yield block


def _blocks(file: IO[bytes], compression: Compression, path: str) -> Iterator[bytes]:
    if compression is Compression.NONE:
        while block := file.read(BLOCK):
            yield block
    elif compression is Compression.ZSTD:
        yield from _zstd(file, path)
    else:
        yield from _decoded(file, compression)


def _decoded(file: IO[bytes], compression: Compression) -> Iterator[bytes]:
    source: _Decoded
    if compression is Compression.GZIP:
        source = gzip.GzipFile(fileobj=file, mode="rb")
    elif compression is Compression.BZIP2:
        source = bz2.BZ2File(file)
    else:
        source = lzma.LZMAFile(file)  # noqa: SIM115  (it closes nothing: the file is not its own)
    while block := _step(source):
        yield block


def _step(source: _Decoded) -> bytes:
    """Return one block. `read1` and not `read`: an error then takes nothing with it that was decoded already."""
    try:
        return source.read1(BLOCK)
    except EOFError as error:
        raise Broken("the compressed bytes end in the middle") from error
    except (zlib.error, lzma.LZMAError) as error:
        raise _damaged(error) from error
    except OSError as error:
        if error.errno is not None:
            raise  # this is the disk, and not what is on it
        raise _damaged(error) from error


def _zstd(file: IO[bytes], path: str) -> Iterator[bytes]:
    """Give frames one behind another. The library's own stream takes a frame that is cut off for the end."""
    try:
        import zstandard  # noqa: PLC0415  (only some files need it)
    except ImportError as error:
        message = f"{path}: this is compressed with zstd; pip install 'turnscript[data]', or decompress it first"
        raise Unsupported("zstd", path, message) from error
    made = zstandard.ZstdDecompressor()
    frame, rest = None, b""
    gathered: list[bytes] = []
    size = 0
    while rest := rest or file.read(_ZSTD_INPUT):
        frame = frame or made.decompressobj()
        try:
            block = frame.decompress(rest)
        except zstandard.ZstdError as error:
            yield b"".join(gathered)
            raise _damaged(error) from error
        rest = frame.unused_data
        if frame.eof:
            frame = None
        gathered.append(block)
        size += len(block)
        if size >= BLOCK:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)
    if frame is not None:
        raise Broken("the compressed bytes end in the middle")


def sha256(path: str) -> str:
    """Return the SHA-256 of a file as it lies on the disk, in hexadecimal."""
    with reading(path), open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
