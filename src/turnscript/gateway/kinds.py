"""Owns the kinds of values that settings have: what each takes, from a TOML file or as a text, and how it is shown.

A kind stands in the annotation of a field. The readers, the messages and the check of the documentation all use it.
"""

from __future__ import annotations

import difflib
import hmac
import re
import tomllib
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct, StructMeta

from turnscript.convert.registry import backends, chat_backends, is_format
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.core.presets import get_preset, presets
from turnscript.detection.place import KINDS
from turnscript.gateway.addresses import Address, read_address
from turnscript.tableio.tables import type_words

SHOWN = "<secret>"


class Secret:
    """A text to be used and never shown. `reveal` is the one way to it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return SHOWN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._bytes, other._bytes)

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __bool__(self) -> bool:
        return bool(self._text)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not written anywhere")

    @property
    def _bytes(self) -> bytes:
        return self._text.encode("utf-8", "surrogatepass")


COMMAND_LINE = "the command line"
"""The source of what stood there."""

# What programs make keys of: no words, and no path or URL has so long a piece without a dot or a slash.
_KEY = re.compile(r"(?i)\s*(?:(?:t?sk|pk|key|bearer)[-_ ]\S{4,}.*|(?=\S*\d)[\w+=-]{24,}\s*)", re.DOTALL)

COMMAND_LINE = "the command line"
"""The source of what is not read but typed."""


class InvalidConfig(InvalidInput):
    """A setting that cannot be so. `path`: its key, `source`: the file or variable; `others`: further errors found.

    Nothing in it is a secret: not what was found where one belongs, nor what looks like one elsewhere.
    """

    code = "invalid_config"

    def __init__(self, message: str, *, path: str = "", source: str = "", expected: str = "", got: str = "") -> None:
        if source:
            message = f"{message} ({'on' if source == COMMAND_LINE else 'in'} {source})"
        super().__init__(message, path=path, expected=expected, got=got)
        self.source = source
        self.others: tuple[InvalidConfig, ...] = ()


def looks_secret(value: Any) -> bool:
    """Whether a value looks like a key that stands in the wrong place."""
    return isinstance(value, str) and _KEY.fullmatch(value) is not None


def found_words(value: Any) -> str:
    """What a value is, for a message. What looks like a key is not shown."""
    return "a string that looks like a key" if looks_secret(value) else type_words(value)


def unknown_key(path: str, key: str, known: Iterable[str], source: str) -> InvalidConfig:
    """The error for a key that no table has, with the nearest ones."""
    names = list(known)
    close = difflib.get_close_matches(key, names, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known here: {', '.join(names)}"
    message = f"unknown setting {key!r}; {hint}"
    return InvalidConfig(message, path=path, source=source, expected=f"one of: {', '.join(names)}")


RESTART = "restart"
"""Marks a setting that only counts when the server starts."""

IN_MEMORY = ":memory:"
"""Stands for a file where nothing is to be kept after the server ends, as in SQLite."""

AUTO = "auto"
"""Stands for a choice that is left to turnscript."""

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_TIMES = {"": 1, "ms": 0.001, "s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_MEASURE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@*\x00-\x20\x7f-\U0010ffff]+")
_IN_HEADER = re.compile(r"[!-~]+")
_WORDS_IN_HEADER = re.compile(r"[!-~](?:[ -~\t]*[!-~])?")
UNFIT = "has characters that a header cannot carry"
_WORST = 10**15


class Wrong(ValueError):
    """A value that its setting does not take. `message`: what is wrong, if there is more to say than what is expected.

    `quiet`: the value may be a secret that stands in the wrong place.
    """

    def __init__(self, message: str = "", *, quiet: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.quiet = quiet


class _KindMeta(StructMeta, ABCMeta):
    """Lets a struct have abstract methods."""


class Kind(Struct, frozen=True, metaclass=_KindMeta):
    """A kind of value. `words` say what is expected, in messages and in the documentation."""

    @property
    @abstractmethod
    def words(self) -> str:
        """What is expected."""

    @abstractmethod
    def read(self, value: Any, folder: Path) -> Any:
        """A TOML value as what the setting holds; relative paths start at `folder`. Raises Wrong."""

    def of_text(self, text: str) -> Any:
        """A text, from the environment or the command line, as the TOML value that it stands for."""
        return text

    def shown(self, value: Any) -> str:
        """What the setting holds, for people."""
        return str(value)


class Text(Kind, frozen=True):
    """A string. `what`: what it is."""

    what: str = "a string"
    empty: bool = False

    @property
    def words(self) -> str:
        return self.what

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str):
            raise Wrong
        if not self.empty and not value.strip():
            raise Wrong("this is empty")
        return value

    def shown(self, value: str) -> str:
        return value or '""'


class Host(Text, frozen=True):
    """Where to listen. The brackets that an address has in a URL are none of its own."""

    what: str = "an address or a host name"

    def read(self, value: Any, folder: Path) -> str:
        host = super().read(value, folder).strip()
        bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
        return super().read(bare, folder)


class Choice(Kind, frozen=True):
    """One of some words."""

    among: tuple[str, ...]

    @property
    def words(self) -> str:
        return _or(f'"{word}"' for word in self.among)

    def read(self, value: Any, folder: Path) -> str:
        if value not in self.among or not isinstance(value, str):
            raise Wrong
        return value


class Flag(Kind, frozen=True):
    """True or false."""

    @property
    def words(self) -> str:
        return "true or false"

    def read(self, value: Any, folder: Path) -> bool:
        if not isinstance(value, bool):
            raise Wrong
        return value

    def of_text(self, text: str) -> Any:
        return _FLAGS.get(text.strip().lower(), text)

    def shown(self, value: bool) -> str:
        return "true" if value else "false"


class Whole(Kind, frozen=True):
    """An integer in a range. `bound`: 0 stands for no limit, which is held as None."""

    low: int = 0
    high: int | None = None
    bound: bool = False

    @property
    def words(self) -> str:
        range_ = f"of at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"
        return f"an integer {range_}" + (", 0 for no limit" if self.bound else "")

    def read(self, value: Any, folder: Path) -> int | None:
        high = _WORST if self.high is None else self.high
        if isinstance(value, bool) or not isinstance(value, int) or not self.low <= value <= high:
            raise Wrong
        return None if self.bound and not value else value

    def of_text(self, text: str) -> Any:
        return int(text) if re.fullmatch(r"\s*[+-]?\d{1,18}\s*", text) else text

    def shown(self, value: int | None) -> str:
        return "no limit" if value is None else str(value)


class Number(Kind, frozen=True):
    """A number in a range."""

    low: float
    high: float

    @property
    def words(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def read(self, value: Any, folder: Path) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            raise Wrong
        return value

    def of_text(self, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text


class Size(Kind, frozen=True):
    """A number of bytes, or a string with a unit. `bound`: 0 stands for no limit."""

    bound: bool = False

    @property
    def words(self) -> str:
        return 'a size such as "64 MB"' + (", 0 for no limit" if self.bound else "")

    def read(self, value: Any, folder: Path) -> int | None:
        size = int(_measured(value, _SIZES))
        if not size and not self.bound:
            raise Wrong
        return size or None

    def shown(self, value: int | None) -> str:
        return "no limit" if value is None else _in_units(value, (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)), "B")


class Seconds(Kind, frozen=True):
    """A number of seconds, or a string with a unit. `bound`: 0 stands for no limit."""

    bound: bool = False

    @property
    def words(self) -> str:
        return 'a time such as "30 s"' + (", 0 for no limit" if self.bound else "")

    def read(self, value: Any, folder: Path) -> float | None:
        time = float(_measured(value, _TIMES))
        if not time and not self.bound:
            raise Wrong
        return time or None

    def shown(self, value: float | None) -> str:
        return "no limit" if value is None else _in_units(value, (("d", 86_400), ("h", 3600), ("min", 60)), "s")


class File(Kind, frozen=True):
    """The path of a file or folder. `optional`: it may be said that there is to be none."""

    optional: bool = False

    @property
    def words(self) -> str:
        return f'a path, or "{IN_MEMORY}"' if self.optional else "a path"

    def read(self, value: Any, folder: Path) -> Path | None:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise Wrong
        if value == IN_MEMORY and self.optional:
            return None
        return located(value, folder)

    def shown(self, value: Path | None) -> str:
        return IN_MEMORY if value is None else str(value)


class Texts(Kind, frozen=True):
    """Several strings. A text stands for them with commas between, or as a TOML array."""

    what: str = "strings"

    @property
    def words(self) -> str:
        return f"an array of {self.what}"

    def read(self, value: Any, folder: Path) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise Wrong
        return tuple(dict.fromkeys(value))

    def of_text(self, text: str) -> Any:
        return array_of(text)

    def shown(self, value: tuple[str, ...]) -> str:
        return ", ".join(value) if value else "none"


class Origins(Texts, frozen=True):
    """Whose web pages: a scheme, a host, and a port where it is not the usual one, as browsers write them."""

    what: str = 'origins such as "https://chat.example.org"'

    def read(self, value: Any, folder: Path) -> tuple[str, ...]:
        found = tuple(_origin(one) for one in super().read(value, folder))
        if not all(one == "*" or _ORIGIN.fullmatch(one) for one in found):
            raise Wrong("an origin is a scheme and a host, without a path")
        return found


def _origin(text: str) -> str:
    """An origin as a browser writes it."""
    origin = text.strip().lower().removesuffix("/")
    for scheme, port in (("http://", ":80"), ("https://", ":443")):
        origin = origin.removesuffix(port) if origin.startswith(scheme) else origin
    return origin


class Members(Texts, frozen=True):
    """Several of some words."""

    among: tuple[str, ...] = ()

    def read(self, value: Any, folder: Path) -> tuple[str, ...]:
        found = super().read(value, folder)
        unknown = next((one for one in found if one not in self.among), None)
        if unknown is not None:
            raise Wrong(str(UnknownName("setting", unknown, self.among)))
        return found


class Addresses(Kind, frozen=True):
    """Where a model runs, in one place or in several."""

    @property
    def words(self) -> str:
        return 'a URL, "embedded:FILE" or "replay:FOLDER", or an array of these'

    def read(self, value: Any, folder: Path) -> tuple[Address, ...]:
        given = value if isinstance(value, list) else [value]
        if not given or not all(isinstance(one, str) for one in given):
            raise Wrong(quiet=not isinstance(value, str))
        try:
            return tuple(read_address(one, folder) for one in dict.fromkeys(given))
        except ValueError as error:
            raise Wrong(str(error), quiet=True) from None

    def of_text(self, text: str) -> Any:
        return array_of(text) if text.lstrip().startswith("[") or "," in text else text

    def shown(self, value: tuple[Address, ...]) -> str:
        return ", ".join(map(str, value))


class Hidden(Kind, frozen=True):
    """A secret. `inside`: whether there may be spaces in it, as after the word `Basic`."""

    inside: bool = False

    @property
    def words(self) -> str:
        return "a secret"

    def read(self, value: Any, folder: Path) -> Secret:
        if not isinstance(value, str) or not value.strip():
            raise Wrong("this is empty or no string", quiet=True)
        if not fits_header(value.strip(), words=self.inside):
            raise Wrong(f"this {UNFIT}", quiet=True)
        return Secret(value.strip())

    def shown(self, value: Secret) -> str:
        return SHOWN


class Variable(Kind, frozen=True):
    """The name of an environment variable with a secret."""

    @property
    def words(self) -> str:
        return "the name of an environment variable"

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
            raise Wrong("expected the name of an environment variable, not the secret itself", quiet=True)
        return value


class Named(Kind, frozen=True):
    """A name of a list that turnscript has. `known` gives it; `others` are words that are no name."""

    what: str
    known: Callable[[], Iterable[str]]
    others: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        return _or([f'"{word}"' for word in self.others] + [self.what])

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str):
            raise Wrong
        names = (*self.others, *self.known())
        if value not in names:
            raise Wrong(str(UnknownName(self.what.removeprefix("the name of a "), value, names)))
        return value


class FormatName(Kind, frozen=True):
    """A format's name, or a file that declares one. Whether it is known is asked later: files may declare some."""

    @property
    def words(self) -> str:
        return "the name of a prompt format, or a .toml file"

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str) or not value.strip():
            raise Wrong
        path, mark, member = value.rpartition("#") if not value.endswith(".toml") else (value, "", "")
        if path.endswith(".toml") and is_format(value):
            return f"{located(path, folder)}{mark}{member}"
        return value


