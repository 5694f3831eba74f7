"""Owns the checks of requests that say in a number that they have no limit of tokens."""

from collections.abc import Iterator

import pytest

from tests.gateway.scripted import Asked, Script, said
from tests.gateway.stage import Stage, answer
from tests.gateway.test_asking import BOTH, EACH, LIMIT, SAID, limit_of, losses_of
from turnscript.apis.api import Api


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
@BOTH
def test_who_sets_no_limit_loses_none_where_a_server_has_less_room(api: Api, stream: bool) -> None:
    """As if the request had not said it: the answer is as long as there is room for."""

    def counting(asked: Asked) -> Script:
        most = asked.json["max_tokens"]
        if most <= 1000:
            return answer("Hello")
        return said({"error": {"message": SAID["vllm"].format(most, most)}}, status=400)

    with Stage(model={"context": 4000}) as stage:
        stage.play_by(counting)
        told = stage.ask(api, stream=stream, limit=-1)
        assert "Hello" == told.text
        assert 900 < stage.asks[0][-1].json["max_tokens"] <= 1000
        assert [] == losses_of(stage, told)


@EACH
def test_less_than_that_is_an_error_that_says_what_would_do(stage: Stage, api: Api) -> None:
    told = stage.ask(api, stream=False, limit=-2)
    assert 400 == told.status
    assert b"-1 says that there is no limit" in told.body
