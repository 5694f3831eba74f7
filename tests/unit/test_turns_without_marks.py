"""Owns turns that begin or end without a mark of their own: written, prompted, read, refused where none can tell."""

from pathlib import Path

import pytest

import turnscript as ts
from tests import corpora
from turnscript.convert.registry import load_formats
from turnscript.core.conversation import Item, ToolChoice, text_content
from turnscript.core.errors import InvalidTranscript
from turnscript.tableio import InvalidFormat, dump_format, read_formats

ROOT = Path(__file__).resolve().parents[2]
BARE, MARKS = (ROOT / "tests" / "formats" / name for name in ("bare.toml", "marks.toml"))
TOOL = ts.Tool(name="f")


def said(text: str) -> list[ts.Part]:
    return [ts.Text(text=text)]


def asked(*items: Item, tools: bool = False, choice: str = "") -> ts.Request:
    """A conversation, located; `choice` forces a call."""
    request = ts.Request(conversation=ts.Conversation(items=list(items), tools=[TOOL] if tools or choice else []))
    if choice:
        request.settings.tool_choice = ToolChoice(mode="named", name="f") if choice == "f" else ToolChoice(mode=choice)
    request.locate()
    return request


def outline(items: list[Item]) -> list[tuple[str, str]]:
    return [(item.kind, text_content(getattr(item, "content", []))) for item in items]


U, A = ts.User(content=said("q")), ts.Assistant(content=said("a"))
CALL, RESULT = ts.ToolCall(name="f", arguments="{}"), ts.ToolResult(name="f", content=said("r"))


def test_an_answer_begins_right_behind_whoever_spoke_before() -> None:
    format_ = ts.get_format(str(BARE))
    text = "<doc>a</s>a</s>[SYS]s[/SYS]a</s>[INST]q[/INST]a[CALL]f[ARGS]{}</s>[RESULT]r[/RESULT]a</s>"
    items = [A, A, ts.System(content=said("s")), A, U, A, CALL, RESULT, A]
    assert text == format_.render(asked(*items)).value
    assert outline(items) == outline(format_.parse(text).items)


def test_an_opening_is_left_out_only_where_the_table_says() -> None:
    format_ = ts.get_format(str(MARKS))
    items = [ts.System(content=said("s")), U, A, A, U, CALL, RESULT, A]
    text = "<doc>s<user>q<model></think>a</model><model></think>a</model><user>q"
    text += '<model></think><calls>[{"name": "f", "arguments": {}}]</model><tool><of>r</tool>a</model>'
    assert text == format_.render(asked(*items)).value
    assert outline(items) == outline(format_.parse(text).items)
    assert outline([A]) == outline(format_.parse("<doc><model>a</model>").items)  # no_thought is no must for a reader


@pytest.mark.parametrize(
    ("path", "thinking", "choice", "end", "prefill"),
    [
        (BARE, False, "", "q[/INST]", ""),
        (BARE, True, "", "q[/INST][THINK]", "[THINK]"),
        (BARE, False, "required", "q[/INST][CALL]", "[CALL]"),
        (BARE, False, "f", "q[/INST][CALL]f[ID]", "[CALL]f[ID]"),
        (MARKS, False, "", "q<model></think>", ""),
        (MARKS, True, "", "q<model><think>", "<think>"),
        (MARKS, False, "required", 'q<model></think><calls>[{"name": ', '<calls>[{"name": '),
        (
            MARKS,
            False,
            "f",
            'q<model></think><calls>[{"name": "f", "arguments": ',
            '<calls>[{"name": "f", "arguments": ',
        ),
    ],
)
def test_a_prompt_opens_what_the_model_is_to_write(
    path: Path, thinking: bool, choice: str, end: str, prefill: str
) -> None:
    prompt = ts.get_format(str(path)).prompt(asked(U, choice=choice), thinking=thinking)
    assert prompt.text.endswith(end)
    assert prefill == prompt.prefill


@pytest.mark.parametrize("before", [U, RESULT], ids=["user", "result"])
@pytest.mark.parametrize("path", [BARE, MARKS], ids=lambda path: path.stem)
def test_an_answer_that_has_begun_goes_on(path: Path, before: Item) -> None:
    format_ = ts.get_format(str(path))
    prompt = format_.prompt(asked(U, CALL, before, ts.Assistant(content=said("The an"), open=True)))
    assert prompt.text.endswith("The an")
    assert "The an" == prompt.prefill[-6:]
    parser = prompt.parser()
    [item] = ts.fold(parser.feed("swer.") + parser.close()).items
    assert "swer." == text_content(item.content)  # type: ignore[attr-defined]


