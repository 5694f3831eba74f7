"""JSON Lines: every good row is converted, every bad one is kept with its reason."""

import base64
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.running import CHAT, EXAMPLES, LOSSY, MESSAGES, TRANSCRIPT, convert, read_rows, rows
from tests.growth import assert_grows_below
from turnscript.cli.source import Source

TO_CHAT = ("--to", "openai-chat")
TEXT = {"text": TRANSCRIPT}
CHATS = (EXAMPLES / "chats.jsonl").read_bytes()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_example_gives_five_rows_and_one_reject() -> None:
    result = convert(EXAMPLES / "chats.jsonl", "--to", "rwkv-universal", "--output", "out.jsonl")
    assert 1 == result.exit_code
    assert ["text"] * 5 == [key for row in read_rows(Path("out.jsonl")) for key in row]
    assert "turnscript: 5 rows converted, 1 rejected, no losses\n" in result.stderr
    assert "turnscript: the rejected rows are in out.jsonl.rejects.jsonl\n" in result.stderr
    (reject,) = read_rows(Path("out.jsonl.rejects.jsonl"))
    assert ["file", "line", "byte", "code", "path", "reason", "row"] == list(reject)
    assert (str(EXAMPLES / "chats.jsonl"), 4, "invalid_request") == (reject["file"], reject["line"], reject["code"])
    assert CHATS.splitlines()[3].decode() == reject["row"]
    assert CHATS[reject["byte"] :].startswith(reject["row"].encode())


@pytest.mark.parametrize("name", ["in.jsonl", "in.ndjson", "in.JSONL"])
def test_the_name_of_a_file_says_that_it_has_rows(name: str) -> None:
    Path(name).write_bytes(rows(MESSAGES))
    result = convert(name, "--to", "rwkv-universal")
    assert ["text"] == list(json.loads(result.stdout))


def test_a_second_line_after_a_whole_value_says_that_there_are_rows() -> None:
    assert 2 == len(convert(*TO_CHAT, stdin=rows(CHAT, MESSAGES)).stdout.splitlines())
    assert 2 == len(convert(*TO_CHAT, stdin=b"\n\r\n \n" + rows(CHAT) + b"\n\n" + rows(CHAT)).stdout.splitlines())
    assert 2 == len(convert(*TO_CHAT, stdin=b"\xef\xbb\xbf" + rows(CHAT, CHAT)).stdout.splitlines())


def test_one_value_on_one_line_is_one_document_unless_told() -> None:
    assert convert("--to", "rwkv-universal", stdin=rows(CHAT) + b"\n\n").stdout.startswith("<<META>>")
    assert convert("--to", "rwkv-universal", "--lines", stdin=rows(CHAT)).stdout.startswith('{"text":"<<META>>')


def test_a_file_of_rows_can_be_read_as_one_document() -> None:
    Path("in.jsonl").write_text(json.dumps(CHAT, indent=2), encoding="utf-8")
    assert 0 == convert("in.jsonl", "--no-lines", *TO_CHAT).exit_code
    assert 1 == convert("in.jsonl", *TO_CHAT).exit_code


def test_blank_lines_carriage_returns_and_a_missing_last_newline_make_no_difference() -> None:
    first, second = (json.dumps(body).encode() for body in (CHAT, MESSAGES))
    plain = convert("--lines", *TO_CHAT, stdin=first + b"\n" + second + b"\n").stdout
    assert plain == convert("--lines", *TO_CHAT, stdin=b"\n" + first + b"\r\n \t\r\n\n" + second).stdout


def test_a_bare_list_of_messages_is_a_row() -> None:
    result = convert("--lines", "--to", "rwkv-universal", "--view", "prompt", stdin=rows(CHAT["messages"]))
    assert {"text": "<<USER>>\nHi\n<<USER_END>>"} == json.loads(result.stdout)


@pytest.mark.parametrize("source", ["auto", "rwkv-universal"])
def test_a_transcript_is_read_from_the_text_of_a_row(source: str) -> None:
    result = convert("--lines", "--from", source, *TO_CHAT, stdin=rows(TEXT))
    assert ["Be brief.", "Hi", "Hello."] == [message["content"] for message in json.loads(result.stdout)["messages"]]
    back = convert("--lines", "--to", "rwkv-universal", stdin=result.stdout)
    assert TEXT == json.loads(back.stdout)


@pytest.mark.parametrize("start", [b"", b"  ", b"\xef\xbb\xbf"])
def test_blanks_or_a_byte_order_mark_before_a_row_change_nothing(start: bytes) -> None:
    assert 0 == convert("--lines", *TO_CHAT, stdin=start + rows(TEXT)).exit_code
    assert 0 == convert("--lines", *TO_CHAT, stdin=start + rows(CHAT)).exit_code


