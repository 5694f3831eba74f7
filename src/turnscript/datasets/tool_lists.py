"""Owns the dialects of tool lists: each as the entries of an API's `tools`, schemas byte by byte as they were.

Lists stand as arrays, as a string of JSON, or as strings of JSON inside of an array; entries with or without the object
`function` around them, their schema as `parameters` or `input_schema`, as an object or as a string of JSON.
"""

from __future__ import annotations

from turnscript.core.json_text import Json
from turnscript.datasets.members import (
    Members,
    embedded,
    first_byte,
    is_null,
    list_of,
    object_of,
    spelled,
    wrong,
)

_FUNCTION = Json(b'"function"')


def chat_tools(value: Json, at: str) -> list[Json]:
    """Return the entries of a tool list; none for null, an empty list or an empty string."""
    value = embedded(value, at)
    if is_null(value):
        return []
    if first_byte(value) == b"{":
        return [_entry(value, at)]
    places = [(entry, f"{at}[{index}]") for index, entry in enumerate(list_of(value, at))]
    return [_entry(embedded(entry, where), where) for entry, where in places]


def _entry(value: Json, at: str) -> Json:
    tool = _said(object_of(value, at))
    if "function" in tool:
        tool["function"] = spelled(_definition(tool["function"], f"{at}.function"))
        tool.setdefault("type", _FUNCTION)
        return spelled(tool)
    kind = tool.get("type", _FUNCTION)
    if "name" in tool and ("input_schema" in tool or "parameters" in tool or bytes(kind) == bytes(_FUNCTION)):
        tool.pop("type", None)
        return spelled({"type": _FUNCTION, "function": spelled(_definition(spelled(tool), at))})
    if "type" in tool and bytes(kind) != bytes(_FUNCTION):
        return value
    raise wrong(value, at, "a tool with a name")


def _definition(value: Json, at: str) -> Members:
    function = _said(object_of(value, at))
    if "input_schema" in function and "parameters" not in function:
        function["parameters"] = function.pop("input_schema")
    if "parameters" in function:
        parameters = embedded(function["parameters"], f"{at}.parameters")
        function["parameters"] = Json(b"{}") if is_null(parameters) else parameters
        if first_byte(function["parameters"]) != b"{":
            raise wrong(parameters, f"{at}.parameters", "an object")
    return function


def _said(members: Members) -> Members:
    """Return an entry without nulls: a table has them for what an entry does not say."""
    return {key: value for key, value in members.items() if not is_null(value)}
