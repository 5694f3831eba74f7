"""Owns the command line of `make real`: what is asked of which model, the progress, the table, and the kept answers."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from tools.demo import Failed
from tools.real.rounds import MODES, Outcome, Round
from tools.real.schemas import CASES, SchemaRound, Shaped, schema_table
from tools.real.systems import APIS, LLAMA, Systems
from tools.real.tasks import FILE, KINDS, chosen, read_tasks
from turnscript.core.errors import TurnscriptError

NO_MODEL = """real: name a model in GGUF, one that calls tools:

  make real MODEL=file.gguf
  make real MODEL=file.gguf ARGS='--limit 12 --json answers.jsonl'

`python -m tools.real --help` lists what else can be said; docs/real-models.md tells what is asked and what counts."""
INTERRUPTED = 130
_CLEAR = "\r\x1b[K"


class Progress:
    """One line on a terminal that tells what is being asked, and how long the rest will take; elsewhere nothing."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._began = time.monotonic()

    def tell(self, number: int, what: str) -> None:
        """Tell that so many are done, and what comes next."""
        if sys.stderr.isatty():
            gone = time.monotonic() - self._began
            left = f", about {gone / number * (self._total - number) / 60:.0f} min left" if number else ""
            self._put(f"{_CLEAR}{number + 1} of {self._total}: {what}{left}")

    def clear(self) -> None:
        """Take the line away."""
        if sys.stderr.isatty():
            self._put(_CLEAR)

    def _put(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def table(outcomes: Sequence[Outcome], systems: Sequence[str], modes: Sequence[str]) -> str:
    """Return what came of it as text: a row for each system and mode, right of asked for each kind of task."""
    rows = [("SYSTEM", "MODE", *(kind.upper() for kind in KINDS), "ALL", "SECONDS", "CUT")]
    for system in systems:
        for mode in modes:
            mine = [one for one in outcomes if (one.system, one.mode) == (system, mode)]
            counts = [_right([one for one in mine if one.kind == kind]) for kind in KINDS]
            seconds, cut = sum(one.seconds for one in mine), sum(one.cut for one in mine)
            name = system if system == LLAMA else f"turnscript {system}"
            rows.append((name, mode, *counts, _right(mine), f"{seconds:.0f}", str(cut)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _right(outcomes: Sequence[Outcome]) -> str:
    return f"{sum(one.right for one in outcomes)} of {len(outcomes)}" if outcomes else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask tool tasks of a model, through each API of a gateway and of llama.cpp itself; print how many were right."""
    given = _options(arguments)
    if given.model is None:
        print(NO_MODEL, file=sys.stderr)
        return 2
    if given.schemas:
        cases = [case for case in CASES if not given.tasks or case.name in given.tasks][: given.limit]
        if not cases:
            print(f"real: no schema is called {' or '.join(given.tasks)}", file=sys.stderr)
            return 2
        return _guarded(SchemaRound(cases, given.only or [LLAMA, "chat"], given.max_tokens), given)
    try:
        tasks = read_tasks(given.file)
    except (OSError, ValueError) as error:
        print(f"real: {error}", file=sys.stderr)
        return 2
    names = chosen(tasks.tasks, given.tasks, given.limit)
    if not names:
        print(f"real: no task is called or of the kind {' or '.join(given.tasks)}", file=sys.stderr)
        return 2
    return _guarded(Round(tasks, names, given.only or list(APIS), given.modes or list(MODES), given.max_tokens), given)


def _guarded(asked: Round | SchemaRound, given: Namespace) -> int:
    """Ask, and say what went wrong. Return the exit code."""
    try:
        return _run(asked, given)
    except (Failed, OSError, TurnscriptError) as error:
        print(f"real: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def _run(asked: Round | SchemaRound, given: Namespace) -> int:
    jobs, outcomes, code = asked.jobs(), list[Outcome | Shaped](), 0
    began = time.monotonic()
    progress = Progress(len(jobs))
    with ExitStack() as stack:
        kept = stack.enter_context(given.json.open("wb")) if given.json is not None else None
        systems = stack.enter_context(
            Systems(given.model, format_=given.format, context=given.context, threads=given.threads)
        )
        what = f"{len(asked.cases)} schemas" if isinstance(asked, SchemaRound) else f"{len(asked.chosen)} tasks"
        print(f"{given.model}: {what}, {len(jobs)} rounds, {asked.max_tokens} tokens an answer")
        for line in systems.served:
            print(f"  {line}")
        sys.stdout.flush()
        try:
            for outcome in asked.run(systems, progress.tell):
                outcomes.append(outcome)
                if kept is not None:
                    kept.write(msgspec.json.encode(outcome) + b"\n")
                    kept.flush()
        except KeyboardInterrupt:
            code = INTERRUPTED
        progress.clear()
        if code:
            print(f"interrupted after {len(outcomes)} of {len(jobs)} rounds")
        print(_table(asked, outcomes))
        print(f"in {(time.monotonic() - began) / 60:.1f} min", flush=True)
    return code


def _table(asked: Round | SchemaRound, outcomes: Sequence[Outcome | Shaped]) -> str:
    if isinstance(asked, SchemaRound):
        return schema_table([one for one in outcomes if isinstance(one, Shaped)], asked.systems)
    return table([one for one in outcomes if isinstance(one, Outcome)], asked.systems, asked.modes)


def _options(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m tools.real", description=main.__doc__)
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL.gguf", help="the model")
    parser.add_argument("--format", metavar="NAME", help="the format of the gateway's prompts; by default it finds it")
    parser.add_argument(
        "--file", type=Path, default=FILE, metavar="FILE", help="other tasks than those that come along"
    )
    for option, what in (
        ("--tasks", f"tasks of these names or kinds: {', '.join(KINDS)}"),
        ("--only", f"these systems: {', '.join(APIS)}"),
        ("--modes", f"these modes: {', '.join(MODES)}"),
    ):
        parser.add_argument(option, type=_words, default=[], metavar="NAME,...", help=f"only {what}")
    parser.add_argument("--schemas", action="store_true", help="ask for JSON of twenty schemas instead of calls")
    parser.add_argument("--limit", type=int, metavar="N", help="at most so many tasks, of all kinds in turn")
    parser.add_argument("--max-tokens", type=int, default=160, metavar="N", help="the most tokens of an answer (160)")
    parser.add_argument("--context", type=int, default=8192, metavar="N", help="tokens of a conversation (8192)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of llama.cpp (one for each core)")
    parser.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="keep all answers with prompts, texts and verdicts, as a line of JSON for each round",
    )
    given = parser.parse_args(arguments)
    for option, known in (("only", tuple(APIS)), ("modes", MODES)):
        if strange := [name for name in getattr(given, option) if name not in known]:
            parser.error(f"--{option}: {strange[0]!r} is none of {', '.join(known)}")
    if given.limit is not None and given.limit < 1:
        parser.error("--limit: at least 1")
    return given


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
