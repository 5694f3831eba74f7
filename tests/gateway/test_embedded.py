"""Owns running a model inside this process: it answers, stops, and says what is wrong with a file, and to whom."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.running import CODE, process
from tests.gateway import tinygguf
from tests.gateway.running import Running
from tests.gateway.scripted import said
from tests.gateway.serving import Serving
from tests.gateway.stage import APIS, NO_TLS, Threaded, Told, body_of
from tools.demo import Server
from turnscript.backends.backend import Completion
from turnscript.convert import registry
from turnscript.core.errors import InvalidInput, Unsupported, UpstreamError
from turnscript.gateway import embedded, loadclock
from turnscript.gateway.config import Config
from turnscript.gateway.embedded import Embedded
from turnscript.gateway.upstream import Upstream

LLAMA = registry.get_backend("llamacpp")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model."""
    return tinygguf.write_llama(tmp_path / "tiny.gguf")


def test_a_file_becomes_a_server_with_the_slots_and_context_that_were_asked_for(model: Path) -> None:
    async def run(url: str) -> tuple[int | None, int | None, str]:
        async with Upstream(url, LLAMA) as upstream:
            facts = await upstream.facts()
            ask = Completion(prompt="Hi", max_tokens=20, grammar=tinygguf.gbnf("hello"))
            async with upstream.open(ask) as answer:
                text = "".join([piece.text async for pieces in answer for piece in pieces])
            return facts.context, facts.slots, text

    with Embedded(model, context=512, parallel=3, threads=1) as one, Embedded(model, threads=1) as two:
        assert one.url != two.url
        assert one.url.startswith("http://127.0.0.1:")
        assert (512, 3, "hello") == asyncio.run(run(one.url))
        assert (4096, 2, "hello") == asyncio.run(run(two.url))


def test_a_closed_server_is_gone_and_its_answers_break_off(model: Path) -> None:
    async def run() -> None:
        served = Embedded(model, threads=1)
        async with Upstream(served.url, LLAMA) as upstream:
            ask = Completion(prompt="Hi", max_tokens=10**6, sampling={"ignore_eos": True})
            async with upstream.open(ask) as answer:
                await anext(answer)
                await asyncio.to_thread(served.close)
                with pytest.raises(UpstreamError):
                    async for _ in answer:
                        pass
            served.close()
            assert not await upstream.healthy()

    asyncio.run(run())


def test_a_request_that_waits_for_a_slot_changes_nothing_of_the_answer_there(tmp_path: Path) -> None:
    """llama.cpp puts back what it knows of the one that waits at once: the answer went on from another conversation."""

    def ask(prompt: str, tokens: int) -> Completion:
        return Completion(prompt=prompt, max_tokens=tokens, slot=0, sampling={"temperature": 0.0, "ignore_eos": True})

    long, short = ask("User: hello the the ing", 300), ask("User: ing ing ing ing ing hello", 1)

    async def text(upstream: Upstream, ask: Completion, beside: Completion | None = None) -> str:
        texts: list[str] = []
        waiting: list[asyncio.Task[str]] = []
        async with upstream.open(ask) as answer:
            async for pieces in answer:
                texts += [piece.text for piece in pieces]
                if beside is not None and not waiting:
                    waiting.append(asyncio.create_task(text(upstream, beside)))
        await asyncio.gather(*waiting)
        return "".join(texts)

    async def run(url: str) -> tuple[str, str]:
        async with Upstream(url, LLAMA) as upstream:
            alone = await text(upstream, long)
            await text(upstream, short)
            return alone, await text(upstream, long, beside=short)

    with Embedded(tinygguf.write_rwkv7(tmp_path / "tiny.gguf"), threads=1) as served:
        alone, disturbed = asyncio.run(run(served.url))
    assert len(alone) > 100
    assert alone == disturbed


