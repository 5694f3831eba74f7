"""`turnscript read`: what a model wrote, as parts, as JSON, and as events while it still writes."""

import json
import os
import pty
import re
import select
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.cli.running import PATIENCE, Live, live, process, rows, run
from tests.cli.test_faults import assert_shape
from tests.cli.test_processes import on_terminal
from tests.goldens import WEATHER, c1

TOOL = json.loads(bytes(WEATHER.parameters or b""))
CALL = '{"city": "Tokyo",  "days": 1.0, "from": 1e5}'
UNIVERSAL = f"""Let me look.
<<ASSISTANT_END>>

<<TOOL_CALL name="get_weather" id="call_1">>
{CALL}
<<END_TOOL_CALL>>"""
AI00 = """Let me look.

<ai00:function_calls>
  <invoke name="get_weather">
    <parameter name="city">Tokyo</parameter>
  </invoke>
</ai00:function_calls>"""
GOOSE = f""" <think>
It is far.
</think>
Let me look.
```json
{{"name":"get_weather","arguments":{CALL}}}
```

User:"""

LOOK = {"type": "text", "text": "Let me look."}
LISTS: dict[str, Any] = {
    "openai-chat": [{"type": "function", "function": {"name": "get_weather", "parameters": TOOL}}],
    "openai-responses": [{"type": "function", "name": "get_weather", "parameters": TOOL}],
    "anthropic-messages": [{"name": "get_weather", "input_schema": TOOL}],
}


def call(arguments: str, id_: str | None = None) -> dict[str, Any]:
    return {"type": "tool_call", "id": id_, "name": "get_weather", "arguments": arguments}


def read_json(text: str | bytes, *arguments: str | Path) -> dict[str, Any]:
    """`turnscript read --json` in this process."""
    result = run("read", *arguments, "--json", stdin=text)
    assert 0 == result.exit_code, result.stderr
    assert "" == result.stderr
    record: dict[str, Any] = json.loads(result.stdout)
    return record


def request_file(folder: Path, **members: Any) -> Path:
    """A Chat request for the weather, as a file."""
    path = folder / "request.json"
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": LISTS["openai-chat"]}
    path.write_text(json.dumps(body | members), encoding="utf-8")
    return path


# What is read.


def test_an_answer_in_blocks_is_read_with_its_arguments_verbatim() -> None:
    expected = {
        "items": [LOOK, call(CALL, "call_1")],
        "finish_reason": "tool_calls",
        "stop_sequence": None,
        "issues": [],
    }
    assert expected == read_json(UNIVERSAL, "--format", "rwkv-universal")


def test_an_answer_in_tags_is_read() -> None:
    shown = read_json(AI00, "--format", "ai00-v1")
    assert [LOOK, call('{"city": "Tokyo"}')] == shown["items"]


def test_a_fence_is_a_call_only_of_a_tool_that_was_offered(tmp_path: Path) -> None:
    thought = {"type": "thinking", "text": "It is far."}
    offered = read_json(GOOSE, "--format", "rwkv-goose", "--request", request_file(tmp_path))
    assert [thought, LOOK, call(CALL)] == offered["items"]
    bare = read_json(GOOSE, "--format", "rwkv-goose")
    assert ["thinking", "text"] == [item["type"] for item in bare["items"]]
    assert (CALL in bare["items"][1]["text"], "stop") == (True, bare["finish_reason"])


@pytest.mark.parametrize("api", LISTS)
def test_tools_may_be_written_as_any_api_writes_them(tmp_path: Path, api: str) -> None:
    path = tmp_path / "tools.json"
    for value in (LISTS[api], {"tools": LISTS[api]}, {"model": "m", "tools": LISTS[api], "messages": []}):
        path.write_text(json.dumps(value), encoding="utf-8")
        for source in ([], ["--from", api]):
            shown = read_json(GOOSE, "--format", "rwkv-goose", "--tools", path, *source)
            assert call(CALL) == shown["items"][2]


def test_a_tool_that_was_not_offered_is_an_issue(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "other", "input_schema": {}}]), encoding="utf-8")
    shown = read_json(UNIVERSAL, "--format", "rwkv-universal", "--tools", path)
    assert ["unknown_tool"] == [issue["kind"] for issue in shown["issues"]]
    assert [] == read_json(UNIVERSAL, "--format", "rwkv-universal")["issues"]


