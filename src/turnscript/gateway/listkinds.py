"""Owns settings that are several of one kind: paths of files, names of variables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnscript.gateway.kinds import File, Texts, Variable, Wrong


class Files(Texts, frozen=True):
    """The paths of several files."""

    what: str = "paths"

    def read(self, value: Any, folder: Path) -> tuple[Any, ...]:
        return tuple(File().read(one, folder) for one in super().read(value, folder))

    def shown(self, value: tuple[Any, ...]) -> str:
        return super().shown(tuple(map(str, value)))


class Variables(Texts, frozen=True):
    """The names of several environment variables with secrets."""

    what: str = "names of environment variables"

    def read(self, value: Any, folder: Path) -> tuple[str, ...]:
        try:
            given = super().read(value, folder)
        except Wrong:
            raise Wrong(quiet=True) from None  # it may be a secret by mistake
        return tuple(Variable().read(one, folder) for one in given)
