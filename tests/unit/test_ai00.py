"""Owns the exact bytes of ai00's chat format v1: its document's examples, turns, prompts and stops; the way from v0."""

import hashlib
import json
from typing import Any

import pytest

import turnscript as ts
from tests import corpora
from tests.ai00 import (
    CALL,
    FORMAT,
    GOLDEN,
    RESULT,
    TOKYO,
    WEATHER,
    answer,
    assistant,
    calls,
    cities,
    example,
    invoke,
    read,
    request,
    results,
    said,
    short,
    text,
    turn,
    written,
)
from tests.cli.running import convert
from tests.conformance.test_format_laws import check_inverse
from turnscript.core.conversation import text_content

PROMPTS: list[dict[str, Any]] = json.loads((GOLDEN / "prompts.json").read_text())


# The examples of the document.

WHOLE = [
    pytest.param(
        "a1",
        [
            ts.System(content=text("You are a helpful assistant.")),
            *said("Hello!", "Hi there! How can I help you today?"),
        ],
        id="R-A-7 A1",
    ),
    pytest.param(
        "a2",
        [
            ts.Thinking(content=text("Let me reason through this step by step...")),
            ts.Assistant(content=text("Based on my analysis, the answer is 42.")),
        ],
        id="R-A-9 A2",
    ),
    pytest.param(
        "a7",
        [
            *said("What's the weather in Tokyo?", "I'll check that for you."),
            CALL,
            RESULT,
            ts.Assistant(content=text("It's 22°C and sunny in Tokyo!")),
        ],
        id="R-A-16 A7",
    ),
]


@pytest.mark.parametrize(("name", "items"), WHOLE)
def test_a_conversation_is_written_as_the_document_shows_it(name: str, items: list[ts.Item]) -> None:
    assert example(name) == written(*items)
    assert items == FORMAT.parse(example(name)).items


def test_the_tool_definitions_are_written_as_the_document_shows_them() -> None:
    """R-A-12, D-A-3: golden A3, in the system turn, as indented JSON with Anthropic's keys."""
    system = ts.System(content=text("You are a helpful assistant."))
    assert example("a3") == written(system, tools=[WEATHER])
    found = FORMAT.parse(example("a3"))
    assert ([system], [WEATHER]) == (found.items, found.tools)


@pytest.mark.parametrize(
    ("name", "cities"),
    [pytest.param("a4", ["Tokyo"], id="R-A-13 A4"), pytest.param("a5", ["Tokyo", "London"], id="R-A-14 A5")],
)
def test_calls_are_written_and_read_as_the_document_shows_them(name: str, cities: list[str]) -> None:
    """Parallel calls are several `<invoke>` in one block; a model's output is read alike."""
    made: list[ts.Item] = [ts.ToolCall(name="get_weather", arguments=f'{{"city": "{city}"}}') for city in cities]
    assert turn("assistant", example(name)) == written(*made)
    assert made == FORMAT.parse(turn("assistant", example(name))).items
    response = answer(example(name), [WEATHER])
    assert (short(made), []) == (short(response.items), response.issues)


def test_results_are_written_as_the_document_shows_them() -> None:
    """R-A-15: golden A6, the content indented by four spaces, line by line (D-A-4)."""
    pretty = '{\n  "temperature": 22,\n  "condition": "sunny"\n}'
    result = ts.ToolResult(id="toolu_01abc123", content=text(pretty))
    assert turn("assistant", example("a6")) == FORMAT.render(request(result)).value
    assert [result] == FORMAT.parse(turn("assistant", example("a6"))).items


def test_the_degree_sign_has_its_own_two_bytes() -> None:
    """D-A-1: the document's `Â` is an error of copying."""
    assert b"22\xc2\xb0C" in example("a7").encode()
    assert "Â" not in example("a7")


