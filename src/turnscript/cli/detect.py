"""Owns `turnscript detect`: which prompt format models take, as a table or as JSON, and why."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

import click
import msgspec
from click.shell_completion import CompletionItem

from turnscript.cli.failures import BAD_INPUT, OK, Failed, reading
from turnscript.cli.output import STREAM, Files
from turnscript.cli.prompt import missing_tokens
from turnscript.cli.report import Screen, fault, shown, table
from turnscript.convert.registry import load_formats
from turnscript.core.clues import DEFAULT
from turnscript.core.errors import TurnscriptError
from turnscript.detection import Detected, rules
from turnscript.detection import detect as detect_model
from turnscript.detection.learned_table import NAME as LEARNED
from turnscript.detection.modelfolder import CONFIG, TOKENIZER
from turnscript.detection.nearness import nearness
from turnscript.detection.template_format import get_format, is_place
from turnscript.formats.format import Format

_EPILOG = """\b
Examples:
  turnscript detect rwkv7-universal-1.5b-20251001.gguf
  turnscript detect rwkv-universal-7b rwkv-universal-3b.pth --json
  turnscript detect chat_template.jinja --json

\b
Exit code:
  0  every model has a chat template that can be used, or a name that tells its format
  1  the format of a model is not known or a guess, or its file is bad
  2  wrong usage
