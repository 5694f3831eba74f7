"""Owns `turnscript serve`: the gateway from the command line, what it says when it starts, its settings on request."""

from __future__ import annotations

import gc
import json
import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from turnscript.cli.failures import OK, USAGE, Failed
from turnscript.cli.listening import listening
from turnscript.cli.output import STREAM, Files
from turnscript.cli.report import Screen, in_line, table
from turnscript.core.errors import Unsupported

if TYPE_CHECKING:
    from turnscript.gateway.config import Config
    from turnscript.gateway.configfile import Reloader
    from turnscript.gateway.served import Served
    from turnscript.gateway.service import Service

CONFIG = "turnscript.toml"
_BACKEND = "models.default.backend"
_OF_THE_MODEL = ("format_", "template", "kind", "upstream_model", "context", "preset")
"""Options that are settings of the model that --backend names."""
_PORT = click.IntRange(0, 65535)
_NEEDS = {
    "starlette": "starlette",
    "uvicorn": "uvicorn",
    "aiohttp": "aiohttp",
    "httptools": "httptools",
    "jsonschema_rs": "jsonschema-rs",
    "prometheus_client": "prometheus-client",
    **({} if sys.platform == "win32" else {"uvloop": "uvloop"}),
}
_REAL = "say where a real one runs: --backend http://127.0.0.1:8080 --format NAME"
_STDERR = 2
_GARBAGE = 10_000
"""How many objects may have been made more than freed before the collector looks at the new ones."""
_EPILOG = """\b
Examples:
  turnscript serve
  turnscript serve --backend http://127.0.0.1:8080 --format rwkv-universal
  turnscript serve --backend embedded:model.gguf
  turnscript serve --backend embedded:model.gguf --context 32768
  turnscript serve --backend http://127.0.0.1:8080 --format rwkv-goose --preset chat
  turnscript serve --backend https://api.example.org/v1 --kind chat --upstream-model large
  turnscript serve --config turnscript.toml
  turnscript serve --config turnscript.toml --check
  turnscript serve --config ai00/assets/configs/Config.toml
"""


@click.command(epilog=_EPILOG, short_help="Serve chat APIs over any model server.")
@click.option("--backend", metavar="URL", help="The model server, or embedded:FILE.gguf, or replay:FOLDER.")
@click.option("--format", "format_", metavar="NAME", help="The prompt format; by default what the model's name tells.")
@click.option("--template", metavar="PLACE", help="The model's own chat template: a file, a folder, or a model's name.")
@click.option(
    "--kind",
    metavar="NAME",
    help="The kind of model server; by default what it tells of itself. Chat APIs: chat, responses, messages, gemini.",
)
@click.option("--upstream-model", metavar="NAME", help="What the model server calls its model, if it has several.")
@click.option(
    "--context", type=click.IntRange(1), metavar="TOKENS", help="How many tokens a conversation of the model may have."
)
@click.option("--preset", metavar="NAME", help="How the model samples where a request does not say; see `show FORMAT`.")
@click.option(
    "--config", type=click.Path(readable=False), metavar="FILE", help=f"The configuration; {CONFIG} if it is there."
)
@click.option("--host", metavar="ADDRESS", help="Where to listen; 127.0.0.1 by default.")
@click.option("--port", type=_PORT, metavar="N", help="The port; 8400 by default, 0 for any that is free.")
@click.option("--public", is_flag=True, default=None, help="Listen beyond this machine although there are no keys.")
@click.option("--check", is_flag=True, help="Show the settings that would be in force, and end.")
@click.option("--json", "as_json", is_flag=True, help="With --check, for programs.")
def serve(**options: Any) -> int:
    """Serve the chat APIs over a backend that continues text, or over one that has a chat API of its own.

    Clients of all APIs use the same address: http://127.0.0.1:8400, or http://127.0.0.1:8400/v1 where they want one
    that ends in a version. With --backend there is that model alone; all else that the configuration says counts.
    Where neither says which model, it is a tiny one that comes with turnscript, for demonstrations.

    The key of that model server is in the variable TURNSCRIPT_MODELS_DEFAULT_API_KEY, and other headers that it wants
    are in TURNSCRIPT_MODELS_DEFAULT_HEADERS, written "Name: value".
    """
    if options["as_json"] and not options["check"]:
        raise click.UsageError("--json goes with --check")
    _require_extra()
    # Not before we know that their libraries are there.
    from turnscript.gateway import shipped  # noqa: PLC0415
    from turnscript.gateway.embedded import can_embed  # noqa: PLC0415

    reloader = _reloader(options)
    demonstrates = not reloader.config.models
    if demonstrates:
        reloader = _reloader(options, shipped.settings())
    with suppress(OSError):
        for note in reloader.config.notes:
            Screen().note(note)
    if options["check"]:
        return _check(reloader.config, as_json=options["as_json"])
    if demonstrates and not can_embed():
        raise Failed(
            "no model is configured, and the tiny one that comes with turnscript needs xllamacpp",
            remedy=f"pip install 'turnscript[serve,embedded]', or {_REAL}",
            code=USAGE,
        )
    return _run(reloader)


