"""Owns the clients that turnscript can start or set up: a TOML file each, beside this one, called as the client is."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

import msgspec

from turnscript.cli.agents.recipe import Client

_ENDING = ".toml"


@cache
def clients() -> tuple[Client, ...]:
    """Every client: programs first, then libraries, each by name."""
    recipes = [entry for entry in files(__name__).iterdir() if entry.name.endswith(_ENDING)]
    known = [read_client(entry.name.removesuffix(_ENDING), entry.read_text(encoding="utf-8")) for entry in recipes]
    return tuple(sorted(known, key=lambda client: (not client.command, client.name)))


def read_client(name: str, text: str) -> Client:
    """A recipe in TOML. Raises tomllib.TOMLDecodeError or msgspec.ValidationError."""
    return msgspec.convert({"name": name, **tomllib.loads(text)}, Client)
