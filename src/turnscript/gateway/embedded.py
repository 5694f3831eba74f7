"""Owns running a model inside this process: llama.cpp's own server, from a GGUF file, on a free port.

How long a context the model gets, and for how many conversations, is what fits. What a token takes is estimated from
the header of the file: a key and a value for each head of each layer that looks back at earlier tokens. A recurrent
model looks back at none, so its context costs nothing. What is estimated is never less than what llama.cpp takes, but
for models whose layers differ in ways that no key of the header tells.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Self

from msgspec import Struct

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.detection.gguf import read_values
from turnscript.gateway import loadclock

DEFAULT = 4096
"""Tokens, for a file that does not tell."""
LEAST = 2048
"""Tokens that are tried even where memory is short: with less, no tool fits."""
SLOTS = 2
_STEP = 256
_PRECISION = 2
"""Bytes of a number in the memory of a layer."""
_SHARE = 0.75
_APART = 512 * 1024 * 1024
"""Bytes for what llama.cpp needs beside weights and conversations, and for the gateway."""
_ARCHITECTURE = "general.architecture"
_KEYS = (
    "context_length",
    "block_count",
    "embedding_length",
    "full_attention_interval",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
)
_PART = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$)")
_MEMINFO = Path("/proc/meminfo")
_LIMITS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
"""What a container may have, and what it has, in both versions of the kernel's control groups."""


class Shape(Struct, frozen=True):
    """What a file says. `context`: tokens that the model was made for; `per_token`: bytes that each takes."""

    context: int | None = None
    per_token: int = 0


class Plan(Struct, frozen=True):
    """What a model gets. `context`: tokens for each of `slots` conversations; `memory`: bytes for all of them; `size`:
    bytes of the file; `why`: what decided on the context, for people; `cut`: more was asked for than the model has."""

    context: int
    slots: int
    memory: int
    size: int
    why: str
    cut: bool = False