def test_an_engine_of_the_gateway_answers_the_gateway_alone(model: Path) -> None:
    """Whoever has an account on this machine can reach its port, and would need no key there."""
    with Running(Config.for_backend(f"embedded:{model}", "batuta-chatml", max_tokens=3)) as gateway:
        ask = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        assert 200 == httpx2.post(f"{gateway.url}/v1/chat/completions", json=ask, verify=NO_TLS, timeout=20).status_code
        [engine] = gateway.service.models()[0].pool.members
        for path, body in (("/completion", {"prompt": "Hi", "n_predict": 1}), ("/tokenize", {"content": "Hi"})):
            told = httpx2.post(engine.upstream.url + path, json=body, verify=NO_TLS, timeout=20)
            assert 401 == told.status_code
        assert 401 == httpx2.get(f"{engine.upstream.url}/slots", verify=NO_TLS, timeout=20).status_code


def shown(*options: str) -> str:
    """What `turnscript serve` says when it starts, logs included."""
    with Server(0, *options) as server:
        return "".join(server.lines)


@pytest.mark.deep
def test_a_model_has_the_context_of_its_file_and_is_told_while_it_loads(model: Path) -> None:
    said = shown("--backend", f"embedded:{model}", "--format", "batuta-chatml")
    loading = next(line for line in said.splitlines() if "loading the model" in line)
    assert f"file={model} size=0 MB memory=2 MB context=4096 slots=2 why=all that the model has" in loading
    assert re.search(r"model loaded model=default seconds=\d+\.\d context=4096 slots=2\n", said)
    assert said.index("loading the model") < said.index("model loaded") < said.index("listening on")


@pytest.mark.deep
def test_a_context_that_is_too_short_for_agents_is_told_before_one_is_started(model: Path) -> None:
    short = shown("--backend", f"embedded:{model}", "--format", "batuta-chatml", "--context", "2000")
    assert "context=2000 slots=2 why=as asked for" in short
    assert "its 2000 tokens are too few for the instructions and tools of Claude Code (about 12000), " in short
    assert "say --context N" in short
    assert "too few" not in shown()  # the tiny model has 65,536


@pytest.mark.parametrize(("asked", "has"), [(None, 4096), (768, 768), (50_000, 4096)])
def test_clients_are_told_of_the_context_that_the_engine_has(model: Path, asked: int | None, has: int) -> None:
    """llama.cpp gives a conversation no more than the model was made for, whatever it is asked for."""
    config = Config.for_backend(f"embedded:{model}", "batuta-chatml", context=asked)
    with Running(config) as gateway:
        [served] = gateway.service.models()
        [member] = served.pool.members
        assert (has, has) == (served.context, member.upstream.known.context)
        listed = httpx2.get(f"{gateway.url}/v1/models", verify=NO_TLS, timeout=20).json()["data"][0]
        assert has == listed["max_input_tokens"]


def test_a_context_alone_needs_a_model_on_the_command_line(tmp_path: Path) -> None:
    told = process("serve", "--context", "4096", env=os.environ | {"XDG_STATE_HOME": str(tmp_path)}, cwd=tmp_path)
    assert 2 == told.returncode
    assert b"no --backend is given, so there is no model for --context" in told.stderr


def test_on_a_terminal_a_line_tells_how_much_is_loaded_until_it_is(tmp_path: Path) -> None:
    """It is drawn by a process of its own: llama.cpp lets no other thread of this one run while it loads."""
    command = [sys.executable, loadclock.__file__, str(os.getpid()), "8100000000", "big.gguf"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as drawing:
        assert drawing.stdin is not None
        assert drawing.stderr is not None
        first = drawing.stderr.read(len("\r\x1b[Kloading big.gguf: "))
        drawing.send_signal(signal.SIGINT)  # Ctrl-C reaches it, too
        drawing.stdin.close()
        rest = drawing.stderr.read()
        assert 0 == drawing.wait(20)
    assert b"\r\x1b[Kloading big.gguf: " == first
    assert re.match(rb"(0\.\d of 8\.1 GB, )?0 s", rest)
    assert rest.endswith(b"\r\x1b[K")


def test_the_line_is_drawn_on_terminals_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **named: started.append(arguments))
    with embedded.clock(tmp_path / "m.gguf", 5):
        assert [] == started


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-9000], "cut off"),
        (lambda data: data[:5000], "cut off"),
        (lambda data: data[:20], "cut off"),
        (lambda data: data.replace(b"llama", b"lambda"[:5]), "does not know"),
        (lambda data: b"GGUF" + b"\xff" * 5000, "llama.cpp cannot load"),
        (lambda data: b"PK\x03\x04", "is no GGUF file: it begins with"),
        (lambda data: b"", "is no GGUF file: it is empty"),
    ],
)
def test_a_file_that_is_no_model_is_an_error_that_names_it(model: Path, change: Any, message: str) -> None:
    model.write_bytes(change(model.read_bytes()))
    with pytest.raises(InvalidInput, match=message) as caught:
        Embedded(model)
    assert str(model) in str(caught.value)


