"""Owns the model files of tests: GGUF headers packed by hand, and folders as HF transformers writes them."""

import json
import struct
from pathlib import Path

STRING = 8
ARRAY = 9


def string(text: str | bytes) -> bytes:
    """A GGUF string."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def array(kind: int, count: int, elements: bytes) -> bytes:
    """A GGUF array."""
    return struct.pack("<IQ", kind, count) + elements


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    """A key and its value."""
    return string(key) + struct.pack("<I", kind) + value


def text(key: str, value: str) -> bytes:
    """A key and its text."""
    return pair(key, STRING, string(value))


def header(*pairs: bytes, version: int = 3, count: int | None = None, magic: bytes = b"GGUF") -> bytes:
    """A whole header; `count` may lie about the pairs."""
    return magic + struct.pack("<IQQ", version, 0, len(pairs) if count is None else count) + b"".join(pairs)


def vocabulary(size: int) -> bytes:
    """What stands between the name and the chat template of a real file: tokens, scores, types."""
    tokens = b"".join(string(f"token{number}") for number in range(size))
    return (
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, size, tokens))
        + pair("tokenizer.ggml.scores", ARRAY, array(6, size, bytes(4 * size)))
        + pair("tokenizer.ggml.token_type", ARRAY, array(5, size, bytes(4 * size)))
    )


def folder(path: Path, **files: object) -> Path:
    """A model's folder: `config` and `tokenizer_config` as JSON, `chat_template` as text."""
    path.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name == "chat_template":
            (path / "chat_template.jinja").write_text(str(content), encoding="utf-8")
        else:
            (path / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def number(key: str, value: int) -> bytes:
    """A key and its number."""
    return pair(key, 4, struct.pack("<I", value))


def typed_vocabulary(*tokens: tuple[str, int]) -> tuple[bytes, bytes]:
    """Two pairs: the texts of tokens, and their types."""
    texts = b"".join(string(token) for token, _ in tokens)
    kinds = struct.pack(f"<{len(tokens)}i", *(kind for _, kind in tokens))
    return (
        pair("tokenizer.ggml.tokens", ARRAY, array(STRING, len(tokens), texts)),
        pair("tokenizer.ggml.token_type", ARRAY, array(5, len(tokens), kinds)),
    )
