"""Chats to render: a Chat Completions body of a given number of messages, and a session of prompts and answers.

The same number always gives the same chat. A message takes about 450 characters, so 400 of them take about 180 KB.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.session import CODE, LOG, lines, prose
from benchmarks.tools import JsonObject, declarations

SYSTEM = "You are a careful coding agent.\nRead before you write, and say in one sentence what you did."


def tools() -> list[JsonObject]:
    """The eight tools as Chat Completions declares them."""
    return [
        {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
        for name, description, schema in declarations(full=False)
    ]


def _call(rng: Random, identifier: str) -> JsonObject:
    path = f"/workspace/src/reader_{rng.randrange(40)}.py"
    choices: tuple[tuple[str, JsonObject], ...] = (
        ("read_file", {"path": path, "offset": rng.randrange(1, 900), "limit": 200}),
        ("run_command", {"command": f'cd /workspace && pytest -q -k "case_{rng.randrange(90)}" 2>&1 | tail -20'}),
        ("edit_file", {"path": path, "old_text": lines(rng, CODE, 120, "\n"), "new_text": lines(rng, CODE, 160, "\n")}),
    )
    name, arguments = rng.choice(choices)
    written = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return {"id": identifier, "type": "function", "function": {"name": name, "arguments": written}}


def _said(rng: Random) -> JsonObject:
    return {
        "role": "assistant",
        "reasoning_content": prose(rng, rng.choice((80, 200, 500)), " "),
        "content": prose(rng, rng.choice((60, 120, 300)), "\n\n"),
    }


def _asked(rng: Random) -> JsonObject:
    return {"role": "user", "content": prose(rng, rng.choice((60, 150, 400)), " ")}


def _answered(rng: Random, identifier: str) -> JsonObject:
    pool = LOG if rng.random() < 0.5 else CODE
    return {"role": "tool", "tool_call_id": identifier, "content": lines(rng, pool, rng.choice((300, 700, 1300)), "\n")}


def body(messages: int) -> JsonObject:
    """A request body with so many messages, the first of them the system's, the last one for the model to answer."""
    rng = Random(1)
    said: list[JsonObject] = [{"role": "system", "content": SYSTEM}]
    while len(said) < messages:
        identifier = f"call_{len(said):04d}"
        calling = {**_said(rng), "tool_calls": [_call(rng, identifier)]}
        said += [_asked(rng), calling, _answered(rng, identifier), _said(rng)]
    del said[messages:]
    assert said[-1]["role"] != "assistant", f"{messages} messages end with an answer"
    return {"model": "local", "messages": said, "tools": tools()}


@dataclass(frozen=True, slots=True)
class Turn:
    """What is said to the model, what it generates, and the message that its text amounts to."""

    incoming: JsonObject
    generated: str
    answer: JsonObject


def session(turns: int) -> list[Turn]:
    """So many turns: one of three answers is a call, whose result comes in with the next turn."""
    rng = Random(2)
    written: list[Turn] = []
    for number in range(turns):
        identifier = f"call_{number // 3:04d}"
        incoming = _answered(rng, identifier) if number % 3 == 2 else _asked(rng)
        if number % 3 == 1:
            call = _call(rng, identifier)
            function = call["function"]
            generated = f'<tool_call>\n{{"name":"{function["name"]}","input":{function["arguments"]}}}\n</tool_call>'
            answer: dict[str, Any] = {"role": "assistant", "tool_calls": [call]}
        else:
            answer = _said(rng)
            generated = f"<think>\n{answer['reasoning_content']}\n</think>\n\n{answer['content']}"
        written.append(Turn(incoming, generated, answer))
    return written
