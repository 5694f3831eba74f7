"""Owns the checks of requests that say in a number that they have no limit of tokens."""

from collections.abc import Iterator

import pytest

from tests.gateway.stage import Stage, answer
from tests.gateway.test_asking import BOTH, EACH, LIMIT, limit_of, losses_of
from turnscript.api import Api


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Stage(model={"max_tokens_limit": LIMIT, "context": 4000}) as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_is_asked_yet(stage: Stage) -> None:
    stage.play(answer("Hello"))


@EACH
@BOTH
def test_minus_one_is_no_limit_as_servers_of_local_models_have_it(stage: Stage, api: Api, stream: bool) -> None:
    told = stage.ask(api, stream=stream, limit=-1)
    assert LIMIT == limit_of(stage)
    assert [] == losses_of(stage, told)


@EACH
def test_less_than_that_is_an_error_that_says_what_would_do(stage: Stage, api: Api) -> None:
    told = stage.ask(api, stream=False, limit=-2)
    assert 400 == told.status
    assert b"-1 says that there is no limit" in told.body
