"""Owns pictures on their way to a model: one that sees gets them; to others it is said that they were left out."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.gateway.scripted import END, Asked, Script, said, sse
from tests.gateway.stage import CHATS, Stage, named
from turnscript.apis.api import Api
from turnscript.core.conversation import Assistant, Image, Request, Text, User
from turnscript.gateway.headers import REPORT

BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
EACH = pytest.mark.parametrize("api", CHATS, ids=named)
FIRST, SECOND = "Zmlyc3Q=", "c2Vjb25k"
MARKS = ["<__media__>", "<__media_7f3a__>"]


def server(marker: str = "", **modalities: bool) -> Any:
    """A llama.cpp that says what its model takes."""
    props: dict[str, Any] = {"total_slots": 1, "default_generation_settings": {"n_ctx": 8192}}
    props |= {"modalities": modalities} | ({"media_marker": marker} if marker != MARKS[0] else {})

    def play(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said(props)
        if "tokenize" in asked.line:
            return said({"tokens": []})
        last = {"content": "Hello", "stop": True, "stop_type": "eos"}
        return sse(last, end=(END,)) if asked.json["stream"] else said(last)

    return play


def body_of(api: Api, *, stream: bool, text: str = "and") -> bytes:
    """A request with a picture in each of two messages, and texts around them."""
    request = Request()
    request.settings.model, request.settings.max_tokens, request.settings.stream = "m", 64, stream
    request.conversation.items += [
        User(content=[Text(text="One"), Image(data=FIRST, media_type="image/png"), Text(text=text)]),
        Assistant(content=[Text(text="Hm.")]),
        User(content=[Image(data=SECOND, media_type="image/png"), Image(data=FIRST, media_type="image/png")]),
    ]
    value: Any = api.render_request(request).value
    return msgspec.json.encode(value)


class Seen(Stage):
    """A stage whose model server answers questions about itself, too."""

    def __init__(self, play: Any, **sections: Any) -> None:
        super().__init__(model={"kind": "llamacpp"}, **sections)
        self._play = play

    def change(self, play: Any) -> None:
        """Another server is there now."""
        self._play = play

    def _script(self, number: int) -> Any:
        def choose(asked: Asked) -> Script:
            if asked.line.startswith("POST") and asked.line.endswith("/completion"):
                self.asks[number].append(asked)
            script: Script = self._play(asked)
            return script

        return choose


@EACH
@BOTH
@pytest.mark.parametrize("marker", MARKS)
def test_a_model_that_sees_gets_pictures_in_the_order_of_the_text(api: Api, stream: bool, marker: str) -> None:
    with Seen(server(marker, vision=True)) as stage:
        told = stage.post(api, body_of(api, stream=stream, text=f"no {marker} of mine"))
        assert "Hello" == told.text
        [asked] = stage.asks[0]
        losses = stage.client.get(told.headers[REPORT]).json()["losses"]
    prompt = asked.json["prompt"]
    assert [FIRST, SECOND, FIRST] == prompt["multimodal_data"]
    text = prompt["prompt_string"]
    assert 3 == text.count(marker)
    assert text.index("One") < text.index(marker) < text.index("of mine") < text.index("Hm.") < text.rindex(marker)
    assert 'type="image"' not in text
    assert not [loss for loss in losses if loss["kind"] == "dropped"]


def test_a_server_that_was_started_anew_gets_its_new_mark() -> None:
    """llama.cpp makes up another one then, and no check has found out yet."""
    old, new = "<__media_old__>", "<__media_new__>"
    [api, *_] = CHATS
    with Seen(server(old, vision=True)) as stage:
        assert "Hello" == stage.post(api, body_of(api, stream=False)).text
        stage.change(server(new, vision=True))
        assert "Hello" == stage.post(api, body_of(api, stream=False)).text
        told = [asked.json["prompt"]["prompt_string"] for asked in stage.asks[0]]
    assert [(3, 0), (0, 3)] == [(text.count(old), text.count(new)) for text in told]


@EACH
@pytest.mark.parametrize("policy", ["report", "error"])
def test_to_a_model_that_sees_nothing_it_is_said_or_by_policy_refused(api: Api, policy: str) -> None:
    with Seen(server(vision=False), policy={"media": policy}) as stage:
        told = stage.post(api, body_of(api, stream=False))
        if policy == "error":
            assert 400 == told.status
            assert "3 things would be lost" in str(told.error)
            assert "image was left out" in str(told.error)
            assert [] == stage.asks[0]
            assert "Hello" == stage.ask(api, stream=False).text
            return
        assert 3 == stage.asks[0][0].json["prompt"].count('type="image"')
        losses = stage.client.get(told.headers[REPORT]).json()["losses"]
        assert 3 == len([loss for loss in losses if loss["kind"] == "dropped"])
