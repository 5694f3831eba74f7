"""Owns `turnscript keys`: adding, listing and removing the API keys that `turnscript serve` asks its clients for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from msgspec import Struct

from turnscript.cli.failures import OK, USAGE, Failed, reading, writing
from turnscript.cli.output import STREAM, Files
from turnscript.cli.report import Screen, plural, shown, table
from turnscript.core.errors import UnknownName
from turnscript.gateway.config import Limits, Policy, fields_of
from turnscript.gateway.configfile import load_setting
from turnscript.gateway.keys import KEY_LIMITS, Key, add_key, read_entries, remove_key
from turnscript.gateway.kinds import Wrong

CONFIG = "turnscript.toml"
_SETTING = "server.keys"
_ADD = "`turnscript keys add NAME` makes a key, and the file if need be"
_EPILOG = """\b
Examples:
  turnscript keys add laptop --file keys.jsonl
  turnscript keys add crawler --file keys.jsonl --limit running=2 --policy losses=error
  turnscript keys list --file keys.jsonl
  turnscript keys remove laptop --file keys.jsonl
"""
_ADDING = """\b
Examples:
  turnscript keys add laptop --file keys.jsonl
  turnscript keys add crawler --file keys.jsonl --limit running=2 --policy losses=error
"""
_LISTING = """\b
Examples:
  turnscript keys list --file keys.jsonl
  turnscript keys list --file keys.jsonl --json
"""
_REMOVING = """\b
Example:
  turnscript keys remove laptop --file keys.jsonl
"""
_Command = TypeVar("_Command", bound=Callable[..., int])


@click.group(epilog=_EPILOG, short_help="Make and remove API keys for the server.")
def keys() -> None:
    """Make, list and remove the API keys that the server asks its clients for.

    The file holds hashes: a key is shown once, when it is made. A running server takes changes over within a second.
    """


def _with_file(command: _Command) -> _Command:
    """The options that say which file is meant."""
    command = click.option(
        "--config",
        type=click.Path(readable=False),
        metavar="FILE",
        help=f"The configuration that names the file of keys; {CONFIG} if it is there.",
    )(command)
    return click.option("--file", type=click.Path(readable=False), metavar="FILE", help="The file of keys.")(command)


@keys.command(short_help="Make a key.", epilog=_ADDING)
@click.argument("name")
@_with_file
@click.option("--limit", "limits", multiple=True, metavar="SETTING=VALUE", help="A limit of its own: running=4.")
@click.option("--policy", "policies", multiple=True, metavar="SETTING=VALUE", help="A policy of its own: losses=error.")
def add(name: str, file: str | None, config: str | None, limits: tuple[str, ...], policies: tuple[str, ...]) -> int:
    """Make a key called NAME and print it.

    It is printed once: the file holds only its hash.
    """
    own_limits = _settings("--limit", limits, Limits, KEY_LIMITS)
    own_policy = _settings("--policy", policies, Policy, tuple(fields_of(Policy)))
    path = _path(file, config)
    with writing(str(path)):
        secret = add_key(path, name, own_limits, own_policy)
    try:
        _write(secret.reveal())
    except Failed:
        remove_key(path, name)  # nobody has seen it, and nobody ever will
        raise
    Screen().note(f"this key is shown only now; {path} holds its hash")
    return OK


@keys.command("list", short_help="List the keys.", epilog=_LISTING)
@_with_file
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_keys(file: str | None, config: str | None, as_json: bool) -> int:
    """List the keys with what they have of their own. The keys themselves are nowhere."""
    path = _path(file, config)
    with reading(str(path)):
        _check_there(path)
        found = [entry.key for entry in read_entries(path.read_bytes(), str(path)).values()]
    if as_json:
        _write(json.dumps([_record(key) for key in found], ensure_ascii=False, indent=2))
    elif found:
        rows = [
            (
                shown(key.name),
                key.id,
                shown(key.created) or "-",
                _own(Limits, key.own_limits),
                _own(Policy, key.own_policy),
            )
            for key in found
        ]
        _write(table(("NAME", "ID", "CREATED", "LIMITS", "POLICY"), rows))
    Screen().note(f"{plural(len(found), 'key', 'keys')} in {path}")
    return OK


@keys.command(short_help="Remove a key.", epilog=_REMOVING)
@click.argument("name")
@_with_file
def remove(name: str, file: str | None, config: str | None) -> int:
    """Remove the key called NAME. Whoever has it is locked out within a second."""
    path = _path(file, config)
    try:
        with writing(str(path)):
            _check_there(path)
            remove_key(path, name)
    except UnknownName as error:
        if not error.known:
            raise Failed("there is no key in this file", place=str(path), remedy=_ADD) from None
        raise Failed(str(error), place=str(path), remedy="`turnscript keys list` lists them") from None
    Screen().note(f"removed the key {name!r} from {path}")
    return OK


def _path(file: str | None, config: str | None) -> Path:
    """The file that is meant: by its option, or by the configuration."""
    if file is not None:
        return Path(file)
    if config is None and Path(CONFIG).is_file():
        config = CONFIG
    found = load_setting(config, os.environ, _SETTING)
    if isinstance(found, Path):
        return found
    where = f"{config} does not set {_SETTING}" if config else f"there is no {CONFIG} here"
    raise Failed(f"which file of keys? {where}", remedy="give --file FILE", code=USAGE)


def _check_there(path: Path) -> None:
    """Raise Failed if there is no file. Only `add` makes one."""
    try:
        path.stat()  # not `exists`: since Python 3.14 that takes what may not be reached for missing
    except (FileNotFoundError, NotADirectoryError):
        raise Failed("there is no such file", place=str(path), remedy=f"check the path; {_ADD}") from None


def _settings(option: str, given: Iterable[str], table: type[Struct], names: tuple[str, ...]) -> dict[str, Any]:
    """Settings as they are typed, as TOML values. Raises UsageError for what they cannot be."""
    kinds = fields_of(table)
    read = {}
    for text in given:
        name, mark, value = text.partition("=")
        if not mark:
            raise click.UsageError(f"{option} {text}: write it as SETTING=VALUE")
        if name not in names:
            raise click.UsageError(f"{option} {text}: {UnknownName('setting', name, names)}")
        read[name] = kinds[name].of_text(value)
        try:
            kinds[name].read(read[name], Path())
        except Wrong as wrong:
            raise click.UsageError(f"{option} {text}: {wrong.message or f'expected {kinds[name].words}'}") from None
    return read


def _own(table: type[Struct], own: Mapping[str, Any]) -> str:
    kinds = fields_of(table)
    return ", ".join(f"{name}={kinds[name].shown(value)}" for name, value in own.items()) or "-"


def _record(key: Key) -> dict[str, Any]:
    return {
        "name": key.name,
        "id": key.id,
        "created": key.created,
        "limits": dict(key.own_limits),
        "policy": dict(key.own_policy),
    }


def _write(text: str) -> None:
    with Files() as files:
        files.open(STREAM).write(f"{text}\n".encode())
