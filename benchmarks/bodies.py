"""Request bodies of the three APIs for one generated session, as bytes that an SDK would send."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks import session
from benchmarks.session import Result, Session, Step
from benchmarks.tools import JsonObject

_CACHE = {"cache_control": {"type": "ephemeral"}}


def encode(value: JsonObject) -> bytes:
    """Compact UTF-8 JSON: the SDKs of both vendors send this."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _result_block(result: Result) -> JsonObject:
    short = len(result.text) < 400
    block: JsonObject = {
        "type": "tool_result",
        "tool_use_id": f"toolu_{result.call}",
        "content": result.text if short else [{"type": "text", "text": result.text}],
    }
    if result.failed:
        block["is_error"] = True
    return block


def _user_blocks(results: tuple[Result, ...], text: str) -> list[JsonObject]:
    blocks = [_result_block(result) for result in results]
    if text:
        blocks.append({"type": "text", "text": text})
    return blocks


def _assistant_blocks(step: Step) -> list[JsonObject]:
    blocks: list[JsonObject] = [{"type": "text", "text": step.text}]
    if step.thinking:
        thinking = {"type": "thinking", "thinking": step.thinking, "signature": step.signature}
        blocks.insert(1 if step.text_first else 0, thinking)
    blocks += [
        {"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": call.arguments}
        for call in step.calls
    ]
    return blocks


def anthropic_messages(conversation: Session) -> JsonObject:
    messages: list[JsonObject] = []
    for step in conversation.steps:
        messages.append({"role": "user", "content": _user_blocks(step.results, step.user)})
        messages.append({"role": "assistant", "content": _assistant_blocks(step)})
    messages.append({"role": "user", "content": _user_blocks(conversation.closing_results, conversation.closing_user)})
    for message in messages[-3::2]:
        message["content"][-1].update(_CACHE)
    system: list[JsonObject] = [{"type": "text", "text": text} for text in conversation.system]
    for block in system[1:]:
        block.update(_CACHE)
    tools: list[JsonObject] = [
        {"name": name, "description": description, "input_schema": schema}
        for name, description, schema in conversation.tools
    ]
    tools[-1].update(_CACHE)
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 32000,
        "stream": True,
        "system": system,
        "tools": tools,
        "tool_choice": {"type": "auto"},
        "thinking": {"type": "enabled", "budget_tokens": 8000},
        "metadata": {"user_id": "user_0f3a_session_5d1c"},
        "messages": messages,
    }


def _chat_turns(results: tuple[Result, ...], text: str) -> Iterator[JsonObject]:
    for result in results:
        yield {"role": "tool", "tool_call_id": f"call_{result.call}", "content": result.text}
    if text:
        yield {"role": "user", "content": text}


def _chat_answer(step: Step) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": step.text}
    if step.thinking:
        message["reasoning_content"] = step.thinking
    message["tool_calls"] = [
        {
            "id": f"call_{call.id}",
            "type": "function",
            "function": {"name": call.name, "arguments": encode(call.arguments).decode()},
        }
        for call in step.calls
    ]
    return message


def openai_chat(conversation: Session) -> JsonObject:
    messages: list[JsonObject] = [
        {"role": "system", "content": [{"type": "text", "text": text} for text in conversation.system]}
    ]
    for step in conversation.steps:
        messages.extend(_chat_turns(step.results, step.user))
        messages.append(_chat_answer(step))
    messages.extend(_chat_turns(conversation.closing_results, conversation.closing_user))
    return {
        "model": "claude-sonnet-4-5",
        "max_completion_tokens": 32000,
        "stream": True,
        "tools": [
            {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
            for name, description, schema in conversation.tools
        ],
        "tool_choice": "auto",
        "messages": messages,
    }


def _response_items(results: tuple[Result, ...], text: str) -> Iterator[JsonObject]:
    for result in results:
        yield {"type": "function_call_output", "call_id": f"call_{result.call}", "output": result.text}
    if text:
        yield {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _answer_items(step: Step) -> Iterator[JsonObject]:
    if step.thinking:
        yield {
            "type": "reasoning",
            "id": f"rs_{step.signature[:22]}",
            "summary": [{"type": "summary_text", "text": step.thinking}],
            "encrypted_content": None,
        }
    yield {
        "type": "message",
        "id": f"msg_{step.signature[22:44]}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": step.text, "annotations": []}],
    }
    for call in step.calls:
        yield {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": f"call_{call.id}",
            "name": call.name,
            "arguments": encode(call.arguments).decode(),
            "status": "completed",
        }


def openai_responses(conversation: Session) -> JsonObject:
    items: list[JsonObject] = []
    for step in conversation.steps:
        items.extend(_response_items(step.results, step.user))
        items.extend(_answer_items(step))
    items.extend(_response_items(conversation.closing_results, conversation.closing_user))
    return {
        "model": "gpt-5.1-codex",
        "max_output_tokens": 32000,
        "stream": True,
        "store": False,
        "instructions": "".join(conversation.system),
        "tools": [
            {"type": "function", "name": name, "description": description, "parameters": schema, "strict": False}
            for name, description, schema in conversation.tools
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "input": items,
    }


SHAPES: dict[str, Callable[[Session], JsonObject]] = {
    "anthropic-messages": anthropic_messages,
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
}


def fitted(api: str, size: int, seed: int = 1) -> Session:
    """A session whose body in this API has exactly `size` bytes: the last user text is padded with ASCII."""
    shape = SHAPES[api]
    target = size
    for _ in range(8):
        conversation = session.build(target, seed)
        missing = size - len(encode(shape(conversation)))
        if 0 <= missing <= max(400, size // 100):
            padding = ("x" * 71 + " ") * (missing // 72 + 1)
            return replace(conversation, closing_user=conversation.closing_user + padding[:missing])
        target += missing if missing > 0 else int(missing * 1.1)
    raise ValueError(f"no session of {size} bytes for {api}: ask for at least 8000")


def body(api: str, size: int, seed: int = 1) -> bytes:
    """The request body of a generated session, `size` bytes long."""
    return encode(SHAPES[api](fitted(api, size, seed)))
