"""`turnscript prompt`: the bytes that a model goes on from, its stop strings, and its spans."""

import hashlib
import json
import os
import pty
import re
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import Result

import turnscript as ts
from tests.cli.running import CHAT, EXAMPLES, LOSSY, TRANSCRIPT, live, process, read_rows, rows, run
from tests.cli.test_faults import assert_shape
from tests.cli.test_processes import on_terminal
from tests.goldens import golden

REQUESTS = sorted(EXAMPLES.glob("*_request.json"))
BRIEF = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
}

EXACT = [
    ("rwkv-universal", [], "<<SYS>>\nBe brief.\n<<SYS_END>>\n\n<<USER>>\nHi\n<<USER_END>>\n\n<<ASSISTANT>>\n"),
    ("rwkv-universal", ["--thinking"], "<<SYS>>\nBe brief.\n<<SYS_END>>\n\n<<USER>>\nHi\n<<USER_END>>\n\n<<THINK>>\n"),
    (
        "ai00-v1",
        [],
        "<ai00:system>\nBe brief.\n</ai00:system>\n\n<ai00:user>\nHi\n</ai00:user>\n\n<ai00:assistant>\n",
    ),
    (
        "ai00-v1",
        ["--thinking"],
        "<ai00:system>\nBe brief.\n</ai00:system>\n\n<ai00:user>\nHi\n</ai00:user>\n\n<ai00:assistant>\n<think>\n",
    ),
    ("rwkv-goose", [], "System: Be brief.\n\nUser: Hi\n\nAssistant:"),
    ("rwkv-goose", ["--thinking"], "System: Be brief.\n\nUser: Hi think\n\nAssistant: <think"),
]

CALLED = {
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"at":1.0}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"sun":[1,2]}'},
    ]
}

# Length and hash of the golden prompts (requirements 4): of C1 up to the question, and up to the result of the tool.
HASHED = [
    ("rwkv-universal", 2, "--no-thinking", 318, "c83da37253df27e5"),
    ("ai00-v1", 2, "--no-thinking", 478, "bb111b5c369c22c1"),
    ("rwkv-goose", 2, "--no-thinking", 242, "da2e459e69130df6"),
    ("openchatml", 2, "--no-thinking", 454, "30b8976dbd177589"),
    ("rwkv-universal", 2, "--thinking", 314, "68118e50779fbfc3"),
    ("ai00-v1", 2, "--thinking", 486, "83549cdd12e9e2ed"),
    ("rwkv-goose", 2, "--thinking", 255, "65720846870da309"),
    ("openchatml", 2, "--thinking", 480, "55bd5558ed6280c6"),
    ("rwkv-universal", 4, "--no-thinking", 584, "4adc0bd43e4a7e2d"),
    ("ai00-v1", 4, "--no-thinking", 777, "145989cbc109c5c3"),
    ("rwkv-goose", 4, "--no-thinking", 409, "732d6e9ca672e3d6"),
    ("openchatml", 4, "--no-thinking", 730, "c703074cb3bcc231"),
    ("rwkv-universal", 4, "--thinking", 580, "d13c6e88d49f6ae0"),
    ("ai00-v1", 4, "--thinking", 785, "df321e328c00ad69"),
    ("rwkv-goose", 4, "--thinking", 416, "0c8698bbcec151f0"),
    ("openchatml", 4, "--thinking", 756, "590b8c8a5c4d2fe5"),
    ("batuta-chatml", 2, "--no-thinking", 541, "4a19b6ed3a3e7bfb"),
    ("batuta-llama3", 2, "--no-thinking", 631, "c7c9755279249789"),
    ("batuta-generic", 2, "--no-thinking", 513, "b906e07bcbf43183"),
]


def prompt(*arguments: str | Path, body: object = BRIEF) -> Result:
    """`turnscript prompt` in this process."""
    return run("prompt", *arguments, stdin=json.dumps(body))


@pytest.mark.parametrize(("name", "options", "expected"), EXACT)
def test_the_prompt_is_written_byte_for_byte(name: str, options: list[str], expected: str) -> None:
    result = prompt("--format", name, *options)
    assert (0, expected.encode()) == (result.exit_code, result.stdout_bytes)
    assert "turnscript: no losses\n" == result.stderr


