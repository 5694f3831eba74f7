"""Owns calls that come without a word, as a gateway serves them: its prompts are what is trained, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

import turnscript as ts
from tests.gateway import echo
from tests.gateway.echo import ECHOES
from tests.gateway.speaker import Speaker, Talk, speaking
from tests.gateway.stage import NO_TLS, WEATHER
from tests.gateway.test_prefix_law import TOOLS, results
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import Train

FORMAT = ts.get_format("rwkv-universal")
ANSWER = ts.Assistant(content=[ts.Text(text="Clear.")])


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    with speaking(Speaker(FORMAT, [WEATHER])) as made:
        yield made


def called(number: int) -> str:
    """What a model writes that calls at once, as it was trained to."""
    arguments = f'{{"city": "Town {number}"}}'  # as an object of arguments is trained, whoever printed it
    call = f'<<TOOL_CALL name="get_weather" id="c{number}">>\n{arguments}\n<<END_TOOL_CALL>>'
    return f"<<ASSISTANT_END>>\n\n{call}"


@pytest.mark.parametrize("api", ECHOES)
def test_the_prompts_of_a_session_of_calls_at_once_begin_its_sample(talk: Talk, api: str) -> None:
    """What a row of the same messages becomes begins with each of them, and what was trained is what was written."""
    speaker = talk.speaker
    speaker.clear()
    messages: list[dict[str, Any]] = [echo.user(api, f"Weather, {api}?")]
    with httpx2.Client(verify=NO_TLS, timeout=20) as web:
        for number in range(3):
            speaker.say(raw=called(number) + "\n\n<<TOOL_RESULT")
            body = echo.asking(api, messages, TOOLS)
            told = web.post(talk.url + ts.get_api(api).endpoint, json=body)
            assert 200 == told.status_code, told.text
            messages += [*ECHOES[api][0](told.json()), *results(api, told.json())]
        speaker.say(ANSWER)
        body = echo.asking(api, messages, TOOLS)
        assert 200 == web.post(talk.url + ts.get_api(api).endpoint, json=body).status_code
    assert [] == speaker.failures
    served = [one.prompt for one in speaker.said]
    said = FORMAT.parse(served[-1].removesuffix("\n\n<<ASSISTANT>>\n"))
    assert ["user", *["tool_call", "tool_result"] * 3] == [item.kind for item in said.items]
    row = ts.get_api(api).parse_request(body)
    for request in (said, row):
        request.items.append(ANSWER)
        text, trained = sampled(request)
        assert [len(prompt) for prompt in served if not text.startswith(prompt)] == []
        assert "".join(one.written.rstrip() for one in speaker.said[:3]) in trained.replace("\n\n<<TOOL_RESULT", "")


def sampled(request: ts.Request) -> tuple[str, str]:
    """The text of a sample, and what of it is trained."""
    tokenizer = get_tokenizer("bytes")
    [found] = Encoder(FORMAT, tokenizer, Train(), end=False).encode([Example(request)])
    assert isinstance(found, Sample)
    return tokenizer.decode(found.ids.tolist()).decode(), tokenizer.decode(
        found.ids[found.weights > 0].tolist()
    ).decode()
