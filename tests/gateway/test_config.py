"""Which model a name means, what the settings say of themselves, and that no secret is in it."""

import fnmatch
import json
import pickle
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnscript as ts
from tests.clocks import run_time
from turnscript.backends.backend import Facts
from turnscript.core.errors import InvalidInput, InvalidRequest, UnknownName, Unsupported
from turnscript.gateway.addresses import Address, read_address
from turnscript.gateway.config import Config, Model, Sampling, Server, key_text, pattern_of
from turnscript.gateway.kinds import Secret
from turnscript.gateway.layers import dotted, parts_of

HERE = (Address("http", "http://127.0.0.1:8080"),)
NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


def model(name: str, *aliases: str, **more: Any) -> Model:
    return Model(name=name, backend=HERE, aliases=aliases, **more)


def config(*models: Model, **server: Any) -> Config:
    return Config(models=models, server=Server(**server))


def meant(found: Config, name: str | None) -> str:
    return found.model_for(name).name


def test_a_models_own_name_goes_before_every_alias() -> None:
    found = config(model("a", "b", "*"), model("b"))
    assert "b" == meant(found, "b")


def test_of_two_aliases_the_one_that_says_more_wins_wherever_it_stands() -> None:
    for models in ([model("any", "*"), model("claude", "claude-*"), model("opus", "claude-opus-*")],) * 2:
        for order in (models, models[::-1]):
            found = config(*order)
            assert "opus" == meant(found, "claude-opus-4-5")
            assert "claude" == meant(found, "claude-haiku")
            assert "any" == meant(found, "gpt-5")


def test_a_whole_name_goes_before_a_pattern_with_as_many_characters() -> None:
    found = config(model("pattern", "gpt-5*"), model("whole", "gpt-5"))
    assert ("whole", "pattern") == (meant(found, "gpt-5"), meant(found, "gpt-5.1"))


def test_case_does_not_count_in_aliases() -> None:
    found = config(model("first"), model("other", "Claude-*"), default_model="first")
    assert "other" == meant(found, "CLAUDE-opus")


def test_brackets_in_names_are_brackets() -> None:
    found = config(model("first"), model("long", "claude-opus-4-5[1m]"))
    assert "long" == meant(found, "claude-opus-4-5[1m]")
    assert "first" == meant(found, "claude-opus-4-51")


@pytest.mark.parametrize("name", ["whatever", "", None])
def test_any_other_name_means_the_default_model(name: str | None) -> None:
    assert "a" == meant(config(model("a"), model("b")), name)
    assert "b" == meant(config(model("a"), model("b"), default_model="b"), name)


def test_strict_models_take_only_names_and_aliases() -> None:
    found = config(model("main", "claude-*"), strict_models=True)
    assert "main" == meant(found, "claude-x") == meant(found, "main")
    with pytest.raises(UnknownName) as caught:
        found.model_for("mainn")
    assert (404, "model", "mainn") == (caught.value.status, caught.value.kind, caught.value.name)
    assert "did you mean 'main'" in str(caught.value)
    with pytest.raises(InvalidRequest, match="required, but missing; expected the name of a model: main") as unnamed:
        found.model_for(None)
    assert (400, "$.model") == (unnamed.value.status, unnamed.value.path)


def test_without_models_there_is_no_default() -> None:
    assert Config().default_model is None
    with pytest.raises(UnknownName):
        Config().model_for("x")


@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), NAMES)
def test_each_model_is_found_by_its_name(names: list[str], other: str) -> None:
    found = config(*(model(name, "*") if index % 2 else model(name) for index, name in enumerate(names)))
    assert names == [meant(found, name) for name in names]
    assert meant(found, other) in names


@given(st.text("ab*?-", max_size=8), st.text("ab-", max_size=8))
def test_patterns_mean_what_they_mean_in_a_shell(pattern: str, name: str) -> None:
    assert fnmatch.fnmatchcase(name, pattern) == (pattern_of(pattern).fullmatch(name) is not None)


@given(st.text(max_size=8).filter(lambda text: not {"*", "?"} & set(text)))
def test_a_pattern_without_stars_is_itself(name: str) -> None:
    assert pattern_of(name).fullmatch(name)
    assert not pattern_of(name).fullmatch(f"{name}x")


