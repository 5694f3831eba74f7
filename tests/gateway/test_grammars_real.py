"""Owns that the real llama.cpp reads every format's grammars as we mean them: what it writes is of their rules."""

from __future__ import annotations

import httpx2

import turnscript as ts
from tests.conformance.test_grammar_laws import NAMES, prompts
from tests.every import every
from tests.gateway.stage import NO_TLS
from turnscript.grammar.rest import behind, matches


@every("name", NAMES)
def test_what_llama_cpp_writes_is_of_the_rules(name: str, llamacpp: str) -> None:
    """Whole texts, and the beginnings of those that met the limit."""
    with httpx2.Client(base_url=llamacpp, verify=NO_TLS, timeout=60) as client:
        for seed, prompt in enumerate(prompts(ts.get_format(name), len(name))):
            told = prompt.grammar("gbnf")
            assert told is not None
            ask = {"prompt": "Go.", "grammar": told.text, "n_predict": 120, "seed": seed, "temperature": 1.5}
            answer = client.post("/completion", json=ask).json()
            assert "content" in answer, (answer, told.text)
            # The limit may cut a character, of which the server shows no half.
            content = answer["content"].rstrip("\ufffd")
            if answer["stop_type"] == "eos":
                assert matches(told.rules, content), (told.text, content)
            else:
                assert behind(told.rules, content) is not None, (told.text, content)
