"""Owns signatures of thoughts: raw thinking sealed in a string that a client stores and sends back, and opened again.

A client keeps the `signature` (or `encrypted_content`) of a thought and may drop or shorten its text. Sealed, the text
comes back byte for byte, without a store. A seal is `ts1.` and URL-safe base64 of an HMAC-SHA256 and of the compressed
text, as JSON. It proves who made it and hides nothing: anybody can read the thought that it holds.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from turnscript.core.errors import InvalidInput

VERSION = "ts1."
LIMIT = 8 * 1024 * 1024
"""The most bytes of JSON that `unseal` unpacks. No model thinks that long; a bomb does."""

_MAC = hashlib.sha256().digest_size
_BODY = re.compile(r"[A-Za-z0-9_-]*")  # no group: the matcher would remember where each of its repetitions began


class Sealed(Struct, frozen=True):
    """What a signature holds: the text, None where nobody but its server knows it, and what else was sealed with it."""

    text: str | None
    beside: Mapping[str, Any] = {}


def seal(text: str | None, key: bytes, beside: Mapping[str, Any] | None = None) -> str:
    """`text` as a signature that only `unseal` with the same key gives back. The same text has the same signature.
    `beside`: more members of the JSON that is sealed."""
    told = {} if text is None else {"thinking": text}
    packed = zlib.compress(json.dumps({**told, **(beside or {})}, separators=(",", ":")).encode())
    return VERSION + _encode(_mac(packed, key) + packed)


def unseal(signature: str, key: bytes, former: Iterable[bytes] = ()) -> str | None:
    """The sealed text; None for a signature that is foreign, changed, cut short or unpacks to more than `LIMIT`.
    `former`: keys that opened seals before `key` did, and still do."""
    sealed = unsealed(signature, key, former)
    return None if sealed is None else sealed.text


def unsealed(signature: str, key: bytes, former: Iterable[bytes] = ()) -> Sealed | None:
    """All that a signature holds; None as `unseal` says."""
    sealed = _decoded(signature)
    if sealed is None:
        return None
    mac, packed = sealed[:_MAC], sealed[_MAC:]
    # Several base64 texts decode to the same bytes: only the one that `seal` writes is genuine.
    made = any(hmac.compare_digest(mac, _mac(packed, one)) for one in (key, *former))
    if not made or VERSION + _encode(sealed) != signature:
        return None
    return _unpacked(packed)


def unpacked_size(signature: str, most: int = LIMIT) -> int:
    """How many bytes of JSON a signature unpacks to, whoever made it; no more are unpacked than `most`, and one."""
    sealed = _decoded(signature)
    if sealed is None:
        return 0
    try:
        return len(zlib.decompressobj().decompress(sealed[_MAC:], min(most, LIMIT) + 1))
    except zlib.error:
        return 0


def _mac(packed: bytes, key: bytes) -> bytes:
    if not key:
        message = "the key for signatures is empty, so anybody could make one"
        raise InvalidInput(message, expected="some random bytes, at least 16")
    return hmac.digest(key, VERSION.encode() + packed, "sha256")


def _decoded(signature: str) -> bytes | None:
    """The bytes of what looks like a seal; None for anything else."""
    body = signature.removeprefix(VERSION)
    if body == signature or len(body) % 4 == 1 or not _BODY.fullmatch(body):
        return None
    return base64.urlsafe_b64decode(body + "=" * (-len(body) % 4))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpacked(packed: bytes) -> Sealed | None:
    """What is in compressed JSON. Whoever has the key can still seal something else than a thought."""
    unpacker = zlib.decompressobj()
    try:
        data = unpacker.decompress(packed, LIMIT + 1)
        if len(data) > LIMIT or not unpacker.eof or unpacker.unused_data:
            return None
        value = json.loads(data)
    except (zlib.error, ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    text = value.pop("thinking", None)
    return Sealed(text, value) if isinstance(text, str) or (text is None and value) else None
