"""`turnscript check`: all faults of a transcript with their places, the difference to what the format writes, codes."""

import json
import re
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import CHAT, TRANSCRIPT, run
from tests.cli.test_processes import on_terminal
from turnscript.convert.format_reference import example

FAULTY = """<<SYS>>
Sei kürz 🙂.

<<USER nme="x>>
What is ☃?
<<USER_END>>

stray

<<TOOL_CALL name="f">>
{"☃": "Tokyo",
 "x": 1,}
<<END_TOOL_CALL>>

<<ASSISTANT>>
hi
<<USER_END>>
<<ASSISTANT_END>>
<<USER_END>>
"""
PLACES = [(4, 1), (4, 12), (8, 1), (12, 9), (17, 1), (19, 1)]
MIXED = """[BOS]<|im_start|>system
You are brief.
<|im_start|>user mood=Ann name=Bob name=Ann
Wetter in Zürich 🙂?
<|im_end|>
<|im_strt|>tool
<|im_end|>
<|im_start|>tool
<|function_output|>
{"name": "f",
 "content": }
<|im_end|>
<|im_start|>assistant
Ähm <|function_output|> x
<|function_call|>
{"arguments": {"city": "Zürich" "x"}, "name": "f"}
<|function_call|>
{"arguments": {}, "name": "f"}
<|im_end|>[EOS]"""
MIXED_PLACES = [(3, 1), (3, 18), (3, 36), (6, 1), (11, 13), (16, 33)]


def named(text: str) -> list[tuple[int, int]]:
    """The places in what is printed."""
    lines = [line.split(":", 4) for line in text.splitlines() if line.startswith("<stdin>:")]
    return [(int(line), int(column)) for _, line, column, *_ in lines]


@pytest.mark.parametrize("name", [*ts.formats(), "qwen3", "harmony", "mistral-v7"])
def test_what_a_format_writes_is_clean(name: str) -> None:
    transcript = str(ts.get_format(name).render(example()).value)
    for ending in ("", "\n"):
        result = run("check", "-", "--format", name, stdin=transcript + ending)
        assert (0, "", "turnscript: <stdin>: nothing found\n") == (result.exit_code, result.stdout, result.stderr)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("format_", "text", "places"), [("rwkv-universal", FAULTY, PLACES), ("openchatml", MIXED, MIXED_PLACES)]
)
def test_all_faults_are_named_at_once(format_: str, text: str, places: list[tuple[int, int]], ending: str) -> None:
    """In characters, whatever the lines end in, and in the middle of payloads."""
    result = run("check", "-", "--format", format_, stdin=text.replace("\n", ending).encode())
    assert 1 == result.exit_code
    assert places == named(result.stdout)
    assert f"turnscript: <stdin>: {len(places)} faults; how the format writes it" in result.stderr
    assert "---" not in result.stdout


def test_each_fault_says_what_it_is() -> None:
    lines = run("check", "-", "--format", "openchatml", stdin=MIXED).stdout.splitlines()
    assert all(": fault: " in line for line in lines)
    for line, words in zip(
        lines,
        [
            "<|im_start|>user before <|im_end|>",
            "'mood=Ann' is no attribute",
            "the attribute 'name' is given twice",
            "a turn must begin here",
            "a tool output must be one JSON object",
            "the call's JSON is broken",
        ],
        strict=True,
    ):
        assert words in line


def test_a_mark_in_a_text_is_named() -> None:
    text = "[BOS]<|im_start|>user\nA\nBé <|im_start|> is no turn\n<|im_end|>[EOS]"
    result = run("check", "-", stdin=text)
    assert (3, [(3, 4)]) == (result.exit_code, named(result.stdout))
    assert "unescaped: <|im_start|> stands in a text; the format writes <\\|im_start|>" in result.stdout
    assert "+Bé <\\|im_start|> is no turn" in result.stdout.splitlines()


def test_the_difference_to_what_the_format_writes_is_shown() -> None:
    """With what is lost, where the conversation has it and the format no place."""
    text = (
        '[BOS]<|im_start|>user\nHi\n<|im_end|>\n<|im_start|>assistant\nHm.\n<|function_call|>\n{"name": "f",  '
        '"arguments": {}, "zzz": 1}\n<|im_end|>[EOS]\n'
    )
    result = run("check", "-", "--format", "openchatml", stdin=text)
    assert 3 == result.exit_code
    assert [
        "<stdin>:6:1: dropped: zzz: this format has no place for members without a name",
        "--- <stdin>",
        "+++ as openchatml writes it",
        "@@ -4,5 +4,5 @@",
        " <|im_start|>assistant",
        " Hm.",
        " <|function_call|>",
        '-{"name": "f",  "arguments": {}, "zzz": 1}',
        '+{"arguments": {}, "name": "f"}',
        " <|im_end|>[EOS]",
    ] == result.stdout.splitlines()
    assert "turnscript: <stdin>: 1 thing is not as it should be; the format writes it otherwise\n" == result.stderr


