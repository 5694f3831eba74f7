"""ai00's own configuration file is taken as it is: where ai00 listens, and the prompts that its model takes."""

from pathlib import Path

import httpx2
import pytest

import turnscript as ts
from tests.cli.running import run
from tests.gateway.running import Running
from tests.gateway.scripted import Asked, Script
from tests.gateway.stage import NO_TLS, Threaded
from tests.gateway.test_states import CHAT, Server
from turnscript.gateway.config import Model
from turnscript.gateway.configfile import load
from turnscript.gateway.kinds import InvalidConfig

MODEL = '[model]\nname = "rwkv7-g1a-0.1b-20250728-ctx4096.st"\npath = "assets/models"\nmax_batch = 4\nquant = 0\n'
LISTEN = """
[listen]
acme = false
domain = "local"
ip = "0.0.0.0"
force_pass = true
port = 65530
slot = "permission"
tls = false

[[listen.app_keys]]
app_id = "admin"
secret_key = "ai00"
"""
OTHERS = """
[[state]]
id = "fd7a60ed-7807-449f-8256-bccae3246222"
path = "chat.state"

[[lora]]
alpha = 192
path = "chat.lora"

[tokenizer]
path = "assets/tokenizer/rwkv_vocab_v20230424.json"

[bnf]
start_nonterminal = "start"

[adapter]
Auto = {}

[web]
path = "assets/www/index.zip"

[embed]
name = { MultilingualE5Small = {} }
"""
PROMPTS = """
[prompts]
role_user = "human"
assistant_prefix = "<ai00:assistant>\\n"
default_stop_sequences = ["</ai00:assistant>"]
"""
WHOLE = MODEL + OTHERS + LISTEN + PROMPTS


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "Config.toml"


def model_of(file: Path, text: str, **overrides: str) -> Model:
    file.write_text(text, encoding="utf-8")
    config = load(file, {}, {f"models.default.{key}": value for key, value in overrides.items()})
    assert 1 == len(config.models)
    return config.models[0]


def test_the_whole_file_is_taken_as_it_is(file: Path) -> None:
    model = model_of(file, WHOLE)
    assert ("http://127.0.0.1:65530", "ai00", 4) == (str(model.backend[0]), model.kind, model.slots)
    assert "rwkv7-g1a-0.1b-20250728-ctx4096" == model.upstream_model
    assert model.takes is not None
    assert "ai00-v1" == model.takes.name
    assert "<ai00:human>" in model.takes.special_tokens


def test_what_it_was_read_as_and_what_does_not_count_is_told_in_one_line(file: Path) -> None:
    file.write_text(WHOLE, encoding="utf-8")
    result = run("serve", "--config", file, "--check")
    assert 0 == result.exit_code
    (line,) = result.stderr.splitlines()
    for words in (
        f"{file} is ai00's own configuration, for it has [model]: ",
        "of it [model] (name, max_batch), [listen] (ip, port, domain, tls) and [prompts] count here",
        ", and [state], [lora], [tokenizer], [bnf], [adapter], [web] and [embed] do not",
    ):
        assert words in line
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("models.default.backend ")]
    assert ["http://127.0.0.1:65530", str(file), "[listen]"] == line.split()[1:]


def test_prompts_that_no_model_takes_are_told(file: Path) -> None:
    """A file of nothing but `[prompts]` says of no server, so the tiny model is served, in its own format."""
    file.write_text(PROMPTS, encoding="utf-8")
    result = run("serve", "--config", file, "--check")
    assert "[prompts] counts for no model" in result.stderr
    assert "models.tiny.format" in result.stdout
    assert "" == run("serve", "--config", file, "--check", "--backend", "http://127.0.0.1:9").stderr


