"""Owns settings that a program makes with a word that is none: each is an error that lists the words there are."""

from typing import Any

import pytest

import turnscript as ts
from tests.unit.test_mistakes_by_hand import TARGETS, X, asked, assert_told

CHOICE = "'auto' or 'none' or 'required' or 'named' or 'allowed', got "
WORDS: dict[str, tuple[dict[str, Any], str, str]] = {
    "any": ({"tool_choice": ts.ToolChoice("any")}, "settings.tool_choice.mode", f"{CHOICE}'any'"),
    "tool": ({"tool_choice": ts.ToolChoice("tool", "f")}, "settings.tool_choice.mode", f"{CHOICE}'tool'"),
    "none": ({"tool_choice": ts.ToolChoice(None)}, "settings.tool_choice.mode", f"{CHOICE}None"),  # type: ignore[arg-type]
    "nameless": ({"tool_choice": ts.ToolChoice("named")}, "settings.tool_choice.name", "the name of a tool"),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mistake", WORDS)
def test_a_word_that_is_none_is_told(mistake: str, target: str) -> None:
    settings, path, said = WORDS[mistake]
    request = asked(ts.User(content=X), tools=[ts.Tool(name="f")], **settings)
    assert_told(lambda: TARGETS[target](request), path, said)


@pytest.mark.parametrize("api", ts.apis())
def test_a_tool_of_an_api_of_its_own_is_named_by_its_type(api: str) -> None:
    """As OpenAI's searches are chosen: they have no name."""
    choice = ts.ToolChoice("named", type="web_search")
    ts.render(asked(ts.User(content=X), tools=[ts.Tool(name="f")], tool_choice=choice), api)


def test_nor_does_an_archive_bring_it() -> None:
    meta = '<<META>>\n{"v": 1, "settings": {"tool_choice": {"mode": "any"}}}\n<<META_END>>\n\n<<USER>>\nx\n<<USER_END>>'
    for api in ts.apis():
        with pytest.raises(ts.InvalidConversation, match="any"):
            ts.convert(meta, "rwkv-universal", api)


@pytest.mark.parametrize("api", ts.apis())
def test_a_shape_of_answers_that_no_api_has_is_a_loss(api: str) -> None:
    request = asked(ts.User(content=X), response_format=ts.ResponseFormat("yaml"))
    rendered = ts.render(request, api)
    assert "yaml" not in rendered.data.decode()
    assert "$.response_format" in [loss.path for loss in rendered.losses]


def test_a_list_of_no_tools_is_written_as_one() -> None:
    request = asked(ts.User(content=X), tools=[ts.Tool(name="f")], tool_choice=ts.ToolChoice("allowed"))
    for api in ("openai-chat", "openai-responses"):
        choice = ts.render(request, api).value["tool_choice"]
        assert [] == choice.get("allowed_tools", choice)["tools"]


@pytest.mark.parametrize("api", ["openai-chat", "openai-responses"])
def test_a_role_that_the_api_has_not_is_told(api: str) -> None:
    rendered = ts.render(asked(ts.System(content=X, role="boss"), ts.User(content=X)), api)
    said = rendered.value.get("messages", rendered.value.get("input"))
    assert "system" == said[0]["role"]
    assert [("items[0].role", "renamed")] == [(loss.path, loss.kind) for loss in rendered.losses if "role" in loss.path]
