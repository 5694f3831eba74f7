"""A program that begins as a fork is what it would be if it had been started: only what is loaded is there already."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import forks

TOLD = """
import atexit, json, os, signal, sys, warnings
atexit.register(print, "the end")
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "env": dict(os.environ), "name": __name__,
    "parent": os.getppid(), "session": os.getsid(0) == os.getpid(), "globals": sorted(globals()),
    "files": sorted(os.listdir("/proc/self/fd")), "strict": "error" in [one[0] for one in warnings.filters],
    "streams": [(one.encoding, one.errors, one.line_buffering) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "signals": [str(signal.getsignal(one)) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)],
    "input": sys.stdin.read(),
}))
"""


def both(code: str, *words: str, **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """How a fork ends, which is how a program ends that was started."""
    command = [sys.executable, "-c", code, *words]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "input": b"in", "env": dict(os.environ), **options}
    started = subprocess.run(command, check=False, **given)
    forked = forks.run(command, **given)
    assert started.returncode == forked.returncode
    assert (started.stdout or b"").split(b", ") == (forked.stdout or b"").split(b", ")
    return forked


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True},
        {"cwd": "/"},
        {"env": {**os.environ, "PYTHONWARNINGS": "error", "OWN": "ä\n"}, "preexec_fn": forks.hear_signals},
        {"stderr": subprocess.STDOUT},
    ],
    ids=["plain", "session", "folder", "environment", "one stream"],
)
def test_it_is_given_what_a_started_program_is_given(options: dict[str, Any]) -> None:
    done = both(TOLD, "a", "-b", "", **options)
    assert (0, True) == (done.returncode, done.stdout.endswith(b"the end\n"))
    assert f'"parent": {os.getpid()}'.encode() in done.stdout


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit(-1)", 255),
        ("import sys; sys.exit('why')", 1),
        ("import os; os._exit(9)", 9),
        ("1 / 0", 1),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import threading, time; threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0),
    ],
)
def test_it_ends_as_a_started_program_ends(code: str, expected: int) -> None:
    done = both(code)
    assert expected == done.returncode


def test_output_that_is_lost_is_told_at_its_end() -> None:
    with open("/dev/full", "wb") as full:
        done = both("print('never written')", stdout=full)
    assert (120, True) == (done.returncode, b"No space left on device" in done.stderr)


def test_it_is_a_child_that_hears_signals_and_leaves_nothing() -> None:
    forks.ready()
    before = set(psutil.Process().children())
    with forks.Fork([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"], stdout=-1) as one:
        assert one.stdout is not None
        assert b"up\n" == one.stdout.readline()
        assert {one.pid} == {child.pid for child in set(psutil.Process().children()) - before}
        one.terminate()
        assert -signal.SIGTERM == one.wait(20)
    assert before == set(psutil.Process().children())


def test_what_it_needs_is_loaded_unless_it_must_be_started(tmp_path: Path) -> None:
    code = "import sys; print('turnscript.gateway.server' in sys.modules)"
    command = [sys.executable, "-c", code]
    assert b"True\n" == forks.run(command, stdout=subprocess.PIPE).stdout
    for name, value in {"PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1", "LC_ALL": "C", "PYTHONPATH": str(tmp_path)}.items():
        environment = {**os.environ, name: value}
        assert b"False\n" == forks.run(command, stdout=subprocess.PIPE, env=environment).stdout
    assert b"False\n" == forks.run(command, stdout=subprocess.PIPE, preexec_fn=lambda: None).stdout
