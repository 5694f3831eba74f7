"""Owns `turnscript export response-template`: how transformers is to read what a model writes in a format."""

from __future__ import annotations

import json

import click

from turnscript.cli.failures import OK
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import FORMAT_HELP, FormatName
from turnscript.cli.report import Losses, Screen
from turnscript.detection.template_format import get_format

_EPILOG = """\b
Examples:
  turnscript export response-template --format rwkv-goose
  turnscript export response-template --format qwen3 --output response_template.json

\b
Exit code:
  0  written
  1  bad input, such as a file that declares no format
  2  wrong usage
"""


@click.command("response-template", epilog=_EPILOG, short_help="Write how transformers is to read answers.")
@click.option("--format", "name", type=FormatName(), required=True, help=FORMAT_HELP)
@click.option("--output", "-o", metavar="FILE", help="Write here, whole or not at all, instead of standard output.")
@click.option("--quiet", "-q", is_flag=True, help="Report errors only.")
def response_template(name: str, output: str | None, quiet: bool) -> int:
    """Write a format as the `response_template` of a tokenizer: JSON by which transformers makes messages of answers.

    It is a member of tokenizer_config.json. What turnscript's own parser reads better is reported, item by item.
    """
    made = get_format(name).response_template()
    with Files() as files:
        sink = files.open(STREAM if output is None else output)
        sink.write(f"{json.dumps(made.value, ensure_ascii=False, indent=2)}\n".encode())
    if not quiet:
        losses, screen = Losses(made.losses), Screen()
        screen.note(losses.summary)
        losses.list_on(screen, None)
    return OK


def add(group: click.Group) -> None:
    """Make it a command of a group."""
    group.add_command(response_template)
