"""Owns the exact bytes of RWKV Goose in its three styles of calls: turns, newlines, thinking, prompts and stops."""

import hashlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests import corpora
from tests.conformance.test_format_laws import check_inverse
from tests.goose import (
    CALL,
    FENCE,
    FORMAT,
    GOLDEN,
    STYLES,
    WEATHER,
    answer,
    content,
    example,
    read,
    request,
    result,
    said,
    short,
    written,
)
from tests.strategies import conversations, text

PROMPTS: list[dict[str, Any]] = json.loads((GOLDEN / "rwkv_goose" / "prompts.json").read_text())
TOKEN_0 = "<|rwkv_tokenizer_end_of_text|>"


def asking(budget: int | None = None, effort: str | None = None) -> ts.Request:
    """A question with a budget or an effort of thinking."""
    asked = request(*said("q"))
    asked.settings.thinking = ts.ThinkingMode(mode="enabled", budget=budget) if budget is not None else None
    asked.settings.effort = effort
    return asked


# Goldens.


@pytest.mark.parametrize(
    ("folder", "format_name", "name"),
    [
        *[("rwkv_goose", "rwkv-goose", name) for name in ("c1", "c2", "c3")],
        *[("ai00_v0", "ai00-v0", name) for name in ("c1", "c2", "c3")],
        *[("ai00_v0", "rwkv-goose-hermes", name) for name in ("c1", "c2", "c3")],
        *[("rwkv_goose", "rwkv-goose-observation", name) for name in ("c1_observation", "c2", "c3_observation")],
    ],
)
def test_a_golden_conversation_has_the_golden_bytes(folder: str, format_name: str, name: str) -> None:
    """D-G-10, D-G-14: the three styles of calls; `ai00-v0` is Goose in the style of Hermes."""
    format_ = ts.get_format(format_name)
    golden = example(name, folder)
    assert golden == format_.render(corpora.load(name.split("_", maxsplit=1)[0])).value
    assert golden == format_.render(format_.parse(golden)).value


@pytest.mark.parametrize("row", PROMPTS, ids=lambda row: f"{row['conversation']}-thinking-{row['thinking']}")
def test_a_generation_prompt_has_the_golden_bytes(row: dict[str, Any]) -> None:
    whole = corpora.load("c1")
    cut = request(*whole.items[: {"P1": 2, "P1r": 5}[row["conversation"]]], tools=whole.tools)
    data = FORMAT.prompt(cut, thinking=row["thinking"]).text.encode()
    assert (row["bytes"], row["sha256_16"]) == (len(data), hashlib.sha256(data).hexdigest()[:16])


def test_a_conversation_has_the_form_that_the_document_shows() -> None:
    """R-G-1."""
    items = [ts.System(content=content("...")), *said("...", "...", "...")]
    assert example("g1") == FORMAT.prompt(request(*items)).text
    assert [("system", "..."), *[("user", "..."), ("assistant", "...")] * 2][:-1] == read(example("g1"))[:-1]


# Turns and newlines.


@pytest.mark.parametrize(
    ("label", "item"),
    [
        pytest.param("System", ts.System(content=content("a\nb")), id="R-G-3"),
        pytest.param("User", ts.User(content=content("a\nb")), id="R-G-4"),
        pytest.param("Assistant", ts.Assistant(content=content("a\nb")), id="R-G-5"),
    ],
)
def test_a_turn_is_a_label_a_space_and_the_text(label: str, item: ts.Item) -> None:
    assert f"{label}: a\nb" == written(item)
    assert [item] == FORMAT.parse(f"{label}: a\nb").items
    assert [item] == FORMAT.parse(f"{label}:a\nb").items


@pytest.mark.parametrize("name", STYLES)
@given(request=conversations.plain_requests())
def test_a_blank_line_stands_between_turns_and_nowhere_else(name: str, request: ts.Request) -> None:
    """R-G-2, R-G-7: whatever the contents are, also empty ones beside tags."""
    format_ = ts.get_format(name)
    transcript = str(format_.render(request).value)
    turns = [turn.open for turn in format_.document.turns]
    assert "\n\n\n" not in transcript
    assert all(part.startswith(tuple(turns)) for part in transcript.split("\n\n") if transcript)


