"""Owns what a turn of a long session costs: as much as what is new, however much was said before."""

import random
from collections.abc import Callable

import pytest

import turnscript as ts
from tests.growth import assert_grows_below

TOOL = ts.Tool(name="weather")
CALL, CLOSING = '{"city": "Oslo"}', "\n<<END_TOOL_CALL>>"


def forced(*items: ts.Item) -> ts.Prompt:
    """A prompt that opens a call, which has an id."""
    settings = ts.Settings(tool_choice=ts.ToolChoice(mode="named", name="weather"))
    conversation = ts.Conversation([ts.User(content=[ts.Text(text="Go on.")]), *items], [TOOL])
    return ts.get_format("rwkv-universal").prompt(ts.Request(conversation=conversation, settings=settings))


def called(prompt: ts.Prompt) -> ts.Prompt:
    """The prompt behind one more call, and behind a result that names no tool."""
    parser = prompt.parser()
    response = ts.fold(parser.feed(CALL + CLOSING) + parser.close())
    (call,) = response.items
    assert isinstance(call, ts.ToolCall)
    longer = prompt.extend(response, [ts.ToolResult(id=call.id, content=[ts.Text(text="rain")])])
    assert longer is not None
    return longer


@pytest.mark.deep
@pytest.mark.parametrize("waits", [False, True])
def test_a_turn_costs_what_is_new_however_long_the_session_is(waits: bool) -> None:
    """Whether or not a call waits that nobody will ever answer."""
    waiting = [ts.ToolCall(name="weather", arguments=CALL, id="waits"), ts.User(content=[ts.Text(text="Leave it.")])]

    def session(turns: int) -> Callable[[], object]:
        prompt = forced(*waiting if waits else ())
        for _ in range(turns):
            prompt = called(prompt)

        def more() -> None:
            nonlocal prompt
            for _ in range(50):
                prompt = called(prompt)

        return more

    assert_grows_below(4, session, 300, 3000, least=0.002)


def random_item(rng: random.Random) -> ts.Item:
    name = rng.choice(["f", "g", "h"])
    id_ = rng.choice([None, None, "a", "b", "c", "f", "call_auto_001", "call_auto_003", "call_auto_0004"])
    if rng.random() < 0.4:
        return ts.ToolCall(name=name, arguments="{}", id=id_)
    if rng.random() < 0.75:
        return ts.ToolResult(name=rng.choice([None, None, name]), id=id_, content=[ts.Text(text="x")])
    return ts.User(content=[ts.Text(text="Go on.")])


def random_items(rng: random.Random, least: int, most: int) -> list[ts.Item]:
    return [random_item(rng) for _ in range(rng.randrange(least, most))]


def extended(prompt: ts.Prompt, items: list[ts.Item]) -> tuple[ts.Prompt, list[ts.Item]]:
    """The prompt behind a short answer and more items, and all that was said since."""
    parser = prompt.parser()
    response = ts.fold([*parser.feed(f"{parser.lead}Well."), *parser.close()])
    longer = prompt.extend(response, items)
    assert longer is not None
    return longer, [*response.items, *items]


def request_of(items: list[ts.Item]) -> ts.Request:
    return ts.Request(conversation=ts.Conversation(items))


def shown(prompt: ts.Prompt, item: int) -> str:
    """What a prompt writes of an item, and of the opening of its turn."""
    return "".join([span.text for span in prompt.spans if span.item == item])


@pytest.mark.parametrize("name", ts.formats())
def test_a_result_has_the_name_that_the_whole_session_gives_it(name: str) -> None:
    format_, rng = ts.get_format(name), random.Random(1)
    for _ in range(500):
        items = [ts.User(content=[ts.Text(text="Hi")]), *random_items(rng, 0, 5)]
        prompt, before = format_.prompt(request_of(items), thinking=False), 0
        for _ in range(rng.randrange(1, 3)):
            before = len(items)
            prompt, new = extended(prompt, random_items(rng, 1, 5))
            items = [*items, *new]
        whole = format_.prompt(request_of(items), thinking=False)
        for at in range(before, len(items)):
            if isinstance(items[at], ts.ToolResult):
                assert shown(whole, at) == shown(prompt, at)


def test_the_next_id_is_the_first_that_no_call_has() -> None:
    """In a prompt that opens a call, rendered from the start or extended again and again."""
    rng = random.Random(2)
    for _ in range(200):
        items = random_items(rng, 0, 5)
        prompt, said = forced(*items), items
        for _ in range(rng.randrange(1, 4)):
            calls = [item for item in said if isinstance(item, ts.ToolCall)]
            number = len(calls) + 1
            while f"call_auto_{number:03d}" in {call.id for call in calls}:
                number += 1
            assert f' id="call_auto_{number:03d}"' in prompt.prefill
            parser, new = prompt.parser(), random_items(rng, 1, 5)
            response = ts.fold(parser.feed(CALL + CLOSING) + parser.close())
            longer = prompt.extend(response, new)
            assert longer is not None
            prompt, said = longer, [*said, *response.items, *new]
