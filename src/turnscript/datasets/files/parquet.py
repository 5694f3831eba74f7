"""Owns the way to Parquet: its library is large and loaded only for files that need it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Protocol, cast

from turnscript.core.errors import Unsupported
from turnscript.datasets.files.rowbytes import Rows
from turnscript.datasets.rows import RawRow


class Tables(Protocol):
    """The module that reads tables."""

    def group_sizes(self, path: str) -> list[int]: ...

    def read_table(self, path: str, start: int, end: int, limit: int, counter: Rows) -> Iterator[RawRow]: ...

    def read_table_whole(self, path: str, limit: int, counter: Rows) -> Iterator[RawRow]: ...


def tables(path: str) -> Tables:
    """Return what reads tables, for this one. Raises Unsupported where its library is not installed."""
    try:
        return cast(Tables, import_module("turnscript.datasets.files.tables"))
    except ImportError as error:
        message = f"{path}: Parquet files need another library; pip install 'turnscript[parquet]'"
        raise Unsupported("Parquet", path, message) from error
