"""Owns what a turn of a long session costs: as much as what is new, however much was said before."""

import random
from collections.abc import Callable

import pytest

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.engine import correlate
from turnscript.engine.correlate import NOTHING, Earlier
from turnscript.engine.prompt import Prompt

TOOL = ts.Tool(name="weather")
CALL, CLOSING = '{"city": "Oslo"}', "\n<<END_TOOL_CALL>>"


def forced(*items: ts.Item) -> Prompt:
    """A prompt that opens a call, which has an id."""
    settings = ts.Settings(tool_choice=ts.ToolChoice(mode="named", name="weather"))
    conversation = ts.Conversation([ts.User(content=[ts.Text(text="Go on.")]), *items], [TOOL])
    return ts.get_format("rwkv-universal").prompt(ts.Request(conversation=conversation, settings=settings))


def called(prompt: Prompt) -> Prompt:
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


def random_session(rng: random.Random) -> tuple[Earlier, list[ts.Item]]:
    earlier = NOTHING
    for _ in range(rng.randrange(1, 4)):
        earlier = earlier.then([random_item(rng) for _ in range(rng.randrange(4))])
    return earlier, [random_item(rng) for _ in range(rng.randrange(1, 5))]


@pytest.mark.parametrize("name", ts.formats())
def test_a_result_has_the_name_that_the_whole_session_gives_it(name: str) -> None:
    document = ts.get_format(name).document
    rng = random.Random(1)
    for _ in range(3000):
        earlier, items = random_session(rng)
        found = correlate.names_of(items, document, earlier)
        whole = correlate.names_of([*earlier.all(), *items], document)
        for at, item in enumerate(items, earlier.count):
            if earlier.waiting and isinstance(item, ts.ToolResult) and item.name is None:
                assert whole.get(at) == found.get(at)


def test_the_next_id_is_the_first_that_no_call_has() -> None:
    rng = random.Random(2)
    for _ in range(3000):
        earlier, items = random_session(rng)
        earlier = earlier.then(items)
        calls = [item for item in earlier.all() if isinstance(item, ts.ToolCall)]
        number = len(calls) + 1
        while f"call_auto_{number:03d}" in {call.id for call in calls}:
            number += 1
        assert f"call_auto_{number:03d}" == earlier.next_id()
