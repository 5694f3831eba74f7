"""Owns judging a model: every case as text to a real llama.cpp, greedily, and what comes back as the product reads it.

Nothing of the tokenizer or the weights is touched here: a prompt goes in as one text, and the answer is one text.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import turnscript
from tiny import cases
from tiny.cases import Case
from tiny.recipe import COUNT, FORMAT
from turnscript import Assistant, Response, Text, ToolCall
from turnscript.gateway.embedded import Embedded

START = "<!-- results: start, written by tiny.evaluate -->"
END = "<!-- results: end -->"
LONGEST = 400
"""Tokens of an answer; the longest that is wanted has half of it."""
_HEAD = ("| suite | cases | | exact | right tools |", "|---|---|---:|---:|---:|")


@dataclass(frozen=True)
class Outcome:
    """What a model wrote for a case."""

    case: Case
    calls: tuple[tuple[str, Any], ...]
    answer: str
    raw: str

    @property
    def exact(self) -> bool:
        """Calls: names and arguments, in order. Answers: every character, and no call."""
        case = self.case
        if case.calls:
            return _canonical(case.calls) == _canonical(self.calls)
        return not self.calls and case.answer == self.answer

    @property
    def tools(self) -> bool:
        """Whether the names are right, be the arguments as they are."""
        return [name for name, _ in self.case.calls] == [name for name, _ in self.calls]


Ask = Callable[[str, Sequence[str]], str]
"""From a prompt and stop strings to what the model writes."""


def asker(url: str) -> Ask:
    """Asks llama.cpp's server at an address."""

    def ask(prompt: str, stops: Sequence[str]) -> str:
        body = {"prompt": prompt, "n_predict": LONGEST, "temperature": 0, "stop": list(stops), "cache_prompt": False}
        request = urllib.request.Request(
            f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            text: str = json.load(answer)["content"]
        return text

    return ask


def judge(case: Case, ask: Ask) -> Outcome:
    """One case, asked."""
    prompt = turnscript.get_format(FORMAT).prompt(case.request, thinking=case.thinks)
    raw = ask(prompt.text, [*prompt.stops, *prompt.client_stops])
    parser = prompt.parser()
    response = turnscript.fold([*parser.feed(raw), *parser.close()])
    return Outcome(case, _calls(response), _answer(response), raw)


def _calls(response: Response) -> tuple[tuple[str, Any], ...]:
    return tuple((item.name, _value(item.arguments)) for item in response.items if isinstance(item, ToolCall))


def _answer(response: Response) -> str:
    said = [part for item in response.items if isinstance(item, Assistant) for part in item.content]
    return "".join(part.text for part in said if isinstance(part, Text))


def _value(text: str) -> Any:
    """Arguments as a value; a text where they are no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _canonical(value: Any) -> str:
    """Equal for equal JSON: the order of members does not count."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


# What is told.


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """The results as a table in Markdown."""
    lines = list(_HEAD)
    for suite in dict.fromkeys(one.case.suite for one in outcomes):
        chosen = [one for one in outcomes if one.case.suite == suite]
        lines.append(_line(f"**{suite}**", "**all**", chosen))
        kinds = dict.fromkeys(one.case.kind for one in chosen)
        lines += [_line("", kind, [one for one in chosen if one.case.kind == kind]) for kind in kinds]
        for name, some in (
            ("in Chinese", [one for one in chosen if one.case.chinese]),
            ("with thinking", [one for one in chosen if one.case.thinks]),
        ):
            if some:
                lines.append(_line("", f"*of all: {name}*", some))
    return lines


def _line(suite: str, kind: str, outcomes: Sequence[Outcome]) -> str:
    right = sum(one.exact for one in outcomes)
    calling = [one for one in outcomes if one.case.calls]
    named = f"{sum(one.tools for one in calling)} of {len(calling)}" if calling else ""
    return f"| {suite} | {kind} | {right} of {len(outcomes)} | {right / len(outcomes):.1%} | {named} |"


def wrong(outcomes: Sequence[Outcome], most: int) -> list[str]:
    """The first wrong ones of each suite, as plain text."""
    lines = []
    for suite in dict.fromkeys(one.case.suite for one in outcomes):
        missed = [one for one in outcomes if one.case.suite == suite and not one.exact]
        shown = missed[:: max(1, len(missed) // most)][:most] if most else []
        lines += ["", f"### Wrong in `{suite}`: {len(missed)}", ""]
        if not shown:
            continue
        if len(shown) < len(missed):
            lines += [f"{len(shown)} of them, evenly taken:", ""]
        lines.append("```text")
        for one in shown:
            lines += [
                f"{one.case.kind}: {_short(one.case.text)}",
                f"  expected  {_told(one.case.calls, one.case.answer)}",
            ]
            lines.append(f"  got       {_told(one.calls, one.answer)}")
        lines.append("```")
    return lines


def _told(calls: Sequence[tuple[str, Any]], answer: str) -> str:
    return _short("; ".join(f"{name} {_canonical(arguments)}" for name, arguments in calls) or repr(answer)[1:-1])


def _short(text: str) -> str:
    line = " ".join(text.replace("```", "'''").split())
    return line if len(line) <= 200 else line[:199] + "…"


def section(model: Path, outcomes: Sequence[Outcome], most: int) -> str:
    """All that is told of a model, to stand between the two marks."""
    data = model.read_bytes()
    right = sum(one.exact for one in outcomes)
    of = f"The file: {len(data) / 1e6:.2f} MB, SHA-256 `{hashlib.sha256(data).hexdigest()}`."
    return "\n".join([of, f"Exact in all: {right} of {len(outcomes)}.", "", *table(outcomes), *wrong(outcomes, most)])


def put(document: Path, text: str) -> None:
    """Write results into a document, between its two marks."""
    whole = document.read_text(encoding="utf-8")
    before, found, rest = whole.partition(START)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"{document} has no place for results: a line {START!r} and a line {END!r} make one")
    document.write_text(f"{before}{START}\n{text}\n{END}{after}", encoding="utf-8", newline="\n")


def keep(path: Path, outcomes: Iterable[Outcome]) -> None:
    """Write all outcomes as JSON Lines."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for one in outcomes:
            case = one.case
            told = {"suite": case.suite, "kind": case.kind, "exact": one.exact, "user": case.text}
            told |= {"calls": case.calls, "answer": case.answer, "got": {"calls": one.calls, "answer": one.answer}}
            told |= {"raw": one.raw, "tools": case.row.get("tools", [])}
            file.write(json.dumps(told, ensure_ascii=False) + "\n")


def main() -> None:
    """Judge a model by all suites."""
    parser = argparse.ArgumentParser(prog="python -m tiny.evaluate", description=main.__doc__)
    parser.add_argument("model", type=Path, help="a GGUF file")
    parser.add_argument("--write", type=Path, help="a document with a place for the results")
    parser.add_argument("--keep", type=Path, help="all outcomes as JSON Lines")
    parser.add_argument("--wrong", type=int, default=12, help="how many wrong ones of a suite are shown")
    parser.add_argument("--rows", type=int, default=COUNT, help="training rows whose requests are not asked")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    begun = time.monotonic()
    chosen = cases.every(cases.seen(given.rows))
    with Embedded(given.model, parallel=1, threads=given.threads) as server:
        outcomes = [judge(case, asker(server.url)) for case in chosen]
    if given.keep:
        keep(given.keep, outcomes)
    if given.write:
        put(given.write, section(given.model, outcomes, given.wrong))
    print("\n".join(table(outcomes)))
    print(f"{sum(one.exact for one in outcomes)} of {len(outcomes)} exact, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
