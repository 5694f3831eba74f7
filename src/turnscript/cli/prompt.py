"""Owns `turnscript prompt`: the text that a model goes on from, what ends its answer, and who writes which piece."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from turnscript.cli.advice import advice
from turnscript.cli.convert import write_losses
from turnscript.cli.document import spaced
from turnscript.cli.failures import LOSSY, OK, Failed
from turnscript.cli.options import NORMALIZE_JSON, VARIANT_HELP, Name, variant_of
from turnscript.cli.output import STREAM, Files, Sink, is_special
from turnscript.cli.report import Losses, Screen, fault
from turnscript.cli.source import Source
from turnscript.convert.file_documents import files_in
from turnscript.convert.format_reference import has_thoughts
from turnscript.convert.prompting import Written, left_out, written
from turnscript.convert.recognition import AUTO, recognised_transcript
from turnscript.convert.registry import lookup, named_formats
from turnscript.convert.verbs import parse
from turnscript.core.conversation import Request
from turnscript.core.errors import LossyConversion, TurnscriptError, Unsupported
from turnscript.core.json_spelling import RESPELLED
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.detection.place import read_place
from turnscript.detection.template_format import format_of as at_place
from turnscript.detection.template_format import get_format
from turnscript.engine.files import FILES, FileSequence, FillPrompt
from turnscript.engine.spans import Span
from turnscript.formats.format import Format

_EPILOG = """\b
Examples:
  turnscript prompt request.json --format rwkv-universal
  turnscript prompt request.json --format rwkv-goose --thinking --json
  turnscript prompt request.json --format ai00-v1 --spans
  turnscript prompt request.json --format rwkv-goose --variant paren --thinking
  turnscript prompt request.json --template chat_template.jinja
  turnscript prompt request.json --format rwkv-goose --losses lost.jsonl --quiet
  turnscript prompt files.json --format openchatml --order spm

\b
With --spans, each line is one piece of text behind a mark:
  #  the format's own literals
  =  somebody's text
  *  the format's own literals, where the model writes them
  +  what the model said

\b
Exit code:
  0  written
  1  bad input
  2  wrong usage
  3  something would be lost, under --strict
"""

_ODD = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_LEGIBLE = re.compile(r"(?![\n\t])" + _ODD.pattern)
_OUTER_SPACE = re.compile(r"^ | $")
_Made = TypeVar("_Made")
Asked = Request | FileSequence
"""A model is asked to go on from this."""

_MARKS = {(True, False): "#", (False, False): "=", (True, True): "*", (False, True): "+"}


FORMAT_HELP = "The prompt format, `turnscript formats` lists them; or a place as for --template."
TEMPLATE_HELP = (
    "The model's own chat template: a .jinja file, a tokenizer_config.json, a model's folder, a .gguf file, or a model "
    "in the Hugging Face cache."
)


class FormatName(click.ParamType[str]):
    """The name of a format, a file that declares one, or a place of a chat template. It is looked up later."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name) for name in named_formats() if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]  # a format may be declared in a file


@dataclass(frozen=True)
class Given:
    """What stood on the command line."""

    file: str
    format: str | None
    template: str | None
    variant: str | None
    source: str
    order: str | None
    thinking: bool | None
    as_json: bool
    spans: bool
    normalize_json: bool
    strict: bool
    losses: str | None
    quiet: bool


@click.command(epilog=_EPILOG, short_help="Write the text that a model goes on from.")
@click.argument("file", default=STREAM, metavar="[FILE|-]")
@click.option("--format", type=FormatName(), help=FORMAT_HELP)
@click.option("--template", metavar="PLACE", type=click.Path(readable=False), help=TEMPLATE_HELP)
@click.option("--variant", metavar="NAME", help=VARIANT_HELP)
@click.option(
    "--from", "source", type=Name(AUTO, FILES), default=AUTO, show_default=True, help="API or format of the request."
)
@click.option(
    "--order",
    metavar="ORDER",
    help="How a text with a hole is written, of the orders that `turnscript show FORMAT` lists for prompts.",
)
@click.option(
    "--thinking/--no-thinking", default=None, help="Let the model think first, or not (default: as the request says)."
)
@click.option("--json", "as_json", is_flag=True, help="For programs: the prompt, its stop strings, prefill and losses.")
@click.option("--spans", is_flag=True, help="Show what is control, what is content, and what the model itself writes.")
@click.option("--normalize-json", is_flag=True, help=NORMALIZE_JSON)
@click.option("--strict", is_flag=True, help="Refuse whatever the format cannot carry exactly.")
@click.option("--losses", metavar="FILE|-", help="Write all losses as JSON Lines; - puts them after the prompt.")
@click.option("--quiet", "-q", is_flag=True, help="Report errors only.")
def prompt(**given: Any) -> int:
    """Write the prompt of a request: the text that a model goes on from.

    With --template the model's own chat template writes it, as transformers would.
    FILE is a request body of any API, or a transcript; or files, the last with a hole that the model is to fill, as
    JSON, as a completions body with a suffix, or as a text of a format that has such.
    Without FILE, or with -, standard input is read.
    The prompt is written exactly, without a newline behind it; only on a terminal one is added.
    """
    return run(Given(**given))


