"""Owns the exact bytes of OpenChatML: every example of its specification, its messages, names and thoughts."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest

import turnscript as ts
from tests import goldens
from tests.growth import assert_grows_below
from tests.openchatml import (
    FORMAT,
    GOLDEN,
    ROLES,
    STOCKS,
    document,
    error_of,
    example,
    inside,
    request_of,
    said,
    texts,
    thought,
    turn,
    user,
)
from turnscript.core.json_text import json_of
from turnscript.grammar.rest import matches

PROMPTS: list[dict[str, Any]] = json.loads((GOLDEN / "prompts.json").read_text())
WHOLE = ["c1", "c2", "c3", "o01_thoughts", "o06_hello", "o07_name"]
FILES = ["o08_fim", "o09_files", "o11_fim", "o11_completion", "o12_files", "o12_completion"]


# The examples of the specification, and the golden bytes.


@pytest.mark.parametrize("name", WHOLE)
def test_an_example_reads_and_is_written_again_byte_for_byte(name: str) -> None:
    """R-O-22, R-O-23, R-O-35, R-O-36, R-O-43."""
    rendered = FORMAT.render(FORMAT.parse(example(name)))
    assert (example(name), []) == (rendered.value, rendered.losses)


@pytest.mark.parametrize("case", ["c1", "c2", "c3"])
def test_a_golden_conversation_is_written_exactly(case: str) -> None:
    """R-O-13, R-O-23, R-O-27, R-O-30, R-O-31."""
    items = {"c1": goldens.c1, "c2": goldens.c2, "c3": goldens.c3}[case]()
    assert example(case) == document(*items, tools=[] if case == "c2" else [goldens.WEATHER])


@pytest.mark.parametrize("row", PROMPTS, ids=lambda row: f"{row['conversation']}-thinking-{row['thinking']}")
def test_a_generation_prompt_has_the_golden_bytes(row: dict[str, Any]) -> None:
    """R-O-18, R-O-43, with literal ends: a thought that is asked for has its flag behind the system text (D-O-5)."""
    literal = FORMAT.with_ends("[BOS]", "[EOS]")
    items = goldens.c1()[: {"P1": 2, "P1r": 5}[row["conversation"]]]
    data = literal.prompt(request_of(*items, tools=[goldens.WEATHER]), thinking=row["thinking"]).text.encode()
    assert (row["bytes"], row["sha256_16"]) == (len(data), hashlib.sha256(data).hexdigest()[:16])


def test_the_conversation_with_a_function_reads_as_its_parts() -> None:
    """R-O-34, D-O-8, D-O-9: prose, the list, more prose that mentions tags; a call, an output, a final answer."""
    transcript = example("o05_functions")
    request = FORMAT.parse(transcript)
    assert ["system", "user", "tool_call", "tool_result", "assistant"] == [item.kind for item in request.items]
    assert [STOCKS] == [tool.name for tool in request.tools]
    system = request.items[0]
    assert isinstance(system, ts.System)
    before, after = (part.text for part in system.content if isinstance(part, ts.Text))
    assert "function signatures after the `<|function_list|>` tag" in before
    assert after.startswith("Use the following pydantic model json schema")
    assert after.endswith('<|function_call|>\n{"arguments": <args-dict>, "name": <function-name>}')
    assert texts(request)[-1].endswith("is more volatile than the overall market.\n")
    # The output is written anew, without the blank at the end of one of its lines (D-O-11).
    canonical = transcript.replace('"sector": "Consumer Cyclical", \n', '"sector": "Consumer Cyclical",\n')
    rendered = FORMAT.render(request)
    assert (canonical, []) == (rendered.value, rendered.losses)


def test_a_longer_conversation_has_names_on_its_messages() -> None:
    """R-O-39, R-O-15; blanks behind a name and behind the end of a message say nothing (D-O-2)."""
    transcript = example("o10_names")
    request = FORMAT.parse(transcript)
    names = [item.name for item in request.items if isinstance(item, ts.System | ts.User | ts.Assistant)]
    assert ["GoalTracker", "Alice", "FitnessCoach", "Alice", "FitnessCoach", "Bob", "FitnessCoach"] == names
    canonical = transcript.replace("name=Alice  \n", "name=Alice\n").replace("<|im_end|>  \n", "<|im_end|>\n")
    assert len(transcript) == len(canonical) + 4
    rendered = FORMAT.render(request)
    assert (canonical, []) == (rendered.value, rendered.losses)


@pytest.mark.parametrize("name", FILES)
def test_an_example_of_files_is_read_and_written_by_the_format(name: str) -> None:
    """R-O-37, R-O-38, R-O-40, R-O-41."""
    rendered = FORMAT.render_files(FORMAT.parse_files(example(name)))
    assert (example(name), []) == (rendered.value, rendered.losses)


# Tokens.


def test_the_special_tokens_are_those_of_the_specification() -> None:
    """R-O-2..12: 18, and the two of the base model."""
    turns = ["<|im_start|>", "<|im_end|>"]
    kinds = ("reflect", "introspect", "reason")
    blocks = [f"<|{side}_{kind}|>" for kind in kinds for side in ("start", "end")]
    functions = ["<|function_call|>", "<|function_output|>", "<|function_list|>"]
    flags = [f"<|{kind}|>" for kind in kinds]
    files = ["<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|file_separator|>"]
    expected = [*turns, *blocks, *functions, *flags, *files]
    assert (18, expected) == (len(expected), FORMAT.special_tokens)
    assert expected == FORMAT.with_ends().special_tokens
    assert ["<s>", "</s>", *expected] == FORMAT.with_ends("<s>", "</s>").special_tokens


def test_the_ends_of_a_conversation_are_those_of_the_base_model() -> None:
    """R-O-1, R-O-23, D-O-3: `[BOS]` and `[EOS]` stand for strings of its own, or for none."""
    items = [user("Hello there, AI."), said(ts.Assistant, "Hi. Nice to meet you.")]
    assert example("o06_hello") == document(*items)
    for start, end in (("<s>", "</s>"), ("<|begin_of_text|>", "<|end_of_text|>"), ("", "")):
        format_ = FORMAT.with_ends(start, end)
        written = document(*items, format_=format_)
        assert f"{start}{inside(example('o06_hello'))}{end}" == written
        assert items == format_.parse(written).items
        assert format_.document is FORMAT.with_ends(start, end).document
    assert FORMAT.with_ends("<s>").variant("tight").document.start == "<s>"


def test_what_stands_for_a_models_own_ends_is_in_documents_only() -> None:
    """R-O-1: they are the base model's, so neither a prompt nor a sample has the letters `[BOS]`."""
    asked = user("[BOS] and [EOS] of <|im_end|>")
    shown = "<|im_start|>user\n[BOS] and [EOS] of <\\|im_end|>\n<|im_end|>"
    answered = [asked, said(ts.Assistant, "Ok.")]
    prompt = FORMAT.prompt(request_of(asked)).text
    assert f"{shown}\n<|im_start|>assistant\n" == prompt
    sample = FORMAT.render(request_of(*answered), view="prompt").value
    assert f"{prompt}Ok.\n<|im_end|>" == sample == "".join(span.text for span in FORMAT.spans(request_of(*answered)))
    assert answered == FORMAT.parse(sample).items == FORMAT.parse(FORMAT.render(request_of(*answered)).value).items
    answer = FORMAT.prompt(request_of(asked)).parser()
    read = ts.fold([*answer.feed("It is [EOS]."), *answer.close()])
    assert [said(ts.Assistant, "It is [EOS].")] == read.items
    assert "EOS" not in FORMAT.grammar([ts.Tool(name="f", parameters=json_of({"type": "object"}))]).text


