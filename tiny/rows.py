"""Owns the rows that the model is trained on: number, seed and nothing else decide what is in each."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tiny.dialogs.conversations import conversation, line
from tiny.dialogs.declared import JsonObject
from tiny.recipe import COUNT, SEED


def rows(count: int = COUNT, seed: str = SEED) -> Iterator[str]:
    """Rows of a chat dataset as lines of JSON."""
    for number in range(count):
        random = Random(f"{seed}:{number}")
        yield line(conversation(random), random)


def conversations(count: int = COUNT, seed: str = SEED) -> Iterator[JsonObject]:
    """The same, before they are written."""
    return (conversation(Random(f"{seed}:{number}")) for number in range(count))


def main() -> None:
    """Write training rows as JSON Lines."""
    parser = argparse.ArgumentParser(prog="python -m tiny.rows", description=main.__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", default=SEED)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with given.out.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{row}\n" for row in rows(given.count, given.seed))


if __name__ == "__main__":
    main()
