r"""Owns RWKV vocabularies: files of `id literal length` lines, and the longest match that cuts a text into tokens.

    259 '\n\n\n' 3
    1234 b'\xe4\xb8' 2

A literal is a Python string or byte string. The fast implementation (pyrwkv-tokenizer) drops what it has no token for
without a word and dies of files with a fault, so a file is read and checked here first.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.json import encode as json_bytes

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.datasets.tokenizer import Ends, Tokenizer
from turnscript.datasets.tokenizers import digest
from turnscript.datasets.tokenizers.controls import Controls
from turnscript.datasets.tokenizers.raw import end_of, half_pair, utf8_of

END = 0
SIZE = 65536
"""How many rows the embedding of every RWKV World model has; its vocabulary leaves the last six free."""
_KNOWN = "e6dee3d4e31b4d5c40ac99508ac6c701ceef4bed681bf2167ce9a908552bca89"
"""The SHA-256 of the World vocabulary. A file that is it has no faults, and needs no second look."""
_FEW = 1 << 16
"""Of a vocabulary that is known, so many characters are cut here, in less time than the fast implementation loads."""
_LITERALS = re.compile(rb"^\d+ (.*) \d+$", re.MULTILINE)
_LINE = re.compile(rb"(\d+) (b?(?:'.*'|\".*\")) (\d+)\r?")
_ESCAPES = str.maketrans({"\\": r"\\", "'": r"\'", "\n": r"\n", "\r": r"\r", "\t": r"\t"})
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_PACKAGE, _FILE = "pyrwkv_tokenizer", "rwkv_vocab_v20230424.txt"


def world_path() -> str:
    """Return where the World vocabulary is, which comes with the tokenizer's package."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or not found.submodule_search_locations:
        message = "the World vocabulary comes with a package that is not installed: pip install 'turnscript[data]'"
        raise Unsupported("the RWKV World tokenizer", "this installation", message)
    return str(Path(found.submodule_search_locations[0]) / _FILE)


class Rwkv(Tokenizer):
    """A vocabulary with the longest match. Id 0 ends a document; `added` has control tokens on ids that are free."""

    def __init__(
        self, spec: str, path: str, vocabulary: bytes, added: Controls, end: str | None, *, world: bool = False
    ) -> None:
        known = hashlib.sha256(vocabulary).hexdigest() == _KNOWN
        sizes = _sizes_of(path, vocabulary, known=known)
        added.check({**sizes, END: 0}, vocabulary)
        self._file = path, vocabulary
        self.spec = spec
        self.controls = dict(added.controls)
        self.end = END if end is None else end_of(end, self.controls)
        self.size = max(SIZE - 1 if world else 0, *sizes, *self.controls.values()) + 1
        self.fingerprint = digest(vocabulary, json_bytes(self.controls), str(self.end).encode())
        self.cuts_free = True  # what is the longest match in a text is that in its beginning too, if it fits in there
        self.lengths = np.zeros(self.size, np.int32)
        self.lengths[list(sizes)] = list(sizes.values())
        self._known, self._trusted = known, world or known
        self._few = _FEW if known else 0
        if not self._trusted:
            self._encode = self._fast() or self._slow

    @cached_property
    def _tokens(self) -> Mapping[int, bytes]:
        # Read when somebody asks: a build never does, and reading all literals takes a while.
        return _known_tokens(self._file[1]) if self._known else read_vocabulary(*self._file)

    @cached_property
    def _slow(self) -> Callable[[str], list[int]]:
        return LongestMatch(self._tokens).encode

    @cached_property
    def _encode(self) -> Callable[[str], list[int]]:
        return self._fast() or self._slow

    @cached_property
    def _texts(self) -> Mapping[int, bytes]:
        texts = dict(self._tokens)
        texts |= {number: literal.encode() for literal, number in self.controls.items()}
        return texts | ({} if self.end is None else {self.end: b""})

    def _fast(self) -> Callable[[str], list[int]] | None:
        path, _ = self._file
        if importlib.util.find_spec(_PACKAGE) is None:
            return None
        if not self._trusted:
            return _fast(self._tokens)
        encode: Callable[[str], list[int]] = _world(path).encode
        return encode

    def load(self) -> None:
        """Load the fast implementation."""
        self._few = 0
        assert self._encode is not None

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text cut into the longest tokens, from its beginning on."""
        return list(self.each(texts))

    def each(self, texts: Sequence[str]) -> Iterator[list[int]]:
        """Give the same, a text at a time: the memory of its ids is still near when it is used again for the next."""
        encode = self._encode if self._many(texts) else self._slow
        try:
            yield from map(encode, texts)
        except UnicodeEncodeError as error:
            raise half_pair(error) from None

    def _many(self, texts: Sequence[str]) -> bool:
        """Return whether there was so much to cut so far that the fast implementation is worth the time to load it."""
        if self._few > 0:
            self._few -= sum(map(len, texts))
        return self._few <= 0

    def ends(self, text: str, ids: Sequence[int]) -> Ends:
        """Return the ends by the sizes: every id stands for the same bytes wherever it is."""
        assert self.lengths is not None
        return self.lengths[np.asarray(ids, np.int64)].cumsum(dtype=np.int64)

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of the tokens."""
        texts = self._texts
        return b"".join([texts.get(one, b"") for one in ids])