def _require_extra() -> None:
    missing = [package for module, package in _NEEDS.items() if find_spec(module) is None]
    if missing:
        raise Failed(f"the server needs {', '.join(missing)}", remedy="pip install 'turnscript[serve]'", code=USAGE)


def _reloader(options: dict[str, Any], shipped: dict[str, Any] | None = None) -> Reloader:
    """The configuration. Raises InvalidConfig, and Failed where options are about a model that nothing names."""
    from turnscript.gateway.configfile import Reloader  # noqa: PLC0415
    from turnscript.gateway.kinds import COMMAND_LINE, InvalidConfig  # noqa: PLC0415

    path = _config_file(options["config"])
    try:
        return Reloader(path, overrides=_overrides(options), shipped=shipped)
    except InvalidConfig as error:
        if options["backend"] is not None or (error.path, error.source) != (_BACKEND, COMMAND_LINE):
            raise
        given = [f"--{key.rstrip('_').replace('_', '-')}" for key in _OF_THE_MODEL if options[key] is not None]
        message = f"no --backend is given, so there is no model for {' and '.join(given)}"
        remedy = f"add --backend URL; for a model of {path or CONFIG}, set it there"
        raise Failed(message, remedy=remedy, code=USAGE) from None


def _config_file(named: str | None) -> Path | None:
    if named is not None:
        return Path(named)
    return Path(CONFIG) if Path(CONFIG).is_file() else None


def _overrides(options: dict[str, Any]) -> dict[str, Any]:
    """What the command line says, by the paths of the settings."""
    said: dict[str, Any] = {
        "server.host": options["host"],
        "server.port": options["port"],
        "server.public": options["public"],
    }
    if options["backend"] is not None:
        said |= {_BACKEND: options["backend"], "server.default_model": "default"}
    said |= {f"models.default.{key.rstrip('_')}": options.get(key) for key in _OF_THE_MODEL}
    return {path: value for path, value in said.items() if value is not None}


def _check(config: Config, *, as_json: bool) -> int:
    settings = config.describe()
    if as_json:
        text = json.dumps([{"path": one.path, "value": one.value, "where": one.where} for one in settings], indent=2)
    else:
        rows = [(one.path, in_line(one.value), in_line(one.where)) for one in settings]
        text = table(("SETTING", "VALUE", "FROM"), rows)
    with Files() as files:
        files.open(STREAM).write(f"{text}\n".encode("utf-8", "backslashreplace"))
    return OK


