"""Owns writing tiny models with random weights, for the real llama.cpp server: the same seed gives the same file.

What such a model writes is noise; a grammar of one literal makes it write any text, through the real sampler.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType

CONTROL = ("<|im_start|>", "<|im_end|>", "<|begin_of_text|>")
"""Control tokens of the transformer model: nothing of them is in an answer unless it is asked for."""
DEFINED = ("<tool_call>", "</tool_call>")
"""Tokens that a user defined: they are in every answer."""
PIECES = ("User:", "Assistant:", "\n\n", " the", " hello", "ing")
"""What the recurrent model's vocabulary has besides single bytes."""

_CONTEXT = 4096


def write_llama(
    path: Path,
    *,
    seed: int = 1,
    add_bos: bool = True,
    end: str = "<|im_end|>",
    template: str | Sequence[Mapping[str, str]] = "",
) -> Path:
    """A transformer with a token for each byte and ChatML's control tokens. Returns `path`."""
    width, layers, heads, inner = 32, 2, 2, 64
    tokens = [*_byte_letters(), "he", *CONTROL, *DEFINED]
    kinds = [TokenType.NORMAL] * 257 + [TokenType.CONTROL] * len(CONTROL) + [TokenType.USER_DEFINED] * len(DEFINED)
    draw = np.random.default_rng(seed)
    writer = GGUFWriter(path, "llama")
    writer.add_name("tiny llama")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(["h e"])
    writer.add_bos_token_id(tokens.index("<|begin_of_text|>"))
    writer.add_eos_token_id(tokens.index(end))
    writer.add_add_bos_token(add_bos)
    if template:
        writer.add_chat_template(template)

    def put(name: str, *shape: int) -> None:
        values = np.ones(shape) if name.endswith("norm.weight") else draw.normal(0, 0.2, shape)
        writer.add_tensor(name, values.astype(np.float32))

    put("token_embd.weight", len(tokens), width)
    put("output_norm.weight", width)
    put("output.weight", len(tokens), width)
    for layer in range(layers):
        for part in ("q", "k", "v", "output"):
            put(f"blk.{layer}.attn_{part}.weight", width, width)
        put(f"blk.{layer}.attn_norm.weight", width)
        put(f"blk.{layer}.ffn_norm.weight", width)
        put(f"blk.{layer}.ffn_gate.weight", inner, width)
        put(f"blk.{layer}.ffn_up.weight", inner, width)
        put(f"blk.{layer}.ffn_down.weight", width, inner)
    return _finish(writer, path)


def write_rwkv7(path: Path, *, seed: int = 1, pieces: Sequence[str] = PIECES, end: str | None = None) -> Path:
    """A recurrent model with a token for each byte and some pieces. `end`: the piece that ends its turns, as models
    have it whose files name the blank line. Returns `path`."""
    single = [repr(bytes([byte]))[2:-1] for byte in range(256)]
    tokens = ["<s>", *single, *(repr(piece)[1:-1] for piece in pieces)]
    kinds = [TokenType.CONTROL] + [TokenType.NORMAL] * (len(tokens) - 1)
    return write_rwkv7_of(path, tokens, kinds, 0 if end is None else 257 + list(pieces).index(end), seed=seed)


