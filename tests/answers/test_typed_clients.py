"""Owns members that SDKs of typed languages (Go, Java, Rust) want, and those of Python and JavaScript do without."""

from __future__ import annotations

from tests.answers.corpus import BY_NAME, WHOLE
from tests.answers.probes import frames
from tests.answers.wires import stream

ARGUMENTS_DONE = "response.function_call_arguments.done"


def test_the_end_of_the_arguments_names_the_function() -> None:
    """A client that runs the call at this event has no other place for the name, and some raise where it is missing."""
    seen = 0
    for answer in WHOLE:
        payloads = [payload for _, payload in frames(stream("responses", answer))]
        names = {one["output_index"]: one["item"].get("name") for one in payloads if one["type"].endswith("item.added")}
        for one in payloads:
            if one["type"] == ARGUMENTS_DONE:
                assert names[one["output_index"]] == one["name"], answer.name
                seen += 1
    assert seen > 10


def test_the_end_of_the_arguments_names_it_without_its_namespace() -> None:
    payloads = [payload for _, payload in frames(stream("responses", BY_NAME["call in a namespace by its long name"]))]
    (done,) = [one for one in payloads if one["type"] == ARGUMENTS_DONE]
    (item,) = [one["item"] for one in payloads if one["type"].endswith("item.added")]
    assert item["namespace"] not in done["name"]
