"""Owns what real clients send: bodies like theirs pass into every format, and the prompts of a session only grow."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.every import every
from turnscript.core.conversation import Request, Thinking
from turnscript.core.errors import UnknownName
from turnscript.gateway.forcing import sampling, structured
from turnscript.gateway.hygiene import Cleaned, clean, unread
from turnscript.gateway.offers import Offer, offer
from turnscript.gateway.thinking import plan_thinking

FOLDER = Path(__file__).parent / "corpus"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))


@cache
def session(name: str) -> Any:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def requests(name: str) -> list[Request]:
    told = session(name)
    return [ts.parse(json.dumps(turn), told["api"]) for turn in told["turns"]]


def offers(name: str, format_name: str) -> list[tuple[Cleaned, Offer]]:
    made = []
    for request in requests(name):
        cleaned = clean(request)
        made.append((cleaned, offer(cleaned.request, ts.get_format(format_name), hidden=cleaned.hidden)))
    return made


def prompts(name: str, format_name: str) -> list[ts.Prompt]:
    """The prompts of a session. A session whose client sends thoughts back is one in which the model thinks."""
    format_ = ts.get_format(format_name)
    made = []
    thinks = any(isinstance(item, Thinking) for item in requests(name)[-1].items)
    for _, one in offers(name, format_name):
        one.request = structured(one.request).request
        sampling(one.request)
        made.append(one.prompt(format_, thinking=plan_thinking(one.request, format_, default=thinks).opens))
    return made


def said(prompt: ts.Prompt) -> str:
    """A prompt up to the last thing that was said, without what follows it before the answer.

    White space may be left to the model, and a word that asks for thinking stands only behind the last message.
    """
    spans = prompt.spans
    last = max((index for index, span in enumerate(spans) if span.item >= 0 and not span.control), default=-1)
    return "".join([span.text for span in spans[: last + 1]]).rstrip()


def test_the_corpus_has_every_api_with_sessions() -> None:
    assert {"anthropic-messages", "openai-chat", "openai-responses"} == {session(name)["api"] for name in NAMES}
    assert len([name for name in NAMES if len(session(name)["turns"]) > 1]) >= 30
    with pytest.raises(UnknownName):
        ts.get_api("none of these")


@pytest.mark.parametrize("name", NAMES)
@every("format_name", ts.formats())
def test_a_session_makes_prompts_of_which_each_begins_with_the_one_before(name: str, format_name: str) -> None:
    made = prompts(name, format_name)
    assert len(session(name)["turns"]) == len(made)
    for before, after in pairwise(made):
        assert after.text.startswith(said(before))
        assert len(after.text) > len(said(before)) > 0
    for prompt in made:
        prompt.parser().feed("Hello.")


@pytest.mark.parametrize("name", NAMES)
def test_a_session_keeps_the_order_of_its_tools(name: str) -> None:
    for (before, _), (after, _) in pairwise(offers(name, ts.formats()[0])):
        first, then = ([tool.name for tool in one.request.tools] for one in (before, after))
        assert first == then[: len(first)]


@pytest.mark.parametrize("name", NAMES)
@every("format_name", ts.formats())
def test_no_mark_for_a_server_and_no_vendors_tool_reaches_a_prompt(name: str, format_name: str) -> None:
    for prompt in prompts(name, format_name):
        for word in ("billing-header", "cache_control", "ephemeral", "web_search", "image_generation", "defer_loading"):
            if word != "web_search" or "web search" not in prompt.text:
                assert word not in prompt.text


@pytest.mark.parametrize("name", NAMES)
def test_every_loss_names_a_place_in_the_clients_own_body(name: str) -> None:
    format_ = ts.get_format("rwkv-goose")
    for body, (cleaned, one) in zip(session(name)["turns"], offers(name, "rwkv-goose"), strict=True):
        prompt = one.prompt(format_)
        for loss in [*cleaned.losses, *one.losses, *one.located(prompt.losses), *unread(cleaned.request)]:
            assert loss.path.startswith("$."), loss
            head = loss.path.removeprefix("$.").split(".")[0]
            key, _, index = head.partition("[")
            assert key in body or key in ("thinking", "tools"), loss
            if index and key in body and isinstance(body[key], list):
                assert int(index.rstrip("]")) < len(body[key]), loss


def test_the_tools_that_claude_code_finds_stand_where_it_found_them() -> None:
    texts = [prompt.text for prompt in prompts("claude_code", "rwkv-universal")]
    definition = '"name": "mcp__notes__read_note"'
    assert [0, 1, 1, 1] == [text.count(definition) for text in texts]
    assert all("DeferredToolPlaceholder" not in text for text in texts)
    assert texts[1].index("Loaded: mcp__notes__read_note") < texts[1].index(definition)


def test_codex_gets_its_namespaces_and_free_text_back() -> None:
    made = [one for _, one in offers("codex_additional_tools", "rwkv-goose")]
    shown = ["functions__exec", "functions__wait", "mcp__notes__read_note", "tool_search"]
    assert shown == [tool.name for tool in made[0].request.tools]
    assert "mcp__mail__send" in [tool.name for tool in made[2].tools]
    calls = [item for item in made[3].request.items if item.kind == "tool_call"]
    assert ["functions__exec", "tool_search", "mcp__mail__send"] == [getattr(call, "name", "") for call in calls]
