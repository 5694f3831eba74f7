"""Owns what a completion of a bare text may ask beside its text: the prompt before it, and the best of several."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.gateway.scripted import END, sse
from tests.gateway.stage import APIS, Stage, Told, answer, piece
from tests.sdks import openai_sdk
from turnscript.core.losses import Loss
from turnscript.gateway.headers import LOSSES, POLICY, REPORT
from turnscript.gateway.texts import echoed

[API] = [api for api in APIS if api.serving.bare]
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def ask(stage: Stage, *, stream: bool = False, policy: str = "report", **members: Any) -> Told:
    """What a client is told that asks to go on from `Once`."""
    body = {"model": "m", "prompt": "Once", "max_tokens": 9, "stream": stream, **members}
    return stage.post(API, json.dumps(body).encode(), {POLICY: policy})


def lost(stage: Stage, told: Told) -> list[str]:
    """The places of what was lost."""
    return [loss["path"] for loss in stage.client.get(told.headers[REPORT]).json()["losses"]]


@BOTH
@pytest.mark.parametrize("texts", [(" upon", " a time"), ()], ids=["a text", "nothing"])
def test_an_echo_is_the_prompt_before_the_text(stage: Stage, texts: tuple[str, ...], stream: bool) -> None:
    stage.play(answer(*texts, finish="length"))
    told = ask(stage, stream=stream, echo=True)
    assert "".join(("Once", *texts)) == told.text
    assert ("0", []) == (told.headers[LOSSES], lost(stage, told))
    assert told.end is not None
    assert "length" == told.end.finish_reason
    assert "echo" not in stage.asks[0][0].json  # not every server does it, and some that do not say nothing


@BOTH
def test_the_sdk_gets_the_echo(stage: Stage, stream: bool) -> None:
    stage.play(answer(" upon", " a time. Then"))
    asked: Any = {"model": "m", "prompt": "Once", "echo": True, "stop": [". "], "stream": stream}
    with openai_sdk(stage.url) as sdk:
        told: Any = sdk.completions.create(**asked)
        texts = [chunk.choices[0].text for chunk in (told if stream else [told])]
    assert "Once upon a time" == "".join(texts)


@pytest.mark.parametrize(
    "members",
    [{"prompt": [1, 2, 3]}, {"logprobs": 1}],
    ids=["a prompt of tokens", "log probabilities, which a prompt has here none of"],
)
def test_an_echo_that_cannot_be_is_a_loss_or_refused(stage: Stage, members: dict[str, Any]) -> None:
    usage = {"usage": {"prompt_tokens": 3, "completion_tokens": 1}}
    stage.play(sse(piece(" upon", logprobs=None), piece("", "stop", **usage), "[DONE]", end=(END,)))
    told = ask(stage, echo=True, **members)
    assert (" upon", True) == (told.text, "$.echo" in lost(stage, told))
    refused = ask(stage, echo=True, policy="error", **members)
    assert 400 == refused.status
    assert "$.echo" in str(refused.error)


def test_an_echo_before_a_text_that_fills_a_hole_is_a_loss() -> None:
    request = API.parse_request(b'{"model":"m","prompt":"Once","suffix":" time","echo":true}')
    losses: list[Loss] = []
    assert "Once" == echoed(request, "Once", fills=False, losses=losses)
    assert None is echoed(request, "Once", fills=True, losses=losses)
    assert [("$.echo", "dropped", "the text stands in a hole of the prompt")] == [
        (loss.path, loss.kind, loss.detail) for loss in losses
    ]


def test_the_best_of_several_is_a_loss_or_refused_and_of_one_nothing(stage: Stage) -> None:
    stage.play(answer(" upon"))
    told = ask(stage, best_of=3)
    assert (" upon", ["$.best_of"]) == (told.text, lost(stage, told))
    refused = ask(stage, policy="error", best_of=3)
    assert (400, "$.best_of") == (refused.status, refused.json["error"]["param"])
    for members in ({"best_of": 1}, {"best_of": None}, {"echo": False}, {"echo": None}):
        told = ask(stage, policy="error", **members)
        assert (" upon", "0") == (told.text, told.headers[LOSSES])


@pytest.mark.parametrize(
    "members",
    [
        {"echo": "yes"},
        {"best_of": "two"},
        {"best_of": 0},
        {"suffix": 7},
        {"prompt": 7},
        {"prompt": []},
        {"prompt": [True]},
        {"prompt": [5, -1]},
        {"prompt": ["one", "two"]},
    ],
    ids=str,
)
def test_what_is_no_value_of_these_is_a_bad_request(stage: Stage, members: dict[str, Any]) -> None:
    stage.play(answer(" upon"))
    with openai_sdk(stage.url) as sdk, pytest.raises(openai.BadRequestError) as told:
        sdk.completions.create(model="m", prompt="Once", extra_body=members)
    assert f"$.{next(iter(members))}" == told.value.param
    assert not stage.asks[0]


@pytest.mark.parametrize("prompt", [[5, 1], [[5, 1]]], ids=str)
def test_one_prompt_of_tokens_may_stand_in_a_list(stage: Stage, prompt: Any) -> None:
    stage.play(answer(" upon"))
    assert " upon" == ask(stage, prompt=prompt).text
    assert [5, 1] == stage.asks[0][0].json["prompt"]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ([[]], "this is no prompt"),
        ([["one"]], "one prompt is answered at a time"),
        (["one", "two"], "one prompt is answered at a time"),
        ([[1], [2]], "one prompt is answered at a time"),
        (7, "this is no prompt"),
        ([True], "this is no prompt"),
    ],
    ids=str,
)
def test_only_several_prompts_are_said_to_be_several(stage: Stage, prompt: Any, said: str) -> None:
    assert said in str(ask(stage, prompt=prompt).error)


# A text that is what a user says.

UNIVERSAL = "<<USER>>\nOnce\n<<USER_END>>\n\n<<ASSISTANT>>\n"


@pytest.fixture(scope="module", params=[None, "wrap"])
def wrapping(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A model that answers texts, because its format has it so, or because its settings say so."""
    settings = {} if request.param is None else {"completions": request.param}
    with Stage(model=settings, format_="rwkv-universal") as made:
        yield made


