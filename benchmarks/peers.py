"""What each peer does with a request body, bytes in and bytes out, in groups that share a process.

A group is imported only inside its own worker, so no peer pays for another's heap. The json module writes as
it does by default (ASCII, spaces after separators): for bodies with emoji that is its fastest way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

from benchmarks import hand
from benchmarks.tools import JsonObject

Way = tuple[str, str]
"""Source API, target API."""
Conversion = Callable[[bytes], bytes]

WAYS: tuple[Way, ...] = tuple(hand.CONVERTERS)


def turnscript(way: Way) -> dict[str, Conversion]:
    convert: Any = import_module("turnscript").convert
    source, target = way
    return {"turnscript": lambda body: convert(body, source, target).data}


def _litellm_messages_to_chat() -> Callable[[JsonObject], Any]:
    module = import_module("litellm.llms.anthropic.pass_through.adapters.transformation")
    translate: Callable[[JsonObject], Any] = module.AnthropicAdapter().translate_completion_input_params
    return translate


def _litellm_chat_to_messages() -> Callable[[JsonObject], Any]:
    config = import_module("litellm").AnthropicConfig()

    def translate(body: JsonObject) -> Any:
        model, messages = body.pop("model"), body.pop("messages")
        wanted = config.map_openai_params(body, {}, model, drop_params=False)
        return config.transform_request(model, messages, wanted, litellm_params={}, headers={})

    return translate


def _litellm_responses_to_chat() -> Callable[[JsonObject], Any]:
    module = import_module("litellm.responses.litellm_completion_transformation.transformation")
    transform = module.LiteLLMCompletionResponsesConfig.transform_responses_api_request_to_chat_completion_request

    def translate(body: JsonObject) -> Any:
        model, items, stream = body.pop("model"), body.pop("input"), body.pop("stream")
        return transform(model=model, input=items, responses_api_request=body, stream=stream)

    return translate


_LITELLM: dict[Way, Callable[[], Callable[[JsonObject], Any]]] = {
    ("anthropic-messages", "openai-chat"): _litellm_messages_to_chat,
    ("openai-chat", "anthropic-messages"): _litellm_chat_to_messages,
    ("openai-responses", "openai-chat"): _litellm_responses_to_chat,
}


def _plain(value: Any) -> Any:
    """LiteLLM leaves some pydantic messages in its dicts; its HTTP layer dumps them like this."""
    return value.model_dump(exclude_none=True)


def litellm(way: Way) -> dict[str, Conversion]:
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    translate = _LITELLM[way]()

    def convert(body: bytes) -> bytes:
        return json.dumps(translate(json.loads(body)), default=_plain).encode()

    return {"litellm": convert}


def floors(way: Way) -> dict[str, Conversion]:
    orjson: Any = import_module("orjson")
    msgspec: Any = import_module("msgspec")
    converter = hand.CONVERTERS[way]

    def write(value: Any) -> str:
        text: str = orjson.dumps(value).decode()
        return text

    return {
        "json round trip": lambda body: json.dumps(json.loads(body)).encode(),
        "msgspec round trip": lambda body: msgspec.json.encode(msgspec.json.decode(body)),
        "orjson round trip": lambda body: orjson.dumps(orjson.loads(body)),
        "hand, orjson dicts": lambda body: orjson.dumps(converter(orjson.loads(body), write, orjson.loads)),
        "memcpy": lambda body: bytes(memoryview(body)),
    }


GROUPS: dict[str, Callable[[Way], dict[str, Conversion]]] = {
    "turnscript": turnscript,
    "litellm": litellm,
    "floors": floors,
}
CONVERTING = ("turnscript", "litellm", "hand, orjson dicts")
"""Peers whose output is a converted body; the others write the body as it came."""
