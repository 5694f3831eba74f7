"""The doctor: healthy servers are said to be healthy, and each fault is found, with what to do about it."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import json
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.clocks import scaled
from tests.gateway import tinygguf
from tests.gateway.ailing import SMILES, TOKENS, Model
from tests.gateway.scripted import Asked, Script, Scripted, said
from tests.gateway.stage import Stage
from turnscript.gateway import doctor, doctor_load
from turnscript.gateway.config import Config
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.doctor_probe import PATIENCE, Patient
from turnscript.gateway.doctor_server import stop_in
from turnscript.gateway.embedded import Embedded
from turnscript.gateway.served import Served

FORMAT = "rwkv-universal"


@dataclass
class Listening:
    """What was told."""

    servers: list[str] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)

    def server(self, model: str, url: str) -> None:
        self.servers.append(url)

    def begin(self, name: str) -> None:
        self.begun.append(name)

    def tell(self, check: Check) -> None:
        self.checks.append(check)

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def states(self, state: str) -> list[str]:
        """The names of the checks with a state."""
        return [check.name for check in self.checks if check.state == state]


async def looked_at(url: str, format_: str | None = FORMAT, *, quick: bool = True, **model: Any) -> Listening:
    config = Config.for_backend(url, format_, **model)
    told = Listening()
    await doctor.examine(config.models[0], config, told, quick=quick)
    assert all(bool(check.remedy) == (check.state != "ok") for check in told.checks)
    assert all(check.detail for check in told.checks)
    return told


def look(url: str, format_: str | None = FORMAT, **options: Any) -> Listening:
    return asyncio.run(looked_at(url, format_, **options))


# Real servers.

ALL = [*doctor.FIRST, *doctor.REST, *doctor.SUITE]


def test_a_real_server_with_a_transformer_is_well(llamacpp: str) -> None:
    told = look(llamacpp, "batuta-chatml", quick=False)
    assert ALL == [check.name for check in told.checks] == told.begun
    assert [] == told.states("fault"), told.checks
    assert {"kind": "llamacpp"}.items() <= told["reachable"].figures.items()
    assert {"context": 2048, "slots": 2}.items() <= told["about"].figures.items()
    assert {"finish_reason": "length", "tokens": 48, "usage": True}.items() <= told["streams"].figures.items()
    assert {"done": "cut", "named": True}.items() <= told["stop strings"].figures.items()
    assert {"control": ["<|im_end|>", "<|im_start|>"], "hidden": []}.items() <= told["special tokens"].figures.items()
    assert {"exact": True, "tags_that_are_tokens": 4}.items() <= told["tokenizer"].figures.items()
    assert "refused" == told["limits"].figures["overflow"]
    assert "keeps its slot" in told["prefix reuse"].detail
    assert {"asked": 2, "answered": 2}.items() <= told["parallel"].figures.items()
    assert {"cases": 8}.items() <= told["tool calls"].figures.items()


def test_a_real_server_with_a_recurrent_model_is_well(rwkv: str) -> None:
    told = look(rwkv, "rwkv-goose")
    assert ALL[:-1] == [check.name for check in told.checks]
    assert [] == told.states("fault") + told.states("warning"), told.checks
    assert "were there already" in told["prefix reuse"].detail


def test_it_says_whether_a_model_sees(seeing: str, llamacpp: str) -> None:
    told = [look(url, "batuta-chatml")["about"] for url in (seeing, llamacpp)]
    assert [True, False] == ["it sees pictures" in one.detail for one in told] == [one.figures["sees"] for one in told]


def test_the_same_server_is_well_through_its_other_wire(llamacpp: str) -> None:
    told = look(f"{llamacpp}/v1", "batuta-chatml", kind="completions")
    assert [] == told.states("fault"), told.checks
    assert "as configured" in told["reachable"].detail
    assert told["streams"].figures["done"] is True
    assert told["tokenizer"].figures["exact"] is False


def test_a_first_token_comes_twice_only_where_the_configuration_says_so(llamacpp: str) -> None:
    twice = look(llamacpp, "batuta-llama3", first_token="<|begin_of_text|>")["about"]
    assert "fault" == twice.state
    assert "leave out `first_token`" in twice.remedy
    assert "ok" == look(llamacpp, "batuta-llama3", first_token="")["about"].state
    once = look(llamacpp, "batuta-llama3")["about"]
    assert "ok" == once.state
    assert "it puts '<|begin_of_text|>' before each prompt" in once.detail


def test_a_control_token_that_a_user_can_write_is_named(llamacpp: str) -> None:
    forged = look(llamacpp, FORMAT)["tokenizer"]
    assert "warning" == forged.state
    assert ["<|im_end|>", "<|begin_of_text|>"] == forged.figures["forged"]


def test_a_blank_line_that_ends_turns_is_told_until_the_server_ignores_it(tmp_path: Path) -> None:
    path = tinygguf.write_rwkv7(tmp_path / "blank.gguf", end="\n\n")
    with Embedded(path, context=1024, parallel=1, threads=1) as model:
        told = look(model.url, "rwkv-goose")
        mended = look(model.url, "rwkv-goose", extra={"ignore_eos": True})
    assert "ok" == mended["special tokens"].state
    assert {"ends_ignored": True, "blank_line_ends": False}.items() <= mended["special tokens"].figures.items()
    assert "extra = { ignore_eos = true }" in told["special tokens"].remedy
    assert ["special tokens", "parallel"] == told.states("warning") or ["special tokens"] == told.states("warning")
    assert "--ignore-eos" in told["special tokens"].remedy
    assert [] == told.states("fault")


@pytest.mark.parametrize(("blank", "format_", "state"), [(True, "rwkv-goose", "ok"), (False, "batuta-chatml", "fault")])
def test_a_server_that_ignores_ends_is_right_for_stop_strings_only(
    tmp_path: Path, blank: bool, format_: str, state: str
) -> None:
    path = tmp_path / "model.gguf"
    path = tinygguf.write_rwkv7(path, end="\n\n") if blank else tinygguf.write_llama(path)
    library: Any = importlib.import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path, params.port, params.n_ctx, params.n_parallel = str(path), 0, 2048, 2
    params.cpuparams.n_threads, params.warmup, params.verbosity = 1, False, -1
    params.sampling.ignore_eos = True
    server = library.Server(params)
    told = look(server.listening_address, format_)
    del server
    assert state == told["special tokens"].state
    assert ([] if state == "ok" else ["special tokens"]) == told.states("fault")


async def changed(url: str, format_: str, look_: doctor.Look, **deployment: Any) -> Check:
    """One check of a real server that is asked a little differently."""
    config = Config.for_backend(url, format_)
    served = Served(config.models[0], config, 0)
    await served.ready()
    try:
        patient = Patient(served, served.pool.members[0].upstream, config)
        patient.upstream.backend = patient.upstream.backend.configured(**deployment)
        patient.facts = await patient.upstream.facts()
        return await look_(patient)
    finally:
        await served.close()


def test_a_server_that_hides_the_tags_of_the_format_is_at_fault(llamacpp: str) -> None:
    look_ = doctor.REST["special tokens"]
    hides = asyncio.run(changed(llamacpp, "batuta-chatml", look_, drop=["preserved_tokens"]))
    assert ("fault", ["<|im_end|>", "<|im_start|>"]) == (hides.state, hides.figures["hidden"])
    assert "--special" in hides.remedy
    assert "ok" == asyncio.run(changed(llamacpp, "batuta-chatml", look_)).state


def test_a_conversation_that_is_in_another_slot_than_asked_for_is_told(llamacpp: str) -> None:
    look_ = doctor.REST["prefix reuse"]
    elsewhere = asyncio.run(changed(llamacpp, FORMAT, look_, extra={"id_slot": 0}))
    assert "warning" == elsewhere.state
    assert "slot 1 was asked for, and slot 0 answered" in elsewhere.detail


def test_characters_that_do_not_arrive_as_they_were_forced_are_a_fault(llamacpp: str) -> None:
    look_ = doctor.REST["UTF-8"]
    other = asyncio.run(changed(llamacpp, FORMAT, look_, extra={"grammar": 'root ::= "a" [a-z]*'}))
    assert "fault" == other.state


def test_a_cache_that_is_off_is_told(llamacpp: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server says so itself, and it reads fast enough for that not to matter."""
    monkeypatch.setattr(doctor_load, "_TELLING", 600.0)  # fast enough, on a busy machine too
    look_ = doctor.REST["prefix reuse"]
    off = asyncio.run(changed(llamacpp, FORMAT, look_, extra={"cache_prompt": False}))
    assert "0 0 0" == off.figures["cached"]
    assert "tells of no cache" in off.detail


