"""Owns the checks of vocabularies as servers take them: what is written is read back by the readers that there are."""

import hashlib
import json
import re
from pathlib import Path

import httpx2
import pytest
from gguf import GGUFReader
from pyrwkv_tokenizer import WorldTokenizer  # type: ignore[import-untyped]

import turnscript as ts
from tests.cli.running import run
from tests.datasets import tinytokenizers
from tests.datasets.beginnings import text_of
from tests.datasets.test_data_vocabulary import EXAMPLE, encoded
from tests.gateway.tinygguf import write_rwkv7_of
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.tokenizers.rwkv import world_path
from turnscript.datasets.tokenizers.serving import FORMS, serving_bytes
from turnscript.datasets.vocabulary import add_tags
from turnscript.gateway.embedded import Embedded

OURS = "<|im_end|>", "<|im_start|>"
IDS = {"<|im_end|>": 65530, "<|im_start|>": 65531}
AI00S = "d0240333485ed4e21265d76a1b053dd3837f56c6f86f3a11202c7452803a6ed0"
"""The SHA-256 of assets/tokenizer/rwkv_vocab_v20230424.json of the ai00_server project, read 2026-11-29."""


def write(file: Path, *options: str, tokenizer: str = "rwkv-world") -> str:
    """What the command says."""
    tags = ["--to", "openchatml", "--tokenizer", tokenizer, "--tags", ",".join(OURS)]
    result = run("data", "tokens", *tags, "--write", file, *options)
    assert 0 == result.exit_code, result.output
    return result.output


def unescaped(name: str) -> bytes:
    """The bytes that a name of a token stands for, as llama.cpp has it (llama_unescape_rwkv_token)."""
    letters = {"t": b"\t", "n": b"\n", "r": b"\r"}
    pieces = re.findall(r"\\x([0-9a-f]{2})|\\(.)|([^\\])", name, re.DOTALL)
    found = [(bytes.fromhex(code), letters.get(other, other.encode()), one.encode()) for code, other, one in pieces]
    return b"".join([b"".join(one) for one in found])


@pytest.mark.deep
def test_the_package_of_rwkv_reads_the_vocabulary_file(tmp_path: Path) -> None:
    said = write(tmp_path / "vocabulary.txt")
    reader = WorldTokenizer(str(tmp_path / "vocabulary.txt"))
    for tag, number in IDS.items():
        assert ([number], tag) == (reader.encode(tag), reader.decode([number]))
    text = "a<|im_end|>\n<|im_start|>assistant\nBonjour, 東京 👍\n\n"
    first, *others = re.split(r"(<\|\w+\|>)", text)
    world = get_tokenizer("rwkv-world")
    pieces = [[IDS[one]] if one in IDS else world.encode([one])[0] for one in (first, *others)]
    assert [number for piece in pieces for number in piece] == reader.encode(text)
    assert "does not find a tag behind what 31 tokens end in, such as ' <'" in said
    assert [65530] != reader.encode(" <|im_end|>")[-1:]


@pytest.mark.deep
def test_the_vocabulary_file_is_the_worlds_with_the_tags_behind_it(tmp_path: Path) -> None:
    write(tmp_path / "vocabulary.txt")
    lines = (tmp_path / "vocabulary.txt").read_bytes()
    world = Path(world_path()).read_bytes()
    assert world + b"65530 '<|im_end|>' 10\n65531 '<|im_start|>' 12\n" == lines
    assert {IDS["<|im_end|>"]} == set(get_tokenizer(f"rwkv:{tmp_path}/vocabulary.txt").encode(["<|im_end|>" * 2])[0])


def test_a_sample_has_the_ids_that_a_server_reads(tmp_path: Path) -> None:
    """The tags of this format stand behind line breaks, where the longest match finds them, too."""
    format_ = ts.get_format("batuta-generic")
    tags = [tag for tag in format_.special_tokens if tag.startswith("<|")]
    added = add_tags(format_, "rwkv-world", tmp_path / "tags.json", tags=tags)
    _, sample = encoded(format_.name, added.spec)
    add_tags(format_, added.spec, tmp_path / "all.txt", tags=tags)
    text = text_of(format_, EXAMPLE.request)
    assert sample.ids.tolist()[:-1] == WorldTokenizer(str(tmp_path / "all.txt")).encode(text)
    assert set(added.added.values()) & set(sample.ids.tolist())


def test_ai00s_json_is_its_own_with_the_tags_in_it(tmp_path: Path) -> None:
    write(tmp_path / "vocabulary.json", "--as", "json")
    found = json.loads((tmp_path / "vocabulary.json").read_bytes())
    assert list(OURS) == [found.pop("65530"), found.pop("65531")]
    assert AI00S == hashlib.sha256(json.dumps(found, indent=4).encode()).hexdigest()
    assert AI00S == hashlib.sha256(serving_bytes("json", get_tokenizer("rwkv-world"), {})).hexdigest()
    assert ("\n\n", [0x80]) == (found["261"], found["129"])


