"""Owns halves of surrogate pairs, which a str may hold and UTF-8 cannot: read as they are, and refused in words."""

import re
from collections.abc import Callable

import pytest

import turnscript as ts
from turnscript.core.conversation import text_content
from turnscript.core.events import raw_text, unfold

HALF = "x\ud83d"
HELLO = ts.User(content=[ts.Text(text="Hi")])
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}]
ASKED = ts.parse({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": TOOLS})


def asked(*items: ts.Item, tools: tuple[ts.Tool, ...] = (), **settings: str) -> ts.Request:
    return ts.Request(conversation=ts.Conversation([HELLO, *items], list(tools)), settings=ts.Settings(**settings))  # type: ignore[arg-type]


REQUESTS = {
    "items[1].name": asked(ts.ToolCall(name=HALF, id="a"), ts.ToolResult(id="a", name="f")),
    "items[1].arguments": asked(ts.ToolCall(name="f", arguments=HALF, id="a"), ts.ToolResult(id="a", name="f")),
    "items[2].name": asked(ts.ToolCall(name="f", id="a"), ts.ToolResult(id="a", name=HALF)),
    "tools[0].name": asked(tools=(ts.Tool(name=HALF),)),
    "tools[0].description": asked(tools=(ts.Tool(name="f", description=HALF),)),
    "settings.model": asked(model=HALF),
}
"""Requests by the place of the text in them that UTF-8 cannot hold."""


def refusal(write: Callable[[], object]) -> ts.InvalidConversation | None:
    """The error of a writer that refuses; None for one that writes."""
    try:
        write()
    except ts.InvalidConversation as error:
        return error
    return None


@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize("name", [*ts.formats(), *ts.apis()])
def test_what_cannot_be_written_is_refused_in_words_wherever_it_stands(name: str, path: str) -> None:
    """Where JSON is written, the place is known; a text that only becomes bytes is refused when it does."""
    error = refusal(lambda: ts.render(REQUESTS[path], name).data)
    if error is not None:
        assert error.path in (path, "")
        assert "holds half of a surrogate pair, which UTF-8 cannot carry" in error.message
        assert error.got == r"'\ud83d'"


@pytest.mark.parametrize("path", REQUESTS)
@pytest.mark.parametrize("name", ts.formats())
def test_a_prompt_and_its_spans_are_written_or_refused_alike(name: str, path: str) -> None:
    format_ = ts.get_format(name)
    for error in (refusal(lambda: format_.prompt(REQUESTS[path])), refusal(lambda: format_.spans(REQUESTS[path]))):
        assert (error is None) == (refusal(lambda: format_.render(REQUESTS[path], view="prompt")) is None)
        assert error is None or error.path == path


@pytest.mark.parametrize("name", ts.formats())
def test_half_a_character_in_the_arguments_of_a_call_is_read(name: str) -> None:
    """Decoders make it of broken bytes. The arguments have it as an escape, or there is no call and its text stays."""
    format_ = ts.get_format(name)
    call = ts.ToolCall(name="f", arguments='{"a": "HALF"}', id="c1")
    whole = ts.Request(conversation=ts.Conversation([*ASKED.items, call], ASKED.tools))
    written = format_.spans(whole)
    text = "".join(span.text for span in written if span.item == len(ASKED.items) and span.trainable)
    text = text.replace("HALF", HALF)
    for pieces in ([text], list(text)):
        parser = format_.prompt(ASKED).parser()
        events = [event for piece in pieces for event in parser.feed(piece)] + parser.close()
        assert text == raw_text(events)
        (said,) = ts.fold(events).items
        if isinstance(said, ts.ToolCall):
            assert re.fullmatch(r'\{"a": "x\\ud83d"\}', said.arguments)
        else:
            assert HALF in text_content(said.content)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ts.formats())
def test_half_a_character_in_a_call_as_an_api_wraps_it_is_read(name: str) -> None:
    wrapped = '{"type": "function", "function": {"name": "f", "arguments": {"a": "HALF"}}}'.replace("HALF", HALF)
    for opening in ("<tool_call>", "<tool_call>\n", "```json\n", "<<TOOL_CALL>>\n"):
        parser = ts.get_format(name).prompt(ASKED).parser()
        text = f"{parser.lead}{opening}{wrapped}"
        assert text == raw_text([*parser.feed(text), *parser.close()])


@pytest.mark.parametrize("name", ts.apis())
def test_a_stream_tells_or_refuses_a_call_in_free_text(name: str) -> None:
    response = ts.Response(
        items=[ts.ToolCall(name="f", arguments=HALF, id="c", custom=True)], finish_reason="tool_calls"
    )
    renderer = ts.get_api(name).stream_renderer(ASKED)
    told: list[bytes] = []
    error = refusal(lambda: told.append(renderer.send(unfold(response)) + renderer.close()))
    if error is not None:
        assert "half of a surrogate pair" in error.message
    else:
        assert rb"\ud83d" in told[0] or b'"f"' not in told[0]
