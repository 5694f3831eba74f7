"""Owns what is lost of arguments that are written one by one: values of a key that comes twice, and their spelling."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from turnscript.core.json_text import every_member, json_string
from turnscript.engine.spans import Writer


def lose_difference(arguments: str, kept: int, spelled: Callable[[str, str], str], out: Writer, detail: str) -> None:
    """Report why a JSON object of arguments will not be read again as it is. `kept`: how many are written, one for each
    key; `spelled`: how the value of a key will be read; `detail`: what to say where that differs."""
    if arguments.count(":") > kept:  # else no key comes twice
        members = every_member(arguments)
        for key, times in Counter([key for key, _ in members]).items():
            if times > 1:
                said = f"the key {json_string(key)} comes {times} times: its last value alone is kept"
                out.lose(".arguments", "dropped", said)
        if len(members) > kept and joined([(key, spelled(key, value)) for key, value in members]) == arguments:
            return
    out.lose(".arguments", "approximated", detail)


def lose_arguments(
    arguments: str, again: str | None, kept: int, spelled: Callable[[str, str], str], out: Writer
) -> None:
    """Report why arguments will not be read again as they are, if so. `again`: what will be read; None where they are
    no JSON object. `kept` and `spelled`: as for `lose_difference`."""
    if again is None:
        out.lose(".arguments", "approximated", "no JSON object; written as an argument called 'arguments'")
    elif again != arguments:
        detail = "keys and values are kept, not how the JSON was spelled"
        lose_difference(arguments, kept, spelled, out, detail)


def joined(members: list[tuple[str, str]]) -> str:
    """Return a JSON object as readers of single arguments spell it."""
    return "{" + ", ".join([f"{json_string(key)}: {value}" for key, value in members]) + "}"
