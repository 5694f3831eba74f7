"""Owns the unit tests of GGUF headers: what is read, what is stepped over, and how damaged files are told."""

import io
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import processor_time
from tests.modelfiles import ARRAY, STRING, array, header, pair, string, text, vocabulary
from turnscript.core.errors import InvalidInput
from turnscript.detection.gguf import MAX_DEPTH, MAX_KEPT, MAX_KEPT_BYTES, MAX_STEPS, MAX_TEXT, read_texts, read_values

NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

EVERY_TYPE = header(
    text("general.architecture", "rwkv7"),
    *(pair(f"number.{kind}", kind, struct.pack(layout, 1)) for kind, layout in NUMBERS.items()),
    *(pair(f"array.{kind}", ARRAY, array(kind, 3, 3 * struct.pack(layout, 1))) for kind, layout in NUMBERS.items()),
    pair("texts", ARRAY, array(STRING, 3, string("a") + string("") + string("ccc"))),
    pair("nested", ARRAY, array(ARRAY, 2, array(STRING, 1, string("x")) + array(4, 2, bytes(8)))),
    pair("empty", ARRAY, array(STRING, 0, b"")),
    text("unwanted", "not this"),
    text("tokenizer.chat_template", "<|im_start|>über"),
)
WANTED = {"general.architecture", "tokenizer.chat_template", "general.name"}


def read(data: bytes, wanted: set[str] = WANTED) -> dict[str, str]:
    return read_texts(io.BytesIO(data), wanted)


@pytest.mark.parametrize("version", [2, 3])
def test_the_wanted_texts_are_read_past_values_of_every_type(version: int) -> None:
    data = EVERY_TYPE[:4] + struct.pack("<I", version) + EVERY_TYPE[8:]
    expected = {"general.architecture": "rwkv7", "tokenizer.chat_template": "<|im_start|>über"}
    assert expected == read(data)


def test_what_follows_the_header_is_not_looked_at() -> None:
    assert read(EVERY_TYPE) == read(EVERY_TYPE + b"\xff" * 100)


def test_a_wanted_key_that_holds_no_text_is_passed_over() -> None:
    assert {"b": "yes"} == read(header(pair("a", 4, bytes(4)), text("b", "yes")), {"a", "b"})


def test_of_a_key_that_is_there_twice_the_first_counts() -> None:
    assert {"a": "one"} == read(header(text("a", "one"), text("a", "two")), {"a"})


def test_text_that_is_not_utf_8_is_read_with_replacement_characters() -> None:
    assert {"a": "\ufffdx"} == read(header(pair("a", STRING, string(b"\xffx"))), {"a"})


def test_a_file_cut_off_at_any_byte_is_told() -> None:
    for length in range(len(EVERY_TYPE)):
        message = "not a GGUF file" if length < 4 else f"the file ends after {length} bytes, inside the "
        with pytest.raises(InvalidInput, match=message):
            read(EVERY_TYPE[:length])


