"""Owns asking the engines of model servers whether a text is one of a grammar: kbnf (ai00), llguidance (vLLM)."""

from __future__ import annotations

from functools import cache

import kbnf
import llguidance


@cache
def _bytes_of_kbnf() -> kbnf.Vocabulary:
    """A vocabulary of single bytes."""
    shown = {byte + 1: chr(byte) if byte < 128 else f"byte {byte}" for byte in range(256)}
    return kbnf.Vocabulary({byte + 1: kbnf.Token(bytes([byte])) for byte in range(256)}, shown)


def accepted_by_kbnf(grammar: str, text: str) -> bool:
    """Whether the text is over exactly where the grammar says so: what is left behind that is not read."""
    engine = kbnf.Engine(grammar, _bytes_of_kbnf())
    for byte in text.encode():
        if engine.is_finished():
            return False
        try:
            engine.try_accept_new_token(byte + 1)
        except ValueError:
            return False
    return bool(engine.is_finished())


@cache
def _bytes_of_llguidance() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer("byte")


def accepted_by_llguidance(grammar: str, text: str) -> bool:
    """Whether the text may end where it does."""
    tokenizer = _bytes_of_llguidance()
    made = llguidance.LLMatcher.grammar_from_lark(grammar)
    problem = llguidance.LLMatcher.validate_grammar(made, tokenizer)
    assert not problem, problem
    matcher = llguidance.LLMatcher(tokenizer, made)
    tokens = list(text.encode())
    assert tokenizer.tokenize_bytes(b"a\xff\x00") == [97, 255, 0]
    return matcher.try_consume_tokens(tokens) == len(tokens) and bool(matcher.is_accepting())
