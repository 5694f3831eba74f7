"""Owns the systems that are asked: one llama.cpp with the model, its own chat endpoint, and a gateway over it.

All of them use one engine with one slot, so that the weights are in memory once, and a prompt that begins as the one
before it, such as that of the same task through another API, is read only from where it differs.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Struct

import turnscript as ts
from tools.demo import DIRECT, Server
from turnscript.gateway.embedded import Embedded

PATIENCE = 900.0
"""Seconds that an answer may take: a small machine reads some ten tokens a second while it does other things, too."""
SHOWN = 4000
"""Characters of the end of a prompt that are kept."""
LLAMA = "llama.cpp"
APIS = {
    LLAMA: "openai-chat",
    "chat": "openai-chat",
    "responses": "openai-responses",
    "messages": "anthropic-messages",
}
"""The API of each system. The first is llama.cpp itself; through the others the gateway is asked."""
_SLOTS_SHOWN = "LLAMA_SERVER_SLOTS_DEBUG"
"""With this in the environment llama.cpp tells of each slot what it has read and written."""


class Answer(Struct, frozen=True):
    """What came of a question. `error`: why there is no answer. `prompt`: its end, as the model read it; `raw`: what
    the model wrote, before anybody read it; both empty where the engine does not tell."""

    seconds: float
    response: ts.Response | None = None
    error: str = ""
    prompt: str = ""
    raw: str = ""


class Systems:
    """The engine and the gateway. `threads`: of the engine; None for as many as there are cores. `served`: what the
    gateway says of the model when it starts."""

    def __init__(self, model: Path, *, format_: str | None, context: int, threads: int | None = None) -> None:
        os.environ[_SLOTS_SHOWN] = "1"
        self._engine = Embedded(model, context=context, parallel=1, threads=threads)
        options = ["--backend", self._engine.url, *(["--format", format_] if format_ else [])]
        try:
            self._gateway = Server(0, *options)
        except BaseException:  # Ctrl-C while it starts, too
            self._engine.close()
            raise
        lines = [line.strip().removeprefix("turnscript:").strip() for line in self._gateway.lines]
        self.served = [line for line in lines if line and "listening on" not in line and "BASE_URL" not in line]

    def ask(self, system: str, request: ts.Request) -> Answer:
        """Send a request as a client of the system's API would, and read the answer."""
        api = ts.get_api(APIS[system])
        url = self._engine.url if system == LLAMA else self._gateway.url
        began = time.monotonic()
        try:
            told = _post(url + api.endpoint, bytes(api.render_request(request).data), PATIENCE)
            response, error = api.parse_response(told), ""
        except urllib.error.HTTPError as refusal:
            with refusal:
                response, error = None, f"{refusal.code}: {refusal.read().decode(errors='replace')}"
        except (OSError, ts.TurnscriptError) as trouble:
            response, error = None, str(trouble) or type(trouble).__name__
        seconds = time.monotonic() - began
        slot = self._slot()
        return Answer(seconds, response, error, str(slot.get("prompt", ""))[-SHOWN:], str(slot.get("generated", "")))

    def _slot(self) -> dict[str, Any]:
        """Return what the engine tells of its slot."""
        try:
            with DIRECT.open(self._engine.url + "/slots", timeout=PATIENCE) as told:
                slots = json.loads(told.read())
        except (OSError, ValueError):
            return {}
        return slots[0] if isinstance(slots, list) and slots and isinstance(slots[0], dict) else {}

    def close(self) -> None:
        """Stop both."""
        self._gateway.close()
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _post(url: str, body: bytes, patience: float) -> bytes:
    asked = urllib.request.Request(url, body, {"content-type": "application/json"})
    with DIRECT.open(asked, timeout=patience) as answer:
        return bytes(answer.read())