class AnyTable(Kind, frozen=True):
    """A table whose keys somebody else knows."""

    what: str

    @property
    def words(self) -> str:
        return self.what

    def read(self, value: Any, folder: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong
        return dict(value)

    def of_text(self, text: str) -> Any:
        return in_toml(text) if text.lstrip().startswith("{") else text


BACKEND = Named("the name of a backend", lambda: [*backends(), *chat_backends()], (AUTO,))
PRESET = Named("the name of a preset", presets)


def preset_values(name: str | None) -> dict[str, float]:
    """What a preset sets."""
    return get_preset(name).values() if name else {}


def fits_header(key: str, *, words: bool = False) -> bool:
    """Whether a key can be sent as one; with `words`, whether a text can be the value of a header."""
    return (_WORDS_IN_HEADER if words else _IN_HEADER).fullmatch(key) is not None


def located(path: str, folder: Path) -> Path:
    """A path as an absolute one. `~` is the home folder."""
    try:
        return folder / Path(path).expanduser()
    except RuntimeError:  # there is no home
        raise Wrong("there is no home folder that `~` could stand for") from None


def array_of(text: str) -> Any:
    """A text as an array of strings: TOML in brackets, else words with commas between."""
    if text.lstrip().startswith("["):
        return in_toml(text)
    return [word.strip() for word in text.split(",") if word.strip()]


def in_toml(text: str) -> Any:
    """What a text in TOML stands for; itself where it is none."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):  # no TOML, more digits or more brackets than Python reads
        return text


def _measured(value: Any, units: dict[str, Any]) -> Decimal:
    if isinstance(value, str):
        found = _MEASURE.fullmatch(value)
        if not found or found[2].lower() not in units:
            raise Wrong
        amount = Decimal(found[1]) * Decimal(str(units[found[2].lower()]))
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong
    else:  # Python writes no int of very many digits; a float is what it is written as
        amount = Decimal(value) if isinstance(value, int) else Decimal(str(value))
    if not amount.is_finite() or not 0 <= amount <= _WORST:
        raise Wrong
    return amount


def _in_units(value: float, units: Iterable[tuple[str, int]], smallest: str) -> str:
    """The largest unit that shows the number exactly, in few digits."""
    for unit, size in units:
        if value >= size and not value % (size / 10):
            return f"{value / size:g} {unit}"
    return f"{int(value) if value == int(value) else value} {smallest}"


def _or(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OF_THE_MESSAGE = frozenset(
    {"accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host"}
    | {"keep-alive", "proxy-connection", "trailer", "transfer-encoding", "upgrade"}
)
"""What the sender of a message alone knows: how long it is, how it is packed, where it goes."""


class Headers(Kind, frozen=True):
    """Headers by name. `each`: what stands for the value of one. A text stands for them as HTTP has them, a header a
    line, or as a TOML table."""

    each: Kind

    @property
    def words(self) -> str:
        return f"a table of headers, each with {self.each.words}"

    def read(self, value: Any, folder: Path) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Wrong(f"expected {self.words}", quiet=True)
        return {_header_name(name): self._value(name, one, folder) for name, one in value.items()}

    def _value(self, name: str, value: Any, folder: Path) -> Any:
        try:
            return self.each.read(value, folder)
        except Wrong as wrong:
            raise Wrong(f"{name}: {wrong.message or f'expected {self.each.words}'}", quiet=True) from None

    def of_text(self, text: str) -> Any:
        if text.lstrip().startswith("{"):
            return in_toml(text)
        lines = [line.partition(":") for line in text.splitlines() if line.strip()]
        return {name.strip(): value.strip() for name, _, value in lines} if all(mark for _, mark, _ in lines) else text

    def shown(self, value: dict[str, Any]) -> str:
        return ", ".join(f"{name} = {self.each.shown(one)}" for name, one in value.items()) or "none"


def _header_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise Wrong("a name in this is no name of a header, such as X-Api-Key", quiet=True)
    if name.lower() in _OF_THE_MESSAGE:
        raise Wrong(f"the gateway itself says what {name} is", quiet=True)
    return name


_IDS = 1 << 31


class Template(Kind, frozen=True):
    """A place where a chat template is: a file, a folder, or the name of a model in the local Hugging Face cache."""

    @property
    def words(self) -> str:
        return KINDS

    def read(self, value: Any, folder: Path) -> str:
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise Wrong
        path, mark, name = value.partition("#")
        here = located(value, folder)
        if here.exists():
            return str(here)
        return f"{located(path, folder)}{mark}{name}" if path and located(path, folder).exists() else value


class TokenIds(Kind, frozen=True):
    """Ids of tokens."""

    @property
    def words(self) -> str:
        return "an array of token ids"

    def read(self, value: Any, folder: Path) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(one) is int and 0 <= one < _IDS for one in value):
            raise Wrong
        return tuple(value)

    def of_text(self, text: str) -> Any:
        return in_toml(text if text.lstrip().startswith("[") else f"[{text}]")

    def shown(self, value: tuple[int, ...]) -> str:
        return ", ".join(map(str, value)) or "none"


class Files(Texts, frozen=True):
    """The paths of several files."""

    what: str = "paths"

    def read(self, value: Any, folder: Path) -> tuple[Any, ...]:
        return tuple(File().read(one, folder) for one in super().read(value, folder))

    def shown(self, value: tuple[Any, ...]) -> str:
        return super().shown(tuple(map(str, value)))


class Variables(Texts, frozen=True):
    """The names of several environment variables with secrets."""

    what: str = "names of environment variables"

    def read(self, value: Any, folder: Path) -> tuple[str, ...]:
        try:
            given = super().read(value, folder)
        except Wrong:
            raise Wrong(quiet=True) from None  # it may be a secret by mistake
        return tuple(Variable().read(one, folder) for one in given)
