"""Owns the tests of the places of chat templates: which one counts, what goes with it, and what is told of a model.

What is expected of folders is what HF transformers 5.24 loads from the same files, compared by hand.
"""

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.growth import processor_time
from tests.modelfiles import ARRAY, STRING, array, folder, header, number, pair, string, text, typed_vocabulary
from turnscript.core.errors import InvalidInput
from turnscript.detection import detect
from turnscript.detection.place import TemplateSource, in_hub_cache, is_place, of_server, read_place

PLAIN = "{{ bos_token }}{% for m in messages %}<turn>{{ m.content }}{{ eos_token }}{% endfor %}"
TOOLS = "{% for t in tools %}<tool>{{ t | tojson }}{% endfor %}"
OTHER = "{{ messages[0].content }}"
NAMED = [{"name": "tool_use", "template": TOOLS}, {"name": "default", "template": PLAIN}]


def added(content: str) -> dict[str, Any]:
    """A token as HF transformers writes one that is more than a text."""
    return {"__type": "AddedToken", "content": content, "lstrip": False, "normalized": True, "rstrip": False}


def decoder(**tokens: bool) -> dict[str, Any]:
    """The added tokens of a tokenizer, and whether each of them is special."""
    return {
        str(id_): {"content": f"<{name}>", "special": special} for id_, (name, special) in enumerate(tokens.items())
    }


def jinja(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode())


# Which template counts.


@pytest.mark.parametrize("named", [NAMED, {one["name"]: one["template"] for one in NAMED}])
def test_of_several_templates_default_is_without_tools_and_tool_use_with_them(tmp_path: Path, named: object) -> None:
    source = read_place(folder(tmp_path, tokenizer_config={"chat_template": named}))
    assert (PLAIN, TOOLS) == (source.text, source.tools_text)
    assert {"tool_use": TOOLS, "default": PLAIN} == source.named


def test_a_single_template_has_no_name_and_is_for_tools_too(tmp_path: Path) -> None:
    for given in (PLAIN, [NAMED[1]]):
        source = read_place(folder(tmp_path, tokenizer_config={"chat_template": given}))
        assert (PLAIN, "", {}) == (source.text, source.tools_text, source.named)


