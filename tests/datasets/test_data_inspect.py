"""`turnscript data inspect`: what a file holds and how that is known, for every kind of file, and nothing written."""

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.running import EXAMPLES, read_rows, rows, run
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.looking import look
from turnscript.datasets.opened import Row, open_rows
from turnscript.datasets.problems import Code

ROWS = EXAMPLES / "training_rows.jsonl"
GOOD = [json.loads(line) for number, line in enumerate(ROWS.read_text().splitlines(), 1) if number not in (7, 8, 10)]
ODD = [{"weather": 7, "wind": "north"}] * 3


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.jsonl").write_bytes(rows(*GOOD))
    Path("odd.jsonl").write_bytes(rows(*ODD))


def test_a_file_is_told_with_its_form_its_fields_and_its_items() -> None:
    result = run("data", "inspect", "good.jsonl")
    assert (0, "") == (result.exit_code, result.stderr)
    for expected in (
        "good.jsonl: lines, ",
        "form     messages (",
        "100% of 7 rows",
        "because  ",
        "fields   messages 7",
    ):
        assert expected in result.stdout
    assert "items    assistant 11, user 10, system 1, tool_call 1, tool_result 1; 1 row declares tools" in result.stdout


def test_rows_that_cannot_be_read_are_told_by_code_and_make_the_exit_code() -> None:
    result = run("data", "inspect", ROWS)
    assert 1 == result.exit_code
    assert "E_JSON  1 row; the first is row 8: " in result.stdout
    assert "another is" not in result.stdout
    assert "E_ARGS  1 row; the first is row 7: $.messages[1].tool_calls[0]" in result.stdout


def test_each_different_message_has_an_example_and_not_each_code_or_value() -> None:
    """Here and at the end of a build, of which programs get them too."""
    texts = [7, 8, {"a": 1}, None]
    bad = [{"messages": [{"role": "user", "content": text}, {"role": "assistant", "content": "Yo"}]} for text in texts]
    bad += [{"messages": [{"role": who, "content": "Hi"}]} for who in ("robot", "alien")]
    Path("bad.jsonl").write_bytes(rows(*GOOD, *bad))
    first = len(GOOD) + 1
    told = run("data", "inspect", "bad.jsonl", "--from", "messages").stdout
    assert f"E_SHAPE  4 rows; the first is row {first}: " in told
    assert f"another is row {first + 3}: $.messages[0].content: the message has no content" in told
    assert 2 == told.count("another is") + told.count("'alien'")
    options = ["--from", "messages", "--to", "rwkv-goose", "--tokenizer", "bytes"]
    checked = run("data", "check", "bad.jsonl", *options).stdout
    places = [line.split(": ")[0].strip() for line in checked.splitlines() if line.startswith("  bad.jsonl:")]
    assert {f"bad.jsonl:{first + at}" for at in (0, 2, 3, 4)} == set(places)
    found = json.loads(run("data", "check", "bad.jsonl", *options, "--json").stdout)
    assert found["rejects"]["E_ROLE"]["line"] == first + 4
    assert [1, 3] == sorted(len(one) for one in found["reject_messages"].values())


def test_a_form_that_cannot_be_told_is_refused_with_what_to_do() -> None:
    result = run("data", "inspect", "odd.jsonl", "good.jsonl")
    assert 1 == result.exit_code
    first, second = result.stdout.split("\n\n")
    assert "'weather' (3)" in first
    assert "--from FORM" in first
    assert "form     messages" in second, "the other files are looked at nevertheless"


def test_programs_get_the_same_as_json() -> None:
    result = run("data", "inspect", "good.jsonl", "odd.jsonl", "--json")
    good, odd = json.loads(result.stdout)
    assert ("good.jsonl", "lines", "none", "messages", 7) == tuple(
        good[name] for name in ("file", "container", "compression", "form", "rows")
    )
    assert {"user": 10, "assistant": 11, "system": 1, "tool_call": 1, "tool_result": 1} == good["items"]
    assert ("", True) == (odd["form"], bool(odd["refusal"]))
    assert {"weather": 3, "wind": 3} == odd["fields"]


