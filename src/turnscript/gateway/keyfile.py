"""Owns changing a file of keys: adding and removing a line, so that readers see the old file or the new one."""

from __future__ import annotations

import base64
import os
import secrets
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from turnscript.core.errors import UnknownName
from turnscript.gateway.config import Limits, Policy, fields_of
from turnscript.gateway.invalidconfig import InvalidConfig
from turnscript.gateway.keys import (
    ID_LENGTH,
    KEY_LIMITS,
    PREFIX,
    Entry,
    check_name,
    digest_of,
    own_settings,
    read_entries,
)
from turnscript.gateway.secret import Secret

if sys.platform != "win32":
    import fcntl

_MODE = 0o600
_HEAD = b"# API keys of turnscript serve, one a line. The keys themselves are not in here.\n"


def add_key(
    path: Path, name: str, limits: Mapping[str, Any] | None = None, policy: Mapping[str, Any] | None = None
) -> Secret:
    """Make a key and its line. The key is returned and never seen again.

    `limits`, `policy`: TOML values that differ from the configuration. Raises InvalidConfig, OSError.
    """
    check_name(name, "name")
    own_settings(limits or {}, Limits, KEY_LIMITS, "limits")
    own_settings(policy or {}, Policy, tuple(fields_of(Policy)), "policy")
    with _changing(path) as lines:
        entries = read_entries(b"\n".join(lines), str(path))
        if any(entry.key.name == name for entry in entries.values()):
            raise InvalidConfig(f"there is a key called {name!r} already", path="name", expected="another name")
        id_ = _new_id(entries)
        token = f"{PREFIX}{id_}-{secrets.token_urlsafe(32)}"
        salt = secrets.token_bytes(16)
        line: dict[str, Any] = {
            "name": name,
            "id": id_,
            "salt": salt.hex(),
            "hash": digest_of(token, salt).hex(),
            "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        line |= {key: dict(value) for key, value in (("limits", limits), ("policy", policy)) if value}
        lines.append(msgspec.json.encode(line))
    return Secret(token)


def remove_key(path: Path, name: str) -> None:
    """Remove the line of a key. Raises UnknownName, InvalidConfig, OSError."""
    with _changing(path) as lines:
        entries = read_entries(b"\n".join(lines), str(path))
        if name not in [entry.key.name for entry in entries.values()]:
            raise UnknownName("key", name, [entry.key.name for entry in entries.values()])
        lines[:] = [line for line in lines if not _is_of(line, name, str(path))]


def _is_of(line: bytes, name: str, source: str) -> bool:
    return any(entry.key.name == name for entry in read_entries(line, source).values())


def _new_id(taken: Mapping[str, Entry]) -> str:
    while True:
        id_ = base64.b32encode(secrets.token_bytes(8)).decode().lower()[:ID_LENGTH]
        if id_ not in taken:
            return id_


@contextmanager
def _changing(path: Path) -> Iterator[list[bytes]]:
    """The lines of the file, to be changed; the changed file takes its place at the end, whole.

    The folder is locked meanwhile, so that no change of another process is lost.
    """
    real = Path(os.path.realpath(path))
    with _locked(real.parent):
        old = None
        with suppress(FileNotFoundError):
            old = real.stat()
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise InvalidConfig("this is no plain file, and a file of keys is replaced whole", path=str(path))
        lines = real.read_bytes().rstrip(b"\n").split(b"\n") if old else [_HEAD.rstrip(b"\n")]
        yield lines
        _replace(real, b"\n".join(lines) + b"\n", old)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    place = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _replace(path: Path, data: bytes, old: os.stat_result | None) -> None:
    """Write beside and rename. The owner stays, and nobody gets more rights than before."""
    made = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE)
        with open(file, "wb") as out:
            if old is not None:
                _keep_rights(file, old)
            out.write(data)
            out.flush()
            os.fsync(file)
        os.replace(made, path)
    finally:
        made.unlink(missing_ok=True)


def _keep_rights(file: int, old: os.stat_result) -> None:
    if sys.platform != "win32":
        with suppress(PermissionError):
            os.fchown(file, old.st_uid, old.st_gid)
            os.fchmod(file, stat.S_IMODE(old.st_mode) & 0o640)
