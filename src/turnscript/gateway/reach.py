"""Owns who can reach the server: whether an address is this machine's own, and the rule that follows from it."""

from __future__ import annotations

import ipaddress

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