# Faults, one at a time.


async def seen(script: Callable[[Asked], Script], **options: Any) -> Listening:
    async with Scripted(script) as server:
        return await looked_at(f"{server.url}/v1", **options)


def see(script: Callable[[Asked], Script], **options: Any) -> Listening:
    return asyncio.run(seen(script, **options))


def test_a_server_without_faults_has_none() -> None:
    told = see(Model())
    assert ["tokenizer"] == told.states("warning"), told.checks
    assert [] == told.states("fault")
    assert told["streams"].figures["done"] is True


def test_a_web_server_is_told_from_a_model_server() -> None:
    page = b"<!DOCTYPE HTML>\n<html lang='en'><head>\n<title>Error\nresponse</title></head><body>a b c</body></html>"

    def script(asked: Asked) -> Script:
        return said({}, status=404) if asked.line.startswith("GET") else said(page, status=501)

    told = see(script)["streams"]
    assert "answers 501: a page, 'Error response' (check the URL: " in told.detail
    assert "<" not in told.detail
    assert "correct the path of the server's URL" in told.remedy


@pytest.mark.parametrize("format_", [FORMAT, None])
def test_a_gateway_is_told_from_a_model_server(format_: str | None) -> None:
    with Stage() as stage:
        told = look(stage.url, format_)["about"]
    assert "fault" == told.state
    assert "no model server" in told.detail
    assert told.remedy.startswith("say the URL of the server behind it")


