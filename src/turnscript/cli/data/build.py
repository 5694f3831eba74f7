"""Owns `turnscript data build`: a plan from the options, where its shards run, and what is said while they do."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from typing import Any

import click
from msgspec.structs import replace

from turnscript.cli.data.closing import Closing
from turnscript.cli.data.options import (
    FILES,
    RUN,
    as_json,
    encoding_options,
    length_options,
    merging_options,
    option,
    plan_from,
    plan_option,
    reading_options,
    words_option,
)
from turnscript.cli.data.unread import say_unread
from turnscript.cli.failures import BAD_INPUT, INTERRUPTED, OK
from turnscript.cli.options import SectionedCommand
from turnscript.cli.output import STREAM
from turnscript.cli.output import Files as Sinks
from turnscript.cli.progress import DELAY, Meter, Pace
from turnscript.cli.report import Screen, plural
from turnscript.datasets.build import Progress, build
from turnscript.datasets.executors import Executor, Inline, Processes, Shard
from turnscript.datasets.files import expand, survey
from turnscript.datasets.manifest import read_manifest
from turnscript.datasets.plan import Plan, names

_EPILOG = """\b
Examples:
  turnscript data build rows.jsonl --to rwkv-goose --tokenizer rwkv-world --out run
  turnscript data build rows.jsonl --to rwkv-goose --tokenizer rwkv-world --out run2 --max-tokens 4096 --dedup exact
  turnscript data build rows.jsonl --to openchatml --tokenizer bytes --out run3 --format jsonl --shuffle 7
  turnscript data build --plan plan.toml --out run4 --shard 1/1

\b
Exit code:
  0    written, every row is used
  1    bad input, or rows were set aside: they are in rejects.jsonl
  2    wrong usage
  130  interrupted; the same command goes on
"""
_SMALL = 4 << 20
"""Inputs of fewer bytes are done before another process has begun."""

_PLAIN_INTERVAL = 60.0
"""Where nobody watches, a log gets a line so many seconds apart."""


class Part(click.ParamType[tuple[int, int]]):
    """`i/n`: which part of how many."""

    name = "i/n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"(\d+)/(\d+)", str(value))
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            self.fail(f"{value!r} is no part; write the first of 64 as 1/64, the last as 64/64", param, ctx)
        return int(found[1]), int(found[2])


class Workers(click.ParamType[int]):
    """A number, or `auto` for as many as there are processors: 0."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if value in (0, "auto"):
            return 0
        if not str(value).isdecimal() or not int(value):
            self.fail(f"{value!r} is neither a number from 1 on nor auto", param, ctx)
        return int(value)


@click.command("build", cls=SectionedCommand, epilog=_EPILOG)
@click.argument("inputs", nargs=-1, metavar="[PATH...]")
@encoding_options
@reading_options
@length_options
@merging_options
@option(FILES, "--out", metavar="FOLDER", required=True, help="Where everything goes. Made if it is not there.")
@words_option(FILES, "--format", "outputs", help="binidx, parquet, jsonl. Default: binidx.")
@option(FILES, "--name", metavar="NAME", help="How the names of the files begin. Default: train.")
@option(FILES, "--ctx-len", type=click.IntRange(1), metavar="N", help="The context for RWKV-LM's line.")
@plan_option
@option(RUN, "--workers", type=Workers(), default=0, metavar="N|auto", help="Processes. Default: one a processor.")
@option(RUN, "--shards", type=click.IntRange(1), metavar="N", help="Cut the inputs into so many pieces of work.")
@option(RUN, "--shard", "part", type=Part(), metavar="I/N", help="Do only this part, for arrays of jobs; merge later.")
@option(RUN, "--ray", metavar="[ADDRESS]", is_flag=False, flag_value="", help="Run on a Ray cluster.")
@option(RUN, "--resume/--no-resume", default=True, help="Use what an earlier run has finished. Default: yes.")
@option(RUN, "--keep-shards", "keep", is_flag=True, help="Leave the shards there, for a build that differs in outputs.")
@option("How it looks", "--json", "json_wanted", is_flag=True, help="The report for programs.")
@option("How it looks", "--quiet", "-q", is_flag=True, help="Report errors only.")
def command(inputs: tuple[str, ...], plan_file: str | None, **options: Any) -> int:
    """Write training data: rows become tokens with a loss mask.

    PATH is a file, a folder or a pattern. The bytes that are written depend on the rows and the options alone, never on
    the number of workers or machines. A build that was stopped goes on where it was.
    """
    run = {name: options.pop(name) for name in _RUN_OPTIONS}
    plan = plan_from(inputs, plan_file, options)
    if not run["quiet"]:
        say_unread(survey(plan.inputs))
    executor = _executor(plan, run["workers"], run["part"], run["ray"])
    out = os.fspath(run["out"])
    if not run["quiet"]:
        _say_replaced(out, plan)
    watch = Watch(quiet=run["quiet"])
    try:
        with watch:
            report = build(
                plan,
                out,
                executor=executor,
                resume=run["resume"],
                progress=watch.see,
                shards=run["shards"],
                keep=run["keep"],
            )
    except KeyboardInterrupt:
        Screen().note(f"interrupted; what is finished stays in {out}. To go on: {_same_command()}")
        return INTERRUPTED
    if report is None:
        return _part_done(out, run, watch)
    return conclude(out, run["ctx_len"], json_wanted=run["json_wanted"], quiet=run["quiet"])


