"""Owns the forms in which servers take a vocabulary of RWKV's shape, its control tokens among the others.

text   the vocabulary file of RWKV: rwkv.cpp, the package `rwkv`, llama.cpp's converter
json   that of ai00_server: ids, each with its text, or with its bytes where these are no text
gguf   the tokens of a GGUF file without weights, as llama.cpp's converter writes them

In the first two a control token is a token like any other: what is cut by the longest match finds it in any text, and
loses it where a token that begins before it takes its beginning. In GGUF it has a type of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from turnscript.core.errors import InvalidInput
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers.rwkv import END, SIZE
from turnscript.detection.gguf import header_bytes

TEXT, JSON, GGUF = "text", "json", "gguf"
FORMS = (TEXT, JSON, GGUF)
CUT_AS_TEXT = (TEXT, JSON)
"""The forms in which a control token is one like any other."""
ENDINGS = {".txt": TEXT, ".gguf": GGUF}
"""The forms that the ending of a file tells."""
_NORMAL, _CONTROL, _UNUSED = 1, 3, 5
_NO_TEXT = "\\xff"
"""An escaped byte that is in no UTF-8: llama.cpp takes the name of any token for a text that stands for it."""


def serving_bytes(form: str, tokenizer: Tokenizer, controls: Mapping[str, int]) -> bytes:
    """Return a tokenizer with these control tokens in one of the forms. Raises InvalidInput where that has no room."""
    tokens = tokens_of(tokenizer)
    write = _WRITERS[form]
    return write(tokens, controls, END if tokenizer.end is None else tokenizer.end)


def tokens_of(tokenizer: Tokenizer) -> dict[int, bytes]:
    """Return the tokens of a vocabulary by id, without its control tokens."""
    assert tokenizer.lengths is not None
    return {number: tokenizer.decode([number]) for number in np.flatnonzero(tokenizer.lengths).tolist()}


def taken_by(tokens: Iterable[bytes], tags: Iterable[str]) -> list[str]:
    """Return the tokens that begin before a tag and end in its beginning: so the longest match may miss the tag."""
    starts = {tag.encode()[:length] for tag in tags for length in range(1, len(tag.encode()) + 1)}
    longest = max(map(len, starts), default=0)
    return [
        token.decode("utf-8", "replace")
        for token in tokens
        if any(token[-length:] in starts for length in range(1, min(len(token), longest + 1)))
    ]


def _plain(form: str, tokens: Mapping[int, bytes], controls: Mapping[str, int]) -> dict[int, bytes]:
    if END in tokens:
        message = (
            f"in a vocabulary of the form {form} the id {END} ends documents, and this tokenizer has a token there"
        )
        raise InvalidInput(message, expected="a vocabulary of RWKV's shape", got=ascii(tokens[END]))
    return {**tokens, **{number: tag.encode() for tag, number in controls.items()}}


def _text(tokens: Mapping[int, bytes], controls: Mapping[str, int], end: int) -> bytes:
    found = {number: (_text_or_bytes(token), len(token)) for number, token in _plain(TEXT, tokens, controls).items()}
    return "".join([f"{number} {literal!r} {length}\n" for number, (literal, length) in sorted(found.items())]).encode()


def _json(tokens: Mapping[int, bytes], controls: Mapping[str, int], end: int) -> bytes:
    found = _plain(JSON, tokens, controls)
    if max(found) >= SIZE:
        message = (
            f"ai00's ids have two bytes, and there is one of {max(found)}; leave out --resize, or choose fewer tags"
        )
        raise InvalidInput(message, expected=f"ids below {SIZE}", got=str(max(found)))
    values = {number: _text_or_bytes(token) for number, token in sorted(found.items())}
    entries = {str(number): list(value) if isinstance(value, bytes) else value for number, value in values.items()}
    return json.dumps(entries, indent=4).encode()


def _text_or_bytes(token: bytes) -> str | bytes:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return token


def _gguf(tokens: Mapping[int, bytes], controls: Mapping[str, int], end: int) -> bytes:
    names = {number: repr(token)[2:-1] for number, token in tokens.items()}
    types = dict.fromkeys(tokens, _NORMAL)
    if end not in controls.values():
        names[end], types[end] = f"<|rwkv_tokenizer_end_of_text|>{_NO_TEXT}", _CONTROL
    for tag, number in controls.items():
        names[number], types[number] = repr(tag.encode())[2:-1], _CONTROL
    size = max(names) + 1
    return header_bytes(
        {
            "general.architecture": "rwkv7",
            "tokenizer.ggml.model": "rwkv",
            "tokenizer.ggml.tokens": [names.get(at, f"[PAD{at}]{_NO_TEXT}") for at in range(size)],
            "tokenizer.ggml.token_type": [types.get(at, _UNUSED) for at in range(size)],
            "tokenizer.ggml.eos_token_id": end,
            "tokenizer.ggml.add_bos_token": False,
            "tokenizer.ggml.add_eos_token": False,
        }
    )


_WRITERS: dict[str, Callable[[Mapping[int, bytes], Mapping[str, int], int], bytes]] = {
    TEXT: _text,
    JSON: _json,
    GGUF: _gguf,
}
