"""Owns the unit tests of the facts about a model: what its name, its GGUF header and its folder say."""

import os
from pathlib import Path

import pytest

from tests.modelfiles import folder, header, text, vocabulary
from turnscript.core.errors import InvalidInput
from turnscript.detection.facts import Facts, facts_of_name, gather

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/Llama-3.1", ("llama-3.1",)),
        ("Model.GGUF", ("model",)),
        ("model.safetensors", ("model",)),
        (".gguf", (".gguf",)),
        ("bad\udcffname", ("bad\ufffdname",)),
        ("..", ()),
    ],
)
def test_a_name_is_a_base_name_without_the_suffix_of_a_weights_file(name: str, expected: tuple[str, ...]) -> None:
    assert expected == facts_of_name(name).names


def test_the_header_of_a_gguf_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "Model.gguf"
    path.write_bytes(
        header(
            text("general.architecture", "RWKV7"),
            text("general.name", "Rwkv7 G1a 0.4B 20251005"),
            text("general.basename", "model"),
            text("general.finetune", "Chat"),
            vocabulary(100),
            text("tokenizer.chat_template", "rwkv-world"),
            count=8,
        )
    )
    expected = Facts(
        stem="model",
        names=("model", "rwkv7 g1a 0.4b 20251005", "chat"),
        template="rwkv-world",
        architectures=("rwkv7",),
    )
    assert expected == gather(path)


def test_a_gguf_file_is_known_by_its_first_bytes_whatever_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "sha256-0123"
    path.write_bytes(header(text("general.architecture", "qwen2")))
    assert ("qwen2",) == gather(path).architectures


def test_a_file_of_another_kind_is_known_by_its_name_only(tmp_path: Path) -> None:
    path = tmp_path / "rwkv7-g1-20251005.pth"
    path.write_bytes(b"PK\x03\x04")
    assert facts_of_name(path) == gather(path)


@pytest.mark.parametrize("content", [b"", b"GGUF\x03", b"version https://git-lfs.example/spec/v1\n"])
def test_a_bad_gguf_file_is_told_by_its_path(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "llama.gguf"
    path.write_bytes(content)
    with pytest.raises(InvalidInput) as caught:
        gather(path)
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        [{"name": "default", "template": CHATML}],
        [{"name": "tool_use", "template": "[INST]"}, {"name": "default", "template": CHATML}],
        [{"name": "rag", "template": CHATML}, {"name": "tool_use", "template": "[INST]"}],
    ],
)
@pytest.mark.parametrize("given", [".", "tokenizer_config.json", "config.json"])
def test_a_folder_is_known_by_the_template_of_its_tokenizer(tmp_path: Path, template: object, given: str) -> None:
    path = folder(
        tmp_path / "Some-Llama-3",
        config={"model_type": "llama", "architectures": ["LlamaForCausalLM"], "_name_or_path": "base/Model-20250101"},
        tokenizer_config={"chat_template": template, "eos_token": {"content": "x"}},
    )
    expected = Facts(
        stem="some-llama-3",
        names=("some-llama-3", "model-20250101"),
        template=CHATML,
        architectures=("llama", "llamaforcausallm"),
    )
    assert expected == gather(path / given)


def test_a_template_in_a_file_of_its_own_hides_that_of_the_tokenizer(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", chat_template="<|start_header_id|>", tokenizer_config={"chat_template": CHATML})
    assert "<|start_header_id|>" == gather(path).template
    assert gather(path) == gather(path / "chat_template.jinja")


def test_any_jinja_file_is_a_template(tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_bytes(b"\xef\xbb\xbf<|im_start|>\xff")
    assert "<|im_start|>\ufffd" == gather(path).template


@pytest.mark.parametrize("template", [None, [], ""])
def test_a_folder_may_lack_a_template_or_everything(tmp_path: Path, template: object) -> None:
    path = folder(tmp_path / "m", config={"model_type": "rwkv7"}, tokenizer_config={"chat_template": template})
    assert Facts(stem="m", names=("m",), architectures=("rwkv7",)) == gather(path)
    assert Facts(stem="empty", names=("empty",)) == gather(folder(tmp_path / "empty"))


def test_the_folder_that_one_is_in_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder(tmp_path / "qwen2"))
    assert ("qwen2",) == gather(".").names


def test_a_link_keeps_the_name_by_which_it_is_called(tmp_path: Path) -> None:
    blobs = folder(tmp_path / "blobs", config={"model_type": "x"})
    (tmp_path / "qwen2").mkdir()
    (tmp_path / "qwen2" / "config.json").symlink_to(blobs / "config.json")
    assert ("qwen2",) == gather(tmp_path / "qwen2" / "config.json").names


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"chat_template": 5}', r"tokenizer_config\.json: Expected .* - at `\$\.chat_template`"),
        (b'{"chat_template":\n}', r"tokenizer_config\.json: line 2, column 1: not valid JSON"),
        (b'{"chat_template":\n"oh \xe9"}', r"tokenizer_config\.json: line 2, column 5: byte 0xe9 is not UTF-8"),
        (b"", r"tokenizer_config\.json: line 1, column 1: the input is empty"),
        (b"[]", r"tokenizer_config\.json: Expected `object`, got `array`"),
        (b'{"a": ' + b"[" * 1_000_000, r"tokenizer_config\.json: \$: the JSON is nested too deep"),
    ],
)
def test_a_bad_configuration_is_told_with_its_place(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "tokenizer_config.json").write_bytes(content)
    with pytest.raises(InvalidInput, match=message):
        gather(tmp_path)


def test_a_configuration_larger_than_any_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(InvalidInput, match=r"config\.json: larger than 67108864 bytes"):
        gather(tmp_path)


@pytest.mark.parametrize("name", ["no/such/qwen2", "x" * 5000, "nul\0byte", "rwkv7\n"])
def test_what_is_no_file_is_a_name(name: str) -> None:
    assert facts_of_name(name) == gather(name)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "qwen2.gguf")
    assert ("qwen2",) == gather(tmp_path / "qwen2.gguf").names
