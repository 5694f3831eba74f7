"""Owns `turnscript convert`: its options, and the way from an input to an output, the losses and the rejects.

Of JSON Lines each row is converted: what is good is kept, and the rest set aside with the reason. Memory holds one row
at a time, and of losses and rejects only what the report shows.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import click
import msgspec
from msgspec.structs import replace

from turnscript.apis.api import Api
from turnscript.cli.advice import row_advice
from turnscript.cli.document import Conversion, Wishes, broke_off, job_of, note_issues, note_needed, spaced
from turnscript.cli.failures import BAD_INPUT, LOSSY, OK, Failed
from turnscript.cli.options import NORMALIZE_JSON, Name, Option, SectionedCommand, variant_of
from turnscript.cli.output import STREAM, Files, Sink, is_special
from turnscript.cli.progress import Meter
from turnscript.cli.report import Fault, Losses, Screen, fault, plural
from turnscript.cli.source import Row, Source
from turnscript.convert.recognition import AUTO, REQUEST, SIDES, detect_answer
from turnscript.convert.registry import get_format, is_format, lookup
from turnscript.convert.verbs import parse
from turnscript.core.conversation import Request
from turnscript.core.errors import InvalidInput, LossyConversion, TurnscriptError, UnknownName, UpstreamError
from turnscript.core.losses import Loss
from turnscript.core.payloads import Rendered
from turnscript.detection.template_format import is_place
from turnscript.engine.files import FILES
from turnscript.formats.format import VIEWS

SUFFIX = ".rejects.jsonl"
SHOWN = 5
"""So many rejects are shown on the screen; the file has them all."""

_encode = msgspec.json.Encoder().encode


class Rejects:
    """The rows that could not be converted. Their file is made with the first one, or at once if it was asked for."""

    def __init__(self, files: Files, path: str, *, asked_for: bool) -> None:
        self.count = 0
        self.lossy = 0
        self.path = path
        self.asked_for = asked_for
        self._faults: list[Fault] = []
        self._files = files
        self._sink: Sink | None = files.open(path) if asked_for else None

    @property
    def are_shown(self) -> bool:
        """Whether the next one will be seen on the screen."""
        return len(self._faults) < SHOWN

    def add(self, row: Row, found: Fault, file: str, *, lossy: bool) -> None:
        self.count += 1
        self.lossy += lossy
        if self.are_shown:
            self._faults.append(found)
        if self._sink is None:
            self._sink = self._files.open(self.path)
        self._sink.write(_reject_line(row, found, file))

    def show(self, screen: Screen) -> None:
        """The first few. A remedy that several share is said once, after the last of them."""
        for found, following in zip_longest(self._faults, self._faults[1:]):
            shared = following is not None and following.remedy == found.remedy
            screen.fault(replace(found, remedy="") if shared else found)
        if self.count > len(self._faults):
            screen.line(f"  and {self.count - len(self._faults)} more")


def default_rejects(output: str | None) -> str:
    """Where rejected rows go if nobody says: beside the output."""
    return f"{output}{SUFFIX}" if output else f"turnscript{SUFFIX}"


def convert_rows(
    conversion: Conversion, source: Source, out: Sink, losses_out: Sink | None, rejects: Rejects, screen: Screen
) -> tuple[int, Losses]:
    """Convert every row. Gives the number of rows converted, and the losses."""
    converted, losses = 0, Losses()
    # A bar on the screen would run into rows that go to the same one.
    with Meter(source.size, enabled=screen.is_terminal and not out.is_terminal) as meter:
        for row in source.rows():
            try:
                data, lost = conversion.row(row.data)
            except TurnscriptError as error:
                lost = error.losses if isinstance(error, LossyConversion) else []
                found = fault(error, source.name, row.line)
                if rejects.are_shown:
                    found.remedy = row_advice(error, row.data) or found.remedy
                rejects.add(row, found, source.name, lossy=isinstance(error, LossyConversion))
            else:
                out.write(data + b"\n")
                converted += 1
            if lost:
                losses.add(lost, row.line)
                write_losses(losses_out, lost, row.line)
            if source.is_live:
                out.flush()
            meter.tick(converted + rejects.count, rejects.count, row.byte + len(row.data))
    return converted, losses


def conclude(
    converted: int, losses: Losses, rejects: Rejects, screen: Screen, *, quiet: bool, losses_file: str | None
) -> int:
    """Say what happened to the rows; gives the exit code."""
    rejects.show(screen)
    if not quiet:
        screen.note(f"{plural(converted, 'row', 'rows')} converted, {rejects.count} rejected, {losses.summary}")
        if losses_file != STREAM:
            losses.list_on(screen, losses_file)
    if rejects.count:
        screen.note(f"the rejected rows are in {rejects.path}")
    elif not quiet and not rejects.asked_for and os.path.exists(rejects.path):
        screen.note(f"{rejects.path} is of an earlier run")
    if rejects.count > rejects.lossy:
        return BAD_INPUT
    return LOSSY if rejects.lossy else OK


def write_losses(out: Sink | None, losses: Iterable[Loss], line: int = 0) -> None:
    """Losses as JSON Lines, each with the line of its row if it had one."""
    if out is None:
        return
    start = b'{"row":%d,' % line if line else b"{"
    out.write(b"".join([start + _encode(loss)[1:] + b"\n" for loss in losses]))


def _reject_line(row: Row, found: Fault, file: str) -> bytes:
    """A rejected row with its place and its reason, its own bytes unchanged."""
    record = {
        "file": os.fsencode(file).decode("utf-8", "replace"),
        "line": row.line,
        "byte": row.byte,
        "code": found.code,
        "path": found.path,
        "reason": found.message if not found.column else f"{found.message} (column {found.column})",
    }
    try:
        record["row"] = row.data.decode()
    except UnicodeDecodeError:
        record["row"] = row.data.decode("utf-8", "replace")
        record["row_base64"] = base64.b64encode(row.data).decode()
    return _encode(record) + b"\n"


_EPILOG = """\b
Examples:
  turnscript convert request.json --to openai-chat
  turnscript convert request.json --to rwkv-universal --view prompt
  turnscript convert request.json --to openai-responses --output new.json
  turnscript convert chats.jsonl --to openai-chat --output new.jsonl
  cat request.json | turnscript convert --to rwkv-universal --losses lost.jsonl
  turnscript convert response.json --to anthropic-messages
  turnscript convert response.json --request request.json --to rwkv-universal
  turnscript convert recorded.sse --to openai-responses
  turnscript convert recorded.sse --to anthropic-messages --stream
  turnscript convert files.json --to openchatml --order psm
  turnscript convert file.txt --from openchatml --to files

