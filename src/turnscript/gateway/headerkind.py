"""Owns the kind of a setting that holds headers: their names, which of them nobody may set, and how a text has them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from turnscript.gateway.kinds import Kind, Wrong, in_toml

_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OF_THE_MESSAGE = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"}
    | {"keep-alive", "proxy-connection", "trailer", "transfer-encoding", "upgrade"}
)
"""What the sender of a message alone knows: how long it is, how it is packed, where it goes."""


class Headers(Kind, frozen=True):
    """Headers by name. `each`: what stands for the value of one. A text stands for them as HTTP has them, a header a
    line, or as a TOML table."""

    each: Kind

    @property
    def words(self) -> str:
        return f"a table of headers, each with {self.each.words}"

    def read(self, value: Any, folder: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"expected {self.words}", quiet=True)
        return {_header_name(name): self._value(name, one, folder) for name, one in value.items()}

    def _value(self, name: str, value: Any, folder: Path) -> Any:
        try:
            return self.each.read(value, folder)
        except Wrong as wrong:
            raise Wrong(f"{name}: {wrong.message or f'expected {self.each.words}'}", quiet=True) from None

    def of_text(self, text: str) -> Any:
        if text.lstrip().startswith("{"):
            return in_toml(text)
        lines = [line.partition(":") for line in text.splitlines() if line.strip()]
        return {name.strip(): value.strip() for name, _, value in lines} if all(mark for _, mark, _ in lines) else text

    def shown(self, value: dict[str, Any]) -> str:
        return ", ".join(f"{name} = {self.each.shown(one)}" for name, one in value.items()) or "none"


def _header_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Wrong("a name in this is no name of a header, such as X-Api-Key", quiet=True)
    if name.lower() in _OF_THE_MESSAGE:
        raise Wrong(f"the gateway itself says what {name} is", quiet=True)
    return name
