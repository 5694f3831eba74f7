"""Owns `turnscript show`: the reference page of a format, made from its table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import msgspec

from turnscript.cli.failures import OK
from turnscript.cli.options import VARIANT_HELP, variant_of
from turnscript.cli.output import STREAM, Files, Sink
from turnscript.cli.prompt import FormatName, has_colours, legible, one_line, painted
from turnscript.cli.report import table
from turnscript.convert.format_reference import Cut, Escaped, FilesShown, OrderShown, OwnWords, Reference, reference
from turnscript.core.losses import Loss
from turnscript.core.presets import Preset
from turnscript.detection.template_format import get_format
from turnscript.engine.spans import Span

_EPILOG = """\b
Examples:
  turnscript show rwkv-universal
  turnscript show rwkv-goose --variant paren
  turnscript show ai00-v1 --json
  turnscript show chat_template.jinja
"""
_WIDEST = 48
_BEFORE = 8
_CONTEXT = 6
"""So many lines of a prompt are shown before it differs from the conversation."""

_EVERYWHERE = 3
"""So many kinds of texts are tried."""


@click.command(epilog=_EPILOG, short_help="Show how a format looks.")
@click.argument("name", type=FormatName(), metavar="FORMAT")
@click.option("--variant", metavar="NAME", help=VARIANT_HELP)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def show(name: str, variant: str | None, as_json: bool) -> int:
    """Show what a prompt format looks like, and what it cannot carry.

    The page is made from the table that also renders and parses the format; `turnscript formats` lists the names.
    FORMAT may be the place of a model's own chat template, too: the page then says what that takes and how it is read.
    On a terminal, the format's own literals are blue, and what the model writes is underlined.
    """
    page = reference(variant_of(get_format(name), variant))
    with Files() as files:
        out = files.open(STREAM)
        text = json.dumps(_record(page), ensure_ascii=False, indent=2) if as_json else "\n".join(_page(page, out))
        out.write(f"{text}\n".encode())
    return OK


def _record(page: Reference) -> dict[str, Any]:
    """The page as JSON data; spans become text."""
    fields: dict[str, Any] = msgspec.to_builtins(page)
    fields["conversation"] = page.text
    for name, cut in (("prompt", page.prompt), ("thinking", page.thinking)):
        fields[name] = cut and {"text": cut.text, "prefill": cut.prefill}
    return fields


def _page(page: Reference, out: Sink) -> Iterator[str]:
    """The lines of the page."""
    coloured = has_colours(out)

    def section(title: str, lines: Iterable[str]) -> Iterator[str]:
        yield from ("", click.style(title, bold=True) if coloured else title, "")
        yield from (f"  {line}" if line else "" for line in lines)

    named = f"{page.name} --variant {page.variant}" if page.variant else page.name
    yield click.style(f"{named}: {page.title}", bold=True) if coloured else f"{named}: {page.title}"
    if page.template is not None:
        yield from section("The model's own words", _own_words(page.template))
    yield from section("A conversation", _text(page.conversation, coloured))
    yield from section("The prompt for its first answer", _cut(page.prompt, page.text, coloured))
    if page.thinking is not None:
        yield from section("The same, where the model is to think first", _cut(page.thinking, page.text, coloured))
    yield from section("What ends an answer", _stops(page))
    if page.files is not None:
        yield from section("Files, and texts with a hole", _files(page.files))
    yield from section("Special tokens", [_quoted(token) for token in page.special_tokens] or ["none"])
    yield from section("What it cannot carry", _limits(page))
    yield from section("What the example lost", [_said(loss) for loss in page.losses] or ["nothing"])
    yield from section("How content is kept apart from tags", _escapes(page.escapes))
    yield from section("Good to know", page.notes)
    if page.presets:
        yield from section("Sampling presets", _presets(page.presets))
    if page.variants:
        yield from section("Variants", _variants(page))


def _own_words(own: OwnWords) -> Iterator[str]:
    """Return what a chat template takes and is told, and how well it is read."""
    reads = "a table that was learned from it" if own.learned else f"the table {own.read_as}"
    places = [what for what, there in own.takes.items() if there]
    switches = [f"{name} = {json.dumps(on)} or {json.dumps(off)}" for name, (on, off) in own.switches.items()]
    rows = [
        ("found in", one_line(own.told_by)),
        ("read by", reads if own.exact else f"{reads}, not exactly"),
        ("has a place for", ", ".join(places) or "texts alone"),
        ("has none for", ", ".join(what for what in own.takes if what not in places)),
        (
            "thinking",
            ", ".join(switches),
        ),
        ("effort", f"{own.effort} = {' or '.join(own.efforts)}" if own.effort else ""),
        ("budget", own.budget),
        ("date", "the day of the first prompt" if own.dated else ""),
        ("also reads", one_line(", ".join(own.variables))),
        ("does not know", ", ".join(own.missing) and f"{', '.join(own.missing)}: left empty, name the model's folder"),
    ]
    shown = [(head, said) for head, said in rows if said]
    width = max(len(head) for head, _ in shown)
    yield from (f"{head.ljust(width)}  {said}" for head, said in shown)
    if own.refused:
        yield from ("", f"It refuses the whole example, so a shorter one is shown: {one_line(own.refused)}")
    if not own.exact:
        yield from ("", f"{one_line(own.sentence)}")


def _text(spans: Sequence[Span], coloured: bool) -> list[str]:
    text = painted(spans) if coloured else legible("".join([span.text for span in spans]))
    return text.removesuffix("\n").split("\n")


def _cut(cut: Cut, whole: str, coloured: bool) -> Iterator[str]:
    """The end of a prompt, from shortly before it goes another way than the conversation."""
    start = _interesting(cut.text, whole)
    if start:
        yield "..."
    yield from _text(list(_from(cut.spans, start)), coloured)
    yield ""
    end = "a newline" if cut.text.endswith("\n") else "no newline"
    yield f"({end} at its end{f'; {_in_quotes(cut.prefill)} belongs to the answer' if cut.prefill else ''})"


def _interesting(text: str, whole: str) -> int:
    position = _shared(text, whole)
    for _ in range(_CONTEXT):
        position = text.rfind("\n", 0, max(position, 0))
    start = position + 1
    return start + len(text[start:]) - len(text[start:].lstrip("\n")) if start else 0


def _from(spans: Iterable[Span], start: int) -> Iterator[Span]:
    for span in spans:
        if len(span.text) > start:
            yield span._replace(text=span.text[start:])
        start = max(start - len(span.text), 0)


def _stops(page: Reference) -> Iterator[str]:
    if page.stops == page.stops_with_tools:
        yield from map(_quoted, page.stops)
        return
    yield f"without tools: {', '.join(map(_quoted, page.stops))}"
    yield f"with tools: {', '.join(map(_quoted, page.stops_with_tools))}"


def _files(files: FilesShown) -> Iterator[str]:
    """Return what stands between files, and the orders of a hole, each with `two` in it, between `one` and `three`."""
    if files.separator:
        yield from (*files.example.split("\n"), "")
    else:
        yield from ("A document is one file: nothing stands for the end of one and the beginning of the next.", "")
    rows = [
        (order.name, one_line(order.example), _use(order, files, first=not index))
        for index, order in enumerate(files.orders)
    ]
    yield from table(("ORDER", "WRITTEN", "FOR"), rows).split("\n")


def _use(order: OrderShown, files: FilesShown, *, first: bool) -> str:
    """Return what an order is for, and where it is the default."""
    documents = "documents (default)" if first else "documents"
    prompts = "prompts (default)" if order.name == files.prompt_order else "prompts"
    return f"{documents}, {prompts}" if order.prompts else documents


def _limits(page: Reference) -> list[str]:
    rows = [
        (limit.what, "; ".join(dict.fromkeys(f"{loss.kind}: {loss.detail}" for loss in limit.losses)))
        for limit in page.limits
    ]
    return table(("WHAT", "WHAT HAPPENS TO IT"), rows).split("\n") if rows else ["nothing that was tried was lost"]


def _variants(page: Reference) -> list[str]:
    """Return each variant with the first line of the examples that it writes otherwise."""
    rows = [
        (f"--variant {name}", " instead of ".join(map(_in_quotes, lines)) or "the example is the same")
        for name, lines in page.variants.items()
    ]
    width = max(len(name) for name, _ in rows)
    return [f"{name.ljust(width)}  {what}" for name, what in rows]


def _said(loss: Loss) -> str:
    return f"{loss.path}: {loss.kind}: {loss.detail}"


def _escapes(escapes: Sequence[Escaped]) -> list[str]:
    if not escapes:
        return ["It is not: what looks like a tag in a text is one."]
    rows = [(*_difference(one), _where(one)) for one in escapes]
    head = "A text that holds one of these is written with a backslash in it; reading takes it out again."
    return [head, "", *table(("IN A TEXT", "WRITTEN", "TEXTS OF"), rows).split("\n")]


def _presets(presets: Sequence[Preset]) -> list[str]:
    """The page shows what each preset sets, with the ranges of the document that gives it."""
    rows = []
    for preset in presets:
        given = msgspec.structs.asdict(preset).values()
        rows.append([f"{one:g}" if isinstance(one, float) else str(one) for one in given])
    names = [name.upper() for name in Preset.__struct_fields__]
    called = "A model of the gateway's configuration names one as `preset`, `serve` as --preset, a request as `preset`."
    return [*table(["PRESET", *names[1:]], rows).split("\n"), "", "Of a range, its middle is used.", called]


def _difference(one: Escaped) -> tuple[str, str]:
    """Both sides, of long ones the part that differs."""
    shared = _shared(one.literal, one.written)
    start = 0 if shared < _WIDEST - _BEFORE else shared - _BEFORE
    return _quoted(_shortened(one.literal, start)), _quoted(_shortened(one.written, start))


def _shared(first: str, second: str) -> int:
    """How many characters both begin with."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(first), len(second)))


def _shortened(text: str, start: int) -> str:
    before, after = "..." if start else "", "..." if len(text) > start + _WIDEST else ""
    return f"{before}{text[start : start + _WIDEST]}{after}"


def _where(one: Escaped) -> str:
    return "all" if len(one.kinds) == _EVERYWHERE else ", ".join(one.kinds)


def _quoted(text: str) -> str:
    """A text on one line, in quotes where it has white space that would not be seen."""
    return _in_quotes(text) if text != text.strip() or "\n" in text else one_line(text)


def _in_quotes(text: str) -> str:
    return f'"{one_line(text)}"'