@pytest.mark.parametrize("kind", [ts.System, ts.User, ts.Assistant, ts.Thinking])
def test_the_ends_are_protected_in_texts_only_while_they_are_in_use(kind: Any) -> None:
    """D-O-3."""
    words = "[BOS] [EOS] <s> </s>"
    after: list[ts.Item] = [said(ts.Assistant, "a")] if kind is ts.Thinking else []
    expected = {
        ("[BOS]", "[EOS]"): "[\\BOS] [\\EOS] <s> </s>",
        ("<s>", "</s>"): "[BOS] [EOS] <\\s> <\\/s>",
        ("", ""): words,
    }
    for (start, end), shown in expected.items():
        format_ = FORMAT.with_ends(start, end)
        written = document(said(kind, words), *after, format_=format_)
        assert shown in written
        assert words in texts(format_.parse(written))


def test_the_end_of_a_conversation_may_have_a_line_of_its_own() -> None:
    """D-O-2: the specification shows both."""
    transcript = example("o06_hello")
    assert FORMAT.parse(transcript) == FORMAT.parse(transcript.replace("<|im_end|>[EOS]", "<|im_end|>\n[EOS]\n"))
    assert FORMAT.parse(transcript) == FORMAT.parse(inside(transcript))


# Messages.


def test_a_message_is_a_line_with_the_role_its_content_and_an_end() -> None:
    """R-O-2, R-O-3, R-O-13, R-O-17, R-O-23: lines of content stay as they are, messages are joined by a line break."""
    written = document(said(ts.System, "one\n\n two \n"), user("three"), said(ts.Assistant, "four"))
    expected = [turn("system", "one\n\n two \n"), turn("user", "three"), turn("assistant", "four")]
    assert "[BOS]" + "\n".join(expected) + "[EOS]" == written
    assert ["one\n\n two \n", "three", "four"] == texts(FORMAT.parse(written))


