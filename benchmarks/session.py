"""A deterministic agent session of a given size, before any API gives it a shape.

The same seed and size always give the same conversation: a coding agent that reads files, searches, edits and
runs commands, with prose in several scripts, code with newlines and quotes, and tool output.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

from benchmarks.tools import JsonObject, declarations

ENGLISH = (
    "The failing test points at the reader, not at the writer, so I start there.",
    "Please keep the public names as they are; only the error text may change.",
    "I checked both call sites: neither of them handles an empty list.",
    'The log says "connection reset", which matches the retry that we saw earlier.',
    "I will add a case for it first, watch it fail, and then fix the code.",
    "The cache key leaves out the locale, so two users can see each other's page.",
    "Nothing else imports this module; it can move without a shim.",
)
WORLD = (
    *ENGLISH[:3],
    "Das ist dieselbe Stelle wie gestern: die Prüfung läuft, bevor die Datei geöffnet ist.",
    "Le fichier est réécrit à chaque appel, même quand rien n'a changé.",
    "Проверьте, пожалуйста, что порядок ключей сохраняется.",
    "这个函数在输入为空时会返回旧的结果。需要先清空缓存。",
    "次の手順では、設定ファイルを読み込んでからテストを実行します。",
    "That removes two allocations a row — about 12 % of the time — without a new dependency. 🎯",
)
CODE = (
    "def merge(left: list[int], right: list[int]) -> list[int]:",
    "    merged: list[int] = []",
    "    while left and right:",
    "        merged.append(left.pop(0) if left[0] <= right[0] else right.pop(0))",
    "    return merged + left + right",
    "",
    'PATTERN = re.compile(r"^(?P<name>[\\w.-]+)\\s*=\\s*\\"(?P<value>[^\\"]*)\\"$")',
    "class Cache:",
    '    """Entries by key; the oldest entry goes first."""',
    "\tif err != nil {",
    '\t\treturn fmt.Errorf("open %q: %w", path, err)',
    "\t}",
    "const label = `${user.name} <${user.mail}>`; // naïve on purpose",
    '    assert render("<b>\\u00fc</b>") == "&lt;b&gt;ü&lt;/b&gt;"',
)
LOG = (
    "tests/unit/test_reader.py::test_empty_list PASSED",
    "tests/unit/test_reader.py::test_truncated FAILED",
    "E       AssertionError: assert ['a', 'b'] == ['a', 'b', '']",
    "2026-03-04T11:22:33.456Z INFO  worker-3 finished batch=118 rows=4096 took=0.318s",
    "2026-03-04T11:22:33.790Z WARN  worker-1 retry in 250 ms: connection reset by peer",
    'src/reader.py:118:    raise ValueError(f"line {number}: expected a key")',
    "-rw-r--r-- 1 dev dev   18213 Mar  4 11:20 src/écran/Übersicht.tsx",
    '{"level":"info","route":"/v1/items","status":200,"ms":3.25,"tags":["a","b"]}',
)
_RESULT_SIZES = (80, 150, 300, 600, 1200, 2500, 6000)
_ALPHABET = "ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789"


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    """Without the prefix that an API puts before it."""
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Result:
    call: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One request to the model and its answer: what came in, then what the assistant did."""

    results: tuple[Result, ...]
    user: str
    thinking: str
    signature: str
    text: str
    calls: tuple[Call, ...]
    text_first: bool
    """The assistant wrote its text before it thought (interleaved thinking)."""


@dataclass(frozen=True, slots=True)
class Session:
    system: tuple[str, ...]
    tools: list[tuple[str, str, JsonObject]]
    steps: list[Step] = field(default_factory=list)
    closing_results: tuple[Result, ...] = ()
    closing_user: str = ""


def lines(rng: Random, pool: tuple[str, ...], size: int, joint: str) -> str:
    lines: list[str] = []
    total = 0
    while total < size:
        line = rng.choice(pool)
        lines.append(line)
        total += len(line) + len(joint)
    return joint.join(lines)


def prose(rng: Random, size: int, joint: str) -> str:
    """Seven texts of ten are plain English; the others mix scripts and may hold an emoji."""
    return lines(rng, ENGLISH if rng.random() < 0.7 else WORLD, size, joint)


