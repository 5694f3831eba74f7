"""What is measured of training data: turnscript's builds and their parts, tokenizers alone, and RWKV-LM's converter.

A case is plain JSON: `way` says what is done, `path` is the file of rows, `folder` is where files may go. What a peer
made is looked at off the clock: see `show` of each.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.harness import Peer, PeerFailed, Seat

Case = dict[str, Any]
OURS, FLOOR = "turnscript", "render, tokenize"
STEPS, SCRIPT, ALONE = "its steps", "make_data.py", "tokenizer alone"
BATCH, FAST = "encode_batch", "encode_batch_fast"
SEARCH, COPY = "best fit", "pack"
WINDOW = 4096
_AT_ONCE = 256
"""How many texts the tokenizers get at a time, which is as many rows as turnscript takes."""
_numbers = itertools.count()


def load(group: str, case: Case) -> dict[str, Peer]:
    """The peers of a group that do what the case says."""
    return {name: make(case) for name, make in _PEERS[case["way"]].items() if _GROUPS[name] == group}


# Whole builds.


def _plan(case: Case, tokenizer: str) -> Any:
    datasets: Any = import_module("turnscript.datasets")
    outputs = tuple(case.get("outputs", ("binidx",)))
    return datasets.Plan(inputs=(case["path"],), format=case["format"], tokenizer=tokenizer, outputs=outputs)


def _built(case: Case) -> Peer:
    """`build` in this process. The tokenizer is loaded off the clock, and one that remembers texts is a new one."""
    datasets: Any = import_module("turnscript.datasets")
    tokenizers: Any = import_module("turnscript.datasets.tokenizers")
    made: list[tuple[Any, Path]] = []

    def fresh() -> tuple[Any, Path]:
        out = Path(case["folder"], f"out-{os.getpid()}-{next(_numbers)}")
        spec = _forgetful(case)
        tokenizers.get_tokenizer(spec)
        for _, old in made:
            shutil.rmtree(old, ignore_errors=True)
        made[:] = [(_plan(case, spec), out)]
        return made[0]

    def run(given: tuple[Any, Path]) -> tuple[Any, Path]:
        plan, out = given
        return datasets.build(plan, out, executor=datasets.Inline()), out

    return Peer(run, lambda given: _shown(case, *given), fresh)


def _forgetful(case: Case) -> str:
    """The tokenizer of a case, under a name of its own where it remembers what it has seen."""
    spec: str = case["tokenizer"]
    if not spec.startswith("hf:"):
        return spec
    copy = Path(case["folder"], f"tokenizer-{os.getpid()}-{next(_numbers)}.json")
    shutil.copy(spec.removeprefix("hf:"), copy)
    return f"hf:{copy}"


def _shown(case: Case, report: Any, out: Path) -> bytes:
    """What was made, after `verify` looked at it; and its documents as texts, for the peers that take these."""
    datasets: Any = import_module("turnscript.datasets")
    tokenizers: Any = import_module("turnscript.datasets.tokenizers")
    found = datasets.verify(out, every=case["every"])
    if not found.ok or report.written != report.rows:
        raise PeerFailed(f"{report.rejected} were set aside; {'; '.join(map(str, found.findings[:3]))}")
    plan = json.loads(Path(out, "plan.json").read_bytes())["plan"]
    tokenizer = tokenizers.get_tokenizer(plan["tokenizer"])
    size = 0
    with Path(case["texts"]).open("w", encoding="utf-8") as file:
        for ids in _documents(out):
            text = tokenizer.decode(ids)
            size += len(text)
            file.write(json.dumps({"text": text.decode()}, ensure_ascii=False) + "\n")
    facts = {"tokens": report.tokens, "trained": report.trained, "rows": report.rows, "bytes": size}
    if tokenizer.end == 0:
        facts["documents"] = digest(Path(out, "train.bin").read_bytes())
    return json.dumps(facts).encode()


def _documents(out: Path) -> Iterator[list[int]]:
    """The ids of each document in a finished folder."""
    registry: Any = import_module("turnscript.datasets.output_registry")
    for batch in registry.get_output("binidx").read(out, "train"):
        at = 0
        for length in batch.lengths.tolist():
            yield batch.ids[at : at + length].tolist()
            at += length


def digest(ids: bytes) -> str:
    """A hash of the documents in a `.bin` of two bytes an id, in whatever order they stand: 0 ends each."""
    np: Any = import_module("numpy")
    numbers = np.frombuffer(ids, "<u2")
    ends = (np.flatnonzero(numbers == 0) + 1).tolist()
    parts = sorted(numbers[start:end].tobytes() for start, end in itertools.pairwise([0, *ends]))
    return hashlib.sha256(b"".join(parts)).hexdigest()


# Their peers.


def _steps(case: Case) -> Peer:
    """What `make_data.py` does with each line, with the tokenizer that its author publishes as a package."""
    np: Any = import_module("numpy")
    package: Any = import_module("rwkv.rwkv_tokenizer")
    found = find_spec("rwkv")
    assert found is not None
    assert found.origin is not None
    tokenizer = package.TRIE_TOKENIZER(str(Path(found.origin).with_name("rwkv_vocab_v20230424.txt")))
    target = Path(case["folder"], f"steps-{os.getpid()}.bin")

    def run(_: bytes) -> bytes:
        with open(case["texts"], encoding="utf-8") as lines, target.open("wb") as out:
            for line in lines:
                text = json.loads(line)["text"]
                ids = tokenizer.encode(text)
                if tokenizer.decode(ids) != text:
                    raise PeerFailed("the ids are not the text")
                ids.append(0)
                out.write(np.array(ids, dtype=np.uint16).tobytes())
        return b""

    return Peer(run, lambda _: json.dumps({"documents": digest(target.read_bytes())}).encode())


class Script(Seat):
    """`make_data.py` of a checkout, as it is, in a process of its own. What it takes for two rows does not count."""

    def __init__(self, checkout: Path, texts: Path, folder: Path) -> None:
        self.name = SCRIPT
        self.times = 1
        self.turns = []
        self._few: list[float] = []
        self._home = folder / "rwkv-lm"
        self._texts = texts
        shutil.copytree(checkout / "RWKV-v5", self._home)
        with texts.open(encoding="utf-8") as lines:
            (self._home / "few.jsonl").write_text("".join(itertools.islice(lines, 2)), encoding="utf-8")
        shutil.copy(texts, self._home / "rows.jsonl")
        stub = folder / "stub" / "torch"
        stub.mkdir(parents=True)
        # It needs of torch only a class to inherit from; an empty one spares it the import.
        (stub / "__init__.py").write_text("class utils:\n    class data:\n        Dataset = object\n")
        self._environment = {**os.environ, "PYTHONPATH": str(stub.parent)}

    @property
    def best(self) -> float:
        """The least of all runs, less the least of those with two rows."""
        return min(self.turns or [math.nan]) - self.start

    @property
    def start(self) -> float:
        """What two rows take."""
        return min(self._few)

    def calibrate(self, turn_ns: int) -> None:
        self.turns, self._few = [], []

    def take_turn(self) -> None:
        assert self.turns is not None
        self._few.append(self._cpu("few"))
        self.turns.append(self._cpu("rows"))

    def documents(self) -> str:
        """A hash of what it wrote; it ends with status 0 even where it fails."""
        return digest((self._home / "rows.bin").read_bytes())

    def _cpu(self, name: str) -> float:
        command = [sys.executable, "make_data.py", f"{name}.jsonl", "1", str(WINDOW)]
        with (self._home / "said.txt").open("wb") as said:
            process = subprocess.Popen(command, cwd=self._home, env=self._environment, stdout=said, stderr=said)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or not (self._home / f"{name}.idx").exists():
            raise PeerFailed(f"make_data.py: {(self._home / 'said.txt').read_text('utf-8', 'replace')[-300:]}")
        return (used.ru_utime + used.ru_stime) * 1e9


def _alone(case: Case) -> Peer:
    """The tokenizer of turnscript with the finished texts: nothing is faster than this with it."""
    tokenizers: Any = import_module("turnscript.datasets.tokenizers")
    encode = tokenizers.get_tokenizer(case["tokenizer"]).encode
    with open(case["texts"], encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]

    def run(_: bytes) -> int:
        return sum(sum(map(len, encode(texts[first : first + _AT_ONCE]))) for first in range(0, len(texts), _AT_ONCE))

    return Peer(run, lambda tokens: json.dumps({"tokens": tokens}).encode())


def _encoded(method: str) -> Callable[[Case], Peer]:
    """The whole texts through the library, tags to their ids, and nothing else."""

    def make(case: Case) -> Peer:
        library: Any = import_module("tokenizers")
        path = case["tokenizer"].removeprefix("hf:")
        with open(case["texts"], encoding="utf-8") as lines:
            texts = [json.loads(line)["text"] for line in lines]

        def fresh() -> Any:
            return library.Tokenizer.from_file(path)  # it remembers words

        def run(tokenizer: Any) -> int:
            encode, tokens = getattr(tokenizer, method), 0
            for first in range(0, len(texts), _AT_ONCE):
                tokens += sum(map(len, encode(texts[first : first + _AT_ONCE], add_special_tokens=False)))
            return tokens

        return Peer(run, lambda tokens: json.dumps({"tokens": tokens}).encode(), fresh)

    return make


# Parts.


def _drafted(case: Case) -> tuple[Callable[[], Any], list[Any]]:
    """What makes an encoder that has seen nothing, and rows that are read already."""
    encoding: Any = import_module("turnscript.datasets.encoding")
    train: Any = import_module("turnscript.datasets.train")
    tokenizers: Any = import_module("turnscript.datasets.tokenizers")
    forms: Any = import_module("turnscript.datasets.form_registry")
    ts: Any = import_module("turnscript")
    format_, trained = ts.get_format(case["format"]), train.parse_train("assistant")

    def fresh() -> Any:
        return encoding.Encoder(format_, tokenizers.get_tokenizer(_forgetful(case)), trained)

    form = forms.get_form("messages")
    return fresh, [one for line in Path(case["path"]).read_bytes().splitlines() for one in form.read(line)]


def _masked(case: Case) -> Peer:
    """Rows to ids and a mask."""
    fresh, examples = _drafted(case)

    def run(encoder: Any) -> tuple[Any, list[Any]]:
        return encoder, encoder.encode(examples)

    def show(made: tuple[Any, list[Any]]) -> bytes:
        encoder, samples = made
        rendered = sum(len(encoder.tokenizer.decode(sample.ids.tolist())) for sample in samples)
        return json.dumps({"bytes": rendered, "tokens": sum(len(sample.ids) for sample in samples)}).encode()

    return Peer(run, show, fresh)


def _rendered(case: Case) -> Peer:
    """The same without a mask: one render of each, and the ids of the whole text."""
    fresh, examples = _drafted(case)

    def run(encoder: Any) -> list[str]:
        render = encoder.format.write
        texts = ["".join(render(example.request).flat()[0]) for example in examples]
        encoder.tokenizer.encode(texts)
        return texts

    return Peer(run, lambda texts: json.dumps({"bytes": sum(len(text.encode()) for text in texts)}).encode(), fresh)


def lengths(count: int) -> list[int]:
    """Tokens of so many rows, as conversations have them: half have 218, one in twenty 1,617, none more than 11,061.

    Those that fit no window are left out, as a plan does that refuses them.
    """
    rng = Random(7)
    found = [max(8, round(rng.lognormvariate(5.384, 1.218))) for _ in range(count)]
    return [min(length, 11_061) for length in found if length <= WINDOW]


def _searched(case: Case) -> Peer:
    packing: Any = import_module("turnscript.datasets.packing")
    sizes = lengths(case["documents"])
    groups = [sizes[first : first + packing.SEARCHED] for first in range(0, len(sizes), packing.SEARCHED)]

    def run(_: bytes) -> int:
        return sum(len(packing.best_fit(group, WINDOW)) for group in groups)

    return Peer(run, lambda windows: json.dumps({"windows": windows, "tokens": sum(sizes)}).encode())


def _copied(case: Case) -> Peer:
    """The search and the copying of ids and weights, with batches as the merge has them."""
    np: Any = import_module("numpy")
    packing: Any = import_module("turnscript.datasets.packing")
    names: Any = import_module("turnscript.datasets.packingnames")
    output: Any = import_module("turnscript.datasets.output")
    sizes = lengths(case["documents"])
    batches = []
    for first in range(0, len(sizes), _AT_ONCE):
        some = np.array(sizes[first : first + _AT_ONCE], np.int64)
        total, one = int(some.sum()), np.ones(len(some), np.int64)
        sources = [f"rows.jsonl:{number}" for number in range(first, first + len(some))]
        ids = np.arange(total, dtype=np.uint32) % 60_000 + 1
        batches.append(output.Batch(ids, (ids % 2).astype(np.uint8), some, one * 0, one, sources))
    facts = output.OutputFacts(size=1 << 16, end=0)

    def run(_: bytes) -> int:
        found = packing.pack(batches, names.read_packing(f"bfd:{WINDOW}"), facts)
        return sum(len(batch.lengths) for batch in found)

    return Peer(run, lambda windows: json.dumps({"windows": windows, "tokens": sum(sizes)}).encode())


def _written(name: str) -> Callable[[Case], Peer]:
    """The samples of a finished build, which are in memory already, to the files of an output."""

    def make(case: Case) -> Peer:
        registry: Any = import_module("turnscript.datasets.output_registry")
        output: Any = import_module("turnscript.datasets.output")
        source = case["source"]
        batches = list(registry.get_output("binidx").read(Path(source), "train"))
        facts = output.OutputFacts(size=1 << 16, end=0)
        folder = Path(case["folder"], name)
        folder.mkdir(exist_ok=True)

        def run(_: bytes) -> list[str]:
            writer = registry.get_output(name).open(folder, "train", facts)
            for batch in batches:
                writer.write(batch)
            files: list[str] = writer.close()
            return files

        def show(files: list[str]) -> bytes:
            sizes = {file: (folder / file).stat().st_size for file in files}
            return json.dumps({"sizes": sizes, "tokens": sum(len(batch.ids) for batch in batches)}).encode()

        return Peer(run, show)

    return make


OUTPUTS = ("binidx", "parquet", "jsonl")
_PEERS: dict[str, dict[str, Callable[[Case], Peer]]] = {
    "rwkv": {OURS: _built, ALONE: _alone, STEPS: _steps},
    "hf": {OURS: _built, BATCH: _encoded(BATCH), FAST: _encoded(FAST)},
    "turns": {OURS: _masked, FLOOR: _rendered},
    "packing": {SEARCH: _searched, COPY: _copied},
    "writing": {name: _written(name) for name in OUTPUTS},
}
_GROUPS = dict.fromkeys((OURS, FLOOR, SEARCH, COPY, *OUTPUTS), "turnscript") | {
    STEPS: "rwkv",
    ALONE: "tokenizers",
    BATCH: "tokenizers",
    FAST: "tokenizers",
}
GROUPS = ("turnscript", "rwkv", "tokenizers")
