"""Owns the model of these tests: it looks a word up with the tool that it is told of, then says which word it was.

It writes as a model does that was trained on a prompt format: from the end of the prompt on, nothing else. The word is
made for each test and stands only where the tool finds it, so an answer that has it has gone all the way round.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from tests.gateway.scripted import Asked, Script, said, sse

WORD = re.compile(r"secret-[0-9a-f]{12}")
SAYS = "The word is "
TITLE = "Looking a word up"
CONTEXT = 150_000
"""How many tokens the model takes."""


class Call(NamedTuple):
    """A call that the model makes."""

    tool: str
    given: Mapping[str, Any]


Calls = Sequence[tuple[str, Call]]
"""The calls of a turn, each with its id."""


@dataclass
class Model:
    """The model. `turns`: the calls that it makes, in each of its turns; `talks`: it says something before.

    `repeats`: it counts its calls from one in each turn, as a model does that has seen nothing but short conversations.
    `pause`: seconds before each piece. `cut_at`: where a limit cuts off what it writes. `prompts`: what it went on
    from, and what it wrote there.
    """

    format: str
    turns: Sequence[Sequence[Call]]
    talks: bool = True
    repeats: bool = False
    context: int = CONTEXT
    pause: float = 0
    cut_at: str = ""
    prompts: list[tuple[str, str]] = field(default_factory=list)
    titles: int = 0

    def __call__(self, asked: Asked) -> Script:
        """The server's answer to a request."""
        if not asked.line.startswith("POST /v1/completions"):
            return said({"data": [{"id": "scripted", "max_model_len": self.context}]})
        body = asked.json
        text = self.goes_on(body["prompt"])
        for stop in body.get("stop") or ():
            text = text.partition(stop)[0]
        finish = "stop"
        if self.cut_at and self.cut_at in text:
            text, finish = text.partition(self.cut_at)[0], "length"
        usage = {"prompt_tokens": len(body["prompt"]) // 4, "completion_tokens": len(text) // 4 + 1}
        if not body.get("stream"):
            return said({"choices": [{"index": 0, "text": text, "finish_reason": finish}], "usage": usage})
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        chunks = [{"choices": [{"index": 0, "text": piece, "finish_reason": None}]} for piece in pieces]
        end = {"choices": [{"index": 0, "text": "", "finish_reason": finish}], "usage": usage}
        return sse(*chunks, end, "[DONE]", pause=self.pause)

    def goes_on(self, prompt: str) -> str:
        """What it writes behind a prompt."""
        write = _WRITERS[self.format]
        if f'"{self.turns[0][0].tool}"' not in prompt:  # it is asked for something else, and has no tools
            self.titles += 1
            return write(prompt, TITLE, ())
        turn = len(self.prompts)
        if turn < len(self.turns):
            first = 1 if self.repeats else 1 + sum(map(len, self.turns[:turn]))
            calls = [(f"call_{number:03}", call) for number, call in enumerate(self.turns[turn], first)]
            text = write(prompt, "Let me look." if self.talks else "", calls)
        else:
            words = dict.fromkeys(WORD.findall(prompt))
            text = write(prompt, f"{SAYS}{' and '.join(words)}." if words else "I cannot find it.", ())
        self.prompts.append((prompt, text))
        return text

    @property
    def went_on(self) -> list[bool]:
        """Of each prompt but the first, whether it begins with the one before it and what was written there."""
        return [later.startswith(prompt + text) for (prompt, text), (later, _) in pairwise(self.prompts)]


def _universal(prompt: str, text: str, calls: Calls) -> str:
    """In this format, a thought, a text and a call are a block each."""
    thinks, opened = prompt.endswith("<<THINK>>\n"), prompt.endswith("<<ASSISTANT>>\n")
    blocks = ["I know what to do.\n<<THINK_END>>"] if thinks else []
    if opened:
        blocks.append(f"{text}\n<<ASSISTANT_END>>")
    elif text:
        blocks.append(f"<<ASSISTANT>>\n{text}\n<<ASSISTANT_END>>")
    for id_, call in calls:
        blocks.append(f'<<TOOL_CALL name="{call.tool}" id="{id_}">>\n{json.dumps(call.given)}\n<<END_TOOL_CALL>>')
    return "\n\n".join(blocks)


def _goose(prompt: str, text: str, calls: Calls) -> str:
    """In this format, all of it stands behind one label."""
    thought = ">\nI know what to do.\n</think>\n" if prompt.endswith("<think") else " "
    written = [f"```json\n{json.dumps({'name': call.tool, 'arguments': call.given})}\n```" for _, call in calls]
    return thought + "\n".join(filter(None, [text, *written])) + "\n\nUser:"


_WRITERS = {"rwkv-universal": _universal, "rwkv-goose": _goose}
FORMATS = tuple(_WRITERS)