def _token(rng: Random, length: int) -> str:
    return "".join(rng.choices(_ALPHABET, k=length))


def _call(rng: Random, room: int) -> Call:
    path = f"/workspace/src/{rng.choice(('reader', 'writer', 'écran', 'index'))}_{rng.randrange(40)}.py"
    body_size = min(room, rng.choice((150, 400, 1200)))
    choices: tuple[tuple[str, JsonObject], ...] = (
        ("read_file", {"path": path, "offset": rng.randrange(1, 900), "limit": 200}),
        ("search_text", {"pattern": r"def \w+\(self, *\"", "glob": "**/*.py", "mode": "lines", "context": 2}),
        ("run_command", {"command": f'cd /workspace && pytest -q -k "{_token(rng, 5)}" 2>&1 | tail -20'}),
        (
            "edit_file",
            {
                "path": path,
                "old_text": lines(rng, CODE, body_size // 2, "\n"),
                "new_text": lines(rng, CODE, body_size // 2, "\n"),
                "all": False,
            },
        ),
        ("write_file", {"path": path, "content": lines(rng, CODE, body_size, "\n"), "executable": False}),
        (
            "update_plan",
            {"steps": [{"title": rng.choice(WORLD), "status": "pending", "weight": 1.5} for _ in range(3)]},
        ),
    )
    name, arguments = choices[rng.choices(range(6), weights=(6, 4, 5, 4, 1, 1))[0]]
    return Call(_token(rng, 22), name, arguments)


def _step(rng: Random, pending: tuple[Call, ...], room: int) -> Step:
    results = []
    for call in pending:
        size = min(room // 4, rng.choice(_RESULT_SIZES))
        pool = LOG if call.name in {"run_command", "search_text"} else CODE
        results.append(Result(call.id, lines(rng, pool, size, "\n"), failed=rng.random() < 0.05))
    speaks = not pending or rng.random() < 0.25
    return Step(
        results=tuple(results),
        user=prose(rng, rng.choice((60, 150, 400)), " ") if speaks else "",
        thinking=prose(rng, rng.choice((80, 200, 500)), " ") if rng.random() < 0.7 else "",
        signature=_token(rng, 180) + "==",
        text=prose(rng, rng.choice((60, 120, 300)), "\n\n"),
        calls=tuple(_call(rng, room // 4) for _ in range(rng.choice((1, 1, 1, 1, 2, 3)))),
        text_first=rng.random() < 0.25,
    )


def _weight(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())


def _step_weight(step: Step) -> int:
    """About what the step takes in a request body: its texts as JSON plus the keys around them."""
    weight = 120 + _weight([step.user, step.thinking, step.text]) + len(step.signature)
    weight += sum(110 + _weight(result.text) for result in step.results)
    return weight + sum(110 + _weight(call.arguments) for call in step.calls)


def build(size: int, seed: int = 1) -> Session:
    """A session whose request body comes to about `size` bytes.

    The tools take their real share: about 40 % of a 10 KB body (a first request, short descriptions), a fifth of
    100 KB, a fiftieth of 1 MB.
    """
    rng = Random(seed)
    full = size >= 60_000
    system = (
        "You are a careful coding agent.",
        prose(rng, 6000 if full else 700, "\n"),
        f"<environment>\ncwd: /workspace\nplatform: linux\nbranch: fix/{_token(rng, 6)}\n</environment>",
    )
    session = Session(system, declarations(full))
    room = size - 600 - _weight(session.system) - sum(60 + _weight(tool) for tool in session.tools)
    pending: tuple[Call, ...] = ()
    while room > 400:
        step = _step(rng, pending, room)
        weight = _step_weight(step)
        if weight > room:
            break
        session.steps.append(step)
        pending = step.calls
        room -= weight
    closing = tuple(Result(call.id, lines(rng, CODE, 100, "\n")) for call in pending)
    room -= sum(110 + _weight(result.text) for result in closing)
    return Session(session.system, session.tools, session.steps, closing, lines(rng, LOG, max(60, room - 150), "\n"))