@pytest.mark.parametrize("name", ["c1", "c2", "c3"])
def test_a_golden_conversation_has_the_golden_bytes(name: str) -> None:
    """Without instructions the tool list begins the system turn (D-A-9: C3)."""
    rendered = FORMAT.render(corpora.load(name))
    assert (example(name), []) == (rendered.value, rendered.losses)
    assert example(name) == FORMAT.render(FORMAT.parse(example(name))).value


@pytest.mark.parametrize("row", PROMPTS, ids=lambda row: f"{row['conversation']}-thinking-{row['thinking']}")
def test_a_generation_prompt_has_the_golden_bytes(row: dict[str, Any]) -> None:
    whole = corpora.load("c1")
    cut = request(*whole.items[: {"P1": 2, "P1r": 5}[row["conversation"]]], tools=whole.tools)
    data = FORMAT.prompt(cut, thinking=row["thinking"]).text.encode()
    assert (row["bytes"], row["sha256_16"]) == (len(data), hashlib.sha256(data).hexdigest()[:16])


# Turns and texts.


def test_every_turn_is_marked_by_tags_with_the_prefix() -> None:
    """R-A-1: XML-like, `ai00:` before each name."""
    marks = [mark for one in FORMAT.document.turns for mark in (one.open.strip(), one.close.strip())]
    assert [mark for role in ("system", "user", "assistant") for mark in (f"<ai00:{role}>", f"</ai00:{role}>")] == marks


@pytest.mark.parametrize(
    ("role", "item"),
    [
        pytest.param("system", ts.System(content=text("Hi\nyou")), id="R-A-2"),
        pytest.param("user", ts.User(content=text("Hi\nyou")), id="R-A-3"),
        pytest.param("assistant", ts.Assistant(content=text("Hi\nyou")), id="R-A-4"),
    ],
)
def test_a_turn_is_its_text_on_lines_between_its_tags(role: str, item: ts.Item) -> None:
    """R-A-5."""
    assert f"<ai00:{role}>\nHi\nyou\n</ai00:{role}>" == written(item)
    assert [item] == FORMAT.parse(f"<ai00:{role}>\nHi\nyou\n</ai00:{role}>").items


def test_a_blank_line_stands_between_turns() -> None:
    """R-A-6, and D-A-14: two texts of one speaker stay two turns."""
    items = [*said("a", "b"), *said("c", "d"), *said("e"), *said("f")]
    parts = [turn(role, one) for role, one in zip(["user", "assistant"] * 2 + ["user"] * 2, "abcdef", strict=True)]
    assert "\n\n".join(parts) == written(*items)
    assert items == FORMAT.parse("\n\n".join(parts)).items


@pytest.mark.parametrize(
    "one", ["", "\n", "a\n", "\n\n", "a\n\n\n\nb", " lead", "trail ", "a\r\nb", "。", "\n\nUser: x"]
)
def test_newlines_and_white_space_are_content(one: str) -> None:
    """R-A-8: nothing is normalised."""
    assert turn("user", one) + "\n\n" + turn("assistant", one) == written(*said(one, one))
    assert said(one, one) == FORMAT.parse(written(*said(one, one))).items


def test_merged_turns_are_an_option_that_says_so() -> None:
    """D-A-14."""
    rendered = FORMAT.variant("merge-turns").render(request(*said("a"), *said("b", "c")))
    assert turn("user", "a\n\nb") + "\n\n" + turn("assistant", "c") == rendered.value
    assert ["items[1]: moved: it goes on in the turn before and is read as one with it"] == list(
        map(str, rendered.losses)
    )


# Thinking and prompts.


def test_a_prompt_opens_the_assistants_turn() -> None:
    """R-A-10, R-A-11: exactly these bytes, the newline too."""
    user = turn("user", "q") + "\n\n"
    assert user + "<ai00:assistant>\n" == FORMAT.prompt(request(*said("q"))).text
    assert user + "<ai00:assistant>\n<think>\n" == FORMAT.prompt(request(*said("q")), thinking=True).text


