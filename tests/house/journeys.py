"""Owns journeys: which files of the package one trip through it enters, the second time that it is made.

`python -m tests.house.journeys` prints the files of each trip as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any
from urllib.request import Request, urlopen

_PACKAGE = str(Path(__file__).parents[2] / "src" / "turnscript") + "/"
_TOOL = {
    "name": "w",
    "description": "d",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
_CALL = {"type": "tool_use", "id": "t1", "name": "w", "input": {"city": "Paris"}}
_BODY = {
    "model": "m",
    "max_tokens": 50,
    "system": "Be brief.",
    "tools": [_TOOL],
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "Let me see."}, _CALL]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "22"}]},
    ],
}
_ANSWER = ["Hello", " wor", "ld\n<<ASSIST", 'ANT_END>>\n\n<<TOOL_CALL name="w"', ' id="t2">>\n{"ci', 'ty": "Par']
_ANSWER += ['is"}\n<<END_TOOL_CALL>>']


class _Tracer:
    """Notes the files of the package whose functions are called, in every thread, while it is on."""

    def __init__(self) -> None:
        self.on = False
        self.files: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if self.on and event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            self.files.add(frame.f_code.co_filename[len(_PACKAGE) :])

    def of(self, trip: Callable[[], object]) -> list[str]:
        """Return the files that a trip enters, once it has been made before."""
        trip()
        self.files.clear()
        self.on = True
        try:
            trip()
        finally:
            self.on = False
        return sorted(self.files)


def _library() -> dict[str, Callable[[], object]]:
    import turnscript as ts  # noqa: PLC0415  (behind the tracer, as all that is measured)

    body = json.dumps(_BODY).encode()
    request, format_ = ts.parse(body, "anthropic-messages"), ts.get_format("rwkv-universal")
    prompt = format_.prompt(request)

    def parse() -> None:
        parser = prompt.parser()
        events = [event for piece in _ANSWER for event in parser.feed(piece)]
        items = ts.fold(events + parser.close()).items
        assert ["assistant", "tool_call"] == [item.kind for item in items]

    return {
        "convert": lambda: ts.convert(body, "anthropic-messages", "openai-chat").value,
        "archive": lambda: ts.convert(body, "anthropic-messages", "rwkv-universal").value,
        "prompt": lambda: format_.prompt(request).text,
        "parse": parse,
    }


def _command_line(folder: Path) -> Callable[[], object]:
    from turnscript.cli.main import main  # noqa: PLC0415

    source = folder / "in.json"
    source.write_text(json.dumps(_BODY))

    def run() -> None:
        sys.argv = ["turnscript", "convert", str(source), "--to", "openai-chat", "--quiet"]
        sys.argv += ["--output", str(folder / "out.json")]
        with suppress(SystemExit), redirect_stderr(StringIO()):
            main()
        (folder / "out.json").unlink()

    return run


class _Model(BaseHTTPRequestHandler):
    """A server of completions that always says the same."""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        self._say("application/json", b'{"object":"list","data":[{"id":"m","object":"model"}]}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        told = b""
        for text in ["It", " is", " sun", "ny.\n", "<<ASSISTANT_END>>", ""]:
            choice = {"index": 0, "text": text, "finish_reason": None if text else "stop"}
            told += b"data: %b\n\n" % json.dumps({"object": "text_completion", "choices": [choice]}).encode()
        self._say("text/event-stream", told + b"data: [DONE]\n\n")

    def _say(self, media: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", media)
        self.end_headers()
        self.wfile.write(data)


@contextmanager
def _gateway() -> Iterator[Callable[[], object]]:
    from tests.gateway.running import Running  # noqa: PLC0415
    from turnscript.gateway.config import Config  # noqa: PLC0415

    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = Config.for_backend(f"http://127.0.0.1:{server.server_port}/v1", "rwkv-universal", kind="completions")
    asked = iter(range(100))
    with Running(config) as running:

        def ask() -> None:
            question = [{"role": "user", "content": f"Weather? {next(asked)}"}]
            body = _BODY | {"stream": True, "messages": question}
            head = {"content-type": "application/json"}
            with urlopen(Request(f"{running.url}/v1/messages", json.dumps(body).encode(), head), timeout=30) as answer:
                assert b"message_stop" in answer.read()

        yield ask
    server.shutdown()


def main() -> None:
    """Print the files of each trip."""
    tracer = _Tracer()
    sys.setprofile(tracer)
    threading.setprofile(tracer)
    with tempfile.TemporaryDirectory() as folder:
        trips = _library() | {"command line": _command_line(Path(folder))}
        found = {name: tracer.of(trip) for name, trip in trips.items()}
        with _gateway() as ask:
            found["gateway"] = tracer.of(ask)
    sys.setprofile(None)
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