@pytest.mark.deep
def test_gguf_tokens_are_those_of_the_vocabulary_with_types_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "vocabulary.gguf")
    reader = GGUFReader(tmp_path / "vocabulary.gguf")
    field = {name: one.contents() for name, one in reader.fields.items()}
    names, types = field["tokenizer.ggml.tokens"], field["tokenizer.ggml.token_type"]
    assert ("rwkv", 0, False) == (
        field["tokenizer.ggml.model"],
        field["tokenizer.ggml.eos_token_id"],
        field["tokenizer.ggml.add_bos_token"],
    )
    world = get_tokenizer("rwkv-world")
    assert [world.decode([at]) for at in range(1, 65530)] == [unescaped(name) for name in names[1:65530]]
    assert list(OURS) == [names[65530], names[65531]]
    assert ({1}, [3, 3], 3, 65532) == (set(types[1:65530]), types[65530:], types[0], len(types))


def test_llama_cpp_finds_the_tags_by_gguf_tokens_behind_any_text(tmp_path: Path) -> None:
    """Real llama.cpp, with weights that are noise: it looks for control tokens before it cuts by the longest match."""
    words = [bytes([byte]) for byte in range(256)] + [b" <", b"Hi", b" there", "東".encode()]
    rows = [f"{at} {word!r} {len(word)}\n" for at, word in enumerate(words, 1)]
    (tmp_path / "small.txt").write_text("".join(rows), encoding="utf-8")
    spec = f"rwkv:{tmp_path}/small.txt"
    write(tmp_path / "small.gguf", "--resize", tokenizer=spec)
    field = {name: one.contents() for name, one in GGUFReader(tmp_path / "small.gguf").fields.items()}
    names, types = field["tokenizer.ggml.tokens"], field["tokenizer.ggml.token_type"]
    model = write_rwkv7_of(tmp_path / "model.gguf", names, types, field["tokenizer.ggml.eos_token_id"])
    first, *others = pieces = re.split(r"(<\|\w+\|>)", "Hi there <|im_end|>\n<|im_start|>東 \\ '\"\x00é<|im_end|>")
    ids = {tag: number for number, tag in enumerate(names) if tag in OURS}
    assert {261, 262} == set(ids.values())
    plain = get_tokenizer(spec)
    expected = [[ids[one]] if one in ids else plain.encode([one])[0] for one in (first, *others)]
    with Embedded(model, context=512, parallel=1, threads=1) as server:
        body = {"content": "".join(pieces), "parse_special": True}
        found = httpx2.post(f"{server.url}/tokenize", json=body, timeout=20).json()["tokens"]
    assert [number for piece in expected for number in piece] == found


@pytest.mark.deep
def test_ids_that_nothing_has_are_unused_in_gguf_and_no_text_stands_for_them(tmp_path: Path) -> None:
    file = tmp_path / "vocabulary.gguf"
    file.write_bytes(serving_bytes("gguf", get_tokenizer("rwkv-world"), {"<|im_end|>": 65535}))
    field = {name: one.contents() for name, one in GGUFReader(file).fields.items()}
    assert [r"[PAD65534]\xff", "<|im_end|>"] == field["tokenizer.ggml.tokens"][65534:]
    assert [5, 3] == field["tokenizer.ggml.token_type"][65534:]


@pytest.mark.deep
def test_tags_that_are_there_already_are_written_for_servers(tmp_path: Path) -> None:
    write(tmp_path / "tags.json")
    told = write(tmp_path / "later.txt", tokenizer=f"rwkv-world+{tmp_path}/tags.json")
    write(tmp_path / "at_once.txt")
    assert (tmp_path / "at_once.txt").read_bytes() == (tmp_path / "later.txt").read_bytes()
    spec = f"rwkv-world+{tmp_path}/tags.json"
    assert (
        0 == run("data", "tokens", "--to", "openchatml", "--tokenizer", spec, "--write", tmp_path / "a.txt").exit_code
    )
    assert (tmp_path / "a.txt").read_bytes() == (tmp_path / "later.txt").read_bytes()
    assert "for servers\n" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokenizer", "rwkv-world", "--write", "x.bin"], "for servers one that ends in .txt or .gguf"),
        (["--tokenizer", "bytes", "--write", "x.txt"], "the id 0 ends documents, and this tokenizer has a token there"),
        (["--tokenizer", "rwkv-world", "--resize", "--write", "x.json", "--as", "json"], "ai00's ids have two bytes"),
        (["--tokenizer", "rwkv-world", "--as", "json"], "--as says how the file of --write is written"),
    ],
)
def test_what_a_form_has_no_room_for_is_told(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("data", "tokens", "--to", "openchatml", *arguments)
    assert result.exit_code in (1, 2)
    assert words in result.stderr
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("form", FORMS)
def test_a_tokenizer_file_has_a_form_of_its_own(form: str, tmp_path: Path) -> None:
    path = tinytokenizers.byte_level(tmp_path / "t.json")
    target = tmp_path / "out"
    result = run("data", "tokens", "--to", "openchatml", "--tokenizer", path, "--write", target, "--as", form)
    assert (1, False) == (result.exit_code, target.exists())
    assert "this tokenizer is written as its own file" in result.stderr
