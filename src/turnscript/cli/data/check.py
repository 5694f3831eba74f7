"""Owns `turnscript data check`: a build into a folder that is thrown away, so it says what a build does."""

from __future__ import annotations

import tempfile
from typing import Any

import click

from turnscript.cli.data.build import Watch, Workers, local_executor, write
from turnscript.cli.data.closing import Closing
from turnscript.cli.data.options import (
    RUN,
    as_json,
    encoding_options,
    length_options,
    merging_options,
    option,
    plan_from,
    plan_option,
    reading_options,
)
from turnscript.cli.data.stats import page
from turnscript.cli.data.unread import say_unread
from turnscript.cli.failures import BAD_INPUT, OK
from turnscript.cli.options import SectionedCommand
from turnscript.datasets.build import build
from turnscript.datasets.files import survey
from turnscript.datasets.runstats import stats_of

_EPILOG = """\b
Examples:
  turnscript data check rows.jsonl --to rwkv-goose --tokenizer rwkv-world
  turnscript data check rows.jsonl --to rwkv-goose --tokenizer rwkv-world --max-tokens 4096 --json

\b
Exit code:
  0  every row can be used
  1  bad input, or rows would be set aside
  2  wrong usage
"""


@click.command("check", cls=SectionedCommand, epilog=_EPILOG)
@click.argument("inputs", nargs=-1, metavar="[PATH...]")
@encoding_options
@reading_options
@length_options
@merging_options
@plan_option
@option(RUN, "--workers", type=Workers(), default=0, metavar="N|auto", help="Processes. Default: one a processor.")
@option(
    "How it looks", "--ctx-len", type=click.IntRange(1), metavar="N", help="The context that RWKV-LM's line is for."
)
@option("How it looks", "--json", "json_wanted", is_flag=True, help="For programs.")
def command(
    inputs: tuple[str, ...],
    plan_file: str | None,
    workers: int,
    ctx_len: int | None,
    json_wanted: bool,
    **options: Any,
) -> int:
    """Go through all rows as a build does, and keep nothing.

    Says which rows would be set aside and why, how much is trained, how long samples are, and what a trainer is told.
    The work is done in a temporary folder: about three bytes for each token.
    """
    plan = plan_from(inputs, plan_file, options)
    say_unread(survey(plan.inputs))
    with tempfile.TemporaryDirectory(prefix="turnscript-check-") as folder:
        with Watch() as watch:
            build(plan, folder, executor=local_executor(plan, workers), progress=watch.see)
        closing = Closing(folder, ctx_len)
        stats = stats_of(folder)
        if json_wanted:
            facts = closing.facts()
            del facts["folder"], facts["report"]["outputs"]
            write(as_json({**facts, "stats": stats.facts()}))
        else:
            write("\n".join([*closing.lines(kept=False), "", *list(page(stats, rows=False))[1:]]) + "\n")
    return BAD_INPUT if closing.report.rejects or not closing.report.written else OK
