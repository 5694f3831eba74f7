"""Owns `launch` where no web server answers at the address: what does answer is shown, and cannot do anything."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from tests.cli.running import run


@contextmanager
def says(words: bytes) -> Iterator[str]:
    """The address of a program that says something to each who connects, and goes."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def play() -> None:
            with closing(server.accept()[0]) as client:
                client.recv(65536)
                client.sendall(words)

        player = threading.Thread(target=play, daemon=True)
        player.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        player.join(20)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (b"SSH-2.0-\x1b[31mOpenSSH\r\n", "SSH-2.0-\\x1b[31mOpenSSH"),
        (b"", "closed connection"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "IncompleteRead"),
    ],
    ids=["another program", "nothing", "half an answer"],
)
def test_what_is_no_web_server_is_no_gateway(words: bytes, shown: str) -> None:
    with says(words) as url:
        result = run("launch", "--url", url, "claude")
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"turnscript: error: {url}: no gateway answers: " in result.stderr
    assert shown in result.stderr
    assert "\x1b" not in result.stderr
    assert "start one: turnscript serve" in result.stderr
