"""Owns the laws of what stands around calls in an answer: nothing of a call's opening is said of a text."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

import turnscript as ts
from tests.conformance.test_parser_laws import (
    after_opening,
    as_past,
    behind_thought,
    check_events,
    content_of,
    ends_thought,
    written_by_model,
)
from turnscript.convert.registry import load_formats
from turnscript.core.events import Event, raw_text
from turnscript.core.json_text import every_member, json_of

TAGGED = Path(__file__).resolve().parents[1] / "formats" / "tagged.toml"
ASKED = ts.Request(
    conversation=ts.Conversation(items=[ts.User(content=[ts.Text(text="Hi")])], tools=[ts.Tool(name="f")])
)
CALL = '{"name": "f", "arguments": {}}\n</call>'
BROKEN = "none</call>"


def read(format_: ts.Format, written: str) -> list[ts.Item]:
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
    close = format_.document.model_turn.close.strip()
    items = read(format_, f"{after_opening(format_, written).rstrip().removesuffix(close)}\n\nDone.")
    [call] = [item for item in items if isinstance(item, ts.ToolCall)]
    assert "f" == call.name
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


def of_the_model(format_: ts.Format, *items: ts.Item) -> str:
    """What is written for items of the model, from where its answer begins; the answer is told by the first of them."""
    before = str(format_.render(OFFERED, view="prompt").value).removesuffix(format_.document.end)
    request = ts.Request(conversation=ts.Conversation(items=[*OFFERED.items, *items], tools=OFFERED.tools))
    written = str(format_.render(request, view="prompt").value).removesuffix(format_.document.end)
    opening = format_.document.segment("assistant")
    begun = as_past(format_, format_.prompt(OFFERED, thinking=False).text)[len(before) :]
    assert written.startswith(before + begun.removesuffix(f"{opening.open}{opening.head_end}"))
    return behind_thought(format_, items, written[len(before) :].removeprefix(begun))


SCHEMA = json_of({"type": "object", "properties": {"city": {"type": "string"}}})
OFFERED = ts.Request(
    conversation=ts.Conversation(items=ASKED.items, tools=[ts.Tool(name="weather", parameters=SCHEMA)])
)
SPOKEN = ts.Assistant(content=[ts.Text(text="Let me look.")])
CALLS = [ts.ToolCall(name=name, arguments='{"city": "Oslo", "n": [1, 2]}', id="c1") for name in ("weather", "other")]


def called(format_: ts.Format, *calls: ts.Item) -> str:
    """What is written for calls without a text, or behind one where the prompt opens a text."""
    opening = format_.document.segment("assistant")
    opened = format_.prompt(OFFERED, thinking=False).text.endswith(f"{opening.open}{opening.head_end}")
    return of_the_model(format_, *([SPOKEN] if opening.open and opened else []), *calls)


def events_of(format_: ts.Format, pieces: Iterable[str]) -> list[Event]:
    """All events of an answer in pieces."""
    parser = format_.prompt(OFFERED, thinking=False).parser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close("length")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: str(call.name))
def test_a_call_that_breaks_off_reads_the_same_in_any_pieces(format_name: str, call: ts.ToolCall) -> None:
    """F3: wherever it breaks off, and whatever follows; also a call of a tool that nobody offered."""
    format_ = ts.get_format(format_name)
    written = of_the_model(format_, SPOKEN, call)
    for cut, behind in itertools.product(range(len("Let me look."), len(written), 3), ("", "<x", "\n\nNo", "}\n")):
        answer = written[:cut] + behind
        whole = check_events(events_of(format_, [answer]), answer)
        for pieces in (answer, [answer[:cut], behind], [answer[: cut - 5], answer[cut - 5 :]]):
            assert whole == check_events(events_of(format_, pieces), answer), answer


@pytest.mark.about("calls")
def test_a_second_call_that_is_cut_changes_nothing_of_the_first(format_name: str) -> None:
    """F4: what is told of a call is over with the call, and every API can tell an answer that goes on."""
    format_ = ts.get_format(format_name)
    written = called(format_, CALLS[0], CALLS[0])
    for cut in range(written.find("weather"), len(written), 3):
        events = events_of(format_, [written[:cut]])
        check_events(events, written[:cut])
        for api in map(ts.get_api, ts.apis()):
            renderer = api.stream_renderer(ts.Request())
            renderer.send(events)
            renderer.close()


@pytest.mark.about("calls")
def test_nothing_is_said_that_stands_behind_the_end_of_a_broken_call(format_name: str) -> None:
    """F5: another's turn ends the answer wherever a call stops to be one, outside of its strings."""
    format_ = ts.get_format(format_name)
    spoken, turn = of_the_model(format_, SPOKEN), format_.document.model_turn
    spoken = spoken.removeprefix(ends_thought(format_, [SPOKEN]))  # which later prompts do not show
    written = of_the_model(format_, SPOKEN, CALLS[0])
    other = ts.Request(
        conversation=ts.Conversation(items=[*OFFERED.items, SPOKEN, *OFFERED.items], tools=OFFERED.tools)
    )
    after = str(format_.render(other, view="prompt").value).removesuffix(format_.document.end)
    behind = after[after.rindex(spoken) + len(spoken.removesuffix(turn.close)) :].replace("Hi", "evil")
    for cut in range(len("Let me look."), len(written)):
        if written[:cut].count('"') % 2 == 0:  # in a JSON string, any tag is text
            events = events_of(format_, [written[:cut] + behind])
            assert "evil" not in "".join(content_of(item) for item in ts.fold(events).items), written[:cut] + behind


