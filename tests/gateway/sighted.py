"""Owns real llama.cpp servers whose models see or hear, and pictures and sounds for them."""

from __future__ import annotations

import base64
import io
import struct
import subprocess
import sys
import wave
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.gateway import tinygguf

CONTEXT, SLOTS = 2048, 2
SHOWN, PLAYED = 34, 776
"""Tokens of a picture and of a sound: their own, 4 and 750, and those of the words that llama.cpp puts around them."""
_SERVER = """
import sys
import xllamacpp

params = xllamacpp.CommonParams()
params.model.path, params.mmproj.path = sys.argv[1:3]
params.port, params.n_ctx, params.n_parallel = 0, *map(int, sys.argv[3:])
params.cpuparams.n_threads, params.cache_ram_mib, params.warmup, params.verbosity = 1, 0, False, -1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def sighted(folder: Path, sense: Callable[[Path], Path] = tinygguf.write_projector) -> Iterator[str]:
    """The URL of a server with a transformer that sees, or has the `sense` that is written. It is a process of its own,
    because each has another mark for pictures."""
    files = tinygguf.write_llama(folder / "llama.gguf"), sense(folder / "mmproj.gguf")
    command = [sys.executable, "-c", _SERVER, *map(str, (*files, CONTEXT * SLOTS, SLOTS))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            assert url, "llama.cpp did not start"
            yield url
        finally:
            server.kill()


def picture(red: int, green: int, blue: int) -> str:
    """A PNG of one colour, in base64."""
    rows = (b"\0" + bytes((red, green, blue)) * 8) * 8
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(rows)),
        (b"IEND", b""),
    )
    told = [struct.pack(">I", len(data)) + name + data + _check(name + data) for name, data in chunks]
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(told)).decode()


def _check(data: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(data))


def sound(length: int) -> str:
    """A WAV of clicks that are so many samples apart, in base64."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((b"\0\x40" + b"\0\0" * (length - 1)) * (8000 // length))
    return base64.b64encode(made.getvalue()).decode()
