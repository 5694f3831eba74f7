"""Owns telling which kind a model server is: as configured, by the path in its URL, or by asking it.

A path says which API is meant, and many write `/v1` out of habit, before a server that has an API of its own besides.
That one can do more, such as counting tokens and showing control tokens, so it is looked for above the path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import astuple, replace

from turnscript.backends.backend import Backend, Facts
from turnscript.convert.registry import backends, get_backend
from turnscript.gateway.kinds import AUTO
from turnscript.gateway.upstream import Timeouts, Upstream

_PATIENCE = Timeouts(connect=5.0)

Reached = Callable[[str, Backend], Upstream]
"""Gives a server of a kind at a URL, with whatever its requests must carry."""


class Taken(Struct, frozen=True):
    """What a server is taken for, and its URL for that. `refused`: it did not tell for want of a key; `mute`: it was
    asked, and has not answered."""

    backend: Backend
    url: str
    refused: bool = False
    mute: bool = False


async def taken_for(
    url: str, kind: str, key: str | None, headers: Mapping[str, str] | None = None, *, told: bool = True
) -> Taken:
    """The kind of a server: as configured, else of its path, else that to which it tells most. `told`: whether errors
    name the URL.

    Raises UpstreamError where it must be asked and does not answer.
    """

    def reached(at: str, backend: Backend) -> Upstream:
        return Upstream(at, backend, key, _PATIENCE, headers=headers, told=told)

    if kind != AUTO:
        return Taken(get_backend(kind), url)
    known = [get_backend(name) for name in backends()]
    path = urlsplit(url).path.rstrip("/")
    of_path = [backend for backend in known if backend.default_path and path.endswith(backend.default_path)]
    if not of_path:
        return await _asked(url, known, reached)
    found = max(of_path, key=lambda backend: len(backend.default_path))
    return await _above(url, known, reached, found) if found.generic else Taken(found, url)


def generic() -> Backend:
    """The kind that a server is taken for that tells nothing of itself."""
    return next(backend for backend in map(get_backend, backends()) if backend.generic)


async def _asked(url: str, known: Sequence[Backend], reached: Reached) -> Taken:
    """The kind to which a server tells most. All is asked at once: one that is mute is waited for once."""
    async with reached(url, generic()) as upstream:
        kinds = asyncio.gather(*(_told(url, backend, reached) for backend in known))
        trouble, asked = await asyncio.gather(upstream.trouble(), kinds)
    refused = any(one.refused for one in asked)
    if any(one.much for one in asked):
        _, _, number = max((one.much, known[number].generic, number) for number, one in enumerate(asked))
        return Taken(known[number], url, refused)
    if trouble is not None:
        raise trouble
    return Taken(generic(), url, refused)


async def _above(url: str, known: Sequence[Backend], reached: Reached, found: Backend) -> Taken:
    """The kind that has no path of its own, if the server is of it above the path that its URL names; else `found`.
    Both places are asked at once: one that is mute is waited for once."""
    root = url.rstrip("/").removesuffix(generic().default_path)
    above = [backend for backend in known if not backend.default_path]
    here, *asked = await asyncio.gather(_told(url, found, reached), *(_told(root, one, reached) for one in above))
    for backend, told in zip(above, asked, strict=True):
        if told.much:
            async with reached(root, backend) as upstream:
                if await upstream.count("a") is not None:  # others tell of themselves in the same words, and no more
                    return Taken(backend, root)
    return Taken(found, url, mute=all(told.mute for told in (here, *asked)))


class _Told(Struct, frozen=True):
    """How much a server tells if it is asked in one way, whether it wants a key for that, and whether it is mute."""

    much: int = 0
    refused: bool = False
    mute: bool = False


async def _told(url: str, backend: Backend, reached: Reached) -> _Told:
    if not backend.facts_calls():
        return _Told()
    async with reached(url, backend) as upstream:
        return _Told(_known(await upstream.facts()), upstream.wants_key, upstream.mute)


def _known(facts: Facts) -> int:
    told = astuple(replace(facts, asked_as=None))  # which says no more than the model's name
    return sum(said != unsaid for said, unsaid in zip(told, astuple(Facts()), strict=True))
