"""Owns API keys as the server checks them: which key a client has, what it may use, and a file that is read again.

A key is `tsk-`, an id and 256 random bits. The file has a line for each: a JSON object with a name, the id, a salt, and
the SHA-256 of salt and key. The id finds the line, so ten thousand keys cost no more than one, and hashes are compared
in constant time. SHA-256 is enough, and a slow hash such as scrypt would only cost every request: slow hashes protect
passwords, which can be guessed, and nobody guesses 256 random bits.

A file of keys is changed so that readers see the old one or the new one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from turnscript.core.errors import UnknownName
from turnscript.gateway.config import Limits, Policy, fields_of
from turnscript.gateway.kinds import InvalidConfig, Secret, Wrong, found_words, unknown_key

PREFIX = "tsk-"
ID_LENGTH = 12
_TOKEN = re.compile(r"tsk-([a-z2-7]{12})-([A-Za-z0-9_-]{43})")
_NOT = r"\x00-\x1f\x7f\ud800-\udfff"  # no halves of surrogate pairs: a command line may hold bytes that are no text
_NAME = re.compile(rf"[^\s{_NOT}](?:[^{_NOT}]{{0,62}}[^\s{_NOT}])?")
_HEX = re.compile(r"[0-9a-f]{64}")
_SALT = re.compile(r"[0-9a-f]{32}")
_ID = re.compile(rf"[a-z2-7]{{{ID_LENGTH}}}")
_NO_HASH = bytes(32)

KEY_LIMITS = tuple(name for name in fields_of(Limits) if not name.startswith("backend_"))
"""The limits that a key can have of its own."""


class Key(Struct, frozen=True, kw_only=True):
    """A key as the file has it, never the key itself. `own_limits`, `own_policy`: what the configuration has not."""

    name: str
    id: str
    created: str = ""
    own_limits: Mapping[str, Any] = {}
    own_policy: Mapping[str, Any] = {}

    def limits(self, common: Limits) -> Limits:
        """What this key may use."""
        return replace(common, **self.own_limits)

    def policy(self, common: Policy) -> Policy:
        """The policies that hold for this key."""
        return replace(common, **self.own_policy)


class Entry(Struct, frozen=True):
    """A line of the file."""

    key: Key
    salt: bytes
    digest: bytes

    def fits(self, token: str) -> bool:
        """Whether a token is this key."""
        return hmac.compare_digest(self.digest, digest_of(token, self.salt))


_NOBODY = Entry(Key(name="nobody", id=""), bytes(16), _NO_HASH)


class Keys:
    """The keys of a file, which is read again when it has changed.

    A file that cannot be read, or has a fault, changes nothing: the last good keys stay, and `trouble` and the log
    say why.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = monotonic, every: float = 1.0) -> None:
        """Raises InvalidConfig for a file that cannot be read. `every`: seconds between two looks at the file."""
        self.path = path
        self.trouble: InvalidConfig | None = None
        self._clock = clock
        self._every = every
        self._looked = clock()
        self._stamp: tuple[int, ...] | None = None
        self._entries = self._read()

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, bearer: str | None, x_api_key: str | None) -> Key | None:
        """The key that a client has, if either of the two that it may send is one. Some clients send a stale other."""
        self._look()
        return self._match(bearer) or self._match(x_api_key)

    def reload(self) -> bool:
        """Read the file now, whether it looks changed or not. Whether it was good; if not, `trouble` says why."""
        from turnscript.gateway.logs import say  # noqa: PLC0415  (slow to import for those who only write keys)

        try:
            self._entries, self.trouble = self._read(), None
        except InvalidConfig as error:
            self.trouble = error
            say(logging.WARNING, "keys", said=f"the file of keys was not read again, the last good keys stay: {error}")
        else:
            say(logging.INFO, "keys", said=f"the file of keys was read again; keys: {len(self)}")
        self._looked = self._clock()
        return self.trouble is None

    def _match(self, token: str | None) -> Key | None:
        found = _TOKEN.fullmatch(token) if token else None
        if not found or not token:
            return None
        # An unknown id takes as long as a wrong secret.
        entry = self._entries.get(found[1], _NOBODY)
        return entry.key if entry.fits(token) and entry is not _NOBODY else None

    def _look(self) -> None:
        now = self._clock()
        if now - self._looked < self._every:
            return
        self._looked = now
        try:
            stamp = _stamp(os.stat(self.path))
        except OSError:
            stamp = None
        if stamp != self._stamp:
            self._stamp = stamp
            self.reload()

    def _read(self) -> dict[str, Entry]:
        try:
            with open(self.path, "rb") as file:
                self._stamp = _stamp(os.fstat(file.fileno()))
                data = file.read()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            message = f"cannot read the keys: {reason}; `turnscript keys add` makes the file"
            raise InvalidConfig(message, path=str(self.path)) from None
        return read_entries(data, str(self.path))


