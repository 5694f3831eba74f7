"""Owns loading chat templates from files, as whoever has one does, and the table that reads what one writes."""

from pathlib import Path

import turnscript as ts
from turnscript.detection.place import TemplateSource
from turnscript.detection.reading_table import Reading
from turnscript.detection.template_format import read_template


def loaded(folder: Path, source: str, name: str = "my.jinja") -> ts.Format:
    """The format of a template in a file."""
    place = folder / name
    place.write_text(source, encoding="utf-8")
    return ts.get_format(str(place))


def reading_of(source: str, **told: str | tuple[str, ...]) -> Reading:
    """The table that reads what a template writes. `told`: what else its place says, such as the names of its model."""
    return read_template(TemplateSource(text=source, **told))[1]  # type: ignore[arg-type]