def test_the_prompt_may_have_begun_a_thought(tmp_path: Path) -> None:
    expected = [{"type": "thinking", "text": "hm"}, {"type": "text", "text": "Hello."}]
    path = request_file(tmp_path, reasoning_effort="low")
    answer = ">\nhm\n</think>\nHello."
    assert expected == read_json(answer, "--format", "rwkv-goose", "--request", path)["items"]
    assert expected != read_json(answer, "--format", "rwkv-goose", "--request", path, "--no-thinking")["items"]
    assert expected == read_json(answer, "--format", "rwkv-goose", "--thinking")["items"]


def test_the_prompt_may_have_begun_the_answer(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Which?"}, {"role": "assistant", "content": "The best is ("}]
    body = {"model": "m", "max_tokens": 9, "system": "", "messages": messages}
    path = tmp_path / "request.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    shown = read_json("A)\n</ai00:assistant>", "--format", "ai00-v1", "--request", path)
    assert [{"type": "text", "text": "A)"}] == shown["items"]


def test_the_stop_strings_of_the_request_end_the_answer(tmp_path: Path) -> None:
    shown = read_json("One. END Two.", "--format", "ai00-v1", "--request", request_file(tmp_path, stop=["END"]))
    assert ([{"type": "text", "text": "One. "}], "END") == (shown["items"], shown["stop_sequence"])


def test_the_reason_of_the_server_is_told_on() -> None:
    for reason in ("length", "content_filter"):
        shown = read_json("One, two, th", "--format", "ai00-v1", "--finish-reason", reason)
        assert reason == shown["finish_reason"]


def test_what_a_model_does_wrong_is_an_issue_and_no_error() -> None:
    cut = UNIVERSAL[: -len("}\n<<END_TOOL_CALL>>")]
    shown = read_json(cut, "--format", "rwkv-universal", "--finish-reason", "length")
    assert "length" == shown["finish_reason"]
    assert shown["issues"]
    assert {"kind", "detail", "start", "end"} == set(shown["issues"][0])


def test_the_kind_of_a_thought_is_told_where_it_is_not_the_usual_one() -> None:
    text = "<|start_reflect|>Sad.<|end_reflect|>\n<|start_reason|>Hm.<|end_reason|>\nOh."
    first, second, _ = read_json(text, "--format", "openchatml")["items"]
    assert {"type": "thinking", "text": "Sad.", "of": "reflect"} == first
    assert {"type": "thinking", "text": "Hm."} == second
    assert "thinking, of reflect\n  Sad.\n" in run("read", "--format", "openchatml", stdin=text).stdout


def test_nothing_at_all_is_an_answer_too() -> None:
    assert [] == read_json("", "--format", "rwkv-goose")["items"]
    assert (
        "nothing was written\n\nfinish reason: stop\nno issues\n" == run("read", "--format", "ai00-v1", stdin="").stdout
    )


@pytest.mark.parametrize("name", ts.formats())
def test_an_answer_to_the_prompt_of_a_request_is_read_back(name: str, tmp_path: Path) -> None:
    format_, (question, answer) = ts.get_format(name), (c1()[:2], c1()[5])
    path = tmp_path / "request.json"
    request = ts.Request(conversation=ts.Conversation(items=list(question)))
    path.write_bytes(ts.render(request, "openai-chat").data)
    said = ts.Request(conversation=ts.Conversation(items=[*question, answer]))
    generated = str(format_.with_ends(format_.seen.start, format_.seen.end).render(said).value)
    prompt = run("prompt", path, "--format", name, "--quiet").stdout
    assert generated.startswith(prompt)
    generated = generated.removesuffix(format_.document.end)
    for arguments in (["--request", str(path)], []):
        shown = read_json(generated.removeprefix(prompt), "--format", name, *arguments)
        assert [{"type": "text", "text": "It's 22°C and sunny in Tokyo!"}] == shown["items"]
        assert ("stop", []) == (shown["finish_reason"], shown["issues"])


# Events.


def events(text: str | bytes, *arguments: str | Path) -> list[dict[str, Any]]:
    """`turnscript read --stream` in this process."""
    result = run("read", *arguments, "--stream", stdin=text)
    assert (0, "") == (result.exit_code, result.stderr)
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_events_are_json_lines() -> None:
    expected = [
        {"type": "part_start", "index": 0, "part": {"type": "text"}},
        {"type": "part_delta", "index": 0, "text": "Let me look."},
        {"type": "part_end", "index": 0, "part": LOOK},
        {"type": "part_start", "index": 1, "part": {"type": "tool_call", "id": "call_1", "name": "get_weather"}},
        {"type": "part_delta", "index": 1, "text": CALL},
        {"type": "part_end", "index": 1, "part": call(CALL, "call_1")},
        {"type": "message_end", "finish_reason": "tool_calls", "stop_sequence": None, "issues": []},
    ]
    assert expected == events(UNIVERSAL, "--format", "rwkv-universal")


def test_an_answer_of_several_texts_shows_each() -> None:
    text = "One.\n<<PART>>\nTwo.\n<<ASSISTANT_END>>"
    told = events(text, "--format", "rwkv-universal", "--chunk", "9")
    part = {"type": "text", "text": "One.Two.", "texts": ["One.", "Two."]}
    assert {"type": "next_text", "index": 0} in told
    assert [part] == [one["part"] for one in told if one["type"] == "part_end"]
    assert [part] == read_json(text, "--format", "rwkv-universal")["items"]
    assert "  One.\n\n  Two.\n" in run("read", "--format", "rwkv-universal", stdin=text).stdout


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(("name", "text"), [("rwkv-universal", UNIVERSAL), ("ai00-v1", AI00), ("rwkv-goose", GOOSE)])
def test_pieces_of_any_size_give_the_same(size: int, name: str, text: str, tmp_path: Path) -> None:
    text = text.replace("Let me look.", "Ça va? 漢字 😀")
    arguments = ("--format", name, "--request", request_file(tmp_path), "--chunk", str(size))
    whole = read_json(text, *arguments[:-2])
    assert whole == read_json(text, *arguments)
    stream = events(text, *arguments)
    assert whole["items"] == [event["part"] for event in stream if event["type"] == "part_end"]
    for index, item in enumerate(whole["items"]):
        deltas = [e["text"] for e in stream if e["type"] == "part_delta" and e["index"] == index]
        assert item.get("arguments", item.get("text")) == "".join(deltas)
    assert {"type": "message_end", **{key: whole[key] for key in whole if key != "items"}} == stream[-1]


def test_small_pieces_give_many_events() -> None:
    assert len(events(UNIVERSAL, "--format", "rwkv-universal", "--chunk", "3")) > 10


def _arrived(command: Live, count: int) -> list[dict[str, Any]]:
    """The next events that come, while the text goes on."""
    data = b""
    while data.count(b"\n") < count:
        ready, _, _ = select.select([command.stdout], [], [], PATIENCE)
        assert ready, "no event came"
        data += os.read(command.stdout.fileno(), 65536)
    return [json.loads(line) for line in data.splitlines()]


def test_events_come_out_before_the_text_has_ended() -> None:
    def delta(text: str) -> dict[str, Any]:
        return {"type": "part_delta", "index": 0, "text": text}

    with live("read", "--format", "rwkv-universal", "--stream") as command:
        command.send(b"One")
        start = {"type": "part_start", "index": 0, "part": {"type": "text"}}
        assert [start, delta("One")] == _arrived(command, 2)
        command.send(" two ü".encode()[:-1])
        assert [delta(" two ")] == _arrived(command, 1)
        command.send("ü".encode()[1:])
        assert [delta("ü")] == _arrived(command, 1)
        command.stdin.close()
        end, message = _arrived(command, 2)
        assert {"type": "part_end", "index": 0, "part": {"type": "text", "text": "One two ü"}} == end
        assert ("message_end", "stop") == (message["type"], message["finish_reason"])
        assert (0, b"", b"") == (command.wait(), command.stdout.read(), command.stderr.read())


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    with live("read", "--format", "rwkv-universal", "--stream") as command:
        command.send(b"Hello ")
        assert b"part_start" in command.stdout.readline()
        command.stdout.close()
        with suppress(BrokenPipeError):
            while command.process.poll() is None:
                command.send(b"and more " * 1000)
        assert (141, b"") == (command.wait(), command.stderr.read())


def test_ctrl_c_in_the_middle_is_one_line() -> None:
    with live("read", "--format", "rwkv-universal", "--stream") as command:
        command.send(b"Hello ")
        assert b"part_start" in command.stdout.readline()
        command.process.send_signal(signal.SIGINT)
        assert 130 == command.wait()
        assert b"turnscript: interrupted; unfinished files are removed\n" == command.stderr.read()


def test_who_types_the_answer_is_told_how_to_end_it() -> None:
    ours, theirs = pty.openpty()
    with live("read", "--format", "rwkv-goose", "--json", stdin=theirs) as command:
        os.close(theirs)
        assert b"turnscript: reading standard input; Ctrl-D ends it\n" == command.stderr.readline()
        os.write(ours, b" Hi\n\x04")
        assert ["text"] == [item["type"] for item in json.loads(command.stdout.readline())["items"]]
        assert 0 == command.wait()
    os.close(ours)


# For people.


def test_the_listing_shows_parts_reason_and_issues() -> None:
    expected = f"""text
  Let me look.

tool_call get_weather, id call_1
  {CALL}

finish reason: tool_calls
no issues
"""
    assert expected == run("read", "--format", "rwkv-universal", stdin=UNIVERSAL).stdout


def test_the_listing_indents_every_line_and_tells_stops_and_issues(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    path.write_text(json.dumps([{"name": "other", "input_schema": {}}]), encoding="utf-8")
    text = UNIVERSAL.replace("Let me look.", "One.\n\nTwo.")
    shown = run("read", "--format", "rwkv-universal", "--tools", path, stdin=text).stdout
    assert shown.startswith("text\n  One.\n\n  Two.\n\n")
    assert re.search(r"\n1 issue:\n  unknown_tool, characters \d+ to \d+: .*get_weather", shown)
    request = request_file(tmp_path, stop=["END\n"])
    shown = run("read", "--format", "ai00-v1", "--request", request, stdin="One.END\n").stdout
    assert re.search(r"\nfinish reason: \w+, at 'END\\n'\n", shown)


def test_an_answer_cannot_move_the_cursor_but_json_has_it_exactly() -> None:
    evil = "a\x1b[31mb\x07c\u202ed\te\x00"
    listing = run("read", "--format", "ai00-v1", stdin=evil).stdout
    assert "  a\\x1b[31mb\\x07c\\u202ed\te\\x00\n" in listing
    assert evil == read_json(evil, "--format", "ai00-v1")["items"][0]["text"]


def test_headings_are_bold_on_a_terminal_only() -> None:
    arguments = ("read", "--format", "ai00-v1")
    _, seen = on_terminal(*arguments, stdin=b"Hi", stdout=True)
    assert seen.startswith("\x1b[1mtext\x1b[0m\r\n  Hi\r\n")
    _, seen = on_terminal(*arguments, stdin=b"Hi", stdout=True, also={"NO_COLOR": "1"})
    assert seen.startswith("text\r\n  Hi\r\n")
    _, seen = on_terminal(*arguments, "--json", stdin=b"Hi", stdout=True)
    assert seen.startswith('{\r\n  "items": [\r\n')
    assert b"\x1b" not in process(*arguments, input=b"Hi").stdout


# Bytes.


@pytest.mark.parametrize(
    ("data", "number"), [(b"ab\xffc", 3), (b"ab\xe2\x82", 3), ("ü".encode() + b"\x80", 3), (b"\xfe" * 9, 1)]
)
@pytest.mark.parametrize("size", [1, 2, 50])
def test_what_is_not_utf_8_is_read_and_told(data: bytes, number: int, size: int) -> None:
    result = run("read", "--format", "ai00-v1", "--json", "--chunk", str(size), stdin=data)
    told = f"turnscript: <stdin>: byte {number} is not UTF-8; U+FFFD stands for what cannot be read\n"
    assert (0, told) == (result.exit_code, result.stderr)
    assert data.decode("utf-8", "replace") == json.loads(result.stdout)["items"][0]["text"]


def test_an_escape_of_half_a_character_is_json_again() -> None:
    text = '<tool_call>\n{"name":"\\ud800","input":{}}\n</tool_call>'
    for option in ("--json", "--stream"):
        result = run("read", "--format", "batuta-chatml", option, stdin=text)
        assert 0 == result.exit_code
        assert [json.loads(line) for line in result.stdout.splitlines()]
    assert 0 == run("read", "--format", "batuta-chatml", stdin=text).exit_code


def test_a_file_is_read_like_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "answer.txt"
    path.write_bytes(UNIVERSAL.encode())
    assert events(UNIVERSAL, "--format", "rwkv-universal") == events("", path, "--format", "rwkv-universal")
    big = "word " * 100_000
    path.write_bytes(big.encode())
    assert big == read_json("", path, "--format", "ai00-v1")["items"][0]["text"]


# Faults.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --format or --template"),
        (["--format", "ai00v1"], "unknown format 'ai00v1'; did you mean 'ai00-v1'"),
        (["--format", "ai00-v1", "--chunk", "0"], "invalid value for '--chunk': 0 is not in the range x>=1"),
        (["--format", "ai00-v1", "--json", "--stream"], "--json and --stream exclude each other"),
        (["--format", "ai00-v1", "--request", "a", "--tools", "b"], "--tools is for when there is no --request"),
        (["--format", "ai00-v1", "--request", "-"], "only one input can be standard input"),
        (["a", "--format", "ai00-v1", "--from", "openai-chat"], "--from says what --request or --tools is in"),
        (["--format", "ai00-v1", "--request", "a", "--from", "openai"], "unknown API or format 'openai'"),
        (["--format", "ai00-v1", "--to", "rwkv-goose"], "this is a prompt format; `turnscript apis` lists the APIs"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_read(arguments: list[str], message: str) -> None:
    result = run("read", *arguments, stdin="this is not even looked at")
    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr
    assert_shape(result.stderr)


@pytest.mark.parametrize(
    ("option", "data", "message"),
    [
        ("--request", b"", "the input is empty"),
        ("--request", b'{"messages": [}', "not valid JSON"),
        ("--request", b'{"messages": 5}', "$.messages: "),
        ("--tools", b"", "the input is empty"),
        ("--tools", b"[", "not valid JSON"),
        ("--tools", b"5", "expected an array, got a number"),
        ("--tools", b"{}", "there is no member 'tools' here"),
        ("--tools", b'{"tools": 5}', "expected an array, got a number"),
        ("--tools", b"[5]", "$[0]: expected an object, got a number"),
        ("--tools", b'{"tools": [5]}', "$.tools[0]: expected an object, got a number"),
        ("--tools", b'[{"name": "f", "colour": 1}]', "$[0].type: required, but missing"),
        ("--tools", b"\xff", "byte 0xff is not UTF-8"),
    ],
)
def test_a_bad_request_or_bad_tools_are_told_with_their_place(
    tmp_path: Path, option: str, data: bytes, message: str
) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(data)
    result = run("read", "--format", "ai00-v1", option, path, stdin="Hi")
    assert (1, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith(f"turnscript: error: {path}:")
    assert message in result.stderr
    assert_shape(result.stderr)


def test_a_missing_file_is_told() -> None:
    for arguments in (["no-such"], ["--request", "no-such"], ["--tools", "no-such"]):
        result = run("read", *arguments, "--format", "ai00-v1", stdin="Hi")
        assert (1, "") == (result.exit_code, result.stdout)
        assert "turnscript: error: no-such: cannot read this: no such file or directory\n" in result.stderr


def test_a_request_may_come_from_standard_input_and_be_of_json_lines_no_more_than_one(tmp_path: Path) -> None:
    answer = tmp_path / "answer.txt"
    answer.write_text("Hello.", encoding="utf-8")
    body = {"model": "m", "messages": []}
    result = run("read", answer, "--format", "ai00-v1", "--request", "-", "--json", stdin=json.dumps(body))
    assert "Hello." == json.loads(result.stdout)["items"][0]["text"]
    result = run("read", answer, "--format", "ai00-v1", "--request", "-", stdin=rows(body, body))
    assert (1, True) == (result.exit_code, "of JSON Lines, give one row" in result.stderr)
