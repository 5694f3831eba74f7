"""Owns the troubles of input files as errors: the file, what is wrong with it, and what to do about it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from turnscript.core.errors import InvalidInput

_REMEDIES = {
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "check the path",
    errno.EISDIR: "give its files, or the folder where folders are taken",
    errno.EACCES: "check who may read it",
    errno.EIO: "the disk fails: copy the file elsewhere and try again",
}


def unusable(file: str, what: str, remedy: str) -> InvalidInput:
    """Return the error for a file that cannot be read at all."""
    return InvalidInput(f"{file}: {what}; {remedy}")


@contextmanager
def reading(file: str) -> Iterator[None]:
    """Turn what the system says against reading a file into an error for people."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        remedy = _REMEDIES.get(error.errno or 0, "check the file and its disk")
        raise unusable(file, f"cannot read this: {reason[:1].lower()}{reason[1:]}", remedy) from error
    except ValueError as error:
        if "embedded null" in str(error):  # what `open` says to a path with a NUL byte in it
            raise unusable(file, "cannot read this: no path has a NUL byte", "check the path") from error
        raise