def test_the_message_for_a_cut_off_file_says_where_and_what_to_do() -> None:
    with pytest.raises(InvalidInput) as caught:
        read(header(text("general.name", "RWKV"))[:-2])
    expected = (
        "the file ends after 58 bytes, inside the value of 'general.name'; it is cut off or damaged, get it again"
    )
    assert expected == str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a GGUF file: it is empty"),
        (b"PK\x03\x04 and so on", r"not a GGUF file: it begins with b'PK\\x03\\x04'"),
        (b"version https://git-lfs.example/spec/v1\noid sha256:0\n", "a Git LFS pointer"),
        (header(version=1), "GGUF version 1 is not read, only 2 and 3"),
        (header(version=4), "GGUF version 4 is not read"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack(">IQQ", 2, 0, 0), "big-endian"),
        (b"FUGG" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (header(count=2**63), "the header has 9223372036854775808 pairs"),
        (header(struct.pack("<Q", 2**40)), "the key of pair 1 has 1099511627776 bytes"),
        (header(pair("general.name", STRING, struct.pack("<Q", 2**63))), "has 9223372036854775808 bytes"),
        (header(pair("other", STRING, struct.pack("<Q", 2**64 - 1))), "inside the value of 'other'"),
        (header(pair("other", ARRAY, array(STRING, 2**64 - 1, b""))), "inside the value of 'other'"),
        (header(pair("other", ARRAY, array(12, 2**64 - 1, b""))), "inside the value of 'other'"),
        (header(pair("other", ARRAY, array(STRING, 2, string("a") + struct.pack("<Q", 2**40)))), "inside the value"),
        (header(pair("other", 13, b"")), "the value of 'other' has the unknown type 13"),
        (header(pair("other", ARRAY, array(99, 1, bytes(64)))), "the value of 'other' has the unknown type 99"),
    ],
)
def test_a_bad_header_is_told(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(data)


def test_arrays_nested_without_end_are_told() -> None:
    assert {} == read(header(pair("deep", ARRAY, array(ARRAY, 1, b"") * (MAX_DEPTH - 1) + array(4, 1, bytes(4)))))
    with pytest.raises(InvalidInput, match="the value of 'deep' has 9 levels"):
        read(header(pair("deep", ARRAY, array(ARRAY, 1, b"") * 1000 + array(4, 1, bytes(4)))))


def test_more_strings_than_any_model_has_are_told_before_they_are_read() -> None:
    one = pair("one", ARRAY, array(STRING, 1, string("")))
    many = pair("many", ARRAY, array(STRING, MAX_STEPS, bytes(8 * MAX_STEPS)))
    with pytest.raises(InvalidInput, match="the value of 'many' has 4000001 elements"):
        read(header(one, many))


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_told(data: bytes) -> None:
    for start in (b"", EVERY_TYPE[:24]):
        assert_read_or_told(start + data)


@given(st.integers(0, len(EVERY_TYPE) - 1), st.integers(0, 255))
def test_a_file_with_one_wrong_byte_is_read_or_told(place: int, byte: int) -> None:
    assert_read_or_told(EVERY_TYPE[:place] + bytes([byte]) + EVERY_TYPE[place + 1 :])


def assert_read_or_told(data: bytes) -> None:
    """Anything but InvalidInput fails the test, and so does a text that nobody asked for."""
    with suppress(InvalidInput):
        assert set(read(data)) <= WANTED


def test_wanted_values_of_every_type_are_read() -> None:
    values = read_values(io.BytesIO(EVERY_TYPE), lambda key: key != "unwanted")
    expected: dict[str, object] = {f"number.{kind}": 1 for kind in NUMBERS}
    expected |= {f"array.{kind}": (1, 1, 1) for kind in NUMBERS}
    texts = {"general.architecture": "rwkv7", "tokenizer.chat_template": "<|im_start|>über"}
    assert expected | texts | {"texts": [b"a", b"", b"ccc"], "empty": []} == values


@pytest.mark.parametrize("sizes", [[0, 1, 32 * 1024 - 9, 5], [32 * 1024 - 8, 3], [100_000, 0, 40_000], [7] * 10_000])
def test_strings_of_any_length_are_read_across_blocks(sizes: list[int]) -> None:
    texts = [bytes([97 + number % 26]) * size for number, size in enumerate(sizes)]
    words = pair("words", ARRAY, array(STRING, len(texts), b"".join(string(text) for text in texts)))
    data = header(words, text("after", "x"))
    assert {"words": texts, "after": "x"} == read_values(io.BytesIO(data), lambda key: True)
    assert {"after": "x"} == read(data, {"after"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (array(STRING, 2**62, b""), "inside the value of 'x'"),
        (array(4, 2**62, b""), "the value of 'x' has 4611686018427387904 elements"),
        (array(4, MAX_KEPT, b""), "inside the value of 'x'"),
        (array(STRING, MAX_KEPT + 1, bytes(8 * (MAX_KEPT + 1))), "the value of 'x' has 1048577 elements"),
        (array(STRING, 2, string("a") + struct.pack("<Q", 2**40)), "inside the value of 'x'"),
        (array(99, 1, bytes(64)), "the value of 'x' has the unknown type 99"),
    ],
)
def test_wanted_arrays_that_no_model_has_are_told_before_they_are_read(value: bytes, message: str) -> None:
    data = header(pair("x", ARRAY, value))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=message):
            read_values(io.BytesIO(data), lambda key: True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


def test_all_that_is_kept_has_a_limit() -> None:
    count = MAX_KEPT_BYTES // MAX_TEXT + 1
    data = header(*(text(f"tokenizer.chat_template.{number}", "x" * MAX_TEXT) for number in range(count)))
    with pytest.raises(InvalidInput, match=f"chat_template.{count - 1}' has {count * MAX_TEXT} bytes"):
        read_values(io.BytesIO(data), lambda key: True)
    assert {} == read(data, {"other"})


@given(st.integers(0, len(EVERY_TYPE) - 1), st.integers(0, 255))
def test_all_values_of_a_file_with_one_wrong_byte_are_read_or_told(place: int, byte: int) -> None:
    with suppress(InvalidInput):
        values = read_values(io.BytesIO(EVERY_TYPE[:place] + bytes([byte]) + EVERY_TYPE[place + 1 :]), lambda key: True)
        assert all(isinstance(value, (str, int, float, list, tuple)) for value in values.values())


def test_a_vocabulary_is_stepped_over_fast_and_without_loading_it() -> None:
    words = vocabulary(65_536)
    data = header(text("general.name", "RWKV"), words, text("tokenizer.chat_template", "x"), count=5)
    file = io.BytesIO(data)
    assert {"general.name": "RWKV", "tokenizer.chat_template": "x"} == read_texts(file, WANTED)
    assert min(processor_time(lambda: read_texts(file, WANTED)) for _ in range(3)) < 0.3
    tracemalloc.start()
    try:
        read_texts(file, WANTED)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000 < len(words)
