"""Owns the addresses of backends: URLs, models that run inside the gateway, and recordings that are played again."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

EMBEDDED = "embedded:"
REPLAY = "replay:"
_MODEL_FILE = ".gguf"
_WEB = ("http", "https")


class Address(Struct, frozen=True):
    """Where a model runs. `scheme`: `http`, `https`, `embedded` or `replay`; `target`: the URL or the absolute path."""

    scheme: str
    target: str

    @property
    def is_web(self) -> bool:
        """Whether it is a server that is reached over HTTP."""
        return self.scheme in _WEB

    @property
    def path(self) -> Path:
        """The file or folder, where it is none."""
        return Path(self.target)

    def __str__(self) -> str:
        return self.target if self.is_web else f"{self.scheme}:{self.target}"


def read_address(text: str, folder: Path) -> Address:
    """An address as it is written. Relative paths start at `folder`. Raises ValueError, which never quotes the text:
    people put passwords into URLs."""
    for prefix in (EMBEDDED, REPLAY):
        if text.startswith(prefix):
            return _local(prefix, text.removeprefix(prefix).strip(), folder)
    if any(character.isspace() or not character.isprintable() for character in text.strip()):
        raise ValueError("a URL has no spaces in it")
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname, url.port
    except ValueError:
        raise ValueError("this is not a URL; it is written like http://127.0.0.1:8080") from None
    if url.username is not None or "@" in url.netloc:
        raise ValueError("a URL must not hold a name or password; use api_key_env, or headers_env for these")
    if url.scheme not in _WEB or not host:
        if text.strip().lower().endswith(_MODEL_FILE):
            raise ValueError(f"a model file needs `{EMBEDDED}` before its path")
        raise ValueError("a URL begins with http:// or https://, like http://127.0.0.1:8080")
    if url.query or url.fragment:
        raise ValueError("a URL of a backend has no `?` and no `#`; use api_key_env or api_key_file for keys")
    if port == 0:
        raise ValueError("no server has the port 0")
    return Address(url.scheme, text.strip().rstrip("/"))


def _local(prefix: str, path: str, folder: Path) -> Address:
    if not path or "\0" in path:
        raise ValueError(f"a path must follow {prefix}")
    try:
        found = folder / Path(path).expanduser()
    except RuntimeError:
        raise ValueError("there is no home folder that `~` could stand for") from None
    return Address(prefix.removesuffix(":"), str(found))
