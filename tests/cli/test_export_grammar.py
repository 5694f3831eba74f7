"""`turnscript export grammar`: the grammar of a request's tools, or of a schema, and what is not in it."""

import json
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import EXAMPLES, run
from turnscript.core.json_text import json_of
from turnscript.grammar.notations import NOTATIONS

REQUEST = str(EXAMPLES / "claude_code_request.json")
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "multipleOf": 3}}, "required": ["n"]}


def weather(wrapped: str) -> dict[str, object]:
    """A tool as an API has it."""
    told = {"name": "weather", "description": "The weather."}
    if wrapped == "messages":
        return {**told, "input_schema": SCHEMA}
    inner = {**told, "parameters": SCHEMA}
    return {"type": "function", "function": inner} if wrapped == "chat" else {"type": "function", **inner}


@pytest.mark.parametrize("target", NOTATIONS)
def test_the_grammar_is_that_of_the_library(target: str) -> None:
    request = ts.parse(Path(REQUEST).read_bytes())
    expected = ts.get_format("qwen3").grammar(request.tools, target=target)
    result = run("export", "grammar", "--format", "qwen3", "--tools", REQUEST, "--target", target)
    assert (0, expected.text) == (result.exit_code, result.stdout)
    assert (f"{len(expected.losses)} loss" in result.stderr) == bool(expected.losses)


@pytest.mark.parametrize("wrapped", ["chat", "responses", "messages"])
def test_a_list_of_tools_of_any_api_will_do(wrapped: str, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([weather(wrapped)]))
    result = run("export", "grammar", "--format", "ai00-v1", "--tools", str(file), "--target", "kbnf", "--single", "-q")
    assert 0 == result.exit_code, result.stderr
    assert result.stdout.startswith("start ::= '<ai00:function_calls>\\n' call '</ai00:function_calls>';\n")
    assert "" == result.stderr


def test_what_is_not_in_it_is_said(tmp_path: Path) -> None:
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(SCHEMA))
    result = run("export", "grammar", "--format", "qwen3", "--schema", str(file))
    assert ts.get_format("qwen3").answer_grammar(json_of(SCHEMA)).text == result.stdout
    assert "$.schema.properties.n.multipleOf: approximated: a grammar does not tell it" in result.stderr
    record = json.loads(run("export", "grammar", "--format", "qwen3", "--schema", str(file), "--json").stdout)
    assert ["notation", "grammar", "trigger", "lazy", "losses"] == list(record)


def test_bounded_calls_and_white_space(tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([weather("chat")]))
    result = run("export", "grammar", "--format", "qwen3", "--tools", str(file), "--bounded", "-q")
    assert ['root ::= call ("\\n" call){0,3} "<|im_end|>"?', "ws ::= [ \\n]?"] == result.stdout.splitlines()[:2]
    file.write_text(json.dumps(SCHEMA))
    result = run("export", "grammar", "--format", "qwen3", "--schema", str(file), "--bounded", "-q")
    assert "ws ::= [ \\n]?" in result.stdout


def test_one_tool_and_a_free_choice() -> None:
    named = run("export", "grammar", "--format", "qwen3", "--tools", REQUEST, "--tool-choice", "Bash", "-q")
    assert "call ::= Bash-call-" in named.stdout
    free = run("export", "grammar", "--format", "qwen3", "--tools", REQUEST, "--tool-choice", "auto", "--json", "-q")
    assert ("<tool_call>", True) == tuple(json.loads(free.stdout)[key] for key in ("trigger", "lazy"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--tools", REQUEST, "--tool-choice", "Nobody"], 2, "unknown tool 'Nobody'"),
        (["--tools", REQUEST, "--tool-choice", "Nobody"], 2, "name one of the tools of the file"),
        (["--tools", REQUEST, "--schema", REQUEST], 2, "--tools or --schema, and not both"),
        (["--schema", REQUEST, "--single"], 2, "are for calls, and need --tools"),
        (["--schema", REQUEST, "--tool-choice", "auto"], 2, "are for calls, and need --tools"),
        (["--tools", REQUEST, "--target", "ebnf"], 2, "is not one of 'gbnf', 'kbnf', 'lark'"),
        ([], 2, "give --tools or --schema"),
        (["--schema", REQUEST + "x"], 1, "No such file"),
        (["--schema", str(EXAMPLES / "messages_stream.sse")], 1, "this is no JSON"),
    ],
)
def test_what_cannot_be_is_said(arguments: list[str], code: int, said: str) -> None:
    result = run("export", "grammar", "--format", "qwen3", *arguments)
    assert code == result.exit_code
    assert said.lower() in result.stderr.lower()


def test_a_format_without_calls_says_so() -> None:
    result = run("export", "grammar", "--format", "gemma", "--tools", REQUEST)
    assert 1 == result.exit_code
    assert "no place for calls" in result.stderr
