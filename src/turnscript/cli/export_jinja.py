"""Owns `turnscript export jinja`: a format as the chat template of a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import click

from turnscript.cli.failures import LOSSY, OK
from turnscript.cli.options import VARIANT_HELP, variant_of
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import FORMAT_HELP, FormatName
from turnscript.cli.report import Losses, Screen, fault
from turnscript.core.errors import LossyConversion
from turnscript.detection.template_format import get_format
from turnscript.engine.escape import AUTO, POLICIES
from turnscript.formats.format import Format

_EPILOG = """\b
Examples:
  turnscript export jinja --format rwkv-goose --output chat_template.jinja
  turnscript export jinja --format rwkv-goose --variant paren --generation

\b
Give it to the model's server:
  llama-server --model model.gguf --jinja --chat-template-file chat_template.jinja
  vllm serve MODEL --chat-template chat_template.jinja

\b
Exit code:
  0  written
  1  bad input, such as a file that declares no format
  2  wrong usage
  3  the template would write something otherwise, under --strict
"""


@dataclass(frozen=True)
class Given:
    """What stood on the command line."""

    name: str
    variant: str | None
    output: str | None
    generation: bool
    escape: str
    strict: bool
    quiet: bool


@click.command("jinja", epilog=_EPILOG, short_help="Write the chat template of a format.")
@click.option("--format", "name", type=FormatName(), required=True, help=FORMAT_HELP)
@click.option("--variant", metavar="NAME", help=VARIANT_HELP)
@click.option("--output", "-o", metavar="FILE", help="Write here, whole or not at all, instead of standard output.")
@click.option("--generation", is_flag=True, help="Mark what the model writes, for transformers' assistant masks.")
@click.option(
    "--escape",
    type=click.Choice(list(POLICIES)),
    default=AUTO,
    show_default=True,
    help="A text that holds the format's tags: break them, refuse it, or write it as it is.",
)
@click.option("--strict", is_flag=True, help="Refuse a template that writes anything otherwise than turnscript.")
@click.option("--quiet", "-q", is_flag=True, help="Report errors only.")
def jinja(**given: Any) -> int:
    """Write a format as a chat template in Jinja, which llama.cpp, vLLM, SGLang and transformers render.

    It writes the bytes of `turnscript prompt`. Where it cannot, that is reported, item by item.
    Of a model's own chat template it is that template, as it stands there.
    """
    return run(Given(**given))


def run(given: Given) -> int:
    """Do it. Gives the exit code; raises TurnscriptError, Failed or UsageError."""
    format_ = _format_of(given)
    made = format_.jinja(escape=given.escape, generation=given.generation)
    what = f"a chat template of {format_.name}"
    refused = LossyConversion(made.losses, what) if given.strict and made.losses else None
    if refused is None:
        with Files() as files:
            files.open(STREAM if given.output is None else given.output).write(made.data)
    screen = Screen()
    if refused is not None:
        found = fault(refused)
        found.remedy = "leave out --strict to write it anyway"
        screen.fault(found)
    if refused is not None or (made.losses and not given.quiet):
        losses = Losses(made.losses)
        screen.note(losses.summary)
        losses.list_on(screen, None)
    return OK if refused is None else LOSSY


def _format_of(given: Given) -> Format:
    format_ = get_format(given.name)
    if format_.template is not None and (given.generation or given.escape != AUTO):
        message = "--generation and --escape are for templates that turnscript writes, and this one is the model's own"
        raise click.UsageError(message)
    return variant_of(format_, given.variant)


def add(group: click.Group) -> None:
    """Make it a command of a group."""
    group.add_command(jinja)