def planned(path: Path, *, context: int | None, slots: int | None, free: int | None) -> Plan:
    """Return what a model gets where so much was asked for, None being as much as it has and `free` bytes allow.

    `free` is None where nobody knows. A second conversation is let in only where it makes neither shorter.
    """
    shape, size = read_shape(path), _size(path)
    most = shape.context or context or DEFAULT
    room = _room(shape, size, free)
    wanted = min(context or most, most)
    if slots is None:
        slots = SLOTS if room is None or SLOTS * wanted <= room else 1
    given = wanted
    if context is None and room is not None:
        given = min(wanted, max(room // slots // _STEP * _STEP, LEAST))
    if context is not None:
        why = "as asked for" if wanted == context else f"the model has no more, though {context} were asked for"
    elif given < wanted:
        why = f"what fits into memory; the model has {most}"
    else:
        why = "all that the model has" if shape.context is not None else "its file does not tell more"
    cut = context is not None and wanted < context
    return Plan(given, slots, given * slots * shape.per_token, size, why, cut)


def read_shape(path: Path) -> Shape:
    """Return what the header of a model says; nothing for a file that llama.cpp will refuse."""
    try:
        with path.open("rb") as file:
            values = read_values(file, lambda key: key == _ARCHITECTURE or key.endswith(_KEYS))
    except (InvalidInput, OSError):
        return Shape()
    own = f"{values.get(_ARCHITECTURE)}."
    said = {key.removeprefix(own): value for key, value in values.items() if key.startswith(own)}
    return Shape(_number(said.get("context_length")) or None, _per_token(said))


def free_memory() -> int | None:
    """Return how many bytes this process may still take, as far as the system tells."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="ascii").splitlines())
        found.append(int(lines.get("MemAvailable", "").split()[0]) * 1024)
    for limit, taken in _LIMITS:
        with suppress(OSError, ValueError):  # without a limit the file says "max", or is not there
            found.append(max(0, int(limit.read_text(encoding="ascii")) - int(taken.read_text(encoding="ascii"))))
    if not found and hasattr(os, "sysconf"):
        with suppress(OSError, ValueError):
            found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return min(found, default=None)


def in_bytes(size: int) -> str:
    """Return a size for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _room(shape: Shape, size: int, free: int | None) -> int | None:
    """Return how many tokens fit; None for as many as one likes."""
    if free is None or not shape.per_token:
        return None
    return max(0, int((free - size - _APART) * _SHARE)) // shape.per_token


def _per_token(said: Mapping[str, Any]) -> int:
    """Bytes that a token takes in all layers."""
    layers, heads = _number(said.get("block_count")), said.get("attention.head_count")
    looking = said.get("attention.head_count_kv", heads)
    each = looking if isinstance(looking, Sequence) else [looking] * layers
    first = max(map(_number, heads), default=0) if isinstance(heads, Sequence) else _number(heads)
    width = _number(said.get("embedding_length")) // first if first else 0
    key = _number(said.get("attention.key_length")) or width
    value = _number(said.get("attention.value_length")) or width
    every = _number(said.get("full_attention_interval")) or 1  # the layers between are recurrent
    return sum(map(_number, each)) * (key + value) * _PRECISION // every


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def _size(path: Path) -> int:
    """Bytes of a model, with the other files of one that is split."""
    parts = path.parent.glob(_PART.sub("-*-of-*", path.name)) if _PART.search(path.name) else [path]
    with suppress(OSError):
        return sum(part.stat().st_size for part in parts)
    return 0


_MODULE = "xllamacpp"
_MAGIC = b"GGUF"
_SMALL = 64_000_000
"""Bytes. The work on one token of a model as small as this is not worth sharing between cores."""
_CHECKPOINTS = 4
"""Earlier states of a conversation that a slot holds; each makes its file larger by as much as the state itself."""
_PING = 1  # seconds between signs of life in a stream; the server takes as long to notice that it is to stop


class Embedded:
    """A GGUF file as a model server. It starts at once, and is stopped by `close` or at the end of its context.

    `context`: tokens for each conversation, `parallel`: how many there are at a time, `threads`: of the processor; if
    None, as many as it has cores, and one for a small model. `key`: what it wants to be asked with, because every user
    of this machine can reach its port. `keeps`: whether it may write what a slot holds to a file, in a folder that goes
    with it. Raises Unsupported if the library is not installed, InvalidInput for a file that is no model.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        context: int = 4096,
        parallel: int = 2,
        threads: int | None = None,
        key: str | None = None,
        keeps: bool = False,
    ) -> None:
        self.path = Path(path)
        self.context = context
        self._folder: TemporaryDirectory[str] | None = None
        library = _library()
        _check(self.path)
        params = library.CommonParams()
        params.model.path = str(self.path)
        params.port = 0
        params.api_keys = [key] if key is not None else []
        params.n_ctx = context * parallel  # the server divides it
        params.n_parallel = parallel
        params.cpuparams.n_threads = threads or self._threads()
        params.cache_ram_mib = 0  # it puts a kept state into a slot for who waits for it, under the answer made there
        if keeps:
            self._folder = TemporaryDirectory(prefix="turnscript-")
            params.n_ctx_checkpoints = _CHECKPOINTS
            params.slot_save_path = os.path.join(self._folder.name, "")  # the server puts names right behind it
        params.warmup = False
        params.sse_ping_interval = _PING
        params.verbosity = -1
        try:
            self._server: Any = library.Server(params)
        except (RuntimeError, ValueError, OSError) as error:
            self.close()
            message = (
                f"llama.cpp cannot load {self.path} with {parallel} times {context} tokens ({error}): the file is cut "
                "off, of a kind that this llama.cpp does not know, or needs more memory than there is"
            )
            raise InvalidInput(message, expected="a model in GGUF") from None
        self.url: str = self._server.listening_address

    @property
    def folder(self) -> Path | None:
        """Where it writes what its slots hold."""
        return Path(self._folder.name) if self._folder is not None else None

    def _threads(self) -> int:
        return 1 if self.path.stat().st_size < _SMALL else os.cpu_count() or 1

    def close(self) -> None:
        """Stop the server; its connections break. While an answer goes on, this takes up to two seconds.

        Calling it again does nothing.
        """
        self._server = None
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def clock(path: Path, total: int) -> Iterator[None]:
    """Inside, a line on the terminal tells how much of `total` bytes is loaded; nothing where there is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield
        return
    name = "".join(one if one.isprintable() else "?" for one in path.name)
    command = [sys.executable, str(loadclock.__file__), str(os.getpid()), str(total), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        try:
            yield
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def can_embed() -> bool:
    """Whether the library that this needs is installed."""
    return importlib.util.find_spec(_MODULE) is not None


def _library() -> ModuleType:
    try:
        return importlib.import_module(_MODULE)
    except ImportError as error:
        message = f"a model inside this process needs {_MODULE} ({error}): pip install 'turnscript[embedded]'"
        raise Unsupported("an embedded model", "this installation", message) from None


def _check(path: Path) -> None:
    """Refuse what llama.cpp would refuse in words that only its log has."""
    try:
        with path.open("rb") as file:
            start = file.read(4)
    except OSError as error:
        raise InvalidInput(f"cannot read the model {path}: {error.strerror}", expected="a GGUF file") from None
    if start != _MAGIC:
        what = f"it begins with {start!r}" if start else "it is empty"
        raise InvalidInput(f"{path} is no GGUF file: {what}", expected="a GGUF file", got=repr(start))
