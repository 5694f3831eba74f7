"""Owns what happens to bad input of every kind, in every API: kept as it is, or an error that names the place."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from tests.strategies import jsontext

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
ITEM = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}

BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
    "openai-responses": {"model": "m", "input": [{"role": "user", "content": "hi"}]},
    "anthropic-messages": {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]},
    "openai-completions": {"model": "m", "prompt": "hi"},
    "gemini": {"model": "m", "contents": [{"parts": [{"text": "hi"}]}]},
}
"""A small body of each API."""

ODD_HISTORIES: dict[str, list[dict[str, Any]]] = {
    "openai-chat": [
        {"role": "tool", "tool_call_id": "nobody", "content": "orphan"},
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "first"},
        {"role": "tool", "tool_call_id": "c1", "content": "second"},
    ],
    "openai-responses": [
        {"type": "function_call_output", "call_id": "nobody", "output": "orphan"},
        ITEM,
        ITEM,
        {"type": "function_call_output", "call_id": "c1", "output": "first"},
        {"type": "function_call_output", "call_id": "c1", "output": "second"},
    ],
    "anthropic-messages": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "nobody", "content": "orphan"}]},
        {"role": "assistant", "content": [USE, USE]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "first"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "second"}]},
    ],
}
"""Results without a call, and ids that occur twice."""

HISTORY = {"openai-chat": "messages", "openai-responses": "input", "anthropic-messages": "messages"}

MISSING = [
    ("openai-chat", {"messages": [{"content": "hi"}]}, "$.messages[0].role"),
    ("openai-chat", {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}]}, "function"),
    (
        "openai-chat",
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "function", "function": {"arguments": "{}"}}]}]},
        "$.messages[0].tool_calls[0].function.name",
    ),
    ("openai-responses", {"input": [{"type": "function_call", "call_id": "c", "arguments": ""}]}, "$.input[0].name"),
    (
        "anthropic-messages",
        {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "input": {}}]}]},
        "$.messages[0].content[0].name",
    ),
    ("anthropic-messages", {"max_tokens": 1}, "$.messages"),
]


def test_every_api_has_a_body_here() -> None:
    assert sorted(BODIES) == sorted(ts.apis())


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize(
    "source", [b"", b"   ", b"hello", b"{", b'{"a":', b"[1, 2", b"nul", b'"text"', b"17", b"\x00\x01"]
)
def test_what_is_no_json_object_is_an_error_with_a_place(api: str, source: bytes) -> None:
    with pytest.raises(ts.InvalidRequest) as caught:
        ts.parse(source, api)
    assert caught.value.path or caught.value.line


@pytest.mark.parametrize(("api", "body", "path"), MISSING, ids=[row[2] for row in MISSING])
def test_a_missing_member_is_named(api: str, body: dict[str, Any], path: str) -> None:
    with pytest.raises(ts.InvalidRequest, match="missing") as caught:
        ts.parse({"model": "m", **body}, api)
    assert caught.value.path.endswith(path)


@pytest.mark.parametrize("api", ODD_HISTORIES)
def test_orphans_and_duplicate_ids_are_kept_as_they_are(api: str) -> None:
    body = {**BODIES[api], HISTORY[api]: ODD_HISTORIES[api]}
    rendered = ts.convert(body, api, api)
    assert [] == rendered.losses
    assert "" == jsontext.difference(body, rendered.value)


@pytest.mark.parametrize("api", ODD_HISTORIES)
@pytest.mark.parametrize("other", ODD_HISTORIES)
def test_results_stay_in_order_whatever_their_ids_are(api: str, other: str) -> None:
    data = ts.convert({**BODIES[api], HISTORY[api]: ODD_HISTORIES[api]}, api, other).data.decode()
    places = [data.index(word) for word in ("orphan", "first", "second")]
    assert sorted(places) == places or places[0] > places[2]


@pytest.mark.parametrize("api", BODIES)
def test_half_a_surrogate_pair_is_an_error_with_a_place(api: str) -> None:
    escaped = json.dumps({**BODIES[api], "user": "\ud800"}).encode()
    with pytest.raises(ts.InvalidRequest, match="surrogate") as caught:
        ts.parse(escaped, api)
    assert (1, escaped.index(b"\\ud800") + 1) == (caught.value.line, caught.value.column)
    for source in (
        {**BODIES[api], "user": "\ud800"},
        json.dumps({**BODIES[api], "user": "\ud800"}, ensure_ascii=False),
    ):
        with pytest.raises(ts.InvalidRequest, match="surrogate"):
            ts.parse(source, api)


@pytest.mark.parametrize("api", BODIES)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, b"bytes", object()])
def test_what_json_cannot_say_is_an_error_with_its_path(api: str, value: Any) -> None:
    with pytest.raises(ts.InvalidRequest, match="JSON cannot say") as caught:
        ts.parse({**BODIES[api], "metadata": {"deep": [1, value]}}, api)
    assert "$.metadata.deep[1]" == caught.value.path


@pytest.mark.parametrize("api", BODIES)
def test_nan_in_the_text_is_an_error_with_a_place(api: str) -> None:
    with pytest.raises(ts.InvalidRequest, match="not valid JSON") as caught:
        ts.parse(json.dumps({**BODIES[api], "temperature": float("nan")}), api)
    assert caught.value.column > 1


@pytest.mark.parametrize("api", BODIES)
def test_a_number_beyond_every_double_is_an_error_that_says_so(api: str) -> None:
    member = {"generationConfig": {"temperature": "T"}} if api == "gemini" else {"temperature": "T"}
    body = json.dumps({**BODIES[api], **member}).replace('"T"', "1e400")
    with pytest.raises(ts.InvalidRequest, match=r"a number that a double can hold, got a number \(1e400\)") as caught:
        ts.parse(body, api)
    assert caught.value.path in ("$.temperature", "$.generationConfig.temperature")


def test_a_body_of_as_many_levels_as_are_read_has_a_value_or_an_error() -> None:
    """What is written may have a level or two more than what was read."""
    for depth in range(800, 1000):
        schema = '{"a":' * depth + "1" + "}" * depth
        body = f'{{"messages":[],"tools":[{{"type":"function","function":{{"name":"f","parameters":{schema}}}}}]}}'
        with contextlib.suppress(ts.InvalidRequest):
            assert "tools" in ts.convert(body, "openai-chat", "openai-chat").value


@pytest.mark.parametrize("api", BODIES)
def test_200_levels_of_nesting_are_kept_and_a_million_are_an_error(api: str) -> None:
    def body(depth: int) -> bytes:
        whole = json.dumps({**BODIES[api], "metadata": "DEEP"}).encode()
        return whole.replace(b'"DEEP"', b'{"a":' * depth + b"1" + b"}" * depth)

    rendered = ts.convert(body(200), api, api)
    assert "" == jsontext.difference(json.loads(body(200)), json.loads(rendered.data))
    with pytest.raises(ts.InvalidRequest, match="nested too deep"):
        ts.parse(body(1_000_000), api)


@pytest.mark.parametrize("api", BODIES)
def test_a_byte_order_mark_is_no_part_of_the_body(api: str) -> None:
    data = json.dumps(BODIES[api]).encode()
    assert ts.parse(data, api) == ts.parse(b"\xef\xbb\xbf" + data, api)


@pytest.mark.parametrize("api", BODIES)
def test_utf16_and_latin1_are_errors_that_say_so(api: str) -> None:
    text = json.dumps({**BODIES[api], "user": "é"}, ensure_ascii=False)
    with pytest.raises(ts.InvalidRequest, match="UTF-16"):
        ts.parse(text.encode("utf-16"), api)
    with pytest.raises(ts.InvalidRequest, match="0xe9 is not UTF-8"):
        ts.parse(text.encode("latin-1"), api)


@pytest.mark.deep
@pytest.mark.parametrize("api", HISTORY)
def test_a_body_of_50_mb_takes_time_in_proportion(api: str) -> None:
    def converting(turns: int) -> Callable[[], object]:
        history = [{"role": "user", "content": "words and words \n" * 600}, {"role": "assistant", "content": "ok"}]
        data = json.dumps({**BODIES[api], HISTORY[api]: history * turns}).encode()

        def convert() -> None:
            assert len(ts.convert(data, api, "rwkv-universal", view="prompt").data) > 10_000 * turns

        return convert

    assert_grows_below(10, converting, 1_125, 4_500, least=0.05)  # 12 MB and 47 MB


@pytest.mark.deep
@pytest.mark.parametrize(("api", "target"), [*pairwise(HISTORY), (list(HISTORY)[-1], "rwkv-universal")])
def test_a_conversion_takes_at_most_six_times_the_memory_of_its_body(api: str, target: str) -> None:
    turns = [{"role": "user", "content": "words and words \n" * 60}, {"role": "assistant", "content": "ok " * 9}]
    data = json.dumps({**BODIES[api], HISTORY[api]: turns * 12_000}).encode()
    code = f"""
