"""Owns tokenizers of the `tokenizers` library, read from their JSON file: content stays content, and pieces are kept.

What a file says is changed in three ways, so that the same text always gives the same ids and the ids give the text:
tokens that are tags (`<tool_call>`) are controls even where the file does not call them special; nothing is padded, cut
or put around a text; and no space is put before one. Runs of spaces and other words among the added tokens stay.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from turnscript.core.errors import InvalidInput, Unsupported
from turnscript.datasets.problems import BadRow, Code
from turnscript.datasets.tokenizer import EACH, FIRST, Ends, Tokenizer
from turnscript.datasets.tokenizers import digest
from turnscript.datasets.tokenizers.raw import end_of, half_pair

_TAG = re.compile("[<\\[{|\uff1c].*[>\\]}|\uff1e]", re.DOTALL)
_KEPT, _LONGEST = 1 << 23, 1 << 14  # characters of pieces that are remembered, and of the longest of them
_SPACE = "\u2581"
_BYTE = re.compile("<0x([0-9A-F]{2})>")


class _Token(msgspec.Struct):
    """What is read here of an added token."""

    content: str
    id: int
    special: bool = False
    lstrip: bool = False
    rstrip: bool = False


class _Step(msgspec.Struct):
    """What is read here of a normalizer, pre-tokenizer or decoder."""

    type: str
    normalizers: list[_Step] = []
    pretokenizers: list[_Step] = []
    decoders: list[_Step] = []


class _File(msgspec.Struct):
    """What is read here before the library has looked at a file."""

    model: dict[str, Any]
    added_tokens: list[_Token] | None = None
    normalizer: _Step | None = None
    pre_tokenizer: _Step | None = None
    decoder: _Step | None = None


class HuggingFace(Tokenizer):
    """A tokenizer of the `tokenizers` library. `end`: the literal of the control token that separates documents."""

    def __init__(self, spec: str, file: bytes, end: str | None) -> None:
        declared = _read(spec, file)
        self.spaced = _spaced(declared)
        self.always_spaced = any(step["type"] == "Prepend" for step in _steps(declared.get("normalizer")))
        _adjust(declared)
        self._tokenizer = _library(spec, declared)
        self.spec = spec
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        added = declared.get("added_tokens") or ()
        _check_ids(spec, {token["content"]: token["id"] for token in added}, vocabulary)
        self._unknown = _unknown(declared, vocabulary)
        self.controls = {
            token["content"]: token["id"] for token in added if token["special"] and token["id"] != self._unknown
        }
        self.strips_left = frozenset(token["content"] for token in added if token["lstrip"]) & self.controls.keys()
        self.strips_right = frozenset(token["content"] for token in added if token["rstrip"]) & self.controls.keys()
        self.strips = self.strips_left | self.strips_right
        self.end = end_of(end, self.controls) if end else None
        self.size = max(vocabulary.values()) + 1
        self.fingerprint = digest(b"hf", file, str(self.end).encode())
        self._pieces = _pieces(declared, vocabulary)
        self._is_byte_level = _is_byte_level(declared)
        # Whether all of a text is there without a look: every byte has a token.
        self._joins = self._is_byte_level and vocabulary.keys() >= byte_alphabet().keys()
        self.lengths = None if self._pieces is None else np.zeros(self.size, np.int32)
        if self.lengths is not None and self._pieces is not None:
            self.lengths[list(self._pieces)] = list(map(len, self._pieces.values()))
            self.lengths[list(self.controls.values())] = 0
        self._forbidden = frozenset(self.controls.values())
        self._split = re.compile("|".join(map(re.escape, sorted(self.controls, key=len, reverse=True))) or "(?!)")
        self._new: dict[str, list[int]] = {}
        self._old: dict[str, list[int]] = {}
        self._room = _KEPT

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text as ids. Short ones are remembered, because conversations repeat themselves."""
        if multiprocessing.parent_process() is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one worker has one processor
        missing = list(dict.fromkeys(text for text in texts if text not in self._new and text not in self._old))
        fresh = dict(zip(missing, self._encoded(missing), strict=True))
        found = []
        for text in texts:
            ids = self._new.get(text)
            if ids is None:
                ids = fresh[text] if text in fresh else self._old[text]
                self._remember(text, ids)
            found.append(ids)
        return found

    def _remember(self, text: str, ids: list[int]) -> None:
        if len(text) > _LONGEST:
            return
        self._room -= len(text)
        if self._room < 0:
            self._old, self._new, self._room = self._new, {}, _KEPT
        self._new[text] = ids

    def _encoded(self, texts: list[str]) -> list[list[int]]:
        if not texts:
            return []
        try:
            found = [one.ids for one in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        except UnicodeEncodeError as error:
            raise half_pair(error) from None
        except TypeError:
            for text in texts:
                _check_pairs(text)
            raise
        for at, text in enumerate(texts):
            if not self._forbidden.isdisjoint(found[at]):
                found[at] = self._apart(text)
            if self._unknown is not None and self._unknown in found[at]:
                raise _unsaid()
            if not self._joins:
                self._check_whole(text, found[at])
        return found

    def _check_whole(self, text: str, ids: Sequence[int]) -> None:
        """Check that nothing is left out: some models leave out what they have no token for."""
        pieces = self._pieces
        if pieces is not None and sum(len(pieces.get(one, b"")) for one in ids) == len(text.encode()):
            return
        normal = self.normal(text)
        if pieces is None:
            whole = _covers(self._tokenizer.encode(normal, add_special_tokens=False).offsets, normal)
        else:
            whole = self.decode(ids) == normal.encode()
        if not whole:
            raise _unsaid()

    def _apart(self, text: str) -> list[int]:
        """Return the ids of a text in which a vocabulary would read control tokens: it is cut inside of each."""
        cuts = [0, *(match.start() + 1 for match in self._split.finditer(text)), len(text)]
        parts = [text[start:end] for start, end in itertools.pairwise(cuts)]
        encoded = self._tokenizer.encode_batch_fast(parts, add_special_tokens=False)
        ids = [number for one in encoded for number in one.ids]
        if not self._forbidden.isdisjoint(ids):
            message = "the tokenizer reads a control token from a text whatever is done; remove the tag from the text"
            raise BadRow(Code.TAG_IN_TEXT, message)
        return ids

    def ends(self, text: str, ids: Sequence[int]) -> Ends:
        """Return the ends by the bytes of each token where they join to the text, else by the library's offsets.

        Raises BadRow where the text was changed so that neither tells.
        """
        data = text.encode()
        if self.lengths is not None:
            found = self.lengths[np.asarray(ids, np.int64)].cumsum(dtype=np.int64)
            if len(found) and found[-1] == len(data):
                return found
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        offsets: list[tuple[int, int]] = encoding.offsets
        covered = [0, *(end for _, end in offsets)]
        if self._pieces is not None:  # nothing is left out: a hole is what was made one with the character before it
            following = [*(start for start, _ in offsets[1:]), len(text)]
            covered[1:] = map(max, covered[1:], following)
        whole = all(start <= before for (start, _), before in zip(offsets, covered, strict=False))
        if encoding.ids != list(ids) or not whole or covered[-1] != len(text) or sorted(covered) != covered:
            message = (
                "this tokenizer changes the text, so that nobody can say where its tokens end in it; "
                "add the format's tags to the tokenizer (`turnscript data tokens`) and use the mode 'ids'"
            )
            raise BadRow(Code.FORMAT, message)
        sizes = np.fromiter((len(one.encode()) for one in text), np.int64, len(text))
        bytes_at = np.concatenate(([0], sizes.cumsum()))
        return np.asarray(bytes_at[covered[1:]], np.int64)

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of the tokens, or what the library makes of them where tokens have none of their own."""
        if self._pieces is not None:
            pieces = self._pieces
            return b"".join([pieces.get(one, b"") for one in ids if one != self.end])
        text: str = self._tokenizer.decode([one for one in ids if one != self.end], skip_special_tokens=False)
        return text.encode()

    def normal(self, text: str) -> str:
        """Return the text after the file's normalizer, spaces as such."""
        normalizer = self._tokenizer.normalizer
        found: str = normalizer.normalize_str(text) if normalizer else text
        return found if self._is_byte_level or self._pieces is None else found.replace(_SPACE, " ")


def _covers(offsets: Sequence[tuple[int, int]], text: str) -> bool:
    """Return whether tokens leave nothing of a text out but white space, which some models do not tell."""
    at = 0
    for start, end in offsets:
        if text[at:start].strip():
            return False
        at = max(at, end)
    return not text[at:].strip()


def _check_pairs(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise half_pair(error) from None


def _read(spec: str, file: bytes) -> dict[str, Any]:
    """Return a file as data, with the types that are counted on here; those of the rest the library looks at."""
    try:
        declared = json.loads(file)
    except (ValueError, RecursionError) as error:
        raise _not_one(spec, f"no JSON: {error}") from None
    if not isinstance(declared, dict) or not isinstance(declared.get("model"), dict):
        raise _not_one(spec, "it has no `model`; `tokenizer.json` is meant, not `tokenizer_config.json`")
    try:
        msgspec.convert(declared, _File)
    except msgspec.ValidationError as error:
        raise _not_one(spec, str(error)) from None
    return declared


def _library(spec: str, declared: dict[str, Any]) -> Any:
    try:
        from tokenizers import Tokenizer as Library  # noqa: PLC0415 - only these files need it
    except ImportError:
        message = "this needs the library `tokenizers`, which is not installed: pip install 'turnscript[hf]'"
        raise Unsupported("tokenizer.json", "this installation", message) from None
    with _Refusal(spec):
        library = Library.from_str(json.dumps(declared))
    library.no_padding()
    library.no_truncation()
    library.encode_special_tokens = True
    return library


def ids_of_new(spec: str, declared: dict[str, Any], tags: Sequence[str]) -> dict[str, int]:
    """Return the ids of tags that are added to a file. The library counts them; a known word keeps its own.

    Raises InvalidInput where it would give one that another token has.
    """
    library = _library(spec, declared)
    library.add_special_tokens(list(tags))
    vocabulary: dict[str, int] = library.get_vocab(with_added_tokens=True)
    _check_ids(spec, {}, vocabulary)
    return {tag: vocabulary[tag] for tag in tags}


def _check_ids(spec: str, added: Mapping[str, int], vocabulary: Mapping[str, int]) -> None:
    """Check that the library knows added tokens by the ids of the file, because it counts them itself.

    Which of the two a model was trained with nobody can say here, so a file where they differ is not used.
    """
    remedy = "give the added tokens the ids behind the vocabulary, in their order and without holes"
    for content, number in added.items():
        found = vocabulary.get(content)
        if found != number:
            message = f"{spec}: {content!r} has the id {number}, and the library that reads the file gives it {found}"
            raise InvalidInput(f"{message}; {remedy}", expected=f"the id {found}", got=str(number))
    owners = {number: content for content, number in vocabulary.items()}
    if len(owners) < len(vocabulary):
        one = next(content for content, number in vocabulary.items() if owners[number] != content)
        two = f"{one!r} and {owners[vocabulary[one]]!r}"
        message = f"{spec}: two tokens have the id {vocabulary[one]} in the library that reads it, {two}; {remedy}"
        raise InvalidInput(message, expected="an id for each token", got=str(vocabulary[one]))


class _Refusal:
    """The library refuses a file with a bare Exception and nothing more exact: that one is caught, and no other."""

    def __init__(self, spec: str) -> None:
        self.spec = spec

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: object) -> None:
        if kind is Exception:
            raise _not_one(self.spec, str(error)) from None


def _not_one(spec: str, what: str) -> InvalidInput:
    return InvalidInput(f"{spec} is no tokenizer file: {what}", expected="a tokenizer.json", got=spec)


def _spaced(declared: dict[str, Any]) -> str:
    """Return before which texts of a prompt the file puts a space."""
    found = {""}
    for step in [*_steps(declared.get("normalizer")), *_steps(declared.get("pre_tokenizer"))]:
        always = EACH if step.get("add_prefix_space", True) else ""
        if step["type"] == "Metaspace":
            found.add({"always": EACH, "first": FIRST, "never": ""}.get(step.get("prepend_scheme", ""), always))
        elif step["type"] in ("Prepend", "ByteLevel"):
            found.add(always)
    return next(one for one in (EACH, FIRST, "") if one in found)


def _adjust(declared: dict[str, Any]) -> None:
    """Make tags controls, and take away what is put around a text."""
    declared.update(post_processor=None, truncation=None, padding=None)
    for token in declared.get("added_tokens") or ():
        if token.get("special") or _TAG.fullmatch(token["content"]):
            token.update(special=True)
    for step in _steps(declared.get("normalizer")):
        if step["type"] == "Prepend":
            step["prepend"] = ""
    for step in _steps(declared.get("pre_tokenizer")):
        if step["type"] == "Metaspace":
            step.update(prepend_scheme="never")
            step.pop("add_prefix_space", None)
        elif step["type"] == "ByteLevel":
            step["add_prefix_space"] = False
    _without_empty(declared)


def _without_empty(declared: dict[str, Any]) -> None:
    """Take out steps that put nothing before a text, which the library refuses."""
    normalizer = declared.get("normalizer")
    steps = _steps(normalizer)
    kept = [step for step in steps if step["type"] != "Prepend" or step["prepend"]]
    if len(kept) != len(steps):
        declared["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None


def _steps(step: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the steps of a step that may be a sequence of them."""
    if not step:
        return []
    inner = next((step[key] for key in ("normalizers", "pretokenizers", "decoders") if key in step), None)
    return [step] if inner is None else [one for part in inner for one in _steps(part)]


def _pieces(declared: dict[str, Any], vocabulary: Mapping[str, int]) -> dict[int, bytes] | None:
    """Return the bytes of each token, where a token tells them by itself."""
    added = {token["id"]: token["content"].encode() for token in declared.get("added_tokens") or ()}
    if _is_byte_level(declared):
        alphabet = byte_alphabet()
        pieces = {
            number: bytes([alphabet[one] for one in token])
            for token, number in vocabulary.items()
            if all(one in alphabet for one in token)
        }
        return pieces | added
    normal = _steps(declared.get("normalizer"))
    metaspace = any(step["type"] == "Metaspace" for step in _steps(declared.get("pre_tokenizer")))
    if not metaspace and not any(step["type"] == "Replace" and step["content"] == _SPACE for step in normal):
        return None
    falls_back = bool(declared["model"].get("byte_fallback"))
    return {number: _spelled(token, falls_back) for token, number in vocabulary.items()} | added


def _is_byte_level(declared: dict[str, Any]) -> bool:
    steps = (*_steps(declared.get("pre_tokenizer")), *_steps(declared.get("decoder")))
    return any(step["type"] == "ByteLevel" for step in steps)


def _unsaid() -> BadRow:
    message = "the tokenizer has no token for a character of the text; remove it, or take a tokenizer that knows bytes"
    return BadRow(Code.FORMAT, message)


def _spelled(token: str, falls_back: bool) -> bytes:
    match = _BYTE.fullmatch(token) if falls_back else None
    return bytes((int(match[1], 16),)) if match else token.replace(_SPACE, " ").encode()


def byte_alphabet() -> dict[str, int]:
    """Return the characters that stand for bytes in byte-level vocabularies: printable ones first, then others."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [one for one in range(256) if one not in set(printable)]
    return {chr(one): one for one in printable} | {chr(256 + at): one for at, one in enumerate(others)}


def _unknown(declared: dict[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    """Return the id for what has no token."""
    model = declared["model"]
    if isinstance(model.get("unk_id"), int):
        return int(model["unk_id"])
    return vocabulary.get(model.get("unk_token") or "")
