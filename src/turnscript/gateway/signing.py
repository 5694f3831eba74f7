"""Owns the key that thoughts are sealed with: made on first use in a file only its owner reads; and former ones.

What the seals of a request hold is bounded: a short one may unpack to a thousand times as much, and come often.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from turnscript.apis.serving import Compacting
from turnscript.core.conversation import Opaque, Request, Thinking
from turnscript.core.sealed_thoughts import proofs
from turnscript.core.signatures import unpacked_size
from turnscript.gateway.config import Signing
from turnscript.gateway.kinds import InvalidConfig

SIZE = 32
_SHORTEST = 16
_GUESSED = "anybody could guess this one"
_DAMAGED = "put back a copy of the file, or remove it and a new key is made, which opens nothing that was sealed before"

_GONE = "put back a copy of the file, or leave it out, and what it has sealed is not opened any more"


def signing_key(signing: Signing) -> bytes:
    """The key: of the variable, of the file, which is made if there is none, else one that nobody knows later.

    Raises InvalidConfig for a file that cannot be read or made, or is too short to be a key.
    """
    if signing.key is not None:
        return _derived(signing.key.reveal().encode(), "signing.key_env", "a key for thoughts", _GUESSED)
    if signing.file is None:
        return secrets.token_bytes(SIZE)
    try:
        return _derived(_kept(signing.file), "signing.file", f"the key for thoughts in {signing.file}", _DAMAGED)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        remedy = "set another path, or :memory: where it need not outlast the server (TURNSCRIPT_SIGNING_FILE=:memory:)"
        message = f"cannot keep the key for thoughts in {signing.file}: {reason}; {remedy}"
        raise InvalidConfig(message, path="signing.file") from None


def former_keys(signing: Signing) -> list[bytes]:
    """The keys that were used before. Raises InvalidConfig for one that cannot be read, or is too short to be a key."""
    found = []
    for path in signing.former:
        try:
            given = path.read_bytes()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"cannot read the key for thoughts in {path}: {reason}"
            raise InvalidConfig(message, path="signing.former") from None
        found.append(_derived(given, "signing.former", f"the key for thoughts in {path}", _GONE))
    given_by_name = [key.reveal().encode() for key in signing.retired]
    return found + [_derived(key, "signing.former_env", "a key for thoughts", _GUESSED) for key in given_by_name]


def _derived(given: bytes, path: str, what: str, remedy: str) -> bytes:
    """Any text will do for a key, if it is long enough."""
    if len(given.strip()) < _SHORTEST:
        message = f"{what} must have at least {_SHORTEST} characters; {remedy}"
        raise InvalidConfig(message, path=path, expected=f"at least {_SHORTEST} random characters")
    return hashlib.sha256(given.strip()).digest()


def _kept(path: Path) -> bytes:
    """What the file holds. Of several servers that start at once, one makes it and all read the same."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "w", encoding="ascii") as out:
            out.write(f"{secrets.token_hex(SIZE)}\n")
            out.flush()
            os.fsync(file)
        with suppress(FileExistsError):
            os.link(made, path)  # unlike a rename, this never replaces what another server has made meanwhile
    finally:
        made.unlink(missing_ok=True)
    return path.read_bytes()


def may_hold(request: Request) -> bool:
    """Whether a request has anything that may have a seal, which most have not."""
    kinds = set(map(type, request.conversation.items))
    return Thinking in kinds or Opaque in kinds


def held(request: Request, compacting: Compacting | None, most: int) -> int:
    """How many bytes the seals of a request unpack to, on thoughts and summaries. Of more than `most`, as many as it
    takes to know that."""
    size = 0
    for seal in _seals(request, compacting):
        size += unpacked_size(seal, most - size)
        if size > most:
            break
    return size


def _seals(request: Request, compacting: Compacting | None) -> Iterator[str]:
    yield from proofs(request.items)
    if compacting is not None:
        yield from (proof for item in request.items if (proof := compacting.proof(item)))
