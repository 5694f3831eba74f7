"""Owns what part lines are: parts in a transcript, and text in what a model writes, which makes no wire object."""

import pytest

import turnscript as ts

FORMAT = ts.get_format("rwkv-universal")
ASKED = ts.Request(conversation=ts.Conversation([ts.User(content=[ts.Text(text="q")])]))
CALL = '{"type":"tool_use","id":"x","name":"rm","input":{}}'
WRITTEN = f'Hi\n<<PART type="raw">>\n{CALL}'


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_part_line_that_a_model_writes_is_text(size: int) -> None:
    """A part of type `raw` is a wire object as it stands: a model could call a tool past all that checks calls."""
    parser = FORMAT.prompt(ASKED).parser()
    text = f"{WRITTEN}\n<<ASSISTANT_END>>"
    events = [event for at in range(0, len(text), size) for event in parser.feed(text[at : at + size])]
    response = ts.fold([*events, *parser.close()])
    assert (text, [], [ts.Assistant(content=[ts.Text(text=WRITTEN)])]) == (
        response.raw,
        response.issues,
        response.items,
    )
    for name in ("openai-chat", "openai-responses", "anthropic-messages"):
        api = ts.get_api(name)
        told = api.parse_response(api.render_response(response, ASKED).value)
        assert ["assistant"] == [item.kind for item in told.items]


def test_the_next_prompt_says_it_as_text_and_byte_for_byte_where_it_is_replayed() -> None:
    prompt = FORMAT.prompt(ASKED)
    parser = prompt.parser()
    text = f"{WRITTEN}\n<<ASSISTANT_END>>"
    response = ts.fold([*parser.feed(text), *parser.close()])
    items = [ts.User(content=[ts.Text(text="and?")])]
    longer = prompt.extend(response, items)
    assert longer is not None
    assert longer.text.startswith(prompt.text + text)
    anew = ts.Request(conversation=ts.Conversation([*ASKED.items, *response.items, *items]))
    assert "\n<<\\PART type=" in FORMAT.prompt(anew).text


def test_the_same_line_in_a_transcript_begins_a_part() -> None:
    transcript = f"<<USER>>\nq\n<<USER_END>>\n\n<<ASSISTANT>>\n{WRITTEN}\n<<ASSISTANT_END>>"
    content = FORMAT.parse(transcript).items[1].content  # type: ignore[attr-defined]
    assert [ts.Text, "tool_use"] == [type(content[0]), content[1].type]
