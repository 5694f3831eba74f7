"""Owns `turnscript read`: what a model wrote, as parts for people, as JSON, as events, or as an answer of an API."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import click

from turnscript.apis.api import Api
from turnscript.cli.document import spaced
from turnscript.cli.failures import OK, Failed
from turnscript.cli.options import VARIANT_HELP, ApiName, Name, Option, SectionedCommand
from turnscript.cli.output import STREAM, Files, Sink
from turnscript.cli.prompt import (
    FORMAT_HELP,
    TEMPLATE_HELP,
    FormatName,
    asked_of,
    check_name,
    format_of,
    has_colours,
    legible,
    note_reading,
    one_line,
)
from turnscript.cli.report import Screen, fault, plural
from turnscript.cli.source import Source
from turnscript.convert.recognition import AUTO
from turnscript.convert.records import event_record, item_record, response_record
from turnscript.convert.registry import get_api
from turnscript.convert.verbs import parse
from turnscript.core.conversation import (
    Conversation,
    Dropped,
    Issue,
    Item,
    Request,
    Response,
    Tool,
    ToolCall,
    dropped,
)
from turnscript.core.errors import InvalidInput, InvalidRequest, TurnscriptError, UpstreamError
from turnscript.core.events import Event, MessageEnd, fold
from turnscript.core.json_text import Json, read_list, read_object, utf8
from turnscript.core.losses import Loss, summary
from turnscript.engine.parse import TurnParser
from turnscript.engine.scanner import TextParser
from turnscript.formats.format import Format

_EPILOG = """\b
Examples:
  echo "It is sunny." | turnscript read --format rwkv-universal
  echo " Sunny.</think>" | turnscript read --format rwkv-goose --thinking --json
  echo "It is sunny." | turnscript read --format ai00-v1 --stream
  echo "It is sunny." | turnscript read --template chat_template.jinja
  echo "It is sunny." | turnscript read --format rwkv-goose --to openai-chat --stream

\b
Exit code:
  0  read; what the model did wrong is listed, and is no error
  1  bad input: no such file, or a request that cannot be read
  2  wrong usage
