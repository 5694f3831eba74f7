"""The programs in `examples/` do what they say, with the official SDKs, against the tiny model as it is served.

What the model says in detail is its own affair: tested is that it calls the tool and tells the tool's value.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.demo import Server

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def chat_tools(shown: list[str]) -> None:
    """The result is drawn anew each time, so the last line can only come from it."""
    (called,) = [line for line in shown if line.startswith("get_weather ")]
    assert '"Paris"' in called
    told = re.search(r"'temperature': (\d+)", called)
    assert told
    assert told[1] in numbers(shown[-1])


def messages_tools(shown: list[str]) -> None:
    """So are the numbers here."""
    (called,) = [line for line in shown if line.startswith("calculator(")]
    found = re.fullmatch(r"calculator\((\d+) \* (\d+)\) -> (\d+)", called)
    assert found
    assert int(found[1]) * int(found[2]) == int(found[3])
    assert found[3] in numbers(shown[-1])


def streaming(shown: list[str]) -> None:
    """Both streams come in pieces and hold the call."""
    chat, messages, ended = shown
    assert chat.count("|") > 2
    assert messages.count("|") > 1
    assert "get_weather" in chat
    for line in (chat, messages):
        assert '{"city": "Oslo"}' in line.replace("|", "")
    assert "tool_use" == ended


def thinking(shown: list[str]) -> None:
    """There is a thought before the call and one after its result."""
    assert 2 == len([line for line in shown if re.match(r"thinking: \S", line)])
    assert ["tool_use: {'city': 'Rome'}"] == [line for line in shown if line.startswith("tool_use")]
    assert "28" in numbers(shown[-1])


def responses(shown: list[str]) -> None:
    """The second question stands behind the first conversation."""
    first, told, second, also_told = shown
    assert ("Tokyo" in first, "Lima" in second) == (True, True)
    assert "23" in numbers(told)
    assert "19" in numbers(also_told)


def numbers(line: str) -> list[str]:
    return re.findall(r"\d+", line)


PROGRAMS: tuple[Callable[[list[str]], None], ...] = (chat_tools, messages_tools, streaming, thinking, responses)


@pytest.mark.deep
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_the_program_does_what_it_says(program: Callable[[list[str]], None], tiny: Server) -> None:
    env = os.environ | {
        "OPENAI_BASE_URL": f"{tiny.url}/v1",
        "ANTHROPIC_BASE_URL": tiny.url,
        "NO_PROXY": "127.0.0.1",
        "PYTHONUTF8": "1",
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{program.__name__}.py")],
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    program(done.stdout.strip().splitlines())


def test_every_program_is_run() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted(one.__name__ for one in PROGRAMS)
