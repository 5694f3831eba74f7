"""Owns documents that are files as JSON, the one shape that is no format's: every order of every format writes it.

    {"files": ["first file", {"prefix": "P", "suffix": "S", "middle": "M"}], "leading": true}

`middle` is there where somebody has written it, `leading` where a separator stands before the first file, too.
Reading is strict: a member that is not named here is an error, with its JSON path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnscript.core.errors import InvalidRequest
from turnscript.core.json_text import Json, excerpt, read_list, read_object, string_of, type_name
from turnscript.engine.files import FileSequence
from turnscript.engine.fill import Fill

FILES, LEADING = "files", "leading"
_HOLE = ("prefix", "suffix", "middle")
_TEXT = type_name(Json(b'""'))


def is_files(members: Mapping[str, object]) -> bool:
    """Return whether an object has the members of files, and no other: what they are is not looked at."""
    return FILES in members and members.keys() <= {FILES, LEADING}


def files_of(members: Mapping[str, Json]) -> FileSequence:
    """Return the files that an object holds. Raises InvalidRequest with the JSON path."""
    _check_members(members, (FILES, LEADING), "$")
    if FILES not in members:
        raise InvalidRequest("there is no member 'files' here", path="$", expected="a list of files")
    given = members[FILES]
    if bytes(given)[:1] != b"[":
        raise _wrong(given, f"$.{FILES}", "a list of files")
    entries = read_list(given)
    if not entries:
        raise InvalidRequest("a document has a file at least; write an empty one as an empty text", path=f"$.{FILES}")
    found = [_file(entry, f"$.{FILES}[{index}]") for index, entry in enumerate(entries)]
    early = next((index for index, file in enumerate(found[:-1]) if isinstance(file, Fill)), -1)
    if early >= 0:
        message = "only the last file may have a hole: a model goes on at the end"
        raise InvalidRequest(message, path=f"$.{FILES}[{early}]", expected="a text", got="a text with a hole")
    leading = members.get(LEADING, Json(b"false"))
    if bytes(leading) not in (b"true", b"false"):
        raise _wrong(leading, f"$.{LEADING}", "true or false")
    return FileSequence(found, leading=bytes(leading) == b"true")


def files_body(sequence: FileSequence) -> dict[str, Any]:
    """Return files as the object that holds them."""
    files = [file if isinstance(file, str) else hole_body(file) for file in sequence.files]
    return {FILES: files, LEADING: True} if sequence.leading else {FILES: files}


def hole_body(fill: Fill) -> dict[str, str]:
    """Return a text with a hole as the object that holds it."""
    return {key: text for key in _HOLE if (text := getattr(fill, key)) is not None}


def _file(entry: Json, at: str) -> str | Fill:
    if bytes(entry)[:1] == b'"':
        return _text(entry, at)
    if bytes(entry)[:1] != b"{":
        raise _wrong(entry, at, "a text, or an object with prefix and suffix")
    members = read_object(entry)
    _check_members(members, _HOLE, at)
    for key in _HOLE[:2]:
        if key not in members:
            raise InvalidRequest(f"a text with a hole has a {key}, maybe an empty one", path=at, expected=f"{key!r}")
    return Fill(**{key: _text(value, f"{at}.{key}") for key, value in members.items()})


def _text(value: Json, at: str) -> str:
    if bytes(value)[:1] != b'"':
        raise _wrong(value, at, _TEXT)
    try:
        return string_of(value)
    except InvalidRequest as error:  # half of a surrogate pair, whose place is counted from the quote
        error.path, error.line, error.column = at, 0, 0
        raise


def _check_members(members: Mapping[str, Json], known: tuple[str, ...], at: str) -> None:
    strange = next((key for key in members if key not in known), "")
    if strange:
        raise InvalidRequest(
            f"{strange!r} is no member of it", path=f"{at}.{strange}", expected=f"one of: {', '.join(known)}"
        )


def _wrong(value: Json, at: str, expected: str) -> InvalidRequest:
    return InvalidRequest(
        f"expected {expected}, got {excerpt(value)}", path=at, expected=expected, got=type_name(value)
    )