def test_an_api_body_with_a_text_setting_is_no_transcript() -> None:
    body = {"model": "m", "input": "Hi", "text": {"verbosity": "low"}}
    assert body == json.loads(convert("--lines", "--to", "openai-responses", stdin=rows(body)).stdout)
    assert 0 == convert("--lines", *TO_CHAT, stdin=rows(CHAT | {"text": "a note"})).exit_code


def test_what_else_a_row_with_a_transcript_holds_is_a_loss() -> None:
    result = convert("--lines", *TO_CHAT, "--losses", "lost.jsonl", stdin=rows(TEXT, TEXT | {"id": 7, "source": "x"}))
    assert 0 == result.exit_code
    assert [(2, "$.id"), (2, "$.source")] == [(loss["row"], loss["path"]) for loss in read_rows(Path("lost.jsonl"))]


@pytest.mark.parametrize(
    ("row", "path", "reason"),
    [
        (b'{"txt": "x"}', "$.text", "a row in a format is an object whose member 'text' is a string"),
        (b'{"text": 5}', "$.text", "here it is a number"),
        (b'{"text": "<<USER>>\\n\\ud800"}', "", "half of a surrogate pair"),
        (b'"text"', "$", "expected an object, got a string"),
        (b'{"text": "\xff"}', "", "byte 0xff is not UTF-8"),
        (b'{"text": "x', "", "not valid JSON: the input ends in the middle of a value (column 12)"),
        (rows({"text": "<<USER>>\nHi\n<<USER_END>>\nstray"}).strip(), "$.text", "line 4, column 1 of the transcript: "),
    ],
)
def test_a_row_that_holds_no_transcript_is_rejected(row: bytes, path: str, reason: str) -> None:
    result = convert("--lines", "--from", "rwkv-universal", *TO_CHAT, stdin=rows(TEXT) + row + b"\n" + rows(TEXT))
    assert (1, 2) == (result.exit_code, len(result.stdout.splitlines()))
    (reject,) = read_rows(Path("turnscript.rejects.jsonl"))
    assert (2, path) == (reject["line"], reject["path"])
    assert reason in reject["reason"]
    assert base64.b64decode(reject.get("row_base64", "")) in (b"", row)


def test_a_rejected_row_says_its_file_line_column_and_path_on_stderr() -> None:
    Path("in.jsonl").write_bytes(rows(CHAT) + b'\n{"messages": [{"role": 5}]}\n{"mess\n')
    result = convert("in.jsonl", "--from", "openai-chat", *TO_CHAT)
    assert "turnscript: error: in.jsonl:3: $.messages[0].role: " in result.stderr
    assert "turnscript: error: in.jsonl:4:7: not valid JSON: " in result.stderr


def test_only_the_first_rejects_are_shown() -> None:
    result = convert("--lines", *TO_CHAT, stdin=b"{\n" * 12)
    assert 5 == result.stderr.count("turnscript: error: ")
    assert "  and 7 more\n" in result.stderr
    assert "turnscript: 0 rows converted, 12 rejected, no losses\n" in result.stderr
    assert 12 == len(read_rows(Path("turnscript.rejects.jsonl")))


def test_quiet_still_tells_errors_and_where_the_rejects_are() -> None:
    result = convert("--lines", "--quiet", *TO_CHAT, stdin=rows(LOSSY) + b"{\n")
    assert 2 == result.stderr.count("turnscript: ")
    assert "the rejected rows are in turnscript.rejects.jsonl" in result.stderr
    assert "" == convert("--lines", "--quiet", *TO_CHAT, stdin=rows(LOSSY)).stderr


def test_rejects_go_where_they_are_wanted_and_that_file_is_there_even_if_empty() -> None:
    assert 1 == convert("--lines", *TO_CHAT, "--rejects", "bad.jsonl", stdin=b"{\n").exit_code
    assert 1 == len(read_rows(Path("bad.jsonl")))
    assert 0 == convert("--lines", *TO_CHAT, "--rejects", "bad.jsonl", stdin=rows(CHAT)).exit_code
    assert b"" == Path("bad.jsonl").read_bytes()
    assert ["bad.jsonl"] == os.listdir()


def test_rejects_of_an_earlier_run_are_left_alone_and_called_so() -> None:
    convert("--lines", *TO_CHAT, "--output", "out.jsonl", stdin=b"{\n")
    result = convert("--lines", *TO_CHAT, "--output", "out.jsonl", stdin=rows(CHAT))
    assert (0, True) == (result.exit_code, Path("out.jsonl.rejects.jsonl").exists())
    assert "turnscript: out.jsonl.rejects.jsonl is of an earlier run\n" in result.stderr