"""
_FILES = (".gguf", ".json", ".pth", ".safetensors")
"""How names end that are of files."""
_DIFFERENCES = 3
"""So many are listed for people."""
_RECURRENT = "the model has a state, which cannot go back"
_STATELESS = "its turns are kept as the template writes them: the model has no state that cannot go back"
Found = tuple[str, Detected, Format | None]
"""A model, what was found of it, and the format of its chat template, if that was tried."""
_THINKING = {True: "yes", False: "no", None: "unknown"}


class Rule(click.ParamType[str]):
    """The name of a detection rule. A file of formats may bring one, so whether it is one shows later."""

    name = "rule"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(rule) for rule in rules() if rule.startswith(incomplete)]


@click.command(epilog=_EPILOG, short_help="Tell which format a model takes.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--rule",
    type=Rule(),
    default=DEFAULT,
    show_default=True,
    metavar="RULE",
    help="Whose clues to go by: the default, or exactly what another program does.",
)
@click.option(
    "--formats",
    "files",
    multiple=True,
    type=click.Path(readable=False),
    metavar="FILE",
    help="A .toml file with formats of your own, whose clues of the rule count too. Can be given several times.",
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def detect(models: tuple[str, ...], rule: str, files: tuple[str, ...], as_json: bool) -> int:
    """Tell which prompt format a model takes, and why.

    MODEL is a GGUF file, a folder with tokenizer_config.json or config.json, a chat template, or just a name.
    The chat template decides, whatever the file is called: it is tried which table reads back what that writes.
    Without one the name tells it, or else the architecture, and a guess is called a guess.
    """
    own = _own(files, rule)
    found: list[Found] = []
    troubles: list[TurnscriptError | Failed] = []
    for model in models:
        try:
            with reading(model):
                detected = detect_model(model, rule=rule, own=own)
                own_words = get_format(model) if detected.asked is not None and is_place(model) else None
        except (TurnscriptError, Failed) as error:
            troubles.append(error)
            continue
        found.append((model, detected, own_words))
        if detected.guess or (detected.format is None and not detected.learned):
            troubles.append(_unknown(model, detected))
    _write(_json(found) if as_json else _table(found))
    for trouble in troubles:
        Screen().fault(fault(trouble))
    return BAD_INPUT if troubles else OK


def _own(files: Iterable[str], rule: str) -> list[Format]:
    """The formats of files. A file none of whose clues belongs to the rule would do nothing, which nobody asks for."""
    loaded = {file: load_formats(Path(file)) for file in files}
    own = [format_ for formats in loaded.values() for format_ in formats]
    if rule not in rules(own):
        known = ", ".join(map(repr, rules(own)))
        raise click.BadParameter(f"{rule!r} is not one of {known}", param_hint="'--rule'")
    for file, formats in loaded.items():
        if not any(clue.rule == rule for format_ in formats for clue in format_.clues):
            message = f"{file} has no clue of the rule {rule!r}, so nothing in it would count"
            remedy = f'leave it out, or give a format in it a [[format.clue]] with rule = "{rule}"'
            raise click.BadParameter(f"{message}; {remedy}", param_hint="'--formats'")
    return own


def _unknown(model: str, detected: Detected) -> Failed:
    if detected.guess:
        remedy = "name its chat template: its folder, its .gguf file or its chat_template.jinja"
        return Failed(f"{detected.format} is a guess: {detected.reason}", place=model, remedy=remedy)
    nothing, remedy = "", "choose one that `turnscript formats` lists"
    path = Path(model)
    if not os.path.lexists(path) and (path.is_absolute() or model.startswith((".", "~")) or path.suffix in _FILES):
        nothing, remedy = "there is no such file, and ", "check the path, or choose one that `turnscript formats` lists"
    elif model and path.is_dir() and not any((path / name).exists() for name in (TOKENIZER, CONFIG)):
        nothing = f"this folder has no {TOKENIZER} or {CONFIG}, and "
    return Failed(f"cannot tell the format: {nothing}{detected.reason}", place=model, remedy=remedy)


def _json(found: Iterable[Found]) -> str:
    return json.dumps([_record(*one) for one in found], ensure_ascii=False, indent=2)


def _record(model: str, detected: Detected, own_words: Format | None) -> dict[str, object]:
    near = None if own_words is None else msgspec.to_builtins(nearness(own_words))
    missing = None if own_words is None or own_words.template is None else own_words.template.unknown_tokens
    return {
        "model": _written(model),
        **msgspec.structs.asdict(detected),
        "nearness": near,
        "missing_tokens": missing,
    }


def _table(found: Iterable[Found]) -> str:
    """Return a line for each model, and below it what was found of a chat template that was tried."""
    told = [one for one in found if one[1].format is not None or one[1].learned]
    rows = [
        (shown(_written(model)), _called(one), _THINKING[one.thinking], shown(one.reason)) for model, one, _ in told
    ]
    parts = [table(("MODEL", "FORMAT", "THINKING", "WHY"), rows)] if rows else []
    parts += [_of_template(_written(model), one, own) for model, one, own in told if own is not None]
    return "\n\n".join(parts)


def _called(one: Detected) -> str:
    """Return the format as other commands take it, and whether that is a guess."""
    if one.format is None:
        return LEARNED
    named = f"{one.format} --variant {one.variant}" if one.variant else one.format
    return f"{named} (a guess)" if one.guess else named


def _of_template(model: str, one: Detected, own_words: Format) -> str:
    """Return what there is to say of a chat template, a line each."""
    near = nearness(own_words)
    lines = [f"{shown(model)}:", f"  {near}"]
    lines += [f"    {shown(difference)}" for difference in near.differences[:_DIFFERENCES]]
    if len(near.differences) > _DIFFERENCES:
        lines.append(f"    and {len(near.differences) - _DIFFERENCES} more; --json lists all")
    lines += [f"  {shown(sentence)}" for sentence in missing_tokens(own_words)]
    if one.variables:
        lines.append(f"  it can be told: {shown(', '.join(one.variables))}")
    lines.append(f"  its turns are kept as they were generated: {_RECURRENT}" if one.recurrent else f"  {_STATELESS}")
    return "\n".join(lines)


def _written(model: str) -> str:
    """A name that UTF-8 can hold: one from the command line may be other bytes."""
    return model.encode("utf-8", "replace").decode()


def _write(text: str) -> None:
    if text:
        with Files() as files:
            files.open(STREAM).write(f"{text}\n".encode())