def write_rwkv7_of(path: Path, tokens: Sequence[str], kinds: Sequence[int], end: int, *, seed: int = 1) -> Path:
    """A recurrent model with these tokens, spelled as the file has them, and their types. Returns `path`."""
    width, layers, inner, lora = 64, 2, 128, 8
    writer = GGUFWriter(path, "rwkv7")
    writer.add_name("tiny rwkv7")
    writer.add_context_length(_CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_layer_norm_eps(1e-5)
    writer.add_wkv_head_size(64)
    writer.add_decay_lora_rank(lora)
    writer.add_iclr_lora_rank(lora)
    writer.add_value_residual_mix_lora_rank(lora)
    writer.add_gate_lora_rank(lora)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(0)
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_eos_token_id(end)
    _put_rwkv7(writer, np.random.default_rng(seed), (width, layers, inner, lora), len(tokens))
    return _finish(writer, path)


def write_projector(path: Path, *, width: int = 32, seed: int = 1) -> Path:
    """What makes a model see: one layer that turns any picture into four tokens of that width. Returns `path`."""
    size, patch, inner = 16, 4, 16
    draw = np.random.default_rng(seed)
    writer = GGUFWriter(path, "clip")
    writer.add_clip_has_vision_encoder(True)
    writer.add_clip_projector_type("gemma3")
    writer.add_vision_projector_scale_factor(2)
    writer.add_vision_projection_dim(width)
    writer.add_vision_image_size(size)
    writer.add_vision_patch_size(patch)
    writer.add_vision_embedding_length(inner)
    writer.add_vision_feed_forward_length(inner)
    writer.add_vision_block_count(1)
    writer.add_vision_head_count(2)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)

    def put(name: str, *shape: int) -> None:
        writer.add_tensor(name, draw.normal(0, 0.2, shape).astype(np.float32))

    put("v.patch_embd.weight", inner, 3, patch, patch)
    put("v.position_embd.weight", (size // patch) ** 2, inner)
    for part in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        put(f"v.blk.0.{part}.weight", inner, inner)
    for norm in ("v.blk.0.ln1", "v.blk.0.ln2", "v.post_ln"):
        put(f"{norm}.weight", inner)
        put(f"{norm}.bias", inner)
    put("mm.input_projection.weight", inner, width)
    put("mm.soft_emb_norm.weight", inner)
    return _finish(writer, path)


def write_ear(path: Path, *, width: int = 32, seed: int = 1) -> Path:
    """What makes a model hear: one layer that turns up to 30 seconds of any sound into 750 tokens. Returns `path`."""
    bins, frames, inner = 128, 1500, 16
    draw = np.random.default_rng(seed)
    writer = GGUFWriter(path, "clip")
    writer.add_clip_has_audio_encoder(True)
    writer.add_clip_projector_type("qwen2a")
    writer.add_audio_num_mel_bins(bins)
    writer.add_audio_projection_dim(width)
    writer.add_audio_embedding_length(inner)
    writer.add_audio_feed_forward_length(inner)
    writer.add_audio_block_count(1)
    writer.add_audio_head_count(2)
    writer.add_audio_attention_layernorm_eps(1e-5)

    def put(name: str, *shape: int, kind: type = np.float32) -> None:
        writer.add_tensor(name, draw.normal(0, 0.2, shape).astype(kind))

    for number, inputs in ((1, bins), (2, inner)):
        put(f"a.conv1d.{number}.weight", inner, inputs, 3, kind=np.float16)
        put(f"a.conv1d.{number}.bias", inner, 1)
    put("a.position_embd.weight", frames, inner)
    for part in ("attn_q", "attn_k", "attn_v", "attn_out", "ffn_up", "ffn_down"):
        put(f"a.blk.0.{part}.weight", inner, inner)
        if part != "attn_k":  # which has none in Whisper, and llama.cpp sees to that
            put(f"a.blk.0.{part}.bias", inner)
    for norm in ("a.blk.0.ln1", "a.blk.0.ln2", "a.post_ln"):
        put(f"{norm}.weight", inner)
        put(f"{norm}.bias", inner)
    put("mm.a.fc.weight", width, inner)
    put("mm.a.fc.bias", width)
    return _finish(writer, path)


def _put_rwkv7(writer: GGUFWriter, draw: np.random.Generator, sizes: tuple[int, int, int, int], tokens: int) -> None:
    width, layers, inner, lora = sizes

    def put(name: str, *shape: int, mean: float = 0.0, spread: float = 0.2) -> None:
        writer.add_tensor(name, draw.normal(mean, spread, shape).astype(np.float32))

    def norm(name: str) -> None:
        put(f"{name}.weight", width, mean=1.0, spread=0.0)
        put(f"{name}.bias", width, spread=0.0)

    put("token_embd.weight", tokens, width)
    put("output.weight", tokens, width)
    norm("token_embd_norm")
    norm("output_norm")
    for layer in range(layers):
        block = f"blk.{layer}"
        for part in ("attn_norm", "attn_norm_2", "time_mix_ln"):
            norm(f"{block}.{part}")
        for letter in "wavg":
            if letter != "g":
                put(f"{block}.time_mix_{letter}0.weight", width)
            put(f"{block}.time_mix_{letter}1.weight", lora, width)
            put(f"{block}.time_mix_{letter}2.weight", width, lora)
        for part in ("k_k", "k_a", "r_k"):
            put(f"{block}.time_mix_{part}.weight", width)
        put(f"{block}.time_mix_lerp_fused.weight", 6, 1, 1, width, mean=0.5)
        for part in ("key", "value", "receptance", "output"):
            put(f"{block}.time_mix_{part}.weight", width, width)
        put(f"{block}.channel_mix_lerp_k.weight", 1, 1, width, mean=0.5)
        put(f"{block}.channel_mix_key.weight", inner, width)
        put(f"{block}.channel_mix_value.weight", width, inner)


def _finish(writer: GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _byte_letters() -> list[str]:
    """The letter that byte-pair vocabularies write for each byte."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in shown}
    spare = (chr(256 + number) for number in range(256))
    return [letters[byte] if byte in letters else next(spare) for byte in range(256)]


def gbnf(text: str) -> str:
    """A grammar whose only text is `text`."""
    escaped = "".join(_escaped(letter) for letter in text)
    return f'root ::= "{escaped}"'


def _escaped(letter: str) -> str:
    if letter in '"\\':
        return f"\\{letter}"
    return f"\\x{ord(letter):02X}" if letter < " " else letter


def words(count: int, seed: int = 1) -> str:
    """Some words, for prompts of a length."""
    draw = random.Random(seed)
    return "".join(f" {draw.choice(('one', 'two', 'three', 'four', 'five'))}" for _ in range(count))
