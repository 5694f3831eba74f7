"""Owns the check that bodies of common clients are read in one pass: one undeclared member costs a second reading."""

import json
from pathlib import Path

import pytest

from turnscript.registry import get_api

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
