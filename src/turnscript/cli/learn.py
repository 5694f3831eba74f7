"""Owns `turnscript learn`: the table that reads what a chat template writes, as TOML, and how well it reads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from turnscript.cli.failures import BAD_INPUT, OK, Failed, reading
from turnscript.cli.output import STREAM, Files
from turnscript.cli.report import Screen, fault, shown, table
from turnscript.cli.source import Source
from turnscript.detection.place import TemplateSource, read_place
from turnscript.detection.reading_table import Reading
from turnscript.detection.template_format import read_template
from turnscript.tableio import dump_format

_EPILOG = """\b
Examples:
  turnscript learn chat_template.jinja
  turnscript learn chat_template.jinja --check
  turnscript learn chat_template.jinja --output mine.toml

\b
Exit code:
  0  the table reads all that the template writes
  1  it does not read all of it, or the template is bad
  2  wrong usage
"""


@click.command(epilog=_EPILOG, short_help="Write the table that reads what a chat template writes.")
@click.argument("template", metavar="TEMPLATE", type=click.Path(readable=False))
@click.option("--check", is_flag=True, help="Show what became of each probe instead of the table.")
@click.option("--output", "-o", metavar="FILE", help="Write here, whole or not at all, instead of standard output.")
@click.option("--json", "as_json", is_flag=True, help="The verdicts for programs.")
def learn(template: str, check: bool, output: str | None, as_json: bool) -> int:
    """Write the table that reads what a chat template writes, as a TOML file of your own.

    TEMPLATE is a .jinja file, a tokenizer_config.json, a model's folder, a .gguf file, or a model in the Hugging Face
    cache; #NAME behind it chooses one of several templates.
    It writes short conversations, and the table whose reader gives exactly what went in is the one. Where no known
    table does, one is learned from the differences between those conversations.
    """
    found = _read(template)
    if as_json:
        text = f"{json.dumps(_record(found), ensure_ascii=False, indent=2)}\n"
    elif check:
        text = f"{_verdicts(found)}\n"
    else:
        comments = "".join([f"# {line}\n" for line in _comments(found)])
        text = f"{comments}\n{(found.learned or dump_format(found.format)).lstrip()}"
    with Files() as files:
        files.open(output or STREAM).write(text.encode())
    if found.exact:
        return OK
    remedy = "`turnscript learn --check` shows each probe; change the table by hand and give it as --format"
    Screen().fault(fault(Failed(found.sentence, place=template, remedy=remedy)))
    return BAD_INPUT


def _read(template: str) -> Reading:
    """Read a template and find its table."""
    return read_template(_source(template))[1]


def _source(template: str) -> TemplateSource:
    """Return the template at a place, or the one on standard input."""
    if template != STREAM:
        return read_place(template)
    with reading(template), Source(template) as source:
        data = source.whole()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Failed("this is no UTF-8 text", place=source.name, remedy="give a chat template in Jinja") from None
    return TemplateSource(text=text, told_by=source.name)


def _comments(found: Reading) -> Iterator[str]:
    """Say how well the table reads and what was not learned, a line each."""
    yield _line(found.sentence)
    for sentence in found.unlearned:
        yield _line(sentence)
    missing = [what for what, there in found.takes.items() if not there]
    if missing:
        yield f"The template has no place for {', '.join(missing)}."
    for verdict in found.verdicts:
        if verdict.sentence:
            yield _line(f"{verdict.probe}: {verdict.sentence}")


def _line(sentence: str) -> str:
    """A sentence on one line, as a comment can hold it."""
    text = shown(" ".join(sentence.split()))
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"


def _verdicts(found: Reading) -> str:
    rows = [(verdict.probe, verdict.result, _line(verdict.sentence or "-").rstrip(".")) for verdict in found.verdicts]
    return f"{_line(found.sentence)}\n\n{table(('PROBE', 'READ', 'WHY'), rows)}"


def _record(found: Reading) -> dict[str, Any]:
    record = {key: getattr(found, key) for key in ("exact", "sentence", "stops", "takes", "unlearned", "verdicts")}
    shape = "learned" if found.learned else found.format.name
    made: dict[str, Any] = msgspec.to_builtins({"table": shape, "asked": found.asked, "right": found.right} | record)
    return made
