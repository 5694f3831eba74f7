"""Owns the gateway's choice of a format where nobody names one: by what its server tells, the surest sign first.

The templates here are none of a model's own: made of a format, or a few words of Jinja.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from tests.clues import template_of
from tests.gateway import tinygguf
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, Scripted, said
from tests.gateway.stage import NO_TLS, Threaded
from turnscript.backends.backend import Facts
from turnscript.cli.serve import _banner
from turnscript.convert.registry import get_backend
from turnscript.gateway.config import Config, Model
from turnscript.gateway.configfile import load
from turnscript.gateway.doctor_server import _told_besides
from turnscript.gateway.embedded import Embedded
from turnscript.gateway.upstream import Upstream

QWEN3 = template_of("qwen3")
CHATTED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
FOREIGN = "{% for m in messages %}[[{{ m.content }}]]{% endfor %}"
ASK = {
    "model": "m",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Rain?"}],
    "reasoning_effort": "medium",
}


def llamacpp(**props: Any) -> Callable[[Asked], Script]:
    """A llama.cpp that shows this of itself, and thinks before it answers."""

    def script(asked: Asked) -> Script:
        if asked.line == "GET /props":
            return said({"total_slots": 1, "default_generation_settings": {"n_ctx": 4096}} | props)
        if asked.line == "POST /tokenize":
            return said({"tokens": []})
        if asked.line == "POST /completion":
            content = "<think>\nHm.\n</think>\n\nYes."
            return said({"content": content, "stop": True, "stop_type": "eos", "tokens_predicted": 9})
        return said({"status": "ok"}) if asked.line == "GET /health" else said({}, status=404)

    return script


@contextmanager
def gateway_before(script: Callable[[Asked], Script], **settings: Any) -> Iterator[tuple[Running, Scripted]]:
    """A gateway that nobody tells which format its model takes."""
    with Threaded() as thread, thread.server(script) as server:
        config = Config.for_backend(server.url, **settings)
        with Running(config) as gateway:
            yield gateway, server


def prompts(server: Scripted) -> list[str]:
    return [asked.json["prompt"] for asked in server.asked if asked.line == "POST /completion"]


def test_a_server_that_shows_a_template_is_sent_what_it_writes(capsys: pytest.CaptureFixture[str]) -> None:
    """With no format named, and a name that tells nothing."""
    with gateway_before(llamacpp(chat_template=CHATTED, model_path="/models/main.gguf")) as (gateway, server):
        httpx2.post(f"{gateway.url}/v1/chat/completions", json=ASK, verify=NO_TLS)
        turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nRain?<|im_end|>\n<|im_start|>assistant\n"
        assert [turns] == prompts(server)
        _banner(gateway.service, gateway.url)
        shown = capsys.readouterr().err
        assert " with its own chat template\n" in shown
        assert f"    the model's own chat template: what {server.url} shows\n" in shown
        assert "    prompts equal the model's own template: 22 of 22 probes\n" in shown


@pytest.mark.parametrize(
    ("props", "expected"),
    [
        ({"model_path": "Hermes-3-Llama-3.1-8B.Q4_K_M.gguf", "chat_template": CHATTED}, "hermes-3-llama-3.1-8b.q4_k_m"),
        ({"model_path": "m.gguf", "chat_template": CHATTED}, "m"),
        ({"model_path": "Qwen3-8B.gguf", "chat_template": FOREIGN}, "qwen3-8b"),
        ({"model_path": "rwkv7-g1.gguf", "chat_template": "rwkv-world"}, "rwkv-goose"),
        ({"model_path": "GLM-4.5-Air-Q4_K_M.gguf"}, "glm"),
        ({"model_path": "m.gguf", "chat_template": FOREIGN}, "m"),
    ],
)
def test_what_a_llamacpp_shows_of_its_model_tells_the_format(props: dict[str, str], expected: str | None) -> None:
    with gateway_before(llamacpp(**props)) as (gateway, _):
        httpx2.get(f"{gateway.url}/health", verify=NO_TLS)
        takes = gateway.service.models()[0].model.takes
        assert expected == (takes and takes.name)


def test_vllm_says_what_the_model_was_called_where_it_came_from() -> None:
    card = {"id": "main", "object": "model", "owned_by": "vllm", "root": "Qwen/Qwen3-8B", "max_model_len": 512}

    def script(asked: Asked) -> Script:
        return said({"data": [card]}) if asked.line.endswith("/models") else said({}, status=404)

    with gateway_before(script) as (gateway, _):
        model = gateway.service.models()[0].model
        assert ("qwen3", True) == (model.takes and model.takes.name, model.guessed)
        assert model.why == "detected: its name has 'qwen3': Qwen3 models take this"


def test_the_root_of_a_model_is_a_fact_where_it_is_another_name() -> None:
    backend = get_backend("completions")
    told = [backend.read_facts([b'{"data": [{"id": "a", "root": %s}]}' % root, b""]).root for root in (b'"b"', b'"a"')]
    assert ["b", None] == told


# Beside what the settings say.


def settled(folder: Path, text: str) -> Model:
    path = folder / "turnscript.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, {}).models[0]


BARE = '[models."{}"]\nbackend = "http://h"\n'


def named(model: Model) -> str | None:
    return model.takes.name if model.takes else None


def test_a_template_goes_before_a_guess_by_name(tmp_path: Path) -> None:
    model = settled(tmp_path, BARE.format("qwen-main"))
    assert ("qwen25", True) == (named(model), model.guessed)
    told = model.told(Facts(model="x.gguf", template=QWEN3))
    assert ("qwen3", False) == (named(told), told.guessed)
    assert told.why.startswith("detected: what its chat template writes is read by the table ")
    assert model.told(Facts(model="llama-3-8b")) == model
    assert model.told(Facts(model="llama-3-8b", template=FOREIGN)) == model


@pytest.mark.parametrize("setting", ['format = "rwkv-goose"\n', "[models.qwen-main.prompts]\nrole_user = 'human'\n"])
def test_what_is_set_goes_before_a_template(tmp_path: Path, setting: str) -> None:
    model = settled(tmp_path, BARE.format("qwen-main") + setting)
    assert model == model.told(Facts(model="qwen3", template=QWEN3))


def test_a_variant_that_is_set_keeps_the_format_that_has_it(tmp_path: Path) -> None:
    model = settled(tmp_path, BARE.format("rwkv7-main") + 'variant = "unhinted"\n')
    assert model == model.told(Facts(template=QWEN3))


def test_the_template_in_a_models_own_file_is_as_sure(tmp_path: Path) -> None:
    path = tinygguf.write_llama(tmp_path / "m.gguf", template=CHATTED)
    model = Config.for_backend(f"embedded:{path}").models[0]
    assert ("hermes", False) == (named(model), model.guessed)
    assert model == model.told(Facts(template=QWEN3))


def test_clues_of_formats_in_the_configuration_count_for_what_a_server_tells(tmp_path: Path) -> None:
    clue = '[[format]]\nname = "stripes"\nbased_on = "qwen3"\n'
    clue += 'clue = [{ evidence = "template", pattern = "okapi", order = 1, reason = "so" }]\n'
    model = settled(tmp_path, clue + BARE.format("main"))
    assert (None, "stripes") == (named(model), named(model.told(Facts(template="<|im_start|> okapi"))))


def test_first_tokens_hold_for_what_a_template_tells(tmp_path: Path) -> None:
    model = settled(tmp_path, BARE.format("main") + 'first_token = "<s>"\n')
    told = model.told(Facts(template=template_of("gemma")))
    assert ("gemma", "<s>") == (named(told), told.takes and told.takes.document.start)


def test_the_doctor_says_what_else_a_server_tells() -> None:
    assert "; its chat template tells qwen3" == _told_besides(Facts(model="m", template=QWEN3), "hermes")
    assert "; its name tells gemma" == _told_besides(Facts(model="m", root="gemma-3-4b"), "hermes")
    assert "" == _told_besides(Facts(model="m", template=QWEN3), "qwen3")
    assert "" == _told_besides(Facts(), "qwen3")


# The real llama.cpp.


async def facts_of(url: str) -> Facts:
    async with Upstream(url, get_backend("llamacpp")) as upstream:
        return await upstream.facts()


def test_the_real_server_shows_the_template_of_its_model(tmp_path: Path) -> None:
    """Here from another machine, as far as the gateway knows."""
    path = tinygguf.write_llama(tmp_path / "main.gguf", template=CHATTED)
    with Embedded(path, context=512, parallel=1, threads=1) as model:
        config = Config.for_backend(model.url)
        with Running(replace(config, models=(replace(config.models[0], max_tokens=3),))) as gateway:
            assert "main" == named(gateway.service.models()[0].model)
            facts = gateway.run(facts_of(model.url))
            assert CHATTED == facts.template


def test_what_the_real_server_shows_for_a_model_without_a_template_is_no_sign(rwkv: str) -> None:
    """It is ChatML, whatever the model takes."""
    with Running(Config.for_backend(rwkv)) as gateway:
        assert None is gateway.run(facts_of(rwkv)).template
        assert "rwkv-goose" == named(gateway.service.models()[0].model)
