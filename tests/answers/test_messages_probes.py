"""Owns the probes of Messages streams, and the rules that every stream of ours keeps because of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.answers.corpus import BY_NAME
from tests.answers.probes import Frame, Probe, Raises, Rule, broken, edited, frames, sent, without
from tests.answers.verdict import Sdk
from tests.answers.wires import Server, stream
from turnscript.core.json_text import Beginning, is_object

Payload = dict[str, Any]
TEXT = frames(stream("messages", BY_NAME["text in one piece"]))
CALL = frames(stream("messages", BY_NAME["one call"]))
THOUGHT = frames(stream("messages", BY_NAME["thought with a signature"]))

START, STOP = "message_start", "message_stop"
DELTA = "message_delta"
BEGIN, PIECE, END = "content_block_start", "content_block_delta", "content_block_stop"
# What a block of each type is made of.
PIECES = {"text": {"text_delta"}, "thinking": {"thinking_delta", "signature_delta"}, "tool_use": {"input_json_delta"}}

# Rules.


def payloads(told: list[Frame]) -> list[Payload]:
    return [payload for name, payload in told if name != "ping" and isinstance(payload, dict)]


def blocks(told: list[Frame]) -> list[list[Payload]]:
    """The events of each block, by the number that they say."""
    found: dict[int, list[Payload]] = {}
    for payload in payloads(told):
        if "index" in payload:
            found.setdefault(payload["index"], []).append(payload)
    return [found[index] for index in sorted(found)]


def names_are_types(told: list[Frame], good: bool) -> bool:
    """Also those of errors and signs of life."""
    return all(name == payload["type"] for name, payload in told)


def it_begins(told: list[Frame], good: bool) -> bool:
    """With one start, which says all that clients look at; before it, an error may stand alone."""
    starts = [payload["message"] for payload in payloads(told) if payload["type"] == START]
    first = payloads(told)[0]["type"]
    whole = {"id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"}
    empty = all((one["content"], one["stop_reason"], one["stop_sequence"]) == ([], None, None) for one in starts)
    return (first == START and len(starts) == 1 and empty and whole <= starts[0].keys()) or (
        not good and first == "error"
    )


def blocks_come_in_order(told: list[Frame], good: bool) -> bool:
    """One after the other, numbered from 0, each begun once and, but for the one that a failure met, ended once."""
    order = [payload["index"] for payload in payloads(told) if "index" in payload]
    kinds = [[payload["type"] for payload in block] for block in blocks(told)]
    ended = kinds if good else kinds[:-1]
    return (
        order == sorted(order)
        and set(order) == set(range(len(kinds)))
        and all(kind[0] == BEGIN and set(kind[1:]) <= {PIECE, END} for kind in kinds)
        and all(kind.count(BEGIN) == kind.count(END) == 1 and kind[-1] == END for kind in ended)
    )


def blocks_are_of_one_kind(told: list[Frame], good: bool) -> bool:
    """Pieces fit their block. A thought that is over has one signature, behind all else of it."""
    for block in blocks(told):
        kind = block[0]["content_block"]["type"]
        pieces = [payload["delta"]["type"] for payload in block if payload["type"] == PIECE]
        if not set(pieces) <= PIECES.get(kind, set()):
            return False
        if kind == "thinking" and block[-1]["type"] == END and pieces.index("signature_delta") != len(pieces) - 1:
            return False
    return True


def inputs_are_objects(told: list[Frame], good: bool) -> bool:
    """A call begins with an empty input, and its pieces are one JSON object, or the beginning of one at a limit."""
    calls = [block for block in blocks(told) if block[0].get("content_block", {}).get("type") == "tool_use"]
    spelled = ["".join([one["delta"]["partial_json"] for one in block if one["type"] == PIECE]) for block in calls]
    cut = {"max_tokens"} >= {one["delta"]["stop_reason"] for one in payloads(told) if one["type"] == DELTA}
    begun = [text if is_object(text) or not cut else Beginning().take(text) for text in spelled]
    objects = all(text == one and text and (cut or is_object(text)) for text, one in zip(spelled, begun, strict=True))
    return objects and all(block[0]["content_block"]["input"] == {} for block in calls)


def it_ends(told: list[Frame], good: bool) -> bool:
    """With the reason, the stop string or null, and the counts; then the stop. Or with an error, and neither."""
    types = [payload["type"] for payload in payloads(told)]
    ends = [payload for payload in payloads(told) if payload["type"] == DELTA]
    if not good:
        return types[-1:] == ["error"] and not ends and STOP not in types and types.count("error") == 1
    told_ = [
        end["delta"].keys() >= {"stop_reason", "stop_sequence"} and "output_tokens" in end["usage"] for end in ends
    ]
    return types[-2:] == [DELTA, STOP] and told_ == [True] and types.count(STOP) == 1 and "error" not in types


RULES: list[Rule] = [
    names_are_types,
    it_begins,
    blocks_come_in_order,
    blocks_are_of_one_kind,
    inputs_are_objects,
    it_ends,
]

# Probes.


def with_arguments(*pieces: str) -> bytes:
    """A call with other arguments."""

    def edit(payload: Payload) -> list[Frame] | None:
        if payload["type"] == PIECE:
            return []
        if payload["type"] != BEGIN:
            return None
        delta = {"type": PIECE, "index": payload["index"]}
        more = [delta | {"delta": {"type": "input_json_delta", "partial_json": piece}} for piece in pieces]
        return [(BEGIN, payload), *[(PIECE, one) for one in more]]

    return edited(CALL, edit)


def with_piece(kind: str, *instead: Payload) -> bytes:
    """A thought with other pieces in the place of one kind of them."""

    def edit(payload: Payload) -> list[Frame] | None:
        if payload.get("delta", {}).get("type") != kind:
            return None
        return [(PIECE, payload | {"delta": delta}) for delta in instead]

    return edited(THOUGHT, edit)


def moved(payload: Payload) -> None:
    if "index" in payload:
        payload["index"] += 1


def in_turns() -> bytes:
    """A thought and a text whose pieces come in turns."""
    first, second = ([frame for frame in THOUGHT if frame[1].get("index") == index] for index in (0, 1))
    mixed = [first[0], second[0], *[one for pair in zip(first[1:], second[1:], strict=False) for one in pair]]
    rest = [frame for frame in first + second if frame not in mixed]
    return sent([THOUGHT[0], *mixed, *rest, *THOUGHT[-2:]])


def without_input(payload: Payload) -> None:
    payload.get("content_block", {}).pop("input", None)


def text(result: Any) -> Any:
    return [block.get("text", block.get("thinking")) for block in result["content"]]


def arguments(result: Any) -> Any:
    (block,) = result["content"]
    return block["input"]


def proof(result: Any) -> Any:
    return result["content"][0]["thinking"], result["content"][0]["signature"]


def end(result: Any) -> Any:
    return text(result), result["stop_reason"]


SAID = ["Hello, world."]
OSLO = {"city": "Oslo"}
FULL = {"type": "error", "error": {"type": "overloaded_error", "message": "full"}}
NUMBERS = '{"a":1.0,"b":12345678901234567890}'
PROBES = [
    Probe(
        name="no names of events",
        rule=names_are_types,
        data=sent([("", payload) for _, payload in TEXT]),
        look=text,
        python=Raises("AssertionError"),
        javascript=Raises("AnthropicError", "without sending any chunks"),
    ),
    Probe(
        name="no start",
        rule=it_begins,
        data=without(TEXT, START),
        look=text,
        python=Raises("AssertionError"),
        javascript=Raises("AnthropicError", "without sending any chunks"),
    ),
    Probe(
        name="two starts",
        rule=it_begins,
        data=sent([TEXT[0], *TEXT]),
        look=text,
        python=SAID,
        javascript=Raises("AnthropicError", "Unexpected event order"),
    ),
    Probe(
        name="a gap in the numbers",
        rule=blocks_come_in_order,
        data=edited(TEXT, moved),
        look=text,
        python=Raises("IndexError"),
        javascript=[""],
    ),
    Probe(
        name="blocks in turns",
        rule=blocks_come_in_order,
        data=in_turns(),
        look=text,
        python=["Hm. Let me see.", "Yes."],
    ),
    Probe(name="a call without input", data=edited(CALL, without_input), look=arguments, python=OSLO),
    Probe(name="a call without pieces", rule=inputs_are_objects, data=with_arguments(), look=arguments, python={}),
    Probe(
        name="half an object",
        rule=inputs_are_objects,
        data=with_arguments('{"a":"tru'),
        look=arguments,
        python={},
    ),
    Probe(
        name="an object and a half",
        rule=inputs_are_objects,
        data=with_arguments('{"a":1,', '"b":"tru'),
        look=arguments,
        python={"a": 1},
    ),
    Probe(
        name="two objects",
        rule=inputs_are_objects,
        data=with_arguments('{"a":1}', '{"b":2}'),
        look=arguments,
        python={"a": 1},
        javascript=Raises("AnthropicError", "JSON"),
    ),
    Probe(
        name="no JSON",
        rule=inputs_are_objects,
        data=with_arguments("{a:1}"),
        look=arguments,
        python=Raises("ValueError"),
        javascript=Raises("AnthropicError", "JSON"),
    ),
    Probe(
        name="numbers that are no doubles",
        data=with_arguments(NUMBERS),
        look=lambda result: json.dumps(arguments(result)),
        python='{"a": 1.0, "b": 12345678901234567890}',
        javascript='{"a": 1, "b": 12345678901234567000}',
    ),
    Probe(
        name="two signatures",
        rule=blocks_are_of_one_kind,
        data=with_piece("signature_delta", *[{"type": "signature_delta", "signature": one} for one in ("Eq", "QB")]),
        look=proof,
        python=("Hm. Let me see.", "QB"),
    ),
    Probe(
        name="a text inside a thought",
        rule=blocks_are_of_one_kind,
        data=with_piece("thinking_delta", {"type": "text_delta", "text": "x"}),
        look=proof,
        python=("", "EqQBCkYIBxgCKkDs=="),
    ),
    Probe(
        name="an event that nobody knows",
        data=sent([*TEXT[:2], ("new_event", {"type": "new_event"}), *TEXT[2:]]),
        look=end,
        python=(SAID, "end_turn"),
    ),
    Probe(
        name="a piece that nobody knows",
        rule=blocks_are_of_one_kind,
        data=sent([*TEXT[:3], (PIECE, {"type": PIECE, "index": 0, "delta": {"type": "new_delta"}}), *TEXT[3:]]),
        look=end,
        python=(SAID, "end_turn"),
    ),
    Probe(
        name="a block that nobody knows",
        data=sent([*TEXT[:1], (BEGIN, {"type": BEGIN, "index": 0, "content_block": {"type": "new"}}), *TEXT[3:]]),
        look=lambda result: [block["type"] for block in result["content"]],
        python=["new"],
    ),
    Probe(name="a ping", data=sent([TEXT[0], ("ping", {"type": "ping"}), *TEXT[1:]]), look=text, python=SAID),
    Probe(
        name="no stop",
        rule=it_ends,
        data=without(TEXT, STOP),
        look=end,
        python=(SAID, "end_turn"),
        javascript=Raises("AnthropicError", "stream ended without producing a Message"),
    ),
    Probe(name="no reason", rule=it_ends, data=without(TEXT, DELTA), look=end, python=(SAID, None)),
    Probe(
        name="no end",
        rule=it_ends,
        data=without(TEXT, DELTA, STOP),
        look=end,
        python=(SAID, None),
        javascript=Raises("AnthropicError", "stream ended without producing a Message"),
    ),
    Probe(
        name="an error",
        data=sent([*TEXT[:3], ("error", FULL)]),
        look=end,
        python=Raises("APIStatusError", "full"),
        javascript=Raises("APIError", "full"),
    ),
    Probe(
        name="an error without its name",
        rule=names_are_types,
        data=sent([*TEXT[:3], ("", FULL)]),
        look=end,
        python=(SAID, None),
        javascript=Raises("AnthropicError", "stream ended without producing a Message"),
    ),
]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_what_the_sdks_make_of_a_wrong_stream(sdk: Sdk, server: Server, probe: Probe) -> None:
    server.serve(probe.data)
    expected = probe.expected(sdk.language)
    assert expected == probe.seen(sdk.ask("messages.stream", server), expected)


@pytest.mark.parametrize("probe", [probe for probe in PROBES if probe.rule], ids=lambda probe: probe.name)
def test_the_rule_forbids_the_probe(probe: Probe) -> None:
    assert probe.rule is not None
    assert not probe.rule(frames(probe.data), True)
    assert all(probe.rule(told, True) for told in (TEXT, CALL, THOUGHT))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_stream_of_ours_keeps_the_rule(rule: Rule) -> None:
    assert [] == broken("messages", rule)


def test_an_error_in_a_stream_has_the_status_of_the_stream(sdk: Sdk, server: Server) -> None:
    server.serve(sent([*TEXT[:3], ("error", FULL)]))
    error = sdk.ask("messages.stream", server).error
    assert error is not None
    assert ({"python": 200}.get(sdk.language), "overloaded_error") == (error.status, error.type)
