"""Owns asking a gateway whether it is there, and which model it has.

Loaded when one is asked: what speaks HTTP takes a sixth of the time in which a command starts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urljoin
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

import msgspec
from msgspec import Struct

from turnscript.cli.agents.gateway import Found, is_local
from turnscript.cli.failures import Failed

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


class _Staying(HTTPRedirectHandler):
    """Goes nowhere else: the key is for the address that was given, and would go along."""

    def redirect_request(self, *args: Any, **named: Any) -> None:
        """Not at all."""


def ask(url: str, key: str | None, model: str | None) -> Found:
    """The gateway at `url`, and the model that it serves under a name, or its first. Raises Failed."""
    opener = build_opener(_Staying(), *([ProxyHandler({})] if is_local(url) else []))

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
    if error.code < 400:
        where = urljoin(error.url, error.headers.get("location", "")).removesuffix(error.url.removeprefix(place))
        remedy = f"if that is the gateway, say --url {where}; a key is not sent there unasked"
        return Failed(f"what answers here says that it is elsewhere ({error.code})", place=place, remedy=remedy)
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
