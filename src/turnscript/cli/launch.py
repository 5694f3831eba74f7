"""Owns `turnscript launch`: starting a client so that it speaks to a gateway, or printing how to start it.

The client takes the place of this process, so that its signals, its terminal and its exit code are its own.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from turnscript.cli.agents import clients
from turnscript.cli.agents.gateway import DEFAULT_URL, Found, base_url, check_key, direct
from turnscript.cli.agents.recipe import Client, Gateway, Setup, program, setup
from turnscript.cli.failures import OK, Failed, starting, writing
from turnscript.cli.output import STREAM, Files
from turnscript.cli.report import Screen, shown, table

_KEY = "turnscript"
"""What clients send where the gateway asks for no key: most refuse to start without one."""

_ELSEWHERE = "set XDG_STATE_HOME to a folder that may be written to"
_COMMENTS = {"python": "#", "js": "//"}
_EPILOG = """\b
Examples:
  turnscript launch claude
  turnscript launch codex exec "What does this project do?"
  turnscript launch --url http://192.168.0.7:8400 --key tsk-... claude --bare
  turnscript launch --print opencode
  turnscript launch --list

\b
Options stand before the client's name; all that follows it is the client's own.
"""


class ClientName(click.ParamType[Client]):
    """The name of a client."""

    name = "client"

    def convert(self, value: str | Client, param: click.Parameter | None, ctx: click.Context | None) -> Client:
        if isinstance(value, Client):
            return value
        found = next((client for client in clients() if client.name == value), None)
        if found is None:
            self.fail(f"{value!r} is not one of {', '.join(client.name for client in clients())}", param, ctx)
        return found

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(client.name) for client in clients() if client.name.startswith(incomplete)]


class Given(Struct, frozen=True):
    """What the command line says."""

    client: Client | None
    arguments: tuple[str, ...]
    url: str
    key: str | None
    model: str | None
    context: int | None
    printing: bool
    listing: bool


@click.command(
    epilog=_EPILOG,
    short_help="Start an agent so that it uses the gateway.",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("client", type=ClientName(), required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
@click.option(
    "--url",
    default=DEFAULT_URL,
    envvar="TURNSCRIPT_URL",
    show_default=True,
    show_envvar=True,
    metavar="URL",
    help="Where the gateway is.",
)
@click.option("--key", envvar="TURNSCRIPT_KEY", show_envvar=True, metavar="KEY", help="A key of the gateway's.")
@click.option("--model", metavar="NAME", help="The model to ask for (default: the gateway's first).")
@click.option("--context", type=click.IntRange(1), metavar="TOKENS", help="How many tokens the model takes.")
@click.option("--print", "printing", is_flag=True, help="Print what to set and run instead; starts nothing.")
@click.option("--list", "listing", is_flag=True, help="List the clients.")
def launch(**given: Any) -> int:
    """Start CLIENT with ARGUMENTS so that it uses the gateway, without touching its own configuration."""
    return run(Given(**given))


def run(given: Given) -> int:
    """Do it; returns only where nothing is started. Raises Failed or UsageError."""
    if given.listing:
        _write(_table())
        return OK
    client = given.client
    if client is None:
        raise click.UsageError("name a client; --list lists them")
    if not client.command and not given.printing:
        raise click.UsageError(f"nothing to start, {client.title} is a library: --print says how a program uses it")
    address = base_url(given.url)
    if given.key:
        check_key(given.key)
    found = _asked(given, address)
    gateway = Gateway(address, given.key or _KEY, given.model or found.model, given.context or found.context)
    if not given.printing:
        _start(client, gateway, given.arguments)
    _write(recipe(client, gateway, _folder(client), given.arguments, direct(os.environ, gateway.url)))
    return OK


def recipe(
    client: Client,
    gateway: Gateway,
    folder: Path,
    arguments: tuple[str, ...] = (),
    also: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """All that a person must do to use a client with a gateway: lines for a shell, or for a program.

    `also`: more variables, which are the machine's own matter.
    """
    if not client.command:
        mark = _COMMENTS[client.language]
        return "\n".join(f"{mark} {path}\n{program(text, gateway)}" for path, text in client.code.items())
    made = setup(client, gateway, folder)
    lines = [f"unset {' '.join(client.unset)}"] if client.unset else []
    lines += [f"export {name}={shlex.quote(value)}" for name, value in {**made.variables, **also}.items()]
    for path, text in made.files.items():
        # A folder of its user's alone: the file may hold a key.
        folder_made = f"mkdir -m 700 -p {shlex.quote(str(path.parent))}"
        lines += [folder_made, f"cat > {shlex.quote(str(path))} <<'END'", f"{text}END"]
    lines.append(shlex.join([client.command, *made.arguments, *arguments]))
    return "\n".join(lines) + "\n"


def state_folder(env: Mapping[str, str]) -> Path:
    """Where the files of launched clients are: not among their users' own."""
    state = env.get("XDG_STATE_HOME", "")
    try:
        base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    except RuntimeError:
        raise Failed("this user has no home folder for the settings of clients", remedy=_ELSEWHERE) from None
    return base / "turnscript" / "clients"


