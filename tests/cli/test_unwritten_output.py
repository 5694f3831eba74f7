"""Owns the checks that output which cannot be written is told once, with our exit code, buffered or not."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import process

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/claude_code_request.json"
CONVERT = ("convert", EXAMPLE, "--to", "openai-chat")
UNREAD = ("convert", "not there", "--to", "openai-chat")
BUFFERS = pytest.mark.parametrize("environment", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])
"""Images of containers let Python write at once."""


def onto_full(*command: str | Path, stream: str, environment: dict[str, str]) -> tuple[int, str]:
    """The exit code, and all that was said on standard error."""
    with open("/dev/full", "wb") as full:
        streams: dict[str, Any] = {stream: full}
        done = process(*command, **streams, env=os.environ | environment)
    return done.returncode, (done.stderr or b"").decode()


@BUFFERS
@pytest.mark.parametrize("command", [CONVERT, ("formats",), ("--version",)], ids=["convert", "formats", "version"])
def test_a_full_standard_output_is_told_once(command: tuple[str | Path, ...], environment: dict[str, str]) -> None:
    code, said = onto_full(*command, stream="stdout", environment=environment)
    assert (1, 1) == (code, said.lower().count("no space left on device"))
    assert "ignored" not in said


@BUFFERS
@pytest.mark.parametrize(
    ("command", "code"), [(CONVERT, 1), (UNREAD, 1), (("show",), 2)], ids=["losses", "error", "usage"]
)
def test_a_full_standard_error_leaves_our_exit_code(
    command: tuple[str | Path, ...], code: int, environment: dict[str, str]
) -> None:
    assert (code, "") == onto_full(*command, stream="stderr", environment=environment)


@BUFFERS
def test_an_output_that_is_cut_off_is_told(tmp_path: Path, environment: dict[str, str]) -> None:
    whole = process(*CONVERT).stdout
    room = len(whole) - 1  # the system takes these, and says nothing until it is asked to take the last

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    with open(tmp_path / "out", "wb") as out:
        done = process(*CONVERT, stdout=out, stderr=subprocess.PIPE, env=os.environ | environment, preexec_fn=limit)
    assert (room, 1) == ((tmp_path / "out").stat().st_size, done.returncode)
    assert "standard output: cannot write this: file too large" in done.stderr.decode()
