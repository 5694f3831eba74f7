"""Owns `turnscript data inspect`: what files hold, for people or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import click
import msgspec

from turnscript.cli.data.options import as_json, reading_options
from turnscript.cli.data.unread import say_unread
from turnscript.cli.failures import BAD_INPUT, OK
from turnscript.cli.options import SectionedCommand
from turnscript.cli.output import STREAM, Files
from turnscript.cli.report import plural, shown
from turnscript.datasets.files import survey
from turnscript.datasets.looking import Found, look
from turnscript.datasets.problems import Problem

_EPILOG = """\b
Examples:
  turnscript data inspect rows.jsonl
  turnscript data inspect chats/ 'logs/*.json' --json

\b
Exit code:
  0  the form of every file is known, and all rows that were looked at can be read
  1  a form is not known, or a row is bad
  2  wrong usage
"""
_UNITS = ("", "KB", "MB", "GB")


@click.command("inspect", cls=SectionedCommand, epilog=_EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@reading_options
@click.option("--json", "json_wanted", is_flag=True, help="For programs.")
def command(paths: tuple[str, ...], form: str | None, map: str | None, json_wanted: bool) -> int:  # noqa: A002
    """Tell what files hold: their form and why, fields, roles, lengths. Nothing is written.

    PATH is a file, a folder, or a pattern. The first rows of each file are looked at.
    """
    listing = survey(paths)
    say_unread(listing)
    found = [look(path, form or "auto", map or "") for path in listing.files]
    with Files() as files:
        text = as_json([msgspec.to_builtins(one) for one in found]) if json_wanted else "\n".join(paragraphs(found))
        files.open(STREAM).write(text.encode("utf-8", "backslashreplace"))
    return BAD_INPUT if any(one.refusal or one.problems for one in found) else OK


def paragraphs(found: list[Found]) -> Iterator[str]:
    """A paragraph for each file."""
    for one in found:
        yield "".join(f"{line}\n" for line in _lines(one))


def _lines(one: Found) -> Iterator[str]:
    packed = f", {one.compression}" if one.compression != "none" else ""
    yield shown(f"{one.file}: {one.container}{packed}, {_size(one.size)}")
    if one.form:
        share = f", {one.share:.0%} of {plural(one.told, 'row', 'rows')}" if one.share else ""
        yield shown(f"  form     {one.form} ({one.title}){share}")
    else:
        reasons = one.refusal.removeprefix(f"{one.file}: ").split("; ")
        yield from (shown(f"  {'form' if not at else '':<9}{reason}") for at, reason in enumerate(reasons))
    for reason in one.evidence:
        yield shown(f"  because  {reason}")
    if one.runners_up:
        others = ", ".join(f"{other.form} ({other.share:.0%})" for other in one.runners_up)
        yield shown(f"  not      {others}")
    yield shown(f"  fields   {_counted(one.fields)}")
    if one.items:
        tools = f"; {plural(one.tools, 'row declares', 'rows declare')} tools" if one.tools else ""
        yield shown(f"  items    {_counted(one.items)}{tools}")
    least, middle, most = one.bytes
    yield f"  bytes    {least:,} in the shortest row, {middle:,} in the middle one, {most:,} in the longest"
    for code, count in one.problems.items():
        said = [_problem(line, problem) for line, problem in one.first_problems if problem.code == code]
        yield shown(
            f"  {code}  {plural(count, 'row', 'rows')}; the first is {said[0]}" if said else f"  {code}  {count}"
        )
        yield from (shown(f"  {'':<{len(code)}}  another is {other}") for other in said[1:])


def _problem(line: int, problem: Problem) -> str:
    where = f"{problem.pointer}: " if problem.pointer else ""
    return f"row {line}: {where}{problem.message}"


def _counted(counts: Mapping[str, int], most: int = 12) -> str:
    text = ", ".join(f"{name} {count}" for name, count in list(counts.items())[:most])
    return text + (f" and {len(counts) - most} more" if len(counts) > most else "") if counts else "none"


def _size(size: int) -> str:
    if size < 1000:
        return plural(size, "byte", "bytes")
    power = min(len(f"{size}") - 1, 9) // 3
    return f"{size / 1000**power:,.1f} {_UNITS[power]}"
