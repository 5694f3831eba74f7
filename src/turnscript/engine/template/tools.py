"""Owns the functions that a chat template is shown: tools as transformers passes them, kept with their JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from turnscript.core.conversation import Tool
from turnscript.core.losses import Loss
from turnscript.engine.escape import Escape
from turnscript.engine.template.frozen import FrozenList, frozen
from turnscript.engine.template.marks import holds_marks, mark


class Functions(Struct, frozen=True):
    """Tools as a template is shown them: `shown`, None where there are none.

    `texts`: contents in place of which marks stand in them. `key` tells them from others. `losses`: what is not shown.
    """

    shown: list[dict[str, Any]] | None = None
    texts: tuple[str, ...] = ()
    key: tuple[Any, ...] = ()
    losses: tuple[Loss, ...] = ()

    def completed(self) -> Functions:
        """Return the same tools, each with a description and parameters, which some templates presume."""
        return Functions(
            FrozenList([frozen(_completed(tool)) for tool in self.shown or ()]),
            self.texts,
            ("completed", *self.key),
            self.losses,
        )


NO_FUNCTIONS = Functions()


def functions_of(tools: Sequence[Tool], escape: Escape) -> Functions:
    """Return tools as a template is shown them. A text in them that holds a control string becomes a mark."""
    if not tools:
        return NO_FUNCTIONS
    said = tuple(
        (
            tool.name,
            tool.description,
            None if tool.parameters is None else bytes(tool.parameters),
            tool.strict,
            tool.type,
        )
        for tool in tools
    )
    return _functions(said, escape)


@lru_cache(maxsize=64)
def _functions(said: tuple[tuple[Any, ...], ...], escape: Escape) -> Functions:
    shown: list[dict[str, Any]] = []
    texts: list[str] = []
    losses: list[Loss] = []
    for index, (name, description, parameters, strict, type_) in enumerate(said):
        if type_ != "function" or name is None:
            losses.append(
                Loss(f"$.tools[{index}]", "dropped", f"a chat template has no place for tools of type {type_!r}")
            )
            continue
        function: dict[str, Any] = {"name": name}
        if description is not None:
            function["description"] = description
        if parameters is not None:
            function["parameters"] = json.loads(parameters)
        if strict is not None:
            function["strict"] = strict
        shown.append(frozen(_guarded({"type": "function", "function": function}, escape, texts)))
    return Functions(FrozenList(shown) if shown else None, tuple(texts), (*said, id(escape)), tuple(losses))


def _completed(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    parameters = {"type": "object", "properties": {}, **(function.get("parameters") or {})}
    described = {
        key: {"type": "string", "description": "", **one} if isinstance(one, dict) else one
        for key, one in parameters["properties"].items()
    }
    whole = {"name": function["name"], "description": "", **function}
    return {**tool, "function": {**whole, "parameters": {**parameters, "properties": described}}}


def _guarded(value: Any, escape: Escape, texts: list[str]) -> Any:
    if isinstance(value, str):
        if not (escape.holds(value) or holds_marks(value)):
            return value
        texts.append(value)
        return mark(len(texts) - 1)
    if isinstance(value, dict):
        return {_guarded(key, escape, texts): _guarded(one, escape, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [_guarded(one, escape, texts) for one in value]
    return value
