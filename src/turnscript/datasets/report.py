"""Owns the report: what became of every row, and what the outputs hold. The same inputs and plan give the same one."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from turnscript.datasets.ordercheck import WARNINGS
from turnscript.datasets.shardfiles import Cuts


class FileReport(Struct, kw_only=True):
    """What became of the rows of one file."""

    name: str
    form: str
    rows: int = 0
    written: int = 0
    duplicates: int = 0
    rejected: int = 0


class TemplateReport(Struct, kw_only=True):
    """Rows that a chat template wrote: how many, how many are not as it writes them by itself, and the first such."""

    rows: int = 0
    unlike: int = 0
    first: list[str] = []

    def lines(self) -> Iterator[str]:
        """Return what people are told: how many are as the template writes them, and which are not."""
        if not self.rows:
            return
        yield f"{self.rows - self.unlike:,} of {self.rows:,} rows as your template writes them"
        yield from (f"  {one}" for one in self.first)
        if self.unlike > len(self.first):
            yield f"  and {self.unlike - len(self.first):,} more"


class Report(Struct, kw_only=True):
    """What became of all rows.

    `rejected`: rows that were set aside, by code. `documents`, `tokens` and `trained`: what the outputs hold, without
    padding, each repetition counted. `straddling`: tokens of these that hold a piece that is trained and one that is
    not. `losses`: how much the format could not say. `loss_kinds` (by what and where), `cuts`, `warnings` and
    `template` (what a chat template wrote) count in all rows but the rejected, duplicates included; so does
    `chat_losses`, what messages beside the tokens cannot say. `chatless`: documents, or pieces of them, that have no
    messages where others do. `outputs`: the files' names.
    """

    rows: int = 0
    written: int = 0
    duplicates: int = 0
    rejected: dict[str, int] = {}
    documents: int = 0
    samples: int = 0
    tokens: int = 0
    trained: int = 0
    straddling: int = 0
    losses: int = 0
    loss_kinds: dict[str, int] = {}
    chat_losses: dict[str, int] = {}
    chatless: int = 0
    cuts: Cuts = msgspec.field(default_factory=Cuts)
    template: TemplateReport = msgspec.field(default_factory=TemplateReport)
    warnings: dict[str, int] = {}
    files: list[FileReport] = []
    outputs: list[str] = []

    @property
    def rejects(self) -> int:
        """Return how many rows were set aside."""
        return sum(self.rejected.values())

    @property
    def share(self) -> float:
        """Return the share of all tokens that are trained."""
        return self.trained / self.tokens if self.tokens else 0.0

    def check(self) -> None:
        """Check that every row is in exactly one place."""
        assert self.rows == self.written + self.duplicates + self.rejects, f"rows are unaccounted for: {self}"
        for file in self.files:
            assert file.rows == file.written + file.duplicates + file.rejected, f"rows are unaccounted for: {file}"
        for name in ("rows", "written", "duplicates"):
            assert getattr(self, name) == sum(getattr(file, name) for file in self.files), name
        assert self.rejects == sum(file.rejected for file in self.files), "rejects are unaccounted for"

    def notes(self) -> Iterator[str]:
        """Give what people should look at, a sentence each."""
        for code, count in self.warnings.items():
            yield f"{count} {'row' if count == 1 else 'rows'}: {WARNINGS[code]} ({code})"
        if self.cuts.tokens:
            tokens = "1 token was" if self.cuts.tokens == 1 else f"{self.cuts.tokens} tokens were"
            yield f"{tokens} left out of samples that were too long"
        if self.chatless:
            what = "1 document or part of one has" if self.chatless == 1 else f"{self.chatless} documents or parts have"
            yield f"{what} no messages beside the tokens: a plain text has none, nor has a part of a conversation"
        if not self.written:
            yield "nothing was written: no row was usable"
