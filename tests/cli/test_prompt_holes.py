"""`turnscript prompt` of a text with a hole (requirement D-U-22): the tokens for it, or an error if there are none."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import turnscript as ts
from tests.cli.running import run
from turnscript.core.errors import InvalidRequest, Unsupported

HOLE = {"model": "m", "prompt": "def add(a, b):\n    return ", "suffix": "\n\nadd(1, 2)\n", "max_tokens": 9}
PSM = (
    "<|fim_prefix|>def add(a, b):\n    return <|fim_suffix|>\n\nadd(1, 2)\n<|fim_middle|>"  # nothing of a conversation
)


def written(tmp_path: Path, body: Mapping[str, object]) -> str:
    """The body in a file."""
    path = tmp_path / "request.json"
    path.write_text(json.dumps(body))
    return str(path)


def test_a_text_with_a_hole_is_written_with_the_tokens_for_holes(tmp_path: Path) -> None:
    result = run("prompt", written(tmp_path, HOLE), "--format", "openchatml")
    assert (0, PSM) == (result.exit_code, result.stdout)
    assert "no losses" in result.stderr


def test_a_program_is_told_what_ends_the_middle(tmp_path: Path) -> None:
    path = written(tmp_path, HOLE | {"stop": ["\n\n"]})
    record = json.loads(run("prompt", path, "--format", "openchatml", "--json").stdout)
    stops = ts.get_format("openchatml").fill_prompt(ts.Fill("", "")).stops
    assert (PSM, stops, "", ["\n\n"], []) == tuple(
        record[key] for key in ("prompt", "stops", "prefill", "client_stops", "losses")
    )


def test_a_format_without_tokens_for_holes_says_so(tmp_path: Path) -> None:
    result = run("prompt", written(tmp_path, HOLE), "--format", "rwkv-universal")
    assert (1, "") == (result.exit_code, result.stdout)
    assert "with a hole" in result.stderr
    assert "rwkv-universal" in result.stderr


@pytest.mark.parametrize("suffix", [None, ""])
def test_nothing_behind_a_text_is_no_hole(tmp_path: Path, suffix: str | None) -> None:
    result = run("prompt", written(tmp_path, HOLE | {"suffix": suffix}), "--format", "rwkv-universal", "--strict")
    assert (0, True) == (result.exit_code, result.stdout.startswith("<<USER>>\ndef add"))


def test_what_a_hole_has_no_place_for_is_told(tmp_path: Path) -> None:
    path = written(tmp_path, HOLE | {"state": "s1"})
    record = json.loads(run("prompt", path, "--format", "openchatml", "--json").stdout)
    assert (PSM, ["$.state"]) == (record["prompt"], [loss["path"] for loss in record["losses"]])


def test_a_conversation_has_no_hole(tmp_path: Path) -> None:
    """No other API has a member of that name: it is what any stranger is."""
    chat = {"messages": [{"role": "user", "content": "Hi"}], "suffix": "x"}
    record = json.loads(run("prompt", written(tmp_path, chat), "--format", "openchatml", "--json").stdout)
    assert record["prompt"].endswith("<|im_start|>assistant\n")
    assert ["$.suffix"] == [loss["path"] for loss in record["losses"]]


@pytest.mark.parametrize("wrong", [{"suffix": 3}, {"prompt": [1, 2]}])
def test_a_hole_in_no_text_is_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    result = run("prompt", written(tmp_path, HOLE | wrong), "--format", "openchatml")
    assert (1, "") == (result.exit_code, result.stdout)
    assert f"$.{next(iter(wrong))}" in result.stderr


def test_a_hole_is_filled_without_thoughts(tmp_path: Path) -> None:
    result = run("prompt", written(tmp_path, HOLE), "--format", "openchatml", "--thinking")
    assert 2 == result.exit_code
    assert "--thinking" in result.stderr


def test_a_program_gives_the_request_as_it_was_read() -> None:
    """The library's way: a request of bare texts is as good as a fill."""
    format_ = ts.get_format("openchatml")
    request = ts.parse(HOLE, "openai-completions")
    assert PSM == format_.fill_prompt(request).text
    assert "✿" in format_.fill_prompt(request, order="rwkv").text
    with pytest.raises(Unsupported, match="with a hole"):
        ts.get_format("ai00-v1").fill_prompt(request)
    with pytest.raises(InvalidRequest, match="hole"):
        format_.fill_prompt(ts.parse({"prompt": "x"}, "openai-completions"))


@pytest.mark.parametrize("format_", ts.formats())
def test_a_conversation_says_that_it_has_no_hole(format_: str) -> None:
    """`prompt` writes messages, so what stands behind the hole is lost, and is told with what writes it."""
    losses = ts.get_format(format_).prompt(ts.parse(HOLE, "openai-completions")).losses
    told = [loss for loss in losses if loss.path == "$.suffix"]
    assert [("dropped", True)] == [(loss.kind, "fill_prompt" in loss.detail) for loss in told]


@pytest.mark.parametrize("suffix", [None, ""])
def test_a_conversation_loses_nothing_where_nothing_stands_behind_the_text(suffix: str | None) -> None:
    request = ts.parse(HOLE | {"suffix": suffix}, "openai-completions")
    assert [] == ts.get_format("rwkv-universal").prompt(request).losses


def test_a_prompt_of_tokens_is_no_conversation() -> None:
    request = ts.parse({"model": "m", "prompt": [1, 2]}, "openai-completions")
    assert ["$.prompt"] == [loss.path for loss in ts.get_format("rwkv-universal").prompt(request).losses]


@pytest.mark.parametrize("step", [1, 5, 99])
def test_the_middle_is_read_as_a_text(tmp_path: Path, step: int) -> None:
    """No tag and no stop of a conversation means anything there; the tokens of holes and the client's stops do."""
    path = written(tmp_path, HOLE | {"stop": ["\nEND"]})
    middle = "é + <|function_call|>"
    for behind, stop in (("<|fim_suffix|>x", None), ("\nENDx", "\nEND")):
        options = ("--format", "openchatml", "--request", path, "--chunk", str(step), "--json")
        record = json.loads(run("read", *options, stdin=middle + behind).stdout)
        assert [{"type": "text", "text": middle}] == record["items"]
        assert ("stop", stop, []) == (record["finish_reason"], record["stop_sequence"], record["issues"])


def test_a_stop_string_that_the_middle_never_has_leaves_it_whole() -> None:
    """Text that may become one waits no longer than the answer."""
    fill = ts.get_format("openchatml").fill_prompt(ts.parse(HOLE | {"stop": ["END"]}, "openai-completions"))
    parser = fill.parser()
    response = ts.fold([*parser.feed("a + b EN"), *parser.close("length")])
    assert ("a + b EN", "length") == (response.raw, response.finish_reason)


def test_a_hole_is_read_without_thoughts(tmp_path: Path) -> None:
    options = ("--format", "openchatml", "--request", written(tmp_path, HOLE), "--thinking")
    assert 2 == run("read", *options, stdin="a").exit_code
