"""Owns sampling presets as they are served: named by a model, the command line or a request; what is lost of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import turnscript as ts
from tests.cli.running import run
from tests.gateway.stage import APIS, Stage, Told, named
from turnscript.apis.api import Api
from turnscript.backends.ai00 import Ai00
from turnscript.core.presets import get_preset

EACH = pytest.mark.parametrize("api", APIS, ids=named)
CHAT, RESPONSES = ts.get_api("openai-chat"), ts.get_api("openai-responses")
DECAY = ("$.preset", "penalty_decay 0.99: the backend has no such setting")


def lost(stage: Stage, told: Told) -> list[tuple[str, str]]:
    """What an answer's report says was lost, by place."""
    report = stage.client.get(told.headers["x-turnscript-report"]).json()
    return [(loss["path"], loss["detail"]) for loss in report["losses"]]


def sampled(stage: Stage) -> dict[str, float]:
    """The settings of the last request to the model server."""
    return {name: value for name, value in stage.asks[0][-1].json.items() if name in get_preset("chat").values()}


def cells(line: str) -> list[str]:
    """The cells of a line of a table; one that is empty of a line without any."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()] or [""]


@EACH
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_request_names_a_preset_which_goes_before_the_settings_of_its_model(api: Api, stream: bool) -> None:
    model = {"also": ("penalty_decay",), "preset": "math"}
    with Stage(model=model) as stage:
        assert 200 == stage.ask(api, stream=stream).status
        assert get_preset("math").values() == sampled(stage)
        told = stage.ask(api, stream=stream, preset="creative")
        assert (200, []) == (told.status, lost(stage, told))
        assert get_preset("creative").values() == sampled(stage)
        own: dict[str, Any] = {"temperature": 0.125}
        stage.ask(api, stream=stream, preset="creative", **({"generationConfig": own} if api.name == "gemini" else own))
        assert get_preset("creative").values() | {"temperature": 0.125} == sampled(stage)
        stage.ask(api, stream=stream, preset=None)
        assert get_preset("math").values() == sampled(stage)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_response_says_what_was_sampled_with_and_not_what_was_asked_for(stream: bool) -> None:
    names = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
    with Stage(model={"preset": "creative", "drop": ("frequency_penalty",)}) as stage:
        for asked, expected in (
            ({}, (0.6, 0.7, 1.5, 0.0)),
            ({"temperature": 3, "presence_penalty": 0.25}, (2, 0.7, 0.25, 0.0)),
            ({"preset": "math"}, (0.3, 0.3, 0.0, 0.0)),
        ):
            told = stage.ask(RESPONSES, stream=stream, **asked)
            events = [json.loads(line[6:]) for line in told.body.splitlines() if line.startswith(b"data: {")]
            said = [one["response"] for one in events if "response" in one] if stream else [told.json]
            assert [expected] * len(said) == [tuple(one[name] for name in names) for one in said]
            assert (3 if stream else 1) == len(said)


@EACH
@pytest.mark.parametrize("said", ["creativ", "", 7, ["math"], {"name": "math"}], ids=str)
def test_what_is_no_preset_is_refused_with_those_that_there_are(api: Api, said: Any) -> None:
    with Stage() as stage:
        told = stage.ask(api, stream=False, preset=said)
        assert (400, []) == (told.status, stage.asks[0])
        assert "creative" in json.dumps(told.json)


@EACH
def test_what_a_server_does_not_take_of_a_preset_is_a_loss(api: Api) -> None:
    with Stage() as stage:
        assert [DECAY] == lost(stage, stage.ask(api, stream=False, preset="creative"))
        assert "penalty_decay" not in sampled(stage)
        assert [] == lost(stage, stage.ask(api, stream=False))


def test_what_a_server_does_not_take_of_its_models_settings_is_a_loss_too() -> None:
    with Stage(model={"preset": "creative"}) as stage:
        told = stage.ask(CHAT, stream=False)
        assert [("$.model", DECAY[1])] == lost(stage, told)
        (served,) = stage.gateway.service.models()
        assert ["its sampling has penalty_decay 0.99, which OpenAI-style text completions does not take"] == (
            served.shortfalls
        )


def test_what_a_deployment_drops_of_the_settings_is_a_loss_and_no_client_believes_it_was_heard() -> None:
    with Stage(model={"drop": ("seed", "presence_penalty")}) as stage:
        told = stage.ask(CHAT, stream=False, seed=1, presence_penalty=0.5, preset="creative")
        assert {"$.seed", "$.presence_penalty", "$.preset"} == {path for path, _ in lost(stage, told)}
        assert not {"seed", "presence_penalty"} & set(stage.asks[0][-1].json)


def test_a_server_that_takes_all_of_a_preset_loses_nothing() -> None:
    """ai00_server, whose document has these figures."""
    assert set(get_preset("chat").values()) <= set(Ai00.settings)


@pytest.mark.parametrize("name", ts.formats())
def test_the_page_of_a_format_shows_the_figures_of_its_presets(name: str) -> None:
    text, format_ = run("show", name).stdout, ts.get_format(name)
    assert bool(format_.presets) == ("\nSampling presets\n" in text)
    assert list(format_.presets) == [one["name"] for one in json.loads(run("show", name, "--json").stdout)["presets"]]
    rows = {name: rest for name, *rest in map(cells, text.splitlines()) if name in format_.presets}
    figures = {
        "math": ["0.3", "0.3", "0", "0", "0.996"],
        "chat": ["1", "0.3", "0.5", "0.5", "0.996"],
        "creative": ["0.6", "0.6 to 0.8", "1 to 2", "0 to 0.2", "0.99"],
        "chat-2026": ["1", "0.5", "2", "0.1", "0.99"],
    }
    assert {preset: figures[preset] for preset in format_.presets} == rows


def test_the_formats_whose_documents_give_presets_have_them() -> None:
    having = {name: ts.get_format(name).presets for name in ts.formats() if ts.get_format(name).presets}
    goose = ("math", "chat", "creative", "chat-2026")
    assert {"ai00-v1": goose[:3], "ai00-v0": goose} | dict.fromkeys(
        ("rwkv-goose", "rwkv-goose-hermes", "rwkv-goose-observation"), goose
    ) == having


def test_the_check_of_the_settings_shows_the_figures_and_where_each_is_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TURNSCRIPT_MODELS_DEFAULT_SAMPLING_TOP_P", "0.25")
    told = run("serve", "--backend", "http://127.0.0.1:9", "--format", "rwkv-goose", "--preset", "creative", "--check")
    assert 0 == told.exit_code
    rows = {place: rest for place, *rest in map(cells, told.stdout.splitlines())}
    place = "models.default.sampling."
    assert ["0.6", "the preset creative"] == rows[f"{place}temperature"]
    assert ["0.99", "the preset creative"] == rows[f"{place}penalty_decay"]
    assert "0.25" == rows[f"{place}top_p"][0]
    assert "preset" not in rows[f"{place}top_p"][1]
    for name in ("math", "chat", "creative", "chat-2026"):
        assert str(get_preset(name)) == f"{name}: {rows[f'presets.{name}'][0]}"


def test_a_preset_on_the_command_line_is_of_the_model_that_is_named_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("serve", "--preset", "chat")
    assert (2, True) == (told.exit_code, "there is no model for --preset" in told.stderr)
    told = run("serve", "--backend", "http://127.0.0.1:9", "--preset", "chatt", "--check")
    assert (True, True) == (told.exit_code != 0, "did you mean 'chat'" in told.stderr)
