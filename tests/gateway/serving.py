"""Owns `turnscript serve` as a process of its own, before a model server that plays scripts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

import turnscript
from tests import forks
from tests.clocks import run_time
from tests.gateway.stage import FORMAT, NO_TLS

MAIN = "import sys; from turnscript.cli.main import main; sys.exit(main())"


class Serving:
    """`with Serving(folder, backend_url, server={...}) as process: process.url`. Its files are in `folder`.

    `prepare` is Python that the process runs first. `lines`: what it has written to stderr so far. `deaf`: nobody reads
    that any more once it listens.
    """

    def __init__(
        self, folder: Path, backend: str, *, prepare: str = "", deaf: bool = False, **sections: dict[str, Any]
    ) -> None:
        self.folder = folder
        self.backend = backend
        self.sections = sections
        self.lines: list[str] = []
        self.url = ""
        self._prepare = prepare
        self._deaf = deaf

    @property
    def config(self) -> Path:
        """Its configuration."""
        return self.folder / "turnscript.toml"

    def configure(self, **sections: dict[str, Any]) -> None:
        """Write the configuration. Values are as JSON has them, which is as TOML has them."""
        tables = {"logs": {"json": True}} | self.sections | sections
        lines = []
        for name, values in tables.items():
            lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in values.items())]
        model = {"backend": self.backend, "kind": "completions", "format": FORMAT}
        lines += ["[models.default]", *(f"{key} = {json.dumps(value)}" for key, value in model.items())]
        self.config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def __enter__(self) -> Self:
        if not self.config.exists():
            self.configure()
        source = str(Path(turnscript.__file__).parent.parent)
        env = os.environ | {"PYTHONPATH": source, "XDG_STATE_HOME": str(self.folder), "PYTHONWARNINGS": "error"}
        # What runs first may change what the server's modules take from others while they are loaded.
        start = subprocess.Popen if self._prepare else forks.Fork
        self.process = start(
            [sys.executable, "-c", f"{self._prepare}\n{MAIN}", "serve", "--config", str(self.config), "--port", "0"],
            env=env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(20), self.lines
        assert self.url, self.lines
        self.client = httpx2.Client(base_url=self.url, timeout=20, verify=NO_TLS)
        return self

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.url = found[1]
                self._ready.set()
                if self._deaf:
                    return
        self._ready.set()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def ended(self, seconds: float = 30.0) -> tuple[int, float]:
        """Wait for its end: the exit code, and how long that took."""
        began = run_time()
        code = self.process.wait(seconds)
        self._reader.join()
        return code, run_time() - began

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log's lines of one kind."""
        return [line for line in map(_read_line, list(self.lines)) if line.get("event") == name]

    @property
    def complaints(self) -> list[str]:
        """The log's lines that are warnings or worse, and what is no log at all."""
        told = [line for line in self.lines if not line.startswith("turnscript") and "listening on" not in line]
        return [line for line in told if _read_line(line).get("level") not in ("info", "debug")]


def _read_line(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
