"""Owns the shape of help: options in sections, and names that a shell can complete."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from turnscript.convert.registry import apis, named_formats
from turnscript.formats.format import Format

NORMALIZE_JSON = "Spell the JSON of calls and results in one way; --strict does not mind that."


VARIANT_HELP = "A variant of the format; `turnscript formats` lists them."


def variant_of(format_: Format, variant: str | None) -> Format:
    """Return a variant of a format, the format itself for None. Raises UsageError, which names those there are."""
    if variant is None:
        return format_
    if variant not in format_.variants:
        known = f"its variants: {', '.join(format_.variants)}" if format_.variants else "it has none"
        raise click.UsageError(f"--variant: {format_.name} has no variant {variant!r}; {known}")
    return format_.variant(variant)


class Option(click.Option):
    """An option that stands under a heading of the help text."""

    def __init__(self, *args: Any, section: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.section = section


class SectionedCommand(click.Command):
    """A command whose help groups options under their headings, in the order of their first option, all else last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, click.Option)]
        for option in sorted(options, key=lambda option: not isinstance(option, Option)):
            record = option.get_help_record(ctx)
            if record is not None:
                sections.setdefault(option.section if isinstance(option, Option) else "Other", []).append(record)
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class ApiName(click.ParamType[str]):
    """The name of an API. Whether it is known is checked later."""

    name = "name"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(name) for name in apis() if name.startswith(incomplete)]


class Name(click.ParamType[str]):
    """The name of an API or format, or a file of formats. Whether it is known is checked later, with its options."""

    name = "name"

    def __init__(self, *others: str) -> None:
        self._others = others

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        known = [*self._others, *apis(), *named_formats()]
        found = [CompletionItem(name) for name in known if name.startswith(incomplete)]
        return found or [CompletionItem(incomplete, type="file")]  # a format may be declared in a file
