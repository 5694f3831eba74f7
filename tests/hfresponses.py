"""Owns reading an answer by a `response_template` as transformers does, in the few steps that its documents describe.

Fields with an opening are looked for in what no other field has; the one without takes the rest. transformers streams,
and reads more shapes of contents than formats here need.
"""

import json
import re
from typing import Any

Spec = dict[str, Any]


def parse(text: str, spec: Spec, prefix: str) -> dict[str, Any]:
    """The message that a text becomes behind a prompt."""
    text = _behind_anchor(prefix, spec) + text
    fields: dict[str, Any] = spec["fields"]
    implicit = next((name for name, field in fields.items() if not {"open", "open_pattern"} & field.keys()), None)
    found: dict[str, Any] = dict(spec["defaults"])
    captures: dict[str, str] = {}
    at, current, begun = 0, implicit, 0
    while True:
        watched = [(current, "close")] if current and current != implicit else _watched(fields, implicit)
        matches = [
            (name, end, match) for name, end in watched if (match := _pattern(fields[name], end).search(text, at))
        ]
        if not matches:
            break
        name, end, match = min(matches, key=lambda one: (one[2].start(), -len(one[2][0]), one[1] != "open", one[0]))
        body = text[begun : match.start()]
        if end == "close":
            captures |= {key: value for key, value in match.groupdict().items() if value is not None}
        _close(found, current, body, fields, captures)
        if end == "close" and match.end() == match.start() and not body:
            break
        at = begun = match.end()
        current = name if end == "open" else implicit
        captures = (
            {key: value for key, value in match.groupdict().items() if value is not None} if end == "open" else {}
        )
    _close(found, current, text[begun:], fields, captures)
    return {key: value for key, value in found.items() if key in spec["defaults"] or value}


def _behind_anchor(prefix: str, spec: Spec) -> str:
    pattern = spec.get("start_anchor_pattern") or _alternatives(spec["start_anchor"])
    ends = [match.end() for match in re.finditer(pattern, prefix, re.DOTALL)]
    return prefix[ends[-1] :] if ends else prefix


def _watched(fields: Spec, implicit: str | None) -> list[tuple[str, str]]:
    opens = [(name, "open") for name in fields if name != implicit]
    return [*opens, (implicit, "close")] if implicit else opens


def _pattern(field: Spec, end: str) -> re.Pattern[str]:
    literal = field.get(end)
    return re.compile(_alternatives(literal) if literal else field[f"{end}_pattern"], re.DOTALL)


def _alternatives(literals: list[str]) -> str:
    return "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))


def _close(found: dict[str, Any], name: str | None, body: str, fields: Spec, captures: dict[str, str]) -> None:
    if name is None or (not body and "open" not in str(list(fields[name]))):
        return
    field = fields[name]
    value = _value(body, field, captures)
    if "join" in field:
        found[name] = value if name not in found else found[name] + field["join"] + value
    elif field.get("repeats"):
        found.setdefault(name, []).append(value)
    else:
        found[name] = value


def _value(body: str, field: Spec, captures: dict[str, str]) -> Any:
    if field["content"] == "text":
        return body.strip()
    if field["content"] == "json":
        value: Any = json.loads(body)
    else:
        pattern = field["content_args"]["tag_pattern"]
        value = {match["key"]: match["value"] for match in re.finditer(pattern, body, re.DOTALL)}
    if field.get("transform_each"):
        return [_transformed(field["transform"], captures | one) for one in value]
    return _transformed(field["transform"], captures | {"content": value})


def _transformed(transform: Any, scope: dict[str, Any]) -> Any:
    if isinstance(transform, dict):
        return {key: _transformed(value, scope) for key, value in transform.items()}
    if not (isinstance(transform, str) and transform.startswith("{")):
        return transform
    value: Any = scope
    for key in transform[1:-1].split("."):
        value = value[key]
    return value
