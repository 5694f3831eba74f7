"""Owns answers of several texts behind the gateway: what clients send back, calls made again, tokens, and blanks."""

import asyncio
import json
from typing import Any

import pytest

import turnscript as ts
from tests.gateway import echo
from tests.gateway.echo import Body, Echo
from tests.gateway.test_logprobs import chat, gateway, lists, number, responses
from tests.gateway.test_memory_echoes import PAIRS, WEATHER, Gateway
from tests.strategies.events import texts_told
from turnscript.core.events import Event, MessageEnd, NextText, PartDelta, PartEnd, PartStart, raw_text
from turnscript.core.json_text import json_of
from turnscript.gateway.checks import CallGate, CallPolicy
from turnscript.gateway.generation import Blanks
from turnscript.gateway.memory import Memory

NAME = "rwkv-universal"
FORMAT = ts.get_format(NAME)
CLOSE = "\n<<ASSISTANT_END>>"
WRITTEN = [
    f"A \n<<PART>>\n B{CLOSE}",
    f"One.\n<<PART>>\nTwo.\n\n<<PART>>\n<<\\PART>> three{CLOSE}",
    f"A\n<<PART>>{CLOSE}",
    f"<<PART>>\nA\n<<PART>>\n<<PART>>\nB{CLOSE}",
    f"Good bye.{CLOSE}",
]
TOOL = ts.Tool(
    name="get_weather",
    parameters=json_of({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
)


def each_stripped(body: Body) -> list[Body]:
    """A client that strips each block by itself."""
    blocks = [block | {"text": block["text"].strip()} for block in body["content"]]
    return [{"role": "assistant", "content": blocks}]


WAYS = [*PAIRS, ("anthropic-messages", each_stripped)]


@pytest.mark.parametrize(("api", "way"), WAYS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_what_a_client_sends_back_stands_as_the_model_wrote_it(api: str, way: Echo) -> None:
    """However it joins or splits the texts."""

    async def session() -> None:
        served = Gateway(Memory(), api, FORMAT)
        messages: list[Body] = [echo.user(api, "Hi")]
        before = ""
        for turn, text in enumerate(WRITTEN):
            prompt, recalled, answer = await served.answer(echo.asking(api, messages, [WEATHER]), text)
            assert turn == recalled.reused == len(prompt.replayed)
            assert prompt.text.startswith(before)
            before = prompt.text + text
            messages += [*way(answer), echo.user(api, "go on")]

    asyncio.run(session())


@pytest.mark.parametrize("size", [1, 4, 10_000])
@pytest.mark.parametrize("said", ["A\n<<PART>>", "A\n<<PART>>\nB", "A\n<<PART>>\nB\n<<PART>>", "A\n<<PART"])
def test_a_call_that_is_made_again_tells_no_end_of_a_text_twice(said: str, size: int) -> None:
    prompt = FORMAT.prompt(ts.Request(conversation=ts.Conversation([ts.User(content=[ts.Text(text="q")])], [TOOL])))
    bad, good = (
        f'{said}\n<<TOOL_CALL name="get_weather">>\n{{"{key}": "Rome"}}\n<<END_TOOL_CALL>>' for key in ("town", "city")
    )
    gate = CallGate([TOOL], CallPolicy(action="retry"))
    parser, out = prompt.parser(), list[Event]()
    for at in range(0, len(bad), size):
        out += gate.feed(parser.feed(bad[at : at + size]))
    out += gate.feed(parser.close())
    assert gate.wants_retry
    kept, parser = gate.kept, prompt.parser()
    gate.resume(parser)
    for at in range(len(kept), len(good), size):
        out += gate.feed(parser.feed(good[at : at + size]))
    out += gate.feed(parser.close())
    once = prompt.parser()
    whole = [*once.feed(good), *once.close()]
    assert (ts.fold(whole).items, good) == (ts.fold(out).items, raw_text(out))
    assert texts_told(whole) == texts_told(out)


def test_blank_texts_before_a_call_are_told_to_nobody() -> None:
    item = ts.Assistant(content=[ts.Text(text=" "), ts.Text(text="\n")])
    start, call = PartStart(0, ts.Assistant()), ts.ToolCall(name="f", id="c")
    events: list[Event] = [
        start,
        PartDelta(0, " ", " "),
        NextText(0, "", "|"),
        PartDelta(0, "\n", "\n"),
        PartEnd(0, item),
    ]
    events += [PartStart(1, call, "("), PartEnd(1, call, ")"), MessageEnd("tool_calls")]
    out = [one for blanks in [Blanks()] for event in events for one in blanks.feed([event])]
    assert (["tool_call"], " |\n()") == ([one.kind for one in ts.fold(out).items], raw_text(out))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_each_text_has_its_own_tokens(stream: bool) -> None:
    tokens = ["One", " two", ".", "\n<<", "PART", ">>\n", "Th", "ree", "\n<<ASSISTANT_END>>"]
    script = lists([(token, [token.encode()]) for token in tokens])
    with gateway("completions", script, format_=NAME) as (client, _):
        text, said = chat(client, stream=stream, tools=[])
        assert ("One two.Three", ["One", " two", ".", "Th", "ree"]) == (text, [one["token"] for one in said])
        text, said = responses(client, stream=stream, tools=[])
        assert ("One two.Three", [number(at) for at in (0, 1, 2, 6, 7)]) == (text, [one["logprob"] for one in said])
        asked: Any = {"model": "m", "input": "Hi", "include": ["message.output_text.logprobs"], "top_logprobs": 2}
        whole = client.responses.create(**asked).output[0].to_dict()
        parts = [[one["token"] for one in part["logprobs"]] for part in json.loads(json.dumps(whole))["content"]]
        assert [["One", " two", "."], ["Th", "ree"]] == parts
