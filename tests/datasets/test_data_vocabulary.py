"""Owns the checks of tags that get tokens of their own: which ids, which file, and what people are told."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace
from tokenizers import AddedToken, Tokenizer

import turnscript as ts
from tests import corpora
from tests.datasets import tinytokenizers
from tests.datasets.beginnings import text_of
from tests.datasets.jobs import built, chats, plan_for, written
from turnscript.cli.data.closing import Closing
from turnscript.convert.registry import model_formats
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.encoding import Encoder, Sample
from turnscript.datasets.form import Example
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.train import Train
from turnscript.datasets.vocabulary import add_tags, ranked_tags

UNIVERSAL, CHATML = ts.get_format("rwkv-universal"), ts.get_format("batuta-chatml")
EXAMPLE = Example(corpora.load("one_call"))


def encoded(format_name: str, spec: str) -> tuple[Encoder, Sample]:
    encoder = Encoder(ts.get_format(format_name), get_tokenizer(spec), Train())
    found = encoder.encode([EXAMPLE])[0]
    assert isinstance(found, Sample)
    return encoder, found


def test_six_tags_fit_a_world_vocabulary_those_that_the_model_writes(tmp_path: Path) -> None:
    added = add_tags(UNIVERSAL, "rwkv-world", tmp_path / "c.json")
    assert ["<<ASSISTANT_END>>", "<<ASSISTANT>>"] == list(added.added)[:2]
    assert list(range(65530, 65536)) == sorted(added.added.values()) == added.train
    assert (65536, 65536, 0) == (added.size, added.was, added.rows)
    assert set(UNIVERSAL.special_tokens) == {*added.added, *added.left}
    assert any("found no free id" in note for note in added.notes)
    assert not any("two bytes" in note for note in added.notes)
    encoder, sample = encoded("rwkv-universal", added.spec)
    assert "ids" == encoder.mode
    assert added.added["<<TOOL_CALL"] in sample.ids
    assert text_of(UNIVERSAL, EXAMPLE.request).encode() == encoder.tokenizer.decode(sample.ids.tolist())


def test_more_tags_take_a_larger_vocabulary_that_two_bytes_do_not_hold(tmp_path: Path) -> None:
    added = add_tags(UNIVERSAL, "rwkv-world", tmp_path / "c.json", resize=True)
    more = len(UNIVERSAL.special_tokens) - 6
    assert ([], 65536 + more, more) == (added.left, added.size, added.rows)
    assert any("two bytes" in note for note in added.notes)
    assert any(f"grow by {more} rows" in note for note in added.notes)
    encoder, sample = encoded("rwkv-universal", added.spec)
    assert added.size == encoder.tokenizer.size
    assert max(sample.ids) > 65535


def test_chosen_tags_come_first_and_later_ones_are_added_to_them(tmp_path: Path) -> None:
    first = add_tags(UNIVERSAL, "rwkv-world", tmp_path / "c.json", tags=["<<USER>>", "<<USER_END>>"])
    assert {"<<USER>>": 65530, "<<USER_END>>": 65531} == first.added
    second = add_tags(UNIVERSAL, first.spec, tmp_path / "d.json", tags=["<<SYS>>", "<<USER>>"])
    assert ({"<<SYS>>": 65532}, {"<<USER>>": 65530}) == (second.added, second.kept)
    assert {**first.added, **second.added} == get_tokenizer(second.spec).controls
    with pytest.raises(UnknownName, match="<<USER>>"):
        add_tags(UNIVERSAL, "rwkv-world", tmp_path / "c.json", tags=["<<USR>>"])


def test_a_control_file_belongs_to_its_vocabulary(tmp_path: Path) -> None:
    add_tags(CHATML, "bytes", tmp_path / "c.json", resize=True)
    with pytest.raises(InvalidInput, match="another vocabulary"):
        get_tokenizer(f"rwkv-world+{tmp_path / 'c.json'}")


@pytest.mark.parametrize("tied", [True, False])
def test_a_tokenizer_file_gets_added_tokens(tmp_path: Path, tied: bool) -> None:
    path = tinytokenizers.byte_level(tmp_path / "t.json", ("<|endoftext|>", "<|im_end|>"))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 704, "tie_word_embeddings": tied}))
    before = get_tokenizer(path, end="<|endoftext|>")
    added = add_tags(CHATML, before.spec, tmp_path / "out.json")
    tokenizer = get_tokenizer(added.spec)
    assert before.end == tokenizer.end
    assert {"<|im_end|>": before.controls["<|im_end|>"]} == added.kept
    assert set(CHATML.special_tokens) == {*added.added, *added.kept}
    assert list(range(before.size, tokenizer.size)) == added.train
    assert (tokenizer.size, 704, tokenizer.size - 704) == (added.size, added.was, added.rows)
    assert tied == any("one matrix" in note for note in added.notes)
    assert before.encode(["Hello <think> Paris"]) == tokenizer.encode(["Hello <think> Paris"])
    encoder, sample = encoded("batuta-chatml", added.spec)
    assert tokenizer.controls["<|im_start|>"] in sample.ids
    assert tokenizer.controls["<tool_call>"] in sample.ids
    text = str(CHATML.render(EXAMPLE.request, view="prompt").value)
    assert text.encode() == encoder.tokenizer.decode(sample.ids.tolist())
    again = add_tags(CHATML, added.spec, tmp_path / "again.json")
    assert ({}, 0) == (again.added, len(again.train))


def test_tags_that_take_white_space_in_a_server_are_told_and_written_without_that(tmp_path: Path) -> None:
    """As in Phi-3's file: the line break behind `<|im_end|>` is in the samples, and no server's prompt has it."""
    tags = [AddedToken(tag, special=True, rstrip=tag == "<|im_end|>") for tag in ("<|im_start|>", "<|im_end|>")]
    spec = tinytokenizers.byte_level(tmp_path / "t.json", tags)
    source = written(tmp_path / "rows.jsonl", chats(3))
    prompt = CHATML.prompt(EXAMPLE.request)

    def agrees(path: Path) -> bool:
        ids = Encoder(CHATML, get_tokenizer(str(path)), Train()).prompt_ids(prompt.spans)
        return ids == Tokenizer.from_file(str(path)).encode(prompt.text, add_special_tokens=False).ids

    def notes(tokenizer: str) -> list[str]:
        built(plan_for(source, format=CHATML.name, tokenizer=tokenizer, mode="ids"), tmp_path / "run")
        return [one for one in Closing(str(tmp_path / "run")).facts()["notes"] if "white space" in one]

    assert not agrees(Path(spec))
    assert ["beside <|im_end|> out"] == [one[one.index("beside") :][:21] for one in notes(spec)]
    added = add_tags(CHATML, spec, tmp_path / "out.json", tags=["<|im_start|>", "<|im_end|>"])
    assert ({}, 2) == (added.added, len(added.kept))
    assert agrees(tmp_path / "out.json")
    assert [] == notes(added.spec)


@pytest.mark.parametrize(
    ("scheme", "mode", "told"),
    [
        ("always", "ids", "a space before each text of a prompt"),
        ("first", "text", "a space before the first text of a prompt"),
        ("first", "ids", ""),
        ("never", "text", ""),
    ],
)
def test_a_space_that_a_server_puts_before_texts_is_told(scheme: str, mode: str, told: str, tmp_path: Path) -> None:
    """As in the files of Llama 2 and Mistral: what stands behind a tag begins with another token in a server."""
    spec = tinytokenizers.unigram(tmp_path / "t.json")
    file = add_tags(CHATML, spec, tmp_path / "tags.json").file
    declared = json.loads(Path(file).read_bytes())
    declared["pre_tokenizer"]["prepend_scheme"] = scheme
    Path(file).write_text(json.dumps(declared))
    source = written(tmp_path / "rows.jsonl", chats(3))
    built(plan_for(source, format=CHATML.name, tokenizer=f"hf:{file}", mode=mode), tmp_path / "run")
    notes = [one for one in Closing(str(tmp_path / "run")).facts()["notes"] if "puts a space" in one]
    assert bool(told) == bool(notes)
    assert all(told in note for note in notes)
    prompt = CHATML.prompt(EXAMPLE.request)
    ids = Encoder(CHATML, get_tokenizer(f"hf:{file}"), Train(), mode=mode).prompt_ids(prompt.spans)
    # Before a tag there is no text, so what has a space before the first text alone differs where tags are text only.
    if mode == "ids":
        server = Tokenizer.from_file(file).encode(prompt.text, add_special_tokens=False).ids
        assert (ids == server) == (not told)


@pytest.mark.parametrize("name", [*ts.formats(), *model_formats()])
def test_a_prompt_that_has_what_no_sample_has_is_told(name: str, tmp_path: Path) -> None:
    """As Qwen3's has: the empty thought, which its past turns do not show."""
    source = written(tmp_path / "rows.jsonl", chats(2))
    built(plan_for(source, format=name, tokenizer="bytes"), tmp_path / "run")
    notes = [one for one in Closing(str(tmp_path / "run")).facts()["notes"] if "asks for no thought" in one]
    format_, question = ts.get_format(name), ts.User(content=[ts.Text(text="Hi")])
    answer = ts.Assistant(content=[ts.Text(text="Yo")])
    sample = format_.render(ts.Request(conversation=ts.Conversation(items=[question, answer])), view="prompt").value
    prompt = format_.prompt(ts.Request(conversation=ts.Conversation(items=[question])))
    assert str(sample).startswith(prompt.text) == (not notes)


