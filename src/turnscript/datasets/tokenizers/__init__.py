"""Owns the names of tokenizers: the text that says which one is meant, and the tokenizer made from it.

rwkv-world                          the vocabulary of RWKV World models
rwkv:vocabulary.txt                 a vocabulary file of the same shape: `id literal length` on each line
hf:tokenizer.json                   a file of the `tokenizers` library; a path that ends in `.json` means the same
hf:tokenizer.json?end=<|endoftext|> the same, with the token that separates documents
bytes                               256 bytes and an end
rwkv-world+controls.json            control tokens added to a vocabulary that has free ids (`turnscript data tokens`)
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from turnscript.core.errors import InvalidInput, UnknownName
from turnscript.datasets.tokenizer import Tokenizer
from turnscript.datasets.tokenizers.controls import Controls, read_controls

WORLD, BYTES = "rwkv-world", "bytes"
_RWKV, _HF = "rwkv:", "hf:"
_END = "?end="
KNOWN = (WORLD, BYTES, f"{_RWKV}FILE", f"{_HF}FILE")


def get_tokenizer(spec: str, *, end: str | None = None) -> Tokenizer:
    """Return the tokenizer that `spec` names. `end`: the literal that separates documents, as `?end=` in a spec.

    Raises UnknownName, and InvalidInput for a file that is not what it should be.
    """
    base, said = _split_end(spec)
    end = said if end is None else end
    base, beside = _split_controls(base)
    name = base if base in (WORLD, BYTES) or base.startswith((_RWKV, _HF)) else _named_by_path(base)
    whole = name + (f"+{beside}" if beside else "") + (f"{_END}{end}" if end else "")
    return _made(whole, name, beside, end, (_stamp(name.partition(":")[2]), _stamp(beside)))


def parts_of(spec: str) -> tuple[str, str]:
    """Return what a tokenizer's `spec` says without its additions, and the path in it, empty if it names none."""
    base = _split_controls(_split_end(spec)[0])[0]
    return base, base.partition(":")[2]


def _split_end(spec: str) -> tuple[str, str | None]:
    base, mark, end = spec.partition(_END)
    return base, end if mark else None


def _split_controls(base: str) -> tuple[str, str]:
    """Split off the control tokens: a path may hold a `+` of its own, where a file is called so."""
    before, plus, beside = base.partition("+") if base.startswith((WORLD, BYTES)) else base.rpartition("+")
    if not plus or base.startswith(_HF) or not beside.endswith(".json") or Path(base.removeprefix(_RWKV)).exists():
        return base, ""
    return before, beside


def _named_by_path(base: str) -> str:
    if base.endswith(".json"):
        return f"{_HF}{base}"
    raise UnknownName("tokenizer", base, KNOWN)


def _stamp(path: str) -> tuple[int, int]:
    """Return what changes when a file does, so that a process never goes on with an old one."""
    try:
        found = Path(path).stat() if path else None
    except OSError:
        found = None  # who reads it says what is wrong
    return (found.st_mtime_ns, found.st_size) if found else (0, 0)


@lru_cache(maxsize=4)
def _made(spec: str, name: str, beside: str, end: str | None, _stamps: object) -> Tokenizer:
    """Return the tokenizer of a spec, always the same one: it takes a quarter of a second to load."""
    added = read_controls(beside) if beside else Controls()
    kind, _, path = name.partition(":")
    if name == BYTES:
        # Loaded when named: each kind needs a library of its own.
        from turnscript.datasets.tokenizers.raw import RawBytes  # noqa: PLC0415

        return RawBytes(spec, added, end)
    if kind == _HF[:-1]:
        from turnscript.datasets.tokenizers.hf import HuggingFace  # noqa: PLC0415

        return HuggingFace(spec, _bytes_of(path), end)
    from turnscript.datasets.tokenizers.rwkv import Rwkv, world_path  # noqa: PLC0415

    file = world_path() if name == WORLD else path
    return Rwkv(spec, file, _bytes_of(file), added, end, world=name == WORLD)


def _bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        message = f"cannot read the tokenizer file {path}: {error.strerror}; check the path"
        raise InvalidInput(message, expected="a file", got=path) from None


def digest(*parts: bytes) -> str:
    """Return a SHA-256 over several byte strings, each with its length, so that no two sequences are the same."""
    found = hashlib.sha256()
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()
