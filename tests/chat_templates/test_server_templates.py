"""Owns the tests of the chat template of the model behind a server: what it shows, and what lies here by its names."""

import asyncio
from pathlib import Path

import pytest

from tests.gateway import tinygguf
from tests.modelfiles import folder
from turnscript.backends.backend import Completion, Facts
from turnscript.backends.completions import Completions
from turnscript.backends.llamacpp import LlamaCpp
from turnscript.gateway.embedded import Embedded
from turnscript.gateway.modelformat import template_of
from turnscript.gateway.upstream import Upstream

SHOWN = "{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
TOOLS = "{{ tools | tojson }}"
OWN = "{{ messages[0].content }}<own>"
URL = "http://h:8080"


def test_the_real_llamacpp_shows_its_templates_and_names_its_file(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": SHOWN}, {"name": "tool_use", "template": TOOLS}]
    path = tinygguf.write_llama(tmp_path / "chat.gguf", template=templates)

    async def facts(url: str) -> Facts:
        async with Upstream(url, LlamaCpp()) as upstream:
            async with upstream.open(Completion(prompt="Hi", max_tokens=1)) as answer:
                assert [pieces async for pieces in answer]  # so its loop has begun, and can be ended
            return await upstream.facts()

    with Embedded(path, context=256, parallel=1, threads=1) as model:
        told = asyncio.run(facts(model.url))
        sought = template_of(told, model.url)
    source = sought.source
    assert source is not None
    assert () == sought.troubles
    assert (SHOWN, TOOLS, {"default": SHOWN, "tool_use": TOOLS}) == (source.text, source.tools_text, source.named)
    assert ("<|begin_of_text|>", "<|im_end|>", 256) == (source.bos, source.eos, source.context)
    assert {"<|begin_of_text|>", "<|im_start|>", "<|im_end|>"} <= set(source.control)
    assert (("chat", "tiny llama"), f"what {model.url} shows") == (source.names, source.told_by)


def test_what_a_server_shows_goes_before_what_lies_here(tmp_path: Path) -> None:
    tokens = {"bos_token": "<b>", "pad_token": "<pad>", "additional_special_tokens": ["<x>"]}
    path = folder(tmp_path / "m", tokenizer_config={"chat_template": OWN} | tokens, config={"model_type": "rwkv7"})
    facts = Facts(model="m", root=str(path), template=SHOWN, bos_token="<s>", end_token="</s>", context=7)
    source = template_of(facts, URL).source
    assert source is not None
    assert (SHOWN, "<s>", "</s>", 7) == (source.text, source.bos, source.eos, source.context)
    assert ("<s>", "</s>", "<b>", "<pad>", "<x>") == source.control
    assert ({"pad_token": "<pad>"}, True, ("m",)) == (source.tokens, source.recurrent, source.names)
    assert f"what {URL} shows" == source.told_by


def test_servers_that_name_a_path_get_the_template_that_lies_there(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", tokenizer_config={"chat_template": OWN})
    body = b'{"data":[{"id":"served","root":"%s","owned_by":"vllm"}]}' % str(path).encode()
    facts = Completions().read_facts([body, b""])
    source = template_of(facts, URL).source
    assert source is not None
    assert (OWN, f"tokenizer_config.json in {path}") == (source.text, source.told_by)
    named = template_of(Facts(model="served"), URL, [str(path)]).source
    assert named == source


def test_servers_that_name_a_model_of_the_cache_get_its_template(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name, text in (("Org--Model", OWN), ("bare", SHOWN)):
        model = tmp_path / f"models--{name}"
        folder(model / "snapshots" / "01", chat_template=text)
        (model / "refs").mkdir()
        (model / "refs" / "main").write_text("01")
    for name, text in (("Org/Model", OWN), ("bare", SHOWN)):
        source = template_of(Facts(model=name), URL).source
        assert source is not None
        assert text == source.text


def test_a_word_is_no_folder_that_happens_to_be_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "main", chat_template=OWN)
    monkeypatch.chdir(tmp_path)
    assert None is template_of(Facts(model="main"), URL).source
    assert None is not template_of(Facts(model="./main"), URL).source


def test_nothing_is_found_where_nothing_is_told_or_lies_elsewhere() -> None:
    for facts in (Facts(), Facts(model="x", root="/models/elsewhere", file="C:\\m\\x.gguf")):
        sought = template_of(facts, URL, ["", "Org/Not-Here"])
        assert (None, ()) == (sought.source, sought.troubles)


def test_what_cannot_be_read_is_told_and_the_next_name_is_tried(tmp_path: Path) -> None:
    base, chat = tmp_path / "base", tmp_path / "chat"
    folder(base, tokenizer_config={})
    folder(chat, chat_template=OWN)
    sought = template_of(Facts(root=str(base), model=str(chat), template="rwkv-world"), URL)
    assert sought.source is not None
    assert OWN == sought.source.text
    shown, lies = sought.troubles
    assert shown.startswith(f"what {URL} shows: 'rwkv-world' is no chat template")
    assert lies.startswith(f"{base}/tokenizer_config.json: has no chat_template")
