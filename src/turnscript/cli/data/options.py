"""Owns the options that the commands of `data` share, and the plan that they make, with a plan file below them.

Whatever was not said on the command line comes from the plan file, and what that does not say from the plan's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

from turnscript.cli.options import VARIANT_HELP, Option
from turnscript.cli.prompt import FormatName
from turnscript.core.errors import InvalidInput
from turnscript.datasets.hosted_tools import HOSTED
from turnscript.datasets.plan import (
    DEDUPS,
    ESCAPES,
    EXPANSIONS,
    MEDIA,
    MODES,
    ON_BAD,
    OVERFLOWS,
    WEIGHTS,
    Plan,
    plan_of,
    read_plan,
)
from turnscript.datasets.train import WORDS

_Command = TypeVar("_Command", bound=Callable[..., Any])

TOKENS, ROWS, LENGTH, FILES, RUN = "What rows become", "What is read", "How long samples are", "What is written", "How"
"""The headings of the help."""

_PLAN_FIELDS = {
    "to": "format",
    "outputs": "outputs",
    "map": "map",
}
"""The options that are called otherwise in a plan."""

OPTIONS = {"format": "--to", "inputs": "PATH", "outputs": "--format", "form": "--from"}
"""What the fields of a plan are called on the command line, where it is not their own name."""


_SAID = {**OPTIONS, "format": "--to or --template"}
"""What is missing, in words."""


class FormName(click.ParamType[str]):
    """The name of a form. Whether it is known is checked later."""

    name = "form"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from turnscript.datasets.form_registry import forms  # noqa: PLC0415  (only a shell asks)

        return [CompletionItem(name) for name in forms() if name.startswith(incomplete)]


class Words(click.ParamType[tuple[str, ...]]):
    """Names with commas between them."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip() for word in str(value).split(","))
        if not all(words):
            self.fail(f"{value!r} has an empty name in it", param, ctx)
        return words


def option(section: str, *names: str, **rest: Any) -> Callable[[_Command], _Command]:
    """An option under a heading of the help."""
    return click.option(*names, cls=Option, section=section, **rest)


def words_option(section: str, *names: str, **rest: Any) -> Callable[[_Command], _Command]:
    """An option that takes names with commas between them, and may be said several times. None if it is not said."""
    return option(section, *names, type=Words(), multiple=True, callback=_joined, metavar="LIST", **rest)


