"""Owns `turnscript check`: all that is wrong with a transcript, each with its place, and how the format writes it."""

from __future__ import annotations

import codecs
import difflib
import json
from collections.abc import Iterator
from contextlib import suppress

import click
import msgspec

from turnscript.cli.advice import by_answer, by_nearness, lookalike
from turnscript.cli.failures import BAD_INPUT, LOSSY, OK, Failed
from turnscript.cli.options import VARIANT_HELP, variant_of
from turnscript.cli.output import STREAM, Files, Sink
from turnscript.cli.prompt import FORMAT_HELP, FormatName, has_colours, legible
from turnscript.cli.report import Screen, fault, in_line, plural
from turnscript.cli.source import Source
from turnscript.convert.recognition import detect_api, recognised_transcript
from turnscript.convert.registry import formats, is_format
from turnscript.convert.verbs import folded, unfolded
from turnscript.core.errors import InvalidInput, InvalidTranscript, TurnscriptError
from turnscript.core.payloads import Rendered, transcript_text
from turnscript.detection.template_format import get_format
from turnscript.engine.files import Fill
from turnscript.engine.lines import FAULT, Finding, Findings, Lines, found_loss
from turnscript.formats.format import Format

_EPILOG = """\b
Examples:
  turnscript check chat.txt --format rwkv-universal
  turnscript check chat.txt --format rwkv-goose --variant paren
  turnscript check chat.txt --json
  turnscript convert request.json --to openchatml --quiet | turnscript check - --format openchatml

\b
Exit code:
  0  nothing was found
  1  the transcript has faults, or is none of the format
  2  wrong usage
  3  it can be read, but not all of it as it stands, or the format writes it otherwise
"""
_NOTED = "noted"
_COLOURS = {"-": "red", "+": "green", "@": "cyan"}


@click.command(epilog=_EPILOG, short_help="Find all that is wrong with a transcript.")
@click.argument("file", default=STREAM, metavar="[FILE|-]")
@click.option("--format", "name", type=FormatName(), help=f"{FORMAT_HELP} Without it, that is told from the text.")
@click.option("--variant", metavar="NAME", help=VARIANT_HELP)
@click.option("--json", "as_json", is_flag=True, help="For programs: what was found, and the difference.")
def check(file: str, name: str | None, variant: str | None, as_json: bool) -> int:
    """Find all that is wrong with a transcript, not only the first fault.

    Each line says where it is, FILE:LINE:COLUMN, and what: a fault; what is read but not kept as it stands; a mark
    of the format that stands in a text. Where there are no faults, it is shown how the format
    itself writes the conversation, as a unified diff; nothing, if the file is just that.
    """
    format_ = variant_of(get_format(name), variant) if name is not None else None
    screen = Screen()
    with Source(file) as source:
        if source.is_terminal:
            screen.note("reading standard input; Ctrl-D ends it")
        data = source.whole()
    if not data.strip():
        raise Failed("the input is empty", place=source.name, remedy="give a transcript")
    try:
        reason = ""
        if format_ is None:
            format_, reason = _recognised(data, source.name)
            format_ = variant_of(format_, variant)
        text = transcript_text(data)
        if format_.files_mark(text):
            found, difference, reason = _files(format_, text, source.name)
        else:
            found, difference = _transcript(format_, data, source.name, named=name is not None)
        if data.startswith(codecs.BOM_UTF8):
            found.insert(0, Finding(1, 1, _NOTED, "a byte order mark stands before the text; formats write none"))
    except TurnscriptError as error:
        told = fault(error, source.name)
        remedy = by_answer(data) or (by_nearness(data) if format_ is None else "") or told.remedy
        raise Failed(told.message, place=told.place, remedy=remedy, code=told.exit_code) from error
    with Files() as files:
        out = files.open(STREAM)
        record = _record(format_, reason, found, difference)
        lines = [record] if as_json else _lines(found, difference, source.name, out)
        out.write("".join([f"{line}\n" for line in lines]).encode())
    if reason:
        screen.note(reason)
    screen.note(_summary(found, difference, source.name))
    return BAD_INPUT if _faults(found) else LOSSY if found or difference else OK


def _recognised(data: bytes, place: str) -> tuple[Format, str]:
    """Return the format of a transcript that nobody named, and why it is that."""
    taken = recognised_transcript(data)
    text = transcript_text(data) if taken is None else ""
    of_files = next((one for one in map(get_format, formats()) if text and one.files_mark(text)), None)
    if of_files is not None:
        return of_files, ""
    name = taken.name if taken is not None else detect_api(data)
    if not is_format(name):
        remedy = "`turnscript convert` reads it; a transcript is the text that a prompt format writes"
        raise Failed(f"this is a request of {name}, and no transcript", place=place, remedy=remedy)
    return get_format(name), str(taken)