@pytest.mark.parametrize(
    ("one", "flat"),
    [
        ("a\n\nb", "a\nb"),
        ("a\n\n\nb", "a\nb"),
        ("a\n\n\n\n\nb\n\nc", "a\nb\nc"),
        ("a\r\n\r\nb\rc", "a\nb\nc"),
        ("\n a \n", "a"),
        ("a\n \nb", "a\n \nb"),
        (" \n ", ""),
    ],
)
@pytest.mark.parametrize("kind", [ts.System, ts.User, ts.Assistant])
def test_blank_lines_and_outer_white_space_go_and_are_reported(kind: type[ts.Item], one: str, flat: str) -> None:
    """R-G-6, R-G-7, D-G-1, D-G-2, D-G-3: in every role; a line of blanks is no blank line."""
    item = kind(content=content(one))  # type: ignore[call-arg]
    label = f"{kind.__name__}:"
    rendered = FORMAT.render(request(item))
    assert (f"{label} {flat}" if flat else label) == rendered.value
    changed = ["items[0]: approximated: blank lines and white space at the ends have no place in this format"]
    told = changed if flat != one else []
    if not flat and kind is ts.Assistant:
        told = [*told, "items[0]: approximated: an empty answer that is finished looks like one that is to come"]
    assert told == list(map(str, rendered.losses))
    assert [(item.kind, flat)] == read(str(rendered.value))


@pytest.mark.parametrize(
    ("one", "flat"),
    [
        ("a\n \nb", "a\nb"),
        ("a \n\t\n \n\n  b\n c", "a \n  b\n c"),
        ("a\r\n \r\nb", "a\nb"),
        ("a\n\u3000\x1c\nb", "a\nb"),
        ("a\n b", "a\n b"),
        (" \n ", ""),
    ],
)
@pytest.mark.parametrize("name", STYLES)
def test_lines_of_white_space_go_too_where_that_is_asked_for(name: str, one: str, flat: str) -> None:
    """D-G-1: as ai00's own server does it; what stands at the ends of other lines is kept."""
    format_ = ts.get_format(name).variant("blank-whitespace")
    rendered = format_.render(request(ts.User(content=content(one))))
    assert f"User: {flat}".rstrip() == rendered.value
    assert (["items[0]"] if flat != one else []) == [loss.path for loss in rendered.losses]
    assert [flat] == [item.content[0].text for item in format_.parse(str(rendered.value)).items]  # type: ignore[attr-defined]
    called = request(*said("q"), ts.Thinking(content=content(one)), CALL, result(one), tools=[WEATHER])
    for asked in (called, request(*said("q"), CALL, result("a"), ts.System(content=content(one)))):
        prompt = format_.prompt(asked).text
        assert not re.search(r"\n[^\S\n]+\n", prompt)


def test_strictly_blank_lines_are_an_error() -> None:
    """D-G-3."""
    with pytest.raises(ts.LossyConversion, match="blank lines"):
        FORMAT.render(request(*said("a\n\nb")), strict=True)
    assert "User: a\nb" == FORMAT.render(request(*said("a\nb")), strict=True).value


def test_thoughts_calls_and_results_have_no_blank_lines_either() -> None:
    """R-G-6, R-G-7: nor do empty ones leave any."""
    for name in STYLES:
        format_ = ts.get_format(name)
        for inner in ("a\n\nb", "", "\n"):
            items = [ts.Thinking(content=content(inner)), CALL, result(inner), *said("", inner)]
            transcript = written(*items, format_=format_)
            turns = sum(transcript.count(label) for label in ("User:", "Assistant:", "Observation:"))
            assert turns - 1 == transcript.count("\n\n") == len(transcript.split("\n\n")) - 1


def test_a_turn_ends_where_a_blank_line_and_a_label_follow() -> None:
    """D-G-4: also those of other programs; a label inside a text is text."""
    assert [("user", "a\nUser: x"), ("assistant", "b")] == read("User: a\nUser: x\n\nAssistant: b")
    assert [("user", "a\n\nb"), ("assistant", "c")] == read("User: a\n\nb\n\nAssistant: c")
    for label in ("Observation", "Tool"):
        for name in STYLES:
            other = f"User: a\n\nAssistant: b\n\n{label}: c\n\nAssistant: d"
            kinds = [kind for kind, _ in read(other, ts.get_format(name))]
            assert ["user", "assistant", "tool_result", "assistant"] == kinds
    assert "User: Function output:\nc" == written(*FORMAT.parse("Observation: c").items)


