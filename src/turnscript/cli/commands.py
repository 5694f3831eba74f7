"""Owns the command group, the lists of names, and the edge where each expected error becomes a message and a code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO

import click

import turnscript
from turnscript.apis.api import Api
from turnscript.cli.check import check
from turnscript.cli.convert import convert
from turnscript.cli.data.group import data
from turnscript.cli.detect import detect
from turnscript.cli.doctor import doctor
from turnscript.cli.export import export
from turnscript.cli.failures import INTERRUPTED, OK, PIPE_CLOSED, USAGE, Failed, trouble
from turnscript.cli.keys import keys
from turnscript.cli.launch import launch
from turnscript.cli.learn import learn
from turnscript.cli.output import STREAM, Files
from turnscript.cli.playground import playground
from turnscript.cli.prompt import prompt
from turnscript.cli.read import read
from turnscript.cli.report import Fault, Screen, faults, table, usage
from turnscript.cli.serve import serve
from turnscript.cli.show import show
from turnscript.convert.registry import apis, formats, get_api, model_formats, title_of, variants_of
from turnscript.core.errors import TurnscriptError

_EPILOG = """\b
Examples:
  turnscript convert request.json --to openai-chat
  turnscript convert chats.jsonl --to rwkv-universal --output chats.rwkv.jsonl
  turnscript prompt request.json --format rwkv-goose --thinking
  turnscript apis
"""


class Edge(click.Group):
    """The group that turns errors into messages and exit codes. What is not expected stays a traceback: a bug."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except _EXPECTED as error:  # the help and the version are written here
            raise click.exceptions.Exit(_final(_told(error))) from error

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
        except _EXPECTED as error:
            code = _told(error)
        ctx.exit(_final(code or OK))


_EXPECTED = (click.UsageError, TurnscriptError, Failed, KeyboardInterrupt, OSError, MemoryError)


def _told(error: BaseException) -> int:
    """Say what ended the command. Returns the exit code, which says it alone where standard error cannot be written."""
    if isinstance(error, BrokenPipeError):
        _forget(sys.stdout)
        _forget(sys.stderr)
        return PIPE_CLOSED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return USAGE
    if isinstance(error, KeyboardInterrupt):
        Screen().note("interrupted; unfinished files are removed")
        return INTERRUPTED
    found = _found(error)
    with suppress(OSError):
        for one in found:
            Screen().fault(one)
    return found[0].exit_code


def _found(error: BaseException) -> list[Fault]:
    if isinstance(error, click.UsageError):
        return [usage(error)]
    if isinstance(error, MemoryError):
        error = Failed("not enough memory", remedy="JSON Lines are converted row by row")
    elif isinstance(error, OSError):
        error = trouble(error)
    assert isinstance(error, TurnscriptError | Failed)
    return faults(error)


def _final(code: int) -> int:
    """The exit code, with nothing left to write. What could not be written was told; Python would tell it again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # full, closed, or None where it was closed from the start
            _forget(stream)
    return code


def _forget(stream: TextIO) -> None:
    """Send what is still in the buffer nowhere: nobody reads it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, stream.fileno())
    except (OSError, ValueError, AttributeError):  # not a real file
        pass
    finally:
        os.close(nowhere)


@click.group(cls=Edge, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(turnscript.__version__, prog_name="turnscript", message="%(prog)s %(version)s")
def group() -> None:
    """One transcript for every chat API and every prompt format.

    Nothing is lost silently: what a target cannot say is reported.
    """


group.add_command(check)
group.add_command(convert)
group.add_command(data)
group.add_command(detect)
group.add_command(doctor)
group.add_command(export)
group.add_command(keys)
group.add_command(launch)
group.add_command(learn)
group.add_command(playground)
group.add_command(prompt)
group.add_command(read)
group.add_command(serve)
group.add_command(show)


@group.command("apis", epilog="\b\nExample:\n  turnscript apis --json")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_apis(as_json: bool) -> None:
    """List the APIs, with their profiles and flags."""
    known = [get_api(name) for name in apis()]
    if as_json:
        _write_json(
            {
                "name": api.name,
                "title": api.title,
                "endpoint": api.endpoint,
                "profiles": list(api.profiles),
                "flags": {flag: list(values) for flag, values in api.flags.items()},
            }
            for api in known
        )
        return
    cells = [(api.name, api.endpoint, api.title, _choices(api)) for api in known]
    _write(table(("NAME", "ENDPOINT", "WHAT", "OPTIONS"), cells))


@group.command("formats", epilog="\b\nExample:\n  turnscript formats --json")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_formats(as_json: bool) -> None:
    """List the prompt formats: the registered ones with their variants, then those of well-known models.

    A variant is given as --variant, wherever a format is named.
    """
    kinds = {"registered": formats(), "models": model_formats()}
    if as_json:
        _write_json(
            {"name": name, "title": title_of(name), "kind": kind, "variants": variants_of(name)}
            for kind, names in kinds.items()
            for name in names
        )
        return
    registered = [(name, title_of(name), ", ".join(variants_of(name))) for name in kinds["registered"]]
    models = [(name, title_of(name)) for name in kinds["models"]]
    _write("\n\n".join([table(("NAME", "WHAT", "VARIANTS"), registered), table(("NAME", "MODELS"), models)]))


def _choices(api: Api) -> str:
    """The options that `convert` takes for an API."""
    flags = [f"--set {flag}={'|'.join(values)}" for flag, values in api.flags.items()]
    return " ".join([f"--profile {'|'.join(api.profiles)}", *flags])


def _write_json(records: Iterable[dict[str, object]]) -> None:
    _write(json.dumps(list(records), ensure_ascii=False, indent=2))


def _write(text: str) -> None:
    with Files() as files:
        files.open(STREAM).write(f"{text}\n".encode())
