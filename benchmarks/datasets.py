"""Training data: rows of chats to ids and a loss mask, beside RWKV-LM's converter and tokenizers alone.

Whole builds, what the mask costs, packing and the writing of files, memory, workers and the start of programs. RWKV_LM
names a checkout of RWKV-LM whose own make_data.py is run too. Prints tables and asserts no timing. Exits 1 if a peer
cannot run, or if `verify` finds fault with a build. README.md says how to read the figures.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import report, rows
from benchmarks.datasets_peers import (
    ALONE,
    BATCH,
    COPY,
    FAST,
    FLOOR,
    GROUPS,
    OURS,
    OUTPUTS,
    SCRIPT,
    SEARCH,
    STEPS,
    WINDOW,
    Case,
    Script,
    load,
)
from benchmarks.harness import ROOT, PeerFailed, Seat, Worker, duration, exponent, faster, table, take_turns
from benchmarks.report import Report, Target, figure

MODULE = "benchmarks.datasets"
PACKAGES = ("turnscript", "numpy", "pyrwkv-tokenizer", "tokenizers", "pyarrow", "rwkv")
WORLD = "rwkv-world"
FORMATS = ("rwkv-universal", "rwkv-goose")
CHATML = "batuta-chatml"
TRACES, UNIQUE = "agent traces", "no text twice"
TURNS = (1, 10, 100, 1000)
MB = 1e6
EVERY = 10
"""One row in so many is verified."""
_SEED = 1
_ONE_RUN = 1
"""Nanoseconds of a turn: a build is long enough to be a turn by itself."""
_SAMPLED = 0.05
"""Seconds between two looks at the memory of a job."""
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    rows: int
    traces: int
    turns: int
    documents: int
    file_mb: int
    checkout: Path | None


def timed(
    case: Case, workers: Mapping[str, Worker], plan: Plan, found: Report
) -> tuple[dict[str, Seat], dict[str, Facts]]:
    """Every peer of a case after its turns, and what each says of what it made. Ours makes the texts of others."""
    able: list[Seat] = []
    facts: dict[str, Facts] = {}

    def check(name: str, written: bytes) -> str:
        facts[name] = json.loads(written)
        documents = facts.get(OURS, {}).get("documents")
        if facts[name].get("documents", documents) != documents:
            raise PeerFailed("its documents are others than turnscript's")
        return "made"

    for group in GROUPS:
        able += report.checked(report.seats({group: workers[group]}, case, found), case, check, found)[0]
    if able:
        take_turns(able, plan.rounds, _ONE_RUN)
    seats = {seat.name: seat for seat in able}
    peers = {name: {"ns": seat.best, "median_ns": seat.usual, **facts.get(name, {})} for name, seat in seats.items()}
    found.record["cases"].append({**case, "peers": peers})
    return seats, facts


def _times(seats: Mapping[str, Seat], seat: str, than: str) -> float | None:
    return faster(seats[seat], seats[than]) if seat in seats and than in seats else None


def _rate(amount: float, seat: Seat | None) -> float | None:
    """So much in a second of CPU, in the best round."""
    return amount / seat.best * 1e9 if seat else None


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


# Whole builds.


def rwkv(workers: Mapping[str, Worker], plan: Plan, found: Report, folder: Path) -> list[Target]:
    """Rows to binidx and a mask by the RWKV vocabulary, and RWKV-LM's way with the same documents."""
    cells: list[list[str]] = []
    targets: list[Target] = []
    for kind, make in rows.KINDS.items():
        path = folder / f"{kind}.jsonl"
        size = rows.write(path, make(plan.rows, _SEED))
        for format_ in FORMATS:
            here = folder / f"{kind}-{format_}"
            here.mkdir()
            texts = here / "texts.jsonl"
            case: Case = {"way": "rwkv", "path": str(path), "folder": str(here), "format": format_, "tokenizer": WORLD}
            case |= {"texts": str(texts), "every": EVERY}
            seats, facts = timed(case, workers, plan, found)
            ours = seats.get(OURS)
            script = _scripted(case, plan, found, texts, here, facts) if ours else None
            if ours and script:
                seats[SCRIPT] = script
                found.record["cases"].append({**case, "peers": {SCRIPT: {"ns": script.best, "start_ns": script.start}}})
            rates = _rate(plan.rows, ours), _rate(size / MB, ours), _rate(facts.get(OURS, {}).get("tokens", 0), ours)
            # The script has turns of its own: it takes ten times as long as all others together.
            by_script = script.best / ours.best if ours and script else None
            by_steps = _times(seats, OURS, STEPS)
            peers = [_whole(_rate(plan.rows, seats.get(name))) for name in (ALONE, STEPS, SCRIPT)]
            name = f"{kind}, {format_}"
            cells.append([name, _whole(rates[0]), figure(rates[1]), figure(rates[2] and rates[2] / MB), *peers])
            cells[-1] += [figure(by_steps), figure(by_script)]
            targets.append(Target(f"{name}, rows a second", 8000, rates[0]))
            targets.append(Target(f"{name}, MB a second", 16, rates[1]))
            targets.append(Target(f"{name}, x {SCRIPT if script else STEPS}", 8, by_script or by_steps))
    print(f"\n## RWKV: {plan.rows:,} rows to binidx and a mask, in a second of CPU (best round)\n")
    peers = [f"{name}, rows" for name in (ALONE, STEPS, SCRIPT)]
    print(table(["rows", "rows", "MB", "Mtok", *peers, f"x {STEPS}", f"x {SCRIPT}"], cells), flush=True)
    return targets