@pytest.mark.parametrize("path", [BARE, MARKS], ids=lambda path: path.stem)
def test_a_session_grows_through_calls_and_answers(path: Path) -> None:
    format_ = ts.get_format(str(path))
    written = {"bare": "[CALL]f[ARGS]{}</s>", "marks": '<calls>[{"name": "f", "arguments": {}}]</model>'}[path.stem]
    prompt = format_.prompt(asked(U, tools=True))
    for text, new in ((written, RESULT), ("a", U), (written, RESULT)):
        parser = prompt.parser()
        answer = ts.fold(parser.feed(text) + parser.close())
        assert [] == answer.issues
        longer = prompt.extend(answer, [new])
        assert longer is not None
        assert longer.text.startswith(prompt.text + text)
        prompt = longer
    again = format_.prompt(asked(U, CALL, RESULT, A, U, CALL, RESULT, tools=True))
    assert again.text == prompt.text


# What has no place.


def test_instructions_in_the_middle_are_a_users_text_where_they_have_no_opening() -> None:
    format_ = ts.get_format(str(MARKS))
    rendered = format_.render(asked(U, A, ts.System(content=said("now"), role="developer")))
    assert str(rendered.value).endswith("</model><user>now")
    kinds = [(loss.path, loss.kind) for loss in rendered.losses]
    assert [("items[2].role", "dropped"), ("items[2]", "approximated")] == kinds


@pytest.mark.parametrize("text", ["", " \n"])
def test_instructions_without_words_cannot_be_seen_and_are_a_loss(text: str) -> None:
    rendered = ts.get_format(str(MARKS)).render(asked(ts.System(content=said(text)), U))
    assert "<doc><user>q" == rendered.value
    assert [("items[0]", "dropped")] == [(loss.path, loss.kind) for loss in rendered.losses]


@pytest.mark.parametrize("path", [BARE, MARKS], ids=lambda path: path.stem)
def test_an_empty_answer_beside_something_else_is_a_loss_where_nothing_joins_the_two(path: Path) -> None:
    format_ = ts.get_format(str(path))
    for kinds in ("t a c", "t a", "a c"):
        made = {"t": ts.Thinking(content=said("t")), "a": ts.Assistant(content=said("")), "c": CALL}
        items = [made[kind] for kind in kinds.split()]
        rendered = format_.render(asked(U, *items))
        assert rendered.value == format_.render(asked(U, *[item for item in items if item is not made["a"]])).value
        assert ("dropped", made["a"].at) in {(loss.kind, loss.path) for loss in rendered.losses}


@pytest.mark.parametrize("text", ["", " ", "\n\n"], ids=repr)
def test_a_text_of_white_space_alone_is_kept_where_a_closing_shows_it(text: str) -> None:
    format_ = ts.get_format(str(BARE))
    closed = format_.render(asked(U, ts.Assistant(content=said(text))))
    assert (f"<doc>[INST]q[/INST]{text}</s>", []) == (closed.value, closed.losses)
    assert [("user", "q"), ("assistant", text)] == outline(format_.parse(str(closed.value)).items)
    unfinished = format_.render(asked(U, ts.Assistant(content=said(text), open=True)))
    assert closed.value == unfinished.value
    assert ["items[1].open"] == [loss.path for loss in unfinished.losses]


def test_a_file_whose_start_was_taken_away_keeps_the_white_space_of_its_first_text() -> None:
    format_ = ts.get_format(str(MARKS)).with_ends()
    text = format_.render(asked(ts.System(content=said(" s ")), U)).value
    assert " s <user>q" == text
    assert [("system", " s "), ("user", "q")] == outline(format_.parse(str(text)).items)


# What cannot be read.


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (MARKS, "<doc>s<user>q<model>a</model> and more", "a turn must begin here: <user> or <model> or <tool>"),
        (BARE, "<doc>[TOOLS][", "the tool list has no ][/TOOLS]"),
        (MARKS, "<doc><tool>no label</tool>", "a result must begin with its id and <of>"),
    ],
)
def test_what_is_no_such_document_is_refused(path: Path, text: str, words: str) -> None:
    with pytest.raises(InvalidTranscript) as caught:
        ts.get_format(str(path)).parse(text)
    assert words in str(caught.value)


