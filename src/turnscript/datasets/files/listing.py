"""Owns the list of input files: what the names, folders and patterns that a user gave stand for."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from msgspec import Struct

from turnscript.core.errors import InvalidInput
from turnscript.datasets.files.troubles import reading, unusable

COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst", ".zstd"})
LINES = frozenset({".jsonl", ".ndjson"})
PARQUET = frozenset({".parquet", ".pq"})
TEXT = frozenset({".txt"})
READ = LINES | PARQUET | TEXT | {".json", ".traj"}
"""What is taken from a folder. A file that is named itself may have any name."""
_NOTES = ("readme", "license", "licence", "notice", "copying", "requirements")
_ABOUT = frozenset({"dataset_infos.json", "dataset_info.json", "dataset_dict.json", *[f"{one}.txt" for one in _NOTES]})
"""What tells about the files of a folder, in lower case: the sizes and schemas of the Hugging Face hub, a licence."""


class Listing(Struct, frozen=True):
    """The files of some inputs, and those of their folders that are left out because of their names.

    `odd`: what else lies in the folders and cannot be read, by what it is.
    """

    files: list[str]
    left_out: list[str]
    odd: dict[str, str] = {}


def expand(inputs: Sequence[str]) -> list[str]:
    """Return the files that the inputs stand for. See `survey`."""
    return survey(inputs).files


def survey(inputs: Sequence[str]) -> Listing:
    """Return the files that inputs stand for: files, folders with all in them, and patterns (`*`, `?`, `[..]`, `**`).

    The order of the inputs is kept; what one input stands for is sorted by name. A file that occurs twice is taken
    once, where it comes first. From folders come the files whose suffix says that they may hold rows, but those that
    tell about a data set; hidden files and folders, and those whose name begins with `_`, belong to other programs and
    do not count at all.
    """
    if not inputs:
        raise InvalidInput("no input was given; name files, folders or patterns such as 'data/*.jsonl'")
    files: dict[str, str] = {}
    left_out: dict[str, str] = {}
    odd: dict[str, str] = {}
    for given in inputs:
        found = _expand_one(given)
        for path in found.files:
            files.setdefault(_same(path), path)
        for path in found.left_out:
            left_out.setdefault(_same(path), path)
        odd |= found.odd
    return Listing(list(files.values()), [path for key, path in left_out.items() if key not in files], odd)


def named(inputs: Sequence[str]) -> list[str]:
    """Return the files and folders that inputs name, by a pattern too. What is in the folders is not among them."""
    return [path for given in inputs for path in _matches(given)]


def suffixes(path: str) -> tuple[str, str]:
    """Return the suffix that says what a file holds, and the one that says how it is compressed; else empty."""
    parts = [part.lower() for part in PurePath(path).suffixes]
    outer = parts.pop() if parts and parts[-1] in COMPRESSED else ""
    return (parts[-1] if parts else ""), outer


def _same(path: str) -> str:
    return os.path.normcase(os.path.abspath(path))


def check_again(path: str) -> None:
    """Raise InvalidInput for what can be read only once, and for a file that is not there."""
    if path == "-":
        raise InvalidInput(
            "standard input cannot be used here, because inputs are read more than once and in pieces; "
            "write it to a file first, then name the file"
        )
    _is_folder(path)


def _expand_one(given: str) -> Listing:
    if given == "-":
        check_again(given)
    matches = _matches(given)
    if not matches:
        raise unusable(given, "no file matches this pattern", "check it, and quote it if the shell shall not read it")
    return _expand_paths(matches, given)


def _matches(given: str) -> list[str]:
    """Return what a pattern stands for. A name that is there is no pattern, whatever it looks like."""
    if os.path.lexists(given) or not glob.has_magic(given):
        return [given]
    return sorted(glob.glob(given, recursive=True))


def _expand_paths(paths: Iterable[str], given: str) -> Listing:
    listing = Listing([], [])
    found, others, odd = listing.files, listing.left_out, listing.odd
    for path in paths:
        if _is_folder(path):
            for inner, what in _walk(path):
                if what:
                    odd[inner] = what
                else:
                    (found if _may_hold_rows(inner) else others).append(inner)
        else:
            found.append(path)
    if not found:
        some = [repr(one) for one in others[:1]] or [f"{one!r} ({what})" for one, what in [*odd.items()][:1]]
        more = f" and {len(others) + len(odd) - 1} more" if len(others) + len(odd) > 1 else ""
        seen = f"; it has {some[0]}{more}" if some else ""
        wanted = ", ".join(sorted(READ))
        looked = f"rows are looked for in {wanted}, but not in what tells about a data set"
        raise unusable(
            given, f"there is no file with rows in it{seen}", f"{looked}; name a file itself to have it read"
        )
    return listing


def _may_hold_rows(path: str) -> bool:
    inner, outer = suffixes(path)
    return inner in READ and PurePath(path).name.lower().removesuffix(outer) not in _ABOUT


def _is_folder(path: str) -> bool:
    """Return whether it is a folder; an error unless it is one, or a file that can be read again and again."""
    with reading(path):
        mode = os.stat(path).st_mode
    if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
        what = "this is a pipe or a device, and inputs are read more than once and in pieces"
        raise unusable(path, what, "write it to a file first, then name the file")
    return stat.S_ISDIR(mode)


def _walk(folder: str) -> Iterator[tuple[str, str]]:
    """Give the files of a folder in an order that is the same on every machine, each with what it is if it is none."""
    with reading(folder):
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        path = os.path.join(folder, entry.name)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(path)
        else:
            yield path, _oddity(entry)


def _oddity(entry: os.DirEntry[str]) -> str:
    """Return what an entry of a folder is that is no file; empty for a file, to which a link may lead."""
    try:
        if entry.is_file():
            return ""
        is_folder = entry.is_dir()
    except OSError as error:
        reason = error.strerror or str(error)
        return f"a link that cannot be followed: {reason[:1].lower()}{reason[1:]}"
    if is_folder:
        return "a link to a folder"  # it could lead in a circle
    return "a link that leads nowhere" if entry.is_symlink() else "a pipe or a device"
