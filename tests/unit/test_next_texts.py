"""Owns answers of several texts: the line between two as a model writes it, and how the clients of each API see it."""

import json
from typing import Any

import pytest

import turnscript as ts
from tests.strategies.events import texts_told
from turnscript.convert.registry import load_formats
from turnscript.core.events import Event, NextText, PartDelta
from turnscript.core.json_text import json_of
from turnscript.tableio import dump_format

FORMAT = ts.get_format("rwkv-universal")
CLOSE = "\n<<ASSISTANT_END>>"
WEATHER = ts.Tool(name="get_weather", parameters=json_of({"type": "object"}))
CALL = '<<TOOL_CALL name="get_weather" id="c1">>\n{"city": "\\n<<PART>>\\n"}\n<<END_TOOL_CALL>>'
TEXTS: dict[str, list[str]] = {
    "A\n<<PART>>\nB": ["A", "B"],
    "A\n<<PART>>\nB\n<<PART>>\n\nC\n": ["A", "B", "\nC\n"],
    "A\n\n<<PART>>\n\nB": ["A\n", "\nB"],
    "<<PART>>\nB": ["B"],
    "<<PART>>\nB\n<<PART>>\nC": ["B", "C"],
    "A\n<<PART>>": ["A", ""],
    "A\n<<PART>>\n": ["A", ""],
    "A\n<<PART>>\n<<PART>>\nB": ["A", "", "B"],
    "A\n<<PART>>\n\n<<PART>>\nB": ["A", "", "B"],
    "A\n<<\\PART>>\nB": ["A\n<<PART>>\nB"],
    "A\n<<PART>>\nsay <<\\PART>>\n<<\\\\PART>>": ["A", "say <<PART>>\n<<\\PART>>"],
    "say <<PART>>\nB": ["say <<PART>>\nB"],
    "A\n<<PART>>B": ["A\n<<PART>>B"],
    "A\n<<PARTS>>\nB": ["A\n<<PARTS>>\nB"],
}
"""What a model writes in its block, and the texts that it is, to whoever reads it."""
LEFT = ['type="image" url="u"', 'type="refusal"', 'type="raw"', 'type="summary"', 'type="text"', "x={}"]
"""What a part line may say in a transcript. In an answer it would make a picture, a refusal or a wire object."""


def asked(**settings: Any) -> ts.Request:
    """A question, with a tool on offer."""
    request = ts.Request(conversation=ts.Conversation([ts.User(content=[ts.Text(text="q")])], tools=[WEATHER]))
    request.settings = ts.Settings(model="m", **settings)
    return request


def read(written: str, size: int = 10_000, finish: str | None = None, thinking: bool = False) -> list[Event]:
    """The events of an answer in pieces. Every character is on one of them."""
    parser = FORMAT.prompt(asked(), thinking=thinking).parser()
    events = [event for at in range(0, len(written), size) for event in parser.feed(written[at : at + size])]
    events += parser.close(finish)
    assert written == "".join(event.raw for event in events)
    return events


def texts(item: ts.Item) -> list[str]:
    """The texts of an item, which has nothing else."""
    assert isinstance(item, ts.Assistant | ts.Thinking)
    return [part.text for part in item.content if isinstance(part, ts.Text)]


@pytest.mark.parametrize("size", [1, 2, 5, 10_000])
@pytest.mark.parametrize("written", TEXTS)
def test_an_answer_has_the_texts_that_a_transcript_has(written: str, size: int) -> None:
    events = read(f"{written}{CLOSE}", size)
    response = ts.fold(events)
    [item] = response.items
    assert (TEXTS[written], []) == (texts(item), response.issues)
    assert TEXTS[written] == texts_told(events)
    transcript = FORMAT.parse(f"<<USER>>\nq\n<<USER_END>>\n\n<<ASSISTANT>>\n{written}{CLOSE}")
    assert transcript.items[1:] == response.items


def test_a_line_that_a_transcript_knows_by_its_attributes_stays_text() -> None:
    for attributes in LEFT:
        written = f"A\n<<PART {attributes}>>\n{{}}"
        [item] = ts.fold(read(f"{written}{CLOSE}")).items
        assert [written] == texts(item)


def test_a_first_text_without_a_character_is_none_like_an_answer_without_one() -> None:
    assert [["B"]] == [texts(item) for item in ts.fold(read(f"\n<<PART>>\nB{CLOSE}")).items]
    assert [] == ts.fold(read(f"\n<<PART>>\n{CLOSE}")).items


@pytest.mark.parametrize("finish", [None, "stop", "length"])
@pytest.mark.parametrize("written", ["A\n<<PART>>", "A\n<<PART>>\n"])
def test_the_line_may_be_the_last_that_comes(written: str, finish: str | None) -> None:
    """The closing was a stop string and taken away, or a limit ended the answer right here."""
    for size in (1, 4, 100):
        [item] = ts.fold(read(written, size, finish)).items
        assert ["A", ""] == texts(item)


