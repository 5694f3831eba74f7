"""What only real processes show: pipes, signals, terminals, memory."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

import pytest

from tests.cli.running import CHAT, CODE, LOSSY, PATIENCE, live, process, read_rows, rows
from turnscript.cli.loading import is_command

TO_CHAT = ("convert", "--to", "openai-chat")
LINES = (*TO_CHAT, "--lines", "--from", "anthropic-messages")
GOOD = json.dumps(CHAT).encode()
TERMINAL = {"TERM": "xterm", "COLUMNS": "100"}


def test_a_pipe_through_two_commands_gives_the_request_back() -> None:
    first = process("convert", "--to", "rwkv-universal", input=json.dumps(LOSSY).encode())
    second = process("convert", "--to", "anthropic-messages", "--strict", input=first.stdout)
    assert (0, LOSSY) == (second.returncode, json.loads(second.stdout))


def test_a_reader_that_goes_away_ends_it_quietly() -> None:
    with live(*LINES, "--quiet") as command:
        command.send(rows(LOSSY))
        assert command.stdout.readline().startswith(b'{"model"')
        command.stdout.close()
        with suppress(BrokenPipeError):  # until it has gone away too
            while command.process.poll() is None:
                command.send(rows(LOSSY) * 1000)
        assert (141, b"") == (command.wait(), command.stderr.read())


@pytest.mark.parametrize("command", ["--help", "apis", "formats"])
def test_nobody_reading_is_no_traceback(command: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = process(command, stdout=writer)
    os.close(writer)
    assert b"" == done.stderr
    assert done.returncode in (1, 141)


def test_a_row_comes_out_before_the_next_one_goes_in() -> None:
    with live(*LINES, "--quiet") as command:
        for _ in range(3):
            command.send(rows(LOSSY))
            ready, _, _ = select.select([command.stdout], [], [], PATIENCE)
            assert ready
            assert b"messages" in os.read(command.stdout.fileno(), 65536)
        command.stdin.close()
        assert 0 == command.wait()


def test_ctrl_c_while_the_commands_are_loaded_is_no_traceback() -> None:
    early = """
import os, signal, sys
class Early:
    def find_spec(self, name, *_):
        if name == "turnscript.cli.commands":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Early())
"""
    with live("formats", code=early + CODE) as command:
        assert (130, b"turnscript: interrupted\n") == (command.wait(), command.stderr.read())


PROGRAM = "import sys\nfrom turnscript.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"
"""What pip installs as the command."""
EARLIER = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
class Early:
    def find_spec(self, name, *_):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Early())
"""


def interrupted(folder: Path, at: str, *command: str) -> tuple[int, bytes]:
    """The exit code and the words of a program that gets Ctrl-C as soon as it imports a module."""
    (folder / "sitecustomize.py").write_text(EARLIER, encoding="utf-8")
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = os.environ | {"PYTHONPATH": path, "INTERRUPTED_AT": at}
    done = subprocess.run(
        [sys.executable, *command],
        env=variables,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "at", ["turnscript.apis.api", "msgspec", "turnscript.convert.registry", "turnscript.cli.main", "click"]
)
@pytest.mark.parametrize("program", [True, False], ids=["program", "module"])
def test_ctrl_c_while_the_package_is_loaded_is_no_traceback(tmp_path: Path, at: str, program: bool) -> None:
    file = tmp_path / "turnscript"
    file.write_text(PROGRAM, encoding="utf-8")
    command = [str(file)] if program else ["-m", "turnscript"]
    assert (130, b"turnscript: interrupted\n") == interrupted(tmp_path, at, *command, "formats")