def test_rejects_beside_a_device_go_to_the_working_folder() -> None:
    convert("--lines", *TO_CHAT, "--output", os.devnull, stdin=b"{\n")
    assert ["turnscript.rejects.jsonl"] == os.listdir()


def test_rows_can_be_converted_in_place() -> None:
    Path("in.jsonl").write_bytes(rows(MESSAGES, MESSAGES))
    assert 0 == convert("in.jsonl", *TO_CHAT, "--output", "in.jsonl").exit_code
    assert ["system", "user"] * 2 == [
        message["role"] for row in read_rows(Path("in.jsonl")) for message in row["messages"]
    ]


def test_losses_of_rows_carry_their_line_and_are_reported_once_for_all() -> None:
    result = convert("--lines", *TO_CHAT, "--losses", "lost.jsonl", stdin=b"\n" + rows(LOSSY, CHAT, LOSSY))
    assert [2, 4] == [loss["row"] for loss in read_rows(Path("lost.jsonl"))]
    assert "3 rows converted, 0 rejected, 2 losses: 2 dropped\n" in result.stderr
    assert "  $.top_k: dropped: openai-chat has no such setting (2 times, first in line 2)\n" in result.stderr


def test_very_many_different_losses_are_counted_and_not_kept() -> None:
    data = b"".join(rows(LOSSY | {f"k{number}": 1}) for number in range(5_100))
    result = convert("--lines", "--from", "anthropic-messages", *TO_CHAT, stdin=data)
    assert "10200 losses: 10200 dropped\n" in result.stderr
    assert result.stderr.endswith("  and 5081 more; --losses FILE writes all\n")


def test_losses_on_standard_output_follow_all_rows() -> None:
    result = convert("--lines", *TO_CHAT, "--losses", "-", stdin=rows(LOSSY, LOSSY))
    assert [False, False, True, True] == ["kind" in json.loads(line) for line in result.stdout.splitlines()]


def test_under_strict_a_lossy_row_is_rejected_and_the_exit_code_is_3() -> None:
    result = convert("--lines", "--strict", *TO_CHAT, "--losses", "lost.jsonl", stdin=rows(CHAT, LOSSY, CHAT))
    assert (3, 2) == (result.exit_code, len(result.stdout.splitlines()))
    (reject,) = read_rows(Path("turnscript.rejects.jsonl"))
    assert ("lossy_conversion", "$.top_k", 2) == (reject["code"], reject["path"], reject["line"])
    assert LOSSY == json.loads(reject["row"])
    assert "turnscript: error: <stdin>:2: $.top_k: dropped under --strict: " in result.stderr
    assert [2] == [loss["row"] for loss in read_rows(Path("lost.jsonl"))]


def test_under_strict_a_bad_row_beside_lossy_ones_makes_it_1() -> None:
    assert 1 == convert("--lines", "--strict", *TO_CHAT, stdin=rows(LOSSY) + b"{\n" + rows(CHAT)).exit_code


def test_no_rows_at_all_are_no_error() -> None:
    for data in (b"", b"\n\n \r\n"):
        Path("in.jsonl").write_bytes(data)
        result = convert("in.jsonl", *TO_CHAT)
        assert (0, "", "turnscript: 0 rows converted, 0 rejected, no losses\n") == (
            result.exit_code,
            result.stdout,
            result.stderr,
        )


@pytest.mark.deep
def test_a_row_of_many_megabytes_is_converted() -> None:
    long = "ü " * 10_000_000
    data = rows({"model": "m", "messages": [{"role": "user", "content": long}]}, CHAT)
    result = convert("--lines", "--to", "rwkv-universal", "--view", "prompt", stdin=data)
    assert {"text": f"<<USER>>\n{long}\n<<USER_END>>"} == json.loads(result.stdout.splitlines()[0])


@pytest.mark.deep
def test_rows_behind_blank_lines_are_found_in_time_in_proportion_to_these() -> None:
    def reading(count: int) -> Callable[[], object]:
        path = Path(f"{count}.txt")
        path.write_bytes(b"\n" * count + rows(MESSAGES, MESSAGES))

        def read() -> None:
            with Source(str(path)) as source:
                assert source.has_rows()
                assert [count + 1, count + 2] == [row.line for row in source.rows()]

        return read

    assert_grows_below(9, reading, 50_000, 200_000, least=0.005)
