"""Owns what a client must be told to speak to a gateway, as data, and filling that in for one gateway.

Texts of a recipe hold `$root` (the gateway's address), `$v1` (the same and `/v1`), `$key`, `$model` and `$context`
(tokens). What names something that is not known is left out. A text that is nothing but `$context` becomes a number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, Literal

from msgspec import Struct

_NUMBER = "$context"
_MODEL = "$model"
_ABSENT: Any = object()


class Gateway(Struct, frozen=True):
    """What a client needs to know of a gateway. `context`: how many tokens the model takes, if that is known."""

    url: str
    key: str
    model: str
    context: int | None = None

    @property
    def words(self) -> dict[str, str]:
        """The words that recipes use."""
        words = {"root": self.url, "v1": f"{self.url}/v1", "key": self.key, "model": self.model}
        return words if self.context is None else words | {"context": str(self.context)}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's settings that are no variables.

    `home`: the file where its users keep them; its ending says how they are written. `turnscript launch` leaves that
    file alone and gives them `by` an argument for each (`through` is the flag), by the text of one variable (`through`
    is its name), or by a file of the same name elsewhere (`through` is the variable that names the file or its folder).
    """

    values: dict[str, Any] | list[Any]
    home: str
    by: Literal["arguments", "variable", "file", "folder"]
    through: str

    @property
    def file_name(self) -> str:
        """The file's name without its folder."""
        return self.home.rsplit("/", 1)[-1]

    @property
    def in_file(self) -> bool:
        """Whether the client is given them in a file."""
        return self.by in ("file", "folder")


class Client(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program with a `command`, or a library with `code`: what a program says, by the path of the API it speaks.

    `unset`: variables that would send it elsewhere. `prompt`: about how many tokens its instructions and tools take.
    `lean`: an argument with which they take fewer, and how many. `versions`: what was tested, by package. `notes`: its
    limits.
    """

    name: str
    title: str
    install: str
    versions: dict[str, str]
    notes: tuple[str, ...] = ()
    prompt: int = 0
    lean: dict[str, int] = {}
    command: str = ""
    arguments: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    unset: tuple[str, ...] = ()
    settings: Settings | None = None
    language: Literal["", "python", "js"] = ""
    code: dict[str, str] = {}

    def needs(self, arguments: Sequence[str]) -> int:
        """How many tokens its instructions and tools take if it is started with these arguments."""
        return min((tokens for word, tokens in self.lean.items() if word in arguments), default=self.prompt)


class Setup(Struct, frozen=True):
    """What starting a client for one gateway takes. `files`: texts by path."""

    arguments: tuple[str, ...]
    variables: dict[str, str]
    files: dict[Path, str]


def setup(client: Client, gateway: Gateway, folder: Path) -> Setup:
    """A client's recipe for a gateway; its files are to be in `folder`."""
    arguments = tuple(map(str, _filled(client.arguments, gateway.words)))
    variables = {name: str(value) for name, value in _filled(client.variables, gateway.words).items()}
    settings = client.settings
    if settings is None:
        return Setup(arguments, variables, {})
    values = _filled(settings.values, gateway.words)
    if settings.by == "arguments":
        flags = (word for line in _dotted(values) for word in (settings.through, line))
        return Setup((*flags, *arguments), variables, {})
    if settings.by == "variable":
        return Setup(arguments, variables | {settings.through: json.dumps(values)}, {})
    file = folder / settings.file_name
    place = file if settings.by == "file" else folder
    return Setup(arguments, variables | {settings.through: str(place)}, {file: _written(settings, values)})


def settings_text(settings: Settings, gateway: Gateway) -> str:
    """Settings as the text of the file where users keep them."""
    return _written(settings, _filled(settings.values, gateway.words))


def program(text: str, gateway: Gateway) -> str:
    """The code of a library for a gateway. All its words stand in double quotes."""
    quoted = {name: json.dumps(word)[1:-1] for name, word in gateway.words.items()}
    return Template(text).substitute(quoted).strip() + "\n"


def _filled(value: Any, words: Mapping[str, str]) -> Any:
    """Data with the words put in, without what holds a word that is not known, and what is empty without that."""
    if isinstance(value, str):
        try:
            text = Template(value).substitute(words)
        except KeyError:
            return _ABSENT
        return int(text) if value == _NUMBER else text
    if isinstance(value, dict):
        members = {words["model"] if key == _MODEL else key: _filled(one, words) for key, one in value.items()}
        left = {key: one for key, one in members.items() if one is not _ABSENT}
        return left if left or not value else _ABSENT
    if isinstance(value, list | tuple):
        return [one for one in (_filled(one, words) for one in value) if one is not _ABSENT]
    return value


def _written(settings: Settings, values: Any) -> str:
    """Settings as their file holds them."""
    return _toml(values) if settings.home.endswith(".toml") else _indented(values)


def _indented(values: Any) -> str:
    """JSON, which is YAML too."""
    return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def _dotted(values: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Settings as lines of TOML with dotted keys."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{at}{key}.")
        else:
            yield f"{at}{key}={_scalar(value)}"


def _toml(values: Mapping[str, Any], at: str = "") -> str:
    """Settings as TOML with tables."""
    plain = [f"{key} = {_scalar(value)}\n" for key, value in values.items() if not isinstance(value, dict)]
    head = [f"[{at}]\n"] if at and plain else []
    tables = [_toml(one, f"{at}.{key}" if at else key) for key, one in values.items() if isinstance(one, dict)]
    return "\n".join(part for part in ("".join([*head, *plain]), *tables) if part)


def _scalar(value: object) -> str:
    """A text, number or truth value of TOML: JSON's spelling, but for characters that JSON leaves and TOML escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
