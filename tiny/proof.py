"""Owns the checks that need PyTorch: every form of the recurrence has one gradient, and the model is the definition.

`--write` makes the numbers anew that tests/tiny compares the definition with where PyTorch is not installed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.tiny.reference import Reference, random_weights
from tiny import recurrence, smoke, train
from tiny.dataset import Documents, stream
from tiny.model import Model, Shape

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "tiny" / "golden.json"
CASES: tuple[dict[str, int], ...] = (
    {"vocabulary": 300, "seed": 5},
    {"vocabulary": 270, "width": 128, "layers": 3, "seed": 6},
)
TOKENS, EVERY = 40, 30


def gradients() -> None:
    """Each form against the definition in 64 bits, over some batches, lengths and decays."""
    forms: dict[str, Callable[..., Tensor]] = {"steps": recurrence.step_by_step, "chunks": recurrence.in_chunks}
    if recurrence.library() is not None:
        forms["compiled"] = recurrence.Compiled.apply
    for time in (1, 16, 83, 300):
        exact, up = _inputs(time)
        answer = recurrence.step_by_step(*exact)
        wanted = torch.autograd.grad((answer * up).sum(), exact)
        for name, form in forms.items():
            given = [x.detach().float().requires_grad_() for x in exact]
            got = form(*given)
            found = torch.autograd.grad((got * up.float()).sum(), given)
            pairs = [(got, answer), *zip(found, wanted, strict=True)]
            worst = max(float((x - y).detach().abs().max() / (y.detach().abs().max() + 1)) for x, y in pairs)
            print(f"{name:9} {time:4} steps: {worst:.1e}")
            assert worst < 1e-4


def _inputs(time: int) -> tuple[list[Tensor], Tensor]:
    source = torch.Generator().manual_seed(time)

    def draw() -> Tensor:
        return torch.randn(2, time, 2, recurrence.SIZE, generator=source, dtype=torch.float64)

    removed = torch.nn.functional.normalize(draw(), dim=-1)
    decay = torch.exp(-0.6065306597 * torch.sigmoid(3 * draw()))
    inputs = [draw(), decay, 0.3 * draw(), draw(), -removed, removed * torch.sigmoid(draw())]
    return [x.requires_grad_() for x in inputs], draw()


def golden() -> list[dict[str, Any]]:
    """What PyTorch computes from random weights, after comparing it with the definition."""
    out = []
    for case in CASES:
        weights = random_weights(**case)
        shape = Shape(case["vocabulary"], case.get("width", 64), case.get("layers", 2), 2, 8, 8, 8, 8)
        model = Model(shape)
        model.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
        tokens = np.random.default_rng(case["seed"]).integers(0, case["vocabulary"], TOKENS)
        with torch.no_grad():
            logits = model(torch.from_numpy(tokens)[None])[0].numpy()
        worst = float(np.abs(logits - Reference(weights).read(tokens.tolist())).max())
        print(f"model against definition: {worst:.1e} of {np.abs(logits).max():.0f}")
        assert worst < 1e-3
        rounded = [[round(float(x), 4) for x in row] for row in logits[:, ::EVERY]]
        out.append({"weights": case, "tokens": tokens.tolist(), "every": EVERY, "logits": rounded})
    return out


def resuming() -> None:
    """A training that was stopped and went on has the weights of one that was not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        smoke.make(folder, documents=300)
        data, shape = Documents.load(folder / "train"), Shape(512, 64, 2, 2, 8, 8, 8, 8)
        settings = train.Settings(steps=12, tokens=1024, warmup=4)
        whole = train.Run(shape, settings, "cpu")
        train.train(data, whole, folder / "whole")
        begun = train.Run(shape, settings, "cpu")
        for batch in islice(stream(data, tokens=1024, longest=2048, seed=1), 5):
            begun.learn(batch)
        begun.save(folder / "half")
        later = train.Run(shape, settings, "cpu")
        later.load(folder / "half")
        train.train(data, later, folder / "half")
        pairs = zip(whole.model.parameters(), later.model.parameters(), strict=True)
        assert all(torch.equal(x, y) for x, y in pairs), "resuming changes the weights"
        print("resuming changes nothing")
        fresh = train.Run(shape, settings, "cpu")
        fresh.start(folder / "half")
        pairs = zip(later.model.parameters(), fresh.model.parameters(), strict=True)
        assert fresh.step == 0
        assert all(torch.equal(x, y) for x, y in pairs), "another training begins with other weights"


def main() -> None:
    """Check it all."""
    parser = argparse.ArgumentParser(prog="python -m tiny.proof", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="the golden numbers")
    given = parser.parse_args()
    torch.set_num_threads(1)
    gradients()
    cases = golden()
    if given.write:
        GOLDEN.write_text(json.dumps(cases) + "\n", encoding="utf-8")
    resuming()


if __name__ == "__main__":
    main()