@pytest.mark.parametrize(("name", "count", "option", "length", "sha"), HASHED)
def test_golden_conversations_give_the_golden_prompts(
    name: str, count: int, option: str, length: int, sha: str
) -> None:
    body = json.loads(golden("openai_chat", "c1"))
    body["messages"] = body["messages"][:count]
    data = prompt("--format", name, option, body=body).stdout_bytes
    # The golden bytes begin with what stands for the base model's own first token, which prompts leave to its server.
    document = ts.get_format(name).document
    data = document.start.encode() + data if document.stand_ins else data
    assert (length, sha) == (len(data), hashlib.sha256(data).hexdigest()[:16])


@pytest.mark.parametrize("name", ts.formats())
@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_the_prompt_is_what_the_library_gives(path: Path, name: str) -> None:
    expected = ts.get_format(name).prompt(ts.parse(path.read_bytes()))
    result = run("prompt", path, "--format", name, "--quiet")
    assert (0, "", expected.text.encode()) == (result.exit_code, result.stderr, result.stdout_bytes)


def test_a_transcript_has_a_prompt_too() -> None:
    for arguments in ([], ["-"], ["--from", "rwkv-universal"]):
        result = run("prompt", *arguments, "--format", "rwkv-goose", stdin=TRANSCRIPT)
        assert "System: Be brief.\n\nUser: Hi\n\nAssistant: Hello.\n\nAssistant:" == result.stdout


def test_the_request_says_whether_to_think_unless_the_command_line_does() -> None:
    body = {"model": "m", "max_tokens": 9, "system": "", "messages": [{"role": "user", "content": "Hi"}]}
    thinking = body | {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert prompt("--format", "rwkv-universal", body=thinking).stdout.endswith("\n\n<<THINK>>\n")
    quick = prompt("--format", "rwkv-universal", "--no-thinking", body=thinking)
    assert quick.stdout.endswith("\n\n<<ASSISTANT>>\n")


def test_json_has_the_prompt_its_stops_its_prefill_and_the_losses() -> None:
    body = BRIEF | {"stop": ["END"]}
    expected = {
        "format": "rwkv-goose",
        "prompt": "System: Be brief.\n\nUser: Hi think\n\nAssistant: <think",
        "stops": ["\n\nUser:", "\n\nSystem:"],
        "prefill": " <think",
        "client_stops": ["END"],
        "losses": [],
    }
    result = prompt("--format", "rwkv-goose", "--thinking", "--json", body=body)
    assert (0, expected) == (result.exit_code, json.loads(result.stdout))
    assert (1, True) == (result.stdout.count("\n"), result.stdout.endswith("}\n"))


def test_json_gives_other_stops_where_tools_are_offered() -> None:
    body = json.loads(golden("openai_chat", "c1"))
    body["messages"] = body["messages"][:2]
    for without in (True, False):
        if without:
            shown = json.loads(prompt("--format", "ai00-v1", "--json", body=body | {"tools": []}).stdout)
            assert ["</ai00:assistant>"] == shown["stops"]
        else:
            shown = json.loads(prompt("--format", "ai00-v1", "--json", body=body).stdout)
            assert ["</ai00:assistant>", "</ai00:function_calls>"] == shown["stops"]


def test_an_answer_that_was_begun_is_continued() -> None:
    messages = [{"role": "user", "content": "Which one?"}, {"role": "assistant", "content": "The best is ("}]
    shown = json.loads(
        prompt(
            "--format", "ai00-v1", "--json", body={"model": "m", "max_tokens": 9, "system": "", "messages": messages}
        ).stdout
    )
    assert shown["prompt"].endswith("<ai00:assistant>\nThe best is (")
    assert "The best is (" == shown["prefill"]


# Losses.

NAMED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "name": "ada", "content": "Hi"}]}
LOST = {"path": "$.messages[0].name", "kind": "dropped", "detail": "this format does not show it"}
LISTED = "turnscript: 1 loss: 1 dropped\n  $.messages[0].name: dropped: this format does not show it\n"


def test_losses_are_summed_up_and_listed() -> None:
    result = prompt("--format", "rwkv-goose", body=NAMED)
    assert (0, "User: Hi\n\nAssistant:", LISTED) == (result.exit_code, result.stdout, result.stderr)
    assert [LOST] == json.loads(prompt("--format", "rwkv-goose", "--json", body=NAMED).stdout)["losses"]


def test_settings_are_no_losses_because_no_prompt_shows_them() -> None:
    assert 0 == prompt("--format", "rwkv-goose", "--strict", body=LOSSY).exit_code


ELSEWHERE = {"input": "hi", "previous_response_id": "resp_1", "conversation": "c", "prompt": {"id": "p"}}


