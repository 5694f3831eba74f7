"""Owns the tests of what is no place of a chat template: each is told with what was found there and what to do."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.modelfiles import ARRAY, STRING, array, folder, header, pair, text
from turnscript.core.errors import InvalidInput
from turnscript.detection.place import read_place

PLAIN = "{{ bos_token }}{% for m in messages %}<turn>{{ m.content }}{{ eos_token }}{% endfor %}"
TOOLS = "{% for t in tools %}<tool>{{ t | tojson }}{% endfor %}"
NAMED = [{"name": "tool_use", "template": TOOLS}, {"name": "default", "template": PLAIN}]


def refusal(place: str | Path) -> str:
    """What is said of a place that is refused."""
    with pytest.raises(InvalidInput) as caught:
        read_place(place)
    return str(caught.value)


def gguf(path: Path, *pairs: bytes) -> Path:
    path.write_bytes(header(*pairs))
    return path


def test_what_is_not_there_is_told_with_what_a_place_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    expected = (
        f"no/such: no such file or folder, and no model of that name in the Hugging Face cache ({tmp_path}); "
        "say a .jinja file, a tokenizer_config.json, a model's folder or a .gguf file"
    )
    assert expected == refusal("no/such")
    for place in ("", "#", "a#b", "a\0b", "x" * 5000):
        assert "no such file or folder" in refusal(place)
        assert len(refusal(place)) < 600


def test_a_folder_without_a_template_is_told(tmp_path: Path) -> None:
    expected = (
        f"{tmp_path}: no chat template is here, and there is no chat_template.jinja and no tokenizer_config.json; "
        "a base model has none: take the folder of the chat model, or name a .jinja file"
    )
    assert expected == refusal(tmp_path)


def test_a_configuration_without_a_template_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path, tokenizer_config={"bos_token": "<s>"}) / "tokenizer_config.json"
    expected = (
        f"{path}: has no chat_template, and there is no chat_template.jinja beside it; a base model has none: "
        "take the folder of the chat model, or name a .jinja file"
    )
    assert [expected, expected] == [refusal(path), refusal(tmp_path)]


def test_another_json_file_without_a_template_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path, chat={"a": 1}) / "chat.json"
    assert f"{path}: has no chat_template; say the model's folder, or a .jinja file" == refusal(path)


def test_a_gguf_file_without_a_template_is_told(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", text("general.architecture", "llama"))
    expected = (
        f"{path}: has no tokenizer.chat_template, as files of base models and older ones; name the model's .jinja "
        "file, or make the GGUF file anew from a folder that has one"
    )
    assert expected == refusal(path)


def test_a_name_for_a_template_of_llamacpps_own_is_none(tmp_path: Path) -> None:
    path = gguf(tmp_path / "m.gguf", text("tokenizer.chat_template", "rwkv-world"))
    expected = (
        f"tokenizer.chat_template of {path}: 'rwkv-world' is no chat template: nothing in it stands in {{{{ }}}} or "
        "{% %}; name a .jinja file with the model's own"
    )
    assert expected == refusal(path)


def test_of_several_gguf_files_one_must_be_named(tmp_path: Path) -> None:
    for name in ("b.gguf", "a.gguf"):
        gguf(tmp_path / name, text("tokenizer.chat_template", PLAIN))
    expected = f"{tmp_path}: there are 2 GGUF files and no other chat template; name one of them: a.gguf, b.gguf"
    assert expected == refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"chat_template":\n}', "line 2, column 1: not valid JSON"),
        (b"", "the input is empty"),
        (b'{"chat_template": 5}', "got `int` - at `$.chat_template`"),
        (b'{"chat_template": [{"name": "x"}]}', "missing required field `template` - at `$.chat_template[0]`"),
        (b'{"chat_template": {"x": 1}}', "got `int` - at `$.chat_template[...]`"),
        (b'{"chat_template": "{{ 1 }}", "bos_token": 5}', "bos_token is neither a text nor an object with a text"),
        (b'{"chat_template": "{{ 1 }}", "eos_token": {}}', "eos_token is neither a text nor an object with a text"),
        (b"[]", "Expected `object`, got `array`"),
    ],
)
def test_a_broken_configuration_is_told_with_the_place_in_it(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_bytes(content)
    said = refusal(path)
    assert said.startswith(f"{path}: ")
    assert message in said


@pytest.mark.parametrize("name", ["special_tokens_map", "added_tokens", "tokenizer", "config", "chat_template"])
def test_the_other_files_are_told_as_well(tmp_path: Path, name: str) -> None:
    folder(tmp_path, tokenizer_config={} if name == "chat_template" else {"chat_template": PLAIN})
    (tmp_path / f"{name}.json").write_bytes(b'{"a": 1,}')
    assert refusal(tmp_path).startswith(f"{tmp_path}/{name}.json: line 1, column 9: not valid JSON")


def test_a_name_that_no_template_has_is_told(tmp_path: Path) -> None:
    path = folder(tmp_path, tokenizer_config={"chat_template": NAMED})
    told = f"tokenizer_config.json in {path}"
    assert f"no chat template is called 'rag' in {told}; there are 2: tool_use, default" == refusal(f"{path}#rag")
    folder(tmp_path, tokenizer_config={"chat_template": PLAIN})
    assert f"no chat template is called 'rag' in {told}; there is only: default" == refusal(f"{path}#rag")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"\x89PNG\r\n\x1a\n",
            "no text: byte 0x89 at 0 is not UTF-8; a chat template is a text file, save it as UTF-8",
        ),
        (b"{{ 1 }}\xe9", "no text: byte 0xe9 at 7 is not UTF-8"),
        (b"{{ 1 }}\0", "no text: it has bytes that are 0, at 7; get it again"),
        (b" \n", "the chat template is empty; name a .jinja file"),
        (b"version https://git-lfs", "'version https://git-lfs' is no chat template: nothing in it stands in {{ }}"),
    ],
)
@pytest.mark.parametrize("name", ["mine.jinja", "chat_template.jinja"])
def test_what_is_no_text_or_no_template_is_told(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    said = refusal(tmp_path / name)
    assert name in said or content == b" \n"
    assert message in said or (content == b" \n" and "no chat template is here" in said)


def test_files_larger_than_any_are_not_read(tmp_path: Path) -> None:
    for name, size in (("big.jinja", 4 * 1024 * 1024), ("tokenizer_config.json", 64 * 1024 * 1024)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size + 1)
        assert f"{tmp_path / name}: larger than {size} bytes, which no such file of a model is" == refusal(
            tmp_path / name
        )


def test_what_is_neither_a_file_nor_a_folder_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jinja")
    assert "neither a file nor a folder" in refusal(tmp_path / "pipe.jinja")


@pytest.mark.parametrize("name", ["model.safetensors", "README"])
def test_another_file_is_no_place(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PLAIN)
    assert f"{tmp_path / name}: not a place of chat templates; say a .jinja file" in refusal(tmp_path / name)


def test_a_damaged_gguf_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(text("tokenizer.chat_template", PLAIN))[:-3])
    assert f"{path}: the file ends after" in refusal(path)
    path.write_bytes(header(pair("tokenizer.ggml.tokens", ARRAY, array(STRING, 2**62, b""))))
    assert f"{path}: the file ends after" in refusal(path)


def test_a_link_to_itself_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "a.jinja").symlink_to("a.jinja")
    assert f"{tmp_path / 'a.jinja'}: cannot be read: " in refusal(tmp_path / "a.jinja")


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder with a template that this process may not look into, not even as the user who may do everything."""
    path = folder(Path(tempfile.mkdtemp()), chat_template=PLAIN)
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield path
    finally:
        os.seteuid(user)
        path.chmod(0o700)
        (path / "chat_template.jinja").unlink()
        path.rmdir()


def test_a_folder_that_may_not_be_read_is_told(closed: Path) -> None:
    for place in (closed, closed / "chat_template.jinja"):
        expected = f"{place}: cannot be read: Permission denied; see to it that this user may read it"
        assert expected == refusal(place)
