"""Documents that are files, and texts with a hole, from the command line: every block of OpenChatML that is one."""

import json
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.cli.running import convert, read_rows, rows, run

GOLDEN = Path(__file__).parents[1] / "golden" / "openchatml"
# The two forms that the document gives (R-O-24, R-O-26) and its six examples (R-O-37, R-O-38, R-O-40, R-O-41).
BLOCKS = {
    "fim": "<|fim_prefix|>prefix_content<|fim_middle|><|fim_suffix|>suffix_content",
    "files": "file1_content\n<|file_separator|>\nfile2_content\n<|file_separator|>\nfile3_content",
} | {
    name: (GOLDEN / f"{name}.txt").read_bytes().decode()
    for name in ("o08_fim", "o09_files", "o11_fim", "o11_completion", "o12_files", "o12_completion")
}
HOLE = {"files": ["one", {"prefix": "P", "suffix": "S"}]}
BODY = {"model": "m", "prompt": "P", "suffix": "S"}
MARKS = "<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>"


def body(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def as_json(text: str, *options: str) -> Any:
    """A text as files in JSON."""
    result = convert("--to", "files", *options, stdin=text.encode())
    assert 0 == result.exit_code, result.stderr
    return json.loads(result.stdout)


# Every block of the document.


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_of_the_document_is_read_and_written_again_byte_for_byte(name: str) -> None:
    """Recognised, or as the format that is named."""
    shape = as_json(BLOCKS[name])
    assert shape == as_json(BLOCKS[name], "--from", "openchatml")
    back = convert("--to", "openchatml", "--strict", stdin=body(shape))
    assert (0, BLOCKS[name]) == (back.exit_code, back.stdout)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("order", ["spec", "psm", "spm", "rwkv"])
def test_a_block_goes_through_every_order_and_back(name: str, order: str) -> None:
    """What an order does not mark is told: then it is among the losses, and strict refuses it."""
    written = convert("--from", "openchatml", "--to", "openchatml", "--order", order, stdin=BLOCKS[name].encode())
    strict = convert("--to", "openchatml", "--order", order, "--strict", stdin=BLOCKS[name].encode())
    options = ("--from", "openchatml", "--from-order", order, "--to", "openchatml", "--order", "spec")
    back = convert(*options, stdin=written.stdout.encode())
    is_whole = "no losses" in written.stderr
    assert (is_whole, 0 if is_whole else 3) == (back.stdout == BLOCKS[name], strict.exit_code)
    assert is_whole or (order in ("spm", "rwkv") and name.endswith("completion"))


@pytest.mark.parametrize("name", ["o08_fim", "o11_fim", "o11_completion", "o12_files", "o12_completion"])
def test_a_hole_of_the_document_is_written_for_a_model_to_fill(name: str) -> None:
    result = run("prompt", "--format", "openchatml", stdin=BLOCKS[name].encode())
    sequence = ts.get_format("openchatml").parse_files(BLOCKS[name])
    assert (0, ts.get_format("openchatml").fill_prompt(sequence).text) == (result.exit_code, result.stdout)


def test_a_document_without_a_hole_is_no_prompt() -> None:
    result = run("prompt", "--format", "openchatml", stdin=BLOCKS["o09_files"].encode())
    assert (1, "") == (result.exit_code, result.stdout)
    assert "there is no hole to fill" in result.stderr


# What is read.


@pytest.mark.parametrize(
    ("source", "options", "expected"),
    [
        (body(HOLE), (), f"one\n<|file_separator|>\n{MARKS}"),
        (body({**HOLE, "leading": True}), (), f"<|file_separator|>\none\n<|file_separator|>\n{MARKS}"),
        (body(BODY), (), MARKS),
        (body(BODY), ("--from", "openai-completions"), MARKS),
        (MARKS.encode(), (), MARKS),
        (b"\xef\xbb\xbf" + MARKS.encode(), ("--from", "openchatml"), MARKS),
        ("✿prefix✿✿suffix✿S✿middle✿P".encode(), ("--from", "rwkv-goose"), MARKS),
        ("✿prefix✿✿suffix✿S✿middle✿P".encode(), (), MARKS),
    ],
)
def test_whatever_holds_files_is_written_in_the_order_that_is_asked_for(
    source: bytes, options: tuple[str, ...], expected: str
) -> None:
    result = convert(*options, "--to", "openchatml", "--order", "psm", stdin=source)
    prompt = run("prompt", *options, "--format", "openchatml", stdin=source)
    assert (0, expected) == (result.exit_code, result.stdout)
    assert (0, expected) == (prompt.exit_code, prompt.stdout)


def test_a_prompt_says_what_ends_the_middle_and_how_much_of_it_is_there() -> None:
    files = {"files": [{"prefix": "P", "suffix": "S", "middle": "m"}]}
    options = ("--format", "rwkv-goose", "--order", "rwkv", "--json")
    record = json.loads(run("prompt", *options, stdin=body(files)).stdout)
    stops = ["✿prefix✿", "✿suffix✿", "✿middle✿"]
    assert ("✿prefix✿✿suffix✿S✿middle✿Pm", "m", stops) == (record["prompt"], record["prefill"], record["stops"])
    assert ["files[0].middle"] == [loss["path"] for loss in record["losses"]]


def test_what_a_body_asks_beside_its_hole_is_a_loss() -> None:
    result = convert("--to", "openchatml", stdin=body(BODY | {"max_tokens": 3, "odd": 1}))
    assert "3 losses: 3 dropped" in result.stderr
    assert all(f"$.{key}" in result.stderr for key in ("model", "max_tokens", "odd"))


def test_rows_may_be_files_too() -> None:
    source = rows(HOLE, {"text": MARKS}, BODY, {"messages": [{"role": "user", "content": "Hi"}]})
    result = convert("--to", "openchatml", stdin=source)
    texts = [json.loads(line)["text"] for line in result.stdout.splitlines()]
    spec = "<|fim_prefix|>P<|fim_middle|><|fim_suffix|>S"
    assert [f"one\n<|file_separator|>\n{spec}", spec, spec] == texts[:3]
    assert texts[3].startswith("[BOS]<|im_start|>user")


def test_rows_that_are_no_files_are_set_aside_with_the_place(tmp_path: Path) -> None:
    rejects = tmp_path / "rejects.jsonl"
    result = convert("--to", "openchatml", "--rejects", rejects, stdin=rows(HOLE, {"files": ["a", {"prefix": "b"}]}))
    assert (1, ["$.files[1]"]) == (result.exit_code, [row["path"] for row in read_rows(rejects)])


# Which order a text is in.


def test_where_two_orders_fit_the_first_is_read_and_the_other_is_named() -> None:
    text = b"<|fim_prefix|><|fim_suffix|>S<|fim_middle|>P"
    for options in ((), ("--from", "openchatml")):
        result = convert(*options, "--to", "files", stdin=text)
        assert {"files": [{"prefix": "", "suffix": "S", "middle": "P"}]} == json.loads(result.stdout)
        assert "in the order 'psm', and would be another one in 'spm' (--from-order)" in result.stderr
    result = convert("--from", "openchatml", "--from-order", "spm", "--to", "files", stdin=text)
    assert {"files": [{"prefix": "P", "suffix": "S"}]} == json.loads(result.stdout)
    assert "would be another" not in result.stderr


def test_what_a_text_was_taken_for_is_told_with_its_mark() -> None:
    result = convert("--to", "files", stdin=BLOCKS["files"].encode())
    assert "read as files of openchatml: it has '<|file_separator|>'" in result.stderr


def test_files_that_begin_as_a_conversation_are_not_guessed() -> None:
    text = b"User: Hi\n<|file_separator|>\nb"
    refused = convert("--to", "files", stdin=text)
    assert (1, True) == (refused.exit_code, "files of openchatml or rwkv-goose" in refused.stderr)
    assert {"files": ["User: Hi", "b"]} == as_json(text.decode(), "--from", "openchatml")


def test_a_conversation_of_a_format_with_files_stays_one() -> None:
    text = "<|im_start|>user\nWhat is <\\|file_separator|>?\n<|im_end|>"
    result = convert("--from", "openchatml", "--to", "openai-chat", stdin=text)
    assert "What is <|file_separator|>?" == json.loads(result.stdout)["messages"][0]["content"]


# What is refused.


def test_a_text_with_a_hole_alone_is_a_body_of_completions() -> None:
    """And back: `prompt` and `suffix` are a hole wherever they are read."""
    for source in ({"files": [{"prefix": "P", "suffix": "S"}]}, {"prompt": "P", "suffix": "S"}):
        result = convert("--to", "openchatml", stdin=body(source))
        back = convert("--to", "openai-completions", stdin=result.stdout.encode())
        assert (0, {"prompt": "P", "suffix": "S"}) == (back.exit_code, json.loads(back.stdout))
        assert "no losses" in back.stderr
    written = {"files": [{"prefix": "P", "suffix": "S", "middle": "M"}]}
    result = convert("--to", "openai-completions", stdin=body(written))
    assert "$.files[0].middle: dropped: a request asks for it" in result.stderr
    several = convert("--to", "openai-completions", stdin=body(HOLE))
    assert (1, "") == (several.exit_code, several.stdout)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ({"files": []}, "$.files"),
        ({"files": "a"}, "$.files"),
        ({"files": ["a", 3]}, "$.files[1]"),
        ({"files": ["a", {"prefix": "b"}]}, "$.files[1]"),
        ({"files": [{"prefix": "b", "suffix": None}]}, "$.files[0].suffix"),
        ({"files": [{"prefix": "b", "suffix": "c", "centre": "d"}]}, "$.files[0].centre"),
        ({"files": [{"prefix": "b", "suffix": "c"}, "d"]}, "$.files[0]"),
        ({"files": ["a"], "leading": 1}, "$.leading"),
    ],
)
def test_a_fault_in_the_json_is_named_with_its_path(source: object, path: str) -> None:
    for options in ((), ("--from", "files")):
        result = convert(*options, "--to", "openchatml", stdin=body(source))
        assert (1, "") == (result.exit_code, result.stdout)
        assert f"<stdin>: {path}:" in result.stderr