@pytest.mark.parametrize("name", ts.formats())
def test_members_that_stand_for_a_text_elsewhere_are_losses_as_in_a_conversion(name: str) -> None:
    body = ELSEWHERE | {"temperature": 0.5, "stop": None, "unheard_of": None}
    paths = ["$.previous_response_id", "$.conversation", "$.prompt"]
    result = prompt("--format", name, "--json", body=body)
    converted = ts.convert(body, "openai-responses", name, view="prompt").losses
    assert [msgspec.structs.asdict(loss) for loss in converted if loss.path in paths] == [
        loss for loss in json.loads(result.stdout)["losses"] if loss["path"].startswith("$.")
    ]
    assert (0, True) == (result.exit_code, "3 dropped" in result.stderr)
    refused = prompt("--format", name, "--strict", "--quiet", body=body)
    assert (3, "") == (refused.exit_code, refused.stdout)
    assert all(f"  {path}: dropped: " in refused.stderr for path in paths)


def test_strict_refuses_losses_and_writes_nothing(tmp_path: Path) -> None:
    lost = tmp_path / "lost.jsonl"
    result = prompt("--format", "rwkv-goose", "--strict", "--losses", lost, "--quiet", body=NAMED)
    assert (3, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith("turnscript: error: <stdin>: rwkv-goose cannot carry everything, and --strict was")
    assert "  $.messages[0].name: dropped: " in result.stderr
    assert [LOST] == read_rows(lost)


def test_strict_lets_an_exact_prompt_pass() -> None:
    result = prompt("--format", "rwkv-goose", "--strict")
    assert (0, EXACT[4][2]) == (result.exit_code, result.stdout)


def test_losses_on_standard_output_come_after_the_prompt() -> None:
    result = prompt("--format", "rwkv-goose", "--losses", "-", "--quiet", body=NAMED)
    assert ["User: Hi", "", "Assistant:"] == result.stdout.splitlines()[:-1]
    assert (LOST, "") == (json.loads(result.stdout.splitlines()[-1]), result.stderr)


def test_the_input_is_never_overwritten_by_losses(tmp_path: Path) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(rows(CHAT))
    result = run("prompt", path, "--format", "rwkv-goose", "--losses", path)
    assert (2, rows(CHAT)) == (result.exit_code, path.read_bytes())
    assert "would overwrite the input" in result.stderr


# Spans.

_ESCAPE = re.compile(r"\\(?:(?P<plain>[\\nrt])|x(?P<x>[0-9a-f]{2})|u(?P<u>[0-9a-f]{4}))")


def unescaped(text: str) -> str:
    """The text of a line of the listing."""
    plain = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
    return _ESCAPE.sub(lambda f: plain[f["plain"]] if f["plain"] else chr(int(f["x"] or f["u"], 16)), text)


def test_spans_are_one_marked_line_each() -> None:
    thoughtful: dict[str, Any] = {
        "model": "m",
        "messages": [
            {"role": "user", "content": "Weather in\n\nParis?"},
            {"role": "assistant", "reasoning_content": "use the tool", "content": "Wait. "},
            {"role": "user", "content": "And? "},
        ],
    }
    expected = [
        "# User:\\x20",
        "= Weather in\\nParis?",
        "# \\n\\nAssistant:",
        "* \\x20<think>\\n",
        "+ use the tool",
        "* \\n</think>\\n",
        "+ Wait.",
        "* \\n\\nUser:",  # where the model stops
        "# \\x20",
        "= And?",
        "# \\n\\nAssistant:",
    ]
    assert expected == prompt("--format", "rwkv-goose", "--spans", body=thoughtful).stdout.splitlines()


@pytest.mark.parametrize("name", ts.formats())
def test_the_listed_spans_are_the_prompt(name: str) -> None:
    odd = 'back\\slash \\n \x1b[31m red \u202e\u2028 \x00 "é" 漢 😀 <<USER>> <|im_end|> \t end '
    body = {"model": "m", "messages": [{"role": "user", "content": odd}]}
    listing = prompt("--format", name, "--spans", body=body).stdout
    lines = listing.removesuffix("\n").split("\n")
    assert {"# ", "= "} == {line[:2] for line in lines}
    assert "".join(unescaped(line[2:]) for line in lines) == prompt("--format", name, body=body).stdout
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028\u202e]", listing)


@pytest.mark.parametrize("path", REQUESTS, ids=lambda path: path.stem)
def test_spans_for_programs_join_to_the_prompt(path: Path) -> None:
    shown = json.loads(run("prompt", path, "--format", "ai00-v1", "--json", "--spans").stdout)
    assert shown["prompt"] == "".join(span["text"] for span in shown["spans"])
    assert {"text", "control", "trainable", "item"} == set(shown["spans"][0])
    assert any(span["control"] for span in shown["spans"])


