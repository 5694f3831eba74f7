"""What people give in place of a body is told for what it is, with what to do about it."""

import gzip
import json
from typing import Any

import pytest

from tests.cli.running import CHAT, convert, rows, run

BODY = json.dumps(CHAT)
LISTS = "--from NAME says what it is; `turnscript apis` and `turnscript formats` list the names"

BEGINNINGS = [
    (gzip.compress(BODY.encode(), mtime=0), "this is gzip: unpack it first, as `gzip -dc FILE` does"),
    (b"\x28\xb5\x2f\xfd\x04\x00", "this is zstd: unpack it first, as `zstd -dc FILE` does"),
    (b"PK\x03\x04\xff", "this is a zip archive: unpack it first"),
    (BODY.encode("utf-16-le"), "this looks like UTF-16, convert it to UTF-8 first"),
    (f"curl https://api.test/v1 -d '{BODY}'".encode(), "this is a command: give what it sends alone"),
    (f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n{BODY}".encode(), "this is a request with its head"),
    (b"<!DOCTYPE html><html><body>502 Bad Gateway</body></html>", "this is a page and no answer of an API"),
    (b"<html>\n<head>", "this is a page and no answer of an API"),
    (f"```json\n{BODY}\n```".encode(), "leave out the lines with ```"),
    (f"// mine\n{BODY}".encode(), "JSON has no comments"),
    (f"'{BODY}'".encode(), "leave out the quotes around the JSON"),
]
SLIPS = [
    (repr(CHAT), "strings of JSON are in double quotes; Python's json.dumps writes them so"),
    ("{\"a\": 'b'}", "strings of JSON are in double quotes"),
    ('{\n  /* why */ "a": 1}', "JSON has no comments: leave them out"),
    ('{"a": 1, # why\n "b": 2}', "JSON has no comments: leave them out"),
    ('{"stream": True}', "JSON writes true, false and null"),
    ('{"stream": None}', "JSON writes true, false and null"),
    ('{"temperature": NaN}', "JSON has neither NaN nor Infinity"),
    ("{\u201cmessages\u201d: []}", "these quotes are typographic"),
    ('{"messages": "a\nb"}', "in a string, JSON writes a line break as \\n and a tab as \\t"),
]


def remedy(data: bytes, *arguments: str) -> str:
    result = convert(*arguments, "--to", "openai-responses", stdin=data)
    assert (1, "") == (result.exit_code, result.stdout)
    first, second = result.stderr.splitlines()
    assert first.startswith("turnscript: error: <stdin>:")
    return second.removeprefix("  ")


@pytest.mark.parametrize(("data", "advice"), BEGINNINGS, ids=lambda value: repr(value)[:30])
def test_what_begins_as_something_else_is_told_for_that(data: bytes, advice: str) -> None:
    assert remedy(data, "--no-lines").startswith(advice)


def test_a_page_is_not_taken_for_the_name_of_a_file() -> None:
    assert "not its name" not in convert("--to", "openai-chat", stdin="<html><body>a/b</body></html>").stderr


@pytest.mark.parametrize(("text", "advice"), SLIPS)
def test_a_slip_of_json_is_told_where_it_is(text: str, advice: str) -> None:
    assert remedy(text.encode(), "--no-lines").startswith(advice)


@pytest.mark.parametrize("text", ["'Tis a text.", "# A heading\n\nA text."])
def test_a_text_is_not_told_how_to_become_json(text: str) -> None:
    assert LISTS == remedy(text.encode())


WRAPPED: list[tuple[Any, str]] = [
    ({"custom_id": "1", "body": CHAT}, "$.body is of openai-chat: give that alone"),
    (
        {"log": {"entries": [{"request": {"postData": {"text": BODY}}}]}},
        "the text at $.log.entries[0].request.postData.text is of openai-chat: give that alone",
    ),
    (BODY, "this is JSON with the JSON of openai-chat in it: give that alone"),
    ([CHAT, CHAT], "this is a list of bodies: write each on a line of its own, as `jq -c '.[]' FILE` does"),
    ({"colour": {"red": [1, 2, "{"]}}, LISTS),
    ("{\ud800", LISTS),
]


@pytest.mark.parametrize(("value", "advice"), WRAPPED, ids=lambda value: repr(value)[:30])
def test_where_a_body_stands_in_what_holds_it_is_told(value: Any, advice: str) -> None:
    assert advice == remedy(json.dumps(value).encode())


def test_nothing_is_looked_for_without_end() -> None:
    deep = b'{"a":' * 900 + BODY.encode() + b"}" * 900
    assert LISTS == remedy(deep)
    assert LISTS == remedy(json.dumps({"a": [[]] * 100_000 + [CHAT]}).encode())


def test_a_row_is_told_the_same() -> None:
    result = convert("--to", "openai-responses", "--lines", "--rejects", "/dev/null", stdin=rows({"body": CHAT}))
    assert "\n  $.body is of openai-chat: give that alone\n" in result.stderr


def test_a_document_over_several_lines_is_told_from_rows() -> None:
    text = json.dumps(CHAT, indent=1)
    result = convert("--to", "openai-responses", "--lines", "--rejects", "/dev/null", stdin=text)
    assert "\n  if the file is one document over several lines, add --no-lines\n" in result.stderr


def test_prompt_tells_it_as_well() -> None:
    result = run("prompt", "--format", "rwkv-goose", stdin=json.dumps({"body": CHAT}))
    assert "\n  $.body is of openai-chat: give that alone\n" in result.stderr