_RUN_OPTIONS = ("out", "ctx_len", "workers", "shards", "part", "ray", "resume", "keep", "json_wanted", "quiet")


def conclude(out: str, ctx_len: int | None, *, json_wanted: bool, quiet: bool) -> int:
    """Say what became of all rows; gives the exit code."""
    closing = Closing(out, ctx_len)
    if json_wanted:
        write(as_json(closing.facts()))
    elif not quiet:
        write("\n".join(closing.lines()) + "\n")
    if closing.report.rejects:
        count = plural(closing.report.rejects, "row was", "rows were")
        Screen().note(f"{count} set aside; {os.path.join(out, 'rejects.jsonl')} has them, with the reasons")
    return BAD_INPUT if closing.report.rejects or not closing.report.written else OK


def write(text: str) -> None:
    """To standard output."""
    with Sinks() as files:
        files.open(STREAM).write(text.encode("utf-8", "backslashreplace"))


def _say_replaced(out: str, plan: Plan) -> None:
    """A folder holds one build. Whoever forgets that learns it before hours of work are gone, not after."""
    earlier = read_manifest(out)
    if earlier is None:
        return
    if not plan.date:  # which the build itself fills in
        plan = replace(plan, date=earlier.plan.date)
    others = [name for name in plan.__struct_fields__ if getattr(plan, name) != getattr(earlier.plan, name)]
    if not others:
        return
    Screen().note(
        f"{out} holds a finished build with other options ({', '.join(others)}): its files "
        f"({names(earlier.report.outputs, 4)}) are replaced once this one is finished"
    )


def _executor(plan: Plan, workers: int, part: tuple[int, int] | None, ray: str | None) -> Executor:
    if ray and os.path.exists(ray):
        raise click.UsageError(f"--ray {ray}: that is no address of a cluster; name the inputs before --ray")
    if ray is not None and part is not None:
        raise click.UsageError("--ray and --shard: a cluster takes all shards; give one of the two")
    if ray is not None:
        from turnscript.datasets.raytasks import RayTasks  # noqa: PLC0415  (needs an extra)

        return RayTasks(ray or None)
    executor = local_executor(plan, workers)
    return executor if part is None else Shard(*part, inner=executor)


def local_executor(plan: Plan, workers: int) -> Executor:
    """This process, or several. 0 workers: as many as there are processors, where there is enough to do."""
    if workers == 1 or (not workers and _is_small(plan)):
        return Inline()
    return Processes(workers or None)


def _is_small(plan: Plan) -> bool:
    return sum(os.path.getsize(path) for path in expand(plan.inputs)) < _SMALL


def _part_done(out: str, run: dict[str, Any], watch: Watch) -> int:
    number, count = run["part"]
    seen = watch.seen
    if run["json_wanted"]:
        write(as_json({"folder": out, "part": number, "of": count, "rows": seen.rows, "rejected": seen.rejects}))
    elif not run["quiet"]:
        rows = plural(seen.rows, "row", "rows")
        Screen().note(f"part {number} of {count} is done: {rows}, {seen.rejects} rejected")
        Screen().note(f"when all parts are done: turnscript data merge {shlex.quote(out)}")
    return OK


def _same_command() -> str:
    """What was typed, without --no-resume, which would throw away what is finished."""
    words = ["turnscript", *(word for word in sys.argv[1:] if word != "--no-resume")]
    return shlex.join(words)


class Watch:
    """Shows how far a job is: a bar for people, a line now and then for logs."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._screen = Screen()
        self._bar: Meter | None = None
        self._draws = self._screen.is_terminal and not quiet
        self._logs = not self._screen.is_terminal and not quiet
        self._began = self._due = time.monotonic()
        self._stage = ""
        self.seen = Progress("")

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def see(self, progress: Progress) -> None:
        """So far is it."""
        if progress.stage != self._stage:
            self._stop()
            self._stage = progress.stage
            if progress.total:
                self._bar = Meter(progress.total, enabled=self._draws)
            elif self._draws and time.monotonic() - self._began > DELAY:
                self._screen.note("all rows are read; writing the outputs")
        if progress.total:
            self.seen = progress
        if self._bar is not None:
            self._bar.tick(progress.rows, progress.rejects, progress.bytes, progress.before[:2])
        self._log(progress)

    def _log(self, progress: Progress) -> None:
        now = time.monotonic()
        if not self._logs or now - self._due < _PLAIN_INTERVAL:
            return
        self._due = now
        if progress.total:
            share = progress.bytes / progress.total
            pace = Pace(now - self._began, progress.rows, progress.bytes, *progress.before[:2])
            left = pace.left(progress.total)
            said = f"{progress.rows} rows  {pace}  {progress.rejects} rejected  {share:.0%}  {left}"
            self._screen.note(said.rstrip())
        else:
            self._screen.note(f"{progress.bytes} documents written")

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