def test_a_file_of_its_own_hides_all_that_the_tokenizer_has(tmp_path: Path) -> None:
    folder(tmp_path, tokenizer_config={"chat_template": NAMED, "bos_token": "<s>"}, chat_template=OTHER)
    for given in ("", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        (tmp_path / "config.json").write_text("{}")
        source = read_place(tmp_path / given)
        assert (OTHER, "", {}, "<s>") == (source.text, source.tools_text, source.named, source.bos)
        assert f"chat_template.jinja in {tmp_path}" == source.told_by


def test_more_templates_lie_in_a_folder_beside_it(tmp_path: Path) -> None:
    folder(tmp_path, tokenizer_config={"chat_template": OTHER}, chat_template=PLAIN)
    jinja(tmp_path / "additional_chat_templates" / "tool_use.jinja", TOOLS)
    jinja(tmp_path / "additional_chat_templates" / "rag.jinja", OTHER)
    jinja(tmp_path / "additional_chat_templates" / "readme.md", "nothing")
    source = read_place(tmp_path)
    assert (PLAIN, TOOLS) == (source.text, source.tools_text)
    assert {"default": PLAIN, "tool_use": TOOLS, "rag": OTHER} == source.named


def test_templates_in_a_folder_hide_those_of_the_tokenizer_even_without_a_default(tmp_path: Path) -> None:
    folder(tmp_path, tokenizer_config={"chat_template": PLAIN})
    jinja(tmp_path / "additional_chat_templates" / "tool_use.jinja", TOOLS)
    source = read_place(tmp_path)
    assert (TOOLS, TOOLS, {"tool_use": TOOLS}) == (source.text, source.tools_text, source.named)
    assert f"additional_chat_templates in {tmp_path}" == source.told_by


def test_the_files_of_processors_count_where_the_tokenizer_has_none(tmp_path: Path) -> None:
    folder(tmp_path, tokenizer_config={"bos_token": "<s>"})
    (tmp_path / "chat_template.json").write_text('{"chat_template": "' + OTHER + '"}')
    assert (OTHER, "<s>", f"chat_template.json in {tmp_path}") == _told(read_place(tmp_path))
    folder(tmp_path, tokenizer_config={"chat_template": PLAIN, "bos_token": "<s>"})
    assert (PLAIN, "<s>", f"tokenizer_config.json in {tmp_path}") == _told(read_place(tmp_path))
    assert (OTHER, "<s>", f"chat_template.json in {tmp_path}") == _told(read_place(tmp_path / "chat_template.json"))


def _told(source: TemplateSource) -> tuple[str, str, str]:
    return source.text, source.bos, source.told_by


def test_a_jinja_file_of_any_name_counts_alone_with_the_tokens_of_the_folder_it_is_in(tmp_path: Path) -> None:
    folder(tmp_path, tokenizer_config={"chat_template": PLAIN, "eos_token": "</s>"})
    for path in (tmp_path / "mine.jinja", tmp_path / "additional_chat_templates" / "rag.jinja"):
        jinja(path, OTHER)
        source = read_place(str(path))
        assert (OTHER, "</s>", {}, str(path)) == (source.text, source.eos, source.named, source.told_by)


def test_line_ends_are_those_of_a_file_that_is_opened_as_text(tmp_path: Path) -> None:
    jinja(tmp_path / "chat_template.jinja", "\ufeff{{ 1 }}\r\na\rb\n")
    assert "{{ 1 }}\na\nb\n" == read_place(tmp_path).text


def test_a_name_after_a_hash_chooses_a_template(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", tokenizer_config={"chat_template": NAMED})
    for place in (path, path / "tokenizer_config.json"):
        source = read_place(f"{place}#tool_use")
        assert (TOOLS, "") == (source.text, source.tools_text)
        assert f"tool_use of tokenizer_config.json in {path}" == source.told_by
    assert PLAIN == read_place(f"{path}#default").text


def test_a_hash_may_be_part_of_a_path(tmp_path: Path) -> None:
    jinja(tmp_path / "c#" / "x#y.jinja", OTHER)
    assert OTHER == read_place(tmp_path / "c#" / "x#y.jinja").text
    assert OTHER == read_place(f"{tmp_path}/c#/x#y.jinja#default").text


# Tokens.


def test_tokens_are_texts_or_objects_or_none(tmp_path: Path) -> None:
    config = {
        "chat_template": PLAIN,
        "bos_token": added("<s>"),
        "eos_token": "</s>",
        "unk_token": None,
        "pad_token": {"content": "<pad>"},
        "image_token": "<image>",
        "add_bos_token": True,
        "model_max_length": 1000000000000000019884624838656,
        "extra_special_tokens": {"boi_token": "<boi>"},
        "added_tokens_decoder": {},
    }
    source = read_place(folder(tmp_path, tokenizer_config=config))
    assert ("<s>", "</s>") == (source.bos, source.eos)
    assert {"pad_token": "<pad>", "image_token": "<image>", "boi_token": "<boi>"} == source.tokens
    assert ("<s>", "</s>", "<pad>", "<image>", "<boi>") == source.control


def test_added_tokens_are_control_if_they_are_special_or_a_template_writes_them(tmp_path: Path) -> None:
    tokens = decoder(end=True, turn=False, tool=False, h1=False) | {"9": {"content": "\n\n", "special": True}}
    config = {"chat_template": NAMED, "added_tokens_decoder": tokens, "additional_special_tokens": ["<x>"]}
    source = read_place(folder(tmp_path, tokenizer_config=config))
    assert ("<x>", "<end>", "<turn>", "<tool>") == source.control
    assert ("<h1>",) == source.added


def test_older_files_tell_tokens_where_the_configuration_has_no_added_ones(tmp_path: Path) -> None:
    path = folder(
        tmp_path,
        tokenizer_config={"chat_template": PLAIN, "bos_token": "<old>", "eos_token": "</s>"},
        special_tokens_map={"bos_token": {"content": "<s>"}, "eos_token": None, "additional_special_tokens": ["<a>"]},
        added_tokens={"<turn>": 5, "<h1>": 6},
        tokenizer={"added_tokens": [{"id": 1, "content": "<t>", "special": True}], "model": {"vocab": {}}},
    )
    source = read_place(path)
    assert ("<s>", "") == (source.bos, source.eos)
    assert ("<s>", "<a>", "<t>", "<turn>") == source.control
    folder(tmp_path, tokenizer_config={"chat_template": PLAIN, "bos_token": "<old>", "added_tokens_decoder": {}})
    assert ("<old>", ("<old>",)) == (read_place(path).bos, read_place(path).control)


# GGUF.


def gguf(path: Path, *pairs: bytes) -> Path:
    path.write_bytes(header(*pairs))
    return path


def test_a_gguf_file_tells_all_of_a_model(tmp_path: Path) -> None:
    vocabulary = typed_vocabulary(("<unk>", 2), ("<s>", 3), ("</s>", 3), ("hello", 1), ("<turn>", 4), ("<h1>", 4))
    path = gguf(
        tmp_path / "Model.gguf",
        text("general.architecture", "llama"),
        text("general.name", "Some Chat"),
        number("llama.context_length", 8192),
        *vocabulary,
        number("tokenizer.ggml.bos_token_id", 1),
        number("tokenizer.ggml.eos_token_id", 2),
        number("tokenizer.ggml.unknown_token_id", 0),
        number("tokenizer.ggml.padding_token_id", 77),
        text("tokenizer.chat_template.tool_use", TOOLS),
        text("tokenizer.chat_template", PLAIN),
        pair("tokenizer.chat_templates", ARRAY, array(STRING, 1, string("tool_use"))),
    )
    expected = TemplateSource(
        text=PLAIN,
        tools_text=TOOLS,
        named={"default": PLAIN, "tool_use": TOOLS},
        bos="<s>",
        eos="</s>",
        tokens={"unk_token": "<unk>"},
        control=("<s>", "</s>", "<unk>", "<turn>"),
        added=("<h1>",),
        context=8192,
        names=("model", "some chat"),
        told_by=f"tokenizer.chat_template of {path}",
    )
    assert expected == read_place(path)
    assert (TOOLS, "") == (read_place(f"{path}#tool_use").text, read_place(f"{path}#tool_use").tools_text)


def test_a_gguf_file_is_known_by_its_first_bytes_and_in_a_folder_that_has_no_other(tmp_path: Path) -> None:
    vision, later = tmp_path / "mmproj-model.gguf", tmp_path / "model-00002-of-00002.gguf"
    for path in (vision, later, tmp_path / "model-00001-of-00002.gguf", tmp_path / "sha256-0"):
        gguf(path, text("tokenizer.chat_template", PLAIN))
    assert PLAIN == read_place(tmp_path / "sha256-0").text
    assert f"tokenizer.chat_template of {tmp_path}/model-00001-of-00002.gguf" == read_place(tmp_path).told_by


@pytest.mark.deep
def test_a_vocabulary_larger_than_any_is_read_fast(tmp_path: Path) -> None:
    size = 262_144
    words = b"".join(string(f"token{word}") for word in range(size))
    path = gguf(
        tmp_path / "m.gguf",
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, size, words)),
        pair("tokenizer.ggml.token_type", ARRAY, array(5, size, struct.pack(f"<{size}i", *[1] * (size - 1), 3))),
        pair("tokenizer.ggml.merges", ARRAY, array(STRING, size, words)),
        number("tokenizer.ggml.bos_token_id", 7),
        text("tokenizer.chat_template", PLAIN),
    )
    assert ("token7", f"token{size - 1}") == read_place(path).control
    assert min(processor_time(lambda: read_place(path)) for _ in range(3)) < 0.4


