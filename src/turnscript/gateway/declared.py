"""Owns the names of the tools that a model may call: which tool a call is for, and which one a misspelt name means."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

from turnscript.core.conversation import Tool, ToolCall
from turnscript.gateway.offers import NAMESPACE

_SEPARATORS = ("__", "::", ".", "/", ":")


class Declared:
    """The tools that may be called, by the names a model may use for them."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools: dict[str, Tool] = {}
        self._inside: dict[tuple[str, str], Tool] = {}
        for tool in tools:
            if tool.type == NAMESPACE:
                for inner in tool.tools:
                    if tool.name is not None and inner.name is not None:
                        self._inside[tool.name, inner.name] = inner
                        self._tools.setdefault(f"{tool.name}__{inner.name}", inner)
            elif tool.name is not None:
                self._tools[tool.name] = tool

    def find(self, call: ToolCall) -> Tool | None:
        """The tool that a call is for."""
        if call.namespace is not None:
            return self._inside.get((call.namespace, call.name))
        return self._tools.get(call.name)

    def snapped(self, name: str) -> str | None:
        """The one declared name that differs from `name` by case, `-` for `_` or a namespace before it alone."""
        if name in self._tools:
            return None
        key = _key(name)
        near = self._by_key.get(key)
        if near is None:
            bare = _bare(key)
            # Two different namespaces are two different tools; so one of the names has none.
            near = [one for one in self._by_bare.get(bare, ()) if key == bare or _key(one) == bare]
        return near[0] if len(near) == 1 else None

    # Most answers call no tool, and most calls name one as it is declared: nobody asks for these then.

    @cached_property
    def _by_key(self) -> dict[str, list[str]]:
        return _grouped(self._tools, _key)

    @cached_property
    def _by_bare(self) -> dict[str, list[str]]:
        return _grouped(self._tools, lambda name: _bare(_key(name)))


def _grouped(names: Iterable[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(key(name), []).append(name)
    return found


def _key(name: str) -> str:
    return name.casefold().replace("-", "_")


def _bare(key: str) -> str:
    """A name without a namespace before it."""
    for separator in _SEPARATORS:
        key = key.rpartition(separator)[2] or key
    return key
