"""Owns what the tests of whole jobs share: rows, plans, the bytes of a finished folder, and scripts run for real."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import turnscript
from tests.forks import hear_signals
from turnscript.datasets.build import RUN_FILE, build
from turnscript.datasets.executors import Executor
from turnscript.datasets.plan import Plan
from turnscript.datasets.preparation import PLAN_FILE
from turnscript.datasets.report import Report

FORMAT = "rwkv-universal"
CHAT = "messages"


def chat(*texts: str) -> dict[str, Any]:
    """A row whose turns alternate, the user's first."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)]}


def logged(question: str, *answers: str) -> dict[str, Any]:
    """A logged request with as many answers as are given: a row of several examples."""
    choices = [{"message": {"role": "assistant", "content": one}, "finish_reason": "stop"} for one in answers]
    return {"request": {"model": "m", **chat(question)}, "response": {"choices": choices}}


def chats(count: int, seed: int = 0, words: int = 12) -> list[bytes]:
    """Rows as lines: chats of several turns, some of them twice, some of them bad, some blank."""
    rng = random.Random(seed)
    lines: list[bytes] = []
    for at in range(count):
        texts = [f"{at} " + "wort été 词 " * rng.randint(1, words) for _ in range(2 * rng.randint(1, 3))]
        lines.append(json.dumps(chat(*texts), ensure_ascii=bool(at % 2)).encode())
        if at % 7 == 3:
            lines.append(rng.choice(lines))
        if at % 11 == 5:
            lines.append(rng.choice([b"{", b"[]", b'{"messages": []}', b'{"messages": 7}', b"\xff\xfe", b'"x"']))
        if at % 5 == 0:
            lines.append(rng.choice([b"", b"  ", b"\r"]))
    return lines


def written(path: Path, lines: list[bytes]) -> Path:
    """A file of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path


def plan_for(*inputs: Path | str, **fields: Any) -> Plan:
    """A plan that is quick: every byte is a token."""
    given: dict[str, Any] = {"format": FORMAT, "tokenizer": "bytes", "form": CHAT, **fields}
    return Plan(inputs=tuple(map(str, inputs)), **given)


def built(plan: Plan, out: Path, executor: Executor | None = None, **options: Any) -> Report:
    """A whole job."""
    report = build(plan, out, executor=executor, **options)
    assert report is not None
    report.check()
    return report


def results(out: Path) -> dict[str, bytes]:
    """All that a job leaves, but what may differ between runs."""
    own = {PLAN_FILE, RUN_FILE}
    return {
        path.name: path.read_bytes()
        for path in sorted(out.iterdir())
        if path.is_file() and path.name not in own and not path.name.startswith(".")
    }


def documents(out: Path, name: str = "train") -> list[dict[str, Any]]:
    """The samples of an output of JSON Lines."""
    return [json.loads(line) for line in (out / f"{name}.jsonl").read_bytes().splitlines()]


def rejects(out: Path) -> list[dict[str, Any]]:
    """The rows that were set aside."""
    return [json.loads(line) for line in (out / "rejects.jsonl").read_bytes().splitlines()]


_WATCHED = """
import threading
import psutil
done, peak = threading.Event(), [0]
def watch():
    while not done.wait(0.005):
        peak[0] = max(peak[0], psutil.Process().memory_info().rss)
watching = threading.Thread(target=watch, daemon=True)
watching.start()
{script}
done.set()
watching.join()
print(peak[0] // 2**20)
"""


def peak_of(script: str, *arguments: object) -> int:
    """How many MiB of memory a Python program of its own has taken at most."""
    program = started(_WATCHED.format(script=script), *arguments, stdout=subprocess.PIPE)
    peak = int(program.communicate()[0])
    assert 0 == program.returncode
    return peak


def started(script: str, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """A Python program of its own, with nothing of this process but its path. Signals reach it in any case."""
    own = [
        Path(__file__).resolve().parents[2],
        Path(turnscript.__file__).resolve().parents[1],
    ]  # the same program that the tests have
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, own)), "PYTHONWARNINGS": ""}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(
        command,
        env=environment,
        preexec_fn=hear_signals,  # noqa: PLW1509  (tests have no threads)
        **options,
    )