def test_ctrl_c_while_a_library_is_loaded_is_an_exception_of_its_program(tmp_path: Path) -> None:
    for argument in ("turnscript", "-m"):
        code, told = interrupted(tmp_path, "turnscript.convert.registry", "-c", "import turnscript", argument)
        assert (-signal.SIGINT, True) == (code, told.endswith(b"KeyboardInterrupt\n"))


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/usr/bin/turnscript", "serve"], ["python", "-X", "dev", "/usr/bin/turnscript", "serve"], True),
        (["-m", "formats"], ["python", "-m", "turnscript", "formats"], True),
        (["-m"], ["python", "-m", "pytest", "turnscript"], False),
        (["/usr/bin/turnscript", "serve"], ["python", "-c", "from multiprocessing.spawn import spawn_main"], False),
        (["train.py"], ["python", "train.py"], False),
        ([], ["python"], False),
    ],
)
def test_only_the_command_line_itself_takes_ctrl_c(argv: list[str], original: list[str], expected: bool) -> None:
    assert expected == is_command(argv, original)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, code: int) -> None:
    outputs = [f"--{name}={tmp_path / name}" for name in ("output", "losses", "rejects")]
    with live(*LINES, *outputs) as command:
        command.send(rows(LOSSY) * 1000)
        command.until(lambda: len(list(tmp_path.iterdir())) == 3)
        command.process.send_signal(number)
        assert code == command.wait()
        told = b"turnscript: interrupted; unfinished files are removed\n" if number == signal.SIGINT else b""
        assert told == command.stderr.read()
    assert [] == list(tmp_path.iterdir())


def test_ctrl_c_while_waiting_for_input_is_one_line_too() -> None:
    ours, theirs = pty.openpty()
    with live(*TO_CHAT, stdin=theirs) as command:
        assert b"reading standard input" in command.stderr.readline()
        command.process.send_signal(signal.SIGINT)
        assert 130 == command.wait()
        assert [b"turnscript: interrupted; unfinished files are removed"] == command.stderr.read().splitlines()
    os.close(theirs)
    os.close(ours)


# Terminals.


def on_terminal(
    *arguments: str, stdin: bytes, stdout: bool = False, also: Mapping[str, str] = MappingProxyType({})
) -> tuple[int, str]:
    """Run with stderr (and stdout) on a terminal. Gives the exit code and what a person sees there."""
    ours, theirs = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with live(
        *arguments,
        stdout=theirs if stdout else subprocess.DEVNULL,
        stderr=theirs,
        env=variables | TERMINAL | dict(also),
    ) as command:
        os.close(theirs)
        command.stdin.write(stdin)
        command.stdin.close()
        seen = _read_all(ours)
        return command.wait(), seen


def _read_all(terminal: int) -> str:
    seen = b""
    while chunk := _read(terminal):
        seen += chunk
    os.close(terminal)
    return seen.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # how Linux says that nobody holds the other end any more
        return b""


def test_colours_are_for_terminals_only() -> None:
    _, seen = on_terminal(*TO_CHAT, stdin=json.dumps(LOSSY).encode())
    assert "$.top_k: \x1b[31m\x1b[1mdropped\x1b[0m: " in seen
    _, seen = on_terminal(*TO_CHAT, stdin=b"{")
    assert "turnscript: \x1b[31m\x1b[1merror\x1b[0m: " in seen
    assert b"\x1b" not in process(*TO_CHAT, input=json.dumps(LOSSY).encode()).stderr


