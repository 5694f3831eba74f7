"""Owns the law of ended turns: a parser says when a model need not go on, and not before."""

import pytest

import turnscript as ts
from tests.conformance.test_parser_laws import WEATHER, begins_call, calls_text, opens_text

NEXT = 2
"""How many characters a parser may need to see behind a stop that may be the beginning of something else."""
CALL = ts.ToolCall(name="get_weather", arguments='{"city": "Tokyo"}', id="call_auto_001")


def prompt_of(
    format_name: str, tools: list[ts.Tool], mode: str | None = None, stop: list[str] | None = None
) -> ts.Prompt:
    """A prompt for an answer to one question."""
    question = ts.User(content=[ts.Text(text="Hi")])
    asked = ts.Request(conversation=ts.Conversation(items=[question], tools=tools))
    asked.settings.tool_choice = ts.ToolChoice(mode=mode) if mode else None
    asked.settings.stop = stop
    return ts.get_format(format_name).prompt(asked, thinking=False)


def ended_at(prompt: ts.Prompt, written: str) -> int | None:
    """After how many characters a parser says that the turn has ended. Once it has, it stays so."""
    parser = prompt.parser()
    assert not parser.ended
    said: list[bool] = []
    for letter in written:
        parser.feed(letter)
        said.append(parser.ended)
    parser.close()
    assert said == sorted(said)
    return said.index(True) + 1 if True in said else None


@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["no tools", "tools"])
def test_an_answer_ends_with_each_of_the_formats_stops_and_not_before(format_name: str, tools: list[ts.Tool]) -> None:
    prompt = prompt_of(format_name, tools)
    stops = [stop for stop in prompt.stops if not closes_calls(format_name, stop)]
    assert stops
    for stop in stops:
        written = f"Some words{stop}"
        at = ended_at(prompt, f"{written} and more")
        assert at is not None
        assert 0 <= at - len(written) <= NEXT, stop
        assert ended_at(prompt, written[: -len(stop.strip())]) is None


@pytest.mark.about("calls")
def test_a_turn_of_calls_ends_with_its_closing_or_its_stop_and_not_before(format_name: str) -> None:
    """A stop may be the closing of the calls, which a backend that keeps stops in the text writes too."""
    format_ = ts.get_format(format_name)
    prompt = prompt_of(format_name, [WEATHER])
    calls = calls_text(format_, 1, "Tokyo")
    written = calls[calls.index(begins_call(format_)) :]
    closed = any(stop.strip() in written for stop in prompt.stops)
    for text in [written] if closed else [f"{written}{stop}" for stop in prompt.stops]:
        at = ended_at(prompt, f"{text} and more")
        assert at is not None
        assert written.index("Tokyo") < at <= len(text) + NEXT


def test_a_forced_call_ends_with_its_stop(format_name: str) -> None:
    """Or with what closes the turn, which is no stop where a server does not show it."""
    format_ = ts.get_format(format_name)
    prompt = prompt_of(format_name, [WEATHER], mode="required")
    whole = ts.Request(
        conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")]), CALL], tools=[WEATHER])
    )
    written = str(format_.render(whole, view="prompt").value)[len(prompt.text) :].rstrip()
    ends = [end.strip() for end in (*prompt.stops, format_.document.model_turn.close)]
    met = [written.index(end) + len(end) for end in ends if end and end in written]
    at = ended_at(prompt, f"{written}   ")
    assert (at is None) == (not met)
    assert at is None or 0 <= at - min(met) <= NEXT


def test_an_answer_ends_with_the_clients_stop_and_not_before(format_name: str) -> None:
    for tools in ([], [WEATHER]):
        prompt, lead = prompt_of(format_name, tools, stop=["%%%"]), opens_text(ts.get_format(format_name))
        assert len(f"{lead}Some words%%%") == ended_at(prompt, f"{lead}Some words%%% and more")
        assert ended_at(prompt, f"{lead}Some words%% and more") is None


def test_an_answer_that_goes_on_has_not_ended(format_name: str) -> None:
    parser = prompt_of(format_name, []).parser()
    parser.feed("Some words")
    assert not parser.ended
    parser.close("length")
    assert not parser.ended


def closes_calls(format_name: str, stop: str) -> bool:
    """Whether a stop is in what calls alone are closed with: behind words it is text."""
    document = ts.get_format(format_name).document
    calls = [segment for turn in document.turns for segment in turn.segments if segment.kind == "tool_call"]
    closings = [closing for one in calls for closing in (one.close, one.group.close if one.group else "")]
    return stop.strip() != document.segment("assistant").close.strip() and any(stop.strip() in one for one in closings)
