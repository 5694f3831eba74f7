"""Owns what is told of a comparison: the table of templates, and the causes of what differs, most frequent first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from tools.parity.comparison import Result

START = "<!-- parity: start, written by `make parity` -->"
END = "<!-- parity: end -->"


def table(results: Sequence[Result]) -> str:
    """Return a line for each template, and one for all of them."""
    head = (
        "| template | read as | equal | refused by it | arranged | turns read back | not shown |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    return head + "".join(_line(result) for result in results) + _all(results)


def reasons(results: Sequence[Result]) -> str:
    """Return a line for each template that is not whole: how much differs, and the most frequent cause of it."""
    lines = []
    for one in results:
        told = [
            f"{counts.total()} {what}, most of them {_top(counts)}"
            for what, counts in (("prompts", one.causes), ("turns", one.turns.causes))
            if counts
        ]
        if not one.accepted:
            told.append(f"transformers renders nothing with it; {one.reading}")
        elif one.turns.unshown and not one.turns.shown:
            told.append(f"no turn is shown: {_top(one.turns.unshown)}")
        if told:
            lines.append(f"- {one.name}: {'; '.join(told)}\n")
    head = "Templates that are not whole, each with the most frequent cause:\n\n"
    return head + "".join(lines) if lines else ""


def causes(results: Sequence[Result], most: int) -> str:
    """Return what prompts and turns differ by, with how often, in which templates, and a case to try."""
    written = _clusters((one.name, one.causes, one.cases) for one in results)
    read = _clusters((one.name, one.turns.causes, one.turns.cases) for one in results)
    parts = [("prompts that differ", written), ("turns that are read otherwise", read)]
    return "\n".join(f"{title}:\n{_listed(found, most)}" for title, found in parts)


def unshown(results: Sequence[Result]) -> str:
    """Return why turns could not be judged, with how many."""
    reasons: Counter[str] = Counter()
    for one in results:
        reasons.update(one.turns.unshown)
    return "".join(f"  {count:6}  {why}\n" for why, count in reasons.most_common())


def fixtures(found: Counter[tuple[str, str]], cases: dict[tuple[str, str], str]) -> str:
    """Return the verdicts about turns of others, by model."""
    lines = [
        f"  {count:4}  {model}: {verdict} (such as {cases[model, verdict]})\n"
        for (model, verdict), count in sorted(found.items())
    ]
    totals: Counter[str] = Counter()
    for (_, verdict), count in found.items():
        totals[verdict] += count
    return "".join(lines) + "".join(f"  {count:4}  in all: {verdict}\n" for verdict, count in totals.most_common())


def put(page: str, text: str) -> str:
    """Return a page with the text between its markers."""
    before, start, rest = page.partition(START)
    _, end, behind = rest.partition(END)
    if not start or not end:
        raise ValueError(f"the page needs a line {START!r} and after it a line {END!r}")
    return f"{before}{start}\n{text}{end}{behind}"


def _top(counts: Counter[str]) -> str:
    (why, count), *_ = counts.most_common(1)
    return f"`{why.replace('`', chr(39))}` ({count})"


def _line(one: Result) -> str:
    turns = one.turns
    return (
        f"| {one.name} | {one.reading} | {one.equal} of {one.accepted} | {one.refused} | {one.arranged} "
        f"| {turns.exact} of {turns.shown} | {turns.unshown.total()} |\n"
    )


def _all(results: Sequence[Result]) -> str:
    equal, accepted = sum(one.equal for one in results), sum(one.accepted for one in results)
    exact, shown = sum(one.turns.exact for one in results), sum(one.turns.shown for one in results)
    whole = sum(one.equal == one.accepted > 0 for one in results)
    back = sum(one.turns.exact == one.turns.shown > 0 for one in results)
    share = 100 * equal / accepted if accepted else 0
    return (
        f"| **all {len(results)}** (whole: {whole} in prompts, {back} in turns) | | **{equal} of {accepted}** "
        f"({share:.2f} %) | {sum(one.refused for one in results)} | {sum(one.arranged for one in results)} "
        f"| **{exact} of {shown}** | {sum(one.turns.unshown.total() for one in results)} |\n"
    )


_Cluster = tuple[str, int, list[str], str]


def _clusters(told: Iterable[tuple[str, Counter[str], dict[str, str]]]) -> list[_Cluster]:
    counts: Counter[str] = Counter()
    names: defaultdict[str, list[str]] = defaultdict(list)
    first: dict[str, str] = {}
    for name, causes, cases in told:
        for why, count in causes.items():
            counts[why] += count
            names[why].append(name)
            first.setdefault(why, f"{name}, {cases[why]}")
    return [(why, count, names[why], first[why]) for why, count in counts.most_common()]


def _listed(found: Sequence[_Cluster], most: int) -> str:
    lines = [
        f"  {count:6}  {why}\n          in {len(names)}: {', '.join(names[:6])}{', ...' if len(names) > 6 else ''}\n"
        f"          such as {case}\n"
        for why, count, names, case in found[:most]
    ]
    rest = found[most:]
    if rest:
        lines.append(f"  {sum(count for _, count, _, _ in rest):6}  in {len(rest)} more causes\n")
    return "".join(lines) or "       0\n"
