"""Owns the checks that tables of models keep contents, names and ids from being read as tags, wherever those stand."""

from pathlib import Path

import pytest

import turnscript as ts
from tests.conformance.test_format_laws import check_document
from turnscript.format import Format
from turnscript.registry import load_formats
from turnscript.tableio.tables import InvalidFormat

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "formats"
FORMATS = {one.name: one for file in FOLDER.glob("*.toml") if file.stem != "ai00-config" for one in load_formats(file)}


def asked(*items: ts.Item, tools: tuple[str, ...] = ()) -> ts.Request:
    offered = [ts.Tool(name=name) for name in tools]
    return ts.Request(conversation=ts.Conversation(items=list(items), tools=offered))


def user(text: str) -> ts.User:
    return ts.User(content=[ts.Text(text=text)])


def tags(format_: Format) -> list[str]:
    """The tags that a reader or a tokenizer looks for in a format."""
    return [one for one in (*format_.special_tokens, *format_.stops) if format_.protects(one)]


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


def forced(format_: Format, name: str) -> str:
    """The prompt for a call of a tool that must be called."""
    request = asked(user("q"), tools=(name,))
    request.settings.tool_choice = ts.ToolChoice(mode="named", name=name)
    return format_.prompt(request, thinking=False).text


def written(format_: Format, name: str) -> str:
    """The same call in a document."""
    request = asked(user("q"), ts.ToolCall(name=name, arguments='{"a": 1}'), tools=(name,))
    return str(format_.render(request, view="prompt").value)


def test_a_tag_that_begins_as_it_ends_takes_a_rule_for_its_half() -> None:
    """Without the rule, a text that ends with `[e~` would end a character after its beginning."""
    table = (FOLDER / "minimax.toml").read_text()
    rule = '{ lead = "[e", rest = ["~"] }'
    assert rule in table
    with pytest.raises(
        InvalidFormat, match=r"'\[e~\[' begins as it ends.*add the rule \{ lead = \"\[\", rest = \[\"e~\"\] \}"
    ):
        load_formats(table.replace(rule, '{ lead = "[e~", rest = ["["] }'))
    assert load_formats(table.replace(rule, '{ lead = "[", rest = ["e~"] }'))
