"""Owns where shards run: in this process, in several of this machine, or one part of them on each of many machines.

Workers are processes of their own that import nothing of the caller's program: a script needs no `__main__` guard, and
the calling process may have threads. Each takes the next shard when it is done with one. When the caller ends, however
it ends, its workers do too.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from turnscript.core.errors import InvalidInput, TurnscriptError
from turnscript.datasets.shard import Done, run_shard_in

if TYPE_CHECKING:
    from turnscript.datasets.worker import Checks

Tell = Callable[[int, Done], None]
"""Called with the number of a shard and how far it is."""
Run = Callable[[Sequence[int], Tell], None]
"""Runs these shards of a folder. Raises what a shard raised, and WorkerDied."""


_GRACE = 5.0
"""Seconds that a worker has to tidy up."""
_MANY = 32
"""With so many shards for a worker, 128 MB at least, large pages save more time than they take at its start."""
_LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Tokenizers look things up all over what they have loaded, 260 MB with an RWKV vocabulary, and find them sooner so.

Linux with the GNU C library reads it at the start of a process; others do not know it.
https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
"""


class Executor(ABC):
    """Runs the shards of a folder that is prepared. `takes` says which of so many; `partial`: others do the rest."""

    partial = False

    @abstractmethod
    def run(self, out: str, numbers: Sequence[int], tell: Tell) -> None:
        """Run these shards. Raises what a shard raised, and WorkerDied."""

    def takes(self, count: int) -> list[int]:
        """Return the shards that are its own."""
        return list(range(count))

    def begun(self, out: str, tokenizer: str, most: int) -> AbstractContextManager[Run]:
        """Return what runs the shards of a folder, `most` of them at most, begun before the folder is prepared.

        Whoever has to load a tokenizer first, or anything else, can do so meanwhile. The default does nothing ahead.
        """
        return nullcontext(lambda numbers, tell: self.run(out, numbers, tell))


class WorkerDied(TurnscriptError):
    """A worker ended before its shard did. What is finished stays finished."""

    code = "worker_died"


class Inline(Executor):
    """One shard after the other, in this process."""

    def run(self, out: str, numbers: Sequence[int], tell: Tell) -> None:
        for number in numbers:
            run_shard_in(out, number, lambda done, number=number: tell(number, done))  # type: ignore[misc]


