"""Owns the headers that a model's requests carry for what stands before its server: from where they are, and what fits.

A proxy that guards a server wants a header of its own, or a name and password. Each value is a secret, wherever it came
from: it is sent to the servers of this model, and shown nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from turnscript.gateway.config import Model
from turnscript.gateway.kinds import UNFIT, Secret, fits_header
from turnscript.gateway.layers import Place

_AUTHORIZATION = "authorization"


class Reads(Protocol):
    """What is needed of the reader of the configuration."""

    def wrong(self, at: Place, message: str, value: Any = None, *, expected: str = "", quiet: bool = False) -> None:
        """Note an error at a place."""

    def secret_in_variable(self, at: Place, name: str) -> Secret | None:
        """The secret in an environment variable."""

    def secret_in_file(self, at: Place, path: Path, *, words: bool = False) -> Secret | None:
        """The secret that a file holds. `words`: it may have spaces in it."""


def read_headers(reader: Reads, at: Place, model: Model) -> dict[str, Secret]:
    """The headers of a model's requests, by name. What is wrong is noted."""
    found: dict[str, Secret] = {}
    known: dict[str, str] = {}
    for setting, name, secret in _given(reader, at, model):
        place, lower = (*at, setting, name), name.lower()
        if lower in known:
            reader.wrong(place, f"this header is given twice: {known[lower]} has it, too")
        elif lower == _AUTHORIZATION and model.key is not None:
            reader.wrong(place, "the key of the backend is sent in this header; give one of the two")
        elif secret is not None and not fits_header(secret.reveal(), words=True):
            reader.wrong(place, f"the value that this names {UNFIT}")
        known.setdefault(lower, setting)
        if secret is not None:
            found[name] = secret
    return found


def _given(reader: Reads, at: Place, model: Model) -> Iterator[tuple[str, str, Secret | None]]:
    """Each header: the setting that names it, its name and its value, None where that is nowhere to be found."""
    for name, secret in (model.headers or {}).items():
        yield "headers", name, secret
    for name, variable in (model.headers_env or {}).items():
        yield "headers_env", name, reader.secret_in_variable((*at, "headers_env", name), variable)
    for name, path in (model.headers_file or {}).items():
        yield "headers_file", name, reader.secret_in_file((*at, "headers_file", name), path, words=True)
