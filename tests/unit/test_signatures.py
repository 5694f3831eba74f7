"""Owns the laws of signatures: what was sealed comes back, and nothing else does."""

import json
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import text
from turnscript.core.errors import InvalidInput
from turnscript.core.signatures import LIMIT, VERSION, _encode, _mac, seal, unpacked_size, unseal

KEY = b"0123456789abcdef"
URL_SAFE = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def forged(data: bytes, key: bytes = KEY, tail: bytes = b"") -> str:
    """A signature that has the right key and whatever bytes inside."""
    packed = zlib.compress(data) + tail
    return VERSION + _encode(_mac(packed, key) + packed)


@given(thought=text.texts() | st.text(), key=st.binary(min_size=1, max_size=64))
def test_a_sealed_text_comes_back(thought: str, key: bytes) -> None:
    signature = seal(thought, key)
    assert thought == unseal(signature, key)
    assert signature == seal(thought, key)
    assert signature.startswith("ts1.")
    assert set(signature.removeprefix("ts1.")) <= URL_SAFE


@pytest.mark.parametrize("thought", ["", "Think.", "x" * 200])
def test_a_signature_with_any_character_changed_is_none(thought: str) -> None:
    signature = seal(thought, KEY)
    for index, character in enumerate(signature):
        for other in {"A", "_", "0", "=", "\n", "é"} - {character}:
            assert unseal(signature[:index] + other + signature[index + 1 :], KEY) is None, (index, other)


def test_every_other_last_character_is_refused_though_some_decode_to_the_same_bytes() -> None:
    for length in range(1, 12):
        signature = seal("abc" * length, KEY)
        for other in URL_SAFE - {signature[-1]}:
            assert unseal(signature[:-1] + other, KEY) is None


@given(thought=text.texts(), data=st.data())
def test_a_signature_with_any_byte_changed_is_none(thought: str, data: st.DataObject) -> None:
    body = bytearray(seal(thought, KEY).encode())
    index = data.draw(st.integers(0, len(body) - 1))
    body[index] ^= data.draw(st.integers(1, 255))
    assert unseal(body.decode("latin-1"), KEY) is None


@given(thought=text.texts())
def test_a_signature_cut_short_or_made_longer_is_none(thought: str) -> None:
    signature = seal(thought, KEY)
    for end in range(len(signature)):
        assert unseal(signature[:end], KEY) is None
    for tail in ("A", "AA", "AAA", "AAAA", "=", " ", "\n"):
        assert unseal(signature + tail, KEY) is None


def test_another_key_does_not_open_it() -> None:
    assert unseal(seal("secret", KEY), b"another key") is None


@given(foreign=st.text() | st.binary().map(_encode) | st.binary().map(lambda data: VERSION + _encode(data)))
def test_a_foreign_signature_is_none(foreign: str) -> None:
    assert unseal(foreign, KEY) is None


def test_a_text_that_unpacks_to_too_much_is_none() -> None:
    bomb = forged(json.dumps({"thinking": "a" * LIMIT}).encode())
    assert len(bomb) < LIMIT // 500
    assert unseal(bomb, KEY) is None
    frame = len(json.dumps({"thinking": ""}, separators=(",", ":")))
    longest = "a" * (LIMIT - frame)
    assert longest == unseal(seal(longest, KEY), KEY)
    assert unseal(seal(longest + "a", KEY), KEY) is None


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'"x"', b'{"thinking":1}', b'{"text":"x"}', b"\xff", b"[" * 99999])
def test_something_else_under_the_right_key_is_none(data: bytes) -> None:
    assert unseal(forged(data), KEY) is None


def test_bytes_behind_the_compressed_text_are_refused() -> None:
    genuine = b'{"thinking":"x"}'
    assert "x" == unseal(forged(genuine), KEY)
    assert unseal(forged(genuine, tail=b"more"), KEY) is None
    packed = zlib.compress(genuine)[:-1]
    assert unseal(VERSION + _encode(_mac(packed, KEY) + packed), KEY) is None


def test_an_empty_key_is_refused() -> None:
    with pytest.raises(InvalidInput, match="the key for signatures is empty"):
        seal("x", b"")
    with pytest.raises(InvalidInput, match="the key for signatures is empty"):
        unseal(seal("x", KEY), b"")


@pytest.mark.parametrize("tail", ["", "!", "A", "é"])
def test_what_is_long_and_no_seal_takes_no_more_memory_than_a_few_of_its_copies(tail: str) -> None:
    """Whoever may ask may send one of the size of a request."""
    signature = VERSION + "A" * 1_000_000 + tail
    for look in (lambda: unseal(signature, KEY), lambda: unpacked_size(signature)):
        tracemalloc.start()
        assert not look()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 * len(signature)