def served(model: Path, code: str = CODE) -> subprocess.CompletedProcess[bytes]:
    """`turnscript serve` with a model, run to its end."""
    arguments = ["--backend", f"embedded:{model}", "--format", "rwkv-universal", "--port", "0"]
    return process("serve", *arguments, code=code, env=os.environ | {"XDG_STATE_HOME": str(model.parent)})


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "llama.cpp cannot load"), (b"root:x:0:0::/root:/bin/sh\n", "is no GGUF file: it begins with b'root'")],
    ids=["cut off", "another file"],
)
def test_a_server_does_not_start_with_a_file_that_is_no_model(model: Path, content: bytes | None, reason: str) -> None:
    model.write_bytes(model.read_bytes()[:-9000] if content is None else content)
    told = served(model)
    shown = told.stderr.decode()
    assert 1 == told.returncode
    assert reason in shown.splitlines()[-2]
    assert str(model) in shown
    assert "listening on" not in shown
    assert "Traceback" not in shown


@pytest.mark.deep
def test_a_server_does_not_start_without_the_library_that_its_model_needs(model: Path) -> None:
    told = served(model, f"import turnscript.gateway.embedded as one; one._MODULE = 'no_such_library'\n{CODE}")
    assert 1 == told.returncode
    assert told.stderr.decode().splitlines()[-1].endswith("pip install 'turnscript[embedded]'")


def test_a_model_that_is_damaged_while_the_server_runs_is_no_fault_of_a_client(model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-9000])
    script = said({"data": [{"id": "model"}]})
    with (
        Threaded() as thread,
        thread.server(lambda _: script) as server,
        Serving(model.parent, server.url) as serving,
    ):
        serving.backend = f"embedded:{model}"
        serving.configure()
        serving.signal(signal.SIGHUP)
        end = time.monotonic() + 20
        while not serving.events("model not ready"):
            assert time.monotonic() < end
            time.sleep(0.01)
        for api in APIS:
            response = serving.client.post(api.endpoint, content=body_of(api, stream=False))
            told = Told(api, response.status_code, dict(response.headers), response.content)
            assert api.render_error(UpstreamError("?"))[0] == told.status
            assert "the model 'default' cannot be run; the log of this server says why" in str(told.error)
            assert str(model).encode() not in told.body
        assert not serving.client.get("/health").json()["models"]["default"]["up"]
        assert str(model) in serving.events("model not ready")[-1]["error"]


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    for path in (tmp_path / "none.gguf", tmp_path):
        with pytest.raises(InvalidInput, match="cannot read the model"):
            Embedded(path)


def test_without_the_library_the_extra_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_MODULE", "no_such_library")
    with pytest.raises(Unsupported, match=r"pip install 'turnscript\[embedded\]'"):
        Embedded(model)


def test_tiny_models_are_the_same_for_the_same_seed_and_small(tmp_path: Path) -> None:
    for write in (tinygguf.write_llama, tinygguf.write_rwkv7):
        one, two, other = (write(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2)))
        assert one.read_bytes() == two.read_bytes() != other.read_bytes()
        assert one.stat().st_size < 1_000_000


def test_the_library_is_not_needed_to_import_this() -> None:
    code = "import sys, turnscript.gateway.embedded; sys.exit('xllamacpp' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False).returncode
