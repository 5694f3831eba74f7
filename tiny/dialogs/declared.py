"""Owns declarations: a tool as JSON, in the ways in which the libraries that people use write one."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tiny.dialogs.topics import Parameter, Topic

JsonObject = dict[str, Any]
CHOICES = {"onoff": ("on", "off"), "degree": ("celsius", "fahrenheit"), "priority": ("low", "medium", "high")}
_DRAFT = "http://json-schema.org/draft-07/schema#"


def declared(topic: Topic, name: str, names: Mapping[str, str], random: Random, *, told: bool) -> JsonObject:
    """A tool of a topic under these names; `told`: it has a description in any case."""
    described = random.random() < 0.6
    members = {}
    for one in topic.parameters:
        known = names[one.slot] in one.names
        members[names[one.slot]] = _schema(one, random, described or (not known and len(topic.parameters) > 1))
    optional = {names[one.slot] for one in topic.parameters if one.optional}
    function: JsonObject = {"name": name}
    if told or random.random() < 0.85:
        count = 2 if random.random() < 0.12 and topic.about[1:] else 1
        function["description"] = " ".join(random.sample(topic.about, count))
    function["parameters"] = _whole(name, members, optional, random)
    return {"type": "function", "function": function}


def _schema(parameter: Parameter, random: Random, described: bool) -> JsonObject:
    schema: JsonObject = {"type": parameter.type}
    choices = parameter.choices or CHOICES.get(parameter.kind, ())
    listed = bool(choices) and random.random() < 0.6
    if parameter.choices and described and not listed:
        schema["description"] = f"One of {', '.join(choices)}"
    elif described and parameter.about:
        schema["description"] = parameter.about
    if listed:
        schema["enum"] = list(choices)
    return schema


def _whole(name: str, members: dict[str, JsonObject], optional: set[str], random: Random) -> JsonObject:
    kind = random.random()
    if kind < 0.18:
        return _as_of_models(name, members, optional, random)
    required = [member for member in members if member not in optional]
    schema: JsonObject = {"type": "object", "properties": members}
    if kind < 0.24:
        return schema | {"required": required, "additionalProperties": False, "$schema": _DRAFT}
    if random.random() < 0.85:
        schema["required"] = required
    if random.random() < 0.15:
        schema["additionalProperties"] = False
    return schema if kind < 0.94 else dict(reversed(schema.items()))


def _as_of_models(name: str, members: dict[str, JsonObject], optional: set[str], random: Random) -> JsonObject:
    """As libraries derive it from a class or a function: a title at everything, defaults, members in any order."""
    null, ordered, early = random.random() < 0.5, random.random() < 0.5, random.random() < 0.5
    properties = {}
    for member, schema in members.items():
        title = {"title": member.replace("_", " ").title()}
        if member in optional and null:
            kind = {"anyOf": [{"type": schema["type"]}, {"type": "null"}], "default": None}
            schema = {**kind, **{key: value for key, value in schema.items() if key != "type"}}  # noqa: PLW2901
        whole = title | schema if early else schema | title
        properties[member] = dict(sorted(whole.items())) if ordered else whole
    required = [member for member in members if member not in optional]
    titled = random.choice((name, f"{name}_args", f"{name}Arguments", f"{name.title().replace('_', '')}Input"))
    found = {"properties": properties, "required": required, "title": titled, "type": "object"}
    return found if ordered else {key: found[key] for key in ("type", "title", "properties", "required")}
