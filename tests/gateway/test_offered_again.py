"""Owns the law that tools are offered alike however often: a request stays as it is while a prompt is made of it."""

from __future__ import annotations

import json
from copy import deepcopy

import turnscript as ts
from turnscript.core.conversation import Tool
from turnscript.gateway.hygiene import clean
from turnscript.gateway.offers import Offer, offer

FORMAT = ts.get_format("rwkv-universal")
F = {"type": "function", "name": "f", "description": "F.", "parameters": {"type": "object"}}
PATCH = {"type": "custom", "name": "apply_patch", "description": "Edits."}
SPACE = {"type": "namespace", "name": "fs", "description": "Files.", "tools": [{**F, "name": "read"}, PATCH]}
TOOLS = [F, {**F, "name": "g", "defer_loading": True}, PATCH, SPACE, {"type": "web_search"}]
BODY = json.dumps({"model": "m", "input": [{"role": "user", "content": "Hi"}], "tools": TOOLS})


def names(made: Offer) -> list[str | None]:
    return [tool.name for tool in made.request.tools]


def test_tools_are_offered_the_same_each_time_and_those_that_were_given_stay_as_they_are() -> None:
    nameless = Tool(type="namespace", description="Files.", tools=[Tool(name="read", description="Reads.")])
    request = ts.parse(BODY, "openai-responses")
    request.conversation.tools.append(nameless)
    before = deepcopy(request)
    first = clean(request)
    cleaned = deepcopy(first.request)
    made = [offer(one, FORMAT) for one in (first.request, first.request, clean(request).request, request)]
    assert before == request
    assert cleaned == first.request
    assert made[0].losses == made[1].losses == made[2].losses
    assert ["f", "apply_patch", "fs__read", "fs__apply_patch", "read"] == names(made[0]) == names(made[1])
    assert "Files.\n\nReads." == made[0].tools[-1].description == made[1].tools[-1].description
    assert "Reads." == nameless.tools[0].description
