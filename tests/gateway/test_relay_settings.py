"""Owns how a model with a chat API is set up: what its table takes, what starts say of it, what the doctor finds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.running import run
from tests.gateway.relays import KINDS, Relay, of_kind, relaying, said_text, script
from tests.gateway.scripted import RESET, said
from tests.gateway.serving import Serving
from tests.gateway.stage import NO_TLS
from tests.gateway.test_doctor import Listening
from turnscript.backends.chats import Chat
from turnscript.gateway import doctor, shipped
from turnscript.gateway.configfile import load
from turnscript.gateway.embedded import Embedded
from turnscript.gateway.kinds import InvalidConfig

MAIN = '[models.main]\nbackend = "http://h"\n'
OF_PROMPTS = {
    "format": '"rwkv-goose"',
    "template": '"chat.jinja"',
    "history": '"template"',
    "variant": '"v0"',
    "first_token": '""',
    "prepend_tokens": "[0]",
    "fill_order": '"a"',
    "prompts": "{ prompt_user = 'U' }",
    "normalize_json": "true",
    "grammar": '"off"',
    "completions": '"raw"',
    "thinking": '"on"',
    "thoughts": '["reason"]',
    "efforts": "{ low = 1 }",
    "visible": '["<x>"]',
    "state": '"s"',
    "saved_slots": "3",
}


@pytest.fixture(scope="module", params=KINDS, ids=of_kind)
def relay(request: pytest.FixtureRequest) -> Iterator[Relay]:
    """A gateway before a server of each kind."""
    kind: Chat = request.param
    with relaying(kind) as made:
        yield made


def loaded(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "turnscript.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, {})


@pytest.mark.parametrize("kind", KINDS, ids=of_kind)
@pytest.mark.parametrize("key", OF_PROMPTS)
def test_settings_of_prompts_are_refused_where_none_is_made(tmp_path: Path, kind: Chat, key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"models.main.{key}.*kind '{kind.name}'"):
        loaded(tmp_path, f'{MAIN}kind = "{kind.name}"\n{key} = {OF_PROMPTS[key]}\n')


def test_other_settings_are_taken_and_shown(tmp_path: Path) -> None:
    text = f'{MAIN}kind = "chat"\nupstream_model = "qwen3"\ncontext = 9000\nslots = 3\nalso = ["top_k"]\n'
    (model,) = loaded(tmp_path, text + "[models.main.sampling]\ntemperature = 0.5\n").models
    assert (None, "qwen3", 9000) == (model.takes, model.upstream_model, model.context)
    shown = run("serve", "--config", tmp_path / "turnscript.toml", "--check").stdout
    assert "models.main.kind" in shown
    assert "models.main.format" not in shown


def test_the_command_line_says_which_and_what_it_calls_its_model() -> None:
    told = run("serve", "--backend", "http://h/v1", "--kind", "messages", "--upstream-model", "big", "--check")
    assert 0 == told.exit_code, told.stderr
    assert ["messages", "big"] == [
        line.split()[1] for line in told.stdout.splitlines() if ".kind" in line or "upstream" in line
    ]
    refused = run("serve", "--backend", "http://h/v1", "--kind", "chat", "--format", "rwkv-goose", "--check")
    assert "takes no prompt" in refused.stderr
    alone = run("serve", "--upstream-model", "big")
    assert "--upstream-model" in alone.stderr


def test_a_server_as_a_process_says_what_it_stands_before(tmp_path: Path, relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Hello")))
    config = tmp_path / "turnscript.toml"
    model = f'[models.default]\nbackend = "{relay.server.url}/v1"\nkind = "{relay.kind.name}"\n'
    config.write_text(f"[logs]\njson = true\n{model}")
    with Serving(tmp_path, relay.server.url) as process:
        listed = process.client.get("/v1/models").json()["data"]
        assert ["default"] == [model["id"] for model in listed]
        body: Any = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        told = process.client.post("/v1/chat/completions", json=body).json()
        assert "Hello" == told["choices"][0]["message"]["content"]
        assert process.client.get("/health").json()["models"]["default"]["up"]
        assert f"with {relay.kind.title}" in "".join(process.lines)
        assert [] == [line for line in process.complaints if not line.startswith("  ")]


# The doctor.


def looked_at(relay: Relay, **changes: Any) -> Listening:
    told = Listening()
    config = relay.gateway.service.config
    model = config.models[0]
    for name, value in changes.items():
        model = type(model)(**{field: getattr(model, field) for field in model.__struct_fields__} | {name: value})
    asyncio.run(doctor.examine(model, config, told))
    return told


def test_the_doctor_asks_whether_it_answers_and_lists_the_model(relay: Relay) -> None:
    relay.play(script(relay.kind, said_text("Hello")))
    told = looked_at(relay)
    assert [*doctor.CHAT] == [check.name for check in told.checks]
    assert [] == told.states("fault") + told.states("warning"), told.checks
    assert "upstream-model" in told["about"].detail
    assert "'stop'" in told["answers"].detail
    assert "does not list" in looked_at(relay, upstream_model="other")["about"].detail


def test_the_doctor_finds_what_is_wrong() -> None:
    kind = KINDS[0]
    with relaying(kind, models=("one", "two")) as relay:
        relay.play(said({"error": {"message": "bad key", "type": "authentication_error"}}, 401))
        told = looked_at(relay)
        assert ["about"] == told.states("warning")
        assert "bad key" in told["answers"].detail
        relay.play([RESET])
        assert "fault" == looked_at(relay)["answers"].state
        relay.play(script(kind, usage=None))
        assert "says nothing" in looked_at(relay)["answers"].detail


def test_the_doctor_and_a_gateway_with_llamacpp_inside() -> None:
    with Embedded(shipped.FILE, context=2048, parallel=1, threads=1) as model:
        told = run("doctor", "--backend", model.url, "--kind", "responses", "--json")
    assert 0 == told.exit_code, told.stdout
    assert ["ok"] * 3 == [check["state"] for check in json.loads(told.stdout)["servers"][0]["checks"]]


def test_a_file_is_served_through_the_chat_api_of_llamacpp(tmp_path: Path) -> None:
    config = tmp_path / "turnscript.toml"
    config.write_text(f'[models.default]\nbackend = "embedded:{shipped.FILE}"\nkind = "messages"\ncontext = 2048\n')
    with Serving(tmp_path, "") as process:
        body: Any = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        told = httpx2.post(f"{process.url}/v1/messages", json=body, verify=NO_TLS, timeout=60)
        assert 200 == told.status_code, told.text
