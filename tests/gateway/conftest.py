"""Owns what tests of the gateway share: real model servers, and a gateway before one that speaks as it is told.

The real ones are llama.cpp with tiny models of random weights. A module that needs another gateway, or clients of
another kind, has its own fixtures of the same names.
"""

from collections.abc import Iterator

import httpx2
import openai
import pytest

import turnscript as ts
from tests.gateway import tinygguf
from tests.gateway.sighted import sighted
from tests.gateway.speaker import Speaker, Talk, speaking
from tests.gateway.stage import NO_TLS, WEATHER, Stage, quiet
from tests.sdks import openai_sdk
from turnscript.gateway.embedded import Embedded

CONTEXT, SLOTS = 2048, 2


@pytest.fixture(scope="session")
def llamacpp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a transformer that knows ChatML's control tokens: two slots of 2048 tokens."""
    path = tinygguf.write_llama(tmp_path_factory.mktemp("models") / "llama.gguf")
    with Embedded(path, context=CONTEXT, parallel=SLOTS, threads=1) as model:
        yield model.url


@pytest.fixture(scope="session")
def rwkv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a recurrent model: two slots of 2048 tokens."""
    path = tinygguf.write_rwkv7(tmp_path_factory.mktemp("models") / "rwkv7.gguf")
    with Embedded(path, context=CONTEXT, parallel=SLOTS, threads=1) as model:
        yield model.url


@pytest.fixture(scope="session")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with a transformer that sees: two slots of 2048 tokens."""
    with sighted(tmp_path_factory.mktemp("models")) as url:
        yield url


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    """A gateway before model servers that play a script."""
    with Stage() as made:
        yield made


@pytest.fixture
def nothing_goes_wrong(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nothing in a test is an error to the log."""
    with quiet(caplog):
        yield


@pytest.fixture(scope="module")
def talk() -> Iterator[Talk]:
    """A gateway before a speaker of one format, with one tool."""
    with speaking(Speaker(ts.get_format("rwkv-universal"), [WEATHER]), context=4000) as made:
        yield made


@pytest.fixture(scope="module")
def sdk(talk: Talk) -> Iterator[openai.OpenAI]:
    """A client of that gateway."""
    with openai_sdk(talk.url) as made:
        yield made


@pytest.fixture(scope="module")
def web(talk: Talk) -> Iterator[httpx2.Client]:
    """The same for what no SDK sends or shows."""
    with httpx2.Client(base_url=talk.url, verify=NO_TLS, timeout=20) as made:
        yield made


@pytest.fixture
def speaker(talk: Talk) -> Iterator[Speaker]:
    """The model, with nothing to say yet. In the end it has said all that it was to say."""
    talk.speaker.clear()
    yield talk.speaker
    assert [] == talk.speaker.failures
    assert 0 == talk.speaker.left
