"""Owns what is written: standard output, and files that appear whole or not at all.

A file is written beside its place under another name and renamed at the very end, all files of a command together. What
a command that was killed has left there is removed by the next one that writes into the folder. What is not a plain
file (a device, a pipe) is written directly.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, Protocol

from turnscript.cli.failures import Failed, writing

try:
    import fcntl
except ImportError:  # no such locks here; then what was left stays
    fcntl = None  # type: ignore[assignment]

STREAM = "-"
"""What stands for standard input or output on the command line."""


_STREAMS = re.compile(r"(?:/dev|/proc/self)/fd/(\d+)")
_NAMED = {"/dev/stdout": 1, "/dev/stderr": 2}
_LINKS = 40
"""How many links in a row Linux follows."""


class Sink(Protocol):
    """Where bytes go. Only Files makes and ends them."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person sees what is written."""

    def write(self, data: bytes) -> None:
        """Write all of `data`."""

    def flush(self) -> None:
        """Hand everything written so far to the system."""

    def finish(self) -> None:
        """Everything is written: make sure that the system has it."""

    def publish(self) -> None:
        """Every file of the command is finished: take the final name."""

    def discard(self) -> None:
        """The command failed: leave nothing behind."""


class Files:
    """The outputs of one command. They are published together when the `with` block ends well, else all discarded."""

    def __init__(self) -> None:
        self._sinks: list[Sink] = []
        self._standard: Standard | None = None

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                for sink in self._sinks:
                    sink.finish()
                while self._sinks:
                    self._sinks[0].publish()
                    del self._sinks[0]
        finally:
            for sink in self._sinks:
                sink.discard()

    def open(self, path: str) -> Sink:
        """The sink for a path of the command line; `-` is standard output, always the same one."""
        if path != STREAM:
            return self._add(Direct(path) if is_special(path) else Beside(path))
        if self._standard is None:
            self._standard = Standard()
            self._add(self._standard)
        return self._standard

    def after(self, sink: Sink) -> Sink:
        """A sink whose bytes are held back and go to `sink` at the end, on a new line."""
        return self._add(Held(sink), first=True)

    def _add(self, sink: Sink, first: bool = False) -> Sink:
        self._sinks.insert(0 if first else len(self._sinks), sink)
        return sink