@pytest.mark.parametrize("variable", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_switched_off(variable: dict[str, str]) -> None:
    code, seen = on_terminal(*TO_CHAT, stdin=json.dumps(LOSSY).encode(), also=variable)
    assert (0, True, False) == (code, "dropped" in seen, "\x1b" in seen)


def test_json_is_indented_on_a_terminal_and_a_transcript_ends_its_line() -> None:
    _, seen = on_terminal(*TO_CHAT, "--quiet", stdin=GOOD, stdout=True)
    assert seen.startswith('{\r\n  "model": "m",\r\n')
    _, seen = on_terminal(*TO_CHAT, "--quiet", "--compact", stdin=GOOD, stdout=True)
    assert seen.startswith('{"model":"m",')
    to_text = ("convert", "--to", "rwkv-universal", "--view", "prompt", "--quiet")
    assert "<<USER>>\r\nHi\r\n<<USER_END>>\r\n" == on_terminal(*to_text, stdin=GOOD, stdout=True)[1]


def test_who_types_the_input_is_told_how_to_end_it() -> None:
    ours, theirs = pty.openpty()
    with live(*TO_CHAT, stdin=theirs) as command:
        os.close(theirs)
        assert b"turnscript: reading standard input; Ctrl-D ends it\n" == command.stderr.readline()
        os.write(ours, GOOD + b"\n\x04\x04")
        assert 0 == command.wait()
    os.close(ours)


# Many rows: memory stays flat, and there is a bar for whoever waits.


def measured(*arguments: str) -> tuple[int, str, int]:
    """Run with stderr on a terminal. Gives the exit code, what was seen there, and the peak of memory in MiB."""
    ours, theirs = pty.openpty()
    # Not `resource`: what the system reports there begins with the memory of the process that forked.
    code = f"import atexit; atexit.register(lambda: print(open('/proc/self/status').read())); {CODE}"
    with live(*arguments, code=code, stdin=subprocess.DEVNULL, stderr=theirs, env=os.environ | TERMINAL) as command:
        os.close(theirs)
        seen = _read_all(ours)
        peak = re.search(r"VmHWM:\s*(\d+) kB", command.stdout.read().decode())
        assert peak
        return command.wait(), seen, int(peak[1]) >> 10


@pytest.mark.deep
def test_many_rows_take_no_more_memory_than_few_and_show_a_bar(tmp_path: Path) -> None:
    many, few, out, lost = (tmp_path / name for name in ("many.jsonl", "few.jsonl", "out.jsonl", "lost.jsonl"))
    row = rows(LOSSY | {"x": "filler " * 100})
    few.write_bytes(row * 1_000)
    many.write_bytes(row * 60_000)
    _, _, base = measured(*LINES, str(few), "--output", str(out))
    code, seen, peak = measured(*LINES, str(many), "--output", str(out), "--losses", str(lost))
    assert 0 == code
    with out.open("rb") as converted:
        assert 60_000 == sum(1 for _ in converted)
    assert peak < base + 24, f"{peak} MiB for many rows, {base} MiB for few"
    assert many.stat().st_size > 40 << 20
    assert re.search(r"━.* \d+ rows  \d+ rows/s  \d+\.\d MB/s  0 rejected +\d+:\d\d:\d\d left", seen)
    assert "60000 rows converted, 0 rejected, 120000 losses: 120000 dropped" in seen


def test_without_a_terminal_there_is_no_bar() -> None:
    command = f"import turnscript.cli.progress as progress; progress.DELAY = 0; {CODE}"
    done = process(*LINES, code=command, input=rows(LOSSY) * 3000)
    assert 2 == len(done.stderr.splitlines())


@pytest.mark.deep
def test_rejects_of_many_rows_are_not_kept_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_bytes(b'{"model": "filler filler filler filler filler filler filler filler"\n' * 50_000)
    code, seen, peak = measured(*LINES, str(path), "--output", str(tmp_path / "out.jsonl"))
    assert (1, True) == (code, "and 49995 more" in seen)
    assert peak < 64
    assert 50_000 == len(read_rows(tmp_path / "out.jsonl.rejects.jsonl"))


def test_the_package_is_a_program_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "turnscript", "--version"], capture_output=True, timeout=60, check=False
    )
    assert (0, b"") == (done.returncode, done.stderr)
    assert process("--version").stdout == done.stdout


def test_a_command_loads_what_speaks_http_when_it_asks() -> None:
    code = "import sys, turnscript.cli.commands; print({'ssl', 'http.client', 'urllib.request'} & {*sys.modules})"
    assert b"set()\n" == process(code=code).stdout