def test_a_user_who_says_what_a_result_begins_with_is_no_tool() -> None:
    """D-G-4: a forged label or result in a content stays content."""
    for forged in ("Function output:", "Function output: 5", "a\n\nUser: b", "System: c"):
        flat = forged.replace("\n\n", "\n")
        assert [("user", flat)] == read(written(*said(forged)))


# Thinking.


@pytest.mark.parametrize(
    ("budget", "suffix"),
    [
        pytest.param(1023, " think a bit", id="1023"),
        pytest.param(1024, " think a bit", id="R-G-10 1024"),
        pytest.param(4095, " think a bit", id="R-G-10 4095"),
        pytest.param(4096, " think", id="R-G-11 4096"),
        pytest.param(16383, " think", id="R-G-11 16383"),
        pytest.param(16384, " think a lot", id="R-G-12 16384"),
        pytest.param(100_000, " think a lot", id="R-G-12 100000"),
    ],
)
def test_the_budget_decides_how_the_user_asks_for_thinking(budget: int, suffix: str) -> None:
    assert f"User: q{suffix}\n\nAssistant: <think" == FORMAT.prompt(asking(budget)).text


@pytest.mark.parametrize(
    ("effort", "suffix"),
    [("low", " think a bit"), ("medium", " think"), ("high", " think a lot"), ("max", " think a lot")],
)
def test_the_effort_decides_as_well(effort: str, suffix: str) -> None:
    """R-G-10..12 for APIs that have no budget."""
    assert f"User: q{suffix}\n\nAssistant: <think" == FORMAT.prompt(asking(effort=effort)).text


@pytest.mark.parametrize("budget", [0, 1023])
def test_a_budget_that_nobody_may_ask_for_is_told(budget: int) -> None:
    """D-X-13: below 1024 tokens, the least word asks for thinking, and `--strict` refuses it."""
    prompt = FORMAT.prompt(asking(budget))
    assert "User: q think a bit\n\nAssistant: <think" == prompt.text
    assert [("$.thinking", "approximated")] == [(loss.path, loss.kind) for loss in prompt.losses]
    assert [] == FORMAT.prompt(asking(1024)).losses


def test_an_effort_without_a_name_is_told() -> None:
    prompt = FORMAT.prompt(asking(effort="hihg"))
    assert "User: q think\n\nAssistant: <think" == prompt.text
    assert ["'hihg' is no effort; taken for medium"] == [loss.detail for loss in prompt.losses]


@pytest.mark.parametrize("style", [*STYLES, "ai00-v0"])
def test_the_end_of_a_prompt_is_an_answer_to_come(style: str) -> None:
    """`Assistant:` with nothing behind it is where the model goes on; a finished answer without words looks alike."""
    format_ = ts.get_format(style)
    asked = "System: s\n\nUser: q\n\nAssistant:"
    parsed = format_.parse(asked)
    assert parsed.items[-1].open
    assert (asked, []) == (format_.render(parsed).value, format_.render(parsed).losses)
    assert asked == format_.prompt(parsed).text
    sent = ts.render(parsed, "openai-chat")
    assert (["system", "user"], []) == ([one["role"] for one in sent.value["messages"]], sent.losses)
    parsed.items[-1].open = False
    [loss] = format_.render(parsed).losses
    assert "an empty answer that is finished looks like one that is to come" == loss.detail


def test_a_thought_that_is_opened_is_opened_again() -> None:
    """The word that asks for it is not said twice, and one that is not there is added."""
    for asked, again in (("q think a bit", "q think a bit"), ("q", "q think")):
        prompt = FORMAT.prompt(FORMAT.parse(f"User: {asked}\n\nAssistant: <think"))
        assert (f"User: {again}\n\nAssistant: <think", []) == (prompt.text, prompt.losses)
        assert [] == [event for event in prompt.parser().feed(">") if event.raw.strip("> ")]


