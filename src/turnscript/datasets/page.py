"""Owns pages: figures or a row's tokens as one HTML file that needs nothing else, in a light and a dark look.

Nothing is loaded and nothing runs: no script, no font, no picture. Whatever comes from a dataset is escaped.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from turnscript.datasets.preview import Preview, Run, Shown, State

if TYPE_CHECKING:
    from turnscript.datasets.stats import Stats

MEANINGS = {
    State.TRAINED: "the model learns to write it",
    State.TRAINED_CONTROL: "the format's own, and the model learns to write it",
    State.CONTEXT: "the model reads it",
    State.CONTROL: "the format's own, and the model reads it",
    State.STRADDLING: "partly one, partly the other",
}
"""What each state means, for legends."""

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1c2024; --faint: #62686f; --line: #d9dde1;
  --panel: #f5f7f8; --bar: #2f7fbf; --trained: #b7e4c0; --trained-control: #77cc8b; --context: transparent;
  --control: #cfdcf7; --straddling: #ffc27a; }
@media (prefers-color-scheme: dark) { :root { --ground: #15181b; --ink: #e6e8ea; --faint: #9aa1a8; --line: #343a40;
  --panel: #1e2226; --bar: #5aa9e6; --trained: #1d5a31; --trained-control: #2f8a4c; --control: #2b3f6b;
  --straddling: #8f5510; } }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 60rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; }
p { margin: .3rem 0; }
.faint { color: var(--faint); }
.problem { border-left: 4px solid #d2453b; padding: .2rem .8rem; background: var(--panel); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem 1.2rem .15rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } .number { text-align: right; }
td.wide { width: 22rem; padding-right: 0; }
.bar { display: block; height: .9rem; min-width: 1px; background: var(--bar); border-radius: 2px; }
.scroll { overflow-x: auto; }
.legend { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; padding: 0; margin: .8rem 0; list-style: none; }
.legend span { padding: 0 .35rem; border-radius: 3px; }
.tokens { font: 14px/1.75 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere;
  background: var(--panel); border: 1px solid var(--line); border-radius: 6px; padding: 1rem; }
.tokens b { font-weight: normal; border-radius: 2px; box-shadow: inset 1px 0 0 var(--ground); }
.tokens i { color: var(--faint); font-style: normal; }
.trained { background: var(--trained); } .trained-control { background: var(--trained-control); }
.context { background: var(--context); } .control { background: var(--control); }
.straddling { background: var(--straddling); }
"""


def stats_page(title: str, stats: Stats) -> str:
    """Return figures as a page."""
    facts = stats.facts()
    parts = [
        f"<h1>{_text(title)}</h1>",
        f"<p>{_total(stats)}</p>",
        _facts_table(stats),
        "<h2>Length of samples, in tokens</h2>",
        f'<p class="faint">{_lengths(stats)}</p>',
        _bars(
            ("tokens", "samples"),
            [(f"{bucket.least:,} to {bucket.most:,}", bucket.samples) for bucket in stats.buckets()],
        ),
        "<h2>Share of trained tokens in a sample</h2>",
        _bars(("trained", "samples"), shares_of(stats)),
    ]
    beyond = list(stats.beyond())
    if beyond:
        rows = [(f"{one.context:,}", f"{one.samples:,}", f"{one.tokens:,}") for one in beyond]
        parts += ["<h2>Longer than a context</h2>", _table(("context", "samples", "their tokens"), rows)]
    if stats.roles:
        rows = [(role, f"{tokens:,}", f"{trained:,}") for role, (tokens, trained) in sorted(stats.roles.items())]
        what = f"Tokens of each kind of item, in the first {stats.looked_at} examples of the inputs"
        parts += [f"<h2>{what}</h2>", _table(("item", "tokens", "trained"), rows)]
    for heading, head, counts in (("Forms", "form", facts["forms"]), ("Rejected rows", "code", facts["rejects"])):
        if counts:
            parts += [f"<h2>{heading}</h2>", _bars((head, "rows"), list(counts.items()))]
    return _document(title, parts)


def preview_page(preview: Preview) -> str:
    """Return the tokens of a row as a page. Each tells its id, its weight and whose it is when it is pointed at."""
    title = f"{preview.source}, row {preview.number}"
    how = f"read as {preview.form}; {preview.format}; {preview.tokenizer}; mode {preview.mode}"
    parts = [
        f"<h1>{_text(title)}</h1>",
        f'<p class="faint">{_text(how)}</p>',
        _legend(),
    ]
    if preview.problem is not None:
        parts.append(_problem(preview.problem.code, preview.problem.message, preview.problem.pointer))
    for number, shown in enumerate(preview.examples, 1):
        if len(preview.examples) > 1:
            parts.append(f"<h2>Example {number} of {len(preview.examples)} {_text(shown.label)}</h2>")
        parts += _example(shown)
    return _document(title, parts)


