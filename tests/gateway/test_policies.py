"""Owns policies end to end: what a key wants done about losses, vendors' tools, and calls that fit no tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.stage import CHATS, WEATHER, Stage, Told, answer, named, text_of_call
from turnscript.api import Api
from turnscript.gateway.headers import LOSSES, REPORT
from turnscript.gateway.keyfile import add_key

EACH = pytest.mark.parametrize("api", CHATS, ids=named)
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
POLICIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "strict": {"losses": "error"},
    "silent": {"losses": "ignore"},
    "firm": {"hosted_tools": "refuse"},
    "wordy": {"invalid_calls": "text"},
    "patient": {"invalid_calls": "retry"},
}
GOOD, BAD, STRANGE = text_of_call(), text_of_call().replace("city", "town"), text_of_call().replace("get_", "make_")
FAULTS = {"schema_mismatch": BAD, "unknown_tool": STRANGE}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, dict[str, str]]]:
    path = tmp_path_factory.mktemp("keys") / "keys"
    tokens = {name: add_key(path, name, policy=own).reveal() for name, own in POLICIES.items()}
    with Stage(server={"keys": path}, metrics={"public": True}) as made:
        yield made, tokens


def ask(keys: tuple[Stage, dict[str, str]], name: str, api: Api, *, stream: bool = False, **more: Any) -> Told:
    """What a client with a key of this name is told."""
    stage, tokens = keys
    stage.asks[0].clear()
    return stage.ask(api, stream=stream, headers={"x-api-key": tokens[name]}, **more)


def report_of(keys: tuple[Stage, dict[str, str]], name: str, told: Told) -> Any:
    stage, tokens = keys
    return stage.client.get(told.headers[REPORT], headers={"x-api-key": tokens[name]}).json()


@EACH
@BOTH
def test_what_is_done_about_a_loss_is_the_affair_of_a_key(
    keys: tuple[Stage, dict[str, str]], api: Api, stream: bool
) -> None:
    stage, _ = keys
    stage.play(answer("Hello"))
    assert "1" == ask(keys, "plain", api, stream=stream, temperature=3).headers[LOSSES]
    assert LOSSES not in ask(keys, "silent", api, stream=stream, temperature=3).headers
    assert (400, []) == (ask(keys, "strict", api, stream=stream, temperature=3).status, stage.asks[0])
    assert "Hello" == ask(keys, "strict", api, stream=stream).text


@EACH
@pytest.mark.parametrize("options", [{}, {"search_context_size": "low"}])
def test_what_is_done_about_a_vendors_tool_is_the_affair_of_a_key(
    keys: tuple[Stage, dict[str, str]], api: Api, options: dict[str, Any]
) -> None:
    """Options that say nothing ask for the search, too."""
    stage, _ = keys
    stage.play(answer("Hello"))
    hosted: dict[str, Any] = {"web_search_options": options}
    reported = ask(keys, "plain", api, **hosted)
    assert ("Hello", "1") == (reported.text, reported.headers[LOSSES])
    told = ask(keys, "firm", api, **hosted)
    assert (400, []) == (told.status, stage.asks[0])
    assert "$.web_search_options" in str(told.error)


@EACH
@BOTH
@pytest.mark.parametrize("fault", FAULTS)
def test_a_call_that_fits_no_tool_is_passed_on_told_as_text_or_made_again(
    keys: tuple[Stage, dict[str, str]], api: Api, stream: bool, fault: str
) -> None:
    stage, _ = keys
    wrong = FAULTS[fault]
    before = counted(stage, fault)
    for name, scripts in {"plain": [wrong], "wordy": [wrong], "patient": [wrong, GOOD]}.items():
        stage.play(*map(answer, scripts))
        told = ask(keys, name, api, stream=stream, tools=[WEATHER])
        called = [(call.name, call.arguments) for call in told.calls]
        if name == "plain":
            assert 1 == len(called)
            assert ("get_weather", '{"city": "Paris"}') != called[0]
        elif name == "wordy":
            assert [] == called
            assert "Paris" in told.text
            assert told.end is not None
            assert "stop" == told.end.finish_reason
        else:
            assert [("get_weather", '{"city": "Paris"}')] == called
        assert len(scripts) == len(stage.asks[0])
        assert fault in [finding["kind"] for finding in report_of(keys, name, told)["findings"]]
    assert 3 <= counted(stage, fault) - before


def counted(stage: Stage, kind: str) -> float:
    """How many findings of a kind the metrics have counted."""
    lines = stage.client.get("/metrics").text.splitlines()
    wanted = [line for line in lines if line.startswith("turnscript_call_findings_total") and f'"{kind}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)