def _scripted(
    case: Case, plan: Plan, found: Report, texts: Path, here: Path, facts: Mapping[str, Facts]
) -> Script | None:
    """`make_data.py` after two turns, if there is a checkout."""
    if plan.checkout is None:
        return None
    try:
        script = Script(plan.checkout, texts, here)
        take_turns([script], 2, _ONE_RUN)
        if script.documents() != facts[OURS]["documents"]:
            raise PeerFailed("its documents are others than turnscript's")
    except PeerFailed as error:
        found.fail(SCRIPT, case["format"], error)
        return None
    return script


def hf(workers: Mapping[str, Worker], plan: Plan, found: Report, folder: Path) -> list[Target]:
    """Rows to ids and a mask by a byte-level BPE, and the library alone with the finished texts."""
    tokenizer = _trained(folder / "tokenizer.json")
    cells: list[list[str]] = []
    targets: list[Target] = []
    for name, make, count in ((TRACES, rows.traces, plan.traces), (UNIQUE, rows.unique, plan.rows)):
        here = folder / name.replace(" ", "-")
        here.mkdir()
        path = here / "rows.jsonl"
        size = rows.write(path, make(count, _SEED))
        case: Case = {"way": "hf", "path": str(path), "folder": str(here), "format": CHATML, "tokenizer": tokenizer}
        case |= {"texts": str(here / "texts.jsonl"), "every": EVERY}
        seats, facts = timed(case, workers, plan, found)
        text = facts.get(OURS, {}).get("bytes", 0)
        ratios = [_times(seats, OURS, peer) for peer in (BATCH, FAST)]
        speeds = [figure(_rate(text / MB, seats.get(peer))) for peer in (OURS, BATCH, FAST)]
        tokens = [_whole(facts.get(peer, {}).get("tokens")) for peer in (OURS, BATCH)]
        each = [figure(_rate(count, seats.get(OURS))), figure(size / count / 1000)]
        cells.append([name, *each, *speeds, *tokens, *map(figure, ratios)])
        if name == TRACES:
            targets.append(Target(f"{name}, x {BATCH}", 1.3, ratios[0]))
        else:
            targets.append(Target(f"{name}, MB of text a second", 2.5, _rate(text / MB, seats.get(OURS))))
    print("\n## BPE: rows to ids and a mask, in a second of CPU (best round); MB are those of the finished text\n")
    headings = ["rows", "rows a second", "KB a row", "MB", f"MB, {BATCH}", f"MB, {FAST}"]
    print(table([*headings, "tokens", f"tokens, {BATCH}", f"x {BATCH}", f"x {FAST}"], cells), flush=True)
    return targets


def _trained(path: Path) -> str:
    """A byte-level BPE of 32,000 tokens, learned from the texts that rows are made of; the tags are special."""
    library: Any = import_module("tokenizers")
    ts: Any = import_module("turnscript")
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=32_000,
        show_progress=False,
        special_tokens=ts.get_format(CHATML).special_tokens,
        initial_alphabet=library.pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(rows.corpus(), trainer)
    made.save(str(path))
    return f"hf:{path}"


# Parts.


