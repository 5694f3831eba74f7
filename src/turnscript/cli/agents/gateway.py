"""Owns asking a gateway whether it is there, and which model it has."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import ProxyHandler, Request, build_opener

import click
import msgspec
from msgspec import Struct

from turnscript.cli.failures import Failed

DEFAULT_URL = "http://127.0.0.1:8400"

_PATIENCE = 5.0
_LONGEST = 1 << 20
_START = "start one: turnscript serve --backend URL; or say where it is: --url URL"


class _Health(Struct):
    """What a gateway says of its health. Model servers may say `status` too, and list models as a gateway does."""

    status: str
    models: dict[str, Any]


class _Entry(Struct):
    id: str
    max_input_tokens: int | None = None


class _Page(Struct):
    data: list[_Entry]


class _Error(Struct):
    message: str


class _Refusal(Struct):
    error: _Error


_Told = TypeVar("_Told")


class Found(Struct, frozen=True):
    """What a gateway says of itself: the model to ask for, and how many tokens it takes, if that is known.

    A gateway takes any name for its default model, unless it was told not to.
    """

    model: str = "default"
    context: int | None = None


def base_url(text: str) -> str:
    """The address of a gateway without a slash or `/v1` at its end. Raises UsageError."""
    url = text.strip().rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment
        fits = bool(fits) and parts.port != 0 and url.isascii() and url.isprintable()
    except ValueError:  # a port or an address in brackets that is none
        fits = False
    if "@" in url:  # what stands before it may be a password, so it is not repeated
        raise click.UsageError("--url must not hold a name or password; give a key of the gateway's with --key")
    if not fits:
        raise click.UsageError(f"--url {text!r} is no address of a gateway; one looks like {DEFAULT_URL}")
    return url


def check_key(key: str) -> None:
    """Raises UsageError for what cannot be sent: something behind or in place of the key was copied with it."""
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise click.UsageError("--key holds a space, a line break or another sign that no key has; copy it once more")


def is_local(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def direct(env: Mapping[str, str], url: str) -> dict[str, str]:
    """Variables that keep a proxy out of the way to this machine itself; none where no proxy is set."""
    proxies = ("http_proxy", "https_proxy", "all_proxy")
    if not is_local(url) or not any(name.lower() in proxies and value for name, value in env.items()):
        return {}
    without = [env.get("no_proxy") or env.get("NO_PROXY") or "", urlsplit(url).hostname or ""]
    return dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(filter(None, without)))


def ask(url: str, key: str | None, model: str | None) -> Found:
    """The gateway at `url`, and the model that it serves under a name, or its first. Raises Failed."""
    opener = build_opener(ProxyHandler({})) if is_local(url) else build_opener()

    def get(path: str, key: str | None, type_: type[_Told]) -> _Told:
        with _answering(url, key):
            headers = {"authorization": f"Bearer {key}"} if key else {}
            with opener.open(Request(f"{url}{path}", headers=headers), timeout=_PATIENCE) as answer:
                return msgspec.json.decode(answer.read(_LONGEST), type=type_)

    get("/health", None, _Health)
    if model is not None:
        entry = get(f"/v1/models/{quote(model, safe='', errors='surrogateescape')}", key, _Entry)
    else:
        models = get("/v1/models", key, _Page).data
        if not models:
            raise Failed("the gateway has no model", place=url, remedy="name one when you start it: --backend URL")
        entry = models[0]
    return Found(entry.id, entry.max_input_tokens)


@contextmanager
def _answering(url: str, key: str | None) -> Iterator[None]:
    """Turn what a server does that is no gateway, or does not serve us, into Failed."""
    try:
        yield
    except HTTPError as error:
        raise _refused(error, url, key) from error
    except URLError as error:
        reason = str(getattr(error.reason, "strerror", None) or error.reason).lower()
        raise Failed(f"no gateway answers: {reason}", place=url, remedy=_START) from error
    except msgspec.MsgspecError as error:
        raise _another(url) from error
    except (OSError, HTTPException) as error:
        raise Failed(f"no gateway answers: {str(error) or type(error).__name__}", place=url, remedy=_START) from error


def _refused(error: HTTPError, place: str, key: str | None) -> Failed:
    with error:
        said = _message(error.read(_LONGEST))
    if error.code in (401, 403):
        remedy = "this one is not known there; `turnscript keys` makes one" if key else "give it with --key KEY"
        return Failed(f"the gateway asks for a key: {said}", place=place, remedy=remedy)
    if error.code == 503 and not said:
        return Failed("the gateway is shutting down", place=place, remedy="wait until it is back")
    if said:
        return Failed(f"the gateway refuses: {said}", place=place)
    return _another(place)


def _another(url: str) -> Failed:
    remedy = f"start one; if this is a model server: turnscript serve --backend {url}; or say where it is: --url URL"
    return Failed("what answers here is no gateway of turnscript", place=url, remedy=remedy)


def _message(body: bytes) -> str:
    """What the body of an error says, in the shape of an API's error; else nothing."""
    try:
        return msgspec.json.decode(body, type=_Refusal).error.message
    except msgspec.MsgspecError:
        return ""
