"""Owns the probes of Responses streams, and the rules that every stream of ours keeps because of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.answers.corpus import BY_NAME
from tests.answers.probes import Frame, Probe, Raises, Rule, broken, edited, frames, sent, without
from tests.answers.verdict import Sdk
from tests.answers.wires import Server, stream

Payload = dict[str, Any]
TEXT = frames(stream("responses", BY_NAME["text in one piece"]))
CALL = frames(stream("responses", BY_NAME["one call"]))

CREATED, IN_PROGRESS = "response.created", "response.in_progress"
COMPLETED, INCOMPLETE, FAILED = (f"response.{word}" for word in ("completed", "incomplete", "failed"))
ADDED, DONE = "response.output_item.added", "response.output_item.done"
PART_ADDED, PART_DONE = "response.content_part.added", "response.content_part.done"
DELTA, TEXT_DONE = "response.output_text.delta", "response.output_text.done"
IN_PARTS = ("response.output_text.", "response.refusal.", "response.reasoning_text.", "response.content_part.")

# Rules.


def payloads(told: list[Frame]) -> list[Payload]:
    return [payload for _, payload in told if isinstance(payload, dict)]


def of(told: list[Frame], *types: str) -> list[Payload]:
    return [payload for payload in payloads(told) if payload["type"] in types]


def names_are_types(told: list[Frame], good: bool) -> bool:
    """Every event has the name of its type, and one that the SDKs know: there is no event for a sign of life."""
    return all(name == payload["type"] and name in KNOWN for name, payload in told)


def numbers_count(told: list[Frame], good: bool) -> bool:
    """Every event has its number, and items are numbered without a gap."""
    items = [payload["output_index"] for payload in of(told, ADDED)]
    numbers = [payload.get("sequence_number") for payload in payloads(told)]
    return numbers == list(range(len(told))) and items == list(range(len(items)))


def it_begins(told: list[Frame], good: bool) -> bool:
    """Created, in progress, and then all else, or in progress once more as a sign of life; or nothing but an error,
    where there was no time for that."""
    types = [payload["type"] for payload in payloads(told)]
    begun = types[:2] == [CREATED, IN_PROGRESS] and CREATED not in types[1:]
    return begun or (not good and types == ["error"])


def all_is_announced(told: list[Frame], good: bool) -> bool:
    """What an event speaks of was announced, under the same number and id."""
    known: set[tuple[Any, ...]] = set()
    for payload in payloads(told):
        type_, item, part = payload["type"], payload.get("output_index"), payload.get("content_index")
        id_ = payload["item"]["id"] if type_ in (ADDED, DONE) else payload.get("item_id")
        if type_ == ADDED:
            known.add((item, id_))
        elif id_ is not None and (item, id_) not in known:
            return False
        elif type_ == PART_ADDED:
            known.add((item, id_, part))
        elif type_.startswith(IN_PARTS) and (item, id_, part) not in known:
            return False
    return True


def ids_stay(told: list[Frame], good: bool) -> bool:
    """The response has one id; an item that is done is called what it was called when it was announced."""
    begun, done = ({identity(payload["item"]) for payload in of(told, type_)} for type_ in (ADDED, DONE))
    return done <= begun and len({payload["response"]["id"] for payload in payloads(told) if "response" in payload}) < 2


def identity(item: Payload) -> tuple[Any, ...]:
    return tuple(item.get(name) for name in ("id", "type", "call_id", "name", "namespace"))


def cut_calls(told: list[Frame]) -> dict[int, Payload]:
    """The calls in the output of a response that are not whole, which are never done."""
    output = [item for payload in of(told, INCOMPLETE) for item in payload["response"]["output"]]
    return {at: one for at, one in enumerate(output) if one["type"].endswith("_call") and one["status"] == "incomplete"}


def what_is_announced_is_done(told: list[Frame], good: bool) -> bool:
    """Items and parts that begin are done, once; but for those that a failure met, and calls that are not whole."""
    begun, done = ([payload["output_index"] for payload in of(told, type_)] for type_ in (ADDED, DONE))
    begun = [index for index in begun if index not in cut_calls(told)]
    parts, ended = (
        [(payload["output_index"], payload["content_index"]) for payload in of(told, type_)]
        for type_ in (PART_ADDED, PART_DONE)
    )
    return len(done) == len(set(done)) and (not good or (sorted(begun), sorted(parts)) == (sorted(done), sorted(ended)))


def texts_have_logprobs(told: list[Frame], good: bool) -> bool:
    """A list in every event of a text, and that and one of annotations in every text, wherever it stands."""
    parts = [payload["part"] for payload in of(told, PART_ADDED, PART_DONE)]
    items = [payload["item"] for payload in of(told, DONE)]
    items += [item for payload in of(told, COMPLETED, INCOMPLETE) for item in payload["response"]["output"]]
    parts += [part for item in items if item["type"] == "message" for part in item["content"]]
    texts = [part for part in parts if part["type"] == "output_text"]
    lists = [payload.get("logprobs") for payload in [*of(told, DELTA, TEXT_DONE), *texts]]
    return all(isinstance(one, list) for one in lists + [text.get("annotations") for text in texts])


def the_end_has_all(told: list[Frame], good: bool) -> bool:
    """The last event holds every item that is done, as it was when it was done, and calls that are not whole."""
    done = {payload["output_index"]: payload["item"] for payload in of(told, DONE)} | cut_calls(told)
    ends = [payload["response"]["output"] for payload in of(told, COMPLETED, INCOMPLETE)]
    return ends == [[item for _, item in sorted(done.items())]] * good


def it_ends(told: list[Frame], good: bool) -> bool:
    """One last event, behind all, with the status that its type says."""
    types = (COMPLETED, INCOMPLETE) if good else (FAILED, "error")
    ends = of(told, COMPLETED, INCOMPLETE, FAILED, "error")
    status = [payload["response"]["status"] for payload in ends if "response" in payload]
    cancelled = ["cancelled"] if ends[-1:] and ends[-1]["type"] == INCOMPLETE else []
    said = status in ([payload["type"].split(".")[-1] for payload in ends if "response" in payload], cancelled)
    return len(ends) == 1 and said and [ends[0]] == [payload for _, payload in told[-1:]] and ends[0]["type"] in types


PIECES = ("output_text", "refusal", "reasoning_text", "reasoning_summary_text", "reasoning_summary_part")
CALLS = ("function_call_arguments", "custom_tool_call_input")
KNOWN = {CREATED, IN_PROGRESS, COMPLETED, INCOMPLETE, FAILED, "error", ADDED, DONE, PART_ADDED, PART_DONE} | {
    f"response.{what}.{how}" for what in PIECES + CALLS for how in ("delta", "done", "added")
}
RULES: list[Rule] = [
    names_are_types,
    numbers_count,
    it_begins,
    all_is_announced,
    ids_stay,
    what_is_announced_is_done,
    texts_have_logprobs,
    the_end_has_all,
    it_ends,
]

# Probes.


def cut(member: str, *types: str) -> bytes:
    """The text without a member of events of those types."""

    def edit(payload: Payload) -> None:
        if not types or payload["type"] in types:
            payload.pop(member, None)

    return edited(TEXT, edit)


def renamed(told: list[Frame], type_: str, inside: str, member: str) -> bytes:
    """A stream in which an id of the events of one type is another."""

    def edit(payload: Payload) -> None:
        if payload["type"] == type_:
            (payload[inside] if inside else payload)[member] = "other"

    return edited(told, edit)


def with_output(*output: Any, told: list[Frame] = TEXT) -> bytes:
    """A stream whose end has that output."""

    def edit(payload: Payload) -> None:
        if payload["type"] == COMPLETED:
            payload["response"]["output"] = list(output)

    return edited(told, edit)


def text(result: Any) -> Any:
    """The text of the response. In Python it is worked out when it is asked for."""
    parts = [part for item in result["output"] for part in item["content"]]
    return "".join([part["text"] for part in parts])


SAID = "Hello, world."
REFUSED = "Cannot complete response with unfinished output items."
GONE = {"message": "gone", "code": "server_error"}
FLAT = ("error", {"type": "error", "sequence_number": 5, "param": None, **GONE})
PROBES = [
    Probe(
        name="no beginning",
        rule=it_begins,
        data=without(TEXT, CREATED),
        look=text,
        python=Raises("RuntimeError", "response.created"),
        javascript=Raises("OpenAIError", "response.created"),
    ),
    Probe(
        name="a text before its item",
        rule=all_is_announced,
        data=without(TEXT, ADDED),
        look=text,
        python=Raises("RuntimeError", "before receiving its output item"),
        javascript=Raises("OpenAIError", "missing output"),
    ),
    Probe(
        name="arguments before their call",
        rule=all_is_announced,
        data=without(CALL, ADDED),
        look=text,
        python=Raises("RuntimeError", "before receiving its output item"),
        javascript=Raises("OpenAIError", "missing output"),
    ),
    Probe(
        name="a text before its part",
        rule=all_is_announced,
        data=without(TEXT, PART_ADDED),
        look=text,
        python=Raises("IndexError"),
        javascript=Raises("OpenAIError", "missing content"),
    ),
    Probe(
        name="no number of the item",
        rule=all_is_announced,
        data=cut("output_index", DELTA),
        look=text,
        python=Raises("RuntimeError"),
        javascript=Raises("OpenAIError", "missing output"),
    ),
    Probe(
        name="no number of the part",
        rule=all_is_announced,
        data=cut("content_index", DELTA),
        look=text,
        python=Raises("TypeError"),
        javascript=Raises("OpenAIError", "missing content"),
    ),
    Probe(
        name="no numbers of events",
        rule=numbers_count,
        data=cut("sequence_number"),
        look=text,
        python=SAID,
    ),
    Probe(name="no log probabilities", rule=texts_have_logprobs, data=cut("logprobs", DELTA), look=text, python=SAID),
    Probe(
        name="an item that is done under another id",
        rule=ids_stay,
        data=renamed(TEXT, DONE, "item", "id"),
        look=text,
        python=Raises("RuntimeError", "identity changed"),
        javascript=Raises("OpenAIError", "got 'other'"),
    ),
    Probe(
        name="a call that is done under another id",
        rule=ids_stay,
        data=renamed(CALL, DONE, "item", "call_id"),
        look=text,
        python=Raises("RuntimeError", "identity changed"),
        javascript=Raises("OpenAIError", "got 'other'"),
    ),
    Probe(
        name="a text under another id",
        rule=all_is_announced,
        data=renamed(TEXT, DELTA, "", "item_id"),
        look=text,
        python=SAID,
        javascript=Raises("OpenAIError", "got 'other'"),
    ),
    Probe(
        name="a response that ends under another id",
        rule=ids_stay,
        data=renamed(TEXT, COMPLETED, "response", "id"),
        look=text,
        python=Raises("RuntimeError", "identity changed"),
        javascript=Raises("OpenAIError", "identity changed"),
    ),
    Probe(
        name="an item that is not done but in the end",
        rule=what_is_announced_is_done,
        data=without(TEXT, DONE),
        look=text,
        python=SAID,
    ),
    Probe(
        name="an item that is not done and not in the end",
        rule=what_is_announced_is_done,
        data=with_output(told=frames(without(TEXT, DONE))),
        look=text,
        python=Raises("RuntimeError", REFUSED),
        javascript=Raises("OpenAIError", REFUSED),
    ),
    Probe(name="an end without output", rule=the_end_has_all, data=with_output(), look=text, python=""),
    Probe(
        name="no end",
        rule=it_ends,
        data=sent(TEXT[:-1]),
        look=lambda result: (text(result), result["status"]),
        python=Raises("RuntimeError", "response.completed"),
        javascript=(SAID, "in_progress"),
    ),
    Probe(
        name="more behind the end",
        rule=it_ends,
        data=sent([*TEXT, next(frame for frame in TEXT if frame[0] == DELTA)]),
        look=text,
        python=SAID,
        javascript=SAID * 2,
    ),
    Probe(
        name="a nested error",
        rule=it_ends,
        data=sent([*TEXT[:5], ("error", {"type": "error", "error": GONE})]),
        look=text,
        python=Raises("APIError", "gone"),
    ),
    Probe(
        name="a flat error",
        rule=it_ends,
        data=sent([*TEXT[:5], FLAT]),
        look=text,
        python=Raises("RuntimeError", "response.completed"),
        javascript=Raises("APIError", "gone"),
    ),
    Probe(
        name="a flat error at once",
        rule=it_begins,
        data=sent([FLAT]),
        look=text,
        python=Raises("RuntimeError", "response.created"),
        javascript=Raises("APIError", "gone"),
    ),
    Probe(
        name="no names of events",
        rule=names_are_types,
        data=sent([("", payload) for _, payload in TEXT]),
        look=text,
        python=SAID,
    ),
    Probe(
        name="an event that nobody knows",
        rule=names_are_types,
        data=sent([*TEXT[:4], ("response.new", {"type": "response.new", "sequence_number": 4}), *TEXT[4:]]),
        look=text,
        python=SAID,
        javascript=Raises("OpenAIError", "Unhandled response stream event"),
    ),
]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_what_the_sdks_make_of_a_wrong_stream(sdk: Sdk, server: Server, probe: Probe) -> None:
    server.serve(probe.data)
    expected = probe.expected(sdk.language)
    assert expected == probe.seen(sdk.ask("responses.stream", server), expected)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_the_rule_forbids_the_probe(probe: Probe) -> None:
    assert probe.rule is not None
    assert not probe.rule(frames(probe.data), True)
    assert probe.rule(TEXT, True)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_stream_of_ours_keeps_the_rule(rule: Rule) -> None:
    assert [] == broken("responses", rule)
