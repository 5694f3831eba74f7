"""Checks the status of each item of a Responses answer, beside that of the answer."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.responses import API, REQUEST, of_payloads, parsed
from turnscript.core.events import fold


@pytest.mark.parametrize("status", ["completed", "incomplete"])
@pytest.mark.parametrize("parts", list(itertools.product(("completed", "incomplete"), repeat=2)), ids=" ".join)
def test_what_each_item_says_of_itself_returns(status: str, parts: tuple[str, str]) -> None:
    """Whether a text is complete is its own to say, and not that of the answer alone; read whole and as a stream."""
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": None,
        "encrypted_content": None,
    }
    text = {"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}
    message = {"type": "message", "id": "msg_1", "role": "assistant", "content": [text], "phase": None}
    output = [thought | {"status": parts[0]}, message | {"status": parts[1]}]
    why = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
    whole = {"id": "resp_1", "object": "response", "model": "m", "status": status, "output": output} | why
    done = [{"type": "response.output_item.done", "output_index": at, "item": item} for at, item in enumerate(output)]
    stream = of_payloads(*done, {"type": f"response.{status}", "response": whole})
    for response in (API.parse_response(whole), fold(parsed(stream))):
        assert list(parts) == [item["status"] for item in API.render_response(response, REQUEST).value["output"]]
        usual = ["completed", status]
        assert [one != so for one, so in zip(parts, usual, strict=True)] == [bool(i.extra) for i in response.items]
