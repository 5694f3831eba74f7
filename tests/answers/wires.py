"""Owns answers on the wire: the bytes that each API makes of one, and the server that sends them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler

import turnscript as ts
from tests.answers.answer import Answer, Fail, Gone, Idle
from tests.loopback import SSE, Loopback
from turnscript.apis.api import Api
from turnscript.core.errors import UpstreamError

APIS: dict[str, Api] = {
    "chat": ts.get_api("openai-chat"),
    "responses": ts.get_api("openai-responses"),
    "messages": ts.get_api("anthropic-messages"),
    "completions": ts.get_api("openai-completions"),
}
"""Those that clients in Python and in JavaScript judge here."""
ALL = APIS | {"gemini": ts.get_api("gemini")}
"""The same, and one that its own client judges through the gateway."""


def whole(wire: str, answer: Answer) -> tuple[int, bytes]:
    """Status and body of the answer in one piece."""
    api = ALL[wire]
    error = answer.error()
    if error is None:
        try:
            return 200, api.render_response(answer.response(), answer.asked.of(api.origin)).data
        except UpstreamError as failure:
            error = failure
    return api.render_error(error)


def stream(wire: str, answer: Answer) -> bytes:
    """The answer as a stream."""
    api = ALL[wire]
    renderer = api.stream_renderer(answer.asked.of(api.origin), ts.Reply(id=answer.response().id))
    out: list[bytes] = []
    for step in answer.steps():
        if isinstance(step, Gone):
            return b"".join(out)
        if isinstance(step, Idle):
            out += [renderer.start(), renderer.idle()]
        elif isinstance(step, Fail):
            out.append(renderer.fail(step.error))
        else:
            out.append(renderer.send([step]))
    return b"".join([*out, renderer.close()])


class Server(Loopback):
    """Sends a body in pieces that arrive as pieces: each is a chunk of its own, so nothing on the way joins them."""

    _broken = False

    def serve(self, body: bytes, size: int = 0, media: str = SSE, status: int = 200, *, broken: bool = False) -> None:
        """The answer from now on, in pieces of `size` bytes; 0: in one. `broken`: without the end of the body."""
        self._broken = broken
        step = size or max(1, len(body))
        self.answer([body[start : start + step] for start in range(0, len(body), step)], media, status)

    def reply(self, handler: BaseHTTPRequestHandler) -> None:
        """Take in a request and send the answer."""
        handler.rfile.read(int(handler.headers.get("content-length") or 0))
        handler.send_response(self._status)
        for name, value in self._headers.items():
            handler.send_header(name, value)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in self._pieces]
        handler.wfile.write(b"".join(pieces) + (b"" if self._broken else b"0\r\n\r\n"))
        handler.close_connection = handler.close_connection or self._broken


def awkward(data: bytes) -> int:
    """A size of pieces that cuts frames, lines and characters in the middle, and is not too slow for a long stream."""
    return max(7, len(data) // 800 | 1)
