"""Owns the small vocabulary: choosing its pieces from sample text, its file, and encoding with it.

The file is RWKV's: one token a line as `id repr length`, from id 1 on; 0 is the end of a text and no token of any text.
Encoding takes the longest token at each place, as all of RWKV's tokenizers do; so does llama.cpp.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

END = 0
# Pieces never reach across these: a word, one digit, one Chinese sign, spaces, and marks. A word is cut alike wherever
# it stands, behind a space or a quotation mark, so that copying it is copying its pieces.
_CUT = re.compile(
    r"[^\W\d_\u2e80-\u9fff\uac00-\ud7ff]+|\d|[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]"
    r"|[ \t]+|\n+|(?:[^\w\s]|_)+|\w|\s"
)
_LONGEST = 24
_SPARE = 1.6


class Vocabulary:
    """Tokens by id; `tokens[0]` is empty and stands for the end of a text."""

    def __init__(self, tokens: Sequence[bytes]) -> None:
        self.tokens = (b"", *tokens)
        self._ids = {token: number for number, token in enumerate(self.tokens) if token}
        missing = [byte for byte in range(256) if bytes([byte]) not in self._ids]
        if missing or len(self._ids) != len(tokens):
            raise ValueError(f"a vocabulary has each byte and no token twice: {len(missing)} bytes are missing")
        self._match = re.compile(_pattern(sorted(self._ids)), re.DOTALL)

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        ids = self._ids
        return [ids[piece] for piece in self.cut(text.encode())]

    def cut(self, data: bytes) -> list[bytes]:
        """The bytes of the tokens."""
        return self._match.findall(data)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.tokens[number] for number in ids).decode(errors="replace")

    def save(self, path: Path) -> None:
        """Write the file."""
        lines = (f"{number} {_written(token)} {len(token)}\n" for number, token in enumerate(self.tokens) if number)
        path.write_text("".join(lines), encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a file whose ids go from 1 on without a gap."""
        tokens: list[bytes] = []
        for line in path.read_text(encoding="utf-8").split("\n"):
            if line:
                number, _, rest = line.partition(" ")
                written, _, length = rest.rpartition(" ")
                value = ast.literal_eval(written)
                token = value.encode() if isinstance(value, str) else value
                if int(number) != len(tokens) + 1 or int(length) != len(token):
                    raise ValueError(f"{path}: line {len(tokens) + 1} is {line!r}")
                tokens.append(token)
        return cls(tokens)


