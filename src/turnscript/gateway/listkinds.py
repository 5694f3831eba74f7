"""Owns settings that are several of one kind (files, variables, ids of tokens), and places of templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from turnscript.detection.place import KINDS
from turnscript.gateway.kinds import File, Kind, Texts, Variable, Wrong, in_toml, located

_IDS = 1 << 31


class Template(Kind, frozen=True):
    """A place where a chat template is: a file, a folder, or the name of a model in the local Hugging Face cache."""

    @property
    def words(self) -> str:
        return KINDS

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise Wrong
        path, mark, name = value.partition("#")
        here = located(value, folder)
        if here.exists():
            return str(here)
        return f"{located(path, folder)}{mark}{name}" if path and located(path, folder).exists() else value


class TokenIds(Kind, frozen=True):
    """Ids of tokens."""

    @property
    def words(self) -> str:
        return "an array of token ids"

    def read(self, value: Any, folder: Path) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(one) is int and 0 <= one < _IDS for one in value):
            raise Wrong
        return tuple(value)

    def of_text(self, text: str) -> Any:
        return in_toml(text if text.lstrip().startswith("[") else f"[{text}]")

    def shown(self, value: tuple[int, ...]) -> str:
        return ", ".join(map(str, value)) or "none"


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