def test_a_thought_that_has_begun_goes_on_in_a_prompt() -> None:
    parsed = ts.parse("<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nSix", "qwen3")
    assert ("thinking", True) == (parsed.items[-1].kind, parsed.items[-1].open)
    prompt = FORMAT.prompt(parsed)
    assert ("User: q\n\nAssistant: <think>\nSix", "Six", []) == (prompt.text, prompt.prefill, prompt.losses)
    losses = ts.get_format("qwen25").prompt(parsed).losses
    assert [("line 4", "dropped"), ("line 4", "approximated")] == [(loss.path, loss.kind) for loss in losses]


def test_thinking_has_the_form_that_the_document_shows() -> None:
    """R-G-9, R-G-13, R-G-15: a space before `think`; the bracket stays open."""
    prompt = FORMAT.prompt(request(*said("USER_PROMPT")), thinking=True)
    assert example("g2_prompt") == prompt.text
    assert (" <think", True) == (prompt.prefill, prompt.text.endswith("Assistant: <think"))


def test_only_a_last_user_text_asks_for_thinking() -> None:
    """D-G-5: no earlier one, and no result."""
    last = FORMAT.prompt(request(*said("a", "b", "c")), thinking=True).text
    assert "User: a\n\nAssistant: b\n\nUser: c think\n\nAssistant: <think" == last
    after = FORMAT.prompt(request(*said("a"), CALL, result("1")), thinking=True).text
    assert f"User: a\n\nAssistant: {FENCE}\n\nUser: Function output:\n1\n\nAssistant: <think" == after


def test_what_asked_for_thinking_is_read_as_it_stands() -> None:
    """D-G-5."""
    assert [("user", "a think"), ("assistant", "b")] == read("User: a think\n\nAssistant: b")


@pytest.mark.parametrize("name", STYLES)
def test_ways_to_ask_for_thinking_are_options(name: str) -> None:
    """D-G-6: in parentheses, for newer models; not at all, for older ones; an empty thought, for none."""
    format_ = ts.get_format(name)
    efforts = {"low": "think a bit", "medium": "think", "high": "think a lot"}
    for effort, words in efforts.items():
        asked = asking(effort=effort)
        assert f"User: q ({words})\n\nAssistant: <think" == format_.variant("paren").prompt(asked).text
        assert "User: q\n\nAssistant: <think" == format_.variant("unhinted").prompt(asked).text
    fake = format_.variant("fake-think").prompt(request(*said("q")))
    assert "User: q\n\nAssistant: <think>\n</think" == fake.text
    response = ts.fold((parser := fake.parser()).feed(">\nHo.") + parser.close())
    assert [("thinking", ""), ("assistant", "Ho.")] == short(response.items)
    assert format_.prompt(asking(99)).text == format_.variant("fake-think").prompt(asking(99)).text


@pytest.mark.parametrize("output", [">\nHm.\n</think>\nHo.", ">\nHm.\n</think>\n\nHo.", ">Hm.</think>Ho."])
def test_a_thought_goes_on_behind_the_open_bracket(output: str) -> None:
    """R-G-13, D-G-7: the output begins with `>`; newlines behind the thought are not of the answer."""
    response = answer(output, thinking=True)
    assert [("thinking", "Hm."), ("assistant", "Ho.")] == short(response.items)
    assert [] == response.issues


def test_past_thoughts_are_kept_or_left_out() -> None:
    """D-G-9: kept unless one asks for the option, which says what it left out."""
    items = [*said("a"), ts.Thinking(content=content("Hm.")), ts.Assistant(content=content("b")), *said("c")]
    assert "Assistant: <think>\nHm.\n</think>\nb\n\n" in FORMAT.prompt(request(*items)).text
    forgetful = FORMAT.variant("drop-thinking").prompt(request(*items), thinking=True)
    assert "User: a\n\nAssistant: b\n\nUser: c think\n\nAssistant: <think" == forgetful.text
    assert ["items[1]"] == [loss.path for loss in forgetful.losses]


# Prompts and stops.


def test_a_prompt_ends_with_the_label_and_the_model_writes_the_space() -> None:
    """R-G-14, R-G-16: one space is not of the answer; a second one is."""
    prompt = FORMAT.prompt(request(*said("q")))
    assert ("User: q\n\nAssistant:", "") == (prompt.text, prompt.prefill)
    for output, expected in ((" Hi.", "Hi."), ("Hi.", "Hi."), ("  Hi.", " Hi.")):
        assert [("assistant", expected)] == short(answer(output).items)


