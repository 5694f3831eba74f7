"""Owns the group `data`: its commands, each loaded when it is called, and what to install if a package is missing."""

from __future__ import annotations

import difflib
import importlib
import os
from typing import Any

import click

from turnscript.cli.failures import USAGE, Failed
from turnscript.core.errors import UnknownName

COMMANDS = {
    "inspect": "Tell what files hold: form, roles, lengths.",
    "check": "Go through all rows and write nothing.",
    "preview": "Show the tokens of a row, trained or not.",
    "build": "Write training data from rows.",
    "merge": "Put the shards of a job together.",
    "verify": "Read a finished folder back and compare.",
    "stats": "Show lengths and trained shares.",
    "tokens": "Tell which tokens a format needs.",
}
"""The commands in the order in which one needs them, and what each does, so that a list of them loads none."""

EXTRAS = {
    "numpy": "data",
    "pyrwkv_tokenizer": "data",
    "zstandard": "data",
    "tokenizers": "hf",
    "pyarrow": "parquet",
    "ray": "ray",
}
"""The packages that commands may need, and the extra that brings each."""

_EPILOG = """\b
Examples:
  turnscript data inspect rows.jsonl
  turnscript data preview rows.jsonl --to rwkv-goose --tokenizer rwkv-world
  turnscript data build rows.jsonl --to rwkv-goose --tokenizer rwkv-world --out run
  turnscript data verify run

docs/training-data.md goes through all of it.
"""


class Group(click.Group):
    """Loads a command's module when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # There is no linear algebra here, and numpy's threads for it look for work until they find that out.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        with missing_extras():
            module = importlib.import_module(f"turnscript.cli.data.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):  # click's own search for near names knows none
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            raise click.UsageError(f"no such command {args[0]!r}; {_hint(near)}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with missing_extras():
                return super().invoke(ctx)
        except UnknownName as error:
            if error.kind.startswith("format"):
                raise  # the list of formats has a command of its own
            raise click.UsageError(str(error), ctx) from error


def _hint(near: list[str]) -> str:
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"


class missing_extras:  # noqa: N801  (used like a function)
    """Turns an import that fails for want of an extra into one line that says what to install."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, ModuleNotFoundError):
            package = (error.name or "").partition(".")[0]
            if package in EXTRAS:
                remedy = f"pip install 'turnscript[{EXTRAS[package]}]'"
                raise Failed(f"this needs {package}", remedy=remedy, code=USAGE) from error


@click.group(cls=Group, epilog=_EPILOG, short_help="Prepare training data.")
def data() -> None:
    """Prepare training data: from rows of chats to tokens with a loss mask.

    No row is lost silently: each is written, a duplicate, or set aside with the reason.
    """
