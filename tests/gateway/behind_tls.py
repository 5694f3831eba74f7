"""Asks a model server over TLS, in a process whose `SSL_CERT_FILE` is `CERTIFICATE`; fails where an answer is wrong."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

from tests.clocks import run_time
from tests.gateway.scripted import HANG, Scripted, sse
from tests.gateway.upstreams import ANSWER, ASK, BACKEND, pieces_of, text, text_of
from turnscript.backends.backend import Completion
from turnscript.gateway.upstream import Upstream

CERTIFICATE = Path(__file__).with_name("localhost.pem")
"""For this machine, by itself, until 2126, with its key."""


def context() -> ssl.SSLContext:
    """What a server shows that has the certificate."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(CERTIFICATE)
    return made


async def main() -> None:
    begun = sse(text("one"), end=[HANG])
    async with Scripted(ANSWER, ANSWER, begun, tls=context()) as server, Upstream(server.url, BACKEND) as upstream:
        for ask in (ASK, Completion(prompt="word " * 1_000_000, max_tokens=1)):
            assert "one two" == text_of(await pieces_of(upstream, ask))
        async with upstream.open(ASK) as answer:
            await anext(answer)
        left = run_time()
        assert await server.until_gone() - left < 1


if __name__ == "__main__":
    asyncio.run(main())
