"""Owns the clients of the official SDKs for a server on this machine: they ask once, and read no certificates."""

from __future__ import annotations

import ssl
from typing import Any

import anthropic
import openai

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Made once: the certificates of the world take longer to read than most tests."""

_ONCE: dict[str, Any] = {"api_key": "k", "max_retries": 0, "timeout": 20}


def openai_sdk(url: str, **more: Any) -> openai.OpenAI:
    """A client of OpenAI's SDK. `url`: the server's, without a path; `more`: what its class takes."""
    web = openai.DefaultHttpxClient(verify=NO_TLS)
    return openai.OpenAI(base_url=f"{url}/v1", http_client=web, **_ONCE | more)


def async_openai_sdk(url: str, **more: Any) -> openai.AsyncOpenAI:
    """The same, for an event loop."""
    web = openai.DefaultAsyncHttpxClient(verify=NO_TLS)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", http_client=web, **_ONCE | more)


def anthropic_sdk(url: str, **more: Any) -> anthropic.Anthropic:
    """A client of Anthropic's SDK. `url`: the server's, without a path; `more`: what its class takes."""
    web = anthropic.DefaultHttpxClient(verify=NO_TLS)
    return anthropic.Anthropic(base_url=url, http_client=web, **_ONCE | more)


def async_anthropic_sdk(url: str, **more: Any) -> anthropic.AsyncAnthropic:
    """The same, for an event loop."""
    web = anthropic.DefaultAsyncHttpxClient(verify=NO_TLS)
    return anthropic.AsyncAnthropic(base_url=url, http_client=web, **_ONCE | more)