def test_spans_have_colours_on_a_terminal_only() -> None:
    messages = [
        {"role": "user", "content": "Hi \x1b[2J"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]
    data = json.dumps({"model": "m", "messages": messages}).encode()
    arguments = ("prompt", "--format", "rwkv-goose", "--spans", "--quiet")
    code, seen = on_terminal(*arguments, stdin=data, stdout=True)
    assert (0, True) == (code, seen.startswith("\x1b[34m\x1b[2mUser: \x1b[0mHi \\x1b[2J\r\n\r\n"))
    assert "\x1b[4mHello.\x1b[0m" in seen
    code, seen = on_terminal(*arguments, stdin=data, stdout=True, also={"NO_COLOR": "1"})
    assert (0, True, False) == (code, seen.startswith("# User:\\x20\r\n= Hi"), "\x1b" in seen)
    assert b"\x1b" not in process(*arguments, input=data).stdout


# Terminals, pipes, signals.


def test_a_prompt_on_a_terminal_is_followed_by_one_newline_and_in_a_pipe_by_none() -> None:
    data = json.dumps(BRIEF).encode()
    for name, expected in (("rwkv-goose", EXACT[4][2]), ("rwkv-universal", EXACT[0][2])):
        arguments = ("prompt", "--format", name, "--quiet")
        code, seen = on_terminal(*arguments, stdin=data, stdout=True)
        assert (0, f"{expected}\n") == (code, seen.replace("\r\n", "\n"))
        assert expected.encode() == process(*arguments, input=data).stdout


def test_json_is_indented_on_a_terminal() -> None:
    arguments = ("prompt", "--format", "rwkv-goose", "--json", "--quiet")
    _, seen = on_terminal(*arguments, stdin=json.dumps(BRIEF).encode(), stdout=True)
    assert seen.startswith('{\r\n  "format": "rwkv-goose",\r\n')


def test_a_prompt_that_nobody_reads_is_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process("prompt", "--format", "rwkv-goose", "--quiet", input=json.dumps(BRIEF).encode(), stdout=writer)
    os.close(writer)
    assert (141, b"") == (done.returncode, done.stderr)


def test_ctrl_c_while_waiting_is_one_line() -> None:
    ours, theirs = pty.openpty()
    with live("prompt", "--format", "rwkv-goose", stdin=theirs) as command:
        assert b"turnscript: reading standard input; Ctrl-D ends it\n" == command.stderr.readline()
        command.process.send_signal(signal.SIGINT)
        assert 130 == command.wait()
        assert [b"turnscript: interrupted; unfinished files are removed"] == command.stderr.read().splitlines()
    os.close(theirs)
    os.close(ours)


# Faults.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --format or --template"),
        (["--format", "rwkv-gose"], "unknown format 'rwkv-gose'; did you mean 'rwkv-goose'"),
        (["--format", "openai-chat"], "unknown format 'openai-chat'; did you mean"),
        (["--format", "rwkv-goose", "--from", "openai-chta"], "unknown API or format 'openai-chta'; did you mean"),
        (["--format", "rwkv-goose", "one", "two"], "unexpected extra argument (two)"),
        (["--format", "rwkv-goose", "--span"], "no such option '--span'"),
    ],
)
def test_wrong_usage_is_told_before_anything_is_read(arguments: list[str], message: str) -> None:
    result = run("prompt", *arguments, stdin="this is not even looked at")
    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr
    assert_shape(result.stderr)


@pytest.mark.parametrize(
    ("data", "options", "message", "remedy"),
    [
        (b" \n", [], r"<stdin>: the input is empty", "give a request body"),
        (b'{"messages": [}', [], r"<stdin>:1:15: not valid JSON: ", "correct the JSON there\n"),
        (rows(CHAT, CHAT), [], r"<stdin>:2:\d: not valid JSON: ", "of JSON Lines, give one row"),
        (b'{"messages": [{"role": 5}]}', [], r"<stdin>: \$\.messages\[0\]\.role: ", "it was read as openai-chat; if"),
        (b'{"messages": 5}', ["--from", "openai-chat"], r"<stdin>: \$\.messages: ", "it was read as openai-chat"),
        (b"<<USER>>\nHi\n<<USER_END>>\nstray", [], r"<stdin>:4:1: ", "it was read as rwkv-universal; if it is"),
        (b'{"choices": [{"message": {}}]}', [], r"<stdin>: \$: this is no request", "give a request; "),
        (b'{"a": "\xff"}', [], r"<stdin>:1:8: byte 0xff is not UTF-8; ", "expected UTF-8 text"),
    ],
)
def test_bad_input_is_told_with_its_place(data: bytes, options: list[str], message: str, remedy: str) -> None:
    result = run("prompt", "--format", "rwkv-goose", *options, stdin=data)
    assert (1, "") == (result.exit_code, result.stdout)
    assert re.match(f"turnscript: error: {message}", result.stderr), result.stderr
    assert remedy in result.stderr
    assert_shape(result.stderr)