def _other(format_: Format, data: bytes, first: Finding, place: str, *, named: bool) -> Failed:
    """Return the one error of a text that has nothing of the format, in place of a fault for each piece of it."""
    error = InvalidTranscript(first.message, line=first.line, column=first.column, expected=first.expected)
    remedy = lookalike(error, data)
    with suppress(InvalidInput):
        other = recognised_transcript(data) if named and not remedy else None
        remedy = remedy or (f"it looks like {other.name}: {other.reason}" if other is not None else "")
    message = f"this is no transcript of {format_.name}: {first.message}"
    remedy = remedy or f"it was read as {format_.name}, because --format says so"
    return Failed(message, place=f"{place}:{first.line}:{first.column}", remedy=remedy)


def _faults(found: list[Finding]) -> list[Finding]:
    return [one for one in found if one.kind == FAULT]


def _transcript(format_: Format, data: bytes, place: str, *, named: bool) -> tuple[list[Finding], list[str]]:
    """Return all that is wrong with a transcript, and without faults the difference to what the format writes."""
    text = transcript_text(data)
    request, findings = format_.check(text)
    if faults := _faults(findings.all):
        if by_answer(data) or not (format_.claims(text) or format_.marks_in(text)):
            raise _other(format_, data, faults[0], place, named=named)
        return findings.all, []
    own = format_.template is None
    try:
        rendered = format_.render(folded(unfolded(request)) if own else request, view="archive" if own else "prompt")
    except InvalidTranscript as error:  # of the settings in an archive
        return [*findings.all, Finding(error.line, error.column, FAULT, error.message, error.expected)], []
    return _compared(format_, text, rendered, findings, place)


def _files(format_: Format, text: str, name: str) -> tuple[list[Finding], list[str], str]:
    """Return the same of files and a text with a hole, and what they were read as. Raises InvalidTranscript."""
    (order, sequence), *others = format_.file_readings(text)
    rendered = format_.render_files(sequence, order=order)
    holes = any(isinstance(one, Fill) for one in sequence.files)
    said = f"read as files of {format_.name}" + (f", the hole in the order {order!r}" if holes else "")
    said += f" (or {', '.join(repr(one) for one, _ in others)})" if others else ""
    return *_compared(format_, text, rendered, Findings([]), name), said


def _compared(
    format_: Format, text: str, rendered: Rendered[str], findings: Findings, name: str
) -> tuple[list[Finding], list[str]]:
    """Return all that is wrong with a text without faults, and the unified diff to what the format writes."""
    found = {*findings.all, *(found_loss(loss, findings.tools) for loss in rendered.losses)}
    written = rendered.value
    if "\r\n" in text and "\r\n" not in written:
        line, column = Lines(text).at(text.index("\r\n"))
        found.add(Finding(line, column, _NOTED, "lines end in CR LF; the format writes LF"))
        text = text.replace("\r\n", "\n")
    # Newlines at the very end are an editor's: what is not is written again.
    old, new = (one.rstrip("\n").split("\n") for one in (text, written))
    return sorted(found), list(difflib.unified_diff(old, new, name, f"as {format_.name} writes it", lineterm=""))


def _record(format_: Format, reason: str, found: list[Finding], difference: list[str]) -> str:
    record = {
        "format": format_.name,
        "variant": format_.option,
        "read_as": reason,
        "findings": [msgspec.structs.asdict(one) for one in found],
        "difference": "".join([f"{line}\n" for line in difference]),
    }
    return json.dumps(record, ensure_ascii=False, indent=2)


def _lines(found: list[Finding], difference: list[str], name: str, out: Sink) -> Iterator[str]:
    coloured = has_colours(out)
    for one in found:
        kind = click.style(one.kind, fg="red", bold=True) if coloured else one.kind
        yield f"{in_line(name)}:{one.line}:{one.column}: {kind}: {in_line(one.message)}"
    for line in difference:
        yield click.style(legible(line), fg=_COLOURS.get(line[:1])) if coloured else legible(line)


def _summary(found: list[Finding], difference: list[str], name: str) -> str:
    faults = len(_faults(found))
    if faults:
        rest = f", {plural(len(found) - faults, 'other thing', 'other things')}" if len(found) > faults else ""
        return (
            f"{name}: {plural(faults, 'fault', 'faults')}{rest}; how the format writes it is shown when there are none"
        )
    said = [plural(len(found), "thing is not as it should be", "things are not as they should be")] if found else []
    said += ["the format writes it otherwise"] if difference else []
    return f"{name}: {'; '.join(said) or 'nothing found'}"
