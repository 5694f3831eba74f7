"""Owns reading the configuration again while the server runs: the last good one stays until there is a better one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from turnscript.gateway.config import Config, Section, fields_of, needs_restart, values_of
from turnscript.gateway.configfile import load
from turnscript.gateway.invalidconfig import InvalidConfig
from turnscript.gateway.reach import check_models, check_reach


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
        if before.get(path, _NOTHING) != after.get(path, _NOTHING):
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


_NOTHING = object()