def turns(workers: Mapping[str, Worker], plan: Plan, found: Report, folder: Path) -> list[Target]:
    """Ids with a mask, and without, for the same number of turns in shorter and longer rows."""
    cells: list[list[str]] = []
    targets: list[Target] = []
    for format_, tokenizer in ((FORMATS[1], WORLD), (CHATML, f"hf:{folder / 'tokenizer.json'}")):
        costs: list[float] = []
        of_render: dict[int, float] = {}
        for each in TURNS:
            path = folder / f"turns-{each}.jsonl"
            rows.write(path, rows.turns(each, max(1, plan.turns // each), _SEED))
            case: Case = {"way": "turns", "path": str(path), "format": format_, "tokenizer": tokenizer, "turns": each}
            case["folder"] = str(folder)
            seats, facts = timed(case, workers, plan, found)
            if OURS not in seats or FLOOR not in seats:
                return targets
            count = max(1, plan.turns // each) * each
            costs.append(seats[OURS].best / count)
            of_render[each] = facts[OURS]["bytes"] / facts[FLOOR]["bytes"]
            cells.append([f"{format_}, {each:,} turns", duration(costs[-1]), duration(seats[FLOOR].best / count)])
            cells[-1] += [_whole(facts[OURS]["bytes"] / count), figure(1 / faster(seats[OURS], seats[FLOOR]))]
            cells[-1].append(figure(of_render[each]))
        slope = exponent(TURNS[1:], [cost * each for cost, each in zip(costs, TURNS, strict=True)][1:])
        targets.append(Target(f"{format_}, time of a row by its turns, exponent", 1.05, slope, at_most=True))
        targets.append(Target(f"{format_}, 100 turns, bytes of one render", 1.2, of_render[100], at_most=True))
    print(f"\n## Mask: CPU of a turn (a question and its answer), {plan.turns:,} turns in all\n")
    headings = ["rows of", "with mask", FLOOR, "bytes", f"of {FLOOR}", "bytes of one render"]
    print(table(headings, cells), flush=True)
    return targets


def packing(workers: Mapping[str, Worker], plan: Plan, found: Report) -> list[Target]:
    """Documents with the lengths of conversations to windows."""
    seats, facts = timed({"way": "packing", "documents": plan.documents}, workers, plan, found)
    if SEARCH not in seats or COPY not in seats:
        return []
    made = facts[SEARCH]
    fill = 100 * made["tokens"] / made["windows"] / WINDOW
    costs = {name: seats[name].best / plan.documents / 1000 for name in (SEARCH, COPY)}
    print(f"\n## Packing: {plan.documents:,} documents to windows of {WINDOW:,}\n")
    speed = made["tokens"] / seats[COPY].best * 1e3
    cells = [[f"{value:.2f} us" for value in costs.values()] + [f"{speed:.0f}", f"{fill:.2f} %"]]
    headings = ["a document, the search alone", "with the copying", "Mtok a second", "full"]
    print(table(headings, cells), flush=True)
    return [
        Target("packing, us of a document", 2, costs[SEARCH], at_most=True),
        Target("packing, % full", 99.5, fill),
    ]


def writing(workers: Mapping[str, Worker], plan: Plan, found: Report, folder: Path) -> list[Target]:
    """Samples in memory to files."""
    datasets: Any = import_module("turnscript.datasets")
    source = folder / "source"
    path = folder / "messages.jsonl"
    datasets.build(datasets.Plan(inputs=(str(path),), format=FORMATS[1], tokenizer=WORLD), source)
    seats, facts = timed({"way": "writing", "source": str(source), "folder": str(folder)}, workers, plan, found)
    cells: list[list[str]] = []
    targets: list[Target] = []
    for name in OUTPUTS:
        if name not in seats:
            continue
        sizes, tokens = facts[name]["sizes"], facts[name]["tokens"]
        named = sum(size for file, size in sizes.items() if "sources" in file)
        total = sum(sizes.values())
        each = (total - named) / tokens
        speeds = [_rate(total / MB, seats[name]), _rate(tokens / MB, seats[name])]
        cells.append([name, *map(figure, speeds), f"{each:.2f}", f"{named / tokens:.3f}"])
        limit = {"binidx": 3.1, "parquet": 1.5}.get(name)
        if limit:
            targets.append(Target(f"{name}, bytes of a token", limit, each, at_most=True))
    print("\n## Writing: in a second of CPU (best round), and what a token takes on the disk\n")
    print(table(["output", "MB", "Mtok", "bytes of a token", "and of its sources"], cells), flush=True)
    return targets


# Programs, from their start to their end.

_IMPORT = ("-c", "import turnscript.datasets")
_PREVIEW = ("-m", "turnscript", "data", "preview", "--to", FORMATS[1], "--tokenizer", WORLD)


def starts(plan: Plan, found: Report, folder: Path) -> list[Target]:
    """How long it takes until there is something to see, in CPU of a process that finds its modules compiled."""
    path = folder / "first.jsonl"
    rows.write(path, rows.messages(10, _SEED))
    programs = {"python": ("-c", ""), "import": _IMPORT, "preview of a row": (*_PREVIEW, str(path))}
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled"), "PYTHONDONTWRITEBYTECODE": ""}
    best: dict[str, float] = {}
    for _ in range(2 * plan.rounds):
        for name, program in programs.items():
            process = subprocess.Popen([sys.executable, *program], cwd=ROOT, env=settings, stdout=subprocess.DEVNULL)
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode:
                raise PeerFailed(f"{' '.join(program)} ended with status {process.returncode}")
            best[name] = min(best.get(name, math.inf), used.ru_utime + used.ru_stime)
    best["import"] -= best["python"]
    found.record["starts"] = best
    print("\n## Starting: seconds of CPU until there is something to see (best round)\n")
    print(table(["python alone", "import turnscript.datasets", "data preview"], [[f"{best[one]:.3f}" for one in best]]))
    return [
        Target("import, s of CPU", 0.1, best["import"], at_most=True),
        Target("preview of a row, s of CPU", 0.3, best["preview of a row"], at_most=True),
    ]


# Jobs in processes of their own.


@dataclass(frozen=True, slots=True)
class Job:
    """What one build took: seconds in all and for the shards alone, CPU, and the most memory of caller and worker."""

    wall: float
    shards: float
    cpu: float
    caller: int
    worker: int


def job(inputs: list[Path], out: Path, workers: int, share: float = 1.0) -> Job:
    """Build with so many workers, and look at their memory all the while."""
    psutil: Any = import_module("psutil")
    shutil.rmtree(out, ignore_errors=True)
    plan = {"inputs": [str(path) for path in inputs], "format": FORMATS[1], "tokenizer": WORLD}
    given = json.dumps({"plan": plan, "out": str(out), "workers": workers, "share": share})
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.datasets_job", given], cwd=ROOT, stderr=subprocess.PIPE
    )
    seen = psutil.Process(process.pid)
    most: dict[int, int] = {}
    while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        for one in (seen, *seen.children()):
            try:
                most[one.pid] = max(most.get(one.pid, 0), one.memory_info().rss)
            except psutil.Error:
                continue  # it has just ended
        time.sleep(_SAMPLED)
    _, status, used = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    process.stderr.close()
    if process.returncode and share == 1:
        raise PeerFailed(f"the build ended with status {process.returncode}: {said[-300:]}")
    finished = out / "run.json"
    shards = json.loads(finished.read_bytes())["seconds"]["shards"] if finished.exists() else wall
    caller = most.pop(process.pid)
    return Job(wall, shards, used.ru_utime + used.ru_stime, caller, max(most.values(), default=0))


def at_once(inputs: list[Path], folder: Path) -> Job:
    """A build with one worker for each input, all at the same time: what the machine gives those that share nothing."""
    with ThreadPoolExecutor(len(inputs)) as pool:
        some = list(pool.map(lambda path: job([path], folder / f"job-{path.stem}", 1), inputs))
    slowest = (max(one.wall for one in some), max(one.shards for one in some))
    memory = (max(one.caller for one in some), max(one.worker for one in some))
    return Job(*slowest, sum(one.cpu for one in some), *memory)


def halves(path: Path) -> list[Path]:
    """The rows of a file in two files of about the same size."""
    lines = path.read_bytes().splitlines(keepends=True)
    found = [path.with_name(f"{path.stem}-{number}.jsonl") for number in range(2)]
    for number, half in enumerate(found):
        half.write_bytes(b"".join(lines[number::2]))
    return found


ONE, TWO, APART = "1 worker", "2 workers", "2 builds of a half each, at once"


def jobs(plan: Plan, found: Report, folder: Path, large: float | None) -> list[Target]:
    """One worker, two, and two builds that share nothing; and with `large` 10 GB up to that share."""
    path = folder / "large.jsonl"
    count = plan.file_mb * 1_000_000 // rows.MEAN
    size = rows.write(path, rows.messages(count, _SEED))
    cells = []
    ran: dict[str, list[Job]] = {ONE: [], TWO: [], APART: []}
    parts, before = halves(path), os.getloadavg()[0]
    for _ in range(2):
        ran[ONE].append(job([path], folder / "job", 1))
        ran[TWO].append(job([path], folder / "job", 2))
        ran[APART].append(at_once(parts, folder))
    shards = {name: min(one.shards for one in some) for name, some in ran.items()}
    for name, some in ran.items():
        fastest = min(some, key=lambda one: one.wall)
        cells.append([*_job_cells(f"{size / MB:.0f} MB, {name}", size, fastest), figure(shards[ONE] / shards[name])])
    most = max(one.worker for some in ran.values() for one in some)
    targets = [
        Target("memory of a worker, MB", 400, most / MB, at_most=True),
        Target("two workers, x one (shards)", 1.8, shards[ONE] / shards[TWO]),
        Target("two workers, x two builds at once (shards)", 0.9, shards[APART] / shards[TWO]),
    ]
    if large is not None:
        many = [folder / "many" / f"{number:03}.jsonl" for number in range(-(-10_000_000_000 // size))]
        many[0].parent.mkdir()
        for link in many:
            os.link(path, link)
        one = job(many, folder / "job", 2, large)
        done = int(large * size * len(many))
        cells.append([*_job_cells(f"{large:.0%} of {size * len(many) / 1e9:.1f} GB, {TWO}", done, one), "-"])
        targets.append(Target("10 GB, memory of a worker, MB", 400, one.worker / MB, at_most=True))
    after = os.getloadavg()[0]
    found.record["jobs"] = {name: [vars_of(one) for one in some] for name, some in ran.items()}
    found.record["load"] = [before, after]
    print(f"\n## Workers: builds in processes of their own; load {before:.1f} before and {after:.1f} after\n")
    headings = [
        "input",
        "wall",
        "of it shards",
        "CPU",
        "MB a second of CPU",
        "most memory of a worker",
        "of the caller",
        "x one worker (shards)",
    ]
    print(table(headings, cells), flush=True)
    return targets


def vars_of(one: Job) -> dict[str, float]:
    """A job as plain values."""
    return {name: getattr(one, name) for name in Job.__slots__}


def _job_cells(name: str, size: int, one: Job) -> list[str]:
    times = [f"{seconds:.1f} s" for seconds in (one.wall, one.shards, one.cpu)]
    return [name, *times, figure(size / MB / one.cpu), *(f"{value / MB:.0f} MB" for value in (one.worker, one.caller))]


def run(options: argparse.Namespace) -> Report:
    rounds = options.rounds or (3 if options.quick else 5)
    given = os.environ.get("RWKV_LM")
    sizes = (2000, 150, 2000, 20_000, 25) if options.quick else (5000, 400, 4000, 100_000, 100)
    plan = Plan(rounds, *sizes, Path(given).resolve() if given else None)
    os.environ["RAYON_NUM_THREADS"] = "1"  # of the tokenizers in all workers
    found = report.begin(PACKAGES, rounds=rounds, cases=[])
    with TemporaryDirectory(dir=options.folder) as name, report.workers(GROUPS, MODULE) as workers:
        folder = Path(name)
        found.targets = rwkv(workers, plan, found, folder)
        found.targets += hf(workers, plan, found, folder)
        found.targets += turns(workers, plan, found, folder)
        found.targets += packing(workers, plan, found)
        found.targets += writing(workers, plan, found, folder)
        found.targets += starts(plan, found, folder)
        found.targets += jobs(plan, found, folder, options.large)
    found.print_targets()
    return found


def parser() -> argparse.ArgumentParser:
    options = report.parser(MODULE, __doc__, GROUPS)
    options.add_argument("--folder", type=Path, help="where files go meanwhile; --large needs 20 GB")
    options.add_argument("--large", type=float, nargs="?", const=1.0, metavar="SHARE", help="also 10 GB, or this part")
    return options


if __name__ == "__main__":
    sys.exit(report.main(parser().parse_args(), load, run))
