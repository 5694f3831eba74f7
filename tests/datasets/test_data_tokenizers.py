"""Owns the checks of tokenizers: ids give the text back, tokens end where they say, and content is never a control."""

import itertools
import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import MethodType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, normalizers

from tests.datasets import tinytokenizers
from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers import get_tokenizer
from turnscript.datasets.tokenizers.hf import byte_alphabet
from turnscript.datasets.tokenizers.rwkv import LongestMatch, read_vocabulary, world_path

TEXTS = st.lists(
    st.sampled_from(["a", " ", "\n", "\n\n", "\0", "é", "e\u0301", "中文。", "\U0001f600", "<s>", "<|im_end|>", "    "])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    max_size=12,
).map("".join)
BYTES = [f"{one + 1} {bytes((one,))!r} 1" for one in range(256)]


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """A tokenizer of every kind that gives texts back."""
    folder = tmp_path_factory.mktemp("tokenizers")
    files = {
        "byte-level": tinytokenizers.byte_level(folder / "a.json"),
        "spaced": tinytokenizers.byte_level(folder / "b.json", spaced=True, cutting=True),
        "metaspace": tinytokenizers.metaspace(folder / "c.json"),
    }
    (folder / "own.txt").write_text("\n".join([*BYTES, "300 'ab' 2", "301 '中' 3", "70000 'abc' 3", ""]))
    specs = files | {"world": "rwkv-world", "bytes": "bytes", "own": f"rwkv:{folder / 'own.txt'}"}
    return {name: get_tokenizer(spec) for name, spec in specs.items()}


@given(TEXTS)
def test_every_tokenizer_gives_the_text_back_and_tells_where_its_tokens_end(
    kinds: dict[str, Tokenizer], text: str
) -> None:
    data = text.encode()
    for tokenizer in kinds.values():
        ids = tokenizer.encode([text])[0]
        assert data == tokenizer.decode(ids)
        ends = [0, *tokenizer.ends(text, ids).tolist()]
        assert len(data) == ends[-1]
        assert [data[start:end] for start, end in itertools.pairwise(ends)] == [tokenizer.decode([one]) for one in ids]
        assert not set(ids) & {*tokenizer.controls.values(), tokenizer.end}
        assert all(one < tokenizer.size for one in ids)


@given(TEXTS)
def test_a_text_that_is_cut_between_its_tokens_has_the_same_ids_where_a_tokenizer_says_so(
    kinds: dict[str, Tokenizer], text: str
) -> None:
    free = {name for name, tokenizer in kinds.items() if tokenizer.cuts_free}
    assert {"world", "bytes", "own"} == free
    for name in free:
        ids = kinds[name].encode([text])[0]
        data, ends = text.encode(), kinds[name].ends(text, ids).tolist()
        for count, end in enumerate(ends, 1):
            if end < len(data) and data[end] & 0xC0 == 0x80:
                continue  # inside a character
            pieces = [data[:end].decode(), data[end:].decode()]
            assert [ids[:count], ids[count:]] == kinds[name].encode(pieces)


@given(TEXTS)
def test_the_fast_tokenizer_finds_the_longest_matches(kinds: dict[str, Tokenizer], text: str) -> None:
    assert longest().encode(text) == kinds["world"].encode([text])[0]


@cache
def longest() -> LongestMatch:
    return LongestMatch(read_vocabulary(world_path(), Path(world_path()).read_bytes()))