def test_a_format_that_the_model_s_own_name_does_not_tell_is_named_beside_it() -> None:
    def script(asked: Asked) -> Script:
        return said({"data": [{"id": "rwkv-universal-7b"}]}) if asked.line.startswith("GET") else Model()(asked)

    shown = [see(script, format_=name)["about"].detail for name in ("rwkv-goose", "rwkv-universal", None)]
    assert "format rwkv-goose (set; its name tells rwkv-universal)" in shown[0]
    assert [False, False] == ["; its name tells" in detail for detail in shown[1:]]


def test_a_conversation_that_goes_on_begins_with_what_was_written() -> None:
    """A recurrent model cannot go back, so only such a prompt tells whether it can go on."""
    prompts: list[str] = []
    model = Model()

    def script(asked: Asked) -> Script:
        prompts.extend([asked.json["prompt"]] if asked.body else [])
        return model(asked)

    see(script)
    first, again, longer = (prompt for prompt in prompts if prompt.startswith("Diary"))
    assert first == again
    assert f"{first}{''.join(TOKENS[:4])} And then?" == longer


def test_a_server_with_a_wire_of_its_own_is_looked_at_in_its_words() -> None:
    told = see(Model(usage=False), kind="ai00")
    assert [] == told.states("fault"), told.checks
    assert ALL[:-1] == [check.name for check in told.checks]
    assert "ai00_server as configured" in told["reachable"].detail


FAULTS: list[tuple[str, Model, str, str, str]] = [
    ("stop strings are left in the text", Model(stop="echoed"), "stop strings", "warning", "leaves it in the text"),
    ("stop strings are ignored", Model(stop="dropped"), "stop strings", "warning", "goes on past it"),
    ("a stop is said to be the limit", Model(finish="length"), "stop strings", "fault", "cut off at its limit"),
    ("each answer differs", Model(random=True), "stop strings", "warning", "differently each time"),
    ("all comes at the end", Model(buffered=0.4), "streams", "fault", "does not stream"),
    ("no tokens are counted", Model(usage=False), "streams", "warning", "does not count tokens"),
    ("no reason is given", Model(reasons=False), "streams", "fault", "does not say why"),
    ("the end comes late", Model(late=0.4), "streams", "warning", "after its last text"),
    ("the limit is said to be an end", Model(finish="stop"), "limits", "fault", "said to have ended by itself"),
    ("the limit is not kept", Model(tokens=TOKENS[:60], limits=False), "limits", "fault", "does not keep to it"),
    ("the limit is exceeded", Model(overrun=2), "limits", "warning", "3 tokens were written where 1 was"),
    (
        "a long prompt is answered",
        Model(refusal=said({"choices": [{"text": "a", "finish_reason": "length"}]})),
        "limits",
        "warning",
        "longer than",
    ),
    ("a long prompt is refused in other words", Model(refusal=said({}, 400)), "limits", "warning", "not clearly"),
    ("characters are broken", Model(tokens=SMILES, broken=True), "UTF-8", "fault", "broken in a stream"),
    ("the model writes broken ones", Model(tokens=["\ufffd", "a"] * 50), "UTF-8", "warning", "the model wrote them"),
    ("no context is known", Model(context=None), "about", "warning", "how long its context is"),
    ("nothing is written", Model(tokens=[]), "streams", "fault", "has no text"),
    ("everything fails", Model(errors=500), "streams", "fault", "out of order"),
    ("the key is wrong", Model(errors=401), "streams", "fault", "out of order"),
    ("requests are queued", Model(serial=0.3), "parallel", "warning", "one after another"),
]