@pytest.mark.parametrize(
    ("options", "source", "said"),
    [
        (("--to", "openai-chat"), HOLE, "openai-chat has no place for them; choose 'files', or a format"),
        (("--to", "qwen3"), HOLE, "openchatml"),
        (("--to", "rwkv-goose"), HOLE, "nothing that stands between files"),
        (("--to", "files"), {"messages": [{"role": "user", "content": "Hi"}]}, "a conversation, and neither files"),
        (("--to", "openchatml", "--order", "psm"), {"messages": []}, "leave --order out"),
        (("--to", "openchatml", "--order", "smp"), HOLE, "did you mean 'spm'"),
        (("--to", "openai-chat", "--order", "psm"), HOLE, "--order is for a format with orders of a hole"),
        (("--to", "files", "--order", "psm"), HOLE, "--order is for APIs and formats"),
        (("--to", "openchatml", "--from-order", "psm"), HOLE, "--from is auto"),
        (("--to", "openai-chat", "--stream"), HOLE, "no place for them"),
        (("--to", "files", "--stream"), HOLE, "--stream writes what an API sends"),
        (("--from", "openchatml", "--to", "files"), "<|fim_prefix|>P<|fim_suffix|>S", "<|fim_middle|> is missing here"),
    ],
)
def test_what_cannot_be_is_said(options: tuple[str, ...], source: Any, said: str) -> None:
    result = convert(*options, stdin=source if isinstance(source, str) else body(source))
    assert (True, "") == (result.exit_code > 0, result.stdout)
    assert said in result.stderr


@pytest.mark.parametrize(
    ("options", "source", "said"),
    [
        (("--format", "openchatml", "--order", "spec"), HOLE, "cannot go on in the fill order 'spec'"),
        (("--format", "ai00-v1", "--order", "psm"), HOLE, "ai00-v1 has no orders of a hole"),
        (("--format", "ai00-v1"), HOLE, "has no words for files and texts with a hole"),
        (("--format", "openchatml", "--thinking"), HOLE, "without thoughts"),
        (("--format", "openchatml", "--order", "psm"), {"messages": []}, "this is a conversation"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(options: tuple[str, ...], source: object, said: str) -> None:
    result = run("prompt", *options, stdin=body(source))
    assert (True, "") == (result.exit_code > 0, result.stdout)
    assert said in result.stderr


def test_a_model_s_middle_is_read_with_the_files_that_asked_for_it(tmp_path: Path) -> None:
    path = tmp_path / "files.json"
    path.write_bytes(body(HOLE))
    result = run("read", "--format", "openchatml", "--request", path, "--json", stdin="m<|file_separator|>x")
    assert [{"type": "text", "text": "m"}] == json.loads(result.stdout)["items"]