@pytest.mark.parametrize("count", range(1, len("\n<<PART>>")))
def test_of_a_line_that_a_limit_cuts_nothing_is_said(count: int) -> None:
    """It leaves no markup in the text. Two characters of it tell it from a text; fewer are one."""
    written = "A" + "\n<<PART>>"[:count]
    response = ts.fold(read(written, 1, "length"))
    [item] = response.items
    cut = count > len("\n<")
    assert ["A" if cut else written] == texts(item)
    assert ["cut_tag"] * cut == [issue.kind for issue in response.issues]


def test_no_more_waits_than_the_line() -> None:
    """Text goes out as soon as it cannot become the line any more, and behind the line at once."""
    parser = FORMAT.prompt(asked(), thinking=False).parser()
    assert ["A"] == [event.text for event in parser.feed("A\n<<PART") if isinstance(event, PartDelta)]
    assert "\n<<PART " == "".join(event.raw for event in parser.feed(" "))
    assert ['type="raw">>'] == [event.text for event in parser.feed('type="raw">>') if isinstance(event, PartDelta)]
    assert [] == parser.feed("\n<<PART>>")
    assert [NextText(0, "", "\n<<PART>>")] == parser.feed("\n")
    assert [PartDelta(0, "B", "\nB")] == parser.feed("B")


def test_a_thought_and_a_call_have_no_such_lines() -> None:
    written = f"a\n<<PART>>\nb\n<<THINK_END>>\n\n<<ASSISTANT>>\nA\n<<PART>>\nB{CLOSE}\n\n{CALL}"
    for size in (1, 3, 10_000):
        response = ts.fold(read(written, size, thinking=True))
        thought, answer, call = response.items
        assert [["a\n<<PART>>\nb"], ["A", "B"]] == [texts(thought), texts(answer)]
        assert isinstance(call, ts.ToolCall)
        assert ({"city": "\n<<PART>>\n"}, []) == (json.loads(call.arguments), response.issues)


def test_a_call_inside_an_answer_ends_its_last_text() -> None:
    response = ts.fold(read(f"A\n<<PART>>\nB\n{CALL}", 3))
    assert (["A", "B"], "tool_call") == (texts(response.items[0]), response.items[1].kind)
    assert ["missing_close"] == [issue.kind for issue in response.issues]


def test_what_is_no_call_after_all_is_of_the_text_that_it_began_in() -> None:
    written = "A\n<<PART>>\nB\n<<TOOL_CALL id=1>>\n{}\n<<END_TOOL_CALL>>\n<<PART>>\nC"
    [item] = ts.fold(read(f"{written}{CLOSE}", 4)).items
    assert ["A", "B\n<<TOOL_CALL id=1>>\n{}\n<<END_TOOL_CALL>>", "C"] == texts(item)


def test_an_answer_that_goes_on_from_a_prefill_may_end_its_text_there() -> None:
    request = asked()
    request.conversation.items.append(ts.Assistant(content=[ts.Text(text="A"), ts.Text(text="B")], open=True))
    prompt = FORMAT.prompt(request)
    assert prompt.text.endswith("A\n<<PART>>\nB")
    for written, wanted in {f"C\n<<PART>>\nD{CLOSE}": ["C", "D"], f"\n<<PART>>\nD{CLOSE}": ["", "D"]}.items():
        parser = prompt.parser()
        events = [event for character in written for event in parser.feed(character)] + parser.close()
        assert (wanted, written) == (texts_told(events), "".join(event.raw for event in events))
        assert wanted == texts(ts.fold(events).items[0])


@pytest.mark.parametrize("begun", ["A\n<<PART>>\nB", "A\n<<PART>>\n", "A\n<<PART>>\n\n"])
def test_the_texts_of_a_prefill_are_not_of_the_answer(begun: str) -> None:
    parser = FORMAT.parser(prefill=f"<<ASSISTANT>>\n{begun}")
    written = f"C\n<<PART>>\nD{CLOSE}"
    events = [event for character in written for event in parser.feed(character)] + parser.close()
    assert (["C", "D"], written) == (texts_told(events), "".join(event.raw for event in events))
    assert ["C", "D"] == texts(ts.fold(events).items[0])


def test_the_next_prompt_says_it_byte_for_byte_replayed_or_not() -> None:
    prompt, written = FORMAT.prompt(asked()), f"A\n<<PART>>\nB{CLOSE}"
    parser = prompt.parser()
    response = ts.fold([*parser.feed(written), *parser.close()])
    items: list[ts.Item] = [ts.User(content=[ts.Text(text="and?")])]
    longer = prompt.extend(response, items)
    assert longer is not None
    anew = asked()
    anew.conversation.items += [*response.items, *items]
    assert f"{prompt.text}{written}\n\n<<USER>>\nand?\n<<USER_END>>\n\n<<ASSISTANT>>\n" == longer.text
    assert longer.text == FORMAT.prompt(anew).text


