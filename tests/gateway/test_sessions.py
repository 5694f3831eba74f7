"""Owns the tests of sessions: requests that belong together meet, and a prompt's known beginning is counted."""

import gc
import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.growth import assert_grows_below
from turnscript.gateway.sessions import Prefixes, Session, Sessions, Source, common, size_of

FORMAT = ts.get_format("batuta-chatml")
UUID = "0a1b2c3d-1111-2222-3333-444455556666"


def find(
    body: dict[str, Any], api: str = "openai-responses", headers: dict[str, str] | None = None, owner: str = ""
) -> Session:
    """The session of one request."""
    return Sessions().find(headers or {}, ts.parse(body, api), owner)


def messages(metadata: Any = None, *, said: str = "Hi", system: str = "S") -> dict[str, Any]:
    """A body of Messages."""
    body = {"model": "m", "max_tokens": 1, "system": system, "messages": [{"role": "user", "content": said}]}
    return body | ({} if metadata is None else {"metadata": metadata})


@pytest.mark.parametrize(
    "user_id",
    [
        f"user_0123_account__session_{UUID}",
        f"user_0123_account_{UUID[::-1]}_session_{UUID}",
        json.dumps({"device_id": "d", "account_uuid": "a", "session_id": UUID}),
    ],
)
def test_claude_code_says_its_session_in_a_user_id(user_id: str) -> None:
    found = find(messages({"user_id": user_id}), "anthropic-messages")
    assert "user" == found.source
    assert found.key == find(messages({"user_id": f"x_session_{UUID}"}, said="else"), "anthropic-messages").key
    other = user_id.replace(UUID, UUID[::-1])
    assert found.key != find(messages({"user_id": other}), "anthropic-messages").key


@pytest.mark.parametrize("user_id", ["just a user", "{", "[1]", '{"session_id": 5}', '{"device_id": "d"}', ""])
def test_a_user_id_without_a_session_is_none(user_id: str) -> None:
    assert "" == find(messages({"user_id": user_id}), "anthropic-messages").source


def test_agents_of_one_session_have_a_thread_each() -> None:
    named = {"x-claude-code-session-id": "s"}
    lead, *others = [
        find(messages(), "anthropic-messages", named | headers)
        for headers in ({}, {"x-claude-code-agent-id": "a"}, {"x-claude-code-agent-id": "b"})
    ]
    assert {lead.key} == {one.key for one in others}
    assert 3 == len({lead.thread, *(one.thread for one in others)})


def test_a_header_comes_before_all_else() -> None:
    body = messages({"user_id": f"u_session_{UUID}"})
    found = find(body, "anthropic-messages", {"x-claude-code-session-id": "h"})
    assert "x-claude-code-session-id" == found.source
    assert found.key == find(messages(), "anthropic-messages", {"x-claude-code-session-id": "h"}).key
    assert found.key != find(messages(), "anthropic-messages", {"x-claude-code-session-id": "g"}).key


@pytest.mark.parametrize(
    ("more", "source"),
    [
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"prompt_cache_key": "k", "previous_response_id": "resp_1"}, "prompt_cache_key"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"conversation": {"id": "conv_1"}}, "conversation.id"),
        ({"prompt_cache_key": ""}, ""),
        ({"conversation": None}, ""),
    ],
)
def test_members_of_the_body_are_looked_at_in_order(more: dict[str, Any], source: str) -> None:
    assert source == find({"model": "m", "input": "q"} | more).source


@pytest.mark.parametrize("member", ["prompt_cache_key", "previous_response_id"])
def test_what_many_requests_at_once_may_share_tells_nobody_who_waits(member: str) -> None:
    told = {"model": "m", "input": "q", member: "one"}
    assert not find(told).single
    assert find(told, "openai-responses", {"x-session-id": "h"}).single
    assert not find({"model": "m", "input": "q"}).single


def test_the_turns_of_a_chain_of_answers_are_one_session() -> None:
    sessions = Sessions()
    first = sessions.find({}, ts.parse({"model": "m", "input": "q"}, "openai-responses"), "me")
    sessions.note(first, "resp_1", "me")
    second = sessions.find(
        {}, ts.parse({"model": "m", "input": "r", "previous_response_id": "resp_1"}, "openai-responses"), "me"
    )
    sessions.note(second, "resp_2", "me")
    third = ts.parse({"model": "m", "input": "s", "previous_response_id": "resp_2"}, "openai-responses")
    assert first.key == second.key == sessions.find({}, third, "me").key
    assert first.thread == second.thread
    assert first.key != sessions.find({}, third, "you").key


