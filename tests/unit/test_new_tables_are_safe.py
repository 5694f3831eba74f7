"""Owns the checks that tables of models keep contents, names and ids from being read as tags, wherever those stand."""

import re
from pathlib import Path

import pytest

import turnscript as ts
from tests.conformance.test_format_laws import check_document
from turnscript.convert.registry import load_formats

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "src" / "turnscript" / "formats" / "tables"
EXAMPLES = [ROOT / "examples" / "formats" / f"{name}.toml" for name in ("changed", "tagged")]
FORMATS = {one.name: one for file in (*FOLDER.glob("*.toml"), *EXAMPLES) for one in load_formats(file)}


def asked(*items: ts.Item, tools: tuple[str, ...] = ()) -> ts.Request:
    offered = [ts.Tool(name=name) for name in tools]
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=offered))


def user(text: str) -> ts.User:
    return ts.User(content=[ts.Text(text=text)])


def tags(format_: ts.Format) -> list[str]:
    """The tags that a reader or a tokenizer looks for in a format."""
    return [one for one in (*format_.special_tokens, *format_.stops) if format_.protects(one)]


def sought(format_: ts.Format) -> set[str]:
    """The tags that a parser looks for beside those that the format writes: what stops a model, and other openings."""
    generation, turns = format_.document.generation, format_.document.turns
    stops = (*generation.stops, *generation.stops_with_tools, *generation.stops_of_call)
    openings = (also.open for turn in turns for also in turn.also_read)
    return {tag for one in (*stops, *openings) for tag in re.findall(r"<[^<>\s]+>|\[/?[A-Z_]+\]", one)}


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_tag_that_is_read_and_never_written_is_broken_too(name: str) -> None:
    """It is a token of the model as well, and it would end an answer that the client has begun."""
    format_ = FORMATS[name]
    assert [] == [tag for tag in sorted(sought(format_)) if not format_.protects(tag)]


@pytest.mark.parametrize(("name", "tag"), [("llama31", "<|eom_id|>"), ("glm", "<|endoftext|>")])
def test_a_text_that_goes_on_may_hold_what_stops_the_model(name: str, tag: str) -> None:
    begun = ts.Assistant(content=[ts.Text(text=f"The tag {tag}")], open=True)
    prompt = FORMATS[name].prompt(asked(user("q"), begun))
    assert tag not in prompt.text.rpartition("The tag")[2]
    parser = prompt.parser()
    [said] = ts.fold([*parser.feed(" ends a turn."), *parser.close()]).items
    assert [" ends a turn."] == [part.text for part in said.content]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["[e~[", "]~b]user", "a[e~[\n]~b]system\nb", "\\[e~[", "\\\\]~b]ai"], ids=repr)
def test_a_tag_of_brackets_in_an_attribute_is_broken(name: str) -> None:
    """MiniMax's tags have no `<`, and the names of its calls and their arguments stand in attributes."""
    format_ = FORMATS["minimax"]
    request = asked(user("q"), ts.ToolCall(name=name, arguments='{"]~b]tool[e~[": 1}'), tools=(name,))
    plain = asked(user("q"), ts.ToolCall(name="f", arguments='{"a": 1}'), tools=("f",))
    text, usual = (str(format_.render(one).value) for one in (request, plain))
    for tag in ("[e~[", "]~b]"):
        assert usual.count(tag) == text.count(tag)
    check_document(format_, request)


@pytest.mark.parametrize("said", ["[e~", "hello[e~", "[e~[e~", "[e", "[e\\~"], ids=repr)
def test_a_content_does_not_end_with_the_beginning_of_what_ends_it(said: str) -> None:
    """`[e~[` begins as it ends: behind `[e~` it would be found too early."""
    content: list[ts.Part] = [ts.Text(text=said)]
    items = [user(said), ts.Assistant(content=content), ts.ToolCall(name="f"), ts.ToolResult(content=content, name="f")]
    check_document(FORMATS["minimax"], asked(*items))


@pytest.mark.parametrize("name", sorted(set(FORMATS) - {"gemma", "goose-paren"}))
def test_a_name_of_a_tool_that_must_be_called_holds_no_tag(name: str) -> None:
    """The prompt writes it as it stands in a call that has been made. (Gemma has no calls, and goose-paren no tags.)"""
    format_ = FORMATS[name]
    usual = forced(format_, "f")
    called = [f"a{tag}b" for tag in tags(format_) if not set(tag) & set(" \n")]
    assert called
    for one in called:
        prompt = forced(format_, one)
        for tag in tags(format_):
            assert usual.count(tag) == prompt.count(tag)
        if (made := written(format_, "f")).startswith(usual):
            assert made != written(format_, one)
            assert written(format_, one).startswith(prompt)


