"""Owns the list of formats, APIs and backends: every module of their packages, installed entry points, then files.

A file dropped into a package is registered: it ends in `FORMATS = (...)`, `APIS = (...)` or `BACKENDS = (...)`. Third
parties use the entry point groups `turnscript.formats`, `turnscript.apis` and `turnscript.backends`, each entry naming
such a tuple. The formats of well-known models are tables in TOML, in the folder `formats/tables`: they have names and a
list of their own, and are read when they are named. A format that somebody declared in TOML is in no list; where a name
is taken, its path is too: `my.toml`, `my.toml#name`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from msgspec import Struct

from turnscript.apis.api import Api
from turnscript.backends.backend import Backend
from turnscript.core.clues import Clue
from turnscript.core.errors import UnknownName, UpstreamError
from turnscript.core.framing import SSE, Framing, framing_of, says_nothing
from turnscript.core.json_text import Json, is_object, read_object
from turnscript.formats.format import Format
from turnscript.tableio import InvalidFormat, Outline, read_formats, read_outlines

# By name: the package's public functions `formats` and `apis` hide the subpackages of the same names.
_FORMATS = importlib.import_module("turnscript.formats")
_APIS = importlib.import_module("turnscript.apis")
_BACKENDS = importlib.import_module("turnscript.backends")


def formats() -> list[str]:
    """The names of the registered prompt formats. Those of well-known models have a list of their own."""
    return list(_formats())


def model_formats() -> list[str]:
    """The names of the formats of well-known models: tables that come with the package."""
    return list(_tables())


def apis() -> list[str]:
    """The names of all chat APIs."""
    return list(_apis())


def backends() -> list[str]:
    """The names of the backends that continue text: the kinds of model servers that take a prompt."""
    return [name for name, backend in _backends().items() if not backend.endpoint]


def chat_backends() -> list[str]:
    """The names of the backends with a chat API, to which a request is passed on."""
    return [name for name, backend in _backends().items() if backend.endpoint]


def get_format(name: str) -> Format:
    """The format of that name, or of a file: `my.toml`, `my.toml#name` if it declares several.

    Raises UnknownName with the nearest ones, and InvalidFormat for a file that is not as it should be.
    """
    known = _formats()
    try:
        if name in known:
            return known[name]
        path, member = _file_of(name)
        has_table = not path and name in _tables()
    except _NO_TEXT:
        path, member, has_table = "", "", False
    if has_table:
        return _of_table(name)
    if not path:
        raise UnknownName("format", name, named_formats())
    found = {format_.name: format_ for format_ in load_formats(Path(path))}
    if member or len(found) == 1:
        member = member or next(iter(found))
        if member not in found:
            raise UnknownName(f"format in {path}:", member, found)
        return found[member]
    several = " or ".join(f"{path}#{one}" for one in found)
    raise InvalidFormat(f"{path} declares {len(found)} formats; say which: {several}", expected=several, got=name)


def is_format(name: str) -> bool:
    """Whether a name is that of a format, or of a file that may declare one."""
    try:
        if name in _formats():
            return True
        return name not in _apis() and (bool(_file_of(name)[0]) or name in _tables())  # most are APIs': no file is read
    except _NO_TEXT:
        return False


def named_formats() -> Mapping[str, Format]:
    """All formats that have names: the registered ones, then those of well-known models, each read when it is taken."""
    return _Named()


def clues() -> dict[str, tuple[Clue, ...]]:
    """What tells that a model takes a format, for all formats that have names."""
    return {name: table.outline.clues for name, table in _tables().items()} | {
        name: format_.clues for name, format_ in _formats().items()
    }


def title_of(name: str) -> str:
    """The title of a format that has a name."""
    known = _formats()
    return known[name].title if name in known else _tables()[name].outline.title


def variants_of(name: str) -> list[str]:
    """The variants of a format that has a name. Tables have none."""
    known = _formats()
    return list(known[name].variants) if name in known else []


def openings(name: str) -> frozenset[str]:
    """What opens the turns of a format that has a name, without white space around. No table is built for that."""
    known = _formats()
    if name in known:
        return frozenset(turn.open.strip() for turn in known[name].document.turns if turn.open)
    outline = _tables()[name].outline
    return frozenset(outline.openings) | (openings(outline.based_on) if outline.based_on else frozenset())


def load_formats(source: str | Path) -> list[Format]:
    """The formats that a TOML text, or the file at a path, declares. Raises InvalidFormat with the key."""
    if isinstance(source, str) and ("\n" in source or not source.endswith(_SUFFIX)):
        return list(_tried(source))
    try:
        return list(_tried(Path(source).read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InvalidFormat(f"cannot read the format file {source}: {reason}", expected="a TOML file") from None
    except InvalidFormat as error:
        error.message = f"{error.message} (in {source})"
        raise


def get_api(name: str) -> Api:
    """The API of that name, or of that `origin` label in an archived transcript. Raises UnknownName."""
    known = _apis()
    try:
        if name in known:
            return known[name]
    except _NO_TEXT:
        raise UnknownName("API", name, known) from None
    for api in known.values():
        if api.origin == name:
            return api
    raise UnknownName("API", name, known)


def lookup(name: str) -> Api | Format:
    """The API or format of that name. Raises UnknownName with the nearest ones of both kinds."""
    if is_format(name):
        return get_format(name)
    try:
        return get_api(name)
    except UnknownName:
        raise UnknownName("API or format", name, [*apis(), *named_formats()]) from None


def framings() -> list[Framing]:
    """Return how streams of the APIs are framed, the most usual way first."""
    return list(dict.fromkeys([SSE, *(framing for api in _apis().values() for framing in api.framings.values())]))


def claiming_api(name: str, members: Mapping[str, Json], framing: Framing) -> Api | None:
    """Return the API that claims a frame most surely, of those whose streams may be framed so; None if none does."""
    claims = {one: one.claims_event(name, members) for one in _apis().values() if framing in one.framings.values()}
    best = max(claims, key=lambda one: claims[one])
    return best if claims[best] else None


def stream_begun(data: bytes) -> bool | None:
    """Return whether bytes are the beginning of a recorded stream; None as long as more of them must tell.

    Nothing else begins as server-sent events do. Bodies may stand in an array, too: of that, an API must claim the
    first element as one of its frames.
    """
    if data[:1] == b"{":  # as nearly all sources do
        return False
    if says_nothing(data):
        return None
    framing = framing_of(data, framings())
    if framing is SSE:
        return SSE.begins.match(data) is not None
    reader = framing.reader()
    for start in range(0, min(len(data), _BEGINNING), _LOOKED_AT):
        try:
            frames = reader.feed(data[start : start + _LOOKED_AT])
        except UpstreamError:
            return False
        for name, text in frames:
            return is_object(text) and claiming_api(name, read_object(Json(text)), framing) is not None
    return None if len(data) < _BEGINNING else False


def is_stream(source: object) -> TypeGuard[bytes | str]:
    """Return whether a source is a recorded stream, by how it begins."""
    if not isinstance(source, bytes | str):
        return False
    begun = source[:_BEGINNING]
    return stream_begun(begun if isinstance(begun, bytes) else begun.encode("utf-8", "replace")) or False


def api_at(endpoint: str) -> Api:
    """The API of an endpoint. Raises UnknownName."""
    known = {api.endpoint: api for api in _apis().values()}
    if endpoint in known:
        return known[endpoint]
    raise UnknownName("endpoint", endpoint, known)


def origin_of(origin: str | None) -> Api | None:
    """The API that something came from, if it is registered here."""
    try:
        return get_api(origin) if origin else None
    except UnknownName:
        return None


def get_backend(name: str) -> Backend:
    """The backend of that name. Raises UnknownName."""
    known = _backends()
    if name in known:
        return known[name]
    raise UnknownName("backend", name, known)


_BEGINNING = 1 << 20
"""The most bytes that are looked at to tell a stream from other things."""
_LOOKED_AT = 1 << 12
_SUFFIX = ".toml"
_NONE_DECLARED = {"api", "backend", "format", "serving", "shared", "streams"}
"""The modules of those packages that declare nothing: contracts, and what several of a kind share."""
_NO_TEXT = (AttributeError, TypeError)
"""What a name raises that is none: a path, a format itself, None."""


def _file_of(name: str) -> tuple[str, str]:
    """The path and the member that a name means, both empty if it is no path of a file with formats."""
    if name.endswith(_SUFFIX):
        return name, ""
    path, _, member = name.rpartition("#")
    return (path, member) if path.endswith(_SUFFIX) and member else ("", "")


@lru_cache(maxsize=128)
def _read(text: str) -> tuple[Format, ...]:
    """The same text gives the same formats, so that what is derived from a table is derived once."""
    return tuple(read_formats(text, named_formats(), tried=True))


@lru_cache(maxsize=64)
def _tried(text: str) -> tuple[Format, ...]:
    """The same, of which it is tried that they read what they write. Raises InvalidFormat."""
    read_formats(text, named_formats())
    return _read(text)


class _Table(Struct, frozen=True):
    """A format in a file of the package: its outline, and the text of the file, which may declare several."""

    outline: Outline
    text: str


@cache
def _tables() -> dict[str, _Table]:
    """The formats of well-known models by name. A registered format of the same name hides one."""
    # Where nobody names one, nothing is loaded for them.
    from importlib.resources import files  # noqa: PLC0415

    folder = files(_FORMATS) / "tables"
    names = sorted(file.name.removesuffix(_SUFFIX) for file in folder.iterdir() if file.name.endswith(_SUFFIX))
    texts = [(folder / f"{name}{_SUFFIX}").read_text(encoding="utf-8") for name in names]
    found = [_Table(outline, text) for text in texts for outline in read_outlines(text)]
    return {table.outline.name: table for table in found if table.outline.name not in _formats()}


def _of_table(name: str) -> Format:
    return next(format_ for format_ in _read(_tables()[name].text) if format_.name == name)


class _Named(Mapping[str, Format]):
    """The formats that have names. The registered ones come first, and no file is read for them."""

    def __getitem__(self, name: str) -> Format:
        known = _formats()
        if name in known:
            return known[name]
        if name in _tables():
            return _of_table(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from _formats()
        yield from _tables()

    def __len__(self) -> int:
        return len(_formats()) + len(_tables())


@cache
def _formats() -> dict[str, Format]:
    return {format_.name: format_ for format_ in declared(_FORMATS, "FORMATS")}


@cache
def _apis() -> dict[str, Api]:
    return {api.name: api for api in declared(_APIS, "APIS")}


@cache
def _backends() -> dict[str, Backend]:
    return {backend.name: backend for backend in declared(_BACKENDS, "BACKENDS")}


def declared(package: ModuleType, attribute: str) -> Iterator[Any]:
    """Give what the modules of a package declare as a tuple of this name, then what other packages bring.

    Those use the entry point group of the same name, such as `turnscript.formats` for `FORMATS`.
    """
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda found: found.name):
        if module.name not in _NONE_DECLARED and not module.name.startswith("_"):
            yield from getattr(importlib.import_module(f"{package.__name__}.{module.name}"), attribute)
    for entry in _installed().select(group=f"turnscript.{attribute.lower()}"):
        yield from entry.load()


@cache
def _installed() -> Any:
    # All groups at once, because every call looks into every package that is installed; and not before somebody asks.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return entry_points()
