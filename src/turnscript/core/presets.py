"""Owns sampling presets: the settings that model cards recommend for a use, ranges kept as ranges."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import fields

from turnscript.core.errors import InvalidInput, UnknownName


class Range(Struct, frozen=True):
    """A recommendation of the form "0.6 to 0.8"."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            message = f"a range goes from low to high, here from {self.low} to {self.high}"
            raise InvalidInput(message, expected="low <= high", got=f"{self.low} > {self.high}")

    @property
    def midpoint(self) -> float:
        """The value that is used."""
        return (self.low + self.high) / 2

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


class Preset(Struct, frozen=True, kw_only=True):
    """Sampling settings for a use, as a card gives them."""

    name: str
    temperature: float | Range
    top_p: float | Range
    presence_penalty: float | Range
    frequency_penalty: float | Range
    penalty_decay: float | Range
    """How much of a token's penalty is left after each further token."""

    def values(self) -> dict[str, float]:
        """The numbers to sample with, by the names of the fields: of a range its midpoint (requirements D-G-11)."""
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "name"}
        return {name: value.midpoint if isinstance(value, Range) else value for name, value in given.items()}

    def __str__(self) -> str:
        return f"{self.name}: {words_of(self.values())}"


def words_of(values: Mapping[str, float]) -> str:
    """Return sampling settings in words for people."""
    return ", ".join(f"{name} {value:g}" for name, value in values.items())


# The first three: requirements R-A-24 to R-A-26, again as R-G-20 to R-G-22. The last: the newer card (S10), which has
# figures for a chat only, so there is no newer preset for creative writing.
_PRESETS = (
    Preset(
        name="math",
        temperature=0.3,
        top_p=0.3,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        penalty_decay=0.996,
    ),
    Preset(
        name="chat",
        temperature=1.0,
        top_p=0.3,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        penalty_decay=0.996,
    ),
    Preset(
        name="creative",
        temperature=0.6,
        top_p=Range(0.6, 0.8),
        presence_penalty=Range(1.0, 2.0),
        frequency_penalty=Range(0.0, 0.2),
        penalty_decay=0.99,
    ),
    Preset(
        name="chat-2026",
        temperature=1.0,
        top_p=0.5,
        presence_penalty=2.0,
        frequency_penalty=0.1,
        penalty_decay=0.99,
    ),
)
_BY_NAME = {preset.name: preset for preset in _PRESETS}


def presets() -> list[str]:
    """The names of all sampling presets."""
    return list(_BY_NAME)


def get_preset(name: str) -> Preset:
    """The preset of that name. Raises UnknownName with the nearest ones.

    >>> get_preset("creative").values()["top_p"]
    0.7
    """
    try:
        return _BY_NAME[name]
    except (KeyError, TypeError):  # one that is no text may have no hash
        raise UnknownName("preset", name, _BY_NAME) from None
