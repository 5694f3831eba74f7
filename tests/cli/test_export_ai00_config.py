"""`turnscript export ai00-config`: the prompts of a format for ai00_server, and what its template cannot say."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests import corpora
from tests.cli.running import run
from tests.every import every
from turnscript.convert.registry import model_formats
from turnscript.tableio.prompts import KEYS


def exported(name: str, *options: str) -> tuple[dict[str, Any], list[str]]:
    """The sections, and the losses."""
    result = run("export", "ai00-config", "--format", name, *options)
    assert 0 == result.exit_code, result.output
    return tomllib.loads(result.stdout), result.stderr.splitlines()[1:]


@pytest.mark.deep
@every("name", [*ts.formats(), *model_formats()])
def test_every_format_has_its_prompts_written_and_what_ai00_does_otherwise_told(name: str) -> None:
    sections, losses = exported(name)
    prompts, format_ = sections["prompts"], ts.get_format(name)
    assert set(prompts) <= set(KEYS)
    question = ts.Request(conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])]))
    assert format_.prompt(question, thinking=False).text.endswith(prompts["assistant_prefix"])
    assert format_.stops == prompts["default_stop_sequences"]
    assert list(format_.presets) == list(sections.get("sampler", {}))
    strict = run("export", "ai00-config", "--format", name, "--strict")
    assert ((3, "") if losses else (0, strict.stdout)) == (strict.exit_code, strict.stdout)
    assert all(loss.strip() in strict.stderr for loss in losses)


@pytest.mark.parametrize("name", ["ai00-v1", "ai00-v0", "rwkv-goose-hermes"])
def test_what_is_written_without_a_loss_is_the_format(name: str, tmp_path: Path) -> None:
    file = tmp_path / "prompts.toml"
    assert 0 == run("export", "ai00-config", "--format", name, "--strict", "--output", file).exit_code
    theirs, ours = ts.get_format(str(file)), ts.get_format(name)
    for one in corpora.names():
        request = corpora.load(one)
        for thinking in (True, False):
            assert ours.prompt(request, thinking=thinking).text == theirs.prompt(request, thinking=thinking).text
    assert ours.stops == theirs.stops


def test_turns_and_calls_that_ai00_writes_otherwise_are_losses() -> None:
    _, losses = exported("batuta-chatml")
    paths = [loss.partition(":")[0].strip() for loss in losses]
    assert ["instructions", "questions", "answers", "blank lines", "thoughts", "calls", "results", "tools"] == paths[
        :-1
    ]
    assert "ai00 writes '<ai00:user>\\nHi\\n</ai00:user>'" in losses[1]
    assert "prompts.default_stop_sequences" == paths[-1]
    assert ["calls", "results", "tools"] == [loss.partition(":")[0].strip() for loss in exported("rwkv-goose")[1]]
    (refused, *_) = exported("openchatml")[1]
    assert "turnscript itself takes no such section back" in refused


def test_presets_are_written_as_requests_to_ai00_have_them() -> None:
    sections, losses = exported("ai00-v1")
    math = {"temperature": 0.3, "top_p": 0.3, "presence_penalty": 0, "frequency_penalty": 0, "penalty_decay": 0.996}
    assert ([], {"type": "Nucleus", **math}) == (losses, sections["sampler"]["math"])
    assert 0.7 == sections["sampler"]["creative"]["top_p"]
    assert "# Of a range the middle: top_p 0.6 to 0.8" in run("export", "ai00-config", "--format", "ai00-v1").stdout
    assert "sampler" not in exported("qwen3")[0]


def test_the_gateway_takes_what_is_written(tmp_path: Path) -> None:
    file = tmp_path / "Config.toml"
    assert 0 == run("export", "ai00-config", "--format", "ai00-v0", "--output", file).exit_code
    result = run("serve", "--config", file, "--check")
    assert 0 == result.exit_code
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("models.default.format ")]
    assert ["ai00-v0", str(file), "[prompts]"] == line.split()[1:]
    assert f"{file} is ai00's own configuration, for it has [sampler]" in result.stderr
