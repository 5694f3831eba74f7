"""Owns `make demo`: a model served, a tool called through each API, whole and streamed, and how to do it oneself."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec import Raw

import turnscript as ts
from turnscript.apis.api import Api

PORT = 8400
PATIENCE = 60.0
"""Seconds until the server must be ready."""
APIS = {"openai-chat": "Paris", "openai-responses": "Tokyo", "anthropic-messages": "Rome"}
"""Where the weather is asked for through each API."""
WEATHER = {
    "Paris": {"temperature": 17, "condition": "sunny"},
    "Tokyo": {"temperature": 23, "condition": "cloudy"},
    "Rome": {"temperature": 28, "condition": "windy"},
}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SERVER = "import sys; sys.argv[0] = 'turnscript'; from turnscript.cli.main import main; sys.exit(main())"
OURS = "TURNSCRIPT_"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Failed(Exception):
    """Something did not work; the text says what."""


class Server:
    """`turnscript serve` in an empty folder: without a word about a model, or as `options` say.

    `lines`: what it has said so far.
    """

    def __init__(self, port: int, *options: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="turnscript-demo-")
        env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        source = str(Path(ts.__file__).parents[1])
        began = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVER, "serve", "--port", str(port), *options],
            env=env | {"XDG_STATE_HOME": self._folder.name, "PYTHONPATH": source},
            cwd=self._folder.name,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []
        self.url = ""
        self.shows = False
        self._said = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._said.wait(PATIENCE)
        self.seconds = time.monotonic() - began
        if not self.url:
            self.close()
            raise Failed("the server did not start: " + "".join(self.lines).strip())

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            found = re.search(r"listening on (\S+)", line)
            if found:
                self.url = found[1]
            if self.url and "ANTHROPIC_BASE_URL=" in line:  # the last line of the banner
                self._said.set()
            if self.shows:
                print(line, end="", file=sys.stderr)
        self._said.set()

    def close(self) -> int:
        """Stop it. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()
        self._folder.cleanup()
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def asking(city: str) -> ts.Request:
    """The request: a question, and the tool that answers it."""
    tool = ts.Tool(
        name="get_weather", description="Get the current weather", parameters=Raw(json.dumps(SCHEMA).encode())
    )
    question = ts.User([ts.Text(f"What is the weather in {city}?")])
    return ts.Request(
        conversation=ts.Conversation([question], [tool]), settings=ts.Settings(model="tiny", max_tokens=200)
    )


def get_weather(city: str) -> str:
    """The tool."""
    return json.dumps(WEATHER.get(city, {"error": f"no weather for {city}"}))


def exchange(api: Api, url: str, request: ts.Request, *, stream: bool) -> ts.Response:
    """Send a request as a client of the API would, and read the answer."""
    request.settings.stream = stream or None
    body = bytes(api.render_request(request).data)
    asked = urllib.request.Request(url + api.endpoint, body, {"content-type": "application/json"})
    try:
        with DIRECT.open(asked, timeout=PATIENCE) as answer:
            if not stream:
                return api.parse_response(answer.read())
            parser = api.stream_parser()
            events = [event for line in answer for event in parser.feed(line)]
            return ts.fold(events + parser.close())
    except urllib.error.HTTPError as error:
        raise Failed(f"{error.code}: {error.read().decode()}") from None
    except (OSError, ts.TurnscriptError) as error:
        raise Failed(str(error)) from None


def converse(api: Api, url: str, city: str, *, stream: bool) -> str:
    """A question, the call of the tool, its result, and the answer. Returns them in a line. Raises Failed."""
    request = asking(city)
    answer = exchange(api, url, request, stream=stream)
    calls = [item for item in answer.items if isinstance(item, ts.ToolCall)]
    if [("get_weather", {"city": city})] != [(call.name, _arguments(call)) for call in calls]:
        raise Failed(f"a call of get_weather for {city} was expected, not {_told(answer)}")
    (call,) = calls
    result = get_weather(**_arguments(call))
    shown = ts.ToolResult([ts.Text(result)], id=call.id, name=call.name)
    request.conversation.items += [*answer.items, shown]
    final = _told(exchange(api, url, request, stream=stream))
    if not all(str(value) in final for value in WEATHER[city].values()):
        raise Failed(f"the answer should tell of {result}, not {final}")
    return f"{call.name}({call.arguments}) = {result}\n  {'':28}{final}"


def _arguments(call: ts.ToolCall) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return call.arguments


def _told(answer: ts.Response) -> str:
    """What an answer says and calls."""
    said = [part for item in answer.items if isinstance(item, ts.Assistant) for part in item.content]
    texts = [part.text for part in said if isinstance(part, ts.Text)]
    calls = [f"{item.name}({item.arguments})" for item in answer.items if isinstance(item, ts.ToolCall)]
    return " ".join([*texts, *calls])


def curl(api: Api, url: str, city: str) -> str:
    """The request as a command for a shell."""
    body = bytes(api.render_request(asking(city)).data).decode()
    assert "'" not in body
    return f"curl {url}{api.endpoint} -H 'content-type: application/json' -d '{body}'"


def show(server: Server) -> int:
    """Call the tool in every way, and print what came of it. Returns how often it failed."""
    url, failures = server.url, 0
    print(f"\nA tiny model is served at {url} (ready after {server.seconds:.1f} s). For clients:\n")
    print(f"  OPENAI_BASE_URL={url}/v1\n  ANTHROPIC_BASE_URL={url}\n\nIt calls a tool through each API:\n")
    for name, city in APIS.items():
        for stream in (False, True):
            way = f"{name} {'streamed' if stream else 'whole'}"
            try:
                print(f"  {way:28}{converse(ts.get_api(name), url, city, stream=stream)}")
            except Failed as failed:
                failures += 1
                print(f"  {way:28}FAILED: {failed}")
    print("\nAsk it yourself:\n")
    for name, city in APIS.items():
        print(f"  {curl(ts.get_api(name), url, city)}\n")
    print(f"{failures} of {2 * len(APIS)} calls failed." if failures else f"All {2 * len(APIS)} calls went well.")
    return failures


def free_port() -> int:
    """The port that `turnscript serve` takes by itself, if it is free; otherwise 0, for any that is."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", PORT))
        except OSError:
            return 0
    return PORT


def main() -> int:
    """Show the system at work. On a terminal, the server goes on until Ctrl-C."""
    parser = ArgumentParser(prog="python -m tools.demo", description=main.__doc__)
    parser.add_argument("--port", type=int, help=f"where to serve; {PORT} by default, or any that is free")
    parser.add_argument("--end", action="store_true", help="end after the calls, on a terminal too")
    given = parser.parse_args()
    try:
        with Server(free_port() if given.port is None else given.port) as server:
            failures = show(server)
            if not given.end and not failures and sys.stdin.isatty() and sys.stdout.isatty():
                print(f"Still serving at {server.url} until Ctrl-C.", flush=True)
                server.shows = True
                server.process.wait()
    except Failed as failed:
        print(f"demo: {failed}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
