"""Owns the tiny model: RWKV-7 (x070) in PyTorch, with the names and the first weights of RWKV-LM.

A state dictionary of it is a `.pth` of RWKV-LM, so that whatever reads those reads this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tiny.recurrence import SIZE, recur

SLOWEST = -math.exp(-0.5)
"""The logarithm of the strongest decay of a step."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model. `inner`: how many times as wide the channel mix is; the rest: ranks of the LoRAs."""

    vocabulary: int
    width: int = 128
    layers: int = 6
    inner: int = 4
    decay_rank: int = 32
    rate_rank: int = 32
    value_rank: int = 32
    gate_rank: int = 64

    @property
    def heads(self) -> int:
        """Heads of 64, as many as fill the width."""
        assert self.width % SIZE == 0, f"a width is a multiple of {SIZE}"
        return self.width // SIZE


class TimeMix(nn.Module):
    """Attention's place: a state that forgets, and corrects what it holds for a key."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        width = shape.width
        self.heads, self.layer = shape.heads, layer
        depth = layer / max(1, shape.layers - 1)
        rest = 1.0 - layer / shape.layers
        place = torch.arange(width) / width
        line = torch.arange(width) / (width - 1) - 0.5
        zigzag = (torch.arange(width) % SIZE - (SIZE - 1) / 2) / ((SIZE - 1) / 2)
        zigzag = zigzag * zigzag.abs()
        for letter, power in zip("rwkvag", (0.2, 0.9, 0.7, 0.7, 0.9, 0.2), strict=True):
            setattr(self, f"x_{letter}", _row(1.0 - place ** (power * rest)))
        speed = -6 + 6 * (torch.arange(width) / (width - 1)) ** (1 + depth**0.3)
        self.w0, self.w1, self.w2 = _row(speed + 0.5 + zigzag * 2.5), *_lora(width, shape.decay_rank)
        self.a0, self.a1, self.a2 = _row(-0.19 + zigzag * 0.3 + line * 0.4), *_lora(width, shape.rate_rank)
        if layer:
            self.v0, self.v1, self.v2 = _row(0.73 - line * 0.4), *_lora(width, shape.value_rank)
        self.g1, self.g2 = _lora(width, shape.gate_rank)
        self.k_k = _row(0.71 - line * 0.1)
        self.k_a = _row(torch.full((width,), 1.02))
        self.r_k = nn.Parameter(torch.full((shape.heads, SIZE), -0.04))
        self.receptance = _matrix(width, width, 1.0)
        self.key = _matrix(width, width, 0.1)
        self.value = _matrix(width, width, 1.0)
        self.output = _matrix(width, width, 0.0)
        self.ln_x = nn.GroupNorm(shape.heads, width, eps=64e-5)
        nn.init.constant_(self.ln_x.weight, ((1 + layer) / shape.layers) ** 0.7)

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        """What the layer adds to x, and the values of the first layer."""
        batch, time, width = x.shape
        change = _before(x) - x
        r = self.receptance(torch.addcmul(x, change, self.x_r))
        key = self.key(torch.addcmul(x, change, self.x_k))
        xv = torch.addcmul(x, change, self.x_v)
        value = self.value(xv)
        w = self.w0 + torch.tanh(torch.addcmul(x, change, self.x_w) @ self.w1) @ self.w2
        decay = torch.exp(SLOWEST * torch.sigmoid(w))
        rate = torch.sigmoid(self.a0 + (torch.addcmul(x, change, self.x_a) @ self.a1) @ self.a2)
        gate = torch.sigmoid(torch.addcmul(x, change, self.x_g) @ self.g1) @ self.g2
        if first is None:
            first = value
        else:
            value = torch.lerp(value, first, torch.sigmoid(self.v0 + (xv @ self.v1) @ self.v2))
        split = (batch, time, self.heads, SIZE)
        removed = functional.normalize((key * self.k_k).view(split), dim=-1)
        key = torch.addcmul(key, key * (rate - 1), self.k_a).view(split)
        r, value = r.view(split), value.view(split)
        answer = recur(r, decay.view(split), key, value, -removed, removed * rate.view(split))
        answer = self.ln_x(answer.reshape(batch * time, width)).view(split)
        answer = torch.addcmul(answer, (r * key * self.r_k).sum(-1, keepdim=True), value)
        return self.output(answer.view(batch, time, width) * gate), first


class ChannelMix(nn.Module):
    """The feed-forward layer."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        place = torch.arange(shape.width) / shape.width
        self.x_k = _row(1.0 - place ** ((1.0 - layer / shape.layers) ** 4))
        self.key = _matrix(shape.width, shape.width * shape.inner, 1.0)
        self.value = _matrix(shape.width * shape.inner, shape.width, 0.0)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.key(torch.addcmul(x, _before(x) - x, self.x_k))
        return self.value(torch.relu(mixed).square())  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        if layer == 0:
            self.ln0 = nn.LayerNorm(shape.width)
        self.ln1, self.ln2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.att, self.ffn = TimeMix(shape, layer), ChannelMix(shape, layer)

    def forward(self, x: Tensor, first: Tensor | None) -> tuple[Tensor, Tensor]:
        if first is None:
            x = self.ln0(x)
        added, first = self.att(self.ln1(x), first)
        x = x + added
        return x + self.ffn(self.ln2(x)), first


class Model(nn.Module):
    """Tokens to what comes next, each text from an empty state."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.emb = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.ln_out = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        nn.init.uniform_(self.emb.weight, -1e-4, 1e-4)
        nn.init.orthogonal_(self.head.weight, gain=0.5 * math.sqrt(max(1.0, shape.vocabulary / shape.width)))

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits after each token of (batch, time)."""
        return self.head(self.hidden(tokens))  # type: ignore[no-any-return]

    def hidden(self, tokens: Tensor) -> Tensor:
        """What the head reads: who needs the logits of some places only asks it for those."""
        x, first = self.emb(tokens), None
        for block in self.blocks:
            x, first = block(x, first)
        return self.ln_out(x)  # type: ignore[no-any-return]

    def groups(self) -> tuple[list[Tensor], list[dict[str, Any]]]:
        """The matrices between the layers, and the rest for AdamW: w0 learns twice as fast, as in RWKV-LM."""
        matrices, others, twice = [], [], []
        for name, parameter in self.named_parameters():
            if name.endswith("att.w0"):
                twice.append(parameter)
            elif name.startswith("blocks.") and name.endswith(".weight") and parameter.dim() == 2:
                matrices.append(parameter)
            else:
                others.append(parameter)
        return matrices, [{"params": others, "scale": 1.0}, {"params": twice, "scale": 2.0}]


def _before(x: Tensor) -> Tensor:
    """Each step's predecessor, and zeros before the first."""
    return functional.pad(x, (0, 0, 1, -1))


def _row(values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.float().view(1, 1, -1).clone())


def _lora(width: int, rank: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Down with zeros, so that nothing is added at first, and up."""
    up = torch.empty(rank, width)
    nn.init.orthogonal_(up, gain=0.1)
    return nn.Parameter(torch.zeros(width, rank)), nn.Parameter(up)


def _matrix(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs, bias=False)
    if gain:
        nn.init.orthogonal_(layer.weight, gain=gain)
    else:
        nn.init.zeros_(layer.weight)
    return layer
