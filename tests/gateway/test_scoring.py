"""Owns the place of tokens in an answer: whatever a model writes in any format, those of its texts are its texts."""

from __future__ import annotations

import random

import pytest

import turnscript as ts
from tests.gateway.speaker import Turn, Unspeakable, call, text, thought, written
from tests.gateway.stage import WEATHER
from turnscript.backends.backend import Piece
from turnscript.core.conversation import Assistant, Item, Request, Text, User, text_content
from turnscript.core.errors import TurnscriptError
from turnscript.core.logprobs import TokenLogprob
from turnscript.gateway.checks import PASS, CallGate, CallPolicy
from turnscript.gateway.generation import Blanks, Controls, Generation
from turnscript.gateway.naming import CallIds
from turnscript.gateway.scoring import Scoring

TURNS: list[list[Item]] = [
    [text("Well.")],
    [thought("Hm é."), text("It is.")],
    [text("So."), call("get_weather", city="Os é")],
    [call("get_weather", city="Oslo"), call("get_weather", city="Rome")],
    [thought("Hm."), call("get_weather", city="Oslo")],
]
WORDS = ["Hello é", "字👍 ", " ", "\n", "\n\n", "a <b> ", "It is so. ", "`code`", '{"a":1}']


def prompts(format_: ts.Format) -> list[ts.Prompt]:
    """A prompt that says nothing of thoughts, one that opens one and one that does not."""
    request = Request()
    request.conversation.items.append(User(content=[Text(text="Hello")]))
    request.conversation.tools.append(WEATHER)
    return [format_.prompt(request, thinking=thinking) for thinking in (None, True, False)]


def said(format_: ts.Format, prompt: ts.Prompt, items: list[Item]) -> str:
    """What a model writes; nothing where the format has no such turn."""
    try:
        return written(format_, prompt.text, Turn(items), [WEATHER])
    except (Unspeakable, TurnscriptError):
        return ""


def fragments(format_: ts.Format, prompt: ts.Prompt, draw: random.Random) -> list[str]:
    """Turns of a format, whole and cut anywhere, and words."""
    found = list(WORDS)
    for items in TURNS:
        whole = said(format_, prompt, items)
        cuts = [sorted(draw.choices(range(len(whole) + 1), k=2)) for _ in range(4)]
        found += [whole, *(whole[start:end] for start, end in cuts)]
    return found


def generate(prompt: ts.Prompt, tokens: list[str], draw: random.Random) -> Generation:
    """The generation of some tokens, which come one by one or several at once."""
    policy = draw.choice([PASS, CallPolicy(action="text"), None])
    gate = CallGate([WEATHER], policy) if policy is not None else None
    controls = Controls(ids=CallIds(), gate=gate, blanks=Blanks() if gate is not None else None)
    generation = Generation(prompt.parser, controls, 5, len, scoring=Scoring())
    while tokens and not generation.ended:
        count = draw.randrange(1, 6)
        generation.feed([Piece(one, logprobs=[TokenLogprob(one, list(one.encode()), -1.0)]) for one in tokens[:count]])
        tokens = tokens[count:]
    generation.close()
    return generation


@pytest.mark.parametrize("name", ts.formats())
def test_tokens_of_a_character_each_are_the_text(name: str) -> None:
    draw = random.Random(name)
    format_ = ts.get_format(name)
    for prompt in prompts(format_):
        parts = fragments(format_, prompt, draw)
        for _ in range(60):
            whole = "".join(draw.choices(parts, k=draw.randrange(1, 6)))
            response = generate(prompt, list(whole), draw).response
            for place, item in enumerate(response.items):
                if isinstance(item, Assistant):
                    told = "".join([token.token for token in response.logprobs.get(place, ())])
                    assert text_content(item.content) == told, whole


@pytest.mark.parametrize("name", ts.formats())
def test_longer_tokens_hold_the_text(name: str) -> None:
    """A token that has something of a thought or call is theirs, so the text may lack a few characters of it."""
    draw = random.Random(name)
    format_ = ts.get_format(name)
    for prompt in prompts(format_):
        whole = said(format_, prompt, TURNS[1]) or said(format_, prompt, [text("It is.")])
        for size in range(1, 12):
            tokens = [whole[at : at + size] for at in range(0, len(whole), size)]
            response = generate(prompt, tokens, draw).response
            (place,) = [at for at, item in enumerate(response.items) if isinstance(item, Assistant)]
            told = "".join([token.token for token in response.logprobs.get(place, ())])
            assert "It is."[size:] in told