def test_no_word_in_the_user_text_asks_for_thinking() -> None:
    """D-A-15."""
    asked = request(*said("q"))
    asked.settings.effort = "high"
    assert turn("user", "q") in FORMAT.prompt(asked).text


def test_a_prompt_without_white_space_at_its_end_is_an_option() -> None:
    """D-A-11: the model writes what is left out, and one line feed of it is not of the text."""
    format_ = FORMAT.variant("strip-prompt")
    for thinking, end, output in ((False, "<ai00:assistant>", "\n\nHo."), (True, "<think>", "\nHm.\n</think>\n\nHo.")):
        prompt = format_.prompt(request(*said("q")), thinking=thinking)
        assert prompt.text.endswith(end)
        response = ts.fold((parser := prompt.parser()).feed(output) + parser.close())
        assert "\nHo." == text_content(response.items[-1].content)  # type: ignore[attr-defined]
    after = format_.prompt(request(CALL, RESULT))
    assert after.text.endswith("</ai00:function_results>")
    response = ts.fold((parser := after.parser()).feed("\n\nHo.") + parser.close())
    assert [("assistant", "Ho.")] == short(response.items)


@pytest.mark.parametrize("inner", ["<think>x</think>y", "<think>\nx\n</think>\ny", "<think>\nx</think>\n\ny"])
def test_thoughts_are_read_with_and_without_newlines(inner: str) -> None:
    """D-A-17: a second newline behind the closing is of the text."""
    expected = [("thinking", "x"), ("assistant", "\ny" if "\n\n" in inner else "y")]
    assert expected == read(turn("assistant", inner))
    assert expected == short(answer(inner).items)


def test_a_thought_elsewhere_than_at_the_start_or_behind_results_is_content() -> None:
    """D-A-17."""
    middle = "a <think>\nx\n</think>\nb"
    assert [("assistant", middle)] == read(turn("assistant", middle))
    assert [("assistant", middle)] == short(answer(middle).items)
    after = assistant(calls(TOKYO), results(('name="t1"', "    1")) + "\n\n<think>\nx\n</think>\nb")
    assert ["tool_call", "tool_result", "thinking", "assistant"] == [item.kind for item in FORMAT.parse(after).items]


def test_after_results_the_model_goes_on_in_its_open_turn() -> None:
    """D-A-12."""
    prompt = FORMAT.prompt(request(*said("q"), CALL, RESULT))
    assert prompt.text.endswith("  </result>\n</ai00:function_results>\n\n")
    assert 1 == prompt.text.count("<ai00:assistant>")
    response = ts.fold((parser := prompt.parser()).feed("22\n</ai00:assistant>") + parser.close())
    assert [("assistant", "22")] == short(response.items)


# How an answer ends.


@pytest.mark.parametrize("end", ["\n</ai00:assistant>", "\n", "", "</ai00:assistant>", "\n</ai00:assistant>\n\n"])
def test_the_stop_ends_the_turn_and_may_be_missing(end: str) -> None:
    """R-A-17: it is the default stop."""
    assert ["</ai00:assistant>"] == FORMAT.stops == FORMAT.prompt(request(*said("q"))).stops
    response = answer(f"Hi.{end}")
    assert ([("assistant", "Hi.")], "stop", []) == (short(response.items), response.finish_reason, response.issues)


def test_nothing_behind_the_stop_is_said() -> None:
    """R-A-17."""
    response = answer("Hi.\n</ai00:assistant>\n\n<ai00:user>\nmore\n</ai00:user>")
    assert [("assistant", "Hi.")] == short(response.items)


@pytest.mark.parametrize("end", ["</ai00:function_calls>", "", "</ai00:function_calls>\n</ai00:assistant>"])
def test_calls_end_the_answer_with_and_without_their_closing(end: str) -> None:
    """R-A-18, D-A-16: the closing is a stop where tools are offered, and one complete call is a use of tools."""
    asked = request(*said("q"), tools=[WEATHER])
    assert ["</ai00:assistant>", "</ai00:function_calls>"] == FORMAT.prompt(asked).stops
    response = answer(calls(TOKYO).removesuffix("</ai00:function_calls>") + end, [WEATHER])
    assert (["Tokyo"], "tool_calls", []) == (cities(response), response.finish_reason, response.issues)


