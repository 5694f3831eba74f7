"""Owns what is known of the real llama.cpp server: its quirks, seen through the backend and an upstream.

A grammar of one literal makes random weights write any text, through the real sampler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.clocks import run_time
from tests.gateway.conftest import CONTEXT, SLOTS
from tests.gateway.tinygguf import gbnf, words
from turnscript.backends.backend import Completion, Piece
from turnscript.backends.completions import Completions
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.error_kinds import fault_of
from turnscript.core.errors import UpstreamError
from turnscript.gateway.upstream import Upstream

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


async def pieces_of(upstream: Upstream, ask: Completion) -> list[Piece]:
    """All pieces of an answer."""
    async with upstream.open(ask) as answer:
        return [piece async for pieces in answer for piece in pieces]


def asked(url: str, ask: Completion) -> list[Piece]:
    """All pieces of an answer, from an upstream of its own."""

    async def run() -> list[Piece]:
        async with Upstream(url, LlamaCpp()) as upstream:
            return await pieces_of(upstream, ask)

    return asyncio.run(run())


def written(text: str, stops: Sequence[str] = (), max_tokens: int = 100, **more: Any) -> Completion:
    """A request whose answer is `text`, as far as the stops and the limit let it."""
    return Completion(prompt="Say it:", max_tokens=max_tokens, stops=stops, grammar=gbnf(text), **more)


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces)


@BOTH
@pytest.mark.parametrize("text", [' Hello\n\n"x"\\y', "é字👍", "\u2028\ufeff", "<tool_call>{}</tool_call>"])
def test_any_text_arrives_as_it_was_written(llamacpp: str, rwkv: str, text: str, stream: bool) -> None:
    for url in (llamacpp, rwkv):
        pieces = asked(url, written(text, stream=stream))
        assert text == text_of(pieces)
        assert "stop" == pieces[-1].finish
        assert pieces[-1].stop is None


@BOTH
def test_a_stop_string_is_cut_off_and_named(llamacpp: str, stream: bool) -> None:
    """Q1: nothing of it is in the text."""
    pieces = asked(llamacpp, written("one\n\nUser: two", ["\n\nUser:", ""], stream=stream))
    assert "one" == text_of(pieces)
    assert ("stop", "\n\nUser:") == (pieces[-1].finish, pieces[-1].stop)


@BOTH
def test_a_control_token_is_nothing_unless_it_is_asked_for(llamacpp: str, stream: bool) -> None:
    """Q2: the model's last token is a control token. A string that names it is met only where it is visible."""
    hidden = written("ab", ["<|im_end|>"], stream=stream)
    assert "ab" == text_of(asked(llamacpp, hidden))
    assert asked(llamacpp, hidden)[-1].stop is None
    shown = written("ab", visible=["<|im_end|>"], stream=stream)
    assert "ab<|im_end|>" == text_of(asked(llamacpp, shown))
    stopped = asked(llamacpp, written("ab", ["<|im_end|>"], visible=["<|im_end|>"], stream=stream))
    assert ("ab", "<|im_end|>") == (text_of(stopped), stopped[-1].stop)


def test_a_half_matched_stop_at_the_limit_is_lost_in_a_stream_only(llamacpp: str) -> None:
    """Q5: so it says `length`, and the text may be shorter than what was generated."""
    ask = written("abc\n\nUser: x", ["\n\nUser:"], max_tokens=6)
    stream = asked(llamacpp, ask)
    assert ("abc", "length") == (text_of(stream), stream[-1].finish)
    whole = asked(llamacpp, written("abc\n\nUser: x", ["\n\nUser:"], max_tokens=6, stream=False))
    assert ("abc\n\nU", "length") == (text_of(whole), whole[-1].finish)


def test_what_was_held_back_arrives_when_it_is_no_stop(llamacpp: str) -> None:
    """Q4: empty events are no pieces."""
    pieces = asked(llamacpp, written("a\n\nUsual", ["\n\nUser:"]))
    assert "a\n\nUsual" == text_of(pieces)
    assert all(piece.text or piece.finish for piece in pieces)


