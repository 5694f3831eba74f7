"""Owns the figures of a finished build: lengths and masks from the files for the trainer, the rest from the report.

Whose the tokens are no output says. So the first rows of the inputs are encoded once more, where these are still there.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import numpy as np

from turnscript.core.errors import InvalidInput, TurnscriptError
from turnscript.datasets.manifest import Manifest, read_manifest
from turnscript.datasets.opened import RowReader
from turnscript.datasets.output_registry import get_output
from turnscript.datasets.preparation import check_folder, encoder_of
from turnscript.datasets.rowsamples import RowSamples
from turnscript.datasets.stats import Stats

LOOKED_AT = 200
"""So many rows tell whose the tokens are."""


def stats_of(folder: str | os.PathLike[str], *, roles: int = LOOKED_AT) -> Stats:
    """Return the figures of what a build wrote. Raises InvalidInput where there is no finished build.

    `roles`: how many rows are read once more to tell whose the tokens are; 0 for none.
    """
    check_folder(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        message = f"{os.fspath(folder)} holds no finished build; give the folder that one was written to"
        raise InvalidInput(message, expected="a folder with a manifest", got=os.fspath(folder))
    plan, report, stats = manifest.plan, manifest.report, Stats()
    for batch in get_output(plan.outputs[0]).read(Path(folder), plan.name):
        if len(batch.lengths):
            begins = np.cumsum(batch.lengths) - batch.lengths
            stats.add(batch.lengths, np.add.reduceat(batch.weights > 0, begins, dtype=np.int64))
    stats.straddling, stats.losses = report.straddling, report.losses
    stats.loss_kinds = report.loss_kinds
    stats.documents = report.documents
    stats.rejects.update(report.rejected)
    for file in report.files:
        if file.form:  # one without rows has none
            stats.forms[file.form] += file.rows
    _add_roles(stats, manifest, roles)
    return stats


def _add_roles(stats: Stats, manifest: Manifest, most: int) -> None:
    """Add whose the tokens of the first rows are. Inputs that were moved or changed tell nothing."""
    files = [source for source in manifest.inputs if source.form and _is_there(source.name, source.size)]
    if not files or not most:
        return
    encoder = encoder_of(manifest.plan)
    samples = RowSamples(encoder, manifest.plan)
    each = -(-most // len(files))
    for source in files[:most]:
        try:
            rows = RowReader(source.name, source.form, manifest.plan.map).rows()
        except InvalidInput:
            continue  # the map file is gone
        for row in islice(rows, each):
            for part in [part for example in row.examples for part in samples.parts(example)]:
                try:
                    tokens = encoder.explain(part)
                except TurnscriptError:
                    continue  # it is among the rejects
                stats.looked_at += 1
                for token in tokens:
                    stats.add_tokens(token.kind or "format", 1, bool(token.weight))


def _is_there(path: str, size: int) -> bool:
    try:
        return os.path.getsize(path) == size
    except OSError:
        return False
