"""Owns what every render and conversion gives: the payload, as bytes or as a value, and the losses on the way there."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from turnscript.core.errors import half_a_pair
from turnscript.core.json_text import plain
from turnscript.core.losses import Loss, summary

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
