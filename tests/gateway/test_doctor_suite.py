"""The doctor's suite of tool calls: a model that is right in any format is told so, one that is not is told where."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import pytest

from tests.gateway.speaker import Speaker, Turn, call, text
from tests.gateway.stage import FORMAT, Threaded
from turnscript.convert.registry import formats, get_format
from turnscript.core.conversation import Item, Response
from turnscript.gateway import doctor_suite
from turnscript.gateway.checks import check_calls
from turnscript.gateway.config import Config
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.served import Served

RIGHT: dict[str, list[Item]] = {
    "weather in Paris": [call("get_weather", city="Paris")],
    "10 minutes": [call("set_timer", minutes=10)],
    "mention invoices": [call("search_files", word="invoices")],
    "ann@example.org": [call("send_mail", to="ann@example.org", text="The train is late.")],
    "Lima": [call("get_weather", city="Rome"), call("get_weather", city="Lima")],
    "snow": [text("Snow, three degrees below zero.")],
    "French": [text("Bonjour!")],
    "Cairo": [call("get_weather", city="Cairo")],
}


def spoken(format_: str, answers: dict[str, list[Item]], change: Callable[[str], str] = str) -> Check:
    """The suite against a model that gives these answers in a format."""
    tools = list({tool.name: tool for case in doctor_suite.CASES for tool in case.tools}.values())
    speaker = Speaker(get_format(format_), tools)
    speaker.answering = lambda prompt: Turn(
        next((items for words, items in answers.items() if words in prompt.rpartition("weather of a city")[2]), []),
        change,
    )
    with Threaded() as thread, thread.server(speaker) as server:
        config = Config.for_backend(f"{server.url}{speaker.wire.path}", format_, kind=speaker.wire.kind)

        async def run() -> Check:
            served = Served(config.models[0], config, 0)
            await served.ready()
            try:
                patient = Patient(served, served.pool.members[0].upstream, config)
                return await doctor_suite.tool_calls(patient)
            finally:
                await served.close()

        return asyncio.run(run())


def test_some_formats_have_one_call_in_a_turn() -> None:
    alone = {name for name in formats() if not doctor_suite.calls_together(get_format(name))}
    assert {"batuta-chatml", "batuta-llama3", "batuta-generic"} == alone


@pytest.mark.parametrize("format_", formats())
def test_a_model_that_does_everything_right_is_told_so_in_every_format(format_: str) -> None:
    together = doctor_suite.calls_together(get_format(format_))
    check = spoken(format_, RIGHT if together else RIGHT | {"Lima": RIGHT["Lima"][:1]})
    assert (8, []) == (check.figures["passed"], check.figures["failed"]), check
    assert "ok" == check.state


@pytest.mark.parametrize(
    ("answers", "figures", "why"),
    [
        ({"10 minutes": [text("No.")]}, {"passed": 7, "parsed": 8, "right": 7, "valid": 7}, "a number (no call)"),
        (
            {"10 minutes": [call("set_timer", minutes="10")]},
            {"passed": 7, "parsed": 8, "right": 8, "valid": 7},
            "schema",
        ),
        ({"10 minutes": [call("stop_timer", minutes=10)]}, {"passed": 7, "parsed": 8, "right": 7}, "calls stop_timer"),
        ({"French": [call("get_weather", city="Nice")]}, {"passed": 7, "right": 7}, "calls get_weather"),
        ({"Lima": [call("get_weather", city="Rome")]}, {"passed": 7, "right": 7}, "two calls"),
    ],
)
def test_a_model_that_does_something_wrong_is_told_what(
    answers: dict[str, list[Item]], figures: dict[str, int], why: str
) -> None:
    check = spoken(FORMAT, RIGHT | answers)
    assert figures.items() <= check.figures.items()
    failed = check.figures["failed"]
    assert isinstance(failed, list)
    assert [why in one for one in failed] == [True]


def test_a_model_that_fails_is_no_fault_of_its_server() -> None:
    check = spoken(FORMAT, RIGHT, lambda written: written.replace("{", "{{"))
    assert "warning" == check.state
    assert "no fault of the server" in check.remedy
    assert 2 == check.figures["passed"]
    assert 2 == check.figures["parsed"]


def test_the_suite_knows_its_own_answers() -> None:
    """The schemas accept what is expected, and each case can be told from the others."""
    for case, (words, items) in zip(doctor_suite.CASES, RIGHT.items(), strict=True):
        asked = json.dumps([str(item) for item in case.items])
        assert words in asked
        response = Response(items=items, finish_reason="stop")
        assert doctor_suite.judged(case, response, check_calls(response, case.tools)).passed
        assert not doctor_suite.judged(case, Response(items=[]), []).passed
