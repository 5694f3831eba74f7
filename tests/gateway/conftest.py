"""Owns the real model servers that tests of the gateway share: llama.cpp with tiny models of random weights."""

from collections.abc import Iterator

import pytest

from tests.gateway import tinygguf
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
