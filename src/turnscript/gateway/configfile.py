"""Owns reading the configuration: the layers checked setting by setting, every error found, and what follows from them.

Relative paths in the file start at its folder, those of the environment and the command line at the working folder.

While the server runs the file is read again: the last good configuration stays until there is a better one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.gateway.config import Config, Section, Signing, fields_of, needs_restart, values_of
from turnscript.gateway.kinds import InvalidConfig, Kind, Secret, Wrong, found_words, looks_secret, unknown_key
from turnscript.gateway.layers import FORMATS, MODELS, Layers, Place, dotted, kind_at, layered, parts_of
from turnscript.gateway.modelfile import read_models
from turnscript.gateway.reach import check_models, check_reach
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


class Report(Struct, frozen=True):
    """What came of reading it again. `changed`: the settings that have new values now, `restart`: those that will have
    them when the server starts again. Nothing in it is a secret."""

    error: InvalidConfig | None = None
    changed: tuple[str, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The same for people."""
        if self.error is not None:
            first = f"the configuration was not changed, the last good one stays in force: {self.error}"
            return (first, *(f"this is wrong in it, too: {other}" for other in self.error.others))
        said = [f"the configuration was read again; changed: {', '.join(self.changed) or 'nothing'}"]
        if self.restart:
            said.append(f"these count when the server is started again: {', '.join(self.restart)}")
        return tuple(said)


class Reloader:
    """The configuration in force, and where it comes from."""

    def __init__(
        self,
        path: str | Path | None,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        shipped: Mapping[str, Any] | None = None,
    ) -> None:
        """Raises InvalidConfig: a server does not start with a bad configuration."""
        self._sources = (path, env, overrides, shipped)
        self.config: Config = load(*self._sources)
        check_models(self.config)
        self._blank = _is_blank(path)
        self.report = Report()

    def reload(self, take: Callable[[Config], object] | None = None) -> Config:
        """Read it again. The configuration in force from now on: the new one, or the old if that has a fault.

        Settings that only count at the start keep their old values; `report` says what came of it. `take` puts the new
        one in force, or changes nothing and raises InvalidConfig where what it names has a fault.
        """
        old = self.config
        try:
            blank = self._check_written()
            read = load(*self._sources)
            new, waiting = _pinned(read, old)
            # What was right together with the new address may be wrong with the old one, which stays.
            check_reach(new)
            check_models(new)
            if take is not None:
                take(new)
        except InvalidConfig as error:
            self.report = Report(error=error)
            return old
        self._blank = blank
        self.config, self.report = new, Report(changed=tuple(_changes(old, new)), restart=waiting)
        return new

    def _check_written(self) -> bool:
        """Raises InvalidConfig for a file without a word, where there were some: somebody is about to write it.

        Returns whether there is no word in it.
        """
        path = self._sources[0]
        blank = _is_blank(path)
        if blank and not self._blank:
            message = "there is nothing in it; a file that is being written is empty first: reload it when it is whole"
            raise InvalidConfig(message, source=str(path))
        return blank


def _is_blank(path: str | Path | None) -> bool:
    """Whether there is a file, and nothing in it."""
    try:
        return path is not None and not Path(path).read_bytes().strip()
    except OSError:  # which whoever reads it says
        return False


def _pinned(new: Config, old: Config) -> tuple[Config, tuple[str, ...]]:
    """The new configuration with the old values of what needs a restart, and the settings that differ there."""
    waiting: list[str] = []
    sections: dict[str, Any] = {}
    origins = dict(new.origins)
    for name, section in fields_of(Config).items():
        assert isinstance(section, Section)
        ours, theirs = getattr(old, name), getattr(new, name)
        kept = {
            field: getattr(ours, field)
            for field in fields_of(section.kind)
            if needs_restart(section.kind, field) and getattr(ours, field) != getattr(theirs, field)
        }
        if name == "signing":
            kept = {**kept, "key": ours.key, "retired": ours.retired}
        sections[name] = replace(theirs, **kept)
        for path in (f"{name}.{field}" for field in kept if f"{field}" in fields_of(section.kind)):
            waiting.append(path)
            origins.pop(path, None)
            if path in old.origins:
                origins[path] = old.origins[path]
    return replace(new, **sections, origins=origins), tuple(waiting)


def _changes(old: Config, new: Config) -> Iterator[str]:
    """The settings that differ, and the models that came and went."""
    before, after = dict(_flat(old)), dict(_flat(new))
    for path in sorted({*before, *after}):
        if before.get(path, _ABSENT) != after.get(path, _ABSENT):
            yield path


def _flat(config: Config) -> Iterator[tuple[str, Any]]:
    for path, _, value in values_of(config):
        yield path, value
    for model in config.models:
        place = f"models.{model.name}"
        yield place, model.name
        yield f"{place}.key", model.key
        yield from ((path, value) for path, _, value in values_of(model, place))
        yield f"{place}.headers", model.sends
        yield f"{place}.format", model.takes


_ABSENT = object()