def test_a_compressed_file_and_an_array_hold_the_same_rows() -> None:
    Path("good.jsonl.gz").write_bytes(gzip.compress(rows(*GOOD), mtime=0))
    Path("good.json").write_text(json.dumps(GOOD), encoding="utf-8")
    plain, packed, array = (look(name) for name in ("good.jsonl", "good.jsonl.gz", "good.json"))
    assert ("lines", "gzip", "array") == (plain.container, packed.compression, array.container)
    assert plain.items == packed.items == array.items
    assert plain.form == packed.form == array.form


def test_the_form_can_be_said_and_a_wrong_one_shows() -> None:
    assert "messages" == look("good.jsonl", "messages").form
    found = look("good.jsonl", "sharegpt")
    assert 7 == sum(found.problems.values())
    assert 1 == run("data", "inspect", "good.jsonl", "--from", "sharegpt").exit_code


def test_an_unknown_form_is_wrong_usage_with_the_nearest_name() -> None:
    result = run("data", "inspect", "good.jsonl", "--from", "message")
    assert 2 == result.exit_code
    assert "unknown form 'message'; did you mean 'messages'" in result.stderr
    assert "turnscript formats" not in result.stderr, "that lists other names"


@pytest.mark.parametrize("path", ["nothing.jsonl", "no*.jsonl"])
def test_a_file_that_is_not_there_is_bad_input_with_a_remedy(path: str) -> None:
    result = run("data", "inspect", path)
    assert 1 == result.exit_code
    assert path in result.stderr
    assert "check" in result.stderr


def test_a_folder_is_all_its_files() -> None:
    Path("chats").mkdir()
    for name in ("a.jsonl", "b.jsonl"):
        Path("chats", name).write_bytes(rows(*GOOD))
    found = json.loads(run("data", "inspect", "chats", "--json").stdout)
    assert ["chats/a.jsonl", "chats/b.jsonl"] == [one["file"] for one in found]


def test_nothing_is_written() -> None:
    before = sorted(path.name for path in Path().iterdir())
    run("data", "inspect", "good.jsonl", "odd.jsonl")
    assert before == sorted(path.name for path in Path().iterdir())


def test_a_row_cannot_write_on_the_terminal() -> None:
    Path("odd.jsonl").write_bytes(rows({"\x1b[2J": 1}))
    result = run("data", "inspect", "odd.jsonl")
    assert "\x1b" not in result.stdout
    assert "\\x1b[2J" in result.stdout


# Rows without a plan.


def test_every_row_is_opened_as_examples_or_as_a_problem() -> None:
    found = list(open_rows(str(ROWS)))
    assert list(range(1, 11)) == [row.line for row in found]
    assert {7: Code.ARGS, 8: Code.JSON} == {row.line: row.problem.code for row in found if row.problem}
    assert all(bool(row.examples) != bool(row.problem) for row in found)
    assert all(ROWS.read_bytes()[row.byte :].startswith(b'{"messages"') for row in found)


def test_rows_are_read_one_at_a_time() -> None:
    opened = open_rows("good.jsonl")
    first = next(opened)
    assert isinstance(first, Row)
    assert ["system", "user", "assistant"] == [item.kind for item in first.examples[0].request.conversation.items]
    Path("good.jsonl").write_bytes(b"")  # what is not read yet is not in memory, or was read ahead: no error


def test_nothing_in_a_row_raises() -> None:
    bad = [b"{", b"7", b'{"messages": 7}', b"\xff\xfe", b'{"messages": [' + b'{"a":' * 5000, b"null", b'"\\ud800"']
    Path("bad.jsonl").write_bytes(b"\n".join(bad) + b"\n")
    found = list(open_rows("bad.jsonl", "messages"))
    assert len(bad) == len(found)
    assert all(row.problem is not None and row.problem.message for row in found)


def test_a_file_whose_form_cannot_be_told_is_an_error_at_once() -> None:
    with pytest.raises(InvalidInput, match="--from FORM"):
        open_rows("odd.jsonl")
    with pytest.raises(UnknownName):
        open_rows("good.jsonl", "message")


def test_the_rows_of_the_example_are_as_its_page_says() -> None:
    assert len(ROWS.read_text().splitlines()) == 10
    assert read_rows(Path("good.jsonl"))[1] == read_rows(Path("good.jsonl"))[5], "one is there twice"
