"""Owns what an SDK told of an answer, read out of its verdict in the same words for every SDK and language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.answers.verdict import Verdict, as_javascript
from tests.answers.wanted import NO_ID, Part, View
from turnscript.core.json_text import closed

PREFIXES = {"chat": "chatcmpl-", "responses": "resp_", "messages": "msg_", "completions": "cmpl-"}
CALL_IDS = ("call_", "toolu_")


def seen(wire: str, verdict: Verdict, *, streamed: bool) -> View:
    """What an SDK told of an answer."""
    return {"chat": _chat, "responses": _responses, "messages": _messages, "completions": _completions}[wire](
        verdict, streamed
    )


def without_made_up_ids(found: View, expected: View) -> View:
    """What an SDK told, without the ids that the answer has not: they must only look like ids of that API."""
    if expected.id == NO_ID:
        assert found.id.startswith(tuple(PREFIXES.values())), found.id
        found = found._replace(id=NO_ID)
    parts = list(found.parts)
    for index, (part, other) in enumerate(zip(found.parts, expected.parts, strict=False)):
        if other[1:2] == (NO_ID,) and str(part[1]).startswith(CALL_IDS):
            parts[index] = (part[0], NO_ID, *part[2:])
    return found._replace(parts=parts)


# Chat and completions.


def _chat(verdict: Verdict, streamed: bool) -> View:
    body = verdict.result or verdict.snapshot
    (choice,) = body["choices"]
    message = choice["message"]
    assert message["role"] == "assistant"
    if streamed:  # one SDK keeps the last piece of a member that it does not know: the pieces are what counts
        deltas = [one["delta"] for chunk in chunks(verdict) for one in chunk["choices"]]
        message = message | {"reasoning_content": "".join([delta.get("reasoning_content") or "" for delta in deltas])}
    names = {"thinking": "reasoning_content", "text": "content", "refusal": "refusal"}
    parts: list[Part] = [(kind, message[name]) for kind, name in names.items() if message.get(name)]
    if message.get("function_call"):
        parts.append(("function_call", message["function_call"]["name"], message["function_call"]["arguments"]))
    for call in message.get("tool_calls") or []:
        kind, argument = ("custom", "input") if call["type"] == "custom" else ("function", "arguments")
        parts.append((call["type"], call["id"], call[kind]["name"], call[kind][argument]))
    return View(body["id"], body["model"], parts, choice["finish_reason"], openai_usage(body.get("usage"), "prompt"))


def chunks(verdict: Verdict) -> list[dict[str, Any]]:
    """The chunks of a stream. The Python helper wraps them and tells events of its own between."""
    found = [event["chunk"] if event.get("type") == "chunk" else event for event in verdict.events]
    return [chunk for chunk in found if "choices" in chunk]


def _completions(verdict: Verdict, streamed: bool) -> View:
    bodies = verdict.events if streamed else [verdict.result]
    choices = [choice for body in bodies for choice in body["choices"]]
    assert {0} == {choice["index"] for choice in choices}
    (id_,), (model,) = ({body[name] for body in bodies} for name in ("id", "model"))
    text = "".join([choice["text"] for choice in choices])
    usage = openai_usage(bodies[-1].get("usage"), "prompt")
    return View(id_, model, [("text", text)], choices[-1]["finish_reason"], usage)


def openai_usage(usage: dict[str, Any] | None, side: str) -> tuple[int, ...] | None:
    """The counts of an answer of one of OpenAI's APIs; `side`: what it calls the input."""
    if usage is None:
        return None
    other = {"prompt": "completion", "input": "output"}[side]
    total, output = usage[f"{side}_tokens"], usage[f"{other}_tokens"]
    assert usage["total_tokens"] == total + output
    inside, reasoning = usage[f"{side}_tokens_details"], usage[f"{other}_tokens_details"]["reasoning_tokens"]
    return total, inside["cached_tokens"], inside["cache_write_tokens"], output, reasoning


# Responses.


def _responses(verdict: Verdict, streamed: bool) -> View:
    body = verdict.result if verdict.result is not None else verdict.events[-1]["response"]
    reason = (body.get("incomplete_details") or {}).get("reason")
    parts = [_item(item) for item in body["output"]]
    usage = openai_usage(body.get("usage"), "input")
    return View(body["id"], body["model"], parts, (body["status"], reason), usage)


def _item(item: dict[str, Any]) -> Part:
    kind = item["type"]
    if kind == "reasoning":
        texts = [tuple(part["text"] for part in item[name]) for name in ("content", "summary")]
        return kind, *texts, item.get("encrypted_content")
    if kind == "message":
        return kind, [(part["type"], part["text" if "text" in part else "refusal"]) for part in item["content"]]
    argument = item["input" if kind == "custom_tool_call" else "arguments"]
    return kind, item["call_id"], item.get("namespace"), item["name"], argument


# Messages.


def _messages(verdict: Verdict, streamed: bool) -> View:
    body = verdict.result or verdict.snapshot
    assert ("message", "assistant") == (body["type"], body["role"])
    arguments = spelled(verdict)
    parts = [_block(block, arguments.get(index)) for index, block in enumerate(body["content"])]
    usage = body["usage"]
    names = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    counts = (*[usage[name] for name in names], usage["output_tokens_details"]["thinking_tokens"])
    return View(body["id"], body["model"], parts, (body["stop_reason"], body["stop_sequence"]), counts)


def _block(block: dict[str, Any], arguments: str | None) -> Part:
    """A block. The input of a call is a value; as text where the pieces of a stream spell it, after a comparison."""
    kind = block["type"]
    if kind == "thinking":
        return kind, block["thinking"], block["signature"]
    if kind == "redacted_thinking":
        return kind, block["data"]
    if kind == "text":
        return kind, block["text"]
    if arguments is not None:
        assert as_javascript(json.loads(closed(arguments))) == as_javascript(block["input"])
    return kind, block["id"], block["name"], as_javascript(block["input"]) if arguments is None else arguments


def spelled(verdict: Verdict) -> dict[int, str]:
    """The arguments of each call as the deltas of a stream spell them, by index."""
    found: dict[int, str] = {}
    for index, delta in _deltas(verdict):
        if delta["type"] == "input_json_delta":
            found[index] = found.get(index, "") + delta["partial_json"]
    return found


def _deltas(verdict: Verdict) -> Iterator[tuple[int, dict[str, Any]]]:
    for event in verdict.events:
        if event["type"] == "content_block_delta":
            yield event["index"], event["delta"]
