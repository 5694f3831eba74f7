"""Real agents work through the gateway: they ask, call a tool of theirs, tell its result and show the answer."""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.agents.programs import OWN_TOOLS, PROGRAMS
from tests.agents.running import MODULES, PYTHON, Ended, Exchange, environment, gateway, installed, launch, run
from tests.agents.scripts import CONTEXT, FORMATS, SAYS, Call, Model
from turnscript.cli.agents import clients, recipe
from turnscript.cli.agents.recipe import Client, program

CLIENTS = {client.name: client for client in clients()}
QUESTION = "What is the word in word.txt?"
UNIVERSAL, GOOSE = FORMATS


@dataclass(frozen=True)
class Way:
    """A way to run an agent. `{file}` is the file with the word; `turns`: the calls that the model makes;
    `through`: the kind of chat API that the gateway asks for its model. `posts`: it asks over HTTP, not a WebSocket.
    """

    client: str
    arguments: tuple[str, ...]
    turns: tuple[tuple[Call, ...], ...]
    format: str = UNIVERSAL
    streams: bool = True
    title: str = ""
    through: str = ""
    posts: bool = True

    @property
    def label(self) -> str:
        """The name of the test."""
        return "-".join(filter(None, [self.client, self.title, self.through, self.format]))


def once(tool: str, given: Mapping[str, Any]) -> tuple[tuple[Call, ...], ...]:
    """One turn with one call."""
    return ((Call(tool, given),),)


_FUNCTIONS = 'def look_up(name: str) -> str:\n    "Look a word up."\n    return open("word.txt").read()\n'
_CODEX = ("exec", "--skip-git-repo-check", "--sandbox", "danger-full-access", QUESTION)
_SOCKETS = "model_providers.turnscript.supports_websockets=true"
_READ = Call("Read", {"file_path": "{file}"})
_WRITE = Call("Write", {"file_path": "{file}.new", "content": "one  \ntwo\t\n"})
_EDIT = Call("Edit", {"file_path": "{file}.new", "old_string": "two", "new_string": "three "})
_CAT = Call("exec_command", {"cmd": "cat word.txt"})
_READ_WORD = Call("mcp__words__read_word", {"name": "x"})
_SCRIPT = 'const found = await tools.exec_command({cmd: "cat word.txt"});\ntext(found.output);'

WAYS = [
    *(Way("claude", ("-p", QUESTION), ((_READ,),), one) for one in FORMATS),
    Way("claude", ("--bare", "-p", QUESTION), ((_READ,),), title="bare"),
    Way("claude", ("-p", QUESTION), ((_READ, Call("Bash", {"command": "cat word.txt"})),), title="two at once"),
    # What it does to its own calls before it runs them and sends them back.
    Way("claude", ("--permission-mode", "acceptEdits", "-p", QUESTION), ((_WRITE,), (_EDIT, _READ)), title="edits"),
    # A tool that it keeps back until the model asks for it, and then puts among the others.
    Way("claude", ("-p", QUESTION), ((Call("ToolSearch", {"query": "select:WebFetch"}),), (_READ,)), title="deferred"),
    *(Way("codex", _CODEX, ((_CAT,),), one) for one in FORMATS),
    Way("codex", _CODEX, ((_CAT, Call("exec_command", {"cmd": "ls"})),), title="two at once"),
    Way("codex", (_CODEX[0], "-c", _SOCKETS, *_CODEX[1:]), ((_CAT,), (_CAT,)), title="websocket", posts=False),
    Way("codex", _CODEX, ((Call("multi_agent_v1__close_agent", {"target": "x"}),), (_CAT,)), title="namespace"),
    # A server with a chat API of its own stands behind the gateway.
    *(Way("claude", ("-p", QUESTION), ((_READ,), (_READ,)), through=one) for one in ("chat", "responses")),
    *(Way("codex", _CODEX, ((_CAT,), (_CAT,)), through=one) for one in ("messages", "chat")),
    *(Way("opencode", ("run", QUESTION), once("read", {"filePath": "{file}"}), one) for one in FORMATS),
    Way("qwen", ("-p", QUESTION), once("read_file", {"file_path": "{file}"})),
    Way("pi", ("-p", QUESTION), once("read", {"path": "{file}"})),
    *(Way("copilot", ("--allow-all-tools", "-p", QUESTION), once("view", {"path": "{file}"}), one) for one in FORMATS),
    Way("cline", (QUESTION,), once("read_files", {"files": [{"path": "{file}"}]})),
    Way("kimi", ("-p", QUESTION), once("Read", {"path": "{file}"})),
    Way("llm", ("--functions", _FUNCTIONS, QUESTION), once("look_up", {"name": "word"})),
    Way(
        "llm",
        ("--no-stream", "--functions", _FUNCTIONS, QUESTION),
        once("look_up", {"name": "word"}),
        streams=False,
        title="whole",
    ),
]


