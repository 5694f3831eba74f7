"""Owns what a caller gives to be read: a body as bytes, text or Python data, or a transcript; all else is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from turnscript.core.errors import InvalidRequest, InvalidTranscript, type_of
from turnscript.core.json_text import utf8

Source = bytes | str | Mapping[str, Any] | Sequence[Any]
"""An API body as bytes, text or Python data (a bare list: its messages), or the text of a transcript."""

_REMEDIES = (
    ("read_bytes", "write .read_bytes()"),
    ("read", "write .read()"),
    ("model_dump_json", "write .model_dump_json()"),
    ("conversation", "`render` writes it"),
    ("tobytes", "write bytes(...)"),
    ("removeprefix", "write bytes(...)"),
    ("keys", "write dict(...)"),
)
"""What has a member of this name, and what to write instead of it: paths, files, objects of SDKs, requests, buffers."""


def body_bytes(source: Source) -> bytes:
    """A body as UTF-8 JSON bytes. Python data that JSON cannot say is an InvalidRequest with its path."""
    if isinstance(source, bytes):
        return utf8(source)
    if isinstance(source, str):
        text = source
    else:
        text = _dump(source)
    try:
        return utf8(text.encode())
    except UnicodeEncodeError as error:
        where = f"character {error.start}"
        message = f"{where} is half of a surrogate pair, which no UTF-8 text can hold"
        raise InvalidRequest(message, path="$", expected="a whole character") from None


def transcript_text(source: Source) -> str:
    """The text of a transcript. Anything else, and what is no UTF-8, is an InvalidTranscript."""
    if isinstance(source, bytes):
        return utf8(source).decode()
    if not isinstance(source, str):
        expected, got = "the text of a transcript, as str or UTF-8 bytes", _got(source)
        raise InvalidTranscript(f"expected {expected}, got {got}", expected=expected, got=got)
    try:
        source.encode()
    except UnicodeEncodeError as error:
        line, column = source.count("\n", 0, error.start) + 1, error.start - source.rfind("\n", 0, error.start)
        message = "half of a surrogate pair, which no UTF-8 text can hold"
        raise InvalidTranscript(message, line=line, column=column, expected="a whole character") from None
    return source


def _dump(source: Mapping[str, Any] | Sequence[Any]) -> str:
    try:
        text = json.dumps(source, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        path = _first_unsayable(source, "$")
        if path == "$" and not isinstance(source, dict | list | tuple):
            raise _no_body(source) from None
        message = f"JSON cannot say this value: {error}"
        raise InvalidRequest(message, path=path, expected="a string, number, boolean, null, list or dict") from None
    if text[:1] not in "{[":
        raise _no_body(source)
    return text


def _no_body(source: object) -> InvalidRequest:
    expected, got = "a body or transcript, as bytes, str or a dict", _got(source)
    return InvalidRequest(f"expected {expected}, got {got}", path="$", expected=expected, got=got)


def _got(source: object) -> str:
    remedy = next((remedy for member, remedy in _REMEDIES if hasattr(source, member)), "")
    return f"{type_of(source)}; {remedy}" if remedy else type_of(source)


def _first_unsayable(value: Any, path: str) -> str:
    """The path of the first value that JSON has no word for (NaN, an infinity, a foreign object, a non-string key)."""
    pending: list[tuple[Any, str]] = [(value, path)]
    while pending:
        one, at = pending.pop()
        if isinstance(one, Mapping):
            pending += [(member, f"{at}.{key}") for key, member in one.items()][::-1]
        elif isinstance(one, list | tuple):
            pending += [(member, f"{at}[{index}]") for index, member in enumerate(one)][::-1]
        elif not (one is None or isinstance(one, str | int) or (isinstance(one, float) and one - one == 0)):
            return at
        if len(at) > 4096:  # a structure that contains itself
            return "$"
    return path
