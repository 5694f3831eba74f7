"""Owns `turnscript data stats`: lengths and trained shares of a finished folder, on the screen or as a page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from turnscript.cli.data.options import as_json
from turnscript.cli.failures import OK
from turnscript.cli.output import STREAM, Files
from turnscript.cli.report import Screen, plural, shown, table
from turnscript.datasets.losskinds import loss_lines
from turnscript.datasets.page import shares_of, stats_page
from turnscript.datasets.runstats import stats_of
from turnscript.datasets.stats import Stats

_EPILOG = """\b
Examples:
  turnscript data stats run
  turnscript data stats run --json
  turnscript data stats run --html stats.html

\b
Exit code:
  0  shown
  1  the folder holds no finished build
  2  wrong usage
"""
_WIDTH = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


@click.command("stats", epilog=_EPILOG)
@click.argument("folder", metavar="RUN")
@click.option("--html", metavar="FILE", help="Write a page for the browser instead.")
@click.option("--json", "json_wanted", is_flag=True, help="For programs.")
def command(folder: str, html: str | None, json_wanted: bool) -> int:
    """Show how long samples are, how much of them is trained, and where they come from.

    RUN is the folder that `turnscript data build` wrote.
    """
    stats = stats_of(folder)
    with Files() as files:
        out = files.open(html or STREAM)
        if html:
            text = stats_page(folder, stats)
        else:
            text = as_json(stats.facts()) if json_wanted else "\n".join(page(stats)) + "\n"
        out.write(text.encode("utf-8", "backslashreplace"))
    if html:
        Screen().note(f"the page is in {html}")
    return OK


def page(stats: Stats, *, rows: bool = True) -> Iterator[str]:
    """Figures as lines. `rows`: also what became of rows."""
    yield (
        f"{plural(stats.samples, 'sample', 'samples')}, {stats.tokens:,} tokens, "
        f"{stats.trained:,} ({stats.share:.1%}) trained"
    )
    notes = (
        (stats.untrained, "sample has no trained token", "samples have no trained token"),
        (stats.straddling, "token straddles a border", "tokens straddle a border"),
        (stats.losses, "thing that the format could not say", "things that the format could not say"),
    )
    if stats.documents != stats.samples:
        yield f"{stats.documents:,} documents are packed in them"
    for count, one, many in notes:
        if count:
            yield f"{count:,} {one if count == 1 else many}"
    if rows:
        yield from map(shown, loss_lines(stats.loss_kinds))
    if not stats.samples:
        return
    yield ""
    yield from _bars("LENGTH", [(f"{one.least:,}-{one.most:,}", one.samples) for one in stats.buckets()])
    quantiles = ", ".join(f"{percent} % {stats.quantile(percent):,}" for percent in (50, 95, 99))
    yield f"shortest {stats.shortest:,}, {quantiles}, longest {stats.longest:,}, mean {stats.mean:,.1f}"
    yield ""
    yield from _bars("TRAINED", shares_of(stats))
    beyond = [(f"{one.context:,}", f"{one.samples:,}", f"{one.tokens:,}") for one in stats.beyond()]
    if beyond:
        yield f"\n{table(('LONGER THAN', 'SAMPLES', 'THEIR TOKENS'), beyond)}"
    if stats.roles:
        cells = [(name, f"{tokens:,}", f"{trained:,}") for name, (tokens, trained) in stats.roles.items()]
        yield f"\n{table(('ITEM', 'TOKENS', 'TRAINED'), cells)}"
        yield f"of the first {plural(stats.looked_at, 'example', 'examples')} of the inputs"
    for head, counts in (("FORM", stats.forms), ("REJECTED", stats.rejects)):
        if counts and rows:
            yield f"\n{table((head, 'ROWS'), [(shown(name), f'{count:,}') for name, count in counts.most_common()])}"


def _bars(head: str, entries: Sequence[tuple[str, int]]) -> Iterator[str]:
    most = max(count for _, count in entries)
    name_width = max(len(head), *(len(name) for name, _ in entries))
    count_width = max(len("SAMPLES"), *(len(f"{count:,}") for _, count in entries))
    yield f"{head:<{name_width}}  {'SAMPLES':>{count_width}}"
    for name, count in entries:
        yield f"{name:<{name_width}}  {count:>{count_width},}  {_bar(count, most)}".rstrip()


def _bar(count: int, most: int) -> str:
    """Of the width of its share in the most frequent, to an eighth of a column; what is there at all can be seen."""
    eighths = max(count * _WIDTH * 8 // most, 1) if count else 0
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
