"""Owns the check that bodies of common clients are read in one pass: one undeclared member costs a second reading."""

import json
from pathlib import Path

import pytest

import turnscript as ts
from turnscript.convert.registry import get_api
from turnscript.core.json_text import read_object

CORPUS = Path(__file__).parents[1] / "gateway" / "corpus"
CLIENTS = (
    "ai_sdk_messages",
    "ai_sdk_compatible",
    "aider_chat",
    "claude_code_compat",
    "cline_chat",
    "codex",
    "continue_chat",
    "langchain_messages",
    "litellm_messages",
    "opencode_chat",
    "opencode_messages",
    "pi_chat",
    "pi_messages",
    "pydantic_ai_chat",
    "qwen_code_chat",
    "qwen_code_messages",
    "smolagents_chat",
)


@pytest.mark.parametrize("client", CLIENTS)
def test_every_body_of_a_client_is_read_in_one_pass(client: str) -> None:
    recorded = json.loads((CORPUS / f"{client}.json").read_bytes())
    api = get_api(recorded["api"])
    for turn in recorded["turns"]:
        api._decode(json.dumps(turn).encode())  # raises where the members have to be read one by one


SAID = {
    "stream": False,
    "temperature": 0,
    "metadata": {},
    "stop": None,
    "user": "",
    "service_tier": "auto",
    "store": False,
}
"""Members of which most say nothing, but are said."""
QUESTION = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("name", "key"), [("openai-chat", "messages"), ("anthropic-messages", "messages"), ("openai-responses", "input")]
)
@pytest.mark.parametrize("said", [[], QUESTION])
def test_a_member_that_says_nothing_is_read_as_one_that_is_said(name: str, key: str, said: list[object]) -> None:
    api, body = get_api(name), {"model": "m", **SAID, key: said}
    slowly = api.parse_members(read_object(json.dumps(body).encode()))
    assert slowly == api.parse_request(body)
    assert slowly.settings.stream is False


def test_what_a_tool_says_beside_its_schema_comes_back_in_the_order_of_its_client() -> None:
    for turn in json.loads((CORPUS / "pi_messages.json").read_bytes())["turns"]:
        written = ts.convert(turn, "anthropic-messages", "anthropic-messages").value
        assert [list(tool) for tool in turn["tools"]] == [list(tool) for tool in written["tools"]]