def test_a_tag_that_is_wanted_twice_gets_one_id(tmp_path: Path) -> None:
    for spec, first in (("bytes", 257), (tinytokenizers.byte_level(tmp_path / "t.json", []), None)):
        added = add_tags(CHATML, spec, tmp_path / "out.json", tags=["<|im_end|>", "<|im_end|>"], resize=True)
        assert 1 == len(added.added)
        assert first in (None, *added.added.values())
        assert any("rows of new ids" in note for note in added.notes)
        again = add_tags(CHATML, added.spec, tmp_path / "again.json", tags=["<|im_end|>"])
        assert not any("rows of new ids" in note for note in again.notes)


def test_what_is_written_is_found_by_the_name_that_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "c++ + d"
    folder.mkdir()
    for base in ("bytes", tinytokenizers.byte_level(folder / "t.json", [])):
        added = add_tags(CHATML, base, folder / "a+b.json", resize=True)
        assert added.added.items() <= get_tokenizer(added.spec).controls.items()
    with pytest.raises(InvalidInput, match=r"ends in \.json, not 'tags\.bin'"):
        add_tags(CHATML, "bytes", folder / "tags.bin", resize=True)
    assert not (folder / "tags.bin").exists()


def test_only_telling_writes_nothing(tmp_path: Path) -> None:
    told = add_tags(CHATML, "rwkv-world", None)
    assert not (tmp_path / "c.json").exists()
    written = add_tags(CHATML, "rwkv-world", tmp_path / "c.json")
    assert ("", "", told) == (told.spec, told.file, replace(written, spec="", file=""))


