"""Owns reading the models of the configuration: their settings, their keys and formats, and what contradicts."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from turnscript.convert.registry import get_backend, named_formats
from turnscript.core.errors import InvalidInput, UnknownName, Unsupported
from turnscript.detection.place import read_place
from turnscript.formats.format import Format
from turnscript.gateway.config import Model
from turnscript.gateway.kinds import AUTO, UNFIT, InvalidConfig, Secret, fits_header, found_words, looks_secret
from turnscript.gateway.layers import FORMATS, MODELS, Layers, Place, dotted
from turnscript.gateway.modelformat import Found, check_fill_order, detected, named, prompted, written
from turnscript.gateway.modelheaders import read_headers
from turnscript.tableio import read_formats
from turnscript.tableio.prompts import SECTION
from turnscript.tableio.writing import write_toml

_KEYS = ("api_key", "api_key_env", "api_key_file")
NOTHING = Found(None, "")
_OF_CHATS = frozenset(
    {"backend", "kind", "extra", "drop", "also", *_KEYS, "headers", "headers_env", "headers_file", "upstream_model"}
    | {"aliases", "preset", "sampling", "context", "trained_context", "max_tokens", "max_tokens_limit", "slots"}
    | {"timeouts", "state", "saved_slots"}
)
"""Settings of a model whose server has a chat API, and those that another check refuses. The others are of prompts."""


class Reads(Protocol):
    """What is needed of the reader of the configuration."""

    layers: Layers
    notes: list[str]

    def table(self, kind: type[Struct], at: Place, given: Any, more: Any = ()) -> dict[str, Any]:
        """The settings of a table that are set and right."""

    def wrong(self, at: Place, message: str, value: Any = None, *, expected: str = "", quiet: bool = False) -> None:
        """Note an error at a place."""

    def add(self, error: InvalidConfig) -> None:
        """Note an error."""

    def secret_in_variable(self, at: Place, name: str) -> Secret | None:
        """The secret in an environment variable."""

    def secret_in_file(self, at: Place, path: Path, *, words: bool = False) -> Secret | None:
        """The secret that a file holds. `words`: it may have spaces in it."""


def read_models(reader: Reads, tree: Mapping[str, Any]) -> tuple[Model, ...]:
    """All models that are right; what is wrong is noted."""
    own, changed = _declared(reader, tree), _changed(reader, tree)
    given = tree.get(MODELS, {})
    if not isinstance(given, dict):
        reader.wrong((MODELS,), f"expected tables such as [{MODELS}.main], found {found_words(given)}")
        return ()
    found = [_read(reader, name, table, own, changed) for name, table in given.items()]
    models = tuple(model for model in found if model is not None)
    _check_aliases(reader, models)
    taken = [model.takes.name for model in models if model.takes is not None]
    if changed.format is not None and changed.format.name not in taken:
        reader.notes.append(
            f"[{SECTION}] counts for no model: it is for those whose format is ai00's; "
            'say where one runs, with --backend or [listen], or give it format = "ai00-v1"'
        )
    return models


def _read(reader: Reads, name: str, given: Any, own: Mapping[str, Format], changed: Found) -> Model | None:
    at = (MODELS, name)
    if not name.strip() or not name.isprintable():
        reader.wrong(at, "a model needs a name that can be typed")
        return None
    read = reader.table(Model, at, given)
    usable = "backend" in read
    if isinstance(given, dict) and "backend" not in given:
        reader.wrong((*at, "backend"), "this model has no backend; say where it runs", expected="a URL")
    model = Model(name=name, **({"backend": ()} | read))
    _check_tokens(reader, at, model)
    _check_local(reader, at, model)
    _check_kind(reader, at, model)
    model = replace(model, own=_known(own, changed))
    if model.relays:
        found = NOTHING
        for key in [key for key in read if key not in _OF_CHATS]:
            reader.wrong(
                (*at, key), f"the backend is of the kind {model.kind!r}, which takes no prompt: leave this out"
            )
    elif model.template is not None:
        model, found = _templated(reader, at, model)
    else:
        found = _format(reader, at, model, own, changed)
        model = replace(model, reads=found.undated)
    try:
        check_fill_order(found.format, model.fill_order)
    except (InvalidInput, UnknownName, Unsupported) as error:
        reader.wrong((*at, "fill_order"), str(error))
    told: dict[str, Any] = {"takes": found.format, "why": found.why, "guessed": found.guessed, "guess": found.guess}
    model = replace(model, key=_key(reader, at, model), settled=found.settled, older=found.older, **told)
    if model.headers is not None:
        _warn_of_readers(reader, (*at, "headers"))
    return replace(model, sends=read_headers(reader, at, model)) if usable else None


def _key(reader: Reads, at: Place, model: Model) -> Secret | None:
    """The key for the backend, from wherever it is."""
    given = [key for key in _KEYS if getattr(model, key) is not None]
    if len(given) > 1:
        reader.wrong((*at, given[1]), f"give one of {' and '.join(given)}")
    elif model.api_key is not None:
        _warn_of_readers(reader, (*at, "api_key"))
        return model.api_key
    elif model.api_key_env is not None:
        return _sent(reader, (*at, given[0]), reader.secret_in_variable((*at, given[0]), model.api_key_env))
    elif model.api_key_file is not None:
        return _sent(reader, (*at, given[0]), reader.secret_in_file((*at, given[0]), model.api_key_file))
    return None


def _sent(reader: Reads, at: Place, key: Secret | None) -> Secret | None:
    """A key, if it can be sent."""
    if key is not None and not fits_header(key.reveal()):
        reader.wrong(at, f"the key that this names {UNFIT}")
    return key


def _warn_of_readers(reader: Reads, at: Place) -> None:
    """A key in a file that others may read is worth a word."""
    name = reader.layers.origin(at).name
    if name != reader.layers.file.name:
        return
    try:
        open_to_others = Path(name).stat().st_mode & stat.S_IROTH
    except OSError:
        return
    if open_to_others:
        reader.notes.append(f"{name} holds {dotted(at)} and everybody on this machine may read it: chmod 600 {name}")


def _check_tokens(reader: Reads, at: Place, model: Model) -> None:
    most, context = model.max_tokens_limit, model.context
    if most is not None and model.max_tokens is not None and model.max_tokens > most:
        message = f"this is more than max_tokens_limit, which is {most}"
        reader.wrong((*at, "max_tokens"), message, expected=f"at most {most}")
    if context is not None and model.max_tokens is not None and model.max_tokens >= context:
        message = f"this leaves no room for a prompt: context is {context}"
        reader.wrong((*at, "max_tokens"), message, expected=f"less than {context}")


def _check_local(reader: Reads, at: Place, model: Model) -> None:
    """What runs or lies on this machine must be there."""
    for address in model.backend:
        if not address.is_web and _missing(address.path):
            message = f"there is no file or folder {address.target}"
            reader.wrong((*at, "backend"), message, expected="a path that exists")


def _check_kind(reader: Reads, at: Place, model: Model) -> None:
    """What a backend can do is known where its kind is said."""
    if model.kind == AUTO:
        return
    backend, is_one = get_backend(model.kind), f"the backend is of the kind {model.kind!r}"
    if model.state is not None and not backend.begins:
        reader.wrong((*at, "state"), f"{is_one}, which has no states to begin from")
    if model.prepend_tokens and backend.no_ids:
        message = f"{is_one}, before whose prompts no token can stand: {backend.no_ids}"
        reader.wrong((*at, "prepend_tokens"), message)
    if model.saved_slots and not backend.keeps:
        reader.wrong((*at, "saved_slots"), f"{is_one}, which saves no slots")


def _missing(path: Path) -> bool:
    """Whether nothing is there. Not `exists`: since Python 3.14 that takes what may not be reached for missing."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    return False


