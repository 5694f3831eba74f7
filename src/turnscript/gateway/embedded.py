"""Owns running a model inside this process: llama.cpp's own server, from a GGUF file, on a free port."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any, Self

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.gateway import loadclock

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