def _folder(client: Client) -> Path:
    """Where the files of a client go, if it has any."""
    has_files = client.settings is not None and client.settings.in_file
    return state_folder(os.environ) / client.name if has_files else Path(client.name)


def _asked(given: Given, address: str) -> Found:
    """What the gateway says; a recipe can do without."""
    from turnscript.cli.agents.asking import ask  # noqa: PLC0415  (loads HTTP, which no other command needs)

    try:
        return ask(address, given.key, given.model)
    except Failed as trouble:
        if not given.printing:
            raise
        screen = Screen()
        lacking = "what is printed lacks what it would tell, such as how many tokens its model takes"
        screen.note(f"{trouble.place}: {trouble.message}; {lacking}")
        if trouble.remedy:
            screen.line(f"  {shown(trouble.remedy)}; then print it again")
        return Found()


def _start(client: Client, gateway: Gateway, arguments: tuple[str, ...]) -> NoReturn:
    """Become the client."""
    path = shutil.which(client.command)
    if path is None:
        raise Failed(f"{client.title} is not installed: there is no {client.command} in PATH", remedy=client.install)
    made = setup(client, gateway, _folder(client))
    try:
        _write_files(made)
    except Failed as trouble:
        raise Failed(trouble.message, place=trouble.place, remedy=_ELSEWHERE) from trouble
    env = {name: value for name, value in os.environ.items() if name not in client.unset}
    env |= made.variables | direct(os.environ, gateway.url)
    screen = Screen()
    if screen.is_terminal:
        screen.note(f"{client.title} uses {gateway.model} at {gateway.url}")
    if gateway.context is not None and gateway.context < client.needs(arguments):
        screen.note(_too_small(client, gateway.context, arguments))
    _become(path, [client.command, *made.arguments, *arguments], env)


def _too_small(client: Client, context: int, arguments: Sequence[str]) -> str:
    needed = client.needs(arguments)
    lean = [f"or add {word}: about {tokens}" for word, tokens in client.lean.items() if tokens < min(needed, context)]
    needs = f"{client.title} needs about {needed} for its instructions and tools"
    more = "give the model server more (`turnscript serve --context N` if it runs in the gateway)"
    return ", ".join([f"the model takes {context} tokens, but {needs}: {more}", *lean])


def _become(path: str, command: list[str], env: dict[str, str]) -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    if os.name == "nt":  # there, exec would give the shell its prompt back while the client runs
        sys.exit(subprocess.run([path, *command[1:]], env=env, check=False).returncode)
    # Python ignores this signal for itself, and what is ignored stays so in the next program.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with starting(path):
        os.execve(path, command, env)


def _write_files(made: Setup) -> None:
    """Files that only their owner reads, each whole or not at all."""
    for path, text in made.files.items():
        with writing(str(path.parent)):
            path.parent.mkdir(parents=True, exist_ok=True, mode=stat.S_IRWXU)
        with Files() as files:
            files.open(str(path)).write(os.fsencode(text))
        with writing(str(path)):
            path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def _table() -> str:
    rows = [(client.name, client.title, _state(client), client.install) for client in clients()]
    return table(("NAME", "WHAT", "HERE", "INSTALL WITH"), rows) + "\n"


def _state(client: Client) -> str:
    if not client.command:
        return "library"
    return "yes" if shutil.which(client.command) else "no"


def _write(text: str) -> None:
    with Files() as files:
        files.open(STREAM).write(os.fsencode(text))