def test_no_name_makes_the_search_slow() -> None:
    hostile = "a" * 20_000
    begun = run_time()
    assert pattern_of("*a*a*a*a*a*a*a*a*b").fullmatch(hostile) is None
    assert run_time() - begun < 1


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=6), min_size=1, max_size=3))
def test_a_path_is_read_back_from_how_it_is_shown(parts: list[str]) -> None:
    path = tuple(parts)
    assert path == parts_of(dotted(path))


@given(st.text(st.characters(codec="utf-8"), max_size=8))
def test_any_name_can_be_a_key_in_toml(name: str) -> None:
    assert {name: 1} == tomllib.loads(f"{key_text(name)} = 1")


# One backend without a file.


def test_one_backend_needs_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Config.for_backend("http://127.0.0.1:8080/", "rwkv-goose", context=100, api_key=Secret("s3cret"))
    only = found.model_for("anything")
    assert ("http://127.0.0.1:8080", 100) == (str(only.backend[0]), only.context)
    assert only.takes == ts.get_format("rwkv-goose")
    assert only.key == Secret("s3cret")
    assert [None, None, None] == [found.memory.path, found.store.path, found.signing.file]
    assert [] == list(tmp_path.iterdir())


def test_one_backend_takes_variants_prompts_and_other_first_tokens() -> None:
    tight = Config.for_backend("http://h", "openchatml", variant="tight", first_token="<s>").models[0]
    assert tight.takes == ts.get_format("openchatml").variant("tight").with_ends("<s>")
    asked = Config.for_backend("http://h", prompts={"role_user": "human"}).models[0]
    assert asked.takes is not None
    assert "<ai00:human>" in asked.takes.special_tokens


@pytest.mark.parametrize(
    ("name", "order", "expected"),
    [
        ("openchatml", None, "psm"),
        ("openchatml", "spm", "spm"),
        ("rwkv-goose", None, "rwkv"),
        ("ai00-v1", None, None),
    ],
)
def test_the_order_of_a_hole_is_told_with_the_settings(name: str, order: str | None, expected: str | None) -> None:
    config = Config.for_backend("http://h", name, fill_order=order)
    told = {one.path: one.value for one in config.describe()}
    assert expected == told.get("models.default.fill_order")
    assert (expected or "") == config.models[0].fills


def test_an_order_in_which_no_prompt_has_a_hole_is_an_error() -> None:
    for name, order in (("openchatml", "spec"), ("openchatml", "smp"), ("ai00-v1", "psm")):
        with pytest.raises((InvalidInput, UnknownName, Unsupported)):
            Config.for_backend("http://h", name, fill_order=order)


def test_a_bad_backend_or_format_is_an_error() -> None:
    with pytest.raises(ValueError, match="begins with http"):
        Config.for_backend("localhost:80")
    with pytest.raises(UnknownName, match="rwkv-goose"):
        Config.for_backend("http://h", "rwkv-gose")
    with pytest.raises(InvalidInput, match="role_usr"):
        Config.for_backend("http://h", prompts={"role_usr": "human"})


def test_what_a_backend_says_tells_the_format_if_nothing_did() -> None:
    unknown = Config.for_backend("http://h").models[0]
    assert unknown.takes is None
    assert unknown.told(Facts(model="no-such-family.gguf")) == unknown
    told = unknown.told(Facts(model="qwen2.5-coder-7b.gguf"))
    assert told.takes is not None
    assert (ts.detect("qwen2.5-coder-7b.gguf").format, True) == (told.takes.name, told.why.startswith("detected"))
    assert told.told(Facts(model="llama-3-8b.gguf")) == told


def test_the_variant_holds_for_what_a_backend_says_too() -> None:
    family = ts.detect("rwkv7-g1-2.9b").format
    assert family
    option = next(iter(ts.get_format(family).variants))
    told = Config.for_backend("http://h", variant=option, first_token="x").models[0].told(Facts(model="rwkv7-g1-2.9b"))
    assert told.takes == ts.get_format(family).variant(option).with_ends("x", ts.get_format(family).document.end)


