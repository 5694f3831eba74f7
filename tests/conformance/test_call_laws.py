"""Owns the laws of what stands around calls in an answer: nothing of a call's opening is said of a text."""

from pathlib import Path

import pytest

import turnscript as ts
from tests.conformance.test_parser_laws import after_opening, written_by_model
from turnscript.engine.states import model_turn
from turnscript.format import Format
from turnscript.registry import load_formats

TAGGED = Path(__file__).resolve().parents[2] / "examples" / "formats" / "tagged.toml"
ASKED = ts.Request(
    conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[ts.Tool(name="f")])
)
CALL = '{"name": "f", "arguments": {}}\n</call>'
BROKEN = "none</call>"


def read(format_: Format, written: str) -> list[ts.Item]:
    """What a model wrote."""
    parser = format_.prompt(ASKED, thinking=False).parser()
    return ts.fold([*parser.feed(written), *parser.close()]).items


def check_texts(items: list[ts.Item]) -> None:
    """Every text says what it says and no more."""
    found = [item for item in items if isinstance(item, ts.Assistant)]
    assert [ts.Assistant(content=item.content) for item in found] == found


def test_a_text_behind_a_call_has_nothing_of_its_opening(format_name: str) -> None:
    """The name and the id that an opening tells are the call's."""
    format_ = ts.get_format(format_name)
    written = written_by_model(format_, ASKED, [ts.ToolCall(name="f", id="c1")])
    if written is None:
        return  # the prompt has opened a text already
    close = model_turn(format_.document).close.strip()
    items = read(format_, f"{after_opening(format_, written).rstrip().removesuffix(close)}\n\nDone.")
    assert isinstance(items[0], ts.ToolCall)
    check_texts(items)


@pytest.mark.parametrize("field", ["id", "namespace"])
@pytest.mark.parametrize("call", [CALL, BROKEN])
def test_a_text_behind_a_call_with_any_attribute_is_read(field: str, call: str) -> None:
    """What a call's opening tells may be nothing that a text has, and is no fault of the text behind."""
    attribute = f'{{ key = "a", path = "{field}", prompt = true }}'
    opening = f'open = "<call"\nhead_end = ">\\n"\nattributes = [{attribute}]\n'
    [format_] = load_formats(TAGGED.read_text(encoding="utf-8").replace('open = "<call>\\n"\n', opening))
    for before in ("", "Hm.\n"):
        items = read(format_, f'{before}<call a="q">\n{call}\nDone.\n<call a="q">\n{CALL}\nDone.')
        assert [isinstance(item, ts.ToolCall) for item in items][-2:] == [True, False]
        check_texts(items)
