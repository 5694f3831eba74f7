"""Owns what becomes of a conversation whose slot went to another one, before the real llama.cpp with a recurrent model.

Its answers are noise, and always the same noise for the same state: so they tell whether a state is what it was.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec import Struct

from tests.gateway import tinygguf
from tests.gateway.dialogue import DIALOGUES, WHOLE
from tests.gateway.forced import forced, tokens
from tests.gateway.running import Running
from tests.gateway.speaker import call, odd, text
from tests.gateway.stage import NO_TLS, WEATHER
from tests.gateway.tinygguf import words
from turnscript.backends.backend import Backend, Completion, HttpCall, SlotAction
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.core.conversation import ToolCall
from turnscript.gateway import doctor_load
from turnscript.gateway.config import Config
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.embedded import Embedded
from turnscript.gateway.pool import Member, Pool, open_any
from turnscript.gateway.served import Served
from turnscript.gateway.sessions import SlotFiles
from turnscript.gateway.upstream import Upstream

SYSTEM = words(250, seed=7)
"""What all conversations of a program begin with: nearly all of each."""
ROUNDS = 3


class Turn(Struct):
    """One turn: what was written, how likely each token of it was, the tokens of the prompt, and how many of those were
    there already. The likelihoods tell states apart where the noise that they make is the same."""

    text: str
    likely: list[float]
    read: int
    cached: int


Said = dict[str, list[Turn]]
Written = dict[str, list[tuple[str, list[float]]]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tinygguf.write_rwkv7(tmp_path_factory.mktemp("models") / "rwkv7.gguf")


async def turn(pool: Pool, name: str, prompt: str) -> Turn:
    """The next turn of a conversation: letters, which are the same tokens in the prompt after it."""
    greedy = {"temperature": 0, "ignore_eos": True, "logprobs": True, "top_logprobs": 1}
    ask = Completion(prompt=prompt, max_tokens=8, sampling=greedy, grammar="root ::= [a-z ]+")
    async with open_any(pool, ask, name) as (answer, _):
        pieces = [piece async for some in answer for piece in some]
    usage = pieces[-1].usage
    assert usage is not None
    likely = [round(token.logprob, 5) for piece in pieces for token in piece.logprobs or ()]
    assert 8 == len(likely)
    return Turn("".join(piece.text for piece in pieces), likely, usage.input, usage.cached)


async def talk(pool: Pool, names: Sequence[str]) -> Said:
    """Conversations that take turns with each other."""
    prompts = {name: f"{SYSTEM}\n\nUser: I am {name}.\n\nAssistant:" for name in names}
    said: Said = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            told = await turn(pool, name, prompts[name])
            said[name].append(told)
            prompts[name] += f"{told.text}\n\nUser: And then?\n\nAssistant:"
    return said


def run(model: Path, names: Sequence[str], slots: int, files: int = 0) -> tuple[Said, dict[str, int]]:
    """The same on a server with so many slots, which keeps so many files; and what it did with those."""

    async def talking(url: str) -> tuple[Said, dict[str, int]]:
        upstream = Upstream(url, LlamaCpp())
        kept = SlotFiles(upstream, files) if files else None
        pool = Pool([Member(upstream, 1, kept)])
        try:
            return await talk(pool, names), kept.done if kept is not None else {}
        finally:
            await pool.close()

    with Embedded(model, context=2048, parallel=slots, threads=1, keeps=bool(files)) as server:
        found = asyncio.run(talking(server.url))
        if server.folder is not None:
            names_ = sorted(one.name for one in server.folder.iterdir())
            assert all(re.fullmatch(r"turnscript-\d+", name) for name in names_)
            assert 0 < len(names_) <= files
    assert not files or (server.folder is not None and not server.folder.exists())
    return found


def lost(said: Said) -> list[str]:
    """The conversations of which a turn was read again, though it had been read before."""
    return [name for name, turns in said.items() if any(now.cached < before.read for before, now in pairwise(turns))]


def written(said: Said) -> Written:
    """What each of them wrote, and how."""
    return {name: [(one.text, one.likely) for one in turns] for name, turns in said.items()}


def alike(alone: Written, said: Said) -> bool:
    """Whether all wrote what they write alone, from the same state: those of others are ten times as far away."""
    for name, turns in written(said).items():
        for (wrote, likely), (expected, as_likely) in zip(turns, alone[name], strict=True):
            if wrote != expected or likely != pytest.approx(as_likely, abs=5e-5):
                return False
    return True


NAMES = ["Ann", "Bob", "Cid"]


@pytest.fixture(scope="module")
def alone(model: Path) -> Written:
    """What each writes that nobody interrupts."""
    found = {name: written(run(model, [name], slots=1)[0])[name] for name in NAMES}
    last = [turns[-1][1] for turns in found.values()]
    assert all(one != pytest.approx(other, abs=2e-4) for one, other in pairwise([*last, last[0]]))
    return found


def test_a_conversation_whose_slot_went_to_another_one_is_read_again(model: Path, alone: Written) -> None:
    said, _ = run(model, NAMES, slots=2)
    assert NAMES == lost(said)
    assert alike(alone, said)


@pytest.mark.parametrize("slots", [1, 2])
def test_a_state_that_was_saved_is_put_back_as_it_was(model: Path, alone: Written, slots: int) -> None:
    said, done = run(model, NAMES, slots=slots, files=3)
    assert [] == lost(said)
    assert alike(alone, said)
    assert 0 == done["failed"]
    assert len(NAMES) * (ROUNDS - 1) == done["restored"]


def test_of_more_conversations_than_files_the_oldest_is_read_again(model: Path, alone: Written) -> None:
    said, done = run(model, NAMES, slots=1, files=1)
    assert NAMES == lost(said)
    assert alike(alone, said)
    assert (0, 0) == (done["restored"], done["failed"])


def test_with_a_slot_for_each_nothing_is_read_again_and_nothing_saved(model: Path, alone: Written) -> None:
    """A slot of a recurrent model holds one state, however long its conversation is: many of them cost little."""
    said, _ = run(model, NAMES, slots=4)
    assert [] == lost(said)
    assert alike(alone, said)


# Through the gateway.


def counted(url: str) -> dict[str, float]:
    """What the metrics say of files."""
    lines = httpx2.get(f"{url}/metrics", verify=NO_TLS).text.splitlines()
    found = [re.fullmatch(r'turnscript_slot_files_total\{done="(\w+)".*\} (\S+)', line) for line in lines]
    return {one[1]: float(one[2]) for one in found if one is not None}


def test_dialogues_of_every_api_go_on_in_one_slot(model: Path) -> None:
    """Each has a call, spelled as no program would, and is known when it comes back."""
    with (
        Embedded(model, context=4096, parallel=1, threads=1, keeps=True) as server,
        forced(server.url, LlamaCpp(), saved_slots=5) as (url, backend),
    ):
        dialogues = [DIALOGUES[api](url, WHOLE, [WEATHER]) for api in DIALOGUES]
        before = [0] * len(dialogues)
        for number, dialogue in enumerate(dialogues):
            dialogue.user(f"This is number {number}. " + SYSTEM)
        for said in (call("get_weather", city="Tokyo"), text("It is clear."), text("Yes."), text("Bye.")):
            for number, dialogue in enumerate(dialogues):
                backend.say(said, change=odd if isinstance(said, ToolCall) else str)
                told = dialogue.ask()
                whole, cached = tokens(told.whole)
                assert max(0, before[number] - 8) <= cached < whole, (number, said)
                before[number] = whole
                if told.calls:
                    dialogue.results({one.id: '{"sky": "clear"}' for one in told.calls})
                else:
                    dialogue.user("Thank you.")
        done = counted(url)
    assert 3 * len(dialogues) == done["restored"]
    assert 0 == done["failed"]


def test_a_model_inside_the_process_keeps_them_in_a_folder_that_goes_with_it(model: Path) -> None:
    config = Config.for_backend(f"embedded:{model}", "rwkv-goose", slots=1, saved_slots=4, context=4096)
    with Running(config) as gateway:
        for more in ("", " And then?"):
            for name in NAMES:
                ask = {"model": "m", "prompt": f"{SYSTEM} I am {name}.{more}", "max_tokens": 4, "temperature": 0}
                named = {"x-session-id": name}
                told = httpx2.post(f"{gateway.url}/v1/completions", json=ask, headers=named, verify=NO_TLS, timeout=20)
                assert 200 == told.status_code
        assert 3 == counted(gateway.url)["restored"]
        [engine] = gateway.service.models()[0]._engines
        folder = engine.folder
        assert folder is not None
        assert list(folder.iterdir())
    assert not folder.exists()


# The doctor.


def prefix_reuse(url: str, backend: Backend | None = None, **model: Any) -> Check:
    """What the doctor says of it."""

    async def run() -> Check:
        config = Config.for_backend(url, "rwkv-goose", **model)
        served = Served(config.models[0], config, 0)
        try:
            await served.ready()
            patient = Patient(served, served.pool.members[0].upstream, config)
            patient.facts = await patient.upstream.facts()
            patient.upstream.backend = backend or patient.upstream.backend
            return await doctor_load.prefix(patient)
        finally:
            await served.close()

    return asyncio.run(run())


def test_the_doctor_says_what_the_loss_of_a_slot_costs(model: Path, llamacpp: str) -> None:
    with Embedded(model, context=4096, parallel=1, threads=1, keeps=True) as server:
        unsaved, saved = prefix_reuse(server.url), prefix_reuse(server.url, saved_slots=2)
        assert server.folder is not None
        assert ["turnscript-doctor"] == [one.name for one in server.folder.iterdir()]
    assert ("ok", "ok") == (unsaved.state, saved.state)
    assert "because the model cannot go back: with `--parallel 16`" in unsaved.detail
    assert "it is known again after another one was in its slot" in saved.detail
    assert int(str(unsaved.figures["cached_after_another"])) < 1200 < int(str(saved.figures["cached_after_another"]))
    assert "costs it what they do not share" in prefix_reuse(llamacpp).detail


def test_the_doctor_finds_that_no_slot_can_be_saved(llamacpp: str) -> None:
    found = prefix_reuse(llamacpp, saved_slots=2)
    assert "fault" == found.state
    assert "a slot is not saved" in found.detail
    assert "--slot-save-path" in found.detail
    assert "start llama.cpp with `--slot-save-path FOLDER`" in found.remedy


def test_the_doctor_finds_a_server_that_puts_states_back_in_vain(model: Path) -> None:
    """As many releases of llama.cpp do with recurrent models; here, because something else is put back."""

    class Vain(LlamaCpp):
        def slot_call(self, action: SlotAction, slot: int, file: str) -> HttpCall:
            return super().slot_call("save", slot, file)

    with Embedded(model, context=4096, parallel=1, threads=1, keeps=True) as server:
        found = prefix_reuse(server.url, Vain(), saved_slots=2)
    assert "warning" == found.state
    assert "is read from its beginning nevertheless" in found.detail