def _check_aliases(reader: Reads, models: tuple[Model, ...]) -> None:
    """An alias, or a name, that two models claim would hide one of them. In aliases, case does not count."""
    names, owners = {model.name for model in models}, dict[str, str]()
    for model in models:
        for alias in model.aliases:
            owner = alias if alias in names else owners.setdefault(alias.lower(), model.name)
            if owner != model.name:
                reader.wrong((MODELS, model.name, "aliases"), f"{alias!r} already means the model {owner!r}")


# Formats.


def _declared(reader: Reads, tree: Mapping[str, Any]) -> dict[str, Format]:
    """The formats that the file itself declares."""
    if FORMATS not in tree:
        return {}
    try:
        return {one.name: one for one in read_formats(write_toml({FORMATS: tree[FORMATS]}), named_formats())}
    except InvalidInput as error:
        place = error.path or FORMATS
        reader.add(InvalidConfig(error.message, path=place, source=reader.layers.file.name, expected=error.expected))
        return {}


def _changed(reader: Reads, tree: Mapping[str, Any]) -> Found:
    """ai00's format as the section at the top changes it."""
    return _prompted(reader, (SECTION,), tree[SECTION]) if SECTION in tree else NOTHING


def _prompted(reader: Reads, at: Place, prompts: Any) -> Found:
    if not isinstance(prompts, dict):
        reader.wrong(at, f"expected a table, found {found_words(prompts)}")
        return NOTHING
    try:
        return prompted(prompts, dotted(at))
    except InvalidInput as error:
        place = dotted(at) if error.path in ("", SECTION) else error.path
        source = reader.layers.file.name
        reader.add(InvalidConfig(error.message, path=place, source=source, expected=error.expected))
        return NOTHING


