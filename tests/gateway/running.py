"""Owns a gateway that really runs: its server in a thread with an event loop of its own, on a port that was free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from turnscript.gateway.config import Config
from turnscript.gateway.server import Server, new_event_loop
from turnscript.gateway.service import Service

T = TypeVar("T")


class Running:
    """`with Running(config) as gateway: gateway.url`. `run` runs something in the loop of the server."""

    pause = 0.02
    """Seconds between two looks at its connections: no test waits for long to see one cut."""

    def __init__(self, config: Config) -> None:
        self.service = Service(replace(config, server=replace(config.server, port=0)))
        self._ready: Future[str] = Future()
        self._thread = threading.Thread(target=self._main, name="gateway", daemon=True)
        self.server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.url = ""

    def _main(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._serve())
            except BaseException as error:
                if not self._ready.done():
                    self._ready.set_exception(error)
                raise

    async def _serve(self) -> None:
        self.server = Server(self.service, on_ready=lambda _, url: self._ready.set_result(url))
        self.server.pause = self.pause
        await self.server.serve()

    def __enter__(self) -> Self:
        self._thread.start()
        self.url = self._ready.result(timeout=20)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.should_exit = True
        self._thread.join(timeout=60)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives that runs in the server's loop."""
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=30)