def digest_of(token: str, salt: bytes) -> bytes:
    """What the file keeps of a key."""
    return hashlib.sha256(salt + token.encode()).digest()


def read_entries(data: bytes, source: str) -> dict[str, Entry]:
    """The keys in a file, by their id. Empty lines and those that begin with `#` are free. Raises InvalidConfig."""
    entries: dict[str, Entry] = {}
    names: set[str] = set()
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip() or line.lstrip().startswith(b"#"):
            continue
        place = f"{source}:{number}"
        entry = _entry(line, place)
        if entry.key.id in entries or entry.key.name in names:
            raise InvalidConfig(f"the key {entry.key.name!r} is there twice; remove one of the lines", path=place)
        entries[entry.key.id] = entry
        names.add(entry.key.name)
    return entries


def check_name(name: object, place: str) -> str:
    """A name for a key. Raises InvalidConfig."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or _TOKEN.search(name):
        expected = "1 to 64 characters without line breaks, no space at either end"
        raise InvalidConfig(f"a key needs a name: {expected}", path=place, expected=expected)
    return name


def own_settings(given: Mapping[str, Any], table: type[Struct], names: tuple[str, ...], place: str) -> dict[str, Any]:
    """What a key has of its own of a table's settings. Raises InvalidConfig."""
    kinds, read = fields_of(table), {}
    for name, value in given.items():
        if name not in names:
            raise unknown_key(place, name, names, "")
        try:
            read[name] = kinds[name].read(value, Path.cwd())
        except Wrong:
            expected = kinds[name].words
            message = f"{name}: expected {expected}, found {found_words(value)}"
            raise InvalidConfig(message, path=place, expected=expected) from None
    return read


class _Line(Struct, forbid_unknown_fields=True):
    """The members of a line."""

    name: str
    id: str
    salt: str
    hash: str
    created: str = ""
    limits: dict[str, Any] = {}
    policy: dict[str, Any] = {}


def _entry(line: bytes, place: str) -> Entry:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # What the decoder says may quote the line, and somebody may have put a key there.
        message = "this is not a line of a file of keys; `turnscript keys add` writes them"
        raise InvalidConfig(message, path=place, expected="a JSON object with name, id, salt and hash") from None
    for text, pattern, what in ((read.id, _ID, "id"), (read.salt, _SALT, "salt"), (read.hash, _HEX, "hash")):
        if not pattern.fullmatch(text):
            raise InvalidConfig(f"the {what} is not as `turnscript keys add` writes it", path=place)
    key = Key(
        name=check_name(read.name, place),
        id=read.id,
        created=read.created,
        own_limits=own_settings(read.limits, Limits, KEY_LIMITS, place),
        own_policy=own_settings(read.policy, Policy, tuple(fields_of(Policy)), place),
    )
    return Entry(key, bytes.fromhex(read.salt), bytes.fromhex(read.hash))


def _stamp(found: os.stat_result) -> tuple[int, ...]:
    """What changes with a file."""
    return (found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino)


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