def test_a_document_is_known_by_its_start_and_an_opening() -> None:
    marks, bare = ts.get_format(str(MARKS)), ts.get_format(str(BARE))
    assert marks.claims("<doc>You are brief.<user>q")
    assert marks.claims("<user>q")
    assert bare.claims("<doc>Hello.</s>[INST]q[/INST]")
    assert not any(format_.claims(text) for format_ in (marks, bare) for text in ("Hello.", "<doc>Hello.", "Hi <user>"))


def change(path: Path, before: str, after: str) -> str:
    text = path.read_text(encoding="utf-8")
    assert before in text
    return text.replace(before, after, 1)


BEHIND = 'behind = ["start", "system", "user", "assistant", "tool"]'


@pytest.mark.parametrize(
    ("path", "before", "after", "where", "words"),
    [
        (BARE, BEHIND, "", "turn[2].open", "needs an `open`, or `behind`"),
        (BARE, ' "tool"]\nclose', ' "tol"]\nclose', "turn[2].behind[4]", "no turn has the role 'tol'"),
        (BARE, '"user", "assistant"', '"user", "user"', "turn[2].behind[3]", "stands there twice"),
        (BARE, '"user", "assistant"', '"user"', "turn[2].behind", "have to begin behind 'assistant'"),
        (BARE, 'close = "[/INST]"\n', "", "turn[2].behind[2]", "the turn of 'user' has no `close`"),
        (BARE, 'open = "[RESULT]"\n', 'behind = ["assistant"]\n', "turn[3].behind[0]", "turn[2] begins behind"),
        (MARKS, 'behind = ["tool"]', 'behind = ["start"]', "turn[2].behind[0]", "begins at the start of the document"),
        (BARE, 'separator = ""', 'separator = "\\n"', "turn[2].behind", "only where nothing stands between"),
        (BARE, 'role = "tool"', 'role = "start"', "turn[2].behind[0]", "no role of a turn"),
        (BARE, 'mark = "[ARGS]"', 'mark = " "', "turn[2].segment[2].body", "white space alone"),
        (BARE, 'mark = "[ARGS]"', 'mark = "[ID]"', "turn[2].segment[2].body", "could be confused"),
        (MARKS, 'mark = "<of>"', 'mark = ""', "turn[3].segment[0].body", "white space alone"),
        (MARKS, 'open = "<user>"', 'open = "User:"', "", "nothing keeps a content from holding 'User:'"),
        (MARKS, 'open = "<model>"', 'open = "<model> "', "turn[2].no_thought", "ends in no white space"),
        (MARKS, 'no_thought = "</think>"', 'no_thought = " "', "turn[2].no_thought", "white space alone"),
        (BARE, 'close = "][/TOOLS]"\n', "", "tools.close", "needs a `close`"),
        (BARE, 'order = "apart"', 'order = "apart"\njoint = "\\n"', "tools.joint", "no text is before"),
        (BARE, 'order = "apart"', 'order = "apart"\n[format.flags]\ntags = {}', "tools.order", "neither"),
        (MARKS, '{ name = "json-call", spaced = true, ids = true }', '{ name = "named-call", mark = "<a>" }',
         "turn[2].segment[2].open", "has no first words"),
        (MARKS, 'close = "]" }', 'close = "]" }\nclose = "!"', "turn[2].segment[2].close", "needs an `open`"),
    ],
)  # fmt: skip
def test_a_turn_that_a_reader_could_not_find_is_refused(
    path: Path, before: str, after: str, where: str, words: str
) -> None:
    with pytest.raises(InvalidFormat) as caught:
        read_formats(change(path, before, after), {})
    assert words in str(caught.value)
    assert where in caught.value.path


@pytest.mark.parametrize("path", [BARE, MARKS], ids=lambda path: path.stem)
def test_such_a_table_comes_back_from_its_dump(path: Path) -> None:
    for format_ in load_formats(path):
        [again] = read_formats(dump_format(format_), {})
        assert dump_format(format_) == dump_format(again)
        assert format_.render(corpora.load("c1")).value == again.render(corpora.load("c1")).value
