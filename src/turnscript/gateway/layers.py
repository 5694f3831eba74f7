"""Owns laying the command line over the environment over the file, so that each value knows where it came from.

A variable is called TURNSCRIPT_, the table and the key: TURNSCRIPT_SERVER_PORT, TURNSCRIPT_MODELS_MAIN_BACKEND. All is
in capitals, and what is no letter or digit is `_`. An empty variable is none.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct

from turnscript.core.errors import InvalidInput
from turnscript.gateway.ai00file import as_ours, is_theirs
from turnscript.gateway.config import DEFAULT, Config, Model, Section, fields_of, key_text
from turnscript.gateway.kinds import COMMAND_LINE, InvalidConfig, Kind, Text, Texts, unknown_key
from turnscript.tableio.prompts import KEYS, SECTION
from turnscript.tableio.tables import read_toml

PREFIX = "TURNSCRIPT_"
MODELS = "models"
FORMATS = "format"
PACKAGE = "turnscript itself"

Place = tuple[str, ...]
_MARK = "the value of a key"


class Origin(Struct, frozen=True):
    """Where a value came from, and the folder that relative paths start from there."""

    name: str
    folder: Path


class Layers(Struct):
    """The values of all layers as one tree of tables; `origins`: of values and tables that are not from the file."""

    tree: dict[str, Any]
    file: Origin
    origins: dict[Place, Origin]
    notes: list[str]

    def origin(self, path: Place) -> Origin:
        """Where the value at a path came from; where there is none, the nearest table around it."""
        around = (path[:end] for end in range(len(path), 0, -1))
        return next((self.origins[one] for one in around if one in self.origins), self.file)

    def put(self, path: Place, value: Any, origin: Origin) -> None:
        """Set a value over what is there. Raises InvalidConfig where a table is needed and something else stands."""
        table = self.tree
        for depth, key in enumerate(path[:-1], 1):
            if key not in table:
                table[key] = {}
                self.origins[path[:depth]] = origin
            table = table[key]
            if not isinstance(table, dict):
                place = dotted(path[:depth])
                raise InvalidConfig("expected a table", path=place, source=self.file.name, expected="a table")
        table[path[-1]] = value
        self.origins[path] = origin


def layered(
    path: Path | None, env: Mapping[str, str], overrides: Mapping[str, Any], shipped: Mapping[str, Any] | None = None
) -> Layers:
    """The file at `path`, if one is given, the environment over it, and `overrides` over both.

    A backend among the `overrides` says which model is meant: those of the file are left out then, so that no key or
    format of theirs meets another server. `shipped`: what the package says of a model of its own that is served beside
    what the others say.
    """
    file = Origin(str(path), path.absolute().parent) if path else Origin("", Path.cwd())
    layers = Layers(_file(path) if path else {}, file, {}, [])
    if path is not None and is_theirs(layers.tree):
        _translate(layers, path)
    if any(map(_is_backend, overrides)) and layers.tree.pop(MODELS, None):
        layers.notes.append(f"the models in {path} are left out, because {COMMAND_LINE} names a backend")
        layers.origins.clear()
    _lay_environment(layers, env)
    _lay(layers, overrides, COMMAND_LINE)
    _lay(layers, shipped or {}, PACKAGE)
    return layers


def _translate(layers: Layers, path: Path) -> None:
    """Put what a file of ai00's says in place of its sections, for the model that options of the command line mean."""
    ours = as_ours(layers.tree, path, fields_of(Config).keys() | {MODELS, FORMATS})
    layers.tree = ours.top
    for key, value in ours.model.items():
        layers.put((MODELS, DEFAULT, key), value, Origin(f"{path} [{ours.sections[key]}]", layers.file.folder))
    layers.notes.append(ours.note)


def _lay(layers: Layers, said: Mapping[str, Any], name: str) -> None:
    for key, value in said.items():
        place = parts_of(key)
        kind = kind_at(place)
        if kind is None:
            raise unknown_key(key, key, sorted(_shown_paths()), name)
        if value is not None:
            told = kind.of_text(value) if isinstance(value, str) else value
            layers.put(place, told, Origin(name, Path.cwd()))


def _is_backend(key: str) -> bool:
    place = parts_of(key)
    return place[:1] == (MODELS,) and place[2:] == ("backend",)


def dotted(path: Place) -> str:
    """A path as TOML writes it."""
    return ".".join(map(key_text, path))


