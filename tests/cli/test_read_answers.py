"""`turnscript read --to`: what a model wrote, as the answer that a client of an API gets."""

import json
import select
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.cli.running import PATIENCE, live, run
from tests.cli.test_faults import assert_shape
from turnscript.core.conversation import text_content

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
ARGUMENTS = '{"city": "Tokyo",  "days": 1.0}'
GOOSE = f""" <think>
It is far.
</think>
Let me look.
```json
{{"name":"get_weather","arguments":{ARGUMENTS}}}
```

User:"""
CHATS = ["openai-chat", "openai-responses", "anthropic-messages"]


@pytest.fixture
def request_file(tmp_path: Path) -> Path:
    path = tmp_path / "request.json"
    body = {"model": "the-client's-word", "messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER]}
    path.write_text(json.dumps(body), encoding="utf-8")
    return path


def parts(response: ts.Response) -> list[tuple[str, str]]:
    return [
        (item.kind, item.arguments if isinstance(item, ts.ToolCall) else text_content(item.content))
        for item in response.items
        if isinstance(item, ts.ToolCall | ts.Assistant | ts.Thinking)
    ]


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("chunk", ["1", "7", "9999"])
def test_the_answer_of_an_api_holds_what_the_model_wrote_whole_and_streamed(
    name: str, chunk: str, request_file: Path
) -> None:
    arguments = ("read", "--format", "rwkv-goose", "--request", request_file, "--to", name, "--chunk", chunk)
    whole, streamed = run(*arguments, stdin=GOOSE), run(*arguments, "--stream", stdin=GOOSE)
    assert (0, 0) == (whole.exit_code, streamed.exit_code), whole.stderr + streamed.stderr
    api = ts.get_api(name)
    parser = api.stream_parser()
    expected = [("thinking", "It is far.\n"), ("assistant", "Let me look."), ("tool_call", ARGUMENTS)]
    answers = api.parse_response(whole.stdout), ts.fold([*parser.feed(streamed.stdout.encode()), *parser.close()])
    for answer in answers:
        assert [text.strip() for _, text in expected] == [text.strip() for _, text in parts(answer)]
        assert ("tool_calls", "the-client's-word") == (answer.finish_reason, answer.model)


def test_the_prompt_begins_a_thought_and_the_answer_is_told_without_a_request() -> None:
    result = run("read", "--format", "rwkv-goose", "--thinking", "--to", "openai-chat", stdin=">\nFar.\n</think>\nYes.")
    message: Any = json.loads(result.stdout)["choices"][0]["message"]
    assert ("Far.", "Yes.") == (message["reasoning_content"].strip(), message["content"].strip())
    assert "" == result.stderr


def test_what_the_api_cannot_say_is_listed(request_file: Path) -> None:
    arguments = ("read", "--format", "rwkv-goose", "--request", request_file, "--to", "openai-completions")
    for form in ([], ["--stream"]):
        result = run(*arguments, *form, stdin=GOOSE)
        assert 0 == result.exit_code
        first, *others = result.stderr.splitlines()
        assert first.startswith("turnscript: 3 losses: ")
        assert ["thinking" in others[0], "tool call" in others[1], "finish_reason" in others[2]] == [True] * 3


def test_a_stream_is_told_while_the_model_still_writes() -> None:
    with live("read", "--format", "rwkv-universal", "--to", "openai-chat", "--stream") as command:
        assert select.select([command.stdout], [], [], PATIENCE)[0]
        assert b'"role":"assistant"' in command.stdout.readline()
        command.send(b"One")
        assert [b"\n", b'"content":"One"'] == [command.stdout.readline(), _content(command.stdout.readline())]
        command.stdin.close()
        assert command.stdout.read().endswith(b"data: [DONE]\n\n")
        assert (0, b"") == (command.wait(), command.stderr.read())


def _content(line: bytes) -> bytes:
    return line[line.index(b'"content"') : line.index(b"}")]


def test_a_reason_that_is_no_end_is_an_error_and_no_answer() -> None:
    arguments = ("read", "--format", "rwkv-goose", "--finish-reason", "error", "--to", "openai-chat")
    result = run(*arguments, stdin="Hi")
    assert 1 == result.exit_code
    assert "" == result.stdout
    assert_shape(result.stderr)
    streamed = run(*arguments, "--stream", stdin="Hi")
    assert '"error"' in streamed.stdout
    assert "[DONE]" not in streamed.stdout


def test_names_that_nobody_knows_and_two_forms_at_once_are_wrong_usage() -> None:
    unknown = run("read", "--format", "rwkv-goose", "--to", "open-chat", stdin="")
    both = run("read", "--format", "rwkv-goose", "--to", "openai-chat", "--json", stdin="")
    assert (2, 2) == (unknown.exit_code, both.exit_code)
    assert "'openai-chat'" in unknown.stderr
    assert "--json and --to" in both.stderr
