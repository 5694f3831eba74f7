"""Owns RWKV Goose as it is served: the day in a model's name, and the tokens before its prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.running import run
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, said
from tests.gateway.stage import CHATS, NO_TLS, Threaded, Told, answer, body_of, named
from tests.gateway.test_doctor import look
from turnscript.api import Api
from turnscript.backend import Facts
from turnscript.gateway.config import Config, Model
from turnscript.gateway.configfile import load
from turnscript.registry import get_api

OLD, NEW = "rwkv7-g1-2.9b-20250801-ctx4096", "rwkv7-g1a-2.9b-20250922-ctx4096"
TOO_OLD = "its name says 20250801, and models from before 20250922 were not trained to think when asked"
CHAT = get_api("openai-chat")


class Server:
    """A server of text completions that calls its model by some name. `asks`: the bodies of completions."""

    def __init__(self, model: str) -> None:
        self.model = model
        self.asks: list[Any] = []

    def __call__(self, asked: Asked) -> Script:
        """What it answers."""
        if asked.line.startswith("GET"):
            return said({"data": [{"id": self.model}]})
        self.asks.append(asked.json)
        return answer(">\nSo.\n</think>\nHi" if asked.json["prompt"].endswith("<think") else " Hi")


@contextmanager
def gateway(server: Callable[[Asked], Script], format_: str | None = "rwkv-goose", **model: Any) -> Iterator[str]:
    """The URL of a gateway before a server."""
    with ExitStack() as stack:
        url = stack.enter_context(stack.enter_context(Threaded()).server(server)).url
        config = Config.for_backend(f"{url}/v1", format_, **({"kind": "completions"} | model))
        yield stack.enter_context(Running(config)).url


def ask(url: str, api: Api = CHAT, **members: Any) -> Told:
    body = body_of(api, stream=True, **members)
    response = httpx2.post(url + api.endpoint, content=body, verify=NO_TLS, timeout=20)
    return Told(api, response.status_code, dict(response.headers), response.content)


def losses(url: str, told: Told) -> list[str]:
    """What an answer's report says was lost."""
    report = httpx2.get(url + told.headers["x-turnscript-report"], verify=NO_TLS).json()
    return [loss["detail"] for loss in report["losses"]]


THINKS: dict[str, dict[str, Any]] = {
    "openai-chat": {"reasoning_effort": "high"},
    "openai-responses": {"reasoning": {"effort": "high"}},
    "anthropic-messages": {"thinking": {"type": "adaptive"}},
}


@pytest.mark.parametrize("api", CHATS, ids=named)
@pytest.mark.parametrize("format_", ["rwkv-goose", None], ids=["set", "detected"])
def test_a_model_that_is_too_old_to_be_asked_to_think_is_not_and_that_is_told(api: Api, format_: str | None) -> None:
    """R-G-8, D-G-6: the thought is opened, without the word that asks for it."""
    server = Server(OLD)
    with gateway(server, format_) as url:
        told = ask(url, api, **THINKS[api.name])
        assert any(TOO_OLD in one for one in losses(url, told)), losses(url, told)
        assert "User: Hello\n\nAssistant: <think" == server.asks[-1]["prompt"]
        told = ask(url, api)
        assert (200, "User: Hello\n\nAssistant:") == (told.status, server.asks[-1]["prompt"])
        assert not any(TOO_OLD in one for one in losses(url, told))


@pytest.mark.parametrize("format_", ["rwkv-goose", None], ids=["set", "detected"])
@pytest.mark.parametrize("name", [NEW, "rwkv7-g1"])
def test_one_of_that_day_and_one_without_a_day_is_asked_to_think(name: str, format_: str | None) -> None:
    server = Server(name)
    with gateway(server, format_) as url:
        told = ask(url, thinking={"type": "enabled"})
        assert not any("were not trained" in one for one in losses(url, told))
    prompt = server.asks[-1]["prompt"]
    assert prompt.startswith("User: Hello think"), prompt
    assert prompt.endswith("\n\nAssistant: <think")


def test_a_variant_that_is_set_stays_and_what_the_model_cannot_do_is_told_nevertheless() -> None:
    server = Server(OLD)
    with gateway(server, variant="paren") as url:
        told = ask(url, thinking={"type": "enabled"})
        assert any(TOO_OLD in one for one in losses(url, told))
    assert "User: Hello (think" in server.asks[-1]["prompt"]


def configured(tmp_path: Path, name: str, **settings: str) -> Model:
    lines = [f"[models.'{name}']", *(f"{key} = {value!r}" for key, value in settings.items())]
    path = tmp_path / "turnscript.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    (model,) = load(path, {}).models
    return model


WEB = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("name", "settings", "facts", "older"),
    [
        (OLD, {"backend": WEB}, Facts(), True),
        (NEW, {"backend": WEB}, Facts(), False),
        ("main", {"backend": WEB, "upstream_model": OLD}, Facts(), True),
        ("main", {"backend": WEB}, Facts(model=f"{OLD}.gguf"), True),
        ("main", {"backend": WEB}, Facts(model="m", root=f"BlinkDL/{OLD}"), True),
        ("main", {"backend": WEB}, Facts(model="m", file=f"/models/{OLD}.pth"), True),
        (OLD, {"backend": WEB}, Facts(model=f"{NEW}.gguf"), False),
        ("20240101", {"backend": WEB, "upstream_model": NEW}, Facts(), False),
        ("main-20251399", {"backend": WEB}, Facts(), False),
        (OLD, {"backend": WEB, "format": "rwkv-universal"}, Facts(), False),
    ],
)
def test_the_surest_name_tells_the_day(
    tmp_path: Path, name: str, settings: dict[str, str], facts: Facts, older: bool
) -> None:
    model = configured(tmp_path, name, **({"format": "rwkv-goose"} | settings))
    for told in (model.told(facts), model.told(facts).told(facts)):
        assert older == bool(told.older)
        assert told.takes is not None
        assert (not older) == bool(told.takes.document.generation.hints or told.takes.name != "rwkv-goose")
        assert ("set", True) == (told.why, told.settled)


def test_a_day_holds_with_other_ends_and_once_a_server_runs_another_model(tmp_path: Path) -> None:
    model = configured(tmp_path, OLD, backend=WEB, format="rwkv-goose", first_token="<s>")
    for facts, asks in ((Facts(), False), (Facts(model=NEW), True), (Facts(model=OLD), False)):
        takes = model.told(facts).takes
        assert takes is not None
        assert ("<s>", asks) == (takes.document.start, bool(takes.document.generation.hints))


def test_the_start_the_doctor_the_list_of_models_and_the_page_of_the_format_say_it() -> None:
    server = Server(OLD)
    with Threaded() as thread, thread.server(server) as upstream:
        told = look(f"{upstream.url}/v1", "rwkv-goose", kind="completions")
        assert TOO_OLD in told["words"].detail
        config = Config.for_backend(f"{upstream.url}/v1", "rwkv-goose", kind="completions")
        with Running(config) as running:
            (served,) = running.service.models()
            running.run(served.ready())
            assert any(TOO_OLD in sentence for sentence in served.sentences)
            assert not served.card().thinks
    shown = " ".join(run("show", "rwkv-goose").stdout.split())
    assert "A model whose name has a day before 20250922 takes the variant unhinted" in shown
