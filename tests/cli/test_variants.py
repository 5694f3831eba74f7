"""Variants of formats on the command line: who lists them, who takes them, what an unknown one is told."""

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import CHAT, TRANSCRIPT, run
from turnscript.convert.format_reference import example, reference

BODY = json.dumps(CHAT)
VARIANTS = [(name, variant) for name in ts.formats() for variant in ts.get_format(name).variants]


def test_the_list_of_formats_has_them() -> None:
    listed = {one["name"]: one["variants"] for one in json.loads(run("formats", "--json").stdout)}
    assert listed.keys() == {*ts.formats(), *ts.model_formats()}
    assert VARIANTS == [(name, variant) for name in ts.formats() for variant in listed[name]]
    table = run("formats").stdout
    assert all(", ".join(ts.get_format(name).variants) in table for name in ts.formats())


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_all_commands_take_them(name: str, variant: str) -> None:
    """What they write and read is that of the library."""
    format_ = ts.get_format(name).variant(variant)
    named = ["--format", name, "--variant", variant]
    assert (
        format_.prompt(ts.parse(CHAT), thinking=False).text
        == run("prompt", "-", *named, "--no-thinking", stdin=BODY).stdout
    )
    assert (
        ts.fold([*(parser := format_.parser()).feed("Hi"), *parser.close()]).items
        == ts.fold([*(parser := ts.get_format(name).parser()).feed("Hi"), *parser.close()]).items
    )
    assert "Hi" in run("read", "-", *named, stdin="Hi").stdout
    transcript = str(format_.render(example()).value)
    request = format_.parse(transcript)
    assert 0 == run("check", "-", *named, stdin=str(format_.render(request).value)).exit_code
    written = run("convert", "-", "--from", name, "--to", name, "--variant", variant, "--quiet", stdin=transcript)
    assert (0, format_.render(request).value) == (written.exit_code, written.stdout)
    read = run("convert", "-", "--from", name, "--to", "openai-chat", "--variant", variant, "--quiet", stdin=transcript)
    assert ts.render(request, "openai-chat").value == json.loads(read.stdout)
    assert ts.convert(transcript, name, "openai-chat", variant=variant).value == json.loads(read.stdout)
    shown = run("show", name, "--variant", variant)
    assert (0, f"{name} --variant {variant}: {format_.title}") == (shown.exit_code, shown.stdout.split("\n")[0])


def test_a_page_says_what_each_writes_otherwise() -> None:
    variants = reference(ts.get_format("rwkv-goose")).variants
    assert ("User: What is the weather in Tokyo? (think)", "User: What is the weather in Tokyo? think") == variants[
        "paren"
    ]
    assert () == variants["blank-whitespace"]
    lines = run("show", "rwkv-goose").stdout.splitlines()
    assert any(first == "Variants" for first, _ in pairwise(lines))
    assert '  --variant fast-think        "Assistant: <think></think" instead of "Assistant:"' in lines


@pytest.mark.parametrize(
    "arguments",
    [
        ("prompt", "-", "--format", "openchatml"),
        ("read", "-", "--format", "openchatml"),
        ("convert", "-", "--to", "openchatml"),
        ("convert", "-", "--from", "openchatml", "--to", "openai-chat"),
        ("check", "-", "--format", "openchatml"),
        ("show", "openchatml"),
        ("export", "jinja", "--format", "openchatml"),
    ],
)
def test_an_unknown_one_is_told_which_there_are(arguments: tuple[str, ...]) -> None:
    result = run(*arguments, "--variant", "loose", stdin=BODY)
    assert (2, "") == (result.exit_code, result.stdout)
    assert "--variant: openchatml has no variant 'loose'; its variants: tight" in result.stderr


def test_a_format_without_any_says_so() -> None:
    assert "rwkv-universal has no variant 'x'; it has none" in run("show", "rwkv-universal", "--variant", "x").stderr


def test_one_without_a_format_is_an_error() -> None:
    result = run(
        "convert", "-", "--from", "openai-chat", "--to", "anthropic-messages", "--variant", "tight", stdin=BODY
    )
    assert 2 == result.exit_code
    assert "--variant is for a format, and neither --from nor --to names one" in result.stderr
    told = run("convert", "-", "--to", "openai-chat", "--variant", "tight", stdin=TRANSCRIPT)
    assert 1 <= told.exit_code <= 2
    assert "unknown variant of rwkv-universal 'tight'; there is none" in told.stderr


ANSWER = b'{"id": "1", "object": "chat.completion", "choices": [{"message": {"role": "assistant", "content": "Hi"}}]}'
STREAM = (
    b'data: {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}\n\n'
)


@pytest.mark.parametrize("options", [(), ("--side", "response"), ("--stream",)])
@pytest.mark.parametrize("source", [BODY.encode(), ANSWER, STREAM])
def test_one_is_an_error_where_the_input_turns_out_to_be_of_an_api(options: tuple[str, ...], source: bytes) -> None:
    if options and source == BODY.encode():
        options = ("--side", "request")
    result = run("convert", "-", "--to", "openai-chat", "--variant", "bogus", *options, stdin=source)
    assert (2, "") == (result.exit_code, result.stdout)
    assert "variant" in result.stderr
    assert "leave it out" in result.stderr


def test_rows_of_an_api_are_set_aside_where_a_variant_is_named(tmp_path: Path) -> None:
    rows = json.dumps({"text": TRANSCRIPT}) + "\n" + BODY + "\n"
    rejects = str(tmp_path / "rejects.jsonl")
    given = ("--to", "openai-chat", "--variant", "bogus", "--rejects", rejects)
    result = run("convert", "-", "--lines", *given, stdin=rows)
    assert (1, "") == (result.exit_code, result.stdout)
    assert "unknown variant of openai-chat 'bogus'; there is none" in result.stderr


def test_what_detect_prints_can_be_given_to_other_commands() -> None:
    row = run("detect", "rwkv7-g1-1.5b-20250115").stdout.splitlines()[1]
    named = row.split(maxsplit=1)[1].split("  ")[0]
    assert "rwkv-goose --variant unhinted" == named
    prompt = run("prompt", "-", "--format", *shlex.split(named), stdin=BODY)
    assert (0, "User: Hi\n\nAssistant:") == (prompt.exit_code, prompt.stdout)
