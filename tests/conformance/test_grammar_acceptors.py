"""Owns that engines of model servers read the grammars as we mean them: every text of the rules, and no other."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import turnscript as ts
from tests.acceptors import accepted_by_kbnf, accepted_by_llguidance
from tests.conformance.test_grammar_laws import NAMES, ends_of, prompts
from tests.every import every
from tests.gbnf import read_gbnf
from tests.sampling import ALPHABET, Writer
from turnscript.grammar.rest import matches


def changed(text: str, seed: int) -> str:
    """The text with a character more, less, or other."""
    draw = random.Random(seed)
    at = draw.randrange(len(text))
    return text[:at] + draw.choice(["", draw.choice(ALPHABET), text[at] * 2]) + text[at + 1 :]


@pytest.mark.deep
@pytest.mark.long
@every("name", NAMES)
@settings(max_examples=1)
@given(seed=st.integers(0, 1 << 32))
def test_kbnf_reads_every_text_and_no_other(name: str, seed: int) -> None:
    """A list of calls ends with what ends the turn: without that, it would be over with the first call."""
    format_ = ts.get_format(name)
    for prompt in prompts(format_, seed):
        told = prompt.grammar("kbnf")
        assert told is not None
        written = Writer(told.rules, seed, ends_of(format_), ended=True).text()
        assert accepted_by_kbnf(told.text, written), (told.text, written)
        for number in range(3):
            other = changed(written, seed + number)
            if not matches(told.rules, other):
                assert not accepted_by_kbnf(told.text, other), (told.text, other)


@pytest.mark.deep
@pytest.mark.long
@every("name", NAMES)
@settings(max_examples=1)
@given(seed=st.integers(0, 1 << 32))
def test_gbnf_says_every_text_and_no_other(name: str, seed: int) -> None:
    """Read again as llama.cpp reads it. That llama.cpp does, `tests/gateway/test_grammars_real.py` holds."""
    format_ = ts.get_format(name)
    for prompt in prompts(format_, seed):
        told = prompt.grammar("gbnf")
        assert told is not None
        again = read_gbnf(told.text)
        written = Writer(told.rules, seed, ends_of(format_)).text()
        assert matches(again, written), (told.text, written)
        for number in range(5):
            other = changed(written, seed + number)
            assert matches(again, other) == matches(told.rules, other), (told.text, other)


@pytest.mark.deep
@pytest.mark.long
@every("name", NAMES)
@settings(max_examples=1)
@given(seed=st.integers(0, 1 << 32))
def test_llguidance_reads_every_text_and_no_other(name: str, seed: int) -> None:
    """Though its lexer takes as much as it can and never goes back."""
    format_ = ts.get_format(name)
    for prompt in prompts(format_, seed):
        told = prompt.grammar("lark")
        assert told is not None
        written = Writer(told.rules, seed, ends_of(format_), ended=False).text()
        assert accepted_by_llguidance(told.text, written), (told.text, written)
        for number in range(3):
            other = changed(written, seed + number)
            if not matches(told.rules, other):
                assert not accepted_by_llguidance(told.text, other), (told.text, other)