# What a model is.


@pytest.mark.parametrize(
    ("expected", "pairs"),
    [
        (False, [text("general.architecture", "qwen3")]),
        (True, [text("general.architecture", "rwkv7")]),
        (True, [text("general.architecture", "arwkv7")]),
        (True, [text("general.architecture", "falcon-h1")]),
        (True, [text("general.architecture", "new"), number("new.ssm.state_size", 128)]),
        (True, [text("general.architecture", "new"), number("new.wkv.head_size", 64)]),
        (False, [text("general.architecture", "new"), number("new.ssm.state_size", 0)]),
        (True, [pair("new.shortconv.l_cache", ARRAY, array(4, 2, struct.pack("<2I", 0, 3)))]),
    ],
)
def test_a_gguf_file_tells_whether_its_model_has_a_state(tmp_path: Path, expected: bool, pairs: list[bytes]) -> None:
    path = gguf(tmp_path / "m.gguf", *pairs, text("tokenizer.chat_template", PLAIN))
    assert expected is read_place(path).recurrent


@pytest.mark.parametrize(
    ("expected", "config"),
    [
        (False, {"model_type": "qwen3", "layer_types": ["full_attention", "sliding_attention"]}),
        (False, {"model_type": "minimax_m2", "architectures": ["MiniMaxM2ForCausalLM"]}),
        (False, {"model_type": "new", "layer_types": ["indexed_attention", "sparse", 5]}),
        (True, {"model_type": "qwen3_next"}),
        (True, {"model_type": "rwkv7"}),
        (True, {"architectures": ["FalconMambaForCausalLM"]}),
        (True, {"model_type": "jamba"}),
        (True, {"model_type": "new", "layer_types": ["full_attention", "linear_attention"]}),
        (True, {"model_type": "sees", "text_config": {"model_type": "qwen3_5_text"}}),
        (True, {"model_type": "sees", "text_config": {"layer_types": ["conv"]}}),
    ],
)
def test_a_configuration_tells_whether_its_model_has_a_state(tmp_path: Path, expected: bool, config: object) -> None:
    assert expected is read_place(folder(tmp_path, config=config, chat_template=PLAIN)).recurrent