def _run(reloader: Reloader) -> int:
    from asyncio import Runner  # noqa: PLC0415

    from turnscript.gateway.logs import set_up  # noqa: PLC0415
    from turnscript.gateway.server import Server, new_event_loop  # noqa: PLC0415
    from turnscript.gateway.service import Service  # noqa: PLC0415

    _fill_stderr()
    config = reloader.config
    set_up(config.logs.level, as_json=config.logs.json, redact=config.logs.redact)
    sock = listening(config.server.host, config.server.port)
    server = Server(Service(config, reloader), on_ready=_ready)
    try:
        with Runner(loop_factory=new_event_loop) as runner:
            runner.run(server.serve([sock]))
    except Unsupported as error:  # a model that this installation cannot run
        raise Failed(error.message) from None
    return OK


def _fill_stderr() -> None:
    """Where standard error is closed, nothing may get its number: llama.cpp writes there, be it a database of ours."""
    try:
        os.fstat(_STDERR)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != _STDERR:
            os.dup2(nowhere, _STDERR)
            os.close(nowhere)


def _ready(service: Service, address: str) -> None:
    """The server listens. What is there by now stays, so the collector of garbage need not look at it again and again:
    that would hold up every stream."""
    with suppress(OSError):  # a disk that is full of logs is no reason not to serve
        _banner(service, address)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE, 20, 50)


def _short_for_agents(served: Served) -> str:
    """What is to be said where a model that runs in here has a context that is too short for what agents send."""
    from turnscript.cli.agents import clients  # noqa: PLC0415  (reads a file for each)

    context = served.context
    if context is None or all(address.is_web for address in served.model.backend):
        return ""
    short = [f"{client.title} (about {client.prompt})" for client in clients() if client.prompt > context]
    if not short:
        return ""
    remedy = "say --context N if the model has more, or take one with a longer context"
    return f"its {context} tokens are too few for the instructions and tools of {', '.join(short)}: {remedy}"


def _banner(service: Service, address: str) -> None:
    """What people see when the server listens."""
    from turnscript.convert.registry import get_backend  # noqa: PLC0415
    from turnscript.gateway.doctor_findings import GIVE_KEY  # noqa: PLC0415
    from turnscript.gateway.modelformat import DETECTED  # noqa: PLC0415
    from turnscript.gateway.shipped import is_shipped  # noqa: PLC0415

    screen = Screen()
    screen.note(f"listening on {address}")
    for served in service.models():
        takes = served.model.takes
        format_ = takes.name if takes else "no prompt format yet"
        if served.model.relays:
            format_ = get_backend(served.model.kind).title
        elif takes is not None and takes.template is not None:
            format_ = "its own chat template"
        where = ", ".join(str(one) for one in served.model.backend)
        answers = any(up for _, up in served.servers())
        screen.note(f"  {served.name}: {where} with {format_}{'' if answers else '  (does not answer yet)'}")
        if served.model.takes and served.model.why.startswith(DETECTED) and not served.model.guess:
            screen.note(f"    {served.model.why}")
        fills = served.model.fills
        hole = [f"a text with a hole (`suffix`) is written in the order {fills!r}"] if fills else []
        for sentence in [*([] if is_shipped(served.model) else [*served.sentences, *hole]), *served.shortfalls]:
            screen.note(f"    {in_line(sentence)}")
        if short := _short_for_agents(served):
            screen.note(f"    {short}")
        if served.wants_key:
            screen.note(f"    it refuses to answer without its key: {GIVE_KEY}")
        elif answers and not served.model.settles:
            screen.note("    nothing tells which it takes: say --format NAME; `turnscript formats` lists them")
        if is_shipped(served.model):
            screen.note(
                "    This is a tiny demonstration model: it calls tools, tells what they answer, and knows no more."
            )
            screen.note(f"    For real work {_REAL}; `turnscript formats` lists them")
    screen.note(f"  Claude Code: ANTHROPIC_BASE_URL={address}   OpenAI SDKs: OPENAI_BASE_URL={address}/v1")