def run(given: Given) -> int:
    """Do it. Gives the exit code; raises TurnscriptError, Failed or UsageError."""
    format_ = format_of(given.format, given.thinking, given.template, given.variant)
    check_name(given.source)
    _check_order(given, format_)
    _check_places(given)
    with Source(given.file) as source:
        made, lost = _read(source, given.source, partial(_made, given, format_), quiet=given.quiet)
    unasked = [loss for loss in lost if loss.detail != RESPELLED]
    refused = LossyConversion(unasked, format_.name) if given.strict and unasked else None
    with Files() as files:
        out: Sink | None = None
        if refused is None:
            out = files.open(STREAM)
            out.write(_payload(given, format_, made, lost, out))
        if given.losses is not None:
            sink = files.open(given.losses)
            write_losses(files.after(sink) if sink is out else sink, lost)
    _report(given, lost, refused)
    note_reading(format_, quiet=given.quiet)
    return OK if refused is None else LOSSY


def asked_of(source: Source, name: str, format_: Format, thinking: bool | None) -> tuple[Written, Request]:
    """The prompt of the request in an input, and that request. Raises Failed with the place and what to try."""

    def made(request: Asked) -> tuple[Written, Request]:
        asked = request if isinstance(request, Request) else Request()
        return _written(request, format_, thinking), asked

    return _read(source, name, made)


def _read(source: Source, name: str, made: Callable[[Asked], _Made], *, quiet: bool = True) -> _Made:
    """Return what is made of the request in an input, or of the files. Raises Failed with the place and what to try.

    `quiet`: what a transcript was taken for that nobody named is not told.
    """
    screen = Screen()
    if source.is_terminal:
        screen.note("reading standard input; Ctrl-D ends it")
    data = source.whole()
    if not data.strip():
        raise Failed("the input is empty", place=source.name, remedy="give a request body or a transcript")
    try:
        files = files_in(data, name, holes=False)
        result = made(parse(data, name) if files is None else files.sequence)
        taken = files.read_as if files is not None else recognised_transcript(data) if name == AUTO else None
        if taken and not quiet:
            screen.note(str(taken))
        return result
    except TurnscriptError as error:
        found = fault(error, source.name)
        message = f"{found.path}: {found.message}" if found.path else found.message
        remedy = advice(error, name, data, "of JSON Lines, give one row") or found.remedy
        raise Failed(message, place=found.place, remedy=remedy, code=found.exit_code) from error


def _made(given: Given, format_: Format, request: Asked) -> tuple[Written, list[Loss]]:
    """The prompt of a request or of files, and all that is lost."""
    made = _written(request, format_, given.thinking, normalize_json=given.normalize_json, order=given.order or "")
    return made, left_out(made, request, format_) if isinstance(request, Request) else made.losses


def _written(
    request: Asked, format_: Format, thinking: bool | None, *, normalize_json: bool = False, order: str = ""
) -> Written:
    try:
        return written(request, format_, thinking, normalize_json=normalize_json, order=order)
    except Unsupported as error:
        if error.feature != "thinking":
            raise
        raise click.UsageError(f"--thinking: {error.message}") from None


def format_of(
    name: str | None, thinking: bool | None, template: str | None = None, variant: str | None = None
) -> Format:
    """Return the format of a name, with its variant, or the one of a chat template.

    Raises UnknownName, InvalidInput for a place without a template that can be used, and UsageError if a model cannot
    think in it and should, or if not one of both is given.
    """
    if (name is None) == (template is None):
        raise click.UsageError("give --format or --template" + (", and not both" if name is not None else ""))
    format_ = get_format(name) if name is not None else at_place(read_place(str(template)))
    format_ = variant_of(format_, variant)
    if thinking and not has_thoughts(format_):
        raise click.UsageError(f"--thinking: {format_.name} has no place for thoughts")
    return format_