def test_a_configuration_tells_the_names_and_the_context_of_its_model(tmp_path: Path) -> None:
    config = {"max_position_embeddings": 4096, "_name_or_path": "org/Base-7B"}
    source = read_place(folder(tmp_path / "Chat", config=config, chat_template=PLAIN))
    assert (("chat", "base-7b"), 4096) == (source.names, source.context)
    inner = {"text_config": {"max_position_embeddings": 64}}
    assert 64 == read_place(folder(tmp_path / "Chat", config=inner, chat_template=PLAIN)).context
    assert None is read_place(folder(tmp_path / "Chat", config={}, chat_template=PLAIN)).context


# The cache of Hugging Face.


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with one model."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    model = tmp_path / "home" / "hub" / "models--Org--Model-7B"
    folder(model / "snapshots" / "0123", tokenizer_config={"chat_template": NAMED, "bos_token": "<s>"})
    folder(model / "snapshots" / "4567", tokenizer_config={"chat_template": OTHER})
    jinja(model / "refs" / "main", "0123")
    return tmp_path / "home" / "hub"


def test_a_model_of_the_cache_is_found_by_its_name(hub: Path) -> None:
    source = read_place("Org/Model-7B")
    assert (PLAIN, "<s>", ("model-7b",)) == (source.text, source.bos, source.names)
    assert "tokenizer_config.json in Org/Model-7B" == source.told_by
    assert TOOLS == read_place("Org/Model-7B#tool_use").text
    assert hub / "models--Org--Model-7B" / "snapshots" / "0123" == in_hub_cache("Org/Model-7B")
    assert [True, True, False] == [is_place(name) for name in ("Org/Model-7B", str(hub), "Org/Other")]


def test_the_environment_says_where_the_cache_is(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/nowhere")
    assert None is in_hub_cache("Org/Model-7B")
    monkeypatch.setenv("HF_HUB_CACHE", str(hub))
    assert in_hub_cache("Org/Model-7B")
    monkeypatch.delenv("HF_HUB_CACHE")
    monkeypatch.delenv("HF_HOME")
    hub.parent.rename(hub.parent.parent / "huggingface")
    monkeypatch.setenv("XDG_CACHE_HOME", str(hub.parent.parent))
    assert in_hub_cache("Org/Model-7B")


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b/c", "Org/..", "Org/Other", "a\0b", "Org--Model-7B/"])
def test_what_is_no_name_in_the_cache_is_not_found(hub: Path, name: str) -> None:
    assert None is in_hub_cache(name)


def test_a_snapshot_is_called_as_its_model_is(hub: Path) -> None:
    path = hub / "models--Org--Model-7B" / "snapshots" / "4567"
    assert ("model-7b",) == read_place(path).names
    path.parent.parent.rename(hub / "models--Org--RWKV7-G1")
    assert "its name has 'rwkv7'" in detect(hub / "models--Org--RWKV7-G1" / "snapshots" / "4567").reason


# What a server shows.


def test_what_a_server_shows_is_a_template() -> None:
    model = "/m/Some-RWKV.gguf"
    expected = TemplateSource(
        text=PLAIN,
        bos="<s>",
        eos="</s>",
        control=("<s>", "</s>"),
        recurrent=True,
        names=("some-rwkv",),
        told_by="/props of http://h",
    )
    assert expected == of_server(PLAIN, bos="<s>", eos="</s>", model=model, told_by="/props of http://h")
    both = of_server(PLAIN, TOOLS, bos="<s>", model=model, told_by="x")
    assert (TOOLS, {"default": PLAIN, "tool_use": TOOLS}, "") == (both.tools_text, both.named, both.eos)


def test_a_server_that_shows_no_template_is_told() -> None:
    with pytest.raises(InvalidInput, match="props of http://h: the chat template is empty; "):
        of_server("", told_by="/props of http://h")