@pytest.mark.parametrize("role", ROLES)
def test_four_roles_are_known(role: str) -> None:
    """R-O-14, R-O-42."""
    words = '<|function_output|>\n{"name": "f", "content": "x"}' if role == "tool" else "x"
    assert ["x"] == texts(FORMAT.parse(f"[BOS]{turn(role, words)}[EOS]"))


@pytest.mark.parametrize("role", ["critic", "function", "User", "users", "username=Eric", "", " user"])
def test_any_other_role_is_an_error(role: str) -> None:
    """R-O-14, R-O-42."""
    line, column, message = error_of(f"[BOS]{turn('user', 'a')}\n{turn(role, 'x')}[EOS]")
    assert (4, 1) == (line, column)
    assert all(f"<|im_start|>{known}" in message for known in ROLES)


def test_a_name_stands_behind_the_role_and_is_optional() -> None:
    """R-O-15, R-O-36, R-O-42, on every role that speaks."""
    items = [
        said(ts.System, "a", name="GoalTracker"),
        user("b", name="Alice"),
        said(ts.Assistant, "c", name="Coach"),
        user("d"),
    ]
    written = document(*items)
    openings = ["system name=GoalTracker", "user name=Alice", "assistant name=Coach", "user"]
    assert openings == [line.removeprefix("[BOS]")[12:] for line in written.split("\n") if "<|im_start|>" in line]
    assert items == FORMAT.parse(written).items


def test_a_name_of_an_answer_stands_in_the_opening_whatever_comes_before_the_text() -> None:
    """R-O-15."""
    items = [user("q"), thought("t"), said(ts.Assistant, "a", name="Coach"), user("r"), thought("t"), user("s")]
    written = document(*items)
    assert 1 == written.count("name=")
    assert "<|im_start|>assistant name=Coach\n<|start_reason|>t" in written
    assert items == FORMAT.parse(written).items


def test_a_name_is_that_of_its_own_turn_and_may_stand_without_a_text() -> None:
    """R-O-15."""
    answer_apart = said(ts.Assistant, "a", name="Coach", turn="new")
    written = document(user("q"), thought("t"), answer_apart)
    assert "<|im_start|>assistant\n<|start_reason|>t<|end_reason|>\n<|im_end|>" in written
    assert "<|im_start|>assistant name=Coach\na\n<|im_end|>" in written
    silent = said(ts.System, "", name="Boss")
    rendered = FORMAT.render(request_of(silent, tools=[ts.Tool(name="f")]))
    assert "[BOS]<|im_start|>system name=Boss\n<|function_list|>\n" in str(rendered.value)
    assert ([], [silent]) == (rendered.losses, FORMAT.parse(str(rendered.value)).items)


def test_a_name_holds_no_white_space() -> None:
    """R-O-16, D-O-4: an error where it is read, `_` and a loss where it is written."""
    assert (1, 28) == error_of("<|im_start|>user name=Eric Smith\nx\n<|im_end|>")[:2]
    request = request_of(user("q"), thought("t"), said(ts.Assistant, "x", name="Eric\n Smith"))
    rendered = FORMAT.render(request)
    assert "<|im_start|>assistant name=Eric_Smith\n" in str(rendered.value)
    assert [("items[2].name", "approximated")] == [(loss.path, loss.kind) for loss in rendered.losses]


