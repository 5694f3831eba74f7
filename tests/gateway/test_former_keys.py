"""Owns going on after a change of the key for thoughts: what was sealed before is read, and the new key seals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.stage import APIS, SESSION, Stage, Told, answer, body_of, named
from tests.gateway.test_amplified import PROVING, body_with, thought
from turnscript.apis.api import Api
from turnscript.core.conversation import Thinking
from turnscript.core.signatures import seal, unseal
from turnscript.gateway.headers import LOSSES
from turnscript.gateway.kinds import Secret

OLD, OLDER, NEW, ALIEN = (f"the key that is called {name}" for name in ("old", "older", "new", "alien"))
TEXT = "It was the butler."
WRITTEN = f"{TEXT}\n<<THINK_END>>\n\n<<ASSISTANT>>\nHello\n<<ASSISTANT_END>>"
THINKING: dict[str, Any] = {
    "thinking": {"type": "enabled", "budget_tokens": 2048},
    "reasoning": {"effort": "high"},
    "include": ["reasoning.encrypted_content"],
}
COMPACTING = [api for api in APIS if api.serving.compacting]


def derived(text: str) -> bytes:
    """The key that a text stands for."""
    return hashlib.sha256(text.encode()).digest()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    file: Path = tmp_path_factory.mktemp("keys") / "old.key"
    file.write_text(f"{OLD}\n", encoding="utf-8")
    with Stage(signing={"key": Secret(NEW), "former": (file,), "retired": (Secret(OLDER),)}) as made:
        yield made


@pytest.mark.parametrize("api", PROVING, ids=named)
@pytest.mark.parametrize("key", [NEW, OLD, OLDER])
def test_a_thought_that_a_former_key_has_sealed_is_whole_again(stage: Stage, api: Api, key: str) -> None:
    stage.play(answer("Hello"))
    told = stage.post(api, body_with(api, [thought(seal(TEXT, derived(key)))]), SESSION)
    assert TEXT in stage.asks[0][0].json["prompt"]
    assert "Hello" == told.text


@pytest.mark.parametrize("api", PROVING, ids=named)
def test_a_key_that_nobody_has_named_opens_nothing(stage: Stage, api: Api) -> None:
    stage.play(answer("Hello"))
    told = stage.post(api, body_with(api, [thought(seal(TEXT, derived(ALIEN)))]), SESSION)
    assert TEXT not in stage.asks[0][0].json["prompt"]
    assert "0" != told.headers[LOSSES]


@pytest.mark.parametrize("api", PROVING, ids=named)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_the_new_key_seals(stage: Stage, api: Api, stream: bool) -> None:
    stage.play(answer(WRITTEN))
    told = stage.ask(api, stream=stream, **THINKING)
    [item] = [item for item in told.items if isinstance(item, Thinking)]
    proof = item.signature or item.encrypted
    assert proof is not None
    assert (TEXT, None, None) == tuple(unseal(proof, derived(key)) for key in (NEW, OLD, OLDER))


@pytest.mark.parametrize("api", COMPACTING, ids=named)
def test_a_summary_that_a_former_key_has_sealed_stands_in_the_prompt(stage: Stage, api: Api) -> None:
    compacting = api.serving.compacting
    assert compacting is not None

    def going_on(at: Stage, item: object) -> Told:
        body = json.loads(body_of(api, stream=False))
        return at.post(api, json.dumps(body | {"input": [item, *body["input"]]}).encode())

    with Stage(signing={"key": Secret(OLDER)}) as before:
        before.play(answer(TEXT))
        said = before.client.post(compacting.path, content=body_of(api, stream=False)).json()
    [item] = [one for one in said["output"] if "encrypted_content" in one]
    stage.play(answer("Hello"))
    assert "0" == going_on(stage, item).headers[LOSSES]
    assert TEXT in stage.asks[0][0].json["prompt"]
    with Stage(signing={"key": Secret(NEW)}) as stranger:
        assert "0" != going_on(stranger, item).headers[LOSSES]