@BOTH
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5])
def test_a_character_that_the_limit_cuts_is_not_in_the_text(llamacpp: str, limit: int, stream: bool) -> None:
    """Q6: a whole answer would end in U+FFFD."""
    pieces = asked(llamacpp, written("a👍b", max_tokens=limit, stream=stream))
    assert {1: "a", 2: "a", 3: "a", 4: "a", 5: "a👍"}[limit] == text_of(pieces)
    assert "length" == pieces[-1].finish


def test_no_tokens_are_at_least_one(llamacpp: str) -> None:
    """Q8."""
    pieces = asked(llamacpp, written("abc", max_tokens=0))
    assert ("a", 1) == (text_of(pieces), pieces[-1].usage and pieces[-1].usage.output)


def test_what_the_model_begins_with_is_put_before_text_and_not_before_ids(llamacpp: str, rwkv: str) -> None:
    """Q12: and it is counted."""

    async def run(url: str) -> tuple[int | None, list[int] | None, list[int], list[int]]:
        async with Upstream(url, LlamaCpp()) as upstream:
            ids = await upstream.tokens("hello", plain=True)
            assert ids is not None
            ends = []
            for prompt in ("hello", ids):
                pieces = await pieces_of(upstream, Completion(prompt=prompt, max_tokens=1))
                assert pieces[-1].usage is not None
                ends.append(pieces[-1].usage.input)
            return await upstream.count("hello"), ids, ends, [len(ids)]

    count, ids, ends, [plain] = asyncio.run(run(llamacpp))
    assert (plain + 1, [plain + 1, plain]) == (count, ends)
    count, ids, ends, [plain] = asyncio.run(run(rwkv))
    assert (plain, [plain, plain]) == (count, ends)
    assert ids == [number + 1 for number in b"hello"]


def test_the_text_of_a_control_token_is_that_token_unless_it_is_plain(llamacpp: str) -> None:
    """Q13."""

    async def run() -> tuple[list[int] | None, list[int] | None]:
        async with Upstream(llamacpp, LlamaCpp()) as upstream:
            text = "a<|im_end|>"
            return await upstream.tokens(text), await upstream.tokens(text, plain=True)

    prompt, plain = asyncio.run(run())
    assert prompt is not None
    assert 3 == len(prompt)  # with the one before it
    assert list(b"a<|im_end|>") == list(plain or ())


def test_it_says_what_it_is(llamacpp: str, rwkv: str) -> None:
    async def run(url: str, **backend: Any) -> Any:
        async with Upstream(url, LlamaCpp()) as upstream:
            assert await upstream.healthy()
            return await upstream.facts()

    facts = asyncio.run(run(llamacpp))
    assert (CONTEXT, SLOTS, "llama.gguf") == (facts.context, facts.slots, facts.model)
    assert ("<|im_end|>", "<|begin_of_text|>", True) == (facts.end_token, facts.bos_token, facts.adds_bos)
    facts = asyncio.run(run(rwkv))
    assert ("rwkv7.gguf", "<s>", None, False) == (facts.model, facts.end_token, facts.bos_token, facts.adds_bos)


def test_a_prompt_that_is_too_long_is_an_overflow_with_its_numbers(llamacpp: str) -> None:
    with pytest.raises(UpstreamError) as caught:
        asked(llamacpp, Completion(prompt="x" * 5000, max_tokens=1))
    assert not caught.value.retryable
    fault = fault_of(caught.value)
    assert ("overflow", 400, CONTEXT, 5001) == (fault.kind, fault.status, fault.limit, fault.asked)


@BOTH
def test_a_grammar_that_is_none_is_refused(llamacpp: str, stream: bool) -> None:
    with pytest.raises(UpstreamError, match="grammar") as caught:
        asked(llamacpp, Completion(prompt="x", max_tokens=1, grammar="root ::= (", stream=stream))
    assert (400, False) == (caught.value.upstream, caught.value.retryable)