CALL = '<|function_call|>\n{"arguments": {}, "name": "f"}'
OUTPUT = '<|function_output|>\n{\n  "name": "f",\n  "content": "22"\n}'
CHAT_CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REASON = "<|start_reason|>hm<|end_reason|>"
NAMED = [
    (turn("assistant name=Bot", REASON), ["Bot"]),
    (turn("assistant name=Bot", f"{REASON}\n{CALL}"), ["Bot"]),
    (f"{turn('assistant name=A', CALL)}\n{turn('assistant name=B', CALL)}\n{turn('assistant name=C', 'c')}", [*"ABC"]),
    (f"{turn('assistant', CALL)}\n{turn('tool name=Weather', OUTPUT)}", ["Weather"]),
]


@pytest.mark.parametrize(("turns", "names"), NAMED)
def test_a_name_of_a_turn_without_a_text_is_kept_or_told(turns: str, names: list[str]) -> None:
    """R-O-15: every role has one. A Chat message has its name; of results, and elsewhere, each is a loss."""
    flag = f"{turn('system', '<|reason|>')}\n" if REASON in turns else ""
    transcript = f"[BOS]{flag}{turn('user', 'q')}\n{turns}[EOS]"
    assert transcript == ts.convert(transcript, "openchatml", "openchatml", strict=True).value
    kept = ts.convert(transcript, "openchatml", "rwkv-universal", strict=True)
    assert transcript == ts.convert(kept.data, "rwkv-universal", "openchatml", strict=True).value
    for target in (*ts.apis(), "rwkv-goose"):
        converted = ts.convert(transcript, "openchatml", target)
        lost = [one.path for one in converted.losses if ".name:" in str(one) or "another assistant" in one.detail]
        if target == "openai-chat" and OUTPUT not in turns:
            body: Any = converted.value
            assert (names, []) == ([one["name"] for one in body["messages"] if "name" in one], lost)
            assert turns in str(ts.convert(body, target, "openchatml").value)
        else:
            assert len(names) == len(lost), target
            assert not any(name in str(converted.value) for name in names if len(name) > 1)


@pytest.mark.parametrize("said", [{"reasoning_content": "hm"}, {"tool_calls": [CHAT_CALL]}])
def test_a_name_of_a_chat_message_without_a_text_stands_in_its_opening(said: dict[str, Any]) -> None:
    body = {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "name": "Bot Two", **said}]}
    written = ts.convert(body, "openai-chat", "openchatml")
    assert "<|im_start|>assistant name=Bot_Two\n" in str(written.value)
    assert ("$.messages[1].name", "approximated") in [(loss.path, loss.kind) for loss in written.losses]


def test_a_name_is_not_empty() -> None:
    """It is refused where it is read, and dropped where it is written."""
    assert (1, 18) == error_of("<|im_start|>user name=\nx\n<|im_end|>")[:2]
    rendered = FORMAT.render(request_of(user("q", name="")))
    assert f"[BOS]{turn('user', 'q')}[EOS]" == rendered.value
    assert [("items[0].name", "dropped")] == [(loss.path, loss.kind) for loss in rendered.losses]


@pytest.mark.parametrize("name", ["<|im_end|>", "<|start_reason|>", r"<\|start_reason|>"])
@pytest.mark.parametrize("before", [said(ts.System, ""), user("q"), thought("t"), said(ts.Assistant, "x")])
def test_a_name_reads_back_whatever_the_text_before_may_hold(before: ts.Item, name: str) -> None:
    request = request_of(before, said(ts.User, "x", name=name))
    again = FORMAT.parse(str(FORMAT.render(request).value)).items[1]
    assert isinstance(again, ts.User)
    assert name == again.name


def test_only_the_name_has_a_syntax_in_the_opening() -> None:
    """R-O-44, D-O-4: anything else there is an error, and other metadata is not written."""
    line, column, message = error_of("<|im_start|>user name=Eric mood=sad\nx\n<|im_end|>")
    assert (1, 28, "'mood=sad' is no attribute of <|im_start|>user") == (line, column, message)
    tagged = ts.User(content=[ts.Text(text="x")], id="m1", extra={"mood": json_of("sad")})
    rendered = FORMAT.render(request_of(tagged))
    assert f"[BOS]{turn('user', 'x')}[EOS]" == rendered.value
    assert ["items[0].extra", "items[0].id"] == sorted(loss.path.replace(".mood", ".extra") for loss in rendered.losses)