@pytest.mark.parametrize(
    ("model", "name", "state", "words"), [one[1:] for one in FAULTS], ids=[one[0].replace(" ", "-") for one in FAULTS]
)
@scaled
def test_a_fault_is_found(model: Model, name: str, state: str, words: str, scale: float) -> None:
    times = {one: getattr(model, one) * scale for one in ("buffered", "late", "serial")}
    check = see(dataclasses.replace(model, said=[], free_at=0, **times))[name]
    assert state == check.state, check
    assert words in check.detail
    assert check.remedy


def test_stop_strings_are_found_by_the_gateway_whatever_the_server_does() -> None:
    for stop in ("cut", "echoed", "dropped"):
        assert "the gateway finds it" in see(Model(stop=stop))["stop strings"].detail


def test_a_model_that_says_little_is_no_fault() -> None:
    """It ends by itself before any limit."""

    def script(asked: Asked) -> Script:
        model = Model(tokens=[" nine", "."])
        if asked.body and asked.json["max_tokens"] > 2:
            model.finish = "stop"
        return model(asked)

    told = see(script)
    assert [] == told.states("fault"), told.checks
    assert "the model writes no more" in told["limits"].detail


def test_a_server_that_loads_its_model_first_is_no_fault() -> None:
    model = Model(buffered=0.4)

    def script(asked: Asked) -> Script:
        steps = model(asked)
        if asked.body:
            model.buffered = 0
        return steps

    assert "ok" == see(script)["streams"].state


def test_a_server_without_a_stream_is_told() -> None:
    model = Model()

    def script(asked: Asked) -> Script:
        if not asked.body:
            return model(asked)
        asked.body = json.dumps(asked.json | {"stream": False}).encode()
        return model(asked)

    told = see(script)
    assert ("warning", True) == (told["streams"].state, "in one piece" in told["streams"].detail)
    assert "cut" == told["stop strings"].figures["done"]


def test_nothing_else_is_asked_of_a_server_that_cannot_answer() -> None:
    for model in (Model(errors=500), Model(tokens=[])):
        told = see(model)
        assert ["reachable", "about", "words", "streams"] == [check.name for check in told.checks]
    assert "key" in see(Model(errors=401))["streams"].remedy


def test_a_server_that_wants_a_key_is_asked_nothing_more() -> None:
    async def run() -> Listening:
        async with Scripted(lambda asked: said({"error": {"message": "no key"}}, status=401)) as server:
            return await looked_at(server.url, None)

    (check,) = asyncio.run(run()).checks
    assert ("reachable", "fault") == (check.name, check.state)
    assert "TURNSCRIPT_MODELS_DEFAULT_API_KEY" in check.remedy


def test_a_long_answer_is_left_at_once() -> None:
    """So nothing is left running on the server."""

    async def run() -> None:
        model = Model(pause=0.002)
        async with Scripted(model) as server:
            told = await looked_at(f"{server.url}/v1")
            assert "ok" == told["cancel"].state
            (long,) = [n for n, one in enumerate(server.asked) if one.body and one.json.get("max_tokens", 0) >= 200]
            assert await server.until_gone(long)  # it was not over

    asyncio.run(run())


