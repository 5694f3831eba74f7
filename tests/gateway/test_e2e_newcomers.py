"""Owns the first minutes with `turnscript serve`: what it says when something is wrong or missing, and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import pytest

from tests.cli.running import run
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, said
from tests.gateway.stage import NO_TLS, Threaded
from turnscript.cli.failures import Failed
from turnscript.cli.listening import listening
from turnscript.cli.serve import _banner, _overrides
from turnscript.gateway.config import Config
from turnscript.gateway.configfile import load

GIVEN = {
    "host": None,
    "port": 0,
    "public": None,
    "backend": "http://127.0.0.1:9",
    "format_": "rwkv-goose",
    "kind": None,
}
ASK = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def unknown(asked: Asked) -> Script:
    """A server whose model's name tells nothing."""
    return said({"data": [{"id": "mystery"}]})


@pytest.fixture(scope="module")
def mystery() -> Iterator[Running]:
    """A gateway before it."""
    with Threaded() as thread, thread.server(unknown) as server, Running(unsaid(server.url)) as gateway:
        yield gateway


def unsaid(url: str) -> Config:
    """A configuration that says where a model runs, and nothing else."""
    return Config.for_backend(f"{url}/v1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "rwkv-universal"], ["there is no model for --format", "add --backend URL"]),
        (["--kind", "ai00", "--format", "rwkv-universal"], ["no model for --format and --kind", "add --backend URL"]),
        (["--backend", "localhost:8080"], ["http://127.0.0.1:8080", "embedded:FILE"]),
        (["--backend", "http://127.0.0.1:9", "--format", "rwkv-univresal"], ["rwkv-univresal", "'rwkv-universal'"]),
        (["--backend", "http://127.0.0.1:9", "--kind", "llama"], ["llama", "'llamacpp'"]),
        (["--backend", "embedded:nothere.gguf"], ["there is no file", "nothere.gguf"]),
        (["--backend", "http://127.0.0.1:9", "--port", "99999"], ["65535", "99999"]),
        (
            ["--backend", "http://127.0.0.1:9", "--host", "0.0.0.0"],
            ["turnscript keys add", "public", "(on the command line)"],
        ),
        (["--backend", "my.gguf", "--format", "rwkv-universal"], ["a model file needs `embedded:` before its path"]),
        (["--json"], ["--json goes with --check"]),
        (["--config", "nothere.toml"], ["nothere.toml", "no such file"]),
    ],
    ids=[
        "no backend",
        "kind alone",
        "no scheme",
        "format",
        "kind",
        "file",
        "port",
        "host",
        "bare file",
        "json",
        "config",
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    arguments: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    told = run("serve", *arguments)
    assert told.exit_code in (1, 2)
    assert "Traceback" not in told.stderr
    for word in words:
        assert word in told.stderr


@pytest.mark.parametrize("port", ["99999", "-1", "http"])
def test_a_port_that_there_cannot_be_is_wrong_use(port: str) -> None:
    told = run("serve", "--port", port)
    assert (2, "") == (told.exit_code, told.stdout)
    assert "'--port'" in told.stderr
    assert port in told.stderr


GUARDED = """
[server]
keys = "keys.jsonl"

[policy]
losses = "error"

[models.mine]
backend = "https://models.example.org/v1"
api_key_env = "THERE_IS_NO_SUCH_VARIABLE"
"""


@pytest.mark.parametrize("named", [[], ["--config", "turnscript.toml"]], ids=["found", "named"])
def test_beside_a_backend_the_file_counts_and_its_models_do_not(
    named: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turnscript.toml").write_text(GUARDED, encoding="utf-8")
    told = run("serve", "--backend", "http://127.0.0.1:9", *named, "--check", "--json")
    assert 0 == told.exit_code, told.stderr
    settings = {one["path"]: (one["value"], one["where"]) for one in json.loads(told.stdout)}
    assert ("keys.jsonl", "turnscript.toml") == (Path(settings["server.keys"][0]).name, settings["server.keys"][1])
    assert ("error", "turnscript.toml") == settings["policy.losses"]
    assert ("http://127.0.0.1:9", "the command line") == settings["models.default.backend"]
    assert [] == [path for path in settings if "mine" in path]
    assert "the models in turnscript.toml are left out" in told.stderr


def test_a_server_with_a_backend_asks_for_the_keys_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "turnscript.toml").write_text('[server]\nkeys = "keys.jsonl"\n', encoding="utf-8")
    assert 0 == run("serve", "--backend", "http://127.0.0.1:9", "--host", "0.0.0.0", "--check").exit_code


def test_a_format_alone_is_not_blamed_on_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "turnscript.toml"
    file.write_text('[models.mine]\nbackend = "http://127.0.0.1:9"\n', encoding="utf-8")
    told = run("serve", "--format", "rwkv-goose", "--check")
    assert 2 == told.exit_code
    assert "no --backend is given, so there is no model for --format\n  add --backend URL" in told.stderr
    assert "models.default" not in told.stderr
    file.write_text('[models.default]\nbackend = "http://127.0.0.1:9"\n', encoding="utf-8")
    assert "rwkv-goose" in run("serve", "--format", "rwkv-goose", "--check").stdout


def test_every_fault_of_a_configuration_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = '[server]\nprot = 1\n[limits]\nwait = "soon"\n[models.main]\nbackend = "h"\nformat = "rwkv-gose"\n'
    (tmp_path / "turnscript.toml").write_text(text, encoding="utf-8")
    told = run("serve", "--check")
    assert (1, "") == (told.exit_code, told.stdout)
    shown = [line for line in told.stderr.splitlines() if not line.startswith(" ")]
    places = ["server.prot", "limits.wait", "models.main.backend", "models.main.format"]
    assert [f"turnscript: error: {place}" for place in places] == [": ".join(line.split(": ")[:3]) for line in shown]


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_a_wrong_backend_is_one_error(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = run(command, "--backend", "localhost:8080")
    assert (2, 1) == (told.exit_code, told.stderr.count("turnscript: error: ")), told.stderr


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("nowhere.invalid", "nowhere.invalid:8400: this name is not known\n  give an address of this machine"),
        ("192.0.2.1", "192.0.2.1:8400: cannot assign requested address\n  give an address of this machine"),
    ],
)
def test_a_place_where_nobody_can_listen_is_told(host: str, words: str) -> None:
    with pytest.raises(Failed) as told:
        listening(host, 8400)
    assert words in f"{told.value.message}\n  {told.value.remedy}"