def test_a_document_is_read_in_the_style_that_it_has() -> None:
    """D-O-1: with a line break before every end, or else without any."""
    spaced, tight = turn("user", "a\n"), turn("user", "a").replace("\n<|im_end|>", "<|im_end|>")
    assert ["a\n", "b"] == texts(FORMAT.parse(f"{spaced}\n{turn('user', 'b')}"))
    mixed = f"[BOS]{spaced}\n{tight}[EOS]"
    assert ["a\n\n", "a"] == texts(FORMAT.parse(mixed))
    assert mixed == FORMAT.render(FORMAT.parse(mixed)).value


def test_the_tight_style_can_be_written() -> None:
    """D-O-1: `tight` is how the specification's first example is written, and other families."""
    request = FORMAT.parse(example("o01_thoughts"))
    request.tight = False
    tight = FORMAT.variant("tight")
    assert example("o01_thoughts") == tight.render(request).value
    assert request.items == tight.parse(example("o01_thoughts")).items
    assert example("o01_thoughts").replace("<|im_end|>", "\n<|im_end|>") == FORMAT.render(request).value


# Thoughts.


def test_the_example_with_thoughts_has_three_kinds_in_their_blocks() -> None:
    """R-O-8, R-O-9, R-O-19..22: about the user, about itself, and the chain of thought, then the answer."""
    request = FORMAT.parse(example("o01_thoughts"))
    thoughts = [item for item in request.items if isinstance(item, ts.Thinking)]
    assert ["reflect", "introspect", "reason"] == [item.of for item in thoughts]
    assert texts(request)[2].startswith("The user is asking a straightforward question")
    assert texts(request)[3].startswith("As an AI assistant, my goal is to provide")
    assert texts(request)[4].startswith('The box has a "Band-Aid" label')
    assert isinstance(request.items[-1], ts.Assistant)
    assert "You are a helpful AI assistant." == texts(request)[0]


@pytest.mark.parametrize(
    ("kinds", "flags"),
    [
        ((), ""),
        (("reason",), "<|reason|>"),
        (("introspect", "reflect"), "<|reflect|><|introspect|>"),
        (("reason", "introspect", "reflect"), "<|reflect|><|introspect|><|reason|>"),
    ],
)
def test_flags_behind_the_system_text_ask_for_thoughts(kinds: tuple[str, ...], flags: str) -> None:
    """R-O-8, R-O-18, D-O-5: one for each kind, in one order; without a system text they stand alone."""
    items = [user("q"), *(thought("t", of) for of in kinds), said(ts.Assistant, "a")]
    blocks = "".join(f"<|start_{of}|>t<|end_{of}|>\n" for of in kinds)
    rest = f"{turn('user', 'q')}\n{turn('assistant', f'{blocks}a')}"
    for system, words in (([said(ts.System, "s")], "s"), ([], "")):
        first = f"{turn('system', words + flags)}\n" if words or flags else ""
        written = document(*system, *items)
        assert f"[BOS]{first}{rest}[EOS]" == written
        assert [*system, *items] == FORMAT.parse(written).items


def test_a_kind_that_is_asked_for_has_its_flag_before_there_is_a_thought() -> None:
    """R-O-18, D-O-5: the flags of a transcript stay, and a prompt for a thought has one."""
    transcript = f"[BOS]{turn('system', 's<|introspect|>')}\n{turn('user', 'q')}[EOS]"
    request = FORMAT.parse(transcript)
    assert ["s", "q"] == texts(request)
    assert transcript == FORMAT.render(request).value
    prompt = FORMAT.prompt(request, thinking=True)
    assert f"{turn('system', 's<|introspect|><|reason|>')}\n" in prompt.text
    assert prompt.text.endswith("<|im_start|>assistant\n<|start_introspect|>")
    assert "<|reason|>" not in FORMAT.prompt(request_of(user("q")), thinking=False).text
    assert "<|reason|>" in FORMAT.prompt(request_of(user("q"), effort="high")).text


