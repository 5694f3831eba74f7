"""Owns a tokenizer's special tokens as text: those that chat templates know by name, and all that are control.

HF transformers passes to a template each token that has a name (`bos_token`, ...), as `tokenizer_config.json` says it.
`special_tokens_map.json`, `added_tokens.json` and `tokenizer.json` count only where that says nothing of its added
tokens, as in older models; then the first goes before it. A GGUF header has ids, and the tokens' texts and types in
its vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from turnscript.core.errors import InvalidInput
from turnscript.detection.gguf import Value
from turnscript.detection.modelfolder import TOKENIZER, read_json

GGUF_TOKENS = "tokenizer.ggml.tokens"
GGUF_TYPES = "tokenizer.ggml.token_type"
GGUF_IDS = {
    "tokenizer.ggml.bos_token_id": "bos_token",
    "tokenizer.ggml.eos_token_id": "eos_token",
    "tokenizer.ggml.unknown_token_id": "unk_token",
    "tokenizer.ggml.seperator_token_id": "sep_token",
    "tokenizer.ggml.padding_token_id": "pad_token",
    "tokenizer.ggml.cls_token_id": "cls_token",
    "tokenizer.ggml.mask_token_id": "mask_token",
}
"""The keys are as the files spell them."""
_USER_DEFINED = 4
_TOLD = frozenset({2, 3, _USER_DEFINED})
"""The types of tokens that are found in a text before all others: the unknown one, control tokens, added ones."""

_MAP = "special_tokens_map.json"
_ADDED = "added_tokens.json"
_FAST = "tokenizer.json"
_NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_MORE = ("extra_special_tokens", "additional_special_tokens")
_DECODER = "added_tokens_decoder"


class SpecialTokens(Struct, frozen=True):
    """The special tokens of a tokenizer. `named`: as templates know them. `control`: those that are no text, the named
    ones among them. `added`: others that are one token wherever they stand, such as tags of tool calls or runs of
    spaces."""

    named: Mapping[str, str] = {}
    control: tuple[str, ...] = ()
    added: tuple[str, ...] = ()


class _Token(Struct):
    content: str
    special: bool = False


class _Fast(Struct):
    added_tokens: list[_Token] = []


def tokens_of_folder(folder: Path) -> SpecialTokens:
    """Return the special tokens of a model that HF transformers wrote. Raises InvalidInput and OSError."""
    path = folder / TOKENIZER
    config = read_json(path, dict)
    named, more = _named(config, path), list(_more(config))
    added = [_token(entry) for entry in _values(config.get(_DECODER))]
    if _DECODER not in config:
        older = read_json(folder / _MAP, dict)
        named |= _named(older, folder / _MAP)
        more += _more(older)
        added += [(text, False) for text in read_json(folder / _ADDED, dict)]
        added += [(token.content, token.special) for token in read_json(folder / _FAST, _Fast).added_tokens]
    texts = {name: text for name, text in named.items() if text is not None}
    control = _once([*texts.values(), *more, *(text for text, special in added if special)])
    known = set(control)
    return SpecialTokens(texts, control, _once(text for text, _ in added if text not in known))


def tokens_of_gguf(values: Mapping[str, Value]) -> SpecialTokens:
    """Return the special tokens that a GGUF header tells, as far as its vocabulary is among `values`."""
    tokens, types = _listed(values.get(GGUF_TOKENS)), _listed(values.get(GGUF_TYPES))
    named: dict[str, str] = {}
    for key, name in GGUF_IDS.items():
        id_ = values.get(key)
        if isinstance(id_, int) and 0 <= id_ < len(tokens):
            named[name] = _decoded(tokens[id_])
    told = [(_decoded(token), kind) for token, kind in zip(tokens, types, strict=False) if kind in _TOLD]
    control = _once([*named.values(), *(text for text, kind in told if kind != _USER_DEFINED)])
    known = set(control)
    return SpecialTokens(named, control, _once(text for text, _ in told if text not in known))


def _named(config: Mapping[str, Any], path: Path) -> dict[str, str | None]:
    """Return the tokens that have names; None for one that is expressly none."""
    named: dict[str, str | None] = {}
    for name, value in config.items():
        if name in _NAMES:
            text = _text(value)
            if value is not None and text is None:
                message = f"{path}: {name} is neither a text nor an object with a text as `content`; correct it"
                raise InvalidInput(message, expected="a text or null", got=type(value).__name__)
            named[name] = text
        elif name.endswith("_token") and (text := _text(value)) is not None:
            named[name] = text
    own = config.get(_MORE[0])
    if isinstance(own, dict):
        named |= {name: text for name, value in own.items() if (text := _text(value)) is not None}
    return named


def _more(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the special tokens that have no names."""
    for name in _MORE:
        value = config.get(name)
        for one in value if isinstance(value, list) else ():
            yield _text(one) or ""


def _text(value: object) -> str | None:
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else None


def _token(value: object) -> tuple[str, bool]:
    """Return the text of an added token, and whether it is special."""
    return _text(value) or "", isinstance(value, dict) and value.get("special") is True


def _values(found: object) -> Iterable[object]:
    return found.values() if isinstance(found, dict) else ()


def _listed(value: Value | None) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else ()


def _decoded(token: object) -> str:
    return token.decode("utf-8", "replace") if isinstance(token, bytes) else ""


def _once(texts: Iterable[str]) -> tuple[str, ...]:
    """Return each text once, without empty ones and white space, which is text wherever it stands."""
    return tuple(dict.fromkeys(text for text in texts if text.strip()))