class Standard:
    """Standard output."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise Failed("standard output is closed", remedy="open it, or send it to a file: > FILE")
        self._stream = sys.stdout.buffer
        self._guard = writing("standard output")
        self.is_terminal = sys.stdout.isatty()
        self._ends_line = True

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        with self._guard:
            while rest:  # unbuffered, a disk that gets full takes a part, and fails only when the rest is written
                rest = rest[self._stream.write(rest) :]
        if data:
            self._ends_line = data.endswith(b"\n")

    def new_line(self) -> None:
        """Begin a line, unless one is begun already."""
        if not self._ends_line:
            self.write(b"\n")

    def flush(self) -> None:
        with self._guard:
            self._stream.flush()

    def finish(self) -> None:
        if self.is_terminal:
            self.new_line()
        self.flush()

    def publish(self) -> None:
        pass

    def discard(self) -> None:
        pass


class Direct:
    """A device, a named pipe, or a stream that is open already: nothing to rename, nothing to remove."""

    def __init__(self, path: str) -> None:
        self._guard = writing(path)
        with self._guard:
            stream = descriptor(path)
            place = path if stream is None else os.dup(stream)
            self._file: IO[bytes] = open(place, "wb")  # noqa: SIM115  (closed by finish or discard)
        self.is_terminal = self._file.isatty()

    def write(self, data: bytes) -> None:
        with self._guard:
            self._file.write(data)

    def flush(self) -> None:
        with self._guard:
            self._file.flush()

    def finish(self) -> None:
        with self._guard:
            self._file.close()

    def publish(self) -> None:
        pass

    def discard(self) -> None:
        _close(self._file)


class Beside:
    """A plain file: written beside its place, then renamed. A link stays a link, and permissions stay."""

    is_terminal = False

    def __init__(self, path: str) -> None:
        self._guard = writing(path)
        self._place = os.path.realpath(path)
        if os.path.isdir(self._place) or not os.path.basename(path):
            raise Failed("cannot write this: it is not the name of a file", place=path, remedy="give a file")
        folder = os.path.dirname(self._place)
        with self._guard:
            self._temporary, self._file, self._held = _begun(folder)
            _clean(folder)
            if os.path.exists(self._place):
                os.chmod(self._temporary, stat.S_IMODE(os.stat(self._place).st_mode))

    def write(self, data: bytes) -> None:
        with self._guard:
            self._file.write(data)

    def flush(self) -> None:
        with self._guard:
            self._file.flush()

    def finish(self) -> None:
        with self._guard:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def publish(self) -> None:
        with self._guard:
            os.replace(self._temporary, self._place)
        self._let_go()

    def discard(self) -> None:
        _close(self._file)
        with _ignored():
            os.unlink(self._temporary)
        self._let_go()

    def _let_go(self) -> None:
        if self._held is not None:
            os.close(self._held)
            self._held = None


def _begun(folder: str) -> tuple[str, IO[bytes], int | None]:
    """Return the name of a new file in a folder, the file, and a descriptor that holds its lock until it has its final
    name: that says to others that somebody writes. None where there are no locks."""
    while True:
        path = os.path.join(folder, f"{_PART[0]}{secrets.token_hex(6)}{_PART[1]}")
        file = open(path, "xb")  # noqa: SIM115  (closed by finish or discard)
        held = None
        if fcntl is not None:
            held = os.dup(file.fileno())
            _lock(held)
        if os.path.exists(path):  # else another command took it for one that was left
            return path, file, held
        file.close()
        if held is not None:
            os.close(held)


def _clean(folder: str) -> None:
    """Remove what commands that were killed have left in a folder: files that nobody writes any more."""
    with _ignored():
        left = [one.path for one in os.scandir(folder) if one.is_file(follow_symlinks=False) and _is_part(one.name)]
        for path in left:
            with _ignored():
                held = os.open(path, os.O_RDWR)
                try:
                    if _lock(held):
                        os.unlink(path)
                finally:
                    os.close(held)


def _is_part(name: str) -> bool:
    return name.startswith(_PART[0]) and name.endswith(_PART[1])


def _lock(held: int) -> bool:
    """Lock a file. Returns whether that was possible: false where another command has it, or there are no locks."""
    locked = False
    if fcntl is not None:
        with _ignored():
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = True
    return locked


_PART = (".turnscript-", ".part")
"""The name of a file that is being written begins and ends so."""


class Held:
    """Bytes for another sink that wait until everything else is written. In memory while they are few."""

    is_terminal = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._guard = writing("a temporary file")
        self._file = tempfile.SpooledTemporaryFile(max_size=1 << 20)  # noqa: SIM115  (closed by finish or discard)

    def write(self, data: bytes) -> None:
        with self._guard:
            self._file.write(data)

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        if isinstance(self._sink, Standard) and self._file.tell():
            self._sink.new_line()
        self._file.seek(0)
        shutil.copyfileobj(self._file, self._sink)
        self._file.close()

    def publish(self) -> None:
        pass

    def discard(self) -> None:
        self._file.close()


def is_special(path: str) -> bool:
    """Whether `path` names something that is neither a plain file nor a folder, or a stream that is open."""
    return descriptor(path) is not None or _is_device(path)


def descriptor(path: str) -> int | None:
    """The number of the open stream that a path names, such as 1 for `/dev/stdout`; links to such a name count.

    Behind a redirection such a path leads to a plain file, but the shell has decided where in it to write.
    """
    for _ in range(_LINKS):
        if found := _STREAMS.fullmatch(os.path.abspath(path)):
            return int(found[1])
        if os.path.abspath(path) in _NAMED:
            return _NAMED[os.path.abspath(path)]
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _is_device(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _close(file: IO[bytes]) -> None:
    """Close a file that nobody will read: that its last bytes find no room does not matter any more."""
    with _ignored():
        file.close()


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except OSError:
        return