@pytest.mark.deep
def test_the_known_vocabulary_is_read_as_any_other_and_without_the_fast_tokenizer_for_little() -> None:
    path = world_path()
    code = (
        "import sys; from turnscript.datasets.tokenizers import get_tokenizer\n"
        "world = get_tokenizer('rwkv-world'); ids = world.encode(['Hi, 世界.\\n\\n', 'x' * 1000])\n"
        "assert 'pyrwkv_tokenizer' not in sys.modules\n"
        "assert world.encode(['x' * 100000] * 2) and 'pyrwkv_tokenizer' in sys.modules\n"
        "assert ids == world.encode(['Hi, 世界.\\n\\n', 'x' * 1000])"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    world, tokens = get_tokenizer("rwkv-world"), read_vocabulary(path, Path(path).read_bytes())
    assert world.lengths is not None
    assert {number: len(token) for number, token in tokens.items()} == {
        number: size for number, size in enumerate(world.lengths.tolist()) if size
    }
    assert all(world.decode([number]) == token for number, token in tokens.items())


@pytest.mark.parametrize(("line_end", "more"), [("\n", []), ("\r\n", []), ("\n", [r"306 '\a\a' 2"])])
def test_a_vocabulary_file_is_read_whoever_cuts_the_texts(tmp_path: Path, line_end: str, more: list[str]) -> None:
    rows = [
        *BYTES,
        "300 'ab' 2",
        r"301 '\n\n' 2",
        '302 "it\'s" 4',
        r"303 'é\u3000' 5",
        r"304 b'\xe4\xb8' 2",
        "305 '  ' 2",
        *more,
    ]
    (tmp_path / "v.txt").write_bytes(line_end.join(rows).encode())
    tokenizer = get_tokenizer(f"rwkv:{tmp_path / 'v.txt'}")
    assert [300, 301, 302, 303, 305, 304, 0xAE] == tokenizer.encode(["ab\n\nit'sé\u3000  中"])[0]
    assert not isinstance(tokenizer._encode, MethodType)  # type: ignore[attr-defined]
    assert (306 + len(more), 0) == (tokenizer.size, tokenizer.end)


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (["hello"], "line 257"),
        (["300 'ab' 3"], "has 2 bytes and not 3"),
        (["1 'ab' 2"], "is there already"),
        (["300 'a' 1"], "is there already"),
        (["0 'ab' 2"], "ends documents"),
        (["300 'ab 2"], "line 257"),
        ([r"300 '\xg' 2"], "line 257"),
        (["300 '' 0"], "has 0 bytes"),
    ],
)
def test_a_vocabulary_file_with_a_fault_is_refused_with_the_line(tmp_path: Path, rows: list[str], what: str) -> None:
    (tmp_path / "v.txt").write_text("\n".join([*BYTES, *rows]))
    with pytest.raises(InvalidInput, match=what):
        get_tokenizer(f"rwkv:{tmp_path / 'v.txt'}")


def test_a_vocabulary_that_has_no_token_for_a_byte_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("\n".join(BYTES[1:]))
    with pytest.raises(InvalidInput, match="no token for the byte 0x00"):
        get_tokenizer(f"rwkv:{tmp_path / 'v.txt'}")


def test_half_of_a_surrogate_pair_is_refused_by_all(kinds: dict[str, Tokenizer]) -> None:
    for tokenizer in kinds.values():
        with pytest.raises(BadRow) as caught:
            tokenizer.encode(["good", "x\ud800y"])
        assert Code.UTF8 == caught.value.reason


def test_a_tag_among_the_added_tokens_is_a_control_and_a_run_of_spaces_is_none(tmp_path: Path) -> None:
    added = [AddedToken("<tool_call>", special=False), AddedToken("Paris-2", special=False)]
    tokenizer = get_tokenizer(tinytokenizers.byte_level(tmp_path / "t.json", added=added))
    assert {"<tool_call>", *tinytokenizers.CHATML} == set(tokenizer.controls)
    found = tokenizer.encode(["<tool_call>    Paris-2"])[0]
    assert tokenizer.controls["<tool_call>"] not in found
    assert [b"    ", b"Paris-2"] == [tokenizer.decode([one]) for one in found[-2:]]


def test_a_file_that_cuts_and_pads_does_neither_here(kinds: dict[str, Tokenizer]) -> None:
    text = "The weather in Paris is sunny. " * 40
    assert text.encode() == kinds["spaced"].decode(kinds["spaced"].encode([text, "a"])[0])


def test_a_control_token_that_is_a_piece_of_the_vocabulary_is_not_read_from_a_text(tmp_path: Path) -> None:
    tokenizer = get_tokenizer(tinytokenizers.unigram(tmp_path / "u.json"))
    ids = tokenizer.encode(["a <s> b</s>"])[0]
    assert b"a <s> b</s>" == tokenizer.decode(ids)
    assert not set(ids) & set(tokenizer.controls.values())


def test_a_character_without_a_token_is_refused(tmp_path: Path) -> None:
    tokenizer = get_tokenizer(tinytokenizers.unigram(tmp_path / "u.json"))
    with pytest.raises(BadRow, match="no token for a character"):
        tokenizer.encode(["\U0001f9ff"])


