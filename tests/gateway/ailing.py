"""Owns a model server that goes on in the same way whatever it is asked, and may have one fault or another."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.gateway.scripted import END, STREAM, Asked, Script, chunk, event, said
from turnscript.gateway.doctor_server import SAMPLE

TOKENS = [f" {word}{number}" for number, word in zip(range(2000), itertools.cycle(["ab", "cd", "ef"]), strict=False)]
SMILES = [" \U0001f600", "é"] * 40


@dataclass
class Model:
    """A server that goes on in the same way, whatever it is asked; and what is wrong with it."""

    tokens: Sequence[str] = tuple(TOKENS)
    stop: str = "cut"
    pause: float = 0
    buffered: float = 0
    late: float = 0
    finish: str | None = None
    reasons: bool = True
    usage: bool = True
    cached: bool = True
    done: bool = True
    overrun: int = 0
    random: bool = False
    broken: bool = False
    context: int | None = 1000
    refusal: Script | None = None
    serial: float = 0
    errors: int = 0
    said: list[str] = field(default_factory=list)
    free_at: float = 0
    limits: bool = True

    def __call__(self, asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            card = {"id": "model"} | ({"max_model_len": self.context} if self.context else {})
            return said({"data": [card]})
        if self.errors:
            return said({"error": {"message": "out of order"}}, status=self.errors)
        body = asked.json
        if self.context and len(body["prompt"]) // 4 > self.context:
            return self.refusal or said(
                {"error": {"message": f"maximum context length is {self.context} tokens"}}, status=400
            )
        return self._answer(body)

    def _answer(self, body: dict[str, Any]) -> Script:
        limit = body["max_tokens"] + self.overrun if self.limits else 4000
        tokens, finish = list(self.tokens[:limit]), "length"
        if self.random:
            self.free_at += 1
            tokens = [f" {self.free_at}", *tokens[:-1]]
        whole = "".join(tokens)
        met = [stop for stop in body.get("stop", ()) if stop in whole]
        if met and self.stop != "dropped":
            end = whole.index(met[0]) + (len(met[0]) if self.stop == "echoed" else 0)
            tokens, finish = _cut(tokens, end), "stop"
        return self._told(body, tokens, self.finish or finish)

    def _told(self, body: dict[str, Any], tokens: list[str], finish: str) -> Script:
        prompt = body["prompt"]
        known = max((_common(prompt, one) for one in self.said), default=0) if self.cached else 0
        self.said.append(prompt + "".join(tokens))
        counts: dict[str, Any] = {"prompt_tokens": len(prompt) // 4, "completion_tokens": len(tokens)}
        counts |= {"prompt_tokens_details": {"cached_tokens": known // 4}} if self.cached else {}
        last: dict[str, Any] = {
            "choices": [{"text": "", "index": 0, "finish_reason": finish if self.reasons else None}]
        }
        last |= {"usage": counts} if self.usage else {}
        if not body["stream"]:
            last["choices"][0]["text"] = "".join(tokens)
            return said(last)
        if self.broken:
            tokens = ["\ufffd" if not token.isascii() else token for token in tokens]
        sample = body["max_tokens"] == SAMPLE and not body.get("stop")
        steps: list[Any] = [self._wait(prompt), STREAM, self.buffered if sample else 0]
        for token in tokens:
            steps += [chunk(event({"choices": [{"text": token, "index": 0}]})), self.pause]
        steps += [chunk(event(last)), self.late if sample else 0]
        return [*steps, *([chunk(event("[DONE]"))] if self.done else []), END]

    def _wait(self, prompt: str) -> float:
        """Until the requests before it are done, of those that are sent together."""
        if not self.serial or not prompt[:1].isdigit():
            return 0
        now = time.monotonic()
        self.free_at = max(now, self.free_at) + self.serial
        return self.free_at - now


def _cut(tokens: list[str], end: int) -> list[str]:
    cut = []
    for token in tokens:
        if end > 0:
            cut.append(token[:end])
        end -= len(token)
    return cut


def _common(first: str, second: str) -> int:
    return next(
        (at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second))
    )