@pytest.mark.parametrize(("stop", "wanted"), [("\n<<PART>>\n", ["A"]), ("B\n", ["A", ""]), ("\nB", ["A", ""])])
def test_a_stop_string_of_the_client_ends_the_answer_wherever_the_line_stands(stop: str, wanted: list[str]) -> None:
    for size in (1, 3, 100):
        parser = FORMAT.prompt(asked(stop=[stop]), thinking=False).parser()
        written = "A\n<<PART>>\nB\nC"
        events = [event for at in range(0, len(written), size) for event in parser.feed(written[at : at + size])]
        response = ts.fold([*events, *parser.close()])
        assert (wanted, stop) == (texts(response.items[0]), response.stop_sequence)


@pytest.mark.parametrize("stop", ["\n", "\n<", "<<PART>>", "PART", ">>\n", "\n<<PART>>"])
def test_a_stop_string_inside_the_line_ends_the_answer_as_its_server_would(stop: str) -> None:
    """A server looks for stop strings and knows no line, so what it sends ends there, too."""
    written = "A\n<<PART>>\nB"
    for size in (1, 3, 100):
        parser = FORMAT.prompt(asked(stop=[stop]), thinking=False).parser()
        events = [event for at in range(0, len(written), size) for event in parser.feed(written[at : at + size])]
        response = ts.fold([*events, *parser.close()])
        assert ([written[: written.index(stop)]], stop) == (texts(response.items[0]), response.stop_sequence)


def test_other_formats_have_no_such_line() -> None:
    for name in ts.formats():
        segment = ts.get_format(name).document.segment("assistant")
        assert (segment.body.next_text == "\n<<PART>>\n") == (name == FORMAT.name)


def test_a_format_of_ones_own_has_the_line_where_its_body_has_it() -> None:
    [own] = load_formats(dump_format(FORMAT).replace("rwkv-universal", "own").replace("ASSISTANT", "MODEL"))
    prompt = own.prompt(asked(), thinking=False)
    assert prompt.text.endswith("<<MODEL>>\n")
    parser = prompt.parser()
    response = ts.fold([*parser.feed("A\n<<PART>>\nB\n<<MODEL_END>>"), *parser.close()])
    assert [["A", "B"]] == [texts(item) for item in response.items]


# As clients see it.


def streamed(api: ts.Api, events: list[Event], size: int) -> tuple[bytes, list[str]]:
    """The stream of an answer, its events sent some at a time, and what it lost."""
    renderer = api.stream_renderer(asked(stream=True))
    data = renderer.start()
    for at in range(0, len(events), size):
        data += renderer.send(events[at : at + size])
    return data + renderer.close(), sorted(str(loss) for loss in renderer.losses)


@pytest.mark.parametrize("written", TEXTS)
@pytest.mark.parametrize("name", ts.apis())
def test_a_stream_says_what_the_whole_answer_says(name: str, written: str) -> None:
    api = ts.get_api(name)
    response = ts.fold(read(f"{written}{CLOSE}"))
    rendered = api.render_response(response, asked())
    whole = api.parse_response(rendered.value)
    for size, step in ((1, 1), (4, 1), (4, 100)):
        data, losses = streamed(api, read(f"{written}{CLOSE}", size), step)
        parser = api.stream_parser()
        found = ts.fold([*parser.feed(data), *parser.close()])
        assert [texts(item) for item in whole.items] == [texts(item) for item in found.items]
        assert (sorted(map(str, rendered.losses)), []) == (losses, found.issues)


def payloads(name: str, written: str, *types: str) -> list[Any]:
    """The events of some types of an API's stream, character by character."""
    data, _ = streamed(ts.get_api(name), read(f"{written}{CLOSE}", 1), 1)
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n") if line.startswith("data: {")]
    return [one for one in map(json.loads, lines) if one.get("type") in types]


def test_messages_has_a_block_for_each() -> None:
    found = payloads(
        "anthropic-messages", "A\n<<PART>>\nBC", "content_block_start", "content_block_delta", "content_block_stop"
    )
    deltas = [(one["index"], one["delta"]["text"]) for one in found if "delta" in one]
    assert [(0, "A"), (1, "B"), (1, "C")] == deltas
    assert [0, 0, 0, 1, 1, 1, 1] == [one["index"] for one in found]


def test_responses_has_a_content_part_for_each_in_one_message() -> None:
    words = ("content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done")
    found = payloads("openai-responses", "A\n<<PART>>\n<<PART>>\nBC", *(f"response.{word}" for word in words))
    parts = [
        (one["type"].split(".")[-1], one["content_index"], one.get("delta", one.get("text"))) for one in found[:-1]
    ]
    assert [
        *(("added", 0, None), ("delta", 0, "A"), ("done", 0, "A"), ("done", 0, None)),
        *(("added", 1, None), ("done", 1, ""), ("done", 1, None)),
        *(("added", 2, None), ("delta", 2, "B"), ("delta", 2, "C"), ("done", 2, "BC"), ("done", 2, None)),
    ] == parts
    assert ["A", "", "BC"] == [part["text"] for part in found[-1]["item"]["content"]]


def test_chat_joins_them_and_says_so() -> None:
    data, losses = streamed(ts.get_api("openai-chat"), read(f"A\n<<PART>>\nB{CLOSE}", 1), 1)
    assert b"PART" not in data
    assert any("joined with the text before it" in loss for loss in losses)