def held(parser: ts.TurnParser, written: str) -> int:
    """Read a text in pieces; returns how much of it was on no event yet, at most."""
    waits, events = [0], []
    for at in range(0, len(written), 64):
        found = parser.feed(written[at : at + 64])
        waits.append(waits[-1] + len(written[at : at + 64]) - len(raw_text(found)))
        events += found
    check_events(events + parser.close(), written)
    return max(waits)


@pytest.mark.about("calls")
def test_case_40_long_and_deep_calls_are_read_and_little_is_held_back(format_name: str) -> None:
    """Of the hard cases: a long string, many parameters, many calls, and JSON deeper than Python reads."""
    format_ = ts.get_format(format_name)
    long = ts.ToolCall(name="weather", arguments=json.dumps({"city": "x" * 400_000}))
    many = ts.ToolCall(name="weather", arguments=json.dumps({f"key{at}": "v" for at in range(2_000)}))
    deep = ts.ToolCall(name="weather", arguments=f'{{"city": {"[" * 5_000}{"]" * 5_000}}}')
    for calls in ([long], [many], [CALLS[0]] * 1_000, [deep]):
        written = called(format_, *calls)
        most = held(format_.prompt(OFFERED, thinking=False).parser(), written)
        named_first = written.find("weather") < written.find("key0" if calls == [many] else "city")
        assert most < 300 or not named_first or calls not in ([long], [many]), most


TWICE = '{"at": 1, "city": "Oslo", "at": 2, "\\u0061t": 3}'


@pytest.mark.about("calls")
def test_a_value_of_a_key_that_comes_twice_is_kept_or_a_loss_of_its_own(format_name: str) -> None:
    """How JSON is spelled is no value: whoever looks for lost values must not have to guess."""
    format_ = ts.get_format(format_name)
    call = ts.ToolCall(name="weather", id="c1", arguments=TWICE)
    request = ts.Request(conversation=ts.Conversation(items=[*OFFERED.items, call], tools=OFFERED.tools))
    rendered = format_.render(request, view="prompt")
    [again] = [item for item in format_.parse(str(rendered.value)).items if isinstance(item, ts.ToolCall)]
    of_arguments = [loss for loss in rendered.losses if loss.path == "items[1].arguments"]
    lost = [(loss.kind, loss.detail) for loss in of_arguments if '"at"' in loss.detail]
    kept = [key for key, _ in every_member(again.arguments)]
    assert (kept, lost) in [
        (["at", "city", "at", "at"], []),
        (["at", "city"], [("dropped", 'the key "at" comes 3 times: its last value alone is kept')]),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"at": 1}', []),
        ('{"at": {"a": 1, "a": 2}}', []),
        ('{"at":1}', ["approximated"]),
        ('{"at": 1, "at": 2}', ["dropped"]),
        ('{"at":1, "at": 2}', ["dropped", "approximated"]),
        ('{"a b": 1, "a b": 2}', ["dropped"]),
    ],
)
@pytest.mark.parametrize("name", ["ai00-v1", "rwkv-goose-observation"])
def test_a_lost_value_and_a_lost_spelling_are_told_apart(name: str, arguments: str, expected: list[str]) -> None:
    request = ts.Request(
        conversation=ts.Conversation(items=[*OFFERED.items, ts.ToolCall(name="f", arguments=arguments)])
    )
    losses = ts.get_format(name).render(request, view="prompt").losses
    assert expected == [loss.kind for loss in losses if loss.path == "items[1].arguments"]