@pytest.mark.parametrize(
    ("preset", "own", "expected"),
    [
        (None, {}, {}),
        (None, {"top_k": 0}, {"top_k": 0}),
        ("math", {}, ts.get_preset("math").values()),
        ("creative", {"top_p": 0.0}, ts.get_preset("creative").values() | {"top_p": 0.0}),
    ],
)
def test_sampling_goes_over_the_preset(preset: str | None, own: dict[str, Any], expected: dict[str, float]) -> None:
    assert expected == model("a", preset=preset, sampling=Sampling(**own)).sampling_values


# Addresses.


@pytest.mark.parametrize(
    ("text", "scheme", "target"),
    [
        ("http://127.0.0.1:8080", "http", "http://127.0.0.1:8080"),
        (" https://h/v1/ ", "https", "https://h/v1"),
        ("http://[::1]:80", "http", "http://[::1]:80"),
        ("embedded:m.gguf", "embedded", "/base/m.gguf"),
        ("embedded: /abs/m.gguf", "embedded", "/abs/m.gguf"),
        ("replay:dir", "replay", "/base/dir"),
    ],
)
def test_addresses_are_urls_files_and_folders(text: str, scheme: str, target: str) -> None:
    found = read_address(text, Path("/base"))
    assert (scheme, target) == (found.scheme, found.target)
    assert found == read_address(str(found), Path("/elsewhere"))
    assert found.is_web == target.startswith("http")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:8080",
        "ftp://h",
        "http://",
        "http://h:port",
        "http://h:0",
        "http://h:99999",
        "http://[::1",
        "http://h/a b",
        "http://h\n",
        "http://user:planted@h",
        "http://planted@h",
        "http://h/?key=planted",
        "http://h/#planted",
        "embedded:",
        "replay: ",
        "embedded:a\0b",
        "unknown:x",
    ],
)
def test_what_is_no_address_is_told_without_quoting_it(text: str) -> None:
    if text == "http://h\n":
        assert "http://h" == read_address(text, Path("/")).target
        return
    with pytest.raises(ValueError, match=r"\w") as caught:
        read_address(text, Path("/"))
    assert "planted" not in str(caught.value)


# Secrets.


def test_a_secret_shows_itself_to_nobody() -> None:
    secret = Secret("planted-secret")
    config_ = Config.for_backend("http://h", "rwkv-goose", api_key=secret)
    for shown in (repr(secret), str(secret), f"{secret}", f"{secret!r:>40}", repr(config_), str(config_.describe())):
        assert "planted" not in shown
    for encode in (msgspec.json.encode, json.dumps, msgspec.to_builtins):
        with pytest.raises(TypeError) as caught:
            encode(secret)
        assert "planted" not in str(caught.value)
    with pytest.raises(TypeError, match="not written"):
        pickle.dumps(secret)
    assert "planted-secret" == secret.reveal()


def test_secrets_are_equal_by_their_text() -> None:
    assert Secret("ä") == Secret("ä")
    assert hash(Secret("ä")) == hash(Secret("ä"))
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert [True, False] == [bool(Secret("a")), bool(Secret(""))]


def test_every_setting_has_a_line_of_its_own() -> None:
    lines = [str(setting) for setting in Config().describe()]
    assert "server.port = 8400  (default)" in lines
    assert all(re.fullmatch(r"[a-z_.]+ = .+  \(default\)", line) for line in lines)
    assert len(lines) == len({line.split(" ")[0] for line in lines}) > 30


def test_the_first_token_of_a_model_is_written_where_its_server_does_not() -> None:
    """OpenChatML's is that of whatever model it is; other formats have their own."""
    of_any = Config.for_backend("http://h", "openchatml").models[0]
    for facts, start in (
        (Facts(adds_bos=False, bos_token="<s>"), "<s>"),
        (Facts(adds_bos=True, bos_token="<s>"), ""),
        (Facts(adds_bos=False), ""),
        (Facts(), ""),
    ):
        takes = of_any.begun_by(facts).takes
        assert takes is not None
        assert (start, "") == (takes.seen.start, takes.seen.end)
    said = Config.for_backend("http://h", "openchatml", first_token="<a>").models[0]
    assert said == said.begun_by(Facts(adds_bos=False, bos_token="<s>"))