def test_no_more_answers_are_known_than_allowed() -> None:
    sessions = Sessions(most=10)
    session = Session("k", "t")
    for number in range(1000):
        sessions.note(session, f"resp_{number}")
    assert 10 == len(sessions._answers)


def test_a_conversation_that_names_no_session_is_known_by_how_it_begins() -> None:
    sessions = Sessions()

    def of(*said: str, system: str = "S") -> Session:
        roles = ("user", "assistant")
        turns = [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)]
        return sessions.find({}, ts.parse(messages(system=system) | {"messages": turns}, "anthropic-messages"), "me")

    first = of("Hi")
    assert first == of("Hi", "Hello", "More") == of("Hi", "Other", "More", "Yes", "No")
    assert first.key == first.thread
    assert first != of("Ho", "Hello", "More")
    assert first != of("Hi", system="T")


def test_subagents_of_a_session_are_threads_of_their_own() -> None:
    header = {"x-claude-code-session-id": "h"}
    main = find(messages(), "anthropic-messages", header)
    later = messages() | {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "More"},
        ]
    }
    assert main == find(later, "anthropic-messages", header)
    sub = find(messages(system="You are a subagent"), "anthropic-messages", header)
    assert main.key == sub.key
    assert main.thread != sub.thread


def test_clients_with_different_keys_share_no_session() -> None:
    for more in ({"prompt_cache_key": "k"}, {}):
        body = {"model": "m", "input": "q"} | more
        assert find(body, owner="me").key != find(body, owner="you").key


def test_names_of_headers_and_members_are_data() -> None:
    source = Source(member="client_metadata.place", pattern=r"at (\w+)")
    sessions = Sessions((Source(header="x-mine"), source))
    body = {"model": "m", "input": "q", "client_metadata": {"place": "I am at home"}}
    assert "client_metadata.place" == sessions.find({}, ts.parse(body, "openai-responses")).source
    assert "x-mine" == sessions.find({"x-mine": "1"}, ts.parse(body, "openai-responses")).source


def test_a_name_may_be_long_or_odd() -> None:
    for name in ("k" * 100_000, "\x00", "é\U0001f600"):
        found = find({"model": "m", "input": "q"}, headers={"x-session-id": name})
        assert 32 == len(found.key) == len(found.thread)


# How much of a prompt is known.


