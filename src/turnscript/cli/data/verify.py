"""Owns `turnscript data verify`: what was read back, what it was compared with, and what is wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import msgspec

from turnscript.cli.data.build import Workers, write
from turnscript.cli.data.options import as_json
from turnscript.cli.failures import BAD_INPUT, OK
from turnscript.cli.progress import DELAY
from turnscript.cli.report import Screen, plural, shown, table
from turnscript.datasets.verify import Verification, verify

_EPILOG = """\b
Examples:
  turnscript data verify run
  turnscript data verify run --every 100 --json

\b
Exit code:
  0  everything is as it should be
  1  something is wrong, or the folder holds no finished build
  2  wrong usage
"""
_COLUMNS = ("samples", "documents", "compared", "tokens", "trained", "padding")
_CHATS = "chats"
"""The column of an output that has messages."""
_INTERVAL = 5.0


@click.command("verify", epilog=_EPILOG)
@click.argument("folder", metavar="RUN")
@click.option("--every", type=click.IntRange(1), default=1, metavar="N", help="Look at every N-th row. Default: all.")
@click.option("--workers", type=Workers(), default=0, metavar="N|auto", help="Processes. Default: one a processor.")
@click.option("--json", "json_wanted", is_flag=True, help="For programs.")
@click.option("--quiet", "-q", is_flag=True, help="Say only what is wrong.")
def command(folder: str, every: int, workers: int, json_wanted: bool, quiet: bool) -> int:
    """Read a finished folder back and compare it with the rows that it was made of.

    All files have the hashes of the manifest; every sample reads back as the conversation of its row; the prompt of
    every trained turn is how the sample begins; and every document in the files is a sample, weight for weight, with
    its messages where a file has them.
    """
    found = verify(folder, every=every, workers=workers, tell=Told())
    if json_wanted:
        write(as_json({"ok": found.ok, **msgspec.to_builtins(found), "notes": list(found.notes())}))
    elif not quiet:
        write("\n".join(_lines(found)) + "\n")
    screen = Screen()
    for finding in found.findings if not json_wanted else ():
        screen.line(shown(f"wrong: {finding}"))
    if found.faults > len(found.findings) and not json_wanted:
        screen.line(f"and {found.faults - len(found.findings)} more")
    return OK if found.ok else BAD_INPUT


def _lines(found: Verification) -> Iterator[str]:
    checks = found.checks
    yield f"{plural(found.files, 'hash', 'hashes')} compared, {plural(found.rows, 'row', 'rows')} encoded once more"
    yield (
        f"{plural(checks.samples, 'sample', 'samples')} decoded: {checks.equal:,} read back equal, "
        f"{checks.explained:,} with reported losses, {checks.texts:,} plain texts"
    )
    yield (
        f"{plural(checks.prompts, 'turn', 'turns')} that begin where their prompt ends; "
        f"{plural(checks.ends, 'end of a turn is', 'ends of turns are')} trained"
    )
    yield from map(shown, found.template.lines())
    columns = (*_COLUMNS, _CHATS) if any(one.chats for one in found.outputs.values()) else _COLUMNS
    cells = [(name, *(f"{getattr(one, field):,}" for field in columns)) for name, one in found.outputs.items()]
    yield table(("OUTPUT", *("MESSAGES" if field == _CHATS else field.upper() for field in columns)), cells)
    for note in found.notes():
        yield f"note: {shown(note)}"
    yield "everything is as it should be" if found.ok else f"{plural(found.faults, 'thing is', 'things are')} wrong"


class Told:
    """Says now and then how far it is, to people who wait."""

    def __init__(self) -> None:
        self._screen = Screen()
        self._due = time.monotonic() + DELAY if self._screen.is_terminal else float("inf")

    def __call__(self, stage: str, count: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + _INTERVAL
            self._screen.note(f"{stage}: {count:,}")