def test_options_of_the_command_line_are_settings_of_the_model() -> None:
    config = load(None, {}, _overrides(GIVEN | {"kind": "llamacpp"}))
    (model,) = config.models
    assert ("llamacpp", "rwkv-goose", 0) == (model.kind, model.takes.name if model.takes else "", config.server.port)


def test_a_model_that_tells_no_format_is_pointed_at(mystery: Running, capsys: pytest.CaptureFixture[str]) -> None:
    _banner(mystery.service, mystery.url)
    shown = capsys.readouterr().err
    assert "with no prompt format yet" in shown
    assert "--format NAME" in shown
    assert "does not answer" not in shown
    told = httpx2.post(f"{mystery.url}/v1/chat/completions", json=ASK, verify=NO_TLS)
    assert 400 == told.status_code
    assert "--format NAME" in told.json()["error"]["message"]


def test_a_server_that_is_down_is_pointed_at_and_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with Running(Config.for_backend("http://127.0.0.1:9", "rwkv-goose")) as gateway:
        _banner(gateway.service, gateway.url)
        shown = capsys.readouterr().err
        assert "http://127.0.0.1:9 with rwkv-goose  (does not answer yet)" in shown
        assert f"OPENAI_BASE_URL={gateway.url}/v1" in shown
        health = httpx2.get(f"{gateway.url}/health", verify=NO_TLS).json()["models"]["default"]
        assert (False, 1) == (health["up"], health["servers"])
        told = httpx2.post(f"{gateway.url}/v1/chat/completions", json=ASK, verify=NO_TLS)
        assert 502 == told.status_code
        assert "http://127.0.0.1:9: nothing listens there" in told.json()["error"]["message"]