def test_line_ends_and_a_mark_of_bytes_are_named_and_make_no_difference() -> None:
    result = run(
        "check", "-", "--format", "rwkv-universal", stdin=b"\xef\xbb\xbf" + TRANSCRIPT.replace("\n", "\r\n").encode()
    )
    assert 3 == result.exit_code
    assert [
        "<stdin>:1:1: noted: a byte order mark stands before the text; formats write none",
        "<stdin>:1:8: noted: lines end in CR LF; the format writes LF",
    ] == result.stdout.splitlines()


def test_an_archive_with_settings_is_clean_and_wrong_ones_are_a_fault() -> None:
    archive = run("convert", "-", "--to", "rwkv-universal", stdin=json.dumps(CHAT | {"temperature": 0.5})).stdout
    assert 0 == run("check", "-", stdin=archive).exit_code
    wrong = run("check", "-", stdin=archive.replace("0.5", '"warm"'))
    assert 1 == wrong.exit_code
    assert "the archive's options are not what openai-chat takes" in wrong.stdout


def test_programs_get_json() -> None:
    result = run("check", "-", "--json", stdin=FAULTY)
    record = json.loads(result.stdout)
    assert ("rwkv-universal", "", "") == (record["format"], record["variant"], record["difference"])
    assert record["read_as"].startswith("read as rwkv-universal: ")
    assert PLACES == [(one["line"], one["column"]) for one in record["findings"]]
    assert {"line", "column", "kind", "message", "expected"} == set(record["findings"][0])


@pytest.mark.parametrize(
    ("arguments", "text", "words"),
    [
        (["--format", "ai00-v1"], MIXED, "<stdin>:1:1: this is no transcript of ai00-v1: "),
        (["--format", "ai00-v1"], MIXED, "it looks like openchatml"),
        (["--format", "rwkv-universal"], "Hello.\nYou.\n", "this is no transcript of rwkv-universal: text outside"),
        (["--format", "rwkv-goose"], "Hello.\nYou.\n", "because --format says so"),
        ([], "Hello.\n", "neither JSON nor a transcript of a known format"),
        ([], json.dumps(CHAT), "this is a request of openai-chat, and no transcript"),
        ([], " \n", "the input is empty"),
        (["--format", "qwen3"], b"\xff", "is not UTF-8"),
        (["--format", "quen3"], TRANSCRIPT, "did you mean"),
        (["--format", "openchatml", "--variant", "loose"], TRANSCRIPT, "has no variant 'loose'; its variants: tight"),
    ],
)
def test_what_is_no_transcript_of_the_format_is_one_error(arguments: list[str], text: str | bytes, words: str) -> None:
    result = run("check", "-", *arguments, stdin=text)
    assert result.exit_code in (1, 2)
    assert "" == result.stdout
    assert 1 == result.stderr.count("turnscript: error: ")
    assert words in result.stderr


def test_a_variant_is_checked_by_its_own_rules() -> None:
    tight = str(ts.get_format("openchatml").variant("tight").render(example()).value)
    assert 0 == run("check", "-", "--format", "openchatml", "--variant", "tight", stdin=tight).exit_code


def test_colours_are_for_terminals(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text(MIXED)
    code, seen = on_terminal("check", str(path), stdin=b"", stdout=True)
    assert (1, True) == (code, "\x1b[31m" in seen)
    assert "\x1b" not in run("check", path).stdout


@pytest.mark.parametrize(
    ("text", "options", "read_as"),
    [
        ("a.\n<|file_separator|>\n<|fim_prefix|>P<|fim_middle|><|fim_suffix|>S", [], "'spec'"),
        ("<|fim_prefix|>P<|fim_suffix|>S<|fim_middle|>M\n", ["--format", "openchatml"], "'psm'"),
        ("✿prefix✿✿suffix✿S✿middle✿P", ["--format", "rwkv-goose"], "'rwkv'"),
        ("a.\n<|file_separator|>\nb.", [], "files of openchatml"),
    ],
)
def test_files_and_texts_with_a_hole_are_checked(text: str, options: list[str], read_as: str) -> None:
    told = run("check", *options, stdin=text)
    assert (0, "") == (told.exit_code, told.stdout)
    assert read_as in told.stderr
    broken = text.replace("middle", "mddle", 1)
    if broken != text:
        refused = run("check", *(options or ["--format", "openchatml"]), stdin=broken)
        assert 1 == refused.exit_code
        assert re.match(r"turnscript: error: <stdin>:\d+:\d+: ", refused.stderr)