"""
Reader = TurnParser | TextParser

_WRAPS = ('{"model":"","max_tokens":1,"messages":[],"tools":', '{"model":"","input":[],"tools":')
"""Bodies around a bare list of tools, for it to be read by whichever API writes tools like that."""


@dataclass(frozen=True)
class Given:
    """What stood on the command line."""

    file: str
    format: str | None
    template: str | None
    variant: str | None
    request: str | None
    source: str
    thinking: bool | None
    tools: str | None
    finish_reason: str | None
    chunk: int | None
    target: str | None
    as_json: bool
    stream: bool


_PROMPT, _FORM = "What the model was asked", "How it is read and written"


@click.command(cls=SectionedCommand, epilog=_EPILOG, short_help="Read what a model wrote.")
@click.argument("file", default=STREAM, metavar="[FILE|-]")
@click.option(
    "--format",
    cls=Option,
    section=_PROMPT,
    type=FormatName(),
    help=FORMAT_HELP,
)
@click.option(
    "--template",
    cls=Option,
    section=_PROMPT,
    metavar="PLACE",
    type=click.Path(readable=False),
    help=TEMPLATE_HELP,
)
@click.option("--variant", cls=Option, section=_PROMPT, metavar="NAME", help=VARIANT_HELP)
@click.option("--request", cls=Option, section=_PROMPT, metavar="BODY", help="The request whose prompt this answers.")
@click.option(
    "--from",
    "source",
    cls=Option,
    section=_PROMPT,
    type=Name(AUTO),
    default=AUTO,
    show_default=True,
    help="API or format of that request, or of the tools.",
)
@click.option(
    "--thinking/--no-thinking",
    cls=Option,
    section=_PROMPT,
    default=None,
    help="The prompt let the model think first, or not (default: as the request says).",
)
@click.option(
    "--tools",
    cls=Option,
    section=_PROMPT,
    metavar="FILE",
    help="The tools that were offered, as a JSON list or in a body (default: those of the request, or any).",
)
@click.option(
    "--finish-reason",
    cls=Option,
    section=_FORM,
    metavar="REASON",
    help="Why the model stopped, as its server says: stop, length, ...",
)
@click.option(
    "--chunk",
    cls=Option,
    section=_FORM,
    type=click.IntRange(min=1),
    metavar="N",
    help="Read it in pieces of N bytes (default: as it arrives).",
)
@click.option(
    "--to",
    "target",
    cls=Option,
    section=_FORM,
    type=ApiName(),
    metavar="API",
    help="Write the answer that a client of this API gets: a body, or server-sent events with --stream.",
)
@click.option("--json", "as_json", cls=Option, section=_FORM, is_flag=True, help="Write one JSON object.")
@click.option(
    "--stream",
    cls=Option,
    section=_FORM,
    is_flag=True,
    help="Write while the text still comes: events as JSON Lines, or as the API of --to sends them.",
)
def read(**given: Any) -> int:
    """Read what a model wrote: thoughts, texts and tool calls, and why it ended.

    FILE holds the text as it was generated. Without FILE, or with -, standard input is read.
    The prompt matters: it may have begun the answer, and it says which tools there are.
    """
    return run(Given(**given))


def run(given: Given) -> int:
    """Do it. Gives the exit code; raises TurnscriptError, Failed or UsageError."""
    format_ = format_of(given.format, given.thinking, given.template, given.variant)
    _check(given)
    parser, request = _parser(given, format_)
    screen = Screen()
    losses: list[Loss] = []
    issues: list[Issue] = []
    source = Source(given.file)
    with source, Files() as files:
        if source.is_terminal:
            screen.note("reading standard input; Ctrl-D ends it")
        out = files.open(STREAM)
        watch = Watch()
        batches = _batches(parser, watch, source.pieces(given.chunk), given.finish_reason)
        if given.target is not None:
            losses, issues = _answer(get_api(given.target), request, batches, out, stream=given.stream)
        elif given.stream:
            _write_events(batches, out)
        else:
            response = fold(chain.from_iterable(batches))
            out.write(_json(response_record(response), out) if given.as_json else _listing(response, out))
    if losses:
        screen.note(summary(losses))
    for loss in losses:
        screen.loss(loss.path, loss.kind, loss.detail, "")
    if issues:
        screen.note("\n".join([f"{plural(len(issues), 'issue', 'issues')}:", *map(_issue, issues)]))
    if watch.bad is not None:
        screen.note(f"{source.name}: byte {watch.bad + 1} is not UTF-8; U+FFFD stands for what cannot be read")
    note_reading(format_)
    return OK


def _check(given: Given) -> None:
    """Raise UsageError or UnknownName for what cannot be meant, before anything is read."""
    check_name(given.source)
    if given.target is not None:
        get_api(given.target)
    if given.target is not None and given.as_json:
        raise click.UsageError("--json and --to exclude each other; the answer of an API is JSON already")
    if given.stream and given.as_json:
        raise click.UsageError("--json and --stream exclude each other; --stream writes JSON Lines already")
    if given.request is not None and given.tools is not None:
        raise click.UsageError("--tools is for when there is no --request, which says what tools there are")
    if [given.file, given.request, given.tools].count(STREAM) > 1:
        raise click.UsageError("only one input can be standard input")
    if given.source != AUTO and given.request is None and given.tools is None:
        raise click.UsageError("--from says what --request or --tools is in, and neither is there")


def _parser(given: Given, format_: Format) -> tuple[Reader, Request]:
    """The parser, and the request that the model answers."""
    if given.request is not None:
        with Source(given.request) as source:
            prompt, request = asked_of(source, given.source, format_, given.thinking)
        return prompt.parser(), request
    prefill = format_.prompt(Request(), thinking=True).prefill if given.thinking else ""
    tools = _tools(given.tools, given.source) if given.tools is not None else None
    return format_.parser(tools, prefill=prefill), Request(conversation=Conversation(tools=tools or []))


def _tools(path: str, name: str) -> list[Tool]:
    """The tools in a file, as some API writes them."""
    with Source(path) as source:
        data = source.whole()
    try:
        data = utf8(data)
        members = read_object(data) if data.lstrip()[:1] == b"{" else {"tools": Json(data)}
        if "tools" not in members:
            raise InvalidRequest("there is no member 'tools' here", path="$", expected="a list of tools")
        read_list(members["tools"])
        return _tools_of(bytes(members["tools"]).decode(), name)
    except InvalidInput as error:
        found = fault(error, source.name)
        where = found.path.replace("$.tools", "$", 1) if data.lstrip()[:1] == b"[" else found.path
        message = f"{where}: {found.message}" if where else found.message
        raise Failed(message, place=found.place, remedy=found.remedy or "give the tools of a request") from error


def _tools_of(tools: str, name: str) -> list[Tool]:
    first, second = (f"{wrap}{tools}}}" for wrap in _WRAPS)
    try:
        return parse(first, name).tools
    except InvalidRequest:
        try:
            return parse(second, name).tools
        except InvalidRequest:
            pass
        raise


class Watch:
    """Notices what is not UTF-8. `bad` is the offset of the first such byte."""

    def __init__(self) -> None:
        self.bad: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._read = 0

    def see(self, piece: bytes, *, last: bool = False) -> None:
        """The next piece."""
        if self.bad is None:
            begun = self._read - len(self._decoder.getstate()[0])
            try:
                self._decoder.decode(piece, last)
            except UnicodeDecodeError as error:
                self.bad = begun + error.start
        self._read += len(piece)


def _batches(parser: Reader, watch: Watch, pieces: Iterator[bytes], finish_reason: str | None) -> Iterator[list[Event]]:
    """The events of each piece, and those of the end."""
    for piece in pieces:
        watch.see(piece)
        yield parser.feed(piece)
    watch.see(b"", last=True)
    yield parser.close(finish_reason)


def _write_events(batches: Iterator[list[Event]], out: Sink) -> None:
    for batch in batches:
        for event in batch:
            out.write(_encoded(event_record(event)))
        if batch:
            out.flush()


def _answer(
    api: Api, request: Request, batches: Iterator[list[Event]], out: Sink, *, stream: bool
) -> tuple[list[Loss], list[Issue]]:
    """Write the answer as a client of the API gets it. Gives what it cannot say, and what was odd about the text."""
    if not stream:
        response = fold(chain.from_iterable(batches))
        try:
            rendered = api.render_response(response, request)
        except UpstreamError as error:
            raise Failed(str(error), remedy="leave out --to to see what the model wrote") from error
        out.write(spaced(rendered.data, pretty=out.is_terminal or None) + b"\n")
        return [*dropped(response.issues), *rendered.losses], _odd(response.issues)
    renderer = api.stream_renderer(request)
    out.write(renderer.start())
    out.flush()
    issues: list[Issue] = []
    try:
        for batch in batches:
            out.write(renderer.send(batch))
            out.flush()
            issues += [issue for event in batch if isinstance(event, MessageEnd) for issue in event.issues]
    except TurnscriptError as error:
        out.write(renderer.fail(error))
        out.flush()
        raise
    out.write(renderer.close())
    return [*dropped(issues), *renderer.losses], _odd(issues)


def _odd(issues: list[Issue]) -> list[Issue]:
    """Give the issues that are no losses."""
    return [issue for issue in issues if not isinstance(issue, Dropped)]


# What programs read.


def _json(record: dict[str, Any], out: Sink) -> bytes:
    return _encoded(record, indent=2 if out.is_terminal else None)


def _encoded(record: dict[str, Any], indent: int | None = None) -> bytes:
    separators = (",", ":") if indent is None else None
    text = json.dumps(record, ensure_ascii=False, indent=indent, separators=separators)
    try:
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a model can write as an escape
        return f"{json.dumps(record, indent=indent, separators=separators)}\n".encode()


# What people read.


def _listing(response: Response, out: Sink) -> bytes:
    coloured = has_colours(out)

    def head(text: str) -> str:
        return click.style(text, bold=True) if coloured else text

    blocks = [f"{head(_head(item))}\n{_indented(_text(item))}" for item in response.items]
    reason = f"finish reason: {response.finish_reason}"
    if response.stop_sequence is not None:
        reason += f", at {response.stop_sequence!r}"
    issues = list(map(_issue, response.issues))
    counted = plural(len(issues), "issue", "issues") + ":" if issues else "no issues"
    ending = "\n".join([legible(reason), counted, *issues, ""])
    return "\n\n".join([*(blocks or ["nothing was written"]), ending]).encode()


def _issue(issue: Issue) -> str:
    return f"  {issue.kind}, characters {issue.start} to {issue.end}: {one_line(issue.detail)}"


def _head(item: Item) -> str:
    record = item_record(item)
    words = [record["type"]]
    if isinstance(item, ToolCall):
        words = [f"{record['type']} {item.name}", *([f"id {item.id}"] if item.id is not None else [])]
    words += [f"{key} {record[key]}" for key in ("of", "namespace") if key in record]
    words += ["cut off"] if item.open else []
    return one_line(", ".join(words))


def _text(item: Item) -> str:
    record = item_record(item)
    return "\n\n".join(record.get("texts", [record.get("arguments", record.get("text"))]))


def _indented(text: str) -> str:
    return "\n".join([f"  {line}" if line else "" for line in legible(text).split("\n")])
