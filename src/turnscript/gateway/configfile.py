"""Owns reading the configuration: the layers checked setting by setting, every error found, and what follows from them.

Relative paths in the file start at its folder, those of the environment and the command line at the working folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.gateway.config import Config, Section, Signing, fields_of
from turnscript.gateway.invalidconfig import InvalidConfig, found_words, looks_secret, unknown_key
from turnscript.gateway.kinds import Kind, Wrong
from turnscript.gateway.layers import FORMATS, MODELS, Layers, Place, dotted, kind_at, layered, parts_of
from turnscript.gateway.modelfile import read_models
from turnscript.gateway.reach import check_reach
from turnscript.gateway.secret import Secret
from turnscript.tableio.prompts import SECTION

_STATE = {"memory.path": "memory.db", "store.path": "store.db", "signing.file": "signing.key"}
"""Files that are kept between runs, unless the configuration says where or that they are not to be."""


def load(
    path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
    shipped: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration in the file at `path`, with the environment over it, and `overrides` over both.

    `overrides`: values or texts, by dotted key (`server.port`); where a backend is among them, the models of the file
    do not count. `shipped`: those of a model of the package itself.
    Raises InvalidConfig for the first error that is found; its `others` are the rest.
    """
    environment = os.environ if env is None else env
    layers = layered(Path(path) if path is not None else None, environment, overrides or {}, shipped)
    config = Reader(layers, environment).config()
    check_reach(config)
    return config


def load_setting(path: str | Path | None, env: Mapping[str, str], key: str) -> Any:
    """One setting alone, whatever is wrong with the others; None if it is not set."""
    layers = layered(Path(path) if path is not None else None, env, {})
    place = parts_of(key)
    value: Any = layers.tree
    for part in place:
        value = value.get(part) if isinstance(value, dict) else None
    kind = kind_at(place)
    assert kind is not None
    reader = Reader(layers, env)
    found = None if value is None else reader.setting(kind, place, value)
    reader.finish()
    return found


class Reader:
    """Reads tables of settings, and collects what is wrong with them and where each value came from."""

    def __init__(self, layers: Layers, env: Mapping[str, str]) -> None:
        self.layers = layers
        self.env = env
        self.origins: dict[str, str] = {}
        self.notes = list(layers.notes)
        self._errors: list[InvalidConfig] = []

    def config(self) -> Config:
        """All of it. Raises InvalidConfig."""
        tree = self.layers.tree
        kept = {MODELS, FORMATS, SECTION}
        read = self.table(Config, (), {key: value for key, value in tree.items() if key not in kept}, kept)
        read["signing"] = self._signing(read.get("signing", Signing()))
        for key, name in _STATE.items():
            section, field = key.split(".")
            if key not in self.origins:
                table = read.get(section, fields_of(Config)[section].kind())
                read[section] = replace(table, **{field: self._kept(name)})
        models = read_models(self, tree)
        config = Config(models=models, **read)
        wanted = config.server.default_model
        written = tree.get(MODELS)  # one that is there and wrong has an error of its own
        if wanted not in (None, *(model.name for model in models), *(written if isinstance(written, dict) else ())):
            self.wrong(("server", "default_model"), f"no model is called so; the models are {_listed(models)}", wanted)
        self.finish()
        return replace(config, origins=self.origins, notes=tuple(self.notes))

    def table(self, kind: type[Struct], at: Place, given: Any, more: Any = ()) -> dict[str, Any]:
        """The settings of a table that are set and right. `more`: keys that others read."""
        if not isinstance(given, dict):
            self.wrong(at, f"expected a table, found {found_words(given)}")
            return {}
        known = fields_of(kind)
        read: dict[str, Any] = {}
        for key, value in given.items():
            place = (*at, key)
            what = known.get(key)
            if what is None:
                self.add(unknown_key(dotted(place), key, [*known, *more], self.layers.origin(place).name))
            elif isinstance(what, Section):
                read[key] = what.kind(**self.table(what.kind, place, value))
            else:
                found = self.setting(what, place, value)
                if found is not _NOTHING:
                    read[key] = found
        return read

    def setting(self, kind: Kind, at: Place, value: Any) -> Any:
        """What a setting holds. Where it is wrong, that is noted, and a mark for nothing returned."""
        origin = self.layers.origin(at)
        self.origins[dotted(at)] = origin.name
        try:
            return kind.read(value, origin.folder)
        except Wrong as wrong:
            said = "" if looks_secret(value) and not wrong.quiet else wrong.message
            self.wrong(at, said or f"expected {kind.words}", value, expected=kind.words, quiet=wrong.quiet)
            return _NOTHING

    def wrong(self, at: Place, message: str, value: Any = None, *, expected: str = "", quiet: bool = False) -> None:
        """Note an error at a place. `value`: what was found, unless it could be a secret."""
        found = "" if value is None or quiet else found_words(value)
        told = f"{message}, found {found}" if found and message.startswith("expected") else message
        self.add(InvalidConfig(told, path=dotted(at), source=self.layers.origin(at).name, expected=expected, got=found))

    def add(self, error: InvalidConfig) -> None:
        """Note an error."""
        self._errors.append(error)

    def finish(self) -> None:
        """Raise what was noted, if anything was."""
        if self._errors:
            first, *others = self._errors
            first.others = tuple(others)
            raise first

    def secret_in_variable(self, at: Place, name: str) -> Secret | None:
        """The secret in an environment variable. The name is not repeated: it may be the secret itself by mistake."""
        value = self.env.get(name, "").strip()
        if not value:
            self.wrong(at, "the environment variable that this names is not set", expected="a variable that is set")
            return None
        return Secret(value)

    def secret_in_file(self, at: Place, path: Path, *, words: bool = False) -> Secret | None:
        """The secret that a file holds, without white space around it. `words`: it may have spaces in it."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace").strip()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            self.wrong(at, f"cannot read the file that this names: {reason}", expected="a file with a key")
            return None
        if len(text.splitlines() if words else text.split()) != 1:
            self.wrong(at, "the file that this names must hold one key and nothing else", expected="a file with a key")
            return None
        return Secret(text)

    def _signing(self, signing: Signing) -> Signing:
        place = ("signing", "former_env")
        retired = [self.secret_in_variable(place, name) for name in signing.former_env]
        signing = replace(signing, retired=tuple(filter(None, retired)))
        if signing.key_env is None:
            return signing
        if "signing.file" in self.origins:
            self.wrong(("signing", "key_env"), "give one of file and key_env")
        return replace(signing, key=self.secret_in_variable(("signing", "key_env"), signing.key_env))

    def _kept(self, name: str) -> Path | None:
        """Where a file is kept by default: where the system wants state. None if the user has no home."""
        home, local = self.env.get("HOME"), self.env.get("LOCALAPPDATA")  # the latter is what Windows has
        state = self.env.get("XDG_STATE_HOME") or (os.path.join(home, ".local", "state") if home else local)
        folder = Path(state) if state else None
        return folder / "turnscript" / name if folder and folder.is_absolute() else None


_NOTHING: Any = object()


def _listed(models: Any) -> str:
    return ", ".join(model.name for model in models) or "none"
