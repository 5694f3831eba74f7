"""Owns the two ways in which tests run the command line: in this process, and as a real one."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from click.testing import CliRunner, Result

from tests import forks
from tests.forks import hear_signals
from turnscript.cli.commands import group

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CODE = "from turnscript.cli.main import main; main()"
NOBODY = 65534
PATIENCE = 30

TRANSCRIPT = "<<SYS>>\nBe brief.\n<<SYS_END>>\n\n<<USER>>\nHi\n<<USER_END>>\n\n<<ASSISTANT>>\nHello.\n<<ASSISTANT_END>>"
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
MESSAGES = {"model": "m", "max_tokens": 9, "system": "Be brief.", "messages": [{"role": "user", "content": "Hi"}]}
LOSSY = MESSAGES | {"top_k": 3}
"""A Messages body that Chat Completions cannot carry whole: it has no `top_k`."""


def run(*arguments: str | Path, stdin: bytes | str | None = None) -> Result:
    """In this process. Faster, and standard input and output are not real files."""
    return CliRunner().invoke(group, list(map(str, arguments)), input=stdin)


def convert(*arguments: str | Path, stdin: bytes | str | None = None) -> Result:
    """`turnscript convert` in this process."""
    return run("convert", *arguments, stdin=stdin)


def typed(line: str) -> tuple[int, bytes, str]:
    """A command line of turnscript as a shell takes it: the exit code, standard output, standard error."""
    if in_this_process(line):
        result = run(*shlex.split(line)[1:])
        return result.exit_code, result.stdout_bytes, result.stderr
    variables = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["/bin/sh", "-c", line], env=variables, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def process(*arguments: str | Path, code: str = CODE, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """As a real process. What has `code` of its own, about what is loaded or how it ends, is started anew."""
    if "input" not in options:
        options.setdefault("stdin", subprocess.DEVNULL)
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    start = forks.run if code == CODE else subprocess.run
    return start([sys.executable, "-c", code, *map(str, arguments)], timeout=60, check=False, **streams)


def in_this_process(line: str) -> bool:
    """Whether the shell has only words to part: hundreds of interpreters would take minutes to start."""
    return line.startswith("turnscript ") and not set(line) & set("|<>;&$`")


class Live:
    """A process that still runs."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    @property
    def stderr(self) -> IO[bytes]:
        assert self.process.stderr is not None
        return self.process.stderr

    def send(self, data: bytes) -> None:
        """Write to its standard input at once."""
        self.stdin.write(data)
        self.stdin.flush()

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(timeout=PATIENCE)

    def until(self, true: Callable[[], bool]) -> None:
        """Wait until `true()` holds."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert self.process.poll() is None, "it ended too soon"
            assert time.monotonic() < end, "it takes too long"
            time.sleep(0.01)


@contextmanager
def live(*arguments: str | Path, code: str = CODE, **options: Any) -> Iterator[Live]:
    """A real process that the test talks to. Signals reach it even where the tests run in the background."""
    streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    start = forks.Fork if code == CODE else subprocess.Popen
    process = start(
        [sys.executable, "-c", code, *map(str, arguments)],
        preexec_fn=hear_signals,
        **streams,
    )
    try:
        yield Live(process)
    finally:
        if process.poll() is None:
            process.kill()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        process.wait()


def rows(*values: object) -> bytes:
    """JSON Lines."""
    return b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in values)


def read_rows(path: Path) -> list[Any]:
    """The rows of a file of JSON Lines."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of the superuser, whom no file permission stops."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)
