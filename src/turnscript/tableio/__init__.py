"""Owns formats as TOML: the table that a format declares, read from a file with checks, and written as one.

A file declares formats in `[[format]]` tables, or configures ai00's formats by the `[prompts]` section of its own
configuration. Other tables at the top belong to other programs.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from turnscript.formats.format import Format
from turnscript.tableio.inherit import inherited
from turnscript.tableio.keys import document_keys
from turnscript.tableio.looks import spelled_out
from turnscript.tableio.probe import check_reading
from turnscript.tableio.prompts import SECTION, read_prompts
from turnscript.tableio.sense import check
from turnscript.tableio.structs import Outline, data_of, read_format, read_outline, seen_data
from turnscript.tableio.tables import InvalidFormat, Table, not_among, read_toml, table_at, tables_at, text_at
from turnscript.tableio.writing import write_toml

FORMAT = "format"
BASED_ON = "based_on"
# What a format does not inherit: what it is called, and which models take it.
_OWN = ("name", "title", "clue")


def read_formats(text: str, known: Mapping[str, Format], *, tried: bool = False) -> list[Format]:
    """The formats that a TOML text declares. `known`: what they may be based on.

    `tried`: it is known that they read what they write, as of the files of this package. To try it takes twice the time
    of all else.

    Raises InvalidFormat with the key, or with line and column where the text is not TOML.
    """
    top = read_toml(text)
    _check_top(top)
    found: dict[str, Format] = {}
    if SECTION in top:
        configured = read_prompts(table_at(top[SECTION], SECTION), known)
        found[configured.name] = configured
    for table in tables_at(top.get(FORMAT, []), FORMAT):
        format_ = _read(table, known, found)
        if not tried:
            check_reading(format_, table)
        if format_.name in found:
            message = f"the name {format_.name!r} is taken, by another format of this file"
            raise InvalidFormat(message, path=table.at("name"), expected="a name of its own", got=format_.name)
        found[format_.name] = format_
    return list(found.values())


def read_outlines(text: str) -> list[Outline]:
    """The outlines of those formats: it takes a fraction of the time. For files that are known to be right."""
    return [read_outline(table) for table in tables_at(read_toml(text).get(FORMAT, []), FORMAT)]


def dump_format(format_: Format) -> str:
    """A format as the text of a TOML file that declares it, whole: nothing in it is based on another."""
    return write_toml({FORMAT: [seen_data(data_of(format_))]})


def _check_top(top: Table) -> None:
    """A file must declare something; what else stands in it is not ours, unless it looks like a slip of the pen."""
    for key in top:
        if key not in (FORMAT, SECTION) and get_close_matches(key, (FORMAT, SECTION), cutoff=0.7):
            raise not_among(key, "unknown key", key, (FORMAT, SECTION))
    if FORMAT not in top and SECTION not in top:
        message = f"this file declares no format; write [[{FORMAT}]] or [{SECTION}]"
        raise InvalidFormat(message, expected=f"[[{FORMAT}]] or [{SECTION}]", got=", ".join(top) or "nothing")


def _read(table: Table, known: Mapping[str, Format], above: Mapping[str, Format]) -> Format:
    """`above`: the formats that stand above in the same file."""
    table = spelled_out(table)
    if BASED_ON in table:
        table = _based(table, known, above)
    format_ = read_format(table)
    check(format_, table)
    return format_


def _based(table: Table, known: Mapping[str, Format], above: Mapping[str, Format]) -> Table:
    name = text_at(table[BASED_ON], table.at(BASED_ON))
    base = above.get(name) or known.get(name)
    if base is None:
        raise not_among(table.at(BASED_ON), "unknown format", name, [*known, *above])
    data: dict[str, Any] = {key: value for key, value in data_of(base).items() if key not in _OWN}
    own = Table({key: value for key, value in table.items() if key != BASED_ON}, table.path)
    return inherited(Table(data, name), own)


__all__ = ["InvalidFormat", "Outline", "document_keys", "dump_format", "read_formats", "read_outlines"]
