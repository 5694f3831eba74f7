"""Owns the probes of Chat Completions streams, and the rules that every stream of ours keeps because of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.answers.corpus import BY_NAME
from tests.answers.probes import Frame, Probe, Raises, Rule, broken, frames, sent
from tests.answers.verdict import Sdk
from tests.answers.wires import Server, stream
from tests.chatstream import CALLED, DONE, HELLO, STOP, call_delta, chunk
from turnscript.core.sse import comment, frame

ROLE = chunk({"role": "assistant", "content": ""})
BEGUN = ROLE + chunk(call_delta(0, "{", id="call_1", type="function", name="f"))
COUNTS = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
FREE = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "p", "input": "x"}}
MORE_FREE = {"tool_calls": [{"index": 0, "custom": {"input": "y"}}]}
SECOND = {"index": 1, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


# Rules.


def deltas(told: list[Frame]) -> list[dict[str, Any]]:
    return [choice["delta"] for choice in choices(told)]


def choices(told: list[Frame]) -> list[dict[str, Any]]:
    return [choice for one in chunks(told) for choice in one["choices"]]


def chunks(told: list[Frame]) -> list[dict[str, Any]]:
    return [payload for _, payload in told if isinstance(payload, dict) and "choices" in payload]


def entries(told: list[Frame]) -> list[dict[str, Any]]:
    return [entry for delta in deltas(told) for entry in delta.get("tool_calls", ())]


def each_is_sent_once(told: list[Frame], good: bool) -> bool:
    """The role in the first delta; of each call id, type and name together with its number, and never again."""
    found = deltas(told)
    heads = [entry for entry in entries(told) if entry.keys() & {"id", "type"} or "name" in entry["function"]]
    whole = all(entry.get("id") and entry.get("type") and entry["function"].get("name") for entry in heads)
    indexes = [entry["index"] for entry in heads]
    functions = [delta["function_call"] for delta in found if "function_call" in delta]
    named = ["name" in function for function in functions]
    roles = ["role" in delta for delta in found]
    return roles == first_only(roles) and whole and indexes == sorted(set(indexes)) and named == first_only(named)


def first_only(flags: list[bool]) -> list[bool]:
    return [index == 0 for index in range(len(flags))]


def calls_are_functions(told: list[Frame], good: bool) -> bool:
    return all("function" in entry and entry.get("type", "function") == "function" for entry in entries(told))


def numbers_from_0(told: list[Frame], good: bool) -> bool:
    """One choice; calls in order, the next one begins behind the last piece of the one before."""
    indexes = [entry["index"] for entry in entries(told)]
    return (
        {0} >= {choice["index"] for choice in choices(told)}
        and indexes == sorted(indexes)
        and (set(indexes) == set(range(len(set(indexes)))))
    )


def usage_comes_last(told: list[Frame], good: bool) -> bool:
    """Counts stand in a last chunk that has no choices; every chunk before says that it has none."""
    counted = [one for one in chunks(told) if one.get("usage") is not None]
    asked = [one for one in chunks(told) if "usage" in one]
    empty = [one for one in chunks(told) if not one["choices"]]
    return counted == empty == chunks(told)[-1:] * len(counted) and asked in ([], chunks(told))


def errors_are_nested(told: list[Frame], good: bool) -> bool:
    errors = [payload for _, payload in told if isinstance(payload, dict) and "error" in payload]
    nested = all(error["error"]["message"] and len(error) == 1 for error in errors)
    return nested and len(errors) == (0 if good else 1) and {""} == {name for name, _ in told}


def all_is_json(told: list[Frame], good: bool) -> bool:
    return all(isinstance(payload, dict) for _, payload in told if payload != "[DONE]")


def it_ends(told: list[Frame], good: bool) -> bool:
    """One finish reason, in a delta of its own, and the end mark behind all; or an error behind all, and neither."""
    reasons = [choice for choice in choices(told) if choice["finish_reason"] is not None]
    marks = [payload for _, payload in told if payload == "[DONE]"]
    if not good:
        return not reasons and not marks and "error" in told[-1][1]
    last = [choice["delta"] for choice in reasons]
    return last == [{}] and reasons == choices(told)[-1:] and marks == [told[-1][1]]


def one_id_model_and_time(told: list[Frame], good: bool) -> bool:
    return len({(one["id"], one["model"], one["created"], one["object"]) for one in chunks(told)}) <= 1


# Probes.


def other_choice(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    """A chunk of choice 1."""
    return chunk({}, choices=[{"index": 1, "delta": delta, "finish_reason": finish_reason}])


def message(result: Any) -> Any:
    return result["choices"][0]["message"]


def said(result: Any) -> Any:
    return [choice["message"]["content"] for choice in result["choices"]]


def call(result: Any) -> Any:
    (one,) = message(result)["tool_calls"]
    return one["id"], one["type"], one.get("function") and one["function"]["name"], one.get("custom")


def reason(result: Any) -> Any:
    return said(result)[0], result["choices"][0]["finish_reason"]


PROBES = [
    Probe(
        name="a role twice",
        rule=each_is_sent_once,
        data=ROLE + chunk({"role": "assistant", "content": "x"}) + STOP + DONE,
        look=lambda result: message(result)["role"],
        python="assistantassistant",
        javascript="assistant",
    ),
    Probe(
        name="an id twice",
        rule=each_is_sent_once,
        data=BEGUN + chunk(call_delta(0, "}", id="call_1")) + CALLED + DONE,
        look=call,
        python=("call_1call_1", "function", "f", None),
        javascript=("call_1", "function", "f", None),
    ),
    Probe(
        name="a name twice",
        rule=each_is_sent_once,
        data=BEGUN + chunk(call_delta(0, "}", name="f")) + CALLED + DONE,
        look=call,
        python=("call_1", "function", "ff", None),
        javascript=("call_1", "function", "f", None),
    ),
    Probe(
        name="a call without a type",
        rule=each_is_sent_once,
        data=ROLE + chunk(call_delta(0, "{}", id="call_1", name="f")) + CALLED + DONE,
        look=call,
        python=("call_1", None, "f", None),
        javascript=Raises("OpenAIError", "missing `type`"),
    ),
    Probe(
        name="a call of free text",
        rule=calls_are_functions,
        data=ROLE + chunk({"tool_calls": [FREE]}) + chunk(MORE_FREE) + CALLED + DONE,
        look=call,
        python=Raises("AttributeError"),
        javascript=("call_1", "custom", None, {"name": "p", "input": "xy"}),
    ),
    Probe(
        name="the second choice first",
        rule=numbers_from_0,
        data=other_choice({"role": "assistant", "content": "b"}) + HELLO + STOP + other_choice({}, "stop") + DONE,
        look=said,
        python=Raises("IndexError"),
        javascript=["Hi", "b"],
    ),
    Probe(
        name="the second call first",
        rule=numbers_from_0,
        data=ROLE + chunk({"tool_calls": [SECOND]}) + CALLED + DONE,
        look=call,
        python=Raises("IndexError"),
        javascript=Raises("OpenAIError"),
    ),
    Probe(
        name="counts before the last chunk",
        rule=usage_comes_last,
        data=ROLE + chunk({"content": "x"}, usage=COUNTS) + STOP + DONE,
        look=lambda result: result.get("usage"),
        python=None,
        javascript=COUNTS,
    ),
    Probe(
        name="counts before a chunk that has none",
        rule=usage_comes_last,
        data=ROLE + chunk({"content": "x"}, usage=COUNTS) + chunk({}, "stop", usage=None) + DONE,
        look=lambda result: (result.get("usage"),),
        python=(None,),
    ),
    Probe(
        name="an error in a chunk",
        data=HELLO + frame('{"error":{"message":"gone","type":"server_error"}}'),
        look=said,
        python=Raises("APIError", "gone"),
    ),
    Probe(
        name="a flat error under its name",
        rule=errors_are_nested,
        data=HELLO + frame('{"message":"gone"}', "error") + STOP + DONE,
        look=reason,
        python=("Hi", "stop"),
        javascript=Raises("APIError", "gone"),
    ),
    Probe(name="no end mark", rule=it_ends, data=HELLO + STOP, look=reason, python=("Hi", "stop")),
    Probe(
        name="no finish reason",
        rule=it_ends,
        data=HELLO + DONE,
        look=reason,
        python=("Hi", None),
        javascript=Raises("OpenAIError", "missing finish_reason"),
    ),
    Probe(
        name="neither",
        rule=it_ends,
        data=HELLO,
        look=reason,
        python=("Hi", None),
        javascript=Raises("OpenAIError", "missing finish_reason"),
    ),
    Probe(
        name="comments",
        data=comment("keepalive") + HELLO + b":\n\n" + STOP + comment() + DONE,
        look=reason,
        python=("Hi", "stop"),
    ),
    Probe(
        name="names of events",
        rule=errors_are_nested,
        data=sent([("chunk", payload) for _, payload in frames(HELLO + STOP)]) + DONE,
        look=reason,
        python=("Hi", "stop"),
    ),
    Probe(
        name="no role",
        rule=each_is_sent_once,
        data=chunk({"content": "x"}) + STOP + DONE,
        look=lambda result: message(result).get("role"),
        python=None,
        javascript=Raises("OpenAIError", "missing role"),
    ),
    Probe(
        name="only the end mark",
        rule=it_ends,
        data=DONE,
        look=said,
        python=Raises("AssertionError"),
        javascript=Raises("OpenAIError", "without sending any chunks"),
    ),
    Probe(
        name="broken JSON",
        rule=all_is_json,
        data=HELLO + b"data: {oops\n\n" + STOP + DONE,
        look=said,
        python=Raises("JSONDecodeError"),
        javascript=Raises("OpenAIError", "malformed"),
    ),
    Probe(
        name="more behind the end", rule=it_ends, data=HELLO + STOP + DONE + HELLO, look=reason, python=("Hi", "stop")
    ),
]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_what_the_sdks_make_of_a_wrong_stream(sdk: Sdk, server: Server, probe: Probe) -> None:
    server.serve(probe.data)
    expected = probe.expected(sdk.language)
    assert expected == probe.seen(sdk.ask("chat.stream", server), expected)


RULES: list[Rule] = [
    each_is_sent_once,
    calls_are_functions,
    numbers_from_0,
    usage_comes_last,
    errors_are_nested,
    all_is_json,
    it_ends,
    one_id_model_and_time,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_stream_of_ours_keeps_the_rule(rule: Rule) -> None:
    assert [] == broken("chat", rule)


@pytest.mark.parametrize("probe", [probe for probe in PROBES if probe.rule], ids=lambda probe: probe.name)
def test_the_rule_forbids_the_probe(probe: Probe) -> None:
    assert probe.rule is not None
    assert not probe.rule(frames(probe.data), True)
    assert probe.rule(frames(HELLO + STOP + DONE), True)


def test_signs_of_life_are_comments() -> None:
    data = stream("chat", BY_NAME["text with pauses"])
    assert data.count(b": keepalive\n\n") > 3
    assert frames(data) == frames(data.replace(b": keepalive\n\n", b""))
