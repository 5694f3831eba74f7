"""Owns damage to what a server sends: one member of a body missing, null, or of another kind, wherever it stands."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

GONE: Any = object()
VALUES: tuple[Any, ...] = (GONE, None, 1, 1.5, True, "x", [], {}, [1], {"a": 1}, ["x"])
Path = tuple[str | int, ...]


def kind_of(value: Any) -> str:
    """What kind of JSON a value is; numbers are of one kind."""
    if isinstance(value, bool) or value is None:
        return str(type(value))
    return next(str(kind) for kind in (str, int | float, list, dict) if isinstance(value, kind))


def places(value: Any, at: Path = ()) -> Iterator[Path]:
    """The places of all members of objects in a value, at any depth."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        if isinstance(key, str):
            yield (*at, key)
        yield from places(inner, (*at, key))


def found(value: Any, path: Path) -> Any:
    """What stands at a place."""
    for key in path:
        value = value[key]
    return value


def damaged(body: Any) -> Iterator[tuple[Path, Any, Any]]:
    """A body with one member missing, null, or of another kind: each member, in every way."""
    for path in places(body):
        was = kind_of(found(body, path))
        for value in VALUES:
            if value is not GONE and kind_of(value) == was:
                continue
            changed = copy.deepcopy(body)
            around = found(changed, path[:-1])
            if value is GONE:
                del around[path[-1]]
            else:
                around[path[-1]] = value
            yield path, value, changed