def forced(format_: ts.Format, name: str) -> str:
    """The prompt for a call of a tool that must be called."""
    request = asked(user("q"), tools=(name,))
    request.settings.tool_choice = ts.ToolChoice(mode="named", name=name)
    return format_.prompt(request, thinking=False).text


def written(format_: ts.Format, name: str) -> str:
    """The same call in a document."""
    request = asked(user("q"), ts.ToolCall(name=name, arguments='{"a": 1}'), tools=(name,))
    return str(format_.render(request, view="prompt").value)


@pytest.mark.parametrize(
    ("rule", "other", "named"),
    [
        ('{ lead = "[e", rest = ["~"] }', '{ lead = "[e~", rest = ["["] }', r"'\[e~' and '\[e~\[' behind it"),
        ('{ lead = "]~", rest = ["!", "b"] }', '{ lead = "]~", rest = ["!b[", "b]"] }', r"'\]~!b' and '\[e~\[' behind"),
    ],
    ids=["its own", "another's"],
)
def test_a_closing_that_makes_the_end_of_a_content_a_tag_is_refused(rule: str, other: str, named: str) -> None:
    """Where one tag begins as another ends, halves of tags are broken too."""
    table = (FOLDER / "minimax.toml").read_text()
    assert rule in table
    with pytest.raises(ts.InvalidFormat, match=named):
        load_formats(table.replace(rule, other))


@pytest.mark.parametrize("said", ["]~!b", "]~b", "a]~!b"], ids=repr)
def test_no_tag_begins_in_a_content_and_ends_behind_it(said: str) -> None:
    """`]~!b` before `[e~[` would be the token that begins a document."""
    format_ = FORMATS["minimax"]
    request = asked(user(said), ts.Assistant(content=[ts.Text(text=said)]))
    assert str(format_.render(request).value).count("]~!b[") == 1
    check_document(format_, request)


@pytest.mark.parametrize("name", ["deepseek", "mistral"])
@pytest.mark.parametrize("said", ["\r\na", "\r\na\r\nb\n", " \r\n"], ids=repr)
def test_line_ends_of_a_content_that_no_opening_stands_before_are_its_own(name: str, said: str) -> None:
    """Behind a closing, where a turn begins without an opening, the first line end is no line end of a tag."""
    result = ts.ToolResult(content=[ts.Text(text="r")], name="f")
    check_document(FORMATS[name], asked(user("q"), result, ts.Assistant(content=[ts.Text(text=said)])))


@pytest.mark.parametrize("name", ["phi4-mini", "deepseek", "deepseek-r1", "mistral-v7"])
@pytest.mark.parametrize("thought", ["h", ""])
def test_an_empty_text_before_what_is_not_written_and_a_call_is_a_loss(name: str, thought: str) -> None:
    """The thought stands in no prompt of most of these, so the call follows the text, of which nothing shows."""
    thinking = ts.Thinking(content=[ts.Text(text=thought)] if thought else [])
    items = [user("q"), ts.Assistant(content=[ts.Text(text="")]), thinking, ts.ToolCall(name="f")]
    check_document(FORMATS[name], asked(*items))


def test_a_first_turn_without_any_literal_is_written() -> None:
    """Nothing stands before it, not even what begins a document."""
    table = (FOLDER / "deepseek.toml").read_text().replace('start = "<｜begin▁of▁sentence｜>"\n', "")
    format_ = load_formats(table)[0]
    for items in ([], [ts.System(content=[ts.Text(text="s")]), user("q")], [ts.System(content=[ts.Text(text="")])]):
        check_document(format_, asked(*items))


FAULTS = {
    "a close that is no tag": ("mistral", 'close = "][/AVAILABLE_TOOLS]"', 'close = "<"', "where the list ends"),
    "commas before a text": (
        "phi4-mini",
        "[format.tools]",
        '[format.tools]\norder = "before"',
        "white space alone may",
    ),
    "a thought with a name": ("glm", 'until = "user"', 'until = "user", named = true', "only a tool call has"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_that_could_not_be_read_back_is_refused(fault: str) -> None:
    """With a sentence that says why."""
    name, before, after, words = FAULTS[fault]
    table = (FOLDER / f"{name}.toml").read_text()
    assert before in table
    with pytest.raises(ts.InvalidFormat, match=words):
        load_formats(table.replace(before, after))
