"""Owns the checks of the corpus: it covers every row, every ending and every trait, and is what it says it is."""

from collections import Counter

import pytest

from tests.answers.contents import ROWS, TRAITS
from tests.answers.corpus import ALL, BY_NAME
from tests.answers.wanted import ENDINGS

TESTS = ROWS | TRAITS


def test_there_are_many_answers_and_each_has_a_name_of_its_own() -> None:
    assert len(ALL) == len(BY_NAME) >= 40


@pytest.mark.parametrize("name", BY_NAME)
def test_an_answer_is_what_it_claims_to_be(name: str) -> None:
    answer = BY_NAME[name]
    assert answer.covers
    assert [] == [claim for claim in answer.covers if not TESTS[claim](answer)]
    assert answer.steps() == answer.steps()


def test_every_row_of_the_table_of_events_and_every_trait_is_covered() -> None:
    claimed = Counter(claim for answer in ALL for claim in answer.covers)
    assert [] == [name for name in TESTS if not claimed[name]]


def test_every_row_of_the_table_of_endings_is_covered() -> None:
    assert set(ENDINGS) == {answer.ending for answer in ALL}


@pytest.mark.parametrize("claim", TESTS)
def test_no_claim_is_true_of_everything(claim: str) -> None:
    assert not all(TESTS[claim](answer) for answer in ALL)