class Seat:
    """A person at a machine: an empty home, and a folder with a file with a word that nobody knows."""

    def __init__(self, folder: Path) -> None:
        self.home, self.work = folder / "home", folder / "work"
        self.home.mkdir()
        self.work.mkdir()
        self.file = self.work / "word.txt"
        self.word = f"secret-{secrets.token_hex(6)}"
        self.file.write_text(f"{self.word}\n", encoding="utf-8")

    def model(self, turns: Sequence[Sequence[Call]], format_: str = UNIVERSAL, **settings: Any) -> Model:
        """A model whose calls are for this seat's file."""
        text = json.dumps(turns).replace("{file}", str(self.file))
        return Model(format_, [[Call(*call) for call in turn] for turn in json.loads(text)], **settings)

    def answered(self, ended: Ended) -> bool:
        """Whether a client has shown the answer with the word."""
        return ended.code == 0 and f"{SAYS}{self.word}." in ended.out


@pytest.fixture
def seat(tmp_path: Path) -> Seat:
    return Seat(tmp_path)


def launched(
    seat: Seat, model: Model, *runs: Sequence[str], through: Sequence[str] = ()
) -> tuple[list[Ended], list[Exchange]]:
    """Clients started one after the other against one gateway, and its answers."""

    async def scenario() -> tuple[list[Ended], list[Exchange]]:
        async with gateway(model, through) as running:
            return [await launch(running.url, one, seat.home, seat.work) for one in runs], running.answers

    return asyncio.run(scenario())


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_installed_in_the_version_that_its_recipe_names(name: str) -> None:
    wanted = CLIENTS[name].versions
    assert wanted == {package: installed(package) for package in wanted}, "run `make agents`"


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.label)
def test_an_agent_calls_a_tool_and_answers(way: Way, seat: Seat) -> None:
    model = seat.model(way.turns, way.format)
    [ended], answers = launched(seat, model, [way.client, *way.arguments], through=[way.through] if way.through else [])
    assert seat.answered(ended), ended
    assert [True] * len(way.turns) == model.went_on
    if CLIENTS[way.client].prompt and way.format == UNIVERSAL and not way.title:
        assert pytest.approx(CLIENTS[way.client].prompt, rel=0.2) == len(model.prompts[0][0]) / 4
    assert ({(200, way.streams)} if way.posts else set()) == {(one.status, one.streamed) for one in answers}


def test_claude_code_goes_on_with_a_session(seat: Seat) -> None:
    model = seat.model([[_READ]])
    runs, _ = launched(seat, model, ["claude", "-p", QUESTION], ["claude", "-c", "-p", "Again?"])
    assert [True, True] == [seat.answered(one) for one in runs], runs[-1]
    assert [True, True] == model.went_on


def test_codex_goes_on_with_a_session(seat: Seat) -> None:
    model = seat.model([[_CAT]])
    again = ["codex", "exec", "resume", "--last", "--skip-git-repo-check", "Again?"]
    runs, _ = launched(seat, model, ["codex", *_CODEX], again)
    assert [True, True] == [seat.answered(one) for one in runs], runs[-1]
    assert [True, True] == model.went_on


def test_codex_runs_javascript_for_a_model_that_it_knows(seat: Seat) -> None:
    model = seat.model([[Call("functions__exec", {"input": _SCRIPT})]])
    [ended], _ = launched(seat, model, ["--model", "gpt-6-sol", "codex", *_CODEX])
    assert seat.answered(ended), ended
    assert [True] == model.went_on


