"""Owns the word about files of folders that are not read, because of their names."""

from __future__ import annotations

from turnscript.cli.report import Screen, plural
from turnscript.datasets.files import Listing

_NAMED = 3


def say_unread(listing: Listing) -> None:
    """Name files that lie in the given folders and that no row is read from: a `.csv`, a file without a suffix."""
    unread = listing.left_out
    if not unread:
        return
    names = ", ".join(unread[:_NAMED])
    more = f" and {len(unread) - _NAMED} more" if len(unread) > _NAMED else ""
    count = plural(len(unread), "file is", "files are")
    Screen().note(f"{count} not read, because of the name: {names}{more}; name a file itself to have it read")