def test_a_server_that_goes_on_for_nobody_is_found() -> None:
    model = Model(pause=0.002)
    long: list[bool] = [False]

    def script(asked: Asked) -> Script:
        limit = asked.json["max_tokens"] if asked.body else 0
        long.append(limit >= 200)
        return [1.3, *model(asked)] if long[-2] else model(asked)

    told = see(script)
    assert ["cancel"] == told.states("fault")
    assert "for nobody" in told["cancel"].detail


def test_a_server_that_takes_one_request_at_a_time_only_is_found() -> None:
    model = Model()

    def script(asked: Asked) -> Script:
        busy = asked.body and asked.json["prompt"].startswith("1. ")
        return said({"error": {"message": "busy"}}, status=503) if busy else model(asked)

    told = see(script)
    assert ["parallel"] == told.states("fault")
    assert "backend_running = 1" in told["parallel"].remedy


@pytest.mark.parametrize(
    ("slow", "state"), [(lambda longer: 0.3, "warning"), (lambda longer: 0.01 if longer else 0.3, "ok")]
)
@scaled
def test_a_server_that_does_not_say_what_it_had_is_judged_by_its_time(
    slow: Callable[[bool], float], state: str, scale: float
) -> None:
    model = Model(cached=False)

    def script(asked: Asked) -> Script:
        steps = list(model(asked))
        prompt = asked.json["prompt"] if asked.body else ""
        wait = scale * slow(prompt.endswith("And then?")) if prompt.startswith("Diary") else 0
        return [wait, *steps]

    assert state == see(script)["prefix reuse"].state


def test_a_prompt_that_is_only_known_as_a_whole_is_no_use() -> None:
    model = Model()

    def script(asked: Asked) -> Script:
        prompt = asked.json["prompt"] if asked.body else ""
        if prompt.startswith("Diary") and prompt.endswith("And then?"):
            model.said.clear()
        return model(asked)

    check = see(script)["prefix reuse"]
    assert "warning" == check.state
    assert "not when it goes on" in check.detail


def test_a_place_where_nothing_listens_is_a_fault_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    unknown, known = (look(url, kind=kind) for kind in ("auto", "completions"))
    for told in (unknown, known):
        assert ["reachable"] == told.states("fault") == [check.name for check in told.checks]
        assert "start the model server" in told["reachable"].remedy
        assert "nothing listens there" in told["reachable"].detail


def test_a_server_that_is_loading_is_not_ready() -> None:
    loading = see(lambda _: said({"error": {"message": "Loading model"}}, status=503), kind="completions")
    assert ["reachable"] == [check.name for check in loading.checks]
    assert "503" in loading["reachable"].detail
    assert "wait" in loading["reachable"].remedy


def test_a_model_without_a_format_is_told_and_the_rest_is_still_looked_at() -> None:
    told = see(Model(), format_=None, quick=False)
    assert ["about"] == told.states("fault")
    assert "--format" in told["about"].remedy
    assert ALL[:-1] == [check.name for check in told.checks]


def test_each_server_of_a_model_is_looked_at(llamacpp: str, rwkv: str) -> None:
    first, second = (Config.for_backend(url, FORMAT).models[0] for url in (llamacpp, rwkv))
    both = replace(first, backend=first.backend + second.backend)
    told = Listening()
    asyncio.run(doctor.examine(both, Config(models=(both,)), told, quick=True))
    assert [llamacpp, rwkv] == told.servers
    assert 2 * len(ALL[:-1]) == len(told.checks)


def test_the_page_about_the_gateway_lists_the_checks() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "gateway.md").read_text(encoding="utf-8")
    section = page.partition("## Doctor")[2]
    assert ALL == re.findall(r"^\| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)[1:]


def test_waiting_has_an_end() -> None:
    assert PATIENCE.first_byte <= 30
    assert PATIENCE.total <= 120


def test_a_stop_string_is_chosen_where_two_pieces_meet() -> None:
    assert "wn w" == stop_in(["Dow", "n", " wor", "ld"])
    assert "owwo" == stop_in(["Dow", "wor"])
    assert stop_in([" ", " ", " "]) is None
    assert stop_in(["\ufffd", "\ufffd", "\ufffd"]) is None
    assert stop_in([]) is None
