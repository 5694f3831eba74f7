"""Owns the tests of the vocabulary: its pieces, its file, and the tokens that llama.cpp makes of any text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny import engine, texts
from tests.tiny.conftest import Served
from tiny import export
from tiny.vocabulary import Vocabulary, build


def longest(words: Vocabulary, data: bytes) -> list[int]:
    """The definition, slow: the longest token at each place."""
    ids = {token: number for number, token in enumerate(words.tokens)}
    most, out = max(map(len, ids)), []
    while data:
        size = next(size for size in range(most, 0, -1) if data[:size] in ids and len(data) >= size)
        out.append(ids[data[:size]])
        data = data[size:]
    return out


def test_the_longest_token_is_taken_at_each_place(words: Vocabulary) -> None:
    for text in texts.hard(200, seed=3):
        ids = words.encode(text)
        assert longest(words, text.encode()) == ids
        assert text == words.decode(ids)


def test_llamacpp_makes_the_same_tokens_of_any_text(served: Served) -> None:
    for text in texts.hard(300):
        for special in (False, True):
            assert served.words.encode(text) == engine.tokenize(served.url, text, special=special), repr(text)


def test_a_tag_is_one_token_wherever_it_stands(words: Vocabulary) -> None:
    tags = [words.encode(tag)[0] for tag in texts.TAGS]
    assert [257, 258, 259, 260] == tags
    for before in (*texts.SAMPLE, "a<", " the", "\n", "\n\n\n", "U", "{", "."):
        for tag, number in zip(texts.TAGS, tags, strict=True):
            assert number in words.encode(before + tag), (before, tag)


def test_pieces_end_where_characters_do(words: Vocabulary) -> None:
    pieces = [token.decode() for token in words.tokens[257:]]
    assert 320 == len(words)
    assert "气" in pieces
    assert "weather" in pieces
    assert not [piece for piece in pieces if any(letter.isdigit() for letter in piece)]


def test_a_word_is_cut_alike_wherever_it_stands(words: Vocabulary) -> None:
    for word in ("weather", "Antwerp", "首尔", "zorp", "Unicorn"):
        alone = words.encode(word)
        for before in (" ", '"', "'", " (", ": ", "气"):
            cut = words.encode(f'{before}{word}"')
            assert alone == cut[-1 - len(alone) : -1], (before, word)


def test_the_order_of_the_texts_does_not_matter(words: Vocabulary) -> None:
    again = build(reversed(texts.SAMPLE), 320, tags=texts.TAGS, pieces=('{"name":"',))
    assert words.tokens == again.tokens


def test_the_file_comes_back(words: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.txt"
    words.save(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert ["1 '\\x00' 1", "11 '\\n' 1", "256 b'\\xff' 1", "257 'User: ' 6"] == [lines[at] for at in (0, 10, 255, 256)]
    assert words.tokens == Vocabulary.load(path).tokens


def test_a_damaged_file_is_refused(words: Vocabulary, tmp_path: Path) -> None:
    path = tmp_path / "vocabulary.txt"
    words.save(path)
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace("257 'User: ' 6", "257 'User: ' 7"), encoding="utf-8")
    with pytest.raises(ValueError, match="line 257"):
        Vocabulary.load(path)
    with pytest.raises(ValueError, match="1 bytes are missing"):
        Vocabulary([bytes([byte]) for byte in range(255)])
    with pytest.raises(ValueError, match="260 ids hold 3 pieces beside the bytes, and 4 are given"):
        build(texts.SAMPLE, 260, tags=texts.TAGS)


def test_the_end_of_a_text_is_in_a_prompt_only_by_its_whole_name(served: Served) -> None:
    assert [0] == engine.tokenize(served.url, export.END_NAME, special=True)
    for text in ("<s>", "</s>", "<|end of text|>", "<|end of text|>\xff", "<|end of text|>\\x", "\\xff"):
        assert 0 not in engine.tokenize(served.url, text, special=True)
    assert 0 not in engine.tokenize(served.url, export.END_NAME, special=False)