class Shard(Executor):
    """Part `i` of `n`, counted from 1: for arrays of jobs on machines that share a folder. Merge when all have run."""

    partial = True

    def __init__(self, i: int, n: int, inner: Executor | None = None) -> None:
        if not 1 <= i <= n:
            raise InvalidInput(f"there is no part {i} of {n}; give one from 1/{max(n, 1)} to {max(n, 1)}/{max(n, 1)}")
        self._i = i
        self._n = n
        self._inner = inner if inner is not None else Inline()

    def takes(self, count: int) -> list[int]:
        return list(range(self._i - 1, count, self._n))

    def run(self, out: str, numbers: Sequence[int], tell: Tell) -> None:
        self._inner.run(out, numbers, tell)

    def begun(self, out: str, tokenizer: str, most: int) -> AbstractContextManager[Run]:
        return self._inner.begun(out, tokenizer, -(-most // self._n))


class Processes(Executor):
    """Several processes of this machine; as many as there are processors if nobody says.

    `checks`: shards are checked and not made.
    """

    def __init__(self, count: int | None = None, checks: Checks | None = None) -> None:
        if count is not None and count < 1:
            raise InvalidInput(f"there cannot be {count} workers; give 1 or more", got=str(count))
        self.count = count if count is not None else processors()
        self._checks = checks

    def run(self, out: str, numbers: Sequence[int], tell: Tell) -> None:
        with self.begun(out, "", len(numbers)) as run:
            run(numbers, tell)

    @contextmanager
    def begun(self, out: str, tokenizer: str, most: int) -> Iterator[Run]:
        heard: queue.SimpleQueue[_Word] = queue.SimpleQueue()
        workers: list[_Worker] = []

        def run(numbers: Sequence[int], tell: Tell) -> None:
            wanted = min(self.count, len(numbers))
            while len(workers) > wanted:
                workers[-1].stop()
                workers.pop().end()
            while len(workers) < wanted:
                workers.append(self._worker(out, tokenizer, len(numbers), heard))
            _share_out(numbers, workers, heard, tell)

        try:
            while len(workers) < min(self.count, most):
                workers.append(self._worker(out, tokenizer, most, heard))
            yield run
        finally:
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.end()

    def _worker(self, out: str, tokenizer: str, shards: int, heard: queue.SimpleQueue[_Word]) -> _Worker:
        """Return one of those that make so many shards together."""
        given = [out, tokenizer, self._checks]
        return _Worker(given, heard, _LARGE_PAGES if shards >= _MANY * self.count else {})


def _share_out(numbers: Sequence[int], workers: Sequence[_Worker], heard: queue.SimpleQueue[_Word], tell: Tell) -> None:
    """Give each worker a shard, and the next one when it is done, until there are none."""
    waiting = list(reversed(numbers))
    for worker in workers:
        worker.take(waiting.pop())
    busy = len(workers)
    while busy:
        worker, word = _next(heard)
        if worker not in workers:
            continue  # it was begun for nothing, and has ended
        if word is None:
            raise worker.death()
        if "done" in word:
            tell(worker.shard, Done(*word["done"]))
        elif "error" in word:
            error: BaseException = pickle.loads(base64.b64decode(word["error"]))
            raise error
        elif waiting:
            worker.take(waiting.pop())
        else:
            busy -= 1


def _next(heard: queue.SimpleQueue[_Word]) -> _Word:
    """Return the next word. It wakes up now and then: not every system lets Ctrl-C end a wait."""
    while True:
        try:
            return heard.get(timeout=1)
        except queue.Empty:
            continue


class _Worker:
    """A process that makes or checks shards. What it says comes to the queue, None when it is gone.

    `given`: what `work` is given. `environment`: what it is given unless the caller's environment has that already.
    """

    def __init__(
        self, given: Sequence[object], heard: queue.SimpleQueue[_Word], environment: Mapping[str, str]
    ) -> None:
        # Libraries that start threads of their own would take the processors from the other workers.
        alone = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"}
        # Without -P, a json.py in the working folder, which may be that of a stranger's data set, would be run.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps({"path": sys.path, "work": given})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**alone, **environment, **os.environ},
            # Ctrl-C is for the caller, who ends its workers. The latter is Windows' way to say so.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self.shard = -1
        self._heard = heard
        self._again = "verify again" if given[-1] else "Finished shards are kept: build again"
        threading.Thread(target=self._listen, daemon=True).start()

    def take(self, number: int) -> None:
        """Begin a shard."""
        self.shard = number
        self._say(number)

    def stop(self) -> None:
        """Ask it to stop, and to remove what it has half written."""
        self._process.terminate()

    def end(self) -> None:
        """Wait until it has stopped, but not for long. What is not finished is made again."""
        try:
            self._process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            try:
                stream.close()
            except OSError:  # what was not said to it before it ended
                continue

    def death(self) -> WorkerDied:
        """Return why it is gone, for people."""
        code = self._process.wait()
        shard = self.shard + 1
        if code == -getattr(signal, "SIGKILL", 9):
            why = "it was killed, most likely because memory ran out; use fewer workers, or lower row_bytes"
        elif code < 0:
            why = f"it was ended by signal {-code}; what it was doing is made again if you build again"
        else:
            why = "its last words are above; if they show a defect of turnscript, please report it"
        return WorkerDied(f"the worker on shard {shard} died: {why}. {self._again}.")

    def _say(self, number: int) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"%d\n" % number)
            self._process.stdin.flush()
        except OSError:  # which one depends on the system
            return  # it is gone, and the thread that listens says so

    def _listen(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._heard.put((self, json.loads(line)))
        except ValueError:
            return  # it was closed while it listened
        self._heard.put((self, None))


_Word = tuple[_Worker, dict[str, Any] | None]

# The caller's search path, and nothing else of its program.
_PROGRAM = """
import json, sys
given = json.loads(sys.argv[1])
sys.path[:] = given["path"]
from turnscript.datasets.worker import work
work(*given["work"])
"""


def processors() -> int:
    """Return how many processors this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1