@pytest.mark.parametrize("name", STYLES)
@given(
    asked=conversations.plain_requests(), thinking=st.booleans(), choice=st.sampled_from(["auto", "required", "named"])
)
def test_no_prompt_ends_with_white_space(name: str, asked: ts.Request, thinking: bool, choice: str) -> None:
    """R-G-17: whatever the last content is, an open answer and a call that must be made too."""
    asked.settings.tool_choice = ts.ToolChoice(mode=choice, name="f" if choice == "named" else None)
    prompt = ts.get_format(name).prompt(asked, thinking=thinking).text
    assert prompt == prompt.rstrip()


@given(one=text.texts())
def test_an_answer_that_goes_on_has_no_white_space_at_its_end(one: str) -> None:
    """R-G-17: of a prefill."""
    prompt = FORMAT.prompt(request(*said("q"), ts.Assistant(content=content(one), open=True))).text
    assert prompt == prompt.rstrip()


@pytest.mark.parametrize("name", ts.formats())
def test_token_0_is_never_text(name: str) -> None:
    """R-G-18, R-G-19: it exists as an id only; whether it is prepended is up to who encodes."""
    format_ = ts.get_format(name)
    assert not any(TOKEN_0 in literal for literal in format_.document.literals)
    assert TOKEN_0 not in format_.special_tokens
    for conversation in ("c1", "c2", "c3"):
        asked = corpora.load(conversation)
        prompts = [format_.prompt(asked, thinking=thinking).text for thinking in (False, True)]
        assert not any(TOKEN_0 in one for one in (*prompts, str(format_.render(asked).value)))


def test_the_stops_are_the_labels_of_others() -> None:
    """D-G-8: a blank line alone does not end an answer; a forced call ends with its fence."""
    assert ["\n\nUser:", "\n\nSystem:"] == FORMAT.stops
    assert [("assistant", "a\n\nb")] == short(answer(" a\n\nb\n\nUser: c").items)
    asked = request(*said("q"), tools=[WEATHER])
    assert FORMAT.stops == FORMAT.prompt(asked).stops
    asked.settings.tool_choice = ts.ToolChoice(mode="required")
    assert [*FORMAT.stops, "\n```"] == FORMAT.prompt(asked).stops


@pytest.mark.parametrize("end", ["\n```", "", "\n```\n\nUser:"])
@pytest.mark.parametrize(
    ("choice", "opening", "output"),
    [
        (ts.ToolChoice(mode="required"), "```json", '\n{"name":"get_weather","arguments":{"city":"Oslo"}}'),
        (
            ts.ToolChoice(mode="named", name="get_weather"),
            '```json\n{"name":"get_weather","arguments":',
            '{"city":"Oslo"}}',
        ),
    ],
)
def test_a_call_that_must_be_made_is_begun_by_the_prompt(
    choice: ts.ToolChoice, opening: str, output: str, end: str
) -> None:
    """D-G-8, D-G-10: its fence may be there or taken away as a stop."""
    asked = request(*said("q"), tools=[WEATHER])
    asked.settings.tool_choice = choice
    assert FORMAT.prompt(asked).text.endswith(f"Assistant: {opening}")
    response = answer(output + end, tools=[WEATHER], choice=choice)
    assert ([CALL], "tool_calls", []) == (response.items, response.finish_reason, response.issues)


@pytest.mark.parametrize("option", sorted(FORMAT.variants))
@corpora.on_every
def test_conversations_read_back_with_every_option(option: str, name: str) -> None:
    """Or a loss says so."""
    check_inverse(FORMAT.variant(option), corpora.load(name))


def test_empty_instructions_before_tools_are_a_loss_whether_they_are_open_or_not() -> None:
    """A turn without a closing is not seen to be unfinished, so it reads as none."""
    for is_open in (False, True):
        items: list[ts.Item] = [ts.System(content=[ts.Text(text="")], open=is_open)]
        request = ts.Request(conversation=ts.Conversation(items=items, tools=[ts.Tool(name="f")]))
        rendered = FORMAT.render(request)
        assert [] == FORMAT.parse(rendered.value).items
        assert any("reads as none" in loss.detail for loss in rendered.losses)