def test_codex_runs_no_half_of_a_script_that_a_limit_cut_off(seat: Seat) -> None:
    script = 'const made = await tools.exec_command({cmd: "touch ran.txt"});\ntext(made.output);\n'
    model = seat.model([[Call("functions__exec", {"input": f"{script}more();"})]], cut_at="more")
    [ended], _ = launched(seat, model, ["--model", "gpt-6-sol", "codex", *_CODEX])
    assert 1 == ended.code, ended
    assert "max_output_tokens" in ended.out + ended.err
    assert not seat.file.with_name("ran.txt").exists()


@pytest.mark.parametrize("format_", FORMATS)
def test_codex_finds_the_tools_of_a_server_that_it_keeps_back(format_: str, seat: Seat) -> None:
    looked = Call("tool_search", {"query": "word", "limit": 2})
    again = Call("tool_search", {"query": "read the word and the note", "limit": 5})
    model = seat.model([[looked], [again, Call("exec_command", {"cmd": "ls"})], [_READ_WORD]], format_)
    server = {"command": sys.executable, "args": [str(Path(__file__).with_name("wordserver.py"))]}
    told = [part for key, value in server.items() for part in ("-c", f"mcp_servers.words.{key}={json.dumps(value)}")]
    [ended], _ = launched(seat, model, ["--model", "gpt-5.5", "codex", *_CODEX[:-1], *told, QUESTION])
    assert seat.answered(ended), ended
    assert [True, True, True] == model.went_on
    first, _, third = [prompt for prompt, _ in model.prompts][:3]
    assert ["mcp__words__read_word" in prompt for prompt in (first, third)] == [False, True]


def test_claude_code_sees_a_file_grow_while_it_is_written(seat: Seat) -> None:
    lines = "".join([f"line {number}\n" for number in range(100)])
    model = seat.model([[Call("Write", {"file_path": "{file}.new", "content": lines})], [_READ]], pause=0.01)
    told = ("--output-format", "stream-json", "--verbose", "--include-partial-messages")
    [ended], _ = launched(seat, model, ["claude", "--permission-mode", "acceptEdits", "-p", QUESTION, *told])
    events = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    deltas = [one["event"].get("delta", {}) for one in events if one["type"] == "stream_event"]
    pieces = [delta["partial_json"] for delta in deltas if delta.get("type") == "input_json_delta"]
    assert len(pieces) > 100, ended
    assert f"{json.dumps(lines)[1:-1]}" in "".join(pieces)
    assert lines == seat.file.with_name("word.txt.new").read_text(encoding="utf-8")


def test_claude_code_knows_how_much_the_model_takes(seat: Seat) -> None:
    [ended], _ = launched(seat, seat.model([[_READ]]), ["claude", "-p", QUESTION, "--output-format", "json"])
    [used] = json.loads(ended.out)["modelUsage"].values()
    assert CONTEXT == used["contextWindow"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--context", "100000", "claude", "-p", QUESTION), "Prompt is too long"),
        (("--context", "100000", "codex", *_CODEX), "ran out of room"),
        (("--context", "100000", "qwen", "-p", QUESTION), "maximum context length is 1000 tokens"),
    ],
    ids=["claude", "codex", "qwen"],
)
def test_an_agent_understands_that_its_prompt_is_too_long(arguments: tuple[str, ...], said: str, seat: Seat) -> None:
    [ended], answers = launched(seat, seat.model([[_READ]], context=1000), arguments)
    assert 1 == ended.code
    assert said in ended.out + ended.err, ended
    assert {400} == {one.status for one in answers}


def test_the_command_line_llm_speaks_messages_through_its_plugin(seat: Seat) -> None:
    model = seat.model([[Call("look_up", {"name": "word"})]])

    async def scenario() -> tuple[Ended, list[Exchange]]:
        async with gateway(model) as running:
            env = environment(seat.home) | {"ANTHROPIC_BASE_URL": running.url, "ANTHROPIC_API_KEY": "no-key"}
            command = ["llm", "-m", "claude-sonnet-4.5", "--functions", _FUNCTIONS, QUESTION]
            return await run(command, env, seat.work), running.answers

    ended, answers = asyncio.run(scenario())
    assert seat.answered(ended), ended
    assert [True] == model.went_on
    assert {("/v1/messages", 200, True)} == {(one.path, one.status, one.streamed) for one in answers}


