"""Owns `turnscript export vectors`: what a format makes of requests and answers, for the tests of other programs."""

from __future__ import annotations

import json

import click
import msgspec

from turnscript.cli.failures import OK
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import FORMAT_HELP, FormatName
from turnscript.cli.report import Screen, plural
from turnscript.convert.vectors import vectors as vectors_of
from turnscript.detection.template_format import get_format

_EPILOG = """\b
Examples:
  turnscript export vectors --format rwkv-goose
  turnscript export vectors --format qwen3 --output vectors.jsonl

\b
Exit code:
  0  written
  1  bad input, such as a file that declares no format
  2  wrong usage
"""


@click.command("vectors", epilog=_EPILOG, short_help="Write test vectors of a format.")
@click.option("--format", "name", type=FormatName(), required=True, help=FORMAT_HELP)
@click.option("--output", "-o", metavar="FILE", help="Write here, whole or not at all, instead of standard output.")
@click.option("--quiet", "-q", is_flag=True, help="Report errors only.")
def vectors(name: str, output: str | None, quiet: bool) -> int:
    """Write conformance vectors as JSON Lines, by which a program in any language tests that it speaks a format.

    Each line is a request of Chat Completions, the prompt for it with its stop strings, what a model writes there, and
    what that means. Which cases a format cannot carry is reported.
    """
    made = vectors_of(get_format(name))
    with Files() as files:
        sink = files.open(STREAM if output is None else output)
        for vector in made.found:
            sink.write(f"{json.dumps(msgspec.to_builtins(vector), ensure_ascii=False)}\n".encode())
    if not quiet:
        told = f"{plural(len(made.found), 'vector', 'vectors')}"
        Screen().note(f"{told}; the format does not carry: {'; '.join(made.missing)}" if made.missing else told)
    return OK


def add(group: click.Group) -> None:
    """Make it a command of a group."""
    group.add_command(vectors)