@BOTH
def test_a_text_is_what_a_user_says_where_the_format_has_it_so(wrapping: Stage, stream: bool) -> None:
    """R-U-37: the prompt is one USER block, the generated text an ASSISTANT block."""
    wrapping.play(answer(" upon <<\\USER>>", " a time", "\n<<ASSISTANT", "_END>>"))
    told = ask(wrapping, stream=stream)
    assert (" upon <<USER>> a time", "0") == (told.text, told.headers[LOSSES])
    assert told.end is not None
    assert "stop" == told.end.finish_reason
    sent = wrapping.asks[0][0].json
    assert (UNIVERSAL, ["<<ASSISTANT_END>>"]) == (sent["prompt"], sent["stop"])


def test_instructions_stand_before_a_text_that_is_wrapped(wrapping: Stage) -> None:
    """D-U-22."""
    wrapping.play(answer("Yes"))
    assert "Yes" == ask(wrapping, system="Be brief.").text
    assert f"<<SYS>>\nBe brief.\n<<SYS_END>>\n\n{UNIVERSAL}" == wrapping.asks[0][0].json["prompt"]


@BOTH
def test_a_text_that_is_wrapped_ends_at_the_strings_of_its_client(wrapping: Stage, stream: bool) -> None:
    wrapping.play(answer(" upon a time. Then"))
    told = ask(wrapping, stream=stream, stop=[". "], echo=True)
    assert "Once upon a time" == told.text
    assert told.end is not None
    assert "stop" == told.end.finish_reason


def test_tokens_are_never_wrapped(wrapping: Stage) -> None:
    wrapping.play(answer(" upon"))
    told = ask(wrapping, prompt=[5, 1])
    assert (" upon", []) == (told.text, lost(wrapping, told))
    assert [5, 1] == wrapping.asks[0][0].json["prompt"]


@pytest.mark.parametrize(
    ("format_", "completions", "prompt"),
    [
        ("rwkv-universal", "raw", "Once"),
        ("rwkv-goose", None, "Once"),
        ("rwkv-goose", "wrap", "User: Once\n\nAssistant:"),
        ("openchatml", "wrap", "<|im_start|>user\nOnce\n<|im_end|>\n<|im_start|>assistant\n"),
    ],
)
def test_the_settings_say_whether_a_text_is_wrapped(format_: str, completions: str | None, prompt: str) -> None:
    with Stage(model={} if completions is None else {"completions": completions}, format_=format_) as stage:
        stage.play(answer(" upon"))
        assert "upon" == ask(stage).text.strip()
        assert prompt == stage.asks[0][0].json["prompt"]