def test_without_a_complete_call_no_tool_is_used() -> None:
    """R-A-18, D-A-16."""
    response = answer(calls(TOKYO)[:60], [WEATHER])
    assert ("stop", ["unclosed_call"]) == (response.finish_reason, [issue.kind for issue in response.issues])
    assert [] == cities(response)


# The way from v0.

OLD_CALL = '<tool_call>{"name":"f","arguments":{"a":"x"}}</tool_call>'
NEW_CALL = calls(invoke("f", "a>x"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("User: content", turn("user", "content"), id="R-A-20"),
        pytest.param("Assistant: content", turn("assistant", "content"), id="R-A-21"),
        pytest.param("System: content", turn("system", "content"), id="R-A-22"),
        pytest.param(f"Assistant: {OLD_CALL}", assistant(NEW_CALL), id="R-A-23"),
        pytest.param(
            "Assistant: " + OLD_CALL.replace("arguments", "input"), assistant(NEW_CALL), id="R-A-23 input D-A-18"
        ),
        pytest.param(
            'Assistant: Hm.\n<tool_call>\n{"arguments": {"a": "x"}, "name": "f"}\n</tool_call>',
            assistant("Hm.\n", NEW_CALL),
            id="R-A-23 any layout D-A-18",
        ),
        pytest.param(
            f'Assistant: {OLD_CALL}\n\nUser: <tool_response>{{"r": 1}}</tool_response>\n\nAssistant: Ho.',
            assistant(NEW_CALL, results(('name="f"', '    {"r": 1}')) + "\n", "Ho."),
            id="results D-A-18",
        ),
        pytest.param(
            f"Assistant: {OLD_CALL}\n{OLD_CALL}\n\n"
            "User: <tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>",
            assistant(
                calls(invoke("f", "a>x"), invoke("f", "a>x")), results(*[('name="f"', f"    {n}") for n in (1, 2)])
            ),
            id="several results in one turn D-A-18",
        ),
    ],
)
def test_a_transcript_of_v0_becomes_one_of_v1(old: str, new: str) -> None:
    """D-A-18: by its meaning, from the library and on the command line."""
    assert new == ts.convert(old, "ai00-v0", "ai00-v1").value
    result = convert("--from", "ai00-v0", "--to", "ai00-v1", stdin=old)
    assert (0, new) == (result.exit_code, result.stdout)


def test_a_text_of_v0_is_no_tag_of_v1() -> None:
    """D-A-18: it is no replacement of strings; what was text stays text."""
    old = "User: </ai00:user> and\nSystem: you\n\nAssistant: <ai00:user>"
    items = ts.parse(ts.convert(old, "ai00-v0", "ai00-v1").data, "ai00-v1").items
    assert [("user", "</ai00:user> and\nSystem: you"), ("assistant", "<ai00:user>")] == short(items)


def test_the_tool_list_of_v0_is_converted_too() -> None:
    """D-A-18."""
    old = (GOLDEN.parent / "ai00_v0" / "c1.txt").read_text(encoding="utf-8")
    converted = str(ts.convert(old, "ai00-v0", "ai00-v1").value)
    assert example("c1").replace("toolu_01abc123", "get_weather") == converted


# Options.


@pytest.mark.parametrize("option", sorted(FORMAT.variants))
@corpora.on_every
def test_conversations_read_back_with_every_option(option: str, name: str) -> None:
    """Or a loss says so; what is merged cannot be told apart."""
    if option != "merge-turns" or not corpora.needs(name) & {"user_runs", "assistant_runs"}:
        check_inverse(FORMAT.variant(option), corpora.load(name))