def test_only_flags_at_the_end_of_the_first_system_text_are_flags() -> None:
    """D-O-5: anywhere else they are words, and are protected where they could be taken for one."""
    request = FORMAT.parse(f"{turn('system', 'a <|reason|> b')}\n{turn('user', '<|reason|>')}")
    assert ["a <|reason|> b", "<|reason|>"] == texts(request)
    assert [] == request.unasked
    written = document(said(ts.System, "a<|reason|>"), user("<|reason|>"))
    assert ["a<\\|reason|>\n<|im_end|>", "<\\|reason|>\n<|im_end|>"] == [
        part.split("\n", 1)[1] for part in inside(written).split("\n<|im_start|>")
    ]


SIGNATURE = '<|function_list|>\n{"type": "function", "function": {"name": "f"}}'
MOVED = "flags of thoughts are written behind the first system text, in the format's order, each once"


@pytest.mark.parametrize(
    ("words", "kinds", "said"),
    [
        (f"a\n{SIGNATURE}<|reflect|><|reason|>", ["reflect", "reason"], ["a"]),
        (f"a\n{SIGNATURE}\n<|reason|>", ["reason"], ["a"]),
        (f"{SIGNATURE}\n\nb<|reason|>", ["reason"], ["b"]),
        (f"a<|reflect|>\n{SIGNATURE}\n\nb<|reason|>", ["reflect", "reason"], ["ab"]),
    ],
)
def test_flags_behind_a_list_are_flags(words: str, kinds: list[str], said: list[str]) -> None:
    """R-O-18: they stand before the end of the message, as in the document's example. They are written before it."""
    request = FORMAT.parse(f"[BOS]{turn('system', words)}[EOS]")
    assert (kinds, ["f"], said) == (request.settings.thoughts, [tool.name for tool in request.tools], texts(request))
    assert [MOVED] == [loss.detail for loss in request.unread]
    written = str(FORMAT.render(request).value)
    assert "".join(f"<|{kind}|>" for kind in kinds) + "\n<|function_list|>" in written
    assert kinds == FORMAT.parse(written).settings.thoughts


@pytest.mark.parametrize(
    ("transcript", "lines"),
    [
        (turn("system", "a\n<|reason|> b"), [3]),
        (turn("system", f"a <|reason|>.\n{SIGNATURE}\n\nb <|reflect|> c<|reason|>"), [2, 6]),
        (f"{turn('system', 'a')}\n{turn('system', 'b<|reason|>')}", [5]),
    ],
)
def test_a_flag_that_is_a_word_of_the_instructions_is_told(transcript: str, lines: list[int]) -> None:
    told = [loss for loss in FORMAT.parse(transcript).unread if "is a word of a text here" in loss.detail]
    assert [f"line {line}" for line in lines] == [loss.path for loss in told]
    assert {*told} <= {*ts.convert(transcript, "openchatml", "openai-chat").losses}
    found = FORMAT.check(transcript)[1].all
    assert lines == [one.line for one in found if "is a word of a text here" in one.message]


def test_the_thought_of_an_api_is_a_reason() -> None:
    """R-O-21, D-O-5."""
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}]}
    body["messages"].append({"role": "assistant", "reasoning_content": "hm", "content": "a"})  # type: ignore[attr-defined]
    written = str(ts.convert(body, "openai-chat", "openchatml").value)
    assert "<|im_start|>assistant\n<|start_reason|>hm<|end_reason|>\na\n<|im_end|>[EOS]" in written
    back = ts.convert(written, "openchatml", "openai-chat").value
    assert isinstance(back, dict)
    assert "hm" == back["messages"][-1]["reasoning_content"]


def test_the_opening_of_a_turn_costs_nothing_for_the_turns_before() -> None:
    def opening(count: int) -> Callable[[], object]:
        request = request_of(*[ts.User()] * count)
        return lambda: FORMAT.render(request)

    assert_grows_below(9, opening, 4_000, 16_000, least=0.005)