def test_a_start_that_waits_says_for_what(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("turnscript.gateway.service.PATIENCE", 0.02)
    caplog.set_level("INFO", "turnscript")
    with Threaded() as thread, thread.server(lambda asked: [0.2, *unknown(asked)]) as server:
        with Running(Config.for_backend(server.url, "rwkv-goose")):
            pass
        (waited,) = [one for one in caplog.records if one.getMessage() == "waiting for the model"]
        assert {"model": "default", "backend": server.url} == waited.__dict__["fields"]


def test_a_server_that_is_started_later_is_found_without_a_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("turnscript.gateway.service.AGAIN", 0.05)
    caplog.set_level("INFO", "turnscript")
    started: list[bool] = []

    def script(asked: Asked) -> Script:
        return said({"data": [{"id": "rwkv-universal-7b"}]}) if started else said("", status=503)

    with Threaded() as thread, thread.server(script) as server, Running(Config.for_backend(server.url)) as gateway:
        (model,) = gateway.service.models()
        assert not model.health()["up"]
        started.append(True)
        deadline = time.monotonic() + 60
        while told_of_models(caplog)[-1:] != ["model ready"] and time.monotonic() < deadline:
            time.sleep(0.02)
        health = httpx2.get(f"{gateway.url}/health", verify=NO_TLS).json()["models"]["default"]
        assert (True, "rwkv-universal") == (health["up"], model.format.name)
    assert ["model not ready", "model ready"] == told_of_models(caplog)


def told_of_models(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says of models so far."""
    return [event for one in list(caplog.records) if (event := one.getMessage()).startswith("model ")]


def test_a_server_that_is_started_anew_with_another_model_is_believed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "turnscript")
    card = {"id": "rwkv-universal-1b", "max_model_len": 16}

    def script(asked: Asked) -> Script:
        if asked.line.startswith("GET"):
            return said({"data": [card]})
        return said({"choices": [{"text": asked.json["prompt"][:5], "finish_reason": "stop"}]})

    def told(gateway: Running) -> tuple[int, str, int]:
        long = ASK | {"max_tokens": 4, "messages": [{"role": "user", "content": "word " * 99}]}
        answer = httpx2.post(f"{gateway.url}/v1/chat/completions", json=long, verify=NO_TLS)
        context = httpx2.get(f"{gateway.url}/v1/models", verify=NO_TLS).json()["data"][0]["max_model_len"]
        return answer.status_code, gateway.service.models()[0].format.name, context

    with Threaded() as thread, thread.server(script) as server, Running(unsaid(server.url)) as gateway:
        served = gateway.service.models()[0]
        assert (400, "rwkv-universal", 16) == told(gateway)
        card |= {"id": "rwkv7-g1-1.5b", "max_model_len": 4096}
        gateway.run(served.pool.check())
        assert (200, "rwkv-goose", 4096) == told(gateway)
        gateway.run(served.pool.check())
        card |= {"id": "mystery"}
        gateway.run(served.pool.check())
        ready = [one.__dict__["fields"] for one in caplog.records if one.getMessage() == "model ready"]
        names = ("server", "context", "format")
        told_again = [("rwkv7-g1-1.5b", 4096, "rwkv-goose"), ("mystery", 4096, None)]
        assert told_again == [tuple(fields[name] for name in names) for fields in ready]
        assert 400 == httpx2.post(f"{gateway.url}/v1/chat/completions", json=ASK, verify=NO_TLS).status_code


def keyed(asked: Asked) -> Script:
    """A server that tells nothing without its key."""
    if asked.headers.get("authorization") == "Bearer right":
        return said({"data": [{"id": "rwkv-universal-7b"}]})
    return said({"error": {"message": "no key"}}, status=401)


def half_keyed(asked: Asked) -> Script:
    """One that lists its model to everybody, as llama.cpp does."""
    return said({"data": [{"id": "rwkv-universal-7b"}]}) if "/models" in asked.line else keyed(asked)


@pytest.mark.parametrize("format_", [None, "rwkv-goose"])
@pytest.mark.parametrize("script", [keyed, half_keyed])
def test_a_server_that_wants_a_key_is_pointed_at(
    script: Callable[[Asked], Script], format_: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    with Threaded() as thread, thread.server(script) as server:
        with Running(Config.for_backend(server.url, format_)) as gateway:
            _banner(gateway.service, gateway.url)
            shown = capsys.readouterr().err
            assert ("TURNSCRIPT_MODELS_DEFAULT_API_KEY" in shown, "--format NAME" in shown) == (True, False)
            told = httpx2.post(f"{gateway.url}/v1/chat/completions", json=ASK, verify=NO_TLS)
            assert (502, True) == (told.status_code, "check the key" in told.json()["error"]["message"])
        env = {"TURNSCRIPT_MODELS_DEFAULT_API_KEY": "right"}
        with Running(load(None, env, _overrides(GIVEN | {"backend": server.url, "format_": format_}))) as gateway:
            _banner(gateway.service, gateway.url)
            shown = capsys.readouterr().err
            assert (f"with {format_ or 'rwkv-universal'}\n" in shown, "API_KEY" in shown) == (True, False)