REPEATING = {
    "claude": Way("claude", ("-p", QUESTION), ((Call("Bash", {"command": "ls"}),), (_READ,))),
    "codex": Way("codex", _CODEX, ((Call("exec_command", {"cmd": "ls"}),), (_CAT,))),
    "qwen": Way(
        "qwen",
        ("-p", QUESTION),
        ((Call("glob", {"pattern": "*"}),), (Call("read_file", {"file_path": "{file}"}),)),
    ),
}


@pytest.mark.parametrize("way", REPEATING.values(), ids=REPEATING)
def test_a_model_may_write_the_same_id_for_each_of_its_calls(way: Way, seat: Seat) -> None:
    model = seat.model(way.turns, repeats=True)
    [ended], _ = launched(seat, model, [way.client, *way.arguments])
    assert seat.answered(ended), ended
    assert [True, True] == model.went_on


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(("name", "path"), [(client.name, path) for client in CLIENTS.values() for path in client.code])
def test_a_program_with_a_library_calls_a_tool_and_answers(name: str, path: str, streams: bool, seat: Seat) -> None:
    model = seat.model([[Call("look_up", {"name": "word"})]], talks=False)
    client = CLIENTS[name]

    async def scenario() -> tuple[Ended, list[Exchange]]:
        async with gateway(model) as running:
            setting_up = program(client.code[path], recipe.Gateway(running.url, "no-key", "any"))
            command = command_of(client, setting_up, streams, seat.work)
            return await run(command, environment(seat.home), seat.work), running.answers

    ended, answers = asyncio.run(scenario())
    assert seat.answered(ended), ended
    assert [True] == model.went_on
    assert {(path, 200, streams)} == {(one.path, one.status, one.streamed) for one in answers}


_PATCHES = [
    Call("apply_patch", {"type": "create_file", "path": "new.txt", "diff": "+one\n+two\n+three"}),
    Call("apply_patch", {"type": "update_file", "path": "new.txt", "diff": "@@\n one\n-two\n+2\n three\n"}),
    Call("apply_patch", {"type": "delete_file", "path": "old.txt"}),
]
_SHELLS = {"shell": {"commands": ["cat new.txt", "cat word.txt"]}, "local_shell": {"command": ["cat", "word.txt"]}}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("shell", _SHELLS)
def test_the_agents_sdk_runs_the_tools_of_openais_own(shell: str, streams: bool, format_: str, seat: Seat) -> None:
    (seat.work / "old.txt").write_text("x", encoding="utf-8")
    model = seat.model([*([one] for one in _PATCHES), [Call(shell, _SHELLS[shell])]], format_)
    code = CLIENTS["openai-agents"].code["/v1/responses"]

    async def scenario() -> tuple[Ended, list[Exchange]]:
        async with gateway(model) as running:
            script = seat.work / "program.py"
            setting_up = program(code, recipe.Gateway(running.url, "no-key", "any"))
            script.write_text(setting_up + OWN_TOOLS, encoding="utf-8")
            command = [str(PYTHON), str(script), "stream" if streams else "whole", shell]
            return await run(command, environment(seat.home), seat.work), running.answers

    ended, answers = asyncio.run(scenario())
    assert seat.answered(ended), ended
    assert [True] * 4 == model.went_on
    assert "one\n2\nthree" == (seat.work / "new.txt").read_text(encoding="utf-8").strip()
    assert not (seat.work / "old.txt").exists()
    assert {("/v1/responses", 200, streams)} == {(one.path, one.status, one.streamed) for one in answers}


def command_of(client: Client, setting_up: str, streams: bool, folder: Path) -> list[str]:
    """The command that runs what a recipe says and, behind it, an agent that uses it."""
    source = setting_up + PROGRAMS[client.name]
    mode = "stream" if streams else "whole"
    if client.language == "python":
        script = folder / "program.py"
        script.write_text(source, encoding="utf-8")
        return [str(PYTHON), str(script), mode]
    script = folder / "program.mjs"
    script.write_text(source, encoding="utf-8")
    # Modules are looked for from the program's own folder upwards.
    (folder / "node_modules").symlink_to(MODULES, target_is_directory=True)
    return ["node", str(script), mode]
