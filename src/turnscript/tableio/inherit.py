"""Owns `based_on`: another format's table with what a file says of it put over.

Tables are joined key by key, turns by their role, segments by their kind. Any other value is replaced as a whole.
What is to go is named in `without`: a key of the same table, or `turn.ROLE`, `segment.KIND`, `joints.KIND KIND`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnscript.tableio.tables import Table, not_among, texts_at

WITHOUT = "without"
# What tells the members of a list apart.
_IDENTITY = {"turn": ("role",), "segment": ("kind", "of")}
# A table that is one value: its options mean nothing without its name.
_WHOLE = frozenset({"body"})


def inherited(base: Table, own: Table) -> Table:
    """`base` with `own` over it; places are those of `own`. Raises InvalidFormat for a `without` that is not there."""
    base = _reduced(base, own)
    joined = Table({}, own.path)
    for key, value in base.items():
        joined[key] = _over(key, value, own[key]) if key in own else value
    for key, value in own.items():
        if key not in base and key != WITHOUT:
            joined[key] = value
    return joined


def _over(key: str, base: Any, own: Any) -> Any:
    if key in _IDENTITY and _are_tables(base) and _are_tables(own):
        return _joined_lists(base, own, _IDENTITY[key])
    if isinstance(base, Table) and isinstance(own, Table) and key not in _WHOLE:
        return inherited(base, own)
    return own


def _are_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, Table) for one in value)


def _joined_lists(base: list[Table], own: list[Table], identity: tuple[str, ...]) -> list[Table]:
    joined = list(base)
    for table in own:
        known = [_identity(one, identity) for one in base]
        found = _identity(table, identity)
        if found in known:
            joined[known.index(found)] = inherited(joined[known.index(found)], table)
        else:
            joined.append(table)
    return joined


def _identity(table: Table, keys: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(str(table.get(key, "")) for key in keys)


def _reduced(base: Table, own: Table) -> Table:
    """`base` without what `own` says is to go."""
    if WITHOUT not in own:
        return base
    path = own.at(WITHOUT)
    going = texts_at(own[WITHOUT], path)
    known = list(_removable(base))
    for index, name in enumerate(going):
        if name not in known:
            raise not_among(f"{path}[{index}]", "cannot take away", name, known)
    reduced = Table({}, base.path)
    for key, value in base.items():
        if key in going:
            continue
        if key in _IDENTITY and _are_tables(value):
            reduced[key] = [one for one in value if f"{key}.{_name(one, key)}" not in going]
        elif isinstance(value, Table) and key not in _WHOLE:
            reduced[key] = Table({one: of for one, of in value.items() if f"{key}.{one}" not in going}, value.path)
        else:
            reduced[key] = value
    return reduced


def _removable(base: Table) -> Iterator[str]:
    for key, value in base.items():
        yield key
        if key in _IDENTITY and _are_tables(value):
            yield from (f"{key}.{_name(one, key)}" for one in value)
        elif isinstance(value, Table) and key not in _WHOLE:
            yield from (f"{key}.{inner}" for inner in value)


def _name(table: Table, key: str) -> str:
    return ".".join(word for word in _identity(table, _IDENTITY[key]) if word)
