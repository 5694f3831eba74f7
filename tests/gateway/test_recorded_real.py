"""Owns the prefix law with recorded sessions of real clients: the gateway before the real llama.cpp, turn by turn.

The model is recurrent, so that nothing of its state can be taken back, and each byte is one of its tokens: what the
server says that it had cached can be compared with what it has read and written before, to the byte. It writes what the
recorded model wrote, its arguments in a spelling that no client sends back.

The sessions are replayed whole: the longest prompt has about 3,000 tokens. Those of one request have no next prompt,
and are not here. Clients that send back something else than what the model wrote stand in `CHANGED`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.gateway import tinygguf
from tests.gateway.dialogue import DIALOGUES, Way
from tests.gateway.echo import Body
from tests.gateway.forced import Forced, forced, tokens
from tests.gateway.recorded import Recording
from tests.gateway.speaker import call, odd, text, thought
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.conversation import Item
from turnscript.gateway.embedded import Embedded

SESSIONS = {
    path.stem: path
    for path in sorted((Path(__file__).parent / "corpus").glob("*.json"))
    if len(json.loads(path.read_text(encoding="utf-8"))["turns"]) > 1
}
CHANGED: dict[str, tuple[list[Item], str]] = {
    # It writes thoughts into the text, in tags of its own.
    "gptme_chat": ([thought("ls"), text("Listing."), call("shell", command="ls")], "Listing."),
    # It writes calls and their results as prose.
    "smolagents_chat": ([call("ls", path=".")], "Calling tools:"),
}
"""What the model says in the first turn, and what of the client's own words must be in the next prompt."""
FEW = 2
"""Tokens that may be missing in the state: the last one is chosen, but not read."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Forced]]:
    """The URL of a gateway, and what the model behind it says."""
    path = tinygguf.write_rwkv7(tmp_path_factory.mktemp("models") / "rwkv7.gguf", pieces=())
    with Embedded(path, context=4096, parallel=2, threads=1) as server, forced(server.url, LlamaCpp()) as made:
        yield made


def told(url: str, session: Recording, body: Body) -> tuple[Body, int, int]:
    """The answer as the official SDK reads it, with the tokens of the prompt and those that were cached."""
    whole = DIALOGUES[session.api](url, Way(False, bool(body.get("stream"))), extra_body=body).ask().whole
    answer: Any = whole.model_dump(mode="json", exclude_unset=True, warnings=False)
    return answer["choices"][0]["message"] if "choices" in answer else answer, *tokens(whole)


def replayed(model: tuple[str, Forced], session: Recording) -> list[tuple[int, int]]:
    """The tokens of each prompt, and how many of them the server had read, once the session is over."""
    url, backend = model
    backend.clear()
    backend.tools = session.tools
    answers: list[Body] = []
    counts = []
    for turn, step in enumerate(session.steps):
        backend.say(*step.said, change=odd)
        answer, whole, cached = told(url, session, session.request(turn, answers))
        answers.append(answer)
        counts.append((whole, cached))
    assert len(session.steps) == len(backend.asked)
    return counts


@pytest.mark.parametrize("name", [name for name in SESSIONS if name not in CHANGED])
def test_a_recorded_session_is_read_once(model: tuple[str, Forced], name: str) -> None:
    """Each prompt begins with the one before and what was generated, and the server had read all of that."""
    session, (_, backend) = Recording(SESSIONS[name]), model
    counts = replayed(model, session)
    assert [True] * (len(session.steps) - 1) == backend.grew()
    prompts = [str(ask.prompt) for ask in backend.asked]
    assert [len(prompt.encode()) for prompt in prompts] == [whole for whole, _ in counts]
    known = [len((prompt + said).encode()) for prompt, said in zip(prompts, backend.generated, strict=True)]
    for before, (whole, cached) in zip(known, counts[1:], strict=False):
        assert before - FEW <= cached < whole


@pytest.mark.parametrize("name", CHANGED)
def test_what_a_client_has_changed_is_what_the_model_sees(model: tuple[str, Forced], name: str) -> None:
    """Growing would be wrong: the model would see what was taken back."""
    said, words = CHANGED[name]
    session, (_, backend) = Recording(SESSIONS[name], said), model
    replayed(model, session)
    assert [False] * (len(session.steps) - 1) == backend.grew()
    for before, after in pairwise(str(ask.prompt) for ask in backend.asked):
        asked = before[: before.rindex("Assistant:")]
        assert after.startswith(asked)
        assert words in after[len(asked) :]


def test_sessions_of_all_apis_have_several_turns() -> None:
    """What was left out of a recording is asked for all the same: Codex has two calls between two requests."""
    steps = [Recording(path).steps for path in SESSIONS.values()]
    assert len([one for one in steps if len(one) > 2]) >= 6
    assert 4 == len(Recording(SESSIONS["codex"]).steps)
    assert set(DIALOGUES) == {Recording(path).api for path in SESSIONS.values()}
