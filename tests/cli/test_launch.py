"""`turnscript launch`: a client learns what it must know, takes this process's place, and keeps its configuration."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from tests.cli.clientpage import PAGE, renewed
from tests.cli.running import live, process, run
from tests.loopback import Loopback
from turnscript.cli.agents import clients, read_client
from turnscript.cli.agents.gateway import base_url, direct
from turnscript.cli.agents.recipe import Client, Gateway, program, settings_text, setup
from turnscript.cli.launch import recipe, state_folder

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ROOT / "tests" / "agents"
PROGRAMS = [client for client in clients() if client.command]
LIBRARIES = [client for client in clients() if not client.command]
CONTEXT = 4096
MODEL = {"max_input_tokens": CONTEXT}
SAYS = {"status": "ok", "models": {"m1": {}}, "data": [MODEL | {"id": "m1"}], "id": "m2"} | MODEL
"""What the stand-in for a gateway says to everything: its health, its models, and any one model."""

# A client that says how it was started, and then does what its last argument says.
STAND_IN = """#!/bin/sh
env -0 > "$TOLD/env"
printf '%s\\0' "$@" > "$TOLD/arguments"
echo $$ > "$TOLD/pid"
for last; do :; done
case "$last" in
  fail) exit 7 ;;
  wait) echo ready; exec sleep 30 ;;
  chatter) while :; do echo word || exit 9; done ;;
