"""Owns the slots of an agent and of those that it starts, which name the same session, before the real llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway import tinygguf
from tests.gateway.running import Running
from tests.gateway.stage import NO_TLS
from tests.gateway.tinygguf import words
from turnscript.gateway.config import Config
from turnscript.gateway.embedded import Embedded

SYSTEM = words(60, seed=3)
LETTERS = {"grammar": "root ::= [a-z]+"}
"""What the model may write, so that it reads back the same tokens."""


@contextmanager
def gateway(folder: Path, slots: int) -> Iterator[str]:
    """The URL of a gateway before a recurrent model with so many slots."""
    path = tinygguf.write_rwkv7(folder / "rwkv7.gguf")
    with Embedded(path, context=2048, parallel=slots, threads=1) as server:
        config = Config.for_backend(server.url, "rwkv-goose", kind="llamacpp", extra=LETTERS)
        with Running(config) as running:
            yield running.url


class Agent:
    """An agent of a session, as Claude Code asks for it. `id_`: what it is called in a header; the first has none."""

    def __init__(self, url: str, task: str, id_: str = "", system: str = SYSTEM) -> None:
        self.url, self.system = url, system
        self.headers = {"x-claude-code-session-id": "session"} | ({"x-claude-code-agent-id": id_} if id_ else {})
        self.messages: list[Any] = [{"role": "user", "content": task}]
        self.limit = 8
        self.before = 0

    def turn(self) -> int:
        """One turn. Returns how many tokens were read again that it had read or written before."""
        asked = {"model": "m", "max_tokens": self.limit, "system": self.system, "messages": self.messages}
        told = httpx2.post(
            f"{self.url}/v1/messages", json=asked, headers=self.headers, verify=NO_TLS, timeout=30
        ).json()
        usage = told["usage"]
        again = max(0, self.before - int(usage["cache_read_input_tokens"]))
        self.before = usage["input_tokens"] + usage["cache_read_input_tokens"]
        self.messages += [
            {"role": "assistant", "content": told["content"]},
            {"role": "user", "content": "And then?"},
        ]
        return again


HOW = {
    "by a header": {"id_": "agent-1"},
    "by its instructions": {"system": "You search for files. " + SYSTEM},
    "by its task": {},
}
"""What tells a subagent from the agent that started it."""


@pytest.mark.parametrize("how", HOW.values(), ids=HOW)
def test_a_subagent_leaves_the_agent_its_slot_while_another_one_is_free(tmp_path: Path, how: dict[str, str]) -> None:
    with gateway(tmp_path, slots=2) as url:
        agent = Agent(url, "Mend the roof")
        assert 0 == agent.turn()
        sub = Agent(url, "Find a ladder", **how)
        assert [0] * 5 == [sub.turn() for _ in range(5)]
        assert 0 == agent.turn()
        assert 0 == sub.turn()


def test_several_at_once_have_a_slot_each(tmp_path: Path) -> None:
    with gateway(tmp_path, slots=4) as url, ThreadPoolExecutor(4) as threads:
        agents = [Agent(url, "Mend the roof"), *(Agent(url, "Find a ladder", f"agent-{at}") for at in range(3))]
        for _ in range(4):
            assert [0] * 4 == list(threads.map(Agent.turn, agents))


def test_one_that_asks_the_same_thing_beside_itself_costs_nobody_else_a_slot(tmp_path: Path) -> None:
    """What goes on beside its own conversation holds no slot, so the next one to come gets that, however new it is."""
    with gateway(tmp_path, slots=3) as url, ThreadPoolExecutor(2) as threads:
        agent = Agent(url, "Mend the roof")
        assert 0 == agent.turn()
        twins = [Agent(url, "Find a ladder", "agent-1") for _ in range(2)]
        twins[1].limit += 1  # or it would be the same request again, for which nobody waits any more
        list(threads.map(Agent.turn, twins))
        assert 0 == Agent(url, "Find some nails", "agent-2").turn()
        assert 0 == agent.turn()
