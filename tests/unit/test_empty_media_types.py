"""A media type that is empty is kept as it is; only one that is missing is made up."""

import pytest

import turnscript as ts

SOURCES = [
    {"type": "document", "source": {"type": "base64", "media_type": "", "data": ""}},
    {"type": "document", "source": {"type": "text", "media_type": "", "data": "Hi"}},
    {"type": "image", "source": {"type": "base64", "media_type": "", "data": ""}},
]


@pytest.mark.parametrize("block", SOURCES, ids=lambda block: f"{block['type']} {block['source']['type']}")
def test_an_empty_media_type_comes_back(block: dict[str, object]) -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [block]}]}
    assert body == ts.convert(body, "anthropic-messages", "anthropic-messages", strict=True).value