def _total(stats: Stats) -> str:
    trained = f"{stats.trained:,} ({stats.share:.1%})"
    packed = f" with {stats.documents:,} documents" if stats.documents not in (0, stats.samples) else ""
    return f"{stats.samples:,} samples{packed}, {stats.tokens:,} tokens, of which {trained} are trained."


def _lengths(stats: Stats) -> str:
    middle, most = stats.quantile(50), stats.quantile(95)
    ends = f"shortest {stats.shortest:,}, longest {stats.longest:,}"
    return f"{ends}, median {middle:,}, mean {stats.mean:,.1f}; 95 % have at most {most:,}"


def shares_of(stats: Stats) -> list[tuple[str, int]]:
    """Return how many samples have `30 to 40 %` of their tokens trained, from the least share to the largest."""
    there = [tenth for tenth, count in enumerate(stats.shares) if count] or [0]
    tenths = range(there[0], there[-1] + 1)
    return [(f"{tenth * 10} to {tenth * 10 + 10} %", stats.shares[tenth]) for tenth in tenths]


def _example(shown: Shown) -> list[str]:
    parts = []
    if shown.problem is not None:
        parts.append(_problem(shown.problem.code, shown.problem.message, shown.problem.pointer))
    if shown.tokens:
        share = shown.trained / len(shown.tokens)
        counts = ", ".join(f"{count} {state}" for state, count in shown.counts.items() if count)
        parts.append(f"<p>{len(shown.tokens)} tokens, {shown.trained} ({share:.1%}) of them trained: {counts}.</p>")
        parts.append(f'<div class="tokens">{"".join(map(_run, shown.runs))}</div>')
    return parts


def _run(run: Run) -> str:
    """Return tokens one by one; those that share a character are shown as one."""
    pieces, held, label = [], b"", ""
    for token in run.tokens:
        label += f"{', ' if label else ''}id {token.id}, weight {token.weight}"
        held += token.text
        try:
            text = held.decode()
        except UnicodeDecodeError as error:
            if error.reason == "unexpected end of data" and token is not run.tokens[-1]:
                continue
            text = held.decode("utf-8", "backslashreplace")
        name = f"{label}; {run.state}; {run.name}".removesuffix("; ")
        pieces.append(f'<b class="{_class(run.state)}" title="{escape(name)}">{_seen(text)}</b>')
        held, label = b"", ""
    return "".join(pieces)


def _class(state: State) -> str:
    return state.replace(" ", "-")


def _seen(text: str) -> str:
    """Return a token's text; what cannot be seen is there as a sign, and a newline still breaks the line."""
    return _UNSEEN.sub(_sign, _escaped(text)) or "<i>∅</i>"


def _sign(found: re.Match[str]) -> str:
    if found[0] == "\n":
        return "<i>↵</i>\n"
    return "<i>⇥</i>\t" if found[0] == "\t" else f"<i>{ascii(found[0])[1:-1]}</i>"


def _legend() -> str:
    entries = [
        f'<li><span class="{_class(state)}">{state}</span> {meaning}</li>' for state, meaning in MEANINGS.items()
    ]
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _problem(code: str, message: str, pointer: str) -> str:
    place = f" at <code>{_text(pointer)}</code>" if pointer else ""
    return f'<p class="problem"><strong>{_text(code)}</strong>{place}: {_text(message)}</p>'


def _facts_table(stats: Stats) -> str:
    rows = [("samples without a trained token", stats.untrained), ("tokens that straddle", stats.straddling)]
    rows += [("things that the format could not say", stats.losses)]
    kept = [(name, f"{count:,}") for name, count in rows if count]
    lost = [(kind, f"{count:,}") for kind, count in Counter(stats.loss_kinds).most_common()]
    tables = [(("worth a look", "how many"), kept), (("what the format could not say", "how often"), lost)]
    return "".join(_table(heads, cells) for heads, cells in tables if cells)


def _bars(heads: tuple[str, str], entries: Sequence[tuple[str, int]]) -> str:
    most = max([count for _, count in entries], default=0) or 1
    rows = "".join(
        f'<tr><td>{_text(name)}</td><td class="number">{count:,}</td><td class="wide">'
        + (f'<span class="bar" style="width:{count / most:.1%}"></span>' if count else "")
        + "</td></tr>"
        for name, count in entries
    )
    head = f'<tr><th>{_text(heads[0])}</th><th class="number">{_text(heads[1])}</th><th></th></tr>'
    return f'<div class="scroll"><table>{head}{rows}</table></div>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th{_side(column)}>{_text(name)}</th>" for column, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{_side(column)}>{_text(cell)}</td>" for column, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _side(column: int) -> str:
    return ' class="number"' if column else ""


def _text(text: str) -> str:
    """Return foreign text as HTML. What cannot be seen, such as a mark of direction, is an escape."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], _escaped(text))


def _escaped(text: str) -> str:
    """Return foreign text as HTML, as it is. Half of a surrogate pair, which no file can hold, is an escape."""
    return escape(text.encode("utf-8", "backslashreplace").decode())


def _document(title: str, parts: Iterable[str]) -> str:
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