def note_reading(format_: Format, *, quiet: bool = False) -> None:
    """Say what of a chat template's own words is not read as it went in, and which of its tokens nobody knows."""
    if quiet or format_.template is None:
        return
    sentences = [] if format_.template.exact else [format_.template.sentence]
    for sentence in (*sentences, *missing_tokens(format_)):
        Screen().note(sentence)


def missing_tokens(format_: Format) -> list[str]:
    """Return a sentence where a chat template writes tokens whose texts are not known here; else nothing."""
    names = format_.template.unknown_tokens if format_.template is not None else ()
    if not names:
        return []
    left = f"the chat template writes {' and '.join(names)}, and what that is nobody says here: left empty"
    return [f"{left}; name the model's folder, or its .gguf file, which has the tokens"]


def check_name(name: str) -> None:
    """Raise UnknownName for an API or format that is not there, before anything is read."""
    if name not in (AUTO, FILES):
        lookup(name)


def _check_order(given: Given, format_: Format) -> None:
    """Raise UnknownName or UsageError for an order that the format does not have."""
    if given.order is None:
        return
    if format_.document.files is None:
        raise click.UsageError(f"--order: {format_.name} has no orders of a hole")
    format_.document.files.prompt_order(given.order)


def _check_places(given: Given) -> None:
    if given.losses in (None, STREAM) or given.file == STREAM or is_special(given.file):
        return
    if os.path.realpath(given.losses) == os.path.realpath(given.file):
        raise click.UsageError(f"--losses {given.losses} would overwrite the input")


def _payload(given: Given, format_: Format, made: Written, lost: list[Loss], out: Sink) -> bytes:
    if given.as_json:
        record = _record(format_, made, lost, with_spans=given.spans)
        return spaced(Rendered(record, lost).data, pretty=out.is_terminal or None) + b"\n"
    if given.spans:
        return (painted(made.spans) + "\n" if has_colours(out) else marked(made.spans)).encode()
    data = Rendered(made.text, lost).data
    return data + b"\n" if out.is_terminal else data


def _record(format_: Format, made: Written, lost: list[Loss], *, with_spans: bool) -> dict[str, Any]:
    record: dict[str, Any] = {
        "format": format_.name,
        "prompt": made.text,
        "stops": made.stops,
        "prefill": made.prefill,
        "client_stops": list(made.client_stops),
        "losses": [msgspec.structs.asdict(loss) for loss in lost],
    }
    if isinstance(made, FillPrompt):
        record["order"] = made.order
    if format_.template is not None:
        record |= {key: getattr(format_.template, key) for key in ("told_by", "read_as", "exact", "sentence")}
    if with_spans:
        record["spans"] = [span._asdict() for span in made.spans]
    return record


def _report(given: Given, lost: list[Loss], refused: LossyConversion | None) -> None:
    screen = Screen()
    if refused is not None:
        screen.fault(fault(refused, "<stdin>" if given.file == STREAM else given.file))
    elif given.quiet:
        return
    losses = Losses(lost)
    screen.note(losses.summary)
    if given.losses != STREAM:
        losses.list_on(screen, given.losses)


# Spans, for people.


def has_colours(out: Sink) -> bool:
    """Whether what goes there may be coloured."""
    return out.is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def marked(spans: Iterable[Span]) -> str:
    """One line for each run of equal spans: a mark and the text, its newlines and outer spaces as escapes."""
    return "".join([f"{_MARKS[kind]} {escaped(text)}\n" for kind, text in _runs(spans)])


def painted(spans: Iterable[Span]) -> str:
    """The text itself: control is dim and blue, and what the model writes is underlined."""
    pieces = []
    for (control, trainable), text in _runs(spans):
        style: dict[str, Any] = {"fg": "blue", "dim": True} if control else {}
        lines = legible(text).split("\n")
        if trainable:
            style["underline"] = True
        pieces.append("\n".join([click.style(line, **style) if line and style else line for line in lines]))
    return "".join(pieces)


def escaped(text: str) -> str:
    """A text on one line that can be told exactly: what cannot be seen is an escape, and so is a backslash."""
    return _OUTER_SPACE.sub(r"\\x20", one_line(text.replace("\\", "\\\\")))


def one_line(text: str) -> str:
    """A text on one line, with escapes for whatever would not stay there."""
    return _ODD.sub(_escape, text)


def legible(text: str) -> str:
    """A text that cannot move the cursor except by newlines and tabs."""
    return _LEGIBLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]


def _runs(spans: Iterable[Span]) -> Iterator[tuple[tuple[bool, bool], str]]:
    """Neighbours of one kind joined."""
    for kind, run in groupby(spans, key=lambda span: (span.control, span.trainable)):
        text = "".join([span.text for span in run])
        if text:
            yield kind, text
