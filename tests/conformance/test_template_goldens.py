"""Owns the golden chat templates and response templates of formats, each beside what differs by it."""

import json
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


def test_a_response_template_is_the_golden_one(format_name: str, golden: Callable[[str, str], None]) -> None:
    """F1."""
    format_ = ts.get_format(format_name)
    made = format_.response_template()
    page = json.dumps(made.value, ensure_ascii=False, indent=2)
    golden(f"response_templates/{format_.name}.json", f"{page}\n")
    golden(f"response_templates/{format_.name}.losses.txt", "".join(f"{loss}\n" for loss in made.losses))