class LongestMatch:
    """The longest match without the fast package: at each place, the lengths that tokens with these two bytes have."""

    def __init__(self, tokens: Mapping[int, bytes]) -> None:
        self._ids = {token: number for number, token in tokens.items()}
        lengths: dict[bytes, set[int]] = {}
        for token in self._ids:
            lengths.setdefault(token[:2], {1}).add(len(token))
        self._lengths = {start: tuple(sorted(found, reverse=True)) for start, found in lengths.items()}

    def encode(self, text: str) -> list[int]:
        """Return a text as ids, in time that grows with its length."""
        data, ids, lengths, at = utf8_of(text), self._ids, self._lengths, 0
        found: list[int] = []
        while at < len(data):
            for length in lengths.get(data[at : at + 2], (1,)):
                number = ids.get(data[at : at + length])
                if number is not None:
                    found.append(number)
                    at += length
                    break
        return found


def _sizes_of(path: str, vocabulary: bytes, *, known: bool) -> dict[int, int]:
    """Return how many bytes each token has, by id."""
    if not known:
        return {number: len(token) for number, token in read_vocabulary(path, vocabulary).items()}
    # Lines are in the order of ids, from 1 on, and end with the size, which has one digit to three.
    data = np.frombuffer(vocabulary, np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    ones, tens, hundreds = (data[ends - place].astype(np.int32) - ord("0") for place in (1, 2, 3))
    more = (tens >= 0) & (tens <= 9)  # before the size stands a space
    sizes = ones + np.where(more, 10 * tens + np.where((hundreds >= 0) & (hundreds <= 9), 100 * hundreds, 0), 0)
    return dict(enumerate(sizes.tolist(), 1))


def _known_tokens(vocabulary: bytes) -> dict[int, bytes]:
    """Return the tokens of the file that is known, which has no faults to look for."""
    literals = _LITERALS.findall(vocabulary)
    tokens = {number: literal[1:-1] for number, literal in enumerate(literals, 1)}
    # Few are more than what stands between their quotes.
    odd = [number for number, literal in enumerate(literals, 1) if b"\\" in literal or literal[:1] == b"b"]
    tokens |= {number: _token(literals[number - 1]) or b"" for number in odd}
    return tokens


@lru_cache(maxsize=2)
def read_vocabulary(path: str, vocabulary: bytes) -> Mapping[int, bytes]:
    """Return the tokens of a vocabulary file by id. Raises InvalidInput with the line of the first fault."""
    tokens: dict[int, bytes] = {}
    known: set[bytes] = set()
    for line, row in enumerate(vocabulary.split(b"\n"), 1):
        if not row.strip(b"\r"):
            continue
        match = _LINE.fullmatch(row)
        token = _token(match[2]) if match else None
        if match is None or token is None:
            raise _fault(path, line, "it is not `id literal length`", row)
        number = int(match[1])
        if not token or len(token) != int(match[3]):
            raise _fault(path, line, f"the token has {len(token)} bytes and not {int(match[3])}", row)
        if number == END or number in tokens or token in known:
            other = "ends documents" if number == END else "is there already"
            raise _fault(path, line, f"the id or the token {other}", row)
        tokens[number] = token
        known.add(token)
    missing = [one for one in range(256) if bytes((one,)) not in known]
    if missing:
        message = (
            f"{path} has no token for the byte {missing[0]:#04x} ({len(missing)} are missing); add one for each byte"
        )
        raise InvalidInput(message, expected="a token for each of the 256 bytes", got=path)
    return tokens


def _token(literal: bytes) -> bytes | None:
    if b"\\" not in literal and literal[:1] != b"b" and literal[:1] not in literal[1:-1]:
        return literal[1:-1]
    try:
        value = ast.literal_eval(literal.decode())
        return value if isinstance(value, bytes) else str(value).encode()
    except (SyntaxError, ValueError):
        return None


def _fault(path: str, line: int, what: str, row: bytes) -> InvalidInput:
    message = f"{path} is no RWKV vocabulary: line {line}: {what}"
    return InvalidInput(
        message, line=line, column=1, expected="12 'ab' 2", got=ascii(row[:40].decode("utf-8", "replace"))
    )


def _fast(tokens: Mapping[int, bytes]) -> Callable[[str], list[int]] | None:
    """Return the fast implementation, if it reads this vocabulary as it is.

    It panics at spellings that the World file does not use, so it gets any other vocabulary in that file's spelling.
    """
    if max(tokens) >= SIZE:
        return None
    encode: Callable[[str], list[int]]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / _FILE
        rows = [f"{number} {_literal(token)} {len(token)}\n" for number, token in sorted(tokens.items())]
        file.write_bytes("".join(rows).encode())
        encode = _loaded(str(file)).encode
    for number, token in tokens.items():
        text = token.decode("utf-8", "ignore")
        if text.encode() == token and encode(text) != [number]:
            return None
    return encode


@lru_cache(maxsize=1)
def _world(path: str) -> Any:
    """Return the fast implementation of the World vocabulary: made once, because it takes most of the time."""
    return _loaded(path)


def _loaded(path: str) -> Any:
    # Imported when a vocabulary is read: other tokenizers do without.
    from pyrwkv_tokenizer import WorldTokenizer  # type: ignore[import-untyped] # noqa: PLC0415

    return WorldTokenizer(path)


def _literal(token: bytes) -> str:
    """Return a token as the World file spells it."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "b'" + "".join([f"\\x{one:02x}" for one in token]) + "'"
    return "'" + _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text.translate(_ESCAPES)) + "'"
