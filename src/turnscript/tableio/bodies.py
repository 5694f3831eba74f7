"""Owns the names of payload shapes in a file, and their options: `body = { name = "json-call", spaced = true }`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from turnscript.core.json_text import compact, respace
from turnscript.engine.bodies import CallArguments, Parts, Record, ResultContent, Thought
from turnscript.engine.bracedcalls import BracedCall, BracedResult
from turnscript.engine.bracedtools import BracedTools
from turnscript.engine.elementcalls import ElementCall
from turnscript.engine.functioncalls import FunctionCall
from turnscript.engine.jsoncalls import JsonCall, JsonResult
from turnscript.engine.jsonscan import indented, pretty
from turnscript.engine.namedcalls import NamedCall
from turnscript.engine.pythoncalls import PythonCall
from turnscript.engine.tagcalls import AddressedCall, TagCall
from turnscript.engine.texts import IndentedText, JsonText, LabelledText, PlainText
from turnscript.engine.toollists import IndentedTools, JsonTools, MarkdownTools, TaggedTools
from turnscript.engine.toolxml import XmlTools
from turnscript.engine.xmlcalls import XmlParameters
from turnscript.tableio.tables import InvalidFormat, Table, not_among, text_at, wrong_type

Names = Mapping[str, tuple[type[Any], tuple[str, ...]]]
NAME = "name"
"""The key that names the shape where it has options."""
CONTENT = ("system", "user", "assistant", "thinking", "tool_result")

BODIES: Names = {
    "text": (PlainText, CONTENT),
    "indented": (IndentedText, CONTENT),
    "json-text": (JsonText, CONTENT),
    "json-call": (JsonCall, ("tool_call",)),
    "named-call": (NamedCall, ("tool_call",)),
    "python-call": (PythonCall, ("tool_call",)),
    "function-call": (FunctionCall, ("tool_call",)),
    "braced-call": (BracedCall, ("tool_call",)),
    "json-result": (JsonResult, ("tool_result",)),
    "braced-result": (BracedResult, ("tool_result",)),
    "labelled": (LabelledText, ("tool_result",)),
    "xml-parameters": (XmlParameters, ("tool_call",)),
    "tag-call": (TagCall, ("tool_call",)),
    "addressed-call": (AddressedCall, ("tool_call",)),
    "element-call": (ElementCall, ("tool_call",)),
    "parts": (Parts, ("system", "user", "assistant", "tools_change")),
    "thought": (Thought, ("thinking",)),
    "call-arguments": (CallArguments, ("tool_call",)),
    "result-content": (ResultContent, ("tool_result",)),
    "record": (Record, ("opaque",)),
}
"""Each shape of an item's payload, and the kinds of items that it can write."""

TELLING = frozenset({"parts", "thought", "call-arguments", "result-content", "record"})
"""Shapes that say in the opening tag how the payload is written, and so need one that takes attributes."""

TOOL_LISTS: Names = {
    "json": (JsonTools, ()),
    "indented": (IndentedTools, ()),
    "tagged": (TaggedTools, ()),
    "markdown": (MarkdownTools, ()),
    "tags": (XmlTools, ()),
    "braced": (BracedTools, ()),
}
"""Each shape of a list of tools."""

SHAPES: Mapping[str, Callable[..., str]] = {
    "spaced": respace,
    "compact": compact,
    "pretty": pretty,
    "indented": indented,
}
"""How JSON is laid out."""

# Options that a reader looks over, and what they are made of.
_LOOKED_OVER = {"indent": ("white space", " \t"), "between": ("white space and commas", " \t\n,")}
# An option is kept under its own name, with or without an underscore; this one is kept under another.
_KEPT_AS = {"arguments": "_key"}


def name_of(body: Any, names: Names) -> str:
    """The name of a body's shape."""
    return next(name for name, (made, _) in names.items() if type(body) is made)


def read_body(
    value: Any,
    path: str,
    names: Names,
    defaults: Mapping[str, str],
) -> Any:
    """The body that a name, or a table of a name and options, stands for. `defaults`: options that follow elsewhere."""
    if isinstance(value, Table):
        if NAME not in value:
            message = f"{NAME!r} is missing; a payload shape with options is written {{ name = ..., option = ... }}"
            raise InvalidFormat(message, path=path, expected=f"one of: {', '.join(names)}")
        name, given, name_path = text_at(value[NAME], value.at(NAME)), value, value.at(NAME)
    elif isinstance(value, str):
        name, given, name_path = value, Table({}, path), path
    else:
        raise wrong_type(path, "the name of a payload shape, or a table with it", value)
    if name not in names:
        raise not_among(name_path, "no such payload shape", name, names)
    made = names[name][0]
    return made(**_options(made, name, given, defaults))


def _options(made: type[Any], name: str, given: Table, defaults: Mapping[str, str]) -> dict[str, Any]:
    known = options_of(made)
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key == NAME:
            continue
        if key not in known:
            raise not_among(given.at(key), f"{name!r} has no option", key, known)
        found[key] = _read_option(known[key], value, given.at(key))
    for key, parameter in known.items():
        if key not in found and parameter.default is inspect.Parameter.empty:
            if key not in defaults:
                message = f"{name!r} needs the option {key!r}; write body = {{ name = {name!r}, {key} = ... }}"
                raise InvalidFormat(message, path=given.path, expected=f"the option {key}")
            found[key] = defaults[key]
    return found


def _read_option(parameter: inspect.Parameter, value: Any, path: str) -> Any:
    if callable(parameter.default) and parameter.default is not inspect.Parameter.empty:
        word = text_at(value, path)
        if word not in SHAPES:
            raise not_among(path, "no such layout of JSON", word, SHAPES)
        return SHAPES[word]
    if isinstance(parameter.default, bool):
        if not isinstance(value, bool):
            raise wrong_type(path, "true or false", value)
        return value
    text = text_at(value, path)
    expected, characters = _LOOKED_OVER.get(parameter.name, ("", ""))
    if expected and text.strip(characters):
        raise wrong_type(path, expected, text)
    return text


def write_body(body: Any, names: Names, defaults: Mapping[str, str]) -> Any:
    """The name of a body, in a table with its options where it has any that say something."""
    said: dict[str, Any] = {NAME: name_of(body, names)}
    for key, parameter in options_of(type(body)).items():
        value = _kept(body, key)
        if value != parameter.default and defaults.get(key) != value:
            said[key] = next(word for word, shape in SHAPES.items() if shape is value) if callable(value) else value
    return said if len(said) > 1 else said[NAME]


def _kept(body: Any, option: str) -> Any:
    kept = vars(body)
    return next(kept[one] for one in (option, f"_{option}", _KEPT_AS.get(option, "")) if one in kept)


def options_of(made: type[Any]) -> Mapping[str, inspect.Parameter]:
    """The options of a shape, as its constructor declares them."""
    if made.__init__ is object.__init__:
        return {}
    return {key: one for key, one in inspect.signature(made).parameters.items() if key != "self"}
