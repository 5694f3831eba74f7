"""Owns calls that are a name, a mark and arguments, or an array: as models write them, in any pieces."""

from pathlib import Path

import pytest

import turnscript as ts
from turnscript.core.conversation import ToolCall, text_content

FORMATS = Path(__file__).resolve().parents[1] / "formats"
BARE, MARKS = str(FORMATS / "bare.toml"), str(FORMATS / "marks.toml")
DEEPSEEK = "deepseek-r1"
FENCE = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"


def read(name: str, text: str, size: int) -> ts.Response:
    """A model's text, fed in pieces."""
    parser = ts.get_format(name).parser()
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    return ts.fold(events + parser.close())


def calls(response: ts.Response) -> list[tuple[str, str, str | None]]:
    return [(item.name, item.arguments, item.id) for item in response.items if isinstance(item, ToolCall)]


def issues(response: ts.Response) -> list[str]:
    return [issue.kind for issue in response.issues]


@pytest.mark.parametrize(
    ("name", "text", "expected", "odd"),
    [
        (BARE, '[CALL]f[ARGS]{"a": "[CALL]"}</s>', [("f", '{"a": "[CALL]"}', None)], []),
        (BARE, "[CALL]f[ID]abc123def[ARGS]{}[CALL]g[ID]x[ARGS]{}", [("f", "{}", "abc123def"), ("g", "{}", "x")], []),
        (BARE, "[CALL] f \n[ARGS] {} </s>", [("f", "{}", None)], []),
        (BARE, '[CALL]f[ARGS]"{\\"a\\": 1}"</s>', [("f", '{"a": 1}', None)], ["odd_call"]),
        (BARE, "[CALL][ARGS]{}</s>", [], ["invalid_call"]),
        (BARE, "[CALL]f</s>", [], ["invalid_call"]),
        (BARE, '[CALL][{"name": "f", "arguments": {}}]</s>', [], ["invalid_call"]),
        (BARE, "[CALL]f[ARGS][1]</s>", [], ["invalid_call"]),
        (BARE, "[CALL]f[ID]x[ID]y[ARGS]{}</s>", [("f", "{}", "x[ID]y")], []),
        (BARE, '[CALL]f[ARGS]{"a": ', [], ["unclosed_call"]),
        (BARE, f"[CALL]{'f' * 2000}", [], ["invalid_call"]),
        (MARKS, '<calls>[{"name": "f", "arguments": {}}]</model>', [("f", "{}", None)], []),
        (
            MARKS,
            '<calls>[ {"name": "f", "arguments": {"a": "]}"}, "id": "1"},{"name": "g", "arguments": {}}\n]</model>',
            [("f", '{"a": "]}"}', "1"), ("g", "{}", None)],
            [],
        ),
        (MARKS, '<calls>[{"name": "f", "arguments": {}}', [("f", "{}", None)], []),
        (DEEPSEEK, FENCE.replace("{}", '\n```json\n{"a": 1}\n```'), [("f", '{"a": 1}', None)], []),
        (DEEPSEEK, FENCE.replace("{}", "```json{}```"), [("f", "{}", None)], []),
    ],
)
def test_what_a_model_writes_is_read_alike_in_any_pieces(
    name: str, text: str, expected: list[tuple[str, str, str | None]], odd: list[str]
) -> None:
    whole = read(name, text, len(text))
    assert (expected, odd) == (calls(whole), issues(whole))
    for size in (1, 2, 3, 7):
        pieces = read(name, text, size)
        assert (whole.items, issues(whole)) == (pieces.items, issues(pieces))


def test_arguments_are_told_as_they_come() -> None:
    parser = ts.get_format(BARE).parser()
    told = [
        "".join(getattr(event, "text", "") for event in parser.feed(one))
        for one in ("[CALL]f[ARGS]", '{"a', '": 1', "}")
    ]
    assert ["", '{"a', '": 1', "}"] == told


def test_white_space_around_arguments_is_a_loss_and_other_arguments_are_kept_as_text() -> None:
    for arguments, read_as, lost in ((' {"a":  1}\n', '{"a":  1}', True), ("no JSON", "no JSON", False)):
        request = ts.Request(conversation=ts.Conversation(items=[ToolCall(name="f", arguments=arguments)]))
        request.locate()
        rendered = ts.get_format(BARE).render(request)
        [item] = ts.get_format(BARE).parse(str(rendered.value)).items
        assert isinstance(item, ToolCall)
        assert read_as == item.arguments
        assert lost == any(loss.path == "items[0].arguments" for loss in rendered.losses)


def test_a_text_between_the_calls_of_an_array_is_told() -> None:
    answer = read(MARKS, '<calls>[{"name": "f", "arguments": {}} and {"name": "g", "arguments": {}}]</model>', 5)
    assert [("f", "{}", None)] == calls(answer)
    assert ["text_in_group"] == issues(answer)
    assert "and" in text_content(answer.items[-1].content)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("word", "lost"), [("a1", False), ("", True), ("a<of>1", True)])
def test_a_result_shows_the_id_of_its_call(word: str, lost: bool) -> None:
    call, result = ToolCall(name="f", id=word), ts.ToolResult(name="f", id=word, content=[ts.Text(text="r<of>")])
    request = ts.Request(conversation=ts.Conversation(items=[call, result]))
    request.locate()
    rendered = ts.get_format(MARKS).render(request)
    assert lost == any(loss.path == "items[1].id" for loss in rendered.losses)
    item = ts.get_format(MARKS).parse(str(rendered.value)).items[1]
    assert isinstance(item, ts.ToolResult)
    assert (None if lost else word, "r<of>") == (item.id, text_content(item.content))


@pytest.mark.parametrize("name", ["a>b", "<<f>>", '<<f>>"', ">", 'a>"b"', "<function=f>", "</function>"])
@pytest.mark.parametrize("arguments", ["{}", '{"a": ">{</function>"}', "none"])
def test_a_name_that_holds_its_own_mark_is_read_back(name: str, arguments: str) -> None:
    call = ToolCall(name=name, arguments=arguments)
    format_ = ts.get_format("functionary31")
    rendered = format_.render(ts.Request(conversation=ts.Conversation(items=[call])))
    [again] = format_.parse(str(rendered.value)).items
    assert isinstance(again, ToolCall)
    assert (name, arguments) == (again.name, again.arguments)


@pytest.mark.parametrize(
    ("name", "of"),
    [("functionary31", "a>{"), ("functionary32", "\n"), ("functionary32", "f\n"), ("functionary32", "f\n {")],
)
def test_a_name_that_cannot_be_told_from_its_arguments_is_a_loss(name: str, of: str) -> None:
    rendered = ts.get_format(name).render(
        ts.Request(conversation=ts.Conversation(items=[ToolCall(name=of, arguments="{}")]))
    )
    assert [("items[0].name", "approximated")] == [(loss.path, loss.kind) for loss in rendered.losses]
