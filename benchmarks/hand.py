"""The floor: request conversions written by hand for exactly the generated bodies, from dict to dict.

No checks, no loss report, no unknown fields. This is what a conversion costs once JSON has become Python objects.
`write` turns a value into JSON text and `read` does the reverse; the peer passes its codec's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.tools import JsonObject

Write = Callable[[Any], str]
Read = Callable[[str], Any]


def _parts(content: str | list[JsonObject]) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    if len(content) == 1:
        text: str = content[0]["text"]
        return text
    return [{"type": "text", "text": block["text"]} for block in content]


def _assistant_to_chat(blocks: list[JsonObject], write: Write) -> JsonObject:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[JsonObject] = []
    for block in blocks:
        kind = block["type"]
        if kind == "text":
            texts.append(block["text"])
        elif kind == "thinking":
            thoughts.append(block["thinking"])
        elif kind == "tool_use":
            function = {"name": block["name"], "arguments": write(block["input"])}
            calls.append({"id": block["id"], "type": "function", "function": function})
    message: JsonObject = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        message["reasoning_content"] = "\n".join(thoughts)
    if calls:
        message["tool_calls"] = calls
    return message


def _user_to_chat(blocks: list[JsonObject], messages: list[JsonObject]) -> None:
    texts: list[JsonObject] = []
    for block in blocks:
        if block["type"] == "tool_result":
            content = _parts(block["content"])
            messages.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content})
        else:
            texts.append(block)
    if texts:
        messages.append({"role": "user", "content": _parts(texts)})


def messages_to_chat(body: JsonObject, write: Write, read: Read) -> JsonObject:
    messages: list[JsonObject] = [{"role": "system", "content": _parts(body["system"])}]
    for message in body["messages"]:
        if message["role"] == "assistant":
            messages.append(_assistant_to_chat(message["content"], write))
        else:
            _user_to_chat(message["content"], messages)
    tools = [
        {
            "type": "function",
            "function": {
                "name": tool["name"],
                "description": tool["description"],
                "parameters": tool["input_schema"],
            },
        }
        for tool in body["tools"]
    ]
    return {
        "model": body["model"],
        "max_completion_tokens": body["max_tokens"],
        "stream": body["stream"],
        "tools": tools,
        "tool_choice": body["tool_choice"]["type"],
        "user": body["metadata"]["user_id"],
        "messages": messages,
    }


def _assistant_to_messages(message: JsonObject, read: Read) -> JsonObject:
    blocks: list[JsonObject] = []
    if "reasoning_content" in message:
        blocks.append({"type": "thinking", "thinking": message["reasoning_content"], "signature": ""})
    if message["content"]:
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = read(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return {"role": "assistant", "content": blocks}


def chat_to_messages(body: JsonObject, write: Write, read: Read) -> JsonObject:
    system: list[JsonObject] = []
    messages: list[JsonObject] = []
    incoming: list[JsonObject] = []
    for message in body["messages"]:
        role, content = message["role"], message["content"]
        if role == "system":
            system.extend(content)
        elif role == "assistant":
            messages.append({"role": "user", "content": incoming})
            messages.append(_assistant_to_messages(message, read))
            incoming = []
        elif role == "tool":
            incoming.append({"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": content})
        else:
            incoming.append({"type": "text", "text": content})
    if incoming:
        messages.append({"role": "user", "content": incoming})
    functions = [tool["function"] for tool in body["tools"]]
    return {
        "model": body["model"],
        "max_tokens": body["max_completion_tokens"],
        "stream": body["stream"],
        "system": system,
        "tools": [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in functions
        ],
        "tool_choice": {"type": body["tool_choice"]},
        "messages": messages,
    }


def _response_items(items: list[JsonObject]) -> list[JsonObject]:
    messages: list[JsonObject] = []
    answer: JsonObject | None = None
    for item in items:
        kind = item["type"]
        if kind == "function_call_output":
            answer = None
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
            continue
        if kind == "message" and item["role"] == "user":
            answer = None
            messages.append({"role": "user", "content": _parts(item["content"])})
            continue
        if answer is None:
            answer = {"role": "assistant", "content": None}
            messages.append(answer)
        if kind == "reasoning":
            answer["reasoning_content"] = "\n".join([part["text"] for part in item["summary"]])
        elif kind == "message":
            answer["content"] = _parts(item["content"])
        else:
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            answer.setdefault("tool_calls", []).append(call)
    return messages


def responses_to_chat(body: JsonObject, write: Write, read: Read) -> JsonObject:
    keys = ("name", "description", "parameters", "strict")
    return {
        "model": body["model"],
        "max_completion_tokens": body["max_output_tokens"],
        "stream": body["stream"],
        "tools": [{"type": "function", "function": {key: tool[key] for key in keys}} for tool in body["tools"]],
        "tool_choice": body["tool_choice"],
        "parallel_tool_calls": body["parallel_tool_calls"],
        "messages": [{"role": "system", "content": body["instructions"]}, *_response_items(body["input"])],
    }


CONVERTERS: dict[tuple[str, str], Callable[[JsonObject, Write, Read], JsonObject]] = {
    ("anthropic-messages", "openai-chat"): messages_to_chat,
    ("openai-chat", "anthropic-messages"): chat_to_messages,
    ("openai-responses", "openai-chat"): responses_to_chat,
}