@pytest.mark.parametrize("kinds", [("reflect",), ("introspect",), ("reflect", "introspect", "reason"), ("reason",)])
def test_a_thought_that_is_opened_is_of_the_first_kind_that_is_flagged(kinds: tuple[str, ...]) -> None:
    """R-O-18: what stands before it in the order of the format could never come."""
    flags = "".join(f"<|{of}|>" for of in kinds)
    transcript = f"[BOS]{turn('system', f's{flags}')}\n{turn('user', 'q')}[EOS]"
    for request in (FORMAT.parse(transcript), request_of(said(ts.System, "s"), user("q"), thoughts=list(kinds))):
        prompt = FORMAT.prompt(request, thinking=True)
        assert prompt.text.endswith(f"<|im_start|>assistant\n<|start_{kinds[0]}|>")
        written = f"t<|end_{kinds[0]}|>\n" + "".join(f"<|start_{of}|>t<|end_{of}|>\n" for of in kinds[1:]) + "a"
        parser = prompt.parser()
        response = ts.fold(parser.feed(written) + parser.close())
        assert [*(thought("t", of) for of in kinds), said(ts.Assistant, "a")] == response.items
        assert prompt.extend(response, [user("r")]).text.startswith(prompt.text + written)  # type: ignore[union-attr]


def test_flags_that_an_api_has_no_word_for_are_a_loss() -> None:
    transcript = f"[BOS]{turn('system', 's<|reflect|>')}\n{turn('user', 'q')}[EOS]"
    for api in ("openai-chat", "openai-responses", "anthropic-messages"):
        losses = ts.convert(transcript, "openchatml", api).losses
        assert "$.thoughts" in [loss.path for loss in losses]
    kept = ts.convert(transcript, "openchatml", "rwkv-universal", strict=True)
    assert transcript == ts.convert(kept.data, "rwkv-universal", "openchatml", strict=True).value


def test_kinds_of_thought_go_back_to_the_api_that_asked_for_them() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "q"}], "thoughts": ["reason", "reflect"]}
    archive = ts.convert(body, "openai-chat", "rwkv-universal", strict=True)
    assert body == ts.convert(archive.data, "rwkv-universal", "openai-chat", strict=True).value
    assert "<|reflect|><|reason|>" in str(ts.convert(body, "openai-chat", "openchatml").value)


def test_a_grammar_lets_the_kinds_follow_each_other() -> None:
    shape = ts.ResponseFormat("json_object")
    request = request_of(user("q"), thoughts=["reflect", "reason"], response_format=shape)
    told = FORMAT.prompt(request, thinking=True).grammar("gbnf")
    assert told is not None
    for written, fits in (
        ("t<|end_reflect|>\n<|start_reason|>t<|end_reason|>\n{}", True),
        ("t<|end_reflect|>\n{}", True),
        ("t<|end_reason|>\n{}", False),
    ):
        assert fits == matches(told.rules, written)


def test_a_loss_of_a_thought_names_its_kind_and_its_own_line() -> None:
    thoughts = "<|start_reason|>a<|end_reason|>\n<|start_reflect|>b<|end_reflect|>\nc"
    losses = ts.convert(f"{turn('user', 'q')}\n{turn('assistant', thoughts)}", "openchatml", "openai-chat").losses
    assert "line 6.kind: dropped: thinking has no kinds here, such as 'reflect'" in [str(loss) for loss in losses]


# What an error says.


@pytest.mark.parametrize(
    ("transcript", "place", "words"),
    [
        (turn("tool", "22 degrees"), (2, 1), "text where <|function_output|> is expected"),
        (f"[BOS]{turn('user', 'q')}[EOS]\n[BOS]{turn('user', 'q')}[EOS]", (3, 11), "[EOS] stands between two"),
        (f"[BOS]{turn('user', 'q')}\n[BOS]{turn('user', 'q')}[EOS]", (4, 1), "[BOS] stands between two"),
    ],
)
def test_an_error_says_what_is_expected(transcript: str, place: tuple[int, int], words: str) -> None:
    line, column, message = error_of(transcript)
    assert place == (line, column)
    assert words in message


HOLE = "<|fim_prefix|>a<|fim_middle|><|fim_suffix|>b"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (f"{HOLE}\n<|file_separator|>\nx", (2, 1), "only the last file may have a hole"),
        ("a\n<|file_separator|>\nb\n<|file_separator|>", (4, 1), "a file follows <|file_separator|>"),
        (f"a\n<|file_separator|>\nb {HOLE}", (3, 3), "<|fim_prefix|> stands where only content is expected"),
    ],
)
def test_an_error_in_files_says_which_mark_and_what_to_do(text: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(ts.InvalidTranscript) as caught:
        FORMAT.parse_files(text)
    assert place == (caught.value.line, caught.value.column)
    assert words in caught.value.message
