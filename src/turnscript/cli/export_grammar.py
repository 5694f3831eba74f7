"""Owns `turnscript export grammar`: tools and a format as a grammar that a model server holds its model to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import click
import msgspec

from turnscript.cli.failures import OK, Failed
from turnscript.cli.options import Name
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import FORMAT_HELP, FormatName, check_name
from turnscript.cli.report import Losses, Screen, fault
from turnscript.cli.source import Source
from turnscript.convert.recognition import AUTO
from turnscript.convert.verbs import parse
from turnscript.core.conversation import Request, Tool, ToolChoice, all_tools
from turnscript.core.errors import TurnscriptError
from turnscript.core.json_text import Json
from turnscript.detection.template_format import get_format
from turnscript.engine.constraint import Constraint
from turnscript.formats.format import Format
from turnscript.grammar.notations import NOTATIONS

_EPILOG = """\b
Examples:
  turnscript export grammar --format rwkv-universal --tools request.json --target kbnf
  turnscript export grammar --format qwen3 --tools request.json --tool-choice Bash --single
  turnscript export grammar --format qwen3 --schema schema.json --target lark
"""
_MODES = ("auto", "required")


@dataclass(frozen=True)
class Given:
    """What stood on the command line."""

    format: str
    tools: str | None
    schema: str | None
    source: str
    tool_choice: str
    target: str
    single: bool
    bounded: bool
    as_json: bool
    quiet: bool


@click.command("grammar", epilog=_EPILOG, short_help="Write a grammar of calls, or of answers in JSON.")
@click.option("--format", type=FormatName(), required=True, help=FORMAT_HELP)
@click.option("--tools", metavar="FILE|-", help="A request with tools, or a list of tools, as any API has them.")
@click.option("--schema", metavar="FILE|-", help="A JSON Schema: the grammar is of answers that are valid under it.")
@click.option(
    "--from", "source", type=Name(AUTO), default=AUTO, show_default=True, help="API or format of the request."
)
@click.option(
    "--tool-choice",
    default="required",
    show_default=True,
    metavar="auto|required|NAME",
    help="auto: the grammar is for what stands behind the words with which calls begin; NAME: calls of one tool.",
)
@click.option(
    "--target",
    type=click.Choice(list(NOTATIONS)),
    default="gbnf",
    show_default=True,
    help="The notation of the server.",
)
@click.option("--single", is_flag=True, help="One call at most.")
@click.option(
    "--bounded", is_flag=True, help="Calls and white space end at some time, as where `turnscript serve` holds a model."
)
@click.option("--json", "as_json", is_flag=True, help="For programs: the grammar, its trigger and its losses.")
@click.option("--quiet", "-q", is_flag=True, help="Report errors only.")
def grammar(**given: Any) -> int:
    """Write a grammar by which a model writes calls that a format reads, with arguments as their schemas demand.

    gbnf is llama.cpp's notation, which vLLM and SGLang read, too (xgrammar). kbnf is that of ai00_server, and lark is
    what llguidance reads.
    What a schema demands and no grammar tells, such as different items, is reported.
    """
    return run(Given(**given))


def add(group: click.Group) -> None:
    """Make it a command of a group."""
    group.add_command(grammar)


def run(given: Given) -> int:
    """Do it. Gives the exit code; raises TurnscriptError, Failed or UsageError."""
    format_ = get_format(given.format)
    check_name(given.source)
    if (given.tools is None) == (given.schema is None):
        raise click.UsageError("give --tools or --schema" + (", and not both" if given.tools is not None else ""))
    if given.schema is not None and (given.single or given.tool_choice != "required"):
        raise click.UsageError("--single and --tool-choice are for calls, and need --tools")
    file = given.tools if given.tools is not None else str(given.schema)
    with Source(file) as source:
        data = source.whole()
        told = _told(given, format_, data, source.name)
    with Files() as files:
        files.open(STREAM).write((_record(told) if given.as_json else told.text).encode())
    if told.losses and not given.quiet:
        losses = Losses(told.losses)
        screen = Screen()
        screen.note(losses.summary)
        losses.list_on(screen, None)
    return OK


def _told(given: Given, format_: Format, data: bytes, name: str) -> Constraint:
    """The grammar of what is in a file. Raises Failed with the place."""
    try:
        if given.schema is not None:
            return format_.answer_grammar(_schema(data, name), target=given.target, bounded=given.bounded)
        choice = given.tool_choice
        made = ToolChoice(choice) if choice in _MODES else ToolChoice("named", name=choice)
        tools, several = _tools(data, given.source), not given.single
        return format_.grammar(tools, made, target=given.target, parallel=several, bounded=given.bounded)
    except TurnscriptError as error:
        found = fault(error, name)
        message = f"{found.path}: {found.message}" if found.path else found.message
        raise Failed(message, place=found.place, remedy=found.remedy, code=found.exit_code) from error


def _schema(data: bytes, name: str) -> Json:
    try:
        return msgspec.json.decode(data, type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise Failed(f"this is no JSON: {error}", place=name, remedy="give a file with one JSON Schema") from error


def _tools(data: bytes, source: str) -> list[Tool]:
    """The tools of a request, or of a list of them."""
    if data.lstrip()[:1] == b"[":
        data = _request_around(data)
    read: Request = parse(data, source)
    return [tool for tool in all_tools(read) if tool.name is not None]


def _request_around(tools: bytes) -> bytes:
    """A request with nothing but a list of tools, of the API whose tools look so."""
    try:
        first = json.loads(tools)[0]
    except (ValueError, LookupError, RecursionError):
        return tools
    body: dict[str, Any] = {"model": "any", "tools": msgspec.Raw(tools)}
    if isinstance(first, dict) and "input_schema" in first:
        body |= {"max_tokens": 1, "messages": []}
    elif isinstance(first, dict) and "function" in first:
        body |= {"messages": []}
    else:
        body |= {"input": ""}
    return msgspec.json.encode(body)


def _record(told: Constraint) -> str:
    record = {
        "notation": told.notation,
        "grammar": told.text,
        "trigger": told.trigger,
        "lazy": told.lazy,
        "losses": [msgspec.structs.asdict(loss) for loss in told.losses],
    }
    return json.dumps(record, ensure_ascii=False, indent=2) + "\n"
