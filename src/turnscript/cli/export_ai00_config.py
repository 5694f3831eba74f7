"""Owns `turnscript export ai00-config`: a format as the sections of ai00's configuration."""

from __future__ import annotations

import click

from turnscript.cli.failures import LOSSY, OK
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import FORMAT_HELP, FormatName
from turnscript.cli.report import Losses, Screen, fault
from turnscript.convert.registry import named_formats
from turnscript.core.errors import LossyConversion
from turnscript.detection.template_format import get_format
from turnscript.tableio.ai00config import write_ai00_config

_EPILOG = """\b
Examples:
  turnscript export ai00-config --format ai00-v1
  turnscript export ai00-config --format rwkv-goose --output prompts.toml

\b
Exit code:
  0  written
  1  bad input, such as a file that declares no format
  2  wrong usage
  3  ai00 would write something otherwise, under --strict
"""


@click.command("ai00-config", epilog=_EPILOG, short_help="Write the prompts of a format for ai00_server.")
@click.option("--format", "name", type=FormatName(), required=True, help=FORMAT_HELP)
@click.option("--output", "-o", metavar="FILE", help="Write here, whole or not at all, instead of standard output.")
@click.option("--strict", is_flag=True, help="Refuse a format that ai00's template cannot say whole.")
@click.option("--quiet", "-q", is_flag=True, help="Report errors only.")
def ai00_config(name: str, output: str | None, strict: bool, quiet: bool) -> int:
    """Write a format as `[prompts]` of ai00's Config.toml, with its sampling presets.

    ai00's own template has turns of its own, so few formats can be said whole: what it writes otherwise is reported.
    """
    format_ = get_format(name)
    made = write_ai00_config(format_, named_formats())
    screen = Screen()
    if strict and made.losses:
        found = fault(LossyConversion(made.losses, f"ai00's configuration of {format_.name}"))
        found.remedy = "leave out --strict to write it anyway"
        screen.fault(found)
    else:
        with Files() as files:
            files.open(STREAM if output is None else output).write(made.data)
    if not quiet or (strict and made.losses):
        losses = Losses(made.losses)
        screen.note(losses.summary)
        losses.list_on(screen, None)
    return LOSSY if strict and made.losses else OK


def add(group: click.Group) -> None:
    """Make it a command of a group."""
    group.add_command(ai00_config)
