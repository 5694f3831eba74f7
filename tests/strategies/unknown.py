"""Owns what no SDK knows yet: unknown fields and kinds of blocks, put into a body where a new API version would."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

from tests.strategies import jsontext, text
from tests.strategies.coherent import objects
from tests.strategies.leaves import class_name
from tests.strategies.shapes import Typed

# Names that a converter is likely to use for itself, to treat as special, or to trip over.
KEYS = (
    "extra",
    "raw",
    "x",
    "x_new",
    "type2",
    "kind",
    "at",
    "as",
    "hints",
    "turn",
    "origin",
    "v",
    "path",
    "items",
    "self",
    "__proto__",
    "constructor",
    "new-field",
    "a.b",
    "ключ",
    "",
    " ",
)
# Members of hand-written bodies whose objects belong to the user: schemas, arguments, labels.
FREE = {
    "parameters",
    "input_schema",
    "output_schema",
    "schema",
    "arguments",
    "input_examples",
    "metadata",
    "logit_bias",
    "headers",
    "env",
    "variables",
    "attributes",
    "properties",
    "annotations",
}
# Lists that get new kinds of elements over time.
OPEN_LISTS = ("content", "input", "tools", "system")


def places(body: Any) -> list[dict[str, Any]]:
    """Every object of the body whose keys the API defines: those of a drawn body, or a guess for a hand-written one."""
    if not isinstance(body, Typed):
        return list(_plain_places(body))
    # Anthropic's typed JSON Schema is the one record that is the user's own; any key there is known.
    return [place for place in objects(body) if class_name(place.record.name) != "InputSchemaTyped"]


def _plain_places(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for key, member in value.items():
            # Arguments of a tool use are an object, the input of a request is a list.
            if key not in FREE and not (key == "input" and isinstance(member, dict)):
                yield from _plain_places(member)
    elif isinstance(value, list):
        for member in value:
            yield from _plain_places(member)


def _open_lists(where: list[dict[str, Any]]) -> list[list[Any]]:
    """The lists of blocks, items and tools in these objects."""
    found = (place[name] for place in where for name in OPEN_LISTS if isinstance(place.get(name), list))
    return [blocks for blocks in found if all(isinstance(block, dict) for block in blocks)]


@st.composite
def unknown_blocks(draw: st.DrawFn) -> dict[str, Any]:
    """A content block, input item or tool of a type that does not exist."""
    block: dict[str, Any] = {"type": "hologram"}
    if draw(st.booleans()):
        block |= draw(
            st.fixed_dictionaries({}, optional={"text": text.texts(), "id": st.just("h1"), "name": st.just("f")})
        )
    if draw(st.booleans()):
        block |= {"content": [{"type": "text", "text": "inside"}], "shape": draw(jsontext.json_values())}
    return block


@st.composite
def with_unknown(draw: st.DrawFn, body: dict[str, Any]) -> dict[str, Any]:
    """A copy of the body with one to four unknown keys at any depth, and in one of four an unknown block as well."""
    body = deepcopy(body)
    where = places(body)
    for _ in range(draw(st.integers(1, 4))):
        place = where[draw(st.integers(0, len(where) - 1))]
        known = {member.name for member in place.record.fields} if isinstance(place, Typed) else set()
        key = draw(st.sampled_from(KEYS))
        if key not in place and key not in known:
            _insert(place, key, draw(jsontext.json_values()), first=draw(st.booleans()))
    if not any(key in place for place in where for key in KEYS):
        body["unknown_field"] = draw(jsontext.json_values())
    lists = _open_lists(where)
    if lists and draw(st.integers(0, 3)) == 3:
        blocks = draw(st.sampled_from(range(len(lists))).map(lists.__getitem__))
        blocks.insert(draw(st.integers(0, len(blocks))), draw(unknown_blocks()))
    return body


def _insert(place: dict[str, Any], key: str, value: Any, *, first: bool) -> None:
    members = list(place.items())
    place.clear()
    place.update([(key, value), *members] if first else [*members, (key, value)])
