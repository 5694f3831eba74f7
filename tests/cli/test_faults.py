"""Whatever goes wrong is one message of one shape, with a place, a remedy and an exit code; never a traceback."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.running import CHAT, CODE, EXAMPLES, LOSSY, TRANSCRIPT, as_nobody, convert, process, rows, run

GOOD = json.dumps(CHAT)

WRONG_USAGE = [
    (["--to", "openai-chta"], "unknown API or format 'openai-chta'; did you mean 'openai-chat'"),
    (["--to", "rwkv-universl"], "did you mean 'rwkv-universal'"),
    (["--from", "antropic-messages", "--to", "openai-chat"], "did you mean 'anthropic-messages'"),
    (
        ["--to", "openai-chat", "--profile", "officiall"],
        "unknown profile of openai-chat 'officiall'; did you mean 'official'",
    ),
    (["--to", "rwkv-universal", "--profile", "seed"], "--profile is for APIs, and rwkv-universal is a prompt format"),
    (["--to", "openai-chat", "--view", "prompt"], "--view is for transcripts, and openai-chat is an API"),
    (["--to", "model/chat_template.jinja"], "`turnscript prompt - --template model/chat_template.jinja`"),
    (["--to", "rwkv-universal", "--view", "both"], "'both' is not one of 'archive', 'prompt'"),
    (["--to", "rwkv-universal", "--set", "view=both"], "unknown view 'both'"),
    (
        ["--to", "anthropic-messages", "--set", "systemm=blocks"],
        "unknown option of anthropic-messages 'systemm'; did you mean",
    ),
    (["--to", "anthropic-messages", "--set", "system=block"], "did you mean 'blocks'"),
    (["--to", "anthropic-messages", "--set", "system"], "--set system: write it as FLAG=VALUE"),
    (["--to", "openai-chat", "--set", "strict=yes"], "unknown option of openai-chat 'strict'"),
    ([], "missing option '--to'"),
    (["--to"], "option '--to' requires an argument"),
    (["--to", "openai-chat", "one", "two"], "unexpected extra argument (two)"),
    (["--to", "openai-chat", "--outptu", "x"], "no such option '--outptu'"),
    (["--to", "openai-chat", "--rejects", "-"], "--rejects needs a file"),
    (["--to", "openai-chat", "--lines", "--pretty"], "--pretty is for one document"),
    (["--to", "openai-chat", "--output", "same", "--losses", "./same"], "--losses and --output are the same file"),
]

BAD_INPUT = [
    (b"", [], r"<stdin>: the input is empty"),
    (b" \n\n", [], r"<stdin>: the input is empty"),
    (b'{"messages": [}', [], r"<stdin>:1:15: not valid JSON: "),
    (b'{"messages": [\n  {"role": "us', [], r"<stdin>:\d+:\d+: not valid JSON: the input ends"),
    (b'{"a": "\xff"}', [], r"<stdin>:1:8: byte 0xff is not UTF-8; "),
    (GOOD.encode("utf-16"), [], r"<stdin>:1:1: byte 0xff is not UTF-8; this looks like UTF-16"),
    (b'{"colour": "red"}', [], r"<stdin>: \$: cannot tell which API this body is for \(it has 'colour'\)"),
    (b"Dear Sir or Madam", [], r"<stdin>:1:1: neither JSON nor a transcript of a known format"),
    (b'"a string"', [], r"<stdin>: \$: expected an object, got a string"),
    (b" null\n", [], r"<stdin>: \$: expected an object, got null"),
    (b'{"messages": 5}', ["--from", "openai-chat"], r"<stdin>: \$\.messages: "),
    (b'{"messages": [{"role": 5}]}', ["--from", "openai-chat"], r"<stdin>: \$\.messages\[0\]\.role: "),
    (b"<<USER>>\nHi\n<<USER_END>>\nstray", ["--from", "rwkv-universal"], r"<stdin>:4:1: "),
    (b'"a string"', ["--from", "openai-chat"], r"<stdin>: \$: expected an object, got a string"),
    (rows(CHAT, CHAT), ["--no-lines"], r"<stdin>:2:\d: not valid JSON: "),
    (b"[" * 100_000, ["--from", "openai-chat"], r"<stdin>: "),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_USAGE, ids=lambda value: str(value)[:40])
def test_wrong_usage_is_told_before_anything_is_read(arguments: list[str], message: str) -> None:
    result = convert(*arguments, stdin="this is not even looked at")
    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr
    assert_shape(result.stderr)


@pytest.mark.parametrize(("data", "arguments", "message"), BAD_INPUT, ids=lambda value: str(value)[:40])
def test_bad_input_is_told_with_its_place(data: bytes, arguments: list[str], message: str) -> None:
    result = convert(*arguments, "--to", "rwkv-universal", stdin=data)
    assert (1, "") == (result.exit_code, result.stdout)
    assert re.match(f"turnscript: error: {message}", result.stderr), result.stderr
    assert_shape(result.stderr)


def test_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "body.json"
    path.write_text('{\n  "messages": nope\n}', encoding="utf-8")
    result = convert(path, "--to", "openai-chat")
    assert result.stderr.startswith(f"turnscript: error: {path}:2:16: not valid JSON")


@pytest.mark.parametrize("command", [["nonsense"], ["--nonsense"], ["apis", "--nonsense"]])
def test_a_wrong_command_is_told_in_the_same_shape(command: list[str]) -> None:
    result = run(*command)
    assert 2 == result.exit_code
    assert_shape(result.stderr)


def test_no_command_shows_the_help() -> None:
    result = run()
    assert 2 == result.exit_code
    assert "Commands:" in result.stderr


def test_the_remedy_for_json_lines_read_as_one_document_is_named() -> None:
    result = convert("--no-lines", "--to", "openai-chat", stdin=rows(CHAT, CHAT))
    assert "  correct the JSON there; if these are JSON Lines, add --lines\n" in result.stderr


def test_a_transcript_that_begins_with_a_bracket_is_not_taken_for_json() -> None:
    broken = b"[BOS]<|im_start|>user\nHi\n<|im_end|>\nstray[EOS]"
    for label in ([], ["--from", "openchatml"]):
        result = convert(*label, "--to", "openai-chat", stdin=broken)
        assert "<stdin>:4:1: a turn must begin here: " in result.stderr
        assert "  it was read as openchatml" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (["--from", "openai-chat"], "it was read as openai-chat, because --from says so"),
        ([], "it was read as openai-chat; if it is something else, name that with --from"),
    ],
)
def test_the_remedy_says_what_the_input_was_taken_for(arguments: list[str], remedy: str) -> None:
    result = convert(*arguments, "--to", "rwkv-universal", stdin=b'{"messages": [{"role": 5}]}')
    assert f"  {remedy}\n" in result.stderr


@pytest.mark.parametrize(
    ("data", "arguments", "remedy"),
    [
        (b'{"a": "\xff"}', [], "expected UTF-8 text"),
        (b"\xff\xfe{", ["--from", "openai-chat"], "expected UTF-8 text"),
        (b"[" * 1_000_000, [], "expected JSON of fewer levels"),
        (b'{"choices": [{"message": {}}]}', ["--side", "request"], "give a request; `turnscript convert` reads"),
    ],
)
def test_no_remedy_sends_one_to_a_place_where_nothing_is_wrong(data: bytes, arguments: list[str], remedy: str) -> None:
    result = convert(*arguments, "--to", "rwkv-universal", stdin=data)
    assert f"\n  {remedy}" in result.stderr
    assert 2 == len(result.stderr.splitlines())


def test_a_missing_file_is_told() -> None:
    result = convert("no-such-file.json", "--to", "openai-chat")
    assert 1 == result.exit_code
    assert "turnscript: error: no-such-file.json: cannot read this: no such file or directory\n" in result.stderr
    assert_shape(result.stderr)


def test_a_folder_is_no_input(tmp_path: Path) -> None:
    result = convert(tmp_path, "--to", "openai-chat")
    assert (1, True) == (result.exit_code, "is a directory" in result.stderr)
    assert_shape(result.stderr)


@pytest.mark.parametrize(
    "command",
    [
        ("keys", "list", "--file"),
        ("keys", "remove", "a", "--file"),
        ("serve", "--check", "--config"),
        ("doctor", "--config"),
        ("detect", "rwkv-universal", "--formats"),
    ],
    ids=lambda command: command[0],
)
def test_a_file_that_an_option_names_is_no_wrong_usage_because_it_may_not_be_read(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "secret.toml"
    path.touch(0)
    with as_nobody():
        result = run(*command, path)
    assert (1, "") == (result.exit_code, result.stdout)
    assert str(path) in result.stderr
    assert "permission denied" in result.stderr.lower()


def test_a_file_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "secret.json"
    path.write_text(GOOD, encoding="utf-8")
    path.chmod(0)
    with as_nobody():
        result = convert(path, "--to", "openai-chat")
    assert (1, True) == (result.exit_code, "cannot read this: permission denied" in result.stderr)
    assert_shape(result.stderr)


@pytest.mark.parametrize("option", ["--output", "--losses", "--rejects"])
def test_a_place_that_may_not_be_written_is_told_and_nothing_is_left(tmp_path: Path, option: str) -> None:
    tmp_path.chmod(0o555)
    with as_nobody():
        result = convert("--lines", "--to", "openai-chat", option, tmp_path / "out", stdin=GOOD)
    assert (1, True) == (result.exit_code, "cannot write this: permission denied" in result.stderr)
    assert [] == list(tmp_path.iterdir())
    assert_shape(result.stderr)


@pytest.mark.parametrize("place", ["", ".", "no/such/folder/out.json", "file/out.json"])
def test_a_place_that_is_no_file_is_told(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    result = convert("--to", "openai-chat", "--output", f"{tmp_path}/{place}", stdin=GOOD)
    assert (1, "") == (result.exit_code, result.stdout)
    assert "cannot write this: " in result.stderr
    assert ["file"] == [path.name for path in tmp_path.iterdir()]
    assert_shape(result.stderr)


@pytest.mark.parametrize("option", ["--losses", "--rejects"])
def test_the_input_is_never_overwritten_by_losses_or_rejects(tmp_path: Path, option: str) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(rows(CHAT))
    result = convert(path, "--to", "openai-chat", option, path)
    assert (2, rows(CHAT)) == (result.exit_code, path.read_bytes())
    assert "would overwrite the input" in result.stderr


def test_the_usual_place_of_rejects_is_guarded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("turnscript.rejects.jsonl").write_bytes(b"{\n")
    result = convert("turnscript.rejects.jsonl", "--to", "openai-chat")
    assert (2, b"{\n") == (result.exit_code, Path("turnscript.rejects.jsonl").read_bytes())
    assert "--rejects turnscript.rejects.jsonl would overwrite the input" in result.stderr
    result = convert("--to", "openai-chat", "--output", "o", "--losses", "o.rejects.jsonl", stdin=GOOD)
    assert (2, True) == (result.exit_code, "--losses and --rejects are the same file" in result.stderr)


def test_a_full_disk_is_told_for_a_file_and_for_standard_output() -> None:
    result = convert("--to", "openai-chat", "--output", "/dev/full", stdin=GOOD)
    assert (1, True) == (result.exit_code, "/dev/full: cannot write this: no space left on device" in result.stderr)
    assert_shape(result.stderr)
    with open("/dev/full", "wb") as full:
        done = process("convert", "--to", "openai-chat", input=GOOD.encode(), stdout=full)
    message = "standard output: cannot write this: no space left on device"
    assert (1, True) == (done.returncode, message in done.stderr.decode())
    assert "--output" not in done.stderr.decode()  # most commands have none
    assert_shape(done.stderr.decode())


@pytest.mark.parametrize("command", [["--version"], ["--help"], ["convert", "--help"], ["data", "--help"]])
def test_a_help_that_cannot_be_written_is_told(command: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = process(*command, stdout=full)
    assert (1, True) == (done.returncode, "cannot go on: no space left on device\n" in done.stderr.decode())
    assert_shape(done.stderr.decode())


def test_a_help_that_nobody_reads_ends_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = process("--help", stdout=writing)
    os.close(writing)
    assert (141, b"") == (done.returncode, done.stderr)


def test_training_data_that_cannot_be_written_is_told_with_its_place(tmp_path: Path) -> None:
    target, nowhere = tmp_path / "there", tmp_path / "no" / "tags.json"
    target.touch()
    encoding = ("--to", "openchatml", "--tokenizer", "bytes")
    result = run("data", "build", EXAMPLES / "training_rows.jsonl", *encoding, "--out", target)
    assert f"{target}: cannot use this: file exists\n  give the name of a folder" in result.stderr
    result = run("data", "tokens", *encoding, "--resize", "--write", nowhere)
    assert f"{nowhere}: cannot use this: no such file or directory\n  make the folder first\n" in result.stderr


@pytest.mark.parametrize(("descriptor", "message"), [(0, "standard input is closed"), (1, "standard output is closed")])
def test_a_closed_stream_is_told(tmp_path: Path, descriptor: int, message: str) -> None:
    path = tmp_path / "in.json"
    path.write_text(GOOD, encoding="utf-8")
    done = process(
        "convert", "-" if descriptor == 0 else path, "--to", "openai-chat", preexec_fn=lambda: os.close(descriptor)
    )
    assert (1, True) == (done.returncode, message in done.stderr.decode())
    assert_shape(done.stderr.decode())


def test_nothing_in_an_input_can_colour_or_move_the_screen() -> None:
    evil = "\x1b[31m\x1b]0;owned\x07\r\n\u202egnp"
    for body in (LOSSY | {evil: 1}, {evil: 1}, {"messages": [{"role": evil}]}, {"messages": evil}):
        for arguments in ([], ["--lines", "--rejects", os.devnull]):
            result = convert(*arguments, "--to", "openai-chat", stdin=json.dumps(body, ensure_ascii=False))
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", result.stderr)


def test_an_endless_message_is_cut() -> None:
    result = convert("--to", "openai-chat", stdin=json.dumps(LOSSY | {"k" * 100_000: 1}))
    assert len(result.stderr) < 2_000


SERVED = ["--backend", "http://127.0.0.1:1", "--check"]


@pytest.mark.parametrize(
    "wrong",
    [
        ["--port", "99999"],
        ["--port", "abc"],
        ["--port", "-1"],
        ["--host", ""],
        ["--format", "nope"],
        ["--kind", "nope"],
        ["--backend", "ftp://x"],
    ],
)
def test_a_setting_that_is_wrong_on_the_command_line_is_wrong_usage(wrong: list[str]) -> None:
    result = run("serve", *SERVED, *wrong)
    assert (2, "") == (result.exit_code, result.stdout)
    assert_first(result.stderr, wrong[0].removeprefix("--"))


def test_a_setting_that_is_wrong_elsewhere_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.toml").write_text("[server]\nport = 99999\n", encoding="utf-8")
    of_file = run("serve", *SERVED, "--config", tmp_path / "t.toml")
    monkeypatch.setenv("TURNSCRIPT_SERVER_PORT", "99999")
    of_variable = run("serve", *SERVED)
    for result in (of_file, of_variable):
        assert (1, "") == (result.exit_code, result.stdout), result.stderr
        assert_first(result.stderr, "server.port: expected an integer from 0 to 65535")


@pytest.mark.parametrize("command", [["show"], ["prompt", "--format"], ["convert", "--to"]])
def test_a_format_file_that_is_no_toml_is_told_with_its_line(command: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[[format]]\nname = "x\n', encoding="utf-8")
    told = run(*command, path, stdin=GOOD).stderr
    assert re.fullmatch(rf"turnscript: error: line 2, column \d+: not valid TOML: .* \(in {path}\)\n", told), told


def test_a_long_message_keeps_its_remedy(tmp_path: Path) -> None:
    encoding = ("--to", "openchatml", "--tokenizer", "bytes")
    result = run("data", "build", EXAMPLES / "chats.jsonl", *encoding, "--out", tmp_path / "run")
    assert re.search(r"cannot tell the form .*\(\d+ more characters\) \.\.\.", result.stderr)
    assert "name the form (--from FORM), or say in a map file where things are (--map FILE)\n" in result.stderr


@pytest.mark.parametrize("missing", [["click"], ["rich"], ["click", "rich"]])
def test_without_its_extra_the_command_line_says_how_to_get_it(missing: list[str]) -> None:
    hide = "".join(f"sys.modules[{name!r}] = None; " for name in missing)
    done = process("apis", code=f"import sys; {hide}{CODE}")
    message = f"turnscript: error: the command line needs {' and '.join(missing)}: pip install 'turnscript[cli]'\n"
    assert (2, message) == (done.returncode, done.stderr.decode())


def test_a_transcript_needs_no_model_and_an_error_needs_no_names() -> None:
    assert 0 == convert("--to", "openai-chat", "--strict", stdin=TRANSCRIPT).exit_code


def assert_first(stderr: str, words: str) -> None:
    """The first line tells an error, and of what."""
    first, *_ = stderr.splitlines()
    assert (True, True) == (first.startswith("turnscript: error: "), words in first), stderr


def assert_shape(stderr: str) -> None:
    """One line that begins alike and says what is wrong, then remedies, indented."""
    first, *others = stderr.splitlines()
    assert first.startswith("turnscript: error: ")
    assert others, "no remedy"
    assert all(line.startswith("  ") for line in others)
    assert "Traceback" not in stderr


def test_a_transcript_that_begins_with_a_bracket_is_not_said_to_be_json() -> None:
    result = convert("--to", "openai-chat", stdin="[BOS]<|im_start|>user\nhi<|im_end|>\nwhat")
    assert 1 == result.exit_code
    assert "JSON" not in result.stderr
    assert "it was read as openchatml; if it is something else, name that with --from" in result.stderr


TURN = "<ai00:user>\nHello"
ANSWERED = "\n\n<ai00:assistant>\nHi\n</ai00:assistant>\n"
CALLS = '<ai00:function_calls>\n<invoke name="f">\n</invoke>\n</ai00:function_calls>\n'
RESULTS = '<ai00:function_results>\n  <result name="f">\n    x\n  </result>\n</ai00:function_results>\n'
CONVERT, CHECK = ["convert", "--to", "openai-chat"], ["check"]
READS_CALLS = "this begins as an answer in ai00-v1: `turnscript read --format ai00-v1` reads what a model wrote"
BY_HAND = [
    (
        CONVERT,
        "<ai00:user>Hello!</ai00:user>",
        "'Hello!</ai00:user>' stands behind <ai00:user>, whose content begins on",
    ),
    (
        CONVERT,
        f"{TURN} </ai00:user> there\n</ai00:user>{ANSWERED}",
        r"<ai00:assistant> (</ai00:user> at 2:7 closed the one before; write <\/ai00:user> there if that is content)",
    ),
    (
        CONVERT,
        f"{TURN}{ANSWERED}",
        "line 4, column 1: approximated: <ai00:assistant> before </ai00:user>, which closes what <ai00:user> opened",
    ),
    (CHECK, f"{TURN}\n</ai00:user>\n\n<ai00:assistant>\n{CALLS}{RESULTS}", "</ai00:assistant> is written behind it"),
    (CONVERT, CALLS, READS_CALLS),
    (CHECK, CALLS, READS_CALLS),
    ([*CONVERT, "--from", "ai00-v1"], CALLS, READS_CALLS),
    ([*CHECK, "--format", "ai00-v1"], CALLS, READS_CALLS),
]


@pytest.mark.parametrize(("arguments", "text", "words"), BY_HAND)
def test_what_people_write_wrong_by_hand_is_said(arguments: list[str], text: str, words: str) -> None:
    result = run(*arguments, stdin=text.encode())
    assert words in f"{result.stdout}{result.stderr}"


@pytest.mark.parametrize("attributes", ["name='f'", 'name="f" name="g"'])
def test_an_attribute_that_is_wrong_is_not_missing_as_well(attributes: str) -> None:
    transcript = f"<<TOOL_CALL {attributes}>>\n{{}}\n<<END_TOOL_CALL>>\n"
    result = run("check", "--format", "rwkv-universal", stdin=transcript.encode())
    assert 1 == result.stdout.count("fault: ")


ANSWERS = [
    ("ai00-v1", "<ai00:assistant>\nHi\n</ai00:assistant>", "<ai00:assistant> is of the prompt, which opens the turn"),
    ("batuta-chatml", "<|im_start|>assistant\nHi<|im_end|>", "<|im_start|>assistant is of the prompt, which opens"),
    ("openchatml", "<|im_start|>assistant\nHi\n<|im_end|>", "<|im_start|>assistant is of the prompt, which opens"),
    (
        "rwkv-universal",
        '<<TOOL_CALL name="f">>\n{"a": 1} // c\n<<END_TOOL_CALL>>',
        "text behind a call, where <<END_TOOL_CALL>> must stand",
    ),
]


@pytest.mark.parametrize(("name", "text", "words"), ANSWERS)
def test_an_issue_says_what_is_wrong(name: str, text: str, words: str) -> None:
    assert words in run("read", "--format", name, stdin=text.encode()).stdout
