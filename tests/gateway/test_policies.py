"""Owns policies end to end: what a key wants done about losses, vendors' tools, and calls that fit no tool."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.stage import CHATS, WEATHER, Stage, Told, answer, named, text_of_call
from turnscript.apis.api import Api
from turnscript.core.json_text import is_object
from turnscript.gateway.headers import LOSSES, REPORT
from turnscript.gateway.keys import add_key

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


CALLED = [("get_weather", '{"city": "Paris"}')]
UNREADABLE = {
    "JSON that breaks off": GOOD.replace('"Paris"}', '"Paris'),
    "no object": GOOD.replace('{"city": "Paris"}', '["Paris"]'),
    "no JSON": GOOD.replace('{"city": "Paris"}', "the weather in Paris"),
    "no end of its opening": GOOD.replace(">>", "", 1),
    "no end": GOOD[: GOOD.index('"Paris"')],
}


@EACH
@BOTH
@pytest.mark.parametrize("before", ["", "Let me look.", GOOD], ids=["alone", "behind a text", "behind a call"])
@pytest.mark.parametrize("wrong", UNREADABLE.values(), ids=list(UNREADABLE))
def test_a_call_that_nobody_can_read_is_told_as_text_or_made_again(
    keys: tuple[Stage, dict[str, str]], api: Api, stream: bool, before: str, wrong: str
) -> None:
    stage, _ = keys
    text, earlier = (before, []) if before != GOOD else ("", CALLED)
    begun = before if before in ("", GOOD) else f"<<ASSISTANT>>\n{before}\n<<ASSISTANT_END>>\n\n"
    counted_before = counted(stage, "unreadable")
    for name, scripts in {"plain": [wrong], "wordy": [wrong], "patient": [wrong, GOOD]}.items():
        stage.play(answer(*pieces(begun + scripts[0])), *map(answer, scripts[1:]))
        told = ask(keys, name, api, stream=stream, tools=[WEATHER])
        called = [(call.name, call.arguments) for call in told.calls if is_object(call.arguments)]
        if called != [(call.name, call.arguments) for call in told.calls]:  # its beginning was told as it came
            assert stream
            assert "plain" == name
            assert told.end is not None
            assert "length" == told.end.finish_reason
        if name == "patient":
            assert [*earlier, *CALLED] == called
            assert text == told.text.strip()
            assert stage.asks[0][1].json["prompt"] == stage.asks[0][0].json["prompt"] + begun.rstrip("\n")
        else:
            assert earlier == called
            assert told.text.startswith(text)
            assert "Paris" in told.text or wrong == UNREADABLE["no end"]
        assert len(scripts) == len(stage.asks[0])
        assert ["unreadable"] == [finding["kind"] for finding in report_of(keys, name, told)["findings"]]
    assert 3 == counted(stage, "unreadable") - counted_before


def pieces(text: str) -> list[str]:
    """A text as a server streams it."""
    return [text[start : start + 5] for start in range(0, len(text), 5)]


@EACH
def test_a_call_that_the_limit_cuts_off_is_not_made_again(keys: tuple[Stage, dict[str, str]], api: Api) -> None:
    stage, _ = keys
    stage.play(answer(UNREADABLE["no end"], finish="length"))
    told = ask(keys, "patient", api, tools=[WEATHER])
    assert ([], 1) == (told.calls, len(stage.asks[0]))
    assert [] == report_of(keys, "patient", told)["findings"]


@EACH
@BOTH
def test_what_is_made_again_and_is_wrong_again_is_told_as_text(
    keys: tuple[Stage, dict[str, str]], api: Api, stream: bool
) -> None:
    stage, _ = keys
    wrong = UNREADABLE["no object"]
    stage.play(answer(*pieces(wrong)), answer(*pieces(wrong)))
    told = ask(keys, "patient", api, stream=stream, tools=[WEATHER])
    assert ([], 2) == (told.calls, len(stage.asks[0]))
    assert '["Paris"]' in told.text
    assert told.text.count("TOOL_CALL name") == 1


def counted(stage: Stage, kind: str) -> float:
    """How many findings of a kind the metrics have counted."""
    lines = stage.client.get("/metrics").text.splitlines()
    wanted = [line for line in lines if line.startswith("turnscript_call_findings_total") and f'"{kind}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in wanted)
