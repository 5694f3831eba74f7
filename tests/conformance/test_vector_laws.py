"""Owns the laws of conformance vectors: every format gives some of all that it has, and what they say is so."""

import json
from typing import Any

import pytest

import turnscript as ts
from tests.cli.running import run
from tests.every import every
from turnscript.convert.format_reference import has_thoughts
from turnscript.convert.records import response_record
from turnscript.convert.registry import model_formats
from turnscript.core.events import fold

MEMBERS = ["case", "format", "request", "prompt", "stops", "text", "finish_reason", "answer"]
ALWAYS = {"text", "several turns", "unicode", "tags in texts", "cut off"}


def vectors_of(name: str) -> list[dict[str, Any]]:
    """The vectors of a format, as a program in any language reads them."""
    result = run("export", "vectors", "--format", name)
    assert 0 == result.exit_code, result.output
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert f"turnscript: {len(found)} vectors" in result.stderr
    return found


def check(format_: ts.Format, vector: dict[str, Any]) -> None:
    """What a vector says is what the product does, however the text is cut."""
    prompt = format_.prompt(ts.parse(json.dumps(vector["request"]), "openai-chat"))
    assert (vector["prompt"], vector["stops"]) == (prompt.text, prompt.stops)
    assert not [stop for stop in vector["stops"] if stop in vector["text"]]
    text = vector["text"].encode()
    for size in (len(text), 1, 3, 7):
        parser = prompt.parser()
        events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
        record = response_record(fold([*events, *parser.close(vector["finish_reason"])]))
        assert vector["answer"] == {key: record[key] for key in ("items", "finish_reason")}


def check_vectors(name: str) -> None:
    """The vectors of a format are as documented, true, and of all that it has."""
    format_ = ts.get_format(name)
    found = vectors_of(name)
    for vector in found:
        assert (MEMBERS, format_.name) == (list(vector), vector["format"])
        check(format_, vector)
    cases = {vector["case"] for vector in found}
    kinds = {item["type"] for vector in found for item in vector["answer"]["items"]}
    assert ALWAYS <= cases
    assert has_thoughts(format_) == ("thinking" in kinds)
    calls = format_.features.calls
    assert calls == ("tool_call" in kinds)
    if calls:
        assert {"unicode in arguments", "result", "several results"} & cases


def test_the_vectors_of_a_format_are_true_and_of_all_that_it_has(format_name: str) -> None:
    check_vectors(format_name)


@pytest.mark.deep
@every("name", model_formats())
def test_the_vectors_of_a_models_format_are_true_and_of_all_that_it_has(name: str) -> None:
    check_vectors(name)


def test_what_a_format_cannot_carry_is_told_and_left_out() -> None:
    result = run("export", "vectors", "--format", "rwkv-goose")
    assert "turnscript: 21 vectors; the format does not carry: line breaks\n" == result.stderr
    assert "line breaks" not in [json.loads(line)["case"] for line in result.stdout.splitlines()]
    assert "" == run("export", "vectors", "--format", "rwkv-goose", "--quiet").stderr


def test_a_vector_says_what_its_case_is() -> None:
    found = {vector["case"]: vector for vector in vectors_of("ai00-v1")}
    call = found["several calls"]
    assert "User" not in call["prompt"]
    assert ["Tokyo", "Oslo"] == [json.loads(item["arguments"])["city"] for item in call["answer"]["items"]]
    assert "tool_calls" == call["answer"]["finish_reason"]
    assert ("length", "Let me lo") == (found["cut off"]["finish_reason"], found["cut off"]["text"])
    assert "<ai00:function_results>" in found["result"]["prompt"]
    assert found["thought"]["prompt"].endswith("<think>\n")
