"""Owns payloads: what a caller gives to be read (bytes, text or Python data), and what every conversion gives back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from turnscript.core.errors import InvalidRequest, InvalidTranscript, half_a_pair, type_of
from turnscript.core.json_text import Json, plain, utf8
from turnscript.core.losses import Loss, summary

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


_encode = msgspec.json.Encoder().encode

ValueT_co = TypeVar("ValueT_co", bound="dict[str, Any] | str", covariant=True)


class Rendered(Generic[ValueT_co]):
    """What a render or a conversion gave: the payload and the `losses` on the way there.

    `data` is the payload as bytes (JSON for an API, UTF-8 text for a format), made when first asked for. `value` is the
    same as a dict or str, a dict of its own each time: whoever changes it keeps it, and `data` stays as it was. Which
    of both it is, `Rendered[str]` says to a type checker; where only a name tells it, that is `Rendered[Any]`.
    """

    __slots__ = ("_data", "_payload", "losses")

    def __init__(self, payload: ValueT_co, losses: list[Loss]) -> None:
        self._payload = payload
        self._data: bytes | None = None
        self.losses: list[Loss] = losses

    @property
    def data(self) -> bytes:
        """The payload as bytes. Raises InvalidConversation where a text holds half of a surrogate pair."""
        if self._data is None:
            try:
                self._data = self._payload.encode() if isinstance(self._payload, str) else _encode(self._payload)
            except UnicodeEncodeError as error:
                raise half_a_pair(error, "a text of the conversation") from None
        return self._data

    @property
    def value(self) -> ValueT_co:
        """The payload as a dict (an API body) or a str (a transcript or prompt). Raises InvalidRequest for a body of
        more levels than Python reads."""
        if isinstance(self._payload, str):
            return self._payload
        value: ValueT_co = plain(Raw(self.data))
        return value

    def __repr__(self) -> str:
        return f"Rendered({len(self.data)} bytes, {summary(self.losses)})"


def is_error(members: Mapping[str, Json]) -> bool:
    """Whether a body that is neither a request nor an answer is what a server says when it fails."""
    return "error" in members and bytes(members["error"])[:1] in (b"{", b'"')
