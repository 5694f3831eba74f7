"""The gateways that are measured: how each is started, and what its process has used, read from outside.

All of them are bound to one core; the model's server and the clients share the others.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import ROOT, PeerFailed

MODELS = ("quick", "slow", "paced", "open")
FORMAT = "rwkv-goose"
LITELLM = ROOT / ".venv-bench-litellm" / "bin" / "litellm"
"""An environment of its own: its proxy wants other versions of the same server than turnscript does."""
READY = 90.0

_CPU_OF_PROCESS = 2
"""`CPUCLOCK_SCHED`, in the number of the clock that counts the time of another process."""

_LITELLM = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
"""It starts without a key, and fetches nothing."""

Core = set[int]


def cores() -> tuple[Core, Core]:
    """The core of the gateways, and those of all others; the same one where there is no second."""
    able = sorted(os.sched_getaffinity(0))
    return {able[-1]}, set(able[:-1]) or {able[-1]}


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as sock:
        port: int = sock.getsockname()[1]
        return port


class Process:
    """A server in a process of its own."""

    def __init__(self, command: list[str], port: int, core: Core, log: Path, **environment: str) -> None:
        self.port = port
        self._log = log
        began = time.monotonic()
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=log.parent,
                env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", **environment},
                preexec_fn=lambda: os.sched_setaffinity(0, core),  # noqa: PLW1509  (there are no threads here)
            )
        self._wait()
        self.start = time.monotonic() - began
        self._clock = (~self._process.pid << 3) | _CPU_OF_PROCESS

    def _wait(self) -> None:
        until = time.monotonic() + READY
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise PeerFailed(f"it ended with status {self._process.returncode}: {self._said()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        self.close()
        raise PeerFailed(f"it did not listen after {READY:g} s: {self._said()}")

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-600:]

    @property
    def cpu(self) -> int:
        """Nanoseconds that all its threads have run, those that have ended too."""
        return time.clock_gettime_ns(self._clock)

    @property
    def memory(self) -> int:
        """Bytes of it that are in memory."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        raise PeerFailed("it is gone")

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Clients:
    """The process of the clients."""

    def __init__(self, core: Core) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gateway_load"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            preexec_fn=lambda: os.sched_setaffinity(0, core),  # noqa: PLW1509
        )

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise PeerFailed("the clients' process ended")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise PeerFailed(answer["failed"])
        return answer

    def close(self) -> None:
        self._process.communicate()


@contextmanager
def started(names: list[str]) -> Iterator[tuple[dict[str, Process | PeerFailed], Clients, int]]:
    """The peers that could be started, the clients, and the port of the model's server."""
    core, others = cores()
    servers: list[Process] = []
    found: dict[str, Process | PeerFailed] = {}
    with TemporaryDirectory() as folder:
        place = Path(folder)
        port = free_port()
        command = [sys.executable, "-m", "benchmarks.gateway_upstream", str(port)]
        servers.append(Process(command, port, others, place / "upstream.log"))
        clients = Clients(others)
        try:
            for name in names:
                try:
                    found[name] = STARTERS[name](place, port, core)
                    servers.append(found[name])
                except PeerFailed as error:
                    found[name] = error
            yield found, clients, port
        finally:
            clients.close()
            for server in servers:
                server.close()


def _floor(place: Path, upstream: int, core: Core) -> Process:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.gateway_floor", str(port), f"http://127.0.0.1:{upstream}"]
    return Process(command, port, core, place / "floor.log")


def _turnscript(place: Path, upstream: int, core: Core) -> Process:
    """As people start it: default settings, with what it keeps on disk."""
    port = free_port()
    lines = []
    for name in MODELS:
        lines += [
            f"[models.{name}]",
            f'backend = "http://127.0.0.1:{upstream}"',
            'kind = "completions"',
            f'format = "{FORMAT}"',
            f'upstream_model = "{name}"',
        ]
    config = place / "turnscript.toml"
    config.write_text("\n".join(lines) + "\n")
    executable = shutil.which("turnscript", path=str(Path(sys.executable).parent)) or "turnscript"
    command = [executable, "serve", "--config", str(config), "--port", str(port)]
    return Process(command, port, core, place / "turnscript.log", XDG_STATE_HOME=str(place / "state"))


def _litellm(place: Path, upstream: int, core: Core) -> Process:
    if not LITELLM.exists():
        raise PeerFailed(f"{LITELLM} is not there: make -C benchmarks setup")
    port = free_port()
    models = [
        {
            "model_name": name,
            "litellm_params": {
                "model": f"text-completion-openai/{name}",
                "api_base": f"http://127.0.0.1:{upstream}/v1",
                "api_key": "none",
            },
        }
        for name in MODELS
    ]
    config = place / "litellm.yaml"
    config.write_text(json.dumps({"model_list": models}))  # every JSON text is YAML
    command = [str(LITELLM), "--config", str(config), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    return Process(command, port, core, place / "litellm.log", PYTHONPATH="", **_LITELLM)


STARTERS = {"turnscript": _turnscript, "floor": _floor, "litellm": _litellm}