def test_a_missing_file_is_told() -> None:
    result = run("prompt", "no-such-file.json", "--format", "rwkv-goose")
    assert 1 == result.exit_code
    assert "turnscript: error: no-such-file.json: cannot read this: no such file or directory\n" in result.stderr


TINY = """
[[format]]
name = "tiny"
title = "Speakers in tags, and nothing else"
separator = "\\n"

[[format.turn]]
role = "user"
open = "<user>\\n"
close = "\\n</user>"

[[format.turn.segment]]
kind = "user"
body = "text"

[[format.turn]]
role = "assistant"
open = "<assistant>\\n"
close = "\\n</assistant>"

[[format.turn.segment]]
kind = "assistant"
body = "text"
model = true

[format.generation]
stops = ["</assistant>"]
stops_with_tools = ["</assistant>"]
"""


def test_a_format_of_ones_own_without_thoughts_is_taken_too(tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY, encoding="utf-8")
    body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "high"}
    for options in ([], ["--no-thinking"]):
        assert "<user>\nHi\n</user>\n<assistant>\n" == prompt("--format", path, *options, body=body).stdout
    for command in ("prompt", "read"):
        result = run(command, "--format", path, "--thinking", stdin=json.dumps(body))
        assert (2, "") == (result.exit_code, result.stdout)
        assert "--thinking: tiny has no place for thoughts" in result.stderr
    page = run("show", path).stdout
    assert "think first" not in page
    for what in ("instructions", "thoughts", "tool calls", "results of tools", "the tools that there are"):
        assert re.search(rf"^  {what} +dropped: ", page, re.MULTILINE)
    answer = run("read", "--format", path, "--json", stdin="Hello.\n</assistant>")
    assert [{"type": "text", "text": "Hello."}] == json.loads(answer.stdout)["items"]


def test_a_shell_completes_formats_and_nothing_else() -> None:
    variables = {
        "_TURNSCRIPT_COMPLETE": "bash_complete",
        "COMP_WORDS": "turnscript prompt --format open",
        "COMP_CWORD": "3",
    }
    assert [b"plain,openchatml"] == process(env=os.environ | variables).stdout.split()


# JSON.


@pytest.mark.parametrize(("name", "spelled"), [("rwkv-universal", '{"sun": [1, 2]}'), ("rwkv-goose", '{"sun":[1,2]}')])
def test_json_is_spelled_in_one_way_where_that_is_asked_for(name: str, spelled: str) -> None:
    body = json.loads(json.dumps(CALLED).replace("[1,2]", "[1,\\t2]"))
    body["messages"][2]["content"] = body["messages"][2]["content"].replace(",", ", ", 1)
    result = prompt("--format", name, "--normalize-json", "--json", body=body)
    record = json.loads(result.stdout)
    asked = ts.get_format(name).prompt(ts.parse(body, "openai-chat"), thinking=False, normalize_json=True)
    assert (0, asked.text) == (result.exit_code, record["prompt"])
    assert (spelled in record["prompt"], "1.0" in record["prompt"]) == (True, True)
    assert "normalize_json asks for it" in result.stderr
    assert prompt("--format", name, "--json", body=body).stdout != result.stdout


def test_strict_minds_other_losses_than_a_spelling_that_was_asked_for() -> None:
    given = ("--format", "rwkv-universal", "--normalize-json", "--strict")
    assert 0 == prompt(*given, body=CALLED).exit_code
    refused = prompt(*given, "--losses", "-", body=CALLED | {"note": 1})
    assert (3, "$.note") == (refused.exit_code, json.loads(refused.stdout.splitlines()[-1])["path"])


def test_both_commands_say_the_same_of_it() -> None:
    said = [" ".join(run(name, "--help").stdout.split()) for name in ("prompt", "convert")]
    assert all("--normalize-json Spell the JSON of calls and results in one way; --strict does" in one for one in said)
