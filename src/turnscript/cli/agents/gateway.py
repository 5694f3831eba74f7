"""Owns the address of a gateway and its key, as people give them, and what is known of its model."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

import click
from msgspec import Struct

DEFAULT_URL = "http://127.0.0.1:8400"


class Found(Struct, frozen=True):
    """What a gateway says of itself: the model to ask for, and how many tokens it takes, if that is known.

    A gateway takes any name for its default model, unless it was told not to.
    """

    model: str = "default"
    context: int | None = None


def base_url(text: str) -> str:
    """The address of a gateway without a slash or `/v1` at its end. Raises UsageError."""
    url = text.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
        fits = bool(fits) and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:  # a port or an address in brackets that is none
        fits = False
    if "@" in url:  # what stands before it may be a password, so it is not repeated
        raise click.UsageError("--url must not hold a name or password; give a key of the gateway's with --key")
    if not fits:
        raise click.UsageError(f"--url {text!r} is no address of a gateway; one looks like {DEFAULT_URL}")
    return url


def check_key(key: str) -> None:
    """Raises UsageError for what cannot be sent: something behind or in place of the key was copied with it."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise click.UsageError("--key holds a space, a line break or another sign that no key has; copy it once more")


def is_local(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def direct(env: Mapping[str, str], url: str) -> dict[str, str]:
    """Variables that keep a proxy out of the way to this machine itself; none where no proxy is set."""
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    if not is_local(url) or not any(name.lower() in proxies and value for name, value in env.items()):
        return {}
    without = [env.get("no_proxy") or env.get("NO_PROXY") or "", urlsplit(url).hostname or ""]
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, without)))
