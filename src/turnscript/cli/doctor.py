"""Owns `turnscript doctor`: which server is looked at, and how what is found is shown, line by line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from turnscript.cli.failures import BAD_INPUT, INTERRUPTED, OK, USAGE, Failed
from turnscript.cli.output import STREAM, Files, Sink
from turnscript.cli.report import Screen, plural, shown
from turnscript.cli.serve import CONFIG

if TYPE_CHECKING:
    from turnscript.gateway.config import Config, Model
    from turnscript.gateway.doctor_findings import Check

_COLOURS = {"ok": "green", "warning": "yellow", "fault": "red"}
_WIDTH = 14
"""Of the longest name of a check."""
_CLEAR = "\r\x1b[K"
_EPILOG = """\b
Examples:
  turnscript doctor --backend http://127.0.0.1:8080 --format rwkv-universal
  turnscript doctor --backend http://127.0.0.1:8000/v1 --model Qwen/Qwen3-8B --quick
  turnscript doctor --config turnscript.toml --json
"""


@click.command(epilog=_EPILOG, short_help="Check a model server before the gateway uses it.")
@click.option("--backend", metavar="URL", help="The model server, or embedded:FILE.gguf.")
@click.option("--format", "format_", metavar="NAME", help="The prompt format; by default what the model's name tells.")
@click.option("--kind", metavar="NAME", help="The kind of model server; by default what it tells of itself.")
@click.option(
    "--config", type=click.Path(readable=False), metavar="FILE", help=f"The configuration; {CONFIG} if it is there."
)
@click.option(
    "--model", metavar="NAME", help="One model of the configuration; with --backend, what the server calls its model."
)
@click.option("--json", "as_json", is_flag=True, help="For programs: one object, when all is done.")
@click.option("--quick", is_flag=True, help="Leave out the tool calls.")
def doctor(**options: Any) -> int:
    """Check a model server as the gateway uses it: one line for each check, and what to do about each fault.

    The server is asked some thirty short questions. Nothing is changed on it and nothing is left running. The exit code
    is 0 if there is no fault, 1 if there is one. Its key, and other headers that it wants, come from where
    `turnscript serve` has them.
    """
    import asyncio  # noqa: PLC0415  (no other command waits for it)

    config = _config(options)
    models = _models(config, None if options["backend"] else options["model"])
    with Files() as files:
        sink = files.open(STREAM)
        report = Report(sink, as_json=options["as_json"])
        try:
            asyncio.run(_examine(models, config, report, quick=options["quick"]))
        except KeyboardInterrupt:
            report.clear()
            Screen().note("interrupted; nothing is left running on the server")
            return INTERRUPTED
        report.end()
    return BAD_INPUT if report.faults else OK


async def _examine(models: list[Model], config: Config, report: Report, *, quick: bool) -> None:
    try:
        from turnscript.gateway.doctor import examine  # noqa: PLC0415  (with libraries that may not be there)
    except ModuleNotFoundError as error:
        remedy = "pip install 'turnscript[serve]'"
        raise Failed(f"the doctor needs {error.name}", remedy=remedy, code=USAGE) from None
    for model in models:
        report.begin(f"asking {shown(model.name)} what it is")
        await examine(model, config, report, quick=quick)


def _config(options: dict[str, Any]) -> Config:
    from turnscript.gateway.configfile import load  # noqa: PLC0415  (slow to import)

    backend, path = options["backend"], options["config"]
    if path is None and Path(CONFIG).is_file():
        path = CONFIG
    said = {"models.default.format": options["format_"], "models.default.kind": options["kind"]}
    if backend is not None:
        said |= {"models.default.backend": backend, "server.default_model": "default"}
        said["models.default.upstream_model"] = options["model"]
    return load(path, os.environ, {path: value for path, value in said.items() if value is not None})


def _models(config: Config, named: str | None) -> list[Model]:
    """The models that are meant."""
    if not config.models:
        remedy = "say --backend URL, or --config FILE with a [models.NAME] table"
        raise Failed("no model is configured", remedy=remedy, code=USAGE)
    if named is None:
        default = config.default_model
        return [default] if config.server.default_model is not None and default is not None else list(config.models)
    found = [model for model in config.models if model.name == named]
    if not found:
        names = ", ".join(model.name for model in config.models)
        raise Failed(f"no model of the configuration is called {named!r}", remedy=f"there are: {names}", code=USAGE)
    return found


class Report:
    """What is shown: lines while the checks are made, or one object at their end."""

    def __init__(self, sink: Sink, *, as_json: bool) -> None:
        self._sink = sink
        self._as_json = as_json
        self._terminal = sink.is_terminal and not as_json and os.environ.get("TERM") != "dumb"
        self._coloured = self._terminal and not os.environ.get("NO_COLOR")
        self._servers: list[dict[str, Any]] = []

    @property
    def faults(self) -> int:
        """How many checks found one."""
        return self._count("fault")

    def _count(self, state: str) -> int:
        return sum(check.state == state for server in self._servers for check in server["checks"])

    def server(self, model: str, url: str) -> None:
        """A server is looked at now."""
        self._servers.append({"model": model, "url": url, "checks": []})
        self.clear()
        if not self._as_json:
            self._line(f"{shown(model)}: {shown(url)}")

    def begin(self, name: str) -> None:
        """A check begins. On a terminal one sees which."""
        if self._terminal:
            self._put(f"  ...      {name}")

    def tell(self, check: Check) -> None:
        """And is done."""
        self._servers[-1]["checks"].append(check)
        if self._as_json:
            return
        self.clear()
        state = check.state.ljust(7)
        state = click.style(state, fg=_COLOURS[check.state], bold=True) if self._coloured else state
        self._line(f"  {state}  {check.name.ljust(_WIDTH)}  {shown(check.detail)}")
        if check.remedy:
            self._line(f"  {' ' * 7}  {' ' * _WIDTH}  -> {shown(check.remedy)}")

    def clear(self) -> None:
        """Take away the line that says what is going on."""
        if self._terminal:
            self._put(_CLEAR)

    def end(self) -> None:
        """All is done."""
        if self._as_json:
            found = {"ok": not self.faults, "servers": self._servers}
            plain = msgspec.to_builtins(found)
            self._line(json.dumps(plain, ensure_ascii=False, indent=2))
            return
        faults, warnings = plural(self.faults, "fault", "faults"), plural(self._count("warning"), "warning", "warnings")
        self._line(f"{faults}, {warnings}")

    def _line(self, text: str) -> None:
        self._put(f"{text}\n")

    def _put(self, text: str) -> None:
        self._sink.write(text.encode("utf-8", "backslashreplace"))
        self._sink.flush()
