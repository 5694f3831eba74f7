"""Owns running a real agent against a real gateway: where agents are installed, and what they see of this machine."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.agents.scripts import Model
from tests.gateway.scripted import Scripted
from turnscript.gateway.config import Config
from turnscript.gateway.server import Server
from turnscript.gateway.service import Service

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".venv-agents"
"""Where `make agents` puts them: a virtual environment of Python, with a folder of node's modules in it."""
MODULES = INSTALLED / "node_modules"
PYTHON = INSTALLED / "bin" / "python"
PATIENCE = 90
_LAUNCH = "from turnscript.cli.main import main; main()"


@dataclass
class Ended:
    """A program that has ended."""

    code: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit code {self.code}\n--- stdout\n{self.out[-4000:]}\n--- stderr\n{self.err[-4000:]}"


def installed(package: str) -> str:
    """The version of a package that `make agents` has installed, or of its build for this machine; empty if none."""
    for manifest in (MODULES / package / "package.json", *MODULES.glob(f"@{package}/cli-*/package.json")):
        if manifest.is_file():
            return str(json.loads(manifest.read_text(encoding="utf-8"))["version"])
    folders = [str(path) for path in INSTALLED.glob("lib/python*/site-packages")]
    found = [one.version for one in distributions(name=package, path=folders)]
    return found[0] if found else ""


@dataclass
class Exchange:
    """A request that the gateway has answered, by what can be seen from outside."""

    method: str
    path: str
    status: int
    headers: dict[str, str]

    @property
    def streamed(self) -> bool:
        """Whether the answer was a stream."""
        return self.headers.get("content-type", "").startswith("text/event-stream")


@dataclass
class Gateway:
    """A running gateway: its address, and what it has answered."""

    url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    @property
    def answers(self) -> list[Exchange]:
        """The answers that a model wrote."""
        return [one for one in self.exchanges if one.method == "POST"]


def watched(app: Any, exchanges: list[Exchange]) -> Any:
    """An ASGI application that notes what another one answers."""

    async def asgi(scope: Any, receive: Any, send: Any) -> None:
        def note(status: int, headers: Any) -> None:
            named = {name.decode(): value.decode() for name, value in headers}
            exchanges.append(Exchange(scope["method"], scope["path"], status, named))

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                note(message["status"], message["headers"])
            await send(message)

        await app(scope, receive, sending)

    return asgi


@asynccontextmanager
async def gateway(model: Model, through: Sequence[str] = ()) -> AsyncIterator[Gateway]:
    """A gateway in front of a scripted model. `through`: kinds of chat API by which gateways before it ask that one."""
    running = Gateway()
    async with Scripted(model) as backend, AsyncExitStack() as stack:
        config = Config.for_backend(backend.url, model.format, kind="completions")
        for kind in through:
            config = Config.for_backend(await stack.enter_async_context(_served(config, [])), kind=kind)
        running.url = await stack.enter_async_context(_served(config, running.exchanges))
        yield running


@asynccontextmanager
async def _served(config: Config, exchanges: list[Exchange]) -> AsyncIterator[str]:
    """The address of a gateway, whose answers are noted."""
    server = Server(Service(replace(config, server=replace(config.server, port=0))))
    server.config.app = watched(server.config.app, exchanges)
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            assert not serving.done(), "the gateway has ended at once"
            await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{server.port}"
    finally:
        server.should_exit = True
        await serving


def environment(home: Path) -> dict[str, str]:
    """The variables of an agent: nothing of the machine's own settings, and no home but an empty one."""
    # The folder of this Python may have a node of its own, newer than the machine's.
    folders = [MODULES / ".bin", INSTALLED / "bin", Path(sys.executable).parent]
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src")}


async def launch(url: str, arguments: Sequence[str], home: Path, folder: Path) -> Ended:
    """Run `turnscript launch` in a folder until its client ends."""
    return await run([sys.executable, "-c", _LAUNCH, "launch", "--url", url, *arguments], environment(home), folder)


async def run(command: Sequence[str], env: Mapping[str, str], folder: Path) -> Ended:
    """Run a program until it ends; one that does not is killed, and has the exit code -9."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    reading = asyncio.create_task(process.communicate())
    try:
        await asyncio.wait({reading}, timeout=PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    out, err = await reading
    return Ended(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))