@pytest.mark.parametrize("name", ts.formats())
def test_what_ends_a_turn_is_worth_most_and_white_space_is_no_tag(name: str) -> None:
    format_ = ts.get_format(name)
    tags = ranked_tags(format_)
    assert sorted(format_.special_tokens) == sorted(tags)
    assert not any(not tag.strip() or "\n" in tag for tag in tags)
    ends = [tag for tag in tags if any(tag in stop for stop in format_.document.generation.stops)]
    assert tags[: len(ends)] == ends


def test_a_tag_that_is_a_word_of_the_vocabulary_keeps_its_id(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    tinytokenizers.byte_level(path, ())
    declared = json.loads(path.read_text())
    size = len(declared["model"]["vocab"])
    declared["model"]["vocab"]["<think>"] = size
    declared["added_tokens"][0]["id"] = size + 1  # the run of spaces
    path.write_text(json.dumps(declared))
    added = add_tags(CHATML, str(path), tmp_path / "out.json", tags=["<think>", "</think>"])
    assert {"<think>": size, "</think>": size + 2} == added.added == get_tokenizer(added.spec).controls


def test_a_tag_that_is_a_piece_of_a_unigram_vocabulary_keeps_its_id(tmp_path: Path) -> None:
    """The library counts the ids itself, whatever the file says: one tag more would move all behind it."""
    path = tmp_path / "t.json"
    tinytokenizers.unigram(path)
    declared = json.loads(path.read_text())
    pieces = declared["model"]["vocab"]
    pieces.insert(5, ["<|im_end|>", -4.0])
    path.write_text(json.dumps(declared))
    added = add_tags(CHATML, str(path), tmp_path / "out.json", tags=["<|im_end|>", "<think>"])
    assert {"<|im_end|>": 5, "<think>": len(pieces)} == added.added
    library = Tokenizer.from_file(str(tmp_path / "out.json"))
    assert added.added == {tag: library.token_to_id(tag) for tag in added.added}
    controls = get_tokenizer(added.spec).controls
    assert added.added == {tag: controls[tag] for tag in added.added}


def test_new_tags_take_ids_that_a_vocabulary_with_holes_leaves_free(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    tinytokenizers.byte_level(path, ())
    declared = json.loads(path.read_text())
    words = declared["model"]["vocab"]
    words[max(words, key=words.__getitem__)] += 2
    declared["added_tokens"] = []
    path.write_text(json.dumps(declared))
    added = add_tags(CHATML, str(path), tmp_path / "out.json", tags=["<think>"])
    assert {"<think>": len(words)} == added.added == get_tokenizer(added.spec).controls
    with pytest.raises(InvalidInput, match="two tokens have the id"):
        add_tags(CHATML, str(path), tmp_path / "out.json", tags=["<think>", "</think>", "<|im_end|>"])