def test_the_name_of_the_model_tells_the_format_where_no_prompts_are_set(file: Path) -> None:
    model = model_of(file, MODEL + OTHERS + LISTEN)
    assert model.takes is not None
    assert "rwkv-goose" == model.takes.name


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("", "http://127.0.0.1:65530"),
        ("ip = '192.168.0.7'\nport = 80", "http://192.168.0.7:80"),
        ("ip = '::'", "http://[::1]:65530"),
        ("ip = 'fd00::7'", "http://[fd00::7]:65530"),
        ("tls = true", "https://127.0.0.1:65530"),
        ("domain = 'ai00.example'\nport = 443", "https://ai00.example:443"),
    ],
)
def test_ai00_is_asked_where_it_listens(file: Path, listen: str, url: str) -> None:
    assert url == str(model_of(file, f"[listen]\n{listen}").backend[0])


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("[listen]\nport = 0", "listen.port", "expected an integer from 1 to 65535, found the integer 0"),
        ("[listen]\nport = '65530'", "listen.port", "found the string '65530'"),
        ("[listen]\nip = 'everywhere'", "listen.ip", "expected an IP address such as 0.0.0.0"),
        ("[listen]\ntls = 'yes'", "listen.tls", "expected true or false"),
        ("listen = 3", "listen", "expected a table, found the integer 3"),
        (MODEL.replace("= 4", "= 0") + LISTEN, "model.max_batch", "expected an integer of at least 1"),
        ('[model]\nname = "a.st"\nmodel_name = "b.st"', "model.model_name", "give one of name and model_name"),
        (WHOLE + "[server]\nport = 1", "server", "and it has [server] of turnscript's too"),
        (WHOLE + "[models.main]\nbackend = 'http://h'", "models", "for it has [model], [state]"),
        (MODEL + "[prompts]\nrole_user = 'a b'", "prompts.role_user", "the name of a tag"),
        (MODEL + "[prompts]\nassistant_prefix = '<ai00:'", "prompts.assistant_prefix", "must open the model's turn"),
        ("prompts = 3\n" + MODEL, "prompts", "expected a table, found the integer 3"),
        ("[model.main]\nbackend = 'http://h'", "model", "did you mean 'models'"),
        ("[model]\nbackend = 'http://h'", "model", "did you mean 'models'"),
    ],
)
def test_what_cannot_be_is_told_with_its_key(file: Path, text: str, path: str, words: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        model_of(file, text)
    assert path == caught.value.path
    assert words in str(caught.value)
    assert f"(in {file}" in str(caught.value)


def test_the_gateway_does_not_listen_where_ai00_does(file: Path) -> None:
    file.write_text(WHOLE, encoding="utf-8")
    result = run("serve", "--config", file, "--port", "65530", "--check")
    assert 1 == result.exit_code
    assert "this is where the gateway itself listens" in result.stderr
    assert f"{file} [listen]" in result.stderr


def test_texts_around_a_list_of_tools_that_stands_in_tags_do_not_count(file: Path) -> None:
    more = 'tool_header = "Tools:"\ntool_footer = "End"\n'
    assert model_of(file, WHOLE + more).takes == model_of(file, WHOLE).takes
    file.write_text(WHOLE + more, encoding="utf-8")
    assert "[embed], prompts.tool_header and prompts.tool_footer" in " ".join(load(file, {}).notes)
    labels = MODEL + '[prompts]\nassistant_prefix = "Assistant:"\n' + more
    takes = model_of(file, labels).takes
    assert takes is not None
    assert takes.document.tools_place is not None
    assert "Tools:" in takes.document.tools_place.open


def test_the_command_line_goes_before_it(file: Path) -> None:
    assert "rwkv-universal" == (model_of(file, WHOLE, format="rwkv-universal").takes or ts.get_format("qwen3")).name
    other = model_of(file, WHOLE, backend="http://127.0.0.1:9")
    assert ("http://127.0.0.1:9", "auto", None) == (str(other.backend[0]), other.kind, other.slots)


def test_a_file_of_ours_with_prompts_alone_is_ours(file: Path) -> None:
    file.write_text(PROMPTS, encoding="utf-8")
    config = load(file, {})
    assert () == config.models
    assert all("[prompts] counts for no model" in note for note in config.notes)  # and nothing of ai00's own file


def test_clients_are_answered_over_the_ai00_that_the_file_tells_of(file: Path) -> None:
    asked: list[str] = []
    server = Server()

    def scripts(one: Asked) -> Script:
        if one.line.startswith("POST"):
            asked.append(one.json["prompt"])
        return server(one)

    with Threaded() as thread, thread.server(scripts) as ai00:
        text = WHOLE.replace("0.0.0.0", "127.0.0.1").replace("65530", ai00.url.rpartition(":")[2])
        file.write_text(text, encoding="utf-8")
        with Running(load(file, {})) as gateway:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
            answer = httpx2.post(gateway.url + CHAT.endpoint, json=body, verify=NO_TLS, timeout=20)
    assert 200 == answer.status_code
    assert ["<ai00:human>\nHi\n</ai00:human>\n\n<ai00:assistant>\n"] == asked
