"""Owns models that are spoken to in their own words: where a template comes from, what is told of it, what it keeps."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import httpx2
import pytest

import turnscript as ts
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script, Scripted, said
from tests.gateway.stage import NO_TLS, Threaded
from turnscript.backends.backend import Facts
from turnscript.detection.nearness import nearness
from turnscript.detection.place import read_place
from turnscript.gateway.config import Config, Model
from turnscript.gateway.configfile import load
from turnscript.gateway.doctor_findings import Check
from turnscript.gateway.doctor_probe import Patient
from turnscript.gateway.doctor_words import words
from turnscript.gateway.kinds import InvalidConfig
from turnscript.gateway.modelformat import Sought, told_apart
from turnscript.gateway.nearness import NOT_OWN, sentences
from turnscript.gateway.served import Served
from turnscript.gateway.sessions import Session, Sessions

TURNS = """\
{%- for message in messages %}[{{ message.role }}]
{% if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}[/end]
{% endfor %}
{%- if tools %}Use these: {{ tools | tojson }}
{% endif %}
{%- if add_generation_prompt %}[assistant]
{% endif %}"""
DATED = "{{ strftime_now('%d %b %Y') }}\n" + TURNS
BEGUN = "{{ bos_token }}" + TURNS
WEATHER = {"name": "weather", "description": "The weather", "parameters": {"type": "object", "properties": {}}}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "Rain?"}],
    "tools": [{"type": "function", "function": WEATHER}],
}


def written(folder: Path, text: str, name: str = "chat_template.jinja") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def completed(text: str) -> Callable[[Asked], Script]:
    """A server that tells nothing of itself and writes this."""

    def script(asked: Asked) -> Script:
        if asked.line != "POST /v1/completions":
            return said({}, status=404)
        return said({"choices": [{"index": 0, "text": text, "finish_reason": "stop"}]})

    return script


def prompts(server: Scripted) -> list[str]:
    return [asked.json["prompt"] for asked in server.asked if asked.line == "POST /v1/completions"]


def test_a_template_that_is_named_writes_prompts_and_its_calls_are_read(tmp_path: Path) -> None:
    place = written(tmp_path, TURNS)
    answer = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
    with Threaded() as thread, thread.server(completed(answer)) as server:
        config = Config.for_backend(f"{server.url}/v1", template=str(place), kind="completions")
        with Running(config) as gateway:
            body = httpx2.post(f"{gateway.url}/v1/chat/completions", json=CHAT, verify=NO_TLS).json()
    expected = ts.get_format(str(place)).prompt(ts.parse(CHAT, "openai-chat")).text
    assert [expected] == prompts(server)
    assert ["weather"] == [call["function"]["name"] for call in body["choices"][0]["message"]["tool_calls"]]


def test_the_folder_of_a_model_that_a_server_names_has_its_template(tmp_path: Path) -> None:
    folder = written(tmp_path / "Some-Model-7B", TURNS).parent
    model = Config.for_backend("http://h").models[0]
    told = model.told(Facts(root=str(folder)), Sought(read_place(folder)))
    assert told.takes is not None
    assert told.takes.template is not None
    assert any(str(folder) in sentence for sentence in sentences(told))


def test_a_format_that_is_set_keeps_its_own_words_and_the_template_is_named(tmp_path: Path) -> None:
    source = read_place(written(tmp_path, TURNS))
    model = Config.for_backend("http://h", "openchatml").models[0].told(Facts(model="m"), Sought(source))
    assert ("openchatml", None) == (model.takes and model.takes.name, model.takes and model.takes.template)
    assert ["there is a chat template", "which is not used"] == [
        part for part in ("there is a chat template", "which is not used") if part in sentences(model)[0]
    ]


def test_a_template_that_turnscript_made_leaves_it_to_the_table(tmp_path: Path) -> None:
    made = ts.get_format("rwkv-universal").jinja().value
    source = read_place(written(tmp_path, made))
    model = Config.for_backend("http://h").models[0].told(Facts(template=made), Sought(source))
    assert ("rwkv-universal", None) == (model.takes and model.takes.name, model.takes and model.takes.template)


def test_a_template_that_cannot_be_used_is_told_and_the_name_decides(tmp_path: Path) -> None:
    source = read_place(written(tmp_path, "{% for m in messages %}"))
    model = Config.for_backend("http://h").models[0].told(Facts(model="rwkv7-g1"), Sought(source))
    assert "rwkv-goose" == (model.takes and model.takes.name)
    assert ["cannot be used" in note for note in model.notes] == [True]


def test_without_a_template_the_words_are_said_not_to_be_the_models_own() -> None:
    model = Config.for_backend("http://h").models[0].told(Facts(model="qwen3-8b"))
    assert [NOT_OWN] == sentences(model)


@pytest.mark.parametrize(("name", "guess"), [("qwq-32b", True), ("yi-34b", True), ("qwen3-8b", False)])
def test_a_name_that_says_too_little_makes_a_guess_that_is_told(name: str, guess: bool) -> None:
    model = Config.for_backend("http://h", upstream_model=name).models[0]
    assert guess == model.guess
    assert guess == any("is a guess" in sentence for sentence in sentences(model))


def test_a_guess_is_among_the_losses_of_an_answer() -> None:
    with Threaded() as thread, thread.server(completed("Yes.")) as server:
        config = Config.for_backend(f"{server.url}/v1", upstream_model="qwq-32b", kind="completions")
        with Running(config) as gateway:
            ask = {"model": "m", "messages": CHAT["messages"]}
            answer = httpx2.post(f"{gateway.url}/v1/chat/completions", json=ask, verify=NO_TLS)
            report = httpx2.get(gateway.url + answer.headers["x-turnscript-report"], verify=NO_TLS).json()
    assert ["$.model"] == [loss["path"] for loss in report["losses"] if "is a guess" in loss["detail"]]
    assert int(answer.headers["x-turnscript-losses"]) == len(report["losses"])


# Settings.


def configured(folder: Path, text: str) -> Model:
    path = folder / "turnscript.toml"
    path.write_text('[models.main]\nbackend = "http://h"\n' + text, encoding="utf-8")
    return load(path, {}).models[0]


def test_a_place_starts_at_the_folder_of_the_file(tmp_path: Path) -> None:
    written(tmp_path / "model", TURNS)
    model = configured(tmp_path, 'template = "model"\nhistory = "generated"\n')
    assert model.takes is not None
    assert (True, "generated") == (model.takes.template is not None, model.takes.history)


def test_a_format_beside_a_template_is_the_table_that_is_tried_first(tmp_path: Path) -> None:
    written(tmp_path / "model", TURNS)
    read = [configured(tmp_path, f'template = "model"\n{more}').takes for more in ("", 'format = "hermes"\n')]
    names = [format_.template.read_as for format_ in read if format_ is not None and format_.template is not None]
    assert 2 == len(names)
    assert all(names)


@pytest.mark.parametrize("place", ["nothing-here.jinja", "broken.jinja"])
def test_a_template_that_is_none_is_an_error_at_its_setting(tmp_path: Path, place: str) -> None:
    written(tmp_path, "{% for m in messages %}", "broken.jinja")
    with pytest.raises(InvalidConfig) as caught:
        configured(tmp_path, f'template = "{place}"\n')
    assert "models.main.template" == caught.value.path


def test_the_token_before_a_prompt_is_left_to_a_server_that_puts_it_there(tmp_path: Path) -> None:
    written(tmp_path, BEGUN)
    written(tmp_path, json.dumps({"bos_token": "<s>"}), "tokenizer_config.json")
    model = Config.for_backend("http://h", template=str(tmp_path)).models[0]
    asked = ts.parse(CHAT, "openai-chat")
    begins = [
        one.takes.prompt(asked).text.startswith("<s>")
        for one in (model, model.told(Facts(adds_bos=True)), model.told(Facts(adds_bos=False)))
        if one.takes is not None
    ]
    assert [False, False, True] == begins


# What is kept.


def test_what_is_remembered_is_told_apart_by_template(tmp_path: Path) -> None:
    formats = [ts.get_format(str(written(tmp_path / str(at), text))) for at, text in enumerate((TURNS, DATED))]
    names = {told_apart(format_) for format_ in (*formats, ts.get_format("openchatml"))}
    assert 3 == len(names)


def test_the_date_of_a_session_is_that_of_its_first_request() -> None:
    sessions, session = Sessions(), Session("a", "a")
    first = sessions.since(session)
    assert first is sessions.since(Session("a", "b"))
    assert isinstance(first, datetime)


@pytest.mark.parametrize("text", [TURNS, DATED])
def test_prompts_are_the_templates_own(tmp_path: Path, text: str) -> None:
    near = nearness(ts.get_format(str(written(tmp_path, text))))
    assert (near.asked, ()) == (near.equal, near.differences)
    assert near.asked > 10


def test_a_table_has_no_template_to_be_near_to() -> None:
    assert 0 == nearness(ts.get_format("openchatml")).asked


async def examined(url: str) -> Check:
    """What the doctor says of the words of a model."""
    config = Config.for_backend(url)
    served = Served(config.models[0], config, 0)
    try:
        await served.ready()
        patient = Patient(served, served.pool.members[0].upstream, config)
        patient.facts = await patient.upstream.facts()
        return await words(patient)
    finally:
        await served.close()


@pytest.mark.parametrize(("more", "equal"), [("", 8), ("?", 0)])
def test_the_doctor_compares_with_what_the_server_writes(tmp_path: Path, more: str, equal: int) -> None:
    template = ts.get_format(str(written(tmp_path, TURNS))).template
    assert template is not None

    def script(asked: Asked) -> Script:
        if asked.line == "GET /props":
            return said({"chat_template": TURNS, "model_path": "/far/model.gguf"})
        if asked.line != "POST /apply-template":
            return said({}, status=404)
        messages = asked.json["messages"]
        for call in (call for message in messages for call in message.get("tool_calls", ())):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        return said({"prompt": template.run(messages, asked.json.get("tools"), generation=True) + more})

    with Threaded() as thread, thread.server(script) as server:
        check = asyncio.run(examined(server.url))
    assert (equal, 8) == (check.figures["equal_to_server"], check.figures["asked_of_server"])
    assert check.figures["asked"] == check.figures["equal"]


@pytest.mark.parametrize(("more", "equal"), [("", 8), ("?", 0)])
def test_the_doctor_asks_a_vllm_for_the_text_of_its_own_tokens(tmp_path: Path, more: str, equal: int) -> None:
    """It makes tokens of messages, and a text of tokens: here, the numbers of characters."""
    place = written(tmp_path, TURNS)
    template = ts.get_format(str(place)).template
    assert template is not None
    card = {"id": "main", "object": "model", "owned_by": "vllm", "root": str(tmp_path), "max_model_len": 4096}

    def script(asked: Asked) -> Script:
        if asked.line.endswith("/models"):
            return said({"data": [card]})
        if asked.line == "POST /detokenize":
            return said({"prompt": "".join(map(chr, asked.json["tokens"]))})
        if asked.line != "POST /tokenize" or "messages" not in asked.json:
            return said({}, status=404)
        messages = asked.json["messages"]
        for call in (call for message in messages for call in message.get("tool_calls", ())):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
        text = template.run(messages, asked.json.get("tools"), generation=True) + more
        return said({"tokens": [ord(one) for one in text], "count": len(text), "max_model_len": 4096})

    with Threaded() as thread, thread.server(script) as server:
        check = asyncio.run(examined(server.url))
    assert (equal, 8) == (check.figures["equal_to_server"], check.figures["asked_of_server"])
