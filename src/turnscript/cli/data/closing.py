"""Owns how a job ends on the screen: what became of all rows, why some were set aside, what a trainer must be told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from turnscript.cli.report import plural, shown, table
from turnscript.datasets.losskinds import loss_lines
from turnscript.datasets.magic import Magic, magic, trainer_change
from turnscript.datasets.manifest import Manifest, read_manifest
from turnscript.datasets.merge import REJECTS_FILE
from turnscript.datasets.output import OutputFacts
from turnscript.datasets.output_registry import get_output
from turnscript.datasets.packingnames import read_packing
from turnscript.datasets.problems import kind_of
from turnscript.datasets.report import FileReport, Report
from turnscript.datasets.shard import Reject

CONTEXT = 4096
"""The context length that the trainer's line is for if nothing says another one."""

_MOST_FILES = 20
_MOST_KINDS = 5
"""So many different messages are shown of one code."""
_LOOKED_AT = 20_000
"""So many rows that were set aside are looked at for messages that differ."""
_decode = msgspec.json.Decoder(Reject).decode


class Closing:
    """What there is to say of a finished folder."""

    def __init__(self, folder: str, ctx_len: int | None = None) -> None:
        manifest = read_manifest(folder)
        assert manifest is not None, "a job ended without a manifest"
        self.folder = folder
        self.manifest: Manifest = manifest
        self.report: Report = manifest.report
        plan = manifest.plan
        self.window = read_packing(plan.pack).window
        self.ctx_len = ctx_len or self.window or plan.limit or CONTEXT
        self.first = _first_rejects(folder, self.report)

    @property
    def magic(self) -> Magic | None:
        """What RWKV-LM's trainer asks for; None where no output is for it."""
        if not any(_is_for_trainer(name) for name in self.manifest.plan.outputs):
            return None
        stored = self.report.samples * self.window if self.window else self.report.tokens
        return magic(stored, self.ctx_len, self.manifest.plan.repeat)

    def facts(self) -> dict[str, Any]:
        """For programs."""
        found = self.magic
        return {
            "folder": self.folder,
            "report": msgspec.to_builtins(self.report),
            "trained_share": round(self.report.share, 6),
            "rejects": {code: msgspec.to_builtins(rejects[0]) for code, rejects in self.first.items()},
            "reject_messages": {code: msgspec.to_builtins(rejects) for code, rejects in self.first.items()},
            "notes": list(self._notes()),
            "magic": msgspec.to_builtins(found) if found is not None else None,
            "trainer_line": found.line if found is not None else "",
            "trainer_change": self.change() if found is not None else "",
            "labels": self.labels(),
        }

    def lines(self, *, kept: bool = True) -> Iterator[str]:
        """For people. `kept`: the folder stays, so it is said what is where."""
        report = self.report
        yield self._rows()
        yield ""
        yield (
            f"{plural(report.samples, 'sample', 'samples')}, {report.tokens:,} tokens, of which {report.trained:,} "
            f"({report.share:.1%}) are trained and {report.straddling:,} straddle a border"
        )
        yield from map(shown, report.template.lines())
        for note in self._notes():
            yield f"note: {shown(note)}"
        yield from self._losses()
        yield from self._rejected()
        if kept:
            yield ""
            yield f"in {shown(self.folder)}: {', '.join([*report.outputs, 'manifest.json'])}"
        yield from self._trainer(kept=kept)
        yield from self._labels()

    def _rows(self) -> str:
        """Every row in exactly one place, by file and in sum."""
        report = self.report
        files = [(shown(file.name), file.form, *_counts(file, file.rejected)) for file in report.files]
        total = ("all", "", *_counts(report, report.rejects))
        more = [(f"and {len(files) - _MOST_FILES} more", "", "", "", "", "")] if len(files) > _MOST_FILES else []
        cells = [*files[:_MOST_FILES], *more, *([total] if len(files) > 1 else [])]
        return table(("FILE", "FORM", "ROWS", "WRITTEN", "DUPLICATES", "REJECTED"), cells)

    def _notes(self) -> Iterator[str]:
        yield from self.report.notes()
        encoding = self.manifest.encoding
        if self.manifest.plan.date and "template" in encoding:
            yield f"the template is told the date {self.manifest.plan.date} in every row; `--date` says another"
        facts = OutputFacts(self.manifest.size, self.manifest.end, window=self.window)
        for name in self.manifest.plan.outputs:
            yield from get_output(name).notes(facts)
        yield from read_packing(self.manifest.plan.pack).notes()
        strips = self.manifest.encoding.get("strips")
        if strips:
            yield (
                f"a server takes the white space beside {', '.join(strips)} out of a prompt (lstrip or rstrip in the "
                "tokenizer's file), and samples keep it; `turnscript data tokens --write` writes a file without that"
            )
        spaced = self.manifest.encoding.get("spaced")
        if spaced:
            yield (
                f"a server puts a space before {spaced} of a prompt (Prepend, Metaspace or add_prefix_space in the "
                "tokenizer's file), and samples have none: serve the model with a file without that"
            )
        prefill = self.manifest.encoding.get("prefill")
        if prefill:
            yield (
                f"a prompt of {self.manifest.plan.format} that asks for no thought ends with {prefill!r}, which no "
                "sample has, so an answer without a thought is learned behind another beginning: give the rows "
                "thoughts, or choose a format without that"
            )

    def _losses(self) -> Iterator[str]:
        """What the format cannot say, and what messages cannot, by what and where, the most frequent first."""
        if self.report.losses:
            things = plural(self.report.losses, "thing", "things")
            yield f"note: {things} in the rows cannot be said in {shown(self.manifest.plan.words)}"
            yield from map(shown, loss_lines(self.report.loss_kinds))
        if self.report.chat_losses:
            things = plural(sum(self.report.chat_losses.values()), "thing", "things")
            yield f"note: {things} in the rows cannot be said in the messages beside the tokens"
            yield from map(shown, loss_lines(self.report.chat_losses))

    def _rejected(self) -> Iterator[str]:
        """The reasons, the most frequent first, each with the first row of each different message."""
        if not self.report.rejected:
            return
        yield ""
        for code, count in sorted(self.report.rejected.items(), key=lambda entry: (-entry[1], entry[0])):
            yield f"{code}: {plural(count, 'row', 'rows')}"
            for reject in self.first.get(code, [])[:_MOST_KINDS]:
                place = ": ".join(part for part in (f"{reject.file}:{reject.line}", reject.pointer) if part)
                yield f"  {shown(f'{place}: {reject.message}')}"
            if len(self.first.get(code, [])) > _MOST_KINDS:
                yield f"  and {len(self.first[code]) - _MOST_KINDS} other messages"

    def _trainer(self, *, kept: bool) -> Iterator[str]:
        found = self.magic
        if found is None or not self.report.samples:
            return
        yield ""
        if found.prime is None:
            again = f"; --repeat {found.repeat} would do" if found.repeat else ""
            yield f"RWKV-LM: no magic prime: {found.reason}{again}"
            return
        yield (
            f"RWKV-LM: --data_type binidx --data_file {self._stem()} {found.line}" if kept else f"RWKV-LM: {found.line}"
        )
        if change := self.change():
            yield "it reads the loss mask only with this change, and trains every token without it:"
            yield from (f"  {line}" for line in change.splitlines())

    def _labels(self) -> Iterator[str]:
        if labels := self.labels():
            yield ""
            yield "Hugging Face trainers read no loss_weight, and train every token of samples without labels:"
            yield f"  {labels}"
            if self._scale() != 1:
                yield "labels say only whether a token is learned, not its weight"

    def change(self) -> str:
        """How to make RWKV-LM read the mask; empty where every token is trained alike, as it does by itself."""
        return "" if self._trains_every_token() else trainer_change(self._scale())

    def labels(self) -> str:
        """How to make the mask of Hugging Face's trainers; empty where none is needed, or no output is for them."""
        if not self.report.samples or self._trains_every_token():
            return ""
        found = [get_output(name).labelled for name in self.manifest.plan.outputs]
        return next((labelled for labelled in found if labelled), "")

    def _trains_every_token(self) -> bool:
        return self.report.trained == self.report.tokens and self._scale() == 1 and not self.window

    def _scale(self) -> int:
        return int(self.manifest.encoding.get("scale", 1))

    def _stem(self) -> str:
        return shown(os.path.join(self.folder, self.manifest.plan.name))


def _counts(found: Report | FileReport, rejects: int) -> tuple[str, ...]:
    return tuple(f"{count:,}" for count in (found.rows, found.written, found.duplicates, rejects))


def _is_for_trainer(name: str) -> bool:
    return "RWKV-LM" in get_output(name).title


def _first_rejects(folder: str, report: Report) -> dict[str, list[Reject]]:
    """Of each code, the first row of each different message, as far as the first rows of all tell."""
    found: dict[str, list[Reject]] = {}
    kinds: set[tuple[str, str, str]] = set()
    with open(Path(folder) / REJECTS_FILE, "rb") as lines:
        for number, line in enumerate(lines):
            if number >= _LOOKED_AT and len(found) == len(report.rejected):
                break
            reject = _decode(line)
            kind = kind_of(reject.code, reject.message, reject.pointer)
            if kind not in kinds:
                kinds.add(kind)
                found.setdefault(reject.code, []).append(reject)
    return found
