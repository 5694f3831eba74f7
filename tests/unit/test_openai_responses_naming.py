"""Owns the unit tests of calls of free text that the model wrote as JSON, in answers that a limit ended."""

from __future__ import annotations

import pytest

from tests.responses import API, TOOLED, answer, payloads, stream
from turnscript.core.conversation import Response, ToolCall
from turnscript.core.events import fold

WHOLE, CUT = '{"input": "*** Begin"}', '{"input": "*** Be'


def call(arguments: str) -> ToolCall:
    """A call that the model had not closed when it met its limit."""
    return ToolCall(name="apply_patch", arguments=arguments, id="c", open=True)


def test_free_text_that_was_whole_when_the_limit_was_met_is_told() -> None:
    told = answer(call(WHOLE), reason="length")
    events = payloads(stream(told, TOOLED))
    (done,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert ("custom_tool_call", "*** Begin", "completed") == (done["type"], done["input"], done["status"])
    assert [done] == events[-1]["response"]["output"]
    rendered = API.render_response(fold(answer(call(WHOLE), reason="length")), TOOLED)
    assert ["*** Begin"] == [item["input"] for item in rendered.value["output"]]
    assert [] == rendered.losses


@pytest.mark.parametrize("whole", [True, False])
def test_free_text_that_was_cut_off_is_told_nowhere_and_reported_once(whole: bool) -> None:
    if whole:
        rendered = API.render_response(Response(items=[call(CUT)], finish_reason="length"), TOOLED)
        assert [] == rendered.value["output"]
        losses = rendered.losses
    else:
        writer = API.stream_renderer(TOOLED)
        last = payloads(writer.send(answer(call(CUT), reason="length")))[-1]
        assert [] == last["response"]["output"]
        losses = writer.losses
    assert ["items[0]"] == [loss.path for loss in losses]
