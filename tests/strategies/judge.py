"""Owns judging a value against an SDK type, read off the type itself and not off the generators' shapes."""

from __future__ import annotations

import enum
import types
import typing
from datetime import datetime
from functools import cache
from typing import Any

import typing_extensions as tx
from pydantic import BaseModel

from tests.strategies import sdk
from tests.strategies.jsontext import Spelled
from tests.strategies.shapes import wire_fields

EXTENSIONS = {"messages.reasoning_content", "temperature", "top_p", "top_k", "system"}
"""Members that servers of an API take and its SDK's types lack: thinking in Chat, sampling in newer Messages types, and
the system text of legacy completions (requirements D-U-22)."""


_UNIONS: tuple[Any, ...] = (typing.Union, types.UnionType)


def roots(api: str) -> list[Any]:
    """The request types of an API."""
    return [root for _, params in sdk.SOURCES[api] for root in tx.get_args(params)]


def conforms(value: Any, hint: Any) -> bool:
    """Whether a value is of an SDK type."""
    origin: Any = tx.get_origin(hint)
    arguments = tx.get_args(hint)
    if origin in (tx.Required, tx.NotRequired, tx.Annotated):
        return conforms(value, arguments[0])
    if origin in _UNIONS:
        return any(conforms(value, member) for member in arguments)
    if hint is datetime:
        return isinstance(value, str)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return value in [member.value for member in hint]
    if origin is tx.Literal:
        return any(type(value) is type(option) and value == option for option in arguments)
    if tx.is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, BaseModel)):
        return isinstance(value, dict) and _object_conforms(value, hint)
    if origin is dict:
        return isinstance(value, Spelled) or (
            isinstance(value, dict) and all(conforms(v, arguments[1]) for v in value.values())
        )
    if origin is not None:
        return isinstance(value, list) and all(conforms(element, arguments[0]) for element in value)
    if hint in (object, Any, None):
        return True
    return type(value) is hint or (hint is float and type(value) is int)


def _object_conforms(value: dict[str, Any], hint: Any) -> bool:
    hints, required = members(hint)
    return required <= value.keys() <= hints.keys() and all(conforms(v, hints[name]) for name, v in value.items())


def _is_required(hint: Any) -> bool:
    origin: Any = tx.get_origin(hint)
    return origin is tx.Required


@cache
def members(hint: Any) -> tuple[dict[str, Any], set[str]]:
    """The hints of an object's keys, and which of the keys must be there."""
    if tx.is_typeddict(hint):
        # The SDKs' classes are all total=False, or have no key of their own without Required.
        hints = tx.get_type_hints(hint, include_extras=True)
        return hints, {name for name, given in hints.items() if _is_required(given)}
    fields = list(wire_fields(hint))
    return {name: inner for name, inner, _ in fields}, {name for name, _, required in fields if required}


def misfits(api: str, body: dict[str, Any]) -> list[str]:
    """The members of a body, and the elements of its lists, that its API's types do not allow; extensions may be."""
    hints = [members(root)[0] for root in roots(api)]
    found = [name for name in body if name not in EXTENSIONS and not any(name in one for one in hints)]
    required = set.intersection(*[members(root)[1] for root in roots(api)])
    found += [f"{name} missing" for name in required - body.keys()]
    for name, value in body.items():
        kinds = [one[name] for one in hints if name in one]
        if isinstance(value, list):
            for index, element in enumerate(value):
                bare = _official(name, _without_extensions(name, element))
                if not all(any(conforms([one], kind) for kind in kinds) for one in bare):
                    found.append(f"{name}[{index}]: {bare}")
        elif kinds and not any(conforms(value, kind) for kind in kinds):
            found.append(f"{name}: {value}")
    return found


def _without_extensions(name: str, element: Any) -> Any:
    if not isinstance(element, dict):
        return element
    return {key: value for key, value in element.items() if f"{name}.{key}" not in EXTENSIONS}


def _official(name: str, element: Any) -> list[Any]:
    """An input item with the members that the SDK's types ask for and the API does not (requirements R-U-25).

    The parts of an assistant's message are judged one by one, as what it said or as what it was given.
    """
    if name != "input" or not isinstance(element, dict) or not isinstance(element.get("content"), list):
        return [element]
    content = [{"detail": "auto", **part} if part.get("type") == "input_image" else part for part in element["content"]]
    if "type" in element or element.get("role") != "assistant":
        return [{**element, "content": content}]
    answer = {"type": "message", "id": "msg_1", "status": "completed", **element}
    return [
        {**answer, "content": [{"annotations": [], **part} if part["type"] == "output_text" else part]}
        if part["type"] in ("output_text", "refusal")
        else {**element, "content": [part]}
        for part in content
    ]
