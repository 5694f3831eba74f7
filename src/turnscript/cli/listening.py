"""Owns listening on a port for a command that serves, and what to do where that cannot be."""

from __future__ import annotations

import os
import socket
from errno import EACCES, EADDRINUSE

from turnscript.cli.failures import Failed

_ELSEWHERE = {
    EADDRINUSE: "stop what listens there, or choose another port with --port",
    EACCES: "choose a port from 1024 on with --port; those below are not for everybody",
}
_HERE = "give an address of this machine with --host, such as 127.0.0.1"


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 is any that is free. Raises Failed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        number = error.errno or 0  # below 0 it is of the search for a name, and no error of the system
        reason = os.strerror(number).lower() if number > 0 else "this name is not known"
        raise Failed(f"cannot listen on {host}:{port}: {reason}", remedy=_ELSEWHERE.get(number, _HERE)) from None