\b
Exit code:
  0  converted
  1  bad input, rows were rejected, or a recorded stream broke off: what it told before is written
  2  wrong usage
  3  something would be lost, under --strict
"""


_SHOWN = 200
"""So many characters of an error that is no JSON."""

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True)
class Given:
    """What stood on the command line."""

    file: str
    source: str
    target: str
    side: str
    request: str | None
    from_order: str | None
    order: str | None
    profile: str | None
    view: str | None
    variant: str | None
    flags: tuple[str, ...]
    normalize_json: bool
    stream: bool
    strict: bool
    lines: bool | None
    output: str | None
    losses: str | None
    rejects: str | None
    pretty: bool | None
    quiet: bool

    @property
    def options(self) -> dict[str, str]:
        """The options for `turnscript.render`."""
        options = {}
        for flag in self.flags:
            name, equals, value = flag.partition("=")
            if not equals:
                raise click.UsageError(f"--set {flag}: write it as FLAG=VALUE")
            options[name] = value
        variant = self.variant if is_format(self.target) else None  # else it is of what is read
        named = {"profile": self.profile, "view": self.view, "variant": variant}
        return options | {name: value for name, value in named.items() if value is not None}


def _option(section: str, *names: str, **rest: Any) -> Callable[[_Command], _Command]:
    return click.option(*names, cls=Option, section=section, **rest)


_NAMES, _TARGET, _FILES, _FORM = "Names", "What is written", "Files", "How it looks"


@click.command(cls=SectionedCommand, epilog=_EPILOG, short_help="Convert between APIs and formats.")
@click.argument("file", default=STREAM, metavar="[FILE|-]")
@_option(
    _NAMES,
    "--from",
    "source",
    type=Name(AUTO, FILES),
    default=AUTO,
    show_default=True,
    help="API or format of the input; `files` for files as JSON.",
)
@_option(
    _NAMES,
    "--to",
    "target",
    type=Name(FILES),
    required=True,
    help="API or format to write; `files` for files as JSON.",
)
@_option(
    _NAMES,
    "--from-order",
    metavar="ORDER",
    help="The order of the hole in files of the format of --from, where two fit; `turnscript show` lists them.",
)
@_option(
    _NAMES,
    "--side",
    type=click.Choice(SIDES),
    default=AUTO,
    show_default=True,
    help="Whether FILE is a request or a response, or which is wanted of a transcript that holds both.",
)
@_option(_NAMES, "--request", metavar="FILE", help="The request that FILE answers: a transcript then holds both.")
@_option(_TARGET, "--profile", metavar="PROFILE", help="Dialect of an API; `turnscript apis` lists them.")
@_option(
    _TARGET,
    "--view",
    type=click.Choice(VIEWS),
    help="Of a transcript: archive (default) keeps everything, prompt is what a model sees.",
)
@_option(
    _TARGET,
    "--variant",
    metavar="NAME",
    help="A variant of the format of --to, or of the input if --to is an API; `turnscript formats` lists them.",
)
@_option(
    _TARGET,
    "--set",
    "flags",
    multiple=True,
    metavar="FLAG=VALUE",
    help="A choice that an API leaves open; `turnscript apis` lists them.",
)
@_option(
    _TARGET,
    "--normalize-json",
    is_flag=True,
    help=NORMALIZE_JSON,
)
@_option(
    _TARGET,
    "--order",
    metavar="ORDER",
    help="How a text with a hole is written (default: the format's first); `turnscript show FORMAT` lists them.",
)
@_option(_TARGET, "--stream", is_flag=True, help="Write an answer as the server-sent events of the API of --to.")
@_option(_TARGET, "--strict", is_flag=True, help="Refuse whatever cannot be carried over exactly.")
@_option(_FILES, "--output", metavar="FILE", help="Write here, whole or not at all, instead of standard output.")
@_option(_FILES, "--losses", metavar="FILE|-", help="Write all losses as JSON Lines; - puts them after the payload.")
@_option(
    _FILES,
    "--rejects",
    metavar="FILE",
    help="Where bad rows go (default: beside the output, with .rejects.jsonl added; turnscript.rejects.jsonl here if "
    "that is standard output).",
)
@_option(_FORM, "--lines/--no-lines", default=None, help="The input is JSON Lines, or is not (default: look at it).")
@_option(
    _FORM,
    "--pretty/--compact",
    default=None,
    help="Indent JSON, or strip all white space from it (default: indent on a terminal, else one line).",
)
@_option(_FORM, "--quiet", "-q", is_flag=True, help="Report errors only.")
def convert(**given: Any) -> int:
    """Convert a request, or a response, between APIs and formats.

    FILE is a request or response body, a recorded stream (server-sent events, as `curl -N` prints them), either with
    the head that `curl -i` prints before it, a transcript, or JSON Lines with a body or a transcript in each row (a
    transcript as {"text": "..."}).
    It may be files and a text with a hole, too: {"files": ["...", {"prefix": "...", "suffix": "..."}]}, a completions
    body with a suffix, or a text of a format that has such.
    Without FILE, or with -, standard input is read.
    What the target cannot say is reported, field by field.
    """
    return run(Given(**given))


def run(given: Given) -> int:
    """Do it. Gives the exit code; raises TurnscriptError, Failed or UsageError."""
    _check_places(given)
    _check_request(given)
    _check_stream(given)
    _check_target(given)
    _check_orders(given)
    asked = None if given.request is None else _asked(given.request)
    read_by = None if is_format(given.target) else given.variant
    orders = given.order or "", given.from_order or ""
    wishes = Wishes(given.strict, given.pretty is False, given.normalize_json, given.side, asked, read_by, *orders)
    conversion = Conversion(given.source, given.target, wishes, given.options)
    screen = Screen()
    with Source(given.file) as source:
        if source.is_terminal:
            screen.note("reading standard input; Ctrl-D ends it")
        if not conversion.reads_text:
            _check_status(source)
        has_rows = source.has_rows() if given.lines is None else given.lines
        if has_rows and given.stream:
            raise click.UsageError("--stream is for one answer, and the input is JSON Lines")
        return _rows(given, conversion, source, screen) if has_rows else _document(given, conversion, source, screen)


def _check_status(source: Source) -> None:
    """Behind the head of an HTTP answer stands what is converted, if it is one of a model."""
    status = source.skip_head()
    if status is not None and not status.is_good:
        body = source.whole()
        remedy = "this is what the server failed with, and no answer of a model: nothing is written"
        raise Failed(f"{status}: {_said(body)}" if body.strip() else str(status), place=source.name, remedy=remedy)


def _said(body: bytes) -> str:
    """What a server says went wrong, in short."""
    try:
        detect_answer(body)
    except UpstreamError as error:
        return str(error)
    except InvalidInput:
        pass
    return body.decode(errors="replace").strip()[:_SHOWN]


def _asked(path: str) -> Request:
    """The request in a file."""
    with Source(path) as source:
        data = source.whole()
    try:
        return parse(data)
    except TurnscriptError as error:
        found = fault(error, source.name)
        message = f"{found.path}: {found.message}" if found.path else found.message
        raise Failed(message, place=found.place, remedy="give a request body or a transcript") from error


def _document(given: Given, conversion: Conversion, source: Source, screen: Screen) -> int:
    job = job_of(conversion, source, stream=given.stream)
    refused: LossyConversion | None = None
    with Files() as files:
        out: Sink | None = None
        try:
            made = job.make()
            out = files.open(STREAM if given.output is None else given.output)
            _write(made, given, conversion, source, out)
            lost = job.losses
        except LossyConversion as error:
            refused, lost = error, error.losses
        except TurnscriptError as error:
            found = fault(error, source.name)
            remedy = job.advice(error) or found.remedy
            message = f"{found.path}: {found.message}" if found.path else found.message
            raise Failed(message, place=found.place, remedy=remedy, code=found.exit_code) from error
        if given.losses is not None:
            write_losses(_losses_sink(files, given.losses, out), lost)
    broken = None if job.recording is None else broke_off(job.recording, source.name)
    if refused is not None:
        screen.fault(fault(refused, source.name))
    if broken is not None:
        screen.fault(broken)
    if refused is not None or not given.quiet:
        if conversion.read_as:
            screen.note(conversion.read_as)
        note_issues(screen, job, source.name)
        note_needed(screen, conversion, rows=False)
        losses = Losses(lost)
        screen.note(losses.summary)
        if given.losses != STREAM:
            losses.list_on(screen, given.losses)
    return LOSSY if refused is not None else OK if broken is None else BAD_INPUT


def _write(
    made: Rendered[Any] | Iterator[bytes], given: Given, conversion: Conversion, source: Source, out: Sink
) -> None:
    if isinstance(made, Rendered):
        pretty = True if given.pretty is None and out.is_terminal else given.pretty
        out.write(made.data if conversion.writes_text else spaced(made.data, pretty=pretty) + b"\n")
        return
    for piece in made:
        out.write(piece)
        if piece and source.is_live:
            out.flush()


def _rows(given: Given, conversion: Conversion, source: Source, screen: Screen) -> int:
    if given.pretty:
        raise click.UsageError("--pretty is for one document; rows of JSON Lines take one line each")
    with Files() as files:
        out = files.open(STREAM if given.output is None else given.output)
        losses_out = None if given.losses is None else _losses_sink(files, given.losses, out)
        rejects = Rejects(files, given.rejects or _default_rejects(given.output), asked_for=given.rejects is not None)
        converted, losses = convert_rows(conversion, source, out, losses_out, rejects, screen)
    code = conclude(converted, losses, rejects, screen, quiet=given.quiet, losses_file=given.losses)
    if not given.quiet:
        note_needed(screen, conversion, rows=True)
    return code


def _losses_sink(files: Files, path: str, out: Sink | None) -> Sink:
    """Where losses go: to their file, or to standard output once the payload is there."""
    sink = files.open(path)
    return files.after(sink) if sink is out else sink


def _default_rejects(output: str | None) -> str:
    is_file = output is not None and output != STREAM and not is_special(output)
    return default_rejects(output if is_file else None)


def _check_places(given: Given) -> None:
    """Two outputs in one file would destroy each other, and rejects over the input destroy that."""
    rejects = given.rejects or _default_rejects(given.output)
    places = {"--output": given.output, "--losses": given.losses, "--rejects": rejects}
    if given.rejects == STREAM:
        raise click.UsageError("--rejects needs a file: standard output is for what was converted")
    files = {option: path for option, path in places.items() if path is not None and path != STREAM}
    real = {option: os.path.realpath(path) for option, path in files.items() if not is_special(path)}
    for read, spared in ((given.file, "--output"), (given.request, "")):
        if read is not None and read != STREAM and not is_special(read):
            for option, path in real.items():
                if path == os.path.realpath(read) and option != spared:
                    raise click.UsageError(f"{option} {files[option]} would overwrite the input")
    for option, path in real.items():
        for other, same in real.items():
            if option < other and path == same:
                raise click.UsageError(f"{option} and {other} are the same file")


def _check_target(given: Given) -> None:
    """Which of two options counts depends on what is written."""
    if given.target == FILES:
        refused = {"--view": given.view, "--profile": given.profile, "--order": given.order}
        if option := next((option for option, value in refused.items() if value is not None), ""):
            raise click.UsageError(f"{option} is for APIs and formats, and --to {FILES} writes JSON that is of none")
        return
    try:
        is_api = isinstance(lookup(given.target), Api)
    except UnknownName:
        if is_place(given.target):
            raise click.UsageError(
                "--to names an API or a format; a prompt in the words of a chat template is written by "
                f"`turnscript prompt {given.file} --template {given.target}`"
            ) from None
        raise
    of = given.source if is_api else given.target
    if given.variant is not None and of != AUTO:
        if not is_format(of):
            raise click.UsageError("--variant is for a format, and neither --from nor --to names one")
        variant_of(get_format(of), given.variant)
    if is_api and given.view is not None:
        raise click.UsageError(f"--view is for transcripts, and {given.target} is an API")
    if not is_api and given.profile is not None:
        raise click.UsageError(f"--profile is for APIs, and {given.target} is a prompt format")


def _check_orders(given: Given) -> None:
    """An order is one that its format has."""
    for option, order, name in (
        ("--order", given.order, given.target),
        ("--from-order", given.from_order, given.source),
    ):
        if order is None:
            continue
        files = get_format(name).document.files if name not in (AUTO, FILES) and is_format(name) else None
        if files is None:
            where = "--to" if option == "--order" else "--from"
            raise click.UsageError(f"{option} is for a format with orders of a hole, and {where} is {name}")
        files.order(order)


def _check_request(given: Given) -> None:
    """A request that is named must be another input, and that of an answer."""
    if given.request is not None and given.side == REQUEST:
        raise click.UsageError("--request names what FILE answers, and --side request says that FILE is no answer")
    if given.request == STREAM == given.file:
        raise click.UsageError("only one input can be standard input")


def _check_stream(given: Given) -> None:
    """A stream is how an API tells an answer, and has a shape of its own."""
    if not given.stream:
        return
    if given.target == FILES or is_format(given.target):
        what = "a prompt format" if given.target != FILES else "none"
        raise click.UsageError(f"--stream writes what an API sends, and {given.target} is {what}")
    if given.side == REQUEST:
        raise click.UsageError("--stream writes answers, and --side request says that FILE is none")
    if given.options:
        raise click.UsageError("--profile, --view and --set are not for answers, and --stream writes one")
    if given.pretty is not None:
        raise click.UsageError("--pretty and --compact are for documents; --stream writes server-sent events")
