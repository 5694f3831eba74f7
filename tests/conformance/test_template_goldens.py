"""Owns the golden chat templates: a file for each format, and beside it what the template writes otherwise."""

from collections.abc import Callable

import turnscript as ts


def test_a_template_is_the_golden_one(format_name: str, golden: Callable[[str, str], None]) -> None:
    """F1."""
    format_ = ts.get_format(format_name)
    golden(f"templates/{format_.name}.jinja", format_.jinja().value)


def test_what_a_template_writes_otherwise_is_the_golden_list(
    format_name: str, golden: Callable[[str, str], None]
) -> None:
    """F1."""
    format_ = ts.get_format(format_name)
    golden(f"templates/{format_.name}.losses.txt", "".join(f"{loss}\n" for loss in format_.jinja().losses))
