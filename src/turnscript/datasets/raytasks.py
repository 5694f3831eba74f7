"""Owns running shards on a Ray cluster: a task for each, nothing but Ray's stable core.

The folder of the job and the inputs must be at the same path on every machine of the cluster, and turnscript must be
installed there.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Sequence

from turnscript.core.errors import InvalidInput, TurnscriptError, Unsupported
from turnscript.datasets.executors import Executor, Tell, WorkerDied
from turnscript.datasets.preparation import load_prepared
from turnscript.datasets.shard import Done, run_shard


class RayTasks(Executor):
    """Runs shards on the cluster at `address`, or the one that Ray finds; `local` starts one on this machine.

    If the program is connected to a cluster already, that one is used.
    """

    def __init__(self, address: str | None = None) -> None:
        self._address = address

    def run(self, out: str, numbers: Sequence[int], tell: Tell) -> None:
        try:
            import ray  # noqa: PLC0415  (an extra)
        except ImportError:
            message = "Ray is not installed; pip install 'turnscript[ray]', or use processes"
            raise Unsupported("shards on a cluster", "this installation", message) from None
        own = not ray.is_initialized()
        if own:
            ray.init(address=self._address, log_to_driver=False)
        task = ray.remote(_task)
        waiting = {task.remote(os.path.abspath(out), number): number for number in numbers}
        try:
            while waiting:
                for ready in ray.wait(list(waiting))[0]:
                    number = waiting.pop(ready)
                    tell(number, Done(*ray.get(ready)))
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, TurnscriptError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            message = f"a shard was lost by the cluster: {error}. Finished shards are kept: build again."
            raise WorkerDied(message) from None
        finally:
            for left in waiting:
                ray.cancel(left, force=True)
            if own:
                ray.shutdown()


def _task(out: str, number: int) -> tuple[int, int, int]:
    """Make one shard, on whatever machine."""
    if not os.path.isdir(out):
        message = f"there is no {out} on {platform.node()}: a cluster needs a folder that all its machines share"
        raise InvalidInput(message, got=out)
    prepared = load_prepared(out)
    last = Done()

    def tell(done: Done) -> None:
        nonlocal last
        last = done

    # Names in a plan count from where it was made.
    with contextlib.chdir(prepared.folder):
        run_shard(prepared, out, number, tell)
    return last.rows, last.bytes, last.rejects
