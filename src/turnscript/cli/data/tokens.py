"""Owns `turnscript data tokens`: which tokens a format's tags need, and a tokenizer that has them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from turnscript.cli.data.build import write
from turnscript.cli.data.options import TOKENS, as_json, option, template_option, words_option
from turnscript.cli.failures import OK, Failed
from turnscript.cli.options import SectionedCommand
from turnscript.cli.prompt import FormatName
from turnscript.cli.report import Screen, plural, shown, table
from turnscript.datasets.tokenizers.serving import FORMS
from turnscript.datasets.vocabulary import Added, add_tags
from turnscript.detection.template_format import get_format

_EPILOG = """\b
Examples:
  turnscript data tokens --to openchatml --tokenizer rwkv-world
  turnscript data tokens --to openchatml --tokenizer rwkv-world --write tags.json
  turnscript data tokens --to openchatml --tokenizer rwkv-world --write vocabulary.txt

\b
Exit code:
  0  told, or written
  1  bad input, such as a format without tags
  2  wrong usage
"""


@click.command("tokens", cls=SectionedCommand, epilog=_EPILOG)
@option(TOKENS, "--to", type=FormatName(), metavar="FORMAT", help="Prompt format.")
@template_option
@option(TOKENS, "--tokenizer", required=True, metavar="SPEC", help="rwkv-world, rwkv:FILE, hf:FILE, or bytes.")
@words_option(TOKENS, "--tags", help="Only these tags, the most important first.")
@option(TOKENS, "--resize", is_flag=True, help="Take ids behind the vocabulary when none is free.")
@option("What is written", "--write", "file", metavar="FILE", help="Write the tokenizer, or its control tokens, here.")
@option(
    "What is written",
    "--as",
    "form",
    type=click.Choice(FORMS),
    help="For servers: RWKV's vocabulary file (so is FILE.txt), ai00_server's JSON, GGUF tokens (so is FILE.gguf).",
)
@option("What is written", "--json", "json_wanted", is_flag=True, help="For programs.")
def command(
    to: str | None,
    template: str | None,
    tokenizer: str,
    tags: tuple[str, ...] | None,
    resize: bool,
    **written: Any,
) -> int:
    """Tell which tokens the tags of a format need, which ids they get, and what must be trained then.

    With tags as tokens of their own, no text can forge one, and a turn always ends with the same id.
    """
    file, json_wanted, form = written["file"], written["json_wanted"], written["form"]
    if form and not file:
        raise click.UsageError("--as says how the file of --write is written, and there is none")
    target = Path(file) if file else None
    if target is not None and target.is_dir():
        raise Failed("cannot write this: it is a folder", place=file, remedy="give a file")
    if not to and not template:
        raise click.UsageError("missing --to or --template; say it")
    format_ = get_format(template or to or "")
    found = add_tags(format_, tokenizer, target, tags=tags or (), resize=resize, form=form)
    if json_wanted:
        write(as_json(msgspec.to_builtins(found)))
    else:
        write("\n".join(_lines(found)) + "\n")
        if file and found.spec:
            Screen().note(f"written to {shown(found.file)}; use it as --tokenizer {shown(found.spec)}")
        elif file:
            more = "; to train, write the same tags to a .json file too" if found.added else ""
            Screen().note(f"written to {shown(found.file)}, for servers{more}")
    return OK


def _lines(found: Added) -> Iterator[str]:
    cells = [(str(number), shown(tag), "new") for tag, number in found.added.items()]
    cells += [(str(number), shown(tag), "there already") for tag, number in found.kept.items()]
    cells += [("", shown(tag), "no free id: stays text") for tag in found.left]
    yield table(("ID", "TAG", "WHAT"), cells)
    yield ""
    yield f"embedding: {plural(found.size, 'row', 'rows')}" + (
        f", {found.rows} of them new" if found.rows else ", as before"
    )
    if found.train:
        yield f"to be trained: rows {', '.join(map(str, found.train))}"
    for note in found.notes:
        yield f"note: {shown(note)}"