def _joined(_ctx: click.Context, _option: click.Parameter, said: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    return tuple(chain.from_iterable(said)) or None


def all_of(*options: Callable[[_Command], _Command]) -> Callable[[_Command], _Command]:
    """Several options as one decorator, in the order in which they stand."""

    def decorate(command: _Command) -> _Command:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


def _choice(section: str, name: str, words: tuple[str, ...], what: str) -> Callable[[_Command], _Command]:
    return option(section, name, type=click.Choice(words), help=f"{what} Default: {words[0]}.")


def _flag(section: str, name: str, field: str, what: str) -> Callable[[_Command], _Command]:
    """Nothing said is no word against a plan file."""
    return option(section, name, field, is_flag=True, default=None, help=what)


reading_options = all_of(
    option(ROWS, "--from", "form", type=FormName(), metavar="FORM", help="The form of the rows, if it is not told."),
    option(ROWS, "--map", metavar="FILE", help="A map file (TOML) for a form that turnscript does not know."),
)
"""How files are read."""

template_option = option(
    TOKENS,
    "--template",
    metavar="PLACE",
    help="The model's own chat template, which writes the rows: a .jinja file, tokenizer_config.json, folder or .gguf.",
)

encoding_options = all_of(
    option(TOKENS, "--to", type=FormatName(), metavar="FORMAT", help="Prompt format; `turnscript formats` lists them."),
    template_option,
    option(TOKENS, "--date", metavar="DATE", help="The date that a template may write. Default: today's."),
    option(TOKENS, "--variant", metavar="NAME", help=VARIANT_HELP),
    option(
        TOKENS,
        "--tokenizer",
        metavar="SPEC",
        help="rwkv-world, rwkv:FILE (a vocabulary), hf:FILE (a tokenizer.json), or bytes.",
    ),
    words_option(
        TOKENS,
        "--train",
        help=f"What is trained, with commas: {', '.join(WORDS)}; `no-` before one takes it away. Default: assistant.",
    ),
    _choice(TOKENS, "--expand", EXPANSIONS, "A sample of each conversation, or of each turn that is trained (turns)."),
    _choice(TOKENS, "--mode", MODES, "Tags as ids of their own (ids), or the whole as text (text)."),
    _choice(TOKENS, "--weights", WEIGHTS, "Weights in the mask: 0 and 1, or fractions too (scaled)."),
    _choice(TOKENS, "--escape", ESCAPES, "Texts that hold a tag: break it (auto), refuse the row, or nothing."),
    _choice(TOKENS, "--media", MEDIA, "Pictures, sounds and files that cannot be shown: reject the row, or drop them."),
    _choice(
        TOKENS, "--hosted", HOSTED, "What a provider's own tools did: reject the row, or make text or calls of it."
    ),
    _flag(TOKENS, "--normalize-json", "normalize_json", "Spell the JSON of calls and results in one way."),
    _flag(
        TOKENS,
        "--bare-calls",
        "bare_calls",
        "Write no empty answer before a call at once, though its prompt opens one.",
    ),
    option(
        TOKENS,
        "--order",
        metavar="ORDER",
        help="How a text with a hole is written; `turnscript show FORMAT` lists the orders. Default: as prompts are.",
    ),
    _flag(TOKENS, "--strict", "strict", "Set rows aside of which the format, or jsonl, would lose something."),
    _flag(TOKENS, "--declared-tools", "declared", "Set rows aside that call a tool which they do not declare."),
)
"""How a row becomes tokens."""

length_options = all_of(
    option(LENGTH, "--max-tokens", type=click.IntRange(2), metavar="N", help="The most tokens of a sample."),
    _choice(LENGTH, "--overflow", OVERFLOWS, "What happens to a row that is longer."),
    option(
        LENGTH,
        "--pack",
        metavar="KIND:N",
        help="Fill windows of N tokens: bfd:N keeps documents whole, stream:N cuts them. Default: none.",
    ),
)
"""How long samples may be."""

merging_options = all_of(
    _choice(ROWS, "--dedup", DEDUPS, "Leave out rows whose conversation was there before (exact)."),
    _choice(ROWS, "--on-bad", ON_BAD, "A row that cannot be used: set it aside, or stop."),
    option(
        FILES,
        "--shuffle",
        "--seed",
        type=click.IntRange(0),
        metavar="SEED",
        help="Shuffle the samples. Default: the order of the inputs.",
    ),
    option(FILES, "--repeat", type=click.IntRange(1), metavar="K", help="Every sample so many times. Default: 1."),
)
"""Which rows are kept, and in which order they are written."""

plan_option = option(RUN, "--plan", "plan_file", metavar="FILE", help="A plan (TOML or JSON); options go before it.")


def plan_from(inputs: tuple[str, ...], plan_file: str | None, options: Mapping[str, Any]) -> Plan:
    """The plan of a command line. Raises UsageError, in its own words for the options, and InvalidInput for a file."""
    given = {_PLAN_FIELDS.get(name, name): value for name, value in options.items() if value is not None}
    if "train" in given:
        given["train"] = ",".join(given["train"])
    if inputs:
        given["inputs"] = inputs
    if plan_file:
        plan = read_plan(plan_file)
        given = {**plan.facts(), **given}
    wanted = ("inputs", "tokenizer") if given.get("template") else ("inputs", "format", "tokenizer")
    missing = [_SAID.get(name, f"--{name}") for name in wanted if not given.get(name)]
    if missing:
        raise click.UsageError(f"missing {' and '.join(missing)}; say it, or give a --plan FILE that does")
    try:
        return plan_of(given)
    except InvalidInput as error:
        name = error.path.removeprefix("$.").partition("[")[0]
        if plan_file and options.get(name) is None:
            raise  # the file says it
        spelled = OPTIONS.get(name, f"--{name.replace('_', '-')}") if name else ""
        raise click.UsageError(f"{spelled}: {error.message}" if spelled else error.message) from error


def as_json(found: Any) -> str:
    """Indented JSON and a newline, for programs and curious people."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