esac
"""


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    with Loopback() as server:
        server.answer(json.dumps(SAYS).encode())
        yield server


class Place:
    """A user's machine: a home, clients that are installed, and what they were told."""

    def __init__(self, folder: Path) -> None:
        self.home, self.told, self._bin = folder / "home", folder / "told", folder / "bin"
        for one in (self.home, self.told, self._bin):
            one.mkdir()
        path = os.pathsep.join([str(self._bin), "/usr/bin", "/bin"])
        # With a locale of its own, Python adds none to what the client finds.
        self.env = {"HOME": str(self.home), "PATH": path, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src")}
        self.env["TOLD"] = str(self.told)

    def install(self, command: str) -> None:
        """A stand-in for a client."""
        file = self._bin / command
        file.write_text(STAND_IN, encoding="utf-8")
        file.chmod(0o755)

    def launch(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[bytes]:
        """`turnscript launch` there."""
        return process("launch", *arguments, env=self.env | env, cwd=self.home)

    @property
    def variables(self) -> dict[str, str]:
        """The environment that the client found."""
        pairs = (self.told / "env").read_text(encoding="utf-8").split("\0")[:-1]
        return dict(pair.split("=", 1) for pair in pairs)

    @property
    def arguments(self) -> list[str]:
        """The arguments that the client got."""
        return (self.told / "arguments").read_text(encoding="utf-8").split("\0")[:-1]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def by_name(name: str) -> Client:
    return next(client for client in clients() if client.name == name)


def files_in(folder: Path) -> dict[str, str]:
    """Every file below a folder, by its path there."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in found}


@pytest.mark.parametrize("client", PROGRAMS, ids=lambda client: client.name)
def test_a_client_is_told_the_address_the_key_and_the_model(client: Client, place: Place, loopback: Loopback) -> None:
    place.install(client.command)
    done = place.launch("--url", loopback.url, "--key", "tsk-1", client.name, "hello")
    assert (0, b"") == (done.returncode, done.stdout), done.stderr
    told = [*place.variables.values(), *place.arguments, *files_in(place.home).values()]
    assert all(any(word in text for text in told) for word in (loopback.url, "m1", "tsk-1"))
    assert "hello" == place.arguments[-1]


@pytest.mark.parametrize("client", PROGRAMS, ids=lambda client: client.name)
def test_what_is_printed_starts_a_client_as_launch_does(client: Client, place: Place, loopback: Loopback) -> None:
    place.install(client.command)
    unset = dict.fromkeys(client.unset, "of the user's own")
    asked = ["--url", loopback.url, "--key", "it's", client.name, "a b", "--print", "$HOME"]
    assert 0 == place.launch(*asked, **unset).returncode
    launched = (place.variables, place.arguments, files_in(place.home))
    for path in sorted(place.home.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    printed = place.launch("--print", *asked, **unset)
    assert (0, b"", {}) == (printed.returncode, printed.stderr, files_in(place.home))
    subprocess.run(["/bin/sh", "-e"], input=printed.stdout, env=place.env | unset, cwd=place.home, check=True)
    ours = {"_", "PWD", "SHLVL", "OLDPWD"}
    seen, wanted = (
        {name: value for name, value in found.items() if name not in ours} for found in (place.variables, launched[0])
    )
    assert (wanted, *launched[1:]) == (seen, place.arguments, files_in(place.home))
    assert {0} >= {path.parent.stat().st_mode & 0o077 for path in place.home.rglob("*") if path.is_file()}


def test_what_follows_the_name_is_the_clients_own(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    rest = ["--print", "--help", "--", "--url", "", "-x"]
    done = place.launch("--url", loopback.url, "claude", *rest)
    assert (0, rest) == (done.returncode, place.arguments), done.stderr


def test_the_exit_code_is_the_clients(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    assert 7 == place.launch("--url", loopback.url, "claude", "fail").returncode


def test_the_client_is_this_process_and_gets_its_signals(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    with live("launch", "--url", loopback.url, "claude", "wait", env=place.env, cwd=place.home) as started:
        assert b"ready\n" == started.stdout.readline()
        assert started.process.pid == int((place.told / "pid").read_text())
        started.process.send_signal(signal.SIGTERM)
        assert -signal.SIGTERM == started.wait()


def test_a_client_whose_reader_goes_away_is_ended_by_that(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    with live("launch", "--url", loopback.url, "claude", "chatter", env=place.env, cwd=place.home) as started:
        assert b"word\n" == started.stdout.readline()
        started.stdout.close()
        assert -signal.SIGPIPE == started.wait()


def test_variables_that_would_send_a_client_elsewhere_are_taken_away(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    done = place.launch("--url", loopback.url, "claude", ANTHROPIC_API_KEY="sk-real", KEPT="yes")
    assert 0 == done.returncode
    assert "ANTHROPIC_API_KEY" not in place.variables
    assert ("yes", loopback.url) == (place.variables["KEPT"], place.variables["ANTHROPIC_BASE_URL"])


def test_without_a_key_a_client_is_given_a_word_that_it_can_send(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    assert 0 == place.launch("--url", loopback.url, "claude").returncode
    assert "turnscript" == place.variables["ANTHROPIC_AUTH_TOKEN"]
    assert all("authorization" not in asked.headers for asked in loopback.asked)


def test_a_key_and_the_address_can_come_from_the_environment(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    done = place.launch("claude", TURNSCRIPT_URL=f"{loopback.url}/v1/", TURNSCRIPT_KEY="tsk-2")
    assert 0 == done.returncode, done.stderr
    said = (place.variables["ANTHROPIC_BASE_URL"], place.variables["ANTHROPIC_AUTH_TOKEN"])
    assert (loopback.url, "tsk-2") == said
    assert ["/health", "/v1/models"] == [asked.path for asked in loopback.asked]
    assert "Bearer tsk-2" == loopback.asked[1].headers["authorization"]


@pytest.mark.parametrize(
    ("options", "model", "context"),
    [
        ([], "m1", str(CONTEXT)),
        (["--model", "a/b c"], "a/b c", str(CONTEXT)),
        (["--context", "9000"], "m1", "9000"),
    ],
)
def test_the_model_and_its_context_are_the_gateways_or_what_is_said(
    options: list[str], model: str, context: str, place: Place, loopback: Loopback
) -> None:
    place.install("claude")
    assert 0 == place.launch("--url", loopback.url, *options, "claude").returncode
    told = (place.variables["ANTHROPIC_MODEL"], place.variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"])
    assert (model, context) == told
    asked_for = "/v1/models/a%2Fb%20c" if "--model" in options else "/v1/models"
    assert asked_for == loopback.asked[-1].path


def test_a_context_that_nobody_knows_is_not_told(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    loopback.answer(json.dumps({"status": "ok", "models": {}, "data": [{"id": "m1"}]}).encode())
    assert 0 == place.launch("--url", loopback.url, "claude").returncode
    assert "CLAUDE_CODE_MAX_CONTEXT_TOKENS" not in place.variables
    assert "limit" not in settings_text_of("opencode", None)
    assert "limit" in settings_text_of("opencode", CONTEXT)


def settings_text_of(name: str, context: int | None) -> str:
    settings = by_name(name).settings
    assert settings is not None
    return settings_text(settings, Gateway("http://127.0.0.1:8400", "k", "m1", context))


def test_a_client_keeps_its_own_configuration(place: Place, loopback: Loopback) -> None:
    own = {client.settings.home: client for client in PROGRAMS if client.settings is not None}
    assert own
    for home, client in own.items():
        file = place.home / home.removeprefix("~/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("of the user's own", encoding="utf-8")
        place.install(client.command)
        assert 0 == place.launch("--url", loopback.url, client.name).returncode
        assert "of the user's own" == file.read_text(encoding="utf-8")


def test_files_that_a_client_is_given_are_private(place: Place, loopback: Loopback) -> None:
    place.install("pi")
    for _ in range(2):  # a second time over the first one's
        assert 0 == place.launch("--url", loopback.url, "pi").returncode
    folder = place.home / ".local" / "state" / "turnscript" / "clients" / "pi"
    assert str(folder) == place.variables["PI_CODING_AGENT_DIR"]
    assert (0o700, 0o600) == tuple(path.stat().st_mode & 0o777 for path in (folder, folder / "models.json"))


def test_a_client_is_told_the_file_or_the_folder_as_it_wants(place: Place, loopback: Loopback) -> None:
    folder = place.home / ".local" / "state" / "turnscript" / "clients"
    for name in ("cline", "kimi"):
        place.install(name)
        assert 0 == place.launch("--url", loopback.url, name).returncode
        (folder / name).joinpath("more").write_text("of the client's own", encoding="utf-8")
    assert 0 == place.launch("--url", loopback.url, "kimi").returncode
    assert str(folder / "kimi") == place.variables["KIMI_CODE_HOME"]
    assert {"loop_control": {"reserved_context_size": 0}} == tomllib.loads((folder / "kimi/config.toml").read_text())
    assert 0 == place.launch("--url", loopback.url, "cline").returncode
    file = Path(place.variables["CLINE_PROVIDER_SETTINGS_PATH"])
    assert folder / "cline" / "providers.json" == file
    [provider] = json.loads(file.read_text(encoding="utf-8"))["providers"].values()
    told = provider["settings"]
    assert (f"{loopback.url}/v1", "m1", CONTEXT) == (told["baseUrl"], told["model"], told["contextWindow"])
    assert {"of the client's own"} == {(folder / name / "more").read_text() for name in ("cline", "kimi")}


def test_files_go_where_the_system_keeps_state(place: Place, loopback: Loopback, tmp_path: Path) -> None:
    place.install("pi")
    assert 0 == place.launch("--url", loopback.url, "pi", XDG_STATE_HOME=str(tmp_path / "state")).returncode
    assert (tmp_path / "state" / "turnscript" / "clients" / "pi" / "models.json").is_file()
    assert Path.home() / ".local" / "state" / "turnscript" / "clients" == state_folder({"XDG_STATE_HOME": "relative"})


def test_a_place_where_no_files_can_be_is_told(place: Place, loopback: Loopback) -> None:
    place.install("kimi")
    (place.home / ".local").write_text("", encoding="utf-8")
    done = place.launch("--url", loopback.url, "kimi")
    assert (1, b"") == (done.returncode, done.stdout)
    remedy = "cannot write this: not a directory\n  set XDG_STATE_HOME to a folder that may be written to\n"
    assert remedy in done.stderr.decode()


def test_a_proxy_is_not_asked_for_this_machine(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    nowhere = "http://127.0.0.1:9"
    done = place.launch("--url", loopback.url, "claude", HTTP_PROXY=nowhere, http_proxy=nowhere, no_proxy="a.b")
    assert 0 == done.returncode, done.stderr
    assert ["a.b,127.0.0.1"] * 2 == [place.variables[name] for name in ("NO_PROXY", "no_proxy")]
    printed = place.launch("--url", loopback.url, "--print", "claude", HTTP_PROXY=nowhere, no_proxy="a.b")
    assert b"export no_proxy=a.b,127.0.0.1\nexport NO_PROXY=a.b,127.0.0.1\n" in printed.stdout


@pytest.mark.parametrize(
    ("env", "url"),
    [({}, "http://127.0.0.1:1"), ({"http_proxy": ""}, "http://[::1]:1"), ({"HTTPS_PROXY": "x"}, "https://a.b")],
)
def test_a_proxy_that_is_none_or_needed_stays_as_it_is(env: Mapping[str, str], url: str) -> None:
    assert {} == direct(env, url)
    assert {} != direct({"ALL_PROXY": "x"}, "http://localhost:8400")


@pytest.mark.deep
def test_a_model_that_is_too_small_for_a_client_is_told(place: Place, loopback: Loopback) -> None:
    for name in ("claude", "pi"):
        place.install(name)
    started = [("claude",), ("pi",), ("claude", "-p", "--bare")]
    small, fits, bare = (place.launch("--url", loopback.url, *arguments) for arguments in started)
    assert (0, 0, b"", b"") == (small.returncode, fits.returncode, fits.stderr, bare.stderr)
    assert f"the model takes {CONTEXT} tokens, but Claude Code needs about 12000" in small.stderr.decode()
    assert "give the model server more (`turnscript serve --context N`" in small.stderr.decode()
    assert "in the gateway), or add --bare: about 1500\n" in small.stderr.decode()


# What goes wrong.


def test_a_gateway_that_is_not_there_is_named_and_how_to_start_it(place: Place, loopback: Loopback) -> None:
    place.install("claude")
    url = loopback.url
    loopback.__exit__(None, None, None)
    done = place.launch("--url", url, "claude")
    assert (1, b"") == (done.returncode, done.stdout)
    said = done.stderr.decode()
    assert f"turnscript: error: {url}: no gateway answers: connection refused\n" in said
    assert "turnscript serve --backend URL" in said
    assert not (place.told / "env").exists()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"<html>", 200, "is no gateway of turnscript"),
        (b"[]", 200, "is no gateway of turnscript"),
        (b"{}", 200, "is no gateway of turnscript"),
        (b"not found", 404, "is no gateway of turnscript"),
        (
            b'{"status": "ok"}',
            200,
            "is no gateway of turnscript\n  start one; if this is a model server: turnscript serve",
        ),
        (b'{"status": "draining"}', 503, "is shutting down"),
        (b'{"error": {"message": "Loading model"}}', 503, "refuses: Loading model"),
        (b'{"error": {"message": "no key"}}', 401, "asks for a key: no key"),
        (b'{"error": {"message": "no such model"}}', 404, "refuses: no such model"),
        (b'{"status": "ok", "models": {}, "data": []}', 200, "has no model"),
        (b'{"status": "ok", "models": {}, "data": [{}]}', 200, "is no gateway of turnscript"),
        (b'{"status": "ok", "models": {}, "data": ["m"]}', 200, "is no gateway of turnscript"),
    ],
)
def test_a_gateway_that_cannot_serve_is_told_apart(body: bytes, status: int, said: str, loopback: Loopback) -> None:
    loopback.answer(body, status=status)
    result = run("launch", "--url", loopback.url, "claude")
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"turnscript: error: {loopback.url}: " in result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_key_goes_to_no_other_place_than_the_one_that_was_given(status: int, loopback: Loopback) -> None:
    found = b'{"status": "ok", "models": {}, "data": [{"id": "m"}]}'
    with Loopback() as elsewhere:
        elsewhere.answer(found)
        loopback.answer(b"", status=status, location=f"{elsewhere.url}/health")
        result = run("launch", "--url", loopback.url, "--key", "tsk-secret", "claude")
        assert [] == elsewhere.asked
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"{loopback.url}: what answers here says that it is elsewhere ({status})" in result.stderr
    assert f"say --url {elsewhere.url}; " in result.stderr
    assert "tsk-secret" not in result.stderr


def test_a_client_that_is_not_installed_is_named_with_its_install_command(place: Place, loopback: Loopback) -> None:
    done = place.launch("--url", loopback.url, "codex")
    assert (1, b"") == (done.returncode, done.stdout)
    assert f"  {by_name('codex').install}\n" in done.stderr.decode()


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("#!/no/such/interpreter\n", "no such file or directory\n  what its first line names is not there"),
        ("text", "exec format error\n  it is no program; install it again\n"),
    ],
)
def test_a_client_that_cannot_be_run_is_an_error(program: str, said: str, place: Place, loopback: Loopback) -> None:
    place.install("claude")
    (place.home.parent / "bin" / "claude").write_text(program, encoding="utf-8")
    done = place.launch("--url", loopback.url, "claude")
    assert (1, b"") == (done.returncode, done.stdout)
    assert f"bin/claude: cannot start this: {said}" in done.stderr.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a client"),
        (["nobody"], "'nobody' is not one of"),
        (["--url", "gateway", "claude"], "is no address of a gateway"),
        (["--url", "ftp://a.b", "claude"], "is no address of a gateway"),
        (["--url", "http://a.b?x=1", "claude"], "is no address of a gateway"),
        (["--url", "http://a.b:port", "claude"], "is no address of a gateway"),
        (["--url", "http://a.b/ü", "claude"], "is no address of a gateway"),
        (["--url", "http://me:tsk-1@a.b", "claude"], "--url must not hold a name or password"),
        (["--url", "http://me:tsk-1@a.b:port", "claude"], "--url must not hold a name or password"),
        (["--key", "tsk-abc\r", "claude"], "--key holds"),
        (["--key", "tsk-…", "claude"], "--key holds"),
        (["--context", "0", "claude"], "0 is not in the range"),
        (["--nothing", "claude"], "no such option"),
        (["ai-sdk"], "AI SDK is a library"),
    ],
)
def test_a_wrong_command_line_is_told(arguments: list[str], said: str) -> None:
    result = run("launch", *arguments)
    assert (2, "") == (result.exit_code, result.stdout)
    assert said in result.stderr.lower() or said in result.stderr
    assert "tsk-" not in result.stderr


def test_a_recipe_can_be_had_without_a_gateway() -> None:
    result = run("launch", "--url", "http://127.0.0.1:9", "--print", "--model", "rwkv", "codex")
    assert 0 == result.exit_code
    assert "no gateway answers" in result.stderr
    assert "; what is printed lacks what it would tell, such as how many tokens its model takes\n" in result.stderr
    assert (
        "\n  start one: turnscript serve --backend URL; or say where it is: --url URL; then print it again\n"
        in result.stderr
    )
    assert 'model="rwkv"' in result.stdout
    assert 'base_url="http://127.0.0.1:9/v1"' in result.stdout


def test_a_model_with_a_name_that_is_no_text_is_written_as_it_was_given() -> None:
    done = process("launch", "--url", "http://127.0.0.1:9", "--print", "--model", os.fsdecode(b"a\xff"), "claude")
    assert (0, True) == (done.returncode, b"a\xff" in done.stdout), done.stderr


def test_the_list_says_which_clients_are_here(place: Place) -> None:
    place.install("codex")
    lines = place.launch("--list").stdout.decode().splitlines()
    here = {line.split()[0]: re.split(r"  +", line)[2] for line in lines[1:]}
    assert [client.name for client in clients()] == list(here)
    wanted = {client.name: "no" if client.command else "library" for client in clients()} | {"codex": "yes"}
    assert wanted == here


# The recipes.


@pytest.mark.parametrize("client", clients(), ids=lambda client: client.name)
def test_a_recipe_is_of_one_kind_and_names_what_was_tested(client: Client) -> None:
    assert bool(client.command) != bool(client.code)
    assert bool(client.language) == bool(client.code)
    manifest = json.loads((AGENTS / "package.json").read_text(encoding="utf-8"))
    lines = (AGENTS / "requirements.in").read_text(encoding="utf-8").splitlines()
    python = dict(re.sub(r"\[.*?]", "", line).split("==") for line in lines if "==" in line)
    builds = {name.split("/")[0].removeprefix("@"): pin for name, pin in manifest["optionalDependencies"].items()}
    pinned = manifest["dependencies"] | builds | python
    assert client.versions
    assert client.versions == {package: pinned[package] for package in client.versions}


def test_settings_as_arguments_are_the_settings_of_the_file() -> None:
    client = by_name("codex")
    gateway = Gateway("http://127.0.0.1:8400", "k", 'a "quoted" \\ name\x7f\u20ac', 9000)
    assert client.settings is not None
    file = tomllib.loads(settings_text(client.settings, gateway))
    arguments = setup(client, gateway, Path()).arguments
    assert {"-c"} == set(arguments[::2])
    assert file == tomllib.loads("\n".join(arguments[1::2]))
    assert (gateway.model, 9000) == (file["model"], file["model_context_window"])


@pytest.mark.parametrize("client", LIBRARIES, ids=lambda client: client.name)
def test_a_program_is_printed_for_each_api_and_its_words_are_quoted(client: Client) -> None:
    gateway = Gateway("http://127.0.0.1:8400", "k", 'a "b"')
    printed = recipe(client, gateway, Path())
    assert client.code
    assert all(f" {path}\n{program(text, gateway)}" in printed for path, text in client.code.items())
    assert printed.count('"a \\"b\\""') == len(client.code)
    if client.language == "python":
        compile(printed, client.name, "exec")


def test_a_recipe_with_a_word_that_is_none_is_refused() -> None:
    text = 'title = "x"\ninstall = "y"\ncommand = "x"\nnothing = 1\n[versions]\nx = "1"\n'
    with pytest.raises(msgspec.ValidationError, match="nothing"):
        read_client("x", text)


@pytest.mark.parametrize("text", ["http://a.b:1", "http://a.b:1/", "http://a.b:1/v1", " http://a.b:1/v1/ "])
def test_an_address_may_have_the_version_behind_it(text: str) -> None:
    assert "http://a.b:1" == base_url(text)


def test_the_page_of_clients_says_what_the_recipes_say(request: pytest.FixtureRequest) -> None:
    page = renewed(PAGE.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == page
    assert all(f"### {client.title}\n" in page for client in clients())