@given(st.text("ab", max_size=40), st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_what_two_texts_begin_with_in_common_is_counted(shared: str, first: str, second: str) -> None:
    one, other = shared + first, shared + second
    expected = next(
        (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    assert expected == common(one, other) == common(other, one)


def asked(*texts: str) -> ts.Request:
    """A request in which user and model take turns."""
    kinds = (ts.User, ts.Assistant)
    items: list[ts.Item] = [kinds[at % 2](content=[ts.Text(text=text)]) for at, text in enumerate(texts)]
    request = ts.Request(conversation=ts.Conversation(items=items))
    request.locate()
    return request


def test_a_prompt_that_goes_on_from_its_answer_is_known_up_to_there() -> None:
    prefixes = Prefixes()
    first = FORMAT.prompt(asked("Hi"))
    assert f"0/{len(first.text)}" == str(prefixes.measure("s", first.text))
    prefixes.answered("s", first.text, "Hello")
    request = asked("Hi", "Hello", "More")
    second = FORMAT.prompt(request)
    found = prefixes.measure("s", second.text)
    assert (len(first.text) + len("Hello"), len(second.text), True) == (found.reused, found.total, found.whole)
    assert 0 == prefixes.measure("another", second.text).reused


def test_a_prompt_that_parts_from_what_was_said_is_known_up_to_there() -> None:
    prefixes = Prefixes()
    before = FORMAT.prompt(asked("Hi", "Hello there", "More"))
    prefixes.measure("s", before.text)
    prefixes.answered("s", before.text, "Yes")
    request = asked("Hi", "Hello you", "More", "Yes", "And?")
    prompt = FORMAT.prompt(request)
    found = prefixes.measure("s", prompt.text)
    assert not found.whole
    assert found.reused == prompt.text.index("you")


def test_conversations_of_one_session_do_not_disturb_each_other() -> None:
    prefixes = Prefixes()
    said = {"main": ["Hi"], "sub": ["You search files"], "title": ["Name this"]}
    for _ in range(5):
        for texts in said.values():
            request = asked(*texts)
            prompt = FORMAT.prompt(request)
            found = prefixes.measure("s", prompt.text)
            assert found.whole or len(texts) == 1
            assert len(texts) == 1 or found.reused > len(FORMAT.prompt(asked(*texts[:-2])).text)
            prefixes.answered("s", prompt.text, "Hello")
            texts += ["Hello", "More"]


def test_the_same_prompt_again_is_known_and_goes_back_behind_its_answer() -> None:
    """A model without a way back must read it anew, and that is said."""
    prefixes = Prefixes()
    request = asked("Hi")
    prompt = FORMAT.prompt(request)
    prefixes.measure("s", prompt.text)
    again = prefixes.measure("s", prompt.text)
    assert (again.total, True) == (again.reused, again.whole)
    prefixes.answered("s", prompt.text, "Hello")
    again = prefixes.measure("s", prompt.text)
    assert (again.total, False) == (again.reused, again.whole)


def test_a_prompt_that_is_asked_and_answered_alike_again_pushes_out_no_other() -> None:
    prefixes = Prefixes()
    other, again = (FORMAT.prompt(asked(said)).text for said in ("Another", "Hi"))
    prefixes.measure("s", other)
    prefixes.answered("s", other, "Hello")
    for _ in range(20):
        prefixes.measure("s", again)
        prefixes.answered("s", again, "Hello")
    assert len(f"{other}Hello") == prefixes.measure("s", f"{other}Hello and so on").reused


@pytest.mark.parametrize(("letter", "length"), [("x", 1000), ("x", 0), ("\N{ROCKET}", 1000)])
def test_what_is_remembered_of_prompts_is_bounded(letter: str, length: int) -> None:
    """In memory, not in characters: one that is not Latin makes all of a text wider."""
    prefixes = Prefixes(held=100_000)
    prompts = [FORMAT.prompt(asked(f"{number} " + letter + "x" * length)) for number in range(500)]
    assert all(prompt.text for prompt in prompts)
    prefixes.measure("s", prompts[0].text)
    gc.collect()
    tracemalloc.start()
    for number, prompt in enumerate(prompts):
        prefixes.measure(f"s{number}", prompt.text)
        prefixes.answered(f"s{number}", prompt.text, "Yes")
        prefixes.measure(f"s{number // 20}", prompt.text)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert 20_000 < held < 110_000
    assert max(map(len, prefixes._said.values())) <= 8


@pytest.mark.parametrize("text", ["x", "é", "世", "\N{ROCKET}", "x\N{ROCKET}", "", "ab世"])
def test_a_text_that_was_sent_takes_no_more_than_before(text: str) -> None:
    """Python keeps the bytes of a text with it, once somebody has asked for them. What it counted for before is what it
    counts for when it goes; if that were more, ever more would be kept."""
    made = "".join([text, text, text])
    before = size_of(made)
    msgspec.json.encode({"prompt": made})
    assert before == size_of(made)
    prefixes = Prefixes(held=100_000)
    for number in range(500):
        prompt = f"{number} {text * 1000}"
        prefixes.measure(f"s{number}", prompt)
        msgspec.json.encode({"prompt": prompt})
        prefixes.answered(f"s{number}", prompt, "Yes")
    assert 0 < prefixes._held <= 100_000
    kept = [said for branches in prefixes._said.values() for said in branches]
    assert sum(map(len, kept)) <= 100_000


def test_a_prompt_longer_than_all_that_is_remembered_is_not() -> None:
    prefixes = Prefixes(held=100_000)
    huge = asked("x" * 200_000)
    for _ in range(2):
        assert 0 == prefixes.measure("s", FORMAT.prompt(huge).text).reused
    assert 0 == prefixes._held == len(prefixes._said)


def test_measuring_takes_time_that_grows_with_the_prompt() -> None:
    def measuring(size: int) -> Callable[[], object]:
        prefixes = Prefixes()
        prompt = FORMAT.prompt(asked("x" * size))
        prefixes.measure("s", prompt.text)
        return lambda: prefixes.measure("s", prompt.text)

    assert_grows_below(10, measuring, 200_000, 800_000, least=0.005)
