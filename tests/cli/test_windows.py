"""Nothing that only POSIX has is needed: where it is taken away, every module loads and the main commands run."""

import json
import os
import pkgutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import turnscript
from tests.cli import windows
from tests.cli.running import CHAT, EXAMPLES, PATIENCE

SOURCE = Path(turnscript.__file__).parents[1]
TO = ("--to", "rwkv-goose", "--tokenizer", "rwkv-world")


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """The environment of a process on such a system. Nobody has a `HOME` there."""
    (tmp_path / "sitecustomize.py").write_text(Path(windows.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    return kept | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{SOURCE}", "LOCALAPPDATA": str(tmp_path / "local")}


def ran(variables: dict[str, str], *arguments: str | Path) -> "subprocess.CompletedProcess[bytes]":
    return python(variables, "-m", "turnscript", *map(str, arguments))


def python(variables: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False
    )


@pytest.mark.deep
def test_every_module_can_be_loaded(variables: dict[str, str]) -> None:
    """What an extra brings that nobody can have there is asked for when it is used."""
    found = pkgutil.walk_packages(turnscript.__path__, "turnscript.")
    names = [one.name for one in found if "__main__" not in one.name]
    assert len(names) > 300
    loaded = f"import importlib\nfor name in {names!r}: importlib.import_module(name)\nimport sys; print(sys.platform)"
    done = python(variables, "-c", loaded)
    assert (b"win32\n", b"") == (done.stdout, done.stderr)


def test_a_file_is_converted(variables: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.write_text("old", encoding="utf-8")
    done = ran(variables, "convert", EXAMPLES / "chat_request.json", "--to", "openai-responses", "--output", out, "-q")
    assert (0, b"") == (done.returncode, done.stderr)
    assert "input" in json.loads(out.read_bytes())


@pytest.mark.deep
def test_training_data_is_built_by_several_processes(variables: dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    built = ran(variables, "data", "build", EXAMPLES / "training_rows.jsonl", *TO, "--out", out, "--workers", "2")
    assert b"3 rows were set aside" in built.stderr
    verified = ran(variables, "data", "verify", out)
    assert (0, b"") == (verified.returncode, verified.stderr)


@pytest.mark.deep
def test_keys_are_made_and_listed(variables: dict[str, str], tmp_path: Path) -> None:
    assert 0 == ran(variables, "keys", "add", "laptop", "--file", tmp_path / "keys").returncode
    assert b"laptop" in ran(variables, "keys", "list", "--file", tmp_path / "keys").stdout


@pytest.mark.deep
def test_the_server_answers_and_keeps_what_it_keeps_where_that_system_wants_it(
    variables: dict[str, str], tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "turnscript", "serve", "--port", "0"]
    with subprocess.Popen(command, env=variables, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            said = []
            for line in server.stderr:
                said.append(line)
                if "ANTHROPIC_BASE_URL" in line:
                    break
            address = next((line.split()[-1] for line in said if "listening on" in line), "")
            assert address, said
            answer = asked(f"{address}/v1/chat/completions", CHAT)
            assert answer["choices"][0]["message"]["content"]
            streamed = asked(f"{address}/v1/chat/completions", CHAT | {"stream": True})
            assert streamed.endswith("data: [DONE]\n\n")
        finally:
            server.send_signal(signal.SIGINT)
            rest = server.communicate(timeout=PATIENCE)[1]
    assert 0 == server.returncode
    assert "Traceback" not in rest
    assert [*(tmp_path / "local" / "turnscript").iterdir()]


def asked(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        text = answer.read().decode()
    return text if "stream" in body else json.loads(text)