def parts_of(key: str) -> Place:
    """The parts of a dotted key as TOML has it, quotes included. Raises InvalidConfig."""
    try:
        table: Any = tomllib.loads(f"{key} = '{_MARK}'")
    except (ValueError, RecursionError):  # also of digits and brackets that a line break brings in
        table = None
    parts: list[str] = []
    while isinstance(table, dict) and len(table) == 1:
        ((part, table),) = table.items()
        parts.append(part)
    if table != _MARK:
        raise InvalidConfig(f"{key!r} is no key of a setting; write it like server.port", source=COMMAND_LINE)
    return tuple(parts)


def kind_at(path: Place) -> Kind | None:
    """The kind of the setting at a path, None if there is none."""
    if len(path) > 2 and path[0] == MODELS:
        return dict(leaves_of(Model)).get(path[2:])
    return _fixed().get(path)


def leaves_of(struct: type[Struct]) -> Iterator[tuple[Place, Kind]]:
    """The settings of a table and the tables inside it, by their path."""
    for name, kind in fields_of(struct).items():
        if isinstance(kind, Section):
            yield from (((name, *path), leaf) for path, leaf in leaves_of(kind.kind))
        else:
            yield (name,), kind
            if name == SECTION:
                yield from _of_prompts()


def variable(path: Place) -> str:
    """The environment variable for a path."""
    return PREFIX + "_".join(map(_capitals, path))


def _of_prompts() -> Iterator[tuple[Place, Kind]]:
    """The keys of ai00's section. Those for several strings end in an s."""
    for key in KEYS:
        yield (SECTION, key), Texts() if key.endswith("sequences") else Text(empty=True)


@cache
def _fixed() -> dict[Place, Kind]:
    """The settings that are in no model."""
    return dict(leaves_of(Config)) | dict(_of_prompts())


def _shown_paths() -> list[str]:
    return [dotted(path) for path in _fixed()] + [dotted((MODELS, "NAME", *path)) for path, _ in leaves_of(Model)]


def _capitals(name: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", name.upper())


def _file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidConfig("this is not UTF-8 text", path=str(path), expected="a TOML file") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidConfig(f"cannot read the configuration: {reason}", path=str(path)) from None
    try:
        return read_toml(text)
    except InvalidInput as error:
        place = f"{path}:{error.line}:{error.column}"
        raise InvalidConfig(error.message, path=place, expected="TOML") from None


# The environment.


def _lay_environment(layers: Layers, env: Mapping[str, str]) -> None:
    fixed = {variable(path): path for path in _fixed()}
    sections = {variable((path[0],)) + "_": path[0] for path in _fixed()}
    for name in sorted(env):
        value = env[name]
        if not name.startswith(PREFIX) or not value:
            continue
        if name.startswith(variable((MODELS,)) + "_"):
            path = _path_in_model(name, layers.tree.get(MODELS, {}))
        elif name in fixed:
            path = fixed[name]
        else:
            section = next((section for start, section in sections.items() if name.startswith(start)), None)
            if section is not None:
                raise unknown_key(name, name, [one for one in fixed if fixed[one][0] == section], "the environment")
            continue
        kind = kind_at(path)
        assert kind is not None
        layers.put(path, kind.of_text(value), Origin(name, Path.cwd()))


def _path_in_model(name: str, models: Any) -> Place:
    """The path that a variable of a model means: of a model in the file if one fits, else of one that it makes."""
    keys = {"_" + variable(path).removeprefix(PREFIX): path for path, _ in leaves_of(Model)}
    rest = name.removeprefix(variable((MODELS,)))
    declared = [model for model in models if isinstance(models, dict)]
    fits = [
        (model, keys[ending])
        for model in declared
        if rest.startswith(start := f"_{_capitals(model)}") and (ending := rest.removeprefix(start)) in keys
    ]
    if len(fits) > 1:
        several = " and ".join(dotted((MODELS, model, *key)) for model, key in fits)
        message = f"this variable could mean {several}; set one of them in the file, or rename a model"
        raise InvalidConfig(message, path=name, source="the environment")
    if fits:
        model, key = fits[0]
        return (MODELS, model, *key)
    ending = max((one for one in keys if rest.endswith(one)), key=len, default="")
    made = rest.removesuffix(ending).removeprefix("_").lower()
    if not ending or not made:
        raise unknown_key(name, name, [f"{variable((MODELS, 'NAME'))}{one}" for one in keys], "the environment")
    return (MODELS, made, *keys[ending])
