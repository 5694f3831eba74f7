"""Owns reading a model server's list of its models."""

from __future__ import annotations

import msgspec
from msgspec import Struct


class Meta(Struct):
    """What llama.cpp says of a model."""

    n_ctx: int | None = None


class Listed(Struct):
    """A model in the list, as far as anybody asks for it."""

    id: str | None = None
    max_model_len: int | None = None
    meta: Meta | None = None
    owned_by: str | None = None
    root: str | None = None


class _Models(Struct):
    data: list[Listed] = []


_read = msgspec.json.Decoder(_Models).decode


def read_models(body: bytes) -> list[Listed]:
    """The models of a list. Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for what is none."""
    return _read(body).data
