"""Owns the tests of memory with what real clients send back: every API, every format, every way to echo an answer."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import turnscript as ts
from tests.conformance.test_replay_laws import SESSION, texts_of
from tests.gateway import echo
from tests.gateway.echo import ECHOES, Body, Echo
from turnscript.core.conversation import text_content
from turnscript.gateway.database import Bounds, Database
from turnscript.gateway.meaning import Beginning, beginning_of
from turnscript.gateway.memory import SCHEMA, Memory, Recalled

WEATHER = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
PAIRS = [(api, one) for api, several in ECHOES.items() for one in several]


class Gateway:
    """As much of the gateway as memory needs, with a model that says what it is told to."""

    def __init__(self, memory: Memory, api: str, format_: ts.Format, thinking: bool = False) -> None:
        self.memory, self.api, self.format, self.thinking = memory, ts.get_api(api), format_, thinking
        self.calls = 0

    async def ask(self, body: Body) -> tuple[ts.Prompt, Recalled, ts.Request]:
        """The prompt of a request."""
        request = self.api.parse_request(body)
        recalled = await self.memory.recall("scope", request)
        return self.format.prompt(request, thinking=self.thinking, replays=recalled.replays), recalled, request

    async def answer(self, body: Body, text: str, finish: str | None = None) -> tuple[ts.Prompt, Recalled, Body]:
        """The prompt and the answer whose text a model has generated."""
        prompt, recalled, request = await self.ask(body)
        parser = prompt.parser()
        response = ts.fold(parser.feed(text) + parser.close(finish))
        for item in response.items:
            if isinstance(item, ts.ToolCall):
                self.calls += 1
                item.id = f"call_0123456789abcdef{self.calls:04}"
            elif isinstance(item, ts.Thinking):
                item.signature = f"proof of thought {len(text)}"
        self.memory.remember(recalled, response, prompt)
        answer = self.api.render_response(response, request).value
        assert isinstance(answer, dict)
        return prompt, recalled, answer


def call_ids(answer: Body) -> list[str]:
    """The ids of an answer's calls on any wire."""
    if "choices" in answer:
        return [call["id"] for call in answer["choices"][0]["message"].get("tool_calls") or []]
    blocks: list[Body] = answer["content"] if "content" in answer else answer["output"]
    return [one.get("call_id") or one["id"] for one in blocks if one["type"] in ("tool_use", "function_call")]


def new_messages(api: str, answer: Body, items: list[ts.Item]) -> list[Body]:
    """What is said next: the results of the answer's calls, or the user's words."""
    ids = call_ids(answer)
    if ids:
        return [echo.result(api, one, '{"sky": "clear"}') for one in ids]
    said = [text_content(item.content) for item in items if isinstance(item, ts.User)]
    return [echo.user(api, said[0] if said else "go on")]


