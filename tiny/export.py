"""Owns writing a model as GGUF: names, metadata and types as llama.cpp's converter writes RWKV-7, in 16 bits.

llama.cpp puts the name of every token into its trie, that of the end of a text too; in the converter's files the text
`<s>` is therefore the end. Here the name has an escaped byte that is in no UTF-8, so that only a prompt
that spells the name out has the end.
Nothing is put before a prompt or behind it, and there is no chat template.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, LlamaFileType, TokenType
from numpy.typing import NDArray

from tiny.vocabulary import END, Vocabulary

Weights = Mapping[str, NDArray[np.float32]]
"""The weights by RWKV-LM's names."""

END_NAME = r"<|end of text|>\xff"
CONTEXT = 1048576
NAME = "tiny RWKV-7 universal"
"""The format is in the name, so that who finds the file alone knows how to talk to the model."""
_WHOLE = {
    "emb.weight": "token_embd.weight",
    "blocks.0.ln0.weight": "token_embd_norm.weight",
    "blocks.0.ln0.bias": "token_embd_norm.bias",
    "ln_out.weight": "output_norm.weight",
    "ln_out.bias": "output_norm.bias",
    "head.weight": "output.weight",
}
_PARTS = {
    "ln1": "attn_norm",
    "ln2": "attn_norm_2",
    "att.ln_x": "time_mix_ln",
    "att.receptance": "time_mix_receptance",
    "att.key": "time_mix_key",
    "att.value": "time_mix_value",
    "att.output": "time_mix_output",
    "ffn.key": "channel_mix_key",
    "ffn.value": "channel_mix_value",
}
_LERP = "rwkvag"
_LORA = ("w1", "w2", "a1", "a2", "v1", "v2", "g1", "g2")
_ROWS = ("w0", "a0", "v0", "k_k", "k_a", "r_k")
_EXACT = ("time_mix_w1", "time_mix_w2", "time_mix_lerp_fused")  # as the converter: these stay in 32 bits


def tensors(weights: Weights) -> dict[str, NDArray[Any]]:
    """The tensors of a file by llama.cpp's names."""
    out: dict[str, NDArray[Any]] = {new: weights[old] for old, new in _WHOLE.items()}
    for layer in range(layers(weights)):
        old, new = f"blocks.{layer}.", f"blk.{layer}."
        for part, name in _PARTS.items():
            for end in (".weight", ".bias"):
                if f"{old}{part}{end}" in weights:
                    out[f"{new}{name}{end}"] = weights[f"{old}{part}{end}"]
        out[f"{new}time_mix_lerp_fused.weight"] = np.stack(
            [weights[f"{old}att.x_{letter}"].reshape(1, 1, -1) for letter in _LERP]
        )
        out[f"{new}channel_mix_lerp_k.weight"] = weights[f"{old}ffn.x_k"].reshape(-1)
        for name in (*_LORA, *_ROWS):
            # The first layer has no value residual; llama.cpp wants its tensors all the same, of the rates' sizes.
            source = f"a{name[1:]}" if layer == 0 and name[0] == "v" else name
            values = weights[f"{old}att.{source}"]
            out[f"{new}time_mix_{name}.weight"] = values.T if name in _LORA else values.reshape(-1)
    return {name: _typed(name, values) for name, values in out.items()}


def write(path: Path, weights: Weights, vocabulary: Vocabulary, *, name: str = NAME) -> Path:
    """Write the file; the same weights give the same bytes. Returns `path`."""
    rows, width = weights["emb.weight"].shape
    if rows != len(vocabulary):
        raise ValueError(f"the model has {rows} tokens and the vocabulary {len(vocabulary)}")
    writer = GGUFWriter(path, "rwkv7")
    writer.add_name(name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_block_count(layers(weights))
    writer.add_layer_norm_eps(1e-5)
    writer.add_wkv_head_size(weights["blocks.0.att.r_k"].shape[1])
    writer.add_decay_lora_rank(weights["blocks.0.att.w1"].shape[1])
    writer.add_iclr_lora_rank(weights["blocks.0.att.a1"].shape[1])
    later = weights.get("blocks.1.att.v1", weights["blocks.0.att.a1"])
    writer.add_value_residual_mix_lora_rank(later.shape[1])
    writer.add_gate_lora_rank(weights["blocks.0.att.g1"].shape[1])
    writer.add_feed_forward_length(weights["blocks.0.ffn.key.weight"].shape[0])
    writer.add_file_type(LlamaFileType.MOSTLY_F16)
    writer.add_head_count(0)
    writer.add_tokenizer_model("rwkv")
    writer.add_token_list([END_NAME.encode(), *(repr(token)[2:-1].encode() for token in vocabulary.tokens[1:])])
    writer.add_token_types([TokenType.CONTROL] + [TokenType.NORMAL] * (rows - 1))
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    writer.add_add_eos_token(False)
    for tensor, values in tensors(weights).items():
        writer.add_tensor(tensor, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def layers(weights: Weights) -> int:
    """How many layers there are."""
    return 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))


def _typed(name: str, values: NDArray[Any]) -> NDArray[Any]:
    small = values.ndim < 2 or any(part in name for part in _EXACT)
    return values.astype(np.float32) if small else values.astype(np.float16)


def load(checkpoint: Path) -> dict[str, NDArray[np.float32]]:
    """The weights of a checkpoint of `tiny.train`, or of a `.pth`. Needs PyTorch."""
    torch = importlib.import_module("torch")  # the rest of this module does without
    whole = torch.load(checkpoint, map_location="cpu", weights_only=True)
    return {name: values.float().numpy() for name, values in whole.get("model", whole).items()}


def main() -> None:
    """Write a checkpoint as GGUF."""
    parser = argparse.ArgumentParser(prog="python -m tiny.export", description=main.__doc__)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("vocabulary", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default=NAME)
    given = parser.parse_args()
    write(given.out, load(given.checkpoint), Vocabulary.load(given.vocabulary), name=given.name)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
