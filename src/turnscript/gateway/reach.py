"""Owns who can reach the server: whether an address is this machine's own, and the rules that follow from it."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from turnscript.errors import Forbidden
from turnscript.gateway.config import Config
from turnscript.gateway.invalidconfig import InvalidConfig

_LOCAL = "localhost"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    name = host.strip().strip("[]").rstrip(".").lower()
    if name == _LOCAL or name.endswith(f".{_LOCAL}"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def check_page(origin: str) -> None:
    """No page of another host may ask where no key is needed. A browser on this machine reaches what listens here
    alone, and runs the scripts of any page; it tells whose they are in `Origin`, which programs do not send.

    Raises Forbidden.
    """
    if _is_foreign(origin):
        raise Forbidden(
            f"a web page of {origin} asks, and without keys only those of this machine may; set keys to a file made "
            "with `turnscript keys add`, or set public = true if that is meant"
        )


def _is_foreign(origin: str) -> bool:
    """Whether a page is of another host, or hides its own (`null`). Extensions and desktop programs are neither."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return True
    return origin == "null" or (parts.scheme in ("http", "https") and not is_loopback(parts.hostname or ""))


def check_reach(config: Config) -> None:
    """Others may only reach the server if they need keys, or if it was said that they need none.

    Raises InvalidConfig.
    """
    server = config.server
    if server.keys is None and not server.public and not is_loopback(server.host):
        message = (
            f"listening on {server.host} lets everybody who reaches this machine use the models and read what is kept; "
            "set keys to a file made with `turnscript keys add`, or set public = true if that is meant"
        )
        source = config.origins.get("server.host", "")
        raise InvalidConfig(message, path="server.host", source=source, expected="127.0.0.1")
