"""Owns what clients do with an answer: they send it back in the next request, each in its own way (spec clients 2)."""

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

Body = dict[str, Any]
Echo = Callable[[Body], list[Body]]
"""The body of an answer as the messages or items of the next request."""


def javascript(value: Any) -> Any:
    """A JSON value as JavaScript has it: every number is a double, and whole ones are written without a point."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        number = float(value)
        return int(number) if number.is_integer() and abs(number) < 1e21 else number
    if isinstance(value, list):
        return [javascript(one) for one in value]
    return {key: javascript(one) for key, one in value.items()}


def respelled(arguments: str, spell: Callable[[Any], Any] = javascript) -> str:
    """Arguments that a program has parsed and written again."""
    return json.dumps(spell(json.loads(arguments)), separators=(",", ":"), ensure_ascii=False)


# Chat Completions.


def chat_exact(body: Body) -> list[Body]:
    """openai for Python and JavaScript, openai-agents, mini-swe-agent: the message as it is, thoughts lost."""
    message = deepcopy(body["choices"][0]["message"])
    message.pop("reasoning_content", None)
    return [message]


def chat_thoughtful(body: Body) -> list[Body]:
    """pi, qwen, opencode, cline, the compatible provider of the AI SDK: thoughts come back, arguments spelled anew."""
    message = deepcopy(body["choices"][0]["message"])
    for call in message.get("tool_calls") or []:
        call["function"]["arguments"] = respelled(call["function"]["arguments"])
    return [message]


def chat_parsed(body: Body) -> list[Body]:
    """llm, langchain, continue: thoughts lost, arguments as Python writes them, no content beside calls."""
    message = deepcopy(body["choices"][0]["message"])
    message.pop("reasoning_content", None)
    for call in message.get("tool_calls") or []:
        call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]))
    if message.get("tool_calls") and not message["content"]:
        message.pop("content")
    return [message]


def chat_stripped(body: Body) -> list[Body]:
    """gptme: white space at the end is gone, and the content is a list."""
    message = deepcopy(body["choices"][0]["message"])
    message.pop("reasoning_content", None)
    if message["content"]:
        message["content"] = [{"type": "text", "text": message["content"].rstrip()}]
    return [message]


# Messages.


def messages_exact(body: Body) -> list[Body]:
    """claude-code, pi, opencode, qwen, the AI SDK: all blocks with signatures, input as JavaScript has it."""
    content = deepcopy(body["content"])
    for block in content:
        if block["type"] == "tool_use":
            block["input"] = javascript(block["input"])
    return [{"role": "assistant", "content": content}]


def messages_thoughtless(body: Body) -> list[Body]:
    """continue: no thinking."""
    content = [block for block in deepcopy(body["content"]) if block["type"] != "thinking"]
    return [{"role": "assistant", "content": content}]


def messages_marked(body: Body) -> list[Body]:
    """claude-code again: a cache mark on the last block, one text alone as a string."""
    content = deepcopy(body["content"])
    if len(content) == 1 and content[0]["type"] == "text":
        return [{"role": "assistant", "content": content[0]["text"]}]
    content[-1]["cache_control"] = {"type": "ephemeral"}
    return [{"role": "assistant", "content": content}]


def messages_omitted(body: Body) -> list[Body]:
    """claude-code where thoughts are not shown: a signature and no text."""
    content = deepcopy(body["content"])
    for block in content:
        if block["type"] == "thinking":
            block["thinking"] = ""
    return [{"role": "assistant", "content": content}]


# Responses.


def responses_exact(body: Body) -> list[Body]:
    """codex: every item with its id, arguments and thoughts as they were."""
    return deepcopy(body["output"])


def responses_bare(body: Body) -> list[Body]:
    """opencode, cline: no thoughts, no ids of items."""
    items = [item for item in deepcopy(body["output"]) if item["type"] != "reasoning"]
    for item in items:
        item.pop("id", None)
        item.pop("status", None)
    return items


def responses_easy(body: Body) -> list[Body]:
    """openai-agents-js and others: texts as short messages, arguments spelled anew."""
    items = [item for item in deepcopy(body["output"]) if item["type"] != "reasoning"]
    for item in items:
        if item["type"] == "function_call":
            item["arguments"] = respelled(item["arguments"])
    return [
        {"role": "assistant", "content": "".join(part["text"] for part in item["content"])}
        if item["type"] == "message"
        else item
        for item in items
    ]


ECHOES: dict[str, list[Echo]] = {
    "openai-chat": [chat_exact, chat_thoughtful, chat_parsed, chat_stripped],
    "anthropic-messages": [messages_exact, messages_thoughtless, messages_marked, messages_omitted],
    "openai-responses": [responses_exact, responses_bare, responses_easy],
}


def user(api: str, text: str) -> Body:
    """What the user says."""
    return {"role": "user", "content": text} | ({"type": "message"} if api == "openai-responses" else {})


def result(api: str, call_id: str, text: str) -> Body:
    """What a tool answers."""
    if api == "openai-chat":
        return {"role": "tool", "tool_call_id": call_id, "content": text}
    if api == "openai-responses":
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]}


def asking(api: str, messages: list[Body], tools: list[Body]) -> Body:
    """The body of a request. `tools` are in the shape of Messages."""
    if api == "openai-responses":
        offered = [{"type": "function", "name": one["name"], "parameters": one["input_schema"]} for one in tools]
        return {"model": "m", "input": messages, "tools": offered}
    if api == "openai-chat":
        offered = [{"name": one["name"], "parameters": one["input_schema"]} for one in tools]
        return {
            "model": "m",
            "messages": messages,
            "tools": [{"type": "function", "function": function} for function in offered],
        }
    return {"model": "m", "max_tokens": 100, "messages": messages, "tools": tools}