import re, sys, turnscript as ts
def peak(): return int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1]) << 10
ts.convert({json.dumps(BODIES[api])!r}, {api!r}, {target!r}).data
data = sys.stdin.buffer.read()
before = peak() - len(data)
ts.convert(data, {api!r}, {target!r}).data
print(peak() - before)
"""
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=300, check=True)
    assert int(done.stdout) < 6 * len(data)


def test_a_source_of_another_type_is_an_error() -> None:
    wrong: Any = 17
    with pytest.raises(ts.InvalidInput):
        ts.parse(wrong, "openai-chat")
    with pytest.raises(ts.InvalidTranscript, match="expected the text of a transcript"):
        ts.parse({}, "rwkv-universal")


SCHEMA: Any = {"type": "object"}


@pytest.mark.parametrize(
    ("made", "remedy"),
    [
        (lambda: ts.Tool(name="f", parameters=SCHEMA), r"msgspec.Raw\(json.dumps\(schema\).encode\(\)\).*got dict"),
        (lambda: ts.Tool(name="f", parameters=json.dumps(SCHEMA)), "got str and NoneType"),  # type: ignore[arg-type]
        (lambda: ts.Tool(name="f", type="custom", format=SCHEMA), "got NoneType and dict"),
        (lambda: ts.Settings(stop="END"), r"write \['END'\]"),  # type: ignore[arg-type]
    ],
)
def test_what_would_be_taken_for_something_else_is_an_error_with_a_remedy(
    made: Callable[[], object], remedy: str
) -> None:
    """A dict as a schema failed far away; a schema was sent as a string; of a stop string each letter was one."""
    with pytest.raises(TypeError, match=remedy):
        made()


@pytest.mark.parametrize("api", BODIES)
def test_of_a_member_given_twice_the_last_one_counts(api: str) -> None:
    whole = json.dumps(BODIES[api])
    for name in BODIES[api]:
        twice = f'{{"{name}": "first", {whole[1:]}'
        assert ts.parse(whole, api) == ts.parse(twice, api)


def test_arguments_with_a_member_twice_keep_both() -> None:
    arguments = '{"a": 1, "a": 2}'
    use = json.dumps(USE).replace("{}", arguments)
    body = f'{{"model": "m", "max_tokens": 1, "messages": [{{"role": "assistant", "content": [{use}]}}]}}'
    chat: Any = ts.convert(body, "anthropic-messages", "openai-chat").value
    assert arguments == chat["messages"][-1]["tool_calls"][0]["function"]["arguments"]