def _format(reader: Reads, at: Place, model: Model, own: Mapping[str, Format], changed: Found) -> Found:
    if model.prompts is not None and model.format is not None:
        reader.wrong((*at, SECTION), "give one of format and prompts: the prompts make a format of their own")
        return NOTHING
    if model.prompts is not None:
        found = _prompted(reader, (*at, SECTION), model.prompts)
    else:
        found = _picked(reader, at, model, own, changed)
    try:
        return found.finished(model.variant, model.first_token)
    except UnknownName as error:
        reader.wrong((*at, "variant"), str(error))
        return NOTHING


def _templated(reader: Reads, at: Place, model: Model) -> tuple[Model, Found]:
    """Return the model with its chat template, and the format that this makes. Its `format` is the table that reads."""
    if model.prompts is not None:
        reader.wrong((*at, SECTION), "give one of template and prompts: the prompts make a format of their own")
        return model, NOTHING
    assert model.template is not None
    key = "format"
    try:
        reads = named(model.format, model.own).finished(model.variant, None).format if model.format else None
        key = "template"
        model = replace(model, source=read_place(model.template), reads=reads)
        assert model.source is not None
        return model, written(model.source, model.wishes, strict=True)
    except (InvalidInput, UnknownName, Unsupported) as error:
        reader.wrong((*at, key), str(error))
        return model, NOTHING


def _picked(reader: Reads, at: Place, model: Model, own: Mapping[str, Format], changed: Found) -> Found:
    """The format that is named, or that the model's file or names tell. `changed` goes before ai00's own."""
    known = _known(own, changed)
    files = [str(address.path) for address in model.backend if not address.is_web and not _missing(address.path)]
    names = (*files, model.upstream_model or "", model.name)
    try:
        if model.format is not None:
            return named(model.format, known).dated(names)
        found = detected(names, known)
    except (InvalidInput, UnknownName, OSError) as error:
        key = "backend" if model.format is None else "format"
        said = str(error) if isinstance(error, UnknownName) else _said(error)
        reader.wrong((*at, key), "unknown format" if looks_secret(model.format) else said)
        return NOTHING
    return found if found.format is not None else Found(changed.format, changed.why or found.why)


def _known(own: Mapping[str, Format], changed: Found) -> Mapping[str, Format]:
    """The formats of the configuration, which go before others of the same name."""
    return own if changed.format is None else {changed.format.name: changed.format, **own}


def _said(error: InvalidInput | OSError) -> str:
    if isinstance(error, OSError):
        return f"cannot read this: {(error.strerror or str(error)).lower()}"
    return str(error)
