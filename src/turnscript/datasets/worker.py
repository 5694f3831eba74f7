"""Owns the life of a worker process: numbers of shards come in on standard input, and words on them go out.

When its input ends, so does it, in the middle of a shard too: whoever started it is gone. Where it is asked to stop, it
removes what it has half written, which may be what fills the disk.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import IO, NoReturn, TypedDict

from turnscript.core.errors import TurnscriptError
from turnscript.datasets.form_registry import forms
from turnscript.datasets.preparation import load_prepared
from turnscript.datasets.shard import Done, run_shard_in
from turnscript.datasets.tokenizers import get_tokenizer


class Checks(TypedDict):
    """What to check of shards: every n-th row. `results`: where to leave it, and where the files are told apart."""

    results: str
    every: int


_INTERVAL = 0.2
"""So many seconds pass at least between two words on how far a shard is."""


def work(out: str, tokenizer: str = "", checks: Checks | None = None) -> None:
    """Make the shards that are asked for, one after the other, or check them where there are `checks`.

    `tokenizer`: the spec of theirs, if that is known.
    """
    signal.signal(signal.SIGTERM, _leave)
    # What a library prints would be taken for a word of ours.
    words = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    numbers: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(numbers,), daemon=True).start()
    telling = _Telling(words)
    if tokenizer:
        _load(tokenizer, checks)
    do: Callable[[int], object] | None = None
    while True:
        number = numbers.get()
        try:
            do = do or (_making(out, telling) if checks is None else _checking(out, checks, telling))
            do(number)
        except (TurnscriptError, OSError, MemoryError) as error:
            telling.say({"error": base64.b64encode(pickle.dumps(error)).decode("ascii")})
            return
        telling.finish()


def _making(out: str, telling: _Telling) -> Callable[[int], object]:
    return lambda number: run_shard_in(out, number, telling.tell)


def _checking(out: str, checks: Checks, telling: _Telling) -> Callable[[int], object]:
    from turnscript.datasets.shard_checks import FILES, ShardChecks, leave, left  # noqa: PLC0415

    found = ShardChecks(load_prepared(out), left(checks["results"], FILES), checks["every"])
    return lambda number: leave(checks["results"], number, found.check(number, telling.tell))


def _leave(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _load(tokenizer: str, checks: Checks | None) -> None:
    """Load what every shard needs while nobody has asked for one. What is wrong with it, who prepares them says."""
    forms()
    if checks is not None:  # a build checks nothing
        importlib.import_module("turnscript.datasets.shard_checks")
    with suppress(TurnscriptError, OSError):
        get_tokenizer(tokenizer).load()


class _Telling:
    """Tells how far shards are, now and then."""

    def __init__(self, words: IO[str]) -> None:
        self._words = words
        self._due = 0.0
        self._last = Done()

    def tell(self, done: Done) -> None:
        """Tell how much of the shard is done."""
        self._last = done
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _INTERVAL
            self.say({"done": done})

    def finish(self) -> None:
        """Tell that the shard is done."""
        self.say({"done": self._last})
        self._last = Done()
        self.say({"finished": True})

    def say(self, word: dict[str, object]) -> None:
        """Say a word to whoever started this worker."""
        self._words.write(json.dumps(word) + "\n")
        self._words.flush()


def _listen(numbers: queue.SimpleQueue[int]) -> None:
    # Unbuffered: the lock of a buffer that somebody waits for cannot be taken when the interpreter ends.
    with open(0, "rb", buffering=0, closefd=False) as source:
        for line in source:
            numbers.put(int(line))
    os._exit(0)
