"""Owns telling texts without certain strings as an automaton: its states are the beginnings of such strings."""

from __future__ import annotations

from collections.abc import Iterator


def after(stops: tuple[str, ...], begun: str, char: str) -> str | None:
    """The state behind one more character: the longest end of the text that one of the strings begins with.

    None where one of them is whole.
    """
    text = begun + char
    if text.endswith(stops):
        return None
    for start in range(len(text)):
        if any(stop.startswith(text[start:]) for stop in stops):
            return text[start:]
    return ""


def letters_of(stops: tuple[str, ...]) -> list[str]:
    """The characters that the strings are made of: all others lead back to the first state."""
    return sorted(set("".join(stops)))


def states_of(stops: tuple[str, ...]) -> dict[str, int]:
    """The states by what has been read of a string, with their numbers. None is behind a string that is whole."""
    states: dict[str, int] = {}
    for stop in stops:
        for size in range(len(stop)):
            if any(one in stop[:size] for one in stops):
                break
            states.setdefault(stop[:size], len(states))
    return states


def moves(stops: tuple[str, ...], state: str) -> Iterator[tuple[str, str]]:
    """Each letter that may follow in a state, and the state to which it leads."""
    for letter in letters_of(stops):
        begun = after(stops, state, letter)
        if begun is not None:
            yield letter, begun
