"""Owns small tokenizers of every kind that the `tokenizers` library has, trained here: tests need no network."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tests import corpora
from turnscript.core.conversation import text_content

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def texts() -> list[str]:
    """What they are trained on: what the corpus says."""
    items = [item for name in corpora.names() for item in corpora.load(name).items]
    said = [text_content(getattr(item, "content", [])) for item in items]
    return [text.encode("utf-8", "ignore").decode() for text in said] + [
        "The weather in Paris is sunny. " * 3,
        "  a    b",
    ]


def byte_level(path: Path, specials: Sequence[str | AddedToken] = CHATML, normalizer: Any = None, **saved: Any) -> str:
    """A byte-level BPE, as most models have. Returns its path."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=saved.get("spaced", False))
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_tokens([AddedToken("    ", normalized=False), *saved.get("added", ())])
    tokenizer.add_special_tokens(list(specials))
    if saved.get("cutting"):
        tokenizer.enable_truncation(4)
        tokenizer.enable_padding(length=64)
    return _saved(tokenizer, path)


def metaspace(path: Path) -> str:
    """A BPE with bytes to fall back on and a space before each text, as the first Llama models have."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{one:02X}>" for one in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=tokens, show_progress=False, limit_alphabet=60)
    tokenizer.train_from_iterator(texts(), trainer)
    return _saved(tokenizer, path, lambda token: token.startswith("<0x"))


def unigram(path: Path) -> str:
    """A Unigram model, whose vocabulary holds its control tokens as pieces that a text could be cut into."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(texts(), trainer)
    return _saved(tokenizer, path)


def words(path: Path) -> str:
    """Whole words in lower case, the space between them left out: nobody can say where its tokens end in a text."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(vocab_size=500, special_tokens=["[UNK]"], show_progress=False)
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return _saved(tokenizer, path)


def gaps(path: Path, *, byte_level: bool, normalizer: Any = None) -> str:
    """A BPE that knows the characters (or the bytes) of a few words and has nothing for others: it leaves them out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(False) if byte_level else pre_tokenizers.Whitespace()
    tokenizer.normalizer = normalizer or normalizers.NFC()
    if byte_level:
        tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(["the weather in the café in Paris,"], trainers.BpeTrainer(show_progress=False))
    return _saved(tokenizer, path)


def _saved(tokenizer: Tokenizer, path: Path, ordinary: Any = None) -> str:
    """The file; `ordinary`: which of its added tokens are ones of the vocabulary after all."""
    import json  # noqa: PLC0415

    declared = json.loads(tokenizer.to_str())
    if ordinary is not None:
        declared["added_tokens"] = [one for one in declared["added_tokens"] if not ordinary(one["content"])]
    path.write_text(json.dumps(declared), encoding="utf-8")
    return str(path)
