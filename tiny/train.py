"""Owns training: from token and mask files to a checkpoint, on the processor or a GPU.

With `--steps` the same data, seed, machine and number of threads give the same weights, also after a kill and a
resume; with `--minutes` the clock decides where the learning rate stands and when it ends.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from tiny import recurrence
from tiny.dataset import Batch, Documents, stream
from tiny.model import Model, Shape


@dataclass(frozen=True, slots=True)
class Settings:
    """How to train. `tokens`: of a batch, `cool`: over which last share of the training the rate falls to nothing.

    Until then the rate stays, so that a training can be given more steps as long as it has not begun to cool.
    """

    steps: int | None = None
    minutes: float | None = None
    tokens: int = 8192
    longest: int = 2048
    rate: float = 2e-3
    cool: float = 0.5
    warmup: int = 100
    decay: float = 0.1
    clip: float = 1.0
    seed: int = 1
    say: float = 10.0
    keep: float = 60.0


class Run:
    """A training that can go on: the model, the optimiser, and how far it came."""

    def __init__(self, shape: Shape, settings: Settings, device: str) -> None:
        torch.manual_seed(settings.seed)
        self.settings, self.device = settings, device
        self.model = Model(shape).to(device)
        matrices, others = self.model.groups()
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(others, lr=settings.rate, betas=(0.9, 0.99), eps=1e-9, weight_decay=0.0, fused=True),
            torch.optim.Muon(
                [{"params": matrices, "scale": 1.0}],
                lr=settings.rate,
                weight_decay=settings.decay,
                adjust_lr_fn="match_rms_adamw",
            ),
        ]
        self.read = self.model.hidden
        self.step, self.elapsed = 0, 0.0

    def compile(self) -> None:
        """Fuse what lies between the products: a third faster, after a minute of compiling."""
        self.read = torch.compile(self.model.hidden, dynamic=True)

    def save(self, path: Path) -> None:
        """Write a checkpoint; a kill leaves the one before."""
        whole = {
            "shape": dataclasses.asdict(self.model.shape),
            "settings": dataclasses.asdict(self.settings),
            "model": self.model.state_dict(),
            "optimizers": [one.state_dict() for one in self.optimizers],
            "step": self.step,
            "elapsed": self.elapsed,
        }
        made = path.with_name(path.name + ".part")
        torch.save(whole, made)
        made.replace(path)

    def load(self, path: Path) -> None:
        """Go on where a checkpoint is."""
        whole = self.start(path)
        for one, state in zip(self.optimizers, whole["optimizers"], strict=True):
            one.load_state_dict(state)
        self.step, self.elapsed = whole["step"], whole["elapsed"]

    def start(self, path: Path) -> dict[str, Any]:
        """Take the weights of a checkpoint and nothing else; gives the whole of it."""
        whole: dict[str, Any] = torch.load(path, map_location=self.device, weights_only=True)
        if whole["shape"] != dataclasses.asdict(self.model.shape):
            raise ValueError(f"{path} holds another model: {whole['shape']}")
        self.model.load_state_dict(whole["model"])
        return whole

    @property
    def progress(self) -> float:
        """From 0 to 1."""
        steps, minutes = self.settings.steps, self.settings.minutes
        by_steps = self.step / steps if steps else 0.0
        return min(1.0, max(by_steps, self.elapsed / 60 / minutes if minutes else 0.0))

    def learn(self, batch: Batch) -> float:
        """One step; the loss per target in nats."""
        settings, device = self.settings, self.device
        weights = torch.from_numpy(batch.weights).to(device)
        wanted = weights > 0
        hidden = self.read(torch.from_numpy(batch.inputs).to(device))[wanted]
        losses = functional.cross_entropy(
            self.model.head(hidden), torch.from_numpy(batch.targets).to(device)[wanted], reduction="none"
        )
        loss = (losses * weights[wanted]).sum() / weights.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip)
        share = min(1.0, (self.step + 1) / max(1, settings.warmup), (1 - self.progress) / settings.cool)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = settings.rate * group["scale"] * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item()


def train(data: Documents, run: Run, out: Path) -> None:
    """Train until the steps or the minutes are over; `out` is the checkpoint, written again and again."""
    settings, spent = run.settings, run.elapsed
    begun = told = kept = time.monotonic()
    seen, losses = 0, []
    for batch in stream(data, tokens=settings.tokens, longest=settings.longest, seed=settings.seed, skip=run.step):
        if run.progress >= 1:
            break
        if not batch.weights.any():
            run.step += 1
            continue
        losses.append(run.learn(batch))
        if not math.isfinite(losses[-1]):
            raise ArithmeticError(f"the loss of step {run.step} is {losses[-1]}: lower --rate")
        seen += batch.inputs.size
        now = time.monotonic()
        run.elapsed = spent + now - begun
        if now - told >= settings.say or run.progress >= 1:
            left = run.elapsed / max(run.progress, 1e-9) - run.elapsed
            print(
                f"step {run.step}  {seen / (now - told):.0f} tokens/s  loss {sum(losses) / len(losses):.4f}"
                f"  {left / 60:.1f} min left",
                flush=True,
            )
            told, seen, losses = now, 0, []
        if now - kept >= settings.keep:
            run.save(out)
            kept = now
    run.save(out)


def prepare(device: str, threads: int | None) -> None:
    """Settle how PyTorch computes: the same twice, and products in bfloat16 where the processor is faster with it."""
    if threads:
        torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    if device == "cpu" and recurrence.library() is not None:
        torch.set_float32_matmul_precision("medium")


def main() -> None:
    """Train a model on NAME.bin, NAME.idx and NAME.mask.bin."""
    parser = argparse.ArgumentParser(prog="python -m tiny.train", description=main.__doc__)
    parser.add_argument("data", type=Path, help="NAME, without .bin")
    parser.add_argument("--out", type=Path, required=True, help="the checkpoint; if it exists, training goes on there")
    parser.add_argument("--start", type=Path, metavar="CHECKPOINT", help="begin with the weights of another training")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--compile", action="store_true", help="fuse operations; needs a C++ compiler")
    _add(parser, Shape)
    _add(parser, Settings)
    given = vars(parser.parse_args())
    shape = Shape(**{field.name: given[field.name] for field in dataclasses.fields(Shape)})
    settings = Settings(**{field.name: given[field.name] for field in dataclasses.fields(Settings)})
    if not (settings.steps or settings.minutes):
        parser.error("say when to end: --steps or --minutes")
    prepare(given["device"], given["threads"])
    run = Run(shape, settings, given["device"])
    if given["compile"]:
        run.compile()
    if given["out"].exists():
        run.load(given["out"])
    elif given["start"]:
        run.start(given["start"])
    documents = Documents.load(given["data"])
    size = sum(parameter.numel() for parameter in run.model.parameters())
    print(f"{size / 1e6:.2f} M parameters, {len(documents)} documents, {len(documents.tokens) / 1e6:.2f} M tokens")
    if left := documents.longer(settings.longest):
        print(f"{left} documents are left out: they have more than --longest {settings.longest} tokens")
    train(documents, run, given["out"])


def _add(parser: argparse.ArgumentParser, kind: type[Shape | Settings]) -> None:
    """An option for each field."""
    for field in dataclasses.fields(kind):
        kind_of = int if str(field.type).startswith("int") else float
        required = field.default is dataclasses.MISSING
        option = f"--{field.name.replace('_', '-')}"
        parser.add_argument(option, type=kind_of, default=None if required else field.default, required=required)


if __name__ == "__main__":
    main()