def test_settings_have_an_effect(llamacpp: str) -> None:
    """The same seed gives the same text, and a bias forces a token."""
    ask = Completion(prompt="x", max_tokens=8, sampling={"seed": 7, "temperature": 2.0, "unknown": 1})
    assert text_of(asked(llamacpp, ask)) == text_of(asked(llamacpp, ask))
    forced = Completion(prompt="x", max_tokens=3, sampling={"logit_bias": [[ord("q"), 1000]], "temperature": 0})
    assert "qqq" == text_of(asked(llamacpp, forced))


@BOTH
def test_probabilities_are_told(llamacpp: str, stream: bool) -> None:
    sampling = {"logprobs": True, "top_logprobs": 2}
    pieces = asked(llamacpp, written("ab", stream=stream, sampling=sampling))
    assert "ab" == text_of(pieces)
    tokens = [token for piece in pieces for token in piece.logprobs or ()]
    assert ["a", "b"] == [token.token for token in tokens]
    assert all(token.logprob < 0 and 2 == len(token.top_logprobs) for token in tokens)


def test_a_conversation_goes_on_in_its_slot_without_being_read_again(rwkv: str) -> None:
    """A recurrent model reads only what was added; in the other slot, or after a change, everything."""

    async def run() -> list[tuple[int | None, int, int]]:
        start = words(200)
        asks = [(start, 0), (start + " more", 0), (start + " more" + words(5), 0), ("X" + start, 1), (start[:-9], 0)]
        found = []
        async with Upstream(rwkv, LlamaCpp()) as upstream:
            for prompt, slot in asks:
                pieces = await pieces_of(upstream, Completion(prompt=prompt, max_tokens=1, slot=slot))
                usage = pieces[-1].usage
                assert usage is not None
                found.append((pieces[-1].slot, usage.input, usage.cached))
        return found

    first, longer, longest, other, changed = asyncio.run(run())
    assert (0, 0) == (first[0], first[2])
    assert longer[2] >= first[1] - 8 > 0
    assert longest[2] >= longer[1] - 8 > 0
    assert (1, 0) == (other[0], other[2])
    assert changed[2] < first[1] - 8


def test_the_prompt_is_counted_before_the_answer_ends(rwkv: str) -> None:
    """By who leaves at the first text, too: the whole prompt, and how much of it was known."""

    async def run() -> list[tuple[int, int]]:
        found = []
        async with Upstream(rwkv, LlamaCpp()) as upstream:
            for prompt in ("Y" + words(200), "Y" + words(200) + "more"):
                async with upstream.open(Completion(prompt=prompt, max_tokens=10**6, slot=0)) as answer:
                    usage = (await anext(answer))[0].usage
                assert usage is not None
                found.append((usage.input, usage.cached))
                assert usage.input == await upstream.count(prompt)
        return found

    (first, _), (second, cached) = asyncio.run(run())
    assert first - 8 <= cached < second


def test_leaving_frees_the_slot_at_once(llamacpp: str) -> None:
    """Q16: an answer that would go on for minutes ends when nobody reads it."""

    async def run() -> float:
        async with Upstream(llamacpp, LlamaCpp()) as upstream:
            endless = Completion(prompt="x", max_tokens=10**6, sampling={"ignore_eos": True}, slot=0)
            async with upstream.open(endless) as answer:
                async for _ in answer:
                    break
            left = run_time()
            await pieces_of(upstream, Completion(prompt="x", max_tokens=1, slot=0))
            return run_time() - left

    assert asyncio.run(run()) < 1


@BOTH
def test_its_openai_path_says_the_same(llamacpp: str, stream: bool) -> None:
    """The same server through `/v1/completions`, whose last chunk has the counts and a choice."""

    async def run() -> list[Piece]:
        backend = Completions(extra={"grammar": gbnf("one two")})
        async with Upstream(llamacpp, backend) as upstream:
            facts = await upstream.facts()
            assert (CONTEXT, True) == (facts.context, (facts.model or "").endswith("llama.gguf"))
            return await pieces_of(upstream, Completion(prompt="x", max_tokens=20, stream=stream, stops=["zzz"]))

    pieces = asyncio.run(run())
    assert ("one two", "stop") == (text_of(pieces), pieces[-1].finish)
    usage = pieces[-1].usage
    assert usage is not None
    assert (2, True) == (usage.input, usage.output >= 7)
