"""Owns data URLs on their way to an API that wants a media type and base64 text in two places."""

from __future__ import annotations

from typing import Any

import pytest

import turnscript as ts

PDF = {"type": "base64", "media_type": "application/pdf", "data": "AA+/=="}
URLS = {
    "data:application/pdf;base64,AA+/==": (PDF, []),
    "data:application/pdf;name=a.pdf;base64,AA+/==": (PDF, ["approximated"]),
    "DATA:application/pdf ; Base64,AA+/==": (PDF, ["approximated"]),
    "data:;base64,AA+/==": (PDF, ["invented"]),
    "data:text/plain;charset=utf-8;base64,SGk=": (
        {"type": "text", "media_type": "text/plain", "data": "Hi"},
        ["approximated"],
    ),
}
"""What a file becomes, and the losses."""


def sent(part: dict[str, Any], api: str = "openai-chat") -> tuple[Any, list[str]]:
    """The source of the only block that a part becomes, and the losses of the block."""
    body = {"model": "m", "messages": [{"role": "user", "content": [part]}]}
    told = ts.convert(body, api, "anthropic-messages")
    lost: list[str] = [loss.kind for loss in told.losses if loss.path.endswith("content[0]")]
    return told.value["messages"][0]["content"][0]["source"], lost


@pytest.mark.parametrize("url", URLS)
def test_a_file_is_its_media_type_and_its_base64_text_however_its_url_says_so(url: str) -> None:
    assert URLS[url] == sent({"type": "file", "file": {"file_data": url}})


def test_so_is_a_picture() -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    for url, losses in (("data:image/png;base64,AA==", []), ("data:image/png;q=1;base64,AA==", ["approximated"])):
        assert (picture, losses) == sent({"type": "image_url", "image_url": {"url": url}})


@pytest.mark.parametrize("url", ["data:image/svg+xml,%3Csvg%3E", "data:image/png;base64;x,AA==", "data:"])
def test_one_without_base64_is_told_as_an_address_that_leads_nowhere(url: str) -> None:
    assert ({"type": "url", "url": url}, ["approximated"]) == sent({"type": "image_url", "image_url": {"url": url}})


def test_a_body_of_the_api_itself_says_what_it_said() -> None:
    block = {"type": "image", "source": {"type": "url", "url": "data:image/png;q=1;base64,AA=="}}
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [block]}]}
    assert body == ts.convert(body, "anthropic-messages", "anthropic-messages", strict=True).value
