"""Owns `turnscript data preview`: the tokens of one row, coloured or marked, as JSON, or as a page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from turnscript.cli.data.options import (
    as_json,
    encoding_options,
    option,
    plan_from,
    plan_option,
    reading_options,
)
from turnscript.cli.failures import BAD_INPUT, OK
from turnscript.cli.options import SectionedCommand
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import escaped, has_colours, legible
from turnscript.cli.report import Screen, shown
from turnscript.datasets.preview import MARKS, Preview, Run, Shown, State, preview_of
from turnscript.datasets.problems import Problem

SHOWN = "What is shown"
_EPILOG = """\b
Examples:
  turnscript data preview rows.jsonl --to rwkv-goose --tokenizer rwkv-world
  turnscript data preview rows.jsonl --to rwkv-goose --tokenizer rwkv-world --row 3 --tokens
  turnscript data preview rows.jsonl --to rwkv-goose --tokenizer rwkv-world --html row.html

\b
On a terminal the text is coloured. Elsewhere each line is one piece of text behind a mark and whose it is:
  #  the format's own literals
  =  somebody's text, which the model reads
  *  the format's own literals, which the model learns to write
  +  what the model learns to write
  ~  a token that straddles the border between the two

\b
Exit code:
  0  shown
  1  bad input, or the row cannot be used
  2  wrong usage
"""

_COLOURS: dict[State, dict[str, Any]] = {
    State.TRAINED: {"fg": 16, "bg": 114},
    State.TRAINED_CONTROL: {"fg": 16, "bg": 71},
    State.CONTEXT: {},
    State.CONTROL: {"fg": 16, "bg": 153},
    State.STRADDLING: {"fg": 16, "bg": 215},
}
_SECOND = {114: 150, 71: 108, 153: 189, 215: 222}
"""Every second token is a shade lighter, so that one sees where tokens end."""

_BYTES = re.compile("([\udc80-\udcff]+)")


_ROW = "Which row, as errors and reports number it: by the line of JSON Lines, else by its place in the file."


@click.command("preview", cls=SectionedCommand, epilog=_EPILOG)
@click.argument("file", metavar="FILE")
@encoding_options
@reading_options
@option(SHOWN, "--row", type=click.IntRange(1), default=1, show_default=True, help=_ROW)
@option(SHOWN, "--tokens", is_flag=True, help="A line for each token, with its id and weight.")
@option(SHOWN, "--html", metavar="FILE", help="Write a page for the browser instead.")
@option(SHOWN, "--json", "json_wanted", is_flag=True, help="For programs.")
@plan_option
def command(
    file: str, row: int, tokens: bool, html: str | None, json_wanted: bool, plan_file: str | None, **options: Any
) -> int:
    """Show how a row becomes tokens, and which of them are trained.

    What is shown comes from the encoder that `turnscript data build` uses.
    """
    plan = plan_from((file,), plan_file, options)
    found = preview_of(plan, file, row)
    with Files() as files:
        out = files.open(STREAM if html is None else html)
        if html is not None:
            text = found.html()
        elif json_wanted:
            text = as_json(record(found))
        else:
            text = "".join(_page(found, colours=has_colours(out), tokens=tokens))
        out.write(text.encode("utf-8", "backslashreplace"))
    if html:
        Screen().note(f"the page is in {html}")
    problems = [found.problem, *(one.problem for one in found.examples)]
    return BAD_INPUT if any(problems) else OK


def record(found: Preview) -> dict[str, Any]:
    """A preview for programs."""
    return {
        "source": found.source,
        "row": found.number,
        "form": found.form,
        "format": found.format,
        "tokenizer": found.tokenizer,
        "mode": found.mode,
        "problem": found.problem,
        "examples": [
            {
                "label": one.label,
                "problem": one.problem,
                "tokens": len(one.tokens),
                "trained": one.trained,
                "counts": {state.value: count for state, count in one.counts.items()},
                "runs": [_run_record(run) for run in one.runs],
            }
            for one in found.examples
        ],
    }


def _run_record(run: Run) -> dict[str, Any]:
    return {
        "state": run.state.value,
        "item": run.item,
        "kind": run.kind,
        "text": run.text,
        "ids": [token.id for token in run.tokens],
        "weights": [token.weight for token in run.tokens],
    }


def _page(found: Preview, *, colours: bool, tokens: bool) -> Iterator[str]:
    head = f"{found.source}, row {found.number}: {found.form}; {found.format}, {found.tokenizer}, mode {found.mode}"
    yield f"{shown(head)}\n"
    if colours:
        yield f"{_legend()}\n"
    if found.problem is not None:
        yield _problem(found.problem)
    for number, one in enumerate(found.examples, 1):
        if len(found.examples) > 1:
            yield f"\nexample {number} of {len(found.examples)}{f': {shown(one.label)}' if one.label else ''}\n"
        yield from _example(one, colours=colours, tokens=tokens)


def _example(one: Shown, *, colours: bool, tokens: bool) -> Iterator[str]:
    if one.problem is not None:
        yield _problem(one.problem)
    if not one.tokens:
        return
    counts = ", ".join(f"{count} {state}" for state, count in one.counts.items() if count)
    share = one.trained / len(one.tokens)
    yield f"{len(one.tokens)} tokens, {one.trained} ({share:.1%}) of them count in the loss: {counts}\n\n"
    if tokens:
        yield from map(_token_lines, one.runs)
    elif colours:
        yield "".join(map(_painted, one.runs)).rstrip("\n") + "\n"
    else:
        width = max(len(run.name) for run in one.runs)
        yield from (f"{MARKS[run.state]} {run.name:<{width}}  {_written(run.data)}".rstrip() + "\n" for run in one.runs)


def _token_lines(run: Run) -> str:
    return "".join(
        f"{MARKS[run.state]} {token.id:>6}  {token.weight:>3}  {run.name:<14}  {_written(token.text)}".rstrip() + "\n"
        for token in run.tokens
    )


def _written(data: bytes) -> str:
    """Bytes on one line that can be told exactly. Those that are a piece of a character are escapes."""
    pieces = _BYTES.split(data.decode("utf-8", "surrogateescape"))
    return "".join([_hexadecimal(piece) if place % 2 else escaped(piece) for place, piece in enumerate(pieces)])


def _hexadecimal(text: str) -> str:
    return "".join([f"\\x{byte:02x}" for byte in text.encode("utf-8", "surrogateescape")])


def _painted(run: Run) -> str:
    """A run in its colour. What is cut inside a character is shown with the token that ends it."""
    pieces, held = [], b""
    for number, token in enumerate(run.tokens):
        held += token.text
        try:
            text = held.decode()
        except UnicodeDecodeError:
            if token is not run.tokens[-1]:
                continue
            text = held.decode("utf-8", "backslashreplace")
        held = b""
        style = dict(_COLOURS[run.state])
        if number % 2 and style:
            style["bg"] = _SECOND[style["bg"]]
        lines = legible(text).replace("\n", "↵\n").split("\n")
        pieces.append("\n".join([click.style(line, **style) if line and style else line for line in lines]))
    return "".join(pieces)


def _legend() -> str:
    return "  ".join([click.style(f" {state} ", **style) for state, style in _COLOURS.items()])


def _problem(problem: Problem) -> str:
    place = f" at {problem.pointer}" if problem.pointer else ""
    return shown(f"{problem.code}{place}: {problem.message}") + "\n"
