"""Owns the command line of the comparison, `python -m tools.parity`; `make parity` makes an environment for it."""

import argparse
import logging
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tools.parity import fixtures, places, report
from tools.parity.comparison import Result, compared


def main(arguments: list[str] | None = None) -> int:
    """Compare, print, and write the page where that is asked for."""
    wishes = _parser().parse_args(arguments)
    logging.getLogger("transformers").setLevel(logging.ERROR)  # it misses torch, which is not needed here
    try:
        found = places.places(wishes.templates or places.fetched())
    except FileNotFoundError as error:
        print(f"parity: {error}", file=sys.stderr)
        return 2
    chosen = [place for place in found if wishes.only in place.name]
    results = _compared(chosen, wishes.workers)
    table = report.table(results)
    reasons = report.reasons(results)
    print(f"{table}\n{reasons}\n{report.causes(results, wishes.causes)}\nturns not shown:\n{report.unshown(results)}")
    if fixtures.known(chosen) and not wishes.only:
        print(f"turns of canitoolcall:\n{report.fixtures(*fixtures.judged({place.name: place for place in found}))}")
    if wishes.write is not None:
        page = wishes.write.read_text(encoding="utf-8")
        wishes.write.write_text(report.put(page, f"{table}\n{reasons}"), encoding="utf-8")
    return 0


def _compared(chosen: list[places.Place], workers: int) -> list[Result]:
    if workers == 1 or len(chosen) == 1:
        return [compared(place) for place in chosen]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(compared, chosen))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.parity", description=__doc__)
    parser.add_argument("--templates", type=Path, help="a folder of *.jinja; default: those of llama.cpp, fetched once")
    parser.add_argument("--only", default="", help="templates whose name holds this, and no fixtures")
    parser.add_argument("--causes", type=int, default=15, help="how many causes are told")
    parser.add_argument("--workers", type=int, default=2, help="how many processes")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table between the page's markers")
    return parser


if __name__ == "__main__":
    sys.exit(main())