@pytest.mark.parametrize("byte_level", [True, False])
def test_a_character_that_a_tokenizer_would_leave_out_is_refused(tmp_path: Path, byte_level: bool) -> None:
    """A BPE that was trained on little data has neither a token for it nor one that stands for the unknown."""
    tokenizer = get_tokenizer(tinytokenizers.gaps(tmp_path / "g.json", byte_level=byte_level))
    known = "Paris in the cafe\u0301,\u00e9 the weather"
    assert tokenizer.encode([known])[0]
    for text in ("the 1 weather", "1", "the weather in Rome", "Paris\u0301"):
        with pytest.raises(BadRow, match="no token for a character"):
            tokenizer.encode([text])


def test_a_normalizer_moves_no_end(tmp_path: Path) -> None:
    """`e` and an accent become one character of one piece or two, and what follows ends where it did."""
    tokenizer = get_tokenizer(tinytokenizers.byte_level(tmp_path / "n.json", normalizer=normalizers.NFC()))
    text = "cafe\u0301 in Paris"
    ids = tokenizer.encode([text])[0]
    ends = tokenizer.ends(text, ids).tolist()
    assert sorted(ends) == ends
    assert len(text.encode()) == ends[-1]
    assert "cafe\u0301".encode() == text.encode()[: ends[-len(tokenizer.encode([" in Paris"])[0]) - 1]]


def test_a_tokenizer_that_leaves_out_spaces_has_no_ends(tmp_path: Path) -> None:
    tokenizer = get_tokenizer(tinytokenizers.words(tmp_path / "w.json"))
    with pytest.raises(BadRow, match="changes the text"):
        tokenizer.ends("the weather", tokenizer.encode(["the weather"])[0])


@pytest.mark.deep
def test_remembered_texts_have_the_same_ids_and_the_memory_is_bounded(kinds: dict[str, Tokenizer]) -> None:
    tokenizer = get_tokenizer(kinds["byte-level"].spec)
    fresh = tokenizer.encode(["Hello Paris"])
    for number in range(1200):
        tokenizer.encode([f"{number} " + "x" * 9000])
    assert fresh == tokenizer.encode(["Hello Paris"]) == tokenizer.encode(["Hello Paris", "Hello Paris"])[1:]
    assert len(tokenizer._new) + len(tokenizer._old) < 2000  # type: ignore[attr-defined]
    assert len("".join([*tokenizer._new, *tokenizer._old])) <= 2 << 23  # type: ignore[attr-defined]


def test_the_byte_alphabet_is_that_of_the_library() -> None:
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415

    assert set(ByteLevel.alphabet()) == set(byte_alphabet())
    assert set(range(256)) == set(byte_alphabet().values())


def test_a_spec_says_which_token_ends_a_document(tmp_path: Path) -> None:
    path = tinytokenizers.byte_level(tmp_path / "t.json")
    assert get_tokenizer(path).end is None
    ended = get_tokenizer(f"hf:{path}?end=<|endoftext|>")
    assert ended.end == ended.controls["<|endoftext|>"]
    assert f"hf:{path}?end=<|endoftext|>" == ended.spec == get_tokenizer(path, end="<|endoftext|>").spec
    assert ended.fingerprint != get_tokenizer(path).fingerprint
    with pytest.raises(InvalidInput, match="no control token '<eos>'"):
        get_tokenizer(path, end="<eos>")


@pytest.mark.parametrize("base", ["bytes", "rwkv-world"])
def test_control_tokens_stand_in_a_file_beside_a_vocabulary(tmp_path: Path, base: str) -> None:
    (tmp_path / "c.json").write_text('{"controls": {"<|im_end|>": 65531, "<eod>": 65535}}')
    tokenizer = get_tokenizer(f"{base}+{tmp_path / 'c.json'}?end=<eod>")
    assert ({"<|im_end|>": 65531, "<eod>": 65535}, 65536, 65535) == (tokenizer.controls, tokenizer.size, tokenizer.end)
    assert b"<|im_end|>" == tokenizer.decode([65531, 65535])
    assert tokenizer.fingerprint != get_tokenizer(base).fingerprint
    assert tokenizer.spec == get_tokenizer(tokenizer.spec).spec


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "no file of control tokens"),
        ('{"control": {}}', "no file of control tokens"),
        ('{"controls": {"<a>": 42}}', "taken by the vocabulary"),
        ('{"controls": {"<a>": 65530, "<b>": 65530}}', "taken by '<a>'"),
        ('{"controls": {"": 65530}}', "a control token is a text"),
        ('{"controls": {"<a>": 65530}, "vocabulary": "12"}', "another vocabulary"),
    ],
)
def test_a_faulty_file_of_control_tokens_is_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(InvalidInput, match=what):
        get_tokenizer(f"rwkv-world+{tmp_path / 'c.json'}")


