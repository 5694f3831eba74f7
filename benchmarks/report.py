"""What every benchmark does around its measurements: options, the head, failures, targets, the file of figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import machine
from benchmarks.harness import Load, PeerFailed, Seat, Worker, serve, table


@dataclass(frozen=True, slots=True)
class Target:
    """A promise about turnscript, and what was measured; None where a peer was missing."""

    what: str
    wanted: float
    measured: float | None
    at_most: bool = False

    @property
    def met(self) -> str:
        if self.measured is None:
            return "not measured"
        reached = self.measured <= self.wanted if self.at_most else self.measured >= self.wanted
        return "met" if reached else "missed"


@dataclass(slots=True)
class Report:
    """What the run found: the figures for `--json`, and the failures that make the exit status 1."""

    record: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, list[str]] = field(default_factory=dict)
    """What went wrong, each with the cases in which it did."""
    targets: list[Target] = field(default_factory=list)

    def fail(self, who: str, case: str, error: PeerFailed) -> None:
        """Note it; say it when it happens for the first time."""
        text = f"{who}: {error}"
        if text not in self.failures:
            print(f"\ncannot run: {text} ({case})", flush=True)
        self.failures.setdefault(text, []).append(case)

    def print_targets(self) -> None:
        rows = []
        for target in self.targets:
            sign = "<=" if target.at_most else ">="
            rows.append([target.what, f"{sign} {target.wanted:g}", figure(target.measured), target.met])
        print("\n## Targets for turnscript\n")
        print(table(["what", "target", "measured", ""], rows), flush=True)
        self.record["targets"] = [
            {"what": target.what, "wanted": target.wanted, "measured": target.measured, "at_most": target.at_most}
            for target in self.targets
        ]

    def finish(self, figures: Path | None) -> int:
        """Write what was asked for, repeat the failures, and give the exit status."""
        self.record["failures"] = self.failures
        if figures:
            figures.write_text(json.dumps(self.record, indent=1) + "\n")
        for text, cases in self.failures.items():
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            print(f"failed: {text} ({cases[0]}{more})", file=sys.stderr)
        return 1 if self.failures else 0


def begin(packages: Sequence[str], **more: Any) -> Report:
    """Print where and with what the figures are made."""
    versions = machine.versions(*packages)
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.describe(),
        "versions": versions,
        **more,
    }
    print(f"{record['date']}, {record['machine']}")
    print(", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)
    return Report(record)


def figure(value: float | None) -> str:
    """A ratio, with as many digits as mean something."""
    if value is None:
        return "-"
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def parser(module: str, about: str | None, groups: Iterable[str]) -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog=f"python -m {module}", description=about)
    options.add_argument("--quick", action="store_true", help="few rounds and short turns")
    options.add_argument("--rounds", type=int, metavar="N", help="rounds of turns (default 15, quick 5)")
    options.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to this file")
    options.add_argument("--worker", choices=list(groups), help=argparse.SUPPRESS)
    return options


def main(options: argparse.Namespace, load: Load, run: Callable[[argparse.Namespace], Report]) -> int:
    """The parent process, or with `--worker` one of its workers."""
    if options.worker:
        with suppress(KeyboardInterrupt):
            serve(options.worker, load)
        return 0
    return run(options).finish(options.json)


@contextmanager
def workers(groups: Iterable[str], module: str) -> Any:
    """A process for each group, all ended together."""
    with ExitStack() as stack:
        started = {group: Worker(group, module) for group in groups}
        for worker in started.values():
            stack.callback(worker.close)
        yield started


def seats(started: Mapping[str, Worker], case: Any, report: Report) -> list[Seat]:
    """A seat for every peer of every group that can load the case."""
    able: list[Seat] = []
    for group, worker in started.items():
        try:
            able += [Seat(name, worker) for name in worker.ask("load", case=case)["peers"]]
        except PeerFailed as error:
            report.fail(group, describe(case), error)
    return able


def describe(case: Any) -> str:
    """A case in words, for messages."""
    if isinstance(case, Mapping):
        return ", ".join(f"{key} {value}" for key, value in case.items())
    return " to ".join(case)


def checked(
    able: Sequence[Seat], case: Any, check: Callable[[str, bytes], str], report: Report
) -> tuple[list[Seat], dict[str, str]]:
    """Run every peer once. Those that cannot run, or fail the check, are reported and left out."""
    passed: list[Seat] = []
    verdicts: dict[str, str] = {}
    with TemporaryDirectory() as folder:
        path = Path(folder, "written")
        for seat in able:
            try:
                seat.worker.ask("write", peer=seat.name, path=str(path))
                verdicts[seat.name] = check(seat.name, path.read_bytes())
                passed.append(seat)
            except PeerFailed as error:
                report.fail(seat.name, describe(case), error)
    return passed, verdicts
