"""Owns the proof that a finished folder is right: its files are read back and compared with the rows they came from.

Three passes. The hashes of all files are compared with the manifest. The inputs are read and encoded once more, and
each sample is checked against its conversation (`sample_checks`), most of them by what is proved once for all rows of
one shape (`shape_checks`); and so are the messages beside it (`chat_checks`). Then every output is read, and each
document in it must be a sample of the row that it names, token for token and weight for weight, with its messages where
the output holds them. So what was proved of a sample holds for the document, in whatever order, window or file it
stands. Memory is bounded, but for a fingerprint of each sample.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from turnscript.core.errors import InvalidInput
from turnscript.datasets.executors import Processes
from turnscript.datasets.expectation import (
    Candidate,
    Expected,
    Fingerprints,
    Inputs,
    Source,
    digest_of,
    fingerprint,
    located,
)
from turnscript.datasets.files import sha256
from turnscript.datasets.manifest import MANIFEST, Manifest, manifest_bytes, manifest_of, read_manifest
from turnscript.datasets.output import Batch
from turnscript.datasets.output_registry import get_output
from turnscript.datasets.outputs._samples import document_starts
from turnscript.datasets.packingnames import read_packing
from turnscript.datasets.plan import EXACT
from turnscript.datasets.preparation import check_folder, load_prepared
from turnscript.datasets.problems import difference
from turnscript.datasets.report import TemplateReport
from turnscript.datasets.sample_checks import Checker, SampleCounts
from turnscript.datasets.shard import Done, seldom_collected
from turnscript.datasets.shard_checks import FILES, MOST, ShardChecks, ShardSeen, leave, left
from turnscript.datasets.shardfiles import FIRST_UNLIKE

_DETAILED = 20

Tell = Callable[[str, int], None]
"""Called now and then with what is being done, and how many rows or documents of it are done."""


class Finding(Struct, frozen=True):
    """Something that is wrong. `place`: a file, or `file:row`; for a document in an output, the row that it names."""

    place: str
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


class OutputCounts(Struct):
    """What was read of an output. `trained`: tokens with a weight; `padding`: tokens that belong to no document;
    `chats`: documents with the messages of their conversation.
    """

    samples: int = 0
    documents: int = 0
    compared: int = 0
    tokens: int = 0
    trained: int = 0
    padding: int = 0
    chats: int = 0


class Verification(Struct):
    """What was looked at, and what is wrong: the first findings, and how many there are.

    `files`: how many hashes were compared. `rows`: rows of the inputs that were encoded once more, `every` n-th of
    all. `template`: those of them that a chat template wrote. `checks`: what was checked of their samples. `outputs`:
    what was read of each.
    """

    every: int = 1
    files: int = 0
    rows: int = 0
    checks: SampleCounts = field(default_factory=SampleCounts)
    outputs: dict[str, OutputCounts] = {}
    template: TemplateReport = field(default_factory=TemplateReport)
    findings: list[Finding] = []
    faults: int = 0

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.faults

    def find(self, place: str, message: str) -> None:
        """Note something that is wrong."""
        self.faults += 1
        if len(self.findings) < MOST:
            self.findings.append(Finding(place, message))

    def notes(self) -> Iterator[str]:
        """Give what people should know of the result, a sentence each."""
        checks = self.checks
        if self.every > 1:
            yield f"only one row in {self.every} was looked at"
        if checks.other:
            turns = _counted(checks.other, "turn reads", "turns read")
            yield f"{turns} back in another way than the row has it, because of what the template writes there"
        if checks.explained and not self.template.rows:
            read = _counted(checks.explained, "conversation", "conversations")
            yield f"{read} read back with differences that the format reported as losses"
        if checks.respelled:
            spell = _counted(checks.respelled, "sample spells", "samples spell")
            yield f"{spell} some text in another way than the row: the tokenizer normalizes what it reads"
        if checks.unread:
            texts = _counted(checks.unread, "text was", "texts were")
            yield f"{texts} written without an escape, so nobody can say what is read back there"
        if checks.opened:
            begin = _counted(checks.opened, "turn begins", "turns begin")
            yield f"{begin} in another way than a prompt without wishes opens it, such as a call"
        if checks.later:
            turns = _counted(checks.later, "turn is", "turns are")
            yield f"{turns} shown in another way once the conversation has gone on"
        if checks.prompts > checks.exact:
            end = _counted(checks.prompts - checks.exact, "prompt ends", "prompts end")
            yield f"{end} in another token than the sample has there: the text goes on within a token"


def verify(out: str | os.PathLike[str], *, every: int = 1, workers: int = 1, tell: Tell | None = None) -> Verification:
    """Read a finished folder back and compare it with its inputs. `every`: look at every n-th row of a shard only.

    `workers`: so many processes encode and check the rows, 0 for one a processor; the result is the same.
    What is wrong is in the result. Raises InvalidInput for a folder that was never finished.
    """
    if every < 1:
        raise InvalidInput(f"one row in {every} cannot be looked at; give 1 or more", got=str(every))
    folder = Path(out)
    check_folder(folder)
    manifest = read_manifest(folder)
    if manifest is None:
        message = f"{folder} holds no {MANIFEST} of this version of turnscript: it was not finished; build there first"
        raise InvalidInput(message, expected=f"a folder with {MANIFEST}", got=str(folder))
    work = _Work(folder, manifest, Verification(every=every), tell, workers)
    with seldom_collected():
        work.run()
    return work.found


class _Document(NamedTuple):
    """A document in an output, with whatever stands behind it in its sample. `chat`: its conversation, None where the
    output holds none of any document; `whole`: it was not put together from pieces.
    """

    source: str
    ids: NDArray[np.uint32]
    weights: NDArray[np.uint8]
    last: bool
    chat: bytes | None
    whole: bool = True


class _Work:
    """The state of one verification."""

    def __init__(self, folder: Path, manifest: Manifest, found: Verification, tell: Tell | None, workers: int) -> None:
        prepared = load_prepared(folder)
        self._folder = folder
        self._manifest = manifest
        self._prepared = prepared
        self._tell = tell or (lambda _stage, _count: None)
        self._workers = workers
        self._prints = Fingerprints(chats=prepared.chats)
        self._window = bool(read_packing(prepared.plan.pack).window)
        self._names = {file.name: at for at, file in enumerate(prepared.files)}
        self._unchanged: set[int] = set()
        self._unlike: dict[Source, tuple[str, _Document]] = {}
        self.found = found

    @cached_property
    def _inputs(self) -> Inputs:
        return Inputs(self._prepared)

    def run(self) -> None:
        """Run all passes, as far as the files allow them."""
        with self._checks() as checked:
            whole = self._compare_hashes()
            self._read_inputs(checked)
        for name in self._prepared.plan.outputs:
            if name in whole:
                self._read_output(name)
        self._explain()

    def _compare_facts(self) -> None:
        """Compare what the manifest says of itself and of the plan."""
        manifest = self._manifest
        expected = replace(manifest_of(self._prepared, manifest.report, manifest.outputs), sha256=manifest.sha256)
        if manifest != expected:
            self.found.find(MANIFEST, "it belongs to another plan than the one beside it; build again")
        if (self._folder / MANIFEST).read_bytes() != manifest_bytes(manifest):
            self.found.find(MANIFEST, "it is not as it was written; build again")

    def _compare_hashes(self) -> set[str]:
        """Compare files with the manifest. Gives the outputs that can be read."""
        whole = set(self._prepared.plan.outputs)
        self._compare_facts()
        for name, facts in self._manifest.outputs.items():
            if Path(name).name != name:
                self.found.find(MANIFEST, f"it lists {name!r}, which is no name of a file in this folder")
                continue
            self.found.files += 1
            try:
                same = sha256(str(self._folder / name)) == facts.sha256
            except InvalidInput as error:
                self.found.find(name, f"it cannot be read: {error.message}")
                continue
            if not same:
                self.found.find(name, "it is not as it was written: its hash is not that of the manifest; build again")
        for at, file in enumerate(self._prepared.files):
            self.found.files += 1
            try:
                same = sha256(located(file.name, self._prepared.folder)) == file.sha256
            except InvalidInput as error:
                self.found.find(file.name, f"nothing can be compared with it: {error.message}")
                continue
            if same:
                self._unchanged.add(at)
            else:
                self.found.find(file.name, "it was changed after the build, so nothing can be compared with it")
        return whole

    def _read_inputs(self, checked: Callable[[], Iterator[ShardSeen]]) -> None:
        """Encode the rows once more, check each sample, and keep a fingerprint of it."""
        places = [0] * len(self._prepared.files)
        usable = 0
        for number, seen in enumerate(checked()):
            before = [places[part.file] for part in self._prepared.shards[number]]
            for part, found, first in zip(self._prepared.shards[number], seen.parts, before, strict=True):
                if found is not None:
                    found.prints["number"] += first
                    self._prints.take(found.prints)
                    places[part.file] += found.places
            self._count(number, seen, before)
            usable += seen.usable
        self._prints.finish()
        report = self._manifest.report
        said = report.written + report.duplicates
        if self.found.every == 1 and len(self._unchanged) == len(self._prepared.files) and usable != said:
            self.found.find(MANIFEST, f"{usable} rows of the inputs are usable, and it counts {said}")

    @contextmanager
    def _checks(self) -> Iterator[Callable[[], Iterator[ShardSeen]]]:
        """Give what checks all shards, in order: several processes do so side by side, begun before anybody asks."""
        numbers = range(len(self._prepared.shards))
        rows = [0] * len(numbers)

        def tell(number: int, done: Done) -> None:
            rows[number] = done.rows
            self._tell("rows", sum(rows))

        if self._workers == 1 or len(numbers) < 2:

            def check() -> Iterator[ShardSeen]:
                checks = ShardChecks(self._prepared, self._unchanged, self.found.every)
                return (checks.check(number, partial(tell, number)) for number in numbers)

            yield check
            return
        with tempfile.TemporaryDirectory(prefix="turnscript-verify-") as results:
            executor = Processes(self._workers or None, {"results": results, "every": self.found.every})
            with executor.begun(str(self._folder), self._prepared.plan.tokenizer, len(numbers)) as run:

                def check() -> Iterator[ShardSeen]:
                    leave(results, FILES, self._unchanged)
                    run(numbers, tell)
                    return (left(results, number) for number in numbers)

                yield check

    def _count(self, number: int, seen: ShardSeen, before: Sequence[int]) -> None:
        """Count what was seen of a shard. `before`: of each of its parts, the numbers before it in its file."""
        parts, report = self._prepared.shards[number], self.found.template
        self.found.rows += seen.rows
        self.found.checks.add(seen.counts)
        report.rows += seen.template.rows
        report.unlike += seen.template.unlike
        for one in seen.template.first[: FIRST_UNLIKE - len(report.first)]:
            place = self._place(Source(parts[one.piece].file, before[one.piece] + one.number))
            report.first.append(f"{place}: {one.what}")
        for fault in seen.faults:
            self.found.find(
                self._place(Source(parts[fault.part].file, before[fault.part] + fault.number)), fault.message
            )
        self.found.faults += seen.faulty - len(seen.faults)

    def _read_output(self, name: str) -> None:
        """Compare every document of an output, and count how often each sample is there."""
        counts = self.found.outputs[name] = OutputCounts()
        times = np.zeros(len(self._prints.entries), dtype=np.uint32)
        try:
            for document in self._documents(name, counts):
                self._compare(name, document, counts, times)
        except InvalidInput as error:
            self.found.find(name, error.message)
            return
        self._compare_counts(name, counts, times)

    def _documents(self, name: str, counts: OutputCounts) -> Iterator[_Document]:
        """Give the documents of an output; pieces of one that was cut at a border are put together."""
        crosses = read_packing(self._prepared.plan.pack).crosses
        pieces: list[_Document] = []
        for batch in get_output(name).read(self._folder, self._prepared.plan.name):
            counts.samples += len(batch.lengths)
            counts.tokens += len(batch.ids)
            counts.trained += int(np.count_nonzero(batch.weights))
            for begins, document in _cut(batch):
                if not crosses:
                    yield document
                    continue
                if pieces and not (begins and self._goes_on(pieces, document.source)):
                    yield _joined(pieces)
                    pieces = []
                pieces.append(document)
            self._tell(name, counts.documents)
        if pieces:
            yield _joined(pieces)

    def _goes_on(self, pieces: Sequence[_Document], source: str) -> bool:
        """Return whether a piece at the beginning of a window is of the document at the end of the one before."""
        if pieces[0].source != source:
            return False
        known = self._source(source)
        candidates = self._prints.of(known) if known is not None else []
        count = sum(len(piece.ids) for piece in pieces)
        if not candidates or all(one.tokens > count for one in candidates):
            return True
        if all(one.tokens <= count for one in candidates):
            return False
        return not any(_is(_joined(pieces), one, 0, window=False) for one in candidates if one.tokens == count)

    def _source(self, name: str) -> Source | None:
        file, _, number = name.rpartition(":")
        if number.isdecimal() and file in self._names:  # most are no part of a row
            return Source(self._names[file], int(number))
        match = _SOURCE.fullmatch(name)
        if match is None or match[1] not in self._names:
            return None
        return Source(self._names[match[1]], int(match[2]))

    def _compare(self, name: str, document: _Document, counts: OutputCounts, times: NDArray[np.uint32]) -> None:
        counts.documents += 1
        source = self._source(document.source)
        if source is None:
            self.found.find(document.source, f"a document of {name} names this row, and no input has it")
            return
        if source.file not in self._unchanged:
            return
        candidates = self._prints.of(source)
        if not candidates and self.found.every > 1:
            return
        counts.compared += 1
        padding = self._prepared.end or 0
        fitting = [one for one in candidates if _is(document, one, padding, self._window) and _says(document, one)]
        if not fitting:
            self.found.faults += 1
            if len(self._unlike) < _DETAILED:
                self._unlike.setdefault(source, (name, document))
            return
        # Of equal samples of a row, the one that was seen least.
        one = min(fitting, key=lambda candidate: int(times[candidate.position])) if len(fitting) > 1 else fitting[0]
        times[one.position] += 1
        counts.padding += len(document.ids) - one.tokens
        counts.chats += bool(document.chat)

    def _compare_counts(self, name: str, counts: OutputCounts, times: NDArray[np.uint32]) -> None:
        """Check that every sample is there as often as the plan says, or not at all if its row is like another one."""
        plan, report = self._prepared.plan, self._manifest.report
        odd = times != plan.repeat
        if plan.dedup == EXACT:
            # A row that is left out must be like one that is there.
            prints = self._prints.entries["digest"]
            odd &= (times != 0) | ~np.isin(prints, prints[times != 0])
        for at in np.flatnonzero(odd).tolist():
            entry = self._prints.entries[at]
            place = self._place(Source(int(entry["file"]), int(entry["number"])))
            self.found.find(place, f"{name} has it {times[at]} times, and the plan says {plan.repeat}")
        for what, said, seen in (
            ("documents", report.documents, counts.documents),
            ("samples", report.samples, counts.samples),
            ("trained tokens", report.trained, counts.trained),
        ):
            if said != seen:
                self.found.find(name, f"it has {seen} {what}, and the manifest says {said}")
        if counts.compared == counts.documents and report.tokens != counts.tokens - counts.padding:
            seen = counts.tokens - counts.padding
            self.found.find(name, f"it has {seen} tokens without padding, and the manifest says {report.tokens}")

    def _explain(self) -> None:
        """Say of the first documents that are no sample of their row how they differ from it."""
        if not self._unlike:
            return
        wanted = frozenset(self._unlike)
        files = sorted({source.file for source in wanted})
        self.found.faults -= len(self._unlike)
        for row in self._inputs.rows(files, wanted):
            name, document = self._unlike.pop(row.source)
            self.found.find(self._place(row.source), f"in {name}, {self._difference(document, row)}")
        for source, (name, _) in self._unlike.items():
            self.found.find(self._place(source), f"{name} has a document of this row, which cannot be used")

    def _difference(self, document: _Document, row: Expected) -> str:
        """Return how a document differs from the sample of its row that is most like it in length."""
        samples = row.samples
        if not samples:
            return "there is a document of this row, which should have been set aside"
        place = min(range(len(samples)), key=lambda at: abs(len(samples[at].ids) - len(document.ids)))
        sample = samples[place]
        least = min(len(document.ids), len(sample.ids))
        unlike = document.ids[:least] != sample.ids[:least]
        if unlike.any():
            at = int(np.argmax(unlike))
            found, expected = (self._text(ids[at : at + 8]) for ids in (document.ids, sample.ids))
            return f"token {at} is {document.ids[at]} ({found}) and should be {sample.ids[at]} ({expected})"
        weighed = document.weights[:least] != sample.weights[:least]
        if weighed.any():
            at = int(np.argmax(weighed))
            text = self._text(sample.ids[at : at + 8])
            return f"the weight of token {at} ({text}) is {document.weights[at]} and should be {sample.weights[at]}"
        if len(document.ids) != len(sample.ids):
            return f"it has {len(document.ids)} tokens and should have {len(sample.ids)}"
        told = row.chats[place].data if row.chats else b""
        if document.chat is not None and document.chat != (told if document.whole else b""):
            return _chat_difference(document, told)
        faults = chain.from_iterable(Checker(self._inputs.encoder).each(row.whole))
        return next(faults, "it is not what all rows of its shape are proved to be; please report this row")

    def _text(self, ids: NDArray[np.uint32]) -> str:
        size = self._prepared.size
        return repr(self._inputs.encoder.tokenizer.decode([one for one in ids.tolist() if one < size]))

    def _place(self, source: Source) -> str:
        return f"{self._prepared.files[source.file].name}:{source.number}"


_SOURCE = re.compile(r"(.*):(\d+)(?:#(\d+))?", re.DOTALL)


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"


def _cut(batch: Batch) -> Iterator[tuple[bool, _Document]]:
    """Give the documents of a batch, each with whether it stands at the beginning of its sample."""
    begins = document_starts(batch).tolist()
    ends = np.cumsum(batch.lengths)
    lasts = np.repeat(ends, batch.documents).tolist()
    final = len(begins) - 1
    for at, (begin, end) in enumerate(zip(begins, lasts, strict=True)):
        last = at == final or begins[at + 1] >= end
        stop = end if last else begins[at + 1]
        first = not at or lasts[at - 1] <= begin
        chat = batch.chats[at] if batch.chats else None
        told = (b"" if chat is None else chat()) if batch.chats else None
        yield first, _Document(batch.sources[at], batch.ids[begin:stop], batch.weights[begin:stop], last, told)


def _joined(pieces: Sequence[_Document]) -> _Document:
    if len(pieces) == 1:
        return pieces[0]
    ids, weights = ([getattr(piece, name) for piece in pieces] for name in ("ids", "weights"))
    told = [piece.chat for piece in pieces if piece.chat is not None]
    chat = b"".join(told) if told else None
    return _Document(pieces[0].source, np.concatenate(ids), np.concatenate(weights), pieces[-1].last, chat, whole=False)


def _is(document: _Document, one: Candidate, padding: int, window: bool) -> bool:
    """Return whether a document is this sample, and whatever is behind it padding."""
    count = one.tokens
    if len(document.ids) != count:
        if len(document.ids) < count or not (window and document.last):
            return False
        if (document.ids[count:] != padding).any() or document.weights[count:].any():
            return False
    return fingerprint(document.ids[:count], document.weights[:count]) == one.digest


def _says(document: _Document, one: Candidate) -> bool:
    """Return whether a document has the conversation of this sample beside it; pieces of one have none."""
    if document.chat is None or not one.chat:
        return True
    return not document.chat if not document.whole else digest_of(document.chat) == one.chat


def _chat_difference(document: _Document, expected: bytes) -> str:
    if not document.whole:
        return "a part of the row has messages, which say more than its tokens"
    if not expected or not document.chat:
        return "it has messages and should have none" if document.chat else "it has no messages and should have some"
    return f"its messages are others: {difference(expected.decode(), document.chat.decode('utf-8', 'replace'))}"