def test_a_tokenizer_that_is_not_there_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'rwkv-world'"):
        get_tokenizer("rwkv-word")
    for spec in (f"hf:{tmp_path}/none.json", f"rwkv:{tmp_path}/none.txt", f"bytes+{tmp_path}/none.json"):
        with pytest.raises(InvalidInput, match="check the path"):
            get_tokenizer(spec)
    for text in ("{", "[]", json.dumps({"model": {"type": "Sorcery"}})):
        (tmp_path / "t.json").write_text(text)
        with pytest.raises(InvalidInput, match="is no tokenizer file"):
            get_tokenizer(str(tmp_path / "t.json"))


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("member", "value", "where"),
    [
        ("normalizer", "3", "$.normalizer"),
        ("normalizer", '{"type": "Sequence", "normalizers": 3}', "$.normalizer.normalizers"),
        ("pre_tokenizer", '{"type": "Sequence", "pretokenizers": [3]}', "$.pre_tokenizer.pretokenizers[0]"),
        ("pre_tokenizer", "{}", "$.pre_tokenizer"),
        ("decoder", '{"type": 3}', "$.decoder.type"),
        ("added_tokens", '{"<a>": 1}', "$.added_tokens"),
        ("added_tokens", '[{"id": 1}]', "$.added_tokens[0]"),
        ("added_tokens", '[{"id": "1", "content": "<a>"}]', "$.added_tokens[0].id"),
        ("added_tokens", '[{"id": 1, "content": null}]', "$.added_tokens[0].content"),
        ("added_tokens", '[{"id": 1, "content": "a", "special": "yes"}]', "$.added_tokens[0].special"),
        ("normalizer", DEEP, ""),
        ("model", '{"type": "BPE", "vocab": {}, "merges": [], "unk_token": 3}', ""),
        ("model", '{"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": "0"}', ""),
    ],
)
def test_a_tokenizer_file_of_wrong_types_is_refused_with_the_place(
    tmp_path: Path, member: str, value: str, where: str
) -> None:
    path = Path(tinytokenizers.byte_level(tmp_path / "t.json"))
    declared = json.loads(path.read_text())
    declared[member] = "HERE"
    path.write_text(json.dumps(declared).replace('"HERE"', value))
    with pytest.raises(InvalidInput, match="is no tokenizer file") as caught:
        get_tokenizer(str(path))
    assert where in str(caught.value)


@pytest.mark.parametrize("change", ["order", "gap", "hole"])
def test_added_tokens_whose_ids_the_library_does_not_share_are_refused(tmp_path: Path, change: str) -> None:
    """It numbers them anew, so a model trained with the ids of the file would end its turns with another token."""
    path = Path(tinytokenizers.byte_level(tmp_path / "t.json"))
    declared = json.loads(path.read_text())
    added = declared["added_tokens"]
    if change == "order":
        added.reverse()
    elif change == "gap":
        del added[1]
    else:
        declared["model"]["vocab"]["Paris-3"] = added[-1]["id"]
    path.write_text(json.dumps(declared))
    with pytest.raises(InvalidInput, match="the library that reads"):
        get_tokenizer(str(path))


def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text('{"controls": {"<a>": 300}}')
    before = get_tokenizer(f"bytes+{path}")
    path.write_text('{"controls": {"<ab>": 301}}')
    assert before is not get_tokenizer(f"bytes+{path}")
    assert {"<ab>": 301} == get_tokenizer(f"bytes+{path}").controls
    assert get_tokenizer("bytes") is get_tokenizer("bytes")


def test_a_control_in_a_text_has_the_ids_that_it_has_where_there_is_no_such_control(tmp_path: Path) -> None:
    text = "the weather<|im_end|> in <|im_start|>Paris"
    with_tags = get_tokenizer(tinytokenizers.byte_level(tmp_path / "a.json"))
    without = get_tokenizer(tinytokenizers.byte_level(tmp_path / "b.json", ()))
    assert without.encode([text]) == with_tags.encode([text])