def build(texts: Iterable[str], size: int, *, tags: Sequence[str] = (), pieces: Sequence[str] = ()) -> Vocabulary:
    """A vocabulary of `size` ids at most for texts like these: bytes, `tags`, `pieces`, and what saves most.

    A tag is always a token of its own: no chosen piece ends with the beginning of one. `pieces` are taken as they are.
    The same texts give the same vocabulary, whatever their order.
    """
    given = list(dict.fromkeys(piece.encode() for piece in (*tags, *pieces) if len(piece.encode()) > 1))
    fixed = [bytes([byte]) for byte in range(256)] + given
    room = size - 1 - len(fixed)
    if room < 0:
        raise ValueError(f"{size} ids hold {size - 257} pieces beside the bytes, and {len(given)} are given")
    words = _words(texts, tags)
    starts = {tag.encode()[:length] for tag in tags for length in range(1, len(tag.encode()) + 1)}
    known = set(given)
    found = [piece for piece in _merge(words, int(room * _SPARE)) if piece not in known and not _ends_in(piece, starts)]
    while len(found) > room:
        saved = _savings(fixed + found, words)
        drop = max(1, min(len(found) - room, len(found) // 8))
        lost = set(sorted(found, key=lambda piece: (saved[piece], piece))[:drop])
        found = [piece for piece in found if piece not in lost]
    return Vocabulary(fixed + sorted(found, key=lambda piece: (len(piece), piece)))


def _words(texts: Iterable[str], tags: Sequence[str]) -> Counter[bytes]:
    """How often each stretch stands in the texts that a piece may be part of."""
    longest = sorted(tags, key=len, reverse=True)
    apart = re.compile("|".join(re.escape(tag) for tag in longest) or "(?!)")
    counts: Counter[str] = Counter()
    for text in texts:
        for stretch in apart.split(text):
            counts.update(_CUT.findall(stretch))
    return Counter({word.encode(): count for word, count in counts.items()})


def _merge(words: Counter[bytes], count: int) -> list[bytes]:
    """Pieces as byte-pair encoding finds them, in its order, beginning with whole characters."""
    split = {word: [letter.encode() for letter in word.decode()] for word in sorted(words)}
    letters: Counter[bytes] = Counter()
    pairs: Counter[tuple[bytes, bytes]] = Counter()
    places: dict[tuple[bytes, bytes], set[bytes]] = {}
    for word, parts in split.items():
        for letter in parts:
            letters[letter] += words[word]
        _count(word, parts, words[word], pairs, places)
    wide = sorted(
        (letter for letter in letters if len(letter) > 1 and letters[letter] > 1), key=lambda x: (-letters[x], x)
    )
    found = dict.fromkeys(wide[: count // 2])
    while len(found) < count and pairs:
        pair = max(pairs, key=lambda pair: (pairs[pair], pair))
        if pairs[pair] < 2:
            break
        whole = pair[0] + pair[1]
        touched = sorted(places.pop(pair))
        del pairs[pair]
        for word in touched:
            _count(word, split[word], -words[word], pairs, places)
            split[word] = _joined(split[word], pair)
            _count(word, split[word], words[word], pairs, places)
        pairs.pop(pair, None)
        if len(whole) <= _LONGEST:
            found[whole] = None
    return list(found)


def _count(
    word: bytes,
    parts: list[bytes],
    times: int,
    pairs: Counter[tuple[bytes, bytes]],
    places: dict[tuple[bytes, bytes], set[bytes]],
) -> None:
    for pair in itertools.pairwise(parts):
        pairs[pair] += times
        if times > 0:
            places.setdefault(pair, set()).add(word)
        elif pairs[pair] <= 0:
            del pairs[pair]


def _joined(parts: list[bytes], pair: tuple[bytes, bytes]) -> list[bytes]:
    out: list[bytes] = []
    for part in parts:
        if out and (out[-1], part) == pair:
            out[-1] += part
        else:
            out.append(part)
    return out


def _savings(tokens: list[bytes], words: Counter[bytes]) -> Counter[bytes]:
    """How many tokens each piece saves against single bytes, where the longest match takes it."""
    vocabulary = Vocabulary(tokens)
    saved: Counter[bytes] = Counter()
    for word, times in words.items():
        for piece in vocabulary.cut(word):
            saved[piece] += times * (len(piece) - 1)
    return saved


def _ends_in(piece: bytes, starts: set[bytes]) -> bool:
    """Whether the piece could swallow the beginning of a tag."""
    return any(piece[cut:] in starts for cut in range(1, len(piece))) or piece in starts


def _pattern(tokens: Sequence[bytes]) -> bytes:
    """An expression that matches the longest token: tokens with a common beginning share it, as in a trie."""
    if len(tokens) == 1:
        return re.escape(tokens[0])
    prefix = tokens[0]
    while not all(token.startswith(prefix) for token in tokens):
        prefix = prefix[:-1]
    ends = tokens[0] == prefix
    groups: dict[int, list[bytes]] = {}
    for token in tokens[1 if ends else 0 :]:
        groups.setdefault(token[len(prefix)], []).append(token[len(prefix) :])
    inner = b"|".join(_pattern(group) for group in groups.values())
    return re.escape(prefix) + b"(?:" + inner + b")" + (b"?" if ends else b"")


def _written(token: bytes) -> str:
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)


def _unescaped(text: str) -> str:
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def main() -> None:
    """Build a vocabulary from text files."""
    parser = argparse.ArgumentParser(prog="python -m tiny.vocabulary", description=main.__doc__)
    parser.add_argument("texts", type=Path, nargs="+", help="UTF-8 text, whole rendered transcripts")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=1536, help="ids, the end of a text included")
    parser.add_argument("--tag", action="append", default=[], help="always a token of its own; Python escapes are read")
    parser.add_argument("--piece", action="append", default=[], help="a token too, for the joints between tags")
    given = parser.parse_args()
    texts = [path.read_text(encoding="utf-8") for path in given.texts]
    tags, pieces = ([_unescaped(text) for text in each] for each in (given.tag, given.piece))
    vocabulary = build(texts, given.size, tags=tags, pieces=pieces)
    vocabulary.save(given.out)
    tokens = sum(len(vocabulary.encode(text)) for text in texts)
    print(f"{len(vocabulary)} ids, {sum(len(text.encode()) for text in texts) / tokens:.2f} bytes a token")


if __name__ == "__main__":
    main()