def thoughtful(format_: ts.Format, texts: list[str]) -> list[str]:
    """The same texts, each behind a thought."""
    document = format_.document
    begin = ">\n" if format_.prompt(ts.Request(), thinking=True).text.endswith("<think") else ""
    answer = document.segment("assistant")
    segments = [segment for turn in document.turns for segment in turn.segments]
    close = next(one.close for one in segments if one.kind == "thinking" and one.of in ("", "reason"))
    found = []
    for turn, text in enumerate(texts):
        kind = "assistant" if turn else "tool_call"
        joint = document.joints.get(("thinking", kind), document.separator)
        opening = f"{answer.open}{answer.head_end}" if turn else ""
        thought = f"{begin}hm {turn} \n so{close}"
        found.append(f"{thought}{joint}{opening}{text.lstrip() if not turn else text}")
    return found


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize(("api", "way"), PAIRS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_each_prompt_begins_with_the_one_before_and_its_answer(
    format_name: str, api: str, way: Echo, thinking: bool
) -> None:
    """However a client spells an answer again, the model sees what it wrote."""
    format_ = ts.get_format(format_name)

    async def session() -> None:
        gateway = Gateway(Memory(), api, format_, thinking)
        messages: list[Body] = [echo.user(api, "Weather in Tokyo?")]
        before = ""
        lead = " " if format_.document.flattened else ""
        texts = [*texts_of(format_), f"{lead}It ends in a blank. ", f"{lead}Twice. \n"]
        for turn, text in enumerate(thoughtful(format_, texts) if thinking else texts):
            prompt, recalled, answer = await gateway.answer(echo.asking(api, messages, [WEATHER]), text)
            assert turn == recalled.reused == len(prompt.replayed)
            assert prompt.text.startswith(before)
            before = prompt.text + text
            messages += [*way(answer), *new_messages(api, answer, SESSION[min(turn + 1, 3)])]

    asyncio.run(session())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every registered format."""
    if "format_name" in metafunc.fixturenames:
        metafunc.parametrize("format_name", ts.formats())


CHATML = "batuta-chatml"
ODD = '{\n "k" :  "a\\/b", "n": 1.0, "big": 9007199254740993, "e": 1e3, "z": -0.0, "é": "\\u00e9\\ud83d\\ude00"\n}'
CALL = f'<tool_call>\n{{"name": "get_weather",  "input": {ODD}}}\n</tool_call><|im_end|>'
WRITTEN = f"hm, so\n</think>\n\nI will look. \n{CALL}"
TOOLS = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}]


def second_prompt(api: str, change: Callable[[list[Body]], list[Body]], way: Echo) -> tuple[ts.Prompt, Recalled, str]:
    """The prompt after an answer with a thought, a text and a call, which a client sends back in its way, changed."""

    async def session() -> tuple[ts.Prompt, Recalled, str]:
        gateway = Gateway(Memory(), api, ts.get_format(CHATML), thinking=True)
        messages = [echo.user(api, "Weather?")]
        prompt, _, answer = await gateway.answer(echo.asking(api, messages, TOOLS), WRITTEN)
        later = [*messages, *change(way(answer)), *new_messages(api, answer, [])]
        again, recalled, _ = await gateway.ask(echo.asking(api, later, TOOLS))
        return again, recalled, prompt.text + WRITTEN

    return asyncio.run(session())


def same(messages: list[Body]) -> list[Body]:
    return messages


@pytest.mark.parametrize(("api", "way"), PAIRS, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_thought_a_text_with_a_blank_and_oddly_spelled_arguments_come_back_exactly(api: str, way: Echo) -> None:
    again, recalled, before = second_prompt(api, same, way)
    assert (1, 1) == (recalled.turns, recalled.reused)
    assert again.text.startswith(before)


def test_smolagents_turns_calls_into_prose_which_is_taken_as_it_says() -> None:
    def prose(messages: list[Body]) -> list[Body]:
        text = f"Calling tools:\n{messages[0]['tool_calls']}"
        return [{"role": "assistant", "content": text}]

    async def session() -> None:
        gateway = Gateway(Memory(), "openai-chat", ts.get_format(CHATML))
        messages = [echo.user("openai-chat", "Weather?")]
        written = WRITTEN[WRITTEN.index("I will") :]
        _, _, answer = await gateway.answer(echo.asking("openai-chat", messages, TOOLS), written)
        later = [*messages, *prose(echo.chat_exact(answer)), echo.user("openai-chat", "Observation: clear")]
        prompt, recalled, _ = await gateway.ask(echo.asking("openai-chat", later, TOOLS))
        assert (1, 0) == (recalled.turns, recalled.reused)
        assert "Calling tools:" in prompt.text
        assert written not in prompt.text

    asyncio.run(session())


def test_a_turn_of_thoughts_alone_that_a_client_leaves_out_is_gone() -> None:
    async def session() -> None:
        gateway = Gateway(Memory(), "openai-responses", ts.get_format(CHATML), thinking=True)
        messages = [echo.user("openai-responses", "q")]
        prompt, _, answer = await gateway.answer(echo.asking("openai-responses", messages, []), "secret", "length")
        for way, reused in ((echo.responses_exact, 1), (echo.responses_bare, 0)):
            later = [*messages, *way(answer), echo.user("openai-responses", "go on")]
            again, recalled, _ = await gateway.ask(echo.asking("openai-responses", later, []))
            assert reused == recalled.reused
            assert bool(reused) == again.text.startswith(f"{prompt.text}secret")

    asyncio.run(session())


def test_gptme_sends_thoughts_as_text_which_is_a_change() -> None:
    def tagged(messages: list[Body]) -> list[Body]:
        return [messages[0] | {"content": f"<think>\nhm, so\n</think>\n{messages[0]['content']}"}]

    again, recalled, before = second_prompt("openai-chat", tagged, echo.chat_exact)
    assert 0 == recalled.reused
    assert not again.text.startswith(before)


def edit_text(messages: list[Body]) -> list[Body]:
    return [messages[0] | {"content": messages[0]["content"].replace("look", "cook")}]


def edit_arguments(messages: list[Body]) -> list[Body]:
    messages[0]["tool_calls"][0]["function"]["arguments"] = ODD.replace("1.0", "1.5")
    return messages


def edit_big_number(messages: list[Body]) -> list[Body]:
    messages[0]["tool_calls"][0]["function"]["arguments"] = ODD.replace("740993", "740995")
    return messages


def add_argument(messages: list[Body]) -> list[Body]:
    messages[0]["tool_calls"][0]["function"]["arguments"] = ODD.replace("}", ', "more": 1}')
    return messages


def edit_name(messages: list[Body]) -> list[Body]:
    messages[0]["tool_calls"][0]["function"]["name"] = "get_time"
    return messages


def drop_call(messages: list[Body]) -> list[Body]:
    del messages[0]["tool_calls"]
    return messages


def repeat_call(messages: list[Body]) -> list[Body]:
    messages[0]["tool_calls"] *= 2
    return messages


def drop_text(messages: list[Body]) -> list[Body]:
    return [messages[0] | {"content": None}]


def edit_thought(messages: list[Body]) -> list[Body]:
    return [messages[0] | {"reasoning_content": "I hate tools"}]


CHANGES = [
    edit_text,
    edit_arguments,
    edit_big_number,
    add_argument,
    edit_name,
    drop_call,
    repeat_call,
    drop_text,
    edit_thought,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
def test_whatever_a_client_changes_is_what_the_model_sees(change: Callable[[list[Body]], list[Body]]) -> None:
    again, recalled, before = second_prompt("openai-chat", change, echo.chat_exact)
    assert (1, 0) == (recalled.turns, recalled.reused)
    assert not again.text.startswith(before)


def test_claude_code_moves_cache_marks_and_toggles_strings_and_lists() -> None:
    """What was said before the turns that matter is the same, though it is written in other ways."""

    async def session() -> None:
        gateway = Gateway(Memory(), "anthropic-messages", ts.get_format(CHATML))
        messages: list[Body] = [{"role": "user", "content": "Hi"}]
        _, _, answer = await gateway.answer(echo.asking("anthropic-messages", messages, TOOLS), "Hello. ")
        mark = {"cache_control": {"type": "ephemeral"}}
        listed = [{"role": "user", "content": [{"type": "text", "text": "Hi"} | mark]}, *echo.messages_marked(answer)]
        listed.append({"role": "user", "content": "More"})
        prompt, recalled, _ = await gateway.ask(echo.asking("anthropic-messages", listed, TOOLS))
        assert 1 == recalled.reused
        assert "Hello. <|im_end|>" in prompt.text

    asyncio.run(session())


@pytest.mark.parametrize("where", ["call", "stop", "text"])
def test_an_answer_that_was_cut_off_is_replayed_as_the_client_saw_it(where: str) -> None:
    written = {
        "call": 'Look. \n<tool_call>\n{"name": "get_weather", "input": {"city": "To',
        "stop": "One two HALT",
        "text": "One tw",
    }[where]

    async def session() -> None:
        gateway = Gateway(Memory(), "openai-chat", ts.get_format(CHATML))
        body = echo.asking("openai-chat", [echo.user("openai-chat", "q")], TOOLS) | {"stop": ["HALT"]}
        prompt, _, answer = await gateway.answer(body, written, "length" if where != "stop" else None)
        message = answer["choices"][0]["message"]
        next_ = echo.user("openai-chat", "next")
        if where == "call":  # a client may leave it out, or send back what came of it
            body["messages"] += [{"role": "assistant", "content": message["content"]}, next_]
            without, recalled, _ = await gateway.ask(body)
            assert 1 == recalled.reused
            assert without.text.startswith(f"{prompt.text}{written}<|im_end|>")
            del body["messages"][-2:]
        body["messages"] += [*([message] if where == "call" else echo.chat_parsed(answer)), next_]
        again, recalled, _ = await gateway.ask(body)
        assert 1 == recalled.reused
        seen = written.removesuffix("HALT")
        closing = "\n</tool_call>" if where == "call" else ""
        assert again.text.startswith(f"{prompt.text}{seen}{closing}<|im_end|>")
        assert "HALT" not in again.text

    asyncio.run(session())


def test_turns_are_known_after_a_restart_and_the_prompt_is_the_same(tmp_path: Path) -> None:
    async def session(path: Path, work: Callable[[Gateway], Awaitable[str]]) -> str:
        database = Database(path, SCHEMA, Bounds())
        try:
            return await work(Gateway(Memory(database), "anthropic-messages", ts.get_format(CHATML), thinking=True))
        finally:
            await database.close()

    bodies: list[Body] = []

    async def first(gateway: Gateway) -> str:
        body = echo.asking("anthropic-messages", [echo.user("anthropic-messages", "Weather?")], TOOLS)
        prompt, _, answer = await gateway.answer(body, WRITTEN)
        body["messages"] += [
            *echo.messages_thoughtless(answer),
            *new_messages("anthropic-messages", answer, []),
        ]
        bodies.append(json.loads(json.dumps(body)))
        return prompt.text + WRITTEN

    async def second(gateway: Gateway) -> str:
        prompt, recalled, _ = await gateway.ask(bodies[0])
        assert 1 == recalled.reused
        return prompt.text

    path = tmp_path / "memory.db"
    before = asyncio.run(session(path, first))
    assert asyncio.run(session(path, second)).startswith(before)


@pytest.mark.parametrize("size", range(6))
def test_a_turn_is_found_whether_or_not_it_was_known_how_its_conversation_begins(size: int) -> None:
    texts: list[list[ts.Part]] = [[ts.Text(text=word)] for word in ("Be brief.", "Hi", "one", "Go on.", "two")]
    kinds: list[type[ts.System | ts.User | ts.Assistant]]
    kinds = [ts.System, ts.User, ts.Assistant, ts.User, ts.Assistant]
    items: list[ts.Item] = [kind(content=text) for kind, text in zip(kinds, texts, strict=True)]
    if size == len(items):
        items[-1].open = True

    def request(count: int) -> ts.Request:
        return ts.Request(conversation=ts.Conversation(items=items[:count]))

    async def run(beginning: Beginning | None) -> Recalled:
        memory, format_ = Memory(), ts.get_format("batuta-chatml")
        recalled = await memory.recall("scope", request(2))
        assert memory.remember(recalled, ts.Response(items=items[2:3], raw="one"), format_.prompt(request(2)))
        return await memory.recall("scope", request(size), beginning=beginning)

    bare, told = asyncio.run(run(None)), asyncio.run(run(beginning_of(items[:size])))
    assert (int(size > 2), bare.reused, bare.before) == (told.reused, told.reused, told.before)
    assert min(size, 2) == beginning_of(items[:size]).length
